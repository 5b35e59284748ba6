"""What a test does with a session, whatever carries it: objects in memory, or real processes."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from typing import Any, TypeAlias, TypeVar, overload

from attrs import evolve

from broker.bus import Bus, Peer
from broker.clock import Clock
from broker.errors import UsageError
from broker.host import (
    Call,
    Diagnostic,
    Exited,
    Extension,
    Health,
    McpCall,
    McpServer,
    Notice,
    Outcome,
    Session,
)
from broker.testing.faults import Fault, Faults
from broker.testing.plan import Make
from broker.testing.recorder import Recorder
from broker.testing.scripted import ScriptedServer
from broker.wire.feature.results import ToolResult
from broker.wire.octet.manifest_model import Manifest
from broker.wire.odek.config import ServerConfig
from broker.wire.odek.result import ToolOutput
from broker.wire.quoting import describe, escape

T = TypeVar("T")
C = TypeVar("C", bound=Outcome[Any])

Server: TypeAlias = ScriptedServer | Callable[..., ScriptedServer] | ServerConfig


class DrivenSession(ABC):
    """A session whose test decides when things happen; the base of those in memory and over real processes.

    ``session`` is the sans-IO one underneath, ``recorder`` holds what happened, ``notices`` what it announced.
    """

    clock: Clock

    def __init__(self, session: Session) -> None:
        self.session: Session = session
        self.notices: list[Notice] = []
        session.add_observer(self.notices.append)
        self.recorder: Recorder = Recorder(session)
        self._peers: dict[str, Peer] = {}
        self._calls = 0

    def __repr__(self) -> str:
        names = ", ".join((*self.session.extensions, *self.session.servers))
        return f"<{type(self).__name__} of {escape(names) or 'nobody'}>"

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

        ``thing`` is an extension of the author's kit, or the path of one (in memory its program is loaded anew for each
        generation, see :mod:`broker.testing.loaded`). Or it is an object of another kind, its class, a function that
        makes one, or a script. A class or a function is asked for a new object for each generation, a function with its
        number if it takes one. The manifest or configuration is made from what the object says and ``options``: those
        of :func:`~broker.testing.make_manifest`, or the fields of :class:`~broker.wire.odek.config.ServerConfig`. Or
        ``thing`` is a manifest or configuration itself, and ``process`` what stands for its program. ``name`` is by
        default that of the class or function: ``RateLimiter`` is ``rate-limiter``; an extension of the kit has its own.

        Raises :class:`UsageError` for what is none of this, and what :meth:`broker.Session.add` and
        :meth:`broker.Session.add_server` raise.
        """
        if isinstance(thing, Manifest | ServerConfig) and (options or name is not None):
            raise UsageError(f"{thing.name}: give nothing with it that it says itself")
        member, make = self._planned(thing, process, name, options)
        added: Extension | McpServer
        if isinstance(member, ServerConfig):
            if flags:
                raise UsageError(f"{member.name} is an MCP server, which has no flags", path="flags")
            added = self.session.add_server(member if source is None else evolve(member, source=source))
        else:
            added = self.session.add(member, source=source or "explicit", flags=flags)
        self._place(added.name, make)
        return added

    def replace(self, name: str, process: Any) -> None:
        """Have ``process`` stand for the program of ``name`` from its next generation on, as :meth:`add` takes it."""
        found = self.session.servers.get(name)
        member = self.session.extension(name).manifest if found is None else found.config
        self._place(name, self._planned(member, process, None, {})[1])

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

    def exits(self, name: str | None = None) -> list[tuple[int, int | None, str]]:
        """Generation, status and reason of every process that has ended, or of those called ``name``."""
        found = [notice for notice in self.notices if isinstance(notice, Exited)]
        return [(one.generation, one.status, one.reason) for one in found if name in (None, one.extension)]

    def diagnostics(self, name: str | None = None) -> list[str]:
        """The text of every diagnostic, or of those about ``name``."""
        found = [notice for notice in self.notices if isinstance(notice, Diagnostic)]
        return [one.text for one in found if name in (None, one.extension)]

    @abstractmethod
    def run(self) -> None:
        """Let everything happen that can without time passing."""

    @abstractmethod
    def advance(self, milliseconds: int) -> None:
        """Let time pass, and everything happen that becomes due."""

    @abstractmethod
    def until(self, condition: Callable[[], object], *, within_ms: int | None = None) -> None:
        """Let things happen until ``condition()`` holds; ``AssertionError`` with the sequence when it does not."""

    def settle(self, outcome: Outcome[T], *, within_ms: int | None = None) -> T:
        """Let things happen until ``outcome`` settles, as :meth:`until` does; its error is raised."""
        self.until(lambda: outcome.done, within_ms=within_ms)
        return outcome.result()

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

    @abstractmethod
    def inject(self, fault: Fault | Faults, *, generation: int | None = None) -> None:
        """Have a fault, or each of a plan, happen now, whatever moment it names.

        It happens to the newest process of its name, or to that of ``generation``.
        """

    @abstractmethod
    def close(self) -> None:
        """Stop everything in order and close the bus. Idempotent."""

    # -- inside --------------------------------------------------------------------------------------------------------

    @abstractmethod
    def _planned(
        self, thing: Any, process: Any, name: str | None, options: dict[str, Any]
    ) -> tuple[Manifest | ServerConfig, Make | None]:
        """What ``thing`` is to the session, and what makes its processes if they are objects."""

    @abstractmethod
    def _place(self, name: str, make: Make | None) -> None:
        """Have ``make``, if there is one, give the processes of ``name``."""

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
