"""The examples that use services, as a host with a loop and one without run them."""

from __future__ import annotations

import asyncio
import gc
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from service_scripts import Asking

from broker.adapters.aio import AsyncHost, AsyncSession
from broker.adapters.blocking import BlockingHost
from broker.adapters.source_roots import SourceRoots
from broker.errors import BrokerError, CancelledError, ResourceExhaustedError, StreamError, TimedOutError, UsageError
from broker.host import HostServices, HostSettings, ProviderRegistry, SessionDriver, ThemeCatalogue
from broker.testing import write_extension
from broker.wire.octet.session_models import ThemeSelectResult
from broker.wire.octet.stream_models import Finished, StreamPayload, StreamStarted, TextDelta, Usage

EXAMPLES = Path(__file__).parents[2] / "docs" / "examples"
ASK = {"messages": [{"role": "user", "content": "one two  three\n"}]}


def said(text: str, **more: Any) -> dict[str, Any]:
    return {"messages": [{"role": "user", "content": text}], **more}


async def parrot(host: AsyncHost, workspace: Path) -> AsyncSession:
    """A session with the parrot, its model declared."""
    session = await host.open_session(workspace)
    await session.start(EXAMPLES / "parrot")
    (provider,) = await session.providers("parrot")
    assert [model.id for model in provider.models] == ["echo"]
    return session


async def until(condition: Callable[[], bool]) -> None:
    """Let the loop go on until ``condition`` holds."""
    loop = asyncio.get_running_loop()
    end = loop.time() + 50
    while not condition():
        assert loop.time() < end
        await asyncio.sleep(0)


def with_parrot(work: Callable[[AsyncSession], Any], workspace: Path, **settings: Any) -> Any:
    async def main() -> Any:
        registry = ProviderRegistry()
        services = HostServices(providers=registry)
        async with AsyncHost(settings=HostSettings(**settings), services=services) as host:
            result = await work(await parrot(host, workspace))
        assert registry.providers == ()
        return result

    return asyncio.run(main())


def test_the_parrot_streams_what_its_own_server_says(tmp_path: Path) -> None:
    async def work(session: AsyncSession) -> list[StreamPayload]:
        return [event async for event in session.stream("parrot", "echo", ASK)]

    events = with_parrot(work, tmp_path)
    assert events[0] == StreamStarted()
    assert "".join(event.delta for event in events if isinstance(event, TextDelta)) == "one two  three\n"
    usage, finished = events[-2:]
    assert isinstance(usage, Usage) and usage.output_tokens == 4
    assert finished == Finished(stop_reason="stop")


@pytest.mark.spec("octet.provider.stream-buffer")
def test_a_burst_of_megabytes_is_read_by_a_reader_that_pauses_at_each_event(tmp_path: Path) -> None:
    """The server says all of it at once; what the reader has not come to waits in the pipe."""
    text = " ".join(f"{number:0>250}" for number in range(3_800))

    async def work(session: AsyncSession) -> tuple[str, int]:
        found, most = "", 0
        async with session.stream("parrot", "echo", said(text)) as stream:
            async for event in stream:
                most = max(most, stream.stream.buffered)
                if isinstance(event, TextDelta):
                    found += event.delta
                    await asyncio.sleep(0)
        return found, most

    # However slow the machine that runs this is.
    found, most = with_parrot(work, tmp_path, stream_full_ms=60_000)
    assert (found == text, most <= 32) == (True, True)


def test_leaving_the_block_early_cancels_and_the_next_stream_works(tmp_path: Path) -> None:
    async def work(session: AsyncSession) -> list[Any]:
        async with session.stream("parrot", "echo", said("a b c d e", pause_ms=200)) as stream:
            async for event in stream:
                if isinstance(event, TextDelta):
                    break
        with pytest.raises(StopAsyncIteration):
            await anext(stream)
        return [type(event) async for event in session.stream("parrot", "echo", ASK)]

    assert with_parrot(work, tmp_path)[-1] is Finished


