"""The asyncio host with real processes that behave in every way a process can."""

from __future__ import annotations

import asyncio
import gc
import os
import sys
import threading
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any, TypeVar

import pytest

from broker import Event, Field
from broker.adapters.aio import AsyncHost, AsyncSession
from broker.errors import (
    BrokerError,
    CancelledError,
    ExitedError,
    ExtensionError,
    ManifestError,
    SetupError,
    TimedOutError,
    UsageError,
)
from broker.host import Diagnostic, Exited, Health, HostSettings
from broker.wire.odek.config import ServerConfig

BOUND_SECONDS = 50.0
T = TypeVar("T")
Scene = Callable[[AsyncSession], Awaitable[T]]


@pytest.fixture
def play(tmp_path: Path) -> Callable[..., Any]:
    """Runs a coroutine function with a session of a fresh host; everything is closed after it."""

    def run(scene: Scene[T], **options: Any) -> T:
        async def main() -> T:
            async with AsyncHost(settings=HostSettings(**options)) as host:
                session = await host.open_session(tmp_path)
                return await scene(session)

        return asyncio.run(asyncio.wait_for(main(), BOUND_SECONDS))

    return run


def watch(session: AsyncSession) -> list[Any]:
    notices: list[Any] = []
    session.add_observer(notices.append)
    return notices


async def until(condition: Callable[[], bool], within: float = BOUND_SECONDS) -> None:
    loop = asyncio.get_running_loop()
    end = loop.time() + within
    while not condition():
        assert loop.time() < end, "the condition did not come true in time"
        await asyncio.sleep(0.005)


# -- starting ----------------------------------------------------------------------------------------------------------


@pytest.mark.spec("octet.initialize.exit-before-answer")
def test_an_exit_before_the_answer_is_noticed_at_once(play: Any, rogue: Any) -> None:
    path = rogue("print('KEY is not set', file=sys.stderr); sys.exit(3)")

    async def scene(session: AsyncSession) -> None:
        with pytest.raises(ExitedError) as caught:
            await session.start(path)
        assert (caught.value.status, caught.value.stderr_tail) == (3, "KEY is not set")
        assert dict(session.session.extensions) == {}

    # Waiting for the answer would outlast the test.
    play(scene, request_timeout_ms=1_000_000)


@pytest.mark.spec("octet.process.restart-backoff", "octet.initialize.no-retry")
def test_a_child_that_always_exits_is_started_once(play: Any, rogue: Any, tmp_path: Path) -> None:
    log = tmp_path / "starts"
    path = rogue(f"open({str(log)!r}, 'a').write('x'); sys.exit(1)")

    async def scene(session: AsyncSession) -> None:
        with pytest.raises(ExitedError):
            await session.start(path)
        await asyncio.sleep(0.5)
        assert log.read_text() == "x"

    play(scene)


@pytest.mark.spec("octet.process.restart-backoff", "octet.process.restart-budget")
def test_restarts_of_a_broken_child_are_few_and_end(play: Any, rogue: Any, tmp_path: Path) -> None:
    log = tmp_path / "starts"
    path = rogue(
        f"n = open({str(log)!r}, 'a+'); n.write('x'); n.flush()\n"
        f"if os.path.getsize({str(log)!r}) > 1: sys.exit(1)\n"
        "start(); serve(lambda message: sys.exit(1))"
    )

    async def scene(session: AsyncSession) -> None:
        session.session.random_below = lambda bound: bound - 1  # type: ignore[method-assign]
        extension = await session.start(path)
        with pytest.raises(ExitedError):
            await session.call("rogue", "work")
        await until(lambda: extension.health is Health.PARKED)
        assert log.read_text() == "x" * 4

    play(scene, restart_base_ms=20, restart_cap_ms=40, max_restarts=3)


@pytest.mark.spec("octet.process.spawn-failure")
def test_programs_that_cannot_be_started_leave_no_descriptor(play: Any, rogue: Any) -> None:
    missing, plain = rogue(name="missing"), rogue(name="plain")
    (missing / "main.py").unlink()
    (plain / "main.py").chmod(0o644)

    async def scene(session: AsyncSession) -> None:
        gc.collect()  # what earlier tests left would be closed some time in this one
        before = sorted(os.listdir("/proc/self/fd"))
        for path in (missing, plain, missing.parent / "nowhere"):
            with pytest.raises(SetupError) as caught:
                await session.start(path)
            assert caught.value.path is not None
        assert sorted(os.listdir("/proc/self/fd")) == before

    play(scene)


