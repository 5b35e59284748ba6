"""Extensions and servers as objects: handed the host's messages, answering with messages, knowing nothing of pipes.

The same object runs in memory under a :class:`~broker.testing.MemoryDriver` and as a real process under
:func:`serve_stdio`, so that one test can be run both ways.
"""

from __future__ import annotations

import json
import os
import select
import signal
import sys
import time
from collections import deque
from typing import Any, NoReturn

from broker import canonical
from broker.limits import MAX_READ_CHUNK_BYTES
from broker.wire.octet.contract import METHODS


class ScriptedProcess:
    """The far end of a process's pipes, as an object; what it says and hears, whatever protocol that is.

    ``received`` holds every decoded message the host sent, in order, and :meth:`on_message` is called for each.
    """

    def __init__(self) -> None:
        self.received: list[Any] = []
        self.stdin_closed: bool = False
        self.reading: bool = True
        self.sent: deque[bytes | None] = deque()
        self.stderr: deque[bytes] = deque()
        self.exit_status: int | None = None
        self._unread = bytearray()

    def __repr__(self) -> str:
        state = "running" if self.exit_status is None else f"exited with {self.exit_status}"
        return f"<{type(self).__name__} {state}, heard {len(self.received)} messages>"

    # -- what it says --------------------------------------------------------------------------------------------------

    def send(self, message: Any) -> None:
        """Write one message."""
        self.send_bytes(self.encode(message) + b"\n")

    def send_bytes(self, data: bytes) -> None:
        """Write raw bytes."""
        self.sent.append(data)

    def send_stderr(self, data: bytes) -> None:
        """Write to stderr."""
        self.stderr.append(data)

    def answer(self, message_id: int | str, result: Any) -> None:
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

    def params_of(self, method: str) -> list[Any]:
        """The params of every message of ``method`` that it heard."""
        return [message.get("params") for message in self.received if message.get("method") == method]

    def answer_to(self, message_id: int | str) -> dict[str, Any] | None:
        """The host's answer to a request, None until it comes; ``AssertionError`` when there are two."""
        found = [m for m in self.received if "method" not in m and m.get("id") == message_id]
        if len(found) > 1:
            raise AssertionError(f"{message_id!r} was answered {len(found)} times")
        return found[0] if found else None

    def on_message(self, message: Any) -> None:
        """One message of the host. Override it to behave differently."""

    def on_eof(self) -> None:
        """The host closed the input; a good process exits."""
        self.exit(0)

    def on_terminate(self) -> None:
        """The host sent SIGTERM; in memory only, a real process has signals of its own."""
        self.exit(-15)

    def on_gone(self) -> None:
        """The process is gone, killed or ended; in memory only. What it held is to be let go."""

    # -- time ----------------------------------------------------------------------------------------------------------

    def next_deadline(self) -> int | None:
        """The monotonic millisecond at which it wants :meth:`tick` next; None while it only waits for messages."""
        return None

    def tick(self, now_ms: int) -> None:
        """Do what has become due by ``now_ms``, milliseconds of the clock that :meth:`next_deadline` reads too.

        Called whenever there is something to do and at every deadline, so possibly before anything is due.
        """

    # -- for what carries it -------------------------------------------------------------------------------------------

    def encode(self, message: Any) -> bytes:
        """The bytes of a message, without LF."""
        return json.dumps(message, separators=(",", ":"), ensure_ascii=False).encode()

    def decode(self, line: bytes) -> Any:
        """The message of a line without LF."""
        return json.loads(line)

    def hear(self, data: bytes) -> None:
        """Take bytes from the host, in any chunks."""
        self._unread += data
        while (end := self._unread.find(b"\n")) >= 0:
            message = self.decode(bytes(self._unread[:end]))
            del self._unread[: end + 1]
            self.received.append(message)
            self.on_message(message)


class ScriptedExtension(ScriptedProcess):
    """An octet 0.3 extension. Subclass it, or use it as it is and feed it by hand.

    By default it answers ``initialize`` with :meth:`selection`, tool calls with an empty result, hooks with
    ``continue`` and ``shutdown`` as it should be, and ignores the rest.
    """

    def __init__(self, *, tools: tuple[str, ...] = (), capabilities: tuple[str, ...] = ()) -> None:
        super().__init__()
        self.tools: tuple[str, ...] = tools
        self.capabilities: tuple[str, ...] = capabilities
        self.limits: dict[str, int] = {}

    def encode(self, message: Any) -> bytes:
        """The canonical bytes of a frame."""
        return canonical.encode(message)

    def decode(self, line: bytes) -> Any:
        """The frame of canonical bytes; others are the host's fault, and raise."""
        return canonical.decode(line)

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

    def selection(self, offer: dict[str, Any]) -> dict[str, Any]:
        """The result of ``initialize``: what is required, and every offered method of ``self.capabilities``."""
        chosen = [name for name in self.capabilities if name in offer["optional_capabilities"]]
        methods = [name for name in offer["optional_methods"] if METHODS[name].capability in chosen]
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


