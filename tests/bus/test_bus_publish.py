"""Publishing: what a payload may be, what its frame is to the byte, who gets it, and what is refused as a whole."""

from __future__ import annotations

from typing import Any

import pytest

from broker import Active, Bus, Event, Field, Peer, Receipt, canonical
from broker.errors import BrokerError, ResourceExhaustedError
from broker.testing import ManualClock

PORTABLE = 9_007_199_254_740_991
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


def take_event(peer: Peer) -> Event:
    message = peer.take()
    assert isinstance(message, Event)
    return message


def envelope(event: Event, payload: dict[str, Any]) -> dict[str, Any]:
    """The ``bus/event`` notification that an event is on a wire, member by member."""
    return {
        "jsonrpc": "2.0",
        "method": "bus/event",
        "params": {
            "binding_id": event.binding_id,
            "topic": event.topic,
            "publisher": event.publisher,
            "publisher_instance_id": event.publisher_instance_id,
            "process_generation": event.process_generation,
            "sequence": event.sequence,
            "published_at_ms": event.published_at_ms,
            "payload": payload,
        },
    }


# -- what arrives ------------------------------------------------------------------------------------------------------


@pytest.mark.spec(
    "octet.bus.publish-identity", "octet.bus.published-at", "octet.bus.sequence-start", "octet.bus.wire-event"
)
def test_an_event_says_where_it_comes_from(bus: Bus, clock: ManualClock) -> None:
    maker = bus.attach("maker", instance_id="instance-7", generation=3)
    maker.declare("bus.maker.made", [Field.integer("n")])
    reader = bus.attach("reader")
    assert reader.subscribe("bus.maker.made") == Active(1, "instance-7", 3)
    assert maker.publish("bus.maker.made", {"n": 5}) == Receipt(1, 1_700_000_000_000)
    event = take_event(reader)
    assert (event.topic, event.publisher, event.publisher_instance_id) == ("bus.maker.made", "maker", "instance-7")
    assert (event.process_generation, event.sequence, event.published_at_ms) == (3, 1, 1_700_000_000_000)
    assert (event.binding_id, event.payload) == (bus.binding_id, {"n": 5})
    assert reader.take() is None


@pytest.mark.spec("octet.bus.sequence-shared", "octet.bus.order", "octet.bus.admission-no-subscriber")
def test_one_sequence_runs_over_all_topics_of_a_publisher(bus: Bus) -> None:
    alpha, beta, other = bus.attach("alpha"), bus.attach("beta"), bus.attach("other")
    for name in ("x", "y", "unheard"):
        alpha.declare(f"bus.alpha.{name}", [])
    other.declare("bus.other.z", [])
    for topic in ("bus.alpha.x", "bus.alpha.y", "bus.other.z"):
        beta.subscribe(topic)
    plan = ["bus.alpha.x", "bus.alpha.unheard", "bus.other.z", "bus.alpha.y", "bus.alpha.x"]
    receipts = [(other if ".other." in topic else alpha).publish(topic, {}).sequence for topic in plan]
    assert receipts == [1, 2, 1, 3, 4]
    seen = [(event.topic, event.sequence) for event in (take_event(beta) for _ in range(4))]
    assert seen == [("bus.alpha.x", 1), ("bus.other.z", 1), ("bus.alpha.y", 3), ("bus.alpha.x", 4)]


@pytest.mark.spec("octet.bus.published-at")
def test_published_at_is_wall_time_even_when_it_is_stepped(alpha: Peer, beta: Peer, clock: ManualClock) -> None:
    times = []
    for step in (0, 3_600_000, -7_200_000):
        clock.step_wall_ms(step)
        times.append(alpha.publish(STATUS, {"summary": "x"}).published_at_ms)
    assert times == [1_700_000_000_000, 1_700_003_600_000, 1_699_996_400_000]
    assert [take_event(beta).published_at_ms for _ in range(3)] == times


