"""Every way a host can end: killed, forgotten, raising, forked. Nothing is left, and nothing wrong is printed."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import textwrap
import time
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parents[2]
BOUND_SECONDS = 50.0
STUBBORN = """
for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP): signal.signal(number, signal.SIG_IGN)
start()
child = subprocess.Popen(['/bin/sh', '-c', 'trap "" TERM INT HUP; while :; do sleep 1000; done'])
m = receive(); reply(m, f'{os.getpid()} {child.pid}')
while True: pass
"""
ASYNC = """
import asyncio, os, sys, threading
from broker.adapters.aio import AsyncHost
async def start(*paths):
    host = AsyncHost()
    session = await host.open_session({workspace!r})
    for path in paths:
        await session.start(path)
        name = path.rpartition("/")[2]
        print((await session.call(name, "work", {{"text": ""}})).content[0].text, flush=True)
    return host, session
"""
PID = "start(); serve(lambda m: reply(m, str(os.getpid())))"


class Script:
    """A host program in a process of its own."""

    def __init__(self, workspace: Path, body: str, *, header: str = ASYNC) -> None:
        text = header.format(workspace=str(workspace)) + textwrap.dedent(body)
        self.temporary = workspace / "temporary"
        self.temporary.mkdir(exist_ok=True)
        self.process = subprocess.Popen(
            [sys.executable, "-W", "default", "-c", text],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            cwd=workspace,
            env={**os.environ, "PYTHONPATH": str(ROOT), "TMPDIR": str(self.temporary)},
            start_new_session=True,
        )

    def read_pids(self, count: int) -> list[int]:
        assert self.process.stdout is not None
        pids: list[int] = []
        while len(pids) < count:
            line = self.process.stdout.readline()
            assert line, f"the host ended early: {self.process.communicate()[1]}"
            pids += map(int, line.split())
        return pids

    def finish(self) -> tuple[int, str, str]:
        # Through the same buffer that read_pids() used: communicate() would miss what is in it already.
        assert self.process.stdout is not None and self.process.stderr is not None
        out, err = self.process.stdout.read(), self.process.stderr.read()
        return self.process.wait(timeout=BOUND_SECONDS), out, err


@pytest.fixture
def script(tmp_path: Path) -> Any:
    started: list[Script] = []

    def run(body: str, **options: Any) -> Script:
        started.append(Script(tmp_path, body, **options))
        return started[-1]

    yield run
    for made in started:
        if made.process.poll() is None:
            made.process.kill()
        made.process.communicate()
        # Whatever ended the host, the directories of its extensions are gone, if not at once.
        deadline = time.monotonic() + BOUND_SECONDS
        while left := os.listdir(made.temporary):
            assert time.monotonic() < deadline, f"{left} was left"
            time.sleep(0.005)


@pytest.mark.spec("octet.process.host-killed", "octet.process.nothing-left", "octet.process.grandchildren")
@pytest.mark.parametrize("group", [False, True])
def test_a_killed_host_takes_three_busy_extensions_along(rogue: Any, gone: Any, script: Any, group: bool) -> None:
    paths = [str(rogue(STUBBORN, name=name)) for name in ("one", "two", "three")]
    host = script(
        f"""
        async def main():
            kept = await start(*{paths!r})
            await asyncio.sleep(1000)
        asyncio.run(main())
        """
    )
    pids = host.read_pids(6)
    assert len(os.listdir(host.temporary)) == 1
    if group:
        os.killpg(host.process.pid, signal.SIGKILL)
    else:
        host.process.kill()
    gone(*pids)
    assert host.finish()[0] == -signal.SIGKILL


@pytest.mark.spec("octet.process.nothing-left")
@pytest.mark.parametrize(
    ("ending", "status"),
    [
        ("", 0),
        ("sys.exit(5)", 5),
        ("raise RuntimeError('a bug of the host')", 1),
        ("os.kill(os.getpid(), 15)", -15),
        ("os._exit(6)", 6),
    ],
)
def test_a_host_that_ends_inside_its_loop_without_closing(
    rogue: Any, gone: Any, script: Any, ending: str, status: int
) -> None:
    path = str(rogue(PID))
    host = script(
        f"""
        async def main():
            host, session = await start({path!r})
            {ending}
        asyncio.run(main())
        """
    )
    pids = host.read_pids(1)
    code, _, err = host.finish()
    assert code == status, err
    gone(*pids)
    check_noise(err, "a bug of the host" if "bug" in ending else None)


@pytest.mark.spec("octet.process.nothing-left")
def test_a_host_that_outlives_its_loop(rogue: Any, gone: Any, script: Any) -> None:
    path = str(rogue(PID))
    host = script(
        f"""
        kept = asyncio.run(start({path!r}))
        kept[1].bus.reset()
        try:
            asyncio.run(kept[1].call("rogue", "work"))
        except Exception as error:
            print(type(error).__name__, error, flush=True)
        """
    )
    pids = host.read_pids(1)
    code, out, err = host.finish()
    assert code == 0, err
    assert out == "UsageError this host belongs to another event loop\n"
    gone(*pids)
    check_noise(err)


@pytest.mark.spec("octet.process.nothing-left")
def test_stubborn_extensions_of_a_host_that_just_ends(rogue: Any, gone: Any, script: Any) -> None:
    path = str(rogue(STUBBORN))
    host = script(f"asyncio.run(start({path!r}))")
    pids = host.read_pids(2)
    code, _, err = host.finish()
    assert code == 0, err
    gone(*pids)
    check_noise(err)


def test_a_start_under_way_when_the_loop_ends(rogue: Any, gone: Any, script: Any, tmp_path: Path) -> None:
    path = str(rogue(f"open({str(tmp_path / 'pid')!r}, 'w').write(str(os.getpid())); time.sleep(1000)"))
    host = script(
        f"""
        async def main():
            task = asyncio.ensure_future(start({path!r}))
            while not os.path.exists("pid") or not open("pid").read():
                await asyncio.sleep(0.01)
        asyncio.run(main())
        """
    )
    code, _, err = host.finish()
    assert code == 0, err
    gone(int((tmp_path / "pid").read_text()))
    check_noise(err)


BLOCKING = """
import os, sys, threading, time
from broker.adapters.blocking import BlockingHost
host = BlockingHost()
session = host.open_session({workspace!r})
def start(path):
    session.start(path)
    print(session.call("rogue", "work").content[0].text, flush=True)
