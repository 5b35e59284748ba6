"""Extensions that are objects next to real ones, in one session of an asyncio host.

The real ones are child processes over pipes, the objects live in the loop; to the session there is no difference.
"""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import Awaitable, Callable, Sequence
from types import TracebackType
from typing import Any, TypeVar, cast

from broker.adapters.aio import AsyncHost, AsyncioDriver, AsyncSession
from broker.adapters.aio.pump import ProcessPump
from broker.adapters.artifacts import ArtifactRoots
from broker.errors import BrokerError, SetupError, UsageError
from broker.host import Extension, Host, McpServer, Outcome, ProcessLink, Session, Work
from broker.limits import PATIENCE_MS
from broker.testing.faults import Fault, Faults, faults_of, strike
from broker.testing.memory_process import Frame, MemoryProcess
from broker.testing.plan import Make, process_of
from broker.testing.recorder import Recorder
from broker.testing.script_run import Player
from broker.testing.sequence import SequenceError
from broker.wire.octet.manifest_model import Manifest
from broker.wire.odek.config import ServerConfig
from broker.wire.quoting import describe

T = TypeVar("T")


class MixedHost(AsyncHost):
    """An :class:`~broker.adapters.aio.AsyncHost` whose sessions take objects as well as paths.

    ::

        async with MixedHost() as host:
            session = await host.open_session(workspace)
            await session.start("/path/to/extension")
            await session.start(Greeter)
    """

    async def open_session(self, workspace: str | os.PathLike[str] = ".", *, name: str | None = None) -> MixedSession:
        """Open a session on a directory; raises :class:`~broker.errors.SetupError` when it is none."""
        opened = await super().open_session(workspace, name=name)
        host, driver = self._started()
        assert isinstance(host.driver, MixedDriver)
        return MixedSession(opened.session, driver, host.driver)

    async def aclose(self) -> None:
        """Close every session in order, then everything else; what an object raised in its turn is raised here."""
        await super().aclose()
        if self._host is not None and isinstance(self._host.driver, MixedDriver):
            self._host.driver.check()

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Close, and see that every script was played that no fault struck."""
        await super().__aexit__(kind, error, trace)
        if error is None and self._host is not None and isinstance(self._host.driver, MixedDriver):
            self._host.driver.check_scripts()

    def _started(self) -> tuple[Host, AsyncioDriver]:
        host, driver = super()._started()
        if host.driver is driver:
            host.driver = MixedDriver(driver)
        return host, driver


class MixedSession(AsyncSession):
    """One session of a :class:`MixedHost`. ``recorder`` holds what happened; of frames, those of objects."""

    def __init__(self, session: Session, driver: AsyncioDriver, mixed: MixedDriver) -> None:
        super().__init__(session, driver)
        self.recorder: Recorder = Recorder(session)
        self._mixed = mixed
        mixed.taps.append(self._tapped)

    async def start(self, manifest: Any, **options: Any) -> Extension:
        """Start an extension and wait until it is negotiated: one on disk, or an object.

        A path or a manifest is started as a process, as :meth:`AsyncSession.start` does; anything else is run as
        :meth:`broker.testing.MemorySession.add` says, with the same ``options``.
        """
        if isinstance(manifest, str | os.PathLike | Manifest):
            return await super().start(manifest, **options)
        taken = {key: options.pop(key) for key in ("flags", "source") if key in options}
        plan = process_of(manifest, **options)
        if not isinstance(plan.member, Manifest):
            raise UsageError(f"{plan.member.name} is an MCP server; start it with start_server()")
        self._mixed.place(self.session, plan.member.name, plan.make)
        return await super().start(plan.member, **taken)

    async def start_server(self, config: Any, **options: Any) -> McpServer:
        """Start an MCP server and wait until its tools are there: a configured one, or an object."""
        if isinstance(config, ServerConfig):
            return await super().start_server(config)
        plan = process_of(config, **options)
        if not isinstance(plan.member, ServerConfig):
            raise UsageError(f"{plan.member.name} is an extension; start it with start()")
        self._mixed.place(self.session, plan.member.name, plan.make)
        return await super().start_server(plan.member)

    async def aclose(self, *, outcome: str = "completed") -> None:
        """Stop everything in order and close the bus; nothing is recorded any more. Idempotent."""
        await super().aclose(outcome=outcome)
        self.recorder.close()
        if self._tapped in self._mixed.taps:
            self._mixed.taps.remove(self._tapped)

    def process(self, name: str) -> Any:
        """The object that runs as the newest process called ``name``; raises :class:`UsageError` when none does."""
        found = self._mixed.find(self.session, name)
        if found is None:
            raise UsageError(f"no object called {name} runs", extension=name)
        return found.extension

    async def until(self, condition: Callable[[], object], *, timeout: float = PATIENCE_MS / 1000) -> None:
        """Wait until ``condition()`` holds, looking whenever something was recorded, ``timeout`` seconds at most.

        Raises :class:`~broker.testing.SequenceError` with what happened when it does not come to hold.
        """
        changed = asyncio.Event()
        loop = asyncio.get_running_loop()
        # The bus tells of what happens in the thread that did it.
        end = self.recorder.add_listener(lambda: loop.call_soon_threadsafe(changed.set))
        try:
            async with asyncio.timeout(timeout):
                while not condition():
                    changed.clear()
                    await changed.wait()
        except TimeoutError:
            raise SequenceError(f"did not come to hold within {timeout} s:\n{self.recorder}") from None
        finally:
            end()

    def inject(self, fault: Fault | Faults) -> None:
        """Have a fault, or each of a plan, happen now, whatever moment it names.

        To an object anything can happen that befalls a process; a real process can be killed and stalled. Raises
        :class:`UsageError` for anything else, and when nothing runs under the fault's name.
        """
        for one in faults_of(fault):
            self._mixed.inject(self.session, one)
            self.recorder.fault(one)

    def _tapped(self, frame: Frame) -> None:
        if frame.link.session is self.session:
            self.recorder.frame(frame)


class MixedDriver:
    """A :class:`broker.host.Driver` that runs some processes as objects in the loop; the rest is ``inner``'s."""

    def __init__(self, inner: AsyncioDriver) -> None:
        self._inner = inner
        self._makers: dict[tuple[Session, str], Make] = {}
        self._objects: list[ObjectPump] = []
        self._raised: list[Exception] = []
        self._players: dict[ProcessLink, Player] = {}
        self._struck: set[ProcessLink] = set()
        self.taps: list[Callable[[Frame], object]] = []

    def place(self, session: Session, name: str, make: Make) -> None:
        """Have ``make`` give the processes of the extension or server called ``name`` in ``session``."""
        self._makers[session, name] = make

    def find(self, session: Session, name: str, generation: int | None = None) -> MemoryProcess | None:
        """The newest object that runs under ``name``, or that of ``generation``."""
        running = (pump.process for pump in reversed(self._objects))
        found = (one for one in running if one.link.session is session and one.link.name == name)
        return next((one for one in found if generation in (None, one.link.number)), None)

    def check(self) -> None:
        """Raise what an object raised, if one did: in the loop there was nobody to raise it to."""
        if self._raised:
            raise self._raised.pop(0)

    def check_scripts(self) -> None:
        """Raise :class:`~broker.testing.ScriptError` for a script that was not played to its end."""
        for link, player in self._players.items():
            if link not in self._struck:
                player.run.check_played()

    def inject(self, session: Session, fault: Fault, generation: int | None = None) -> None:
        """Have ``fault`` happen to the newest process of its name, or to that ``generation``."""
        found = self.find(session, fault.extension, generation)
        if found is not None:
            self._struck.add(found.link)
            strike(fault, found, 0)
            self._inner.schedule(session)
            return
        links = [link for link in session.links if link.name == fault.extension and generation in (None, link.number)]
        pump = self._inner._pumps.get(links[-1]) if links else None
        if pump is None:
            raise UsageError(f"{fault}: no process called {fault.extension} runs", extension=fault.extension)
        child = pump._child
        if fault.kind == "kill":
            child.kill_group(signal.SIGKILL)
        elif fault.kind == "stall":
            child.kill_group(signal.SIGSTOP)
            if "for_ms" in fault.options:
                self._inner._loop.call_later(fault.options["for_ms"] / 1000, child.kill_group, signal.SIGCONT)
        else:
            raise UsageError(f"{fault}: {fault.extension} is a real process, which can be killed or stalled")

    def spawn(self, link: ProcessLink) -> None:
        """Start the link's object soon, or its process."""
        make = self._makers.get((link.session, link.name))
        if make is None:
            self._inner.spawn(link)
        else:
            self._inner._loop.call_soon(self._start, link, make)

    def offload(self, work: Callable[[], T]) -> Outcome[T]:
        """Do ``work`` in a thread of the loop's pool."""
        return self._inner.offload(work)

    def adopt(self, awaitable: Awaitable[T]) -> Work[T]:
        """Wait for ``awaitable`` in a task of the loop."""
        return self._inner.adopt(awaitable)

    def artifact_files(self, roots: Sequence[str]) -> ArtifactRoots:
        """The artifacts below ``roots``."""
        return self._inner.artifact_files(roots)

    def schedule(self, session: Session) -> None:
        """Look at the session soon. Callable from any thread."""
        self._inner.schedule(session)

    def _start(self, link: ProcessLink, make: Make) -> None:
        try:
            extension = make(link)
        except BrokerError as error:
            link.spawn_failed(error)
            return
        except Exception as error:
            self._raised.append(error)
            link.spawn_failed(SetupError(f"{link.name} could not be made: {describe(error)}", extension=link.name))
            return
        if isinstance(extension, Player):
            self._players[link] = extension
        process = MemoryProcess(
            link, extension, now_ms=link.session.clock.monotonic_ms, passed=self._passed, strike=_strikes_nothing
        )
        pump = ObjectPump(self._inner._loop, process, self._forget, self._raised.append)
        self._objects.append(pump)
        # To the driver of the processes it is a pump like theirs: flushed with them, and killed at the end.
        self._inner._pumps[link] = cast(ProcessPump, pump)
        link.spawned(pump)
        pump.flush()

    def _passed(self, frame: Frame) -> None:
        for tap in self.taps:
            tap(frame)

    def _forget(self, pump: ObjectPump) -> None:
        self._objects.remove(pump)
        self._inner._pumps.pop(pump.process.link, None)


