"""A hostile MCP server: right in everything but what its scenario says, and keeping a log of what a host does.

A program of its own, with the standard library alone; its log is that of :mod:`broker.conform.hostile.program`.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from typing import Any

TOOL: dict[str, Any] = {"name": "poke", "description": "Does nothing.", "inputSchema": {"type": "object"}}


class Program:
    """The server in one scenario."""

    def __init__(self, scenario: str, log: str) -> None:
        self.scenario: str = scenario
        self.file: int = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
        self.held: Any = None

    def log(self, event: str, **more: Any) -> None:
        line = {"event": event, "pid": os.getpid(), "at": time.monotonic(), **more}
        os.write(self.file, json.dumps(line).encode() + b"\n")

    def write(self, data: bytes) -> None:
        view = memoryview(data)
        while view:
            view = view[os.write(1, view) :]

    def send(self, message: dict[str, Any]) -> None:
        self.write(json.dumps({"jsonrpc": "2.0", **message}).encode() + b"\n")

    def initialize(self, request_id: Any, params: dict[str, Any]) -> None:
        if self.scenario == "mcp-exits-at-once":
            self.log("fault")
            os._exit(3)
        if self.scenario == "mcp-stderr-flood":
            self.log("fault")
            for _ in range(64):
                os.write(2, b"x" * 65_536)
            self.log("flooded")
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

    def receive(self, line: bytes) -> None:
        self.log("frame", size=len(line), text=line[:65_536].decode("utf-8", "backslashreplace"))
        try:
            message = json.loads(line)
        except ValueError:
            return
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

    def run(self) -> None:
        self.log("start", cwd=os.getcwd(), secret=os.environ.get("CONFORMANCE_HOST_ONLY"))
        deaf = self.scenario == "mcp-deaf"
        if deaf:
            for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
                signal.signal(number, lambda number, frame: self.log("signal", number=number))
            child = subprocess.Popen([sys.executable, "-I", __file__, "grandchild", sys.argv[2]])
            self.log("child", child=child.pid)
        if self.scenario == "mcp-banner":
            self.write(b"hostile: \x1b[1mlistening\x1b[0m\n[]\n42\n")
        pending = bytearray()
        while chunk := os.read(0, 65_536):
            pending += chunk
            lines = pending.split(b"\n")
            pending = lines.pop()
            for line in lines:
                self.receive(bytes(line))
        self.log("eof", unterminated=len(pending))
        end = time.monotonic() + 40
        while deaf and time.monotonic() < end:
            time.sleep(0.1)


if __name__ == "__main__":
    if sys.argv[1] == "grandchild":
        for ignored in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
            signal.signal(ignored, signal.SIG_IGN)
        time.sleep(40)
    else:
        try:
            Program(sys.argv[1], sys.argv[2]).run()
        except BrokenPipeError:
            pass
