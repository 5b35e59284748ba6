"""A message that was taken but whose credit is still used."""

from __future__ import annotations

import threading
from collections.abc import Callable
from types import TracebackType

from broker.bus.event import Event
from broker.bus.inbox import Inbox
from broker.bus.messages import Message, message_size
from broker.limits import MAX_BUS_MESSAGE_AGE_MS


class Held:
    """A message on its way out. ``release()`` it once its bytes are written, or ``discard()`` it; a context manager.

    ``valid`` turns false when the message may no longer be delivered: its subscription, binding or publisher is gone,
    it is older than 30000 ms, or the peer is closed. A writer that has not started then drops it; one that has started
    must end its stream, never finish the frame.
    """

    __slots__ = ("_inbox", "_lock", "_now", "_original", "_released", "message")

    def __init__(self, lock: threading.Lock, now: Callable[[], int], inbox: Inbox, message: Message) -> None:
        self._lock = lock
        self._now = now
        self._inbox = inbox
        self._original = message
        self.message: Message = message
        self._released = False

    @property
    def size(self) -> int:
        """Frame bytes of the message, which is the credit in use."""
        return message_size(self._original)

    @property
    def valid(self) -> bool:
        """Whether the message may still be delivered at this moment."""
        with self._lock:
            if self._inbox.closed or not self._inbox.valid(self._original):
                return False
            last = self.valid_until_ms
            return last is None or self._now() <= last

    @property
    def valid_until_ms(self) -> int | None:
        """Last monotonic millisecond at which an event is young enough; None for a notice, which does not age."""
        if type(self._original) is Event:
            return self._original._admitted_ms + MAX_BUS_MESSAGE_AGE_MS
        return None

    def release(self) -> None:
        """Give the message's credit back. Idempotent."""
        with self._lock:
            if not self._released:
                self._released = True
                del self._inbox.held[self]

    def discard(self) -> None:
        """Give the credit back for a message that was not delivered; it is counted as what it became. Idempotent."""
        with self._lock:
            if self._released:
                return
            self._released = True
            inbox, message = self._inbox, self._original
            del inbox.held[self]
            if inbox.closed:
                inbox.discarded += 1
            elif not inbox.valid(message):
                inbox.invalidated += 1
            elif self.valid_until_ms is not None and self._now() > self.valid_until_ms:
                inbox.expired += 1
            else:
                inbox.discarded += 1

    def __enter__(self) -> Held:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.release()
