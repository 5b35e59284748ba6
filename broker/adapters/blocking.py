"""The host for programs without an event loop: the same sessions, waited for, over a loop in a thread of its own."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Mapping, Sequence
from types import TracebackType
from typing import Any, Self, TypeVar

from broker.adapters.aio import AsyncHost, AsyncSession
from broker.adapters.aio.host import Decide
from broker.adapters.background import BackgroundLoop, BlockingStream, PendingCall
from broker.bus import Bus, Peer
from broker.clock import Clock
from broker.host import (
    ArtifactWindow,
    DetectedSetup,
    Extension,
    FeatureServices,
    HostServices,
    HostSettings,
    McpServer,
    Notice,
    Outcome,
    RegisteredProvider,
    Session,
    TrustPolicy,
)
from broker.host.feature import Contributions
from broker.host.feature.services import NO_SERVICES
from broker.wire.feature.results import ToolResult
from broker.wire.mcp.requests import Progress
from broker.wire.octet.manifest import Manifest
from broker.wire.octet.manifest_model import Source
from broker.wire.octet.migration_models import MigrationImportResult
from broker.wire.odek.config import ServerConfig
from broker.wire.odek.result import ToolOutput

__all__ = ["BlockingHost", "BlockingSession", "BlockingStream", "PendingCall"]

T = TypeVar("T")


class BlockingHost:
    """A host for synchronous programs. Use it as a context manager; safe from any thread but its own.

    ::

        with BlockingHost() as host:
            session = host.open_session("/path/to/workspace")
            session.start("/path/to/extension")
            result = session.call("name", "tool", {"key": "value"}, timeout=5)
    """

    def __init__(
        self,
        *,
        settings: HostSettings | None = None,
        services: HostServices | None = None,
        trust: TrustPolicy | None = None,
        clock: Clock | None = None,
        environ: Mapping[str, str] | None = None,
        approve: Decide | None = None,
        feature_services: FeatureServices = NO_SERVICES,
    ) -> None:
        self._loop = BackgroundLoop()
        self._host = AsyncHost(
            settings=settings,
            clock=clock,
            environ=environ,
            approve=approve,
            services=services,
            trust=trust,
            feature_services=feature_services,
        )
        self._closing = threading.Lock()

    def open_session(self, workspace: str | os.PathLike[str] = ".", *, name: str | None = None) -> BlockingSession:
        """Open a session on a directory; raises :class:`SetupError` when it is none."""
        return BlockingSession(self._loop.run(self._host.open_session(workspace, name=name)), self._loop)

    def close(self) -> None:
        """Close every session in order, then everything else. Idempotent; does nothing in a forked process.

        Raises :class:`UsageError` from inside a handler or observer, whose thread would wait for itself.
        """
        if self._loop.stopped:
            return
        self._loop.require_another_thread()
        with self._closing:
            if not self._loop.stopped:
                self._loop.run(self._host.aclose())
                self._loop.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


class BlockingSession:
    """One session of a :class:`BlockingHost`; its bus can be used directly from any thread."""

    def __init__(self, session: AsyncSession, loop: BackgroundLoop) -> None:
        self._session = session
        self._loop = loop

    @property
    def bus(self) -> Bus:
        """The session's bus."""
        return self._session.bus

    def attach(self, name: str) -> Peer:
        """Attach an in-process plugin. Take its messages here, or have its handlers called in the host's thread."""
        return self._session.attach(name)

    def add_observer(self, observer: Callable[[Notice], object]) -> Callable[[], None]:
        """Call ``observer(notice)``, in the host's thread, for starts, exits, changes of health and diagnostics.

        Gives a function that ends it, which may be called from any thread.
        """

        async def add() -> Callable[[], None]:
            return self._session.add_observer(observer)

        return self._loop.run(add())

    def watch(self, watch: Callable[[Session], Callable[[], None]]) -> Callable[[], None]:
        """Have ``watch``, such as :meth:`broker.adapters.otel.Telemetry.watch`, watch the session underneath.

        It is called in the host's thread, and so is what it gives to end that: the function given here calls it there.
        """

        async def begin() -> Callable[[], None]:
            return watch(self._session.session)

        unwatch = self._loop.run(begin())

        async def end() -> None:
            unwatch()

        return lambda: self._loop.run(end())

    def start(
        self,
        manifest: Manifest | str | os.PathLike[str],
        *,
        flags: Mapping[str, Any] | None = None,
        source: Source = "explicit",
    ) -> Extension:
        """Start an extension and wait until it is negotiated; see :meth:`AsyncSession.start`."""
        return self._loop.run(self._session.start(manifest, flags=flags, source=source))

    def call(self, extension: str, tool: str, arguments: Any = None, *, timeout: float | None = None) -> ToolResult:
        """Call a tool and wait; see :meth:`AsyncSession.call`."""
        return self.submit(extension, tool, arguments, timeout=timeout).result()

    def submit(
        self, extension: str, tool: str, arguments: Any = None, *, timeout: float | None = None
    ) -> PendingCall[ToolResult]:
        """Begin to call a tool; many calls can be on their way at once."""
        return PendingCall(self._loop.submit(self._session.call(extension, tool, arguments, timeout=timeout)))

    def contribution(self, ask: Callable[[Contributions], Outcome[T]], extension: str) -> T:
        """Ask an extension of API 0.1, 0.2 or 0.4 for something, and wait: ``ask`` is called in the host's thread.

        For example ``session.contribution(lambda of: of.execute("go", ["north"]), "hello")``.
        """

        async def wait_for() -> T:
            session = self._session
            return await session.wait(ask(session.session.extension(extension).contributions))

        return self._loop.run(wait_for())

    def providers(self, extension: str) -> tuple[RegisteredProvider, ...]:
        """What an extension provides, as soon as it has declared it all; see :meth:`broker.Session.providers`."""
        return self._loop.run(self._session.providers(extension))

    def stream(
        self,
        provider_id: str,
        model_id: str,
        request: Any,
        *,
        lease: str | None = None,
        idle_timeout: float | None = None,
        timeout: float | None = None,
    ) -> BlockingStream:
        """Ask a model that an extension provides; iterate over the events. See :meth:`AsyncSession.stream`."""
        return BlockingStream(
            self._loop,
            lambda: self._session.stream(
                provider_id, model_id, request, lease=lease, idle_timeout=idle_timeout, timeout=timeout
            ),
        )

    def detect_setup(
        self, extension: str, source_root: str | os.PathLike[str], *, timeout: float | None = None
    ) -> DetectedSetup:
        """Have a migration adapter look for a setup; see :meth:`broker.host.MigrationAdapter.detect`."""
        return self._loop.run(self._session.detect_setup(extension, source_root, timeout=timeout))

    def import_setup(
        self, setup: DetectedSetup, paths: Sequence[str] | None = None, *, timeout: float | None = None
    ) -> MigrationImportResult:
        """Have the adapter convert what it detected; see :meth:`broker.host.MigrationAdapter.import_from`."""
        return self._loop.run(self._session.import_setup(setup, paths, timeout=timeout))

    def begin_turn(self) -> None:
        """Say that the host is busy: session changes wait. See :class:`broker.host.SessionControl`."""
        self._loop.run(self._in_loop(self._session.begin_turn))

    def end_turn(self) -> None:
        """Say that a turn is over; after the last one, what waits is carried out."""
        self._loop.run(self._in_loop(self._session.end_turn))

    @staticmethod
    async def _in_loop(work: Callable[[], None]) -> None:
        work()

    def start_server(self, config: ServerConfig) -> McpServer:
        """Start an MCP server and wait until its tools are listed; see :meth:`AsyncSession.start_server`."""
        return self._loop.run(self._session.start_server(config))

    def call_server(
        self,
        server: str,
        tool: str,
        arguments: Any = None,
        *,
        timeout: float | None = None,
        on_progress: Callable[[Progress], None] | None = None,
        untrusted: bool = False,
    ) -> ToolOutput:
        """Call a tool of an MCP server and wait; see :meth:`AsyncSession.call_server`."""
        return self.submit_server(
            server, tool, arguments, timeout=timeout, on_progress=on_progress, untrusted=untrusted
        ).result()

    def submit_server(
        self,
        server: str,
        tool: str,
        arguments: Any = None,
        *,
        timeout: float | None = None,
        on_progress: Callable[[Progress], None] | None = None,
        untrusted: bool = False,
    ) -> PendingCall[ToolOutput]:
        """Begin to call a tool of an MCP server; ``on_progress`` runs in the host's thread."""
        work = self._session.call_server(
            server, tool, arguments, timeout=timeout, on_progress=on_progress, untrusted=untrusted
        )
        return PendingCall(self._loop.submit(work))

    def stop_server(self, server: str) -> None:
        """Stop one MCP server in order."""
        self._loop.run(self._session.stop_server(server))

    def read_artifact(self, artifact_id: str, *, offset: int = 0, limit: int | None = None) -> ArtifactWindow:
        """Part of an artifact that a call brought, by its id and verified anew."""
        return self._loop.run(self._session.read_artifact(artifact_id, offset=offset, limit=limit))

    def reload(self, extension: str, manifest: Manifest | None = None) -> Extension:
        """Replace an extension's process by a new generation."""
        return self._loop.run(self._session.reload(extension, manifest))

    def stop(self, extension: str) -> None:
        """Stop one extension in order and forget it."""
        self._loop.run(self._session.stop(extension))

    def close(self, *, outcome: str = "completed") -> None:
        """Stop every extension in order and close the bus. Idempotent, also after the host was closed."""
        if not self._loop.stopped:
            self._loop.run(self._session.aclose(outcome=outcome))

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()
