"""The events of one run, told in the order that the contract asks for, whatever loop it is that runs.

A host says what happens; ids, hashes, summaries, durations, classes of errors and the order of the last events are seen
to here. Nothing is raised for what tools, models or errors are; only for a host that tells an impossible story, such as
two ends of a run. Source: odek contract, "Event schema"; odek notes, sections 5.2 to 5.5.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator, Sequence
from typing import Any, Final

from attrs import field, frozen

from broker.clock import Clock, SystemClock
from broker.errors import BudgetExceededError, CancelledError, TimedOutError, UsageError
from broker.limits import MAX_PORTABLE_INTEGER
from broker.wire.odek.events.summary import args_summary
from broker.wire.odek.events.types import (
    BudgetExceeded,
    IterationCompleted,
    Payload,
    PlanCreated,
    PlanUpdated,
    RunCompleted,
    RunFailed,
    RunStarted,
    ToolCallCompleted,
    ToolCallFailed,
    ToolCallStarted,
)

_MICRO: Final = 1_000_000


@frozen
class ModelToolCall:
    """A tool call as a model asked for it. ``arguments`` is its raw text, ``id`` the provider's, if it gave one."""

    tool: str
    arguments: str = field(repr=False)
    id: str | None = None


def call_id(provider_id: str | None, *, iteration: int, index: int) -> str:
    """The key of a tool call: the provider's id, else made from the iteration, from 1, and its place, from 0."""
    return provider_id or f"it{iteration}-call{index}"


def started(call: ModelToolCall, *, iteration: int, index: int) -> ToolCallStarted:
    """The start of ``call``, the ``index``-th of its batch. Its hash and length are of the raw text in UTF-8."""
    raw = call.arguments.encode("utf-8", "surrogatepass")
    return ToolCallStarted(
        iteration=iteration,
        tool=call.tool,
        call_id=call_id(call.id, iteration=iteration, index=index),
        args_sha256=hashlib.sha256(raw).hexdigest(),
        args_bytes=len(raw),
        args_summary=args_summary(call.tool, call.arguments),
        args=call.arguments,
    )


def error_class(error: BaseException, *, of_tool: bool = False) -> str:
    """One of the four words for ``error``; ``of_tool`` when it is the failure of a tool call."""
    # asyncio and concurrent.futures have each a class of their own; neither may be loaded for the sake of a name.
    names = {kind.__name__ for kind in type(error).__mro__}
    if isinstance(error, TimedOutError | TimeoutError):
        return "deadline_exceeded"
    if isinstance(error, CancelledError | KeyboardInterrupt) or "CancelledError" in names:
        return "context_canceled"
    return "tool_error" if of_tool else "error"


def budget_error(error: BaseException | None) -> BudgetExceededError | None:
    """The spent budget behind ``error``: itself, in its group, or what it was raised from; else ``None``."""
    seen: set[int] = set()
    waiting = [error]
    while waiting:
        found = waiting.pop()
        if found is None or id(found) in seen:
            continue
        seen.add(id(found))
        if isinstance(found, BudgetExceededError):
            return found
        if isinstance(found, BaseExceptionGroup):
            waiting += found.exceptions
        waiting += (found.__context__, found.__cause__)
    return None


def budget_event(error: BudgetExceededError, *, iteration: int | None = None) -> BudgetExceeded:
    """The event of a spent budget; a cost is told in US dollars."""
    observed, maximum = error.observed or 0, error.maximum or 0
    cost = error.limit == "cost_usd"
    return BudgetExceeded(
        iteration=iteration,
        limit_name=error.limit or "",
        observed=observed / _MICRO if cost else observed,
        limit=maximum / _MICRO if cost else maximum,
    )


class OpenCall:
    """A tool call whose start was told; its end is told once."""

    def __init__(self, run: RunEvents, start: ToolCallStarted) -> None:
        self.start: ToolCallStarted = start
        self._run = run
        self._began = run.clock.monotonic_ms()
        self._ended = False

    @property
    def call_id(self) -> str:
        """The key of the call."""
        return self.start.call_id

    def completed(self, result: str | int, *, artifact_count: int = 0) -> None:
        """The tool answered. ``result`` is what the model is shown, or its bytes in UTF-8.

        Whether it is a failure is the caller's to know: no text of a result makes it one.
        """
        size = len(result.encode("utf-8", "surrogatepass")) if isinstance(result, str) else result
        common = self._end()
        self._run.emit(ToolCallCompleted(**common, result_bytes=size, artifact_count=artifact_count))

    def failed(self, error: BaseException | None = None) -> None:
        """The tool failed, was denied or unknown; without an ``error`` the tool itself said so."""
        word = "tool_error" if error is None else error_class(error, of_tool=True)
        self._run.emit(ToolCallFailed(**self._end(), error_class=word))

    def _end(self) -> dict[str, Any]:
        if self._ended:
            raise UsageError(f"the end of call {self.call_id!a:.140} was told already")
        self._ended = True
        return {
            "iteration": self.start.iteration,
            "tool": self.start.tool,
            "call_id": self.call_id,
            "duration_ms": self._run.elapsed_ms(self._began),
        }


