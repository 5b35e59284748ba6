"""Each type has exactly its data fields, and an event is one stamped, redacted line."""

from __future__ import annotations

import json
from typing import Any

import pytest

from broker.errors import BrokerError, InvalidParamsError
from broker.limits import MAX_EVENT_ARGS_CHARS, MAX_EVENT_TEXT_CHARS, MAX_PORTABLE_INTEGER
from broker.wire.odek.events import types
from broker.wire.odek.events.event import Event, Stamper, check_session_id, rfc3339
from broker.wire.odek.events.redaction import Redactor

RUN_ID = "0123456789abcdef" * 2
TOKEN = "sk" + "-" + "aB3" * 11
CALL: dict[str, Any] = {"iteration": 3, "tool": "shell", "call_id": "c1"}

PAYLOADS: list[tuple[Any, dict[str, Any], dict[str, Any]]] = [
    (types.RunStarted, {"model": "m", "sandbox": False, "max_iterations": 9}, {}),
    (types.IterationCompleted, {"input_tokens": 1, "output_tokens": 2, "tools_called": 0}, {"iteration": 3}),
    (
        types.ToolCallStarted,
        {"call_id": "c1", "args_sha256": "00", "args_bytes": 2, "args_summary": {}},
        {"iteration": 3, "tool": "shell"},
    ),
    (
        types.ToolCallCompleted,
        {"call_id": "c1", "duration_ms": 4, "result_bytes": 5, "artifact_count": 0},
        {"iteration": 3, "tool": "shell"},
    ),
    (
        types.ToolCallFailed,
        {"call_id": "c1", "duration_ms": 4, "error_class": "tool_error"},
        {"iteration": 3, "tool": "shell"},
    ),
    (types.SessionSaved, {"message_count": 7}, {}),
    (types.ContextTrimmed, {"mode": "survival", "dropped_groups": 2, "truncated_results": 0}, {}),
    (types.BudgetExceeded, {"limit_name": "cost_usd", "observed": 1.5, "limit": 1}, {"iteration": 3}),
    (types.RunCompleted, {"duration_ms": 1, "input_tokens": 2, "output_tokens": 3}, {}),
    (types.RunFailed, {"duration_ms": 1, "error_class": "error"}, {}),
    (types.PlanCreated, {"steps": 2, "version": 1}, {}),
    (
        types.PlanUpdated,
        {"steps": 4, "done": 1, "in_progress": 1, "blocked": 1, "pending": 1, "version": 2},
        {},
    ),
    (types.SubagentDenied, {"task_index": 0, "class": "destructive", "reason": "policy"}, {"tool": "shell"}),
    (
        types.SubagentSpawned,
        {"task_id": "task-1", "pid": 7, "depth": 1, "timeout_seconds": 60, "goal_sha256": "0" * 16},
        {},
    ),
    (
        types.SubagentCompleted,
        {"task_id": "task-1", "status": "ok", "duration_seconds": 1.5, "tokens_used": 9, "artifact_count": 1},
        {},
    ),
    (types.SubagentConcurrencyWait, {"task_index": 0, "waited_ms": 5000}, {}),
]


@pytest.mark.parametrize(("kind", "data", "envelope"), PAYLOADS, ids=lambda value: getattr(value, "type", ""))
@pytest.mark.spec(
    "odek.event.line",
    "odek.event.envelope",
    "odek.event.run-id",
    "odek.event.iteration",
    "odek.event.tool",
    "odek.event.data-run-started",
    "odek.event.data-iteration-completed",
    "odek.event.data-tool-call",
    "odek.event.data-session-saved",
    "odek.event.data-context-trimmed",
    "odek.event.data-budget-exceeded",
    "odek.event.data-run-closed",
    "odek.event.data-plan",
    "odek.event.data-subagent-denied",
)
def test_exactly_the_fields_of_each_type(kind: Any, data: dict[str, Any], envelope: dict[str, Any]) -> None:
    given = {"risk_class" if name == "class" else name: value for name, value in data.items()}
    event = Stamper(RUN_ID).stamp(kind(**given, **envelope), unix_ms=1_786_104_000_000)
    line = event.line()
    assert line.endswith(b"\n") and line.count(b"\n") == 1
    assert json.loads(line) == {
        "schema": "odek.event/v1",
        "type": kind.type,
        "run_id": RUN_ID,
        "timestamp": "2026-08-07T12:00:00.000Z",
        "data": data,
        **envelope,
    }
    with pytest.raises(TypeError):
        kind(**given, **envelope, other=1)


@pytest.mark.spec("odek.event.type-words")
def test_the_sixteen_types() -> None:
    assert sorted(types.EVENT_TYPES) == sorted(
        "run_started iteration_completed tool_call_started tool_call_completed tool_call_failed session_saved "
        "context_trimmed budget_exceeded run_completed run_failed plan_created plan_updated subagent_denied "
        "subagent_spawned subagent_completed subagent_concurrency_wait".split()
    )
    assert [kind for kind, _, _ in PAYLOADS] == list(types.EVENT_TYPES.values())


