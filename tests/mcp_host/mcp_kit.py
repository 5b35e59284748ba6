"""What the tests' own MCP servers are made of: standard library only, quick to start. Imported by their scripts."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from typing import Any

_unread = bytearray()


def write(data: bytes) -> None:
    view = memoryview(data)
    while view:
        view = view[os.write(1, view) :]


def encode(**message: Any) -> bytes:
    return json.dumps({"jsonrpc": "2.0", **message}, ensure_ascii=False).encode()


def send(**message: Any) -> None:
    write(encode(**message) + b"\n")


def receive() -> Any:
    """The host's next message, or None when it closed the input."""
    while (end := _unread.find(b"\n")) < 0:
        data = os.read(0, 65_536)
        if not data:
            return None
        _unread.extend(data)
    message = json.loads(_unread[:end])
    del _unread[: end + 1]
    return message


def text(value: str) -> dict[str, Any]:
    return {"content": [{"type": "text", "text": value}]}


def reply(message: Any, value: str = "") -> None:
    send(id=message["id"], result=text(value))


def start(*tools: str) -> None:
    """Answer the handshake and the first tools/list."""
    message = receive()
    if message is None:
        sys.exit(0)
    info = {"name": "rogue", "version": "0"}
    capabilities = {"tools": {"listChanged": True}}
    send(id=message["id"], result={"protocolVersion": "2025-03-26", "capabilities": capabilities, "serverInfo": info})
    listing = next_request()
    send(id=listing["id"], result={"tools": [{"name": name} for name in tools or ("work",)]})


def next_request(method: str = "") -> Any:
    """The next message that asks for something; at the end of the input the process ends."""
    while True:
        message = receive()
        if message is None:
            sys.exit(0)
        if "id" in message and "method" in message and method in ("", message["method"]):
            return message


def echo() -> None:
    """Answer each call with its argument ``text``."""
    while True:
        call = next_request()
        reply(call, call["params"]["arguments"].get("text", ""))


def program(body: str) -> str:
    """The text of a program that does ``body`` with all of this."""
    return (
        "import os, signal, subprocess, sys, time, json\n"
        f"sys.path.insert(0, {str(Path(__file__).parent)!r})\nfrom mcp_kit import *\n{body}\n"
    )
