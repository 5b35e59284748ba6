"""One provider stream as the host's program sees it: a bounded buffer of events that ends exactly once."""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable
from typing import TYPE_CHECKING

from attrs import define

from broker.errors import BrokerError, CancelledError
from broker.host.outcome import Outcome
from broker.limits import MAX_PROVIDER_STREAM_BUFFER
from broker.wire.octet.stream_models import Finished, StreamPayload
from broker.wire.octet.stream_receiver import StreamReceiver
from broker.wire.requests import HostRequest

_LOG = logging.getLogger("broker.host")

if TYPE_CHECKING:
    from broker.host.services.streams import StreamTable


class ProviderStream:
    """An inference stream from a model that an extension provides. Made by :meth:`broker.Session.stream`.

    Attributes:
        id: the stream's id on the wire.
        provider_id, model_id: whom it was asked of.
        accepted: settles when the provider has accepted, or with why it has not.

    Use it in the session's own thread.
    """

    def __init__(self, table: StreamTable, stream_id: str, provider_id: str, model_id: str) -> None:
        self.id = stream_id
        self.provider_id = provider_id
        self.model_id = model_id
        self.accepted: Outcome[None] = Outcome()
        self._table = table
        self._buffer: deque[StreamPayload] = deque()
        self._error: BrokerError | None = None
        self._closed = False
        self._listener: Callable[[], object] | None = None

    def __repr__(self) -> str:
        state = "ended" if self.ended else "closed" if self._closed else "open"
        return f"<ProviderStream {self.id} of {self.provider_id}/{self.model_id}, {state}>"

    @property
    def closed(self) -> bool:
        """Whether it is over on the wire; what was received before can still be taken."""
        return self._closed

    @property
    def ended(self) -> bool:
        """Whether no event is left to take, now or later; :meth:`take` then raises why, unless all went well."""
        return self._closed and not self._buffer

    @property
    def buffered(self) -> int:
        """Events received and not taken."""
        return len(self._buffer)

    @property
    def full(self) -> bool:
        """Whether another event would be one too many."""
        return len(self._buffer) >= MAX_PROVIDER_STREAM_BUFFER

    def take(self) -> StreamPayload | None:
        """The next event; ``None`` when there is none now, or none any more (:attr:`ended`).

        The last event of a stream that went well is :class:`~broker.wire.octet.stream_models.Finished`. Otherwise,
        after what was received, this raises why it ended: :class:`~broker.errors.StreamError`,
        :class:`~broker.errors.TimedOutError`, :class:`~broker.errors.ResourceExhaustedError` (its reader did not take
        its events), :class:`~broker.errors.CancelledError`, :class:`~broker.errors.ExitedError`,
        :class:`~broker.errors.RemoteError` or :class:`~broker.errors.ResultError`.
        """
        if self._buffer and self.accepted.done:
            was_full = self.full
            payload = self._buffer.popleft()
            self._table.taken(self, was_full=was_full)
            return payload
        if self._error is not None:
            raise self._error
        return None

    def cancel(self, reason: str = "user") -> None:
        """End the stream now; the provider is told once, as well as it can be, and what was received is dropped.

        ``reason`` is at most 4096 bytes and goes to the provider. Idempotent.
        """
        self._table.cancel(self, reason)
        if self._buffer and self._error is None:
            # It had gone well, but its reader has not come to the end, and now never will.
            self._error = CancelledError(f"provider stream {self.id} was cancelled", reason=reason)
        self._buffer.clear()

    def set_listener(self, listener: Callable[[], object] | None) -> None:
        """Call ``listener()`` whenever there is something new to take, or the stream is over; one at a time."""
        self._listener = listener

    # -- for the table -------------------------------------------------------------------------------------------------

    def put(self, payload: StreamPayload) -> None:
        """One more event."""
        self._buffer.append(payload)
        if self.accepted.done:
            self.tell()

    def close(self, error: BrokerError | None = None) -> None:
        """It is over on the wire, once."""
        self._closed, self._error = True, error
        if error is not None:
            if not self.accepted.done:
                self._buffer.clear()
            self.accepted.fail(error)
        self.tell()

    def spoil(self, error: BrokerError) -> None:
        """It had finished, its reader has not come to that, and more came after it: its end is ``error`` instead."""
        if self._buffer and isinstance(self._buffer[-1], Finished):
            self._buffer.pop()
            self._error = error

    def tell(self) -> None:
        """Wake the reader."""
        if self._listener is not None:
            try:
                self._listener()
            except KeyboardInterrupt:
                raise
            except BaseException:
                # One reader's fault is not that of the process, nor of the others that wait for it.
                _LOG.exception("the listener of provider stream %s failed", self.id)


@define(eq=False)
class LiveStream:
    """A stream with what the reader need not see."""

    stream: ProviderStream
    receiver: StreamReceiver
    idle_ms: int
    total_ms: int
    started_ms: int
    heard_ms: int
    request: HostRequest | None = None
    full_since_ms: int | None = None
    stalled_ms: int = 0

    @property
    def over(self) -> bool:
        """Whether it is over on the wire."""
        return self.stream.closed


@define
class PastStream:
    """A stream that has ended: when, and whether its provider was told to stop."""

    ended_ms: int
    told: bool
