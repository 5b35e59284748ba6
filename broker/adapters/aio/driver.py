"""Drives sessions inside one asyncio loop: starts processes, pumps them, and keeps one timer for each session."""

from __future__ import annotations

import asyncio
import os
import shutil
import tempfile
import threading
import weakref
from collections.abc import Awaitable, Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeVar

from broker.adapters.aio.pump import ProcessPump
from broker.adapters.artifacts import ArtifactRoots
from broker.adapters.guard import OrphanGuard
from broker.adapters.launch import launch, scratch_directory
from broker.adapters.process import Child
from broker.adapters.tap import Tap
from broker.errors import BrokerError, CancelledError, SetupError, UsageError
from broker.host import ExtensionProcess, Outcome, ProcessLink, Session, Work

T = TypeVar("T")


class AsyncioDriver:
    """A :class:`broker.host.Driver` bound to the loop it was made in.

    ``environ`` is what the children's environment is chosen from; the host's own by default. ``tap`` is told of every
    byte that goes to a process or comes from it.
    """

    def __init__(self, *, environ: Mapping[str, str] | None = None, tap: Tap | None = None) -> None:
        self._loop = asyncio.get_running_loop()
        self._environ = environ
        self._tap = tap
        self._pid = os.getpid()
        self._guard = OrphanGuard()
        self._scratch: Path | None = None
        self._scratch_lock = threading.Lock()
        self._remove_scratch: Callable[[], object] | None = None
        self._pumps: dict[ProcessLink, ProcessPump] = {}
        self._starting: dict[ProcessLink, asyncio.Task[None]] = {}
        self._timers: dict[Session, asyncio.TimerHandle] = {}
        self._pending: set[Session] = set()
        self._pending_lock = threading.Lock()
        self._closed = False
        self._adopted: set[asyncio.Future[Any]] = set()  # a loop holds its tasks weakly

    @property
    def forked(self) -> bool:
        """Whether this is a process forked from the one the driver was made in."""
        return os.getpid() != self._pid

    def check_usable(self) -> None:
        """Raise :class:`UsageError` in a forked child, in another loop, or after :meth:`aclose`."""
        if self.forked:
            raise UsageError("this process was forked from the host; open a host of its own here")
        self.check_loop()
        if self._closed:
            raise UsageError("the host is closed")

    def check_loop(self) -> None:
        """Raise :class:`UsageError` in another loop, where nothing of this one could be waited for."""
        if asyncio.get_running_loop() is not self._loop:
            raise UsageError("this host belongs to another event loop")

    # -- for sessions --------------------------------------------------------------------------------------------------

    def spawn(self, link: ProcessLink) -> None:
        """Start the link's process in the background."""
        self._starting[link] = self._loop.create_task(self._start(link))

    def schedule(self, session: Session) -> None:
        """Look at the session soon. Callable from any thread; many calls before that cost one look."""
        with self._pending_lock:
            if session in self._pending:
                return
            self._pending.add(session)
        try:
            # Waking the loop from inside it would cost two system calls for nothing.
            call_soon = self._loop.call_soon if self._runs_here() else self._loop.call_soon_threadsafe
            call_soon(self._look, session)
        except RuntimeError:
            pass  # the loop is closed; nothing will be written any more

    def _runs_here(self) -> bool:
        try:
            return asyncio.get_running_loop() is self._loop
        except RuntimeError:
            return False

    def offload(self, work: Callable[[], T]) -> Outcome[T]:
        """Do ``work`` in a thread of the loop's pool."""
        outcome: Outcome[T] = Outcome()
        self._loop.run_in_executor(None, work).add_done_callback(lambda done: outcome.settle_with(done.result))
        return outcome

    def adopt(self, awaitable: Awaitable[T]) -> Work[T]:
        """Wait for ``awaitable`` in a task of the loop."""
        task = asyncio.ensure_future(awaitable, loop=self._loop)
        self._adopted.add(task)
        work: Work[T] = Work(task.cancel)

        def settle(done: asyncio.Future[T]) -> None:
            self._adopted.discard(done)
            if done.cancelled():
                work.fail(CancelledError("the host's own code was cancelled", reason="host"))
            else:
                work.settle_with(done.result)

        task.add_done_callback(settle)
        return work

    def artifact_files(self, roots: Sequence[str]) -> ArtifactRoots:
        """The artifacts below ``roots``; relative ones are meant from the working directory of now."""
        return ArtifactRoots(roots)

    def _look(self, session: Session) -> None:
        with self._pending_lock:
            self._pending.discard(session)
        try:
            session.tick()
            session.bus.deliver()
        finally:
            # A KeyboardInterrupt of a handler comes through; what waits to be written, and the deadlines, still stand.
            for link in session.links:
                pump = self._pumps.get(link)
                if pump is not None:
                    pump.flush()
            self._arm(session)

    def _arm(self, session: Session) -> None:
        due = [session.next_deadline()]
        for link in session.links:
            pump = self._pumps.get(link)
            if pump is not None and (stale_at := pump.stale_at_ms) is not None:
                due.append(stale_at + 1)
        deadline = min((moment for moment in due if moment is not None), default=None)
        timer = self._timers.get(session)
        if deadline is None or self._closed:
            return
        delay = max(0, deadline - session.clock.monotonic_ms()) / 1000
        if timer is not None:
            # Most deadlines are those of requests and are far off when they are given up. A timer that rings too early
            # costs one look; setting a timer for each request costs more than the request.
            if not timer.cancelled() and self._loop.time() < timer.when() <= self._loop.time() + delay:
                return
            timer.cancel()
        self._timers[session] = self._loop.call_later(delay, self._ring, session)

    def _ring(self, session: Session) -> None:
        self._timers.pop(session, None)
        self._look(session)

    # -- processes -----------------------------------------------------------------------------------------------------

    async def _start(self, link: ProcessLink) -> None:
        try:
            child = await self._loop.run_in_executor(None, self._spawn_child, link)
        except BrokerError as error:
            link.spawn_failed(error)
            return
        except OSError as error:
            link.spawn_failed(SetupError(f"{link.name}: {error}"))
            return
        finally:
            self._starting.pop(link, None)
        pump = ProcessPump(self._loop, child, link, self._forget, self._tap)
        self._pumps[link] = pump
        if self._tap is not None:
            self._tap.spawned(link)
        pump.start()
        link.spawned(pump)

    def _spawn_child(self, link: ProcessLink) -> Child:
        with self._scratch_lock:
            if self._scratch is None:
                self._scratch = Path(tempfile.mkdtemp(prefix="broker-"))
                # For a host that is never closed; the last resort at the end of the interpreter.
                self._remove_scratch = weakref.finalize(self, _remove_tree, self._scratch, self._pid)
                self._guard.sweep(str(self._scratch))
        environ = os.environ if self._environ is None else self._environ
        return launch(link, environ=environ, scratch=self._scratch, guard=self._guard)

    def _forget(self, pump: ProcessPump) -> None:
        for link, other in list(self._pumps.items()):
            if other is pump:
                del self._pumps[link]
                if isinstance(link, ExtensionProcess) and self._scratch is not None:
                    self._remove_own(scratch_directory(link, self._scratch))

    def _remove_own(self, scratch: Path) -> None:
        """Remove what a generation leaves behind; a host that runs for days must not keep it all."""
        try:
            scratch.rmdir()
        except OSError:
            # Not empty: a tree takes its time, which is not the loop's.
            self._loop.run_in_executor(None, _remove_tree, scratch, self._pid)

    # -- the end -------------------------------------------------------------------------------------------------------

    async def aclose(self) -> None:
        """Kill what is left, close every descriptor, remove the scratch directories. Idempotent.

        In a forked process it does nothing: the processes, the loop and the directories are the parent's.
        """
        if self._closed or self.forked:
            return
        self._closed = True
        for task in list(self._starting.values()):
            await asyncio.wait([task])
        for timer in self._timers.values():
            timer.cancel()
        self._timers.clear()
        for pump in list(self._pumps.values()):
            pump.kill()
            pump.release()
        self._pumps.clear()
        # What is in order is removed below, in a thread, however large it has become.
        self._guard.sweep(None)
        self._guard.close()
        if self._remove_scratch is not None:
            await self._loop.run_in_executor(None, self._remove_scratch)


def _remove_tree(root: Path, owner: int) -> None:
    if os.getpid() == owner:
        shutil.rmtree(root, ignore_errors=True)
