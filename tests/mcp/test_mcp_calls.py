"""Calls: what is sent, whose answer is whose, deadlines, cancels, and the end of a server."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from broker.errors import (
    CancelledError,
    CapabilityMismatchError,
    ExitedError,
    InvalidParamsError,
    McpError,
    ProtocolError,
    ResourceExhaustedError,
    ResultError,
    TimedOutError,
    UsageError,
)
from broker.wire.mcp.events import Closed, ServerRequest
from broker.wire.mcp.peer import Phase, Progress
from broker.wire.requests import WireState

NewMcp = Callable[..., Any]
Text = Callable[[str], dict[str, Any]]

# -- what is sent ------------------------------------------------------------------------------------------------------


@pytest.mark.spec("odek.transport.tools-call", "odek.transport.line")
def test_a_call_is_one_line_with_the_raw_name(mcp: Any) -> None:
    mcp.call("echo", {"a": "\u2028é\n", "b": [1, 1.5, None, True]})
    assert mcp.written_raw() == [
        '{"id":3,"jsonrpc":"2.0","method":"tools/call","params":{"name":"echo","arguments":'
        '{"a":"\u2028é\\n","b":[1,1.5,null,true]}}}\n'.encode()
    ]


@pytest.mark.spec("odek.transport.arguments-any")
@pytest.mark.parametrize("arguments", [None, "text", 7, [1], True, {"x": {}}])
def test_any_json_goes_as_arguments(mcp: Any, arguments: Any) -> None:
    mcp.peer.call("echo", arguments)
    assert mcp.written()[0]["params"] == {"name": "echo", "arguments": arguments}


def nested(depth: int) -> Any:
    value: Any = []
    for _ in range(depth - 1):
        value = [value]
    return value


@pytest.mark.parametrize(
    ("arguments", "problem"),
    [
        (float("nan"), "JSON has no nan"),
        ([float("-inf")], "JSON has no -inf"),
        ({"x": "x\ud835y"}, "surrogates not allowed"),
        ({"x": {1: 2}}, "a key must be a string, not int"),
        ({"x": {1, 2}}, "JSON has no set"),
        ({"x": 1 << 70}, "64-bit"),
        (nested(127), "more than 128 nested containers"),
    ],
)
def test_what_json_cannot_hold_is_refused_before_anything_is_sent(mcp: Any, arguments: Any, problem: str) -> None:
    with pytest.raises(InvalidParamsError, match=problem) as caught:
        mcp.peer.call("echo", arguments)
    assert (caught.value.tool, caught.value.method) == ("echo", "tools/call")
    assert mcp.written() == [] and mcp.peer.statistics().open_requests == 0


def test_the_deepest_arguments_come_back_as_they_went(mcp: Any) -> None:
    mcp.peer.call("echo", nested(126))
    assert mcp.written()[0]["params"]["arguments"] == nested(126)


def test_a_tool_that_is_not_listed_is_not_called(mcp: Any) -> None:
    for tool, hint in (("echo__x", "did you mean echo?"), ("delete", "it has ")):
        with pytest.raises(CapabilityMismatchError, match=f"^srv has no tool '{tool}'; {re.escape(hint)}"):
            mcp.peer.call(tool, {})
    assert mcp.written() == []


def test_no_call_before_ready(new_mcp: NewMcp) -> None:
    with pytest.raises(UsageError, match="srv is not ready: new"):
        new_mcp().peer.call("echo", {})


def test_a_request_over_its_bound_is_refused(mcp: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(mcp.peer.outbound.outbox, "bound", 120)
    frame = len(json.dumps({"id": 3, "jsonrpc": "2.0", "method": "tools/call", "params": {}}, separators=(",", ":")))
    rest = len('"name":"echo","arguments":""')
    mcp.peer.call("echo", "x" * (120 - frame - rest))
    with pytest.raises(ResourceExhaustedError) as caught:
        mcp.peer.call("echo", "x" * (121 - frame - rest))
    error = caught.value
    assert (error.limit, error.observed, error.maximum, error.tool) == ("MAX_REQUEST_BYTES", 121, 120, "echo")
    assert [len(frame) for frame in mcp.written_raw()] == [121]


def test_open_requests_are_bounded(mcp: Any) -> None:
    for _ in range(1_024):
        mcp.call()
    with pytest.raises(ResourceExhaustedError) as caught:
        mcp.call()
    error = caught.value
    assert (error.limit, error.observed, error.maximum, error.tool) == ("MAX_OPEN_CALLS", 1_025, 1_024, "echo")
    assert mcp.peer.queued_frames == 64
    assert len(mcp.written()) == 1_024


def test_calls_and_cancels_that_wait_leave_room_for_answers(mcp: Any) -> None:
    """A server that reads slowly and asks for something meanwhile is none that does not read."""
    sent = [mcp.sent() for _ in range(100)]
    waiting = [mcp.call() for _ in range(100)]
    for request in sent:
        mcp.peer.cancel(request, "user")
    mcp.receive(*({"id": f"ask {number}", "method": "ping"} for number in range(64)))
    assert [type(event) for event in mcp.events()] == [ServerRequest] * 64
    assert mcp.peer.queued_frames == 128
    written = mcp.written()
    assert [message["id"] for message in written[64:128]] == [f"ask {number}" for number in range(64)]
    assert [message["id"] for message in written if message.get("method") == "tools/call"] == [
        request.id for request in waiting
    ]
    notices = [message for message in written if message.get("method") == "notifications/cancelled"]
    assert [notice["params"]["requestId"] for notice in notices] == [request.id for request in sent]


# -- answers -----------------------------------------------------------------------------------------------------------


@pytest.mark.spec("odek.transport.out-of-order")
def test_each_caller_gets_its_own_answer(mcp: Any, text_result: Text) -> None:
    """Fault 4: two concurrent calls answered in reverse order."""
    first, second = mcp.sent(), mcp.sent("slow")
    mcp.receive(
        {"jsonrpc": "2.0", "id": second.id, "result": text_result("second")},
        {"jsonrpc": "2.0", "id": first.id, "result": text_result("first")},
    )
    assert mcp.events() == []
    assert (first.result, second.result) == (text_result("first"), text_result("second"))
    assert mcp.settled == [second, first]


@pytest.mark.spec("odek.transport.server-request-id")
def test_a_request_of_the_server_with_our_id_is_no_answer(mcp: Any, text_result: Text) -> None:
    """Fault 1: ping under the pending id, then the real answer."""
    call = mcp.sent()
    mcp.receive({"jsonrpc": "2.0", "id": call.id, "method": "ping"})
    mcp.events()
    assert not call.settled
    assert mcp.written() == [{"jsonrpc": "2.0", "id": call.id, "result": {}}]
    mcp.answer(call, text_result("REAL"))
    mcp.events()
    assert call.result == text_result("REAL")


@pytest.mark.spec("odek.transport.id-unknown", "odek.transport.id-exact")
@pytest.mark.parametrize("request_id", [None, "3", 3.0, True, [3], {"id": 3}, 99, -3, 0, 1, 2, "", 1e300])
def test_an_answer_to_another_id_reaches_nobody(mcp: Any, request_id: Any, text_result: Text) -> None:
    """Fault 2: ``"id": null`` with an error; and every id that only looks like the pending one."""
    call = mcp.sent()
    assert call.id == 3
    mcp.receive({"jsonrpc": "2.0", "id": request_id, "error": {"code": -32700, "message": "parse"}})
    [said] = mcp.texts()
    assert said.startswith("srv: ignored an answer with error")
    mcp.receive({"jsonrpc": "2.0", "id": request_id, "result": text_result("DECOY")})
    assert len(mcp.texts()) == 1
    assert not call.settled
    assert mcp.peer.statistics().ignored_answers == 2
    assert mcp.peer.statistics().junk_lines == 0


@pytest.mark.spec("odek.transport.id-unknown")
def test_a_result_without_an_id_reaches_nobody(mcp: Any, text_result: Text) -> None:
    """Fault 3: ids start at 1, so that a frame without an id is nobody's."""
    call = mcp.sent()
    mcp.receive({"jsonrpc": "2.0", "result": text_result("DECOY")})
    assert "neither a request, a notification nor an answer" in mcp.texts()[0]
    assert not call.settled


