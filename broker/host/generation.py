"""One process generation of an extension: joins its connection to its peer on the bus, and ends both in order.

The life of a generation is a line: starting, initializing, ready, draining, ended. Whatever goes wrong on the way leads
to :meth:`Generation.fail`, which settles everything open, takes the peer off the bus and kills the process group, and
the line ends when the driver says that the process is gone. Source: octet notes, section 2.6; design, "Decisions on the
octet wire".
"""

from __future__ import annotations

from collections.abc import Callable
from enum import Enum
from typing import TYPE_CHECKING, Any

from broker.bus import Held, Peer
from broker.errors import BrokerError, CapabilityMismatchError, ExitedError, ExtensionError, InternalError
from broker.host import bus_service
from broker.host.driver import Process
from broker.host.notices import Diagnostic
from broker.host.output import BusOutput, ControlOutput, Output
from broker.host.stderr import StderrLog
from broker.limits import MAX_WRITER_FRAMES
from broker.wire.octet.connection import Connection, ConnectionSettings, Phase
from broker.wire.octet.events import Closed, Initialized, RequestReceived
from broker.wire.octet.events import Diagnostic as WireDiagnostic
from broker.wire.octet.models import ToolDefinition, decode_shutdown_result, decode_tool_result
from broker.wire.octet.negotiation import Expectation
from broker.wire.requests import HostRequest

if TYPE_CHECKING:
    from broker.host.extension import Extension


class Stage(Enum):
    """How far a generation is on its line."""

    STARTING = "starting"
    INITIALIZING = "initializing"
    READY = "ready"
    DRAINING = "draining"
    ENDED = "ended"


