#!/usr/bin/env python3
"""One tool and one topic over octet 0.3: all that the wire asks for, with the standard library alone."""

from __future__ import annotations

import itertools
import json
import sys
from typing import Any

TOPIC = "bus.hello.greeted"
FIELDS = [{"name": "who", "kind": "string", "required": True, "max_bytes": 64, "values": []}]
TOOL = {
    "name": "greet",
    "description": "Greets somebody.",
    "parameters": {"type": "object", "properties": {"who": {"type": "string"}}},
}
BUS_METHODS = ["bus/declare", "bus/lifecycle", "bus/publish"]

request_ids = itertools.count(1)


def send(**message: Any) -> None:
    """One frame: sorted keys, no white space, nothing escaped that need not be, then a line feed."""
    frame = json.dumps({"jsonrpc": "2.0", **message}, ensure_ascii=False, sort_keys=True, separators=(",", ":"))
    sys.stdout.buffer.write(frame.encode() + b"\n")
    sys.stdout.buffer.flush()


def selection(offer: dict[str, Any]) -> dict[str, Any]:
    """What we take of the host's offer: everything that is required, and the bus if there is one."""
    bus = "event_bus" in offer["optional_capabilities"]
    return {
        "schema": offer["schema"],
        "encoding": offer["encoding"],
        "capabilities": offer["required_capabilities"] + (["event_bus"] if bus else []),
        "methods": offer["required_methods"] + (BUS_METHODS if bus else []),
        "limits": offer["limits"],
    }


def fail(message_id: Any, code: int, text: str) -> None:
    send(id=message_id, error={"code": code, "message": text})


def main() -> None:
    binding = declaring = None
    declared = False
    for line in sys.stdin.buffer:
        message = json.loads(line)
        method, params, message_id = message.get("method"), message.get("params"), message.get("id")
        if method == "initialize":
            result = {"api_version": "0.3", "tools": [TOOL], "contract": selection(params["contract"])}
            send(id=message_id, result=result)
        elif method == "bus/lifecycle" and params["kind"] == "binding":
            binding, declaring, declared = params["binding_id"], next(request_ids), False
            declaration = {"binding_id": binding, "topic": TOPIC, "fields": FIELDS}
            send(id=declaring, method="bus/declare", params=declaration)
        elif method == "tool/call" and params["name"] != TOOL["name"]:
            fail(message_id, -32602, "invalid params")
        elif method == "tool/call":
            arguments = params["arguments"]
            who = str(arguments.get("who", "you")) if isinstance(arguments, dict) else "you"
            if declared:
                event = {"binding_id": binding, "topic": TOPIC, "payload": {"who": who}}
                send(id=next(request_ids), method="bus/publish", params=event)
            content = [{"type": "text", "text": f"hello, {who}"}]
            send(id=message_id, result={"content": content, "is_error": False, "metadata": None})
        elif method == "shutdown":
            send(id=message_id, result={"terminal": "shutdown"})
            return
        elif method is not None and message_id is not None:
            fail(message_id, -32601, "unknown or unnegotiated method")
        elif "result" in message:
            declared = declared or message_id == declaring
        elif "error" in message:
            # An answer to one of our own requests; stderr becomes a diagnostic of the host.
            print(message["error"]["message"], file=sys.stderr)


if __name__ == "__main__":
    main()
