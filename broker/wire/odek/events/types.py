"""Every type of ``odek.event/v1`` as a class with exactly its data fields, and the envelope around them.

What belongs to the envelope (``iteration``, ``tool``) is a field of those types that have it and of no other. Counts
are whole numbers that every JSON reader holds exactly; anything else is refused where it is made, by its name.

Source: odek contract, "Event schema"; odek notes, sections 5.1 and 5.2.
"""

from __future__ import annotations

from typing import Any, ClassVar, Final, TypeAlias

from attrs import Attribute, field, fields, frozen

from broker.errors import InvalidParamsError
from broker.limits import MAX_PORTABLE_INTEGER

EVENT_SCHEMA: Final = "odek.event/v1"

ERROR_CLASSES: Final = ("context_canceled", "deadline_exceeded", "tool_error", "error")
"""The words that may be told of a failure; its text never is."""

LIMIT_NAMES: Final = ("runtime", "tool_calls", "input_tokens", "output_tokens", "cost_usd")
"""The limits of a budget, as events and errors name them."""

_ENVELOPE: Final = "broker.envelope"
_NAME: Final = "broker.name"


def _fault(attribute: Attribute[Any], expected: str, value: Any) -> InvalidParamsError:
    return InvalidParamsError(f"{attribute.name}: expected {expected}, got {value!a:.80}", path=attribute.name)


def _count(least: int, instance: Any, attribute: Attribute[Any], value: Any) -> None:
    if type(value) is not int or not least <= value <= MAX_PORTABLE_INTEGER:
        raise _fault(attribute, f"an integer from {least} to {MAX_PORTABLE_INTEGER}", value)


def _from_zero(instance: Any, attribute: Attribute[Any], value: Any) -> None:
    _count(0, instance, attribute, value)


def _from_one(instance: Any, attribute: Attribute[Any], value: Any) -> None:
    _count(1, instance, attribute, value)


def _text(instance: Any, attribute: Attribute[Any], value: Any) -> None:
    if not isinstance(value, str):
        raise _fault(attribute, "a string", value)


def _flag(instance: Any, attribute: Attribute[Any], value: Any) -> None:
    if type(value) is not bool:
        raise _fault(attribute, "a boolean", value)


def _amount(instance: Any, attribute: Attribute[Any], value: Any) -> None:
    if type(value) not in (int, float) or not 0 <= value <= MAX_PORTABLE_INTEGER:
        raise _fault(attribute, "a number that is not negative", value)


def _word(*words: str) -> Any:
    def check(instance: Any, attribute: Attribute[Any], value: Any) -> None:
        if value not in words:
            raise _fault(attribute, f"one of {', '.join(words)}", value)

    return field(validator=check)


def _optional(check: Any) -> Any:
    def check_or_none(instance: Any, attribute: Attribute[Any], value: Any) -> None:
        if value is not None:
            check(instance, attribute, value)

    return field(default=None, validator=check_or_none)


def _counted() -> Any:
    return field(validator=_from_zero)


def _string(name: str | None = None) -> Any:
    return field(validator=_text, metadata={} if name is None else {_NAME: name})


def _iteration() -> Any:
    return field(validator=_from_one, metadata={_ENVELOPE: True})


def _tool() -> Any:
    return field(validator=_text, metadata={_ENVELOPE: True})


@frozen(kw_only=True)
class RunStarted:
    """The first event of a run."""

    type: ClassVar[str] = "run_started"
    model: str = _string()
    sandbox: bool = field(validator=_flag)
    max_iterations: int = _counted()


@frozen(kw_only=True)
class IterationCompleted:
    """An iteration is over; tokens are sums over the run, and the final answer calls no tool."""

    type: ClassVar[str] = "iteration_completed"
    iteration: int = _iteration()
    input_tokens: int = _counted()
    output_tokens: int = _counted()
    tools_called: int = _counted()


@frozen(kw_only=True)
class ToolCallStarted:
    """A tool is about to be called. ``args`` are the raw arguments, which leave an emitter only if it was told so.

    ``args_summary`` is ``None`` for a tool that is not recognised; see :mod:`broker.wire.odek.events.summary`.
    """

    type: ClassVar[str] = "tool_call_started"
    iteration: int = _iteration()
    tool: str = _tool()
    call_id: str = _string()
    args_sha256: str = _string()
    args_bytes: int = _counted()
    args_summary: dict[str, Any] | None = None
    args: str | None = field(default=None, repr=False)


@frozen(kw_only=True)
class ToolCallCompleted:
    """A tool answered. ``result_bytes`` is the length of what the model is shown, in UTF-8."""

    type: ClassVar[str] = "tool_call_completed"
    iteration: int = _iteration()
    tool: str = _tool()
    call_id: str = _string()
    duration_ms: int = _counted()
    result_bytes: int = _counted()
    artifact_count: int = _counted()


@frozen(kw_only=True)
class ToolCallFailed:
    """A tool call failed: it was denied, unknown, timed out, or the tool raised or said so."""

    type: ClassVar[str] = "tool_call_failed"
    iteration: int = _iteration()
    tool: str = _tool()
    call_id: str = _string()
    duration_ms: int = _counted()
    error_class: str = _word(*ERROR_CLASSES)


