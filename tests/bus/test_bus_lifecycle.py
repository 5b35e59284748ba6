"""Peers, subscriptions and notices: who is there, who hears what, and what happens when somebody goes."""

from __future__ import annotations

from typing import Any

import pytest

from broker import (
    Active,
    Binding,
    Bus,
    Event,
    Field,
    Message,
    Peer,
    Pending,
    TopicAvailable,
    TopicUnavailable,
    canonical,
)
from broker.bus import trace
from broker.errors import BrokerError, CapabilityMismatchError, InvalidParamsError
from broker.testing import ManualClock

STATUS = "bus.alpha.status"
GREEN = {"summary": "green"}


def take_all(peer: Peer) -> list[Message]:
    messages = []
    while (message := peer.take()) is not None:
        messages.append(message)
    return messages


def fill(publisher: Peer, topic: str = STATUS, payload: dict[str, Any] = GREEN, count: int = 64) -> None:
    for _ in range(count):
        publisher.publish(topic, payload)


# -- notices -----------------------------------------------------------------------------------------------------------


@pytest.mark.spec("octet.bus.topic-unavailable", "octet.bus.topic-revision", "octet.bus.detach")
def test_a_publisher_that_goes_takes_its_topics_and_leaves_the_interest(bus: Bus, alpha: Peer, beta: Peer) -> None:
    alpha.publish(STATUS, GREEN)
    alpha.detach()
    assert take_all(beta) == [TopicUnavailable(bus.binding_id, STATUS, 2, "a" * 32, 1)]
    assert beta.statistics().pending == (STATUS,)
    assert beta.subscribe(STATUS) == Pending(2)
    again = bus.attach("alpha", instance_id="other")
    again.declare(STATUS, [])
    assert take_all(beta) == [TopicAvailable(bus.binding_id, STATUS, 3, "other", 1)]
    assert beta.subscribe(STATUS) == Active(3, "other", 1)


def test_only_interested_peers_are_told(bus: Bus, alpha: Peer, beta: Peer) -> None:
    other = bus.attach("other")
    other.subscribe("bus.alpha.other")
    alpha.declare("bus.alpha.unheard", [])
    alpha.detach()
    assert other.take() is None
    assert [type(message) for message in take_all(beta)] == [TopicUnavailable]


@pytest.mark.spec("octet.bus.notice-credits")
def test_notices_use_the_same_queue_and_credits(bus: Bus, alpha: Peer, beta: Peer) -> None:
    alpha.publish(STATUS, GREEN)
    before = beta.statistics().queued_bytes
    alpha.detach()
    held = beta.statistics()
    [notice] = take_all(beta)
    assert isinstance(notice, TopicUnavailable)
    assert (held.queued_messages, held.queued_bytes) == (2, before + len(notice.frame))
    assert (beta.statistics().queued_messages, beta.statistics().queued_bytes) == (0, 0)


def test_a_notice_is_a_canonical_lifecycle_frame(bus: Bus) -> None:
    def frame(**params: Any) -> bytes:
        return canonical.encode({"jsonrpc": "2.0", "method": "bus/lifecycle", "params": params})

    assert Binding("b", 3).frame == frame(kind="binding", binding_id="b", binding_revision=3)
    named: dict[str, Any] = {
        "topic": STATUS,
        "topic_revision": 5,
        "publisher_instance_id": 'i"é',
        "process_generation": 2,
    }
    for kind, notice in (("topic_available", TopicAvailable), ("topic_unavailable", TopicUnavailable)):
        assert notice("b", *named.values()).frame == frame(kind=kind, binding_id="b", **named)


@pytest.mark.spec("octet.bus.notice-credits", "octet.bound.max-bus-message-age")
def test_a_notice_does_not_expire(bus: Bus, clock: ManualClock, alpha: Peer, beta: Peer) -> None:
    alpha.detach()
    clock.advance_ms(10_000_000)
    bus.attach("gamma").declare("bus.gamma.x", [])
    assert [type(message) for message in take_all(beta)] == [TopicUnavailable]


# -- takeover ----------------------------------------------------------------------------------------------------------


