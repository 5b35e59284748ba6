"""Topics made from attrs classes: what they declare, what is read back, and what is refused where it is written."""

from __future__ import annotations

import asyncio
import enum
from typing import Annotated, Any, Literal, Optional

import attrs
import pytest

from broker import Bounds, Bus, Event, Field, Message, Peer, TopicAvailable, topic
from broker.bus import HandlerFailure
from broker.bus.typed import typed_topic
from broker.errors import CapabilityMismatchError, InvalidParamsError, ResourceExhaustedError, UsageError
from broker.testing import ManualClock


class Colour(enum.Enum):
    RED = "red"
    GREEN = "green"


class Level(enum.StrEnum):
    LOW = "low"
    HIGH = "high"


@topic("bus.alpha.status")
@attrs.frozen
class Status:
    summary: Annotated[str, Bounds(max_bytes=12)]
    colour: Colour
    level: Level
    phase: Literal["start", "end"]
    done: bool
    step: Annotated[int | None, Bounds(minimum=0, maximum=9)] = None
    total: Annotated[int, Bounds(minimum=0)] | None = None
    hint: Optional[Annotated[str, Bounds(max_bytes=4)]] = None  # noqa: UP045 - the older spelling works too
    mark: Colour | None = None
    tries: int = 1


@topic("bus.alpha.status")
@attrs.define
class Summary:
    summary: str
    step: int | None = None
    unheard: bool | None = None


FULL = Status("green", Colour.GREEN, Level.HIGH, "end", True, 3, 10, "h", Colour.RED, 2)
BARE = Status("x", Colour.RED, Level.LOW, "start", False)


@pytest.fixture
def alpha(bus: Bus) -> Peer:
    alpha = bus.attach("alpha")
    alpha.declare(Status)
    return alpha


def take_payload(peer: Peer) -> Any:
    message = peer.take()
    assert isinstance(message, Event)
    return message.payload


# -- declaring and publishing ------------------------------------------------------------------------------------------


@pytest.mark.spec("octet.bus.typed-topic")
def test_a_class_is_its_fields() -> None:
    assert typed_topic(Status).fields == (
        Field.string("summary", 12),
        Field.enum("colour", ["red", "green"]),
        Field.enum("level", ["low", "high"]),
        Field.enum("phase", ["start", "end"]),
        Field.boolean("done"),
        Field.integer("step", 0, 9, required=False),
        Field.integer("total", 0, required=False),
        Field.string("hint", 4, required=False),
        Field.enum("mark", ["red", "green"], required=False),
        Field.integer("tries", required=False),
    )


@pytest.mark.spec("octet.bus.typed-topic")
@pytest.mark.parametrize("status", [FULL, BARE])
def test_an_instance_is_published_and_received(bus: Bus, alpha: Peer, status: Status) -> None:
    typed, plain = bus.attach("typed"), bus.attach("plain")
    typed.subscribe(Status)
    plain.subscribe("bus.alpha.status")
    alpha.publish(status)
    message = typed.take()
    assert isinstance(message, Event)
    assert message.payload == status
    assert type(message.payload) is Status
    assert (message.topic, message.sequence) == ("bus.alpha.status", 1)
    raw = plain.take()
    assert isinstance(raw, Event)
    assert raw.frame == message.frame
    expected: dict[str, Any] = {"summary": status.summary, "colour": status.colour.value, "level": status.level.value}
    expected |= {"phase": status.phase, "done": status.done, "tries": status.tries}
    if status is FULL:
        expected |= {"step": 3, "total": 10, "hint": "h", "mark": "red"}
    assert raw.payload == expected
    assert all(type(value) in (str, int, bool) for value in raw.payload.values())


@pytest.mark.spec("octet.bus.typed-topic")
def test_a_class_may_read_some_of_the_fields(bus: Bus, alpha: Peer) -> None:
    beta = bus.attach("beta")
    beta.subscribe(Summary)
    alpha.publish(FULL)
    first = take_payload(beta)
    assert first == Summary("green", 3, None)


def test_every_subscriber_gets_an_object_of_its_own(bus: Bus, alpha: Peer) -> None:
    one, two = bus.attach("one"), bus.attach("two")
    one.subscribe(Summary)
    two.subscribe(Summary)
    alpha.publish(FULL)
    mine = take_payload(one)
    mine.summary = "changed"
    assert take_payload(two) == Summary("green", 3, None)


def test_a_held_event_is_decoded_too(bus: Bus, alpha: Peer) -> None:
    beta = bus.attach("beta")
    beta.subscribe(Status)
    alpha.publish(BARE)
    held = beta.hold()
    assert held is not None
    assert isinstance(held.message, Event)
    assert held.message.payload == BARE
    assert held.valid
    held.release()
    assert beta.statistics().queued_messages == 0


