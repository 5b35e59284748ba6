"""A run's events as its loop tells them: ids, hashes, classes of errors, and the order at the end."""

from __future__ import annotations

import asyncio
import hashlib
from concurrent.futures import CancelledError as FutureCancelledError
from typing import Any

import pytest

from broker.errors import (
    BudgetExceededError,
    CancelledError,
    InvalidParamsError,
    ResultError,
    TimedOutError,
    UsageError,
)
from broker.limits import MAX_PORTABLE_INTEGER
from broker.testing import ManualClock
from broker.wire.odek.events import types
from broker.wire.odek.events.run import ModelToolCall, RunEvents, budget_error, call_id, error_class


class Told:
    """A run that writes down what it tells."""

    def __init__(self) -> None:
        self.clock = ManualClock()
        self.payloads: list[Any] = []
        self.run = RunEvents(self.payloads.append, clock=self.clock)

    @property
    def types(self) -> list[str]:
        return [payload.type for payload in self.payloads]


@pytest.fixture
def told() -> Told:
    return Told()


def spent(limit: str = "tool_calls", observed: int = 3, maximum: int = 2) -> BudgetExceededError:
    return BudgetExceededError("spent", limit=limit, observed=observed, maximum=maximum)


@pytest.mark.parametrize(
    ("arguments", "digest", "size"),
    [
        ('{"text":"hello"}', "cbbbdcd2", 16),
        ("", "e3b0c442", 0),
        ('{ "text" : "hello" }', None, 20),
        ("é\ud800", None, 5),
    ],
)
@pytest.mark.spec("odek.event.args-hash")
def test_hash_and_length_are_of_the_raw_text(told: Told, arguments: str, digest: str | None, size: int) -> None:
    (call,) = told.run.tool_calls(1, [ModelToolCall("srv__echo", arguments)])
    assert call.start.args_sha256 == hashlib.sha256(arguments.encode("utf-8", "surrogatepass")).hexdigest()
    assert digest is None or call.start.args_sha256.startswith(digest)
    assert call.start.args_bytes == size
    assert call.start.args_summary is None


@pytest.mark.spec("odek.event.call-id", "odek.event.call-id-pairs")
def test_a_batch_has_distinct_ids_and_pairs_by_them(told: Told) -> None:
    calls = [ModelToolCall("a", "{}", id="toolu_1"), ModelToolCall("a", "{}"), ModelToolCall("b", "{}", id="")]
    opened = told.run.tool_calls(2, calls)
    assert told.types == ["tool_call_started"] * 3
    assert [call.call_id for call in opened] == ["toolu_1", "it2-call1", "it2-call2"]
    told.clock.advance_ms(5)
    opened[2].failed()
    told.clock.advance_ms(7)
    opened[0].completed("zwölf", artifact_count=2)
    opened[1].completed(0)
    ends = [(end.type, end.call_id, end.tool, end.duration_ms) for end in told.payloads[3:]]
    assert ends == [
        ("tool_call_failed", "it2-call2", "b", 5),
        ("tool_call_completed", "toolu_1", "a", 12),
        ("tool_call_completed", "it2-call1", "a", 12),
    ]
    assert (told.payloads[4].result_bytes, told.payloads[4].artifact_count) == (6, 2)
    with pytest.raises(UsageError):
        opened[0].failed()


def test_the_ids_of_the_first_batch() -> None:
    assert [call_id(None, iteration=1, index=index) for index in (0, 1)] == ["it1-call0", "it1-call1"]


def test_a_result_that_speaks_of_an_error_is_a_completion(told: Told) -> None:
    (call,) = told.run.tool_calls(1, [ModelToolCall("a", "{}")])
    call.completed('{"error": "said the tool"}')
    assert told.types[-1] == "tool_call_completed"