@pytest.mark.spec("octet.bus.payload-empty")
def test_a_payload_without_fields_is_fine_when_none_is_required(bus: Bus) -> None:
    alpha = bus.attach("alpha")
    alpha.declare("bus.alpha.bare", [])
    alpha.declare("bus.alpha.optional", [Field.string("a", required=False)])
    alpha.subscribe("bus.alpha.bare")
    alpha.publish("bus.alpha.bare", {})
    alpha.publish("bus.alpha.optional", {})
    event = take_event(alpha)
    assert event.payload == {}
    assert event.frame == canonical.encode(envelope(event, {}))


@pytest.mark.spec("octet.bus.payload-copied")
def test_nobody_can_change_what_another_one_sees(bus: Bus, alpha: Peer, beta: Peer) -> None:
    gamma = bus.attach("gamma")
    gamma.subscribe(STATUS)
    payload = {"summary": "green"}
    alpha.publish(STATUS, payload)
    payload["summary"] = "red"
    payload["extra"] = "x"
    first, second = take_event(beta), take_event(gamma)
    first.payload["summary"] = "red"
    mine = first.payload
    mine.clear()
    assert first.payload == second.payload == {"summary": "green"}
    assert second.frame == canonical.encode(envelope(second, {"summary": "green"}))


# -- frames ------------------------------------------------------------------------------------------------------------


@pytest.mark.spec("octet.bus.message-size", "octet.bus.wire-event", "octet.canonical.measured-size")
@pytest.mark.parametrize(
    "payload",
    [
        {"s": ""},
        {"s": 'a "quoted" \\ word'},
        {"s": '"' * 40 + "\\" * 40},
        {"s": "é ü 日本語"},
        {"s": "😀\U0010ffff\ue000"},
        {"s": "a\u2028b\xa0c"},
        {"s": "x", "i": 0, "b": True, "e": "plain"},
        {"s": "x", "i": -1, "b": False, "e": 'é"\\'},
        {"s": "x", "i": 9},
        {"s": "x", "i": 10},
        {"s": "x", "i": -10},
        {"s": "x", "i": PORTABLE},
        {"s": "x", "i": -PORTABLE},
        {"b": True, "e": "😀", "i": 5, "s": "order of keys"},
    ],
    ids=ascii,
)
def test_the_size_is_the_canonical_frame_to_the_byte(bus: Bus, payload: dict[str, Any]) -> None:
    odd = 'inst "a" \\ é😀 "sequence":0 \x01'
    alpha, beta = bus.attach("alpha", instance_id=odd, generation=42), bus.attach("beta")
    alpha.declare(
        STATUS,
        [
            Field.string("s", required=False),
            Field.integer("i", required=False),
            Field.boolean("b", required=False),
            Field.enum("e", ["plain", 'é"\\', "😀"], required=False),
        ],
    )
    beta.subscribe(STATUS)
    for _ in range(10):
        alpha.publish(STATUS, dict(payload))
    events = [take_event(beta) for _ in range(10)]
    for event in events:
        assert event.frame == canonical.encode(envelope(event, payload))
        assert event.size == len(event.frame)
    assert events[9].sequence == 10
    assert events[9].size == events[0].size + 1


@pytest.mark.spec("octet.bus.message-size")
def test_the_queue_is_charged_the_size_of_the_frame(alpha: Peer, beta: Peer) -> None:
    alpha.publish(STATUS, {"summary": 'é"'})
    alpha.publish(STATUS, {"summary": "x", "step": 3})
    queued = beta.statistics().queued_bytes
    sizes = [len(take_event(beta).frame) for _ in range(2)]
    assert queued == sum(sizes)
    assert (beta.statistics().queued_messages, beta.statistics().queued_bytes) == (0, 0)


@pytest.fixture
def wide(bus: Bus) -> Peer:
    """A publisher whose events can pass 8192 bytes: eight strings of at most 1024 bytes."""
    wide = bus.attach("wide", instance_id="w")
    wide.declare("bus.wide.event", [Field.string(f"f{n}", required=False) for n in range(8)])
    return wide


