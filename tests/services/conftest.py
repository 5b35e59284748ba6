"""Sessions whose host has services bound."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from broker.host import HostServices, HostSettings
from broker.testing import MemorySession

sys.path.append(str(Path(__file__).parent))


@pytest.fixture
def told(broker_open: Callable[..., MemorySession]) -> Callable[..., MemorySession]:
    """Makes sessions in memory whose clock the test moves: ``told(services, **settings)``."""

    def make(services: HostServices | None = None, **settings: Any) -> MemorySession:
        return broker_open(patience_ms=0, services=services, settings=HostSettings(**settings))

    return make
