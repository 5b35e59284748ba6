"""Playing a recording again: the same frames, and every difference with its place."""

from __future__ import annotations

import asyncio
import json
import os
import sys
from pathlib import Path
from typing import Any

import pytest

from broker.adapters.aio import AsyncHost
from broker.adapters.frame_log import FrameLog
from broker.bus import Active
from broker.bus.trace import Declared, Subscribed
from broker.errors import BrokerError
from broker.host import Exited, Health, HealthChanged, records
from broker.testing import write_extension
from broker.testing.replay import Replay
from broker.wire.odek.config import ServerConfig

EXAMPLES = Path(__file__).parents[2] / "docs/examples"
KIT_SERVER = Path(__file__).parents[1] / "mcp_kit/kit_server.py"
KIT = ServerConfig(
    name="kit",
    source="operator",
    command=sys.executable,
    args=(str(KIT_SERVER),),
    env={"PYTHONPATH": os.pathsep.join(filter(None, sys.path))},
)


def record(path: Path, scene: Any) -> None:
    """Record what ``scene(session)`` does over real processes."""

    async def run() -> None:
        log = FrameLog(path)
        try:
            async with AsyncHost(tap=log) as host:
                await scene(await host.open_session())
        finally:
            log.close()
        assert log.failure is None

    asyncio.run(run())


@pytest.fixture
def hello(tmp_path: Path) -> Path:
    async def scene(session: Any) -> None:
        declared = asyncio.Event()
        session.bus.add_trace(lambda record: declared.set() if isinstance(record, Declared) else None)
        await session.start(EXAMPLES / "hello")
        await asyncio.wait_for(declared.wait(), 30)
        await session.call("hello", "greet", {"who": "Ada"})
        await session.call("hello", "greet", {"who": "Bob"})

    record(tmp_path / "hello.jsonl", scene)
    return tmp_path / "hello.jsonl"


def changed(path: Path, change: Any) -> Path:
    """The recording with ``change`` made to each of its entries; one that becomes None is left out."""
    lines = [json.loads(line) for line in path.read_text().splitlines()]
    kept = [lines[0], *(line for line in map(change, lines[1:]) if line is not None)]
    path.write_text("".join(json.dumps(line) + "\n" for line in kept))
    return path


def test_the_host_says_what_it_said(hello: Path) -> None:
    replay = Replay.read(hello)
    seen: list[Any] = []
    replay.session.bus.add_trace(lambda record: seen.append(records.from_trace(record)))
    assert replay.run() == []
    assert replay.compared == sum('"heard"' in line for line in hello.read_text().splitlines())
    events = [record for record in seen if record is not None and record["kind"] == "event"]
    assert [event["payload"] for event in events] == [{"who": "Ada"}, {"who": "Bob"}]
    assert replay.session.closed


def test_time_is_that_of_the_recording(hello: Path) -> None:
    replay = Replay.read(hello)
    moments = [(entry.at_ms, replay.clock.monotonic_ms()) for entry in replay.play()]
    assert all(at == now for at, now in moments)


def test_an_extension_that_says_something_else_makes_the_host_differ(hello: Path) -> None:
    def change(entry: dict[str, Any]) -> dict[str, Any]:
        frame = entry.get("frame", {})
        if entry["kind"] == "sent" and frame.get("method") == "bus/publish":
            frame["params"]["payload"]["who"] = 7
        return entry

    first, second = Replay.read(changed(hello, change)).run()
    assert (first.name, first.number, first.path) == ("hello", 1, "$.error")
    assert first.problem == "was not recorded"
    assert first.entry is not None and first.entry.kind == "heard"
    assert second.path == "$.error"
    assert first.observed is not None and json.loads(first.observed)["error"]["code"] == -32602
    assert str(first) == "hello (generation 1) at $.error: was not recorded"


def test_a_host_that_says_another_value_less_or_more(hello: Path) -> None:
    state = {"answers": 0}

    def change(entry: dict[str, Any]) -> dict[str, Any] | None:
        frame = entry.get("frame", {})
        if entry["kind"] == "heard" and "sequence" in str(frame):
            state["answers"] += 1
            if state["answers"] == 1:
                frame["result"]["sequence"] = 5
            else:
                return None
        return entry

    value, more = Replay.read(changed(hello, change)).run()
    assert (value.path, value.problem) == ("$.result.sequence", "recorded '5', observed '1'")
    assert more.problem.startswith("the host said what was not recorded: '{")
    assert more.entry is None and more.observed is not None


