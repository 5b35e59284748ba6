"""Tool calls one after another: clients by turns, each against a child of its own that runs the same program."""

from __future__ import annotations

import tempfile
import time
from contextlib import AsyncExitStack
from pathlib import Path

from bench.events import LISTENER, write_extension
from bench.mcp_clients import CLIENTS, OURS, RAW, Call, raw_pipe
from bench.rounds import Turn, take_turns
from broker.adapters.aio import AsyncHost

CALLS = 200


def turn_of(call: Call, calls: int = CALLS) -> Turn:
    """A round of one client: that many calls, each with another text, which must come back."""

    async def turn() -> float:
        before = time.perf_counter()
        for number in range(calls):
            text = f"call {number}"
            assert await call(text) == text
        return (time.perf_counter() - before) / calls

    return turn


async def compare_clients(script: str, *, rounds: int) -> dict[str, list[float]]:
    """Seconds a call of each client of MCP, one value a round, against children that run ``script``."""
    async with AsyncExitStack() as stack:
        turns = {}
        for name, client in CLIENTS.items():
            turns[name] = turn_of(await stack.enter_async_context(client(script)))
        return await take_turns(turns, rounds=rounds)


async def compare_extension_calls(*, rounds: int) -> dict[str, list[float]]:
    """The same for a tool of an octet extension: this package beside a raw pipe."""
    with tempfile.TemporaryDirectory() as name:
        # The listener writes there only what it has to say of events.
        nowhere = Path("/dev/null")
        extension = write_extension(Path(name), "listener", nowhere)
        async with AsyncHost() as host, raw_pipe([str(LISTENER), str(nowhere)]) as ask:
            session = await host.open_session(name)
            await session.start(extension)

            async def call_ours(text: str) -> str:
                return (await session.call("listener", "echo", {"text": text})).content[0].text

            async def call_raw(text: str) -> str:
                result = await ask("tool/call", {"name": "echo", "arguments": {"text": text}})
                return str(result["content"][0]["text"])

            return await take_turns({OURS: turn_of(call_ours), RAW: turn_of(call_raw)}, rounds=rounds)
