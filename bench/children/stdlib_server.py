"""A small MCP server of the standard library alone: one tool, ``echo``."""

from __future__ import annotations

import json
import sys
from typing import Any


def answer(message: dict[str, Any]) -> dict[str, Any]:
    method = message["method"]
    if method == "initialize":
        info = {"name": "echo", "version": "0"}
        return {"protocolVersion": "2025-03-26", "capabilities": {"tools": {}}, "serverInfo": info}
    if method == "tools/list":
        schema = {"type": "object", "properties": {"text": {"type": "string"}}}
        return {"tools": [{"name": "echo", "inputSchema": schema}]}
    if method == "tools/call":
        return {"content": [{"type": "text", "text": message["params"]["arguments"]["text"]}], "isError": False}
    return {}


for line in sys.stdin.buffer:
    message = json.loads(line)
    if "id" in message and "method" in message:
        answered = {"jsonrpc": "2.0", "id": message["id"], "result": answer(message)}
        sys.stdout.buffer.write(json.dumps(answered).encode() + b"\n")
        sys.stdout.buffer.flush()
