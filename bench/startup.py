"""What beginning costs: importing, in whole processes, and from the spawn of a child to its being ready for calls."""

from __future__ import annotations

import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

from bench.events import write_extension
from bench.mcp_clients import CLIENTS, OURS, RAW, SDK, SERVERS
from bench.rounds import Turn, Workload, measure, take_turns
from broker.adapters.aio import AsyncHost

IMPORTS = {
    "no import": "pass",
    "import attrs, cattrs, orjson": "import attrs, cattrs, orjson",
    "import broker": "import broker",
    "import broker.adapters.aio": "import broker.adapters.aio",
    "import mcp": "import mcp",
}
EXTENSION = "broker, extension"


def compare_imports(*, rounds: int) -> dict[str, list[float]]:
    """Seconds of the processor for a whole process that does no more than one import."""

    def workload(statement: str) -> Workload:
        def run(inputs: Sequence[int]) -> None:
            for _ in inputs:
                subprocess.run([sys.executable, "-c", statement], check=True)

        return Workload(run, lambda _: range(1))

    return measure(
        {name: workload(statement) for name, statement in IMPORTS.items()}, rounds=rounds, clock=time.perf_counter
    )


def _seconds_of_children() -> float:
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


async def compare_spawns(*, rounds: int) -> dict[str, list[float]]:
    """Seconds from asking for a child to its tools being known, by each client; stopping it is not timed."""

    def turn_of(client: str) -> Turn:
        async def turn() -> float:
            before = time.perf_counter()
            async with CLIENTS[client](SERVERS["standard library"]):
                return time.perf_counter() - before

        return turn

    with tempfile.TemporaryDirectory() as name:
        # Nobody reads from it; it is opened by the child and must exist.
        extension = write_extension(Path(name), "listener", Path("/dev/null"))

        async def extension_turn() -> float:
            async with AsyncHost() as host:
                session = await host.open_session()
                before = time.perf_counter()
                await session.start(extension)
                return time.perf_counter() - before

        turns = {client: turn_of(client) for client in (OURS, SDK, RAW)}
        return await take_turns({**turns, EXTENSION: extension_turn}, rounds=rounds)