def frame_of(wide: Peer, size: int) -> dict[str, Any]:
    """A payload of ``wide`` whose next event has a frame of exactly ``size`` bytes."""
    number = wide.statistics().published + 1
    bare: dict[str, Any] = {
        "binding_id": wide.bus.binding_id,
        "topic": "bus.wide.event",
        "publisher": "wide",
        "publisher_instance_id": "w",
        "process_generation": 1,
        "sequence": number,
        "published_at_ms": 1_700_000_000_000,
        "payload": {},
    }
    payload: dict[str, Any] = {}
    for n in range(8):
        bare["payload"] = payload
        left = size - canonical.size({"jsonrpc": "2.0", "method": "bus/event", "params": bare})
        key = len(f'"f{n}":""') + (n > 0)
        if left == 0:
            break
        text = min(1024, left - key)
        # Leave enough for the key of the next string, or nothing at all.
        if 0 < left - key - text < 9:
            text -= 9
        payload[f"f{n}"] = "x" * text
    bare["payload"] = payload
    assert canonical.size({"jsonrpc": "2.0", "method": "bus/event", "params": bare}) == size
    return payload


@pytest.mark.spec("octet.bound.max-bus-message-bytes", "octet.bus.message-over-bound")
def test_8192_bytes_pass_and_8193_do_not(bus: Bus, wide: Peer) -> None:
    reader = bus.attach("reader")
    reader.subscribe("bus.wide.event")
    error = refusal(wide, "bus.wide.event", frame_of(wide, 8193))
    assert isinstance(error, ResourceExhaustedError)
    assert (error.topic, error.subscriber) == ("bus.wide.event", None)
    assert (error.limit, error.observed, error.maximum) == ("MAX_BUS_MESSAGE_BYTES", 8193, 8192)
    assert reader.statistics().refusals == 0
    assert wide.publish("bus.wide.event", frame_of(wide, 8192)).sequence == 1
    event = take_event(reader)
    assert event.size == len(event.frame) == 8192


@pytest.mark.spec("octet.bus.message-over-bound")
def test_an_event_over_the_bound_is_refused_without_subscribers_too(wide: Peer) -> None:
    assert refusal(wide, "bus.wide.event", frame_of(wide, 8193)).limit == "MAX_BUS_MESSAGE_BYTES"


@pytest.mark.spec("octet.bus.admission-frame-bound", "octet.bus.admission-all-or-nothing")
def test_the_frame_bound_of_one_subscriber_refuses_for_all(bus: Bus, wide: Peer) -> None:
    big, small = bus.attach("big"), bus.attach("small", max_frame_bytes=1000)
    big.subscribe("bus.wide.event")
    small.subscribe("bus.wide.event")
    wide.publish("bus.wide.event", frame_of(wide, 1000))
    error = refusal(wide, "bus.wide.event", frame_of(wide, 1001))
    assert isinstance(error, ResourceExhaustedError)
    assert (error.topic, error.subscriber) == ("bus.wide.event", "small")
    assert (error.limit, error.observed, error.maximum) == ("max_frame_bytes", 1001, 1000)
    assert (small.statistics().refusals, small.statistics().last_refused_topic) == (1, "bus.wide.event")
    assert big.statistics().refusals == 0
    small.unsubscribe("bus.wide.event")
    wide.publish("bus.wide.event", frame_of(wide, 1001))


# -- admission ---------------------------------------------------------------------------------------------------------


