"""Objects and real processes in one session: the same bus, the same calls, and faults for both."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any

import pytest
from kit_members import EMPTY, NUMBER, Echo, Index, Reader

from broker import Field
from broker.errors import ExitedError, SetupError, TimedOutError, UsageError
from broker.host import HostSettings
from broker.testing import (
    Faults,
    MixedHost,
    MixedSession,
    Script,
    ScriptedFeatureExtension,
    ScriptedServer,
    ScriptError,
    SequenceError,
    entry,
)
from broker.testing.script import answer, any_order, capture, captured, expect, expect_result, request

Rogue = Callable[..., Path]

PUBLISHER = """
parameters = start("publish", bus=True)
binding = ""
def other(message):
    global binding
    if message.get("method") == "bus/lifecycle" and message["params"]["kind"] == "binding":
        binding = message["params"]["binding_id"]
        field = {"name": "n", "kind": "integer", "required": True, "max_bytes": 16, "values": []}
        params = {"binding_id": binding, "topic": "bus.writer.wrote", "fields": [field]}
        send(id="declare", method="bus/declare", params=params)
def call(message):
    payload = {"n": message["params"]["arguments"]["n"]}
    params = {"binding_id": binding, "topic": "bus.writer.wrote", "payload": payload}
    send(id="publish", method="bus/publish", params=params)
    reply(message, "published")
