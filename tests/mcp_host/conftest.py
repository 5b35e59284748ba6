"""Sessions in memory for MCP servers, whose clock and approvals the test moves."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from broker.host import HostSettings
from broker.testing import MemorySession

sys.path.append(str(Path(__file__).parent))
from approvals import Asked


@pytest.fixture
def asked() -> Asked:
    return Asked()


@pytest.fixture
def new_world(broker_open: Callable[..., MemorySession], asked: Asked) -> Callable[..., MemorySession]:
    def make(**settings: Any) -> MemorySession:
        return broker_open(patience_ms=0, settings=HostSettings(**settings), approve=asked)

    return make


@pytest.fixture
def world(new_world: Callable[..., MemorySession]) -> MemorySession:
    return new_world()
