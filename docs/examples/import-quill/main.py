#!/usr/bin/env python3
"""A migration adapter over octet 0.3: reads ``.quill`` below the directory the host names, and writes nothing.

Standard library only. What may hold a secret is left out, and a diagnostic says so: keys, addresses, headers and
environment variables have no place in the answers.
"""

from __future__ import annotations

import json
import os
import sys
import tomllib
from pathlib import Path
from typing import Any

CONFIG = ".quill/config.toml"
SKILLS = ".quill/skills"
MAX_SKILL_BYTES = 131_072
ADAPTER = ["migration/detect", "migration/import"]


def send(**message: Any) -> None:
    """One frame: sorted keys, no white space, nothing escaped that need not be, then a line feed."""
    frame = json.dumps({"jsonrpc": "2.0", **message}, ensure_ascii=False, sort_keys=True, separators=(",", ":"))
    sys.stdout.buffer.write(frame.encode() + b"\n")
    sys.stdout.buffer.flush()


def note(path: str, severity: str, reason: str) -> dict[str, str]:
    return {"path": path, "severity": severity, "reason": reason}


def detect(root: Path) -> dict[str, Any]:
    """The files that hold the setup; links are not followed."""
    found = [CONFIG] if is_file(root / CONFIG) else []
    skills = root / SKILLS
    if skills.is_dir() and not skills.is_symlink():
        found += [f"{SKILLS}/{file.name}" for file in sorted(skills.glob("*.md")) if is_file(file)]
    diagnostics = [] if found else [note("$", "warning", "there is no .quill here")]
    return {"detected": bool(found), "config_paths": found[:128], "diagnostics": diagnostics}


def convert(root: Path, paths: list[str]) -> dict[str, Any]:
    """What can be taken over from these files."""
    result: dict[str, Any] = {"models": [], "skills": [], "mcp_servers": [], "diagnostics": []}
    for path in paths:
        try:
            if path == CONFIG:
                convert_config(path, tomllib.loads((root / path).read_text("utf-8")), result)
            else:
                convert_skill(path, (root / path).read_text("utf-8"), result)
        except (OSError, ValueError) as error:
            result["diagnostics"].append(note(path, "error", f"cannot be read: {type(error).__name__}"))
    return result


def convert_config(path: str, config: dict[str, Any], result: dict[str, Any]) -> None:
    model = config.get("model", {})
    if "name" in model:
        chosen = {"path": path, "provider": str(model.get("provider", "quill")), "model": str(model["name"])}
        result["models"].append(chosen)
    if "api_key" in model:
        result["diagnostics"].append(note(path, "warning", "the key of the model is not taken over"))
    for name, server in sorted(config.get("mcp", {}).items()):
        if "command" not in server:
            result["diagnostics"].append(note(path, "warning", f"server {name} is not a local one"))
            continue
        entry = {"path": path, "name": name, "command": str(server["command"])}
        result["mcp_servers"].append({**entry, "args": [str(argument) for argument in server.get("args", [])]})
        if "env" in server:
            result["diagnostics"].append(note(path, "warning", f"the environment of {name} is not taken over"))


def convert_skill(path: str, content: str, result: dict[str, Any]) -> None:
    if len(content.encode()) > MAX_SKILL_BYTES:
        result["diagnostics"].append(note(path, "error", f"is over {MAX_SKILL_BYTES} bytes"))
        return
    result["skills"].append({"path": path, "name": Path(path).stem, "content": content})


def is_file(path: Path) -> bool:
    return path.is_file() and os.path.realpath(path) == str(path)


def selection(offer: dict[str, Any]) -> dict[str, Any]:
    """What we take of the host's offer: everything that is required, and the service if there is one."""
    offered = "migration.adapter.v1" in offer["optional_capabilities"]
    return {
        "schema": offer["schema"],
        "encoding": offer["encoding"],
        "capabilities": offer["required_capabilities"] + (["migration.adapter.v1"] if offered else []),
        "methods": offer["required_methods"] + (ADAPTER if offered else []),
        "limits": {**offer["limits"], "max_concurrent_requests": 1},
    }


def main() -> None:
    for line in sys.stdin.buffer:
        message = json.loads(line)
        method, params, message_id = message.get("method"), message.get("params"), message.get("id")
        if method == "initialize":
            result = {"api_version": "0.3", "tools": [], "contract": selection(params["contract"])}
            send(id=message_id, result=result)
        elif method == "migration/detect":
            send(id=message_id, result=detect(Path(params["source_root"])))
        elif method == "migration/import":
            send(id=message_id, result=convert(Path(params["source_root"]), params["config_paths"]))
        elif method == "shutdown":
            send(id=message_id, result={"terminal": "shutdown"})
            return
        elif method == "tool/call":
            send(id=message_id, error={"code": -32602, "message": "invalid params"})  # there are no tools
        elif method is not None and message_id is not None:
            send(id=message_id, error={"code": -32601, "message": "unknown or unnegotiated method"})


if __name__ == "__main__":
    main()
