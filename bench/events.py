"""Bus events to real child processes, in bursts, beside raw lines written to the same children: seconds an event.

A round publishes bursts and waits after each until every child has seen its last event; an event counts once, however
many children get it. The raw contestants write to each child with one ``os.write`` a line, and check nothing: "raw
lines" writes the same bytes again and again, "raw lines with JSON" writes each event's frame as JSON first.
"""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, TypeAlias

import orjson

from bench.payloads import FOUR, TOPIC, Payload
from bench.rounds import Turn, take_turns
from broker import Field
from broker.adapters.aio import AsyncHost

BURSTS = (1, 8, 32)
CHILDREN = (1, 8)
EVENTS_A_ROUND = 256
OURS, RAW, RAW_JSON = "broker", "raw lines", "raw lines with JSON"

Send: TypeAlias = Callable[[list[Payload]], None]

LISTENER = Path(__file__).with_name("children") / "listener.py"
_MANIFEST = """\
name = "{name}"
version = "1.0.0"
api_version = "0.3"

[entrypoint]
command = "{command}"
args = ["{script}", "{fifo}"]

[contributes]
tools = ["echo"]
"""


class Acknowledgements:
    """Counts the bytes that the children write to a FIFO, and lets one task wait for a number of them."""

    def __init__(self, directory: Path) -> None:
        self.path = directory / "acknowledgements"
        os.mkfifo(self.path)
        # Opened for writing as well, so that it has no end while a child comes or goes.
        self._descriptor = os.open(self.path, os.O_RDWR | os.O_NONBLOCK)
        self._missing = 0
        self._done: asyncio.Future[None] | None = None
        asyncio.get_running_loop().add_reader(self._descriptor, self._read)

    def _read(self) -> None:
        self._missing -= len(os.read(self._descriptor, 4096))
        if self._missing <= 0 and self._done is not None and not self._done.done():
            self._done.set_result(None)

    def expect(self, count: int) -> Awaitable[None]:
        """Ask before the burst is sent; await afterwards."""
        self._missing = count
        self._done = asyncio.get_running_loop().create_future()
        return self._done

    def close(self) -> None:
        """Stop reading."""
        asyncio.get_running_loop().remove_reader(self._descriptor)
        os.close(self._descriptor)


def write_extension(directory: Path, name: str, fifo: Path) -> Path:
    """An extension on disk that runs the listener."""
    root = directory / name
    root.mkdir()
    manifest = _MANIFEST.format(name=name, command=sys.executable, script=LISTENER, fifo=fifo)
    (root / "extension.toml").write_text(manifest)
    return root


@asynccontextmanager
async def _broker(directory: Path, fifo: Path, children: int) -> AsyncIterator[Send]:
    async with AsyncHost() as host:
        session = await host.open_session(directory)
        sensor = session.attach("sensor")
        sensor.declare(TOPIC, [*FOUR.fields, Field.boolean("last")])
        for number in range(children):
            await session.start(write_extension(directory, f"listener-{children}-{number}", fifo))
        for _ in range(1_000):
            if session.bus.statistics().topics[0].subscribers == children:
                break
            await asyncio.sleep(0.01)
        else:
            raise TimeoutError("not every child subscribed")

        def send(payloads: list[Payload]) -> None:
            for payload in payloads:
                sensor.publish(TOPIC, payload)

        yield send


@asynccontextmanager
async def _raw(fifo: Path, children: int, make_line: Callable[[Payload], bytes]) -> AsyncIterator[Send]:
    processes = [
        subprocess.Popen(  # noqa: ASYNC220 - started once, not measured
            [sys.executable, str(LISTENER), str(fifo), "--raw"], stdin=subprocess.PIPE, bufsize=0
        )
        for _ in range(children)
    ]
    inputs = [process.stdin.fileno() for process in processes if process.stdin is not None]

    def send(payloads: list[Payload]) -> None:
        for payload in payloads:
            line = make_line(payload)
            for descriptor in inputs:
                os.write(descriptor, line)

    yield send
    for process in processes:
        assert process.stdin is not None
        process.stdin.close()
        await asyncio.to_thread(process.wait)


def _frame(payload: Payload) -> bytes:
    frame: dict[str, Any] = {
        "jsonrpc": "2.0",
        "method": "bus/event",
        "params": {
            "binding_id": "0123456789abcdef0123456789abcdef",
            "payload": payload,
            "process_generation": 1,
            "published_at_ms": time.time_ns() // 1_000_000,
            "publisher": "sensor",
            "publisher_instance_id": "0123456789abcdef0123456789abcdef",
            "sequence": 1,
            "topic": TOPIC,
        },
    }
    return orjson.dumps(frame, option=orjson.OPT_SORT_KEYS | orjson.OPT_APPEND_NEWLINE)


_CONSTANT = {last: _frame({**FOUR.make(1), "last": last}) for last in (False, True)}


def _turn(send: Send, acknowledgements: Acknowledgements, *, burst: int, children: int) -> Turn:
    async def turn() -> float:
        bursts = [
            [{**payload, "last": number == burst - 1} for number, payload in enumerate(FOUR.fresh(burst))]
            for _ in range(EVENTS_A_ROUND // burst)
        ]
        before = time.perf_counter()
        for payloads in bursts:
            done = acknowledgements.expect(children)
            send(payloads)
            await done
        return (time.perf_counter() - before) / EVENTS_A_ROUND

    return turn


async def compare_events(children: int, *, rounds: int) -> dict[int, dict[str, list[float]]]:
    """For each burst, seconds an event of each contestant, one value a round."""
    with tempfile.TemporaryDirectory() as name:
        directory = Path(name)
        acknowledgements = Acknowledgements(directory)
        fifo = acknowledgements.path
        async with (
            _broker(directory, fifo, children) as ours,
            _raw(fifo, children, lambda payload: _CONSTANT[payload["last"]]) as raw,
            _raw(fifo, children, _frame) as raw_json,
        ):
            senders = {OURS: ours, RAW: raw, RAW_JSON: raw_json}
            times = {}
            for burst in BURSTS:
                turns = {
                    contestant: _turn(send, acknowledgements, burst=burst, children=children)
                    for contestant, send in senders.items()
                }
                times[burst] = await take_turns(turns, rounds=rounds)
        acknowledgements.close()
        return times
