"""The octet 0.3 wire with one process generation, host side: a state machine without IO.

A driver reads bytes into :meth:`Connection.receive_data` and drains :meth:`~Connection.next_event`; it writes each frame
of :meth:`~Connection.next_frame` and reports it with :meth:`~Connection.frame_written`; it calls
:meth:`~Connection.tick` at :meth:`~Connection.next_deadline`. All calls come from one thread at a time.

What the extension does wrong never raises here. Faults that leave the stream readable are answered, or dropped with a
:class:`~broker.wire.octet.events.Diagnostic`; any other closes the connection: every open request settles with that
failure, and one :class:`~broker.wire.octet.events.Closed` is the last event. What the *host* does wrong raises, and
changes nothing.

Source: octet reference, "Canonical framing and JSON-RPC envelopes", "Methods and terminal semantics" and "Errors".
"""

from __future__ import annotations

import copy
from collections import deque
from collections.abc import Callable
from enum import Enum
from typing import Any, Final

from attrs import field, frozen

from broker import canonical
from broker.clock import Clock
from broker.errors import (
    BrokerError,
    CancelledError,
    CapabilityMismatchError,
    ExitedError,
    InvalidParamsError,
    NegotiationError,
    ProtocolError,
    RemoteError,
    ResourceExhaustedError,
    ResultError,
    TimedOutError,
    UsageError,
)
from broker.limits import CANCEL_GRACE_MS, MAX_WRITER_FRAMES, REQUEST_TIMEOUT_MS, TOMBSTONE_MS
from broker.wire.framing import LineFramer
from broker.wire.jsonrpc import ABSENT, Failure, RequestId, Success, failure, notification, success
from broker.wire.octet.contract import METHODS, limit_faults
from broker.wire.octet.events import Closed, ConnectionEvent, Diagnostic, Initialized
from broker.wire.octet.inbound import Inbound
from broker.wire.octet.incoming import IncomingRequest
from broker.wire.octet.models import InitializeRequest, ProtocolLimits
from broker.wire.octet.negotiation import Expectation, Selection, check_selection
from broker.wire.octet.outbox import Outbox, OutFrame
from broker.wire.octet.requests import HostRequest, RequestTable, WireState
from broker.wire.octet.schema import Text, check, decode, refuse
from broker.wire.quoting import escape

_REASON: Final = Text("MAX_REASON_BYTES")


class Phase(Enum):
    """How far a connection has come; it only moves forward."""

    NEW = "new"
    INITIALIZING = "initializing"
    READY = "ready"
    DRAINING = "draining"
    CLOSED = "closed"


@frozen(kw_only=True)
class ConnectionSettings:
    """What the host decides about a connection.

    ``request_timeout_ms`` is the default time of a request, ``cancel_grace_ms`` the time a cancelled request may stay
    without its terminal answer before the connection fails (``None``: for ever; then its slot is given back after
    ``TOMBSTONE_MS``), and ``limits`` the bounds in force until the offer of ``initialize`` replaces them.
    """

    request_timeout_ms: int = REQUEST_TIMEOUT_MS
    cancel_grace_ms: int | None = CANCEL_GRACE_MS
    limits: ProtocolLimits = field(factory=ProtocolLimits)

    def __attrs_post_init__(self) -> None:
        if self.request_timeout_ms < 1:
            raise UsageError(f"request_timeout_ms must be at least 1, not {self.request_timeout_ms}")
        if self.cancel_grace_ms is not None and not 0 <= self.cancel_grace_ms <= TOMBSTONE_MS:
            raise UsageError(f"cancel_grace_ms must be None or 0 to {TOMBSTONE_MS}, not {self.cancel_grace_ms}")