@pytest.mark.parametrize(
    ("error", "of_run", "of_tool"),
    [
        (TimedOutError("x"), "deadline_exceeded", "deadline_exceeded"),
        (TimeoutError(), "deadline_exceeded", "deadline_exceeded"),
        (CancelledError("x"), "context_canceled", "context_canceled"),
        (asyncio.CancelledError(), "context_canceled", "context_canceled"),
        (FutureCancelledError(), "context_canceled", "context_canceled"),
        (KeyboardInterrupt(), "context_canceled", "context_canceled"),
        (ResultError("secret text"), "error", "tool_error"),
        (ZeroDivisionError("secret text"), "error", "tool_error"),
        (SystemExit(1), "error", "tool_error"),
        (spent(), "error", "tool_error"),
    ],
)
@pytest.mark.spec("odek.event.error-class", "odek.event.deadline-class")
def test_a_failure_is_one_of_four_words(error: BaseException, of_run: str, of_tool: str, told: Told) -> None:
    assert (error_class(error), error_class(error, of_tool=True)) == (of_run, of_tool)
    (call,) = told.run.tool_calls(1, [ModelToolCall("a", "{}")])
    call.failed(error)
    assert told.payloads[-1].error_class == of_tool
    assert "secret" not in repr(told.payloads)


@pytest.mark.spec("odek.event.budget-before-failed", "odek.budget.event")
def test_a_spent_budget_is_told_before_the_end(told: Told) -> None:
    told.run.started(model="m", sandbox=True, max_iterations=3)
    told.run.iteration_completed(1, input_tokens=5, output_tokens=6)
    told.clock.advance_ms(9)
    try:
        raise RuntimeError("the loop gave up") from spent("cost_usd", 2_500_000, 1_000_000)
    except RuntimeError as error:
        told.run.failed(error)
    assert told.types == ["run_started", "iteration_completed", "budget_exceeded", "run_failed"]
    assert told.payloads[2] == types.BudgetExceeded(iteration=1, limit_name="cost_usd", observed=2.5, limit=1.0)
    assert told.payloads[3] == types.RunFailed(duration_ms=9, error_class="error")


def test_a_spent_budget_is_told_once(told: Told) -> None:
    told.run.budget_exceeded(spent(), iteration=4)
    told.run.failed(spent())
    assert told.types == ["budget_exceeded", "run_failed"]
    assert told.payloads[0] == types.BudgetExceeded(iteration=4, limit_name="tool_calls", observed=3, limit=2)


def test_a_budget_is_found_behind_other_errors() -> None:
    error = spent()
    group = ExceptionGroup("several", [ValueError(), ExceptionGroup("more", [error])])
    looping = ValueError()
    looping.__cause__ = looping
    assert budget_error(group) is error
    assert budget_error(looping) is None
    assert budget_error(None) is None
    try:
        try:
            raise error
        except BudgetExceededError:
            raise KeyError from None
    except KeyError as wrapped:
        assert budget_error(wrapped) is error


def test_exactly_one_end(told: Told) -> None:
    told.run.completed(input_tokens=10**30, output_tokens=2)
    assert told.payloads[-1].input_tokens == MAX_PORTABLE_INTEGER
    for again in (
        lambda: told.run.completed(input_tokens=1, output_tokens=2),
        lambda: told.run.failed(ValueError()),
        lambda: told.run.tool_calls(1, [ModelToolCall("a", "{}")]),
        lambda: told.run.emit(types.SessionSaved(message_count=1)),
    ):
        with pytest.raises(UsageError):
            again()
    assert told.types == ["run_completed"]


@pytest.mark.spec("odek.event.plan-gapless", "odek.event.data-plan")
def test_plan_versions_have_no_gap(told: Told) -> None:
    counts = {"steps": 2, "done": 0, "in_progress": 1, "blocked": 0, "pending": 1}
    told.run.plan_created(steps=2, version=1)
    told.run.plan_updated(**counts, version=2)
    told.run.plan_created(steps=1, version=3)
    for version in (3, 5, 1):
        with pytest.raises(UsageError):
            told.run.plan_updated(**counts, version=version)
    assert [payload.version for payload in told.payloads] == [1, 2, 3]
    assert not any(hasattr(payload, "iteration") for payload in told.payloads)


def test_a_negative_count_is_the_callers_fault(told: Told) -> None:
    with pytest.raises(InvalidParamsError):
        told.run.iteration_completed(1, input_tokens=-1, output_tokens=0)
    assert told.payloads == []