@pytest.mark.spec("odek.transport.id-unknown")
def test_a_second_answer_is_ignored(mcp: Any, text_result: Text) -> None:
    call = mcp.sent()
    mcp.answer(call, text_result("first"))
    mcp.answer(call, text_result("second"))
    assert len(mcp.texts()) == 1
    assert call.result == text_result("first")
    assert mcp.settled == [call]


def test_an_answer_before_the_request_was_written_is_ignored(mcp: Any, text_result: Text) -> None:
    call = mcp.call()
    mcp.receive({"jsonrpc": "2.0", "id": 3, "result": text_result("early")})
    assert len(mcp.texts()) == 1
    assert not call.settled


@pytest.mark.spec("odek.transport.error-wins")
def test_the_error_wins_over_a_result(mcp: Any, text_result: Text) -> None:
    call = mcp.sent()
    mcp.receive({"id": call.id, "result": text_result("x"), "error": {"code": 7, "message": "no", "data": [1]}})
    mcp.events()
    error = call.error
    assert isinstance(error, McpError)
    assert (error.extension, error.tool, error.method) == ("srv", "echo", "tools/call")
    assert (error.rpc_code, error.rpc_message, error.data) == (7, "no", [1])
    assert str(error) == "srv: tool echo: error 7: no"


@pytest.mark.spec("odek.transport.error-wins", "odek.transport.result-null")
def test_a_null_error_is_none_and_a_null_result_is_empty(mcp: Any, text_result: Text) -> None:
    first, second = mcp.sent(), mcp.sent()
    mcp.receive({"id": first.id, "error": None, "result": text_result("x")}, {"id": second.id, "result": None})
    mcp.events()
    assert (first.result, second.result, second.error) == (text_result("x"), {}, None)


