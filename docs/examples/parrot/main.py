#!/usr/bin/env python3
"""A provider of a model over octet 0.3: declares it, accepts streams, and passes on what the model's server says.

Standard library only. The thread of :func:`main` reads; each stream has a thread of its own, so that a slow model keeps
nobody from hearing a cancel or the shutdown.
"""

from __future__ import annotations

import contextlib
import http.client
import itertools
import json
import os
import socket
import sys
import threading
from typing import Any

sys.path.insert(0, os.environ.get("OCTET_EXTENSION_DIR", os.path.dirname(os.path.abspath(__file__))))

import model_server

CATALOGUE = ["providers/complete", "providers/register"]
STREAM = ["provider/cancel", "provider/event", "provider/stream"]
DECLARATION = {
    "provider": {"id": "parrot", "label": "Parrot", "auth": {"kind": "none"}},
    "models": [
        {
            "id": "echo",
            "api_name": "echo-1",
            "protocol": "openai_chat",
            "context_window": 8192,
            "max_output_tokens": 1024,
            "capabilities": {
                "tools": False,
                "parallel_tool_calls": False,
                "structured_output": False,
                "reasoning": False,
            },
        }
    ],
}

request_ids = itertools.count(1)
write_lock = threading.Lock()


def send(**message: Any) -> None:
    """One frame: sorted keys, no white space, nothing escaped that need not be, then a line feed."""
    frame = json.dumps({"jsonrpc": "2.0", **message}, ensure_ascii=False, sort_keys=True, separators=(",", ":"))
    with write_lock:
        sys.stdout.buffer.write(frame.encode() + b"\n")
        sys.stdout.buffer.flush()


class Stream(threading.Thread):
    """One stream: what the server sends becomes events, until it is done, fails or is cancelled."""

    def __init__(self, port: int, params: dict[str, Any]) -> None:
        super().__init__(daemon=True)
        self.id = params["stream_id"]
        self._port = port
        self._request = params["request"]
        self._sequence = itertools.count()
        self._lock = threading.Lock()
        self._cancelled = False
        self._server: socket.socket | None = None

    def run(self) -> None:
        """Never raises: what goes wrong is the stream's last event."""
        try:
            self._pass_on()
        except (OSError, http.client.HTTPException, ValueError, KeyError, TypeError) as error:
            sys.stderr.write(f"{self.id}: {type(error).__name__}: {error}\n")
            self._event("error", {})

    def cancel(self) -> None:
        """Say nothing more, and hang up on the server."""
        with self._lock:
            self._cancelled = True
            if self._server is not None:
                with contextlib.suppress(OSError):
                    self._server.shutdown(socket.SHUT_RDWR)

    def _pass_on(self) -> None:
        connection = http.client.HTTPConnection("127.0.0.1", self._port, timeout=60)
        connection.request("POST", "/v1/chat/completions", json.dumps(self._request))
        with self._lock:
            self._server = connection.sock
        answer = connection.getresponse()
        self._event("started", {})
        self._event("text_start", {"index": 0})
        words = 0
        for line in answer:
            data = line.removeprefix(b"data: ").strip()
            if data == b"[DONE]":
                self._event("text_end", {"index": 0})
                self._event("usage", {"output_tokens": words})
                self._event("finished", {"stop_reason": "stop"})
                return
            words += 1
            self._event("text_delta", {"index": 0, "delta": json.loads(data)["delta"]})
        raise ValueError("the server hung up before it was done")

    def _event(self, kind: str, payload: dict[str, Any]) -> None:
        with self._lock:
            if self._cancelled:
                return
            sequence = next(self._sequence)
        params = {"stream_id": self.id, "sequence": sequence, "kind": kind, "payload": payload}
        send(method="provider/event", params=params)


def selection(offer: dict[str, Any]) -> dict[str, Any]:
    """What we take of the host's offer: everything that is required, and the provider services if there are any."""
    offered = {"provider_catalog", "provider_stream"} <= set(offer["optional_capabilities"])
    return {
        "schema": offer["schema"],
        "encoding": offer["encoding"],
        "capabilities": offer["required_capabilities"] + (["provider_catalog", "provider_stream"] if offered else []),
        "methods": offer["required_methods"] + (CATALOGUE + STREAM if offered else []),
        "limits": offer["limits"],
    }


def main() -> None:
    port = model_server.start()
    streams: dict[str, Stream] = {}
    for line in sys.stdin.buffer:
        message = json.loads(line)
        method, params, message_id = message.get("method"), message.get("params"), message.get("id")
        if method == "initialize":
            contract = selection(params["contract"])
            send(id=message_id, result={"api_version": "0.3", "tools": [], "contract": contract})
            if "providers/register" in contract["methods"]:
                send(id=next(request_ids), method="providers/register", params=DECLARATION)
                send(method="providers/complete", params={})
        elif method == "provider/stream":
            stream = streams[params["stream_id"]] = Stream(port, params)
            send(id=message_id, result={"stream_id": stream.id, "accepted": True})
            stream.start()
        elif method == "provider/cancel":
            stopped = streams.pop(params["stream_id"], None)
            if stopped is not None:
                stopped.cancel()
        elif method == "shutdown":
            send(id=message_id, result={"terminal": "shutdown"})
            return
        elif method == "tool/call":
            send(id=message_id, error={"code": -32602, "message": "invalid params"})  # there are no tools
        elif method is not None and message_id is not None:
            send(id=message_id, error={"code": -32601, "message": "unknown or unnegotiated method"})
        elif method is None and "error" in message:
            sys.stderr.write(f"the host refused: {message['error']['message']}\n")
        streams = {stream_id: stream for stream_id, stream in streams.items() if stream.is_alive()}


if __name__ == "__main__":
    main()
