"""A host for tests: its extensions are objects, its time is a clock the test moves, and nothing sleeps."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable
from types import TracebackType
from typing import Any, Self, TypeAlias

from broker.errors import UsageError
from broker.host import Host, HostServices, HostSettings, Outcome, ProcessLink, Session, TrustPolicy
from broker.host.feature.services import NO_SERVICES, FeatureServices
from broker.limits import MAX_SETTLE_MS
from broker.testing.clock import ManualClock
from broker.testing.faults import Faults
from broker.testing.memory import MemoryDriver
from broker.testing.plan import Make
from broker.testing.schedule import Interleaving, Schedule, SeededSchedule
from broker.testing.scripted import ScriptedProcess
from broker.testing.session import MemorySession
from broker.wire.odek.approval import ApprovalRequest

Decide: TypeAlias = Callable[[ApprovalRequest], bool | Outcome[bool]]
Order: TypeAlias = Schedule | Iterable[int]


def approval(decide: Decide | None) -> Callable[[ApprovalRequest], Outcome[bool]]:
    """``decide`` as a host asks it: with an outcome, a refusal where nobody decides."""

    def ask(request: ApprovalRequest) -> Outcome[bool]:
        decision = False if decide is None else decide(request)
        if isinstance(decision, Outcome):
            return decision
        outcome: Outcome[bool] = Outcome()
        outcome.succeed(decision)
        return outcome

    return ask


class MemoryHost:
    """A host whose extensions are objects, on a clock that the test moves. Use it as a context manager, or not.

    With a ``seed`` everything that could happen in one order or another happens in an order drawn from it, and so are
    the delays of restarts; the same seed gives the same run. ``schedule`` decides the order instead: a
    :class:`~broker.testing.Schedule`, or the list of choices that a failing run printed. With neither the order is
    fixed. ``faults`` happen as planned. ``patience_ms`` is how much time its sessions let pass by themselves while they
    wait for something: with 0 it is the test alone that moves the clock. The rest is as for :class:`broker.Host`;
    ``approve`` may answer with a bool.

    ::

        with MemoryHost() as host, host.open_session() as session:
            session.start(Greeter)
            session.call("greeter", "greet", {})
    """

    def __init__(
        self,
        *,
        seed: int | None = None,
        schedule: Order | None = None,
        faults: Faults | None = None,
        settings: HostSettings | None = None,
        services: HostServices | None = None,
        trust: TrustPolicy | None = None,
        approve: Decide | None = None,
        feature_services: FeatureServices = NO_SERVICES,
        clock: ManualClock | None = None,
        patience_ms: int = MAX_SETTLE_MS,
    ) -> None:
        order: Schedule | None
        if schedule is None:
            order = None if seed is None else SeededSchedule(seed)
        elif isinstance(schedule, Interleaving):
            order = Interleaving(schedule.choices)  # one that was used is used anew
        else:
            order = Interleaving(schedule) if isinstance(schedule, Iterable) else schedule
        if type(patience_ms) is not int or patience_ms < 0:
            raise UsageError(
                f"patience_ms: expected a whole number from 0, got {patience_ms!a:.80}", path="patience_ms"
            )
        self.seed: int | None = seed
        self._ordered = schedule is not None
        self.faults: Faults = faults or Faults()
        self.clock: ManualClock = clock or ManualClock()
        self.patience_ms: int = patience_ms
        self._makers: dict[tuple[Session, str], Make] = {}
        self._factories: dict[str, Callable[[Any], ScriptedProcess]] = {}
        self.driver: MemoryDriver = MemoryDriver(self.clock, self._factories, schedule=order, faults=self.faults)
        self.host: Host = Host(
            self.driver,
            settings=settings,
            services=services,
            trust=trust,
            clock=self.clock,
            approve=approval(approve),
            feature_services=feature_services,
        )
        self.sessions: list[MemorySession] = []

    def open_session(self, workspace: str = "/workspace", *, name: str | None = None) -> MemorySession:
        """Open a session; ``workspace`` is a path that only those look at who want to."""
        if name is None and self.sessions:
            name = f"session-{len(self.sessions) + 1}"
        session = self.host.open_session(workspace, name=name)
        jitter = random.Random(f"restarts {self.seed or 0} {len(self.sessions)}")  # noqa: S311 - spreads restarts
        session.random_below = lambda bound: int(jitter.random() * bound)  # type: ignore[method-assign]
        self.sessions.append(MemorySession(self, session))
        return self.sessions[-1]

    @property
    def interleaving(self) -> Interleaving:
        """The order in which things happened so far, to be given as ``schedule`` of another host."""
        return Interleaving() if self.driver.steps is None else self.driver.steps.interleaving

    @property
    def replay(self) -> str:
        """The call that makes a host on which the same happens again."""
        given = [f"seed={self.seed}"] if self.seed is not None else []
        if self._ordered or (self.seed is None and self.driver.steps is not None):
            given.append(f"schedule={list(self.interleaving.choices)}")
        if self.faults.faults:
            given.append(f"faults={self.faults!r}")
        return f"MemoryHost({', '.join(given)})"

    @property
    def replay_line(self) -> str:
        """The line of a report that says how to make it happen again."""
        return f"   to replay: {self.replay}"

    def __repr__(self) -> str:
        return self.replay

    def close(self) -> None:
        """Close every session in order, letting time pass for it. Idempotent."""
        for session in self.sessions:
            session.close()

    def finish(self) -> None:
        """Close every session, and see that every script was played; what leaving the context does."""
        self.close()
        for session in self.sessions:
            session.check_scripts()

    def place(self, session: Session, name: str, make: Make) -> None:
        """Have ``make`` give the processes of the extension or server called ``name`` in ``session``."""
        self._makers[session, name] = make
        self._factories[name] = self._make

    def _make(self, link: ProcessLink) -> ScriptedProcess:
        make = self._makers.get((link.session, link.name))
        if make is None:
            raise UsageError(f"{link.name} has no object in this session; add it through the MemorySession")
        return make(link)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if error is None:
            self.finish()
