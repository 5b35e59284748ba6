"""An extension of API 0.3 that provides a model and adapts a setup: right, or with a fault's name wrong in one thing.

Run as a process.
"""

from __future__ import annotations

import json
import os
import sys
import time

from faulty import is_fault, write

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any  # it costs as much as all the rest of this program's start

CATALOGUE = ["providers/complete", "providers/register"]
STREAM = ["provider/cancel", "provider/event", "provider/stream"]
ADAPTER = ["migration/detect", "migration/import"]


def send(message: dict[str, Any]) -> None:
    text = json.dumps({"jsonrpc": "2.0", **message}, ensure_ascii=False, sort_keys=True, separators=(",", ":"))
    write(text.encode() + b"\n")


def declaration() -> dict[str, Any]:
    model: dict[str, Any] = {
        "id": "echo",
        "api_name": "echo-1",
        "protocol": "openai_chat",
        "context_window": 8192,
        "max_output_tokens": 1024,
        "capabilities": {
            "tools": False,
            "parallel_tool_calls": is_fault("parallel-without-tools"),
            "structured_output": False,
            "reasoning": False,
        },
    }
    if is_fault("provider-label"):
        return {"provider": {"id": "subject", "label": " ", "auth": {"kind": "none"}}, "models": [model]}
    if is_fault("two-models-alike"):
        return {"provider": {"id": "subject", "label": "S", "auth": {"kind": "none"}}, "models": [model, model]}
    return {"provider": {"id": "subject", "label": "Subject", "auth": {"kind": "none"}}, "models": [model]}


def stream(request_id: Any, params: dict[str, Any]) -> None:
    stream_id = params["stream_id"]
    if is_fault("stream-silent"):
        return
    send(
        {
            "id": request_id,
            "result": {"stream_id": "other" if is_fault("other-stream") else stream_id, "accepted": True},
        }
    )
    delta = {"index": 0} if is_fault("delta-without-text") else {"index": 0, "delta": "hi"}
    events: list[tuple[str, dict[str, Any]]] = [
        ("started", {}),
        ("text_start", {"index": 0}),
        ("thinking" if is_fault("unknown-kind") else "text_delta", delta),
        ("text_end", {"index": 0}),
        ("finished", {"stop_reason": "stop"}),
    ]
    if is_fault("never-finished"):
        events.pop()
    elif is_fault("finished-twice"):
        events.append(events[-1])
    elif is_fault("after-the-end"):
        events.append(("heartbeat", {}))
    first = 1 if is_fault("counts-from-one") else 0
    for number, (kind, payload) in enumerate(events, start=first):
        sequence = number + (is_fault("gap") and number > 2)
        event = {"stream_id": stream_id, "sequence": sequence, "kind": kind, "payload": payload}
        send({"method": "provider/event", "params": event})


def migrate(method: str, params: dict[str, Any]) -> dict[str, Any]:
    if is_fault("adapter-writes"):
        with open(os.path.join(params["source_root"], "migrated"), "w", encoding="utf-8") as file:
            file.write("yes\n")
    if method == "migration/detect":
        paths = ["../outside"] if is_fault("path-outside") else ["setup.toml"]
        severity = "info" if is_fault("severity-word") else "warning"
        note = {"path": "$", "severity": severity, "reason": "an example"}
        return {"detected": True, "config_paths": paths, "diagnostics": [note]}
    server: dict[str, Any] = {"path": "setup.toml", "name": "s", "command": "server", "args": []}
    if is_fault("server-environment"):
        server["env"] = {"KEY": "value"}
    return {"models": [], "skills": [], "mcp_servers": [server], "diagnostics": []}


def main() -> None:
    for line in sys.stdin.buffer:
        message = json.loads(line)
        method, params, request_id = message.get("method"), message.get("params"), message.get("id")
        if method == "initialize":
            offer = params["contract"]
            optional = set(offer["optional_capabilities"])
            provides, adapts = "provider_catalog" in optional, "migration.adapter.v1" in optional
            methods = (CATALOGUE + STREAM[: 2 if is_fault("stream-in-part") else 3]) * provides + ADAPTER * adapts
            capabilities = ["provider_catalog", "provider_stream"] * provides + ["migration.adapter.v1"] * adapts
            contract = {
                "schema": offer["schema"],
                "encoding": offer["encoding"],
                "capabilities": offer["required_capabilities"] + capabilities,
                "methods": offer["required_methods"] + methods,
                "limits": offer["limits"],
            }
            send({"id": request_id, "result": {"api_version": "0.3", "tools": [], "contract": contract}})
            if provides:
                send({"id": 1, "method": "providers/register", "params": declaration()})
                if not is_fault("never-complete"):
                    complete: dict[str, Any] = {"method": "providers/complete", "params": {}}
                    send({"id": 9, **complete} if is_fault("complete-with-id") else complete)
        elif method == "provider/stream":
            stream(request_id, params)
        elif method == "provider/cancel":
            if is_fault("dies-on-stream-cancel"):
                os._exit(1)
        elif method in ADAPTER:
            if is_fault("adapter-silent"):
                time.sleep(3600)
            send({"id": request_id, "result": migrate(method, params)})
        elif method == "shutdown":
            send({"id": request_id, "result": {"terminal": "shutdown"}})
            return
        elif method is not None and request_id is not None:
            unknown = {"code": -32601, "message": "unknown or unnegotiated method"}
            send({"id": request_id, "error": unknown})


if __name__ == "__main__":
    main()