def test_a_frame_the_host_never_says(hello: Path) -> None:
    def change(entry: dict[str, Any]) -> dict[str, Any] | None:
        sent = entry["kind"] == "sent" and entry.get("frame", {}).get("method") == "bus/declare"
        return None if sent else entry

    problems = [difference.problem for difference in Replay.read(changed(hello, change)).run()]
    assert "the host did not say it" in problems


def test_a_line_that_was_cut_is_only_as_long_as_it_has_to_be(hello: Path) -> None:
    def endless(entry: dict[str, Any]) -> dict[str, Any]:
        frame = entry.pop("frame", None)
        if entry["kind"] == "sent":
            return entry | {"text": "x", "length": 2**53 - 1}
        return entry if frame is None else entry | {"frame": frame}

    assert Replay.read(changed(hello, endless)).run()


def test_a_crash_and_the_generation_after_it(tmp_path: Path, rogue: Any) -> None:
    body = "start('crash'); serve(lambda m: (sys.stderr.write('no way on\\n'), sys.stderr.flush(), os._exit(7)))"
    extension = rogue(body, name="crashes", tools=["crash"])

    async def scene(session: Any) -> None:
        again = asyncio.Event()

        def observe(notice: Any) -> None:
            if isinstance(notice, HealthChanged) and notice.health is Health.READY:
                again.set()

        await session.start(extension)
        session.add_observer(observe)
        with pytest.raises(BrokerError, match="exited with status 7"):
            await session.call("crashes", "crash")
        await asyncio.wait_for(again.wait(), 30)

    record(tmp_path / "r.jsonl", scene)
    replay = Replay.read(tmp_path / "r.jsonl")
    notices: list[Any] = []
    replay.session.add_observer(notices.append)
    assert replay.run() == []
    exits = [(notice.generation, notice.status) for notice in notices if isinstance(notice, Exited)]
    assert exits == [(1, 7), (2, 0)]
    assert [diagnostic.text for diagnostic in replay.session.diagnostics] == ["no way on"]


def test_an_mcp_server(tmp_path: Path) -> None:
    async def scene(session: Any) -> None:
        await session.start_server(KIT)
        output = await session.call_server("kit", "add", {"a": 2})
        assert output.text == "3"

    record(tmp_path / "r.jsonl", scene)
    assert str(KIT_SERVER) not in (tmp_path / "r.jsonl").read_text()
    replay = Replay.read(tmp_path / "r.jsonl")
    assert replay.run() == []
    assert replay.compared >= 4


@pytest.mark.parametrize("version", ["outline", "tidy", "tasks"])
def test_every_wire_is_played_again(tmp_path: Path, version: str) -> None:
    async def scene(session: Any) -> None:
        await session.start(EXAMPLES / "versions" / version)

    record(tmp_path / "r.jsonl", scene)
    replay = Replay.read(tmp_path / "r.jsonl")
    assert replay.run() == []
    assert replay.compared >= 2


TIDE = f"""
import sys
sys.path[:0] = {sys.path!r}
from broker import Field
from broker.extension import Extension
app = Extension("tide", "1.0.0")
level = app.topic("level", [Field.integer("metres")])
@app.hook("session_end")
async def end(payload): ...
app.run()
"""
BOARD = f"""
import sys
sys.path[:0] = {sys.path!r}
from broker.extension import Event, Extension
app = Extension("board", "1.0.0")
@app.on("bus.tide.level")
async def show(event: Event[dict]) -> None: ...
app.run()
"""


async def start_tide_and_board(session: Any, directory: Path, *, hooks: bool) -> None:
    """Both run, and the board waits for the levels of the tide."""
    active = asyncio.Event()

    def look(seen: Any) -> None:
        if isinstance(seen, Subscribed) and isinstance(seen.state, Active):
            active.set()

    session.bus.add_trace(look)
    tide_hooks = ["session_start", "session_end"] if hooks else []
    for name, text, its_hooks in (("tide", TIDE, tide_hooks), ("board", BOARD, [])):
        text = text.replace('@app.hook("session_end")', "") if not its_hooks else text
        await session.start(
            write_extension(directory / name, text, name=name, version="1.0.0", hooks=its_hooks, tools=())
        )
    await asyncio.wait_for(active.wait(), 30)


