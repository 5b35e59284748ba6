"""200 tool calls one after another: this client beside that of the official Python SDK, each against the same child.

Two children: a small one of the standard library, which shows the client, and one made with the SDK, which shows what
is left of the difference beside a usual server. The clients take turns, so that whatever else the machine does meets
all of them; the ratio of each turn counts, and the median is reported beside its goal. Everything is on: this client
checks every line, every result and every bound as it always does. A third client that checks nothing, a write and a
read in the same loop, tells how much there is to be won at all.
"""

from __future__ import annotations

import asyncio
import json
import statistics
import sys
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest
from mcp.client.session import ClientSession
from mcp.client.stdio import StdioServerParameters, stdio_client

from broker.adapters.aio import AsyncHost
from broker.wire.odek.config import ServerConfig

CALLS = 200
ROUNDS = 9
CHILDREN = Path(__file__).with_name("children")

Call = Callable[[str], Awaitable[str]]


async def seconds_for(call: Call) -> float:
    before = time.perf_counter()
    for number in range(CALLS):
        text = f"call {number}"
        assert await call(text) == text
    return time.perf_counter() - before


class Bare:
    """A client that checks nothing."""

    def __init__(self, process: asyncio.subprocess.Process) -> None:
        assert process.stdin is not None and process.stdout is not None
        self._stdin, self._stdout = process.stdin, process.stdout
        self._number = 0

    async def ask(self, method: str, params: dict[str, Any]) -> Any:
        self._number += 1
        message = {"jsonrpc": "2.0", "id": self._number, "method": method, "params": params}
        self._stdin.write(json.dumps(message).encode() + b"\n")
        return json.loads(await self._stdout.readline())["result"]

    async def call(self, text: str) -> str:
        result = await self.ask("tools/call", {"name": "echo", "arguments": {"text": text}})
        return str(result["content"][0]["text"])


async def compare(script: str) -> list[tuple[float, float, float]]:
    """Seconds of this client, the SDK's and the bare one, turn by turn, each with a child of its own."""
    path = str(CHILDREN / script)
    parameters = StdioServerParameters(command=sys.executable, args=[path])
    bare_child = await asyncio.create_subprocess_exec(
        sys.executable, path, stdin=asyncio.subprocess.PIPE, stdout=asyncio.subprocess.PIPE
    )
    bare = Bare(bare_child)
    info = {"protocolVersion": "2025-03-26", "capabilities": {}, "clientInfo": {"name": "bare", "version": "0"}}
    await bare.ask("initialize", info)
    async with (
        AsyncHost() as host,
        stdio_client(parameters) as (reader, writer),
        ClientSession(reader, writer) as theirs,
    ):
        ours = await host.open_session()
        await ours.start_server(ServerConfig(name="child", source="operator", command=sys.executable, args=(path,)))
        await theirs.initialize()
        await theirs.list_tools()

        async def call_ours(text: str) -> str:
            return (await ours.call_server("child", "echo", {"text": text})).text

        async def call_theirs(text: str) -> str:
            return (await theirs.call_tool("echo", {"text": text})).content[0].text

        calls = [call_ours, call_theirs, bare.call]
        turns = []
        for number in range(ROUNDS + 1):
            order = [(number + step) % 3 for step in range(3)]
            seconds = {index: await seconds_for(calls[index]) for index in order}
            turns.append((seconds[0], seconds[1], seconds[2]))
    assert bare_child.stdin is not None
    bare_child.stdin.close()
    await bare_child.wait()
    return turns[1:]  # the first warms everything up


@pytest.mark.parametrize(("script", "goal"), [("echo.py", 3.0), ("sdk.py", 1.5)])
def test_calls_beside_the_sdk(benchmark: Any, script: str, goal: float) -> None:
    turns = benchmark.pedantic(lambda: asyncio.run(compare(script)), rounds=1)
    ours, theirs, bare = (statistics.median(turn[index] for turn in turns) / CALLS * 1e6 for index in range(3))
    benchmark.group = f"{CALLS} calls of {script}"
    benchmark.extra_info.update(
        {
            "us a call": {"broker": round(ours), "SDK": round(theirs), "bare": round(bare)},
            "ratio to the SDK": round(statistics.median(turn[1] / turn[0] for turn in turns), 2),
            "ratio of the bare client": round(statistics.median(turn[1] / turn[2] for turn in turns), 2),
            "goal": goal,
        }
    )
    print(f"\n{script}: {benchmark.extra_info}")
