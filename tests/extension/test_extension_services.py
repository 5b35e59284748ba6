"""Hooks, and what hosts do for extensions of API 0.3: sessions, themes, providers, migration."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import pytest
from echo_provider import MODEL, PROVIDER

from broker.errors import BrokerError, CancelledError, RemoteError, StreamError
from broker.extension import Continue, Defer, Deny, Extension, SessionEnd, SessionStart, ToolFailureError
from broker.host import HostServices
from broker.host.services import ProviderRegistry, ThemeCatalogue
from broker.wire.octet.migration_models import MigrationDetectParams, MigrationDetectResult
from broker.wire.octet.stream_models import Finished, ProviderStreamRequest, StreamPayload, TextDelta


class Driver:
    def create(self, asked_by: Any) -> str:
        return "created"

    def fork(self, asked_by: Any) -> str:
        return "forked"

    def switch(self, asked_by: Any, session_id: str) -> str:
        return session_id

    def reload(self, asked_by: Any) -> str:
        raise OSError("the disk is gone")


@pytest.mark.spec("octet.hook.start-once", "octet.hook.end-once")
def test_session_hooks(world: Any, app: Extension) -> None:
    seen: list[Any] = []

    @app.hook("session_start")
    async def start(payload: SessionStart) -> None:
        seen.append(payload)

    @app.hook("session_end")
    def end(payload: SessionEnd) -> Continue:
        seen.append(payload)
        return Continue(reason="saved")

    world.add(app)
    world.session.close()
    world.driver.run()
    first, last = seen
    assert (type(first), type(last)) == (SessionStart, SessionEnd)
    assert first.binding == last.binding
    assert (last.outcome, last.reason, last.duration_ms) == ("completed", "shutdown", 0)


def test_one_hook_stands_for_the_pair(world: Any, app: Extension) -> None:
    seen: list[str] = []
    app.hook("session_end")(lambda payload: seen.append(payload.reason))
    world.add(app)
    world.session.close()
    world.driver.run()
    assert seen == ["shutdown"]
    assert world.diagnostics() == []


@pytest.mark.spec("octet.hook.no-veto")
@pytest.mark.parametrize(
    ("returned", "frame"),
    [
        (Deny(reason="closed"), {"kind": "deny", "reason": "closed"}),
        (Defer(reason="later"), {"kind": "defer", "reason": "later"}),
        (Continue(), {"kind": "continue"}),
        (None, {"kind": "continue"}),
    ],
)
def test_dispositions(world: Any, app: Extension, returned: Any, frame: Any) -> None:
    app.hook("session_start")(lambda payload: returned)
    world.add(app)
    sent = [one.message for one in world.frames if one.direction == "sent"]
    assert sent[1]["result"] == {"disposition": frame}


@pytest.mark.parametrize(
    ("returned", "text"),
    [
        ("no", "hook session_start: a hook returns None, Continue, Deny or Defer, not str"),
        (Deny(reason=""), "hook session_start: disposition.reason: must not be empty"),
    ],
)
def test_a_hook_that_returns_something_else(world: Any, app: Extension, returned: Any, text: str) -> None:
    app.hook("session_start")(lambda payload: returned)
    world.add(app)
    assert text in world.diagnostics()
    assert world.session.extension("hello").generation.alive


@pytest.mark.spec("octet.session.create", "octet.session.fork", "octet.session.switch")
def test_sessions(make_world: Any) -> None:
    app = Extension("hello", "1.0.0", uses=["session_lifecycle"])

    @app.tool
    async def change() -> list[str]:
        """Changes the session."""
        assert app.host.offers("session_lifecycle")
        results = (
            await app.host.create_session(),
            await app.host.fork_session(),
            await app.host.switch_session("other"),
        )
        return [result.session_id for result in results]

    @app.tool
    def plainly() -> str:
        """Changes the session in a thread."""
        return app.host.wait(app.host.create_session()).session_id

    @app.tool
    async def reload() -> str:
        """Reloads, which fails."""
        return (await app.host.reload_session()).session_id

    world = make_world(services=HostServices(session_driver=Driver()))
    world.add(app)
    assert world.text(app, "change") == "created|forked|other"
    assert world.text(app, "plainly") == "created"
    assert world.text(app, "reload").startswith("the host refused session/reload: internal error")


def test_a_service_the_host_does_not_have(world: Any) -> None:
    app = Extension("hello", "1.0.0", uses=["session_lifecycle"])

    @app.tool
    async def change() -> str:
        """Changes the session."""
        assert not app.host.offers("session_lifecycle")
        return (await app.host.create_session()).session_id

    world.add(app)
    assert world.text(app, "change") == "session/create: this host does not offer session_lifecycle"


@pytest.mark.spec("octet.theme.selected")
def test_themes(make_world: Any) -> None:
    app = Extension("hello", "1.0.0", uses=["theme_selection"])

    @app.tool
    async def dress(theme: str) -> str:
        """Selects a theme."""
        result = await app.host.select_theme(theme)
        return f"{result.status} {result.theme_id}"

    world = make_world(services=HostServices(themes=ThemeCatalogue({"dusk": "compiled"})))
    world.add(app)
    assert world.text(app, "dress", theme="dusk") == "selected dusk"
    assert world.text(app, "dress", theme="dawn") == "the host refused theme/select: invalid params"


def test_a_request_that_is_not_answered(make_world: Any) -> None:
    class Busy(Driver):
        def create(self, asked_by: Any) -> Any:
            from broker.host import Outcome

            return Outcome()

    app = Extension("hello", "1.0.0", uses=["session_lifecycle"])

    @app.tool
    async def change() -> str:
        """Changes the session, for a second."""
        await app.host.request("session/create", {}, timeout_ms=1_000)
        return "changed"

    world = make_world(services=HostServices(session_driver=Busy()))
    world.add(app)
    assert world.text(app, "change", advance=1_000) == "the host did not answer session/create within 1000 ms"
    sent = [one.message for one in world.frames if one.direction == "sent"]
    assert [message["params"] for message in sent if message.get("method") == "$/cancelRequest"] == [
        {"id": 1, "reason": "timeout"}
    ]


# -- providers ---------------------------------------------------------------------------------------------------------


def provider() -> Extension:
    app = Extension("models", "1.0.0", uses=["provider_catalog", "provider_stream", "provider_auth"])

    @app.background
    async def register() -> None:
        await app.host.register_provider(PROVIDER, [MODEL])
        app.host.complete_providers()

    @app.provider_stream
    async def answer(request: ProviderStreamRequest) -> AsyncIterator[StreamPayload]:
        text = request.request["text"]
        if text == "no":
            raise ToolFailureError("not today")
        for word in text.split():
            yield TextDelta(index=0, delta=word)
            if word == "wait":
                await asyncio.sleep(1)
            if word == "fail":
                raise KeyError("secret")
        if text != "end":
            yield Finished(stop_reason="stop")

    @app.tool
    async def revise() -> str:
        """Updates, authorises and withdraws."""
        updated = await app.host.update_provider(PROVIDER, [])
        ready = await app.host.authorize("echo")
        gone = await app.host.unregister_provider("echo")
        return f"{updated.model_ids} {ready.status} {gone.revision}"

    return app


def taken(world: Any, text: str) -> tuple[list[Any], BrokerError | None]:
    """Everything a reader of a stream gets, and how it ended."""
    stream = world.session.stream("echo", "small", {"text": text})
    world.driver.run()
    payloads = []
    while True:
        try:
            payload = stream.take()
        except BrokerError as error:
            return payloads, error
        if payload is not None:
            payloads.append(payload)
        elif stream.ended:
            return payloads, None
        else:
            world.driver.advance(1_000)


@pytest.mark.spec("octet.provider.register", "octet.provider.stream-sequence", "octet.provider.stream-terminal")
def test_models(make_world: Any) -> None:
    world = make_world(services=HostServices(providers=ProviderRegistry()))
    app = provider()
    world.add(app)
    listed = world.session.providers("models")
    world.driver.run()
    assert [model.id for model in listed.result()[0].models] == ["small"]

    words = [TextDelta(index=0, delta=word) for word in ("a", "wait", "b")]
    assert taken(world, "a wait b") == ([*words, Finished(stop_reason="stop")], None)
    payloads, error = taken(world, "no")
    assert (payloads, type(error)) == ([], StreamError)
    assert "not today" in str(error)
    payloads, error = taken(world, "a fail")
    assert [type(payload) for payload in payloads] == [TextDelta, TextDelta]
    assert isinstance(error, StreamError)
    payloads, error = taken(world, "end")
    assert isinstance(error, StreamError)
    assert "answer ended without Finished" in world.diagnostics()
    assert world.text(app, "revise") == "() ready 3"


def test_a_stream_that_is_cancelled(make_world: Any) -> None:
    world = make_world(services=HostServices(providers=ProviderRegistry()))
    world.add(provider())
    stream = world.session.stream("echo", "small", {"text": "wait b"})
    world.driver.run()
    stream.cancel("user")
    world.driver.advance(5_000)
    with pytest.raises(CancelledError):
        stream.take()
    events = [one.message for one in world.frames if (one.message or {}).get("method") == "provider/event"]
    assert len(events) == 1
    assert world.diagnostics() == []


def test_migration(make_world: Any) -> None:
    app = Extension("import-tide", "1.0.0")

    @app.serves("migration/detect")
    def detect(params: MigrationDetectParams) -> MigrationDetectResult:
        found = params.source_root.endswith("tide")
        return MigrationDetectResult(detected=found, config_paths=("tide.toml",) if found else (), diagnostics=())

    world = make_world(services=HostServices(migrations=Roots()))
    process = world.add(app)
    request = b'{"id":70,"jsonrpc":"2.0","method":"migration/detect","params":{"source_root":"/home/tide"}}\n'
    process.hear(request)
    assert process.sent.pop() == (
        b'{"id":70,"jsonrpc":"2.0","result":{"config_paths":["tide.toml"],"detected":true,"diagnostics":[]}}\n'
    )


class Roots:
    def check_root(self, *given: Any) -> Any:
        raise RemoteError("not used here")

    def survey(self, *given: Any) -> Any:
        raise RemoteError("not used here")
