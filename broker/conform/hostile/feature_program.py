"""A hostile extension of API 0.1, 0.2 or 0.4: right in everything but what its scenario says. Started by ``start.py``.

A scenario's name begins with the version: ``v01-``, ``v02-``, ``v04-``.
"""

from __future__ import annotations

import os
import time

from .base import TOOL, BaseProgram

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

VERSIONS = {"v01": "0.1", "v02": "0.2", "v04": "0.4"}
# What is sent once initialize was answered, as it is.
BAD_LINES: dict[str, bytes] = {
    "not-json": b"this is no message\n",
    "not-an-object": b"[]\n",
    "string-answer": b'{"id":"1","jsonrpc":"2.0","result":{}}\n',
    "long-line": b"x" * 1_048_577,
    "undeclared": b'{"jsonrpc":"2.0","method":"notification","params":{"level":"info","message":"hello"}}\n',
}
ANSWERS = (
    "other-version",
    "answer-with-more",
    "other-tools",
    "unoffered",
    "drops-required",
    "no-concurrency",
    "protocol",
)


class Program(BaseProgram):
    """The extension in one scenario."""

    def __init__(self, scenario: str, log: str) -> None:
        super().__init__(scenario, log)
        prefix, _, name = scenario.partition("-")
        self.name: str = name
        self.version: str = VERSIONS[prefix]

    def initialize(self, request_id: Any, offer: dict[str, Any] | None) -> None:
        """Answer ``initialize`` as the scenario has it; ``offer`` is its ``protocol``, which 0.1 may leave out."""
        name = self.name
        result: dict[str, Any] = {"api_version": self.version, "tools": [TOOL], "commands": []}
        if offer is not None:
            features, limits = [*offer["required_features"]], {"max_concurrent_requests": 4}
            result["protocol"] = {"version": self.version, "features": features, "limits": limits}
            if name == "unoffered":
                features.append("telepathy")
            elif name == "drops-required":
                features.remove("content_parts")
            elif name == "no-concurrency":
                limits["max_concurrent_requests"] = 0
        if name == "other-version":
            result["api_version"] = "0.3"
        elif name == "answer-with-more":
            result["contract"] = {}
        elif name == "other-tools":
            result["tools"] = [{**TOOL, "name": "other"}]
        elif name == "protocol":
            result["protocol"] = {"version": "0.1", "features": [], "limits": {"max_concurrent_requests": 1}}
        if name in ANSWERS:
            self.log("fault")
        self.send({"id": request_id, "result": result})
        self.ready()

    def ready(self) -> None:
        """What the scenario does right after its answer."""
        name = self.name
        if name in BAD_LINES:
            self.fault(BAD_LINES[name])
        elif name == "unknown-things":
            self.log("fault")
            self.send({"id": 987_654, "result": {}})
            self.send({"method": "log/message", "params": {}})
            self.ask("no/such/method", {})
            self.ask("bus/publish", {})
        elif name == "notification-flood":
            self.log("fault")
            for _ in range(100):
                self.send({"method": "log/message", "params": {}})
        elif name == "stderr-flood":
            self.flood_stderr()
        elif name == "dies":
            self.leave(1)

    def call(self, request_id: Any) -> None:
        """Answer ``tool/call`` as the scenario has it."""
        name = self.name
        text: Any = "ok" if self.version == "0.1" else [{"type": "text", "text": "ok"}]
        answer = {"id": request_id, "result": {"content": text, "is_error": False}}
        if name == "dies-in-call":
            self.leave(1)
        self.log("called")
        if name == "bad-result":
            self.log("fault")
            answer["result"] = {"content": 7, "is_error": "no"}
        elif name == "ignores-cancel":
            self.log("fault")
            return
        self.send(answer)
        if name in ("bad-result", "answers-twice"):
            # Whoever answers this has lived through what came before it.
            self.send(answer)
            self.ask("no/such/method", {}, "after")

    def receive(self, message: dict[str, Any]) -> None:
        method, request_id = message.get("method"), message.get("id")
        if method == "initialize":
            self.initialize(request_id, message["params"].get("protocol"))
        elif method == "tool/call":
            self.call(request_id)
        elif method == "shutdown" and not self.deaf:
            self.send({"id": request_id, "result": {}})
            self.log("shut down")
            if self.name == "stays":
                time.sleep(3600)
            os._exit(0)
