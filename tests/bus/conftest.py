"""One bus on a clock that the test moves, and two peers that most tests start from."""

from __future__ import annotations

import pytest

from broker import Bus, Field, Peer
from broker.testing import ManualClock


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock(unix_ms=1_700_000_000_000)


@pytest.fixture
def bus(clock: ManualClock) -> Bus:
    return Bus(clock=clock)


@pytest.fixture
def alpha(bus: Bus) -> Peer:
    """The publisher of ``bus.alpha.status``: ``summary`` (at most 128 bytes) and an optional ``step`` from 0 to 9."""
    alpha = bus.attach("alpha", instance_id="a" * 32)
    alpha.declare(
        "bus.alpha.status",
        [Field.string("summary", max_bytes=128), Field.integer("step", minimum=0, maximum=9, required=False)],
    )
    return alpha


@pytest.fixture
def beta(bus: Bus, alpha: Peer) -> Peer:
    """An active subscriber of ``bus.alpha.status``."""
    beta = bus.attach("beta", instance_id="b" * 32)
    beta.subscribe("bus.alpha.status")
    return beta
