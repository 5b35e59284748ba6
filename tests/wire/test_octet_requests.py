"""The host's requests: slots, answers, cancels, timeouts, tombstones, and that each settles exactly once."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from broker.errors import (
    CancelledError,
    CanonicalError,
    CapabilityMismatchError,
    InvalidParamsError,
    ProtocolError,
    RemoteError,
    ResourceExhaustedError,
    ResultError,
    TimedOutError,
    UsageError,
)
from broker.wire.jsonrpc import ABSENT
from broker.wire.octet.connection import Phase
from broker.wire.octet.events import Closed, Diagnostic
from broker.wire.octet.models import TextPart, decode_tool_result
from broker.wire.requests import WireState

NewWire = Callable[..., Any]


def done(request_id: int, result: Any = "ok") -> dict[str, Any]:
    return {"jsonrpc": "2.0", "id": request_id, "result": result}


def call(number: int) -> bytes:
    return (
        b'{"id":%d,"jsonrpc":"2.0","method":"tool/call","params":{"arguments":{},"context":{},"name":"tide"}}\n'
        % number
    )


def cancel(number: int, reason: str) -> bytes:
    return b'{"jsonrpc":"2.0","method":"$/cancelRequest","params":{"id":%d,"reason":"%b"}}\n' % (
        number,
        reason.encode(),
    )


def diagnostics(wire: Any) -> list[str]:
    events = wire.events()
    assert all(isinstance(event, Diagnostic) for event in events)
    return [event.text for event in events]


@pytest.mark.spec("octet.envelope.host-ids", "octet.envelope.out-of-order")
def test_ids_rise_and_answers_may_come_in_any_order(new_wire: NewWire) -> None:
    wire = new_wire().ready()
    one, two = wire.call(), wire.call()
    assert wire.written() == [call(2), call(3)]
    wire.receive(done(3, "second"), done(2, "first"))
    assert wire.events() == []
    assert (one.result, two.result, wire.settled) == ("first", "second", [two, one])
    assert wire.connection.next_deadline() is None


@pytest.mark.spec("octet.tool-call.concurrency", "octet.selection.limit-lower", "octet.bound.max-concurrent-requests")
def test_calls_beyond_the_selected_concurrency_wait_in_order(new_wire: NewWire) -> None:
    wire = new_wire().ready(max_concurrent_requests=2)
    calls = [wire.call() for _ in range(4)]
    assert wire.written() == [call(2), call(3)]
    assert [request.id for request in calls] == [2, 3, None, None]
    wire.receive(done(3))
    wire.events()
    assert wire.written() == [call(4)]
    wire.receive({"jsonrpc": "2.0", "id": 2, "error": {"code": -32603, "message": "internal error"}})
    wire.events()
    assert wire.written() == [call(5)]
    assert [request.settled for request in calls] == [True, True, False, False]


@pytest.mark.spec("octet.tool-call.bypass")
def test_hooks_and_shutdown_bypass_the_slots(new_wire: NewWire) -> None:
    wire = new_wire().ready(hooks=True, max_concurrent_requests=1)
    wire.call(), wire.call()
    wire.connection.request("hook/run", {"hook": "x"}, bypass_slots=True)
    assert wire.written() == [call(2), b'{"id":3,"jsonrpc":"2.0","method":"hook/run","params":{"hook":"x"}}\n']
    wire.receive(done(3, {}))
    wire.events()
    assert wire.written() == []  # an answer to it frees no slot
    wire.receive(done(2))
    wire.events()
    assert wire.written() == [call(4)]


@pytest.mark.spec("octet.tool-call.wait-counts")
def test_the_timeout_runs_while_a_call_waits_for_a_slot(new_wire: NewWire) -> None:
    wire = new_wire().ready(max_concurrent_requests=1)
    sent = wire.call(timeout_ms=60_000)
    waiting = wire.call(timeout_ms=1_000)
    wire.written()
    assert wire.connection.next_deadline() == 6_000
    wire.pass_ms(1_000)
    assert wire.settled == [waiting] and waiting.state is WireState.NEVER_SENT
    assert isinstance(waiting.error, TimedOutError)
    assert (waiting.error.dispatched, waiting.error.observed, waiting.error.maximum) == (False, 1_000, 1_000)
    assert wire.written() == [] and wire.events() == []
    assert wire.connection.next_deadline() == 65_000 and not sent.settled


@pytest.mark.spec("octet.cancel.grace", "octet.cancel.timeout-cancels", "octet.tool-call.timeout")
def test_a_timeout_cancels_once_and_then_the_process_must_answer(new_wire: NewWire) -> None:
    wire = new_wire().ready()
    request = wire.call(timeout_ms=500)
    wire.written()
    wire.pass_ms(500)
    assert isinstance(request.error, TimedOutError) and request.error.dispatched
    assert (request.error.method, request.error.extension) == ("tool/call", "tide")
    assert wire.written() == [cancel(2, "timeout")]
    assert wire.connection.next_deadline() == 5_500 + 2_000
    wire.pass_ms(1_999)
    assert wire.connection.phase is Phase.READY
    wire.pass_ms(1)
    (event,) = wire.events()
    assert isinstance(event, Closed) and isinstance(event.error, TimedOutError)
    assert (event.error.observed, event.error.maximum, event.error.method) == (2_000, 2_000, "tool/call")
    assert wire.settled == [request]


@pytest.mark.spec("octet.tool-call.default-timeout")
def test_the_default_timeout_is_the_setting(new_wire: NewWire) -> None:
    wire = new_wire().ready()
    assert wire.call().timeout_ms == 30_000
    assert wire.connection.next_deadline() == 35_000
    with pytest.raises(UsageError):
        wire.call(timeout_ms=0)


@pytest.mark.spec("octet.cancel.queued-skipped")
def test_a_cancel_before_the_frame_leaves_sends_nothing(new_wire: NewWire) -> None:
    wire = new_wire().ready(max_concurrent_requests=1)
    queued, waiting, third = wire.call(), wire.call(), wire.call()
    wire.connection.cancel(waiting, "user")
    wire.connection.cancel(queued, "user")
    assert wire.settled == [waiting, queued]
    for request in (waiting, queued):
        assert isinstance(request.error, CancelledError)
        assert (request.error.reason, request.error.dispatched) == ("user", False)
    assert wire.written() == [call(3)]  # the slot went on; the skipped id is not used again
    assert third.id == 3
    wire.receive(done(2))
    assert diagnostics(wire) == ["tide: ignored an answer to id 2, which is unknown or already answered"]


@pytest.mark.spec(
    "octet.cancel.idempotent",
    "octet.cancel.notification",
    "octet.cancel.caller-released",
    "octet.method.cancel-request",
)
def test_a_cancel_of_a_sent_call_releases_the_caller_and_sends_one_notice(new_wire: NewWire) -> None:
    wire = new_wire().ready()
    request = wire.call()
    wire.written()
    wire.connection.cancel(request, "user")
    wire.connection.cancel(request, "again")
    assert wire.settled == [request]
    assert (request.error.reason, request.error.dispatched, request.error.name) == ("user", True, "request_cancelled")
    assert wire.written() == [cancel(2, "user")]


@pytest.mark.spec("octet.cancel.being-written")
def test_a_cancel_during_the_write_lets_it_finish_and_then_sends_one_notice(new_wire: NewWire) -> None:
    wire = new_wire().ready()
    request = wire.call()
    frame = wire.connection.next_frame()
    wire.connection.cancel(request, "user")
    assert wire.settled == [request] and request.error.dispatched
    assert wire.connection.next_frame() is None
    wire.connection.frame_written(frame)
    wire.connection.frame_written(frame)
    assert wire.written() == [cancel(2, "user")]


@pytest.mark.spec("octet.cancel.being-written")
def test_a_call_answered_before_its_write_was_reported_is_not_cancelled_any_more(new_wire: NewWire) -> None:
    wire = new_wire().ready()
    request = wire.call()
    frame = wire.connection.next_frame()
    wire.connection.cancel(request, "user")
    wire.receive(done(2))
    assert len(diagnostics(wire)) == 1
    wire.connection.frame_written(frame)
    assert wire.written() == []


@pytest.mark.spec("octet.cancel.late-answer", "octet.cancel.terminal-result")
def test_the_first_late_answer_clears_the_tombstone_and_the_second_is_unknown(new_wire: NewWire) -> None:
    wire = new_wire().ready(max_concurrent_requests=1)
    request, waiting = wire.call(), wire.call()
    wire.written()
    wire.connection.cancel(request, "user")
    assert wire.written() == [cancel(2, "user")]  # its slot stays used
    wire.receive({"jsonrpc": "2.0", "id": 2, "error": {"code": -32800, "message": "request cancelled"}})
    assert diagnostics(wire) == ["tide: ignored a late answer to the cancelled tool/call (id 2)"]
    assert wire.written() == [call(3)] and waiting.id == 3
    wire.receive(done(2))
    assert diagnostics(wire) == ["tide: ignored an answer to id 2, which is unknown or already answered"]
    assert wire.settled == [request] and isinstance(request.error, CancelledError)
    wire.pass_ms(3_000)
    assert wire.connection.phase is Phase.READY


@pytest.mark.spec("octet.cancel.tombstones")
def test_without_a_grace_a_tombstone_is_forgotten_and_its_slot_given_back(new_wire: NewWire) -> None:
    wire = new_wire(cancel_grace_ms=None).ready(max_concurrent_requests=1)
    request, waiting = wire.call(), wire.call(timeout_ms=60_000)
    wire.written()
    wire.connection.cancel(request, "user")
    wire.written()
    wire.pass_ms(29_999)
    assert wire.written() == [] and wire.events() == []
    wire.pass_ms(1)
    assert diagnostics(wire) == ["tide: the cancelled tool/call (id 2) was not answered in 30000 ms: forgotten"]
    assert wire.written() == [call(3)] and waiting.id == 3
    wire.receive(done(2))
    assert "unknown" in diagnostics(wire)[0]


@pytest.mark.spec("octet.cancel.tombstones")
def test_at_most_512_tombstones_are_kept(new_wire: NewWire) -> None:
    wire = new_wire(cancel_grace_ms=None).ready(hooks=True)
    for _ in range(513):
        request = wire.connection.request("hook/run", {}, bypass_slots=True)
        wire.written()
        wire.connection.cancel(request, "user")
        wire.written()
    assert diagnostics(wire) == ["tide: too many cancelled requests: hook/run (id 2) is forgotten"]
    wire.receive(done(2), done(3))
    assert ["unknown" in text for text in diagnostics(wire)] == [True, False]


@pytest.mark.spec("octet.cancel.race", "octet.cancel.settled")
def test_an_answer_before_the_cancel_wins(new_wire: NewWire) -> None:
    wire = new_wire().ready()
    request = wire.call()
    wire.written()
    wire.receive(done(2, "won"))
    wire.events()
    wire.connection.cancel(request, "user")
    assert (request.result, request.error, wire.settled, wire.written()) == ("won", None, [request], [])


@pytest.mark.spec("octet.cancel.unasked-32800")
def test_a_cancelled_error_nobody_asked_for_is_an_ordinary_remote_error(new_wire: NewWire) -> None:
    wire = new_wire().ready()
    request = wire.call()
    wire.written()
    wire.receive({"jsonrpc": "2.0", "id": 2, "error": {"code": -32800, "message": "request cancelled"}})
    assert wire.events() == []
    assert type(request.error) is RemoteError and request.error.name == "request_cancelled"


@pytest.mark.spec("octet.envelope.error-data")
@pytest.mark.parametrize("data", [ABSENT, None, {"reason": "x"}])
def test_a_remote_error_keeps_its_data_as_sent(new_wire: NewWire, data: Any) -> None:
    wire = new_wire().ready()
    request = wire.call()
    wire.written()
    error = {"code": -32603, "message": "internal error"} | ({} if data is ABSENT else {"data": data})
    wire.receive({"jsonrpc": "2.0", "id": 2, "error": error})
    assert wire.events() == []
    assert isinstance(request.error, RemoteError)
    assert (request.error.code, request.error.extension, request.error.method) == (-32603, "tide", "tool/call")
    assert request.error.data is data if data is ABSENT or data is None else request.error.data == data


@pytest.mark.spec("octet.tool-call.bad-result", "octet.tool-call.metadata-required", "octet.tool-call.tool-failure")
def test_a_result_of_the_wrong_shape_fails_that_call_and_the_stream_lives(new_wire: NewWire) -> None:
    wire = new_wire().ready()
    bad, good = wire.call(decode=decode_tool_result), wire.call(decode=decode_tool_result)
    wire.written()
    wire.receive(done(2, {"content": [], "is_error": False}))
    wire.receive(done(3, {"content": [{"type": "text", "text": "x"}], "is_error": True, "metadata": {}}))
    assert wire.events() == []
    assert isinstance(bad.error, ResultError) and bad.result is None
    assert (bad.error.path, bad.error.extension, bad.error.method) == ("metadata", "tide", "tool/call")
    assert good.result.content == (TextPart(text="x"),) and good.result.is_error
    assert wire.connection.phase is Phase.READY


def test_whatever_a_decoder_raises_becomes_a_result_error(new_wire: NewWire) -> None:
    def broken(value: Any) -> Any:
        raise KeyError("nope")

    def refused(value: Any) -> Any:
        raise InvalidParamsError("too odd", name="resource_exhausted", limit="L", observed=2, maximum=1)

    wire = new_wire().ready()
    first, second = wire.call(decode=broken), wire.call(decode=refused)
    wire.written()
    wire.receive(done(2), done(3))
    assert wire.events() == []
    assert type(first.error) is type(second.error) is ResultError
    assert isinstance(first.error.__cause__, KeyError) and isinstance(second.error.__cause__, InvalidParamsError)
    assert (second.error.name, second.error.limit, second.error.observed) == ("resource_exhausted", "L", 2)


@pytest.mark.spec("octet.envelope.response-unknown-id")
def test_an_answer_to_an_unknown_id_changes_nothing(new_wire: NewWire) -> None:
    wire = new_wire().ready()
    queued = wire.call()
    wire.receive(done(99), done(1), done(2))  # never used, settled, and not written yet
    assert len(diagnostics(wire)) == 3
    assert not queued.settled and wire.written() == [call(2)]


def test_a_settled_callback_sees_a_consistent_connection_and_may_use_it(new_wire: NewWire) -> None:
    wire = new_wire().ready(max_concurrent_requests=1)
    seen: list[tuple[Any, ...]] = []

    def again(request: Any) -> None:
        seen.append((request.result, wire.connection.phase))
        if len(seen) < 3:
            wire.connection.request("tool/call", len(seen), on_settled=again)

    wire.connection.request("tool/call", 0, on_settled=again)
    waiting = wire.call()
    assert len(wire.written()) == 1
    for number in range(2, 6):
        wire.receive(done(number, number))
        assert wire.events() == []
        wire.written()
    assert seen == [(2, Phase.READY), (4, Phase.READY), (5, Phase.READY)]
    assert waiting.id == 3  # who waited goes before what a callback adds


def test_a_raising_callback_is_reported_and_the_others_still_settle(new_wire: NewWire) -> None:
    def explode(request: Any) -> None:
        raise RuntimeError("\x1bboom" + "m" * 5_000)

    wire = new_wire().ready()
    first = wire.connection.request("tool/call", 0, on_settled=explode)
    second = wire.call()
    wire.written()
    wire.connection.fail(ProtocolError("gone"))
    events = wire.events()
    assert [type(event) for event in events] == [Diagnostic, Closed]
    assert events[0].text.startswith("tide: on_settled of tool/call raised RuntimeError: \\x1bboommm")
    assert len(events[0].text) == 1_024
    assert first.settled and wire.settled == [second]


def test_a_callback_may_cancel_others_while_the_connection_ends(new_wire: NewWire) -> None:
    wire = new_wire().ready()
    requests: list[Any] = []

    def cancel_all(request: Any) -> None:
        wire.settled.append(request)
        for other in requests:
            wire.connection.cancel(other, "cascade")
        wire.connection.close()

    requests += [wire.connection.request("tool/call", 0, on_settled=cancel_all) for _ in range(4)]
    wire.written()
    wire.connection.fail(ProtocolError("gone"))
    assert sorted(map(id, wire.settled)) == sorted(map(id, requests))
    assert len(wire.events()) == 1


@pytest.mark.spec("octet.shutdown.no-new-calls")
def test_draining_refuses_new_calls_but_not_those_that_bypass(new_wire: NewWire) -> None:
    wire = new_wire().ready(hooks=True)
    request = wire.call()
    wire.written()
    wire.connection.drain()
    wire.connection.drain()
    assert wire.connection.phase is Phase.DRAINING
    with pytest.raises(CapabilityMismatchError, match="draining"):
        wire.call()
    wire.connection.request("hook/run", {}, bypass_slots=True)
    assert len(wire.written()) == 1
    wire.receive(done(2, "still"))
    wire.events()
    assert request.result == "still"


@pytest.mark.spec("octet.cancel.every-request-ends-once")
def test_close_settles_everything_open_once(new_wire: NewWire) -> None:
    wire = new_wire().ready(max_concurrent_requests=2)
    sent, writing, waiting = wire.call(), wire.call(), wire.call()
    wire.connection.frame_written(wire.connection.next_frame())
    frame = wire.connection.next_frame()
    wire.connection.close()
    wire.connection.close()
    wire.connection.fail(ProtocolError("late"))
    assert wire.settled == [sent, writing, waiting]
    assert [request.error.dispatched for request in wire.settled] == [True, True, False]
    assert all(type(request.error) is CancelledError for request in wire.settled)
    assert len({id(request.error) for request in wire.settled}) == 3
    wire.connection.frame_written(frame)
    wire.pass_ms(100_000)
    assert wire.events() == [Closed(None)]
    assert wire.connection.next_frame() is None and wire.connection.next_deadline() is None


@pytest.mark.spec("octet.process.writer-bound")
def test_requests_and_cancels_wait_for_room_in_the_writer_queue(new_wire: NewWire) -> None:
    wire = new_wire().ready()
    sent = wire.call()
    wire.written()
    for _ in range(128):
        wire.connection.notify("bus/lifecycle", {})
    waiting = wire.call()
    wire.connection.cancel(sent, "user")
    assert wire.settled == [sent] and waiting.id is None
    frames = wire.written()
    assert frames[128:] == [cancel(2, "user"), call(3)]


@pytest.mark.spec("octet.cancel.late-answer")
def test_a_held_cancel_is_dropped_when_the_answer_comes_first(new_wire: NewWire) -> None:
    wire = new_wire().ready()
    sent = wire.call()
    wire.written()
    for _ in range(128):
        wire.connection.notify("bus/lifecycle", {})
    wire.connection.cancel(sent, "user")
    wire.receive(done(2))
    assert len(diagnostics(wire)) == 1
    assert len(wire.written()) == 128


def test_how_many_requests_may_wait_is_bounded(new_wire: NewWire) -> None:
    wire = new_wire().ready(max_concurrent_requests=1)
    for _ in range(1 + 1_024):
        wire.call()
    with pytest.raises(ResourceExhaustedError) as caught:
        wire.call()
    assert (caught.value.limit, caught.value.observed) == ("MAX_WAITING_REQUESTS", 1_025)
    assert wire.settled == []


def test_a_waiting_call_whose_id_grew_over_the_bound_fails_alone(new_wire: NewWire) -> None:
    wire = new_wire().ready(max_concurrent_requests=1, max_frame_bytes=len(call(9)) - 1)
    for number in range(2, 8):
        wire.call()
        wire.written()
        wire.receive(done(number))
        wire.events()
    wire.settled.clear()
    _, last, grown = wire.call(), wire.call(), wire.call()
    assert wire.written() == [call(8)]
    wire.receive(done(8))
    assert wire.events() == []
    assert wire.written() == [call(9)] and not grown.settled
    wire.receive(done(9))
    assert wire.events() == []
    assert wire.settled[1:] == [last, grown]
    assert isinstance(grown.error, ResourceExhaustedError) and grown.id is None
    assert wire.connection.phase is Phase.READY and wire.written() == []


def test_parameters_without_a_canonical_form_are_refused_before_anything_happens(new_wire: NewWire) -> None:
    wire = new_wire().ready()
    for params in ({"x": 1.5}, {"x": float("nan")}, {"x": 2**53}, {"x": "\ud800"}):
        with pytest.raises(CanonicalError):
            wire.connection.request("tool/call", params)
    with pytest.raises(InvalidParamsError):
        wire.connection.request("tool/call", None)
    assert wire.connection.queued_frames == 0 and wire.connection.next_deadline() is None


@pytest.mark.spec("octet.cancel.reason-bound", "octet.bound.max-reason-bytes")
def test_a_cancel_reason_is_bounded_and_left_out_when_the_frame_has_no_room(new_wire: NewWire) -> None:
    wire = new_wire().ready(max_frame_bytes=120)
    request = wire.call()
    wire.written()
    with pytest.raises(InvalidParamsError) as caught:
        wire.connection.cancel(request, "x" * 4_097)
    assert caught.value.name == "resource_exhausted" and not request.settled
    wire.connection.cancel(request, "x" * 4_096)
    assert request.error.reason == "x" * 4_096
    assert wire.written() == [b'{"jsonrpc":"2.0","method":"$/cancelRequest","params":{"id":2}}\n']


def test_timers_of_finished_requests_do_not_pile_up(new_wire: NewWire) -> None:
    wire = new_wire().ready(max_concurrent_requests=1)
    for number in range(2, 1_002):
        wire.call()
        wire.written()
        wire.receive(done(number))
        wire.events()
    assert len(wire.connection.outbound.requests.timers._heap) < 200
    assert wire.connection.next_deadline() is None


@pytest.mark.spec("octet.cancel.every-request-ends-once")
@settings(max_examples=60, deadline=None)
@given(
    st.lists(
        st.tuples(
            st.sampled_from(["call", "hook", "take", "wrote", "answer", "error", "cancel", "pass", "notify", "drain"]),
            st.integers(0, 7),
        ),
        max_size=60,
    ),
    st.sampled_from([None, 0, 2_000]),
    st.integers(1, 3),
)
def test_every_request_settles_exactly_once_whatever_happens(
    new_wire: NewWire, steps: list[tuple[str, int]], grace: int | None, slots: int
) -> None:
    wire = new_wire(cancel_grace_ms=grace).ready(hooks=True, max_concurrent_requests=slots)
    requests: list[Any] = []
    writing: list[Any] = []
    sent: list[int] = []
    cancels: list[int] = []
    for step, number in steps:
        if wire.connection.phase is Phase.CLOSED:
            break
        if step in ("call", "hook") and not (step == "call" and wire.connection.phase is Phase.DRAINING):
            method = {"call": "tool/call", "hook": "hook/run"}[step]
            requests.append(
                wire.connection.request(
                    method,
                    {},
                    timeout_ms=1_000 * (number + 1),
                    bypass_slots=step == "hook",
                    on_settled=wire.settled.append,
                )
            )
        elif step == "take" and (frame := wire.connection.next_frame()) is not None:
            writing.append(frame)
        elif step == "wrote" and writing:
            frame = writing.pop(0)
            if frame.request is not None:
                sent.append(frame.request.id)
            elif b"cancelRequest" in frame.data:
                cancels.append(int(frame.data.split(b'"id":')[1].split(b",")[0]))
            wire.connection.frame_written(frame)
        elif step == "answer":
            wire.receive(done(number + 2))
        elif step == "error":
            wire.receive({"jsonrpc": "2.0", "id": number + 2, "error": {"code": -32603, "message": "internal error"}})
        elif step == "cancel" and number < len(requests):
            wire.connection.cancel(requests[number], "user")
        elif step == "pass":
            wire.pass_ms(250 * number)
        elif step == "notify":
            wire.connection.notify("bus/lifecycle", {})
        elif step == "drain":
            wire.connection.drain()
        wire.events()
        assert 0 <= wire.connection.outbound.requests.slots_used <= slots
        assert len(wire.settled) == sum(request.settled for request in requests)
    assert sent == sorted(set(sent))
    assert len(cancels) == len(set(cancels)) and set(cancels) <= set(sent)
    wire.connection.close()
    assert sorted(map(id, wire.settled)) == sorted(map(id, requests))
    assert all((request.error is None) != (request.result is None) for request in requests)
