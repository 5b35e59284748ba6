"""Subscriptions: pending, active, renewed, given up, and how many there may be."""

from __future__ import annotations

from typing import Any

import pytest

from broker import Active, Bus, Event, Field, Message, Peer, Pending, TopicAvailable
from broker.errors import InvalidParamsError, ResourceExhaustedError

STATUS = "bus.alpha.status"
GREEN = {"summary": "green"}


def take_all(peer: Peer) -> list[Message]:
    messages = []
    while (message := peer.take()) is not None:
        messages.append(message)
    return messages


@pytest.mark.spec("octet.bus.subscribe-pending", "octet.bus.subscribe-not-automatic", "octet.bus.topic-available")
def test_a_pending_interest_is_told_and_becomes_active_only_by_subscribing_again(bus: Bus) -> None:
    beta, alpha = bus.attach("beta"), bus.attach("alpha", instance_id="one", generation=4)
    assert beta.subscribe(STATUS) == Pending(0)
    assert beta.subscribe(STATUS) == Pending(0)
    assert beta.statistics().pending == (STATUS,)
    alpha.declare("bus.alpha.first", [])
    alpha.declare(STATUS, [Field.string("summary")])
    alpha.publish(STATUS, GREEN)
    assert take_all(beta) == [TopicAvailable(bus.binding_id, STATUS, 2, "one", 4)]
    assert (beta.statistics().active, beta.statistics().pending) == ((), (STATUS,))
    assert beta.subscribe(STATUS) == Active(2, "one", 4)
    assert (beta.statistics().active, beta.statistics().pending) == ((STATUS,), ())
    alpha.publish(STATUS, GREEN)
    [event] = take_all(beta)
    assert isinstance(event, Event)
    assert event.sequence == 2


@pytest.mark.spec("octet.bus.subscribe-active", "octet.bus.subscribe-again")
def test_subscribing_again_keeps_one_subscription_and_its_queue(alpha: Peer, beta: Peer) -> None:
    alpha.publish(STATUS, GREEN)
    assert beta.subscribe(STATUS) == Active(1, "a" * 32, 1)
    alpha.publish(STATUS, GREEN)
    assert [message.sequence for message in take_all(beta) if isinstance(message, Event)] == [1, 2]


@pytest.mark.spec("octet.bus.subscribe-own")
def test_a_peer_may_subscribe_to_its_own_topic(alpha: Peer) -> None:
    alpha.subscribe(STATUS)
    alpha.publish(STATUS, GREEN)
    [event] = take_all(alpha)
    assert isinstance(event, Event)


@pytest.mark.parametrize("topic", ["", "nonsense", "bus.alpha", 7, None])
def test_subscribing_to_what_is_no_topic(beta: Peer, topic: Any) -> None:
    for request in (beta.subscribe, beta.unsubscribe):
        with pytest.raises(InvalidParamsError) as caught:
            request(topic)
        assert caught.value.path == "topic"


@pytest.mark.spec("octet.bound.max-bus-subscriptions")
def test_the_17th_subscription_is_refused_pending_or_active(bus: Bus, alpha: Peer) -> None:
    beta = bus.attach("beta")
    beta.subscribe(STATUS)
    for number in range(15):
        beta.subscribe(f"bus.unknown.t{number}")
    for topic in ("bus.unknown.over", "bus.alpha.over"):
        with pytest.raises(ResourceExhaustedError) as caught:
            beta.subscribe(topic)
        error = caught.value
        assert (error.topic, error.subscriber) == (topic, "beta")
        assert (error.limit, error.observed, error.maximum) == ("MAX_BUS_SUBSCRIPTIONS", 17, 16)
    assert beta.subscribe("bus.unknown.t3") == Pending(1)
    beta.unsubscribe("bus.unknown.t3")
    assert beta.subscribe("bus.unknown.over") == Pending(1)


@pytest.mark.spec("octet.bus.unsubscribe")
def test_after_unsubscribe_no_event_follows(bus: Bus, alpha: Peer, beta: Peer) -> None:
    alpha.publish(STATUS, GREEN)
    beta.unsubscribe(STATUS)
    alpha.publish(STATUS, GREEN)
    assert beta.take() is None
    assert beta.statistics().invalidated == 1
    assert bus.statistics().topics[0].subscribers == 0
    beta.unsubscribe(STATUS)
    beta.unsubscribe("bus.unknown.topic")


@pytest.mark.spec("octet.bus.unsubscribe", "octet.bus.subscribe-again")
def test_a_new_subscription_gets_nothing_published_for_an_older_one(alpha: Peer, beta: Peer) -> None:
    alpha.publish(STATUS, {"summary": "old"})
    beta.unsubscribe(STATUS)
    alpha.publish(STATUS, {"summary": "between"})
    beta.subscribe(STATUS)
    alpha.publish(STATUS, {"summary": "new"})
    assert [message.payload["summary"] for message in take_all(beta) if isinstance(message, Event)] == ["new"]
    assert beta.statistics().invalidated == 1
