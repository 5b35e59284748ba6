"""The host for programs without an event loop: the same sessions, waited for, over a loop in a thread of its own."""

from __future__ import annotations

import asyncio
import concurrent.futures
import os
import threading
from collections.abc import Callable, Coroutine, Mapping
from types import TracebackType
from typing import Any, TypeVar

from broker.adapters.aio import AsyncHost, AsyncSession
from broker.bus import Bus, Peer
from broker.clock import Clock
from broker.errors import CancelledError, UsageError
from broker.host import Extension, HostSettings, Notice
from broker.wire.octet.manifest import Manifest
from broker.wire.octet.models import ToolCallResult

T = TypeVar("T")


class _Loop:
    """An asyncio loop in a daemon thread."""

    def __init__(self) -> None:
        self._pid = os.getpid()
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="broker-loop", daemon=True)
        self._thread.start()

    def submit(self, work: Coroutine[Any, Any, T]) -> concurrent.futures.Future[T]:
        problem = None
        if os.getpid() != self._pid:
            problem = "this process was forked from the host; open a host of its own here"
        elif threading.current_thread() is self._thread:
            problem = "a handler or observer runs in the host's own thread and cannot wait for it"
        elif self._loop.is_closed():
            problem = "the host is closed"
        if problem:
            work.close()
            raise UsageError(problem)
        return asyncio.run_coroutine_threadsafe(work, self._loop)

    def run(self, work: Coroutine[Any, Any, T]) -> T:
        return self.submit(work).result()

    def close(self) -> None:
        if not self._loop.is_closed():
            self._loop.call_soon_threadsafe(self._loop.stop)
            self._thread.join()
            self._loop.run_until_complete(self._loop.shutdown_default_executor())
            self._loop.close()


class PendingCall:
    """A tool call on its way in a :class:`BlockingSession`."""

    def __init__(self, future: concurrent.futures.Future[ToolCallResult]) -> None:
        self._future = future

    @property
    def done(self) -> bool:
        """Whether it settled."""
        return self._future.done()

    def result(self, timeout: float | None = None) -> ToolCallResult:
        """Wait, at most ``timeout`` seconds, for the result; the call itself goes on after a ``TimeoutError``."""
        try:
            return self._future.result(timeout)
        except concurrent.futures.CancelledError:
            raise CancelledError("the call was cancelled", reason="user") from None

    def cancel(self) -> None:
        """Release the call at once; the extension is told once, if it had it. Idempotent."""
        self._future.cancel()


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
        clock: Clock | None = None,
        environ: Mapping[str, str] | None = None,
    ) -> None:
        self._loop = _Loop()
        self._host = AsyncHost(settings=settings, clock=clock, environ=environ)
        self._closed = False

    def open_session(self, workspace: str | os.PathLike[str] = ".", *, name: str | None = None) -> BlockingSession:
        """Open a session on a directory; raises :class:`SetupError` when it is none."""
        return BlockingSession(self._loop.run(self._host.open_session(workspace, name=name)), self._loop)

    def close(self) -> None:
        """Close every session in order, then everything else. Idempotent."""
        if not self._closed:
            self._closed = True
            self._loop.run(self._host.aclose())
            self._loop.close()

    def __enter__(self) -> BlockingHost:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


class BlockingSession:
    """One session of a :class:`BlockingHost`; its bus can be used directly from any thread."""

    def __init__(self, session: AsyncSession, loop: _Loop) -> None:
        self._session = session
        self._loop = loop

    @property
    def bus(self) -> Bus:
        """The session's bus."""
        return self._session.bus

    def attach(self, name: str) -> Peer:
        """Attach an in-process plugin. Take its messages here, or have its handlers called in the host's thread."""
        return self._session.attach(name)

    def add_observer(self, observer: Callable[[Notice], object]) -> None:
        """Call ``observer(notice)``, in the host's thread, for starts, exits, changes of health and diagnostics."""

        async def add() -> None:
            self._session.add_observer(observer)

        self._loop.run(add())

    def start(
        self, manifest: Manifest | str | os.PathLike[str], *, flags: Mapping[str, Any] | None = None
    ) -> Extension:
        """Start an extension and wait until it is negotiated; see :meth:`AsyncSession.start`."""
        return self._loop.run(self._session.start(manifest, flags=flags))

    def call(self, extension: str, tool: str, arguments: Any = None, *, timeout: float | None = None) -> ToolCallResult:
        """Call a tool and wait; see :meth:`AsyncSession.call`."""
        return self.submit(extension, tool, arguments, timeout=timeout).result()

    def submit(self, extension: str, tool: str, arguments: Any = None, *, timeout: float | None = None) -> PendingCall:
        """Begin to call a tool; many calls can be on their way at once."""
        return PendingCall(self._loop.submit(self._session.call(extension, tool, arguments, timeout=timeout)))

    def reload(self, extension: str, manifest: Manifest | None = None) -> Extension:
        """Replace an extension's process by a new generation."""
        return self._loop.run(self._session.reload(extension, manifest))

    def stop(self, extension: str) -> None:
        """Stop one extension in order and forget it."""
        self._loop.run(self._session.stop(extension))

    def close(self, *, outcome: str = "completed") -> None:
        """Stop every extension in order and close the bus. Idempotent."""
        self._loop.run(self._session.aclose(outcome=outcome))

    def __enter__(self) -> BlockingSession:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()
