"""A host as one writes it on a first afternoon, speaking octet 0.3 to one extension; it trusts everything it reads.

``python naive_host.py DIR SECONDS``. What it does wrong: white space in its frames, string ids, its own environment for
the extension, no look at the selection, no bound, no group, no end of a process for what it says.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
import time
import tomllib

directory, seconds = sys.argv[1], float(sys.argv[2])
with open(os.path.join(directory, "extension.toml"), "rb") as file:
    manifest = tomllib.load(file)
entry = manifest["entrypoint"]
process = subprocess.Popen(
    [entry["command"], *entry["args"]], stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL
)
assert process.stdin is not None and process.stdout is not None


def send(message: dict[str, object]) -> None:
    assert process.stdin is not None
    process.stdin.write(json.dumps({"jsonrpc": "2.0", **message}).encode() + b"\n")
    process.stdin.flush()


def read() -> None:
    assert process.stdout is not None
    for line in process.stdout:
        try:
            message = json.loads(line)
        except ValueError:
            continue
        if isinstance(message, dict) and "method" in message and "id" in message:
            send({"id": message["id"], "result": {}})


threading.Thread(target=read, daemon=True).start()
contract = {
    "schema": "octet.extension.api/0.3",
    "encoding": "octet-canonical-json-v1",
    "required_capabilities": ["core"],
    "optional_capabilities": ["event_bus", "dynamic_tools"],
    "required_methods": ["initialize", "shutdown", "tool/call"],
    "optional_methods": [],
    "limits": {"max_frame_bytes": 1048576, "max_concurrent_requests": 8, "max_tools": 16},
}
send({"id": "init", "method": "initialize", "params": {"api_version": "0.3", "contract": contract}})
time.sleep(seconds)
