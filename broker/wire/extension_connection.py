"""What the host's side of every connection to an extension process has in common, whichever version it speaks.

A wire adds how it is initialised, which methods may be sent, how bodies become bytes, and what a received line means.
Source: octet notes, sections 2.4 and 2.5.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable
from typing import Any, Final, Protocol, TypeVar

from broker.clock import Clock
from broker.errors import (
    BrokerError,
    CancelledError,
    CapabilityMismatchError,
    ExitedError,
    InvalidParamsError,
    ResourceExhaustedError,
    UsageError,
)
from broker.wire.connection import BaseConnection
from broker.wire.events import Closed, Diagnostic
from broker.wire.framing import LineFramer
from broker.wire.octet.incoming import IncomingRequest
from broker.wire.octet.schema import Text, check, refuse
from broker.wire.octet.settings import ConnectionSettings, Phase, check_duration
from broker.wire.outbound import Outbound
from broker.wire.outbox import OutFrame
from broker.wire.quoting import escape
from broker.wire.requests import HostRequest

EventT = TypeVar("EventT")
OutT = TypeVar("OutT", bound=Outbound)

_REASON: Final = Text("MAX_REASON_BYTES")


class LineReader(Protocol):
    """The reading half of a connection."""

    def receive(self, line: bytes) -> None:
        """Handle one line without its LF. Raising a :class:`~broker.errors.BrokerError` closes the connection."""
        ...

    def clear(self) -> None:
        """The connection has closed: nothing is answered any more."""
        ...


class ExtensionConnection(BaseConnection[EventT, OutT]):
    """A connection to one process generation. A subclass sets ``outbound`` and ``_inbound`` after this constructor."""

    _inbound: LineReader

    def __init__(
        self, *, clock: Clock, settings: ConnectionSettings | None, extension: str, line_bound: int | None = None
    ) -> None:
        super().__init__(extension)
        self._clock = clock
        self._settings = settings or ConnectionSettings()
        self._phase = Phase.NEW
        self._framer = LineFramer(line_bound or self._settings.limits.max_frame_bytes)
        self._initialize: HostRequest | None = None

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self._extension} {self._phase.value}>"

    @property
    def phase(self) -> Phase:
        """How far the connection has come."""
        return self._phase

    # -- what the host asks for ----------------------------------------------------------------------------------------

    def request(
        self,
        method: str,
        params: Any,
        *,
        timeout_ms: int | None = None,
        bypass_slots: bool = False,
        decode: Callable[[Any], Any] | None = None,
        on_settled: Callable[[HostRequest], None] | None = None,
    ) -> HostRequest:
        """Send a request, at once or when a slot and room in the writer queue are free; the timeout runs meanwhile.

        ``bypass_slots`` is for requests that must not wait behind calls and may still be made while draining (session
        hooks, shutdown). ``decode`` turns the result into what :attr:`HostRequest.result` will be; if it raises, the
        request settles with :class:`~broker.errors.ResultError` and the stream lives. ``on_settled`` is called once.

        Raises :class:`~broker.errors.CapabilityMismatchError` when what was negotiated or the phase does not allow the
        method, :class:`~broker.errors.UsageError` for a ``timeout_ms`` that is no whole number from 1 on,
        :class:`~broker.errors.ResourceExhaustedError` for a frame over the bound or too many waiting requests,
        and for parameters the wire cannot hold :class:`~broker.errors.CanonicalError` on the canonical wire,
        :class:`~broker.errors.InvalidParamsError` on the other. Nothing is sent in those cases.
        """
        self._check_may_send(method, is_notification=False)
        if self._phase is Phase.DRAINING and not bypass_slots:
            raise CapabilityMismatchError(
                f"{self._extension} is draining and takes no {method}", extension=self._extension, method=method
            )
        if timeout_ms is None:
            timeout_ms = self._settings.request_timeout_ms
        check_duration("timeout_ms", timeout_ms, method=method)
        request = HostRequest(
            method=method,
            body=self._encode_body(method, params),
            timeout_ms=timeout_ms,
            started_ms=self._clock.monotonic_ms(),
            bypass_slots=bypass_slots,
            decode=decode,
            on_settled=on_settled,
        )
        self.outbound.check_size(method, request.size(self.outbound.requests.next_id))
        self.outbound.requests.check_room()
        self.outbound.add(request)
        return request

    def cancel(self, request: HostRequest, reason: str) -> None:
        """Release the caller with :class:`~broker.errors.CancelledError`, and tell the extension if need be.

        A frame that has not begun to leave is skipped. Otherwise one ``$/cancelRequest`` follows it, where the version
        has one, and the extension has ``cancel_grace_ms`` to answer. ``initialize`` cannot be cancelled on the wire:
        the connection closes. ``reason`` is at most 4096 bytes. Does nothing when the request has settled.
        """
        faults = check(_REASON, reason, "reason")
        if faults:
            refuse(faults, what="cancel", error=InvalidParamsError)
        if not request.settled and self._phase is not Phase.CLOSED:
            detail = f"{request.method} was cancelled: {escape(reason)}"
            self.abandon(request, reason, CancelledError(detail, reason=reason, dispatched=request.dispatched))

    def drain(self) -> None:
        """Take no new requests but those that bypass the slots; what is open goes on."""
        if self._phase is Phase.READY:
            self._phase = Phase.DRAINING
        elif self._phase in (Phase.NEW, Phase.INITIALIZING):
            raise UsageError(f"cannot drain in phase {self._phase.value}", extension=self._extension)

    # -- the driver's side ---------------------------------------------------------------------------------------------

    def receive_data(self, data: bytes) -> None:
        """Take bytes read from the extension. Nothing happens until :meth:`next_event`."""
        if self._phase is not Phase.CLOSED:
            self._framer.feed(data)

    def receive_eof(self) -> None:
        """Take the end of the extension's output; judged when everything before it has been."""
        self._eof = True

    def next_event(self) -> EventT | Diagnostic | Closed | None:
        """The next event; buffered bytes are read one frame at a time until there is one. ``None``: no more for now."""
        while not self._events and self._phase is not Phase.CLOSED:
            try:
                frame = self._framer.next_frame()
                if frame is not None:
                    self._inbound.receive(frame)
                elif self._eof:
                    self._end_of_stream()
                else:
                    break
            except BrokerError as error:
                self.fail(error)
        return self._events.popleft() if self._events else None

    def next_frame(self) -> OutFrame | None:
        """The next frame to write, now counted as being written; ``None`` when there is none."""
        try:
            return self.outbound.next_frame()
        except ResourceExhaustedError as error:
            self.fail(error)
            return None

    def tick(self) -> None:
        """Do what has become due by the clock: timeouts, and what follows a cancel that is not answered."""
        now_ms = self._clock.monotonic_ms()
        while (request := self.outbound.requests.timers.pop_due(now_ms)) is not None:
            self.outbound.expire(request, now_ms)

    def next_deadline(self) -> int | None:
        """The monotonic millisecond at which :meth:`tick` has something to do, or ``None``."""
        return self.outbound.requests.timers.next_due_ms()

    # -- for the two halves --------------------------------------------------------------------------------------------

    def abandon(self, request: HostRequest, reason: str, error: BrokerError) -> None:
        """Settle an open request with ``error``; for ``initialize`` that is the end of the connection."""
        if request is self._initialize:
            error.method = request.method
            self.fail(error)
        else:
            self.outbound.abandon(request, reason, error, self._clock.monotonic_ms())

    # -- what a wire adds ----------------------------------------------------------------------------------------------

    @abstractmethod
    def _check_may_send(self, method: str, *, is_notification: bool) -> None:
        """Raise unless the host may send ``method`` now."""

    @abstractmethod
    def _encode_body(self, method: str, params: Any) -> bytes:
        """The frame of a request from its second key on; its first key, ``id``, is given when it is queued."""

    # -- inside --------------------------------------------------------------------------------------------------------

    def _may_answer(self, incoming: IncomingRequest) -> bool:
        if incoming.cancelled or self._phase is Phase.CLOSED:
            return False
        if incoming.answered:
            raise UsageError(f"{incoming.method} was answered already", extension=self._extension)
        return True

    def _end_of_stream(self) -> None:
        self._framer.finish()
        if self._phase is Phase.DRAINING and not any(self.outbound.requests.unsettled()):
            self.close()
        else:
            self.fail(ExitedError(f"{self._extension} closed its output"))

    def _end(self, failure: BrokerError | None, error: BrokerError) -> None:
        if self._phase is Phase.CLOSED:
            return
        self._phase = Phase.CLOSED
        self._failure = failure
        self._inbound.clear()
        self.outbound.end(error)
        self.emit(Closed(failure))
        self._ended = True
