"""A hostile MCP server: right in everything but what its scenario says. Started by ``start.py``."""

from __future__ import annotations

from .base import BaseProgram

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

TOOL: dict[str, Any] = {"name": "poke", "description": "Does nothing.", "inputSchema": {"type": "object"}}


class Program(BaseProgram):
    """The server in one scenario."""

    held: Any = None

    def initialize(self, request_id: Any, params: dict[str, Any]) -> None:
        """Answer ``initialize`` as the scenario has it."""
        if self.scenario == "mcp-exits-at-once":
            self.leave(3)
        if self.scenario == "mcp-stderr-flood":
            self.flood_stderr()
        version = params.get("protocolVersion")
        if self.scenario == "mcp-version":
            self.log("fault")
            version = "2099-01-01"
        if self.scenario == "mcp-asks" and self.held is None:
            self.held = (request_id, params)
            self.log("fault")
            self.send({"id": "ping", "method": "ping"})
            self.send({"id": "sampling", "method": "sampling/createMessage", "params": {}})
            return
        if self.scenario == "mcp-long-line":
            self.log("fault")
            self.write(b"x" * 65_537)
            return
        self.send(
            {
                "id": request_id,
                "result": {
                    "protocolVersion": version,
                    "capabilities": {"tools": {}},
                    "serverInfo": {"name": "hostile", "version": "1"},
                },
            }
        )

    def list(self, request_id: Any) -> None:
        """Answer ``tools/list`` as the scenario has it."""
        tools = [TOOL]
        if self.scenario == "mcp-bad-name":
            self.log("fault")
            tools = [TOOL, {**TOOL, "name": "po.ke"}]
        elif self.scenario == "mcp-name-twice":
            self.log("fault")
            tools = [TOOL, TOOL]
        elif self.scenario == "mcp-same-cursor":
            self.log("fault")
            self.send({"id": request_id, "result": {"tools": [], "nextCursor": "again"}})
            return
        self.send({"id": request_id, "result": {"tools": tools}})

    def receive(self, message: dict[str, Any]) -> None:
        method, request_id = message.get("method"), message.get("id")
        if method == "initialize":
            self.initialize(request_id, message.get("params", {}))
        elif method == "tools/list":
            self.list(request_id)
        elif method == "tools/call":
            self.send({"id": request_id, "result": {"content": []}})
        elif method == "ping":
            self.send({"id": request_id, "result": {}})
        elif method is None and request_id == "sampling" and self.held is not None:
            self.initialize(*self.held)

    def begin(self) -> None:
        super().begin()
        if self.scenario == "mcp-banner":
            self.write(b"hostile: \x1b[1mlistening\x1b[0m\n[]\n42\n")
