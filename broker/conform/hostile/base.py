"""What hostile programs share: lines in and out, and the log of what a host does.

What is logged, one JSON object a line: ``start``, each ``frame`` of the host, the moment of the ``fault``, ``eof`` and
``signal``, the id of a ``child``.
"""

from __future__ import annotations

import json
import os
import signal
import sys
import time

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any  # these programs start often, and this would be a good part of it

TOOL: dict[str, Any] = {"name": "poke", "description": "Does nothing.", "parameters": {"type": "object"}}
_SHOWN_BYTES = 65_536
_DEAF_TO = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)
_DEAF_SECONDS = 40
_CHILD = f"""
import signal, time
for number in {tuple(map(int, _DEAF_TO))}:
    signal.signal(number, signal.SIG_IGN)
time.sleep({_DEAF_SECONDS})
"""


class BaseProgram:
    """A program in one scenario. One that is ``deaf`` hears no signal, nor the end of its input."""

    def __init__(self, scenario: str, log: str) -> None:
        self.scenario: str = scenario
        self.log_path: str = log
        self.file: int = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
        self.deaf: bool = "deaf" in scenario
        self.next_id: int = 0

    # -- writing -------------------------------------------------------------------------------------------------------

    def log(self, event: str, **more: Any) -> None:
        """Append ``event`` to the log, with this process, the monotonic time in seconds and ``more``."""
        line = {"event": event, "pid": os.getpid(), "at": time.monotonic(), **more}
        os.write(self.file, json.dumps(line).encode() + b"\n")

    def write(self, data: bytes) -> None:
        """Write all of ``data`` to the host."""
        view = memoryview(data)
        while view:
            view = view[os.write(1, view) :]

    def send(self, message: dict[str, Any]) -> None:
        """Write one JSON-RPC message in its canonical form."""
        message = {"jsonrpc": "2.0", **message}
        text = json.dumps(message, ensure_ascii=False, sort_keys=True, separators=(",", ":"))
        self.write(text.encode() + b"\n")

    def ask(self, method: str, params: dict[str, Any], request_id: Any = None) -> None:
        """Send a request; its id is the next one of its own where none is given."""
        if request_id is None:
            self.next_id += 1
            request_id = f"q{self.next_id}"
        self.send({"id": request_id, "method": method, "params": params})

    def fault(self, data: bytes = b"") -> None:
        """Log that the scenario's fault comes now, and write ``data``."""
        self.log("fault")
        self.write(data)

    def flood_stderr(self) -> None:
        """Write 4 MiB to stderr without a line end, as the fault."""
        self.log("fault")
        for _ in range(64):
            os.write(2, b"x" * 65_536)
        self.log("flooded")

    def leave(self, status: int) -> None:
        """End the process at once with ``status``, as the fault."""
        self.fault()
        os._exit(status)

    # -- reading -------------------------------------------------------------------------------------------------------

    def begin(self) -> None:
        """What is done before anything is read."""
        self.log("start", cwd=os.getcwd(), secret=os.environ.get("CONFORMANCE_HOST_ONLY"))

    def receive(self, message: dict[str, Any]) -> None:
        """One message of the host."""
        raise NotImplementedError

    def main(self) -> None:
        """Play the scenario; a host that no longer reads ends it."""
        try:
            self.run()
        except BrokenPipeError:
            pass

    def run(self) -> None:
        """Read the host's messages to the end of the input; one that is deaf stays for a while after it."""
        self.begin()
        if self.deaf:
            for number in _DEAF_TO:
                signal.signal(number, lambda number, frame: self.log("signal", number=number))
        if self.deaf and self.scenario != "deaf":
            child = os.posix_spawn(
                sys.executable, [sys.executable, "-I", "-S", "-c", _CHILD, self.log_path], dict(os.environ)
            )
            self.log("child", child=child)
        pending = bytearray()
        while chunk := os.read(0, 65_536):
            pending += chunk
            lines = pending.split(b"\n")
            pending = lines.pop()
            for line in lines:
                self.log("frame", size=len(line), text=line[:_SHOWN_BYTES].decode("utf-8", "backslashreplace"))
                try:
                    message = json.loads(line)
                except ValueError:
                    continue
                self.receive(message)
        self.log("eof", unterminated=len(pending))
        end = time.monotonic() + _DEAF_SECONDS
        while self.deaf and time.monotonic() < end:
            time.sleep(0.1)
