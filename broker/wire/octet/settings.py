"""The phases of a connection, and what the host decides about it."""

from __future__ import annotations

from enum import Enum
from typing import Any

from attrs import field, frozen

from broker.errors import UsageError
from broker.limits import CANCEL_GRACE_MS, MAX_PORTABLE_INTEGER, REQUEST_TIMEOUT_MS, TOMBSTONE_MS
from broker.wire.octet.models import ProtocolLimits


class Phase(Enum):
    """How far a connection has come; it only moves forward."""

    NEW = "new"
    INITIALIZING = "initializing"
    READY = "ready"
    DRAINING = "draining"
    CLOSED = "closed"


def check_duration(name: str, value: Any, *, method: str | None = None) -> None:
    """Raise :class:`~broker.errors.UsageError` unless ``value`` is milliseconds, a whole number from 1 on.

    Deadlines are made of it much later, where nobody could answer for one that is no number.
    """
    if type(value) is not int or not 1 <= value <= MAX_PORTABLE_INTEGER:
        raise UsageError(
            f"{name} must be a whole number from 1 to {MAX_PORTABLE_INTEGER}, not {value!a:.80}",
            path=name,
            method=method,
            maximum=MAX_PORTABLE_INTEGER,
        )


@frozen(kw_only=True)
class ConnectionSettings:
    """What the host decides about a connection.

    ``request_timeout_ms`` is the default time of a request, ``cancel_grace_ms`` the time a cancelled request may stay
    without its terminal answer before the connection fails (``None``: for ever; then its slot is given back after
    ``TOMBSTONE_MS``), and ``limits`` the bounds in force until the offer of ``initialize`` replaces them.
    """

    request_timeout_ms: int = REQUEST_TIMEOUT_MS
    cancel_grace_ms: int | None = CANCEL_GRACE_MS
    limits: ProtocolLimits = field(factory=ProtocolLimits)

    def __attrs_post_init__(self) -> None:
        check_duration("request_timeout_ms", self.request_timeout_ms)
        if self.cancel_grace_ms is not None and not 0 <= self.cancel_grace_ms <= TOMBSTONE_MS:
            raise UsageError(f"cancel_grace_ms must be None or 0 to {TOMBSTONE_MS}, not {self.cancel_grace_ms}")