@pytest.mark.parametrize("method", [None, ""])
def test_an_answer_may_have_a_method_that_is_empty(mcp: Any, method: Any, text_result: Text) -> None:
    """As libraries write it that leave no member out."""
    call = mcp.sent()
    mcp.receive({"jsonrpc": "2.0", "id": call.id, "method": method, "params": None, "result": text_result("x")})
    mcp.receive({"jsonrpc": "2.0", "id": 77, "method": method})
    assert "neither a request, a notification nor an answer" in mcp.texts()[0]
    assert call.result == text_result("x")
    assert mcp.written() == []


@pytest.mark.parametrize(
    ("members", "reason"),
    [
        ({}, "it has neither a result nor an error"),
        ({"error": None}, "it has neither a result nor an error"),
        ({"result": []}, "its result must be an object, not an array"),
        ({"result": "x"}, "its result must be an object, not a string"),
        ({"error": "x"}, "its error must be an object, not a string"),
    ],
)
def test_a_malformed_answer_fails_its_call_alone(mcp: Any, members: Any, reason: str, text_result: Text) -> None:
    call, other = mcp.sent(), mcp.sent()
    mcp.receive({"jsonrpc": "2.0", "id": call.id, **members})
    mcp.answer(other, text_result("REAL"))
    assert mcp.events() == []
    assert isinstance(call.error, ResultError)
    assert str(call.error) == f"srv: tool echo: its answer cannot be read: {reason}"
    assert (call.error.extension, call.error.tool) == ("srv", "echo")
    assert other.result == text_result("REAL")


