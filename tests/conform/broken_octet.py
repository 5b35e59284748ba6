"""An extension of API 0.3 that is right in everything, or with the name of a fault as its argument, wrong in one thing.

Run as a process. Tools: ``echo`` answers at once and publishes, ``later`` after a moment. Topics: it declares
``bus.subject.said`` and subscribes to ``bus.other.news``.
"""

from __future__ import annotations

import json
import os
import select
import signal
import sys
import time

from faulty import is_fault, split_as_text, start_helper, write

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any  # it costs as much as all the rest of this program's start

TOPIC, WANTED = "bus.subject.said", "bus.other.news"
FIELDS = [{"name": "text", "kind": "string", "required": True, "max_bytes": 64, "values": []}]
ROWS = {
    -32601: "unknown or unnegotiated method",
    -32602: "invalid params",
    -32603: "internal error",
    -32800: "request cancelled",
}
LARGE = [f"text{number}" for number in range(12)]
BUS = ["bus/declare", "bus/event", "bus/lifecycle", "bus/publish", "bus/subscribe"]
TEXT = {"type": "object", "properties": {"text": {"type": "string"}}, "required": ["text"]}


def encode(message: dict[str, Any]) -> bytes:
    text = json.dumps(
        message,
        ensure_ascii=is_fault("escapes"),
        sort_keys=not is_fault("unsorted-keys"),
        separators=(", ", ": ") if is_fault("white-space") else (",", ":"),
    )
    return text.encode("utf-8", "surrogatepass")


def send(message: dict[str, Any]) -> None:
    message = {"jsonrpc": "2.0", **message}
    answer = "result" in message or "error" in message
    if is_fault("no-jsonrpc"):
        del message["jsonrpc"]
    if is_fault("extra-member") and answer:
        message["note"] = "hello"
    if is_fault("id-as-string") and answer and isinstance(message["id"], int) and message["id"] > 1:
        message["id"] = str(message["id"])
    if is_fault("result-and-error") and "result" in message and message["id"] != 1:
        message["error"] = {"code": -32603, "message": ROWS[-32603]}
    data = encode(message)
    end = b"\r\n" if is_fault("crlf") else b"\n\n" if is_fault("empty-line") else b"\n"
    if is_fault("unterminated") and message.get("result") == {"terminal": "shutdown"}:
        end = b""
    if is_fault("duplicate-key") and answer:
        data = b'{"error":1,' + data[1:] if "error" in message else b'{"id":0,' + data[1:]
    if is_fault("trailing-data") and answer:
        data += b"{}"
    write(data + end)


