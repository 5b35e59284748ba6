"""Measures everything and writes the page of benchmarks with its plots: ``python -m bench.report``.

What is being measured is said on stderr. The raw figures are kept in ``.benchmarks/report.json``, out of the
repository; ``--again`` writes the page from them without measuring.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from pathlib import Path

from bench import goals, machine, plots, results
from bench.measurements import measure_everything
from bench.page import page
from bench.rounds import ROUNDS, progress

DOCS = Path("docs")
KEPT = Path(".benchmarks") / "report.json"


def main(argv: Sequence[str] | None = None) -> None:
    """Measure, write, and print how the goals stand."""
    parser = argparse.ArgumentParser(
        prog="python -m bench.report", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--runs", type=int, default=3, help="how often everything is measured (%(default)s)")
    parser.add_argument("--rounds", type=int, default=ROUNDS, help="rounds of each comparison (%(default)s)")
    parser.add_argument(
        "--sessions",
        type=int,
        default=10_000,
        choices=(1_000, 10_000, 100_000),
        help="most idle sessions (%(default)s)",
    )
    parser.add_argument("--docs", type=Path, default=DOCS, help="where to write the page (%(default)s)")
    parser.add_argument("--again", action="store_true", help="write the page from the figures of the last time")
    given = parser.parse_args(argv)
    if given.again:
        runs, described = results.load(KEPT)
    else:
        described, runs = machine.describe(), []
        for number in range(given.runs):
            progress(f"run {number + 1} of {given.runs}")
            runs.append(measure_everything(rounds=given.rounds, sessions=given.sessions))
        described["rounds"] = str(given.rounds)
        results.save(KEPT, runs, described)
    rounds = int(described.pop("rounds"))
    plots.draw_all(results.pool(runs), given.docs / "benchmarks")
    (given.docs / "benchmarks.rst").write_text(page(runs, described, rounds=rounds, plots="benchmarks"))
    print(f"wrote {given.docs / 'benchmarks.rst'}\n")
    pooled = results.pool(runs)
    for goal in goals.GOALS:
        value = goal.find(pooled).median
        sign = "at least" if goal.at_least else "at most"
        print(f"{goal.work:<66} {value:10.3f}   {sign} {goal.must:g}: {goal.verdict(value).strip('*')}")


if __name__ == "__main__":
    main()
