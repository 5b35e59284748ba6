"""Tool calls: what is refused before it is sent, and that each admitted one ends exactly once."""

from __future__ import annotations

from typing import Any

import pytest
from scripts import EMPTY, Actor, answers, refuses

from broker.errors import (
    CancelledError,
    ExitedError,
    InvalidParamsError,
    RemoteError,
    ResourceExhaustedError,
    ResultError,
    TimedOutError,
    UsageError,
)
from broker.host import Health
from broker.limits import MAX_WAITING_REQUESTS


def start(memory: Any, play: Any = None, **options: Any) -> Any:
    return memory.start(lambda: Actor(play, **options), name="alpha")


@pytest.mark.parametrize(
    ("tool", "hint"), [("wrok", "did you mean work?"), ("delete", "it has work"), (5, "it has work")]
)
def test_an_unknown_tool_is_refused_with_what_there_is(memory: Any, tool: Any, hint: str) -> None:
    with pytest.raises(InvalidParamsError) as caught:
        start(memory).call(tool, {})
    assert str(caught.value) == f"alpha has no tool {tool!r}; {hint}"


@pytest.mark.spec("octet.tool-call.name-in-catalogue")
@pytest.mark.parametrize("tool", ["other", "", "Work", "\x1b[31m" * 99])
def test_an_unknown_tool_is_refused_and_nothing_sent(memory: Any, tool: str) -> None:
    extension = start(memory)
    with pytest.raises(InvalidParamsError, match="alpha has no tool") as caught:
        extension.call(tool, {})
    assert caught.value.path == "tool"
    assert str(caught.value).isprintable()
    assert len(str(caught.value)) < 200
    memory.run()
    assert memory.processes[0].heard == ["initialize"]


@pytest.mark.spec("octet.tool-call.arguments-any-json")
@pytest.mark.parametrize(
    ("arguments", "kind"),
    [
        (None, InvalidParamsError),
        ({"x": 1.5}, InvalidParamsError),
        ({"x": float("nan")}, InvalidParamsError),
        (2**53, InvalidParamsError),
        ("\ud800", InvalidParamsError),
        ({"\udfff": 1}, InvalidParamsError),
        ({1: 2}, InvalidParamsError),
        ({"x": object()}, InvalidParamsError),
        ({"x": "y" * 1_048_576}, ResourceExhaustedError),
    ],
)
def test_arguments_that_cannot_be_sent_are_refused_and_the_next_call_works(
    memory: Any, arguments: Any, kind: type[Exception]
) -> None:
    extension = start(memory)
    with pytest.raises(kind):
        extension.call("work", arguments)
    memory.call("alpha", "work")
    assert memory.processes[0].heard == ["initialize", "tool/call"]


@pytest.mark.spec("octet.canonical.hostile")
def test_arguments_that_contain_themselves_are_refused(memory: Any) -> None:
    extension = start(memory)
    loop: dict[str, Any] = {}
    loop["x"] = loop
    with pytest.raises(InvalidParamsError):
        extension.call("work", loop)


@pytest.mark.spec("octet.tool-call.arguments-any-json", "octet.tool-call.context-members")
@pytest.mark.parametrize("arguments", [{}, [], 0, False, "", "ä\u2028", 2**53 - 1])
def test_any_other_json_arrives_as_it_is(memory: Any, arguments: Any) -> None:
    start(memory)
    memory.call("alpha", "work", arguments)
    (params,) = memory.processes[0].params_of("tool/call")
    assert params["name"] == "work"
    assert params["arguments"] == arguments
    assert type(params["arguments"]) is type(arguments)
    assert sorted(params["context"]) == ["execution_scope", "host", "resource_owner", "workspace"]


@pytest.mark.spec("octet.framing.tiny-bound")
def test_a_tiny_bound_fails_calls_and_hangs_nothing(memory: Any) -> None:
    extension = start(memory, limits={"max_frame_bytes": 64})
    with pytest.raises(ResourceExhaustedError) as caught:
        extension.call("work", {})
    assert (caught.value.limit, caught.value.maximum) == ("MAX_FRAME_BYTES", 64)
    assert extension.health is Health.READY
    memory.settle(extension.stop())
    assert memory.exits() == [(1, 0, "stopped")]  # shutdown is the one request that fits


@pytest.mark.spec("octet.framing.tiny-bound")
def test_a_tiny_bound_and_a_bus_do_not_go_together(memory: Any) -> None:
    extension = memory.add(lambda: Actor(limits={"max_frame_bytes": 64}, capabilities=("event_bus",)), name="alpha")
    outcome = extension.start()
    memory.advance(300_000)
    assert outcome.done
    assert extension.health is Health.PARKED
    assert memory.bus.statistics().peers == ()