def test_a_reader_that_waits_is_released_by_a_cancel_and_by_the_deadline(tmp_path: Path) -> None:
    async def work(session: AsyncSession) -> list[BrokerError]:
        errors: list[BrokerError] = []
        stream = session.stream("parrot", "echo", said("a b", pause_ms=5_000))
        asyncio.get_running_loop().call_later(0.2, stream.cancel)
        late = session.stream("parrot", "echo", said("a b", pause_ms=5_000), timeout=0.3)
        for each in (stream, late):
            try:
                async for _ in each:
                    pass
            except BrokerError as error:
                errors.append(error)
        with pytest.raises(UsageError, match="timeout"):
            session.stream("parrot", "echo", ASK, timeout=0)
        return errors

    cancelled, timed_out = with_parrot(work, tmp_path)
    assert isinstance(cancelled, CancelledError) and cancelled.reason == "user"
    assert isinstance(timed_out, TimedOutError) and timed_out.maximum == 300


def test_a_provider_that_fails_in_the_middle_says_so(tmp_path: Path) -> None:
    async def work(session: AsyncSession) -> list[Any]:
        found: list[Any] = []
        try:
            async for event in session.stream("parrot", "echo", said("fail")):
                found.append(event)
        except StreamError as error:
            found.append(error.reason)
        return found

    assert with_parrot(work, tmp_path)[-1] == "failed"


def test_a_stream_has_one_reader(tmp_path: Path) -> None:
    async def work(session: AsyncSession) -> None:
        async with session.stream("parrot", "echo", said("a b", pause_ms=60_000), idle_timeout=120) as stream:
            while not isinstance(await anext(stream), TextDelta):
                pass
            waiting = asyncio.ensure_future(anext(stream))
            await asyncio.sleep(0)
            with pytest.raises(UsageError, match="one reader"):
                await anext(stream)
        with pytest.raises(CancelledError):
            await waiting

    with_parrot(work, tmp_path)


def test_a_stream_that_nobody_holds_is_cancelled(tmp_path: Path) -> None:
    async def work(session: AsyncSession) -> None:
        kept = session.stream("parrot", "echo", said("a b", pause_ms=60_000), idle_timeout=120).stream
        gc.collect()
        await until(lambda: kept.closed)
        with pytest.raises(CancelledError) as caught:
            kept.take()
        assert caught.value.reason == "dropped"
        async for event in session.stream("parrot", "echo", said("a b", pause_ms=60_000), idle_timeout=120):
            if isinstance(event, StreamStarted):
                break
        streams = session.session.extension("parrot").generation.desk.streams  # type: ignore[union-attr]
        gc.collect()
        await until(lambda: not streams.busy)

    with_parrot(work, tmp_path)


def test_a_blocking_stream_that_nobody_holds_is_cancelled(tmp_path: Path) -> None:
    with BlockingHost(services=HostServices(providers=ProviderRegistry())) as host:
        session = host.open_session(tmp_path)
        session.start(EXAMPLES / "parrot")
        assert [provider.id for provider in session.providers("parrot")] == ["parrot"]
        stream = session.stream("parrot", "echo", said("a b", pause_ms=60_000), idle_timeout=120)
        closed = stream._closed
        assert isinstance(next(stream), StreamStarted)
        del stream
        gc.collect()
        assert closed.wait(30)


def test_without_a_loop(tmp_path: Path) -> None:
    with BlockingHost(services=HostServices(providers=ProviderRegistry())) as host:
        session = host.open_session(tmp_path)
        session.start(EXAMPLES / "parrot")
        assert [provider.id for provider in session.providers("parrot")] == ["parrot"]
        with session.stream("parrot", "echo", said(" ".join(map(str, range(300))))) as stream:
            words = [event.delta for event in stream if isinstance(event, TextDelta)]
        assert "".join(words) == " ".join(map(str, range(300)))
        assert list(stream) == []
        with session.stream("parrot", "echo", said("a b", pause_ms=5_000)) as stream:
            assert isinstance(next(stream), StreamStarted)
        assert list(stream) == []
        open_ = session.stream("parrot", "echo", said("a b", pause_ms=60_000), idle_timeout=120)
        with pytest.raises(BrokerError):
            session.stream("parrot", "gpt", ASK)
    with pytest.raises(CancelledError):
        list(open_)
    open_.close()