@pytest.mark.parametrize("error", [{}, {"code": "7", "message": 5}, {"code": True}, {"code": 1.5, "message": None}])
def test_an_error_of_any_shape_is_an_error(mcp: Any, error: Any) -> None:
    call = mcp.sent()
    mcp.receive({"id": call.id, "error": error})
    mcp.events()
    assert isinstance(call.error, McpError)
    assert (call.error.rpc_code, call.error.rpc_message) == (None, "")


def test_what_a_remote_error_shows_is_safe_and_short(mcp: Any) -> None:
    call = mcp.sent()
    mcp.receive({"id": call.id, "error": {"code": -1, "message": "\x1b]0;x\x07\u202e" + "y" * 100_000}})
    mcp.events()
    assert isinstance(call.error, McpError)
    assert len(call.error.rpc_message) == 100_007
    assert len(str(call.error)) < 1_200
    assert str(call.error).isprintable()


# -- deadlines ---------------------------------------------------------------------------------------------------------


@pytest.mark.spec("odek.limits.timeout-caller", "odek.limits.timeout-error")
@pytest.mark.parametrize(("of_server", "of_caller", "ends"), [(25, 1_000, 25), (1_000, 25, 25), (30_000, None, 30_000)])
def test_the_earlier_deadline_counts(new_mcp: NewMcp, of_server: int, of_caller: int | None, ends: int) -> None:
    """Fault 10 and 11: the server's, the caller's, and the default where nobody says anything."""
    wire = new_mcp(timeout_ms=of_server).ready()
    call = wire.sent(timeout_ms=of_caller)
    wire.pass_ms(ends - 1)
    assert not call.settled
    wire.pass_ms(1)
    error = call.error
    assert isinstance(error, TimedOutError)
    assert (error.extension, error.tool, error.observed, error.maximum) == ("srv", "echo", ends, ends)
    assert str(error) == f"srv: tool echo: no answer within {ends} ms, its outcome is unknown"


def test_one_servers_timeout_is_its_own(new_mcp: NewMcp) -> None:
    """Fault 12: a server's timeout leaves that of another alone."""
    quick, other = new_mcp(timeout_ms=25).ready(), new_mcp().ready()
    first, second = quick.sent(), other.sent()
    quick.pass_ms(25)
    other.pass_ms(25)
    assert (first.settled, second.settled) == (True, False)


@pytest.mark.parametrize("timeout_ms", [0, -5])
def test_a_deadline_that_has_passed_sends_nothing(mcp: Any, timeout_ms: int) -> None:
    """Fault 13: an expired deadline is an immediate error."""
    with pytest.raises(TimedOutError) as caught:
        mcp.call(timeout_ms=timeout_ms)
    assert (caught.value.dispatched, caught.value.tool) == (False, "echo")
    assert mcp.written() == []


@pytest.mark.parametrize("timeout_ms", ["5", 5.0, True])
def test_a_timeout_is_a_whole_number(mcp: Any, timeout_ms: Any) -> None:
    with pytest.raises(UsageError, match="timeout_ms must be an integer, not ") as caught:
        mcp.call(timeout_ms=timeout_ms)
    assert (caught.value.path, caught.value.tool) == ("timeout_ms", "echo")
    assert mcp.written() == []


@pytest.mark.spec(
    "odek.limits.timeout-process-lives",
    "odek.limits.timeout-cancelled",
    "odek.limits.timeout-late-answer",
    "odek.transport.unknown-outcome",
)
def test_after_a_timeout_the_server_is_told_once_and_used_again(mcp: Any, text_result: Text) -> None:
    """Fault 7: a call that was written when its time was up has an unknown outcome, and its late answer no reader."""
    slow = mcp.sent("slow", timeout_ms=2_000)
    mcp.pass_ms(2_000)
    assert isinstance(slow.error, TimedOutError)
    assert slow.error.dispatched is True
    assert mcp.written() == [
        {"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": slow.id, "reason": "timeout"}}
    ]
    echo = mcp.sent()
    mcp.answer(slow, text_result("STALE"))
    assert mcp.texts() == [f"srv: ignored a late answer to tool slow (id {slow.id})"]
    mcp.answer(echo, text_result("REAL"))
    assert mcp.events() == []
    assert echo.result == text_result("REAL")
    assert mcp.peer.statistics().ignored_answers == 1
    mcp.pass_ms(60_000)
    assert mcp.events() == [] and mcp.written() == []
    assert mcp.peer.phase is Phase.READY