def test_a_start_that_is_cancelled_leaves_no_process(play: Any, rogue: Any, gone: Any, tmp_path: Path) -> None:
    path = rogue(f"open({str(tmp_path / 'pid')!r}, 'w').write(str(os.getpid())); time.sleep(1000)")

    async def scene(session: AsyncSession) -> None:
        starting = asyncio.create_task(session.start(path))
        await until(lambda: (tmp_path / "pid").exists() and (tmp_path / "pid").read_text() != "")
        starting.cancel()
        with pytest.raises(asyncio.CancelledError):
            await starting
        gone(int((tmp_path / "pid").read_text()))
        assert dict(session.session.extensions) == {}

    play(scene)


@pytest.mark.spec("octet.process.stderr-drained")
def test_a_flood_on_stderr_before_initialize_holds_nothing_up(play: Any, rogue: Any) -> None:
    path = rogue(
        "sys.stderr.buffer.write(b'noise ' * 350_000); sys.stderr.buffer.write(b'\\xff\\x1b[31m\\n'); "
        "sys.stderr.flush(); echo()"
    )

    async def scene(session: AsyncSession) -> None:
        notices = watch(session)
        await session.start(path)
        assert (await session.call("rogue", "work", {"text": "x"})).content[0].text == "x"
        texts = [notice.text for notice in notices if isinstance(notice, Diagnostic)]
        assert texts
        assert all(len(text) <= 1_024 and text.isprintable() for text in texts)

    play(scene, request_timeout_ms=1_000_000)


