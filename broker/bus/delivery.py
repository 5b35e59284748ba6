"""Handing messages to handlers: outside the lock, first in first out for each peer, no failure stops the rest."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from broker.bus.event import Event, with_decoded
from broker.bus.handlers import Handler, HandlerFailure
from broker.bus.messages import Message
from broker.bus.typed import TypedTopic
from broker.limits import MAX_BUS_MESSAGE_AGE_MS, MAX_DELIVERY_ROUNDS

if TYPE_CHECKING:
    from broker.bus.bus import Bus
    from broker.bus.peer import Peer


def deliver(bus: Bus) -> int:
    """Deliver what is queued, then what the handlers caused, in rounds; see :meth:`broker.Bus.deliver`."""
    total = 0
    for _ in range(MAX_DELIVERY_ROUNDS):
        now = bus._begin_round()
        if now is None:
            break
        try:
            total += _round(bus, bus._in_delivery or (), now)
        finally:
            bus._in_delivery = None
        # Without the lock: who comes between looks once more whether its work is left to it (Kernel._begin_round).
        if not bus._stirred:
            break
    return total


def _round(bus: Bus, peers: Iterable[Peer], now: int) -> int:
    """Give each peer's handlers what is queued at its turn; what they cause for earlier ones waits for the next round.

    Without the lock: while a bus delivers, this thread alone takes messages from the peers with handlers.
    """
    count = 0
    interrupt = None
    aged = now > bus._expiry_at
    for peer in peers:
        inbox = peer._inbox
        queue = inbox.queue
        waiting = len(queue)
        while waiting:
            waiting -= 1
            handler = inbox.direct
            if handler is None or aged:
                given, failure = _deliver_next(bus, peer, now)
                count += given
                interrupt = failure or interrupt
                continue
            try:
                message = queue.popleft()
            except IndexError:
                break  # the peer was detached, or is read with take() as well
            count += 1
            try:
                handler(message)
            except BaseException as error:
                # SystemExit or a cancellation raised by a plugin must not end the host or starve the others.
                interrupt = _failed(bus, peer, handler, message, error) or interrupt
    if interrupt is not None:
        raise interrupt
    return count


def _deliver_next(bus: Bus, peer: Peer, now: int) -> tuple[int, KeyboardInterrupt | None]:
    """The same for the next message of a peer whose messages have to be looked at, or whose handlers are several.

    Gives how many messages were delivered, and what the caller of ``deliver()`` must see.
    """
    inbox = peer._inbox
    handlers = inbox.handlers
    # The last handler may have removed itself: what is left waits for the next one.
    message = inbox.pop_any() if handlers else None
    if message is None:
        return 0, None
    if type(message) is Event:
        interest = inbox.subscription(message)
        if interest is None:
            bus._discard_stale(peer, expired=False)
            return 0, None
        if now - message._admitted_ms > MAX_BUS_MESSAGE_AGE_MS:
            bus._discard_stale(peer, expired=True)
            return 0, None
        if interest.reader is not None:
            try:
                message = decoded(message, interest.reader)
            except BaseException as error:
                # A topic class may run code of its own, so it is contained as a handler is.
                return 0, _failed(bus, peer, None, None, error)
    elif not inbox.valid(message):
        bus._discard_stale(peer, expired=False)
        return 0, None
    if inbox.careful and not inbox.reads_classes and not inbox.queue:
        bus._relax(peer)
    interrupt = None
    for registration in handlers:
        if registration._active:
            try:
                registration.handler(message)
            except BaseException as error:
                interrupt = _failed(bus, peer, registration.handler, message, error) or interrupt
    return 1, interrupt


def _failed(
    bus: Bus,
    peer: Peer,
    handler: Handler | None,
    message: Message | None,
    error: BaseException,
) -> KeyboardInterrupt | None:
    """Report a failure; gives it back if it is one that the caller of ``deliver()`` must see."""
    topic = getattr(error if message is None else message, "topic", None)
    bus._handler_failed(peer, HandlerFailure(peer.name, topic, handler, message, error))
    return error if isinstance(error, KeyboardInterrupt) else None


def decoded(message: Message, reader: TypedTopic) -> Message:
    """The message with its payload as an instance of the subscriber's class.

    Outside the lock: the class and its converters are the subscriber's own code.
    """
    return with_decoded(message, reader.decode(message._payload)) if type(message) is Event else message
