"""One MCP server under ``odek-extension/v1``, client side: a state machine without IO.

A driver reads bytes into :meth:`McpPeer.receive_data` and drains :meth:`~McpPeer.next_event`; it writes each frame of
:meth:`~McpPeer.next_frame` and reports it with :meth:`~McpPeer.frame_written`; it calls :meth:`~McpPeer.tick` at
:meth:`~McpPeer.next_deadline`. All calls come from one thread at a time.

The life of a connection is a line: ``initialize``, its answer judged, ``notifications/initialized``, every page of
``tools/list``, and then :class:`~broker.wire.mcp.events.Ready`. What the server does wrong never raises here: it fails
the one call it concerns, or is dropped with a diagnostic, or ends the connection, in which case every open request
settles with that failure and one :class:`~broker.wire.mcp.events.Closed` is the last event. What the *host* does wrong
raises, and changes nothing.

Source: odek contract, "Transport and protocol" and "Timeout and limit behavior"; odek notes, section 2; design,
"Decisions on odek-extension/v1".
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final, NoReturn

from broker.clock import Clock
from broker.errors import (
    BrokerError,
    CancelledError,
    CapabilityMismatchError,
    ExitedError,
    NegotiationError,
    ProtocolError,
    TimedOutError,
    UsageError,
)
from broker.limits import MAX_REQUEST_BYTES
from broker.wire.connection import BaseConnection
from broker.wire.framing import LineFramer
from broker.wire.mcp.catalogue import Catalogue
from broker.wire.mcp.events import CatalogueChanged, Closed, Diagnostic, McpEvent, Ready
from broker.wire.mcp.handshake import Handshake, initialize_params, judge_initialize
from broker.wire.mcp.inbound import Inbound
from broker.wire.mcp.listing import Listing
from broker.wire.mcp.outbound import McpOutbound
from broker.wire.mcp.requests import HostRequest, McpRequest, Progress, encode, encode_call
from broker.wire.mcp.settings import McpSettings, Phase
from broker.wire.mcp.statistics import McpStatistics
from broker.wire.outbox import OutFrame
from broker.wire.quoting import escape, quote
from broker.wire.suggestion import suggestion

__all__ = ["McpPeer", "McpRequest", "McpSettings", "McpStatistics", "OutFrame", "Phase", "Progress"]

_READY: Final = Phase.READY  # looking it up in its class takes longer


class McpPeer(BaseConnection[McpEvent, McpOutbound]):
    """The connection to one process of the server called ``server``. See the module's text for how it is driven."""

    def __init__(self, clock: Clock, settings: McpSettings, server: str) -> None:
        super().__init__(server)
        self._clock = clock
        self._settings = settings
        self._phase = Phase.NEW
        self._framer = LineFramer(settings.max_response_bytes)
        self._inbound = Inbound(self)
        self.outbound: McpOutbound = McpOutbound(self, bound=MAX_REQUEST_BYTES)
        self._listing = Listing(server, self._ask_page, self._on_listed)
        self._initialize: McpRequest | None = None
        self._handshake: Handshake | None = None
        self._catalogue = Catalogue(server)
        self._next_token = 1
        self._eof_failure: BrokerError | None = None

    def __repr__(self) -> str:
        return f"<McpPeer {self._extension} {self._phase.value}>"

    @property
    def server(self) -> str:
        """The server's name in the host's configuration."""
        return self._extension

    @property
    def settings(self) -> McpSettings:
        """What the host decided about this server."""
        return self._settings

    @property
    def phase(self) -> Phase:
        """How far the connection has come."""
        return self._phase

    @property
    def catalogue(self) -> Catalogue:
        """The tools that may be called now; empty before the connection is ready."""
        return self._catalogue

    def statistics(self) -> McpStatistics:
        """The counters of now."""
        return McpStatistics(
            junk_lines=self._inbound.junk_lines,
            junk_bytes=self._inbound.junk_bytes,
            ignored_answers=self._inbound.ignored_answers,
            open_requests=self.outbound.requests.open_count,
            queued_frames=self.queued_frames,
        )

    # -- what the host asks for ----------------------------------------------------------------------------------------

    def initialize(self) -> None:
        """Queue ``initialize`` under id 1. ``Ready`` follows, or ``Closed``.

        Raises :class:`~broker.errors.UsageError` when called twice.
        """
        if self._phase is not Phase.NEW:
            raise UsageError(f"initialize was called in phase {self._phase.value}", extension=self._extension)
        settings = self._settings
        self._phase = Phase.INITIALIZING
        self._initialize = self._request(
            "initialize", encode("initialize", initialize_params(settings)), settings.timeout_ms
        )
        self.outbound.add(self._initialize)

    def call(
        self,
        tool: str,
        arguments: Any,
        *,
        timeout_ms: int | None = None,
        on_settled: Callable[[HostRequest], None] | None = None,
        on_progress: Callable[[Progress], None] | None = None,
        progress_extends: bool = False,
        meta: Mapping[str, str] | None = None,
    ) -> McpRequest:
        """Call ``tool``, by its raw name, with any JSON value as ``arguments``; the answer settles the request.

        The earlier of ``timeout_ms`` and the server's own timeout counts, from now on: queueing, writing and waiting
        are in it. A request that timed out or was cancelled tells whether it was ``dispatched``; if it was, the server
        is told once and goes on running. ``on_progress`` asks the server for progress; with ``progress_extends`` each
        progress starts the timeout anew, up to 3600 s after the call. ``on_settled`` is called once. ``meta`` is
        sent beside the arguments, as members of ``_meta``.

        Raises without sending anything: :class:`~broker.errors.UsageError` before the connection is ready, a copy of
        its failure when it has ended, :class:`~broker.errors.CapabilityMismatchError` for a tool that is not listed or
        a connection that takes no new calls, :class:`~broker.errors.TimedOutError` when ``timeout_ms`` is already used
        up, :class:`~broker.errors.InvalidParamsError` for arguments that JSON cannot hold, and
        :class:`~broker.errors.ResourceExhaustedError` for a request that is too long or one too many.
        """
        if self._phase is not _READY or tool not in self._catalogue:
            self._refuse_call(tool)
        limit_ms = self._settings.timeout_ms
        if timeout_ms is not None:
            if type(timeout_ms) is not int:
                raise UsageError(
                    f"{self._extension}: tool {tool}: timeout_ms must be an integer, not {type(timeout_ms).__name__}",
                    extension=self._extension,
                    tool=tool,
                    path="timeout_ms",
                )
            limit_ms = min(limit_ms, timeout_ms)
        if limit_ms < 1:
            raise TimedOutError(
                f"{self._extension}: tool {tool}: its time was up before it was called",
                dispatched=False,
                extension=self._extension,
                tool=tool,
                method="tools/call",
                observed=0,
                maximum=limit_ms,
            )
        token = self._next_token if on_progress is not None or progress_extends else None
        request = self._request("tools/call", encode_call(tool, arguments, token, meta), limit_ms, tool=tool)
        self.outbound.check_room(request)
        request.on_settled = on_settled
        request.on_progress = on_progress
        request.progress_extends = progress_extends
        if token is not None:
            self._next_token += 1
            self.outbound.expect_progress(request, token)
        self.outbound.add(request)
        return request

    def cancel(self, request: HostRequest, reason: str) -> None:
        """Release the caller with :class:`~broker.errors.CancelledError`, and tell the server if the request has left.

        A request that has not begun to leave is never written. Does nothing when the request has settled.
        """
        if not request.settled and self._phase is not Phase.CLOSED:
            detail = f"{self._extension}: {request.method} was cancelled: {escape(reason)}"
            self.abandon(request, reason, CancelledError(detail, reason=reason, dispatched=request.dispatched))

    def drain(self) -> None:
        """Take no new calls; what is open goes on. The end of the output is then an orderly one."""
        if self._phase in (Phase.READY, Phase.LISTING):
            self._phase = Phase.DRAINING
            self._listing.stop()

    # -- the driver's side ---------------------------------------------------------------------------------------------

    def receive_data(self, data: bytes) -> None:
        """Take bytes read from the server. Nothing happens until :meth:`next_event`."""
        if not self._ended:
            self._framer.feed(data)

    def receive_eof(self, failure: BrokerError | None = None) -> None:
        """Take the end of the server's output; judged when everything before it has been, an unterminated line too.

        ``failure`` is the error that open and later calls get, for a driver that knows how the process ended.
        """
        self._eof = True
        self._eof_failure = failure

    def next_event(self) -> McpEvent | None:
        """The next event; buffered bytes are read one line at a time until there is one. ``None``: no more for now."""
        while not self._events and not self._ended:
            try:
                line = self._framer.next_frame()
            except ProtocolError as error:
                self.fail(self._too_long(error))
                break
            if line is None and self._eof:
                line = self._framer.take_rest()
            try:
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
        """Do what has become due by the clock: timeouts, and listing the tools again."""
        now_ms = self.now_ms()
        while (request := self.outbound.requests.timers.pop_due(now_ms)) is not None:
            self.outbound.expire(request, now_ms)
        if self._phase is not Phase.CLOSED:
            self._listing.tick(now_ms)

    @property
    def wants_tools(self) -> bool:
        """Whether tools will be listed as soon as :meth:`tick` may."""
        return self._listing.wanted

    def next_deadline(self) -> int | None:
        """The monotonic millisecond at which :meth:`tick` has something to do, or ``None``."""
        request_due = self.outbound.requests.timers.next_due_ms()
        listing_due = self._listing.due_ms(self.now_ms()) if self._listing.wanted else None
        if request_due is None or listing_due is None:
            return listing_due if request_due is None else request_due
        return min(request_due, listing_due)

    # -- for the two halves --------------------------------------------------------------------------------------------

    def now_ms(self) -> int:
        """Monotonic milliseconds."""
        return self._clock.monotonic_ms()

    def abandon(self, request: HostRequest, reason: str, error: BrokerError) -> None:
        """Settle an open request with ``error``; for ``initialize`` that is the end of the connection."""
        if request is self._initialize:
            self.outbound.attribute(request, error)
            self.fail(error)
        else:
            self.outbound.abandon(request, reason, error, self.now_ms())

    def tools_changed(self) -> None:
        """The server says that its tools are others now. They are listed by the next :meth:`tick` that may."""
        if self._phase in (Phase.LISTING, Phase.READY) and self._handshake is not None and self._handshake.has_tools:
            self._listing.want()

    def settle_answered(self, request: HostRequest, result: Any, error: BrokerError | None) -> None:
        """Settle a request that the server has just answered."""
        if request is self._initialize:
            self._initialize = None
            try:
                self._greet(judge_initialize(self._extension, result, error))
            except NegotiationError as refusal:
                self.fail(refusal)
        else:
            self.outbound.settle(request, result=result, error=error)
            if self.outbound.requests.waits:
                self.outbound.pump()

    # -- inside --------------------------------------------------------------------------------------------------------

    def _request(self, method: str, body: bytes, timeout_ms: int, *, tool: str | None = None) -> McpRequest:
        return McpRequest(
            method=method,
            body=body[1:],
            timeout_ms=timeout_ms,
            started_ms=self.now_ms(),
            bypass_slots=True,  # the protocol bounds no concurrency; open requests are bounded as a whole
            tool=tool,
        )

    def _refuse_call(self, tool: str) -> NoReturn:
        if self._failure is not None:
            error = self.outbound.copy_for(self._request("tools/call", b"{", 1, tool=tool), self._failure)
            error.args = (f"{self._failure}; tool {tool} cannot be called any more",)
            raise error from self._failure
        if self._phase in (Phase.DRAINING, Phase.CLOSED):
            raise CapabilityMismatchError(
                f"{self._extension} takes no call of tool {quote(tool)}: the connection is {self._phase.value}",
                extension=self._extension,
                tool=tool,
                method="tools/call",
            )
        if self._phase is not Phase.READY:
            raise UsageError(
                f"{self._extension} is not ready: {self._phase.value}", extension=self._extension, tool=tool
            )
        hint = suggestion(tool, (listed.name for listed in self._catalogue.tools), listed="it has")
        raise CapabilityMismatchError(
            f"{self._extension} has no tool {quote(tool)}{hint}",
            extension=self._extension,
            tool=tool,
            method="tools/call",
        )

    def _greet(self, handshake: Handshake) -> None:
        """Say that the handshake is over, and ask for the tools of a server that has any."""
        self._handshake = handshake
        self.outbound.outbox.push(encode("notifications/initialized"))
        self._phase = Phase.LISTING
        if handshake.has_tools:
            self._listing.want()
            self._listing.tick(self.now_ms())
        else:
            self._on_listed(self._catalogue)

    def _ask_page(self, params: dict[str, Any] | None, on_settled: Callable[[HostRequest], None]) -> None:
        request = self._request("tools/list", encode("tools/list", params), self._settings.timeout_ms)
        request.on_settled = on_settled
        self.outbound.add(request)

    def _on_listed(self, outcome: Catalogue | BrokerError) -> None:
        if isinstance(outcome, BrokerError):
            if self._phase is Phase.LISTING:
                self.fail(outcome)
            elif self._phase is not Phase.CLOSED:  # the end of the connection refuses no list
                self.diagnose(f"its tools stay as they were, the new list was refused: {outcome}")
            return
        for warning in outcome.warnings:
            self.emit(Diagnostic(escape(warning)))
        before, self._catalogue = self._catalogue, outcome
        if self._phase is Phase.LISTING and self._handshake is not None:
            self._phase = Phase.READY
            self.emit(Ready(outcome, self._handshake.protocol_version, self._handshake.server_info))
        elif outcome != before:
            self.emit(CatalogueChanged(outcome))

    def _too_long(self, error: ProtocolError) -> ProtocolError:
        """The framer's ``error`` in the words of the server's configuration."""
        maximum = self._settings.max_response_bytes
        named = ProtocolError(
            f"{self._extension}: a line of its output is over max_response_bytes={maximum}: "
            f"{error.observed} bytes or more",
            name="resource_exhausted",
            limit="max_response_bytes",
            observed=error.observed,
            maximum=maximum,
        )
        named.__cause__ = error
        return named

    def _end_of_stream(self) -> None:
        if self._phase is Phase.DRAINING and not any(self.outbound.requests.unsettled()):
            self.close()
        else:
            self.fail(self._eof_failure or ExitedError(f"{self._extension} closed its output"))

    def _end(self, failure: BrokerError | None, error: BrokerError) -> None:
        if self._phase is Phase.CLOSED:
            return
        self._phase = Phase.CLOSED
        self._failure = failure
        self._listing.stop()
        self._framer = LineFramer(self._settings.max_response_bytes)  # what is left of the stream is not kept
        self.outbound.end(error)
        self.emit(Closed(failure))
        self._ended = True