"""


@pytest.mark.spec("octet.process.nothing-left")
@pytest.mark.parametrize(
    ("ending", "status"), [("", 0), ("sys.exit(5)", 5), ("raise RuntimeError('a bug of the host')", 1)]
)
def test_a_blocking_host_that_is_never_closed(rogue: Any, gone: Any, script: Any, ending: str, status: int) -> None:
    path = str(rogue(PID))
    host = script(f"start({path!r})\n{ending}", header=BLOCKING)
    pids = host.read_pids(1)
    code, _, err = host.finish()
    assert code == status, err
    gone(*pids)
    check_noise(err, "a bug of the host" if "bug" in ending else None)


def test_an_interpreter_that_ends_while_readers_are_busy(rogue: Any, gone: Any, script: Any) -> None:
    path = str(
        rogue("start(); m = receive(); reply(m, str(os.getpid()))\nwhile True: os.write(2, b'busy busy busy\\n' * 100)")
    )
    host = script(f"start({path!r})\ntime.sleep(0.2)", header=BLOCKING)
    pids = host.read_pids(1)
    code, _, err = host.finish()
    assert code == 0, err
    gone(*pids)
    check_noise(err)


FORKED = """
pid = os.fork()
if pid == 0:
    for attempt in (
        lambda: session.call("rogue", "work"),
        lambda: session.start("/nowhere"),
        lambda: host.open_session("."),
    ):
        try:
            attempt()
        except Exception as error:
            print(type(error).__name__, error, flush=True)
    {child}
assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == {status}
print(session.call("rogue", "work").content[0].text, flush=True)
session.start({other!r})
print(session.call("other", "work").content[0].text, flush=True)
host.close()
print("closed", flush=True)
"""


@pytest.mark.parametrize(
    ("child", "status"),
    [("os._exit(0)", 0), ("sys.exit(3)", 3), ("host.close(); session.close(); sys.exit(4)", 4)],
)
def test_a_forked_process_gets_a_clear_error_and_harms_nobody(
    rogue: Any, gone: Any, script: Any, child: str, status: int
) -> None:
    path, other = str(rogue(PID)), str(rogue(PID, name="other"))
    host = script(f"start({path!r})\n" + FORKED.format(child=child, status=status, other=other), header=BLOCKING)
    (pid,) = host.read_pids(1)
    code, out, err = host.finish()
    assert code == 0, err
    *errors, again, second, closed = out.splitlines()
    assert errors == ["UsageError this process was forked from the host; open a host of its own here"] * 3
    assert int(again) == pid
    assert closed == "closed"
    gone(pid, int(second))
    assert "Traceback" not in err


def test_a_forked_process_may_have_a_host_of_its_own(rogue: Any, gone: Any, script: Any) -> None:
    path = str(rogue(PID))
    host = script(
        f"start({path!r})\n"
        + textwrap.dedent(
            f"""
            pid = os.fork()
            if pid == 0:
                with BlockingHost() as mine:
                    own = mine.open_session(".")
                    own.start({path!r})
                    print(own.call("rogue", "work").content[0].text, flush=True)
                sys.exit(0)
            assert os.waitpid(pid, 0)[1] == 0
            print(session.call("rogue", "work").content[0].text, flush=True)
            host.close()
            """
        ),
        header=BLOCKING,
    )
    first, childs, again = host.read_pids(3)
    code, _, err = host.finish()
    assert code == 0, err
    assert first == again != childs
    gone(first, childs)


def test_a_fork_inside_the_loop_leaves_the_parent_as_it_was(rogue: Any, gone: Any, script: Any) -> None:
    path = str(rogue(PID))
    host = script(
        f"""
        async def main():
            host, session = await start({path!r})
            pid = os.fork()
            if pid == 0:
                try:
                    await session.call("rogue", "work")
                except Exception as error:
                    print(type(error).__name__, flush=True)
                await session.aclose()
                await host.aclose()
                os._exit(0)
            os.waitpid(pid, 0)
            print((await session.call("rogue", "work")).content[0].text, flush=True)
            await host.aclose()
        asyncio.run(main())
        """
    )
    (pid,) = host.read_pids(1)
    code, out, err = host.finish()
    assert code == 0, err
    assert out.splitlines() == ["UsageError", str(pid)]
    gone(pid)


def check_noise(err: str, expected: str | None = None) -> None:
    """Nothing but resource warnings, and the host's own exception."""
    for wrong in ("Event loop is closed", "Fatal Python error", "never awaited", "Exception ignored", "was destroyed"):
        assert wrong not in err, err
    if expected is None:
        assert "Traceback" not in err, err
    else:
        assert expected in err
        assert err.count("Traceback") == 1, err
