"""The life of a session's extensions and servers, told to an event stream."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from broker.bus import trace
from broker.host.notices import Exited, Health, HealthChanged, Notice, Started
from broker.wire.odek.events.life import (
    ExtensionExited,
    ExtensionParked,
    ExtensionRestarting,
    ExtensionStarted,
    LifePayload,
    PeerRetired,
)
from broker.wire.odek.events.run import error_class

if TYPE_CHECKING:
    from broker.host.session import Session


def watch(session: Session, emit: Callable[[LifePayload], object]) -> Callable[[], None]:
    """Tell ``emit`` of every start, exit, restart and retired peer of ``session``; gives what ends it.

    ``emit`` must not block, as that of an :class:`~broker.adapters.event_emitter.EventEmitter` does not.
    """

    def noticed(notice: Notice) -> None:
        payload = from_notice(notice)
        if payload is not None:
            emit(payload)

    def traced(record: trace.Record) -> None:
        if isinstance(record, trace.Detached) and record.retired:
            emit(PeerRetired(extension=record.peer, generation=record.generation))

    endings = (session.add_observer(noticed), session.bus.add_trace(traced))

    def end() -> None:
        for ending in endings:
            ending()

    return end


def from_notice(notice: Notice) -> LifePayload | None:
    """The event of something a session announced; ``None`` when there is none for it."""
    if isinstance(notice, Started):
        return ExtensionStarted(extension=notice.extension, generation=notice.generation, tools=len(notice.tools))
    if isinstance(notice, Exited):
        return ExtensionExited(
            extension=notice.extension,
            generation=notice.generation,
            status=notice.status,
            error_class=None if notice.error is None else error_class(notice.error),
        )
    if isinstance(notice, HealthChanged):
        if notice.health is Health.BACKOFF:
            return ExtensionRestarting(extension=notice.extension)
        if notice.health is Health.PARKED:
            return ExtensionParked(extension=notice.extension)
    return None