@pytest.mark.spec(
    "octet.bus.admission-all-or-nothing", "octet.bus.admission-refusal", "octet.bus.admission-no-sequence",
    "octet.bus.queue-messages-exact", "octet.bound.max-bus-queue-messages",
)  # fmt: skip
def test_the_64th_message_is_admitted_and_the_65th_reaches_nobody(bus: Bus, alpha: Peer, beta: Peer) -> None:
    gamma = bus.attach("gamma")
    alpha.publish(STATUS, {"summary": "only beta"})
    gamma.subscribe(STATUS)
    for _ in range(63):
        alpha.publish(STATUS, {"summary": "both"})
    assert beta.statistics().queued_messages == 64
    error = refusal(alpha, STATUS, {"summary": "nobody"})
    assert isinstance(error, ResourceExhaustedError)
    assert (error.topic, error.subscriber) == (STATUS, "beta")
    assert (error.limit, error.observed, error.maximum) == ("MAX_BUS_QUEUE_MESSAGES", 65, 64)
    assert str(error) == (
        f"publication to {STATUS}: subscriber beta has no room: "
        "inbox: inbox full (MAX_BUS_QUEUE_MESSAGES: observed 65, maximum 64)"
    )
    assert (beta.statistics().refusals, gamma.statistics().refusals) == (1, 0)
    assert gamma.statistics().queued_messages == 63
    beta.take()
    assert alpha.publish(STATUS, {"summary": "both again"}).sequence == 65
    assert [take_event(gamma).sequence for _ in range(64)] == list(range(2, 66))


@pytest.mark.spec("octet.bus.queue-bytes-exact", "octet.bound.max-bus-queue-bytes", "octet.bus.admission-refusal")
def test_262144_bytes_fill_a_queue_and_one_more_is_refused(bus: Bus, wide: Peer) -> None:
    reader, other = bus.attach("reader"), bus.attach("other")
    reader.subscribe("bus.wide.event")
    for _ in range(31):
        wide.publish("bus.wide.event", frame_of(wide, 8192))
    other.subscribe("bus.wide.event")
    wide.publish("bus.wide.event", frame_of(wide, 8192 - 500))
    assert reader.statistics().queued_bytes == 262_144 - 500
    error = refusal(wide, "bus.wide.event", frame_of(wide, 501))
    assert isinstance(error, ResourceExhaustedError)
    assert (error.subscriber, error.limit) == ("reader", "MAX_BUS_QUEUE_BYTES")
    assert (error.observed, error.maximum) == (262_145, 262_144)
    wide.publish("bus.wide.event", frame_of(wide, 500))
    assert (reader.statistics().queued_bytes, reader.statistics().queued_messages) == (262_144, 33)
    assert other.statistics().queued_messages == 2


@pytest.mark.spec("octet.bus.admission-closed-skipped")
def test_a_draining_or_closed_subscriber_refuses_nothing(bus: Bus, alpha: Peer, beta: Peer) -> None:
    gamma = bus.attach("gamma")
    gamma.subscribe(STATUS)
    for _ in range(64):
        alpha.publish(STATUS, {"summary": "x"})
        gamma.take()
    assert refusal(alpha, STATUS, {"summary": "x"}).subscriber == "beta"
    beta.drain()
    assert alpha.publish(STATUS, {"summary": "x"}).sequence == 65
    assert beta.statistics().queued_messages == 64
    gamma.detach()
    assert alpha.publish(STATUS, {"summary": "x"}).sequence == 66
    assert take_event(beta).sequence == 1


@pytest.mark.spec("octet.bus.admission-closed-skipped")
def test_a_draining_subscribers_small_frame_bound_refuses_nothing(bus: Bus, wide: Peer) -> None:
    small = bus.attach("small", max_frame_bytes=300)
    small.subscribe("bus.wide.event")
    assert refusal(wide, "bus.wide.event", frame_of(wide, 400)).subscriber == "small"
    small.drain()
    wide.publish("bus.wide.event", frame_of(wide, 400))


def test_a_stalled_subscriber_holds_a_bounded_amount(alpha: Peer, beta: Peer) -> None:
    refused = 0
    for _ in range(20_000):
        try:
            alpha.publish(STATUS, {"summary": "x" * 128})
        except ResourceExhaustedError:
            refused += 1
    row = beta.statistics()
    assert refused == 20_000 - 64 == row.refusals
    assert (row.queued_messages, row.last_refused_topic) == (64, STATUS)
    assert row.queued_bytes <= 262_144
    beta.take()
    # A refusal uses no sequence: what the publisher could not say leaves no gap, and the counter says how often.
    assert alpha.publish(STATUS, {"summary": "x"}).sequence == 65
