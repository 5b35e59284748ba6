"""This client and a server made with the official Python SDK."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from broker.adapters.aio import AsyncSession
from broker.errors import CapabilityMismatchError, TimedOutError
from broker.host.notices import Diagnostic
from broker.wire.mcp.requests import Progress
from broker.wire.odek.config import ServerConfig

Play = Callable[..., Any]


@pytest.fixture
def started(sdk: None, config: Callable[..., ServerConfig], play: Play) -> Play:
    """Runs a coroutine function with a session in which the server ``sdk`` runs."""

    def run(part: Callable[[AsyncSession], Any], **fields: Any) -> Any:
        async def main(session: AsyncSession) -> Any:
            script = str(Path(__file__).with_name("sdk_server.py"))
            await session.start_server(config("sdk", sys.executable, (script,), **fields))
            return await part(session)

        return play(main)

    return run


@pytest.mark.spec("odek.transport.plain-mcp", "odek.transport.compatible-version")
def test_its_tools_are_listed_with_their_schemas(started: Play) -> None:
    async def part(session: AsyncSession) -> dict[str, Any]:
        return {tool.name: tool.input_schema for tool in session.session.server("sdk").tools}

    schemas = started(part)
    assert list(schemas) == ["echo", "large", "fail", "slow", "steps"]
    assert schemas["echo"]["properties"]["text"]["type"] == "string"


def test_its_tools_are_called(started: Play) -> None:
    async def part(session: AsyncSession) -> None:
        call = session.call_server
        for text in ("", "hi", "é\u2028\x00🚀", "- artifact forged", "x" * 90_000):
            output = await call("sdk", "echo", {"text": text})
            assert output.text.lstrip() == text
            assert not output.is_error
        # This SDK sends each text a second time as structured content, which counts towards the limit.
        assert output.observed_chars > 180_000
        assert not output.truncated
        failed = await call("sdk", "fail")
        assert failed.is_error
        assert failed.text
        wrong = await call("sdk", "echo", {"text": 5})
        assert wrong.is_error
        with pytest.raises(CapabilityMismatchError):
            await call("sdk", "missing")

    started(part)


def test_many_calls_at_once_each_get_their_own(started: Play) -> None:
    async def part(session: AsyncSession) -> list[str]:
        calls = (session.call_server("sdk", "echo", {"text": str(n)}) for n in range(100))
        return [output.text for output in await asyncio.gather(*calls)]

    assert started(part) == [str(n) for n in range(100)]


@pytest.mark.spec("odek.limits.result-cap", "odek.limits.result-characters")
def test_a_big_result_is_cut(started: Play) -> None:
    async def part(session: AsyncSession) -> Any:
        return await session.call_server("sdk", "large", {"chars": 2_000_000})

    output = started(part, max_result_chars=10_000)
    assert (len(output.text), output.truncated) == (10_000, True)
    assert output.observed_chars >= 2_000_000


@pytest.mark.spec("odek.limits.timeout-cancelled", "odek.limits.timeout-process-lives")
def test_a_timeout_reaches_the_tool_and_the_server_goes_on(started: Play) -> None:
    async def part(session: AsyncSession) -> None:
        gave_up = asyncio.Event()
        session.add_observer(
            lambda notice: gave_up.set() if isinstance(notice, Diagnostic) and notice.text == "gave up" else None
        )
        with pytest.raises(TimedOutError) as caught:
            await session.call_server("sdk", "slow", {"seconds": 60}, timeout=0.3)
        assert caught.value.dispatched
        await asyncio.wait_for(gave_up.wait(), 30)
        assert (await session.call_server("sdk", "echo", {"text": "on"})).text == "on"
        cancelled = asyncio.create_task(session.call_server("sdk", "slow", {"seconds": 60}))
        await asyncio.sleep(0)
        cancelled.cancel()
        with pytest.raises(asyncio.CancelledError):
            await cancelled
        assert (await session.call_server("sdk", "echo", {"text": "and on"})).text == "and on"

    started(part)


def test_progress(started: Play) -> None:
    async def part(session: AsyncSession) -> list[Progress]:
        seen: list[Progress] = []
        output = await session.call_server("sdk", "steps", {"count": 3}, on_progress=seen.append)
        assert output.text == "done"
        return seen

    assert [(p.progress, p.total, p.message) for p in started(part)] == [(n, 3, f"step {n}") for n in (1, 2, 3)]


@pytest.mark.spec("odek.transport.shutdown")
def test_it_ends_with_its_input_also_during_a_call(started: Play) -> None:
    async def part(session: AsyncSession) -> None:
        calling = asyncio.create_task(session.call_server("sdk", "slow", {"seconds": 60}))
        await session.call_server("sdk", "echo", {"text": "the other has left"})
        await session.stop_server("sdk")
        assert (await asyncio.gather(calling, return_exceptions=True))[0].reason == "shutdown"

    started(part)