@pytest.mark.spec("odek.transport.not-dispatched", "odek.transport.stalled-reader")
def test_a_call_that_was_never_written_is_never_written(mcp: Any) -> None:
    """Fault 5 and 6: a server that does not read holds nobody past the deadline, and gets no stale request later."""
    call, kept = mcp.call(timeout_ms=50, arguments={"x": "y" * 131_072}), mcp.call("slow", timeout_ms=100)
    mcp.pass_ms(50)
    assert isinstance(call.error, TimedOutError)
    assert (call.error.dispatched, call.dispatched, call.state) == (False, False, WireState.NEVER_SENT)
    assert "it was not dispatched" in str(call.error)
    assert [message["params"]["name"] for message in mcp.written()] == ["slow"]
    assert not kept.settled


@pytest.mark.spec("odek.transport.unknown-outcome")
def test_a_call_that_is_being_written_is_dispatched(mcp: Any) -> None:
    """Fault 7: the cancel follows the frame that was under way."""
    call = mcp.call(timeout_ms=50)
    frame = mcp.peer.next_frame()
    mcp.pass_ms(50)
    assert isinstance(call.error, TimedOutError) and call.error.dispatched
    assert mcp.peer.next_frame() is None
    mcp.peer.frame_written(frame)
    assert [message["method"] for message in mcp.written()] == ["notifications/cancelled"]


@pytest.mark.spec("odek.transport.not-dispatched")
def test_a_cancel_before_the_writing_keeps_its_reason(mcp: Any) -> None:
    """Fault 8: cancelled before dispatch; the frame is skipped and the caller gets the cancellation."""
    call = mcp.call()
    mcp.peer.cancel(call, "user")
    assert isinstance(call.error, CancelledError)
    assert (call.error.reason, call.error.dispatched, call.error.tool) == ("user", False, "echo")
    assert mcp.written() == []


@pytest.mark.spec("odek.limits.timeout-cancelled")
def test_a_cancel_is_told_exactly_once(mcp: Any, text_result: Text) -> None:
    call = mcp.sent()
    mcp.peer.cancel(call, "user\n")
    mcp.peer.cancel(call, "again")
    assert mcp.written_raw() == [
        b'{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":3,"reason":"user\\\\n"}}\n'
    ]
    assert isinstance(call.error, CancelledError) and call.error.dispatched
    mcp.pass_ms(60_000)
    assert mcp.written() == []
    assert mcp.settled == [call]


def test_a_cancel_after_the_answer_does_nothing(mcp: Any, text_result: Text) -> None:
    call = mcp.sent()
    mcp.answer(call, text_result("x"))
    mcp.events()
    mcp.peer.cancel(call, "late")
    assert (call.error, mcp.written()) == (None, [])


def test_a_raising_callback_harms_nobody_else(mcp: Any, text_result: Text) -> None:
    def broken(request: Any) -> None:
        raise ZeroDivisionError("oops")

    first = mcp.peer.call("echo", {}, on_settled=broken)
    second = mcp.sent()
    mcp.answer(first, text_result("1"))
    mcp.answer(second, text_result("2"))
    assert mcp.texts() == ["srv: on_settled of tools/call raised ZeroDivisionError: oops"]
    assert second.result == text_result("2")


# -- progress ----------------------------------------------------------------------------------------------------------


def progress(token: Any, **members: Any) -> dict[str, Any]:
    return {"jsonrpc": "2.0", "method": "notifications/progress", "params": {"progressToken": token, **members}}


