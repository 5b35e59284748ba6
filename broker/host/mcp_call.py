"""One call of an MCP server's tool, and who is told of such calls."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol

from broker.errors import CancelledError
from broker.host.outcome import Outcome
from broker.wire.mcp.requests import HostRequest
from broker.wire.odek.result import ToolOutput

if TYPE_CHECKING:
    from broker.host.mcp_server import McpServer


class ServerWatcher(Protocol):
    """Is told what one server does; what it raises is reported and stops nothing."""

    def tools_changed(self) -> None:
        """:attr:`McpServer.tools` are others now."""
        ...

    def call_started(self, call: McpCall) -> None:
        """A tool was called."""
        ...

    def notified(self, method: str, params: Any) -> None:
        """The server sent a notification unasked. Never trust it."""
        ...


class McpCall(Outcome[ToolOutput]):
    """A tool call on its way. ``cancel()`` releases the caller at once and tells the server, if it had the call."""

    def __init__(self, server: McpServer, tool: str, *, untrusted: bool) -> None:
        super().__init__()
        self.tool: str = tool
        self.untrusted: bool = untrusted
        self._server = server
        self._request: HostRequest | None = None

    def cancel(self, reason: str = "user") -> None:
        """Settle with :class:`CancelledError` unless it settled already. Idempotent."""
        if self._request is not None and not self.done:
            self._server.peer.cancel(self._request, reason)
            self.fail(CancelledError(f"{self._server.name}: tool {self.tool} was cancelled", reason=reason))
            self._server.session.changed()
