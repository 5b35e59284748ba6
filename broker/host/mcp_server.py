"""One MCP server of a session: its process, its approved tools, and what a call of one of them comes to.

A server is started once. It is not restarted: a call that was lost is never repeated behind the caller's back, and what
a new process would offer has to be approved anew. Starting a server again whose last start failed waits out a growing
delay. Source: odek contract; odek notes, sections 1.4, 2.7, 2.8 and 4; design, "Decisions on odek-extension/v1".
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any

from attrs import evolve

from broker.errors import (
    BrokerError,
    CancelledError,
    CapabilityMismatchError,
    ExitedError,
    SetupError,
    UsageError,
)
from broker.host.artifacts import ArtifactFiles
from broker.host.call_trace import tracing
from broker.host.link import ProcessLink, Stage
from broker.host.mcp_call import McpCall, ServerWatcher, bound_error, notify, settle
from broker.host.notices import Exited, Health, HealthChanged, Started
from broker.host.outcome import Outcome
from broker.host.output import ControlOutput, Output
from broker.wire.mcp.catalogue import Catalogue, ListedTool
from broker.wire.mcp.events import CatalogueChanged, Closed, Diagnostic, NotificationReceived, Ready, ServerRequest
from broker.wire.mcp.peer import McpPeer, McpSettings
from broker.wire.mcp.requests import HostRequest, Progress
from broker.wire.odek.approval import ApprovalRequest, needs_approval, server_approval, tool_approval
from broker.wire.odek.config import ServerConfig
from broker.wire.odek.result import ToolOutput
from broker.wire.quoting import escape

if TYPE_CHECKING:
    from broker.host.session import Session


class McpServer(ProcessLink):
    """An MCP server as the host sees it. Made by :meth:`broker.Session.add_server`; for the session's own thread."""

    def __init__(self, session: Session, config: ServerConfig, number: int, files: ArtifactFiles) -> None:
        super().__init__(session, config.name, number)
        self.config: ServerConfig = config
        bounds = McpSettings(timeout_ms=config.timeout_seconds * 1000, max_response_bytes=config.max_response_bytes)
        self.peer: McpPeer = McpPeer(session.clock, bounds, config.name)
        self.health: Health = Health.STOPPED
        self._queued = self.peer.outbound.outbox.frames
        self._files = files
        self._tools: dict[str, ListedTool] = {}
        self._start: Outcome[McpServer] = Outcome()
        self._stop: Outcome[None] | None = None
        self._started = False
        self._spawn_asked = False
        self._warnings: deque[str] = deque()
        self._calls: set[McpCall] = set()
        self._watchers: tuple[ServerWatcher, ...] = ()
        self._decisions: dict[str, bool] = {}
        self._listings = 0
        self._needs_approval = needs_approval(config)
        self._looked_for: int | None = None

    def __repr__(self) -> str:
        return f"<McpServer {escape(self.name)} {self.health.value}>"

    # -- what a host does ----------------------------------------------------------------------------------------------

    @property
    def tools(self) -> tuple[ListedTool, ...]:
        """The tools that may be called: listed, and approved where that is needed."""
        return tuple(self._tools.values())

    @property
    def ended(self) -> bool:
        """Whether no process of it runs and none will be started any more."""
        return self.stage is Stage.ENDED or not self._started

    def start(self) -> Outcome[McpServer]:
        """Ask for approval where it is needed, start the process, list the tools. Callable once."""
        if self._started or self.stage is Stage.ENDED or self.session.server(self.name) is not self:
            raise UsageError(f"{self.name} was started, stopped or replaced already", extension=self.name)
        self._started = True
        self._set_health(Health.STARTING, "waiting for approval" if self._needs_approval else "starting")
        if self._needs_approval:
            self._ask(server_approval(self.config, project=self.session.workspace), self._on_server_approved)
        else:
            self._spawn_when_allowed()
        return self._start

    def call(
        self,
        tool: str,
        arguments: Any,
        *,
        timeout_ms: int | None = None,
        on_progress: Callable[[Progress], None] | None = None,
        progress_extends: bool = False,
        untrusted: bool = False,
    ) -> McpCall:
        """Call a tool by its raw name; see :meth:`broker.wire.mcp.peer.McpPeer.call` for what is raised at once.

        The outcome is a :class:`~broker.wire.odek.result.ToolOutput`: text within the server's ``max_result_chars``,
        every artifact verified before any of it is shown. With ``untrusted`` its text is wrapped for a model as what
        somebody else said, outside of that bound.
        """
        if tool not in self._tools and self.alive and tool in self.peer.catalogue:
            raise CapabilityMismatchError(f"{self.name}: tool {tool} is not approved", extension=self.name, tool=tool)
        call = McpCall(self, tool, untrusted=untrusted)
        with tracing(self.session, self.name, tool, call) as meta:
            call._request = request = self.peer.call(
                tool,
                arguments,
                timeout_ms=timeout_ms,
                on_settled=call._answered,
                on_progress=on_progress,
                progress_extends=progress_extends,
                meta=meta,
            )
        self._calls.add(call)
        if self._watchers:
            self._tell(lambda watcher: watcher.call_started(call))
        if self._process is not None and len(self._calls) == 1:
            self._process.flush()  # alone, it need not wait for others to be written with
        if self._queued or self._looked_for is None or request.settles_at_ms < self._looked_for:
            self.session.changed()  # unless the driver looks in time anyway
        return call

    def stop(self) -> Outcome[None]:
        """End in order: end of input, wait, SIGTERM to the group, wait, SIGKILL; settles when gone. Idempotent."""
        if self._stop is not None:
            return self._stop
        stop = self._stop = Outcome()
        stopped = CancelledError(f"{self.name} was stopped", reason="shutdown", extension=self.name)
        self._start.fail(stopped)
        if self._process is None and self.stage is Stage.STARTING and not self._spawn_asked:
            self._end(None)
        elif self.stage is Stage.READY and self.failure is None:
            self._enter(Stage.DRAINING)
            self._set_health(Health.DRAINING, "stopping")
            for call in list(self._calls):
                call.cancel("shutdown")
            self.peer.drain()
            if self._process is not None:
                self._process.close_stdin()
            self._after(self.session.settings.server_eof_grace_ms, self._terminate)
        elif self.stage is not Stage.ENDED:
            self.fail(ExitedError(f"{self.name}: stopped before it was ready", extension=self.name))
        else:
            stop.succeed(None)
        self.session.changed()
        return stop

    def warn(self, text: str) -> None:
        """Tell the session's observers, once the process runs, of something amiss. Callable from any thread."""
        self._warnings.append(text)

    def add_watcher(self, watcher: ServerWatcher) -> None:
        """Tell ``watcher`` from now on."""
        self._watchers = (*self._watchers, watcher)

    def remove_watcher(self, watcher: ServerWatcher) -> None:
        """Tell ``watcher`` no more. Idempotent."""
        self._watchers = tuple(other for other in self._watchers if other is not watcher)

    # -- starting ------------------------------------------------------------------------------------------------------

    def _ask(self, request: ApprovalRequest, decided: Callable[[bool], None]) -> None:
        def settled(outcome: Outcome[bool]) -> None:
            if self.stage is not Stage.ENDED and self.failure is None:
                decided(outcome.error is None and outcome.result() is True)

        try:
            answer = self.session.approve(request)
        except KeyboardInterrupt:
            raise
        except BaseException as error:
            self._diagnose(f"asking for approval failed, which counts as a refusal: {error!r}")
            decided(False)
        else:
            answer.add_callback(settled)

    def _on_server_approved(self, approved: bool) -> None:
        if approved:
            self._spawn_when_allowed()
        else:
            self.fail(
                SetupError(f"{self.name}: not approved, not started", name="capability_mismatch", extension=self.name)
            )
            self._end(None)

    def _spawn_when_allowed(self) -> None:
        delay = self.session.server_delay_ms(self.name)
        if delay > 0:
            self._set_health(Health.BACKOFF, f"the last start failed; the next is in {delay} ms")
            self._after(delay, self._spawn)
        else:
            self._spawn()

    def _spawn(self) -> None:
        self._spawn_asked = True
        self._set_health(Health.STARTING, "starting")
        self.session.driver.spawn(self)

    def _initialize(self) -> None:
        while self._warnings:
            self._diagnose(self._warnings.popleft())
        self._set_health(Health.INITIALIZING, "asked to initialize")
        self.peer.initialize()

    # -- the protocol --------------------------------------------------------------------------------------------------

    def next_deadline(self) -> int | None:
        self._looked_for = super().next_deadline()
        return self._looked_for

    def _moved(self) -> None:
        if self._queued or self.peer.wants_tools:
            self.session.changed()

    def next_output(self) -> Output | None:
        """The next line to write, if there is one."""
        # The driver asks three times for each frame it gets.
        frame = self.peer.next_frame() if self._queued else None
        return None if frame is None else ControlOutput(frame, self.peer.frame_written)

    def _receive_data(self, data: bytes) -> None:
        self.peer.receive_data(data)
        self._drain_events()

    def _end_of_output(self, error: BrokerError) -> None:
        # An unterminated last line may still be an answer.
        self.peer.receive_eof(error)
        self._drain_events()

    def _settle_failed(self, error: BrokerError) -> None:
        self.peer.fail(error)
        self._drain_events()

    def _settle_ended(self) -> None:
        self.peer.close()
        self._drain_events()

    def _tick_protocol(self) -> None:
        self.peer.tick()
        self._drain_events()

    def _protocol_deadline(self) -> int | None:
        return self.peer.next_deadline()

    def _drain_events(self) -> None:
        while (event := self.peer.next_event()) is not None:
            if isinstance(event, Ready | CatalogueChanged):
                self._approve_tools(event.catalogue)
            elif isinstance(event, ServerRequest):
                self._relieve(len(self._queued))
            elif isinstance(event, Diagnostic):
                self._diagnose(event.text, source="wire")
            elif isinstance(event, NotificationReceived):
                self._tell(partial(notify, event))
            elif isinstance(event, Closed) and event.error is not None:
                self.fail(event.error)

    def _tell(self, what: Callable[[ServerWatcher], object]) -> None:
        for watcher in self._watchers:
            try:
                what(watcher)
            except KeyboardInterrupt:
                raise
            except BaseException as error:
                self._diagnose(f"a watcher failed: {error!r}")

    # -- tools ---------------------------------------------------------------------------------------------------------

    def _approve_tools(self, catalogue: Catalogue) -> None:
        """Offer the tools of ``catalogue``, asking first where that is needed; a newer catalogue overtakes it."""
        self._listings += 1
        listing = self._listings
        listed = {tool.name: tool for tool in catalogue.tools}
        if not self._needs_approval:
            self._offer(listed)
            return
        requests = {
            name: tool_approval(self.config, tool, project=self.session.workspace) for name, tool in listed.items()
        }
        # One answer holds for exactly what was asked, as long as the process lives: who was refused cannot ask again
        # by announcing a change, and what was approved is not offered as something else.
        keys = {request.key for request in requests.values()}
        self._decisions = {key: decision for key, decision in self._decisions.items() if key in keys}
        if self.stage is Stage.READY:
            self._offer({name: tool for name, tool in listed.items() if self._tools.get(name) == tool})

        waiting = deque(request for request in requests.values() if request.key not in self._decisions)
        asking = False

        def ask() -> None:
            nonlocal asking
            if asking:
                return  # the answer came at once; the loop below goes on
            asking = True
            while waiting:
                self._ask(waiting[0], partial(decided, waiting[0]))
                if waiting[0].key not in self._decisions:
                    break
                waiting.popleft()
            asking = False
            if not waiting:
                self._offer({name: tool for name, tool in listed.items() if self._decisions[requests[name].key]})

        def decided(request: ApprovalRequest, yes: bool) -> None:
            if listing != self._listings:
                return
            self._decisions[request.key] = yes
            if not yes:
                self._diagnose(f"tool {request.tool} is not approved")
            if not asking:
                waiting.popleft()
            ask()

        ask()

    def _offer(self, tools: dict[str, ListedTool]) -> None:
        """Make ``tools`` the tools that may be called; the first time that makes the server ready."""
        first = self.stage is not Stage.READY
        if tools == self._tools and not first:
            return
        try:
            self.session.names.replace(self.name, tools)
        except BrokerError as error:
            if first:
                self.fail(error)
            else:
                self._diagnose(f"its tools stay as they were: {error}")
            return
        self._tools = tools
        if first:
            self._enter(Stage.READY)
            self._set_health(Health.READY, "ready")
            self.session.server_started(self.name)
        self.session.announce(Started(self.name, self.number, tuple(tools)))
        self._tell(lambda watcher: watcher.tools_changed())
        self._start.succeed(self)

    def _answered(self, call: McpCall, request: HostRequest) -> None:
        self._calls.discard(call)
        if request.error is not None:
            bound_error(request.error, self.config, call.tool)
            call.fail(request.error)
            return
        settle(call, request.result, self.config, self._files, self.session.driver, self._finished)
        if not call.done:
            self._calls.add(call)
            call.add_callback(self._calls.discard)

    def _finished(self, call: McpCall, output: ToolOutput) -> ToolOutput:
        """The output as its caller gets it; its artifacts can be read by id from now on."""
        if output.artifacts:
            suffix = f"{self.name}-{self.number}"
            ids = tuple(self.session.artifacts.add(ref, self._files, suffix=suffix) for ref in output.artifacts)
            output = evolve(output, artifact_ids=ids)
        return evolve(output, text=call.shown(output.text)) if call.untrusted else output

    # -- the end -------------------------------------------------------------------------------------------------------

    def _terminate(self) -> None:
        if self._process is not None:
            self._process.terminate()
        self._after(self.session.settings.server_term_grace_ms, self._kill)

    def _failed(self, error: BrokerError) -> None:
        if not self._start.done and self._spawn_asked:
            self.session.server_failed(self.name)
        self._withdraw()
        self._set_health(Health.CRASHED, str(error))
        self._start.fail(error)

    def _ended(self, status: int | None) -> None:
        self._withdraw()
        how = "was killed" if self._killed else "stopped"
        error = self.failure
        self.session.announce(Exited(self.name, self.number, status, how if error is None else str(error), error))
        self._set_health(Health.STOPPED if error is None else Health.PARKED, "ended")
        if self._stop is not None:
            self._stop.succeed(None)

    def _withdraw(self) -> None:
        self.session.names.remove(self.name)
        if self._tools:
            self._tools = {}
            self._tell(lambda watcher: watcher.tools_changed())

    def _set_health(self, health: Health, reason: str) -> None:
        if health is not self.health:
            self.health = health
            self.session.announce(HealthChanged(self.name, health, reason))
