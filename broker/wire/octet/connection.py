"""The octet 0.3 wire with one process generation, host side: a state machine without IO.

A driver reads bytes into :meth:`Connection.receive_data` and drains :meth:`~Connection.next_event`; it writes each
frame of :meth:`~Connection.next_frame` and reports it with :meth:`~Connection.frame_written`; it calls
:meth:`~Connection.tick` at :meth:`~Connection.next_deadline`. All calls come from one thread at a time.

What the extension does wrong never raises here. Faults that leave the stream readable are answered, or dropped with a
:class:`~broker.wire.octet.events.Diagnostic`; any other closes the connection: every open request settles with that
failure, and one :class:`~broker.wire.octet.events.Closed` is the last event. What the *host* does wrong raises, and
changes nothing.

Source: octet reference, "Canonical framing and JSON-RPC envelopes", "Methods and terminal semantics" and "Errors".
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from broker import canonical
from broker.clock import Clock
from broker.errors import (
    BrokerError,
    CapabilityMismatchError,
    InvalidParamsError,
    NegotiationError,
    ResourceExhaustedError,
    UsageError,
)
from broker.wire.extension_connection import ExtensionConnection
from broker.wire.jsonrpc import ABSENT, ErrorObject, RequestId, notification, success
from broker.wire.octet.contract import METHODS, limit_faults
from broker.wire.octet.events import ConnectionEvent, Initialized
from broker.wire.octet.inbound import Inbound
from broker.wire.octet.incoming import IncomingRequest
from broker.wire.octet.models import InitializeRequest
from broker.wire.octet.negotiation import Expectation, Selection, check_selection
from broker.wire.octet.outbound import OctetOutbound
from broker.wire.octet.schema import decode, refuse
from broker.wire.octet.settings import ConnectionSettings, Phase
from broker.wire.outbox import OutFrame
from broker.wire.requests import HostRequest

__all__ = ["Connection", "ConnectionSettings", "HostRequest", "IncomingRequest", "OutFrame", "Phase"]


class Connection(ExtensionConnection[ConnectionEvent, OctetOutbound]):
    """One process generation's connection. See the module's text for how it is driven."""

    _inbound: Inbound

    def __init__(self, *, clock: Clock, settings: ConnectionSettings | None = None, extension: str) -> None:
        super().__init__(clock=clock, settings=settings, extension=extension)
        self._selection: Selection | None = None
        self._inbound = Inbound(self)
        self.outbound: OctetOutbound = OctetOutbound(
            self, bound=self._framer.max_bytes, cancel_grace_ms=self._settings.cancel_grace_ms
        )

    @property
    def selection(self) -> Selection | None:
        """The contract, from the moment it exists; never that of a refused selection."""
        return self._selection

    # -- what the host asks for ----------------------------------------------------------------------------------------

    def initialize(
        self,
        params: dict[str, Any],
        expectation: Expectation,
        on_settled: Callable[[HostRequest], None] | None = None,
    ) -> HostRequest:
        """Queue ``initialize`` under id 1; settles with the :class:`~broker.wire.octet.negotiation.Selection`.

        ``params`` are the complete parameters (model ``InitializeRequest``). Until the answer has been judged, frames
        of both directions are bounded by the offered ``max_frame_bytes``; from then on by the selected one.

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
        self.outbound.check_size("initialize", request.size(self.outbound.requests.next_id), bound)
        self._set_bound(bound)
        self._phase = Phase.INITIALIZING
        self._initialize = request
        self.outbound.add(request)
        return request

    def notify(self, method: str, params: Any) -> bool:
        """Queue a notification; ``False`` if it was dropped, the writer queue being full or the connection closed.

        Raises like :meth:`request` for a method, a phase or a size that is not allowed.
        """
        if self._phase is Phase.CLOSED:
            return False
        self._check_may_send(method, is_notification=True)
        payload = canonical.encode(notification(method, params))
        self.outbound.check_size(method, len(payload))
        if not self.outbound.outbox.has_room:
            return False
        self.outbound.outbox.push(payload)
        return True

    def answer(self, incoming: IncomingRequest, result: dict[str, Any]) -> None:
        """Answer the extension's request. Does nothing if the extension took it back, or the connection is closed.

        A result over the frame bound is replaced by ``resource_exhausted``. If the writer queue is full, or not even an
        error fits the bound, the connection fails. Raises :class:`~broker.errors.UsageError` for a second answer and
        for a result that is not an object.
        """
        if type(result) is not dict:
            raise UsageError(f"a result must be a dict, not {type(result).__name__}", method=incoming.method)
        if self._may_answer(incoming):
            payload = canonical.encode(success(incoming.id, result))
            self._inbound.table.close(incoming)
            try:
                self.outbound.check_size(incoming.method, len(payload))
            except ResourceExhaustedError as error:
                self.diagnose(f"an answer was replaced by {error.name}: {error}")
                self.outbound.push_refusal(incoming.id, error.name)
            else:
                self.outbound.push_answer(payload)

    def refuse(self, incoming: IncomingRequest, error: BrokerError, *, data: Any = None) -> None:
        """Answer with the table's code and message of ``error``, and ``data`` if given; otherwise as :meth:`answer`."""
        if self._may_answer(incoming):
            canonical.encode(data)
            self._inbound.table.close(incoming)
            self.outbound.push_refusal(incoming.id, error.name, ABSENT if data is None else data)

    # -- for the two halves --------------------------------------------------------------------------------------------

    def answers_initialize(self, request_id: RequestId) -> bool:
        """Whether an answer under this id is the one to ``initialize``."""
        return self._initialize is not None and request_id == self._initialize.id

    def settle_initialize(self, request: HostRequest, answer: ErrorObject | None, result: Any) -> None:
        """Judge the answer to ``initialize``: the contract exists from here on, or the connection fails."""
        self._initialize = None
        assert request.decode is not None
        try:
            if answer is not None:
                raise NegotiationError(
                    f"{self._extension} refused to start: {answer.code} {answer.message}",
                    name=answer.name,
                    method=request.method,
                    data=answer.data,
                )
            selection: Selection = request.decode(result)
        except NegotiationError as error:
            self.fail(error)
            self.outbound.settle(request, error=self.outbound.copy_for(request, error))
            return
        self._selection = selection
        self._set_bound(selection.limits.max_frame_bytes)
        self.outbound.requests.slots = selection.limits.max_concurrent_requests
        self._phase = Phase.READY
        self.emit(Initialized(selection, selection.tools))
        self.outbound.settle(request, result=selection)

    @property
    def unread_bytes(self) -> int:
        """Bytes received whose frames :meth:`next_event` has not come to."""
        return self._framer.pending

    def drop_notification(self, what: str) -> None:
        """Say that a received notification is of no use to anyone; one too many ends the stream."""
        try:
            self._inbound.drop(what)
        except BrokerError as error:
            self.fail(error)

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

    def _set_bound(self, bound: int) -> None:
        self._framer.set_bound(bound)
        self.outbound.outbox.bound = bound

    def _encode_body(self, method: str, params: Any) -> bytes:
        return _body(method, params)


def _body(method: str, params: Any) -> bytes:
    """The canonical frame of a request from its second key on; its first key, ``id``, is given when it is queued."""
    if params is None:
        raise InvalidParamsError(f"params of {method} must not be null", method=method, path="params")
    return canonical.encode(notification(method, params))[1:]