@pytest.mark.parametrize("hooks", [False, True])
def test_a_session_that_closes_ends_its_extensions_together(tmp_path: Path, hooks: bool) -> None:
    async def scene(session: Any) -> None:
        await start_tide_and_board(session, tmp_path, hooks=hooks)

    record(tmp_path / "r.jsonl", scene)
    replay = Replay.read(tmp_path / "r.jsonl")
    assert replay.run() == []
    assert replay.compared == (tmp_path / "r.jsonl").read_text().count('"heard"')


@pytest.mark.parametrize("hooks", [False, True])
def test_an_extension_that_is_stopped_alone_is_missed_by_its_subscribers(tmp_path: Path, hooks: bool) -> None:
    async def scene(session: Any) -> None:
        await start_tide_and_board(session, tmp_path, hooks=hooks)
        ended = session.session.extension("tide").stop(outcome="failed")
        await session.stop("tide")
        assert ended.done

    record(tmp_path / "r.jsonl", scene)
    replay = Replay.read(tmp_path / "r.jsonl")
    assert replay.run() == []
    assert replay.compared == (tmp_path / "r.jsonl").read_text().count('"heard"')
    assert '"topic_unavailable"' in (tmp_path / "r.jsonl").read_text()


def test_how_long_a_session_was_is_a_matter_of_the_clock_and_how_it_ended_is_none(tmp_path: Path) -> None:
    async def scene(session: Any) -> None:
        await start_tide_and_board(session, tmp_path, hooks=True)

    def change(entry: dict[str, Any]) -> dict[str, Any]:
        payload = entry.get("frame", {}).get("params", {}).get("payload", {})
        if "duration_ms" in payload:
            payload["duration_ms"] += 7
            payload["reason"] = "cancelled"
        return entry

    record(tmp_path / "r.jsonl", scene)
    (difference,) = Replay.read(changed(tmp_path / "r.jsonl", change)).run()
    assert difference.path == "$.params.payload.reason"


def test_a_payload_that_is_named_like_a_reading_of_the_clock_is_compared(hello: Path) -> None:
    def change(entry: dict[str, Any]) -> dict[str, Any]:
        frame = entry.get("frame", {})
        if entry["kind"] == "heard" and frame.get("method") == "tool/call":
            frame["params"]["context"]["host"]["published_at_ms"] = 7
        return entry

    assert {one.path for one in Replay.read(changed(hello, change)).run()} == {"$.params.context.host.published_at_ms"}


@pytest.mark.parametrize("how", ["stopped and started again", "reloaded", "a server stopped and started again"])
def test_what_runs_anew_is_another_process(tmp_path: Path, how: str) -> None:
    async def scene(session: Any) -> None:
        await session.start(EXAMPLES / "hello")
        await session.call("hello", "greet", {"who": "Ada"})
        if how == "reloaded":
            await session.reload("hello")
        elif how == "stopped and started again":
            await session.stop("hello")
            await session.start(EXAMPLES / "hello")
        else:
            for _ in range(2):
                await session.start_server(KIT)
                await session.call_server("kit", "add", {"a": 2})
                await session.stop_server("kit")
        await session.call("hello", "greet", {"who": "Bob"})

    record(tmp_path / "r.jsonl", scene)
    replay = Replay.read(tmp_path / "r.jsonl")
    assert replay.run() == []
    assert replay.compared == (tmp_path / "r.jsonl").read_text().count('"heard"')


@pytest.mark.parametrize("wrong", [["an", "array"], {"an": "object"}, None, 1.5, "half of a pair: \ud800"])
@pytest.mark.parametrize("kind", ["heard", "sent"])
def test_whatever_a_recording_has_where_an_id_stands_it_is_played(hello: Path, kind: str, wrong: Any) -> None:
    def change(entry: dict[str, Any]) -> dict[str, Any]:
        if entry["kind"] == kind and "id" in entry["frame"]:
            entry["frame"]["id"] = wrong
        return entry

    assert Replay.read(changed(hello, change)).run() != []
