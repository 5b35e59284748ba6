"""``session/create``, ``/fork``, ``/switch`` and ``/reload``: changes of the host's sessions, made when it is idle.

Requests wait in one bounded queue for the host's idle boundary and run in order, one at a time. What was begun is not
undone: a request that is cancelled, or whose process ends, meanwhile has its change made and nobody to tell. Source:
octet reference, models ``Session*Params``; octet notes, section 4.3; design, decisions 4 and 5.
"""

from __future__ import annotations

from collections import deque
from typing import Any, Final, Protocol

from attrs import define, field

from broker.errors import BrokerError, InternalError, ResourceExhaustedError, UsageError
from broker.host.outcome import Outcome
from broker.host.services.asking import Answer, Awaiting, Principal, ask, require_methods
from broker.limits import MAX_SESSION_REQUESTS_PER_PROCESS, MAX_SESSION_REQUESTS_QUEUED
from broker.wire.octet.schema import check
from broker.wire.octet.session_models import (
    SessionChange,
    SessionCreateParams,
    SessionForkParams,
    SessionLifecycleResult,
    SessionSwitchParams,
)
from broker.wire.quoting import escape

DRIVER_METHODS: Final = ("create", "fork", "switch", "reload")


class SessionDriver(Protocol):
    """The host's own sessions. Each change gives the id of the session it is about, at once or later.

    Whatever a change raises is answered as ``internal_error``; the text of a :class:`~broker.errors.BrokerError` goes
    to the extension as the reason, that of any other exception does not.
    """

    def create(self, asked_by: Principal) -> Answer[str]:
        """Make a durable session, and stay in the active one."""
        ...

    def fork(self, asked_by: Principal) -> Answer[str]:
        """Copy the active session at its durable head, and stay in the active one."""
        ...

    def switch(self, asked_by: Principal, session_id: str) -> Answer[str]:
        """Make a session of the active workspace the active one."""
        ...

    def reload(self, asked_by: Principal) -> Answer[str]:
        """Read the active session from disk again."""
        ...


@define(eq=False)
class _Waiting:
    asked_by: Principal
    change: SessionChange
    outcome: Outcome[SessionLifecycleResult] = field(factory=Outcome)
    settled: bool = False


