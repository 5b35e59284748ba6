"""The host for programs with an asyncio loop: the same sessions as :mod:`broker.host`, awaited."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Awaitable, Callable, Mapping
from types import TracebackType
from typing import Any, Self, TypeAlias, TypeVar

from broker.adapters.aio.driver import AsyncioDriver
from broker.adapters.aio.services import SessionServices
from broker.adapters.aio.waiting import milliseconds, wait
from broker.adapters.discovery import find_manifests, load_manifest
from broker.adapters.tap import Tap
from broker.bus import Bus, Peer
from broker.clock import Clock
from broker.errors import SetupError
from broker.host import (
    ArtifactWindow,
    Extension,
    FeatureServices,
    Host,
    HostServices,
    HostSettings,
    McpServer,
    Notice,
    Outcome,
    Session,
    TrustPolicy,
)
from broker.host.feature.contributions import Request
from broker.host.feature.services import NO_SERVICES
from broker.wire.feature.results import ToolResult
from broker.wire.mcp.requests import Progress
from broker.wire.octet.manifest import Manifest
from broker.wire.octet.manifest_model import Source
from broker.wire.odek.approval import ApprovalRequest
from broker.wire.odek.config import ServerConfig
from broker.wire.odek.result import ToolOutput

T = TypeVar("T")

Decide: TypeAlias = Callable[[ApprovalRequest], bool | Awaitable[bool]]


class AsyncHost:
    """A host inside the running loop. Use it as an async context manager; any task of that loop may close it.

    ``approve(request)`` decides, at once or as an awaitable, whether a project's MCP server is started and each of its
    tools offered; without it none is. ``services`` is what is bound to the optional services of 0.3 extensions, and
    ``feature_services`` what extensions of API 0.1, 0.2 and 0.4 are served with; both may answer with awaitables.
    ``tap`` listens in on every process, such as :class:`broker.adapters.frame_log.FrameLog`.

    ::

        async with AsyncHost() as host:
            session = await host.open_session("/path/to/workspace")
            await session.start("/path/to/extension")
            result = await session.call("name", "tool", {"key": "value"}, timeout=5)
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
        tap: Tap | None = None,
    ) -> None:
        self._decide = approve
        self._tap = tap
        self._feature_services = feature_services
        self._services = services
        self._trust = trust
        self._settings = settings
        self._clock = clock
        self._environ = environ
        self._driver: AsyncioDriver | None = None
        self._host: Host | None = None

    async def open_session(self, workspace: str | os.PathLike[str] = ".", *, name: str | None = None) -> AsyncSession:
        """Open a session on a directory; raises :class:`SetupError` when it is none."""
        host, driver = self._started()
        path = os.path.abspath(workspace)  # noqa: ASYNC240 - it reads the working directory, no more
        if not await asyncio.get_running_loop().run_in_executor(None, os.path.isdir, path):
            raise SetupError(f"workspace {path!r} is not a directory", path=path)
        return AsyncSession(host.open_session(path, name=name), driver)

    async def aclose(self) -> None:
        """Close every session in order, then everything else. Idempotent; does nothing in a forked process."""
        if self._host is None or self._driver is None or self._driver.forked:
            return
        self._driver.check_loop()
        try:
            await wait(self._host.close())
        finally:
            await self._driver.aclose()

    def _approve(self, request: ApprovalRequest) -> Outcome[bool]:
        outcome: Outcome[bool] = Outcome()
        if self._decide is None or self._driver is None:
            outcome.succeed(False)
            return outcome
        decision = self._decide(request)
        if not isinstance(decision, bool):
            return self._driver.adopt(decision)
        outcome.succeed(decision)
        return outcome

    def _started(self) -> tuple[Host, AsyncioDriver]:
        if self._host is None or self._driver is None:
            self._driver = AsyncioDriver(environ=self._environ, tap=self._tap)
            self._host = Host(
                self._driver,
                settings=self._settings,
                clock=self._clock,
                approve=self._approve,
                feature_services=self._feature_services,
                services=self._services,
                trust=self._trust,
            )
        self._driver.check_usable()
        return self._host, self._driver

    async def __aenter__(self) -> Self:
        self._started()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.aclose()