class ScriptedFeatureExtension(ScriptedProcess):
    """An extension of API 0.1, 0.2 or 0.4. Subclass it, or use it as it is and feed it by hand.

    By default it selects every offered feature (or those of ``features``), answers tool calls with ``text``, commands
    with an empty text, hooks with ``continue``, collections with nothing and ``shutdown`` as it should be.
    """

    def __init__(
        self,
        *,
        version: str = "0.4",
        tools: tuple[str, ...] = (),
        commands: tuple[str, ...] = (),
        features: tuple[str, ...] | None = None,
        text: str = "",
    ) -> None:
        super().__init__()
        self.version: str = version
        self.tools: tuple[str, ...] = tools
        self.commands: tuple[str, ...] = commands
        self.features: tuple[str, ...] | None = features
        self.text: str = text
        self.concurrency: int = 8

    def on_message(self, message: dict[str, Any]) -> None:
        """One message of the host. Override it to behave differently."""
        method, message_id = message.get("method"), message.get("id")
        if message_id is None or method is None:
            return
        if method == "initialize":
            self.answer(message_id, self.agreement(message["params"]))
        elif method == "shutdown":
            self.answer(message_id, {})
            self.exit(0)
        else:
            self.answer(message_id, self.default_result(method))

    def agreement(self, params: dict[str, Any]) -> dict[str, Any]:
        """The result of ``initialize``; from then on it speaks the version that its manifest has it asked for."""
        self.version = params.get("api_version", self.version)
        result: dict[str, Any] = {
            "api_version": self.version,
            "tools": [{"name": name, "description": name, "parameters": {"type": "object"}} for name in self.tools],
            "commands": [{"name": name} for name in self.commands],
        }
        if "protocol" in params:
            offer = params["protocol"]
            chosen = offer["optional_features"] if self.features is None else self.features
            result["protocol"] = {
                "version": offer["version"],
                "features": [*offer["required_features"], *chosen],
                "limits": {"max_concurrent_requests": self.concurrency},
            }
        return result

    def default_result(self, method: str) -> Any:
        """The result of any other request."""
        if method == "tool/call":
            parts = [{"type": "text", "text": self.text}]
            return {"content": self.text if self.version == "0.1" else parts, "is_error": False}
        results: dict[str, Any] = {
            "command/execute": {"text": "", "notifications": [], "context": []},
            "hook/run": {"disposition": {"action": "continue"}, "context": [], "notifications": []},
            "context/collect": [],
            "status/collect": None,
            "menu/collect": {"items": []},
            "tool/render": {"segments": []},
        }
        return results.get(method, {})


class ScriptedServer(ScriptedProcess):
    """An MCP server. By default it answers the handshake, ``ping``, one page of ``tools/list`` and calls of its tools.

    ``tools`` maps a name to what a call of it is answered with, a text or a whole result.
    """

    def __init__(self, tools: dict[str, Any] | None = None) -> None:
        super().__init__()
        self.tools: dict[str, Any] = tools or {}

    def on_message(self, message: Any) -> None:
        """One message of the host. Override it to behave differently."""
        method, message_id = message.get("method"), message.get("id")
        if message_id is None or method is None:
            return
        if method == "initialize":
            info = {"name": "scripted", "version": "0"}
            result = {"protocolVersion": "2025-03-26", "capabilities": {"tools": {}}, "serverInfo": info}
            self.answer(message_id, result)
        elif method == "ping":
            self.answer(message_id, {})
        elif method == "tools/list":
            self.answer(message_id, {"tools": [{"name": name} for name in self.tools]})
        elif method == "tools/call":
            answer = self.tools[message["params"]["name"]]
            self.answer(message_id, {"content": [{"type": "text", "text": answer}]} if type(answer) is str else answer)


def serve_stdio(process: ScriptedProcess) -> None:
    """Be the process of ``process``: move bytes between it and the standard streams, then exit as it says."""
    while True:
        process.tick(_now_ms())
        while process.stderr:
            _write(2, process.stderr.popleft())
        while process.sent:
            data = process.sent.popleft()
            if data is None:
                os.close(1)
            else:
                _write(1, data)
        if process.exit_status is not None:
            _exit(process.exit_status)
        due = process.next_deadline()
        if not process.reading or process.stdin_closed:
            # It hears nothing more, be it stalled on purpose or at the end of its input: only the time goes on.
            if due is None:
                signal.pause()
            else:
                time.sleep(max(0, due - _now_ms()) / 1000)
            continue
        if due is not None and not _readable(max(0, due - _now_ms())):
            continue
        data = os.read(0, MAX_READ_CHUNK_BYTES)
        if data:
            process.hear(data)
        else:
            process.stdin_closed = True
            process.on_eof()


def _now_ms() -> int:
    return time.monotonic_ns() // 1_000_000


def _readable(within_ms: int) -> bool:
    """Whether there is something to read on stdin, at the latest after ``within_ms``."""
    return bool(select.select([0], [], [], within_ms / 1000)[0])


def _write(descriptor: int, data: bytes) -> None:
    view = memoryview(data)
    while view:
        view = view[os.write(descriptor, view) :]


def _exit(status: int) -> NoReturn:
    if status < 0:
        os.kill(os.getpid(), -status)
    sys.exit(status)