class SessionControl:
    """The queue of session changes of one :class:`broker.Session`.

    The host says when it is busy: between :meth:`begin_turn` and :meth:`end_turn` nothing is changed. It starts idle.
    """

    def __init__(self, driver: SessionDriver | None, *, awaiting: Awaiting | None = None) -> None:
        self._driver = driver
        self._awaiting = awaiting
        self._turns = 0
        self._waiting: deque[_Waiting] = deque()
        self._running: _Waiting | None = None

    # -- the host's side -----------------------------------------------------------------------------------------------

    @property
    def idle(self) -> bool:
        """Whether no turn is open."""
        return self._turns == 0

    @property
    def waiting(self) -> int:
        """Changes that wait for the idle boundary."""
        return len(self._waiting)

    def begin_turn(self) -> None:
        """Say that the host is busy until the matching :meth:`end_turn`; turns may overlap."""
        self._turns += 1

    def end_turn(self) -> None:
        """Say that a turn is over; when it was the last open one, what waits is carried out."""
        if not self._turns:
            raise UsageError("end_turn without begin_turn")
        self._turns -= 1
        self._pump()

    def activate(self, driver: SessionDriver) -> None:
        """From now on let ``driver`` make the changes; what waits is for it as well.

        Raises :class:`~broker.errors.UsageError` for one without the methods of a :class:`SessionDriver`.
        """
        require_methods(driver, "session_driver", *DRIVER_METHODS)
        self._driver = driver
        self._pump()

    def deactivate(self) -> None:
        """There is nothing to change any more: what waits fails as unavailable, and so does what is under way."""
        self._driver = None
        self._fail_all("unavailable")

    # -- the extension's side ------------------------------------------------------------------------------------------

    def submit(self, asked_by: Principal, change: SessionChange) -> Outcome[SessionLifecycleResult]:
        """Queue a change. Raises ``internal_error`` without a driver, ``resource_exhausted`` without room.

        Every error has ``data`` with a ``reason``, which is for the extension.
        """
        if self._driver is None:
            raise _failure("unavailable")
        open_ones = [*self._waiting, *([] if self._running is None else [self._running])]
        mine = sum(other.asked_by == asked_by and not other.settled for other in open_ones)
        for limit, observed, maximum, reason in (
            ("MAX_SESSION_REQUESTS_PER_PROCESS", mine, MAX_SESSION_REQUESTS_PER_PROCESS, "too many requests"),
            ("MAX_SESSION_REQUESTS_QUEUED", len(self._waiting), MAX_SESSION_REQUESTS_QUEUED, "the queue is full"),
        ):
            if observed >= maximum:
                raise ResourceExhaustedError(
                    f"session changes: {reason}",
                    limit=limit,
                    observed=observed + 1,
                    maximum=maximum,
                    data={"reason": reason},
                )
        entry = _Waiting(asked_by, change)
        self._waiting.append(entry)
        self._pump()
        return entry.outcome

    def withdraw(self, outcome: Outcome[SessionLifecycleResult]) -> None:
        """Nobody waits for this change any more; it is not made unless it has begun."""
        for entry in self._waiting:
            if entry.outcome is outcome:
                self._waiting.remove(entry)
                return
        if self._running is not None and self._running.outcome is outcome:
            self._running.settled = True

    def withdraw_all(self, asked_by: Principal) -> None:
        """The process that asked is on its way out: none of its changes begins any more."""
        for entry in [entry for entry in self._waiting if entry.asked_by == asked_by]:
            self._waiting.remove(entry)
            entry.outcome.fail(_failure("the process is being stopped"))

    def close(self) -> None:
        """The session ends."""
        self.deactivate()

    # -- inside --------------------------------------------------------------------------------------------------------

    def _pump(self) -> None:
        while self.idle and self._running is None and self._waiting and self._driver is not None:
            entry = self._running = self._waiting.popleft()
            self._run(self._driver, entry)

    def _run(self, driver: SessionDriver, entry: _Waiting) -> None:
        change, asked_by = entry.change, entry.asked_by

        def settled(done: Outcome[str]) -> None:
            if self._running is entry:
                self._running = None
            entry.settled = True
            error = done.error
            if error is not None:
                entry.outcome.fail(_failure(str(error), error))
            elif check(SessionLifecycleResult, {"session_id": done.result()}):
                entry.outcome.fail(_failure("the session driver gave no session id"))
            else:
                entry.outcome.succeed(SessionLifecycleResult(session_id=done.result()))
            self._pump()

        if isinstance(change, SessionSwitchParams):
            asked = ask(driver.switch, asked_by, change.session_id, awaiting=self._awaiting)
        elif isinstance(change, SessionCreateParams):
            asked = ask(driver.create, asked_by, awaiting=self._awaiting)
        elif isinstance(change, SessionForkParams):
            asked = ask(driver.fork, asked_by, awaiting=self._awaiting)
        else:
            asked = ask(driver.reload, asked_by, awaiting=self._awaiting)
        asked.add_callback(settled)

    def _fail_all(self, reason: str) -> None:
        running, self._running = self._running, None
        waiting = [*([] if running is None else [running]), *self._waiting]
        self._waiting.clear()
        for entry in waiting:
            entry.settled = True
            entry.outcome.fail(_failure(reason))


def _failure(reason: str, cause: BrokerError | None = None) -> InternalError:
    data: dict[str, Any] = {"reason": escape(reason)}
    error = InternalError(f"session change: {escape(reason)}", data=data)
    error.__cause__ = cause
    return error
