"""An MCP server's place on a session's bus: what its tools did and what it says, published by the host in its name.

The bridge is a peer called after the server. It publishes what the host saw, never what the server asked for: the
server cannot subscribe, cannot choose a topic and is heard only through typed, bounded and screened fields. Text of the
server that the bus would refuse is left out and its place says so.

Topics, with ``<name>`` for the bridge's peer name:

``bus.<name>.tools``
    ``tool``, ``state`` (``offered`` or ``withdrawn``)
``bus.<name>.calls``
    ``tool``, ``outcome`` (``completed``, ``failed``, ``timed_out`` or ``cancelled``), ``duration_ms``, ``artifacts``
``bus.<name>.notices``
    ``level``, ``text``: the server's log messages, only with ``notices=True``
"""

from __future__ import annotations

from typing import Any, Final

from broker.bus import Field, Peer
from broker.bus.screening import refusal
from broker.errors import BrokerError, CancelledError, TimedOutError
from broker.host.mcp_server import McpCall, McpServer
from broker.host.notices import Diagnostic
from broker.host.outcome import Outcome
from broker.wire.odek.result import ToolOutput
from broker.wire.quoting import escape

LEVELS: Final = ("debug", "info", "notice", "warning", "error", "critical", "alert", "emergency")
_TEXT_BYTES: Final = 512
_LEFT_OUT: Final = "(left out: the bus does not carry such text)"


class McpBridge:
    """Publishes one server's doings on its session's bus. Made by :meth:`broker.Session.bridge`."""

    def __init__(self, server: McpServer, *, name: str | None = None, notices: bool = False) -> None:
        self._server = server
        self.name: str = name or server.name
        self.peer: Peer = server.session.attach(self.name)
        self._offered: set[str] = set()
        self._declare(notices=notices)
        self._binding = server.session.bus.binding_id
        self._notices = notices
        self.sync_tools()
        if notices:
            server.add_notice_handler(self._on_notice)

    def _declare(self, *, notices: bool) -> None:
        self.peer.declare(
            f"bus.{self.name}.tools",
            [Field.string("tool", max_bytes=64), Field.enum("state", ["offered", "withdrawn"])],
        )
        self.peer.declare(
            f"bus.{self.name}.calls",
            [
                Field.string("tool", max_bytes=64),
                Field.enum("outcome", ["completed", "failed", "timed_out", "cancelled"]),
                Field.integer("duration_ms", minimum=0),
                Field.integer("artifacts", minimum=0),
            ],
        )
        if notices:
            self.peer.declare(
                f"bus.{self.name}.notices",
                [Field.enum("level", LEVELS), Field.string("text", max_bytes=_TEXT_BYTES)],
            )

    def sync_tools(self) -> None:
        """Publish what came and went in the server's catalogue since the last time."""
        now = {tool.name for tool in self._server.tools}
        for tool in sorted(self._offered - now):
            self._publish("tools", {"tool": tool, "state": "withdrawn"})
        for tool in sorted(now - self._offered):
            self._publish("tools", {"tool": tool, "state": "offered"})
        self._offered = now

    def watch(self, call: McpCall) -> None:
        """Publish how ``call`` ends."""
        started = self._server.session.clock.monotonic_ms()

        def ended(outcome: Outcome[ToolOutput]) -> None:
            word, artifacts = "completed", 0
            if isinstance(outcome.error, TimedOutError):
                word = "timed_out"
            elif isinstance(outcome.error, CancelledError):
                word = "cancelled"
            elif outcome.error is not None:
                word = "failed"
            else:
                artifacts = outcome.result().artifact_count
            duration = self._server.session.clock.monotonic_ms() - started
            self._publish(
                "calls", {"tool": call.tool, "outcome": word, "duration_ms": duration, "artifacts": artifacts}
            )

        call.add_callback(ended)

    def close(self) -> None:
        """Leave the bus. Idempotent."""
        self.peer.detach()

    def _on_notice(self, method: str, params: Any) -> None:
        if method != "notifications/message" or not isinstance(params, dict):
            return
        level, data = params.get("level"), params.get("data")
        text = escape(data if isinstance(data, str) else repr(data), max_chars=_TEXT_BYTES // 4)
        fine = refusal(text) is None and len(text.encode()) <= _TEXT_BYTES
        self._publish("notices", {"level": level if level in LEVELS else "info", "text": text if fine else _LEFT_OUT})

    def _publish(self, topic: str, payload: dict[str, Any]) -> None:
        if self.peer.closed:
            return
        try:
            if self._binding != self._server.session.bus.binding_id:
                self._binding = self._server.session.bus.binding_id
                self._declare(notices=self._notices)
            self.peer.publish(f"bus.{self.name}.{topic}", payload)
        except BrokerError as error:
            # A full subscriber must not hold up the server's call; the loss is told.
            session = self._server.session
            session.announce(Diagnostic(self._server.name, self._server.number, "host", f"not published: {error}"))
