"""The extension's end of the pipes without IO: its bytes, in any chunks, and hosts that contradict themselves."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from broker import Field, canonical
from broker.errors import CancelledError, CapabilityMismatchError, ProtocolError, ResourceExhaustedError, UsageError
from broker.extension.bus_client import TopicState
from broker.extension.canonical_wire import CanonicalHostConnection
from broker.extension.declaration import Declaration
from broker.extension.events import (
    BusEvent,
    CallReceived,
    Closed,
    Declared,
    Initialized,
    Log,
    OwnRequest,
    Subscribed,
    TopicAvailability,
)
from broker.limits import MAX_EXTENSION_REQUEST_IDS, MAX_EXTENSION_REQUESTS_OUTSTANDING, MAX_OWN_REQUESTS_QUEUED
from broker.wire.octet.contract import build_offer
from broker.wire.octet.models import ProtocolLimits, ToolDefinition
from broker.wire.octet.schema import encode

TOPIC = "bus.hello.report"
OTHER = "bus.other.tick"


def declaration() -> Declaration:
    made = Declaration("hello", "1.0.0", "0.3")
    made.tools["greet"] = ToolDefinition(name="greet", description="Greets.", parameters={"type": "object"})
    made.topics[TOPIC] = (Field.integer("number", 0, 9, required=False),)
    made.subscriptions.append(OTHER)
    return made


def frame(**message: Any) -> bytes:
    return canonical.encode({"jsonrpc": "2.0", **message}) + b"\n"


def initialize(limits: ProtocolLimits | None = None) -> bytes:
    params = {
        "api_version": "0.3",
        "octet_version": "0.8.0",
        "extension": {"name": "hello"},
        "workspace": "/w",
        "capabilities": {},
        "contributes": {"tools": ["greet"], "hooks": []},
        "flag_values": [{"name": "loud", "value": True}],
        "host": {},
        "contract": encode(build_offer(["event_bus"], limits=limits)),
    }
    return frame(id=1, method="initialize", params=params)


def lifecycle(kind: str, **members: Any) -> bytes:
    return frame(method="bus/lifecycle", params={"kind": kind, **members})


class Side:
    """A connection, everything it told, and everything it wrote, decoded."""

    def __init__(self) -> None:
        self.connection = CanonicalHostConnection(declaration())
        self.events: list[Any] = []
        self.written: list[Any] = []

    def feed(self, *chunks: bytes) -> list[Any]:
        """Feed bytes; gives the events they caused."""
        before = len(self.events)
        for chunk in chunks:
            self.connection.receive_data(chunk)
            while (event := self.connection.next_event()) is not None:
                self.events.append(event)
        lines = self.connection.data_to_send().splitlines()
        self.written += [canonical.decode(line) for line in lines]
        return self.events[before:]

    def bind(self, binding: str = "b1", revision: int = 1, state: str = "pending") -> None:
        self.feed(lifecycle("binding", binding_id=binding, binding_revision=revision))
        declare, subscribe = self.written[-2:]
        active = {"publisher_instance_id": "i1", "process_generation": 1} if state == "active" else {}
        self.feed(
            frame(id=declare["id"], result={"binding_id": binding}),
            frame(id=subscribe["id"], result={"binding_id": binding, "state": state, "topic_revision": 1, **active}),
        )


@pytest.fixture
def side() -> Side:
    made = Side()
    made.feed(initialize())
    return made


def event(**members: Any) -> bytes:
    whole = {
        "binding_id": "b1",
        "topic": OTHER,
        "publisher": "other",
        "publisher_instance_id": "i1",
        "process_generation": 1,
        "sequence": 5,
        "published_at_ms": 9,
        "payload": {"n": 1},
    }
    return frame(method="bus/event", params={**whole, **members})


CONVERSATION = b"".join(
    (
        initialize(),
        lifecycle("binding", binding_id="b1", binding_revision=1),
        frame(id=1, result={"binding_id": "b1"}),
        frame(id=2, result={"binding_id": "b1", "state": "pending", "topic_revision": 0}),
        frame(id=2, method="tool/call", params={"name": "greet", "arguments": {}, "context": {}}),
        lifecycle(
            "topic_available",
            binding_id="b1",
            topic=OTHER,
            topic_revision=1,
            publisher_instance_id="i1",
            process_generation=1,
        ),
        frame(
            id=3,
            result={
                "binding_id": "b1",
                "state": "active",
                "topic_revision": 1,
                "publisher_instance_id": "i1",
                "process_generation": 1,
            },
        ),
        event(),
    )
)


@given(cuts=st.lists(st.integers(1, len(CONVERSATION) - 1), max_size=20))
@settings(max_examples=50, deadline=None)
def test_chunks_do_not_matter(cuts: list[int]) -> None:
    places = sorted({0, *cuts, len(CONVERSATION)})
    side = Side()
    side.feed(*(CONVERSATION[start:end] for start, end in pairwise(places)))
    assert [type(one) for one in side.events] == [
        Initialized,
        Declared,
        Subscribed,
        CallReceived,
        TopicAvailability,
        Subscribed,
        BusEvent,
    ]
    assert [message.get("method") for message in side.written] == [
        None,
        "bus/declare",
        "bus/subscribe",
        "bus/subscribe",
    ]


@given(data=st.binary(max_size=60))
@settings(max_examples=100, deadline=None)
def test_no_bytes_raise(data: bytes) -> None:
    for first in (b"", initialize()):
        side = Side()
        side.feed(first, data, b"\n")
        side.connection.receive_eof()
        side.feed(b"")
        assert isinstance(side.events[-1], Closed)
        assert side.feed(initialize()) == []


def test_what_initialize_told(side: Side) -> None:
    info = side.events[0].info
    assert (info.workspace, dict(info.flags), info.octet_version) == ("/w", {"loud": True}, "0.8.0")
    assert "event_bus" in info.selected


@pytest.mark.spec("octet.bound.max-frame-bytes")
def test_both_ways_keep_to_the_selected_bound() -> None:
    side = Side()
    side.feed(initialize(ProtocolLimits(max_frame_bytes=2_000)))
    padding = "x" * (2_000 - len(frame(id=2, method="tool/call", params=call_params(""))) + 1)
    exact = frame(id=2, method="tool/call", params=call_params(padding))
    assert len(exact) == 2_001
    (received,) = side.feed(exact)
    with pytest.raises(ResourceExhaustedError) as caught:
        side.connection.answer(received.call, {"text": "y" * 2_000})
    assert (caught.value.limit, caught.value.maximum) == ("max_frame_bytes", 2_000)
    side.connection.answer(received.call, {"text": "y"})
    with pytest.raises(UsageError, match="tool/call was answered already"):
        side.connection.answer(received.call, {})
    over = frame(id=3, method="tool/call", params=call_params(padding + "x"))
    assert isinstance(side.feed(over)[0].error, ProtocolError)


def call_params(padding: str) -> dict[str, Any]:
    return {"name": "greet", "arguments": {"padding": padding}, "context": {}}


def test_ids_of_open_requests_are_not_used_twice(side: Side) -> None:
    call = frame(id=2, method="tool/call", params=call_params(""))
    assert isinstance(side.feed(call)[0], CallReceived)
    assert str(side.feed(call)[0].error) == "the host used the id of an open request again: 2"


@pytest.mark.parametrize(
    ("message", "code", "reason"),
    [
        (frame(id=2, method="provider/stream", params={}), -32601, None),
        (frame(id=2, method="bus/publish", params={}), -32601, None),
        (frame(id=2, method="nonsense", params={}), -32601, None),
        (frame(id=2, method="tool/call", params={}), -32602, "params of tool/call: name: is missing"),
        (frame(id=2, method="shutdown", params={"now": 1}), -32602, "params of shutdown: 'now': is not a known member"),
    ],
)
def test_requests_that_are_refused(side: Side, message: bytes, code: int, reason: str | None) -> None:
    side.feed(message)
    error = side.written[-1]["error"]
    assert error["code"] == code
    if reason is not None:
        assert error["data"]["reason"].startswith(reason)
    assert not side.connection.closed


# -- the extension's own requests --------------------------------------------------------------------------------------


def publish(side: Side, settled: list[OwnRequest], number: int = 1) -> OwnRequest:
    assert side.connection.bus is not None
    return side.connection.bus.publish(TOPIC, {"number": number}, settled.append)


def test_requests_wait_for_room_and_are_bounded(side: Side) -> None:
    side.bind()
    settled: list[OwnRequest] = []
    for _ in range(MAX_EXTENSION_REQUESTS_OUTSTANDING + MAX_OWN_REQUESTS_QUEUED):
        publish(side, settled)
    with pytest.raises(ResourceExhaustedError) as caught:
        publish(side, settled)
    assert str(caught.value) == "bus/publish: 1024 requests wait for the host already; await their answers"
    side.feed(b"")
    sent = [message["id"] for message in side.written if message.get("method") == "bus/publish"]
    assert len(sent) == MAX_EXTENSION_REQUESTS_OUTSTANDING
    receipt = {"binding_id": "b1", "sequence": 1, "published_at_ms": 2}
    side.feed(frame(id=sent[7], result=receipt))
    assert [request.id for request in settled] == [sent[7]]
    assert side.written[-1]["id"] == sent[-1] + 1


def test_a_process_that_has_used_its_ids(side: Side) -> None:
    side.bind()
    side.connection._last_id = MAX_EXTENSION_REQUEST_IDS
    with pytest.raises(ResourceExhaustedError) as caught:
        publish(side, [])
    assert str(caught.value) == "bus/publish: this process has made all of its 65536 requests; restart it"


def test_taking_a_request_back(side: Side) -> None:
    side.bind()
    settled: list[OwnRequest] = []
    request = publish(side, settled)
    side.connection.cancel(request, "enough")
    side.connection.cancel(request, "enough")
    side.feed(b"")
    assert side.written[-1] == {
        "jsonrpc": "2.0",
        "method": "$/cancelRequest",
        "params": {"id": request.id, "reason": "enough"},
    }
    assert isinstance(settled[0].error, CancelledError)
    assert side.feed(frame(id=request.id, error={"code": -32800, "message": "request cancelled"})) == []
    assert len(settled) == 1
    (log,) = side.feed(frame(id=request.id, result=1))
    assert log == Log(f"the host answered a request that is not open: {request.id}")


def test_what_is_open_at_the_end_fails(side: Side) -> None:
    side.bind()
    settled: list[OwnRequest] = []
    publish(side, settled)
    side.connection.receive_eof()
    assert side.feed(b"") == [Closed(None)]
    assert str(settled[0].error) == "the host went away before it answered bus/publish"
    with pytest.raises(CapabilityMismatchError, match="bus/publish: the connection to the host is over"):
        publish(side, settled)


# -- the bus -----------------------------------------------------------------------------------------------------------


@pytest.mark.spec("octet.bus.subscribe-pending", "octet.bus.subscribe-active")
def test_the_bus_by_its_bytes(side: Side) -> None:
    side.bind()
    assert side.written[1:] == [
        {
            "id": 1,
            "jsonrpc": "2.0",
            "method": "bus/declare",
            "params": {
                "binding_id": "b1",
                "topic": TOPIC,
                "fields": [
                    {
                        "name": "number",
                        "kind": "integer",
                        "required": False,
                        "max_bytes": 1024,
                        "values": [],
                        "minimum": 0,
                        "maximum": 9,
                    }
                ],
            },
        },
        {"id": 2, "jsonrpc": "2.0", "method": "bus/subscribe", "params": {"binding_id": "b1", "topic": OTHER}},
    ]
    assert side.events[1:] == [Declared(TOPIC), Subscribed(OTHER, active=False)]


def test_events_that_are_not_to_be_believed(side: Side) -> None:
    side.bind(state="active")
    assert side.feed(event(sequence=5))[0].sequence == 5
    for members, text in (
        ({"sequence": 5}, "sequence 5 after 5"),
        ({"sequence": 4}, "sequence 4 after 5"),
        ({"sequence": 6, "publisher_instance_id": "i2"}, "not from the publisher of the active subscription"),
        ({"sequence": 6, "process_generation": 2}, "not from the publisher of the active subscription"),
        ({"sequence": 6, "publisher": "hello"}, "'hello' is not its owner"),
        ({"sequence": 6, "payload": [1]}, "its payload is no object"),
    ):
        assert side.feed(event(**members)) == [Log(f"dropped an event on {OTHER}: {text}")]
    assert side.feed(event(sequence=6, binding_id="b0"), event(sequence=6, topic="bus.other.x")) == []
    assert side.feed(event(sequence=9))[0].sequence == 9


def test_an_event_before_the_subscription_is_active(side: Side) -> None:
    side.bind(state="pending")
    assert isinstance(side.feed(event())[0], Log)


def test_an_acknowledgement_of_an_older_binding_means_nothing(side: Side) -> None:
    side.feed(lifecycle("binding", binding_id="b1", binding_revision=1))
    first = side.written[-2:]
    side.feed(lifecycle("binding", binding_id="b2", binding_revision=2))
    bus = side.connection.bus
    assert bus is not None
    active = {"state": "active", "topic_revision": 1, "publisher_instance_id": "i1", "process_generation": 1}
    side.feed(
        frame(id=first[0]["id"], result={"binding_id": "b1"}),
        frame(id=first[1]["id"], result={"binding_id": "b1", **active}),
    )
    assert bus.state(TOPIC) is TopicState.DECLARING
    assert side.feed(event(binding_id="b2")) == [
        Log(f"dropped an event on {OTHER}: not from the publisher of the active subscription")
    ]


def test_an_acknowledgement_that_a_notice_has_overtaken(side: Side) -> None:
    side.feed(lifecycle("binding", binding_id="b1", binding_revision=1))
    subscribe = side.written[-1]
    gone = {"topic": OTHER, "publisher_instance_id": "i1", "process_generation": 1}
    side.feed(lifecycle("topic_unavailable", binding_id="b1", topic_revision=4, **gone))
    active = {"state": "active", "topic_revision": 3, "publisher_instance_id": "i1", "process_generation": 1}
    assert side.feed(frame(id=subscribe["id"], result={"binding_id": "b1", **active})) == []
    assert side.feed(lifecycle("topic_available", binding_id="b1", topic_revision=4, **gone)) == []
    assert side.feed(lifecycle("topic_available", binding_id="b0", topic_revision=9, **gone)) == []


@pytest.mark.parametrize(
    ("second", "fine"),
    [
        ({"binding_id": "b1", "binding_revision": 3}, True),
        ({"binding_id": "b0", "binding_revision": 2}, True),
        ({"binding_id": "b2", "binding_revision": 3}, False),
        ({"binding_id": "b1", "binding_revision": 4}, False),
        ({"binding_id": "", "binding_revision": 4}, False),
    ],
)
def test_bindings_that_contradict_each_other(side: Side, second: dict[str, Any], fine: bool) -> None:
    side.bind("b1", 3)
    count = len(side.written)
    events = side.feed(lifecycle("binding", **second))
    assert len(side.written) == count
    if fine:
        assert events == []
    else:
        assert str(events[0].error) == (
            f"binding {second['binding_id']!r} with revision {second['binding_revision']} "
            "contradicts 'b1' with revision 3"
        )
