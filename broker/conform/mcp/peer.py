"""One process of an MCP server under test, spoken to as a strict host would, line by line."""

from __future__ import annotations

from typing import Any, ClassVar

from attrs import define

from broker.conform.mcp.lines import read_line
from broker.conform.peer import Peer, WireRules
from broker.wire.quoting import quote

_METHOD_NOT_FOUND = -32601


@define(eq=False, kw_only=True)
class McpPeer(Peer):
    """The process and everything said so far. ``announced``: it was sent ``notifications/initialized``."""

    rules: ClassVar[WireRules] = WireRules(
        one_line="odek.transport.line",
        last_line="odek.transport.last-line",
        unasked="odek.server.answered-once",
        id_exact="odek.server.id-echoed",
        answered_once="odek.server.answered-once",
        stderr="odek.transport.stderr-drained",
        stays_alive="odek.server.stays-alive",
    )

    bound: int
    announced: bool = False

    async def notify(self, method: str, params: Any = None) -> None:
        """Send a notification, so that it is read alone."""
        await self.probe.drained()
        await super().notify(method, params)
        await self.probe.drained()

    def _receive_line(self, line: bytes) -> None:
        found = read_line(line, self.bound)
        for rule, evidence in found.faults:
            self.findings.failed(rule, evidence)
        for message in found.messages:
            if "result" in message or "error" in message:
                self._on_answer(message)
            elif isinstance(message.get("method"), str):
                self._on_method(message)

    def _on_method(self, message: dict[str, Any]) -> None:
        request_id = message.get("id")
        if request_id is None:
            return
        if not self.announced and message["method"] != "ping":
            self.findings.failed(
                "odek.server.requests-before-initialized",
                f"{quote(message['method'])} came before notifications/initialized was sent",
            )
        answer: dict[str, Any] = {"jsonrpc": "2.0", "id": request_id}
        if message["method"] == "ping":
            answer["result"] = {}
        else:
            answer["error"] = {"code": _METHOD_NOT_FOUND, "message": "method not found"}
        self.send_soon(self.encode(answer))

    def _on_answer(self, message: dict[str, Any]) -> None:
        # An error without an id answers nothing: what else could be said of a line that cannot be read?
        if message.get("id") is None and "error" in message:
            self.findings.failed("odek.server.notifications-unanswered", f"an answer without an id: {message}")
            return
        super()._on_answer(message)