def test_what_is_sent_beside_the_arguments(mcp: Any) -> None:
    mcp.peer.call("echo", {}, meta={"traceparent": "00-1-2-01"})
    mcp.peer.call("echo", {}, meta={"traceparent": "00-1-2-01", "progressToken": "mine"}, on_progress=print)
    mcp.peer.call("echo", {}, meta={})
    first, second, third = mcp.written()
    assert first["params"] == {"name": "echo", "arguments": {}, "_meta": {"traceparent": "00-1-2-01"}}
    assert second["params"]["_meta"] == {"traceparent": "00-1-2-01", "progressToken": 1}
    assert "_meta" not in third["params"]


def test_a_token_is_sent_only_when_asked_for(mcp: Any) -> None:
    seen: list[Progress] = []
    plain, asking = mcp.call(), mcp.call(on_progress=seen.append)
    first, second = mcp.written()
    assert "_meta" not in first["params"]
    token = second["params"]["_meta"]["progressToken"]
    mcp.receive(
        progress(token, progress=1, total=4, message="a\x1b[31mb\n"),
        progress(str(token), progress=2),
        progress(float(token), progress=2),
        progress(99, progress=2),
        progress([], progress=2),
        {"jsonrpc": "2.0", "method": "notifications/progress"},
        progress(token, progress=2.5),
    )
    assert mcp.events() == []
    assert seen == [Progress(1, 4, "ab "), Progress(2.5)]
    assert not plain.settled and not asking.settled


@pytest.mark.parametrize("members", [{}, {"progress": "1"}, {"progress": True}, {"progress": 1, "total": "x"}])
def test_progress_that_is_no_number_is_told(mcp: Any, members: Any) -> None:
    seen: list[Progress] = []
    mcp.sent(on_progress=seen.append)
    mcp.receive(progress(1, **members))
    assert mcp.texts() == ["srv: ignored a progress of tool echo that is no number"]
    assert seen == []


def test_progress_after_the_answer_is_ignored(mcp: Any, text_result: Text) -> None:
    seen: list[Progress] = []
    call = mcp.sent(on_progress=seen.append)
    mcp.answer(call, text_result("x"))
    mcp.receive(progress(1, progress=9))
    assert mcp.events() == [] and seen == []


def test_a_raising_progress_callback_is_told(mcp: Any) -> None:
    def broken(step: Progress) -> None:
        raise ZeroDivisionError("oops")

    mcp.sent(on_progress=broken)
    mcp.receive(progress(1, progress=9))
    assert mcp.texts() == ["srv: on_progress of tool echo raised ZeroDivisionError: oops"]


@pytest.mark.spec("odek.limits.timeout-progress")
def test_progress_extends_only_when_asked(mcp: Any) -> None:
    plain = mcp.sent(timeout_ms=1_000, on_progress=lambda step: None)
    asking = mcp.sent(timeout_ms=1_000, progress_extends=True)
    mcp.clock.advance_ms(900)
    mcp.receive(progress(1, progress=1), progress(2, progress=1))
    mcp.events()
    mcp.pass_ms(100)
    assert (plain.settled, asking.settled) == (True, False)
    mcp.pass_ms(899)
    assert not asking.settled
    mcp.pass_ms(1)
    assert isinstance(asking.error, TimedOutError)
    assert asking.error.observed == 1_900


@pytest.mark.spec("odek.limits.timeout-progress")
def test_progress_never_extends_past_an_hour(new_mcp: NewMcp) -> None:
    wire = new_mcp(timeout_ms=3_600_000).ready()
    call = wire.sent(progress_extends=True, timeout_ms=3_000_000)
    for step in range(3):
        wire.clock.advance_ms(1_000_000)
        wire.receive(progress(1, progress=step))
        wire.events()
    wire.pass_ms(599_999)
    assert not call.settled
    wire.pass_ms(1)
    assert isinstance(call.error, TimedOutError)
    assert call.error.observed == 3_600_000


