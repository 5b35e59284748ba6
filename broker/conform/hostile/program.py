"""A hostile extension of API 0.3: right in everything but what its scenario says. It keeps a log of what a host does.

A program of its own, with the standard library alone: a host starts it as it would any extension, with the name of the
scenario and the log file as its arguments. What is logged, one JSON object a line: ``start``, each ``frame`` of the
host, the moment of the ``fault``, ``eof`` and ``signal``, the id of a ``child``.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
import time
from typing import Any

TOPIC = "bus.hostile.said"
FIELDS: list[dict[str, Any]] = [{"name": "text", "kind": "string", "required": True, "max_bytes": 64, "values": []}]
BUS = ["bus/declare", "bus/event", "bus/lifecycle", "bus/publish", "bus/subscribe", "bus/unsubscribe"]
SHOWN = 65_536
TOOL: dict[str, Any] = {"name": "poke", "description": "Does nothing.", "parameters": {"type": "object"}}
RESULT: dict[str, Any] = {"content": [{"type": "text", "text": "ok"}], "is_error": False, "metadata": None}
PUBLISH: dict[str, Any] = {"topic": TOPIC, "payload": {"text": "hello"}}

# What is sent once the contract exists, as it is.
BAD_FRAMES: dict[str, bytes] = {
    "not-json": b"this is no frame\n",
    "white-space": b'{"jsonrpc": "2.0","method":"providers/complete","params":{}}\n',
    "key-order": b'{"method":"providers/complete","jsonrpc":"2.0","params":{}}\n',
    "duplicate-key": b'{"jsonrpc":"2.0","jsonrpc":"2.0","method":"x","params":{}}\n',
    "byte-order-mark": b'\xef\xbb\xbf{"jsonrpc":"2.0","method":"x","params":{}}\n',
    "carriage-return": b'{"jsonrpc":"2.0","method":"x","params":{}}\r\n',
    "empty-line": b"\n",
    "invalid-utf8": b'{"jsonrpc":"2.0","method":"\xff","params":{}}\n',
    "not-an-object": b"[]\n",
    "unknown-member": b'{"extra":1,"jsonrpc":"2.0","method":"x","params":{}}\n',
    "error-pair": b'{"error":{"code":-32603,"message":"oops"},"id":1,"jsonrpc":"2.0"}\n',
    "string-answer": b'{"id":"1","jsonrpc":"2.0","result":{}}\n',
    "over-bound": b"x" * 1_048_577,
}


class Program:
    """The extension in one scenario."""

    def __init__(self, scenario: str, log: str) -> None:
        self.scenario: str = scenario
        self.started: float = time.monotonic()
        self.file: int = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
        self.binding: str | None = None
        self.lock: threading.Lock = threading.Lock()
        self.next_id: int = 0

    def log(self, event: str, **more: Any) -> None:
        line = {"event": event, "pid": os.getpid(), "at": time.monotonic(), **more}
        os.write(self.file, json.dumps(line).encode() + b"\n")

    def write(self, data: bytes) -> None:
        with self.lock:
            view = memoryview(data)
            while view:
                view = view[os.write(1, view) :]

    def send(self, message: dict[str, Any]) -> None:
        message = {"jsonrpc": "2.0", **message}
        text = json.dumps(message, ensure_ascii=False, sort_keys=True, separators=(",", ":"))
        self.write(text.encode() + b"\n")

    def ask(self, method: str, params: dict[str, Any], request_id: Any = None) -> None:
        if request_id is None:
            self.next_id += 1
            request_id = f"q{self.next_id}"
        self.send({"id": request_id, "method": method, "params": params})

    def fault(self, data: bytes = b"") -> None:
        self.log("fault")
        self.write(data)

    # -- the scenarios -------------------------------------------------------------------------------------------------

    def initialize(self, request_id: Any, params: dict[str, Any]) -> None:
        name = self.scenario
        if name == "exits-at-once":
            self.fault()
            sys.stderr.write("no key\n")
            os._exit(3)
        if name == "early-request":
            self.log("fault")
            self.ask("bus/declare", {"binding_id": "b", "topic": TOPIC, "fields": FIELDS})
            return
        offer = params["contract"]
        bus = "event_bus" in offer["optional_capabilities"]
        capabilities = offer["required_capabilities"] + ["event_bus"] * bus
        methods = offer["required_methods"] + BUS * bus
        limits = dict(offer["limits"])
        contract = {"schema": offer["schema"], "encoding": offer["encoding"], "limits": limits}
        result: dict[str, Any] = {"api_version": "0.3", "tools": [TOOL], "contract": contract}
        if name == "other-version":
            result["api_version"] = "0.4"
        elif name == "unoffered":
            capabilities = [*capabilities, "dynamic_tools"]
        elif name == "drops-required":
            capabilities = [one for one in capabilities if one != "content_parts"]
        elif name == "raises-limit":
            limits["max_concurrent_requests"] += 1
        elif name == "answer-with-more":
            result["commands"] = []
        elif name == "other-tools":
            result["tools"] = [{**TOOL, "name": "other"}]
        elif name == "bus-without-lifecycle":
            methods = [one for one in methods if one != "bus/lifecycle"]
        contract.update(capabilities=capabilities, methods=methods)
        if name in SELECTIONS:
            self.log("fault")
        self.send({"id": request_id, "result": result})
        self.ready()

    def ready(self) -> None:
        name = self.scenario
        if name in BAD_FRAMES:
            self.fault(BAD_FRAMES[name])
        elif name == "same-id":
            self.ask("session/none", {}, "first")
            self.ask("bus/subscribe", {"binding_id": "b", "topic": TOPIC}, "again")
            self.log("fault")
            self.ask("bus/subscribe", {"binding_id": "b", "topic": TOPIC}, "again")
        elif name == "unknown-things":
            self.log("fault")
            self.send({"id": 987_654, "result": {}})
            self.send({"method": "log/message", "params": {}})
            self.ask("no/such/method", {})
            self.ask("tool/call", {})
            self.ask("tools/register", {})
        elif name == "stderr-flood":
            self.log("fault")
            for _ in range(64):
                os.write(2, b"x" * 65_536)
            self.log("flooded")
        elif name == "notification-flood":
            self.log("fault")
            for _ in range(100):
                self.send({"method": "log/message", "params": {}})
        elif name == "ends-output":
            self.log("fault")
            os.close(1)
        elif name == "stops-reading":
            self.log("fault")
            time.sleep(3600)
        elif name == "dies":
            self.log("fault")
            os._exit(1)

    def bound(self) -> None:
        """The bus is bound: say what must be refused, then what must be taken."""
        binding = {"binding_id": self.binding}
        if self.scenario == "publish-flood":
            self.ask("bus/declare", {**binding, "topic": TOPIC, "fields": FIELDS})
            self.ask("bus/subscribe", {**binding, "topic": TOPIC})
            self.log("fault")
            for _ in range(300):
                self.ask("bus/publish", {**binding, **PUBLISH})
            return
        if self.scenario != "bus-refusals":
            return
        self.log("fault")
        steps: list[tuple[str, str, dict[str, Any]]] = [
            ("publish-undeclared", "bus/publish", {**binding, **PUBLISH}),
            ("foreign-topic", "bus/declare", {**binding, "topic": "bus.other.said", "fields": FIELDS}),
            ("bad-topic", "bus/declare", {**binding, "topic": "said", "fields": FIELDS}),
            ("secret-field", "bus/declare", {**binding, "topic": TOPIC, "fields": [{**FIELDS[0], "name": "token"}]}),
            ("stale-declare", "bus/declare", {"binding_id": "stale", "topic": TOPIC, "fields": FIELDS}),
            ("declare", "bus/declare", {**binding, "topic": TOPIC, "fields": FIELDS}),
            ("declare-again", "bus/declare", {**binding, "topic": TOPIC, "fields": FIELDS}),
            ("payload-type", "bus/publish", {**binding, "topic": TOPIC, "payload": {"text": 1}}),
            ("payload-field", "bus/publish", {**binding, "topic": TOPIC, "payload": {"text": "a", "more": "b"}}),
            ("payload-long", "bus/publish", {**binding, "topic": TOPIC, "payload": {"text": "x" * 65}}),
            ("payload-path", "bus/publish", {**binding, "topic": TOPIC, "payload": {"text": "/etc/hostname"}}),
            ("forged", "bus/publish", {**binding, **PUBLISH, "publisher": "other"}),
            ("stale-publish", "bus/publish", {"binding_id": "stale", **PUBLISH}),
            ("publish", "bus/publish", {**binding, **PUBLISH}),
            ("pending", "bus/subscribe", {**binding, "topic": "bus.other.t0"}),
            *((f"more-{n}", "bus/subscribe", {**binding, "topic": f"bus.other.t{n}"}) for n in range(1, 16)),
            ("seventeenth", "bus/subscribe", {**binding, "topic": "bus.other.t16"}),
        ]
        for request_id, method, params in steps:
            self.ask(method, params, request_id)

    # -- reading -------------------------------------------------------------------------------------------------------

    def receive(self, line: bytes) -> None:
        self.log("frame", size=len(line), text=line[:SHOWN].decode("utf-8", "backslashreplace"))
        try:
            message = json.loads(line)
        except ValueError:
            return
        method, params, request_id = message.get("method"), message.get("params"), message.get("id")
        if method == "initialize":
            self.initialize(request_id, params)
        elif method == "bus/lifecycle" and params.get("kind") == "binding" and self.binding is None:
            self.binding = params["binding_id"]
            self.bound()
        elif method == "tool/call":
            self.send({"id": request_id, "result": RESULT})
        elif method == "shutdown" and self.scenario not in ("deaf", "deaf-with-child"):
            self.send({"id": request_id, "result": {"terminal": "shutdown"}})
            self.log("shut down")
            os._exit(0)

    def run(self) -> None:
        names = ("VERSION", "NAME", "DIR", "MANIFEST")
        env = {f"OCTET_EXTENSION_{name}": os.environ.get(f"OCTET_EXTENSION_{name}") for name in names}
        more = {name: os.environ.get(name) for name in ("OCTET_EXTENSION_API_VERSION", "OCTET_WORKSPACE")}
        self.log("start", env={**env, **more}, cwd=os.getcwd(), secret=os.environ.get("CONFORMANCE_HOST_ONLY"))
        if self.scenario in ("deaf", "deaf-with-child"):
            for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
                signal.signal(number, lambda number, frame: self.log("signal", number=number))
        if self.scenario == "deaf-with-child":
            child = subprocess.Popen([sys.executable, "-I", __file__, "grandchild", sys.argv[2]])
            self.log("child", child=child.pid)
        pending = bytearray()
        while chunk := os.read(0, 65_536):
            pending += chunk
            lines = pending.split(b"\n")
            pending = lines.pop()
            for line in lines:
                self.receive(bytes(line))
        self.log("eof", unterminated=len(pending))
        while self.scenario in ("deaf", "deaf-with-child") and time.monotonic() < self.started + 40:
            time.sleep(0.1)


SELECTIONS = (
    *("other-version", "unoffered", "drops-required", "raises-limit", "answer-with-more", "other-tools"),
    "bus-without-lifecycle",
)

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
