"""Tool calls one after another: the clients of :mod:`bench.mcp_clients` by turns, each against a child of its own."""

from __future__ import annotations

import time
from contextlib import AsyncExitStack

from bench.mcp_clients import CLIENTS, Call
from bench.rounds import Turn, take_turns

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
    """Seconds a call of each client, one value a round, against children that run ``script``."""
    async with AsyncExitStack() as stack:
        turns = {}
        for name, client in CLIENTS.items():
            turns[name] = turn_of(await stack.enter_async_context(client(script)))
        return await take_turns(turns, rounds=rounds)
