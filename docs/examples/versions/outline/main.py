#!/usr/bin/env python3
"""An extension of API 0.1: a tool, a command and a piece of context, each answered with text and nothing else."""

from __future__ import annotations

import json
import os
import re
import sys
from pathlib import Path
from typing import Any

WORKSPACE = Path(os.environ.get("OCTET_WORKSPACE", "."))
TOOL = {
    "name": "outline",
    "description": "Lists the headings of a reStructuredText or Markdown file of the workspace.",
    "parameters": {"type": "object", "properties": {"file": {"type": "string"}}, "required": ["file"]},
}
UNDERLINE = re.compile(r"([=~^\"'#*+-])\1{2,}\s*")


def headings(text: str) -> list[str]:
    """Markdown's ``# Title``, and lines that are underlined."""
    lines = text.splitlines()
    found = []
    for line, below in zip(lines, [*lines[1:], ""], strict=True):
        if re.match(r"#{1,6} \S", line):
            found.append(line.lstrip("# ").strip())
        elif line.strip() and not UNDERLINE.fullmatch(line) and UNDERLINE.fullmatch(below):
            found.append(line.strip())
    return found


def outline(name: Any) -> tuple[str, bool]:
    """The text to answer with, and whether it is an error."""
    if not isinstance(name, str):
        return "file: expected the name of a text", True
    try:
        path = (WORKSPACE / name).resolve()
        if not path.is_relative_to(WORKSPACE.resolve()):
            return f"{name} is not in the workspace", True
        found = headings(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        return f"{name}: {error}", True
    return "\n".join(found) or "no headings", False


def answer(method: str, params: dict[str, Any]) -> Any:
    """The result of a request of the host; ``None`` for a method nobody here knows."""
    if method == "initialize":
        return {"api_version": "0.1", "tools": [TOOL], "commands": [{"name": "headings"}]}
    if method == "tool/call":
        arguments = params["arguments"]  # whatever a model came up with, which need not be an object
        text, is_error = outline(arguments.get("file") if isinstance(arguments, dict) else None)
        return {"content": text, "is_error": is_error}
    if method == "command/execute":
        texts = [outline(name)[0] for name in params["arguments"]]
        return {"text": "\n\n".join(texts) or "usage: headings FILE...", "notifications": [], "context": []}
    if method == "context/collect":
        text, is_error = outline("README.rst")
        return [] if is_error else [{"label": "headings of README.rst", "content": text, "placement": "prompt"}]
    return {} if method == "shutdown" else None


def main() -> None:
    for line in sys.stdin.buffer:
        request = json.loads(line)
        if "id" not in request or "method" not in request:
            continue
        result = answer(request["method"], request["params"])
        outcome = {"error": {"code": -32601, "message": "unknown method"}} if result is None else {"result": result}
        print(json.dumps({"jsonrpc": "2.0", "id": request["id"], **outcome}), flush=True)
        if request["method"] == "shutdown":
            return


if __name__ == "__main__":
    main()
