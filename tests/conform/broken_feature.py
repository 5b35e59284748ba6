"""An extension of API 0.1, 0.2 or 0.4 that is right in everything, or with a fault's name wrong in one thing.

Run as a process, with the fault and the API version. It has a tool, a command, a context and a status.
"""

from __future__ import annotations

import json
import os
import signal
import sys
import time

from faulty import is_fault, split_as_text, start_helper, write

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any  # it costs as much as all the rest of this program's start

VERSION = sys.argv[2]
HOOK: dict[str, list[str]] = {"context": [], "notifications": []}
TOOL = {"name": "echo", "description": "Says it again.", "parameters": {"type": "object"}}


def send(message: dict[str, Any]) -> None:
    message = {"jsonrpc": "2.0", **message}
    if is_fault("version-1"):
        message["jsonrpc"] = "1.0"
    if is_fault("string-id") and "result" in message:
        message["id"] = str(message["id"])
    data = json.dumps(message, indent=2 if is_fault("pretty") else None).encode()
    if is_fault("latin-1"):
        data = data.replace(b"again", b"ag\xe4in")
    write(data + (b"" if is_fault("unterminated") and message.get("result") == {} else b"\n"))


class Extension:
    sequence = 0
    next_id = 0

    def initialize(self, offer: dict[str, Any] | None) -> dict[str, Any]:
        result: dict[str, Any] = {"api_version": VERSION, "tools": [TOOL], "commands": [{"name": "say"}]}
        if offer is not None:
            features = [*offer["required_features"]]
            if "request_progress" in offer["optional_features"] or is_fault("unoffered-feature"):
                features.append("request_progress")
            protocol: dict[str, Any] = {"version": VERSION, "features": features}
            protocol["limits"] = {"max_concurrent_requests": 0 if is_fault("zero-concurrency") else 4}
            if is_fault("feature-twice"):
                features.append(features[0])
            elif is_fault("feature-missing"):
                features.remove("content_parts")
            elif is_fault("unknown-event"):
                features.append("lifecycle_events")
                protocol["lifecycle_events"] = ["tea/served"]
            result["protocol"] = protocol
        if is_fault("protocol-on-v01"):
            result["protocol"] = {"version": "0.1", "features": [], "limits": {"max_concurrent_requests": 1}}
        elif is_fault("other-version"):
            result["api_version"] = "0.3"
        elif is_fault("canonical-answer"):
            result["contract"] = {}
        elif is_fault("command-missing"):
            result["commands"] = []
        elif is_fault("blank-tool"):
            result["tools"] = [{**TOOL, "description": " "}]
        if VERSION != "0.1":
            result["tool_renderers"] = ["echo"]
        return result

    def call(self, request_id: Any, params: dict[str, Any]) -> dict[str, Any] | None:
        if params["name"] != "echo" and not is_fault("any-tool"):
            send({"id": request_id, "error": {"code": -32602, "message": "there is no such tool"}})
            return None
        if is_fault("silent-on-odd-arguments") and not isinstance(params["arguments"], dict):
            return None
        if is_fault("leaves-helper"):
            start_helper()
        if is_fault("huge-stderr"):
            sys.stderr.write("x" * 1_100_000)
            sys.stderr.flush()
        if VERSION != "0.1" and not is_fault("silent-progress"):
            self.sequence = 0 if is_fault("same-sequence") else self.sequence + 1
            report = {"request_id": request_id, "sequence": self.sequence, "event": {"type": "status", "text": "on it"}}
            if self.agreed_progress or is_fault("unnegotiated"):
                send({"method": "$/progress", "params": report})
                if is_fault("same-sequence"):
                    send({"method": "$/progress", "params": report})
        self.ask(request_id)
        text = "x" * 1_100_000 if is_fault("long-line") else "again"
        content: Any = text if VERSION == "0.1" else [{"type": "text", "text": text}]
        if is_fault("parts-on-v01"):
            content = [{"type": "text", "text": text}]
        elif is_fault("text-on-v02"):
            content = text
        elif is_fault("hangs-in-call"):
            time.sleep(3600)
        return {"content": content, "is_error": False}

    def ask(self, parent: int) -> None:
        params: dict[str, Any] = {"prompt": "Shall I?", "destructive": False, "default": True}
        if VERSION != "0.1" and not is_fault("no-parent"):
            params["parent_request_id"] = 9_999 if is_fault("other-parent") else parent
        if is_fault("bad-question"):
            params["destructive"] = "no"
        if is_fault("canonical-request"):
            send({"id": f"c{parent}", "method": "bus/publish", "params": {}})
        if is_fault("undeclared"):
            send({"method": "notification", "params": {"level": "info", "message": "hello"}})
        self.next_id += not (is_fault("same-id") and self.next_id)
        send({"id": self.next_id, "method": "confirmation/request", "params": params})

    def answer(self, method: str, params: dict[str, Any]) -> Any:
        if method == "initialize":
            self.agreed_progress = "request_progress" in params.get("protocol", {}).get("optional_features", ())
            return self.initialize(params.get("protocol"))
        if method == "command/execute":
            return "said" if is_fault("command-text") else {"text": "said", "notifications": [], "context": []}
        if method == "context/collect":
            item = {"label": "l", "content": "c", "placement": "prompt"}
            return item if is_fault("context-object") else [item]
        if method == "status/collect":
            surface = "footer" if is_fault("other-surface") else params["surface"]
            return {"surface": surface, "text": "t", "style_role": "muted", "priority": 0}
        if method == "hook/run":
            return {"disposition": {"kind" if is_fault("hook-kind") else "action": "continue"}, **HOOK}
        if method == "tool/render":
            return "again" if is_fault("render-text") else {"segments": [{"text": "again", "style_role": "muted"}]}
        if method == "shutdown":
            return {"terminal": "shutdown"} if is_fault("canonical-shutdown") else {}
        return {} if is_fault("any-method") else None

    agreed_progress = False

    def run(self) -> None:
        if is_fault("banner"):
            write(b"ready when you are\n")
        if is_fault("ignores-sigterm"):
            signal.signal(signal.SIGTERM, signal.SIG_IGN)
        if is_fault("early-request"):
            self.ask(0)
        pending = bytearray()
        while chunk := os.read(0, 65_536):
            pending += chunk
            if is_fault("short-lines") and len(pending) > 70_000:
                raise ValueError("the line is too long")
            lines = pending.split(b"\n")
            if is_fault("chunk-is-line") and lines[-1]:
                lines = [b""]
            pending = lines.pop()
            if is_fault("unicode-lines"):
                lines = split_as_text(lines)
            for line in lines[:1] if is_fault("one-line-a-read") else lines:
                self.receive(json.loads(line))
        if is_fault("deaf-to-eof"):
            time.sleep(3600)

    def receive(self, message: dict[str, Any]) -> None:
        method, request_id = message.get("method"), message.get("id")
        if method == "$/cancelRequest" and is_fault("dies-on-late-cancel"):
            os._exit(1)
        if method is None or request_id is None or (method == "initialize" and is_fault("never-initialized")):
            return
        result = self.call(request_id, message["params"]) if method == "tool/call" else None
        if method != "tool/call":
            result = self.answer(method, message["params"])
            if result is None or (method == "initialize" and is_fault("initialize-error")):
                send({"id": request_id, "error": {"code": -32601, "message": "unknown method"}})
                return
        if result is None:
            return
        send({"id": request_id, "result": result})
        if is_fault("answers-twice") and method == "tool/call":
            send({"id": request_id, "result": result})
        if is_fault("answers-unasked") and method == "tool/call":
            send({"id": 4_000_000, "result": result})
        if method == "initialize" and is_fault("dies-idle"):
            os._exit(9)
        if method == "shutdown":
            self.leave()

    def leave(self) -> None:
        if is_fault("leaves-child"):
            import subprocess

            subprocess.Popen(["sleep", "20"], start_new_session=True)
        if is_fault("stays-after-shutdown"):
            time.sleep(3600)
        os._exit(3 if is_fault("exits-3") else 0)


if __name__ == "__main__":
    Extension().run()