serve(call, other)
"""


def run(test: Callable[[MixedSession], Coroutine[Any, Any, None]], workspace: Path, **options: Any) -> None:
    async def main() -> None:
        async with MixedHost(settings=HostSettings(**options)) as host:
            await test(await host.open_session(workspace))

    asyncio.run(asyncio.wait_for(main(), 50))


def test_a_real_process_and_objects_of_every_family_share_a_session(rogue: Rogue, tmp_path: Path) -> None:
    directory = rogue(PUBLISHER, name="writer", tools=["publish"])

    async def test(session: MixedSession) -> None:
        await session.start(directory)
        await session.start(Index)
        await session.start(Reader)
        await session.start(lambda: ScriptedFeatureExtension(tools=("work",), text="from 0.4"), name="late")
        await session.start_server(lambda: ScriptedServer({"work": "from a server"}), name="srv")
        for follower in ("index", "reader"):
            active = entry("subscribed", source=follower, payload="active")
            await session.until(lambda active=active: session.recorder.found(active))
        plugin = session.attach("plugin")
        plugin.subscribe("bus.index.indexed")
        await session.call("writer", "publish", {"n": 7})
        async for message in plugin:
            assert message.payload == {"n": 7}  # type: ignore[union-attr]
            break
        assert (await session.call("reader", "read")).content[0].text == "7"
        assert (await session.call("late", "work")).content[0].text == "from 0.4"
        assert (await session.call_server("srv", "work")).text == "from a server"
        session.recorder.in_order(
            entry("published", source="writer"), entry("bus/event", target="index"), entry("bus/event", target="reader")
        )
        session.recorder.never(entry(kind="frame", source="writer"))  # its frames are in its pipes
        assert session.process("reader").seen == 7

    run(test, tmp_path)


def test_an_object_that_crashes_is_started_again(tmp_path: Path) -> None:
    async def test(session: MixedSession) -> None:
        await session.start(Echo)
        with pytest.raises(ExitedError, match=r"echo \(generation 1\): exited with status 3"):
            await session.call("echo", "crash")
        await session.until(lambda: session.session.extension("echo").health.value == "ready")
        assert (await session.call("echo", "echo", {"text": "a"})).content[0].text == "a"
        await session.stop("echo")
        with pytest.raises(UsageError, match="no object called echo runs"):
            session.process("echo")

    run(test, tmp_path)


def test_scripts_are_played_and_fail_the_host(tmp_path: Path) -> None:
    declare = {"binding_id": captured("binding"), "topic": "bus.pub.count", "fields": [NUMBER]}
    script = Script(
        any_order(
            [
                expect("bus/lifecycle", {"kind": "binding", "binding_id": capture("binding")}),
                request("bus/declare", declare),
                expect_result(),
            ],
            [expect("tool/call", {"name": "one"}), answer(EMPTY)],
        ),
        tools=("one", "two"),
        capabilities=("event_bus",),
    )

    async def plays(session: MixedSession) -> None:
        await session.start(script, name="pub")
        await session.call("pub", "one")
        await session.stop("pub")
        session.recorder.exactly_once("declared")

    async def fails(session: MixedSession) -> None:
        await session.start(script, name="pub")
        with pytest.raises(ExitedError, match="was killed by signal 9"):
            await session.call("pub", "two")

    run(plays, tmp_path)
    with pytest.raises(ScriptError, match="the script of pub did not expect what came"):
        run(fails, tmp_path)

    async def leaves_some(session: MixedSession) -> None:
        await session.start(script, name="pub")

    with pytest.raises(ScriptError, match="the script of pub was not played to its end"):
        run(leaves_some, tmp_path)

    async def is_struck(session: MixedSession) -> None:
        await session.start(script, name="pub")
        session.inject(Faults().kill("pub"))
        await session.until(lambda: session.recorder.found("exited"))
        await session.stop("pub")

    # One that is started again is not struck, and may be there before it is stopped.
    run(is_struck, tmp_path, restart=False)


@pytest.mark.parametrize("real", [True, False], ids=["process", "object"])
def test_both_can_be_killed_and_stalled(real: bool, rogue: Rogue, tmp_path: Path) -> None:
    async def test(session: MixedSession) -> None:
        await session.start(rogue(name="echo", tools=["work"]) if real else Echo, **({} if real else {"name": "echo"}))
        tool = "work" if real else "echo"
        session.inject(Faults().stall("echo", for_ms=100))
        call = asyncio.ensure_future(session.call("echo", tool, {"text": "late"}))
        assert (await call).content[0].text == "late"
        session.inject(Faults().stall("echo"))
        with pytest.raises(TimedOutError):
            await session.call("echo", tool, {"text": "never"}, timeout=0.05)
        session.inject(Faults().kill("echo"))
        await session.until(lambda: session.recorder.found("exited"))
        exited = session.recorder.found("exited")[0]
        assert exited.payload["status"] == -9
        session.recorder.times(2, "stall")

    run(test, tmp_path)


def test_what_cannot_be_done_says_so(rogue: Rogue, tmp_path: Path) -> None:
    directory = rogue(name="echo")

    async def test(session: MixedSession) -> None:
        await session.start(directory)
        with pytest.raises(UsageError, match="echo is a real process, which can be killed or stalled"):
            session.inject(Faults().garbage("echo"))
        with pytest.raises(UsageError, match="no process called nobody runs"):
            session.inject(Faults().kill("nobody"))
        with pytest.raises(UsageError, match=r"srv is an MCP server; start it with start_server\(\)"):
            await session.start(lambda: ScriptedServer(), name="srv")
        with pytest.raises(UsageError, match=r"other is an extension; start it with start\(\)"):
            await session.start_server(Echo, name="other")

        def broken(number: int) -> Echo:
            if number > 1:
                raise SetupError("no second life")
            return Echo()

        await session.start(broken)
        with pytest.raises(ExitedError):
            await session.call("broken", "crash")
        again = entry("exited", payload={"generation": 2, "reason": "no second life"})
        await session.until(lambda: session.recorder.found(again))

    run(test, tmp_path)


def test_nothing_of_an_object_is_left_in_the_loop(tmp_path: Path) -> None:
    async def main() -> None:
        host = MixedHost()
        session = await host.open_session(tmp_path)
        await session.start(Echo)
        await host.aclose()
        assert not host._started.__self__._driver._pumps  # type: ignore[attr-defined, union-attr]
        assert [task for task in asyncio.all_tasks() if task is not asyncio.current_task()] == []

    asyncio.run(main())


def test_what_does_not_come_to_hold_is_shown_with_what_did(tmp_path: Path) -> None:
    async def test(session: MixedSession) -> None:
        await session.start(Echo)
        with pytest.raises(SequenceError, match=r"did not come to hold within 0.01 s:\n.*echo .* starting"):
            await session.until(lambda: False, timeout=0.01)

    run(test, tmp_path)


def test_a_factory_that_fails_later_fails_that_start_and_the_test(tmp_path: Path) -> None:
    def sometimes(number: int) -> Echo:
        if number > 1:
            raise KeyError("a bug of the test")
        return Echo()

    async def test(session: MixedSession) -> None:
        await session.start(sometimes, name="echo")
        with pytest.raises(SetupError, match="echo could not be made: KeyError: 'a bug of the test'"):
            await session.reload("echo")

    with pytest.raises(KeyError, match="a bug of the test"):
        run(test, tmp_path)


def test_a_session_that_is_closed_listens_no_more(tmp_path: Path) -> None:
    async def main() -> None:
        async with MixedHost() as host:
            async with await host.open_session(tmp_path) as first:
                await first.start(Echo)
            session = await host.open_session(tmp_path)
            assert session._mixed.taps == [session._tapped]

    asyncio.run(asyncio.wait_for(main(), 20))


def test_what_another_thread_does_on_the_bus_is_seen_at_once(tmp_path: Path) -> None:
    async def test(session: MixedSession) -> None:
        asyncio.get_running_loop().set_debug(True)  # which tells of calls from another thread
        alpha = session.attach("alpha")
        alpha.declare("bus.alpha.tick", [Field.integer("n")])
        looked = threading.Event()

        def publish() -> None:
            looked.wait(10)
            alpha.publish("bus.alpha.tick", {"n": 1})

        def published() -> bool:
            found = bool(session.recorder.found("published"))
            asyncio.get_running_loop().call_later(0.05, looked.set)
            return found

        thread = threading.Thread(target=publish)
        thread.start()
        try:
            await session.until(published, timeout=5)
        finally:
            thread.join()

    run(test, tmp_path)