class Extension:
    def __init__(self) -> None:
        self.next_id = 0
        self.binding: str | None = None
        self.old_binding: str | None = None
        self.revision = 0
        self.declaring: Any = None
        self.declared = False
        self.later: dict[Any, float] = {}
        self.refused = False
        self.muted = False
        self.together = 0  # calls that came in one read
        self.bindings = 0

    # -- answers -------------------------------------------------------------------------------------------------------

    def reply(self, request_id: Any, result: Any) -> None:
        send({"id": request_id, "result": result})

    def fail(self, request_id: Any, code: int) -> None:
        error: dict[str, Any] = {"code": code, "message": ROWS[code]}
        if is_fault("free-text-error"):
            error["message"] = "something went wrong"
        elif is_fault("foreign-code"):
            error["code"] = -32000
        elif is_fault("error-with-more"):
            error["hint"] = "try again"
        elif is_fault("string-code"):
            error["code"] = str(code)
        send({"id": request_id, "error": error})

    def ask(self, method: str, params: Any) -> int:
        if not is_fault("same-id-again") or method != "bus/publish":
            self.next_id += 1
        request_id: Any = self.next_id
        message = {"id": request_id, "method": method, "params": params}
        if is_fault("request-without-id"):
            del message["id"]
        elif is_fault("null-id"):
            message["id"] = None
        elif is_fault("negative-id"):
            message["id"] = -self.next_id
        send(message)
        return request_id

    def result(self, text: str) -> dict[str, Any]:
        result: dict[str, Any] = {"content": [{"type": "text", "text": text}], "is_error": False, "metadata": None}
        if is_fault("no-metadata"):
            del result["metadata"]
        elif is_fault("image-part"):
            result["content"] = [{"type": "image", "artifact_id": "a", "mime_type": "image/png", "alt": ""}]
        elif is_fault("content-string"):
            result["content"] = text
        elif is_fault("part-with-more"):
            result["content"][0]["style"] = "bold"
        elif is_fault("no-is-error"):
            del result["is_error"]
        elif is_fault("is-error-word"):
            result["is_error"] = "no"
        elif is_fault("unknown-result-member"):
            result["cost"] = 3
        elif is_fault("fraction"):
            result["structured_content"] = {"ratio": 0.5}
        elif is_fault("large-integer"):
            result["structured_content"] = {"count": 2**60}
        elif is_fault("lone-surrogate"):
            result["content"][0]["text"] = "SURROGATE"
        elif is_fault("too-deep"):
            nested: list[Any] = []
            for _ in range(40):
                nested = [nested]
            result["structured_content"] = {"nested": nested}
        return result

    # -- initialize ----------------------------------------------------------------------------------------------------

    def initialize(self, request_id: Any, params: dict[str, Any]) -> None:
        if is_fault("never-initialized"):
            return
        if is_fault("initialize-error"):
            self.fail(request_id, -32603)
            return
        if is_fault("early-request"):
            send({"id": 77, "method": "bus/declare", "params": {"binding_id": "b", "topic": TOPIC, "fields": FIELDS}})
        offer = params["contract"]
        bus = "event_bus" in offer["optional_capabilities"] or is_fault("selects-unoffered")
        hooks = "lifecycle_events" in offer["optional_capabilities"]
        capabilities = offer["required_capabilities"] + ["event_bus"] * bus + ["lifecycle_events"] * hooks
        methods = offer["required_methods"] + BUS * bus + ["hook/run"] * hooks
        limits = dict(offer["limits"])
        contract = {"schema": offer["schema"], "encoding": offer["encoding"], "limits": limits}
        echo = {"name": "echo", "description": "Says it again.", "parameters": TEXT}
        later = {"name": "later", "description": "Says it later.", "parameters": {"type": "object"}}
        tools: list[dict[str, Any]] = [echo, later]
        result: dict[str, Any] = {"api_version": "0.3", "tools": tools, "contract": contract}
        if is_fault("other-version"):
            result["api_version"] = "0.4"
        elif is_fault("other-schema"):
            contract["schema"] = "octet.extension.api/0.2"
        elif is_fault("other-encoding"):
            contract["encoding"] = "json"
        elif is_fault("unknown-capability"):
            capabilities = [*capabilities, "telepathy"]
        elif is_fault("capability-twice"):
            capabilities = [*capabilities, "core"]
        elif is_fault("deferred-capability"):
            capabilities = [*capabilities, "dynamic_tools"]
        elif is_fault("drops-required"):
            capabilities = [name for name in capabilities if name != "request_cancellation"]
            methods = [name for name in methods if name != "$/cancelRequest"]
        elif is_fault("many-names"):
            capabilities = [*capabilities, *(f"more-{number}" for number in range(300))]
        elif is_fault("selects-providers"):
            capabilities = [*capabilities, "provider_catalog"]
            methods = [*methods, "providers/complete", "providers/register"]
        elif is_fault("few-tools-selected"):
            limits["max_tools"] = 1
        elif is_fault("method-alone"):
            methods = [*methods, "migration/detect"]
        elif is_fault("bus-without-lifecycle"):
            methods = [name for name in methods if name != "bus/lifecycle"]
        elif is_fault("subscribe-without-event"):
            methods = [name for name in methods if name != "bus/event"]
        elif is_fault("hooks-unselected"):
            capabilities = [name for name in capabilities if name != "lifecycle_events"]
            methods = [name for name in methods if name != "hook/run"]
        elif is_fault("fixed-limits"):
            limits.update(max_frame_bytes=1048576, max_concurrent_requests=64, max_tools=256)
        elif is_fault("zero-limit"):
            limits["max_concurrent_requests"] = 0
        elif is_fault("fraction-limit"):
            limits["max_tools"] = "many"
        elif is_fault("half-limit"):
            limits["max_tools"] = 1.5
        elif is_fault("answer-with-more"):
            result["commands"] = []
        elif is_fault("no-contract"):
            del result["contract"]
        elif is_fault("tool-missing"):
            tools.pop()
        elif is_fault("tool-twice"):
            tools.append(echo)
        elif is_fault("blank-description"):
            echo["description"] = "  "
        elif is_fault("parameters-list"):
            echo["parameters"] = []
        elif is_fault("null-output-schema"):
            echo["output_schema"] = None
        elif is_fault("output-schema-pattern"):
            echo["output_schema"] = {"type": "object", "patternProperties": {}}
        if "contract" in result:
            contract.update(capabilities=capabilities, methods=methods)
        self.reply(request_id, result)
        if is_fault("bus-before-binding") and bus:
            self.ask("bus/subscribe", {"binding_id": "guess", "topic": WANTED})
        if is_fault("unselected-method"):
            self.ask("session/create", {})
        if is_fault("unknown-notification"):
            send({"method": "log/message", "params": {"text": "ready"}})
        if is_fault("array-frame"):
            write(b"[]\n")
        if is_fault("long-method"):
            self.ask("m" * 129, {})
        if is_fault("dies-idle"):
            os._exit(9)

    # -- tools ---------------------------------------------------------------------------------------------------------

    def call(self, request_id: Any, params: dict[str, Any]) -> None:
        name, arguments = params["name"], params["arguments"]
        if is_fault("leaves-helper") and name == "echo":
            start_helper()
        if name not in ("echo", "later"):
            if is_fault("answers-any-tool"):
                self.reply(request_id, self.result("?"))
            elif not is_fault("silent-unknown-tool"):
                self.fail(request_id, -32602)
            return
        if is_fault("dies-on-odd-arguments") and not isinstance(arguments, dict):
            os._exit(1)
        if is_fault("silent-on-odd-arguments") and not isinstance(arguments, dict):
            return
        if is_fault("tool-unknown-method"):
            self.fail(request_id, -32601)
            return
        self.together += name == "echo"
        if is_fault("one-at-a-time") and self.together > 1:
            return
        if is_fault("dies-in-call"):
            os._exit(1)
        if name == "later":
            self.later[request_id] = time.monotonic() + (30 if is_fault("ignores-cancel") else 0.15)
            return
        text = str(arguments.get("text", "")) if isinstance(arguments, dict) else ""
        if is_fault("prints"):
            write(b"debug: echo was called\n")
        if is_fault("lone-surrogate"):
            data = encode({"id": request_id, "jsonrpc": "2.0", "result": self.result(text)})
            write(data.replace(b"SURROGATE", b"\\ud800") + b"\n")
            return
        if is_fault("latin-1"):
            data = encode({"id": request_id, "jsonrpc": "2.0", "result": self.result("caf?")})
            write(data.replace(b"caf?", b"caf\xe9") + b"\n")
            return
        if is_fault("negative-zero"):
            body = {**self.result(text), "structured_content": {"n": 12321}}
            write(encode({"id": request_id, "jsonrpc": "2.0", "result": body}).replace(b"12321", b"-0") + b"\n")
            return
        result = self.result(text + "é" * is_fault("escapes"))
        if is_fault("over-bound"):
            result = self.result("x" * 1_100_000)
        self.reply(request_id, result)
        if is_fault("answers-twice"):
            self.reply(request_id, self.result(text))
        if is_fault("answers-unasked"):
            self.reply(4_000_000, self.result(text))
        if is_fault("huge-stderr"):
            sys.stderr.write("x" * 1_100_000)
            sys.stderr.flush()
        self.publish(text)

    def publish(self, text: str) -> None:
        if self.binding is None or (not self.declared and not is_fault("hasty-publish")) or self.muted:
            return
        params: dict[str, Any] = {"binding_id": self.binding, "topic": TOPIC, "payload": {"text": text[:64]}}
        if is_fault("undeclared-topic"):
            params["topic"] = "bus.subject.other"
        elif is_fault("payload-number"):
            params["payload"] = {"text": 5}
        elif is_fault("large-event"):
            params["payload"] = dict.fromkeys(LARGE, "word " * 200)
        elif is_fault("payload-more"):
            params["payload"]["who"] = "me"
        elif is_fault("payload-long"):
            params["payload"]["text"] = "x" * 65
        elif is_fault("payload-path"):
            params["payload"]["text"] = "/etc/hostname"
        elif is_fault("payload-lines"):
            params["payload"]["text"] = "a\nb"
        elif is_fault("stale-binding") and self.old_binding is not None:
            params["binding_id"] = self.old_binding
        elif is_fault("publish-with-more"):
            params["sequence"] = 1
        self.ask("bus/publish", params)

    # -- the bus -------------------------------------------------------------------------------------------------------

    def lifecycle(self, params: dict[str, Any]) -> None:
        if params["kind"] == "binding":
            self.bindings += 1
            if is_fault("first-binding-only") and self.bindings > 1:
                return
            self.old_binding, self.binding, self.declared = self.binding, params["binding_id"], False
            topic, fields = TOPIC, FIELDS
            if is_fault("foreign-topic"):
                topic = "bus.other.said"
            elif is_fault("bad-topic"):
                topic = "subject/said"
            elif is_fault("secret-field"):
                fields = [{**FIELDS[0], "name": "password"}]
            elif is_fault("large-event"):
                fields = [{**FIELDS[0], "name": name, "max_bytes": 1024} for name in LARGE]
            elif is_fault("unbounded-field"):
                fields = [{**FIELDS[0], "max_bytes": 0}]
            elif is_fault("field-with-more"):
                fields = [{**FIELDS[0], "label": "Text"}]
            if not (is_fault("declares-once") and self.bindings > 1):
                declaration = {"binding_id": self.binding, "topic": topic, "fields": fields}
                self.declaring = self.ask("bus/declare", declaration)
                for _ in range(is_fault("declares-twice") or 128 * is_fault("asks-too-much")):
                    self.ask("bus/declare", declaration)
                if is_fault("null-params"):
                    self.ask("bus/declare", None)
            if not (is_fault("subscribes-once") and self.bindings > 1):
                for number in range(17 if is_fault("many-subscriptions") else 1):
                    self.ask("bus/subscribe", {"binding_id": self.binding, "topic": WANTED + str(number or "")})
        elif params["kind"] == "topic_available" and not is_fault("deaf-to-new-topics"):
            if is_fault("dies-on-notices") and self.bindings > 1:
                os._exit(1)
            if is_fault("publishes-foreign") and self.bindings == 1:
                payload = {"binding_id": self.binding, "topic": params["topic"], "payload": {"note": "x"}}
                self.ask("bus/publish", payload)
            self.ask("bus/subscribe", {"binding_id": self.binding, "topic": params["topic"]})
        if is_fault("stops-reading") and self.bindings > 1 and params["kind"] == "topic_unavailable":
            time.sleep(3600)

    def answered(self, message: dict[str, Any]) -> None:
        if "result" in message:
            self.declared = self.declared or message["id"] == self.declaring
        elif message["error"]["code"] == -32012:
            if is_fault("dies-when-refused"):
                os._exit(1)
            self.muted = self.muted or is_fault("gives-up-when-refused")

    # -- reading -------------------------------------------------------------------------------------------------------

    def receive(self, message: dict[str, Any]) -> None:
        method, params, request_id = message.get("method"), message.get("params"), message.get("id")
        if method is None:
            self.answered(message)
        elif method == "initialize":
            self.initialize(request_id, params)
        elif method == "tool/call":
            self.call(request_id, params)
        elif method == "bus/lifecycle":
            self.lifecycle(params)
        elif method == "hook/run":
            if is_fault("hook-word"):
                self.reply(request_id, {"disposition": {"kind": "allow"}})
            elif is_fault("hook-no-reason"):
                self.reply(request_id, {"disposition": {"kind": "deny"}})
            elif not is_fault("hook-silent"):
                self.reply(request_id, {"disposition": {"kind": "continue"}})
        elif method == "$/cancelRequest":
            if is_fault("dies-on-late-cancel") and params["id"] not in self.later:
                os._exit(1)
            if is_fault("answers-late-cancel") and params["id"] not in self.later:
                self.fail(params["id"], -32800)
            if is_fault("cancel-error") and params["id"] in self.later:
                del self.later[params["id"]]
                self.fail(params["id"], -32603)
            elif not is_fault("ignores-cancel") and self.later.pop(params["id"], None) is not None:
                self.fail(params["id"], -32800)
        elif method == "shutdown":
            self.shutdown(request_id)
        elif request_id is not None:
            if is_fault("unknown-method-result"):
                self.reply(request_id, {})
            elif is_fault("unknown-method-params"):
                self.fail(request_id, -32602)
            elif not is_fault("silent-unknown-method"):
                self.fail(request_id, -32601)

    def shutdown(self, request_id: Any) -> None:
        if is_fault("deaf-to-shutdown"):
            return
        if is_fault("leaves-child"):
            import subprocess

            subprocess.Popen(["sleep", "20"], start_new_session=True)
        if is_fault("shutdown-null"):
            self.reply(request_id, None)
        else:
            self.reply(request_id, {"terminal": "stopped" if is_fault("shutdown-word") else "shutdown"})
        if is_fault("stays-after-shutdown"):
            time.sleep(3600)
        os._exit(3 if is_fault("exits-3") else 0)

    def run(self) -> None:
        if is_fault("ignores-sigterm"):
            signal.signal(signal.SIGTERM, signal.SIG_IGN)
        if is_fault("banner"):
            write(b"subject 1.0 starting up\n")
        if is_fault("early-notification"):
            send({"method": "providers/complete", "params": {}})
        if is_fault("byte-order-mark"):
            write(b"\xef\xbb\xbf")
        pending = bytearray()
        while True:
            due = min(self.later.values(), default=None)
            wait = None if due is None else max(0.0, due - time.monotonic())
            if select.select([0], [], [], wait)[0]:
                chunk = os.read(0, 65536)
                if not chunk:
                    if is_fault("ignores-eof"):
                        time.sleep(3600)
                    return
                if is_fault("chunk-is-frame"):
                    try:
                        self.receive(json.loads(chunk))
                    except ValueError:
                        sys.stderr.write("not a frame\n")
                    continue
                self.together = 0
                pending += chunk
                if is_fault("short-lines") and len(pending) > 70_000:
                    raise ValueError("the line is too long")
                lines = pending.split(b"\n")
                pending = lines.pop()
                if is_fault("unicode-lines"):
                    lines = split_as_text(lines)
                for line in lines[:1] if is_fault("one-frame-a-read") else lines:
                    self.receive(json.loads(line))
            for request_id, at in list(self.later.items()):
                if at <= time.monotonic():
                    del self.later[request_id]
                    self.reply(request_id, self.result("later"))


if __name__ == "__main__":
    Extension().run()