@frozen(kw_only=True)
class SessionSaved:
    """The session was put into storage."""

    type: ClassVar[str] = "session_saved"
    message_count: int = _counted()


@frozen(kw_only=True)
class ContextTrimmed:
    """Messages were left out of the model's context; ``mode`` is ``proactive`` or ``survival``."""

    type: ClassVar[str] = "context_trimmed"
    mode: str = _word("proactive", "survival")
    dropped_groups: int = _counted()
    truncated_results: int = _counted()


@frozen(kw_only=True)
class BudgetExceeded:
    """A limit of the budget was reached; ``cost_usd`` is told in US dollars, everything else in whole units."""

    type: ClassVar[str] = "budget_exceeded"
    iteration: int | None = field(default=None, metadata={_ENVELOPE: True})
    limit_name: str = _word(*LIMIT_NAMES)
    observed: int | float = field(validator=_amount)
    limit: int | float = field(validator=_amount)


@frozen(kw_only=True)
class RunCompleted:
    """The run ended well; tokens are its totals."""

    type: ClassVar[str] = "run_completed"
    duration_ms: int = _counted()
    input_tokens: int = _counted()
    output_tokens: int = _counted()


@frozen(kw_only=True)
class RunFailed:
    """The run ended with an error."""

    type: ClassVar[str] = "run_failed"
    duration_ms: int = _counted()
    error_class: str = _word(*ERROR_CLASSES)


@frozen(kw_only=True)
class PlanCreated:
    """A plan was made, or replaced as a whole. Counts only, never what a step says."""

    type: ClassVar[str] = "plan_created"
    steps: int = _counted()
    version: int = _counted()


@frozen(kw_only=True)
class PlanUpdated:
    """Any other change that gave the plan a new version."""

    type: ClassVar[str] = "plan_updated"
    steps: int = _counted()
    done: int = _counted()
    in_progress: int = _counted()
    blocked: int = _counted()
    pending: int = _counted()
    version: int = _counted()


@frozen(kw_only=True)
class SubagentDenied:
    """A child was denied the use of ``tool``; ``risk_class`` is told as ``class``, tasks are counted from 0."""

    type: ClassVar[str] = "subagent_denied"
    tool: str | None = field(default=None, metadata={_ENVELOPE: True})
    task_index: int = _counted()
    risk_class: str = _string("class")
    reason: str = _string()


@frozen(kw_only=True)
class SubagentSpawned:
    """A child process was started. ``goal_sha256`` is the beginning of its goal's digest, 16 digits."""

    type: ClassVar[str] = "subagent_spawned"
    task_id: str = _string()
    pid: int = _counted()
    depth: int = _counted()
    timeout_seconds: int = _counted()
    goal_sha256: str = _string()


@frozen(kw_only=True)
class SubagentCompleted:
    """A child ended."""

    type: ClassVar[str] = "subagent_completed"
    task_id: str = _string()
    status: str = _string()
    iterations: int | None = _optional(_from_zero)
    duration_seconds: int | float = field(validator=_amount)
    tokens_used: int = _counted()
    artifact_count: int = _counted()


@frozen(kw_only=True)
class SubagentConcurrencyWait:
    """A child waits because enough others run."""

    type: ClassVar[str] = "subagent_concurrency_wait"
    task_index: int = _counted()
    waited_ms: int = _counted()


Payload: TypeAlias = (
    RunStarted
    | IterationCompleted
    | ToolCallStarted
    | ToolCallCompleted
    | ToolCallFailed
    | SessionSaved
    | ContextTrimmed
    | BudgetExceeded
    | RunCompleted
    | RunFailed
    | PlanCreated
    | PlanUpdated
    | SubagentDenied
    | SubagentSpawned
    | SubagentCompleted
    | SubagentConcurrencyWait
)

EVENT_TYPES: Final[dict[str, type[Payload]]] = {
    payload.type: payload
    for payload in (
        RunStarted,
        IterationCompleted,
        ToolCallStarted,
        ToolCallCompleted,
        ToolCallFailed,
        SessionSaved,
        ContextTrimmed,
        BudgetExceeded,
        RunCompleted,
        RunFailed,
        PlanCreated,
        PlanUpdated,
        SubagentDenied,
        SubagentSpawned,
        SubagentCompleted,
        SubagentConcurrencyWait,
    )
}
"""The sixteen types by their names."""


def split(payload: Any) -> tuple[dict[str, Any], dict[str, Any]]:
    """What of a payload stands in the envelope, and its data; optional members that are ``None`` are left out."""
    envelope: dict[str, Any] = {}
    data: dict[str, Any] = {}
    for attribute in fields(type(payload)):
        value = getattr(payload, attribute.name)
        if value is not None:
            where = envelope if attribute.metadata.get(_ENVELOPE) else data
            where[attribute.metadata.get(_NAME, attribute.name)] = value
    return envelope, data
