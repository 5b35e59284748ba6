"""An MCP server that is right in everything, or with the name of a fault as its argument, wrong in one thing.

Run as a process, with the fault and a directory for artifacts.
"""

from __future__ import annotations

import hashlib
import json
import os
import signal
import sys
import time

from faulty import is_fault, split_as_text, start_helper, write

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any  # it costs as much as all the rest of this program's start

ROOT = sys.argv[2]
REPORT = b"all is well\n"
OBJECT = {"type": "object", "properties": {"text": {"type": "string"}}}
READS = {"readOnlyHint": True}


def send(message: dict[str, Any]) -> None:
    message = {"jsonrpc": "2.0", **message}
    if is_fault("no-jsonrpc"):
        del message["jsonrpc"]
    answer = "result" in message or "error" in message
    if is_fault("id-as-string") and answer and message["id"] != 1:
        message["id"] = str(message["id"])
    if is_fault("id-as-fraction") and answer and message["id"] != 1:
        message["id"] = float(message["id"])
    if is_fault("method-in-answer") and answer and message["id"] != 1:
        message["method"] = "tools/call"
    text = json.dumps(message, indent=1 if is_fault("pretty") and answer and message["id"] != 1 else None)
    data = text.encode()
    if is_fault("batch") and answer and message["id"] != 1:
        data = b"[" + data + b"]"
    if is_fault("latin-1"):
        data = data.replace(b"all is well", b"caf\xe9")
    write(data + (b"" if is_fault("unterminated") and message.get("id") == 2 else b"\n"))