@pytest.mark.spec(
    "octet.bus.redeclare-after-reload",
    "octet.bus.sequence-start",
    "octet.bus.topic-revision",
    "octet.bus.generation-fence",
)
def test_a_newer_generation_takes_a_topic_over_by_declaring_it(bus: Bus, alpha: Peer, beta: Peer) -> None:
    alpha.declare("bus.alpha.kept", [])
    alpha.publish(STATUS, GREEN)
    candidate = bus.attach("alpha", instance_id="a" * 32, generation=2)
    alpha.publish(STATUS, GREEN)
    with pytest.raises(CapabilityMismatchError, match="it belongs to alpha, generation 1"):
        candidate.publish(STATUS, GREEN)
    candidate.declare(STATUS, [Field.string("summary"), Field.boolean("new", required=False)])
    with pytest.raises(CapabilityMismatchError, match="it belongs to alpha, generation 2"):
        alpha.publish(STATUS, GREEN)
    with pytest.raises(CapabilityMismatchError, match="belongs to generation 2 of alpha"):
        alpha.declare(STATUS, [Field.string("summary")])
    assert candidate.publish(STATUS, GREEN).sequence == 1
    assert take_all(beta) == [
        TopicUnavailable(bus.binding_id, STATUS, 3, "a" * 32, 1),
        TopicAvailable(bus.binding_id, STATUS, 4, "a" * 32, 2),
    ]
    assert beta.statistics().invalidated == 2
    assert beta.subscribe(STATUS) == Active(4, "a" * 32, 2)
    alpha.detach()
    assert [row.topic for row in bus.statistics().topics] == [STATUS]
    assert beta.take() is None
    candidate.publish(STATUS, GREEN)
    [event] = take_all(beta)
    assert isinstance(event, Event)
    assert (event.process_generation, event.sequence) == (2, 2)


def test_a_takeover_is_possible_when_the_bus_has_all_its_topics(bus: Bus) -> None:
    one = bus.attach("one", instance_id="i")
    for number in range(128):
        one.declare(f"bus.one.t{number}", [])
    bus.attach("one", instance_id="i", generation=2).declare("bus.one.t7", [])
    assert len(bus.statistics().topics) == 128


def test_a_refused_takeover_withdraws_nothing(bus: Bus, alpha: Peer, beta: Peer) -> None:
    candidate = bus.attach("alpha", instance_id="a" * 32, generation=2)
    with pytest.raises(InvalidParamsError):
        candidate.declare(STATUS, [Field.string("secret")])
    assert beta.take() is None
    assert alpha.publish(STATUS, GREEN).sequence == 1


# -- reset -------------------------------------------------------------------------------------------------------------


@pytest.mark.spec("octet.bus.reset", "octet.bus.reset-notice", "octet.bus.sequence-reset")
def test_a_reset_binds_anew_and_tells_everybody(bus: Bus, alpha: Peer, beta: Peer) -> None:
    old = bus.binding_id
    beta.subscribe("bus.unknown.topic")
    alpha.publish(STATUS, GREEN)
    alpha.publish(STATUS, GREEN)
    new = bus.reset()
    assert new == bus.binding_id != old
    assert bus.binding_revision == 2
    assert bus.statistics().topics == ()
    assert (beta.statistics().active, beta.statistics().pending) == ((), ())
    assert take_all(alpha) == [Binding(new, 2)]
    assert take_all(beta) == [Binding(new, 2)]
    assert beta.statistics().invalidated == 2
    assert beta.subscribe(STATUS) == Pending(1)
    alpha.declare(STATUS, [Field.string("summary")])
    assert take_all(beta) == [TopicAvailable(new, STATUS, 2, "a" * 32, 1)]
    beta.subscribe(STATUS)
    assert alpha.publish(STATUS, GREEN).sequence == 3
    [event] = take_all(beta)
    assert isinstance(event, Event)
    assert (event.sequence, event.binding_id) == (3, new)


@pytest.mark.spec("octet.bus.reset-notice")
def test_a_superseded_binding_is_dropped(bus: Bus, alpha: Peer) -> None:
    for _ in range(3):
        bus.reset()
    assert take_all(alpha) == [Binding(bus.binding_id, 4)]
    assert alpha.statistics().invalidated == 2


def test_a_reset_drops_notices_of_the_older_binding(bus: Bus, alpha: Peer, beta: Peer) -> None:
    alpha.detach()
    bus.reset()
    assert take_all(beta) == [Binding(bus.binding_id, 2)]


# -- retirement --------------------------------------------------------------------------------------------------------


