"""What the tests' own extensions are made of: the far end of the wire, standard library only, quick to start.

An extension's ``main.py`` imports this module; the fixture ``rogue`` is what tests put one on disk with.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

_unread = bytearray()


def encode(message: dict[str, Any]) -> bytes:
    return json.dumps(message, ensure_ascii=False, sort_keys=True, separators=(",", ":")).encode()


def write(data: bytes) -> None:
    view = memoryview(data)
    while view:
        view = view[os.write(1, view) :]


def send(**message: Any) -> None:
    write(encode({"jsonrpc": "2.0", **message}) + b"\n")


def receive() -> dict[str, Any] | None:
    """The host's next frame, or None when it closed the input."""
    while (end := _unread.find(b"\n")) < 0:
        data = os.read(0, 65_536)
        if not data:
            return None
        _unread.extend(data)
    message: dict[str, Any] = json.loads(_unread[:end])
    del _unread[: end + 1]
    return message


def selection(message: dict[str, Any], tools: Iterable[str], bus: bool, limits: dict[str, int]) -> dict[str, Any]:
    offer = message["params"]["contract"]
    methods = [name for name in offer["optional_methods"] if bus and name.startswith("bus/")]
    return {
        "api_version": "0.3",
        "tools": [{"name": name, "description": name, "parameters": {"type": "object"}} for name in tools],
        "contract": {
            "schema": offer["schema"],
            "encoding": offer["encoding"],
            "capabilities": [*offer["required_capabilities"], *(["event_bus"] if bus else [])],
            "methods": [*offer["required_methods"], *methods],
            "limits": {**offer["limits"], **limits},
        },
    }


def start(*tools: str, bus: bool = False, **limits: int) -> dict[str, Any]:
    """Answer ``initialize``; its parameters."""
    message = receive()
    if message is None:
        sys.exit(0)
    send(id=message["id"], result=selection(message, tools or ("work",), bus, limits))
    parameters: dict[str, Any] = message["params"]
    return parameters


def result(text: str = "", *, is_error: bool = False) -> dict[str, Any]:
    return {"content": [{"type": "text", "text": text}], "is_error": is_error, "metadata": None}


def reply(message: dict[str, Any], text: str = "", *, is_error: bool = False) -> None:
    send(id=message["id"], result=result(text, is_error=is_error))


def serve(on_call: Callable[[dict[str, Any]], object], on_other: Callable[[dict[str, Any]], object] = id) -> None:
    """Hand each tool call to ``on_call`` until the host says shutdown or goes."""
    while (message := receive()) is not None:
        method = message.get("method")
        if method == "tool/call":
            on_call(message)
        elif method == "shutdown":
            send(id=message["id"], result={"terminal": "shutdown"})
            sys.exit(0)
        else:
            on_other(message)


def echo() -> None:
    """A well-behaved extension: one tool, ``work``, that answers with its ``text``."""
    start()
    serve(lambda message: reply(message, message["params"]["arguments"].get("text", "")))


def program(body: str) -> str:
    """The text of a program that does ``body`` with all of this."""
    return (
        "import os, signal, subprocess, sys, time\n"
        f"sys.path.insert(0, {str(Path(__file__).parent)!r})\nfrom rogue_kit import *\n{body}\n"
    )
