"""Instructions of the processor for one publication: ``python -m bench.instructions``.

Time is noisy on a machine that does other things as well; instructions hardly are, so a regression of a few per cent
shows. They are counted by ``perf stat`` where the machine lets it, else by ``valgrind --tool=callgrind``: once for a
process that publishes a fixed number of times, once for one that does all but that, and the difference is shared out.
"""

from __future__ import annotations

import argparse
import gc
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Callable, Sequence

WARM_UP = 64
PUBLICATIONS = 500

Count = Callable[[Sequence[str]], int]


def work(contestant: str, subscribers: int, publications: int) -> None:
    """What the counted process does: always the same but for the number of publications."""
    from bench.contestants import BARE, BROKER, SAME_WORK
    from bench.payloads import FOUR

    gc.disable()
    run = (BROKER | SAME_WORK | BARE)[contestant](subscribers, FOUR)
    payloads = FOUR.fresh(WARM_UP + PUBLICATIONS)
    # The interpreter specialises what it has run a few times; that is not what a publication costs.
    run(payloads[: WARM_UP + publications])


def with_perf(command: Sequence[str]) -> int:
    """Instructions in user mode by the counters of the processor."""
    done = subprocess.run(
        ["perf", "stat", "-x", ",", "-e", "instructions:u", "--", *command],
        check=False,
        capture_output=True,
        text=True,
        env=_ENV,
    )
    counted = re.search(r"^(\d+),", done.stderr, re.MULTILINE)
    if done.returncode or counted is None:
        raise RuntimeError(f"perf stat counted nothing: {done.stderr.strip()[-200:]}")
    return int(counted[1])


def with_valgrind(command: Sequence[str]) -> int:
    """Instructions by running every one of them in valgrind; slow and exact."""
    done = subprocess.run(
        ["valgrind", "--tool=callgrind", "--callgrind-out-file=/dev/null", *command],
        check=False,
        capture_output=True,
        text=True,
        env=_ENV,
    )
    counted = re.search(r"Collected : (\d+)", done.stderr)
    if done.returncode or counted is None:
        raise RuntimeError(f"valgrind counted nothing: {done.stderr.strip()[-200:]}")
    return int(counted[1])


# One seed, so that dictionaries and sets are laid out alike in both processes.
_ENV = {**os.environ, "PYTHONHASHSEED": "0"}


def find_counter() -> tuple[str, Count]:
    """The first of the two that works here."""
    if shutil.which("perf"):
        try:
            with_perf([sys.executable, "-c", "pass"])
        except RuntimeError:
            pass
        else:
            return "perf stat", with_perf
    if shutil.which("valgrind"):
        return "valgrind --tool=callgrind", with_valgrind
    raise SystemExit("neither perf stat nor valgrind counts instructions on this machine")


def instructions_each(count: Count, contestant: str, subscribers: int) -> float:
    """Instructions of one publication and its handling."""

    def counted(publications: int, count: Count = count) -> int:
        arguments = ["--work", contestant, str(subscribers), str(publications)]
        return count([sys.executable, "-m", "bench.instructions", *arguments])

    # The first process after a change writes byte code, which no other does.
    counted(0, subprocess.check_call)
    return (counted(PUBLICATIONS) - counted(0)) / PUBLICATIONS


def main(argv: Sequence[str] | None = None) -> None:
    """Print a line for each number of subscribers."""
    parser = argparse.ArgumentParser(
        prog="python -m bench.instructions", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--subscribers", type=int, nargs="*", default=[1, 8, 63])
    parser.add_argument("--contestant", nargs="*", default=["broker, handlers", "broker, take()"])
    parser.add_argument("--work", nargs=3, help=argparse.SUPPRESS)
    given = parser.parse_args(argv)
    if given.work:
        contestant, subscribers, publications = given.work
        work(contestant, int(subscribers), int(publications))
        return
    name, count = find_counter()
    print(f"instructions for one of {PUBLICATIONS} publications and its handling, by {name}; {sys.version}")
    for contestant in given.contestant:
        for subscribers in given.subscribers:
            each = instructions_each(count, contestant, subscribers)
            print(f"{contestant:<24} N={subscribers:<3} {each:12,.0f}", flush=True)


if __name__ == "__main__":
    main()
