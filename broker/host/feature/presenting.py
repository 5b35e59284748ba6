"""Presentation snapshots on their way to the host: bounded, and no more of them than a person can follow.

At most 32 a second are handed on for one process; a newer snapshot of the same parent or owner takes the place of one
that still waits. Source: octet notes, section 5 (``presentation/update``).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, Final

from broker.clock import Clock
from broker.errors import ResourceExhaustedError
from broker.host.feature.services import Origin, Presentation
from broker.limits import LIMITS, MAX_PRESENTATIONS_PER_SECOND

_INTERVAL_MS: Final = 1_000
_COUNTED: Final = (
    ("activities", "MAX_PRESENTATION_ACTIVITIES"),
    ("nodes", "MAX_PRESENTATION_NODES"),
    ("actions", "MAX_PRESENTATION_ACTIONS"),
)


def check_snapshot(snapshot: Mapping[str, Any]) -> None:
    """Raise :class:`~broker.errors.ResourceExhaustedError` for too many activities, nodes or actions, at any depth."""
    counts = dict.fromkeys((name for name, _ in _COUNTED), 0)
    pending: list[Any] = [snapshot]
    while pending:
        value = pending.pop()
        if isinstance(value, Mapping):
            for name in counts:
                items = value.get(name)
                counts[name] += len(items) if type(items) is list else 0
            pending.extend(value.values())
        elif type(value) is list:
            pending.extend(value)
    for name, limit in _COUNTED:
        if counts[name] > LIMITS[limit].value:
            raise ResourceExhaustedError(
                f"presentation/update: too many {name} ({limit}: observed {counts[name]}, "
                f"maximum {LIMITS[limit].value})",
                path=f"snapshot.{name}",
                limit=limit,
                observed=counts[name],
                maximum=LIMITS[limit].value,
            )


class PresentationFeed:
    """The snapshots of one process generation. ``report`` is told what the host's service raised."""

    def __init__(self, service: Presentation, clock: Clock, report: Callable[[BaseException], None]) -> None:
        self._service = service
        self._clock = clock
        self._report = report
        self._waiting: dict[Origin, Mapping[str, Any]] = {}
        self._shown: dict[Origin, None] = {}
        self._moments: list[int] = []

    def update(self, origin: Origin, snapshot: Mapping[str, Any]) -> None:
        """Hand the snapshot on, now or when it is its turn. Raises for one that is over a bound."""
        check_snapshot(snapshot)
        self._waiting[origin] = snapshot
        self.tick()

    def withdraw(self, parent_id: int | None = None) -> None:
        """Show nothing any more of this parent; of nothing at all without one."""
        for origin in [origin for origin in self._waiting if parent_id in (None, origin.parent_id)]:
            del self._waiting[origin]
        for origin in [origin for origin in self._shown if parent_id in (None, origin.parent_id)]:
            del self._shown[origin]
            self._call(partial(self._service.withdraw, origin))

    def tick(self) -> None:
        """Hand on what may go now."""
        now = self._clock.monotonic_ms()
        self._moments = [moment for moment in self._moments if now - moment < _INTERVAL_MS]
        while self._waiting and len(self._moments) < MAX_PRESENTATIONS_PER_SECOND:
            origin = next(iter(self._waiting))
            snapshot = self._waiting.pop(origin)
            self._moments.append(now)
            self._shown[origin] = None
            self._call(partial(self._service.show, origin, snapshot))

    def next_deadline(self) -> int | None:
        """When the next snapshot that waits may go."""
        return self._moments[0] + _INTERVAL_MS if self._waiting and self._moments else None

    def _call(self, act: Callable[[], None]) -> None:
        try:
            act()
        except KeyboardInterrupt:
            raise
        except BaseException as error:
            self._report(error)