# -- the end -----------------------------------------------------------------------------------------------------------


@pytest.mark.spec("odek.transport.close-idempotent")
def test_close_settles_at_once_and_again_does_nothing(mcp: Any) -> None:
    """Fault 9 and 19: a close releases every caller; closing twice, or before the discovery, is no error."""
    written, queued = mcp.sent(), mcp.call()
    mcp.peer.close()
    mcp.peer.close()
    assert [type(call.error) for call in (written, queued)] == [CancelledError, CancelledError]
    assert [call.error.dispatched for call in (written, queued)] == [True, False]
    assert mcp.events() == [Closed(None)]
    assert mcp.written() == []
    with pytest.raises(CapabilityMismatchError, match="the connection is closed"):
        mcp.call()


def test_close_before_anything(new_mcp: NewMcp) -> None:
    wire = new_mcp()
    wire.peer.close()
    wire.peer.close()
    assert wire.events() == [Closed(None)]


@pytest.mark.spec("odek.transport.eof")
def test_the_end_of_a_server_fails_open_and_later_calls(mcp: Any) -> None:
    """Fault 17: every open call, and every later one, at once and with what is known about the end."""
    calls = [mcp.sent(), mcp.sent("slow")]
    failure = ExitedError("srv exited with status 7", status=7, stderr_tail="missing key")
    mcp.peer.fail(failure)
    for call in calls:
        error = call.error
        assert isinstance(error, ExitedError)
        assert (error.status, error.stderr_tail, error.extension) == (7, "missing key", "srv")
        assert (error.tool, error.dispatched) == (call.tool, True)
    with pytest.raises(ExitedError) as caught:
        mcp.call()
    assert (caught.value.status, caught.value.tool, caught.value.dispatched) == (7, "echo", False)
    assert str(caught.value) == "srv exited with status 7; tool echo cannot be called any more"
    assert mcp.events() == [Closed(failure)]


@pytest.mark.spec("odek.transport.eof")
def test_the_end_of_the_output_fails_every_call(mcp: Any) -> None:
    call = mcp.sent()
    mcp.receive_raw(b'{"jsonrpc":"2.0","id":3,"resu')
    mcp.peer.receive_eof()
    dropped, closed = mcp.events()
    assert "not JSON" in dropped.text  # type: ignore[union-attr]
    assert isinstance(closed, Closed)
    assert isinstance(call.error, ExitedError)
    assert call.error.tool == "echo"


@pytest.mark.spec("odek.transport.drain-before-exit", "odek.transport.last-line")
def test_an_answer_right_before_the_end_counts_even_without_lf(mcp: Any, text_result: Text) -> None:
    first, second = mcp.sent(), mcp.sent()
    mcp.receive({"jsonrpc": "2.0", "id": first.id, "result": text_result("1")})
    mcp.receive_raw(json.dumps({"id": second.id, "result": text_result("2")}).encode())
    mcp.peer.receive_eof()
    assert [type(event) for event in mcp.events()] == [Closed]
    assert (first.result, second.result) == (text_result("1"), text_result("2"))


@pytest.mark.spec("odek.transport.drain-before-exit", "odek.transport.eof")
def test_the_last_line_counts_before_what_the_driver_knows_of_the_end(mcp: Any, text_result: Text) -> None:
    first, second = mcp.sent(), mcp.sent("slow")
    mcp.receive_raw(json.dumps({"id": first.id, "result": text_result("1")}).encode())
    failure = ExitedError("srv exited with status 3", status=3, stderr_tail="oops")
    mcp.peer.receive_eof(failure)
    assert mcp.events() == [Closed(failure)]
    assert first.result == text_result("1")
    assert isinstance(second.error, ExitedError)
    assert (second.error.status, second.error.stderr_tail, second.error.tool) == (3, "oops", "slow")