@pytest.mark.spec("octet.bus.typed-topic")
def test_bounds_of_an_instance_are_checked_when_it_is_published(alpha: Peer) -> None:
    with pytest.raises(ResourceExhaustedError) as caught:
        alpha.publish(attrs.evolve(BARE, summary="x" * 13))
    assert (caught.value.path, caught.value.observed, caught.value.maximum) == ("payload.summary", 13, 12)
    changes: dict[str, Any] = {"step": 10, "done": 1, "summary": None, "phase": "middle"}
    with pytest.raises(InvalidParamsError) as refused:
        alpha.publish(attrs.evolve(BARE, **changes))
    assert [fault.path for fault in refused.value.faults] == [
        "payload.summary",
        "payload.phase",
        "payload.done",
        "payload.step",
    ]


def test_wrong_uses_of_a_class(bus: Bus, alpha: Peer) -> None:
    with pytest.raises(CapabilityMismatchError):
        bus.attach("beta").declare(Status)
    with pytest.raises(InvalidParamsError, match="topic: expected a string, got Status"):
        alpha.publish(BARE, {"summary": "x"})
    with pytest.raises(InvalidParamsError, match="topic: expected a string, got type"):
        alpha.publish(Status)
    with pytest.raises(UsageError, match="not a topic class"):
        alpha.publish(object())
    for request in (alpha.subscribe, alpha.unsubscribe, alpha.declare):
        with pytest.raises(UsageError, match="int is not a topic class"):
            request(int)
    alpha.subscribe(Status)
    alpha.unsubscribe(Status)
    assert alpha.statistics().active == ()


def test_a_subclass_is_a_topic_class_only_when_it_says_so() -> None:
    @attrs.frozen
    class Derived(Status):
        pass

    with pytest.raises(UsageError, match="Derived is not a topic class"):
        typed_topic(Derived)


# -- reading strictly --------------------------------------------------------------------------------------------------


@pytest.mark.spec("octet.bus.typed-strict")
@pytest.mark.parametrize(
    ("change", "text"),
    [
        ({"step": "5"}, "expected int, got str"),
        ({"step": True}, "expected int, got bool"),
        ({"step": 1.0}, "expected int, got float"),
        ({"summary": 5}, "expected str, got int"),
        ({"summary": Level.LOW}, "expected str, got Level"),
        ({"done": 1}, "expected bool, got int"),
        ({"colour": "blue"}, "blue"),
        ({"colour": Colour.RED}, "expected str, got Colour"),
        ({"phase": "middle"}, "middle"),
    ],
)
def test_values_are_read_strictly(change: dict[str, Any], text: str) -> None:
    described = typed_topic(Status)
    payload = described.payload(BARE)
    assert described.decode(payload) == BARE
    with pytest.raises(InvalidParamsError) as caught:
        described.decode({**payload, **change})
    [fault] = caught.value.faults
    assert fault.path == f"payload.{next(iter(change))}"
    assert text in fault.problem
    assert caught.value.topic == "bus.alpha.status"


@pytest.mark.spec("octet.bus.typed-strict")
def test_all_faults_of_reading_come_at_once() -> None:
    with pytest.raises(InvalidParamsError) as caught:
        typed_topic(Summary).decode({"summary": 1, "step": "2"})
    assert [str(fault) for fault in caught.value.faults] == [
        "payload.summary: expected str, got int",
        "payload.step: expected int, got str",
    ]
    with pytest.raises(InvalidParamsError, match=r"payload\.summary: missing"):
        typed_topic(Summary).decode({"step": 2})


# -- a class and a declaration that do not fit -------------------------------------------------------------------------


@topic("bus.maker.made")
@attrs.frozen
class Made:
    name: str
    count: int
    colour: Colour
    note: str | None = None


@pytest.mark.spec("octet.bus.typed-topic")
def test_a_class_that_cannot_read_the_topic_is_refused_with_every_reason(bus: Bus) -> None:
    maker, reader = bus.attach("maker"), bus.attach("reader")
    maker.declare(
        "bus.maker.made",
        [Field.string("name", required=False), Field.enum("colour", ["red", "blue"]), Field.boolean("note")],
    )
    with pytest.raises(InvalidParamsError) as caught:
        reader.subscribe(Made)
    assert [str(fault) for fault in caught.value.faults] == [
        "Made.name: is required, but optional in the declared topic",
        "Made.count: not a field of the declared topic",
        "Made.colour: does not know the declared value 'blue'",
        "Made.note: is of kind string, declared as boolean",
    ]
    assert caught.value.topic == "bus.maker.made"
    assert (reader.statistics().active, reader.statistics().pending) == ((), ())
    reader.subscribe("bus.maker.made")
    with pytest.raises(InvalidParamsError):
        reader.subscribe(Made)
    maker.publish("bus.maker.made", {"colour": "blue", "note": True})
    assert take_payload(reader) == {"colour": "blue", "note": True}


