"""Sessions over real processes that a test drives like those in memory, so that one test can be run both ways.

What :class:`~broker.testing.MemorySession` runs as an object is written to disk here and runs as a program, over pipes,
in real time or on a clock that the test moves.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable
from pathlib import Path
from types import TracebackType
from typing import Any, Final, Self, TypeVar

from broker.adapters.aio import AsyncioDriver
from broker.adapters.aio.waiting import wait
from broker.adapters.discovery import find_manifests, load_manifest
from broker.clock import Clock
from broker.errors import ExtensionError, UsageError
from broker.host import Host, HostServices, HostSettings, Outcome, Session, TrustPolicy
from broker.host.feature.services import NO_SERVICES, FeatureServices
from broker.limits import PATIENCE_LOOK_MS, PATIENCE_MS
from broker.testing.clock import ManualClock
from broker.testing.driven import DrivenSession
from broker.testing.faults import Fault, Faults, faults_of
from broker.testing.host import Decide, approval
from broker.testing.mixed import MixedDriver
from broker.testing.plan import Make, default_name
from broker.testing.program import write_member
from broker.testing.sequence import SequenceError
from broker.wire.octet.manifest_model import Manifest
from broker.wire.odek.config import ServerConfig

T = TypeVar("T")

_TURNS: Final = 3


class ProcessHost:
    """A host whose extensions are real processes; used without a running loop, as it has one of its own.

    The programs are written below ``directory``. The rest is as for :class:`~broker.testing.MemoryHost`; ``clock`` is
    that of the machine unless it is a :class:`~broker.testing.ManualClock`, and ``patience_ms`` how long, in real time,
    its sessions wait for something.

    ::

        with ProcessHost(tmp_path) as host:
            session = host.open_session(tmp_path)
            session.start(Greeter)
            session.call("greeter", "greet")
    """

    seed: int | None = None

    def __init__(
        self,
        directory: str | os.PathLike[str],
        *,
        settings: HostSettings | None = None,
        services: HostServices | None = None,
        trust: TrustPolicy | None = None,
        approve: Decide | None = None,
        feature_services: FeatureServices = NO_SERVICES,
        clock: Clock | None = None,
        patience_ms: int = PATIENCE_MS,
    ) -> None:
        self.directory: Path = Path(directory)
        self.patience_ms: int = patience_ms
        self.loop: asyncio.AbstractEventLoop = asyncio.new_event_loop()
        self.driver: AsyncioDriver = self.loop.run_until_complete(_made_inside())
        self.mixed: MixedDriver = MixedDriver(self.driver)
        self.host: Host = Host(
            self.mixed,
            settings=settings,
            services=services,
            trust=trust,
            clock=clock,
            approve=approval(approve),
            feature_services=feature_services,
        )
        self.sessions: list[ProcessSession] = []

    def open_session(self, workspace: str | os.PathLike[str], *, name: str | None = None) -> ProcessSession:
        """Open a session on a directory, where its processes run."""
        self.sessions.append(ProcessSession(self, self.host.open_session(os.path.abspath(workspace), name=name)))
        return self.sessions[-1]

    def close(self) -> None:
        """Close every session in order and leave no process behind. Idempotent."""
        if self.loop.is_closed():
            return
        try:
            for session in self.sessions:
                session.close()
        finally:
            self._end()

    finish = close

    def abandon(self) -> None:
        """Kill every process instead of stopping it in order. Idempotent."""
        if self.loop.is_closed():
            return
        try:
            for session in self.sessions:
                session.kill()
        finally:
            self._end()

    def _end(self) -> None:
        self.loop.run_until_complete(self.driver.aclose())
        self.loop.run_until_complete(self.loop.shutdown_default_executor())
        self.loop.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if error is None:
            self.close()
        else:
            self.abandon()


class ProcessSession(DrivenSession):
    """One session of a :class:`ProcessHost`.

    What is added is a class or function at the top of a module, which is written to disk, or what is there already: the
    path of an extension, a manifest, or the configuration of a server. Frames of real processes are not recorded; what
    the bus and the session do is.
    """

    def __init__(self, host: ProcessHost, session: Session) -> None:
        super().__init__(session)
        self.host: ProcessHost = host
        self.clock: Clock = session.clock

    def run(self) -> None:
        """Let the loop do what it can at this moment; what processes do takes longer, see :meth:`until`."""
        for _ in range(_TURNS):
            self.host.loop.run_until_complete(asyncio.sleep(0))

    def advance(self, milliseconds: int) -> None:
        """Move a manual clock, and let the host do what has become due."""
        if not isinstance(self.clock, ManualClock):
            raise UsageError("the clock of this session is the machine's; give its host clock=ManualClock()")
        self.clock.advance_ms(milliseconds)
        self.session.changed()
        self.run()

    def settle(self, outcome: Outcome[T], *, within_ms: int | None = None) -> T:
        """Wait until ``outcome`` settles, at most as long as :meth:`until` does; its error is raised."""
        seconds = self._seconds(within_ms)
        try:
            return self.host.loop.run_until_complete(asyncio.wait_for(wait(outcome), seconds))
        except TimeoutError:
            if outcome.done:
                raise
            raise SequenceError(f"still open after {seconds} s:\n{self.recorder}") from None

    def until(self, condition: Callable[[], object], *, within_ms: int | None = None) -> None:
        """Wait until ``condition()`` holds, ``within_ms`` real milliseconds or what the host's patience is."""
        end = self.host.loop.time() + self._seconds(within_ms)
        while not condition():
            if self.host.loop.time() > end:
                raise SequenceError(f"did not come to hold within {self._seconds(within_ms)} s:\n{self.recorder}")
            self.host.loop.run_until_complete(asyncio.sleep(PATIENCE_LOOK_MS / 1000))

    def inject(self, fault: Fault | Faults, *, generation: int | None = None) -> None:
        """Have a fault, or each of a plan, happen now: a real process can be killed and stalled."""
        for one in faults_of(fault):
            self.host.mixed.inject(self.session, one, generation)
            self.recorder.fault(one)

    def close(self) -> None:
        """Stop everything in order and close the bus. On a manual clock, which nobody moves now, all are killed."""
        if isinstance(self.clock, ManualClock):
            self.kill()
        self.settle(self.session.close())
        self.recorder.close()

    def kill(self) -> None:
        """Kill every process, and close the session."""
        for link in self.session.links:
            link.fail(ExtensionError("the test is over"))
        self.settle(self.session.close(), within_ms=PATIENCE_MS)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if error is None:
            self.close()
        else:
            self.kill()

    def _planned(
        self, thing: Any, process: Any, name: str | None, options: dict[str, Any]
    ) -> tuple[Manifest | ServerConfig, Make | None]:
        if isinstance(thing, str | os.PathLike):
            if options or name is not None or process is not None:
                raise UsageError(f"{os.fspath(thing)}: give nothing with it that it says itself")
            found = find_manifests(thing)
            if len(found) != 1:
                raise UsageError(f"{os.fspath(thing)} holds {len(found)} extensions; name one", path=os.fspath(thing))
            return load_manifest(found[0]), None
        if isinstance(thing, Manifest | ServerConfig) and process is None:
            return thing, None
        if not isinstance(thing, Manifest | ServerConfig):
            name = name or default_name(thing)
            return write_member(self.host.directory / name, thing, name=name, **options), None
        # Its manifest stands: only the program is another one.
        write_member(self.host.directory / thing.name, process, name=thing.name, only_program=True)
        return thing, None

    def _place(self, name: str, make: Make | None) -> None:
        """Its program was written, and that is what the host starts."""

    def _seconds(self, within_ms: int | None) -> float:
        return (self.host.patience_ms if within_ms is None else within_ms) / 1000


async def _made_inside() -> AsyncioDriver:
    return AsyncioDriver()
