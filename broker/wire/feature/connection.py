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
    CapabilityMismatchError,
    InternalError,
    NegotiationError,
    ResourceExhaustedError,
    UsageError,
)
from broker.limits import MAX_FEATURE_LINE_BYTES
from broker.wire.extension_connection import ExtensionConnection
from broker.wire.feature.events import FeatureEvent, FeatureRequest, Initialized
from broker.wire.feature.features import Version
from broker.wire.feature.inbound import Inbound
from broker.wire.feature.methods import find_method
from broker.wire.feature.models import OPEN
from broker.wire.feature.negotiation import Agreement, Declared, Offer, judge_answer
from broker.wire.feature.outbound import FeatureOutbound
from broker.wire.feature.refusals import RefusalKind, detail_of, kind_of
from broker.wire.feature.scope import ResourceOwner
from broker.wire.jsonrpc import success
from broker.wire.mcp.requests import encode
from broker.wire.octet.schema import check, refuse
from broker.wire.octet.settings import ConnectionSettings, Phase
from broker.wire.requests import HostRequest

_LINE_BOUND: Final = MAX_FEATURE_LINE_BYTES - 1
"""The framers count what stands before the LF; on this wire the bound counts the LF as well."""


class FeatureConnection(ExtensionConnection[FeatureEvent, FeatureOutbound]):
    """One process generation's connection. See the module's text for how it is driven.

    ``declares`` are the manifest's contributions that allow a method, ``ui.SURFACE`` for each surface, and ``owner`` is
    the only owner this process may name.
    """

    _inbound: Inbound

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
        super().__init__(clock=clock, settings=settings, extension=extension, line_bound=_LINE_BOUND)
        self.version: Version = version
        self.owner: ResourceOwner = owner
        self._declares = frozenset(declares)
        self._agreement: Agreement | None = None
        self._inbound = Inbound(self)
        self.outbound: FeatureOutbound = FeatureOutbound(
            self, bound=_LINE_BOUND, cancel_grace_ms=self._settings.cancel_grace_ms, sends_cancels=version != "0.1"
        )

    def __repr__(self) -> str:
        return f"<FeatureConnection {self._extension} {self.version} {self._phase.value}>"

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

        A result over the bound of a line is replaced by a refusal. Nothing is answered yet when this raises:
        :class:`~broker.errors.UsageError` for a second answer, :class:`~broker.errors.InternalError` for a result that
        is not one of the method's (by its ``name`` one can tell a bound that was passed), ``TypeError`` for one that
        JSON cannot hold.
        """
        if self._may_answer(incoming):
            row = incoming.row
            faults = check(OPEN if row is None or row.result is None else row.result, result)
            if faults:
                refuse(faults, what=f"result of {incoming.method}", error=InternalError)
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

    # -- the driver's side ---------------------------------------------------------------------------------------------

    def tick(self) -> None:
        """Do what has become due by the clock: timeouts, what follows them, and notices that waited too long."""
        super().tick()
        dropped = self.outbound.drop_perished(self._clock.monotonic_ms())
        if dropped:
            self.diagnose(f"{dropped} lifecycle notifications were dropped: they were not read in time")

    def next_deadline(self) -> int | None:
        """The monotonic millisecond at which :meth:`tick` has something to do, or ``None``."""
        due = (super().next_deadline(), self.outbound.perishes_at_ms())
        return min((moment for moment in due if moment is not None), default=None)

    # -- for the two halves --------------------------------------------------------------------------------------------

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

    def _encode_body(self, method: str, params: Any) -> bytes:
        return encode(method, params)[1:]
