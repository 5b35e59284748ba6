"""Puts into every result what it was measured on, so that two of them can be compared honestly."""

from __future__ import annotations

import platform
import sys
from importlib.metadata import version
from typing import Any

import pytest

COMPARED = ("extension-broker", "attrs", "orjson", "sortedcontainers", "blinker", "psygnal", "mcp")


def describe_build() -> dict[str, Any]:
    """The interpreter and how it was built, and the version of each library in the run."""
    gil_enabled = getattr(sys, "_is_gil_enabled", lambda: True)
    return {
        "interpreter": f"{platform.python_implementation()} {platform.python_version()}",
        "build": " ".join(platform.python_build()),
        "compiler": platform.python_compiler(),
        "gil": gil_enabled(),
        "machine": platform.machine(),
        "libraries": {name: version(name) for name in COMPARED},
    }


@pytest.fixture(autouse=True)
def name_the_build(benchmark: Any) -> None:
    benchmark.extra_info.update(describe_build())


def pytest_report_header() -> str:
    build = describe_build()
    libraries = ", ".join(f"{name} {number}" for name, number in build["libraries"].items())
    gil = "with the GIL" if build["gil"] else "without the GIL"
    return f"measured on {build['interpreter']} ({build['build']}, {build['compiler']}), {gil}; {libraries}"
