"""What runs in memory runs as a real process too, and says the same."""

from __future__ import annotations

import asyncio
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from kit_members import Echo, counting_script, late_server, slow_server

from broker.errors import ExitedError, UsageError
from broker.testing import MemoryHost, MixedHost, ProcessHost, entry, write_extension, write_server

CALLS: list[tuple[str, dict[str, Any]]] = [("echo", {"text": "grüße"}), ("crash", {})]


def answered(call: Callable[[], Any]) -> str:
    try:
        return str(call().content[0].text)
    except ExitedError as error:
        return str(error)


def test_an_extension_says_the_same_both_ways(tmp_path: Path) -> None:
    with MemoryHost() as host, host.open_session() as session:
        session.start(Echo, name="twin")
        in_memory = [answered(lambda: session.call("twin", *call)) for call in CALLS]  # noqa: B023 - called at once

    async def main() -> list[str]:
        said = []
        async with MixedHost() as host:
            session = await host.open_session(tmp_path)
            await session.start(write_extension(tmp_path / "twin", Echo, name="twin"))
            for call in CALLS:
                try:
                    said.append(str((await session.call("twin", *call)).content[0].text))  # type: ignore[union-attr]
                except ExitedError as error:
                    said.append(str(error))
        return said

    assert asyncio.run(main()) == in_memory
    assert in_memory[0] == "grüße"
    assert in_memory[1].startswith("twin (generation 1): exited with status 3 while it was in use")


def test_scripts_and_servers_are_programs_too(tmp_path: Path) -> None:
    async def main() -> None:
        async with MixedHost() as host:
            session = await host.open_session(tmp_path)
            await session.start(write_extension(tmp_path / "counting", counting_script))
            await session.call("counting-script", "count", {"n": 3})
            session.recorder.exactly_once(entry("published", source="counting-script", payload={"n": 3}))
            await session.start_server(write_server(tmp_path / "srv", slow_server, name="srv"))
            assert (await session.call_server("srv", "work")).text == "done"

    asyncio.run(asyncio.wait_for(main(), 50))


def test_a_process_keeps_its_own_time(tmp_path: Path) -> None:
    """An object that wants to act later is woken for it, in memory by the clock of the test and here by its own."""

    async def main() -> None:
        async with MixedHost() as host:
            session = await host.open_session(tmp_path)
            await session.start_server(write_server(tmp_path / "late", late_server))
            assert (await session.call_server("late-server", "work", timeout=30)).text == "late"

    asyncio.run(asyncio.wait_for(main(), 50))
    with MemoryHost() as host, host.open_session() as session:
        session.start(late_server)
        assert session.call_server("late-server", "work").text == "late"
        assert host.clock.monotonic_ms() == 30


@pytest.mark.parametrize("moment", ["at the end of its input", "when it reads no more"])
def test_a_process_that_hears_nothing_more_still_keeps_its_time(moment: str) -> None:
    program = f"""
from broker.testing import ScriptedProcess, serve_stdio

class Late(ScriptedProcess):
    due = None

    def on_eof(self):
        self.due = 0

    def next_deadline(self):
        return self.due

    def tick(self, now_ms):
        if self.due == 0:
            self.due = now_ms + 20
        elif self.due is not None and now_ms >= self.due:
            self.exit(7)

late = Late()
if {moment!r} == "when it reads no more":
    late.reading, late.due = False, 0
serve_stdio(late)
"""
    done = subprocess.run([sys.executable, "-c", program], stdin=subprocess.DEVNULL, timeout=30, check=False)
    assert done.returncode == 7


def test_what_another_process_cannot_find_is_refused(tmp_path: Path) -> None:
    class Local(Echo):
        pass

    def numbered(number: int) -> Echo:
        return Echo()

    for wrong in (Local, lambda: Echo(), numbered):
        with pytest.raises(UsageError, match="cannot be found by another process; give a class, or a function"):
            write_extension(tmp_path / "no", wrong)  # type: ignore[arg-type]
    with pytest.raises(UsageError, match=r"slow-server is an MCP server; write it with write_server\(\)"):
        write_extension(tmp_path / "no", slow_server)
    with pytest.raises(UsageError, match=r"echo is an extension; write it with write_extension\(\)"):
        write_server(tmp_path / "no", Echo)
    assert not (tmp_path / "no").exists()


def test_a_program_may_be_a_text(tmp_path: Path) -> None:
    with ProcessHost(tmp_path) as host:
        session = host.open_session(tmp_path)
        path = write_extension(
            tmp_path / "texts", "import sys\nsys.exit(4)\n", name="texts", tools=["a"], version="2.0.0"
        )
        with pytest.raises(ExitedError, match=r"texts \(generation 1\): exited with status 4 before"):
            session.start(path)
        assert session.extension("texts").manifest.version == "2.0.0"
        config = write_server(tmp_path / "srv", "import sys\nsys.exit(5)\n", name="srv", timeout_seconds=3)
        assert config.timeout_seconds == 3
        with pytest.raises(ExitedError, match="exited with status 5 before"):
            session.start(config)
    with pytest.raises(UsageError, match="has no name of its own"):
        write_extension(tmp_path / "no", "x")
