"""How functions of an author end when nobody planned it, and what the host hears of that."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator
from functools import partial
from typing import Any

import pytest
from echo_provider import MODEL, PROVIDER

from broker import Field
from broker.errors import ExitedError, StreamError, UsageError
from broker.extension import Event, Extension, ToolFailureError
from broker.host import HostServices
from broker.host.services import ProviderRegistry
from broker.testing import Faults, sent
from broker.wire.octet.stream_models import Finished, ProviderStreamRequest, StreamPayload, TextDelta


async def await_cancelled() -> None:
    task = asyncio.ensure_future(asyncio.sleep(5))
    task.cancel()
    await task


@pytest.mark.parametrize("api", ["0.3", "0.4"])
def test_a_refusal_that_quotes_what_no_encoding_holds_is_still_an_answer(world: Any, api: Any) -> None:
    app = Extension("hello", "1.0.0", api=api)

    @app.hook("session_start")
    def start(payload: Any) -> None:
        raise ToolFailureError("no such file: caf\udce9")

    world.add(app)
    (answer,) = [
        frame.message["error"]
        for frame in world.frames
        if frame.direction == "sent" and "error" in (frame.message or {})
    ]
    assert answer["data"] == {"reason": "no such file: caf\ufffd"}


def test_a_tool_that_awaits_what_was_cancelled_has_failed(world: Any, app: Extension) -> None:
    @app.tool
    async def impatient() -> str:
        """Gives up what it waits for."""
        await await_cancelled()
        return "never"

    world.add(app)
    result = world.call(app, "impatient")
    assert result.is_error
    assert [part.text for part in result.content] == ["impatient awaited something that was cancelled"]


def test_an_event_handler_that_awaits_what_was_cancelled_gets_the_next_event(world: Any, app: Extension) -> None:
    ticks = app.topic("tick", [Field.integer("n")])
    seen: list[int] = []

    @app.on(ticks)
    async def on_tick(event: Event[dict[str, Any]]) -> None:
        seen.append(event.payload["n"])
        if event.payload["n"] == 0:
            await await_cancelled()

    @app.tool
    async def publish() -> str:
        """Publishes three."""
        await asyncio.gather(*(ticks.publish(n=number) for number in range(3)))
        return "ok"

    world.add(app)
    assert world.text(app, "publish") == "ok"
    assert seen == [0, 1, 2]
    assert "CancelledError" in world.diagnostics()[-1]


def test_what_a_function_raises_while_it_is_ended_is_logged(world: Any, app: Extension) -> None:
    @app.background
    async def watch() -> None:
        try:
            await asyncio.sleep(3_600)
        finally:
            raise KeyError("the last words")

    world.add(app)
    world.memory.stop("hello")
    assert "KeyError: 'the last words'" in world.diagnostics()
    assert "watch failed:" in world.diagnostics()


@pytest.mark.parametrize("kind", ["tool", "event", "background"])
def test_an_interrupt_ends_the_test_and_is_no_failure_of_a_function(world: Any, app: Extension, kind: str) -> None:
    ticks = app.topic("tick", [Field.integer("n")])

    async def interrupted(*_: Any) -> None:
        raise KeyboardInterrupt

    @app.tool
    async def go() -> str:
        """Goes."""
        if kind == "tool":
            await interrupted()
        await ticks.publish(n=1)
        return "ok"

    @app.on(ticks)
    async def on_tick(event: Event[dict[str, Any]]) -> None:
        if kind == "event":
            await interrupted()

    if kind == "background":
        app.background(interrupted)

    def play() -> None:
        world.add(app)
        world.call(app, "go")

    with pytest.raises(KeyboardInterrupt):
        play()


@pytest.mark.parametrize("stubborn", [False, True])
def test_no_thread_of_a_killed_extension_is_left(make_world: Any, app: Extension, stubborn: bool) -> None:
    world = make_world(faults=Faults().kill("hello", when=sent("bus/publish")))
    ticks = app.topic("tick", [Field.integer("n")])
    ended: list[str] = []

    @app.tool
    def publish() -> str:
        """Publishes, and waits for the host's receipt."""
        ended.append(threading.current_thread().name)
        try:
            ticks.publish_sync(n=1)
        finally:
            if stubborn:
                ticks.publish_sync(n=2)
        return "never"

    world.add(app)
    outcome = world.session.call("hello", "publish", {})
    world.memory.run()
    assert isinstance(outcome.error, ExitedError)
    assert ended
    assert not [thread for thread in threading.enumerate() if thread.name in ended]


