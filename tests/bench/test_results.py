"""The figures of the report: kept, read back, and pooled over several runs."""

from __future__ import annotations

from pathlib import Path

from bench.results import Results, add_times, load, pool, save
from bench.rounds import Spread


def test_times_are_kept_with_the_ratio_of_ours_to_each_of_the_others() -> None:
    results: Results = {}
    add_times(results, ("publish", "8"), {"broker": [1.0, 1.0], "other": [4.0, 4.0]}, ours="broker")
    assert results == {
        ("publish", "8", "broker", "seconds"): Spread(1.0, 1.0, 1.0),
        ("publish", "8", "other", "seconds"): Spread(4.0, 4.0, 4.0),
        ("publish", "8", "other", "ratio"): Spread(0.25, 0.25, 0.25),
    }


def test_runs_are_pooled_by_the_median_and_the_widest_quartiles() -> None:
    runs: list[Results] = [{("a",): Spread(m, low, high)} for m, low, high in [(1, 0.5, 2), (9, 8, 10), (3, 1, 4)]]
    assert pool(runs) == {("a",): Spread(3, 0.5, 10)}


def test_what_is_saved_is_what_is_loaded(tmp_path: Path) -> None:
    runs: list[Results] = [{("publish", "8", "broker, take()", "seconds"): Spread(1e-6, 9e-7, 1.1e-6)}, {}]
    path = tmp_path / "kept" / "report.json"
    save(path, runs, {"processor": "one"})
    assert load(path) == (runs, {"processor": "one"})
