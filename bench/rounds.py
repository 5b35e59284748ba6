"""Interleaved rounds: in each of them every contestant does the same, and is compared with another in that round.

Two times of one round share the machine's mood of that moment. So a comparison is the median over the rounds of the
ratios within a round; the quartiles say how much to trust it.
"""

from __future__ import annotations

import gc
import statistics
import sys
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any, TypeAlias

from attrs import frozen

ROUNDS = 15
ROUND_SECONDS = 0.01
MAX_OPERATIONS = 2_000

Run: TypeAlias = Callable[[Sequence[Any]], object]
"""Does one operation for each of the inputs it is given."""

Feed: TypeAlias = Callable[[int], Sequence[Any]]
"""Makes that many inputs, or fewer if no more fit at once, and tidies up before; not part of what is timed."""


Clock: TypeAlias = Callable[[], float]


@frozen
class Workload:
    """What is timed and what it is fed with."""

    run: Run
    feed: Feed


@frozen
class Spread:
    """A median with its quartiles."""

    median: float
    low: float
    high: float

    @classmethod
    def of(cls, values: Sequence[float]) -> Spread:
        """The median and quartiles of some values; of a single one, that value three times."""
        if len(values) == 1:
            return cls(values[0], values[0], values[0])
        low, median, high = statistics.quantiles(values, n=4, method="inclusive")
        return cls(median, low, high)

    def scaled(self, factor: float) -> Spread:
        """The same in another unit."""
        return Spread(self.median * factor, self.low * factor, self.high * factor)


def ratio(times: Mapping[str, Sequence[float]], ours: str, theirs: str) -> Spread:
    """The spread of ours / theirs within each round: below 1, ours is the faster one."""
    return Spread.of([mine / other for mine, other in zip(times[ours], times[theirs], strict=True)])


def each(operation: Callable[[Any], object]) -> Run:
    """A contestant whose operation takes one input."""

    def run(inputs: Sequence[Any]) -> None:
        for item in inputs:
            operation(item)

    return run


def measure(
    contestants: Mapping[str, Workload],
    *,
    rounds: int = ROUNDS,
    round_seconds: float = ROUND_SECONDS,
    clock: Clock = time.process_time,
) -> dict[str, list[float]]:
    """Seconds for one operation of each contestant, one value a round. The order turns from round to round.

    They are seconds of the processor, in which nothing counts that this process had to wait for another one; give
    ``time.perf_counter`` for what waits itself.
    """
    counts = {name: _calibrate(workload, round_seconds, clock) for name, workload in contestants.items()}
    times: dict[str, list[float]] = {name: [] for name in contestants}
    names = list(contestants)
    gc.collect()
    gc.disable()
    try:
        for number in range(rounds):
            turn = number % len(names)
            for name in names[turn:] + names[:turn]:
                times[name].append(_seconds_each(contestants[name], counts[name], clock))
            gc.collect()
    finally:
        gc.enable()
    return times


def _calibrate(workload: Workload, round_seconds: float, clock: Clock) -> int:
    count = 1
    while (took := _seconds_each(workload, count, clock) * count) < round_seconds / 4 and count < MAX_OPERATIONS:
        count *= 4
    return max(1, min(MAX_OPERATIONS, round(count * round_seconds / took)))


def _seconds_each(workload: Workload, count: int, clock: Clock) -> float:
    seconds, done = 0.0, 0
    while done < count:
        inputs = workload.feed(count - done)
        start = clock()
        workload.run(inputs)
        seconds += clock() - start
        done += len(inputs)
    return seconds / done


def progress(text: str) -> None:
    """Say on stderr what is being measured."""
    print(f"{time.strftime('%H:%M:%S')}  {text}", file=sys.stderr, flush=True)


Turn: TypeAlias = Callable[[], Awaitable[float]]
"""Does a fixed number of operations and gives the seconds for one of them."""


async def take_turns(contestants: Mapping[str, Turn], *, rounds: int = ROUNDS) -> dict[str, list[float]]:
    """As :func:`measure`, for contestants that wait for something. A first round warms everything up."""
    names = list(contestants)
    times: dict[str, list[float]] = {name: [] for name in names}
    for number in range(rounds + 1):
        turn = number % len(names)
        for name in names[turn:] + names[:turn]:
            seconds = await contestants[name]()
            if number:
                times[name].append(seconds)
    return times
