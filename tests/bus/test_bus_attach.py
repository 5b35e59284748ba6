"""Attaching peers: who they are, how many, and whose name it is."""

from __future__ import annotations

from typing import Any

import pytest

from broker import Binding, Bus, Peer, TopicAvailable
from broker.errors import InvalidParamsError, ResourceExhaustedError


@pytest.mark.spec("octet.bus.peer-identity")
def test_a_peer_is_what_the_host_attached_it_as(bus: Bus) -> None:
    peer = bus.attach("alpha-2_x", instance_id="i", generation=7)
    assert (peer.bus, peer.name, peer.instance_id, peer.generation) == (bus, "alpha-2_x", "i", 7)
    assert (peer.closed, peer.close_reason) == (False, None)
    assert repr(peer) == "<Peer alpha-2_x instance=i generation=7 open>"
    made_up = [bus.attach(name).instance_id for name in ("x", "y")]
    assert [len(bytes.fromhex(text)) for text in made_up] == [16, 16]
    assert made_up[0] != made_up[1]


@pytest.mark.parametrize(
    ("arguments", "path"),
    [
        ({"name": ""}, "name"), ({"name": "Alpha"}, "name"), ({"name": "a.b"}, "name"), ({"name": "-a"}, "name"),
        ({"name": None}, "name"), ({"name": "é"}, "name"), ({"name": "\ud800"}, "name"), ({"name": "a\n"}, "name"),
        ({"instance_id": ""}, "instance_id"), ({"instance_id": 7}, "instance_id"),
        ({"instance_id": "\ud800"}, "instance_id"),
        ({"generation": 0}, "generation"), ({"generation": True}, "generation"), ({"generation": 1.0}, "generation"),
        ({"generation": 1 << 53}, "generation"), ({"generation": 1 << 20_000}, "generation"),
        ({"max_frame_bytes": 0}, "max_frame_bytes"), ({"max_frame_bytes": None}, "max_frame_bytes"),
        ({"max_frame_bytes": True}, "max_frame_bytes"), ({"max_frame_bytes": 1 << 20_000}, "max_frame_bytes"),
    ],
    ids=lambda value: None if isinstance(value, str) else next(iter(value)),
)  # fmt: skip
def test_a_wrong_argument_of_attach_is_named(bus: Bus, arguments: dict[str, Any], path: str) -> None:
    with pytest.raises(InvalidParamsError) as caught:
        bus.attach(**{"name": "alpha", **arguments})
    assert [fault.path for fault in caught.value.faults] == [path]
    assert bus.statistics().peers == ()


@pytest.mark.spec("octet.bound.max-bus-identifier-bytes")
@pytest.mark.parametrize(
    ("arguments", "limit", "observed", "maximum"),
    [
        ({"name": "a" * 65}, "MAX_BUS_IDENTIFIER_BYTES", 65, 64),
        ({"instance_id": "é" * 128 + "x"}, "MAX_BUS_INSTANCE_ID_BYTES", 257, 256),
        ({"max_frame_bytes": 1_048_577}, "MAX_FRAME_BYTES", 1_048_577, 1_048_576),
    ],
)
def test_a_bound_of_attach_is_resource_exhausted(
    bus: Bus, arguments: dict[str, Any], limit: str, observed: int, maximum: int
) -> None:
    with pytest.raises(ResourceExhaustedError) as caught:
        bus.attach(**{"name": "alpha", **arguments})
    assert (caught.value.limit, caught.value.observed, caught.value.maximum) == (limit, observed, maximum)


def test_the_bounds_of_attach_are_exact(bus: Bus) -> None:
    bus.attach("a" * 64, instance_id="é" * 128, generation=(1 << 53) - 1, max_frame_bytes=1_048_576)


def test_all_faults_of_attach_come_at_once(bus: Bus) -> None:
    with pytest.raises(InvalidParamsError) as caught:
        bus.attach("", instance_id="", generation=0, max_frame_bytes=0)
    assert [fault.path for fault in caught.value.faults] == ["name", "instance_id", "generation", "max_frame_bytes"]


@pytest.mark.spec("octet.bound.max-bus-peers")
def test_the_65th_peer_is_refused(bus: Bus) -> None:
    peers = [bus.attach(f"p{number}") for number in range(64)]
    with pytest.raises(ResourceExhaustedError) as caught:
        bus.attach("over")
    error = caught.value
    assert (error.subscriber, error.limit, error.observed, error.maximum) == ("over", "MAX_BUS_PEERS", 65, 64)
    peers[10].detach()
    bus.attach("over")


@pytest.mark.spec("octet.bus.peer-once")
def test_a_name_belongs_to_one_instance_and_its_newest_generation(bus: Bus) -> None:
    bus.attach("alpha", instance_id="one", generation=2)
    for instance_id, generation in ((None, 1), ("two", 3), ("one", 1), ("one", 2)):
        with pytest.raises(InvalidParamsError) as caught:
            bus.attach("alpha", instance_id=instance_id, generation=generation)
        assert caught.value.subscriber == "alpha"
    bus.attach("alpha", instance_id="one", generation=3)
    with pytest.raises(InvalidParamsError, match="generation 3 of peer 'alpha' is not newer than 3"):
        bus.attach("alpha", instance_id="one", generation=3)
    assert [(row.name, row.generation) for row in bus.statistics().peers] == [("alpha", 2), ("alpha", 3)]


def test_a_name_is_free_again_after_detach(bus: Bus) -> None:
    bus.attach("alpha", instance_id="one", generation=5).detach()
    assert bus.attach("alpha", instance_id="two").generation == 1


@pytest.mark.spec("octet.bus.binding-notice")
def test_the_current_binding_is_announced_first_when_asked_for(bus: Bus, alpha: Peer) -> None:
    bus.reset()
    peer = bus.attach("peer", announce_binding=True)
    peer.subscribe("bus.peer.x")
    peer.declare("bus.peer.x", [])
    first, second = peer.take(), peer.take()
    assert first == Binding(bus.binding_id, 2)
    assert isinstance(second, TopicAvailable)
    assert bus.attach("quiet").take() is None
