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

from broker.bus import Binding, Field, Message, Peer
from broker.bus.screening import refusal
from broker.errors import BrokerError, CancelledError, TimedOutError, UsageError
from broker.host.link import Stage
from broker.host.mcp_call import McpCall
from broker.host.mcp_server import McpServer
from broker.host.notices import Diagnostic
from broker.host.outcome import Outcome
from broker.wire.odek.result import ToolOutput
from broker.wire.quoting import escape

LEVELS: Final = ("debug", "info", "notice", "warning", "error", "critical", "alert", "emergency")
_TEXT_BYTES: Final = 512
_LEFT_OUT: Final = "(left out: the bus carries no such text)"


class McpBridge:
    """Publishes one server's doings on its session's bus. Made by :meth:`broker.Session.bridge`.

    It watches by itself: tools that come and go, and every call of the host. After a reset of the bus it declares its
    topics anew. It outlives its server, as the last events would go with it, until it is closed or another takes its
    name.
    """

    def __init__(self, server: McpServer, *, name: str | None = None, notices: bool = False) -> None:
        if server.stage is Stage.ENDED:
            raise UsageError(f"{server.name} has ended", extension=server.name)
        self.server: McpServer = server
        self._notices = notices
        self._offered: set[str] = set()
        self.name: str = name or server.name
        self.peer: Peer = server.session.attach(self.name)
        try:
            self._declare()
        except BrokerError:
            self.peer.detach()
            raise
        self.peer.deliver_to(self._on_message)
        server.add_watcher(self)
        self.tools_changed()

    def close(self) -> None:
        """Leave the bus. Idempotent."""
        self.server.remove_watcher(self)
        self.peer.detach()

    # -- what the server does ------------------------------------------------------------------------------------------

    def tools_changed(self) -> None:
        """Publish what came and went in the server's catalogue since the last time."""
        now = {tool.name for tool in self.server.tools}
        for tool in sorted(self._offered - now):
            self._publish("tools", {"tool": _safe(tool), "state": "withdrawn"})
        for tool in sorted(now - self._offered):
            self._publish("tools", {"tool": _safe(tool), "state": "offered"})
        self._offered = now

    def call_started(self, call: McpCall) -> None:
        """Publish how ``call`` ends, once it does."""
        clock = self.server.session.clock
        started = clock.monotonic_ms()

        def ended(outcome: Outcome[ToolOutput]) -> None:
            payload = {"tool": _safe(call.tool), "duration_ms": clock.monotonic_ms() - started, **_summary(outcome)}
            self._publish("calls", payload)

        call.add_callback(ended)

    def notified(self, method: str, params: Any) -> None:
        """Publish a log message of the server, if the host asked for them."""
        if not self._notices or method != "notifications/message" or not isinstance(params, dict):
            return
        level, data = params.get("level"), params.get("data")
        text = _safe(escape(data if isinstance(data, str) else repr(data), max_chars=_TEXT_BYTES // 4))
        known = isinstance(level, str) and level in LEVELS
        self._publish("notices", {"level": level if known else "info", "text": text})

    # -- inside --------------------------------------------------------------------------------------------------------

    def _declare(self) -> None:
        self._binding = self.server.session.bus.binding_id
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
        if self._notices:
            self.peer.declare(
                f"bus.{self.name}.notices",
                [Field.enum("level", LEVELS), Field.string("text", max_bytes=_TEXT_BYTES)],
            )

    def _on_message(self, message: Message) -> None:
        if isinstance(message, Binding):
            self._publish(None, {})

    def _publish(self, topic: str | None, payload: dict[str, Any]) -> None:
        if self.peer.closed:
            return
        session = self.server.session
        try:
            if self._binding != session.bus.binding_id:
                self._declare()
            if topic is not None:
                self.peer.publish(f"bus.{self.name}.{topic}", payload)
        except BrokerError as error:
            # A full subscriber must not hold up the server's call; the loss is told.
            session.announce(Diagnostic(self.server.name, self.server.number, "host", f"not published: {error}"))


def _summary(outcome: Outcome[ToolOutput]) -> dict[str, Any]:
    if isinstance(outcome.error, TimedOutError):
        return {"outcome": "timed_out", "artifacts": 0}
    if isinstance(outcome.error, CancelledError):
        return {"outcome": "cancelled", "artifacts": 0}
    if outcome.error is not None or outcome.result().is_error:
        return {"outcome": "failed", "artifacts": 0}
    return {"outcome": "completed", "artifacts": outcome.result().artifact_count}


def _safe(text: str) -> str:
    """``text``, or what stands for it if the bus would not carry it."""
    return text if refusal(text) is None and len(text.encode("utf-8", "replace")) <= _TEXT_BYTES else _LEFT_OUT
