"""Puts into every result what it was measured on, so that two of them can be compared honestly."""

from __future__ import annotations

from typing import Any

import pytest

from bench.machine import describe


@pytest.fixture(autouse=True)
def name_the_machine(benchmark: Any) -> None:
    benchmark.extra_info.update(describe())


def pytest_report_header() -> list[str]:
    return [f"{key}: {value}" for key, value in describe().items()]