# -- streams -----------------------------------------------------------------------------------------------------------


def provider(closed: list[str], finished: str = "stop") -> Extension:
    app = Extension("models", "1.0.0", uses=["provider_catalog", "provider_stream"])

    @app.background
    async def register() -> None:
        await app.host.register_provider(PROVIDER, [MODEL])
        app.host.complete_providers()

    @app.provider_stream
    async def answer(request: ProviderStreamRequest) -> AsyncIterator[StreamPayload]:
        if request.request["text"] == "no":
            raise ToolFailureError("not caf\udce9")
        try:
            yield TextDelta(index=0, delta="a")
            yield Finished(stop_reason=finished)
        finally:
            closed.append("closed")

    return app


def test_a_last_event_that_the_host_does_not_take_is_no_end_of_the_stream(make_world: Any) -> None:
    world = make_world(services=HostServices(providers=ProviderRegistry()))
    world.add(provider([], finished="x" * 2_000_000))
    stream = world.session.stream("echo", "small", {"text": ""})
    world.driver.run()
    assert stream.take() == TextDelta(index=0, delta="a")
    with pytest.raises(StreamError, match="the provider reported an error"):
        stream.take()


def test_a_stream_refused_in_words_that_no_encoding_holds_is_refused(make_world: Any) -> None:
    world = make_world(services=HostServices(providers=ProviderRegistry()))
    world.add(provider([]))
    stream = world.session.stream("echo", "small", {"text": "no"})
    world.driver.run()
    with pytest.raises(Exception, match="not caf\ufffd"):
        stream.take()


def test_the_generator_of_a_cancelled_stream_is_closed_before_anything_else(make_world: Any) -> None:
    closed: list[str] = []
    world = make_world(services=HostServices(providers=ProviderRegistry()))
    process = world.add(provider(closed))

    async def never() -> None:
        await asyncio.get_running_loop().create_future()

    process.runtime._drain = never  # the host reads nothing: the generator waits at its first yield
    stream = world.session.stream("echo", "small", {"text": ""})
    world.driver.run()
    assert closed == []
    feeding = next(iter(process.runtime.calls._streams.values()))
    feeding.add_done_callback(lambda _: closed.append("over"))
    stream.cancel("user")
    world.driver.run()
    assert closed == ["closed", "over"]


# -- decorators --------------------------------------------------------------------------------------------------------


def test_wrong_functions_without_a_name_are_refused_like_others() -> None:
    app = Extension("hello", "1.0.0", uses=["provider_catalog", "provider_stream"])

    def plain() -> None: ...

    def generator() -> Any:
        yield 1

    for attempt, text in (
        (lambda: app.background(partial(plain)), "@app.background: plain must be async"),
        (lambda: app.provider_stream(partial(plain)), "@app.provider_stream: plain must be an async generator"),
        (lambda: app.on("bus.a.b")(partial(generator)), "@app.on: generator is a generator"),
    ):
        with pytest.raises(UsageError, match=text):
            attempt()


def test_what_was_refused_is_no_part_of_the_extension() -> None:
    app = Extension("hello", "1.0.0", api="0.4")
    for decorate in (app.menu, app.context):
        with pytest.raises(UsageError):
            decorate(lambda one, two: None)
    assert not app.declaration.menu and not app.declaration.context


def test_one_extension_streams_with_one_function() -> None:
    app = provider([])
    with pytest.raises(UsageError, match=r"@app\.provider_stream is there twice"):
        app.provider_stream(app.handlers["provider stream"].function)
    with pytest.raises(UsageError) as caught:
        Extension("hello", "1.0.0", api="0.4").provider_stream(lambda request: None)
    assert str(caught.value) == 'provider streams: API 0.4 has none; use Extension(..., api="0.3")'


@pytest.mark.parametrize(
    ("attempt", "text"),
    [
        (lambda app: app.tool(name="")(len), "@app.tool: a name is a text that is not empty, not ''"),
        (lambda app: app.tool(name=5)(len), "@app.tool: a name is a text that is not empty, not 5"),
        (
            lambda app: app.topic(int, "level"),
            'app.topic takes a name first, not type; write app.topic("a-name", ...)',
        ),
        (lambda app: app.tool(timeout_ms="5")(len), "tool \"len\": timeout_ms is at least 1, not '5'"),
    ],
)
def test_wrong_arguments_of_decorators_are_said_in_words(app: Extension, attempt: Any, text: str) -> None:
    with pytest.raises(UsageError) as caught:
        attempt(app)
    assert str(caught.value) == text
