"""A session for tests: who takes part, what happens, how long that takes, and what is left of it to look at."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import TracebackType
from typing import TYPE_CHECKING, Any, TypeAlias, TypeVar, overload

from attrs import evolve

from broker.bus import Bus, Peer
from broker.errors import UsageError
from broker.host import Call, Extension, Health, McpCall, McpServer, Notice, Outcome, Session
from broker.limits import MAX_SETTLE_MS
from broker.testing.clock import ManualClock
from broker.testing.faults import Fault, Faults
from broker.testing.memory_process import Frame
from broker.testing.plan import ProcessPlan, process_of
from broker.testing.recorder import Recorder
from broker.testing.script_run import Player
from broker.testing.scripted import ScriptedServer
from broker.testing.sequence import SequenceError
from broker.wire.feature.results import ToolResult
from broker.wire.octet.manifest_model import Manifest
from broker.wire.odek.config import ServerConfig
from broker.wire.odek.result import ToolOutput
from broker.wire.quoting import describe

if TYPE_CHECKING:
    from broker.testing.host import MemoryHost

T = TypeVar("T")
C = TypeVar("C", bound=Outcome[Any])

Server: TypeAlias = ScriptedServer | Callable[..., ScriptedServer] | ServerConfig


class MemorySession:
    """One session of a :class:`MemoryHost`; ``session`` is the sans-IO one underneath.

    ``recorder`` holds everything that happened, ``notices`` what the session announced. Used as a context manager it
    closes at the end and sees that every script was played; a failure inside is shown with the sequence.
    """

    def __init__(self, host: MemoryHost, session: Session) -> None:
        self.host: MemoryHost = host
        self.session: Session = session
        self.clock: ManualClock = host.clock
        self.notices: list[Notice] = []
        session.add_observer(self.notices.append)
        self.recorder: Recorder = Recorder(session)
        self._driver = host.driver
        self._driver.taps.append(self._tapped)
        self._driver.fault_taps.append(self.recorder.fault)
        self._peers: dict[str, Peer] = {}
        self._calls = 0

    @property
    def bus(self) -> Bus:
        """The session's bus."""
        return self.session.bus

    # -- who takes part ------------------------------------------------------------------------------------------------

    @overload
    def add(self, thing: Server, process: Any = None, *, name: str | None = None, **options: Any) -> McpServer: ...

    @overload
    def add(self, thing: Any, process: Any = None, *, name: str | None = None, **options: Any) -> Extension: ...

    def add(
        self,
        thing: Any,
        process: Any = None,
        *,
        name: str | None = None,
        source: Any = None,
        flags: Mapping[str, Any] | None = None,
        **options: Any,
    ) -> Any:
        """Add an extension or an MCP server without starting it.

        ``thing`` is an extension of the author's kit, or the path of one's directory, its ``extension.toml`` or its
        imported module, which is loaded anew for each generation (:mod:`broker.testing.loaded`). Or it is an object of
        another kind, its class, a function that makes one, or a script. A class or a function is asked for a new object
        for each generation, a function with its number if it takes one. The manifest or configuration is
        made from what the object says and ``options``: those of :func:`~broker.testing.make_manifest`, or the fields of
        :class:`~broker.wire.odek.config.ServerConfig`. Or ``thing`` is a manifest or configuration itself, and
        ``process`` what stands for its program. ``name`` is by default that of the class or function: ``RateLimiter``
        is ``rate-limiter``; an extension of the kit has its own.

        Raises :class:`UsageError` for what is none of this, and what :meth:`broker.Session.add` and
        :meth:`broker.Session.add_server` raise.
        """
        if isinstance(thing, Manifest | ServerConfig):
            if process is None or options or name is not None:
                raise UsageError(f"{thing.name}: give its process with it, and nothing that it says itself")
            plan = ProcessPlan(process_of(process, name=thing.name).make, thing)
        else:
            plan = process_of(thing, name=name, **options)
        added: Extension | McpServer
        if isinstance(plan.member, ServerConfig):
            if flags:
                raise UsageError(f"{plan.member.name} is an MCP server, which has no flags", path="flags")
            added = self.session.add_server(plan.member if source is None else evolve(plan.member, source=source))
        else:
            added = self.session.add(plan.member, source=source or "explicit", flags=flags)
        self.host.place(self.session, added.name, plan.make)
        return added

    @overload
    def start(self, thing: Server, process: Any = None, *, name: str | None = None, **options: Any) -> McpServer: ...

    @overload
    def start(self, thing: Any, process: Any = None, *, name: str | None = None, **options: Any) -> Extension: ...

    @overload
    def start(self) -> None: ...

    def start(self, thing: Any = None, process: Any = None, **options: Any) -> Any:
        """Add ``thing`` as :meth:`add` does and let things happen until it serves; a start that failed is raised.

        Without anything it starts all that were added and are not started, and lets them start beside each other.
        """
        if thing is not None:
            return self.settle(self.add(thing, process, **options).start())
        waiting = [one for one in self.session.extensions.values() if one.health is Health.STOPPED and one.ended]
        starts: list[Outcome[Any]] = [extension.start() for extension in waiting]
        starts += [server.start() for server in self.session.servers.values() if server.health is Health.STOPPED]
        for start in starts:
            self.settle(start)
        return None

    def attach(self, name: str) -> Peer:
        """Attach an in-process plugin to the bus."""
        return self.session.attach(name)

    def peer(self, name: str) -> Peer:
        """The in-process plugin called ``name``: attached to the bus at first, the same afterwards."""
        peer = self._peers.get(name)
        if peer is None or peer.closed:
            peer = self._peers[name] = self.session.attach(name)
        return peer

    def process(self, name: str) -> Any:
        """The object that runs as the newest process called ``name``; raises :class:`UsageError` when none does."""
        found = self._driver.process(name)
        if found is None:
            raise UsageError(f"no process called {name} runs", extension=name)
        return found

    def extension(self, name: str) -> Extension:
        """The extension called ``name``."""
        return self.session.extension(name)

    def server(self, name: str) -> McpServer:
        """The MCP server called ``name``."""
        return self.session.server(name)

    # -- what happens --------------------------------------------------------------------------------------------------

    def add_observer(self, observer: Callable[[Notice], object]) -> Callable[[], None]:
        """Call ``observer(notice)`` for starts, exits, health and diagnostics; gives a function that ends it."""
        return self.session.add_observer(observer)

    def run(self) -> None:
        """Let everything happen that can without time passing."""
        self._driver.run()

    def advance(self, milliseconds: int) -> None:
        """Let time pass, stopping at every deadline on the way."""
        self._driver.advance(milliseconds)

    def settle(self, outcome: Outcome[T], *, within_ms: int = MAX_SETTLE_MS) -> T:
        """Let things happen until ``outcome`` settles; its result, or the error it failed with is raised.

        Time passes from deadline to deadline only when nothing else can happen, and ``within_ms`` at most; with 0 none
        does. Raises ``AssertionError`` with the sequence when it stays open.
        """
        self.until(lambda: outcome.done, within_ms=within_ms)
        return outcome.result()

    def until(self, condition: Callable[[], object], *, within_ms: int = MAX_SETTLE_MS) -> None:
        """Let things happen until ``condition()`` holds, as :meth:`settle` does."""
        end = self.clock.monotonic_ms() + within_ms
        self.run()
        while not condition() and self.clock.monotonic_ms() < end and self._driver.next_deadline() is not None:
            self._driver.advance_to_deadline(end)
        if not condition():
            raise self._stuck(within_ms)

    def begin(self, extension: str, tool: str, arguments: Any = None, *, timeout_ms: int | None = None) -> Call:
        """Call a tool of an extension and return at once; nothing happens before the next :meth:`run`."""
        given = {} if arguments is None else arguments
        return self._followed(
            extension, tool, given, lambda: self.session.call(extension, tool, given, timeout_ms=timeout_ms)
        )

    def begin_server(self, server: str, tool: str, arguments: Any = None, *, timeout_ms: int | None = None) -> McpCall:
        """The same with a tool of an MCP server, by its raw name."""
        given = {} if arguments is None else arguments
        return self._followed(
            server, tool, given, lambda: self.session.server(server).call(tool, given, timeout_ms=timeout_ms)
        )

    def call(self, extension: str, tool: str, arguments: Any = None, *, timeout_ms: int | None = None) -> ToolResult:
        """Call a tool of an extension and let things happen until it settles; ``arguments`` defaults to ``{}``.

        Errors are those of :meth:`broker.host.Extension.call`.
        """
        return self.settle(self.begin(extension, tool, arguments, timeout_ms=timeout_ms))

    def call_server(
        self, server: str, tool: str, arguments: Any = None, *, timeout_ms: int | None = None
    ) -> ToolOutput:
        """Call a tool of an MCP server by its raw name, as :meth:`call` does."""
        return self.settle(self.begin_server(server, tool, arguments, timeout_ms=timeout_ms))

    def reload(self, extension: str, manifest: Manifest | None = None) -> Extension:
        """Replace an extension's process by a new generation; see :meth:`broker.host.Extension.reload`."""
        return self.settle(self.session.extension(extension).reload(manifest))

    def stop(self, name: str) -> None:
        """Stop an extension in order and forget it, or stop an MCP server."""
        if name in self.session.servers:
            self.settle(self.session.server(name).stop())
            return
        self.settle(self.session.extension(name).stop())
        self.session.remove(name)

    def inject(self, fault: Fault | Faults) -> None:
        """Have a fault, or each of a plan, happen now, whatever moment it names."""
        for one in fault.faults if isinstance(fault, Faults) else (fault,):
            self._driver.inject(one)
        self.run()

    def close(self) -> None:
        """Stop everything in order, letting time pass for it, and close the bus. Idempotent."""
        self.settle(self.session.close())
        self.recorder.close()
        if self._tapped in self._driver.taps:
            self._driver.taps.remove(self._tapped)
            self._driver.fault_taps.remove(self.recorder.fault)

    def check_scripts(self) -> None:
        """Every script that ran was played to its end, or struck by a fault; :class:`ScriptError` otherwise."""
        for link, process in self._driver.spawned_by.items():
            if link.session is self.session and isinstance(process, Player) and link not in self._driver.struck:
                process.run.check_played()

    def report(self) -> str:
        """What happened as a sequence, and how to make it happen again."""
        return f"{self.recorder}\n{self.host.replay_line}"

    def __enter__(self) -> MemorySession:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if error is None:
            self.close()
            self.check_scripts()
        else:
            error.add_note(self.host.replay_line if isinstance(error, SequenceError) else self.report())

    # -- inside --------------------------------------------------------------------------------------------------------

    def _followed(self, name: str, tool: str, arguments: Any, call: Callable[[], C]) -> C:
        self._calls += 1
        number = self._calls
        self.recorder.call(name, "call", {"tool": tool, "arguments": arguments}, number)

        def settled(done: Outcome[Any]) -> None:
            self._settled(name, number, done.error)

        try:
            outcome = call()
        except Exception as error:
            self._settled(name, number, error)
            raise
        outcome.add_callback(settled)
        return outcome

    def _settled(self, name: str, number: int, error: Exception | None) -> None:
        self.recorder.call(name, "returned" if error is None else "raised", error and describe(error), number)

    def _tapped(self, frame: Frame) -> None:
        if frame.link.session is self.session:
            self.recorder.frame(frame)

    def _stuck(self, within_ms: int) -> SequenceError:
        due = self._driver.next_deadline()
        if due is None:
            why = "nothing more happens by itself; does somebody wait for what nobody sends?"
        else:
            left = due - self.clock.monotonic_ms()
            why = f"nothing more happens within {within_ms} ms; the next deadline is in {left} ms"
        return SequenceError(f"still open: {why}\n{self.recorder}")