def test_a_blocking_reader_that_is_too_slow_loses_the_stream(tmp_path: Path) -> None:
    with BlockingHost(services=HostServices(providers=ProviderRegistry())) as host:
        session = host.open_session(tmp_path)
        session.start(EXAMPLES / "parrot")
        assert [provider.id for provider in session.providers("parrot")] == ["parrot"]
        stream = session.stream("parrot", "echo", said(" ".join(map(str, range(3_000)))))
        stream.wait_closed(10)
        found: list[StreamPayload] = []
        with pytest.raises(ResourceExhaustedError) as caught:
            found += stream
        assert caught.value.limit == "MAX_PROVIDER_STREAM_BACKLOG"


@pytest.mark.spec("octet.migration.no-secrets", "octet.migration.read-only")
def test_the_adapter_imports_a_setup_and_takes_no_secret(tmp_path: Path) -> None:
    home = EXAMPLES / "import-quill" / "home"
    before = {path: path.read_bytes() for path in home.rglob("*") if path.is_file()}
    with BlockingHost(services=HostServices(migrations=SourceRoots(EXAMPLES))) as host:
        session = host.open_session(tmp_path)
        session.start(EXAMPLES / "import-quill")
        setup = session.detect_setup("import-quill", home)
        assert setup.config_paths == (
            ".quill/config.toml",
            ".quill/skills/review.md",
            ".quill/skills/tests.md",
        )
        result = session.import_setup(setup)
        only = session.import_setup(setup, [".quill/skills/tests.md"], timeout=30)
        empty = session.detect_setup("import-quill", EXAMPLES / "hello")
    assert [(model.provider, model.model) for model in result.models] == [("quill", "quill-large")]
    assert [skill.name for skill in result.skills] == ["review", "tests"]
    assert [(server.name, server.command, server.args) for server in result.mcp_servers] == [
        ("files", "files-server", ("--root", "."))
    ]
    assert {diagnostic.reason for diagnostic in result.diagnostics} == {
        "the key of the model is not taken over",
        "server search is not a local one",
    }
    assert "not-a-" not in repr(result)
    assert [skill.name for skill in only.skills] == ["tests"] and not only.models
    assert (empty.result.detected, [one.path for one in empty.diagnostics]) == (False, ["$"])
    assert {path: path.read_bytes() for path in home.rglob("*") if path.is_file()} == before


def test_callbacks_of_an_asyncio_host_may_be_coroutines(tmp_path: Path) -> None:
    """The session driver and the theme policy answer later; one of them fails."""
    asked: list[str] = []

    class Sessions:
        async def create(self, asked_by: Any) -> str:
            asked.append(asked_by.extension)
            await asyncio.sleep(0)
            return "made"

        async def fork(self, asked_by: Any) -> str:
            raise RuntimeError("private")

        async def switch(self, asked_by: Any, session_id: str) -> str:
            return session_id

        async def reload(self, asked_by: Any) -> str:
            raise asyncio.CancelledError

    async def decide(choice: Any) -> ThemeSelectResult:
        return ThemeSelectResult(status="denied", reason=choice.role)

    driver: SessionDriver = Sessions()
    services = HostServices(session_driver=driver, themes=ThemeCatalogue({"dusk": "user"}, decide=decide))

    async def main() -> Any:
        async with AsyncHost(services=services) as host:
            session = await host.open_session(tmp_path)
            await session.start(write_extension(tmp_path / "asking", Asking))
            for _ in range(3_000):
                answers = (await session.call("asking", "answers")).metadata["answers"]
                if len(answers) == 5:
                    return answers
                await asyncio.sleep(0.01)
            raise AssertionError("no answers")

    assert asyncio.run(main()) == {
        "session/create": {"session_id": "made"},
        "session/fork": [-32603, {"reason": "the host's own code raised RuntimeError"}],
        "session/switch": {"session_id": "s-1"},
        "session/reload": [-32603, {"reason": "the host's own code was cancelled"}],
        "theme/select": {"status": "denied", "reason": "dim"},
    }
    assert asked == ["asking"]
