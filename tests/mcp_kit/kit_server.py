"""A server made with the kit, whose tools do what tools do that were not thought through. Run as a process."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
import time
from typing import Any, Literal

from broker.adapters.mcp_server import Context, Envelope, Server, ToolFailureError

server = Server(
    "kit",
    "1.2",
    artifact_root=os.environ.get("KIT_ROOT"),
    max_response_bytes=int(os.environ.get("KIT_BYTES", "100000")),
)
gate = threading.Event()


@server.tool
def add(a: int, b: int = 1) -> int:
    """Add."""
    return a + b


@server.tool
def kinds(number: float | None = None, words: list[str] | None = None, choice: Literal["x", 2] = "x") -> Any:
    """Tell what came."""
    return {"number": number, "words": words, "choice": choice}


@server.tool
def texts() -> list[str]:
    """Two items."""
    return ["one", "two\u2028\n"]


def surrogate(how: Literal["text", "keys", "error", "envelope"] = "text") -> Any:
    if how == "error":
        raise ToolFailureError("x\ud835y")
    if how == "envelope":
        return Envelope("x\ud835y", [{"id": "\ud835"}])
    return "x\ud835y" if how == "text" else {"\ud835": ["\udd38", "\U0001d538"]}


# Said here, as the compiler of Python 3.13 takes no docstring that UTF-8 cannot hold.
surrogate.__doc__ = "Half a pair: \ud835."
server.tool(surrogate)


@server.tool
def fail() -> str:
    """Fail on purpose."""
    raise ToolFailureError("it\nfailed")


@server.tool
def crash() -> str:
    """Raise what tells too much."""
    raise RuntimeError("password=hunter2")


@server.tool
def leave() -> str:
    """Try to end the server."""
    sys.exit(7)


@server.tool
def unserialisable() -> Any:
    """Return what is no JSON."""
    return {1, 2}


@server.tool
def noisy() -> str:
    """Print in every way there is, and read what is not there."""
    print("printed", flush=True)
    os.write(1, b"written\n")
    subprocess.run(["echo", "echoed"], check=True)
    return repr(sys.stdin.read())


@server.tool
def long(chars: int) -> str:
    """A long answer."""
    return "x" * chars


@server.tool
def wait(context: Context, seconds: float = 30.0) -> str:
    """Wait until cancelled or opened."""
    end = time.monotonic() + seconds
    while time.monotonic() < end and not context.cancelled and not gate.wait(0.01):
        pass
    return "cancelled" if context.cancelled else "opened"


@server.tool
def open_gate() -> str:
    """Let the waiting go on."""
    gate.set()
    return "open"


@server.tool
def deaf() -> str:
    """Never notice anything."""
    sys.stderr.write("deaf\n")
    while True:
        time.sleep(60)


@server.tool
def steps(context: Context) -> str:
    """Report, then wait to be opened."""
    context.progress(1, 2, "half")
    gate.wait(30)
    context.progress(2)
    return "done"


@server.tool
def bad_progress(context: Context) -> str:
    """Report what is no JSON number."""
    context.progress(float("nan"))
    return "done"


@server.tool
def attach(size: int = 3) -> Envelope:
    """Write an artifact."""
    return Envelope("see it", [server.artifact("it", b"x" * size, media_type="text/plain")])


@server.tool
def twice() -> Envelope:
    """Two of one id."""
    ref = server.artifact("it", b"x", media_type="text/plain")
    return Envelope("see it", [ref, ref])


if __name__ == "__main__":
    server.run()
