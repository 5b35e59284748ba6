"""Interleaved rounds: in each of them every contestant does the same, and is compared with another in that round.

Two times of one round share the machine's mood of that moment. So a comparison is the median over the rounds of the
ratios within a round; the quartiles say how much to trust it.
"""

from __future__ import annotations

import gc
import statistics
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeAlias

from attrs import frozen

ROUNDS = 15
ROUND_SECONDS = 0.02
MAX_OPERATIONS = 2_000

Run: TypeAlias = Callable[[Sequence[Any]], object]
"""Does one operation for each of the inputs it is given."""

Feed: TypeAlias = Callable[[int], Sequence[Any]]
"""Makes that many inputs; not part of what is timed."""


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
    contestants: Mapping[str, Run], feed: Feed, *, rounds: int = ROUNDS, round_seconds: float = ROUND_SECONDS
) -> dict[str, list[float]]:
    """Seconds for one operation of each contestant, one value a round. The order turns from round to round."""
    counts = {name: _calibrate(run, feed, round_seconds) for name, run in contestants.items()}
    times: dict[str, list[float]] = {name: [] for name in contestants}
    names = list(contestants)
    gc.collect()
    gc.disable()
    try:
        for number in range(rounds):
            turn = number % len(names)
            for name in names[turn:] + names[:turn]:
                inputs = feed(counts[name])
                times[name].append(_time(contestants[name], inputs) / len(inputs))
            gc.collect()
    finally:
        gc.enable()
    return times


def _calibrate(run: Run, feed: Feed, seconds: float) -> int:
    count = 1
    while (took := _time(run, feed(count))) < seconds / 4 and count < MAX_OPERATIONS:
        count *= 4
    return max(1, min(MAX_OPERATIONS, round(count * seconds / took)))


def _time(run: Run, inputs: Sequence[Any]) -> float:
    start = time.perf_counter()
    run(inputs)
    return time.perf_counter() - start


def progress(text: str) -> None:
    """Say on stderr what is being measured."""
    print(f"{time.strftime('%H:%M:%S')}  {text}", file=sys.stderr, flush=True)