@pytest.mark.spec("octet.bus.notice-retires")
def test_a_peer_that_cannot_take_a_notice_is_retired(bus: Bus, alpha: Peer, beta: Peer) -> None:
    seen: list[trace.Record] = []
    fill(alpha)
    bus.add_trace(seen.append)
    alpha.detach()
    reason = "could not take a lifecycle notice: inbox: inbox full (MAX_BUS_QUEUE_MESSAGES: observed 65, maximum 64)"
    assert (beta.closed, beta.close_reason) == (True, reason)
    assert beta.take() is None
    assert beta.statistics().discarded == 64
    assert (bus.statistics().retired, bus.statistics().peers) == (1, ())
    assert seen == [
        trace.Detached("alpha", "a" * 32, 1, "detached", False),
        trace.Withdrawn(STATUS, "alpha", "a" * 32, 1, 2),
        trace.Detached("beta", "b" * 32, 1, reason, True),
    ]


@pytest.mark.spec("octet.bus.notice-retires")
def test_reset_retires_a_full_peer_and_not_its_neighbours(bus: Bus, alpha: Peer, beta: Peer) -> None:
    fill(alpha)
    bus.reset()
    assert (alpha.closed, beta.closed) == (False, True)
    assert take_all(alpha) == [Binding(bus.binding_id, 2)]


@pytest.mark.spec("octet.bus.notice-retires")
def test_a_retired_publisher_withdraws_its_topics_which_may_retire_another(bus: Bus) -> None:
    """Each of four peers is full of the events of the one before it and the last one can still hear the news."""
    clerk = bus.attach("clerk")
    clerk.declare("bus.clerk.x", [])
    chain = [bus.attach(f"p{number}") for number in range(4)]
    topics = ["bus.clerk.x", *(f"bus.{peer.name}.x" for peer in chain)]
    for peer, topic in zip(chain, topics, strict=False):
        peer.declare(f"bus.{peer.name}.x", [])
        peer.subscribe(topic)
    for publisher, topic in list(zip([clerk, *chain], topics, strict=True))[:3]:
        fill(publisher, topic, {})
    clerk.detach()
    assert [peer.closed for peer in chain] == [True, True, True, False]
    assert [row.topic for row in bus.statistics().topics] == ["bus.p3.x"]
    assert bus.statistics().retired == 3
    [notice] = take_all(chain[3])
    assert isinstance(notice, TopicUnavailable)
    # Declared 1 to 5, then withdrawn one after the other.
    assert (notice.topic, notice.topic_revision) == ("bus.p2.x", 9)


def test_a_peer_full_of_its_own_events_is_retired_by_what_it_declares(bus: Bus, alpha: Peer) -> None:
    alpha.subscribe(STATUS)
    alpha.subscribe("bus.alpha.next")
    fill(alpha)
    alpha.declare("bus.alpha.next", [])
    assert alpha.closed
    assert (bus.statistics().topics, bus.statistics().retired) == ((), 1)
    with pytest.raises(CapabilityMismatchError, match="peer alpha is closed: could not take a lifecycle notice"):
        alpha.publish("bus.alpha.next", {})


@pytest.mark.spec("octet.bus.notice-retires", "octet.bus.age-exact")
def test_expired_events_make_room_for_a_notice(bus: Bus, clock: ManualClock, alpha: Peer, beta: Peer) -> None:
    fill(alpha)
    clock.advance_ms(30_001)
    alpha.detach()
    assert [type(message) for message in take_all(beta)] == [TopicUnavailable]
    assert beta.statistics().expired == 64


def test_a_peer_whose_frame_bound_is_below_a_notice_is_retired(bus: Bus) -> None:
    size = len(Binding(bus.binding_id, 1).frame)
    assert not bus.attach("fits", max_frame_bytes=size, announce_binding=True).closed
    tiny = bus.attach("tiny", max_frame_bytes=size - 1, announce_binding=True)
    assert tiny.close_reason == (
        "could not take a lifecycle notice: "
        f"frame: frame too large (max_frame_bytes: observed {size}, maximum {size - 1})"
    )


# -- drain, detach, close ----------------------------------------------------------------------------------------------


def test_a_draining_peer_gives_out_what_it_has_and_gets_no_more(bus: Bus, alpha: Peer, beta: Peer) -> None:
    alpha.publish(STATUS, GREEN)
    beta.drain()
    assert repr(beta).endswith(" draining>")
    assert beta.statistics().draining
    alpha.publish(STATUS, GREEN)
    alpha.declare("bus.alpha.other", [])
    assert beta.subscribe("bus.alpha.other") == Active(2, "a" * 32, 1)
    alpha.publish("bus.alpha.other", {})
    assert [message.sequence for message in take_all(beta) if isinstance(message, Event)] == [1]
    bus.reset()
    assert beta.take() is None
    assert not beta.closed


