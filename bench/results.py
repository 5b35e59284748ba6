"""The figures of one or more runs of the report: spreads by key, pooled over the runs, kept as JSON."""

from __future__ import annotations

import json
import statistics
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TypeAlias

from bench.rounds import Spread, ratio

Key: TypeAlias = tuple[str, ...]
Results: TypeAlias = dict[Key, Spread]
"""One run. A key is a section, what was measured in it, and ``seconds``, ``ratio`` (ours / theirs) or ``bytes``."""

_SEPARATOR = " | "


def add_times(results: Results, section: Key, times: Mapping[str, Sequence[float]], *, ours: str | None = None) -> None:
    """Keep the seconds of every contestant, and the ratios of ours to each of them."""
    for name, values in times.items():
        results[*section, name, "seconds"] = Spread.of(values)
        if ours is not None and name != ours:
            results[*section, name, "ratio"] = ratio(times, ours, name)


def pool(runs: Sequence[Results]) -> Results:
    """The median of the medians, the lowest lower and the highest upper quartile of all runs."""
    return {
        key: Spread(
            statistics.median(run[key].median for run in runs),
            min(run[key].low for run in runs),
            max(run[key].high for run in runs),
        )
        for key in runs[0]
    }


def save(path: Path, runs: Sequence[Results], machine: Mapping[str, str]) -> None:
    """Write everything that a page is made from."""
    path.parent.mkdir(parents=True, exist_ok=True)
    kept = [
        {_SEPARATOR.join(key): [spread.median, spread.low, spread.high] for key, spread in run.items()} for run in runs
    ]
    path.write_text(json.dumps({"machine": dict(machine), "runs": kept}, indent=1) + "\n")


def load(path: Path) -> tuple[list[Results], dict[str, str]]:
    """What :func:`save` wrote."""
    kept = json.loads(path.read_text())
    runs = [{tuple(key.split(_SEPARATOR)): Spread(*values) for key, values in run.items()} for run in kept["runs"]]
    return runs, kept["machine"]