class AsyncSession(SessionServices):
    """One session of an :class:`AsyncHost`; ``session`` is the sans-IO one underneath."""

    def __init__(self, session: Session, driver: AsyncioDriver) -> None:
        self.session = session
        self._driver = driver

    @property
    def bus(self) -> Bus:
        """The session's bus."""
        return self.session.bus

    def attach(self, name: str) -> Peer:
        """Attach an in-process plugin; its handlers are called from the loop, and it can be read with ``async for``."""
        return self.session.attach(name)

    def add_observer(self, observer: Callable[[Notice], object]) -> Callable[[], None]:
        """Call ``observer(notice)`` for starts, exits, health and diagnostics; gives a function that ends it."""
        return self.session.add_observer(observer)

    async def start(
        self,
        manifest: Manifest | str | os.PathLike[str],
        *,
        flags: Mapping[str, Any] | None = None,
        source: Source = "explicit",
    ) -> Extension:
        """Start an extension and wait until it is negotiated.

        ``manifest`` is a loaded one, an ``extension.toml``, or its directory; ``flags`` are values of declared flags;
        ``source`` is the kind of root it was found under, which decides what trust it needs.
        Raises :class:`~broker.errors.SetupError` (manifest, entrypoint), :class:`~broker.errors.NegotiationError`,
        :class:`~broker.errors.ExitedError` or :class:`~broker.errors.TimedOutError`. A start that is cancelled, or that
        fails, leaves no process.
        """
        self._driver.check_usable()
        if isinstance(manifest, Manifest):
            loaded = manifest
        else:
            version = self.session.settings.octet_version
            loaded = await asyncio.get_running_loop().run_in_executor(None, _load_one, manifest, version)
        extension = self.session.add(loaded, source=source, flags=flags)
        try:
            return await wait(extension.start())
        except BaseException:
            await asyncio.shield(wait(extension.stop(outcome="failed")))
            self.session.remove(extension.name)
            raise

    async def call(
        self, extension: str, tool: str, arguments: Any = None, *, timeout: float | None = None
    ) -> ToolResult:
        """Call a tool. ``arguments`` defaults to ``{}``; ``timeout``, in seconds, covers queueing, writing and waiting.

        Cancelling the awaiting task cancels the call. Errors: see :meth:`broker.host.Extension.call`.
        """
        self._driver.check_usable()
        call = self.session.call(
            extension,
            tool,
            {} if arguments is None else arguments,
            timeout_ms=None if timeout is None else milliseconds(timeout),
        )
        try:
            return await wait(call)
        except asyncio.CancelledError:
            call.cancel("user")
            raise

    async def wait(self, outcome: Outcome[T]) -> T:
        """Wait for what ``extension.contributions`` gave; cancelling the task cancels the request."""
        self._driver.check_usable()
        try:
            return await wait(outcome)
        except asyncio.CancelledError:
            if isinstance(outcome, Request):
                outcome.cancel("user")
            raise

    async def start_server(self, config: ServerConfig) -> McpServer:
        """Start an MCP server and wait until its tools are listed and approved.

        Raises :class:`~broker.errors.SetupError` (no such program, not approved),
        :class:`~broker.errors.NegotiationError`, :class:`~broker.errors.CatalogueError`,
        :class:`~broker.errors.ExitedError` or :class:`~broker.errors.TimedOutError`. A start that fails or is cancelled
        leaves no process; the next start of that name waits out a growing delay.
        """
        self._driver.check_usable()
        server = self.session.add_server(config)
        try:
            return await wait(server.start())
        except BaseException:
            await asyncio.shield(wait(server.stop()))
            raise

    async def call_server(
        self,
        server: str,
        tool: str,
        arguments: Any = None,
        *,
        timeout: float | None = None,
        on_progress: Callable[[Progress], None] | None = None,
        untrusted: bool = False,
    ) -> ToolOutput:
        """Call a tool of an MCP server by its raw name; ``arguments`` defaults to ``{}``, ``timeout`` is in seconds.

        Cancelling the awaiting task cancels the call. Errors: see :meth:`broker.host.McpServer.call`.
        """
        self._driver.check_usable()
        call = self.session.server(server).call(
            tool,
            {} if arguments is None else arguments,
            timeout_ms=None if timeout is None else milliseconds(timeout),
            on_progress=on_progress,
            untrusted=untrusted,
        )
        try:
            return await wait(call)
        except asyncio.CancelledError:
            call.cancel("user")
            raise

    async def stop_server(self, server: str) -> None:
        """Stop one MCP server in order."""
        await wait(self.session.server(server).stop())

    async def read_artifact(self, artifact_id: str, *, offset: int = 0, limit: int | None = None) -> ArtifactWindow:
        """Part of an artifact that a call brought, by its id and verified anew."""
        if limit is None:
            return await wait(self.session.read_artifact(artifact_id, offset=offset))
        return await wait(self.session.read_artifact(artifact_id, offset=offset, limit=limit))

    async def reload(self, extension: str, manifest: Manifest | None = None) -> Extension:
        """Replace an extension's process by a new generation; see :meth:`broker.host.Extension.reload`."""
        self._driver.check_usable()
        return await wait(self.session.extension(extension).reload(manifest))

    async def stop(self, extension: str) -> None:
        """Stop one extension in order and forget it."""
        self._driver.check_usable()
        await wait(self.session.extension(extension).stop())
        self.session.remove(extension)

    async def aclose(self, *, outcome: str = "completed") -> None:
        """Stop every extension in order and close the bus. Idempotent; does nothing in a forked process."""
        if self._driver.forked:
            return
        self._driver.check_loop()
        await wait(self.session.close(outcome=outcome))

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.aclose()


def _load_one(path: str | os.PathLike[str], host_version: str) -> Manifest:
    found = find_manifests(path)
    if len(found) != 1:
        raise SetupError(f"{os.fspath(path)} holds {len(found)} extensions; name one", path=os.fspath(path))
    return load_manifest(found[0], host_version=host_version)