@pytest.mark.spec("octet.process.environment-cleared", "octet.process.environment-octet", "octet.process.scratch")
def test_a_child_gets_the_listed_names_and_no_secret(
    play: Any, rogue: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("FOO_API_KEY", "AWS_SECRET_ACCESS_KEY", "PYTHONPATH", "LD_PRELOAD_X", "SSH_AUTH_SOCK"):
        monkeypatch.setenv(name, "secret")
    monkeypatch.setenv("OCTET_WORKSPACE", "/forged")
    path = rogue(
        "start(); serve(lambda m: reply(m, '\\n'.join(f'{k}={v}' for k, v in sorted(os.environ.items()))))",
        entrypoint={"command": "main.py", "env": {"EXTRA": "1"}},
    )

    async def scene(session: AsyncSession) -> dict[str, str]:
        extension = await session.start(path)
        text = (await session.call("rogue", "work")).content[0].text
        environment = dict(line.split("=", 1) for line in text.splitlines())
        assert await asyncio.to_thread(os.path.isdir, environment["OCTET_EXTENSION_SCRATCH"])
        assert extension.instance_id in environment["OCTET_EXTENSION_SCRATCH"]
        return environment

    environment = play(scene)
    assert "secret" not in environment.values()
    assert environment["EXTRA"] == "1"
    assert environment["PATH"] == os.environ["PATH"]
    assert environment["OCTET_WORKSPACE"] == str(tmp_path)
    assert environment["OCTET_EXTENSION_NAME"] == "rogue"
    assert environment["OCTET_EXTENSION_DIR"] == str(path)
    assert environment["OCTET_EXTENSION_API_VERSION"] == "0.3"
    assert not os.path.exists(environment["OCTET_EXTENSION_SCRATCH"])


@pytest.mark.spec("octet.process.scratch")
def test_each_generation_has_a_scratch_directory_of_its_own(play: Any, rogue: Any) -> None:
    path = rogue(
        "scratch = os.environ['OCTET_EXTENSION_SCRATCH']; left = os.listdir(scratch)\n"
        "open(os.path.join(scratch, 'mine'), 'w').close()\n"
        "start(); serve(lambda m: reply(m, f'{scratch} {left}'))"
    )

    async def scene(session: AsyncSession) -> None:
        await session.start(path)
        first = (await session.call("rogue", "work")).content[0].text
        await session.reload("rogue")
        second = (await session.call("rogue", "work")).content[0].text
        assert first != second
        assert first.endswith(" []")
        assert second.endswith(" []")

    play(scene)


# -- bytes -------------------------------------------------------------------------------------------------------------


@pytest.mark.spec("octet.framing.chunk-independent", "octet.framing.several-in-one-chunk")
def test_frames_come_in_any_chunks(play: Any, rogue: Any) -> None:
    path = rogue(
        "start()\n"
        "def call(m):\n"
        "    data = encode({'jsonrpc': '2.0', 'id': m['id'], 'result': result('zwölf')}) + b'\\n'\n"
        "    if m['params']['arguments']['how'] == 'bytes':\n"
        "        for n in range(len(data)): write(data[n:n+1])\n"
        "    elif m['params']['arguments']['how'] == 'first': held.append(data)\n"
        "    else: write(held.pop() + data)\n"
        "held = []\nserve(call)"
    )

    async def scene(session: AsyncSession) -> None:
        await session.start(path)
        assert (await session.call("rogue", "work", {"how": "bytes"})).content[0].text == "zwölf"
        both = await asyncio.gather(
            session.call("rogue", "work", {"how": "first"}), session.call("rogue", "work", {"how": "second"})
        )
        assert [answer.content[0].text for answer in both] == ["zwölf", "zwölf"]

    play(scene)


@pytest.mark.spec("octet.framing.at-bound")
@pytest.mark.parametrize("size", [65_535, 65_536, 65_537, 1_048_576])
def test_frames_of_these_sizes_pass_both_ways(play: Any, rogue: Any, size: int) -> None:
    path = rogue()

    async def scene(session: AsyncSession) -> None:
        await session.start(path)
        # What surrounds the text in the larger of the two frames, the request.
        call = session.session.extension("rogue").call("work", {"text": ""})
        overhead = len(call._request.frame.data) - 1
        call.cancel()
        text = "x" * (size - overhead)
        answer = await session.call("rogue", "work", {"text": text})
        assert answer.content[0].text == text

    play(scene)


@pytest.mark.spec("octet.framing.over-bound-unterminated", "octet.framing.memory")
def test_a_line_without_end_is_stopped_at_the_bound(play: Any, rogue: Any) -> None:
    path = rogue("start(max_frame_bytes=4096)\nserve(lambda m: write(b'x' * 50_000_000))")

    async def scene(session: AsyncSession) -> None:
        notices = watch(session)
        await session.start(path)
        with pytest.raises(BrokerError) as caught:
            await session.call("rogue", "work")
        assert (caught.value.limit, caught.value.maximum) == ("MAX_FRAME_BYTES", 4_096)
        await until(lambda: any(isinstance(notice, Exited) for notice in notices))

    play(scene, restart=False)


@pytest.mark.spec("octet.process.one-writer", "octet.process.writer-bound")
def test_fifty_large_calls_to_a_slow_reader_do_not_mix(play: Any, rogue: Any) -> None:
    path = rogue(
        "import hashlib\n"
        "def call(m):\n"
        "    time.sleep(0.002)\n"
        "    reply(m, hashlib.sha256(m['params']['arguments']['text'].encode()).hexdigest())\n"
        "start(); serve(call)"
    )

    async def scene(session: AsyncSession) -> None:
        import hashlib

        await session.start(path)
        texts = [chr(97 + n % 26) * 200_000 + str(n) for n in range(50)]
        answers = await asyncio.gather(*(session.call("rogue", "work", {"text": text}) for text in texts))
        expected = [hashlib.sha256(text.encode()).hexdigest() for text in texts]
        assert [answer.content[0].text for answer in answers] == expected

    play(scene)


@pytest.mark.spec("octet.process.stalled-reader")
def test_a_child_that_never_reads_holds_up_nobody_else(play: Any, rogue: Any) -> None:
    stalled = rogue("start(); time.sleep(1000)", name="stalled")
    echo = rogue(name="echo")

    async def scene(session: AsyncSession) -> None:
        await session.start(stalled)
        await session.start(echo)
        calls = [
            asyncio.create_task(session.call("stalled", "work", {"text": "x" * 200_000}, timeout=0.3)) for _ in range(5)
        ]
        assert (await session.call("echo", "work", {"text": "quick"})).content[0].text == "quick"
        errors = await asyncio.gather(*calls, return_exceptions=True)
        assert [type(error) for error in errors] == [TimedOutError] * 5

    play(scene, cancel_grace_ms=100, shutdown_timeout_ms=100, exit_grace_ms=100)


# -- endings -----------------------------------------------------------------------------------------------------------


@pytest.mark.spec("octet.process.output-closed", "octet.tool-call.process-lost")
def test_output_written_just_before_the_exit_is_not_lost(play: Any, rogue: Any) -> None:
    path = rogue("start()\ndef call(m):\n    reply(m, 'x' * 500_000); os._exit(0)\nserve(call)")

    async def scene(session: AsyncSession) -> None:
        session.session.random_below = lambda bound: 0  # type: ignore[method-assign]
        extension = await session.start(path)
        for number in (1, 2, 3):
            await until(
                lambda number=number: extension.generation is not None and extension.generation.number == number
            )
            assert len((await session.call("rogue", "work")).content[0].text) == 500_000
            await until(lambda number=number: extension.generation is None or extension.generation.number > number)

    play(scene)


@pytest.mark.spec("octet.initialize.exit-before-answer")
def test_an_answer_and_an_exit_in_one_breath(play: Any, rogue: Any) -> None:
    path = rogue("start(); os._exit(4)")

    async def scene(session: AsyncSession) -> None:
        await session.start(path)
        with pytest.raises(ExtensionError):
            await session.call("rogue", "work")
        await until(lambda: session.session.extension("rogue").health is Health.PARKED)

    play(scene, restart=False)


@pytest.mark.spec("octet.process.output-closed")
def test_closed_output_of_a_living_process_fails_its_calls(play: Any, rogue: Any, gone: Any) -> None:
    path = rogue(
        "start()\ndef call(m):\n    os.write(2, b'no more paper\\n'); os.close(1)\n    time.sleep(1000)\nserve(call)"
    )

    async def scene(session: AsyncSession) -> None:
        await session.start(path)
        with pytest.raises(
            ExitedError, match="closed its output but did not exit; its stderr ends with: no more"
        ) as caught:
            await session.call("rogue", "work", timeout=1_000)
        assert caught.value.stderr_tail == "no more paper"

    play(scene, restart=False)


def test_closed_input_of_a_living_process_ends_it(play: Any, rogue: Any) -> None:
    path = rogue("start(); os.close(0); os.write(2, b'deaf\\n'); time.sleep(1000)")

    async def scene(session: AsyncSession) -> None:
        notices = watch(session)
        await session.start(path)
        await until(lambda: any(isinstance(notice, Diagnostic) and notice.text == "deaf" for notice in notices))
        with pytest.raises(ExtensionError, match="closed its input but did not exit"):
            await session.call("rogue", "work")

    play(scene, restart=False)


@pytest.mark.spec("octet.process.exit-with-open-pipe", "octet.process.grandchildren")
@pytest.mark.parametrize("own_session", [False, True])
def test_an_exit_is_noticed_while_a_helper_holds_the_pipes(play: Any, rogue: Any, gone: Any, own_session: bool) -> None:
    path = rogue(
        "start()\n"
        "def call(m):\n"
        f"    helper = subprocess.Popen(['/bin/sleep', '1000'], start_new_session={own_session})\n"
        "    os.write(2, b'helper %d\\n' % helper.pid); os._exit(6)\n"
        "serve(call)"
    )

    async def scene(session: AsyncSession) -> int:
        await session.start(path)
        with pytest.raises(ExitedError) as caught:
            await session.call("rogue", "work", timeout=1_000)
        assert caught.value.status == 6
        return int(caught.value.stderr_tail.split()[1])

    helper = play(scene, restart=False)
    if own_session:
        os.kill(helper, 9)
    gone(helper)


@pytest.mark.spec("octet.shutdown.group-killed", "octet.process.grandchildren", "octet.shutdown.timeout")
def test_a_stubborn_child_and_its_grandchild_are_gone_after_the_ladder(play: Any, rogue: Any, gone: Any) -> None:
    path = rogue(
        "for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP): signal.signal(number, signal.SIG_IGN)\n"
        "start()\n"
        "child = subprocess.Popen(['/bin/sh', '-c', 'trap \"\" TERM INT HUP; while :; do sleep 1000; done'])\n"
        "m = receive(); reply(m, f'{os.getpid()} {child.pid}')\n"
        "while True: time.sleep(1000)"
    )

    async def scene(session: AsyncSession) -> list[int]:
        await session.start(path)
        pids = [int(pid) for pid in (await session.call("rogue", "work")).content[0].text.split()]
        started = time.monotonic()
        notices = watch(session)
        await session.stop("rogue")
        assert time.monotonic() - started > 0.3
        (ended,) = [notice for notice in notices if isinstance(notice, Exited)]
        assert (ended.status, ended.reason) == (-9, "was killed without acknowledging shutdown")
        return pids

    gone(*play(scene, shutdown_timeout_ms=200, exit_grace_ms=200))


@pytest.mark.spec("octet.shutdown.group-killed")
def test_a_grandchild_left_behind_by_an_orderly_exit_is_gone(play: Any, rogue: Any, gone: Any) -> None:
    path = rogue("start(); child = subprocess.Popen(['/bin/sleep', '1000'])\nserve(lambda m: reply(m, str(child.pid)))")

    async def scene(session: AsyncSession) -> int:
        await session.start(path)
        return int((await session.call("rogue", "work")).content[0].text)

    gone(play(scene))


@pytest.mark.spec("octet.process.nothing-left")
def test_fifty_starts_and_stops_leave_no_descriptor_and_no_zombie(play: Any, rogue: Any) -> None:
    good, bad, mute = rogue(name="good"), rogue("sys.exit(1)", name="bad"), rogue("start('other')", name="mute")

    async def scene(session: AsyncSession) -> None:
        await session.start(good)
        await session.stop("good")
        gc.collect()  # what earlier tests left would be closed some time in this one
        before = sorted(os.listdir("/proc/self/fd"))
        for _ in range(16):
            await session.start(good)
            for path in (bad, mute):
                with pytest.raises(ExtensionError):
                    await session.start(path)
            await session.stop("good")
        assert sorted(os.listdir("/proc/self/fd")) == before
        assert children_of(os.getpid()) - earlier == {session._driver._guard.pid}

    earlier = children_of(os.getpid())
    play(scene)
    assert children_of(os.getpid()) - earlier == set()


def children_of(parent: int) -> set[int]:
    found = set()
    for stat in Path("/proc").glob("[0-9]*/stat"):
        try:
            fields = stat.read_text().rpartition(")")[2].split()
        except OSError:
            continue
        if int(fields[1]) == parent:
            found.add(int(stat.parent.name))
    return found


# -- loops, tasks and peers --------------------------------------------------------------------------------------------


@pytest.mark.spec("octet.bus.isolation")
def test_two_loops_in_two_threads(rogue: Any, tmp_path: Path) -> None:
    path = rogue()
    results: list[str] = []

    async def main(text: str) -> None:
        async with AsyncHost() as host:
            session = await host.open_session(tmp_path)
            await session.start(path)
            for _ in range(5):
                results.append((await session.call("rogue", "work", {"text": text})).content[0].text)
            await session.stop("rogue")

    def work(text: str) -> None:
        asyncio.run(asyncio.wait_for(main(text), BOUND_SECONDS))

    threads = [threading.Thread(target=work, args=(text,)) for text in "ab"]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(BOUND_SECONDS)
    assert sorted(results) == ["a"] * 5 + ["b"] * 5


def test_exit_statuses_are_right_in_a_worker_threads_loop(rogue: Any, tmp_path: Path) -> None:
    path = rogue("start(); serve(lambda m: os._exit(m['params']['arguments']['status']))")
    statuses: list[int | None] = []

    async def main() -> None:
        async with AsyncHost(settings=HostSettings(restart=False)) as host:
            session = await host.open_session(tmp_path)
            for status in (0, 1, 77):
                await session.start(path)
                with pytest.raises(ExitedError) as caught:
                    await session.call("rogue", "work", {"status": status})
                statuses.append(caught.value.status)
                await session.stop("rogue")

    thread = threading.Thread(target=lambda: asyncio.run(main()))
    thread.start()
    thread.join(BOUND_SECONDS)
    assert statuses == [0, 1, 77]


def test_a_host_is_closed_in_its_own_loop(rogue: Any, tmp_path: Path, gone: Any) -> None:
    path = rogue("start(); serve(lambda m: reply(m, str(os.getpid())))")
    with asyncio.Runner() as runner:
        host = AsyncHost()
        session = runner.run(host.open_session(tmp_path))
        runner.run(session.start(path))

        def elsewhere() -> None:
            for close in (session.aclose, host.aclose):
                with pytest.raises(UsageError, match="belongs to another event loop"):
                    asyncio.run(asyncio.wait_for(close(), BOUND_SECONDS))

        thread = threading.Thread(target=elsewhere)
        thread.start()
        thread.join()
        pid = int(runner.run(session.call("rogue", "work")).content[0].text)
        runner.run(asyncio.wait_for(host.aclose(), BOUND_SECONDS))
    gone(pid)


def test_a_host_of_another_loop_is_refused(tmp_path: Path) -> None:
    async def make() -> AsyncHost:
        host = AsyncHost()
        await host.open_session(tmp_path)
        return host

    async def use(host: AsyncHost) -> None:
        with pytest.raises(UsageError, match="belongs to another event loop"):
            await host.open_session(tmp_path)

    with asyncio.Runner() as first:
        host = first.run(make())
        thread = threading.Thread(target=lambda: asyncio.run(use(host)))
        thread.start()
        thread.join(BOUND_SECONDS)
        first.run(host.aclose())


@pytest.mark.parametrize("order", [(0, 1), (1, 0)])
def test_hosts_close_in_any_order_and_from_any_task(rogue: Any, tmp_path: Path, order: tuple[int, int]) -> None:
    path = rogue()

    async def main() -> None:
        hosts = [AsyncHost(), AsyncHost()]
        for host in hosts:
            session = await host.open_session(tmp_path)
            await session.start(path)
        for index in order:
            await asyncio.create_task(hosts[index].aclose())
            await hosts[index].aclose()
        with pytest.raises(UsageError, match="the host is closed"):
            await hosts[0].open_session(tmp_path)

    asyncio.run(asyncio.wait_for(main(), BOUND_SECONDS))


def test_closing_twice_at_once_and_with_calls_open(rogue: Any, tmp_path: Path) -> None:
    path = rogue("start()\nserve(lambda m: None)")

    async def main() -> None:
        host = AsyncHost()
        session = await host.open_session(tmp_path)
        await session.start(path)
        call = asyncio.create_task(session.call("rogue", "work"))
        await asyncio.sleep(0)
        await asyncio.gather(host.aclose(), session.aclose(), host.aclose())
        with pytest.raises(CancelledError) as caught:
            await call
        assert caught.value.reason == "shutdown"
        with pytest.raises(BrokerError):
            await session.call("rogue", "work")

    asyncio.run(asyncio.wait_for(main(), BOUND_SECONDS))


@pytest.mark.spec("octet.cancel.notification", "octet.cancel.timeout-cancels")
def test_a_cancelled_await_and_a_timeout_each_send_one_notice(play: Any, rogue: Any) -> None:
    path = rogue(
        "notes = []\n"
        "def call(m):\n"
        "    if m['params']['arguments'].get('tell'): reply(m, ' '.join(notes))\n"
        "    else: os.write(2, b'asked\\n')\n"
        "def other(m):\n"
        "    notes.append(m['params']['reason'])\n"
        "    send(id=m['params']['id'], error={'code': -32800, 'message': 'request cancelled'})\n"
        "start(); serve(call, other)"
    )

    async def scene(session: AsyncSession) -> str:
        notices = watch(session)
        await session.start(path)
        task = asyncio.create_task(session.call("rogue", "work"))
        await until(lambda: any(isinstance(notice, Diagnostic) and notice.text == "asked" for notice in notices))
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        # Time enough for the request to be written: what was never written is not cancelled either.
        with pytest.raises(TimedOutError):
            await session.call("rogue", "work", timeout=0.5)
        text: str = (await session.call("rogue", "work", {"tell": True})).content[0].text
        return text

    assert play(scene) == "user timeout"


def test_a_generations_scratch_directory_goes_with_it(play: Any, rogue: Any) -> None:
    path = rogue("start(); serve(lambda m: reply(m, os.environ['OCTET_EXTENSION_SCRATCH']))")

    async def scratch(session: AsyncSession) -> Path:
        return Path((await session.call("rogue", "work")).content[0].text)

    async def scene(session: AsyncSession) -> None:
        await session.start(path)
        first = await scratch(session)
        (first / "note").write_text("mine")
        await session.reload("rogue")
        second = await scratch(session)
        await until(lambda: not first.exists())
        assert second.is_dir()
        await session.stop("rogue")
        await until(lambda: not second.exists())

    play(scene)


@pytest.mark.parametrize(("version", "starts"), [("0.8.0", False), ("0.9.1", True)])
def test_a_manifest_is_held_against_the_version_the_host_reports(
    play: Any, rogue: Any, version: str, starts: bool
) -> None:
    path = rogue()
    manifest = path / "extension.toml"
    manifest.write_text('requires_octet = "=0.9.1"\n' + manifest.read_text())

    async def scene(session: AsyncSession) -> bool:
        try:
            await session.start(path)
        except ManifestError as error:
            assert [fault.path for fault in error.faults] == ["requires_octet"]
            return False
        return True

    assert play(scene, octet_version=version) is starts


@pytest.mark.parametrize("timeout", [0, -1, float("nan"), float("inf"), "5", True])
def test_a_timeout_is_a_positive_number(play: Any, rogue: Any, timeout: Any) -> None:
    path = rogue()

    async def scene(session: AsyncSession) -> None:
        await session.start(path)
        with pytest.raises(UsageError, match="timeout: expected a positive number of seconds"):
            await session.call("rogue", "work", timeout=timeout)

    play(scene)


@pytest.mark.parametrize("timeout", [0, -1, float("nan"), float("inf")])
def test_so_is_that_of_a_server(play: Any, tmp_path: Path, timeout: float) -> None:
    command = ("-m", "broker.testing.odek_server", "--root", str(tmp_path))
    environment = {"PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
    config = ServerConfig(name="kit", source="operator", command=sys.executable, args=command, env=environment)

    async def scene(session: AsyncSession) -> None:
        await session.start_server(config)
        with pytest.raises(UsageError, match="timeout: expected a positive number of seconds"):
            await session.call_server("kit", "echo", timeout=timeout)

    play(scene)


def test_a_plugin_is_read_with_async_for(play: Any) -> None:
    async def scene(session: AsyncSession) -> list[int]:
        alpha, beta = session.attach("alpha"), session.attach("beta")
        alpha.declare("bus.alpha.count", [Field.integer("n")])
        beta.subscribe("bus.alpha.count")
        seen: list[int] = []

        async def read() -> None:
            async for message in beta:
                assert isinstance(message, Event)
                seen.append(message.payload["n"])

        reading = asyncio.create_task(read())
        thread = threading.Thread(
            target=lambda: [alpha.publish("bus.alpha.count", {"n": n}) for n in range(50)], daemon=True
        )
        thread.start()
        await until(lambda: len(seen) == 50)
        beta.detach()
        await reading
        return seen

    assert play(scene) == list(range(50))


def test_handlers_are_called_from_the_loop(play: Any) -> None:
    async def scene(session: AsyncSession) -> None:
        alpha, beta = session.attach("alpha"), session.attach("beta")
        alpha.declare("bus.alpha.count", [Field.integer("n")])
        beta.subscribe("bus.alpha.count")
        seen: list[tuple[int, bool]] = []
        here = threading.current_thread()

        def handler(message: Any) -> None:
            seen.append((message.payload["n"], threading.current_thread() is here))
            if message.payload["n"] < 3:
                alpha.publish("bus.alpha.count", {"n": message.payload["n"] + 1})

        beta.deliver_to(handler)
        thread = threading.Thread(target=alpha.publish, args=("bus.alpha.count", {"n": 1}))
        thread.start()
        await until(lambda: len(seen) == 3)
        thread.join()
        assert seen == [(1, True), (2, True), (3, True)]

    play(scene)
