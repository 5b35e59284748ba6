"""A session for tests: who takes part, what happens, how long that takes, and what is left of it to look at."""

from __future__ import annotations

from collections.abc import Callable
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self

from broker.errors import UsageError
from broker.host import Session
from broker.limits import MAX_SETTLE_MS
from broker.testing.clock import ManualClock
from broker.testing.driven import DrivenSession
from broker.testing.faults import Fault, Faults, faults_of
from broker.testing.memory_process import Frame
from broker.testing.plan import Make, maker_of, process_of
from broker.testing.script_run import Player
from broker.testing.sequence import SequenceError
from broker.wire.octet.manifest_model import Manifest
from broker.wire.odek.config import ServerConfig

if TYPE_CHECKING:
    from broker.testing.host import MemoryHost


class MemorySession(DrivenSession):
    """One session of a :class:`MemoryHost`; ``session`` is the sans-IO one underneath.

    ``recorder`` holds everything that happened, ``notices`` what the session announced. Used as a context manager it
    closes at the end and sees that every script was played; a failure inside is shown with the sequence.
    """

    clock: ManualClock

    def __init__(self, host: MemoryHost, session: Session) -> None:
        super().__init__(session)
        self.host: MemoryHost = host
        self.clock = host.clock
        self._driver = host.driver
        self._driver.taps.append(self._tapped)
        self._driver.fault_taps.append(self.recorder.fault)

    def process(self, name: str) -> Any:
        """The object that runs as the newest process called ``name``; raises :class:`UsageError` when none does."""
        found = self._driver.process(name)
        if found is None:
            raise UsageError(f"no process called {name} runs", extension=name)
        return found

    @property
    def processes(self) -> list[Any]:
        """The object of every process so far, running or not, in the order in which they were started."""
        return [process for link, process in self._driver.spawned_by.items() if link.session is self.session]

    # -- what happens --------------------------------------------------------------------------------------------------

    def run(self) -> None:
        """Let everything happen that can without time passing."""
        self._driver.run()

    def advance(self, milliseconds: int) -> None:
        """Let time pass, stopping at every deadline on the way."""
        self._driver.advance(milliseconds)

    def until(self, condition: Callable[[], object], *, within_ms: int | None = None) -> None:
        """Let things happen until ``condition()`` holds.

        Time passes from deadline to deadline only when nothing else can happen, and at most ``within_ms`` or what the
        host's ``patience_ms`` says; with 0 none does. Raises ``AssertionError`` with the sequence when it does not come
        to hold.
        """
        within_ms = self.host.patience_ms if within_ms is None else within_ms
        end = self.clock.monotonic_ms() + within_ms
        self.run()
        while not condition():
            if self.clock.monotonic_ms() >= end or self._driver.next_deadline() is None:
                raise self._stuck(within_ms)
            self._driver.advance_to_deadline(end)

    def inject(self, fault: Fault | Faults, *, generation: int | None = None) -> None:
        """Have a fault, or each of a plan, happen now, whatever moment it names."""
        for one in faults_of(fault):
            self._driver.inject(one, generation)
        self.run()

    def close(self) -> None:
        """Stop everything in order, letting time pass for it, and close the bus. Idempotent."""
        self.settle(self.session.close(), within_ms=MAX_SETTLE_MS)
        self.recorder.close()
        if self._tapped in self._driver.taps:
            self._driver.taps.remove(self._tapped)
            self._driver.fault_taps.remove(self.recorder.fault)

    def check_scripts(self) -> None:
        """Every script that ran was played to its end, or struck by a fault; :class:`ScriptError` otherwise."""
        for link, process in self._driver.spawned_by.items():
            if link.session is self.session and isinstance(process, Player) and link not in self._driver.struck:
                process.run.check_played()

    def report(self) -> str:
        """What happened as a sequence, and how to make it happen again."""
        return f"{self.recorder}\n{self.host.replay_line}"

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if error is None:
            self.close()
            self.check_scripts()
        else:
            error.add_note(self.host.replay_line if isinstance(error, SequenceError) else self.report())

    # -- inside --------------------------------------------------------------------------------------------------------

    def _planned(
        self, thing: Any, process: Any, name: str | None, options: dict[str, Any]
    ) -> tuple[Manifest | ServerConfig, Make | None]:
        if isinstance(thing, Manifest | ServerConfig):
            if process is None:
                raise UsageError(f"{thing.name}: give the object that stands for its program with it")
            return thing, maker_of(process, thing.name)
        plan = process_of(thing, name=name, **options)
        return plan.member, plan.make

    def _place(self, name: str, make: Make | None) -> None:
        if make is not None:
            self.host.place(self.session, name, make)

    def _tapped(self, frame: Frame) -> None:
        if frame.link.session is self.session:
            self.recorder.frame(frame)

    def _stuck(self, within_ms: int) -> SequenceError:
        due = self._driver.next_deadline()
        if due is None:
            why = "nothing more happens by itself; does somebody wait for what nobody sends?"
        else:
            left = due - self.clock.monotonic_ms()
            why = f"nothing more happens within {within_ms} ms; the next deadline is in {left} ms"
        return SequenceError(f"still open: {why}\n{self.recorder}")