def test_a_draining_publisher_still_publishes(alpha: Peer, beta: Peer) -> None:
    alpha.drain()
    assert alpha.publish(STATUS, GREEN).sequence == 1
    assert len(take_all(beta)) == 1


def test_a_full_draining_peer_is_not_retired(bus: Bus, alpha: Peer, beta: Peer) -> None:
    fill(alpha)
    beta.drain()
    alpha.detach()
    bus.reset()
    assert not beta.closed


@pytest.mark.spec("octet.bus.detach")
def test_a_detached_peer_is_refused_everything(bus: Bus, alpha: Peer, beta: Peer) -> None:
    alpha.publish(STATUS, GREEN)
    beta.declare("bus.beta.x", [])
    beta.detach()
    beta.detach()
    assert (beta.closed, beta.close_reason, beta.take(), beta.hold()) == (True, "detached", None, None)
    assert repr(beta).endswith(" closed>")
    assert (beta.statistics().discarded, beta.statistics().queued_messages) == (1, 0)
    assert [row.topic for row in bus.statistics().topics] == [STATUS]
    assert bus.statistics().topics[0].subscribers == 0
    requests = (
        lambda: beta.publish("bus.beta.x", {}),
        lambda: beta.declare("bus.beta.y", []),
        lambda: beta.subscribe(STATUS),
        lambda: beta.unsubscribe(STATUS),
    )
    for request in requests:
        with pytest.raises(CapabilityMismatchError, match="peer beta is closed: detached") as caught:
            request()
        assert caught.value.subscriber == "beta"


def test_a_detached_generation_leaves_the_topics_of_the_next_one_alone(bus: Bus) -> None:
    old = bus.attach("alpha", instance_id="i", generation=1)
    old.declare(STATUS, [])
    new = bus.attach("alpha", instance_id="i", generation=2)
    new.declare(STATUS, [])
    old.detach()
    with pytest.raises(CapabilityMismatchError):
        old.publish(STATUS, {})
    assert new.publish(STATUS, {}).sequence == 1


@pytest.mark.spec("octet.bus.close")
def test_a_closed_bus_refuses_everything_and_closes_its_peers(bus: Bus, alpha: Peer, beta: Peer) -> None:
    alpha.publish(STATUS, GREEN)
    assert not bus.closed
    bus.close()
    bus.close()
    assert bus.closed
    assert (alpha.close_reason, beta.close_reason) == ("bus closed", "bus closed")
    assert (beta.take(), bus.deliver()) == (None, 0)
    requests = (
        lambda: alpha.publish(STATUS, GREEN),
        lambda: alpha.declare("bus.alpha.x", []),
        lambda: beta.subscribe(STATUS),
        lambda: beta.unsubscribe(STATUS),
        lambda: bus.attach("gamma"),
        lambda: bus.reset(),
    )
    for request in requests:
        with pytest.raises(BrokerError, match="the bus is closed") as caught:
            request()
        assert type(caught.value) is CapabilityMismatchError
    beta.detach()
    alpha.drain()
    statistics = bus.statistics()
    assert (statistics.closed, statistics.topics, statistics.peers, statistics.published) == (True, (), (), 1)
    assert statistics.retired == 0


@pytest.mark.spec("octet.bus.isolation")
def test_two_buses_share_nothing(clock: ManualClock) -> None:
    one, two = Bus(clock=clock), Bus(clock=clock)
    assert one.binding_id != two.binding_id
    peers = [(bus.attach("alpha"), bus.attach("beta")) for bus in (one, two)]
    for alpha, beta in peers:
        alpha.declare(STATUS, [Field.string("summary")])
        beta.subscribe(STATUS)
    (first, hears), (second, silent) = peers
    first.publish(STATUS, GREEN)
    assert [len(take_all(hears)), len(take_all(silent))] == [1, 0]
    with pytest.raises(CapabilityMismatchError):
        second.publish(STATUS, GREEN, binding_id=one.binding_id)
    one.close()
    assert second.publish(STATUS, GREEN).sequence == 1
    assert (one.statistics().published, two.statistics().published) == (1, 1)
