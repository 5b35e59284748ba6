"""A process that listens to the bus and does as little as it can: ``listener.py FIFO [--raw]``.

It writes a byte to the FIFO for each event marked as the last of its burst. It looks for the mark in the bytes, so that
what is measured is the sender. With ``--raw`` it reads lines from the start; without, it is an octet 0.3 extension with
one tool, ``echo``, that subscribes to the topic as soon as it is bound.
"""

from __future__ import annotations

import json
import os
import sys
from typing import Any

TOPIC = "bus.sensor.reading"
LAST = b'"last":true'
EVENT = b'{"jsonrpc":"2.0","method":"bus/event"'
BUS_METHODS = ["bus/event", "bus/lifecycle", "bus/subscribe"]
TOOL = {
    "name": "echo",
    "description": "Echo.",
    "parameters": {"type": "object", "properties": {"text": {"type": "string"}}},
}


def send(**message: Any) -> None:
    frame = json.dumps({"jsonrpc": "2.0", **message}, ensure_ascii=False, sort_keys=True, separators=(",", ":"))
    os.write(1, frame.encode() + b"\n")


def selection(offer: dict[str, Any]) -> dict[str, Any]:
    return {
        "schema": offer["schema"],
        "encoding": offer["encoding"],
        "capabilities": sorted([*offer["required_capabilities"], "event_bus"]),
        "methods": sorted(offer["required_methods"] + BUS_METHODS),
        "limits": offer["limits"],
    }


def receive(line: bytes) -> bool:
    """Handle one frame that is no event; false when it was the last."""
    message = json.loads(line)
    method, params, message_id = message.get("method"), message.get("params"), message.get("id")
    if method == "initialize":
        send(id=message_id, result={"api_version": "0.3", "tools": [TOOL], "contract": selection(params["contract"])})
    elif method == "bus/lifecycle" and params["kind"] == "binding":
        send(id=1, method="bus/subscribe", params={"binding_id": params["binding_id"], "topic": TOPIC})
    elif method == "tool/call":
        content = [{"type": "text", "text": params["arguments"]["text"]}]
        send(id=message_id, result={"content": content, "is_error": False, "metadata": None})
    elif method == "shutdown":
        send(id=message_id, result={"terminal": "shutdown"})
        return False
    return True


def main(fifo: str, *, raw: bool) -> None:
    done = os.open(fifo, os.O_WRONLY)
    rest = b""
    while chunk := os.read(0, 65536):
        *lines, rest = (rest + chunk).split(b"\n")
        finished = 0
        for line in lines:
            if LAST in line:
                finished += 1
            elif not raw and not line.startswith(EVENT) and not receive(line):
                return
        if finished:
            os.write(done, b"." * finished)


main(sys.argv[1], raw="--raw" in sys.argv)