@pytest.mark.parametrize(
    ("kind", "wrong"),
    [
        (types.RunStarted, {"model": 1, "sandbox": True, "max_iterations": 1}),
        (types.RunStarted, {"model": "m", "sandbox": 1, "max_iterations": 1}),
        (types.RunStarted, {"model": "m", "sandbox": True, "max_iterations": -1}),
        (types.SessionSaved, {"message_count": True}),
        (types.SessionSaved, {"message_count": MAX_PORTABLE_INTEGER + 1}),
        (types.ContextTrimmed, {"mode": "other", "dropped_groups": 0, "truncated_results": 0}),
        (types.ToolCallFailed, {**CALL, "duration_ms": 0, "error_class": "boom"}),
        (types.ToolCallFailed, {**CALL, "iteration": 0, "duration_ms": 0, "error_class": "error"}),
        (types.BudgetExceeded, {"limit_name": "tokens", "observed": 1, "limit": 1}),
        (types.BudgetExceeded, {"limit_name": "runtime", "observed": float("nan"), "limit": 1}),
    ],
)
@pytest.mark.spec("odek.event.error-class")
def test_a_value_of_another_kind_is_refused_by_name(kind: Any, wrong: dict[str, Any]) -> None:
    with pytest.raises(InvalidParamsError) as caught:
        kind(**wrong)
    assert caught.value.path in wrong
    assert str(caught.value).startswith(f"{caught.value.path}: expected ")


def start(**changes: Any) -> types.ToolCallStarted:
    return types.ToolCallStarted(**{**CALL, "args_sha256": "00", "args_bytes": 2, "args": f"x {TOKEN}", **changes})


@pytest.mark.spec("odek.event.args-hidden", "odek.event.args-opt-in")
def test_arguments_leave_only_when_asked_for_and_then_redacted() -> None:
    hidden = Stamper(RUN_ID).stamp(start(), unix_ms=0)
    assert "args" not in hidden.data
    shown = Stamper(RUN_ID, include_args=True).stamp(start(), unix_ms=0)
    assert shown.data["args"] == "x [REDACTED]"
    assert TOKEN not in repr(start())


@pytest.mark.spec("odek.event.redaction", "odek.event.caller-data")
def test_every_string_is_redacted_and_the_callers_data_stays() -> None:
    summary = {"argv0": ["ok", TOKEN], "nested": [{"deep": f"is {TOKEN}"}]}
    event = Stamper(RUN_ID, redactor=Redactor(["known-secret"])).stamp(
        start(tool="known-secret", args_summary=summary), unix_ms=0, session_id="s"
    )
    assert event.tool == "[REDACTED]"
    assert event.data["args_summary"] == {"argv0": ["ok", "[REDACTED]"], "nested": [{"deep": "is [REDACTED]"}]}
    assert summary == {"argv0": ["ok", TOKEN], "nested": [{"deep": f"is {TOKEN}"}]}


@pytest.mark.spec("odek.event.session-id")
def test_the_session_stands_only_when_known() -> None:
    stamper = Stamper(RUN_ID)
    payload = types.SessionSaved(message_count=1)
    assert "session_id" not in stamper.stamp(payload, unix_ms=0).to_json()
    assert stamper.stamp(payload, unix_ms=0, session_id="s-1").to_json()["session_id"] == "s-1"
    for wrong in ("", "a\nb", "x" * 5000, 7):
        with pytest.raises(InvalidParamsError):
            check_session_id(wrong)  # type: ignore[arg-type]


def test_a_run_id_is_128_bits() -> None:
    for wrong in ("", "0" * 31, "0" * 33, "A" * 32, "g" * 32, 7):
        with pytest.raises(BrokerError):
            Stamper(wrong)  # type: ignore[arg-type]


def test_strings_are_cut_after_the_redaction() -> None:
    long = "a" * (MAX_EVENT_TEXT_CHARS - 20) + " " + TOKEN
    event = Stamper(RUN_ID).stamp(types.RunStarted(model=long + "b" * 9, sandbox=True, max_iterations=1), unix_ms=0)
    assert len(event.data["model"]) <= MAX_EVENT_TEXT_CHARS
    assert "sk-" not in event.data["model"]
    args = "é" * (MAX_EVENT_ARGS_CHARS + 5)
    cut = Stamper(RUN_ID, include_args=True).stamp(start(args=args), unix_ms=0).data["args"]
    assert cut == "é" * (MAX_EVENT_ARGS_CHARS - 1) + "…"


def test_a_lone_surrogate_and_line_ends_make_one_line() -> None:
    payload = types.RunStarted(model="a\ud835\u2028\n\r\x85b", sandbox=True, max_iterations=1)
    line = Stamper(RUN_ID).stamp(payload, unix_ms=0).line()
    assert line.count(b"\n") == 1
    assert json.loads(line)["data"]["model"] == "a\ufffd\u2028\n\r\x85b"


def test_time_is_utc_with_milliseconds() -> None:
    assert rfc3339(0) == "1970-01-01T00:00:00.000Z"
    assert rfc3339(1_786_104_000_007) == "2026-08-07T12:00:00.007Z"
    assert Event(type="t", timestamp="x", run_id=RUN_ID, data={}).to_json()["data"] == {}
