"""What one process generation of an extension has in common with any other, whichever wire its manifest selects."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from broker.errors import BrokerError, ExitedError
from broker.host.link import ProcessLink, Stage
from broker.wire.feature.connection import FeatureConnection
from broker.wire.octet.connection import Connection, Phase
from broker.wire.octet.manifest_model import Manifest
from broker.wire.octet.models import ToolDefinition
from broker.wire.requests import HostRequest

if TYPE_CHECKING:
    from broker.host.extension import Extension


class ExtensionProcess(ProcessLink):
    """One start of an extension's process. A wire adds its handshake, and what it is served.

    ``scratch`` is the directory this generation may write to, once its process was started by an adapter that gives it
    one.
    """

    connection: Connection | FeatureConnection

    def __init__(self, extension: Extension, manifest: Manifest, number: int) -> None:
        super().__init__(extension.session, extension.name, number)
        self.extension = extension
        self.manifest: Manifest = manifest
        self.tools: tuple[ToolDefinition, ...] = ()
        self.scratch: str | None = None
        self._acknowledged = False
        self._calls: set[HostRequest] = set()

    # -- the session's side --------------------------------------------------------------------------------------------

    @property
    def busy(self) -> bool:
        """Whether a tool call is on its way."""
        return bool(self._calls)

    @property
    def stopped_how(self) -> str:
        """How an orderly stop went: graceful is acknowledged and exited."""
        if self._acknowledged:
            return "acknowledged shutdown but did not exit, and was killed" if self._killed else "stopped"
        return f"{'was killed' if self._killed else 'ended'} without acknowledging shutdown"

    @abstractmethod
    def call(
        self, params: dict[str, Any], timeout_ms: int | None, on_settled: Callable[[HostRequest], None]
    ) -> HostRequest:
        """Send a ``tool/call``; see the connection's ``request`` for what it raises."""

    @abstractmethod
    def run_session_hook(
        self, hook: str, payload: dict[str, Any], on_settled: Callable[[HostRequest], None]
    ) -> HostRequest:
        """Send a session hook; it bypasses the slots."""

    @abstractmethod
    def veto_of(self, result: Any) -> tuple[str, str] | None:
        """The kind and reason of a session hook's result that is not ``continue``."""

    def cancel_work(self, reason: str) -> None:
        """Release every caller of a tool call with ``reason``."""
        for request in list(self._calls):
            self.connection.cancel(request, reason)

    def shutdown(self) -> None:
        """End in order: no new work, cancel what is open, leave the services, ask to shut down, wait, kill.

        Idempotent.
        """
        if self.stage is not Stage.READY or self.failure is not None:
            if self.stage is not Stage.DRAINING:
                self.fail(ExitedError(f"{self._shown}: stopped before it was ready", extension=self.name))
            return
        self._enter(Stage.DRAINING)
        self.cancel_work("shutdown")
        self.connection.drain()
        self._leave_services()
        try:
            self.connection.request(
                "shutdown",
                {},
                timeout_ms=self.session.settings.shutdown_timeout_ms,
                bypass_slots=True,
                decode=self._decode_shutdown,
                on_settled=self._on_shutdown_answer,
            )
        except BrokerError as error:
            self._diagnose(f"could not ask for shutdown: {error}")
            self._on_shutdown_answer(None)

    def relieve_writer(self) -> None:
        """Write what is queued if that is much."""
        self._relieve(self.connection.queued_frames)

    # -- what a wire adds ----------------------------------------------------------------------------------------------

    @abstractmethod
    def _drain_events(self) -> None:
        """Act on every event the connection has."""

    @abstractmethod
    def _leave_services(self) -> None:
        """Take part in nothing any more; the process is about to be asked to end."""

    @abstractmethod
    def _release_services(self) -> None:
        """The process is broken or gone: give back what it held. Idempotent."""

    @abstractmethod
    def _decode_shutdown(self, result: Any) -> Any:
        """The result of ``shutdown``."""

    # -- the protocol --------------------------------------------------------------------------------------------------

    def _receive_data(self, data: bytes) -> None:
        self.connection.receive_data(data)
        self._drain_events()

    def _settle_failed(self, error: BrokerError) -> None:
        self._release_services()
        self.connection.fail(error)
        self._drain_events()

    def _settle_ended(self) -> None:
        self._release_services()
        if self.connection.phase is not Phase.CLOSED:
            self.connection.close()
            self._drain_events()

    def _tick_protocol(self) -> None:
        self.connection.tick()
        self._drain_events()

    def _protocol_deadline(self) -> int | None:
        return self.connection.next_deadline()

    def _failed(self, error: BrokerError) -> None:
        self.extension.generation_failed(self, error)

    def _ended(self, status: int | None) -> None:
        self.extension.generation_ended(self, status)

    # -- inside --------------------------------------------------------------------------------------------------------

    def _tracked(self, on_settled: Callable[[HostRequest], None]) -> Callable[[HostRequest], None]:
        """``on_settled`` of a tool call that is to be forgotten then."""

        def settled(request: HostRequest) -> None:
            self._calls.discard(request)
            on_settled(request)

        return settled

    def _track(self, request: HostRequest) -> HostRequest:
        if not request.settled:
            self._calls.add(request)
        return request

    def _on_shutdown_answer(self, request: HostRequest | None) -> None:
        if self.stage is not Stage.DRAINING or self.failure is not None:
            return
        if request is not None and request.error is not None:
            self._diagnose(f"shutdown: {request.error}")
        self._acknowledged = request is not None and request.error is None
        self._release_services()
        if self._process is not None:
            self._process.close_stdin()
        self._after(self.session.settings.exit_grace_ms, self._kill)
