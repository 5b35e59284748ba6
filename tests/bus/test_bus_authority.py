"""Who may publish where, and under which binding."""

from __future__ import annotations

from typing import Any

import pytest

from broker import Bus, Field, Peer
from broker.errors import BrokerError, CapabilityMismatchError, InvalidParamsError

STATUS = "bus.alpha.status"


def refusal(peer: Peer, topic: Any, payload: Any, **request: Any) -> BrokerError:
    """The error of a publication that must be refused without using a sequence or queueing anything."""
    bus = peer.bus
    queued = [(row.queued_messages, row.queued_bytes) for row in bus.statistics().peers]
    before = peer.statistics().published, bus.statistics().published, bus.statistics().refused + 1
    with pytest.raises(BrokerError) as caught:
        peer.publish(topic, payload, **request)
    assert before == (peer.statistics().published, bus.statistics().published, bus.statistics().refused)
    assert queued == [(row.queued_messages, row.queued_bytes) for row in bus.statistics().peers]
    return caught.value


@pytest.mark.spec("octet.bus.publish-undeclared")
@pytest.mark.parametrize("topic", ["bus.alpha.other", "bus.beta.status", "nonsense", ""])
def test_publishing_to_an_undeclared_topic(alpha: Peer, topic: str) -> None:
    error = refusal(alpha, topic, {"summary": "x"})
    assert isinstance(error, InvalidParamsError)
    assert error.topic == topic


@pytest.mark.spec("octet.bus.publish-foreign")
def test_publishing_to_anothers_topic(beta: Peer) -> None:
    error = refusal(beta, STATUS, {"summary": "x"})
    assert isinstance(error, CapabilityMismatchError)
    assert (error.topic, str(error)) == (STATUS, f"publication to {STATUS}: it belongs to alpha, generation 1")


@pytest.mark.spec("octet.bus.binding-stale")
def test_a_stale_binding_is_refused_and_never_rewritten(bus: Bus, alpha: Peer, beta: Peer) -> None:
    old = bus.binding_id
    alpha.publish(STATUS, {"summary": "x"}, binding_id=old)
    bus.reset()
    alpha.declare(STATUS, [Field.string("summary")])
    for attempt in (
        lambda: alpha.publish(STATUS, {"summary": "x"}, binding_id=old),
        lambda: alpha.declare("bus.alpha.new", [], binding_id=old),
        lambda: beta.subscribe(STATUS, binding_id=old),
        lambda: beta.unsubscribe(STATUS, binding_id=old),
    ):
        with pytest.raises(CapabilityMismatchError) as caught:
            attempt()
        assert (caught.value.path, caught.value.code) == ("binding_id", -32011)
    assert [row.topic for row in bus.statistics().topics] == [STATUS]
    assert (beta.statistics().active, beta.statistics().pending) == ((), ())
    alpha.publish(STATUS, {"summary": "x"}, binding_id=bus.binding_id)


@pytest.mark.spec("octet.bus.binding-malformed", "octet.bus.binding-stale")
@pytest.mark.parametrize(
    ("binding_id", "kind"),
    [
        ("", InvalidParamsError), ("x" * 257, InvalidParamsError), ("é" * 129, InvalidParamsError),
        (7, InvalidParamsError), (b"x", InvalidParamsError), ("\ud800", InvalidParamsError),
        ("x", CapabilityMismatchError), ("x" * 256, CapabilityMismatchError), ("é" * 128, CapabilityMismatchError),
    ],
)  # fmt: skip
def test_a_malformed_binding_id(alpha: Peer, beta: Peer, binding_id: Any, kind: type[BrokerError]) -> None:
    assert type(refusal(alpha, STATUS, {"summary": "x"}, binding_id=binding_id)) is kind
    for attempt in (
        lambda: alpha.declare("bus.alpha.new", [], binding_id=binding_id),
        lambda: beta.subscribe(STATUS, binding_id=binding_id),
        lambda: beta.unsubscribe(STATUS, binding_id=binding_id),
    ):
        with pytest.raises(BrokerError) as caught:
            attempt()
        assert type(caught.value) is kind


class Anything(str):
    """Says that it equals everything, as a class of a plugin may; its code must not run inside the bus."""

    __slots__ = ()
    __hash__ = str.__hash__

    def __eq__(self, other: object) -> bool:
        raise AssertionError

    __ne__ = __eq__


@pytest.mark.spec("octet.bus.binding-malformed")
def test_a_binding_id_of_another_class_than_str_is_never_asked_what_it_equals(alpha: Peer, beta: Peer) -> None:
    binding_id = Anything(alpha.bus.binding_id)
    assert type(refusal(alpha, STATUS, {"summary": "x"}, binding_id=binding_id)) is InvalidParamsError
    with pytest.raises(InvalidParamsError):
        beta.subscribe(STATUS, binding_id=binding_id)


def test_the_binding_is_checked_before_the_topic_and_the_payload(alpha: Peer) -> None:
    assert isinstance(refusal(alpha, "nonsense", None, binding_id="x"), CapabilityMismatchError)
    assert refusal(alpha, "bus.alpha.other", None).path is None


@pytest.mark.parametrize("topic", [None, 7, ["bus.alpha.status"], str])
def test_a_topic_that_is_no_string(alpha: Peer, topic: Any) -> None:
    with pytest.raises(InvalidParamsError, match="topic: expected a string"):
        alpha.publish(topic, {"summary": "x"})
