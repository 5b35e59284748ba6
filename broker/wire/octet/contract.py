"""The capabilities and methods of the octet 0.3 contract, and the offer a host makes from them.

The two tables are those of the octet reference (sections "Capabilities" and "Methods and terminal semantics"), with the
capability each method belongs to. Deferred rows are kept: a peer that uses one is told apart from one that invents a
name, and their notification flag takes part in the envelope check.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from enum import Enum
from types import MappingProxyType
from typing import Final

from attrs import frozen

from broker.errors import Fault, InvalidParamsError, UsageError
from broker.limits import LIMITS
from broker.wire.octet.models import ContractOffer, ProtocolLimits
from broker.wire.octet.schema import over, refuse


class Direction(Enum):
    """Who sends a method."""

    HOST_TO_EXTENSION = "host_to_extension"
    EXTENSION_TO_HOST = "extension_to_host"
    BIDIRECTIONAL = "bidirectional"


class DefaultOffer(Enum):
    """Whether a capability is always offered, offered when something is bound to it, or never."""

    REQUIRED = "required"
    OPTIONAL = "optional"
    UNAVAILABLE = "unavailable"


class Status(Enum):
    """Whether a capability or method can be used at all."""

    FOUNDATION = "foundation"
    DEFERRED = "deferred"


@frozen
class Capability:
    """One row of the capability table."""

    name: str
    offer: DefaultOffer
    status: Status = Status.FOUNDATION


@frozen
class Method:
    """One row of the method table."""

    name: str
    capability: str
    direction: Direction
    notification: bool = False
    status: Status = Status.FOUNDATION

    @property
    def from_extension(self) -> bool:
        """Whether an extension may send it."""
        return self.direction is not Direction.HOST_TO_EXTENSION

    @property
    def from_host(self) -> bool:
        """Whether the host may send it."""
        return self.direction is not Direction.EXTENSION_TO_HOST


_HOST: Final = Direction.HOST_TO_EXTENSION
_EXTENSION: Final = Direction.EXTENSION_TO_HOST

CAPABILITIES: Final[Mapping[str, Capability]] = MappingProxyType(
    {
        row.name: row
        for row in (
            Capability("content_parts", DefaultOffer.REQUIRED),
            Capability("core", DefaultOffer.REQUIRED),
            Capability("dynamic_tools", DefaultOffer.UNAVAILABLE, Status.DEFERRED),
            Capability("event_bus", DefaultOffer.OPTIONAL),
            Capability("lifecycle_events", DefaultOffer.OPTIONAL),
            Capability("migration.adapter.v1", DefaultOffer.OPTIONAL),
            Capability("provider_auth", DefaultOffer.OPTIONAL),
            Capability("provider_catalog", DefaultOffer.OPTIONAL),
            Capability("provider_stream", DefaultOffer.OPTIONAL),
            Capability("request_cancellation", DefaultOffer.REQUIRED),
            Capability("session_lifecycle", DefaultOffer.OPTIONAL),
            Capability("theme_selection", DefaultOffer.OPTIONAL),
            Capability("tool_call", DefaultOffer.REQUIRED),
        )
    }
)

METHODS: Final[Mapping[str, Method]] = MappingProxyType(
    {
        row.name: row
        for row in (
            Method("$/cancelRequest", "request_cancellation", Direction.BIDIRECTIONAL, notification=True),
            Method("bus/declare", "event_bus", _EXTENSION),
            Method("bus/event", "event_bus", _HOST, notification=True),
            Method("bus/lifecycle", "event_bus", _HOST, notification=True),
            Method("bus/publish", "event_bus", _EXTENSION),
            Method("bus/subscribe", "event_bus", _EXTENSION),
            Method("bus/unsubscribe", "event_bus", _EXTENSION),
            Method("context/collect", "lifecycle_events", _HOST, status=Status.DEFERRED),
            Method("hook/run", "lifecycle_events", _HOST),
            Method("initialize", "core", _HOST),
            Method("migration/detect", "migration.adapter.v1", _HOST),
            Method("migration/import", "migration.adapter.v1", _HOST),
            Method("provider/auth/request", "provider_auth", _EXTENSION),
            Method("provider/auth/revoke", "provider_auth", _EXTENSION),
            Method("provider/cancel", "provider_stream", _HOST, notification=True),
            Method("provider/event", "provider_stream", _EXTENSION, notification=True),
            Method("provider/stream", "provider_stream", _HOST),
            Method("providers/complete", "provider_catalog", _EXTENSION, notification=True),
            Method("providers/register", "provider_catalog", _EXTENSION),
            Method("providers/unregister", "provider_catalog", _EXTENSION),
            Method("providers/update", "provider_catalog", _EXTENSION),
            Method("session/create", "session_lifecycle", _EXTENSION),
            Method("session/fork", "session_lifecycle", _EXTENSION),
            Method("session/reload", "session_lifecycle", _EXTENSION),
            Method("session/switch", "session_lifecycle", _EXTENSION),
            Method("shutdown", "core", _HOST),
            Method("theme/select", "theme_selection", _EXTENSION),
            Method("tool/call", "tool_call", _HOST),
            Method("tools/register", "dynamic_tools", _EXTENSION, status=Status.DEFERRED),
            Method("tools/unregister", "dynamic_tools", _EXTENSION, status=Status.DEFERRED),
        )
    }
)

BINDABLE: Final = frozenset(row.name for row in CAPABILITIES.values() if row.offer is DefaultOffer.OPTIONAL)
"""The optional capabilities: each is offered when the host has something bound to it."""


def is_notification(method: str) -> bool | None:
    """The notification flag of a method of the table, deferred ones too; ``None`` for an unknown name."""
    row = METHODS.get(method)
    return None if row is None else row.notification


def build_offer(bound: Iterable[str] = (), *, limits: ProtocolLimits | None = None) -> ContractOffer:
    """The offer of a host that has something bound to each capability in ``bound``.

    The required set is always offered, an optional capability (with all its methods) only when it is bound, and a
    deferred one never. Names are sorted; their order means nothing to the peer. ``limits`` default to the API's maxima.

    Raises :class:`~broker.errors.UsageError` for a capability that is not optional, and
    :class:`~broker.errors.InvalidParamsError` for a limit that is zero or above the API's maximum.
    """
    chosen = frozenset(bound)
    for name in sorted(chosen - BINDABLE):
        raise UsageError(f"capability {name!r} cannot be bound; bindable are {', '.join(sorted(BINDABLE))}")
    limits = limits or ProtocolLimits()
    faults = limit_faults(limits, "limits")
    if faults:
        refuse(faults, what="offered limits", error=InvalidParamsError)
    required = frozenset(row.name for row in CAPABILITIES.values() if row.offer is DefaultOffer.REQUIRED)
    return ContractOffer(
        required_capabilities=tuple(sorted(required)),
        optional_capabilities=tuple(sorted(chosen)),
        required_methods=_methods_of(required),
        optional_methods=_methods_of(chosen),
        limits=limits,
    )


def limit_faults(limits: ProtocolLimits, path: str) -> list[Fault]:
    """The faults of ``limits`` against the API: zeros (``invalid_params``), or else values above a maximum."""
    named = (
        ("max_frame_bytes", "MAX_FRAME_BYTES", limits.max_frame_bytes),
        ("max_concurrent_requests", "MAX_CONCURRENT_REQUESTS", limits.max_concurrent_requests),
        ("max_tools", "MAX_TOOLS", limits.max_tools),
    )
    zeros = [Fault(f"{path}.{name}", "must be at least 1") for name, _, value in named if value < 1]
    return zeros or [
        over(f"{path}.{name}", "is above the API's maximum", bound, value)
        for name, bound, value in named
        if value > LIMITS[bound].value
    ]


def _methods_of(capabilities: frozenset[str]) -> tuple[str, ...]:
    return tuple(
        sorted(
            row.name for row in METHODS.values() if row.capability in capabilities and row.status is Status.FOUNDATION
        )
    )
