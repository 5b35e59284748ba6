"""The host for programs with an asyncio loop: the same sessions as :mod:`broker.host`, awaited."""

from __future__ import annotations

import asyncio
import math
import os
from collections.abc import Callable, Mapping
from types import TracebackType
from typing import Any, TypeVar

from broker.adapters.aio.driver import AsyncioDriver
from broker.adapters.discovery import find_manifests, load_manifest
from broker.bus import Bus, Peer
from broker.clock import Clock
from broker.errors import SetupError, UsageError
from broker.host import Extension, Host, HostSettings, Notice, Outcome, Session
from broker.wire.octet.manifest import Manifest
from broker.wire.octet.models import ToolCallResult

T = TypeVar("T")


class AsyncHost:
    """A host inside the running loop. Use it as an async context manager; closing is possible from any task.

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
        clock: Clock | None = None,
        environ: Mapping[str, str] | None = None,
    ) -> None:
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
        try:
            await wait(self._host.close())
        finally:
            await self._driver.aclose()

    def _started(self) -> tuple[Host, AsyncioDriver]:
        if self._host is None or self._driver is None:
            self._driver = AsyncioDriver(environ=self._environ)
            self._host = Host(self._driver, settings=self._settings, clock=self._clock)
        self._driver.check_usable()
        return self._host, self._driver

    async def __aenter__(self) -> AsyncHost:
        self._started()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.aclose()


class AsyncSession:
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
        self, manifest: Manifest | str | os.PathLike[str], *, flags: Mapping[str, Any] | None = None
    ) -> Extension:
        """Start an extension and wait until it is negotiated.

        ``manifest`` is a loaded one, an ``extension.toml``, or its directory; ``flags`` are values of declared flags.
        Raises :class:`~broker.errors.SetupError` (manifest, entrypoint), :class:`~broker.errors.NegotiationError`,
        :class:`~broker.errors.ExitedError` or :class:`~broker.errors.TimedOutError`. A start that is cancelled, or that
        fails, leaves no process.
        """
        self._driver.check_usable()
        if isinstance(manifest, Manifest):
            loaded = manifest
        else:
            loaded = await asyncio.get_running_loop().run_in_executor(None, _load_one, manifest)
        extension = self.session.add(loaded, flags=flags)
        try:
            return await wait(extension.start())
        except BaseException:
            await asyncio.shield(wait(extension.stop(outcome="failed")))
            self.session.remove(extension.name)
            raise

    async def call(
        self, extension: str, tool: str, arguments: Any = None, *, timeout: float | None = None
    ) -> ToolCallResult:
        """Call a tool. ``arguments`` defaults to ``{}``; ``timeout``, in seconds, covers queueing, writing and waiting.

        Cancelling the awaiting task cancels the call. Errors: see :meth:`broker.host.Extension.call`.
        """
        self._driver.check_usable()
        call = self.session.call(
            extension,
            tool,
            {} if arguments is None else arguments,
            timeout_ms=None if timeout is None else _milliseconds(timeout),
        )
        try:
            return await wait(call)
        except asyncio.CancelledError:
            call.cancel("user")
            raise

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
        """Stop every extension in order and close the bus. Idempotent, from any task; nothing in a forked process."""
        if self._driver.forked:
            return
        await wait(self.session.close(outcome=outcome))

    async def __aenter__(self) -> AsyncSession:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.aclose()


async def wait(outcome: Outcome[T]) -> T:
    """Wait for an outcome; cancelling the wait leaves the outcome alone."""
    if not outcome.done:
        future: asyncio.Future[None] = asyncio.get_running_loop().create_future()

        def settled(_: Outcome[T]) -> None:
            if not future.done():
                future.set_result(None)

        outcome.add_callback(settled)
        await future
    return outcome.result()


def _milliseconds(seconds: float) -> int:
    if not 0 < seconds < math.inf:
        raise UsageError(f"timeout: expected a positive number of seconds, got {seconds!a:.80}", path="timeout")
    return max(1, round(seconds * 1000))


def _load_one(path: str | os.PathLike[str]) -> Manifest:
    found = find_manifests(path)
    if len(found) != 1:
        raise SetupError(f"{os.fspath(path)} holds {len(found)} extensions; name one", path=os.fspath(path))
    return load_manifest(found[0])
