"""What a session tells those who watch it: starts, exits, states, diagnostics."""

from __future__ import annotations

from enum import Enum
from typing import TypeAlias

from attrs import frozen

from broker.errors import BrokerError


class Health(Enum):
    """Where an extension stands (octet notes, section 2.6)."""

    STARTING = "starting"
    INITIALIZING = "initializing"
    READY = "ready"
    DEGRADED = "degraded"
    DRAINING = "draining"
    STOPPED = "stopped"
    CRASHED = "crashed"
    BACKOFF = "backoff"
    PARKED = "parked"


@frozen
class Started:
    """A generation is negotiated and serves; ``tools`` is its complete catalogue."""

    extension: str
    generation: int
    tools: tuple[str, ...]


@frozen
class Exited:
    """A generation's process is gone. ``status`` is its exit status (negative: a signal), None when unknown.

    ``error`` is None after an orderly stop.
    """

    extension: str
    generation: int
    status: int | None
    reason: str
    error: BrokerError | None


@frozen
class HealthChanged:
    """An extension went from one state to another."""

    extension: str
    health: Health
    reason: str


@frozen
class Diagnostic:
    """Something worth a person's look. ``source`` is ``stderr`` (a line the process wrote), ``notification`` (it
    wanted a person to read this, and the host has no other place for it), ``wire`` or ``host``.

    Text from the process has its control characters escaped and its length bounded.
    """

    extension: str
    generation: int
    source: str
    text: str


@frozen
class CatalogueChanged:
    """An extension changed its tools while it serves; ``tools`` is the complete catalogue of this ``revision``."""

    extension: str
    generation: int
    revision: int
    tools: tuple[str, ...]


Notice: TypeAlias = Started | Exited | HealthChanged | Diagnostic | CatalogueChanged
