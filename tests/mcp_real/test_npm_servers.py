"""This client and the servers of the Model Context Protocol project, as they are published on npm."""

from __future__ import annotations

import asyncio
import base64
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from broker.adapters.aio import AsyncSession
from broker.errors import ProtocolError, TimedOutError
from broker.wire.mcp.requests import Progress
from broker.wire.odek.config import ServerConfig

Play = Callable[..., Any]


@pytest.fixture
def started(npm_server: Any, config: Callable[..., ServerConfig], play: Play) -> Play:
    """Runs a coroutine function with a session in which the given server runs as ``srv``."""

    def run(part: Callable[[AsyncSession], Any], package: str, *args: str, **fields: Any) -> Any:
        command, arguments = npm_server(package, *args)

        async def main(session: AsyncSession) -> Any:
            await session.start_server(config("srv", command, arguments, **fields))
            return await part(session)

        return play(main)

    return run


# -- server-everything -------------------------------------------------------------------------------------------------

HARMLESS: dict[str, tuple[dict[str, Any], str]] = {
    "echo": ({"message": "é\u2028🚀"}, "Echo: é\u2028🚀"),
    "get-sum": ({"a": 2, "b": 3}, "The sum of 2 and 3 is 5."),
    "get-env": ({}, '"PATH"'),
    "get-tiny-image": ({}, "The image above is the MCP logo."),
    "get-annotated-message": ({"messageType": "error", "includeImage": True}, "Error: Operation failed"),
    "get-structured-content": ({"location": "Chicago"}, "temperature"),
    "get-resource-links": ({"count": 2}, "2 resource links"),
    "get-resource-reference": ({"resourceType": "Text", "resourceId": 1}, "Resource 1"),
    "gzip-file-as-resource": ({"name": "a.gz", "data": "data:text/plain,hello", "outputType": "resourceLink"}, ""),
    "toggle-simulated-logging": ({}, "Started simulated"),
    "toggle-subscriber-updates": ({}, "Started simulated"),
}


@pytest.mark.spec("odek.transport.plain-mcp", "odek.transport.stdout-only-protocol", "odek.config.env-allowed")
def test_every_harmless_tool_of_everything(started: Play, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FOO_API_KEY", "a secret of the host")

    async def part(session: AsyncSession) -> None:
        offered = {tool.name for tool in session.session.server("srv").tools}
        assert offered >= HARMLESS.keys()
        for tool, (arguments, expected) in HARMLESS.items():
            output = await session.call_server("srv", tool, arguments)
            assert expected in output.text, tool
            assert not output.is_error, (tool, output.text)
            assert "a secret of the host" not in output.text
        wrong = await session.call_server("srv", "get-sum", {"a": "two"})
        assert wrong.is_error

    started(part, "server-everything", "stdio")


@pytest.mark.spec("odek.limits.timeout-progress", "odek.limits.timeout-process-lives")
def test_progress_timeouts_and_cancelling_with_everything(started: Play) -> None:
    long_one = "trigger-long-running-operation"

    async def part(session: AsyncSession) -> None:
        seen: list[Progress] = []
        output = await session.call_server("srv", long_one, {"duration": 0.4, "steps": 4}, on_progress=seen.append)
        assert output.text.startswith("Long running operation completed")
        assert [(progress.progress, progress.total) for progress in seen] == [(n, 4) for n in (1, 2, 3, 4)]
        with pytest.raises(TimedOutError) as caught:
            await session.call_server("srv", long_one, {"duration": 30, "steps": 2}, timeout=0.3)
        assert (caught.value.tool, caught.value.dispatched) == (long_one, True)
        task = asyncio.create_task(session.call_server("srv", long_one, {"duration": 30, "steps": 2}))
        await asyncio.sleep(0)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert (await session.call_server("srv", "echo", {"message": "on"})).text == "Echo: on"

    started(part, "server-everything", "stdio")


@pytest.mark.spec("odek.transport.shutdown")
def test_everything_is_ended_also_while_it_is_busy(started: Play) -> None:
    async def part(session: AsyncSession) -> None:
        await session.call_server("srv", "toggle-simulated-logging")  # a timer that keeps the process alive
        await session.stop_server("srv")

    started(part, "server-everything", "stdio")


# -- server-filesystem -------------------------------------------------------------------------------------------------


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    root = tmp_path / "tree"
    (root / "below").mkdir(parents=True)
    (root / "a.txt").write_text("one\ntwo\nthree\n")
    (root / "below" / "b.txt").write_text("é\u2028🚀")
    (root / "pixel.png").write_bytes(base64.b64decode("iVBORw0KGgo="))
    return root


def test_every_tool_of_filesystem(started: Play, tree: Path) -> None:
    async def part(session: AsyncSession) -> None:
        async def call(tool: str, **arguments: Any) -> str:
            output = await session.call_server("srv", tool, arguments)
            assert not output.is_error, (tool, output.text)
            used.add(tool)
            return output.text

        used: set[str] = set()
        a, b = str(tree / "a.txt"), str(tree / "below" / "b.txt")
        assert await call("read_file", path=a) == "one\ntwo\nthree\n"
        assert await call("read_text_file", path=a, head=1) == "one"
        assert await call("read_media_file", path=str(tree / "pixel.png")) == ""
        assert "é\u2028🚀" in await call("read_multiple_files", paths=[a, b])
        await call("write_file", path=str(tree / "new"), content="x\u0000y")
        assert (tree / "new").read_text() == "x\0y"
        await call("edit_file", path=a, edits=[{"oldText": "two", "newText": "2"}])
        assert (tree / "a.txt").read_text() == "one\n2\nthree\n"
        await call("create_directory", path=str(tree / "made"))
        assert "[DIR] made" in await call("list_directory", path=str(tree))
        assert "a.txt" in await call("list_directory_with_sizes", path=str(tree))
        assert json.loads(await call("directory_tree", path=str(tree / "below")))[0]["name"] == "b.txt"
        await call("move_file", source=str(tree / "new"), destination=str(tree / "made" / "new"))
        assert "b.txt" in await call("search_files", path=str(tree), pattern="**/b.txt")
        assert "size" in await call("get_file_info", path=b)
        assert str(tree) in await call("list_allowed_directories")
        assert used == {tool.name for tool in session.session.server("srv").tools}
        outside = await session.call_server("srv", "read_file", {"path": "/etc/hostname"})
        assert outside.is_error
        assert "denied" in outside.text.lower()

    started(part, "server-filesystem", str(tree))


@pytest.mark.spec("odek.limits.result-cap")
def test_a_big_file_is_cut_and_a_bigger_one_ends_the_connection(started: Play, tree: Path) -> None:
    (tree / "big").write_text("é" * 500_000)
    (tree / "bigger").write_text("x" * 3_000_000)

    async def part(session: AsyncSession) -> None:
        output = await session.call_server("srv", "read_text_file", {"path": str(tree / "big")})
        assert (len(output.text), output.truncated) == (5_000, True)
        with pytest.raises(ProtocolError) as caught:
            await session.call_server("srv", "read_text_file", {"path": str(tree / "bigger")})
        assert (caught.value.limit, caught.value.tool) == ("max_response_bytes", "read_text_file")

    started(part, "server-filesystem", str(tree), max_result_chars=5_000, max_response_bytes=2_500_000)


@pytest.mark.spec("odek.transport.shutdown")
def test_filesystem_ends_with_its_input(started: Play, tree: Path) -> None:
    async def part(session: AsyncSession) -> None:
        await session.stop_server("srv")

    started(part, "server-filesystem", str(tree))
