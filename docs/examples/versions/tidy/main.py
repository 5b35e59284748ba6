#!/usr/bin/env python3
"""An extension of API 0.2: a tool that reports its progress and asks before it changes a file.

What it asks is a request of its own, made under the call it is for. A host that has nobody to ask refuses it; then the
tool only says what it would have done. Nothing here waits: an answer is picked up where it comes in.
"""

from __future__ import annotations

import itertools
import json
import os
import sys
from pathlib import Path
from typing import Any

WORKSPACE = Path(os.environ.get("OCTET_WORKSPACE", ".")).resolve()
TOOL = {
    "name": "tidy",
    "description": "Removes white space at the ends of the lines of a text file of the workspace.",
    "parameters": {"type": "object", "properties": {"file": {"type": "string"}}, "required": ["file"]},
}
WANTED = ("request_progress",)

request_ids = itertools.count(1)
features: set[str] = set()
asked: dict[int, tuple[int, Path, str]] = {}  # our request -> the call it is for, the file, what it is to hold


def send(**message: Any) -> None:
    print(json.dumps({"jsonrpc": "2.0", **message}), flush=True)


def finish(call: int, text: str, *, is_error: bool = False) -> None:
    send(id=call, result={"content": [{"type": "text", "text": text}], "is_error": is_error, "metadata": None})


def agree(protocol: dict[str, Any]) -> dict[str, Any]:
    """Select what is required, and what we want if it is offered."""
    features.update(protocol["required_features"])
    features.update(name for name in WANTED if name in protocol["optional_features"])
    return {"version": protocol["version"], "features": sorted(features), "limits": {"max_concurrent_requests": 4}}


def tidy(call: int, arguments: Any) -> None:
    name = arguments.get("file") if isinstance(arguments, dict) else None
    if not isinstance(name, str):
        finish(call, "file: expected the name of a text", is_error=True)
        return
    try:
        path = (WORKSPACE / name).resolve()
        if not path.is_relative_to(WORKSPACE):
            raise ValueError("not in the workspace")
        before = path.read_text(encoding="utf-8")
    except (OSError, ValueError) as error:
        finish(call, f"{name}: {error}", is_error=True)
        return
    lines = before.split("\n")
    changed = sum(line != line.rstrip() for line in lines)
    if "request_progress" in features:
        event = {"type": "status", "text": f"{changed} of {len(lines)} lines end in white space"}
        send(method="$/progress", params={"request_id": call, "sequence": 0, "event": event})
    if not changed:
        finish(call, f"{name} is tidy")
        return
    ours = next(request_ids)
    asked[ours] = (call, path, "\n".join(line.rstrip() for line in lines))
    question = {"prompt": f"Change {changed} lines of {name}?", "destructive": True, "default": False}
    send(id=ours, method="confirmation/request", params={"parent_request_id": call, **question})


def answered(message: dict[str, Any]) -> None:
    """The host answered a question of ours, or cancelled it because its call is over."""
    call, path, after = asked.pop(message["id"])
    if "error" in message:
        if message["error"]["code"] != -32800:
            finish(call, f"{path.name} would be changed, but there is nobody to ask: {message['error']['message']}")
    elif not message["result"]["confirmed"]:
        finish(call, f"{path.name} was left alone")
    else:
        path.write_text(after, encoding="utf-8")
        send(method="notification", params={"level": "info", "message": f"{path.name} is tidy now"})
        finish(call, f"{path.name} is tidy now")


def main() -> None:
    for line in sys.stdin.buffer:
        message = json.loads(line)
        method, params, message_id = message.get("method"), message.get("params"), message.get("id")
        if method is None:
            answered(message)
        elif method == "initialize":
            result = {"api_version": "0.2", "tools": [TOOL], "commands": [], "protocol": agree(params["protocol"])}
            send(id=message_id, result=result)
        elif method == "tool/call":
            tidy(message_id, params["arguments"])
        elif method == "$/cancelRequest":
            if any(call == params["id"] for call, _, _ in asked.values()):
                # The host cancels our question with the call; the call itself still wants its one answer.
                send(id=params["id"], error={"code": -32800, "message": "request cancelled"})
        elif method == "shutdown":
            send(id=message_id, result={})
            return
        elif message_id is not None:
            send(id=message_id, error={"code": -32601, "message": "unknown method"})


if __name__ == "__main__":
    main()