@pytest.mark.spec("octet.framing.tiny-bound")
def test_a_bound_too_small_even_for_shutdown_is_survived(memory: Any) -> None:
    extension = start(memory, limits={"max_frame_bytes": 1})
    stop = extension.stop()
    memory.settle(stop)
    assert memory.exits() == [(1, 0, "ended without acknowledging shutdown")]
    assert any(text.startswith("could not ask for shutdown: ") for text in memory.diagnostics())


@pytest.mark.spec("octet.tool-call.schema-unchecked")
def test_structured_content_is_not_checked_against_the_output_schema(memory: Any) -> None:
    def with_schema(actor: Actor, message: dict[str, Any]) -> None:
        selection = actor.selection(message["params"]["contract"])
        selection["tools"][0]["output_schema"] = {"type": "object", "required": ["x"]}
        actor.answer(message["id"], selection)

    start(memory, {"initialize": with_schema, "tool/call": answers({**EMPTY, "structured_content": 5})})
    assert memory.call("alpha", "work").structured_content == 5


@pytest.mark.spec("octet.tool-call.concurrency", "octet.tool-call.wait-counts", "octet.bound.max-concurrent-requests")
def test_calls_past_the_selected_concurrency_wait_in_order(memory: Any) -> None:
    extension = start(memory, {"tool/call": None}, limits={"max_concurrent_requests": 2})
    calls = [extension.call("work", {"n": n}, timeout_ms=1_000) for n in range(4)]
    memory.run()
    (actor,) = memory.processes
    assert [params["arguments"]["n"] for params in actor.params_of("tool/call")] == [0, 1]
    actor.finish(0)
    memory.settle(calls[0])
    assert [params["arguments"]["n"] for params in actor.params_of("tool/call")] == [0, 1, 2]
    memory.advance(1_000)
    errors = [call.error for call in calls[1:]]
    assert [type(error) for error in errors] == [TimedOutError] * 3
    assert [error.dispatched for error in errors] == [True, True, False]
    assert len(actor.params_of("tool/call")) == 3


def test_too_many_waiting_calls_are_refused(memory: Any) -> None:
    extension = start(memory, {"tool/call": None}, limits={"max_concurrent_requests": 1})
    for _ in range(MAX_WAITING_REQUESTS + 1):
        extension.call("work", {})
    with pytest.raises(ResourceExhaustedError) as caught:
        extension.call("work", {})
    assert caught.value.limit == "MAX_WAITING_REQUESTS"


@pytest.mark.spec("octet.cancel.queued-skipped")
def test_a_call_cancelled_before_it_left_leaves_no_trace_on_the_wire(memory: Any) -> None:
    extension = start(memory)
    call = extension.call("work", {})
    call.cancel()
    call.cancel("again")
    assert isinstance(call.error, CancelledError)
    assert not call.error.dispatched
    memory.run()
    assert memory.processes[0].heard == ["initialize"]


@pytest.mark.spec("octet.cancel.race", "octet.cancel.late-answer", "octet.cancel.idempotent", "octet.cancel.siblings")
def test_whoever_comes_first_wins(memory: Any) -> None:
    extension = start(memory, {"tool/call": None})
    answered, cancelled, sibling = (extension.call("work", {"n": n}) for n in range(3))
    memory.run()
    (actor,) = memory.processes
    actor.finish(0)
    memory.settle(answered)
    answered.cancel()
    assert answered.error is None
    cancelled.cancel("user")
    cancelled.cancel("user")
    memory.run()
    assert actor.params_of("$/cancelRequest") == [{"id": 3, "reason": "user"}]
    actor.finish(1)
    actor.finish(1)
    memory.run()
    assert isinstance(cancelled.error, CancelledError)
    assert len(memory.diagnostics()) == 2
    assert not sibling.done
    actor.finish(2)
    memory.settle(sibling)
    memory.advance(10_000)
    assert memory.exits() == []


@pytest.mark.spec("octet.cancel.terminal-result")
def test_a_cancelled_call_may_be_ended_with_the_error_of_its_own(memory: Any) -> None:
    extension = start(memory, {"tool/call": None})
    call = extension.call("work", {})
    memory.run()
    call.cancel()
    (actor,) = memory.processes
    refuses(-32800, "request cancelled", data={"reason": "user"})(actor, actor.received[1])
    memory.advance(10_000)
    assert memory.exits() == []
    assert extension.health is Health.READY


@pytest.mark.spec("octet.cancel.reason-bound")
def test_a_reason_has_a_bound(memory: Any) -> None:
    extension = start(memory, {"tool/call": None})
    call = extension.call("work", {})
    memory.run()
    with pytest.raises((InvalidParamsError, ResourceExhaustedError)):
        call.cancel("x" * 4_097)
    assert not call.done
    call.cancel("x" * 4_096)
    assert call.done


