"""The host: a set of isolated sessions over one driver."""

from __future__ import annotations

from broker.clock import Clock, SystemClock
from broker.errors import UsageError
from broker.host.approval import Approve, refuse_all
from broker.host.driver import Driver
from broker.host.feature.services import NO_SERVICES, FeatureServices
from broker.host.outcome import Outcome
from broker.host.services import HostServices
from broker.host.session import Session
from broker.host.settings import HostSettings
from broker.host.trust import TrustPolicy


class Host:
    """Opens sessions. Sans-IO: ``driver`` does the IO, :class:`broker.adapters.aio.AsyncHost` and
    :class:`broker.adapters.blocking.BlockingHost` bring one along and are what most programs use. ``feature_services``
    is what extensions of API 0.1, 0.2 and 0.4 are served with.
    """

    def __init__(
        self,
        driver: Driver,
        *,
        settings: HostSettings | None = None,
        services: HostServices | None = None,
        trust: TrustPolicy | None = None,
        clock: Clock | None = None,
        approve: Approve = refuse_all,
        feature_services: FeatureServices = NO_SERVICES,
    ) -> None:
        """``services`` is what is bound to the optional services of 0.3 extensions, ``feature_services`` what those of
        API 0.1, 0.2 and 0.4 are served with, and ``trust`` says which of them may be started.

        Raises :class:`~broker.errors.UsageError` for services of another kind.
        """
        for name, given, kind in (
            ("services", services or HostServices(), HostServices),
            ("feature_services", feature_services, FeatureServices),
        ):
            if not isinstance(given, kind):
                raise UsageError(f"{name}: needs {kind.__name__}, not {type(given).__name__}", path=name)
        self.feature_services: FeatureServices = feature_services
        self.driver: Driver = driver
        self.approve: Approve = approve
        self.settings: HostSettings = settings or HostSettings()
        self.services: HostServices = services or HostServices()
        self.trust: TrustPolicy = trust or TrustPolicy()
        self.clock: Clock = clock or SystemClock()
        self._sessions: dict[str, Session] = {}
        self._closed = False

    @property
    def sessions(self) -> tuple[Session, ...]:
        """The open sessions, oldest first."""
        return tuple(self._sessions.values())

    def open_session(self, workspace: str, *, name: str | None = None) -> Session:
        """Open a session whose extensions run in ``workspace`` (an absolute path), with a bus of its own."""
        if self._closed:
            raise UsageError("the host is closed")
        session = Session(
            self, workspace=workspace, driver=self.driver, clock=self.clock, settings=self.settings, name=name
        )
        self._sessions[session.session_id] = session
        return session

    def close(self) -> Outcome[None]:
        """Close every session; settles when all of them are closed. Idempotent."""
        self._closed = True
        closing: Outcome[None] = Outcome()
        waiting = [session.close() for session in self.sessions]

        def check(_: object = None) -> None:
            if all(outcome.done for outcome in waiting):
                closing.succeed(None)

        for outcome in waiting:
            outcome.add_callback(check)
        check()
        return closing

    def _forget(self, session: Session) -> None:
        self._sessions.pop(session.session_id, None)
