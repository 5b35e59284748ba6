"""What the extension sends: which fault ends the stream, which is answered, which is dropped."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from broker.errors import CapabilityMismatchError, ExitedError, InvalidParamsError, ProtocolError, UsageError
from broker.wire.octet.bus_models import BusTopicParams
from broker.wire.octet.connection import Phase
from broker.wire.octet.events import CancelReceived, Closed, Diagnostic, RequestReceived

NewWire = Callable[..., Any]

TOPIC = {"binding_id": "b", "topic": "bus.tide.x"}


def ask(request_id: Any, method: str = "bus/subscribe", params: Any = TOPIC) -> dict[str, Any]:
    return {"jsonrpc": "2.0", "id": request_id, "method": method, "params": params}


def tell(method: str, params: Any) -> dict[str, Any]:
    return {"jsonrpc": "2.0", "method": method, "params": params}


def ending(wire: Any) -> Any:
    """The error of the only event, which closes."""
    (event,) = wire.events()
    assert isinstance(event, Closed)
    assert event.error is wire.connection.failure
    assert wire.connection.phase is Phase.CLOSED
    assert wire.events() == []
    assert wire.written() == [], "a frame without a trustworthy id is not answered"
    return event.error


@pytest.mark.spec(
    "octet.framing.carriage-return",
    "octet.framing.empty-line",
    "octet.framing.lf-terminated",
    "octet.framing.before-dispatch",
    "octet.error.no-answer-without-id",
    "octet.envelope.response-string-id",
    "octet.envelope.error-pair",
)
@pytest.mark.parametrize(
    ("line", "name", "text"),
    [
        (b'{"id":2,"jsonrpc":"2.0","result":{}}\r', "parse_error", "CR before LF"),
        (b"\r", "parse_error", "CR before LF"),
        (b"", "parse_error", "empty line"),
        (b"hello", "parse_error", "'hello'"),
        (b'\xef\xbb\xbf{"id":2,"jsonrpc":"2.0","result":{}}', "parse_error", "not canonical JSON"),
        (b'{"id":2, "jsonrpc":"2.0","result":{}}', "parse_error", "not canonical JSON"),
        (b'{"jsonrpc":"2.0","id":2,"result":{}}', "parse_error", "not canonical JSON"),
        (b'{"id":2,"id":2,"jsonrpc":"2.0","result":{}}', "parse_error", "not canonical JSON"),
        (b'{"id":2,"jsonrpc":"2.0","result":1.0}', "parse_error", "not canonical JSON"),
        (b'{"id":2,"jsonrpc":"2.0","result":9007199254740992}', "parse_error", "not canonical JSON"),
        (b'{"id":2,"jsonrpc":"2.0","result":"\\/"}', "parse_error", "not canonical JSON"),
        (b'{"id":2,"jsonrpc":"2.0","result":"\xff"}', "parse_error", "not canonical JSON"),
        (b'{"id":2,"jsonrpc":"2.0","result":{}}{}', "parse_error", "not canonical JSON"),
        (b'{"id":2,"jsonrpc":"2.0","result":' + b"[" * 32 + b"]" * 32 + b"}", "parse_error", "not canonical JSON"),
        (b"[]", "invalid_request", "must be an object"),
        (b'{"id":2,"jsonrpc":"2.0","result":null}', "invalid_request", "result"),
        (b'{"id":2,"jsonrpc":"2.0"}', "invalid_request", "present: id"),
        (
            b'{"error":{"code":-32602,"message":"Invalid params"},"id":2,"jsonrpc":"2.0"}',
            "invalid_request",
            "error table",
        ),
        (b'{"error":{"code":-32000,"message":"x"},"id":2,"jsonrpc":"2.0"}', "invalid_request", "error table"),
        (b'{"id":"2","jsonrpc":"2.0","result":{}}', "invalid_request", "string id '2'"),
    ],
)
def test_lines_that_end_the_stream(new_wire: NewWire, line: bytes, name: str, text: str) -> None:
    wire = new_wire().ready()
    request = wire.call()
    wire.written()
    wire.connection.receive_data(line + b"\n" + b'{"id":2,"jsonrpc":"2.0","result":{}}\n')
    error = ending(wire)
    assert isinstance(error, ProtocolError)
    assert (error.name, error.extension) == (name, "tide")
    assert text in str(error)
    assert wire.settled == [request] and isinstance(request.error, ProtocolError) and request.error is not error
    assert request.error.method == "tool/call" and str(request.error) == str(error)


@pytest.mark.spec("octet.envelope.check-order")
@pytest.mark.parametrize(
    ("line", "name", "text"),
    [
        (b"x" * 301 + b"\r", "resource_exhausted", "a frame of more than 300 bytes"),  # the bound before the CR
        (b"\r", "parse_error", "CR before LF"),  # the CR before the empty line
        (b"hello\r", "parse_error", "CR before LF"),  # and before the syntax
        (b"[1.5 ]", "parse_error", "float"),  # the first fault of the text by its place
        (b"[[ ]]", "parse_error", "white space"),  # the canonical form before the envelope
        (b"[" * 33 + b"]" * 33, "parse_error", "depth"),  # the depth before the envelope
        (b'{"id":2,"result":null}', "invalid_request", "jsonrpc"),
    ],
)
def test_the_first_of_several_faults_of_a_line_is_the_one_reported(
    new_wire: NewWire, line: bytes, name: str, text: str
) -> None:
    wire = new_wire().ready(max_frame_bytes=300)
    wire.connection.receive_data(line + b"\n")
    error = ending(wire)
    assert error.name == name
    assert text in str(error)


@pytest.mark.spec("octet.framing.before-dispatch", "octet.canonical.no-float")
@pytest.mark.parametrize("number", [b"1.5", b"1e2", b"9007199254740992"])
def test_a_request_with_nothing_wrong_but_its_numbers_is_answered_and_the_stream_lives(
    new_wire: NewWire, number: bytes
) -> None:
    wire = new_wire().ready()
    params = b'{"binding_id":"b","payload":{"n":%b},"topic":"bus.tide.x"}' % number
    wire.connection.receive_data(b'{"id":1,"jsonrpc":"2.0","method":"bus/publish","params":%b}\n' % params)
    assert [type(event) for event in wire.events()] == [Diagnostic]
    assert wire.written() == [b'{"error":{"code":-32602,"message":"invalid params"},"id":1,"jsonrpc":"2.0"}\n']
    wire.receive(ask(2))
    assert [type(event) for event in wire.events()] == [RequestReceived]


def test_the_quoted_line_is_safe_and_bounded_and_the_offset_is_kept(new_wire: NewWire) -> None:
    wire = new_wire().ready()
    wire.connection.receive_data(b"\x1b[31m" + b"x" * 5_000 + b"\n")
    error = ending(wire)
    assert error.offset == 0
    assert "'\\x1b[31m" in str(error) and str(error).isprintable()
    assert len(str(error)) < 400


@pytest.mark.spec("octet.framing.unterminated")
def test_end_of_output_inside_a_line_is_a_protocol_error(new_wire: NewWire) -> None:
    wire = new_wire().ready()
    wire.receive(ask("a"))
    wire.connection.receive_data(b'{"id"')
    wire.connection.receive_eof()
    events = wire.events()
    assert [type(event).__name__ for event in events] == ["RequestReceived", "Closed"]
    assert isinstance(events[1].error, ProtocolError)


@pytest.mark.spec("octet.framing.eof-on-boundary", "octet.process.output-closed", "octet.tool-call.process-lost")
def test_end_of_output_on_a_line_boundary_fails_everyone_who_waits(new_wire: NewWire) -> None:
    wire = new_wire().ready()
    sent = wire.call()
    wire.written()
    queued = wire.call()
    wire.connection.receive_eof()
    error = ending(wire)
    assert isinstance(error, ExitedError)
    assert wire.settled == [sent, queued]
    assert (sent.error.dispatched, queued.error.dispatched) == (True, False)
    with pytest.raises(CapabilityMismatchError) as caught:
        wire.call()
    assert caught.value.__cause__ is error


@pytest.mark.spec("octet.shutdown.ack-then-eof", "octet.framing.eof-on-boundary")
def test_end_of_output_after_the_shutdown_answer_is_an_orderly_end(new_wire: NewWire) -> None:
    wire = new_wire().ready()
    wire.connection.drain()
    request = wire.connection.request("shutdown", {}, bypass_slots=True, on_settled=wire.settled.append)
    assert wire.written() == [b'{"id":2,"jsonrpc":"2.0","method":"shutdown","params":{}}\n']
    wire.receive({"jsonrpc": "2.0", "id": 2, "result": {"terminal": "shutdown"}})
    wire.connection.receive_eof()
    assert wire.events() == [Closed(None)]
    assert request.result == {"terminal": "shutdown"} and wire.connection.failure is None


# -- requests ----------------------------------------------------------------------------------------------------------


@pytest.mark.spec(
    "octet.envelope.id-exact", "octet.envelope.id-zero", "octet.error.detail-in-data", "octet.method.answered-once"
)
def test_a_request_is_answered_once_under_its_own_id(new_wire: NewWire) -> None:
    wire = new_wire().ready()
    wire.receive(ask(0), ask("0"), ask("é"))
    events = wire.events()
    assert [event.incoming.id for event in events] == [0, "0", "é"]
    first, second, third = (event.incoming for event in events)
    assert (first.method, first.params, first.model) == ("bus/subscribe", TOPIC, BusTopicParams(**TOPIC))
    wire.connection.answer(second, {"binding_id": "b"})
    wire.connection.refuse(third, CapabilityMismatchError("the detail stays here"))
    wire.connection.refuse(first, InvalidParamsError("x"), data={"why": 1})
    assert wire.written() == [
        b'{"id":"0","jsonrpc":"2.0","result":{"binding_id":"b"}}\n',
        '{"error":{"code":-32011,"message":"extension capability mismatch"},"id":"é","jsonrpc":"2.0"}\n'.encode(),
        b'{"error":{"code":-32602,"data":{"why":1},"message":"invalid params"},"id":0,"jsonrpc":"2.0"}\n',
    ]
    with pytest.raises(UsageError, match="must be a dict, not NoneType"):
        wire.connection.answer(first, None)
    with pytest.raises(UsageError):
        wire.connection.answer(first, {})
    with pytest.raises(UsageError):
        wire.connection.refuse(second, InvalidParamsError("x"))
    assert wire.written() == []


@pytest.mark.spec(
    "octet.method.unknown",
    "octet.method.unselected",
    "octet.method.wrong-direction",
    "octet.method.deferred",
    "octet.method.refused-id-unused",
)
@pytest.mark.parametrize(
    "method",
    [
        "never/heard",  # unknown
        "",
        "session/create",  # known, not selected
        "tools/register",  # deferred
        "tool/call",  # selected, wrong direction
        "shutdown",
    ],
)
def test_a_method_the_contract_does_not_give_is_refused_and_its_id_not_used(new_wire: NewWire, method: str) -> None:
    wire = new_wire().ready()
    wire.receive(ask(5, method, {}), ask(5))
    events = wire.events()
    assert [type(event).__name__ for event in events] == ["Diagnostic", "RequestReceived"]
    assert wire.written() == [
        b'{"error":{"code":-32601,"data":{"method":"%b"},"message":"unknown or unnegotiated method"},'
        b'"id":5,"jsonrpc":"2.0"}\n' % method.encode()
    ]


@pytest.mark.spec("octet.method.unselected", "octet.bus.wire-unselected")
def test_an_unselected_bus_is_an_unknown_method(new_wire: NewWire) -> None:
    wire = new_wire().ready(bus=False)
    wire.receive(ask(1, "bus/publish", {}))
    assert [type(event).__name__ for event in wire.events()] == ["Diagnostic"]
    assert b"-32601" in wire.written()[0]


@pytest.mark.spec(
    "octet.method.bad-params", "octet.error.bound-class", "octet.error.value-class", "octet.method.id-reuse"
)
@pytest.mark.parametrize(
    ("method", "params", "frame"),
    [
        ("bus/subscribe", {"binding_id": "b"}, b'"code":-32602,"message":"invalid params"'),
        ("bus/unsubscribe", {**TOPIC, "binding_id": None}, b'"code":-32602,"message":"invalid params"'),
        ("bus/publish", {**TOPIC, "payload": {}, "publisher": "x"}, b'"code":-32602,"message":"invalid params"'),
        ("bus/declare", [], b'"code":-32602,"message":"invalid params"'),
        ("bus/declare", {**TOPIC, "fields": [{}] * 25}, b'"code":-32012,"message":"extension resource exhausted"'),
    ],
)
def test_bad_parameters_are_refused_without_data_and_the_id_is_used(
    new_wire: NewWire, method: str, params: Any, frame: bytes
) -> None:
    wire = new_wire().ready()
    wire.receive(ask(7, method, params))
    (event,) = wire.events()
    assert isinstance(event, Diagnostic) and f"params of {method}" in event.text
    assert wire.written() == [b'{"error":{%b},"id":7,"jsonrpc":"2.0"}\n' % frame]
    wire.receive(ask(7))
    assert "7 was used before" in str(ending(wire))


@pytest.mark.spec("octet.method.id-reuse")
@pytest.mark.parametrize("answered", [False, True])
@pytest.mark.parametrize("request_id", [3, "three"])
def test_an_id_used_twice_ends_the_stream(new_wire: NewWire, request_id: Any, answered: bool) -> None:
    wire = new_wire().ready()
    wire.receive(ask(request_id))
    (event,) = wire.events()
    if answered:
        wire.connection.answer(event.incoming, {"binding_id": "b"})
        wire.written()
    wire.receive(ask(request_id))
    error = ending(wire)
    assert isinstance(error, ProtocolError) and "was used before" in str(error)
    wire.connection.answer(event.incoming, {}) if not answered else None
    assert wire.written() == []


@pytest.mark.spec("octet.method.outstanding-bound")
def test_the_129th_outstanding_request_ends_the_stream(new_wire: NewWire) -> None:
    wire = new_wire().ready()
    wire.receive(*(ask(number) for number in range(128)))
    events = wire.events()
    assert len(events) == 128 and all(isinstance(event, RequestReceived) for event in events)
    wire.connection.answer(events[0].incoming, {})
    wire.receive(ask(128))
    assert [type(event) for event in wire.events()] == [RequestReceived]
    wire.receive(ask(129))
    error = ending(wire)
    assert (error.name, error.limit) == ("resource_exhausted", "MAX_EXTENSION_REQUESTS_OUTSTANDING")
    assert (error.observed, error.maximum) == (129, 128)


@pytest.mark.spec("octet.method.ids-bound")
def test_the_65537th_id_ends_the_stream(new_wire: NewWire) -> None:
    wire = new_wire().ready()
    table = wire.connection._inbound.table
    table._used.update(range(1_000, 1_000 + 65_535))
    wire.receive(ask(0))
    assert [type(event) for event in wire.events()] == [RequestReceived]
    wire.receive(ask(1))
    error = ending(wire)
    assert (error.limit, error.observed, error.maximum) == ("MAX_EXTENSION_REQUEST_IDS", 65_537, 65_536)


@pytest.mark.spec("octet.method.full-writer", "octet.process.writer-bound")
def test_an_answer_without_room_in_the_writer_queue_ends_the_stream(new_wire: NewWire) -> None:
    wire = new_wire().ready()
    for number in range(127):
        assert wire.connection.notify("bus/lifecycle", {"kind": "binding", "n": number}) is True
    wire.receive(ask("a"), ask("b"))
    first, second = (event.incoming for event in wire.events())
    wire.connection.answer(first, {})
    assert wire.connection.queued_frames == 128
    wire.connection.answer(second, {})
    error = ending(wire)
    assert (error.name, error.limit, error.observed, error.maximum) == (
        "resource_exhausted",
        "MAX_WRITER_FRAMES",
        129,
        128,
    )
    assert wire.connection.queued_frames == 0 and wire.written() == []


@pytest.mark.spec("octet.process.writer-bound")
def test_a_notification_without_room_is_dropped_and_says_so(new_wire: NewWire) -> None:
    wire = new_wire().ready()
    for _ in range(128):
        assert wire.connection.notify("bus/lifecycle", {"kind": "binding"}) is True
    assert wire.connection.notify("bus/lifecycle", {"kind": "lost"}) is False
    assert len(wire.written()) == 128
    assert wire.connection.notify("bus/lifecycle", {"kind": "binding"}) is True
    assert wire.written() == [b'{"jsonrpc":"2.0","method":"bus/lifecycle","params":{"kind":"binding"}}\n']
    wire.connection.close()
    assert wire.connection.notify("bus/lifecycle", {"kind": "binding"}) is False


@pytest.mark.spec("octet.method.only-selected-sent", "octet.method.wrong-direction")
def test_only_selected_notifications_of_the_host_may_be_sent(new_wire: NewWire) -> None:
    wire = new_wire().ready(bus=False)
    for method in ("bus/event", "provider/cancel", "tool/call", "never/heard"):
        with pytest.raises(CapabilityMismatchError):
            wire.connection.notify(method, {})
    with pytest.raises(CapabilityMismatchError):
        new_wire().ready().connection.request("bus/event", {})
    with pytest.raises(CapabilityMismatchError):
        new_wire().ready().connection.request("bus/publish", {})


@pytest.mark.spec("octet.framing.selected-bound-writes")
def test_an_answer_over_the_frame_bound_becomes_an_error(new_wire: NewWire) -> None:
    wire = new_wire().ready(max_frame_bytes=120)
    wire.receive(ask("a"), ask("b"))
    first, second = (event.incoming for event in wire.events())
    wire.connection.answer(first, {"binding_id": "b" * 200})
    wire.connection.refuse(second, InvalidParamsError("x"), data={"method": "m" * 100})
    assert wire.written() == [
        b'{"error":{"code":-32012,"message":"extension resource exhausted"},"id":"a","jsonrpc":"2.0"}\n',
        b'{"error":{"code":-32602,"message":"invalid params"},"id":"b","jsonrpc":"2.0"}\n',
    ]
    (event,) = wire.events()
    assert isinstance(event, Diagnostic) and "MAX_FRAME_BYTES" not in event.text and "120" in event.text


# -- notifications -----------------------------------------------------------------------------------------------------


@pytest.mark.spec("octet.method.notification-flood", "octet.method.notification-dropped")
@pytest.mark.parametrize(
    ("method", "params"),
    [
        ("never/heard", {}),
        ("providers/complete", {}),
        ("bus/event", {}),
        ("$/cancelRequest", {}),
        ("$/cancelRequest", {"id": None}),
        ("$/cancelRequest", {"id": True}),
        ("$/cancelRequest", {"id": 1, "reason": None}),
        ("$/cancelRequest", {"id": 1, "reason": "x" * 4_097}),
        ("$/cancelRequest", {"id": 1, "why": "x"}),
        ("$/cancelRequest", 1),
    ],
)
def test_a_notification_that_cannot_be_used_is_dropped_and_the_65th_ends_the_stream(
    new_wire: NewWire, method: str, params: Any
) -> None:
    wire = new_wire().ready()
    wire.receive(ask(1))
    wire.events()
    wire.receive(*(tell(method, params) for _ in range(64)))
    events = wire.events()
    assert len(events) == 64
    assert all(isinstance(event, Diagnostic) and event.text.startswith("tide: dropped") for event in events)
    wire.receive(tell(method, params))
    error = ending(wire)
    assert (error.limit, error.observed, error.maximum) == ("MAX_UNNEGOTIATED_NOTIFICATIONS", 65, 64)
    assert wire.written() == []


@pytest.mark.spec("octet.envelope.request-needs-id", "octet.envelope.notification-forbids-id")
@pytest.mark.parametrize(
    "frame",
    [ask(1, "$/cancelRequest", {"id": 1}), ask(1, "bus/event", {}), tell("bus/publish", {}), tell("tool/call", {})],
)
def test_a_known_method_in_the_wrong_envelope_ends_the_stream(new_wire: NewWire, frame: Any) -> None:
    wire = new_wire().ready()
    wire.receive(frame)
    assert ending(wire).name == "invalid_request"


@pytest.mark.spec(
    "octet.cancel.from-extension",
    "octet.envelope.id-exact",
    "octet.cancel.from-extension-settled",
    "octet.method.cancel-request",
)
def test_an_extension_that_takes_its_request_back_gets_its_terminal(new_wire: NewWire) -> None:
    wire = new_wire().ready()
    wire.receive(ask("a"), ask(1))
    one, other = (event.incoming for event in wire.events())
    wire.receive(tell("$/cancelRequest", {"id": "a", "reason": "changed my mind"}))
    assert wire.events() == [CancelReceived(one, "changed my mind")]
    assert wire.written() == [b'{"error":{"code":-32800,"message":"request cancelled"},"id":"a","jsonrpc":"2.0"}\n']
    wire.connection.answer(one, {"binding_id": "b"})
    wire.connection.refuse(one, InvalidParamsError("x"))
    wire.receive(tell("$/cancelRequest", {"id": "a"}), tell("$/cancelRequest", {"id": "1"}))
    assert wire.events() == [] and wire.written() == []
    wire.connection.answer(other, {"binding_id": "b"})
    assert wire.written() == [b'{"id":1,"jsonrpc":"2.0","result":{"binding_id":"b"}}\n']
    wire.receive(tell("$/cancelRequest", {"id": 1}))
    assert wire.events() == [] and wire.written() == []


@pytest.mark.spec("octet.cancel.from-extension", "octet.method.id-reuse")
def test_a_cancelled_id_stays_used(new_wire: NewWire) -> None:
    wire = new_wire().ready()
    wire.receive(ask("a"), tell("$/cancelRequest", {"id": "a"}), ask("a"))
    events = wire.events()
    assert [type(event).__name__ for event in events] == ["RequestReceived", "CancelReceived", "Closed"]
    assert events[1].reason is None


def test_answers_after_the_end_do_nothing(new_wire: NewWire) -> None:
    wire = new_wire().ready()
    wire.receive(ask("a"))
    (event,) = wire.events()
    wire.connection.close()
    assert len(wire.connection._inbound.table) == 0
    wire.connection.answer(event.incoming, {})
    wire.connection.receive_data(b"anything")
    wire.connection.receive_eof()
    assert wire.events() == [Closed(None)] and wire.written() == []
