"""One process of an MCP server under test, spoken to as a strict host would, line by line."""

from __future__ import annotations

import json
from typing import Any, TypeAlias

from attrs import define, field

from broker.conform.call import Call
from broker.conform.findings import Findings
from broker.conform.joining import Joiner
from broker.conform.mcp.lines import read_line
from broker.conform.probe import Probe
from broker.wire.quoting import quote

Id: TypeAlias = int | str
_METHOD_NOT_FOUND = -32601


@define(eq=False)
class McpPeer:
    """The process and everything said so far.

    ``may_end`` says that it has been asked to end, ``blamed`` that its silence is a finding already.
    """

    probe: Probe = field(init=False)
    findings: Findings
    bound: int
    may_end: bool = False
    blamed: bool = False
    ready: bool = False
    calls: dict[tuple[type, Id], Call] = field(factory=dict)
    announced: bool = False
    _next_id: int = 1
    _joiner: Joiner = field(factory=Joiner)

    def prepare(self, method: str, params: Any = None) -> tuple[Call, bytes]:
        """A request with its line, LF included, that is not written yet. ``None`` leaves the parameters out."""
        call = Call(self._next_id, method, self.probe.now)
        self._next_id += 1
        self.calls[int, call.id] = call
        message: dict[str, Any] = {"jsonrpc": "2.0", "id": call.id, "method": method}
        if params is not None:
            message["params"] = params
        return call, _line(message)

    async def request(self, method: str, params: Any = None) -> Call:
        """Send a request."""
        call, data = self.prepare(method, params)
        await self.probe.write(data)
        return call

    async def notify(self, method: str, params: Any = None) -> None:
        """Send a notification."""
        message: dict[str, Any] = {"jsonrpc": "2.0", "method": method}
        if params is not None:
            message["params"] = params
        await self.probe.drained()
        await self.probe.write(_line(message))
        await self.probe.drained()

    async def answered(self, call: Call, seconds: float) -> bool:
        """Wait for the answer to ``call``."""
        return await self.probe.until(lambda: call.answer is not None, seconds)

    async def ask(self, method: str, params: Any, seconds: float) -> Call:
        """Send a request and wait for its answer."""
        call = await self.request(method, params)
        await self.answered(call, seconds)
        return call

    def receive_line(self, line: bytes) -> None:
        """One line of its output, without LF."""
        for whole, joined in self._joiner.feed(line):
            if joined:
                what = f"one message over several lines: {quote(whole)}"
                self.findings.failed("odek.transport.line", what)
            self._receive_line(whole)

    def _receive_line(self, line: bytes) -> None:
        found = read_line(line, self.bound)
        for rule, evidence in found.faults:
            self.findings.failed(rule, evidence)
        for message in found.messages:
            if "result" in message or "error" in message:
                self._on_answer(message)
            elif isinstance(message.get("method"), str):
                self._on_method(message)

    def receive_rest(self, rest: bytes) -> None:
        """What its output ended with, without LF."""
        self.findings.failed("odek.transport.last-line", f"the output ends without LF: {quote(rest)}")
        self.receive_line(rest)

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
        self.probe.run_soon(self._write(_line(answer)))

    async def _write(self, data: bytes) -> None:
        await self.probe.write(data)

    def _on_answer(self, message: dict[str, Any]) -> None:
        found = message.get("id")
        shown = quote(repr(found))
        call = self.calls.get((type(found), found)) if isinstance(found, (int, str)) else None
        if call is None:
            # An error without an id answers nothing: what else could be said of a line that cannot be read?
            if found is None and "error" in message:
                self.findings.failed("odek.server.notifications-unanswered", f"an answer without an id: {message}")
                return
            alike = [one for one in self.calls.values() if str(one.id) == str(found)]
            if not alike and isinstance(found, float):
                alike = [one for one in self.calls.values() if one.id == found]
            if not alike:
                self.findings.failed("odek.server.answered-once", f"an answer to id {shown}, which nothing has")
                return
            call = alike[0]
            self.findings.failed("odek.server.id-echoed", f"{call.method} with id {call.id!r} was answered as {shown}")
        if call.answer is not None:
            self.findings.failed("odek.server.answered-once", f"{call.method} (id {call.id!r}) was answered again")
            return
        call.answer, call.answered_at = message, self.probe.now


def _line(message: dict[str, Any]) -> bytes:
    return json.dumps(message, ensure_ascii=False, separators=(",", ":")).encode("utf-8", "surrogatepass") + b"\n"
