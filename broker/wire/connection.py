"""What the host's side of every connection has in common, whatever its wire: its events, its failure, its end."""

from __future__ import annotations

from abc import abstractmethod
from collections import deque
from typing import Generic, TypeVar

from broker.errors import BrokerError, CancelledError
from broker.wire.events import Closed, Diagnostic
from broker.wire.outbound import Outbound
from broker.wire.outbox import OutFrame
from broker.wire.quoting import escape

EventT = TypeVar("EventT")
OutT = TypeVar("OutT", bound=Outbound)


class BaseConnection(Generic[EventT, OutT]):
    """A connection to the process called ``extension``, with events of type ``EventT``; a wire adds what it says."""

    outbound: OutT

    def __init__(self, extension: str) -> None:
        self._extension = extension
        self._failure: BrokerError | None = None
        self._events: deque[EventT | Diagnostic | Closed] = deque()
        self._eof = self._ended = False

    @property
    def extension(self) -> str:
        """The name of the extension or server, for texts."""
        return self._extension

    @property
    def failure(self) -> BrokerError | None:
        """Why the connection closed; ``None`` while it is open and after an orderly end."""
        return self._failure

    @property
    def queued_frames(self) -> int:
        """Frames waiting to be taken by ``next_frame``."""
        return len(self.outbound.outbox)

    def fail(self, error: BrokerError) -> None:
        """Close with ``error``: every open request settles with a copy of it; nothing more is read or written."""
        if error.extension is None:
            error.extension = self._extension
        self._end(error, error)

    def close(self) -> None:
        """Close in good order. Requests that are still open settle with :class:`~broker.errors.CancelledError`."""
        self._end(None, CancelledError(f"the connection to {self._extension} was closed", reason="closed"))

    def frame_written(self, frame: OutFrame) -> None:
        """Say that all bytes of ``frame`` have been written."""
        self.outbound.frame_written(frame)

    def emit(self, event: EventT | Diagnostic | Closed) -> None:
        """Queue an event for the driver; for the halves of the connection."""
        if not self._ended:
            self._events.append(event)

    def diagnose(self, text: str) -> None:
        """Queue a diagnostic, made safe to print."""
        self.emit(Diagnostic(escape(f"{self._extension}: {text}")))

    @abstractmethod
    def _end(self, failure: BrokerError | None, error: BrokerError) -> None:
        """Close with ``failure``, and settle what is open with ``error``. Does nothing when closed."""
