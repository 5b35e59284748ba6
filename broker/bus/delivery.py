"""Handing messages to handlers: outside the lock, first in first out for each peer, no failure stops the rest."""

from __future__ import annotations

import inspect
import logging
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any, TypeAlias

from attrs import frozen

from broker.bus.messages import Event, Message, TopicAvailable, TopicUnavailable
from broker.errors import UsageError
from broker.limits import MAX_DELIVERY_ROUNDS

if TYPE_CHECKING:
    from broker.bus.bus import Bus
    from broker.bus.peer import Peer

Handler: TypeAlias = Callable[[Message], Any]

# Calling one of these makes an object and runs nothing of the handler's body.
_NEVER_RUN = (inspect.iscoroutinefunction, inspect.isasyncgenfunction, inspect.isgeneratorfunction)

_LOG = logging.getLogger("broker.bus")


@frozen
class HandlerFailure:
    """A handler raised. ``message`` is None when the message itself could not be decoded for this peer."""

    peer: str
    topic: str | None
    handler: Handler | None
    message: Message | None
    error: BaseException


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
            self._peer._handlers = tuple(other for other in self._peer._handlers if other is not self)


def check_handler(handler: object) -> None:
    """A handler is called, not awaited; anything else is refused where it is registered."""
    if not callable(handler):
        raise UsageError(f"a handler is a callable of one message, got {type(handler).__name__}")
    call = getattr(handler, "__call__", None)  # noqa: B004 - an object may have an async __call__
    if any(kind(each) for each in (handler, call) for kind in _NEVER_RUN):
        raise UsageError("deliver_to() calls plain functions; in a coroutine use `async for message in peer`")


def log_failure(failure: HandlerFailure) -> None:
    """The default report of a failing handler: one error record with its traceback."""
    _LOG.error(
        "handler %r of peer %r failed on %s",
        failure.handler,
        failure.peer,
        failure.topic or "a binding notice",
        exc_info=failure.error,
    )


def deliver(bus: Bus, peers: Callable[[], Iterable[Peer]]) -> int:
    """Deliver what is queued, then what the handlers caused, in rounds; see :meth:`broker.Bus.deliver`."""
    total = 0
    interrupt: KeyboardInterrupt | None = None
    for _ in range(MAX_DELIVERY_ROUNDS):
        delivered = 0
        for peer in peers():
            if not peer._handlers or not peer._inbox.queue or not bus._begin_delivery(peer):
                continue
            try:
                count, stop = _deliver_peer(bus, peer)
            finally:
                bus._end_delivery(peer)
            delivered += count
            interrupt = interrupt or stop
        total += delivered
        if not delivered or interrupt:
            break
    if interrupt:
        raise interrupt
    return total


def _deliver_peer(bus: Bus, peer: Peer) -> tuple[int, KeyboardInterrupt | None]:
    count = 0
    interrupt = None
    # Only what is queued now: what handlers publish meanwhile waits its turn, so one peer cannot starve the others.
    for _ in range(len(peer._inbox.queue)):
        # The last handler may have removed itself: what is left waits for the next one.
        if not peer._handlers:
            break
        try:
            message = peer.take()
        except BaseException as error:
            # A topic class may run code of its own, so it is contained as a handler is.
            topic = getattr(error, "topic", None)
            bus._handler_failed(peer, HandlerFailure(peer.name, topic, None, None, error))
            if isinstance(error, KeyboardInterrupt):
                interrupt = error
            continue
        if message is None:
            break
        count += 1
        for registration in peer._handlers:
            if not registration.active:
                continue
            try:
                registration.handler(message)
            except BaseException as error:
                # SystemExit or a cancellation raised by a plugin must not end the host or starve the others.
                topic = message.topic if isinstance(message, Event | TopicAvailable | TopicUnavailable) else None
                bus._handler_failed(peer, HandlerFailure(peer.name, topic, registration.handler, message, error))
                if isinstance(error, KeyboardInterrupt):
                    interrupt = error
    return count, interrupt
