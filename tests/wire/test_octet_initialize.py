"""From NEW to READY: initialize, its answer, the bound that changes in between, and every way to fail."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from broker import canonical
from broker.errors import (
    CancelledError,
    CapabilityMismatchError,
    ExitedError,
    InvalidParamsError,
    NegotiationError,
    ProtocolError,
    ResourceExhaustedError,
    TimedOutError,
    UsageError,
)
from broker.wire.octet.connection import Connection, ConnectionSettings, Phase
from broker.wire.octet.events import Closed, Diagnostic, Initialized
from broker.wire.octet.negotiation import Expectation

NewWire = Callable[..., Any]


def answer(result: Any) -> dict[str, Any]:
    return {"jsonrpc": "2.0", "id": 1, "result": result}


@pytest.mark.spec(
    "octet.framing.lf-terminated",
    "octet.initialize.first-request",
    "octet.initialize.bytes",
    "octet.initialize.api-version",
    "octet.initialize.schema-literals",
    "octet.initialize.offered-bound",
)
def test_initialize_is_one_canonical_line_under_id_1(new_wire: NewWire, good_params: Any) -> None:
    wire = new_wire()
    request = wire.connection.initialize(good_params(["event_bus"]), Expectation())
    assert (wire.connection.phase, request.id, request.dispatched) == (Phase.INITIALIZING, 1, False)
    assert wire.connection.queued_frames == 1
    assert b"".join(wire.written()) == (
        b'{"id":1,"jsonrpc":"2.0","method":"initialize","params":{"api_version":"0.3",'
        b'"capabilities":{"filesystem":"none","network":false,"process":false},'
        b'"contract":{"encoding":"octet-canonical-json-v1",'
        b'"limits":{"max_concurrent_requests":64,"max_frame_bytes":1048576,"max_tools":256},'
        b'"optional_capabilities":["event_bus"],"optional_methods":["bus/declare","bus/event","bus/lifecycle",'
        b'"bus/publish","bus/subscribe","bus/unsubscribe"],'
        b'"required_capabilities":["content_parts","core","request_cancellation","tool_call"],'
        b'"required_methods":["$/cancelRequest","initialize","shutdown","tool/call"],'
        b'"schema":"octet.extension.api/0.3"},"contributes":{"tools":["tide"]},'
        b'"extension":{"manifest_path":"/srv/tide/extension.toml","name":"tide","source":"explicit","version":"1.2.0"},'
        b'"flag_values":[],"host":{"session_id":null},"octet_version":"0.8.0","workspace":"/srv/work"}}\n'
    )
    assert request.dispatched


@pytest.mark.spec("octet.method.initialize")
def test_a_right_answer_makes_the_contract(new_wire: NewWire, good_result: Any) -> None:
    wire = new_wire()
    request = wire.initialize()
    wire.receive(answer(good_result()))
    (event,) = wire.events()
    assert isinstance(event, Initialized)
    assert wire.connection.phase is Phase.READY
    assert event.selection is wire.connection.selection is request.result
    assert [tool.name for tool in event.tools] == ["tide"]
    assert wire.settled == [request] and request.error is None
    assert wire.connection.next_deadline() is None


@pytest.mark.spec("octet.selection.nothing-visible", "octet.version.reply-mismatch")
def test_a_refused_selection_closes_and_shows_nothing(new_wire: NewWire, good_result: Any) -> None:
    wire = new_wire()
    request = wire.initialize()
    wire.receive(answer({**good_result(), "api_version": "0.4"}), answer(good_result()))
    (event,) = wire.events()
    assert isinstance(event, Closed) and event.error is wire.connection.failure
    assert isinstance(event.error, NegotiationError) and event.error.name == "version_mismatch"
    assert (event.error.extension, wire.connection.phase, wire.connection.selection) == ("tide", Phase.CLOSED, None)
    assert wire.settled == [request]
    assert isinstance(request.error, NegotiationError) and request.error.name == "version_mismatch"
    assert wire.written() == []


@pytest.mark.spec("octet.initialize.remote-error")
def test_an_error_answer_is_a_failed_start(new_wire: NewWire) -> None:
    wire = new_wire()
    request = wire.initialize()
    error = {"code": -32010, "message": "extension API version mismatch", "data": {"want": "0.2"}}
    wire.receive({"jsonrpc": "2.0", "id": 1, "error": error})
    (event,) = wire.events()
    assert isinstance(event.error, NegotiationError)
    assert (event.error.name, event.error.data, event.error.method) == (
        "version_mismatch",
        {"want": "0.2"},
        "initialize",
    )
    assert wire.settled == [request] and request.error.name == "version_mismatch"


@pytest.mark.spec("octet.method.before-contract")
@pytest.mark.parametrize(
    "early",
    [
        {"jsonrpc": "2.0", "id": 1, "method": "bus/declare", "params": {}},
        {"jsonrpc": "2.0", "method": "$/cancelRequest", "params": {"id": 1}},
        {"jsonrpc": "2.0", "id": 1, "method": "never/heard", "params": {}},
    ],
)
def test_a_method_before_the_contract_ends_the_stream(new_wire: NewWire, good_result: Any, early: Any) -> None:
    wire = new_wire()
    request = wire.initialize()
    wire.receive(early, answer(good_result()))
    (event,) = wire.events()
    assert isinstance(event.error, ProtocolError)
    assert "before the contract exists" in str(event.error)
    assert wire.settled == [request] and isinstance(request.error, ProtocolError)
    assert wire.connection.selection is None


def test_a_method_in_the_same_write_as_the_answer_is_read_under_the_contract(
    new_wire: NewWire, good_result: Any
) -> None:
    wire = new_wire()
    wire.initialize()
    params = {"binding_id": "b", "topic": "bus.tide.x"}
    wire.receive(answer(good_result()), {"jsonrpc": "2.0", "id": 1, "method": "bus/subscribe", "params": params})
    assert [type(event).__name__ for event in wire.events()] == ["Initialized", "RequestReceived"]


@pytest.mark.spec(
    "octet.framing.response-under-offered-bound",
    "octet.framing.bound-change",
    "octet.framing.bound-excludes-lf",
    "octet.bound.max-frame-bytes",
)
def test_the_answer_is_read_under_the_offered_bound_and_what_follows_under_the_selected_one(
    new_wire: NewWire, good_result: Any
) -> None:
    first = canonical.encode(answer(good_result(max_frame_bytes=200)))
    assert len(first) > 200
    head = b'{"id":9,"jsonrpc":"2.0","result":"'
    at_bound = head + b"x" * (200 - len(head) - 2) + b'"}'
    for line, events in [(at_bound, ["Initialized", "Diagnostic"]), (at_bound + b" ", ["Initialized", "Closed"])]:
        wire = new_wire()
        wire.initialize()
        wire.connection.receive_data(first + b"\n" + line + b"\n")
        found = wire.events()
        assert [type(event).__name__ for event in found] == events
    error = wire.connection.failure
    assert (error.limit, error.observed, error.maximum) == ("MAX_FRAME_BYTES", 201, 200)


@pytest.mark.spec("octet.framing.over-bound", "octet.framing.over-bound-unterminated")
def test_the_offered_bound_ends_the_stream_without_waiting_for_the_lf(new_wire: NewWire) -> None:
    wire = new_wire()
    request = wire.initialize(max_frame_bytes=2_000)
    wire.connection.receive_data(b"x" * 2_000)
    assert wire.events() == []
    wire.connection.receive_data(b"x")
    (event,) = wire.events()
    assert isinstance(event.error, ProtocolError)
    assert (event.error.limit, event.error.observed, event.error.maximum) == ("MAX_FRAME_BYTES", 2_001, 2_000)
    assert event.error.extension == "tide"
    assert wire.settled == [request]


@pytest.mark.spec(
    "octet.framing.selected-bound-writes", "octet.framing.outbound-over-bound", "octet.bound.max-frame-bytes"
)
def test_writes_are_bounded_by_the_selected_bound(new_wire: NewWire) -> None:
    wire = new_wire().ready(max_frame_bytes=300)
    frame = b'{"id":2,"jsonrpc":"2.0","method":"tool/call","params":{"arguments":"%b","context":0,"name":"tide"}}\n'
    room = 300 - (len(frame) - 3)
    params = {"name": "tide", "arguments": "x" * (room + 1), "context": 0}
    with pytest.raises(ResourceExhaustedError) as caught:
        wire.connection.request("tool/call", params)
    assert (caught.value.observed, caught.value.maximum, caught.value.method) == (301, 300, "tool/call")
    wire.connection.request("tool/call", {**params, "arguments": "x" * room})
    assert wire.written() == [frame % (b"x" * room)]
    assert wire.connection.phase is Phase.READY


@pytest.mark.spec("octet.framing.bounds-switch-together")
def test_both_directions_change_to_the_selected_bound_with_the_answer(new_wire: NewWire, good_result: Any) -> None:
    wire = new_wire()
    wire.initialize()
    connection = wire.connection
    wire.receive(answer(good_result(max_frame_bytes=300)))
    assert (connection._framer.max_bytes, connection.outbound.outbox.bound) == (1_048_576, 1_048_576)
    assert isinstance(connection.next_event(), Initialized)
    assert (connection._framer.max_bytes, connection.outbound.outbox.bound) == (300, 300)


@pytest.mark.spec("octet.framing.queued-over-lowered-bound")
def test_a_queued_frame_that_became_too_large_fails_the_connection(new_wire: NewWire) -> None:
    wire = new_wire().ready()
    request = wire.call()
    wire.connection.outbound.outbox.bound = 64
    assert wire.connection.next_frame() is None
    assert wire.connection.phase is Phase.CLOSED
    assert isinstance(wire.connection.failure, ResourceExhaustedError)
    assert wire.settled == [request] and not request.dispatched


@pytest.mark.spec("octet.framing.tiny-bound")
def test_a_tiny_selected_bound_fails_calls_and_hangs_nothing(new_wire: NewWire) -> None:
    wire = new_wire().ready(max_frame_bytes=64)
    with pytest.raises(ResourceExhaustedError):
        wire.call()
    assert wire.connection.queued_frames == 0 and wire.connection.phase is Phase.READY
    wire.receive({"jsonrpc": "2.0", "id": 0, "method": "x", "params": 0})
    (event,) = wire.events()
    assert isinstance(event.error, ProtocolError)
    assert (event.error.limit, event.error.maximum) == ("MAX_FRAME_BYTES", 64)


@pytest.mark.spec("octet.cancel.never-initialize", "octet.initialize.timeout")
def test_initialize_that_is_not_answered_fails_the_connection_without_a_cancel(new_wire: NewWire) -> None:
    wire = new_wire(request_timeout_ms=1_000)
    request = wire.initialize()
    assert wire.connection.next_deadline() == 6_000
    wire.pass_ms(999)
    assert wire.settled == []
    wire.pass_ms(1)
    (event,) = wire.events()
    assert isinstance(event.error, TimedOutError)
    assert (event.error.observed, event.error.maximum, event.error.method) == (1_000, 1_000, "initialize")
    assert wire.settled == [request] and request.error.dispatched
    assert wire.written() == []


@pytest.mark.spec("octet.cancel.never-initialize")
def test_cancelling_initialize_closes_the_connection(new_wire: NewWire) -> None:
    wire = new_wire()
    request = wire.initialize()
    wire.connection.cancel(request, "user")
    (event,) = wire.events()
    assert isinstance(event.error, CancelledError) and event.error.reason == "user"
    assert wire.settled == [request] and request.error.reason == "user"
    assert wire.written() == []


def test_end_of_output_before_the_answer_is_a_failed_start(new_wire: NewWire) -> None:
    wire = new_wire()
    request = wire.initialize()
    wire.connection.receive_eof()
    (event,) = wire.events()
    assert isinstance(event.error, ExitedError) and wire.settled == [request]
    assert wire.events() == []


def test_misuse_is_refused_and_changes_nothing(new_wire: NewWire, good_params: Any) -> None:
    wire = new_wire()
    with pytest.raises(UsageError):
        wire.call()
    with pytest.raises(UsageError):
        wire.connection.drain()
    params = good_params()
    for bad in ({**params, "api_version": "0.4"}, {**params, "host": None}, {**params, "protocol": {}}, []):
        with pytest.raises(InvalidParamsError):
            wire.connection.initialize(bad, Expectation())
    limits = {**params["contract"]["limits"], "max_tools": 0}
    with pytest.raises(InvalidParamsError, match="max_tools"):
        wire.connection.initialize({**params, "contract": {**params["contract"], "limits": limits}}, Expectation())
    with pytest.raises(ResourceExhaustedError):
        wire.connection.initialize(good_params(max_frame_bytes=500), Expectation())
    assert (wire.connection.phase, wire.connection.queued_frames) == (Phase.NEW, 0)
    wire.initialize()
    with pytest.raises(UsageError):
        wire.initialize()
    for method in ("initialize", "$/cancelRequest"):
        ready = new_wire().ready()
        with pytest.raises((UsageError, CapabilityMismatchError)):
            ready.connection.request(method, {})
    with pytest.raises(UsageError):
        ready.connection.notify("$/cancelRequest", {"id": 1})


def test_settings_are_checked(new_wire: NewWire) -> None:
    for settings in ({"request_timeout_ms": 0}, {"cancel_grace_ms": -1}, {"cancel_grace_ms": 30_001}):
        with pytest.raises(UsageError):
            ConnectionSettings(**settings)
    assert isinstance(Connection(clock=new_wire().clock, extension="tide"), Connection)


def test_a_diagnostic_never_carries_control_characters(new_wire: NewWire) -> None:
    wire = new_wire().ready()
    wire.receive({"jsonrpc": "2.0", "method": "\x1b]0;x\x07", "params": {}})
    (event,) = wire.events()
    assert isinstance(event, Diagnostic)
    assert event.text == "tide: dropped notification '\\x1b]0;x\\x07': unknown or not negotiated"
