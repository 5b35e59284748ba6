"""An extension of the author's kit as a process; run by test_extension_process.py."""

from __future__ import annotations

import asyncio
import os
import sys
import threading
import time

from broker.extension import Context, Extension

app = Extension(os.environ.get("KIT_NAME", "hello"), "1.0.0")
report = app.topic("report", [])


@app.tool
def greet(who: str) -> str:
    """Greets, and prints where it must not disturb."""
    print(f"print: {who}")
    os.write(1, b"write\n")
    sys.stderr.write(f"read: {sys.stdin.read()!r}\n")
    return f"hello, {who}"


@app.tool
async def publish() -> int:
    """Publishes once."""
    return (await report.publish()).sequence


@app.tool
def publish_plainly() -> int:
    """Publishes once, in a thread."""
    return report.publish_sync().sequence


@app.tool
async def wait() -> str:
    """Waits for ever."""
    print("wait begins")
    await asyncio.sleep(3600)
    return "late"


@app.tool
def watch(context: Context) -> str:
    """Runs until it is cancelled."""
    print("watch begins")
    while not context.cancelled:
        time.sleep(0.001)
    return f"noticed {context.reason}"


@app.tool
def meet(count: int) -> str:
    """Returns when so many calls are open."""
    barrier(count)
    return threading.current_thread().name.partition("-")[0]


@app.tool
def never() -> str:
    """Never returns."""
    print("never begins")
    time.sleep(3600)
    return "late"


@app.tool
async def borrow() -> str:
    """Never returns from a thread of asyncio."""
    print("borrow begins", flush=True)
    await asyncio.to_thread(time.sleep, 3600)
    return "late"


@app.tool(timeout_ms=50)
def hurry() -> str:
    """Has not the time it needs."""
    time.sleep(3600)
    return "late"


@app.tool
def leave() -> str:
    """Tries to end the process."""
    sys.exit(3)


def barrier(count: int, known: dict[int, threading.Barrier] = {}) -> None:  # noqa: B006 - kept between calls
    with _LOCK:
        found = known.setdefault(count, threading.Barrier(count))
    found.wait(20)


_LOCK = threading.Lock()

if __name__ == "__main__":
    app.run()