def test_draining_lets_open_calls_end_and_then_the_output(mcp: Any, text_result: Text) -> None:
    call = mcp.sent()
    mcp.peer.drain()
    with pytest.raises(CapabilityMismatchError, match="the connection is draining"):
        mcp.call()
    mcp.answer(call, text_result("x"))
    mcp.peer.receive_eof()
    assert mcp.events() == [Closed(None)]
    assert call.result == text_result("x")


def test_the_end_of_the_output_while_draining_fails_what_is_open(mcp: Any) -> None:
    call = mcp.sent()
    mcp.peer.drain()
    mcp.peer.receive_eof()
    mcp.events()
    assert isinstance(call.error, ExitedError)


def test_a_server_that_asks_while_its_input_may_be_closed_is_not_ended_for_it(mcp: Any) -> None:
    mcp.peer.drain()
    mcp.receive(*({"id": number, "method": "ping"} for number in range(200)))
    assert [type(event) for event in mcp.events()] == [ServerRequest] * 200
    assert [message["id"] for message in mcp.written()] == [*range(128)]
    mcp.peer.receive_eof()
    assert mcp.events() == [Closed(None)]


# -- whatever happens --------------------------------------------------------------------------------------------------

ACTIONS = st.lists(
    st.one_of(
        st.tuples(st.just("call"), st.sampled_from([50, 500, None])),
        st.tuples(st.just("write"), st.none()),
        st.tuples(st.sampled_from(["answer", "cancel", "error"]), st.integers(0, 9)),
        st.tuples(st.just("time"), st.integers(1, 200)),
    ),
    max_size=40,
)


@settings(max_examples=120, deadline=None)
@given(actions=ACTIONS, end=st.sampled_from(["close", "fail", "eof", "long", "time"]))
def test_every_call_settles_exactly_once_and_is_cancelled_at_most_once(
    new_mcp: NewMcp, actions: list[tuple[str, Any]], end: str
) -> None:
    wire = new_mcp(max_response_bytes=400).ready()
    calls: list[Any] = []
    messages: list[Any] = []
    for action, value in actions:
        if action == "call":
            calls.append(wire.call(timeout_ms=value))
        elif action == "write":
            messages += wire.written()
        elif action == "time":
            wire.pass_ms(value)
        elif value < len(calls):
            if action == "cancel":
                wire.peer.cancel(calls[value], "why")
            else:
                member = {"result": {}} if action == "answer" else {"error": {"code": 1, "message": ""}}
                wire.receive({"id": calls[value].id, **member})
        wire.events()
    if end == "close":
        wire.peer.close()
    elif end == "fail":
        wire.peer.fail(ExitedError("gone"))
    elif end == "eof":
        wire.peer.receive_eof()
    elif end == "long":
        wire.receive_raw(b"x" * 401)
    messages += wire.written()
    if end == "time":
        wire.pass_ms(3_600_000)
        messages += wire.written()
    wire.events()
    assert sorted(map(id, wire.settled)) == sorted(map(id, calls))
    assert all((call.error is None) == (call.result is not None) for call in calls)
    sent = [message["id"] for message in messages if message["method"] == "tools/call"]
    told = [message["params"]["requestId"] for message in messages if message["method"] == "notifications/cancelled"]
    assert len(set(sent)) == len(sent) and len(set(told)) == len(told)
    assert set(told) <= set(sent)
    for call in calls:
        assert call.dispatched == (call.id in sent)
        if isinstance(call.error, TimedOutError | CancelledError):
            assert call.error.dispatched == call.dispatched


@pytest.mark.spec("odek.limits.errors-name")
def test_a_failure_names_each_calls_own_tool(mcp: Any) -> None:
    calls = [mcp.sent(), mcp.sent("slow")]
    mcp.peer.fail(ProtocolError("srv: broken", limit="max_response_bytes", observed=9, maximum=8))
    assert [(str(call.error), call.error.observed) for call in calls] == [
        ("srv: broken; this ended the call of tool echo", 9),
        ("srv: broken; this ended the call of tool slow", 9),
    ]
