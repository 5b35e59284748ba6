"""The official Python SDK's client and servers made with this project's kit."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

Play = Callable[[Callable[[Any], Awaitable[Any]]], Any]

pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::ResourceWarning")


@pytest.fixture
def client(sdk: None, fixture_args: Any) -> Play:
    """Runs a coroutine function with the SDK's session on the fixture server, initialized."""
    from mcp.client.session import ClientSession
    from mcp.client.stdio import StdioServerParameters, stdio_client

    command, args, env = fixture_args

    def run(part: Callable[[Any], Awaitable[Any]]) -> Any:
        async def main() -> Any:
            parameters = StdioServerParameters(command=command, args=list(args), env=env)
            async with stdio_client(parameters) as (reader, writer), ClientSession(reader, writer) as session:
                session.greeting = await session.initialize()
                return await part(session)

        return asyncio.run(asyncio.wait_for(main(), 60))

    return run


def texts(result: Any) -> list[str]:
    return [item.text for item in result.content]


@pytest.mark.spec("odek.server.minimal", "odek.server.fixtures")
def test_it_is_initialized_and_listed(client: Play) -> None:
    async def part(session: Any) -> None:
        assert session.server_info.name == "fixture"
        listed = (await session.list_tools()).tools
        assert [tool.name for tool in listed] == [
            "echo",
            "large_result",
            "artifact_result",
            "bad_artifact",
            "slow",
            "error_result",
        ]
        assert all(tool.description for tool in listed)
        await session.send_ping()

    client(part)


@pytest.mark.spec("odek.server.fixtures", "odek.server.artifact-complete")
def test_its_tools_are_called(client: Play, tmp_path: Path) -> None:
    def written() -> list[tuple[str, int]]:
        return [(path.as_uri(), path.stat().st_size) for path in tmp_path.iterdir()]

    async def part(session: Any) -> None:
        call = session.call_tool
        assert texts(await call("echo", {"text": "é🚀\u2028", "unknown": 1})) == ["é🚀\u2028"]
        assert texts(await call("echo")) == [""]
        assert len(texts(await call("large_result", {"chars": 1_000_000}))[0]) == 1_000_000
        [envelope] = texts(await call("artifact_result", {}))
        [ref] = json.loads(envelope)["artifacts"]
        assert written() == [(ref["uri"], ref["size_bytes"])]
        for fault in ("digest", "missing", "schema"):
            assert len(json.loads(texts(await call("bad_artifact", {"fault": fault}))[0])["artifacts"]) == 1
        failed = await call("error_result", {"text": "no"})
        assert (texts(failed), failed.is_error) == (["no"], True)
        wrong = await call("large_result", {"chars": "many"})
        assert wrong.is_error
        assert texts(await call("slow", {"seconds": 0.01})) == ["done"]

    client(part)


def test_calls_at_once(client: Play) -> None:
    async def part(session: Any) -> list[str]:
        slow = asyncio.create_task(session.call_tool("slow", {"seconds": 0.5}))
        results = await asyncio.gather(*(session.call_tool("echo", {"text": str(n)}) for n in range(50)))
        assert not slow.done()
        return [texts(result)[0] for result in (*results, await slow)]

    assert client(part) == [*(str(n) for n in range(50)), "done"]


def test_a_timeout_of_the_client(client: Play) -> None:
    async def part(session: Any) -> None:
        with pytest.raises(Exception, match=r"(?i)timed out"):
            await session.call_tool("slow", {"seconds": 30}, read_timeout_seconds=0.3)
        assert texts(await session.call_tool("echo", {"text": "still there"})) == ["still there"]

    client(part)


def test_an_unknown_tool(client: Play) -> None:
    async def part(session: Any) -> None:
        with pytest.raises(Exception, match="Unknown tool"):
            await session.call_tool("missing", {})

    client(part)
