"""200 tool calls one after another: this client beside that of the official Python SDK, each against the same child.

Three children: a small one of the standard library, which shows the client; one made with the SDK's low-level API; and
one as users of the SDK write it, which shows what is left of the difference beside a usual server. The clients take
turns, so that whatever else the machine does meets all of them; the ratio of each turn counts, and the median is
reported beside its goal. Everything is on: this client checks every line, every result and every bound as it always
does. Two more clients check nothing: ``bare`` (streams of asyncio) and ``raw loop`` (``add_reader`` and ``os.write``)
tell how much there is to be won at all.
"""

from __future__ import annotations

import asyncio
import statistics
from typing import Any

import pytest

from bench.calls import CALLS, compare_clients
from bench.mcp_clients import BARE, OURS, RAW, SDK, SERVERS
from bench.rounds import ratio

ROUNDS = 9
GOALS = {"standard library": 3.0, "SDK, low-level API": None, "SDK, usual server": 1.5}


@pytest.mark.parametrize("server", list(SERVERS))
def test_calls_beside_the_sdk(benchmark: Any, server: str) -> None:
    script = SERVERS[server]
    times = benchmark.pedantic(lambda: asyncio.run(compare_clients(script, rounds=ROUNDS)), rounds=1)
    benchmark.group = f"{CALLS} calls of {script} ({server})"
    measured = {
        "us a call": {name: round(statistics.median(values) * 1e6) for name, values in times.items()},
        "ratio to the SDK": round(ratio(times, SDK, OURS).median, 2),
        "ratio of the bare client": round(ratio(times, SDK, BARE).median, 2),
        "ratio of the raw loop": round(ratio(times, SDK, RAW).median, 2),
        "ratio to the raw loop": round(ratio(times, RAW, OURS).median, 2),
        "goal": GOALS[server],
    }
    benchmark.extra_info.update(measured)
    print(f"\n{server}, {script}: {measured}")