class Server:
    def reply(self, request_id: Any, result: Any) -> None:
        send({"id": request_id, "result": result})

    def fail(self, request_id: Any, code: Any, message: Any) -> None:
        if is_fault("error-text"):
            send({"id": request_id, "error": message})
            return
        if is_fault("error-code-word"):
            code = "E404"
        send({"id": request_id, "error": {"code": code, "message": message}})

    def initialize(self, request_id: Any, params: dict[str, Any]) -> None:
        result: dict[str, Any] = {
            "protocolVersion": params["protocolVersion"],
            "capabilities": {"tools": {}},
            "serverInfo": {"name": "subject", "version": "1"},
        }
        if is_fault("future-version"):
            result["protocolVersion"] = "2099-01-01"
        elif is_fault("no-version"):
            del result["protocolVersion"]
        elif is_fault("capabilities-list"):
            result["capabilities"] = ["tools"]
        elif is_fault("no-server-info"):
            del result["serverInfo"]
        elif is_fault("no-tools-capability", "without-tools"):
            result["capabilities"] = {"logging": {}}
        elif is_fault("initialize-error"):
            self.fail(request_id, -32603, "not today")
            return
        elif is_fault("initialize-silent"):
            return
        self.reply(request_id, result)

    def tools(self) -> list[Any]:
        report = {"name": "report", "description": "Reports.", "inputSchema": OBJECT, "annotations": READS}
        other = {"name": "change", "description": "Changes.", "inputSchema": OBJECT}
        tools: list[Any] = [report, other]
        if is_fault("name-dot"):
            other["name"] = "change.it"
        elif is_fault("name-newline"):
            other["name"] = "change\n"
        elif is_fault("name-long"):
            other["name"] = "c" * 65
        elif is_fault("name-empty"):
            other["name"] = ""
        elif is_fault("name-dunder"):
            other["name"] = "srv__change"
        elif is_fault("name-number"):
            other["name"] = 7
        elif is_fault("name-digits"):
            other["name"] = "change\u0663"
        elif is_fault("name-twice"):
            tools.append(report)
        elif is_fault("tool-word"):
            tools.append("third")
        elif is_fault("schema-missing"):
            del other["inputSchema"]
        elif is_fault("schema-list"):
            other["inputSchema"] = []
        elif is_fault("schema-string"):
            other["inputSchema"] = {"type": "string"}
        elif is_fault("schema-huge"):
            other["inputSchema"] = {"type": "object", "description": "x" * 300_000}
        elif is_fault("description-number"):
            other["description"] = 5
        return tools

    def list(self, request_id: Any, params: Any) -> None:
        if is_fault("list-needs-params") and params is None:
            self.fail(request_id, -32602, "params are missing")
            return
        if is_fault("without-tools"):
            self.fail(request_id, -32601, "method not found")
            return
        if is_fault("tools-object"):
            self.reply(request_id, {"tools": {"report": {}}})
            return
        if is_fault("same-cursor"):
            self.reply(request_id, {"tools": [], "nextCursor": "again"})
            return
        tools = self.tools()
        if is_fault("two-pages"):
            if (params or {}).get("cursor") == "2":
                self.reply(request_id, {"tools": tools[1:]})
            else:
                self.reply(request_id, {"tools": tools[:1], "nextCursor": "2"})
            return
        self.reply(request_id, {"tools": tools})

    # -- calls ---------------------------------------------------------------------------------------------------------

    def call(self, request_id: Any, params: Any) -> None:
        params = params or {}
        name, arguments = params.get("name"), params.get("arguments")
        if not isinstance(name, str):
            if is_fault("dies-on-bad-params"):
                os._exit(1)
            if is_fault("silent-on-bad-params"):
                return
            if is_fault("takes-bad-params"):
                self.reply(request_id, {"content": []})
                return
            self.fail(request_id, -32602, "name is missing")
            return
        self.together += 1
        if is_fault("one-at-a-time") and self.together > 1:
            return
        if is_fault("dies-on-odd-arguments") and not isinstance(arguments, dict):
            os._exit(1)
        if is_fault("dies-on-long-line") and len(json.dumps(arguments)) > 200_000:
            os._exit(1)
        if is_fault("leaves-helper") and name == "report":
            start_helper()
        if name != "report":
            if is_fault("answers-any-tool"):
                self.reply(request_id, {"content": []})
            elif not is_fault("silent-unknown-tool"):
                self.fail(request_id, -32602, "unknown tool")
            return
        if is_fault("tool-unknown"):
            self.fail(request_id, -32601, "no such method")
            return
        if is_fault("slow-tool"):
            return
        if is_fault("dies-in-call"):
            os._exit(1)
        if is_fault("prints"):
            print("reporting", flush=True)
        if is_fault("huge-stderr"):
            sys.stderr.write("x" * 1_100_000)
            sys.stderr.flush()
        known = set(arguments) <= {"text"} if isinstance(arguments, dict) else True
        if is_fault("refuses-unknown-arguments") and not known:
            self.fail(request_id, -32602, "unknown argument")
            return
        self.reply(request_id, self.result())
        if is_fault("dies-idle") and not known:
            os._exit(9)
        if is_fault("answers-twice"):
            self.reply(request_id, self.result())

    def result(self) -> Any:
        path = os.path.join(ROOT, "report.txt")
        with open(path, "wb") as file:
            file.write(REPORT)
        ref: dict[str, Any] = {
            "schema": "odek.artifact-ref/v1",
            "id": "report-1",
            "uri": "file://" + path,
            "media_type": "text/plain",
            "sha256": hashlib.sha256(REPORT).hexdigest(),
            "size_bytes": len(REPORT),
            "summary": "how it is",
        }
        refs = [ref]
        self.spoil(ref, refs)
        envelope: dict[str, Any] = {"schema": "odek.tool-result/v1", "text": "all is well", "artifacts": refs}
        if is_fault("artifacts-object"):
            envelope["artifacts"] = {"report-1": ref}
        text = json.dumps(envelope)
        if is_fault("fenced"):
            text = f"```json\n{text}\n```"
        elif is_fault("cut"):
            text = text[:-20]
        elif is_fault("long-result"):
            text = "x" * 20_000
        elif is_fault("long-line"):
            text = json.dumps({**envelope, "more": "x" * 600_000})
        content: list[Any] = [{"type": "text", "text": text}]
        result: dict[str, Any] = {"content": content, "isError": False}
        if is_fault("error-envelope"):
            result["isError"] = True
        elif is_fault("is-error-word"):
            result["isError"] = "false"
        elif is_fault("content-string"):
            result["content"] = text
        elif is_fault("content-missing"):
            del result["content"]
        elif is_fault("text-number"):
            content.append({"type": "text", "text": 7})
        elif is_fault("unknown-kind"):
            content.append({"type": "video", "data": ""})
        elif is_fault("image-without-type"):
            content.append({"type": "image", "data": "aGk="})
        elif is_fault("note-beside"):
            content.append({"type": "text", "text": "see above"})
        elif is_fault("result-list"):
            return content
        return result

    def spoil(self, ref: dict[str, Any], refs: list[dict[str, Any]]) -> None:
        if is_fault("other-ref-schema"):
            ref["schema"] = "odek.artifact-ref/v2"
        elif is_fault("no-media-type"):
            del ref["media_type"]
        elif is_fault("id-twice"):
            refs.append(dict(ref))
        elif is_fault("http-uri"):
            ref["uri"] = "http://localhost/report.txt"
        elif is_fault("host-in-uri"):
            ref["uri"] = ref["uri"].replace("file://", "file://localhost")
        elif is_fault("dotted-path"):
            ref["uri"] = f"file://{ROOT}/../{os.path.basename(ROOT)}/report.txt"
        elif is_fault("outside-root"):
            ref.update(uri="file:///etc/passwd", sha256=None, size_bytes=None)
        elif is_fault("no-file"):
            ref["uri"] += ".gone"
        elif is_fault("directory"):
            os.makedirs(os.path.join(ROOT, "more"), exist_ok=True)
            ref.update(uri=f"file://{ROOT}/more", sha256=None, size_bytes=None)
        elif is_fault("wrong-size"):
            ref["size_bytes"] += 1
        elif is_fault("size-word"):
            ref["size_bytes"] = str(ref["size_bytes"])
        elif is_fault("wrong-digest"):
            ref["sha256"] = "0" * 64
        elif is_fault("upper-digest"):
            ref["sha256"] = ref["sha256"].upper()
        elif is_fault("two-line-summary"):
            ref["summary"] = "how\nit is"
        elif is_fault("many-refs"):
            refs.extend({**ref, "id": f"r{number}"} for number in range(64))

    # -- reading -------------------------------------------------------------------------------------------------------

    def receive(self, message: dict[str, Any]) -> bool:
        method, params, request_id = message.get("method"), message.get("params"), message.get("id")
        if method is None:
            return True
        if method == "initialize":
            self.initialize(request_id, params)
        elif method == "tools/list":
            if is_fault("needs-initialized") and not self.announced:
                self.fail(request_id, -32002, "not initialized")
            else:
                self.list(request_id, params)
        elif method == "tools/call":
            self.call(request_id, params)
        elif method == "ping":
            if is_fault("ping-text"):
                self.reply(request_id, {"pong": True})
            elif not is_fault("ping-silent"):
                self.reply(request_id, {})
        elif request_id is not None:
            if is_fault("unknown-method-result"):
                self.reply(request_id, {})
            elif is_fault("unknown-method-code"):
                self.fail(request_id, -32603, "what?")
            elif not is_fault("unknown-method-silent"):
                self.fail(request_id, -32601, "method not found")
        elif method == "notifications/initialized":
            self.announced = True
            if is_fault("answers-initialized"):
                send({"id": None, "result": {}})
        elif method == "notifications/cancelled":
            if is_fault("dies-on-cancel"):
                os._exit(1)
        elif is_fault("answers-notifications"):
            send({"id": None, "error": {"code": -32601, "message": "method not found"}})
        return True

    announced = False
    together = 0  # calls that came in one read

    def run(self) -> None:
        if is_fault("ignores-sigterm"):
            signal.signal(signal.SIGTERM, signal.SIG_IGN)
        if is_fault("banner"):
            write(b"subject: listening on stdio\n")
        if is_fault("byte-order-mark"):
            write(b"\xef\xbb\xbf")
        if is_fault("asks-early"):
            send({"id": "s1", "method": "roots/list"})
        pending = bytearray()
        while chunk := os.read(0, 65_536):
            if is_fault("chunk-is-message"):
                try:
                    self.receive(json.loads(chunk))
                except ValueError:
                    sys.stderr.write("not a message\n")
                continue
            self.together = 0
            pending += chunk
            lines = pending.split(b"\n")
            pending = lines.pop()
            if is_fault("unicode-lines"):
                lines = split_as_text(lines)
            for line in lines:
                self.receive(json.loads(line))
        if is_fault("leaves-child"):
            import subprocess

            subprocess.Popen(["sleep", "20"], start_new_session=True)
        if is_fault("ignores-eof"):
            time.sleep(3600)


if __name__ == "__main__":
    Server().run()