@pytest.mark.spec("octet.cancel.grace")
def test_a_host_may_wait_for_ever_for_the_answer_to_a_cancel(make_memory: Any) -> None:
    memory = make_memory(cancel_grace_ms=None)
    extension = start(memory, {"tool/call": None})
    call = extension.call("work", {}, timeout_ms=10)
    memory.advance(600_000)
    assert isinstance(call.error, TimedOutError)
    assert extension.health is Health.READY
    assert memory.exits() == []


@pytest.mark.spec("octet.tool-call.bad-result", "octet.tool-call.metadata-required", "octet.tool-call.extra-part-field")
@pytest.mark.parametrize(
    "result",
    [
        {},
        {"content": [], "is_error": False},
        {**EMPTY, "more": 1},
        {**EMPTY, "is_error": 0},
        {**EMPTY, "content": [{"type": "text", "text": "x", "more": 1}]},
        {**EMPTY, "content": [{"type": "image", "artifact_id": "a", "mime_type": "b", "alt": "c"}]},
    ],
)
def test_a_malformed_result_fails_that_call_only(memory: Any, result: dict[str, Any]) -> None:
    extension = start(memory, {"tool/call": answers(result)})
    for _ in range(2):
        call = extension.call("work", {})
        memory.run()
        assert isinstance(call.error, ResultError)
        assert call.error.method == "tool/call"
    assert extension.health is Health.READY


@pytest.mark.spec("octet.tool-call.protocol-failure", "octet.cancel.unasked-32800", "octet.method.tool-call")
@pytest.mark.parametrize(("code", "text"), [(-32603, "internal error"), (-32800, "request cancelled")])
def test_an_error_answer_is_a_typed_error(memory: Any, code: int, text: str) -> None:
    extension = start(memory, {"tool/call": refuses(code, text, data=[1])})
    call = extension.call("work", {})
    memory.run()
    assert isinstance(call.error, RemoteError)
    assert (call.error.code, call.error.message, call.error.data) == (code, text, [1])
    assert extension.health is Health.READY


@pytest.mark.spec("octet.tool-call.process-lost", "octet.cancel.every-request-ends-once")
@pytest.mark.parametrize("ending", ["exit", "garbage", "string id", "closed output"])
def test_when_the_process_is_lost_every_open_call_ends_at_once(memory: Any, ending: str) -> None:
    memory.session.random_below = lambda bound: bound - 1
    extension = start(memory, {"tool/call": None}, limits={"max_concurrent_requests": 2})
    count: list[int] = []
    calls = [extension.call("work", {"n": n}) for n in range(3)]
    for n, call in enumerate(calls):
        call.add_callback(lambda _, n=n: count.append(n))
    memory.run()
    (actor,) = memory.processes
    if ending == "exit":
        actor.exit(1)
    elif ending == "garbage":
        actor.send_bytes(b'{"a":1,"a":2}\n')
    elif ending == "string id":
        actor.send({"jsonrpc": "2.0", "id": "2", "result": EMPTY})
    else:
        actor.send_stderr(b"out of paper\n")
        actor.close_stdout()
    memory.advance(250 if ending == "closed output" else 0)
    assert sorted(count) == [0, 1, 2]
    assert len({str(call.error) for call in calls}) == 1
    if ending in ("exit", "closed output"):
        assert [call.error.dispatched for call in calls] == [True, True, False]
    if ending == "closed output":
        assert isinstance(calls[0].error, ExitedError)
        assert calls[0].error.stderr_tail == "out of paper"
        assert "closed its output but did not exit; its stderr ends with: out of paper" in str(calls[0].error)
    assert extension.health is Health.BACKOFF


@pytest.mark.spec("octet.envelope.id-zero")
def test_a_request_with_id_zero_is_answered_with_it(memory: Any) -> None:
    def act(actor: Actor, message: dict[str, Any]) -> None:
        actor.request(0, "bus/declare", {"binding_id": "x", "topic": "y", "fields": []})
        actor.answer(message["id"], EMPTY)

    start(memory, {"tool/call": act})
    memory.call("alpha", "work")
    answer = memory.processes[0].received[-1]
    assert answer == {
        "jsonrpc": "2.0", "id": 0,
        "error": {"code": -32601, "message": "unknown or unnegotiated method", "data": {"method": "bus/declare"}},
    }  # fmt: skip


def test_a_timeout_is_at_least_a_millisecond(memory: Any) -> None:
    extension = start(memory)
    with pytest.raises(UsageError):
        extension.call("work", {}, timeout_ms=0)
    memory.run()
    assert memory.processes[0].heard == ["initialize"]


def test_a_callers_faulty_callback_does_not_keep_the_others_waiting(memory: Any) -> None:
    extension = start(memory, {"tool/call": None})
    first, second = extension.call("work", {}), extension.call("work", {})
    first.add_callback(lambda _: 1 / 0)
    memory.run()
    memory.settle(extension.stop())
    assert first.done
    assert second.done
    assert memory.exits() == [(1, 0, "stopped")]