class RunEvents:
    """Tells the events of one run to ``emit``, such as the ``emit`` of an emitter. For one thread.

    Counts of tokens are sums over the run. Plan versions that would leave a gap, a second end, or an event after it
    raise :class:`~broker.errors.UsageError`.
    """

    def __init__(self, emit: Callable[[Payload], object], *, clock: Clock | None = None) -> None:
        self.clock: Clock = clock or SystemClock()
        self._emit = emit
        self._began = self.clock.monotonic_ms()
        self._iteration: int | None = None
        self._budget_told = False
        self._closed = False
        self._plan_version: int | None = None

    def emit(self, payload: Payload) -> None:
        """Tell any event that has no method of its own."""
        if self._closed:
            raise UsageError(f"{payload.type} after the end of the run")
        self._emit(payload)

    def elapsed_ms(self, since: int) -> int:
        """Milliseconds since the monotonic reading ``since``."""
        return max(0, self.clock.monotonic_ms() - since)

    def started(self, *, model: str, sandbox: bool, max_iterations: int) -> None:
        """The run begins."""
        self._began = self.clock.monotonic_ms()
        self.emit(RunStarted(model=model, sandbox=sandbox, max_iterations=max_iterations))

    def tool_calls(self, iteration: int, calls: Sequence[ModelToolCall]) -> tuple[OpenCall, ...]:
        """A batch is about to run: all its starts are told, in order, before anything runs or is asked about."""
        self._iteration = iteration
        return tuple(self._open(calls, iteration))

    def _open(self, calls: Sequence[ModelToolCall], iteration: int) -> Iterator[OpenCall]:
        for index, call in enumerate(calls):
            start = started(call, iteration=iteration, index=index)
            self.emit(start)
            yield OpenCall(self, start)

    def iteration_completed(
        self, iteration: int, *, input_tokens: int, output_tokens: int, tools_called: int = 0
    ) -> None:
        """An iteration is over, its tool results included."""
        self._iteration = iteration
        self.emit(
            IterationCompleted(
                iteration=iteration,
                input_tokens=_count(input_tokens),
                output_tokens=_count(output_tokens),
                tools_called=tools_called,
            )
        )

    def plan_created(self, *, steps: int, version: int) -> None:
        """A plan was made or replaced."""
        self._next_version(version)
        self.emit(PlanCreated(steps=steps, version=version))

    def plan_updated(
        self, *, steps: int, done: int, in_progress: int, blocked: int, pending: int, version: int
    ) -> None:
        """The plan changed in any other way that gave it a new version."""
        self._next_version(version)
        self.emit(
            PlanUpdated(
                steps=steps, done=done, in_progress=in_progress, blocked=blocked, pending=pending, version=version
            )
        )

    def _next_version(self, version: int) -> None:
        if self._plan_version is not None and version != self._plan_version + 1:
            raise UsageError(f"plan version {version} does not follow {self._plan_version}", path="version")
        self._plan_version = version

    def budget_exceeded(self, error: BudgetExceededError, *, iteration: int | None = None) -> None:
        """A limit was reached; told once, before the run's end."""
        if not self._budget_told:
            self._budget_told = True
            self.emit(budget_event(error, iteration=self._iteration if iteration is None else iteration))

    def completed(self, *, input_tokens: int, output_tokens: int) -> None:
        """The run ended well."""
        event = RunCompleted(
            duration_ms=self.elapsed_ms(self._began),
            input_tokens=_count(input_tokens),
            output_tokens=_count(output_tokens),
        )
        self._close(event)

    def failed(self, error: BaseException) -> None:
        """The run ended with ``error``; a spent budget behind it is told first, if that was not done yet."""
        spent = budget_error(error)
        if spent is not None:
            self.budget_exceeded(spent)
        word = "error" if spent is not None else error_class(error)
        self._close(RunFailed(duration_ms=self.elapsed_ms(self._began), error_class=word))

    def _close(self, event: RunCompleted | RunFailed) -> None:
        self.emit(event)
        self._closed = True


def _count(value: int) -> int:
    """A sum that may have grown past what every reader holds exactly."""
    return min(value, MAX_PORTABLE_INTEGER)
