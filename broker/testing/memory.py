"""A session without processes: it runs over in-memory pairs, in one thread, on a clock the test moves.

:class:`MemoryDriver` stands in for the asyncio driver. Each generation it starts talks to a
:class:`~broker.testing.ScriptedProcess` of its own, frame by frame, exactly as a process would over its pipes.
Everything happens inside :meth:`MemoryDriver.run`, in a fixed order; nothing sleeps.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from functools import partial
from typing import Any, NoReturn, TypeAlias, TypeVar, cast

from broker.adapters.artifacts import ArtifactRoots
from broker.errors import BrokerError, SetupError, UsageError
from broker.host import Outcome, ProcessLink, Session, Work
from broker.host.output import Output
from broker.limits import MAX_DELIVERY_ROUNDS
from broker.testing.clock import ManualClock
from broker.testing.scripted import ScriptedProcess

T = TypeVar("T")
Factory: TypeAlias = Callable[[Any], ScriptedProcess]


class _MemoryProcess:
    def __init__(self, link: ProcessLink, extension: ScriptedProcess) -> None:
        self.link = link
        self.extension = extension
        self.partial: tuple[Output, int] | None = None
        self._closing = False
        self._killed = False
        self._gone = False

    def flush(self) -> None:
        while self.extension.reading and not self._gone:
            output = self._next()
            if output is None:
                break
            self.extension.hear(output.data)
            output.written()
        if self._closing and not self.extension.stdin_closed and not self._gone:
            self.extension.stdin_closed = True
            self.extension.on_eof()

    def _next(self) -> Output | None:
        while (output := self.link.next_output()) is not None:
            if output.valid:
                return output
            output.dropped()
        return None

    def close_stdin(self) -> None:
        self._closing = True

    def terminate(self) -> None:
        self.extension.on_terminate()

    def kill(self) -> None:
        self._killed = True

    def step(self) -> bool:
        """Move what is there to move; whether anything was."""
        if self._gone:
            return False
        moved = False
        extension = self.extension
        while extension.stderr:
            moved = True
            self.link.receive_stderr(extension.stderr.popleft())
        while extension.sent and not self._killed and (self.link.reading or extension.exit_status is not None):
            moved = True
            data = extension.sent.popleft()
            if data is None:
                self.link.receive_eof()
            else:
                self.link.receive(data)
        if self._killed or extension.exit_status is not None:
            self._gone = moved = True
            self.link.exited(-9 if self._killed else extension.exit_status)
        return moved


class MemoryDriver:
    """A :class:`broker.host.Driver` whose processes are objects; ``factories`` maps extension names to their makers."""

    def __init__(self, clock: ManualClock, factories: dict[str, Factory]) -> None:
        self._clock = clock
        self._factories = factories
        self._processes: list[_MemoryProcess] = []
        self._starting: deque[ProcessLink] = deque()
        self._sessions: dict[Session, None] = {}
        self.spawned: list[ScriptedProcess] = []

    def spawn(self, link: ProcessLink) -> None:
        """Start the link's object at the next :meth:`run`."""
        self._starting.append(link)

    def schedule(self, session: Session) -> None:
        """Remember the session; :meth:`run` looks at all of them."""
        self._sessions[session] = None

    def offload(self, work: Callable[[], T]) -> Outcome[T]:
        """Do ``work`` at once: in memory nothing blocks."""
        outcome: Outcome[T] = Outcome()
        outcome.settle_with(work)
        return outcome

    def adopt(self, awaitable: Awaitable[T]) -> Work[T]:
        """Run a coroutine that waits for nothing; in memory there is no loop that could wake one."""
        coroutine = cast(Coroutine[Any, Any, T], awaitable)
        work: Work[T] = Work(coroutine.close)
        try:
            coroutine.send(None)
        except StopIteration as stop:
            work.succeed(stop.value)
        except Exception as error:
            work.settle_with(partial(_raise, error))
        else:
            coroutine.close()
            work.fail(UsageError("in memory a service answers with a value or an Outcome, or awaits nothing"))
        return work

    def artifact_files(self, roots: Sequence[str]) -> ArtifactRoots:
        """The artifacts below ``roots``: real files, as there is nothing gained by others."""
        return ArtifactRoots(roots)

    def run(self) -> None:
        """Let everything happen that can without the clock moving."""
        for _ in range(MAX_DELIVERY_ROUNDS * MAX_DELIVERY_ROUNDS):
            if not self._round():
                return
        raise AssertionError("the extensions never come to rest")

    def advance(self, milliseconds: int) -> None:
        """Move the clock, stopping at every deadline on the way, and let everything happen that follows."""
        self.run()
        end = self._clock.monotonic_ms() + milliseconds
        while True:
            now = self._clock.monotonic_ms()
            due = [deadline for session in self._sessions if (deadline := session.next_deadline()) is not None]
            step = min([end, *(max(deadline, now) for deadline in due)])
            self._clock.advance_ms(step - now)
            for session in list(self._sessions):
                session.tick()
            self.run()
            if step == end:
                return

    def _round(self) -> bool:
        moved = False
        for session in list(self._sessions):
            session.tick()
        while self._starting:
            moved = True
            self._start(self._starting.popleft())
        for process in list(self._processes):
            process.flush()
            moved = process.step() or moved
            if process._gone:
                self._processes.remove(process)
        for session in list(self._sessions):
            moved = session.bus.deliver() > 0 or moved
        return moved

    def _start(self, link: ProcessLink) -> None:
        factory = self._factories.get(link.name)
        if factory is None:
            link.spawn_failed(SetupError(f"no factory for {link.name}", extension=link.name))
            return
        try:
            extension = factory(link)
        except BrokerError as error:
            link.spawn_failed(error)
            return
        process = _MemoryProcess(link, extension)
        self._processes.append(process)
        self.spawned.append(extension)
        link.spawned(process)


def _raise(error: Exception) -> NoReturn:
    raise error
