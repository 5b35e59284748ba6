"""Sessions with extensions of API 0.1, 0.2 and 0.4, in memory and over real processes."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from broker.host import FeatureServices

sys.path.append(str(Path(__file__).parent))
from feature_kit import EverythingService


@pytest.fixture
def service() -> EverythingService:
    return EverythingService()


def _opener(opens: Callable[..., Any]) -> Callable[..., Any]:
    def make(services: FeatureServices | None = None, settings: Any = None) -> Any:
        return opens(patience_ms=0, feature_services=services or FeatureServices(), settings=settings)

    return make


@pytest.fixture
def open_world(broker_both_ways: Callable[..., Any]) -> Callable[..., Any]:
    """Opens sessions in memory, then the same test's over real processes."""
    return _opener(broker_both_ways)


@pytest.fixture
def open_memory(broker_open: Callable[..., Any]) -> Callable[..., Any]:
    """Opens sessions in memory, whose clock the test moves."""
    return _opener(broker_open)
