"""A model server small enough to read: it streams the last user message back, word by word.

``POST /v1/chat/completions`` with ``{"messages": [...], "pause_ms": n}`` answers with one ``data: {"delta": ...}`` line
for each word and ``data: [DONE]``. A message ``fail`` breaks off in the middle.
"""

from __future__ import annotations

import json
import re
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any


class Handler(BaseHTTPRequestHandler):
    """One request."""

    protocol_version = "HTTP/1.1"

    def do_POST(self) -> None:
        """Stream the answer; end when the client has gone."""
        asked = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        words = re.findall(r"\s*\S+|\s+$", last_user_message(asked))
        self.send_response(200)
        self.send_header("Content-Type", "text/event-stream")
        self.send_header("Connection", "close")
        self.end_headers()
        self.close_connection = True
        try:
            for word in words:
                if word == "fail":
                    return
                self.wfile.write(b"data: " + json.dumps({"delta": word}).encode() + b"\n")
                self.wfile.flush()
                time.sleep(asked.get("pause_ms", 0) / 1000)
            self.wfile.write(b"data: [DONE]\n")
        except (BrokenPipeError, ConnectionResetError):
            pass

    def log_message(self, *_: Any) -> None:
        """Say nothing: stderr is the extension's."""


def last_user_message(asked: dict[str, Any]) -> str:
    """What the model is to say back."""
    said = [str(message["content"]) for message in asked["messages"] if message.get("role") == "user"]
    return said[-1] if said else ""


def start() -> int:
    """Serve on a free port of this machine, in the background; gives the port."""
    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    threading.Thread(target=server.serve_forever, daemon=True).start()
    return server.server_address[1]
