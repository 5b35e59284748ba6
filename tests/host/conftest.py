"""The sessions of these tests: in memory, where time passes only when the test says so, and over real processes."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from broker.host import HostSettings
from broker.testing import ManualClock, MemorySession, ProcessHost, ProcessSession

sys.path.append(str(Path(__file__).parent))


@pytest.fixture
def world(broker_both_ways: Callable[..., Any]) -> Any:
    """A session in memory, then the same test over real processes."""
    return broker_both_ways(patience_ms=0)


@pytest.fixture
def memory(broker_open: Callable[..., MemorySession]) -> MemorySession:
    """A session in memory, whose clock the test moves."""
    return broker_open(patience_ms=0)


@pytest.fixture
def make_memory(broker_open: Callable[..., MemorySession]) -> Callable[..., MemorySession]:
    """Makes sessions in memory whose host has the given settings."""
    return lambda **settings: broker_open(patience_ms=0, settings=HostSettings(**settings))


@pytest.fixture
def manual_processes(tmp_path: Path) -> Iterator[ProcessSession]:
    """A session over real processes on a clock the test moves."""
    with ProcessHost(tmp_path, clock=ManualClock()) as host:
        yield host.open_session(tmp_path)
