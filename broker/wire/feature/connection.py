"""The feature-negotiated wire with one process generation, host side: a state machine without IO.

Driven like :class:`broker.wire.octet.connection.Connection`: bytes into :meth:`FeatureConnection.receive_data`, events
out of :meth:`~FeatureConnection.next_event`, frames out of :meth:`~FeatureConnection.next_frame`, each reported with
:meth:`~FeatureConnection.frame_written`, and :meth:`~FeatureConnection.tick` at
:meth:`~FeatureConnection.next_deadline`. All calls come from one thread at a time.

What the extension does wrong never raises here: it is answered, dropped with a diagnostic, or closes the connection, in
which case every open request settles with that failure and one :class:`~broker.wire.events.Closed` is the last event.
What the *host* does wrong raises, and changes nothing.

Source: octet notes, section 5; octet reference, "Version policy".
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from typing import Any, Final

import orjson

from broker.clock import Clock
from broker.errors import (
    BrokerError,
    CancelledError,
    CapabilityMismatchError,
    ExitedError,
    InvalidParamsError,
    NegotiationError,
    ResourceExhaustedError,
    UsageError,
)
from broker.limits import MAX_FEATURE_LINE_BYTES
from broker.wire.connection import BaseConnection
from broker.wire.feature.events import Closed, FeatureEvent, FeatureRequest, Initialized
from broker.wire.feature.features import Version
from broker.wire.feature.inbound import Inbound
from broker.wire.feature.methods import find_method
from broker.wire.feature.negotiation import Agreement, Declared, Offer, judge_answer
from broker.wire.feature.outbound import FeatureOutbound
from broker.wire.feature.refusals import RefusalKind, detail_of, kind_of
from broker.wire.feature.scope import ResourceOwner
from broker.wire.framing import LineFramer
from broker.wire.jsonrpc import success
from broker.wire.mcp.requests import encode
from broker.wire.octet.schema import Text, check, refuse
from broker.wire.octet.settings import ConnectionSettings, Phase
from broker.wire.outbox import OutFrame
from broker.wire.quoting import escape
from broker.wire.requests import HostRequest

_REASON: Final = Text("MAX_REASON_BYTES")
_LINE_BOUND: Final = MAX_FEATURE_LINE_BYTES - 1
"""The framers count what stands before the LF; on this wire the bound counts the LF as well."""


class FeatureConnection(BaseConnection[FeatureEvent, FeatureOutbound]):
    """One process generation's connection. See the module's text for how it is driven.

    ``declares`` are the manifest's contributions that allow a method, ``ui.SURFACE`` for each surface, and ``owner`` is
    the only owner this process may name.
    """

    def __init__(
        self,
        *,
        version: Version,
        clock: Clock,
        extension: str,
        owner: ResourceOwner,
        declares: Collection[str] = (),
        settings: ConnectionSettings | None = None,
    ) -> None:
        super().__init__(extension)
        self.version: Version = version
        self.owner: ResourceOwner = owner
        self._declares = frozenset(declares)
        self._clock = clock
        self._settings = settings or ConnectionSettings()
        self._phase = Phase.NEW
        self._agreement: Agreement | None = None
        self._framer = LineFramer(_LINE_BOUND)
        self._inbound = Inbound(self)
        self._initialize: HostRequest | None = None
        self.outbound: FeatureOutbound = FeatureOutbound(
            self, bound=_LINE_BOUND, cancel_grace_ms=self._settings.cancel_grace_ms, sends_cancels=version != "0.1"
        )

    def __repr__(self) -> str:
        return f"<FeatureConnection {self._extension} {self.version} {self._phase.value}>"

    @property
    def phase(self) -> Phase:
        """How far the connection has come."""
        return self._phase

    @property
    def agreement(self) -> Agreement | None:
        """What was negotiated, from the moment it is; never that of a refused answer."""
        return self._agreement

    def declares(self, contribution: str) -> bool:
        """Whether the manifest declares ``contribution``."""
        return contribution in self._declares

    # -- what the host asks for ----------------------------------------------------------------------------------------

    def initialize(
        self,
        params: dict[str, Any],
        offer: Offer,
        declared: Declared,
        on_settled: Callable[[HostRequest], None] | None = None,
    ) -> HostRequest:
        """Queue ``initialize`` under id 1; settles with the :class:`~broker.wire.feature.negotiation.Agreement`.

        ``params`` are all parameters but ``protocol``, which is the offer's and left out on 0.1. Raises
        :class:`~broker.errors.UsageError` when called twice or for an offer of another version.
        """
        if self._phase is not Phase.NEW:
            raise UsageError(f"initialize was called in phase {self._phase.value}", extension=self._extension)
        if offer.version != self.version or params.get("api_version") != self.version:
            raise UsageError(f"{self._extension} speaks API {self.version} and nothing else", extension=self._extension)
        if self.version != "0.1":
            params = {**params, "protocol": offer.protocol_json()}
        request = HostRequest(
            method="initialize",
            body=encode("initialize", params)[1:],
            timeout_ms=self._settings.request_timeout_ms,
            started_ms=self._clock.monotonic_ms(),
            bypass_slots=True,
            decode=lambda result: judge_answer(result, offer=offer, declared=declared),
            on_settled=on_settled,
        )
        self.outbound.check_size("initialize", request.size(self.outbound.requests.next_id))
        self._phase = Phase.INITIALIZING
        self._initialize = request
        self.outbound.add(request)
        return request

    def request(
        self,
        method: str,
        params: dict[str, Any],
        *,
        timeout_ms: int | None = None,
        bypass_slots: bool = False,
        decode: Callable[[Any], Any] | None = None,
        on_settled: Callable[[HostRequest], None] | None = None,
    ) -> HostRequest:
        """Send a request, at once or when a slot and room in the writer queue are free; the timeout runs meanwhile.

        As :meth:`broker.wire.octet.connection.Connection.request`; on 0.1 there is one slot.
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
            body=encode(method, params)[1:],
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

        As :meth:`broker.wire.octet.connection.Connection.cancel`; 0.1 has no cancel notice, and still has the grace.
        """
        faults = check(_REASON, reason, "reason")
        if faults:
            refuse(faults, what="cancel", error=InvalidParamsError)
        if not request.settled and self._phase is not Phase.CLOSED:
            detail = f"{request.method} was cancelled: {escape(reason)}"
            self.abandon(request, reason, CancelledError(detail, reason=reason, dispatched=request.dispatched))

    def notify(self, method: str, params: dict[str, Any]) -> bool:
        """Queue a lifecycle notification, best effort; ``False`` if it is not going to be sent.

        One the extension did not ask for is not sent, nor one for which the queue has no room; one that has waited too
        long to be written is dropped. Raises as :meth:`request` for a method that is not allowed.
        """
        if self._phase is Phase.CLOSED:
            return False
        self._check_may_send(method, is_notification=True)
        agreement = self._agreement
        assert agreement is not None
        row = find_method(self.version, method)
        if row is not None and row.feature == "lifecycle_events" and method not in agreement.lifecycle_events:
            return False
        payload = encode(method, params)
        self.outbound.check_size(method, len(payload))
        return self.outbound.push_perishable(payload, self._clock.monotonic_ms())

    def answer(self, incoming: FeatureRequest, result: dict[str, Any]) -> None:
        """Answer the extension's request. Does nothing if it was taken back meanwhile, or the connection is closed.

        A result over the bound of a line is replaced by a refusal. Raises :class:`~broker.errors.UsageError` for a
        second answer and for a result that is not an object, ``TypeError`` for one that JSON cannot hold.
        """
        if type(result) is not dict:
            raise UsageError(f"a result must be a dict, not {type(result).__name__}", method=incoming.method)
        if self._may_answer(incoming):
            payload = orjson.dumps(success(incoming.id, result))
            try:
                self.outbound.check_size(incoming.method, len(payload))
            except ResourceExhaustedError as error:
                self.diagnose(f"an answer was replaced by {error.name}: {error}")
                self.refuse(incoming, error)
            else:
                self._inbound.forget(incoming)
                self.outbound.push_answer(payload)

    def refuse(self, incoming: FeatureRequest, error: BrokerError, *, kind: RefusalKind | None = None) -> None:
        """Answer with a refusal, of the kind that stands for ``error`` unless one is given; else as :meth:`answer`."""
        if self._may_answer(incoming):
            self._inbound.forget(incoming)
            self.outbound.push_refusal(incoming.id, kind or kind_of(error), detail_of(error))

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

    def next_event(self) -> FeatureEvent | None:
        """The next event; buffered bytes are read one line at a time until there is one. ``None``: no more for now."""
        while not self._events and self._phase is not Phase.CLOSED:
            try:
                line = self._framer.next_frame()
                if line is not None:
                    self._inbound.receive(line)
                elif self._eof:
                    self._end_of_stream()
                else:
                    break
            except BrokerError as error:
                self.fail(error)
        return self._events.popleft() if self._events else None

    def next_frame(self) -> OutFrame | None:
        """The next frame to write, now counted as being written; ``None`` when there is none."""
        return self.outbound.next_frame()

    def tick(self) -> None:
        """Do what has become due by the clock: timeouts, what follows them, and notices that waited too long."""
        now_ms = self._clock.monotonic_ms()
        while (request := self.outbound.requests.timers.pop_due(now_ms)) is not None:
            self.outbound.expire(request, now_ms)
        dropped = self.outbound.drop_perished(now_ms)
        if dropped:
            self.diagnose(f"{dropped} lifecycle notifications were dropped: they were not read in time")

    def next_deadline(self) -> int | None:
        """The monotonic millisecond at which :meth:`tick` has something to do, or ``None``."""
        due = (self.outbound.requests.timers.next_due_ms(), self.outbound.perishes_at_ms())
        return min((moment for moment in due if moment is not None), default=None)

    # -- for the two halves --------------------------------------------------------------------------------------------

    def abandon(self, request: HostRequest, reason: str, error: BrokerError) -> None:
        """Settle an open request with ``error``; for ``initialize`` that is the end of the connection."""
        if request is self._initialize:
            error.method = request.method
            self.fail(error)
        else:
            self.outbound.abandon(request, reason, error, self._clock.monotonic_ms())

    def release_children(self, request: HostRequest) -> None:
        """``request`` settles: cancel what the extension still asks for on its behalf."""
        if self._phase is not Phase.CLOSED:
            self._inbound.release_children(request)

    def settle_initialize(self, request: HostRequest, result: Any, error: BrokerError | None) -> None:
        """Judge the answer to ``initialize``: the agreement exists from here on, or the connection fails."""
        self._initialize = None
        assert request.decode is not None
        try:
            if error is not None:
                raise NegotiationError(
                    f"{self._extension} refused to start: {error}",
                    name=error.name,
                    method=request.method,
                    data=error.data,
                )
            agreement: Agreement = request.decode(result)
        except NegotiationError as failure:
            self.fail(failure)
            self.outbound.settle(request, error=self.outbound.copy_for(request, failure))
            return
        self._agreement = agreement
        self.outbound.requests.slots = agreement.max_concurrent_requests
        self._phase = Phase.READY
        self.emit(Initialized(agreement))
        self.outbound.settle(request, result=agreement)

    # -- inside --------------------------------------------------------------------------------------------------------

    def _check_may_send(self, method: str, *, is_notification: bool) -> None:
        if self._phase is Phase.CLOSED:
            raise CapabilityMismatchError(
                f"the connection to {self._extension} is closed", extension=self._extension, method=method
            ) from self._failure
        if self._agreement is None:
            raise UsageError(f"{method} before initialize was answered", extension=self._extension, method=method)
        row = find_method(self.version, method)
        allowed = row is not None and (row.feature is None or row.feature in self._agreement.features)
        if row is None or not allowed or not row.from_host or row.notification is not is_notification:
            raise CapabilityMismatchError(
                f"{self._extension} (API {self.version}) has not negotiated {method}",
                extension=self._extension,
                method=method,
            )
        if method in ("initialize", "$/cancelRequest"):
            raise UsageError(f"{method} is sent by the connection itself", extension=self._extension, method=method)

    def _may_answer(self, incoming: FeatureRequest) -> bool:
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
