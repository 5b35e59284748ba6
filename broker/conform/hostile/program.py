"""A hostile extension of API 0.3: right in everything but what its scenario says. Started by ``start.py``."""

from __future__ import annotations

import os
import sys
import time

from .base import TOOL, BaseProgram

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

TOPIC = "bus.hostile.said"
FIELDS: list[dict[str, Any]] = [{"name": "text", "kind": "string", "required": True, "max_bytes": 64, "values": []}]
BUS = ["bus/declare", "bus/event", "bus/lifecycle", "bus/publish", "bus/subscribe", "bus/unsubscribe"]
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


class Program(BaseProgram):
    """The extension in one scenario."""

    binding: str | None = None

    # -- the scenarios -------------------------------------------------------------------------------------------------

    def initialize(self, request_id: Any, params: dict[str, Any]) -> None:
        """Answer ``initialize`` as the scenario has it."""
        name = self.scenario
        if name == "exits-at-once":
            sys.stderr.write("no key\n")
            self.leave(3)
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
        """What the scenario does right after its answer."""
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
            self.flood_stderr()
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
            self.leave(1)

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

    def receive(self, message: dict[str, Any]) -> None:
        method, request_id = message.get("method"), message.get("id")
        params: Any = message.get("params")
        if method == "initialize":
            self.initialize(request_id, params)
        elif method == "bus/lifecycle" and params["kind"] == "binding" and self.binding is None:
            self.binding = params["binding_id"]
            self.bound()
        elif method == "tool/call":
            self.send({"id": request_id, "result": RESULT})
        elif method == "shutdown" and not self.deaf:
            self.send({"id": request_id, "result": {"terminal": "shutdown"}})
            self.log("shut down")
            os._exit(0)

    def begin(self) -> None:
        names = [f"OCTET_EXTENSION_{name}" for name in ("VERSION", "NAME", "DIR", "MANIFEST", "API_VERSION")]
        self.log("env", **{name: os.environ.get(name) for name in (*names, "OCTET_WORKSPACE")})
        super().begin()


SELECTIONS = (
    *("other-version", "unoffered", "drops-required", "raises-limit", "answer-with-more", "other-tools"),
    "bus-without-lifecycle",
)
