"""How a service asks the host's own code: who asks, and answers that come at once or later."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from functools import partial
from typing import Any, TypeAlias, TypeVar

from attrs import frozen

from broker.errors import InternalError, UsageError
from broker.host.outcome import Outcome

T = TypeVar("T")

Answer: TypeAlias = T | Outcome[T] | Awaitable[T]
"""What the host's code may answer with: the value, an outcome that settles later, or under asyncio an awaitable."""

Awaiting: TypeAlias = Callable[[Awaitable[Any]], Outcome[Any]]
"""How a driver that has a loop turns an awaitable into an outcome."""


@frozen
class Principal:
    """Who asks: one process generation of one extension of one session, as the host knows it and nobody claims it."""

    session_id: str
    extension: str
    instance_id: str
    generation: int


def require_methods(bound: object, path: str, *methods: str) -> None:
    """Raise :class:`~broker.errors.UsageError` unless what a host binds under ``path`` has these methods.

    A service that lacks one would be offered to extensions, and fail when the first of them asks.
    """
    for method in methods:
        if isinstance(bound, type) or not callable(getattr(bound, method, None)):
            raise UsageError(f"{path}: a service bound there needs a method {method}", path=path)


def ask(call: Callable[..., Answer[T]], *arguments: Any, awaiting: Awaiting | None = None) -> Outcome[T]:
    """Call the host's code; what it raises, now or later, is the outcome's error.

    An exception that is none of broker's becomes an internal error that names its type alone: its text is the host's.
    """
    outcome: Outcome[T] = Outcome()
    asked: Outcome[Any] = Outcome()
    asked.settle_with(lambda: call(*arguments))
    if asked.error is not None:
        outcome.fail(_sealed(asked.error))
        return outcome
    answer = asked.result()
    if isinstance(answer, Awaitable):
        if awaiting is None:
            outcome.fail(UsageError("this host has no loop: its services must answer with a value or an Outcome"))
            return outcome
        adopted: Outcome[Any] = Outcome()
        adopted.settle_with(partial(awaiting, answer))
        if adopted.error is not None:
            outcome.fail(_sealed(adopted.error))
            return outcome
        answer = adopted.result()
    if not isinstance(answer, Outcome):
        outcome.succeed(answer)
        return outcome

    def settled(done: Outcome[T]) -> None:
        if done.error is not None:
            outcome.fail(_sealed(done.error))
        else:
            outcome.succeed(done.result())

    answer.add_callback(settled)
    return outcome


def _sealed(error: Any) -> Any:
    """``error``, or what is said in place of an exception that broker did not make."""
    cause = error.__cause__
    if isinstance(error, InternalError) and cause is not None:
        sealed = InternalError(f"the host's own code raised {type(cause).__name__}")
        sealed.__cause__ = cause
        return sealed
    return error
