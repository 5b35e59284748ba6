"""Prints how publishing compares: ``python -m bench.compare``. A ratio below 1 means that the bus is the faster one."""

from __future__ import annotations

import argparse
import statistics
from collections.abc import Sequence

from bench.contestants import BARE, BROKER, OURS, SAME_WORK
from bench.loop_contestants import LOOP
from bench.machine import describe
from bench.payloads import FOUR
from bench.rounds import ROUNDS, Workload, measure, ratio

CONTESTANTS = BROKER | SAME_WORK | BARE | LOOP


def main(argv: Sequence[str] | None = None) -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=ROUNDS)
    parser.add_argument("--subscribers", type=int, nargs="*", default=[1, 8, 63])
    parser.add_argument("--ours", default=OURS, choices=list(CONTESTANTS))
    parser.add_argument("--only", nargs="*", default=list(CONTESTANTS), choices=list(CONTESTANTS), metavar="CONTESTANT")
    given = parser.parse_args(argv)
    for key, value in describe().items():
        print(f"{key}: {value}")
    names = [name for name in CONTESTANTS if name in given.only or name == given.ours]
    for subscribers in given.subscribers:
        workloads = {name: Workload(CONTESTANTS[name](subscribers, FOUR), FOUR.fresh) for name in names}
        times = measure(workloads, rounds=given.rounds)
        ours = statistics.median(times[given.ours]) * 1e6
        print(f"\n{subscribers} subscribers; median microseconds of {given.ours}: {ours:.2f}")
        for name in names:
            if name != given.ours:
                spread = ratio(times, given.ours, name)
                print(f"  / {name:<24} {spread.median:7.3f}   ({spread.low:.3f} to {spread.high:.3f})")


if __name__ == "__main__":
    main()