class Generation:
    """One start of an extension's process. The session calls the first half of its methods, the driver the second."""

    def __init__(
        self, extension: Extension, number: int, initialize: dict[str, Any], settings: ConnectionSettings
    ) -> None:
        self.extension = extension
        self.number = number
        self.manifest = extension.manifest
        self.stage = Stage.STARTING
        self.tools: tuple[ToolDefinition, ...] = ()
        self.peer: Peer | None = None
        self.failure: BrokerError | None = None
        self.connection = Connection(clock=extension.session.clock, settings=settings, extension=extension.name)
        self._initialize = initialize
        self._process: Process | None = None
        self._stderr = StderrLog()
        self._calls: set[HostRequest] = set()
        self._bus_writes = 0
        self.acknowledged = False
        self._deadline: tuple[int, Callable[[], None]] | None = None
        self._detach_when_written = False

    # -- the session's side --------------------------------------------------------------------------------------------

    @property
    def alive(self) -> bool:
        """Whether it was neither asked to end nor found broken."""
        return self.failure is None and self.stage in (Stage.STARTING, Stage.INITIALIZING, Stage.READY)

    @property
    def busy(self) -> bool:
        """Whether a tool call is on its way."""
        return bool(self._calls)

    def call(
        self,
        params: dict[str, Any],
        timeout_ms: int | None,
        on_settled: Callable[[HostRequest], None],
    ) -> HostRequest:
        """Send a ``tool/call``; see :meth:`broker.wire.octet.connection.Connection.request` for what it raises."""

        def settled(request: HostRequest) -> None:
            self._calls.discard(request)
            on_settled(request)

        request = self.connection.request(
            "tool/call", params, timeout_ms=timeout_ms, decode=decode_tool_result, on_settled=settled
        )
        if not request.settled:
            self._calls.add(request)
        return request

    def cancel_calls(self, reason: str) -> None:
        """Release every caller of a tool call with ``reason``."""
        for request in list(self._calls):
            self.connection.cancel(request, reason)

    def shutdown(self) -> None:
        """End in order: no new work, cancel what is open, leave the bus, ask to shut down, wait, kill. Idempotent."""
        if self.stage is not Stage.READY or self.failure is not None:
            if self.stage is not Stage.DRAINING:
                self.fail(ExitedError(f"{self._name}: stopped before it was ready", extension=self.extension.name))
            return
        self.stage = Stage.DRAINING
        settings = self.extension.session.settings
        self.cancel_calls("shutdown")
        self.connection.drain()
        self._leave_bus()
        try:
            self.connection.request(
                "shutdown",
                {},
                timeout_ms=settings.shutdown_timeout_ms,
                bypass_slots=True,
                decode=decode_shutdown_result,
                on_settled=self._on_shutdown_answer,
            )
        except BrokerError as error:
            self._diagnose(f"could not ask for shutdown: {error}")
            self._on_shutdown_answer(None)

    def fail(self, error: BrokerError) -> None:
        """The generation is broken: settle everything open with ``error``, leave the bus, kill. Idempotent."""
        if self.failure is not None or self.stage is Stage.ENDED:
            return
        self.failure = error
        if self.peer is not None:
            self.peer.detach()
        self.connection.fail(error)
        self._drain_events()
        self._kill()
        self.extension.generation_failed(self, error)

    def tick(self) -> None:
        """Let every deadline that has passed act."""
        now = self.extension.session.clock.monotonic_ms()
        if self._deadline is not None and now >= self._deadline[0]:
            act = self._deadline[1]
            self._deadline = None
            act()
        if self.stage in (Stage.INITIALIZING, Stage.READY, Stage.DRAINING):
            self.connection.tick()
            self._drain_events()
        if self.peer is not None and self.peer.closed and self.stage is Stage.READY and self.failure is None:
            self.fail(
                ExtensionError(
                    f"{self._name}: taken off the bus: {self.peer.close_reason}",
                    name="resource_exhausted",
                    extension=self.extension.name,
                )
            )

    def next_deadline(self) -> int | None:
        """The earliest monotonic millisecond at which :meth:`tick` has something to do."""
        mine = None if self._deadline is None else self._deadline[0]
        theirs = None if self.stage is Stage.ENDED or self.failure is not None else self.connection.next_deadline()
        return min((due for due in (mine, theirs) if due is not None), default=None)

    # -- the driver's side ---------------------------------------------------------------------------------------------

    def spawned(self, process: Process) -> None:
        """The process runs."""
        self._process = process
        if self.failure is not None:
            self._kill()
            return
        self.stage = Stage.INITIALIZING
        self.extension.generation_initializing(self)
        manifest = self.manifest
        expectation = Expectation(
            tools=tuple(manifest.contributes.tools),
            session_hooks=manifest.session_hooks,
            deferred=manifest.deferred_contributions(),
        )
        try:
            self.connection.initialize(self._initialize, expectation)
        except BrokerError as error:
            self.fail(error)
        self.extension.session.changed()

    def spawn_failed(self, error: BrokerError) -> None:
        """The process could not be started."""
        if self.failure is None:
            self.failure = error
            self.connection.fail(error)
            self.extension.generation_failed(self, error)
        self._end(None)

    def receive(self, data: bytes) -> None:
        """Bytes from the process's stdout, in any chunks."""
        if self.failure is not None or self.stage is Stage.ENDED:
            return
        self.connection.receive_data(data)
        self._drain_events()
        self.extension.session.changed()

    def receive_stderr(self, data: bytes) -> None:
        """Bytes from the process's stderr, in any chunks."""
        for line in self._stderr.feed(data):
            self._diagnose(line, source="stderr")

    def receive_eof(self) -> None:
        """The process closed its stdout. A moment is left for its exit, so that the error can say how it ended."""
        if self.failure is not None or self.stage is Stage.ENDED:
            return
        if self.stage is not Stage.DRAINING:
            self._after(self.extension.session.settings.stream_end_grace_ms, self._output_closed)

    def exited(self, status: int | None) -> None:
        """The process is gone and reaped; everything it wrote was received before."""
        for line in self._stderr.finish():
            self._diagnose(line, source="stderr")
        if self.failure is None and self.stage is not Stage.DRAINING:
            self.fail(self._exit_error(status))
        self._end(status)

    def next_output(self) -> Output | None:
        """The next frame to write: control frames first, then bus messages while the generation serves."""
        frame = self.connection.next_frame()
        if frame is not None:
            return ControlOutput(frame, self.connection)
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
                f"{self._name}: reads too slowly: {type(held.message).__name__} went stale while it was being written",
                extension=self.extension.name,
                name="resource_exhausted",
            )
        )

    def write_failed(self) -> None:
        """The process closed its stdin; what it still has to say, and its exit, decide what happens."""
        if self.failure is None and self.stage not in (Stage.DRAINING, Stage.ENDED):
            self._after(self.extension.session.settings.stream_end_grace_ms, self._output_closed)

    # -- inside --------------------------------------------------------------------------------------------------------

    @property
    def _name(self) -> str:
        return f"{self.extension.name} (generation {self.number})"

    def _drain_events(self) -> None:
        while (event := self.connection.next_event()) is not None:
            if isinstance(event, RequestReceived):
                self._serve(event)
            elif isinstance(event, Initialized):
                self._on_initialized(event)
            elif isinstance(event, WireDiagnostic):
                self._diagnose(event.text, source="wire")
            elif isinstance(event, Closed) and event.error is not None:
                self.fail(event.error)
            # A burst of requests must not fill the writer's queue while the process is ready to read the answers.
            if self.connection.queued_frames >= MAX_WRITER_FRAMES // 2 and self._process is not None:
                self._process.flush()

    def _on_initialized(self, event: Initialized) -> None:
        if self.failure is not None:
            return
        self.tools = event.tools
        if "event_bus" in event.selection.capabilities:
            try:
                self.peer = self.extension.session.bus.attach(
                    self.extension.name,
                    instance_id=self.extension.instance_id,
                    generation=self.number,
                    max_frame_bytes=event.selection.limits.max_frame_bytes,
                    announce_binding=True,
                )
            except BrokerError as error:
                self.fail(error)
                return
        self.stage = Stage.READY
        self.extension.generation_ready(self)

    def _serve(self, event: RequestReceived) -> None:
        incoming = event.incoming
        if self.peer is None or not incoming.method.startswith("bus/"):
            self.connection.refuse(incoming, CapabilityMismatchError(f"{incoming.method} is not served"))
            return
        try:
            result = bus_service.run(self.peer, incoming.method, incoming.model)
        except BrokerError as error:
            self.connection.refuse(incoming, error)
            self._diagnose(f"{incoming.method} refused: {error}")
            return
        except Exception as error:
            self.connection.refuse(incoming, InternalError(str(error)))
            self._diagnose(f"{incoming.method} failed inside the host: {error!r}")
            raise
        self.connection.answer(incoming, result)

    def _leave_bus(self) -> None:
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

    def _on_shutdown_answer(self, request: HostRequest | None) -> None:
        if self.stage is not Stage.DRAINING or self.failure is not None:
            return
        if request is not None and request.error is not None:
            self._diagnose(f"shutdown: {request.error}")
        self.acknowledged = request is not None and request.error is None
        if self.peer is not None:
            self.peer.detach()
        if self._process is not None:
            self._process.close_stdin()
        self._after(self.extension.session.settings.exit_grace_ms, self._kill)

    def _output_closed(self) -> None:
        self.connection.receive_eof()
        self._drain_events()
        self.fail(
            ExitedError(
                f"{self._name}: closed its output but did not exit{self._stderr_note()}",
                extension=self.extension.name,
                stderr_tail=self._stderr.tail,
            )
        )

    def _exit_error(self, status: int | None) -> BrokerError:
        when = "before it answered initialize" if self.stage is not Stage.READY else "while it was in use"
        how = f"exited with status {status}" if status is None or status >= 0 else f"was killed by signal {-status}"
        return ExitedError(
            f"{self._name}: {how} {when}{self._stderr_note()}",
            extension=self.extension.name,
            status=status,
            stderr_tail=self._stderr.tail,
        )

    def _stderr_note(self) -> str:
        return f"; its stderr ends with: {self._stderr.tail}" if self._stderr.tail else ""

    def _kill(self) -> None:
        if self._process is not None:
            self._process.kill()
            self._after(self.extension.session.settings.exit_grace_ms, self._give_up)

    def _give_up(self) -> None:
        self._diagnose("the process was killed but has not ended; it is left behind")
        self._end(None)

    def _end(self, status: int | None) -> None:
        if self.stage is Stage.ENDED:
            return
        self.stage = Stage.ENDED
        self._deadline = None
        if self.peer is not None:
            self.peer.detach()
        if self.connection.phase is not Phase.CLOSED:
            self.connection.close()
            self._drain_events()
        self.extension.generation_ended(self, status)
        self.extension.session.changed()

    def _after(self, delay_ms: int, act: Callable[[], None]) -> None:
        self._deadline = (self.extension.session.clock.monotonic_ms() + delay_ms, act)
        self.extension.session.changed()

    def _diagnose(self, text: str, *, source: str = "host") -> None:
        self.extension.session.announce(Diagnostic(self.extension.name, self.number, source, text))


