"""The author's kit: an octet extension from typed functions.

::

    app = Extension("hello", "1.0.0")

    @app.tool
    def greet(who: str) -> str:
        '''Greets somebody.'''
        return f"hello, {who}"

    app.run()

Decorators check at once what they are given, so that wrong use fails where it stands and says what to write instead.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Sequence
from types import GenericAlias
from typing import Any, Final, Literal, TypeVar, overload

from broker.bus import Field
from broker.bus.typed import TypedTopic
from broker.errors import UsageError
from broker.extension.declaration import ApiVersion, Declaration
from broker.extension.events import TopicAvailability
from broker.extension.handlers import (
    Handler,
    background_handler,
    check_given,
    description_of,
    gets_of,
    name_of,
    plain_handler,
    read_tool,
    stream_handler,
)
from broker.extension.host_client import HostClient
from broker.extension.names import check_identity, check_services, check_version
from broker.extension.runtime import Runtime
from broker.extension.scope import CURRENT, LOADING
from broker.extension.topics import Event, P, Topic, own_topic_name, read_fields, topic_given
from broker.extension.wrong_use import show_briefly
from broker.limits import CONCURRENT_CALLS, MAX_BUS_SUBSCRIPTIONS, MAX_BUS_TOPICS, MAX_TOOLS
from broker.wire.feature.features import LIFECYCLE_EVENTS
from broker.wire.octet.manifest import HOOKS, SESSION_HOOKS
from broker.wire.suggestion import suggestion

F = TypeVar("F", bound=Callable[..., Any])
R = TypeVar("R")
T = TypeVar("T")

_SERVED: Final = ("migration/detect", "migration/import", "resource/dispose")
_SURFACES: Final = ("status", "header", "footer")


class Extension:
    """One octet extension: what it offers, and the functions behind that.

    ``name`` and ``version`` are those of its manifest. ``api`` is ``"0.3"``, which has the bus, or ``"0.4"``. ``uses``
    names services of the host: capabilities of 0.3 such as ``session_lifecycle``, features of 0.4 such as
    ``dynamic_tools``; they are used where the host offers them. ``concurrency`` is how many requests it takes at once.
    """

    def __init__(
        self,
        name: str,
        version: str,
        *,
        api: ApiVersion = "0.3",
        uses: Iterable[str] = (),
        concurrency: int = CONCURRENT_CALLS,
    ) -> None:
        show_briefly(sys._getframe(1))
        check_identity(name, version, api, concurrency)
        self.declaration: Declaration = Declaration(name, version, api, check_services(api, uses), concurrency)
        self.host: HostClient = HostClient(self)
        self.handlers: dict[str, Handler] = {}
        self.event_handlers: dict[str, list[tuple[Handler, TypedTopic | None]]] = {}
        self.availability_handlers: dict[str, list[Handler]] = {}
        self.background_functions: list[Handler] = []
        self._process_runtime: Runtime | None = None

    def __repr__(self) -> str:
        return f"<Extension {self.name} {self.declaration.version} (API {self.api})>"

    @property
    def name(self) -> str:
        """The extension's name, which owns its topics."""
        return self.declaration.name

    @property
    def api(self) -> ApiVersion:
        """The version of the extension API it speaks."""
        return self.declaration.api

    # -- tools and commands --------------------------------------------------------------------------------------------

    @overload
    def tool(self, function: F, /) -> F: ...

    @overload
    def tool(
        self, /, *, name: str | None = None, timeout_ms: int | None = None, truncate: bool = False
    ) -> Callable[[F], F]: ...

    def tool(
        self,
        function: F | None = None,
        /,
        *,
        name: str | None = None,
        timeout_ms: int | None = None,
        truncate: bool = False,
    ) -> F | Callable[[F], F]:
        """Make a function a tool: its parameters are the schema, its docstring the description, its name the name.

        Parameters are annotated with ``str``, ``int``, ``float``, ``bool``, ``list[...]``, ``dict[str, ...]``,
        ``Literal[...]`` or a union of those; one annotated with :class:`Context` gets the call's context. What it may
        return: :func:`broker.extension.results.result_json`. A call that takes longer than ``timeout_ms`` fails. A
        result over the host's frame bound fails too; with ``truncate`` its text is cut, with a notice, instead.
        """

        def decorate(function: F) -> F:
            self._add_tool(function, name_of("@app.tool", function, name), timeout_ms, truncate)
            return function

        return decorate if function is None else decorate(function)

    @overload
    def command(self, function: F, /) -> F: ...

    @overload
    def command(self, /, *, name: str | None = None) -> Callable[[F], F]: ...

    def command(self, function: F | None = None, /, *, name: str | None = None) -> F | Callable[[F], F]:
        """Make a function a command (0.4). It takes the words behind the command and returns the text to show.

        It may return a :class:`~broker.wire.feature.results.CommandResult` as well, with notifications and context.
        """

        def decorate(function: F) -> F:
            chosen = name_of("@app.command", function, name)
            self._only_0_4("commands")
            if chosen in self.declaration.commands:
                raise UsageError(f'command "{chosen}" is there twice; name one of them, @app.command(name="...")')
            description = description_of(f"command {chosen}", function)
            self.handlers[f"command {chosen}"] = plain_handler(
                "@app.command", function, "words", list[str], optional=True
            )
            self.declaration.commands[chosen] = description
            return function

        return decorate if function is None else decorate(function)

    # -- the bus -------------------------------------------------------------------------------------------------------

    @overload
    def topic(self, name: str, described: Callable[P, T], /) -> Topic[P, T]: ...

    @overload
    def topic(self, name: str, described: Sequence[Field], /) -> Topic[..., dict[str, Any]]: ...

    def topic(self, name: str, described: Any, /) -> Topic[Any, Any]:
        """A topic ``bus.<this extension>.<name>``, declared when there is a binding, and again after each new one.

        ``described`` is an attrs class, whose attributes are the fields, or a list of :class:`broker.Field`.
        """
        self._only_0_3("topics")
        full = own_topic_name(self.name, name)
        topics = self.declaration.topics
        if full in topics:
            raise UsageError(f"topic {full} is there twice", topic=full)
        if len(topics) >= MAX_BUS_TOPICS:
            raise UsageError(f"topic {full}: a bus has at most {MAX_BUS_TOPICS} topics", topic=full)
        fields, typed = read_fields(full, described)
        topics[full] = fields
        return Topic(self, full, fields, typed)

    @overload
    def on(
        self, topic: str, /
    ) -> Callable[[Callable[[Event[dict[str, Any]]], R]], Callable[[Event[dict[str, Any]]], R]]: ...

    @overload
    def on(self, topic: str, read_as: type[T], /) -> Callable[[Callable[[Event[T]], R]], Callable[[Event[T]], R]]: ...

    @overload
    def on(self, topic: Topic[..., T], /) -> Callable[[Callable[[Event[T]], R]], Callable[[Event[T]], R]]: ...

    def on(self, topic: Any, read_as: Any = None, /) -> Any:
        """Have a function called with each :class:`Event` of a topic, in order, one at a time.

        The subscription is made when there is a binding, and again when its publisher comes (back) or the binding is
        new. With ``read_as``, an attrs class, the event's ``value`` is an instance; an event that does not fit is
        left out and logged. What it returns is ignored; what it raises is logged.
        """
        self._only_0_3("subscriptions")
        own = topic if isinstance(topic, Topic) else None
        name = topic_given("@app.on", topic.name if own else topic, self.name)
        typed = own._typed if own is not None else None if read_as is None else read_fields(name, read_as)[1]

        def decorate(function: F) -> F:
            read = dict[str, Any] if typed is None else typed.cls
            handler = plain_handler("@app.on", function, "event", GenericAlias(Event, (read,)))
            self._subscribe(name, "@app.on")
            self.event_handlers.setdefault(name, []).append((handler, typed))
            return function

        return decorate

    def on_availability(
        self, topic: str, /
    ) -> Callable[[Callable[[TopicAvailability], R]], Callable[[TopicAvailability], R]]:
        """Have a function called with a :class:`TopicAvailability` when a topic gets or loses its publisher.

        In order, one at a time. That is a subscription too; nothing comes for a publisher that was there before.
        """
        self._only_0_3("subscriptions")
        name = topic_given("@app.on_availability", topic, self.name)

        def decorate(function: Callable[[TopicAvailability], R]) -> Callable[[TopicAvailability], R]:
            handler = plain_handler("@app.on_availability", function, "change", TopicAvailability)
            self._subscribe(name, "@app.on_availability")
            self.availability_handlers.setdefault(name, []).append(handler)
            return function

        return decorate

    # -- hooks and what the host collects ------------------------------------------------------------------------------

    def hook(self, name: str, /) -> Callable[[F], F]:
        """Have a function called for a hook of the host, named as in the manifest.

        It takes the payload (:class:`SessionStart`, :class:`SessionEnd`; plain JSON for the other hooks, which only
        0.4 has) and returns ``None``, :class:`Continue`, :class:`Deny`, :class:`Defer`, or on 0.4 a
        :class:`~broker.wire.feature.results.HookResult`.
        """
        check_given("@app.hook", name, "session_start")
        if name not in HOOKS["0.4"]:
            raise UsageError(f"unknown hook {name!a:.80}{suggestion(name, HOOKS['0.4'])}")
        if self.api == "0.3" and name not in SESSION_HOOKS:
            raise UsageError(
                f'hook "{name}" is not run on API 0.3, which has {" and ".join(SESSION_HOOKS)}; '
                'use Extension(..., api="0.4")'
            )
        return self._handles("hook", name, "payload", gets_of(name), self.declaration.hooks)

    def context(self, function: F, /) -> F:
        """Have a function called for the context of a prompt (0.4): it takes the prompt and returns ContextItems."""
        self._only_0_4("context")
        self._handles("context", "", "prompt", str)(function)
        self.declaration.context = True
        return function

    def status(self, surface: Literal["status", "header", "footer"], /) -> Callable[[F], F]:
        """Have a function called for what a surface shows (0.4): it returns a text, a ``StatusItem`` or ``None``."""
        self._only_0_4("status")
        check_given("@app.status", surface, "status")
        if surface not in _SURFACES:
            raise UsageError(f"a surface is {', '.join(_SURFACES)}, not {surface!a:.80}")
        return self._handles("status", surface, "surface", str, self.declaration.ui, optional=True)

    def menu(self, function: F, /) -> F:
        """Have a function called for the menu (0.4): it returns the tree of it. A menu needs a command."""
        self._only_0_4("menu")
        self._handles("menu", "", "context", gets_of("menu"), optional=True)(function)
        self.declaration.menu = True
        return function

    def render(self, tool: str, /) -> Callable[[F], F]:
        """Have a function render what a tool did (0.4): it takes the call and returns ``Segment`` items or a text."""
        self._only_0_4("render")
        check_given("@app.render", tool, "a_tool")
        return self._handles("render", tool, "call", gets_of("render"), self.declaration.renders)

    def notice(self, method: str, /) -> Callable[[F], F]:
        """Have a function called in order for notifications (0.4) such as ``turn/settled``; it takes their members."""
        self._only_0_4("notice")
        check_given("@app.notice", method, "turn/settled")
        family = method.partition("/")[0]
        if method not in LIFECYCLE_EVENTS and family not in ("message", "compaction", "dialog", "model"):
            raise UsageError(f"unknown notification {method!a:.80}{suggestion(method, LIFECYCLE_EVENTS)}")
        return self._handles("notice", method, "members", gets_of(method), self.declaration.notices)

    def serves(self, method: str, /) -> Callable[[F], F]:
        """Have a function answer ``migration/detect`` or ``/import`` (0.3): record in, record out."""
        check_given("@app.serves", method, "migration/detect")
        known = [name for name in _SERVED if name.startswith("migration/") is (self.api == "0.3")]
        if method not in known:
            raise UsageError(f"@app.serves on API {self.api} knows {', '.join(known)}, not {method!a:.80}")
        return self._handles("serves", method, "params", gets_of(method), self.declaration.serves)

    def provider_stream(self, function: F, /) -> F:
        """Have an async generator answer for the models this extension registered (0.3).

        It takes a :class:`~broker.wire.octet.stream_models.ProviderStreamRequest` and yields the payloads of that
        module, ``Finished`` last. Raising a :class:`ToolFailureError` before the first payload refuses the request.
        Needs ``uses=["provider_catalog", "provider_stream"]``.
        """
        self._only_0_3("provider streams", "has none")
        if "provider stream" in self.handlers:
            raise UsageError("@app.provider_stream is there twice")
        self.handlers["provider stream"] = stream_handler("@app.provider_stream", function, self.declaration.uses)
        return function

    def background(self, function: F, /) -> F:
        """Have an ``async`` function run from the start to the end; it is cancelled when the extension ends."""
        self.background_functions.append(background_handler("@app.background", function))
        return function

    # -- running -------------------------------------------------------------------------------------------------------

    def check(self) -> None:
        """Raise :class:`~broker.errors.UsageError` for what shows only at the end; :meth:`run` begins with it."""
        if "provider_stream" in self.declaration.uses and "provider stream" not in self.handlers:
            raise UsageError(
                "uses names provider_stream, and nothing answers for it: put @app.provider_stream on an async generator"
            )
        if self.declaration.menu and not self.declaration.commands:
            raise UsageError("@app.menu: a manifest with a menu has a command; write one with @app.command")

    def check_manifest(self, path: Any) -> None:
        """Hold the code against an ``extension.toml``; :class:`~broker.errors.ManifestError` lists what disagrees."""
        from broker.extension.manifest_check import check_manifest

        check_manifest(self.declaration, path)

    def run(self) -> None:
        """Be the extension's process: serve the host over stdin and stdout until it ends the session.

        Before that, ``extension.toml`` beside the program is held against the code. Ends the process with status 2
        when something is set up wrongly and 1 when the host broke the protocol; the reason is on stderr.
        """
        from broker.extension.stdio import run

        if (program := LOADING.get()) is not None:
            raise UsageError(
                f'{program}: run() is reached when the program is only loaded; put it below if __name__ == "__main__":'
            )
        run(self)

    def current_runtime(self, what: str) -> Runtime:
        """The runtime of the process that the caller belongs to; :class:`~broker.errors.UsageError` when none runs."""
        scope = CURRENT.get()
        if scope is not None and scope.runtime.app is self:
            return scope.runtime
        if self._process_runtime is not None:
            return self._process_runtime
        raise UsageError(f"{what}: the extension is not running; do this in a tool, hook, event or background function")

    def set_process_runtime(self, runtime: Runtime | None) -> None:
        """Say which runtime code outside all handlers belongs to: threads of an author's own."""
        self._process_runtime = runtime

    # -- inside --------------------------------------------------------------------------------------------------------

    def _add_tool(self, function: Callable[..., Any], name: str, timeout_ms: int | None, truncate: bool) -> None:
        tools = self.declaration.tools
        if name in tools:
            raise UsageError(f'tool "{name}" is there twice; name one of them, @app.tool(name="...")', path=name)
        if len(tools) >= MAX_TOOLS:
            raise UsageError(f'tool "{name}": an extension has at most {MAX_TOOLS} tools', path=name)
        tools[name], self.handlers[f"tool {name}"] = read_tool(name, function, timeout_ms, truncate)

    def _handles(
        self, kind: str, name: str, argument: str, gets: Any, names: list[str] | None = None, *, optional: bool = False
    ) -> Callable[[F], F]:
        key = f"{kind} {name}" if name else kind
        what = f'@app.{kind}("{name}")' if name else f"@app.{kind}"

        def decorate(function: F) -> F:
            if key in self.handlers:
                raise UsageError(f"{what} is there twice")
            self.handlers[key] = plain_handler(what, function, argument, gets, optional=optional)
            if names is not None:
                names.append(name)
            return function

        return decorate

    def _subscribe(self, topic: str, what: str) -> None:
        known = self.declaration.subscriptions
        if topic in known:
            return
        if len(known) >= MAX_BUS_SUBSCRIPTIONS:
            raise UsageError(f"{what}({topic}): a process has at most {MAX_BUS_SUBSCRIPTIONS} subscriptions")
        known.append(topic)

    def _only_0_4(self, what: str) -> None:
        check_version(what, self.api, "0.4")

    def _only_0_3(self, what: str, problem: str = "has no event bus") -> None:
        check_version(what, self.api, "0.3", problem)
