"""Puts into every result what it was measured on, so that two of them can be compared honestly."""

from __future__ import annotations

from typing import Any

import pytest

from bench.machine import describe


@pytest.fixture(autouse=True)
def name_the_machine(request: pytest.FixtureRequest) -> None:
    if "benchmark" in request.fixturenames:
        benchmark: Any = request.getfixturevalue("benchmark")
        benchmark.extra_info.update(describe())


def pytest_report_header() -> list[str]:
    return [f"{key}: {value}" for key, value in describe().items()]
