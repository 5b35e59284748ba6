"""A session's life as events: starts, exits, restarts, and peers that the bus retired."""

from __future__ import annotations

from typing import Any

import pytest

from broker.bus import Field
from broker.errors import ExitedError, InvalidParamsError, TimedOutError
from broker.host import Diagnostic, Exited, Health, HealthChanged, Started, life
from broker.limits import MAX_BUS_QUEUE_MESSAGES
from broker.testing import ScriptedServer
from broker.wire.odek.events.event import Stamper
from broker.wire.odek.events.life import (
    LIFE_TYPES,
    ExtensionExited,
    ExtensionParked,
    ExtensionRestarting,
    ExtensionStarted,
    PeerRetired,
)
from broker.wire.odek.events.reader import EventReader
from broker.wire.odek.events.types import EVENT_TYPES


@pytest.mark.parametrize(
    ("notice", "payload"),
    [
        (Started("a", 2, ("x", "y")), ExtensionStarted(extension="a", generation=2, tools=2)),
        (Exited("a", 2, 0, "stopped", None), ExtensionExited(extension="a", generation=2, status=0)),
        (
            Exited("a", 2, -9, "secret text", ExitedError("secret text")),
            ExtensionExited(extension="a", generation=2, status=-9, error_class="error"),
        ),
        (
            Exited("a", 2, None, "x", TimedOutError("x")),
            ExtensionExited(extension="a", generation=2, error_class="deadline_exceeded"),
        ),
        (HealthChanged("a", Health.BACKOFF, "x"), ExtensionRestarting(extension="a")),
        (HealthChanged("a", Health.PARKED, "x"), ExtensionParked(extension="a")),
        (HealthChanged("a", Health.READY, "x"), None),
        (Diagnostic("a", 1, "stderr", "secret"), None),
    ],
)
def test_which_notices_are_told(notice: Any, payload: Any) -> None:
    assert life.from_notice(notice) == payload


def test_a_servers_life_is_told_and_read_back(world: Any) -> None:
    payloads: list[Any] = []
    end = life.watch(world.session, payloads.append)
    server = world.start(ScriptedServer({"echo": "x"}), name="srv")
    world.session.server("srv").stop()
    world.advance(60_000)
    assert server.ended
    assert [payload.type for payload in payloads] == ["extension_started", "extension_exited"]
    assert payloads[1].error_class is None
    end()
    world.start(ScriptedServer({"echo": "x"}), name="other")
    assert len(payloads) == 2
    stamper = Stamper("ab" * 16)
    reader = EventReader()
    lines = b"".join(stamper.stamp(payload, unix_ms=0).line() for payload in payloads)
    assert [event.data["extension"] for event in reader.feed(lines)] == ["srv", "srv"]
    assert reader.statistics.unknown == 0


def test_a_peer_that_the_bus_retired_is_told(world: Any) -> None:
    payloads: list[Any] = []
    life.watch(world.session, payloads.append)
    slow, fast = world.attach("slow"), world.attach("fast")
    fast.declare("bus.fast.state", [Field.integer("n")])
    slow.subscribe("bus.fast.state")
    for number in range(MAX_BUS_QUEUE_MESSAGES):
        fast.publish("bus.fast.state", {"n": number})
    fast.detach()
    assert payloads == [PeerRetired(extension="slow", generation=1)]


def test_these_types_are_none_of_the_contracts() -> None:
    assert not set(LIFE_TYPES) & set(EVENT_TYPES)
    with pytest.raises(InvalidParamsError):
        ExtensionExited(extension="a", generation=1, error_class="boom")