class Connection:
    """One process generation's connection. See the module's text for how it is driven."""

    def __init__(self, *, clock: Clock, settings: ConnectionSettings | None = None, extension: str) -> None:
        self._clock = clock
        self._settings = settings or ConnectionSettings()
        self._extension = extension
        self._phase = Phase.NEW
        self._selection: Selection | None = None
        self._failure: BrokerError | None = None
        bound = self._settings.limits.max_frame_bytes
        self._framer = LineFramer(bound)
        self._outbox = Outbox(bound)
        self._requests = RequestTable()
        self._initialize: HostRequest | None = None
        self._held_cancels: deque[HostRequest] = deque()
        self._events: deque[ConnectionEvent] = deque()
        self._inbound = Inbound(self)
        self._eof = False

    def __repr__(self) -> str:
        return f"<Connection {self._extension} {self._phase.value}>"

    @property
    def phase(self) -> Phase:
        """How far the connection has come."""
        return self._phase

    @property
    def selection(self) -> Selection | None:
        """The contract, from the moment it exists; never that of a refused selection."""
        return self._selection

    @property
    def failure(self) -> BrokerError | None:
        """Why the connection closed; ``None`` while it is open and after an orderly end."""
        return self._failure

    @property
    def queued_frames(self) -> int:
        """Frames waiting to be taken by :meth:`next_frame`."""
        return len(self._outbox)

    # -- what the host asks for ----------------------------------------------------------------------------------------

    def initialize(
        self,
        params: dict[str, Any],
        expectation: Expectation,
        on_settled: Callable[[HostRequest], None] | None = None,
    ) -> HostRequest:
        """Queue ``initialize`` under id 1; settles with the :class:`~broker.wire.octet.negotiation.Selection`.

        ``params`` are the complete parameters (model ``InitializeRequest``). Until the answer has been judged, frames of
        both directions are bounded by the offered ``max_frame_bytes``; from then on by the selected one.

        Raises :class:`~broker.errors.UsageError` when called twice, :class:`~broker.errors.InvalidParamsError` for
        parameters the contract does not allow, :class:`~broker.errors.ResourceExhaustedError` for too large ones.
        """
        if self._phase is not Phase.NEW:
            raise UsageError(f"initialize was called in phase {self._phase.value}", extension=self._extension)
        offer = decode(InitializeRequest, params, what="params of initialize").contract
        faults = limit_faults(offer.limits, "contract.limits")
        if faults:
            refuse(faults, what="params of initialize", error=InvalidParamsError)
        request = HostRequest(
            method="initialize",
            body=_body("initialize", params),
            timeout_ms=self._settings.request_timeout_ms,
            started_ms=self._clock.monotonic_ms(),
            bypass_slots=True,
            decode=lambda result: check_selection(result, offer=offer, expectation=expectation),
            on_settled=on_settled,
        )
        bound = offer.limits.max_frame_bytes
        self._check_size(request, bound)
        self._set_bound(bound)
        self._phase = Phase.INITIALIZING
        self._initialize = request
        self._requests.add(request)
        self._pump()
        return request

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

        Raises :class:`~broker.errors.CapabilityMismatchError` when the contract or the phase does not allow the method,
        :class:`~broker.errors.ResourceExhaustedError` for a frame over the selected bound or too many waiting requests,
        :class:`~broker.errors.CanonicalError` for parameters without a canonical form. Nothing is sent in those cases.
        """
        self._check_may_send(method, is_notification=False)
        if self._phase is Phase.DRAINING and not bypass_slots:
            raise CapabilityMismatchError(
                f"{self._extension} is draining and takes no {method}", extension=self._extension, method=method
            )
        if timeout_ms is None:
            timeout_ms = self._settings.request_timeout_ms
        elif timeout_ms < 1:
            raise UsageError(f"timeout_ms must be at least 1, not {timeout_ms}", method=method)
        request = HostRequest(
            method=method,
            body=_body(method, params),
            timeout_ms=timeout_ms,
            started_ms=self._clock.monotonic_ms(),
            bypass_slots=bypass_slots,
            decode=decode,
            on_settled=on_settled,
        )
        self._check_size(request, self._outbox.bound)
        self._requests.check_room()
        self._requests.add(request)
        self._pump()
        return request

    def cancel(self, request: HostRequest, reason: str) -> None:
        """Release the caller of ``request`` with :class:`~broker.errors.CancelledError`, and tell the extension if need be.

        A frame that has not begun to leave is skipped. Otherwise one ``$/cancelRequest`` follows it, and the extension
        has ``cancel_grace_ms`` to answer. ``initialize`` cannot be cancelled on the wire: the connection closes.
        ``reason`` is at most 4096 bytes. Does nothing when the request has settled.
        """
        faults = check(_REASON, reason, "reason")
        if faults:
            refuse(faults, what="cancel", error=InvalidParamsError)
        if not request.settled:
            detail = f"{request.method} was cancelled: {escape(reason)}"
            self._abandon(request, reason, CancelledError(detail, reason=reason, dispatched=request.dispatched))

    def notify(self, method: str, params: Any) -> bool:
        """Queue a notification; ``False`` if it was dropped, the writer queue being full or the connection closed.

        Raises like :meth:`request` for a method, a phase or a size that is not allowed.
        """
        if self._phase is Phase.CLOSED:
            return False
        self._check_may_send(method, is_notification=True)
        payload = canonical.encode(notification(method, params))
        self._outbox.check_size(len(payload))
        if not self._outbox.has_room:
            return False
        self._outbox.push(payload)
        return True

    def answer(self, incoming: IncomingRequest, result: dict[str, Any]) -> None:
        """Answer the extension's request. Does nothing if the extension took it back, or the connection is closed.

        A result over the frame bound is replaced by ``resource_exhausted``. If the writer queue is full, or not even an
        error fits the bound, the connection fails. Raises :class:`~broker.errors.UsageError` for a second answer.
        """
        if self._may_answer(incoming):
            payload = canonical.encode(success(incoming.id, result))
            self._inbound.table.close(incoming)
            if len(payload) <= self._outbox.bound:
                self._push_answer(payload)
            else:
                self.push_refusal(incoming.id, "resource_exhausted")

    def refuse(self, incoming: IncomingRequest, error: BrokerError, *, data: Any = None) -> None:
        """Answer with the table's code and message of ``error``, and ``data`` if it is given; otherwise as :meth:`answer`."""
        if self._may_answer(incoming):
            canonical.encode(data)
            self._inbound.table.close(incoming)
            self.push_refusal(incoming.id, error.name, ABSENT if data is None else data)

    def drain(self) -> None:
        """Take no new requests but those that bypass the slots; what is open goes on."""
        if self._phase is Phase.READY:
            self._phase = Phase.DRAINING
        elif self._phase in (Phase.NEW, Phase.INITIALIZING):
            raise UsageError(f"cannot drain in phase {self._phase.value}", extension=self._extension)

    def fail(self, error: BrokerError) -> None:
        """Close with ``error``: every open request settles with a copy of it; nothing more is read or written."""
        if error.extension is None:
            error.extension = self._extension
        self._end(error, error)

    def close(self) -> None:
        """Close in good order. Requests that are still open settle with :class:`~broker.errors.CancelledError`."""
        self._end(None, CancelledError(f"the connection to {self._extension} was closed", reason="closed"))

    # -- the driver's side ---------------------------------------------------------------------------------------------

    def receive_data(self, data: bytes) -> None:
        """Take bytes read from the extension. Nothing happens until :meth:`next_event`."""
        if self._phase is not Phase.CLOSED:
            self._framer.feed(data)

    def receive_eof(self) -> None:
        """Take the end of the extension's output; judged when everything before it has been."""
        self._eof = True

    def next_event(self) -> ConnectionEvent | None:
        """The next event, reading buffered bytes one frame at a time until there is one; ``None`` when they are used up."""
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
            frame = self._outbox.pop()
        except ResourceExhaustedError as error:
            self.fail(error)
            return None
        if frame is not None:
            if frame.request is not None:
                frame.request.state = WireState.WRITING
                frame.request.frame = None
            self._pump()
        return frame

    def frame_written(self, frame: OutFrame) -> None:
        """Say that all bytes of ``frame`` have been written."""
        request = frame.request
        if request is None or request.state is not WireState.WRITING:
            return
        request.state = WireState.SENT
        if self._requests.is_tombstone(request):
            self._send_cancel(request)

    def tick(self) -> None:
        """Do what has become due by the clock: timeouts, and what follows a cancel that is not answered."""
        now_ms = self._clock.monotonic_ms()
        while (request := self._requests.timers.pop_due(now_ms)) is not None:
            if not self._requests.is_tombstone(request):
                observed = now_ms - request.started_ms
                detail = f"no answer to {request.method} within {request.timeout_ms} ms"
                error = TimedOutError(
                    detail, dispatched=request.dispatched, observed=observed, maximum=request.timeout_ms
                )
                self._abandon(request, "timeout", error)
                continue
            assert request.cancelled_ms is not None
            observed, grace_ms = now_ms - request.cancelled_ms, self._settings.cancel_grace_ms
            if grace_ms is not None:
                detail = f"no answer to the cancelled {request.method} within {grace_ms} ms"
                self.fail(TimedOutError(detail, method=request.method, observed=observed, maximum=grace_ms))
                return
            self._requests.forget(request)
            self.diagnose(f"cancelled {request.method} (id {request.id}) was not answered in {observed} ms: forgotten")
            self._pump()

    def next_deadline(self) -> int | None:
        """The monotonic millisecond at which :meth:`tick` has something to do, or ``None``."""
        return self._requests.timers.next_due_ms()

    # -- what Inbound needs --------------------------------------------------------------------------------------------

    def emit(self, event: ConnectionEvent) -> None:
        """Queue an event for the driver."""
        if self._phase is not Phase.CLOSED:
            self._events.append(event)

    def diagnose(self, text: str) -> None:
        """Queue a diagnostic, made safe to print."""
        self.emit(Diagnostic(escape(f"{self._extension}: {text}")))

    def push_refusal(self, request_id: RequestId, name: str, data: Any = ABSENT) -> None:
        """Queue an error answer, without ``data`` if the frame bound leaves no room for it."""
        payload = canonical.encode(failure(request_id, name, data))
        if len(payload) > self._outbox.bound:
            payload = canonical.encode(failure(request_id, name))
        self._push_answer(payload)

    def settle_answer(self, envelope: Success | Failure) -> None:
        """Give a terminal answer of the extension to whom it belongs."""
        assert type(envelope.id) is int
        request = self._requests.answered(envelope.id)
        if request is None:
            self.diagnose(f"answer to id {envelope.id}, which is unknown or already answered: ignored")
        elif request.settled:
            self.diagnose(f"late answer to the cancelled {request.method} (id {request.id}): ignored")
        elif request is self._initialize:
            self._settle_initialize(request, envelope)
        elif isinstance(envelope, Failure):
            self._pump()
            self._settle(request, error=self._remote(RemoteError, request, envelope))
        else:
            self._pump()
            self._settle_result(request, envelope.result)
        self._pump()

    # -- inside --------------------------------------------------------------------------------------------------------

    def _check_may_send(self, method: str, *, is_notification: bool) -> None:
        if self._phase is Phase.CLOSED:
            raise CapabilityMismatchError(
                f"the connection to {self._extension} is closed", extension=self._extension, method=method
            ) from self._failure
        if self._selection is None:
            raise UsageError(f"{method} before the contract exists", extension=self._extension, method=method)
        row = METHODS.get(method)
        allowed = row is not None and row.from_host and method in self._selection.methods
        if not allowed or row is None or row.notification is not is_notification:
            raise CapabilityMismatchError(
                f"{self._extension} has not selected {method}", extension=self._extension, method=method
            )
        if method in ("initialize", "$/cancelRequest"):
            raise UsageError(f"{method} is sent by the connection itself", extension=self._extension, method=method)

    def _check_size(self, request: HostRequest, bound: int) -> None:
        size = len(request.payload(self._requests.next_id))
        if size > bound:
            raise self._too_large(request.method, size, bound)

    def _too_large(self, method: str, size: int, bound: int) -> ResourceExhaustedError:
        return ResourceExhaustedError(
            f"{method} to {self._extension} takes a frame of {size} bytes, over the bound of {bound}",
            extension=self._extension,
            method=method,
            limit="MAX_FRAME_BYTES",
            observed=size,
            maximum=bound,
        )

    def _set_bound(self, bound: int) -> None:
        self._framer.set_bound(bound)
        self._outbox.bound = bound

    def _pump(self) -> None:
        """Move what waits into the writer queue, as far as room and slots allow: cancels first."""
        while self._phase is not Phase.CLOSED and self._outbox.has_room:
            if self._held_cancels:
                held = self._held_cancels.popleft()
                if self._requests.is_tombstone(held):
                    self._send_cancel(held)
                continue
            request = self._requests.take_ready()
            if request is None:
                return
            payload = request.payload(self._requests.next_id)
            if len(payload) > self._outbox.bound:
                # It fitted when it was made; ids have grown by a digit since.
                self._requests.drop(request)
                self._settle(request, error=self._too_large(request.method, len(payload), self._outbox.bound))
                continue
            self._requests.number(request, self._outbox.push(payload, request))

    def _abandon(self, request: HostRequest, reason: str, error: BrokerError) -> None:
        error.extension, error.method = self._extension, request.method
        if request is self._initialize:
            self.fail(error)
            return
        if not request.dispatched:
            if request.frame is not None:
                self._outbox.discard(request.frame)
            self._requests.withdraw(request)
            self._pump()
        else:
            now_ms, grace_ms = self._clock.monotonic_ms(), self._settings.cancel_grace_ms
            request.cancel_reason, request.cancelled_ms = reason, now_ms
            for forgotten in self._requests.bury(request, now_ms + (TOMBSTONE_MS if grace_ms is None else grace_ms)):
                self.diagnose(f"too many cancelled requests: {forgotten.method} (id {forgotten.id}) is forgotten")
            if request.state is WireState.SENT:
                self._send_cancel(request)
        self._settle(request, error=error)

    def _send_cancel(self, request: HostRequest) -> None:
        if not self._outbox.has_room:
            self._held_cancels.append(request)
            return
        for params in ({"id": request.id, "reason": request.cancel_reason}, {"id": request.id}):
            payload = canonical.encode(notification("$/cancelRequest", params))
            if len(payload) <= self._outbox.bound:
                self._outbox.push(payload)
                return
        self.diagnose(f"the frame bound of {self._outbox.bound} bytes leaves no room to cancel {request.method}")

    def _may_answer(self, incoming: IncomingRequest) -> bool:
        if incoming.cancelled or self._phase is Phase.CLOSED:
            return False
        if incoming.answered:
            raise UsageError(f"{incoming.method} was answered already", extension=self._extension)
        return True

    def _push_answer(self, payload: bytes) -> None:
        if not self._outbox.has_room:
            self.fail(
                ProtocolError(
                    f"{self._extension} does not read: no room to answer it",
                    name="resource_exhausted",
                    limit="MAX_WRITER_FRAMES",
                    observed=len(self._outbox) + 1,
                    maximum=MAX_WRITER_FRAMES,
                )
            )
        elif len(payload) > self._outbox.bound:
            self.fail(
                ProtocolError(
                    f"{self._extension} selected a frame bound that leaves no room to answer it",
                    name="resource_exhausted",
                    limit="MAX_FRAME_BYTES",
                    observed=len(payload),
                    maximum=self._outbox.bound,
                )
            )
        else:
            self._outbox.push(payload)

    def _settle_initialize(self, request: HostRequest, envelope: Success | Failure) -> None:
        self._initialize = None
        try:
            if isinstance(envelope, Failure):
                raise self._remote(NegotiationError, request, envelope)
            assert request.decode is not None
            selection = request.decode(envelope.result)
        except NegotiationError as error:
            self.fail(error)
            self._settle(request, error=self._copy_for(request, error))
            return
        self._selection = selection
        self._set_bound(selection.limits.max_frame_bytes)
        self._requests.slots = selection.limits.max_concurrent_requests
        self._phase = Phase.READY
        self.emit(Initialized(selection, selection.tools))
        self._settle(request, result=selection)

    def _settle_result(self, request: HostRequest, result: Any) -> None:
        try:
            value = result if request.decode is None else request.decode(result)
        except Exception as cause:
            error = self._result_error(request, cause)
            self._settle(request, error=error)
        else:
            self._settle(request, result=value)

    def _result_error(self, request: HostRequest, cause: Exception) -> ResultError:
        error = ResultError(f"{self._extension} answered {request.method} with a result that is not valid: {cause}")
        if isinstance(cause, BrokerError):
            error.__dict__.update(cause.__dict__)
        error.extension, error.method, error.__cause__ = self._extension, request.method, cause
        return error

    def _remote(
        self, kind: type[RemoteError] | type[NegotiationError], request: HostRequest, envelope: Failure
    ) -> RemoteError | NegotiationError:
        remote = envelope.error
        return kind(
            f"{self._extension} answered {request.method} with {remote.code} {remote.message}",
            name=remote.name,
            extension=self._extension,
            method=request.method,
            data=remote.data,
        )

    def _settle(self, request: HostRequest, *, result: Any = None, error: BrokerError | None = None) -> None:
        request.settled, request.result, request.error = True, result, error
        if request.on_settled is not None:
            try:
                request.on_settled(request)
            except Exception as cause:  # a caller's bug must not keep the others from settling
                self.diagnose(f"on_settled of {request.method} raised {type(cause).__name__}: {cause}")

    def _end_of_stream(self) -> None:
        self._framer.finish()
        if self._phase is Phase.DRAINING and not any(self._requests.unsettled()):
            self.close()
        else:
            self.fail(ExitedError(f"{self._extension} closed its output"))

    def _end(self, failure: BrokerError | None, error: BrokerError) -> None:
        if self._phase is Phase.CLOSED:
            return
        self._phase = Phase.CLOSED
        self._failure = failure
        self._outbox.clear()
        self._held_cancels.clear()
        self._inbound.table.clear()
        self._events.append(Closed(failure))
        for request in self._requests.clear():
            self._settle(request, error=self._copy_for(request, error))

    def _copy_for(self, request: HostRequest, error: BrokerError) -> BrokerError:
        """``error`` for one caller: each raises its own object, which says whether that caller's request had left."""
        own = copy.copy(error)
        own.__cause__ = error.__cause__
        own.method = request.method
        if isinstance(own, CancelledError | TimedOutError | ExitedError):
            own.dispatched = request.dispatched
        return own


def _body(method: str, params: Any) -> bytes:
    """The canonical frame of a request from its second key on; its first key, ``id``, is given when it is queued."""
    if params is None:
        raise InvalidParamsError(f"params of {method} must not be null", method=method, path="params")
    return canonical.encode(notification(method, params))[1:]
