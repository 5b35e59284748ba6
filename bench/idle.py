"""What a session costs that does nothing: ``python -m bench.idle COUNT``, in a process of its own, prints JSON.

An idle session is one of a host's, with four plugins attached and two subscriptions; with ``--bus`` it is a bus alone,
which is what a program has that runs no processes. Without ``--traced`` the memory is
what the process grew by; with it, what Python allocated, which is exact for a single session and slow.
"""

from __future__ import annotations

import argparse
import gc
import json
import subprocess
import sys
import time
import tracemalloc
from collections.abc import Sequence
from typing import Any, cast

from broker import Bus, Host

PLUGINS = ("editor", "watcher", "checker", "board")


class NoDriver:
    """A driver for sessions that start no process and so need nothing done."""

    def schedule(self, session: object) -> None:
        """Nothing waits to be written."""


def open_idle(host: Any) -> object:
    """Open one idle session."""
    session = host.open_session("/")
    peers = [session.attach(name) for name in PLUGINS]
    peers[0].subscribe("bus.watcher.changes")
    peers[1].subscribe("bus.editor.saved")
    return session


def open_bus() -> object:
    """Open the bus of an idle session alone."""
    bus = Bus()
    peers = [bus.attach(name) for name in PLUGINS]
    peers[0].subscribe("bus.watcher.changes")
    peers[1].subscribe("bus.editor.saved")
    return bus


def measure(count: int, *, traced: bool, bus: bool = False) -> dict[str, float]:
    """Bytes and seconds a session, and seconds of a full collection with all of them alive."""
    import psutil

    host = Host(cast(Any, NoDriver()))
    opened: list[object] = [None] * (count + 8)
    # The first few pay for what all of them share.
    for n in range(8):
        opened[n] = open_bus() if bus else open_idle(host)
    gc.collect()
    process = psutil.Process()
    if traced:
        tracemalloc.start()
    before = tracemalloc.get_traced_memory()[0] if traced else process.memory_info().rss
    start = time.perf_counter()
    for n in range(8, count + 8):
        opened[n] = open_bus() if bus else open_idle(host)
    created = time.perf_counter() - start
    gc.collect()
    after = tracemalloc.get_traced_memory()[0] if traced else process.memory_info().rss
    start = time.perf_counter()
    gc.collect()
    collected = time.perf_counter() - start
    assert None not in opened
    return {"bytes": (after - before) / count, "create": created / count, "collect": collected}


def in_own_process(count: int, *, traced: bool = False, bus: bool = False) -> dict[str, float]:
    """The same, measured by a fresh interpreter."""
    options = [*(["--traced"] if traced else []), *(["--bus"] if bus else [])]
    command = [sys.executable, "-m", "bench.idle", str(count), *options]
    answer = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    return cast("dict[str, float]", json.loads(answer))


def main(argv: Sequence[str] | None = None) -> None:
    """Measure in this process."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("count", type=int)
    parser.add_argument("--traced", action="store_true")
    parser.add_argument("--bus", action="store_true")
    given = parser.parse_args(argv)
    print(json.dumps(measure(given.count, traced=given.traced, bus=given.bus)))


if __name__ == "__main__":
    main()
