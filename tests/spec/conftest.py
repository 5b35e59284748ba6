"""Says at the end of a run how much of each reference text is shown by tests."""

from __future__ import annotations

import tomllib
from collections import Counter
from pathlib import Path

import pytest


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    for manifest in sorted(Path(__file__).parent.glob("*.toml")):
        rows = tomllib.loads(manifest.read_text(encoding="utf-8")).values()
        counts = Counter(row["status"] for row in rows)
        terminalreporter.write_line(
            f"rules of {manifest.stem}: {len(rows)}, {counts['done']} done, {counts['not-yet']} not-yet"
        )
