"""One process generation of an octet extension: joins its connection to its peer on the bus, and ends both in order."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from broker.bus import Held, Peer
from broker.errors import BrokerError, CapabilityMismatchError, ExitedError, ExtensionError, InternalError
from broker.host import bus_service
from broker.host.extension_process import ExtensionProcess
from broker.host.link import Stage
from broker.host.output import BusOutput, ControlOutput, Output
from broker.host.services.asking import Principal
from broker.host.services.desk import ServiceDesk
from broker.host.services.migration import MigrationAdapter
from broker.limits import MAX_FRAME_BYTES
from broker.wire.octet.connection import Connection, ConnectionSettings
from broker.wire.octet.contract import build_offer
from broker.wire.octet.events import (
    CancelReceived,
    Closed,
    Diagnostic,
    Initialized,
    NotificationReceived,
    RequestReceived,
    StreamFaulted,
)
from broker.wire.octet.manifest_model import Manifest
from broker.wire.octet.models import (
    Continue,
    ProtocolLimits,
    SessionHookResult,
    ShutdownResult,
    ToolDefinition,
    decode_hook_result,
    decode_shutdown_result,
    decode_tool_result,
)
from broker.wire.octet.negotiation import Expectation
from broker.wire.octet.schema import encode
from broker.wire.requests import HostRequest

if TYPE_CHECKING:
    from broker.host.extension import Extension


class Generation(ExtensionProcess):
    """One start of the process of an extension that speaks the canonical wire."""

    tools: tuple[ToolDefinition, ...]

    def __init__(
        self,
        extension: Extension,
        manifest: Manifest,
        number: int,
        initialize: dict[str, Any],
        settings: ConnectionSettings,
    ) -> None:
        super().__init__(extension, manifest, number)
        self.peer: Peer | None = None
        self.connection: Connection = Connection(
            clock=extension.session.clock, settings=settings, extension=extension.name
        )
        self.principal: Principal = Principal(
            extension.session.session_id, extension.name, extension.instance_id, number
        )
        self.desk: ServiceDesk = ServiceDesk(self)
        access = extension.session.services.migrations
        self.migration: MigrationAdapter | None = None if access is None else MigrationAdapter(self, access)
        self._stopped_short = False
        self._params = initialize
        self._bus_writes = 0
        self._detach_when_written = False

    # -- the session's side --------------------------------------------------------------------------------------------

    @property
    def busy(self) -> bool:
        """Whether a tool call or a provider stream is on its way."""
        return super().busy or self.desk.streams.busy

    def call(
        self,
        params: dict[str, Any],
        timeout_ms: int | None,
        on_settled: Callable[[HostRequest], None],
    ) -> HostRequest:
        return self._track(
            self.connection.request(
                "tool/call",
                params,
                timeout_ms=timeout_ms,
                decode=decode_tool_result,
                on_settled=self._tracked(on_settled),
            )
        )

    def cancel_work(self, reason: str) -> None:
        """Release every caller of a tool call, and every reader of a stream, with ``reason``."""
        super().cancel_work(reason)
        self.desk.streams.cancel_all(reason)

    def run_session_hook(
        self, hook: str, payload: dict[str, Any], on_settled: Callable[[HostRequest], None]
    ) -> HostRequest:
        return self.connection.request(
            "hook/run",
            {"hook": hook, "payload": payload},
            timeout_ms=self.session.settings.hook_timeout_ms,
            bypass_slots=True,
            decode=decode_hook_result,
            on_settled=on_settled,
        )

    def veto_of(self, result: Any) -> tuple[str, str] | None:
        if not isinstance(result, SessionHookResult) or isinstance(result.disposition, Continue):
            return None
        return type(result.disposition).__name__.lower(), result.disposition.reason

    def diagnose(self, text: str) -> None:
        """Tell the observers something about it."""
        self._diagnose(text)

    # -- the driver's side ---------------------------------------------------------------------------------------------

    @property
    def reading(self) -> bool:
        """Whether more of its output is wanted: not before what was received has been read, which may have to wait
        until a provider stream has room for what may come next.
        """
        return not self._stopped_short

    def next_output(self) -> Output | None:
        """The next frame to write: control frames first, then bus messages while the generation serves."""
        frame = self.connection.next_frame()
        if frame is not None:
            return ControlOutput(frame, self.connection.frame_written)
        if self.connection.failure is not None:
            self._drain_events()
        if self.peer is None or self.stage is not Stage.READY or self.failure is not None:
            return None
        held = self.peer.hold()
        if held is None:
            return None
        self._bus_writes += 1
        return BusOutput(held, self._bus_output_done)

    def stale_write(self, held: Held) -> None:
        """A bus frame that was partly written may no longer be delivered; it must not be finished."""
        self.fail(
            ExtensionError(
                f"{self._shown}: reads too slowly: {type(held.message).__name__} went stale while it was being written",
                extension=self.name,
                name="resource_exhausted",
            )
        )

    # -- the protocol --------------------------------------------------------------------------------------------------

    def _initialize(self) -> None:
        self.extension.generation_initializing(self)
        expectation = Expectation(
            tools=tuple(self.manifest.contributes.tools),
            session_hooks=self.manifest.session_hooks,
            deferred=self.manifest.deferred_contributions(),
        )
        self.connection.initialize(self._params, expectation)

    def _release_services(self) -> None:
        if self.peer is not None:
            self.peer.detach()

    def _decode_shutdown(self, result: Any) -> ShutdownResult:
        return decode_shutdown_result(result)

    def _receive_data(self, data: bytes) -> None:
        super()._receive_data(data)
        if self.desk.streams.blocked and self.connection.unread_bytes > MAX_FRAME_BYTES:
            self.desk.streams.overflow()
            self._drain_events()

    def _end_of_output(self, error: BrokerError) -> None:
        self.desk.streams.unbounded = True
        self._drain_events()

    def _settle_failed(self, error: BrokerError) -> None:
        super()._settle_failed(error)
        self.desk.fail(error)
        self._drain_events()

    def _settle_ended(self) -> None:
        super()._settle_ended()
        self.desk.fail(ExitedError(f"{self._shown}: has ended", extension=self.name))

    def _tick_protocol(self) -> None:
        super()._tick_protocol()
        self.desk.streams.tick()
        self._drain_events()
        if self.peer is not None and self.peer.closed and self.stage is Stage.READY and self.failure is None:
            self.fail(
                ExtensionError(
                    f"{self._shown}: taken off the bus: {self.peer.close_reason}",
                    name="resource_exhausted",
                    extension=self.name,
                )
            )

    def _protocol_deadline(self) -> int | None:
        due = (super()._protocol_deadline(), self.desk.streams.next_deadline())
        return min((moment for moment in due if moment is not None), default=None)

    def _drain_events(self) -> None:
        streams = self.desk.streams
        while not (stopped := streams.blocked and self.connection.failure is None):
            event = self.connection.next_event()
            if event is None:
                break
            if isinstance(event, RequestReceived):
                self._serve(event)
            elif isinstance(event, NotificationReceived):
                self.desk.notified(event)
            elif isinstance(event, StreamFaulted):
                self.desk.stream_faulted(event)
            elif isinstance(event, CancelReceived):
                self.desk.cancelled(event.incoming)
            elif isinstance(event, Initialized):
                self._on_initialized(event)
            elif isinstance(event, Diagnostic):
                self._diagnose(event.text, source="wire")
            elif isinstance(event, Closed) and event.error is not None:
                self.fail(event.error)
            self.relieve_writer()
        self._stopped_short = self.connection.outbound.unread = stopped

    def _on_initialized(self, event: Initialized) -> None:
        if self.failure is not None:
            return
        self.tools = event.tools
        if "event_bus" in event.selection.capabilities:
            try:
                self.peer = self.session.bus.attach(
                    self.name,
                    instance_id=self.extension.instance_id,
                    generation=self.number,
                    max_frame_bytes=event.selection.limits.max_frame_bytes,
                    announce_binding=True,
                )
            except BrokerError as error:
                self.fail(error)
                return
        self._enter(Stage.READY)
        self.extension.generation_ready(self)

    def _serve(self, event: RequestReceived) -> None:
        incoming = event.incoming
        if not incoming.method.startswith("bus/"):
            self.desk.serve(incoming)
            return
        if self.peer is None:
            self.connection.refuse(incoming, CapabilityMismatchError(f"{incoming.method} is not served"))
            return
        try:
            result = bus_service.run(self.peer, incoming.method, incoming.model)
        except BrokerError as error:
            self.connection.refuse(incoming, error)
            # What an extension still asks for while it is being stopped is no news.
            if self.stage is Stage.READY:
                self._diagnose(f"{incoming.method} refused: {error}")
            return
        except Exception as error:
            self.connection.refuse(incoming, InternalError(str(error)))
            self._diagnose(f"{incoming.method} failed inside the host: {error!r}")
            raise
        self.connection.answer(incoming, result)

    # -- the end -------------------------------------------------------------------------------------------------------

    def _leave_services(self) -> None:
        self.desk.close("shutdown")
        if self.peer is None:
            return
        self.peer.drain()
        # A frame on its way out is finished first: detaching makes it stale, and a stale frame ends the stream.
        if self._bus_writes:
            self._detach_when_written = True
        else:
            self.peer.detach()

    def _bus_output_done(self) -> None:
        self._bus_writes -= 1
        if self._detach_when_written and not self._bus_writes and self.peer is not None:
            self.peer.detach()


def initialize_params(extension: Extension, manifest: Manifest) -> dict[str, Any]:
    """The parameters of ``initialize``, with the contract that the session offers; octet reference, ``initialize``."""
    session = extension.session
    limits = ProtocolLimits(
        max_frame_bytes=session.settings.max_frame_bytes,
        max_concurrent_requests=session.settings.max_concurrent_requests,
        max_tools=session.settings.max_tools,
    )
    bound = session.services.capabilities(manifest)
    if manifest.runtime.sharing == "isolated":
        bound.append("event_bus")
    if manifest.session_hooks:
        bound.append("lifecycle_events")
    return {
        "api_version": manifest.api_version,
        "octet_version": session.settings.octet_version,
        "extension": manifest.extension_json(extension.source),
        "workspace": session.workspace,
        "capabilities": manifest.capabilities_json(),
        "contributes": manifest.contributes_json(),
        "flag_values": manifest.flag_values(extension.flags),
        "host": session.host_json(),
        "contract": encode(build_offer(bound, limits=limits)),
    }