@pytest.mark.spec("octet.bus.subscribe-not-automatic")
def test_a_pending_class_is_checked_when_it_becomes_active(bus: Bus) -> None:
    maker, reader = bus.attach("maker"), bus.attach("reader")
    reader.subscribe(Made)
    maker.declare("bus.maker.made", [])
    assert isinstance(reader.take(), TopicAvailable)
    with pytest.raises(InvalidParamsError):
        reader.subscribe(Made)
    assert reader.statistics().pending == ("bus.maker.made",)


# -- code of the user's class ------------------------------------------------------------------------------------------


def check_positive(instance: object, attribute: attrs.Attribute[int], value: int) -> None:
    if value == 0:
        raise RuntimeError("zero is not positive")
    if value == -1:
        raise SystemExit("out of a validator")
    if value == -2:
        raise asyncio.CancelledError
    if value == -3:
        raise KeyboardInterrupt


@topic("bus.maker.count")
@attrs.frozen
class Count:
    value: Annotated[int, Bounds()] = attrs.field(validator=check_positive)


@pytest.fixture
def counter(bus: Bus) -> Peer:
    counter = bus.attach("maker")
    counter.declare("bus.maker.count", [Field.integer("value")])
    return counter


@pytest.mark.spec("octet.bus.typed-topic")
def test_a_validator_that_raises_consumes_the_event(bus: Bus, counter: Peer) -> None:
    reader = bus.attach("reader")
    reader.subscribe(Count)
    for value in (1, 0, 2, 0, 3):
        counter.publish("bus.maker.count", {"value": value})
    assert take_payload(reader) == Count(1)
    with pytest.raises(InvalidParamsError, match="does not fit Count: payload: zero is not positive") as caught:
        reader.take()
    assert caught.value.topic == "bus.maker.count"
    assert take_payload(reader) == Count(2)
    with pytest.raises(InvalidParamsError, match="zero is not positive"):
        reader.hold()
    row = reader.statistics()
    assert (row.queued_messages, row.held_messages, row.taken) == (1, 0, 4)
    assert take_payload(reader) == Count(3)


@pytest.mark.spec("octet.bus.deliver-raising")
def test_a_validator_that_raises_is_reported_and_the_rest_is_delivered(clock: ManualClock) -> None:
    failures: list[HandlerFailure] = []
    bus = Bus(clock=clock, on_handler_error=failures.append)
    counter, reader, other = bus.attach("maker"), bus.attach("reader"), bus.attach("other")
    counter.declare("bus.maker.count", [Field.integer("value")])
    log: list[Any] = []
    for peer in (reader, other):
        peer.subscribe(Count if peer is reader else "bus.maker.count")
        peer.deliver_to(log.append)
    for value in (0, -1, -2, 7):
        counter.publish("bus.maker.count", {"value": value})
    assert bus.deliver() == 5
    assert [message.payload for message in log] == [Count(7), *({"value": value} for value in (0, -1, -2, 7))]
    assert [type(failure.error) for failure in failures] == [InvalidParamsError, SystemExit, asyncio.CancelledError]
    assert [(failure.peer, failure.handler, failure.message) for failure in failures] == [("reader", None, None)] * 3
    assert failures[0].topic == "bus.maker.count"
    assert reader.statistics().handler_errors == 3
    counter.publish("bus.maker.count", {"value": -3})
    with pytest.raises(KeyboardInterrupt):
        bus.deliver()
    assert log[5].payload == {"value": -3}


def test_the_lock_is_free_while_a_class_is_made(bus: Bus, counter: Peer) -> None:
    log: list[Message | None] = []

    def look(instance: object, attribute: attrs.Attribute[int], value: int) -> None:
        log.append(counter.take())

    @topic("bus.maker.count")
    @attrs.frozen
    class Looking:
        value: int = attrs.field(validator=look)

    counter.subscribe("bus.maker.count")
    reader = bus.attach("reader")
    reader.subscribe(Looking)
    counter.publish("bus.maker.count", {"value": 1})
    reader.take()
    assert [type(message) for message in log] == [Event]
