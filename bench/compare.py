"""Interleaved rounds: in each, every contestant does the same operations, and is compared with the first in that round.

``python -m bench.compare`` prints the ratios; a ratio below 1 means that the bus is the faster one. Ratios of one round
share the machine's mood of that moment; their median over the rounds is what counts, and the spread says how much.
"""

from __future__ import annotations

import argparse
import gc
import statistics
import sys
import time
from collections.abc import Callable, Sequence
from typing import Any

from bench.contestants import CONTESTANTS, PAYLOADS, Operation

ROUNDS = 15
ROUND_SECONDS = 0.02


def measure(operations: dict[str, Operation], rounds: int = ROUNDS) -> dict[str, list[float]]:
    """Seconds for one operation of each contestant, one value a round."""
    counts = {name: _calibrate(operation) for name, operation in operations.items()}
    times: dict[str, list[float]] = {name: [] for name in operations}
    gc.collect()
    gc.disable()
    try:
        for _ in range(rounds):
            for name, operation in operations.items():
                times[name].append(_run(operation, counts[name]) / counts[name])
            gc.collect()
    finally:
        gc.enable()
    return times


def ratios(times: dict[str, list[float]], ours: str, other: str) -> tuple[float, float, float]:
    """Median, lower and upper quartile of ours / other over the rounds."""
    values = [mine / theirs for mine, theirs in zip(times[ours], times[other], strict=True)]
    low, middle, high = statistics.quantiles(values, n=4)
    return middle, low, high


def _calibrate(operation: Operation) -> int:
    count = 1
    while (took := _run(operation, count)) < ROUND_SECONDS / 4:
        count *= 4
    return max(1, round(count * ROUND_SECONDS / took))


def _run(operation: Callable[[dict[str, Any]], object], count: int) -> float:
    payloads, size = PAYLOADS, len(PAYLOADS)
    start = time.perf_counter()
    for n in range(count):
        operation(payloads[n % size])
    return time.perf_counter() - start


def main(argv: Sequence[str] | None = None) -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=ROUNDS)
    parser.add_argument("--subscribers", type=int, nargs="*", default=[1, 8, 63])
    parser.add_argument("--ours", default="broker, handlers", choices=list(CONTESTANTS))
    given = parser.parse_args(argv)
    print(sys.version)
    for subscribers in given.subscribers:
        operations = {name: make(subscribers) for name, make in CONTESTANTS.items()}
        times = measure(operations, given.rounds)
        print(
            f"\n{subscribers} subscribers; median microseconds of {given.ours}: "
            f"{statistics.median(times[given.ours]) * 1e6:.2f}"
        )
        for name in CONTESTANTS:
            if name != given.ours:
                middle, low, high = ratios(times, given.ours, name)
                print(f"  / {name:<24} {middle:6.2f}   ({low:.2f} to {high:.2f})")


if __name__ == "__main__":
    main()
