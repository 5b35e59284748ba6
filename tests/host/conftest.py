"""Both worlds, for every test that wants to be run both ways."""

from __future__ import annotations

import importlib.util
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from broker.host import HostSettings
from broker.testing import ManualClock


def _load(name: str) -> Any:
    if name not in sys.modules:
        spec = importlib.util.spec_from_file_location(name, Path(__file__).with_name(f"{name}.py"))
        assert spec is not None and spec.loader is not None
        module = importlib.util.module_from_spec(spec)
        sys.modules[name] = module
        spec.loader.exec_module(module)
    return sys.modules[name]


worlds = _load("worlds")
scripts = _load("scripts")


@pytest.fixture(params=["memory", "process"])
def world(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Any]:
    """A session over in-memory pairs, then the same test over real processes."""
    made = worlds.MemoryWorld(tmp_path) if request.param == "memory" else worlds.ProcessWorld(tmp_path)
    yield made
    made.close()


@pytest.fixture
def processes(tmp_path: Path) -> Iterator[Any]:
    """A session over real processes."""
    made = worlds.ProcessWorld(tmp_path)
    yield made
    made.close()


@pytest.fixture
def manual_processes(tmp_path: Path) -> Iterator[Any]:
    """A session over real processes on a clock the test moves."""
    made = worlds.ProcessWorld(tmp_path, clock=ManualClock())
    yield made
    made.close()


@pytest.fixture
def memory(tmp_path: Path) -> Iterator[Any]:
    """A session over in-memory pairs, whose clock the test moves."""
    made = worlds.MemoryWorld(tmp_path)
    yield made
    made.close()


@pytest.fixture
def make_memory(tmp_path: Path) -> Iterator[Callable[..., Any]]:
    """Makes sessions over in-memory pairs whose host has the given settings."""
    made: list[Any] = []

    def make(**settings: Any) -> Any:
        made.append(worlds.MemoryWorld(tmp_path, HostSettings(**settings)))
        return made[-1]

    yield make
    for world in made:
        world.close()
