"""Handlers: how one is registered, and what is told of one that raised."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, TypeAlias

from attrs import frozen

from broker.bus.messages import Message
from broker.errors import UsageError

if TYPE_CHECKING:
    from broker.bus.peer import Peer

Handler: TypeAlias = Callable[[Message], Any]

# Calling one of these makes an object and runs nothing of the handler's body.
_NEVER_RUN = (inspect.iscoroutinefunction, inspect.isasyncgenfunction, inspect.isgeneratorfunction)


class Registration:
    """One handler on one peer; ``remove()`` ends it, also from inside the handler and during a delivery."""

    __slots__ = ("_active", "_peer", "handler")

    def __init__(self, peer: Peer, handler: Handler) -> None:
        self._peer = peer
        self._active = True
        self.handler: Handler = handler

    @property
    def active(self) -> bool:
        """Whether the handler is still called."""
        return self._active

    def remove(self) -> None:
        """Stop calling the handler, at once. Idempotent."""
        self._active = False
        with self._peer._bus._lock:
            inbox = self._peer._inbox
            inbox.set_handlers(tuple(other for other in inbox.handlers if other is not self))
            self._peer._bus._refresh_handled()


def check_handler(handler: object) -> None:
    """A handler is called, not awaited; anything else is refused where it is registered."""
    if not callable(handler):
        raise UsageError(f"a handler is a callable of one message, got {type(handler).__name__}")
    call = getattr(handler, "__call__", None)  # noqa: B004 - an object may have an async __call__
    if any(kind(each) for each in (handler, call) for kind in _NEVER_RUN):
        raise UsageError("deliver_to() calls plain functions; in a coroutine use `async for message in peer`")


@frozen
class HandlerFailure:
    """A handler raised. ``message`` is None when the message itself could not be decoded for this peer."""

    peer: str
    topic: str | None
    handler: Handler | None
    message: Message | None
    error: BaseException


def log_failure(failure: HandlerFailure) -> None:
    """The default report of a failing handler: one error record with its traceback."""
    import logging  # late, as everything that few programs need

    logging.getLogger("broker.bus").error(
        "handler %r of peer %r failed on %s",
        failure.handler,
        failure.peer,
        failure.topic or "a binding notice",
        exc_info=failure.error,
    )