class ObjectPump:
    """Moves what is there between one object and its link, in turns of the loop as pipes would.

    The :class:`broker.host.Process` of the link.
    """

    stale_at_ms: int | None = None

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        process: MemoryProcess,
        on_ended: Callable[[ObjectPump], None],
        on_raised: Callable[[Exception], None],
    ) -> None:
        self.process: MemoryProcess = process
        self._loop = loop
        self._on_ended = on_ended
        self._on_raised = on_raised
        self._turn: asyncio.Handle | None = None
        self._timer: asyncio.TimerHandle | None = None

    def flush(self) -> None:
        """Let the object hear, in a turn of its own, what the link has to say."""
        self._soon()

    def close_stdin(self) -> None:
        """Close the object's input once it heard everything."""
        self.process.close_stdin()
        self._soon()

    def terminate(self) -> None:
        """Let it hear SIGTERM."""
        self.process.terminate()
        self._soon()

    def kill(self) -> None:
        """End it."""
        self.process.kill()
        self._soon()

    def release(self) -> None:
        """Leave the loop. Idempotent."""
        for handle in (self._turn, self._timer):
            if handle is not None:
                handle.cancel()

    def _soon(self) -> None:
        if self._turn is None and not self.process.gone:
            self._turn = self._loop.call_soon(self._move)

    def _move(self) -> None:
        self._turn = None
        process = self.process
        try:
            process.tick()
            process.flush()
        except Exception as error:
            self._on_raised(error)
            process.kill()
        if process.step():
            self._soon()
        if process.gone:
            self.release()
            self._on_ended(self)
            return
        self._arm()

    def _arm(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        due = self.process.next_deadline()
        if due is not None:
            delay = max(0, due - self.process.link.session.clock.monotonic_ms()) / 1000
            self._timer = self._loop.call_later(delay, self._move)


def _strikes_nothing(process: MemoryProcess, frame: Frame) -> None:
    pass
