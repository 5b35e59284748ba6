"""Events that every connection has, whatever its wire."""

from __future__ import annotations

from attrs import frozen

from broker.errors import BrokerError


@frozen
class Diagnostic:
    """Something worth telling people that changed nothing. Safe to print, bounded."""

    text: str


@frozen
class Closed:
    """The connection has ended; the last event. ``error`` is ``None`` after an orderly end."""

    error: BrokerError | None
