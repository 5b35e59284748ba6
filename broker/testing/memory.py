"""A session without processes: it runs over in-memory pairs, in one thread, on a clock the test moves.

:class:`MemoryDriver` stands in for the asyncio driver. Each generation it starts talks to a
:class:`~broker.testing.ScriptedProcess` of its own, frame by frame, exactly as a process would over its pipes.
Everything happens inside :meth:`MemoryDriver.run`, in a fixed order or in one that a schedule decides; nothing sleeps.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable, Coroutine, Iterator, Sequence
from functools import partial
from typing import Any, NoReturn, TypeAlias, TypeVar

from broker.adapters.artifacts import ArtifactRoots
from broker.errors import BrokerError, CancelledError, SetupError, UsageError
from broker.host import Outcome, ProcessLink, Session, Work
from broker.limits import MAX_IDLE_DEADLINES, MAX_MEMORY_MOVES
from broker.testing.clock import ManualClock, check_passing
from broker.testing.faults import Fault, Faults, strike
from broker.testing.memory_process import Frame, MemoryProcess, step_name
from broker.testing.schedule import Schedule, StepQueue
from broker.testing.scripted import ScriptedProcess

T = TypeVar("T")
Factory: TypeAlias = Callable[[Any], ScriptedProcess]


class MemoryDriver:
    """A :class:`broker.host.Driver` whose processes are objects; ``factories`` maps extension names to their makers.

    Without a ``schedule`` things happen in a fixed order: each process in turn hears everything the host has for it,
    then the host hears all it has to say. With one, ``steps`` is the queue the schedule chooses from. ``faults`` befall
    the processes as the plan says. ``taps`` are told of every frame, ``fault_taps`` of every fault that happened.
    """

    def __init__(
        self,
        clock: ManualClock,
        factories: dict[str, Factory],
        *,
        schedule: Schedule | None = None,
        faults: Faults | None = None,
    ) -> None:
        self._clock = clock
        self._factories = factories
        self._processes: list[MemoryProcess] = []
        self._starting: deque[ProcessLink] = deque()
        self._sessions: dict[Session, None] = {}
        self._faults = (faults or Faults()).arm(clock.monotonic_ms())
        self.spawned: list[ScriptedProcess] = []
        self.spawned_by: dict[ProcessLink, ScriptedProcess] = {}
        self.struck: set[ProcessLink] = set()
        self._idle_deadlines = 0
        self.steps: StepQueue | None = None if schedule is None else StepQueue(schedule)
        self.taps: list[Callable[[Frame], object]] = []
        self.fault_taps: list[Callable[[Fault], object]] = []

    # -- for sessions --------------------------------------------------------------------------------------------------

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
        coroutine = awaitable if isinstance(awaitable, Coroutine) else _waits_for(awaitable)
        work: Work[T] = Work(coroutine.close)
        try:
            coroutine.send(None)
        except StopIteration as stop:
            work.succeed(stop.value)
        except asyncio.CancelledError:
            work.fail(CancelledError("the host's own code was cancelled", reason="host"))
        except Exception as error:
            work.settle_with(partial(_raise, error))
        else:
            coroutine.close()
            work.fail(UsageError("in memory a service answers with a value or an Outcome, or awaits nothing"))
        return work

    def artifact_files(self, roots: Sequence[str]) -> ArtifactRoots:
        """The artifacts below ``roots``: real files, as there is nothing gained by others."""
        return ArtifactRoots(roots)

    # -- for tests -----------------------------------------------------------------------------------------------------

    def run(self) -> None:
        """Let everything happen that can without the clock moving."""
        self._strike_due()
        move = self._round if self.steps is None else self._step
        for _ in range(MAX_MEMORY_MOVES):
            if not move():
                return
        raise AssertionError("the extensions never come to rest")

    def advance(self, milliseconds: int) -> None:
        """Move the clock, stopping at every deadline on the way, and let everything happen that follows."""
        check_passing(milliseconds)
        end = self._clock.monotonic_ms() + milliseconds
        while self.advance_to_deadline(end):
            pass

    def advance_to_deadline(self, end_ms: int) -> bool:
        """Move the clock to the next deadline, at the latest to the monotonic millisecond ``end_ms``.

        Answers whether that is still to come.
        """
        self.run()
        now = self._clock.monotonic_ms()
        due = self.next_deadline()
        step = end_ms if due is None else min(end_ms, max(due, now))
        self._idle_deadlines = self._idle_deadlines + 1 if due is not None and due <= now else 0
        if self._idle_deadlines > MAX_IDLE_DEADLINES:
            raise AssertionError(f"a deadline at {due} ms does not go away, now at {now} ms: {self._whose(due)}")
        self._clock.advance_ms(max(0, step - now))
        for session in list(self._sessions):
            session.tick()
        self.run()
        return step < end_ms

    def next_deadline(self) -> int | None:
        """The earliest monotonic millisecond at which something is to happen by itself; None when nothing is."""
        due = [session.next_deadline() for session in self._sessions]
        due += [process.next_deadline() for process in self._processes]
        due.append(self._faults.next_deadline(self._clock.monotonic_ms()))
        return min((moment for moment in due if moment is not None), default=None)

    def process(self, name: str) -> ScriptedProcess | None:
        """The object that runs as the newest process called ``name``; None when none runs."""
        found = self._find(name)
        return None if found is None else found.extension

    def inject(self, fault: Fault, generation: int | None = None) -> None:
        """Have ``fault`` happen now, whatever its moment, to the newest process of its name or to that ``generation``.

        Raises :class:`UsageError` if its process is not there.
        """
        if fault.kind == "clock_jump":
            self._clock.step_wall_ms(fault.options["milliseconds"])
        elif fault.kind == "suspend":
            self._clock.advance_ms(fault.options["milliseconds"])
        else:
            process = self._find(fault.extension, generation)
            if process is None:
                raise UsageError(f"{fault}: no process called {fault.extension} runs", extension=fault.extension)
            self._strike(fault, process)
            return
        self._tell(fault)

    # -- inside --------------------------------------------------------------------------------------------------------

    def _round(self) -> bool:
        moved = False
        for session in list(self._sessions):
            session.tick()
        while self._starting:
            moved = True
            self._start(self._starting.popleft())
        for process in list(self._processes):
            process.tick()
            process.flush()
            moved = process.step() or moved
            self._forget_gone()
        for session in list(self._sessions):
            moved = session.bus.deliver() > 0 or moved
        return moved

    def _step(self) -> bool:
        assert self.steps is not None
        for session in list(self._sessions):
            session.tick()
        for process in self._processes:
            process.tick()
        possible = dict(self._possible())
        step = self.steps.take(possible)
        if step is None:
            return False
        possible[step]()
        self._forget_gone()
        return True

    def _possible(self) -> Iterator[tuple[str, Callable[[], object]]]:
        for link in self._starting:
            yield f"{step_name(link)} starts", partial(self._start_now, link)
        for process in list(self._processes):
            yield from process.steps()
        for session in self._sessions:
            bus = session.bus
            if any(peer._inbox.queue for peer in bus._handled):
                yield f"the bus of {session.name} delivers" if session.name else "the bus delivers", bus.deliver

    def _start_now(self, link: ProcessLink) -> None:
        self._starting.remove(link)
        self._start(link)

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
        process = MemoryProcess(
            link,
            extension,
            now_ms=self._clock.monotonic_ms,
            passed=self._frame_passed,
            strike=self._frame_strikes,
            piped=self.steps is not None,
        )
        self._processes.append(process)
        self.spawned.append(extension)
        self.spawned_by[link] = extension
        link.spawned(process)
        self._strike_due()

    def _forget_gone(self) -> None:
        self._processes = [process for process in self._processes if not process.gone]

    def _find(self, name: str, generation: int | None = None) -> MemoryProcess | None:
        found = (process for process in reversed(self._processes) if process.link.name == name)
        return next((process for process in found if generation in (None, process.link.number)), None)

    def _whose(self, due: int | None) -> str:
        late = [process.label for process in self._processes if process.next_deadline() == due]
        return f"next_deadline() of {', '.join(late)} says so again after tick()" if late else "it is the host's"

    def _frame_passed(self, frame: Frame) -> None:
        for tap in self.taps:
            tap(frame)

    def _frame_strikes(self, process: MemoryProcess, frame: Frame) -> None:
        for fault in self._faults.passed(frame):
            self._strike(fault, process)

    def _strike_due(self) -> None:
        for fault in self._faults.due(self._clock.monotonic_ms()):
            process = self._find(fault.extension)
            # Who is not there yet is struck when it is.
            if not fault.extension or (process is not None and fault.generation in (None, process.link.number)):
                self._faults.taken(fault)
                self.inject(fault)

    def _strike(self, fault: Fault, process: MemoryProcess) -> None:
        self._tell(fault)
        self.struck.add(process.link)
        strike(fault, process, self._faults.plan.seed)

    def _tell(self, fault: Fault) -> None:
        for tap in self.fault_taps:
            tap(fault)


async def _waits_for(awaitable: Awaitable[T]) -> T:
    return await awaitable


def _raise(error: Exception) -> NoReturn:
    raise error
