"""Wrong use fails where it stands, and says what to write instead."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any, Literal, TypedDict

import pytest
from attrs import frozen

from broker.errors import ManifestError, UsageError
from broker.extension import Context, Event, Extension, Field, SessionStart, TopicAvailability
from broker.wire.octet.migration_models import MigrationDetectParams

MANIFEST = """name = "hello"
version = "1.0.0"
api_version = "0.3"
[entrypoint]
command = "main.py"
[contributes]
tools = ["greet"]
"""


def refused(attempt: Callable[[], Any]) -> str:
    with pytest.raises(UsageError) as caught:
        attempt()
    return str(caught.value)


def named(name: str) -> Callable[..., str]:
    def tool() -> str:
        """Does it."""
        return ""

    tool.__name__ = name
    return tool


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({"api": "0.2"}, 'api must be "0.3" or "0.4", not \'0.2\' (0.1 and 0.2 are spoken by hosts, not by this kit)'),
        ({"api": "1"}, 'api must be "0.3" or "0.4", not \'1\''),
        ({"name": "Hello"}, "an extension's name is [a-z][a-z0-9-]*, at most 64 bytes, not 'Hello'"),
        ({"name": "h" * 65}, f"an extension's name is [a-z][a-z0-9-]*, at most 64 bytes, not '{'h' * 65}'"),
        (
            {"version": "one"},
            "version: 'one' is not a semantic version; write something like 1.0.0",
        ),
        ({"concurrency": 65}, "concurrency is 1 to 64, not 65"),
        ({"uses": "event_bus"}, 'uses is a list of names: uses=["event_bus"]'),
        (
            {"uses": ["sesion_lifecycle"]},
            "uses: 'sesion_lifecycle' is no capability of API 0.3; did you mean session_lifecycle?",
        ),
        ({"uses": ["composr"], "api": "0.4"}, "uses: 'composr' is no feature of API 0.4; did you mean composer?"),
    ],
)
def test_an_extension_that_cannot_be(options: dict[str, Any], text: str) -> None:
    assert refused(lambda: Extension(**{"name": "hello", "version": "1.0.0", **options})) == text


def test_tools_that_cannot_be(app: Extension) -> None:
    def undescribed(who: str) -> str:
        return who

    def untyped(who) -> str:  # type: ignore[no-untyped-def]
        """Greets."""
        return str(who)

    def strange(who: Context | set[str]) -> str:
        """Greets."""
        return str(who)

    def spread(*who: str) -> str:
        """Greets."""
        return str(who)

    assert refused(lambda: app.tool(undescribed)) == (
        'tool undescribed needs a docstring, which becomes its description: """Says what it does."""'
    )
    assert refused(lambda: app.tool(untyped)) == "tool untyped: parameter who needs a type annotation"
    assert refused(lambda: app.tool(strange)).startswith("tool strange: parameter who has the type ")
    assert refused(lambda: app.tool(spread)) == "tool spread: parameter who must be callable by name"
    app.tool(named("greet"))
    assert refused(lambda: app.tool(named("greet"))) == (
        'tool "greet" is there twice; name one of them, @app.tool(name="...")'
    )
    assert refused(lambda: app.tool(name="n" * 129)(named("x"))).endswith("' is too long")
    assert refused(lambda: app.tool(name="a\nb")(named("x"))) == "tool a\nb: name: 'a\\nb' has a control character"
    assert refused(lambda: app.tool(timeout_ms=0)(named("x"))) == 'tool "x": timeout_ms is at least 1, not 0'
    assert list(app.declaration.tools) == ["greet"]


def test_decorators_that_are_put_wrongly(app: Extension) -> None:
    def many() -> Any:
        """Gives many."""
        yield 1

    later: Any = Extension("later", "1.0.0", api="0.4")
    wrongly: Any = app
    function = named("x")
    for attempt, text in (
        (lambda: wrongly.tool("greet"), '@app.tool takes the name by its keyword: @app.tool(name="greet")'),
        (lambda: wrongly.tool(5), "@app.tool decorates a function, not int"),
        (lambda: wrongly.tool(partial(function)), '@app.tool: partial has no name; give one, @app.tool(name="...")'),
        (lambda: wrongly.tool(many), "@app.tool: many is a generator; return a list instead"),
        (lambda: later.command("greet"), '@app.command takes the name by its keyword: @app.command(name="greet")'),
        (
            lambda: wrongly.hook(function),
            '@app.hook takes a name, not function; write @app.hook("session_start") above it',
        ),
        (
            lambda: later.status(function),
            '@app.status takes a name, not function; write @app.status("status") above it',
        ),
        (
            lambda: later.render(function),
            '@app.render takes a name, not function; write @app.render("a_tool") above it',
        ),
    ):
        assert refused(attempt) == text


def test_too_many_tools(app: Extension) -> None:
    for number in range(256):
        app.tool(name=f"t{number}")(named("x"))
    assert refused(lambda: app.tool(name="more")(named("x"))) == 'tool "more": an extension has at most 256 tools'


def test_topics_that_cannot_be(app: Extension) -> None:
    class Plain:
        who: str

    @frozen
    class Bad:
        session: str

    assert refused(lambda: app.topic("bus.other.x", [])) == (
        'topic "bus.other.x" belongs to other, and hello can only declare its own: '
        'write app.topic("x", ...), or subscribe with @app.on("bus.other.x")'
    )
    assert refused(lambda: app.topic("No Good", [])) == ("topic 'No Good': expected [a-z0-9][a-z0-9_-]*, got 'No Good'")
    assert refused(lambda: app.topic("plain", Plain)).endswith("Plain is no attrs class; put @attrs.frozen above it")
    assert refused(lambda: app.topic("bad", Bad)).endswith("fields[0].name: field name 'session' contains 'session'")
    assert refused(lambda: app.topic("bad", [Field.string("a"), Field.string("a", 2_000)])) == (
        "topic bus.hello.bad: fields[1].name: duplicate field name 'a'; fields[1].max_bytes: max_bytes too large "
        "(MAX_BUS_STRING_BYTES: observed 2000, maximum 1024)"
    )
    app.topic("once", [])
    assert refused(lambda: app.topic("bus.hello.once", [])) == "topic bus.hello.once is there twice"
    for number in range(127):
        app.topic(f"t{number}", [])
    assert refused(lambda: app.topic("more", [])) == "topic bus.hello.more: a bus has at most 128 topics"


def test_subscriptions_that_cannot_be(app: Extension) -> None:
    assert refused(lambda: app.on("report")) == (
        "@app.on('report'): expected bus.<owner>.<name>, got 'report'; did you mean bus.hello.report?"
    )
    assert refused(lambda: app.on(named("x"))) == (  # type: ignore[call-overload]
        "@app.on takes a topic's name, not function; write @app.on(NAME) above it"
    )
    assert refused(lambda: app.on("bus.a.b")(named("x"))) == (
        "@app.on: x takes one argument, event; write def x(event)"
    )
    for number in range(16):
        app.on(f"bus.a.t{number}")(lambda event: None)
    app.on("bus.a.t0")(lambda event: None)
    assert refused(lambda: app.on("bus.a.more")(lambda event: None)) == (
        "@app.on(bus.a.more): a process has at most 16 subscriptions"
    )


@frozen
class Added:
    title: str


@frozen
class Removed:
    title: str


class Payload(TypedDict):
    title: str


LATER = Extension("later", "1.0.0", api="0.4")
TOPIC = "bus.todo.added"


def available(available: bool) -> None: ...


def title(title: str) -> None: ...


async def removed(event: Event[Removed]) -> None: ...


def start(payload: dict[str, Any]) -> None: ...


def words(words: str) -> None:
    """Takes words."""


def numbers(words: Sequence[int] | None) -> None:
    """Takes numbers."""


async def stream(request: str) -> Any:
    yield request


@pytest.mark.parametrize(
    ("decorate", "function", "text"),
    [
        (
            lambda app: app.on_availability(TOPIC),
            available,
            (
                "@app.on_availability: available gets TopicAvailability, with topic, available, publisher_instance_id, "
                "process_generation, and its parameter available is annotated with bool; "
                "write def available(available: TopicAvailability)"
            ),
        ),
        (
            lambda app: app.on(TOPIC),
            title,
            (
                "@app.on: title gets Event[dict[str, Any]], with topic, publisher, publisher_instance_id, "
                "process_generation, sequence, published_at_ms, payload, value, and its parameter title is "
                "annotated with "
                "str; write def title(title: Event[dict[str, Any]])"
            ),
        ),
        (
            lambda app: app.on(TOPIC, Added),
            removed,
            (
                "@app.on: removed gets Event[Added], and its parameter event is annotated with Event[Removed]; "
                'write async def removed(event: Event[Added]), or have it read as that: @app.on("bus....", Removed)'
            ),
        ),
        (
            lambda app: app.hook("session_start"),
            start,
            (
                '@app.hook("session_start"): start gets SessionStart, with binding, and its parameter payload '
                "is annotated "
                "with dict[str, Any]; write def start(payload: SessionStart)"
            ),
        ),
        (
            lambda app: app.serves("migration/detect"),
            start,
            (
                '@app.serves("migration/detect"): start gets MigrationDetectParams, with source_root, and its '
                "parameter "
                "payload is annotated with dict[str, Any]; write def start(payload: MigrationDetectParams)"
            ),
        ),
        (
            lambda app: LATER.command,
            words,
            (
                "@app.command: words gets list[str], and its parameter words is annotated with str; "
                "write def words(words: list[str])"
            ),
        ),
        (
            lambda app: LATER.command,
            numbers,
            (
                "@app.command: numbers gets list[str], and its parameter words is annotated with "
                "collections.abc.Sequence[int] | None; write def numbers(words: list[str])"
            ),
        ),
        (
            lambda app: LATER.status("footer"),
            available,
            (
                '@app.status("footer"): available gets str, and its parameter available is annotated with bool; '
                "write def available(available: str)"
            ),
        ),
        (
            lambda app: LATER.hook("before_tool_call"),
            title,
            (
                '@app.hook("before_tool_call"): title gets dict[str, Any], and its parameter title is annotated '
                "with str; "
                "write def title(title: dict[str, Any])"
            ),
        ),
        (
            lambda app: Extension("p", "1.0.0", uses=["provider_catalog", "provider_stream"]).provider_stream,
            stream,
            (
                "@app.provider_stream: stream gets ProviderStreamRequest, with stream_id, provider_id, model_id, "
                "request, authorization_lease, and its parameter request is annotated with str; "
                "write async def stream(request: ProviderStreamRequest)"
            ),
        ),
    ],
)
def test_annotations_that_are_wrong(
    app: Extension, decorate: Callable[[Extension], Any], function: Callable[..., Any], text: str
) -> None:
    assert refused(lambda: decorate(app)(function)) == text


def test_annotations_that_are_right(app: Extension) -> None:
    def anything(event: Any) -> None: ...
    def bare(event: Event) -> None: ...  # type: ignore[type-arg]
    def either(event: Event[Added] | None) -> None: ...
    def wider(event: Event[object]) -> None: ...
    def unknown(event: NotThere) -> None: ...  # type: ignore[name-defined]  # noqa: F821
    def typed(event: Event[Payload]) -> None: ...
    def mapped(event: Event[Mapping[str, Any]]) -> None: ...
    def changed(change: TopicAvailability) -> None: ...
    def begun(payload: SessionStart) -> None: ...
    def lines(words: Sequence[str]) -> None:
        """Takes words."""

    def footer(surface: Literal["footer"]) -> None: ...

    for function in (anything, bare, either, wider, unknown):
        app.on(TOPIC, Added)(function)
    for function in (typed, mapped):
        app.on(TOPIC)(function)
    app.on_availability(TOPIC)(changed)
    app.hook("session_start")(begun)
    later = Extension("later", "1.0.0", api="0.4")
    later.command(lines)
    later.status("footer")(footer)
    assert len(app.event_handlers[TOPIC]) == 7


def test_hooks_that_cannot_be(app: Extension) -> None:
    assert refused(lambda: app.hook("sesion_start")) == "unknown hook 'sesion_start'; did you mean session_start?"
    assert refused(lambda: app.hook("before_tool_call")) == (
        'hook "before_tool_call" is not run on API 0.3, which has session_start and session_end; '
        'use Extension(..., api="0.4")'
    )
    assert refused(lambda: app.hook("model_turn_start")) == (
        'hook "model_turn_start" is not run on API 0.3, which has session_start and session_end; '
        'use Extension(..., api="0.4")'
    )
    app.hook("session_start")(lambda payload: None)
    assert (
        refused(lambda: app.hook("session_start")(lambda payload: None)) == '@app.hook("session_start") is there twice'
    )


@pytest.mark.parametrize(
    ("attempt", "text"),
    [
        (lambda app: app.command(named("x")), 'commands: API 0.3 has none; use Extension(..., api="0.4")'),
        (lambda app: app.context(named("x")), 'context: API 0.3 has none; use Extension(..., api="0.4")'),
        (lambda app: app.menu(named("x")), 'menu: API 0.3 has none; use Extension(..., api="0.4")'),
        (lambda app: app.status("status"), 'status: API 0.3 has none; use Extension(..., api="0.4")'),
        (
            lambda app: app.background(named("tick")),
            "@app.background: tick must be async, for it is cancelled at the end",
        ),
        (
            lambda app: app.serves("migration/detekt"),
            "@app.serves on API 0.3 knows migration/detect, migration/import, not 'migration/detekt'",
        ),
        (
            lambda app: app.provider_stream(named("answer")),
            "@app.provider_stream: answer must be an async generator, with yield",
        ),
    ],
)
def test_what_0_3_does_not_have(app: Extension, attempt: Callable[[Extension], Any], text: str) -> None:
    assert refused(lambda: attempt(app)) == text


def test_what_0_4_does_not_have() -> None:
    app = Extension("hello", "1.0.0", api="0.4")
    assert refused(lambda: app.topic("x", [])) == 'topics: API 0.4 has no event bus; use Extension(..., api="0.3")'
    assert (
        refused(lambda: app.on("bus.a.b")) == 'subscriptions: API 0.4 has no event bus; use Extension(..., api="0.3")'
    )
    assert refused(lambda: app.status("top")) == "a surface is status, header, footer, not 'top'"  # type: ignore[arg-type]
    assert refused(lambda: app.notice("turn/setled")) == (
        "unknown notification 'turn/setled'; did you mean turn/settled?"
    )


def test_what_shows_only_when_all_is_written(world: Any) -> None:
    app = Extension("models", "1.0.0", uses=["provider_catalog", "provider_stream"])
    text = "uses names provider_stream, and nothing answers for it: put @app.provider_stream on an async generator"
    assert refused(app.check) == refused(lambda: world.begin(app)) == text
    app = Extension("hello", "1.0.0", api="0.4")
    app.menu(list)
    assert refused(app.check) == "@app.menu: a manifest with a menu has a command; write one with @app.command"
    app.command(named("x"))
    app.check()


def test_a_manifest_that_says_something_else(tmp_path: Path) -> None:
    app = Extension("hello", "2.0.0")
    app.tool(named("greet"))
    app.tool(named("leave"))
    app.hook("session_end")(lambda payload: None)
    (tmp_path / "extension.toml").write_text(MANIFEST.replace('["greet"]', '["greet", "wave"]'))
    with pytest.raises(ManifestError) as caught:
        app.check_manifest(tmp_path)
    assert str(caught.value) == "\n  ".join(
        (
            f"{tmp_path}/extension.toml and the code disagree:",
            'version: is "1.0.0", the code says "2.0.0"',
            'contributes.tools: has "wave", the code does not',
            'contributes.tools: lacks "leave", which the code has',
            'contributes.hooks: lacks "session_start", which the code has',
            'contributes.hooks: lacks "session_end", which the code has',
        )
    )


def test_a_manifest_that_agrees(tmp_path: Path, app: Extension) -> None:
    app.tool(named("greet"))
    (tmp_path / "extension.toml").write_text(MANIFEST)
    app.check_manifest(tmp_path / "extension.toml")
    with pytest.raises(ManifestError, match=re.escape(f"{tmp_path}/none.toml: No such file or directory")):
        app.check_manifest(tmp_path / "none.toml")


def test_the_host_says_the_manifest_is_another(world: Any, app: Extension) -> None:
    app.tool(named("greet"))
    started = world.begin(app, tools=["greet", "wave"])
    assert str(started.error) == "hello refused to start: -32011 extension capability mismatch"
    assert world.diagnostics()[0] == (
        "the connection to the host ended: the manifest's contributes.tools are ['greet', 'wave'], "
        "the code has ['greet']; make them the same"
    )


def test_a_service_that_was_not_named(world: Any, app: Extension) -> None:
    @app.tool
    async def fork() -> str:
        """Forks the session."""
        return (await app.host.fork_session()).session_id

    @app.tool
    async def odd() -> str:
        """Asks for what there is not."""
        await app.host.request("session/destroy", {})
        return ""

    world.add(app)
    assert world.text(app, "fork") == (
        'session/fork needs the service session_lifecycle: name it, Extension(..., uses=["session_lifecycle"])'
    )
    assert world.text(app, "odd") == "session/destroy is no method an extension of API 0.3 may send"


def test_records_are_what_handlers_of_records_return(app: Extension) -> None:
    assert MigrationDetectParams(source_root="/x").source_root == "/x"
    app.serves("migration/detect")(lambda params: None)
    assert app.declaration.serves == ["migration/detect"]
