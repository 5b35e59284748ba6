"""Events to real child processes and the start of one, a few rounds of each; the figures are under ``extra_info``."""

from __future__ import annotations

import asyncio
import statistics
from typing import Any

import pytest

from bench.events import CHILDREN, OURS, RAW, compare_events
from bench.idle import in_own_process
from bench.rounds import ratio
from bench.startup import compare_imports, compare_spawns

ROUNDS = 3


@pytest.mark.parametrize("children", CHILDREN)
def test_events_to_children(benchmark: Any, children: int) -> None:
    times = benchmark.pedantic(lambda: asyncio.run(compare_events(children, rounds=ROUNDS)), rounds=1)
    benchmark.group = f"events to {children} processes"
    for burst, measured in times.items():
        benchmark.extra_info[f"burst {burst}, us an event"] = _medians(measured, 1e6)
        benchmark.extra_info[f"burst {burst}, to raw lines"] = round(ratio(measured, RAW, OURS).median, 3)


def test_spawn_to_ready(benchmark: Any) -> None:
    times = benchmark.pedantic(lambda: asyncio.run(compare_spawns(rounds=ROUNDS)), rounds=1)
    benchmark.extra_info["ms"] = _medians(times, 1e3)


def test_imports(benchmark: Any) -> None:
    times = benchmark.pedantic(lambda: compare_imports(rounds=ROUNDS), rounds=1)
    benchmark.extra_info["ms"] = _medians(times, 1e3)


@pytest.mark.parametrize("bus", [True, False])
@pytest.mark.parametrize("sessions", [1, 1000])
def test_idle_sessions(benchmark: Any, sessions: int, bus: bool) -> None:
    benchmark.extra_info.update(benchmark.pedantic(lambda: in_own_process(sessions, traced=True, bus=bus), rounds=1))


def _medians(times: dict[str, list[float]], factor: float) -> dict[str, float]:
    return {name: round(statistics.median(values) * factor, 2) for name, values in times.items()}
