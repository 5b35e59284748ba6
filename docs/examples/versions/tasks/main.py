#!/usr/bin/env python3
"""An extension of API 0.4: tools, a command with a menu, status, context, and a tool that comes and goes.

``sweep`` is offered only while there is something to sweep away, if the host negotiated ``dynamic_tools``.
"""

from __future__ import annotations

import itertools
import json
import os
import sys
from pathlib import Path
from typing import Any

FILE = Path(os.environ.get("OCTET_WORKSPACE", ".")) / "tasks.json"
WANTED = ("dynamic_tools",)
TEXT = {"type": "object", "properties": {"text": {"type": "string"}}, "required": ["text"]}
NUMBER = {"type": "object", "properties": {"number": {"type": "integer", "minimum": 1}}, "required": ["number"]}
TOOLS = [
    {"name": "add", "description": "Adds a task.", "parameters": TEXT},
    {"name": "list", "description": "Lists the tasks.", "parameters": {"type": "object"}},
    {"name": "done", "description": "Marks a task as done, by its number.", "parameters": NUMBER},
]
SWEEP = {"name": "sweep", "description": "Removes the tasks that are done.", "parameters": {"type": "object"}}

request_ids = itertools.count(1)
features: set[str] = set()


def send(**message: Any) -> None:
    print(json.dumps({"jsonrpc": "2.0", **message}), flush=True)


class Tasks:
    """The list, in its file after every change."""

    def __init__(self) -> None:
        self.items: list[dict[str, Any]] = json.loads(FILE.read_text(encoding="utf-8")) if FILE.exists() else []
        self.sweepable = False

    @property
    def open(self) -> list[str]:
        return [item["text"] for item in self.items if not item["done"]]

    def shown(self) -> str:
        marks = {True: "x", False: " "}
        lines = [f"{n}. [{marks[item['done']]}] {item['text']}" for n, item in enumerate(self.items, start=1)]
        return "\n".join(lines) or "nothing to do"

    def change(self, tool: str, arguments: Any) -> str:
        """Carry out a tool; raises ``ValueError`` for arguments that make no sense."""
        if not isinstance(arguments, dict):
            raise ValueError("arguments: expected an object")
        if tool == "add":
            text = arguments.get("text")
            if not isinstance(text, str) or not text.strip():
                raise ValueError("text: expected some words")
            self.items.append({"text": text.strip(), "done": False})
        elif tool == "done":
            number = arguments.get("number")
            if type(number) is not int or not 1 <= number <= len(self.items):
                raise ValueError(f"number: expected 1 to {len(self.items)}")
            self.items[number - 1]["done"] = True
        elif tool == "sweep":
            self.items = [item for item in self.items if not item["done"]]
        elif tool != "list":
            raise ValueError(f"there is no tool {tool}")
        if tool != "list":
            FILE.write_text(json.dumps(self.items, indent=1), encoding="utf-8")
        return self.shown()

    def offer_sweep(self) -> None:
        """Have the host's catalogue say whether there is something to sweep."""
        sweepable = any(item["done"] for item in self.items)
        if "dynamic_tools" in features and sweepable is not self.sweepable:
            self.sweepable = sweepable
            method, params = ("register", {"tools": [SWEEP]}) if sweepable else ("unregister", {"names": ["sweep"]})
            send(id=next(request_ids), method=f"tools/{method}", params=params)


def agree(protocol: dict[str, Any]) -> dict[str, Any]:
    """Select what is required, and what we want if it is offered."""
    features.update(protocol["required_features"])
    features.update(name for name in WANTED if name in protocol["optional_features"])
    return {"version": protocol["version"], "features": sorted(features), "limits": {"max_concurrent_requests": 1}}


def call(tasks: Tasks, params: dict[str, Any]) -> dict[str, Any]:
    try:
        text, is_error = tasks.change(params["name"], params["arguments"]), False
    except ValueError as error:
        text, is_error = str(error), True
    return {
        "content": [{"type": "text", "text": text}],
        "is_error": is_error,
        "metadata": None,
        "structured_content": {"open": len(tasks.open), "all": len(tasks.items)},
    }


def answer(tasks: Tasks, method: str, params: dict[str, Any]) -> Any:
    """The result of a request of the host; ``None`` for a method nobody here knows."""
    if method == "initialize":
        return {
            "api_version": "0.4",
            "tools": TOOLS,
            "commands": [{"name": "tasks"}],
            "protocol": agree(params["protocol"]),
        }
    if method == "tool/call":
        return call(tasks, params)
    if method == "command/execute":
        text = " ".join(params["arguments"])
        if text.strip():
            tasks.change("add", {"text": text})
        return {"text": tasks.shown(), "notifications": [], "context": []}
    if method == "context/collect":
        text = "\n".join(tasks.open)
        return [{"label": "open tasks", "content": text, "placement": "prompt"}] if text else []
    if method == "status/collect":
        text = f"{len(tasks.open)} open tasks"
        return {"surface": params["surface"], "text": text, "style_role": "muted", "priority": 0}
    if method == "menu/collect":
        return {"items": [{"label": text, "command": "tasks"} for text in tasks.open[:256]]}
    if method == "hook/run":
        return {"disposition": {"action": "continue"}, "context": [], "notifications": []}
    return {} if method == "shutdown" else None


def main() -> None:
    tasks = Tasks()
    for line in sys.stdin.buffer:
        message = json.loads(line)
        method, message_id = message.get("method"), message.get("id")
        if method is None or message_id is None:
            if "error" in message:
                print(message["error"]["message"], file=sys.stderr)
            continue
        result = answer(tasks, method, message["params"])
        if method == "tool/call":
            tasks.offer_sweep()
        if result is None:
            send(id=message_id, error={"code": -32601, "message": "unknown method"})
        else:
            send(id=message_id, result=result)
        if method == "shutdown":
            return


if __name__ == "__main__":
    main()
