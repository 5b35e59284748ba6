"""An extension as an object: it is handed the host's frames and answers with frames, and knows nothing of pipes.

The same object runs in memory under a :class:`~broker.testing.MemoryDriver` and as a real process under
:func:`serve_stdio`, so that one test can be run both ways.
"""

from __future__ import annotations

import os
import signal
import sys
from collections import deque
from typing import Any, NoReturn

from broker import canonical
from broker.limits import MAX_READ_CHUNK_BYTES


class ScriptedExtension:
    """The far end of one generation. Subclass it, or use it as it is and feed it by hand.

    ``received`` holds every decoded frame the host sent, in order. :meth:`on_message` is called for each of them; the
    default answers ``initialize`` with ``selection``, tool calls with an empty result, hooks with ``continue`` and
    ``shutdown`` as it should be, and ignores the rest.
    """

    def __init__(self, *, tools: tuple[str, ...] = (), capabilities: tuple[str, ...] = ()) -> None:
        self.received: list[dict[str, Any]] = []
        self.tools = tools
        self.capabilities = capabilities
        self.limits: dict[str, int] = {}
        self.stdin_closed = False
        self.reading = True
        self.sent: deque[bytes | None] = deque()
        self.stderr: deque[bytes] = deque()
        self.exit_status: int | None = None
        self._unread = bytearray()

    # -- what it says --------------------------------------------------------------------------------------------------

    def send(self, message: dict[str, Any]) -> None:
        """Write one canonical frame."""
        self.send_bytes(canonical.encode(message) + b"\n")

    def send_bytes(self, data: bytes) -> None:
        """Write raw bytes."""
        self.sent.append(data)

    def send_stderr(self, data: bytes) -> None:
        """Write to stderr."""
        self.stderr.append(data)

    def answer(self, message_id: int | str, result: dict[str, Any]) -> None:
        """Answer a request of the host."""
        self.send({"jsonrpc": "2.0", "id": message_id, "result": result})

    def request(self, message_id: int | str, method: str, params: dict[str, Any]) -> None:
        """Ask the host."""
        self.send({"jsonrpc": "2.0", "id": message_id, "method": method, "params": params})

    def close_stdout(self) -> None:
        """Close the output without exiting."""
        self.sent.append(None)

    def exit(self, status: int = 0) -> None:
        """Exit after what was sent so far; a negative status is a signal."""
        if self.exit_status is None:
            self.exit_status = status

    # -- what it hears -------------------------------------------------------------------------------------------------

    def on_message(self, message: dict[str, Any]) -> None:
        """One frame of the host. Override it to behave differently."""
        method, message_id = message.get("method"), message.get("id")
        if message_id is None or method is None:
            return
        if method == "initialize":
            self.answer(message_id, self.selection(message["params"]["contract"]))
        elif method == "tool/call":
            self.answer(message_id, {"content": [], "is_error": False, "metadata": None})
        elif method == "hook/run":
            self.answer(message_id, {"disposition": {"kind": "continue"}})
        elif method == "shutdown":
            self.answer(message_id, {"terminal": "shutdown"})
            self.exit(0)

    def on_eof(self) -> None:
        """The host closed the input; a good extension exits."""
        self.exit(0)

    def selection(self, offer: dict[str, Any]) -> dict[str, Any]:
        """The result of ``initialize``: what is required, and every offered method of ``self.capabilities``."""
        prefixes = {"event_bus": "bus/", "lifecycle_events": "hook/"}
        chosen = [name for name in self.capabilities if name in offer["optional_capabilities"]]
        starts = tuple(prefixes[name] for name in chosen)
        methods = [name for name in offer["optional_methods"] if name.startswith(starts)] if starts else []
        return {
            "api_version": "0.3",
            "tools": [{"name": name, "description": name, "parameters": {"type": "object"}} for name in self.tools],
            "contract": {
                "schema": offer["schema"],
                "encoding": offer["encoding"],
                "capabilities": [*offer["required_capabilities"], *chosen],
                "methods": [*offer["required_methods"], *methods],
                "limits": {**offer["limits"], **self.limits},
            },
        }

    # -- for what carries it -------------------------------------------------------------------------------------------

    def hear(self, data: bytes) -> None:
        """Take bytes from the host, in any chunks."""
        self._unread += data
        while (end := self._unread.find(b"\n")) >= 0:
            message = canonical.decode(bytes(self._unread[:end]))
            del self._unread[: end + 1]
            self.received.append(message)
            self.on_message(message)


def serve_stdio(extension: ScriptedExtension) -> None:
    """Be the process of ``extension``: move bytes between it and the standard streams, then exit as it says."""
    while True:
        while extension.stderr:
            _write(2, extension.stderr.popleft())
        while extension.sent:
            data = extension.sent.popleft()
            if data is None:
                os.close(1)
            else:
                _write(1, data)
        if extension.exit_status is not None:
            _exit(extension.exit_status)
        if not extension.reading:
            # Stalled on purpose: it hears nothing, not even the end of its input, until somebody kills it.
            while True:
                signal.pause()
        data = os.read(0, MAX_READ_CHUNK_BYTES)
        if data:
            extension.hear(data)
        elif not extension.stdin_closed:
            extension.stdin_closed = True
            extension.on_eof()
        else:
            signal.pause()


def _write(descriptor: int, data: bytes) -> None:
    view = memoryview(data)
    while view:
        view = view[os.write(descriptor, view) :]


def _exit(status: int) -> NoReturn:
    if status < 0:
        os.kill(os.getpid(), -status)
    sys.exit(status)
