"""What a connection of the feature-negotiated wire tells its driver, one event at a time."""

from __future__ import annotations

from typing import Any, TypeAlias

from attrs import define, field, frozen

from broker.wire.events import Closed, Diagnostic
from broker.wire.feature.methods import Method
from broker.wire.feature.models import ProgressReport
from broker.wire.feature.negotiation import Agreement
from broker.wire.feature.scope import ResourceOwner
from broker.wire.octet.incoming import IncomingRequest
from broker.wire.requests import HostRequest

__all__ = [
    "CancelReceived",
    "Closed",
    "Diagnostic",
    "FeatureEvent",
    "FeatureRequest",
    "Initialized",
    "NoticeReceived",
    "ParentSettled",
    "ProgressReceived",
    "RequestReceived",
]


@define(eq=False)
class FeatureRequest(IncomingRequest):
    """One request of the extension. ``row`` is its method's; ``model`` its parameters without their scope.

    ``parent`` is the open host request it is made for, ``None`` for one that has no scope and on 0.1. A request whose
    parent settles is answered by the connection, as if the extension had cancelled it.
    """

    row: Method | None = None
    parent: HostRequest | None = field(default=None, repr=False)
    owner: ResourceOwner | None = None


@frozen
class Initialized:
    """The agreement exists: the connection is ready."""

    agreement: Agreement


@frozen
class RequestReceived:
    """The extension asks for something it may ask for, with parameters of the right shape; answer or refuse it."""

    incoming: FeatureRequest


@frozen
class CancelReceived:
    """A request is no longer wanted, by the extension or because its parent settled. It has been told so."""

    incoming: FeatureRequest
    reason: str | None


@frozen
class NoticeReceived:
    """The extension told something it may tell: ``model`` is what, ``parent`` and ``owner`` what it is for."""

    method: str
    model: Any
    parent: HostRequest | None = None
    owner: ResourceOwner | None = None


@frozen
class ParentSettled:
    """A host request that something was presented for has settled: what was shown for it is over."""

    parent: HostRequest


@frozen
class ProgressReceived:
    """How far an open host request has come; stale reports never get here."""

    request: HostRequest
    report: ProgressReport


FeatureEvent: TypeAlias = (
    Initialized
    | RequestReceived
    | CancelReceived
    | NoticeReceived
    | ParentSettled
    | ProgressReceived
    | Diagnostic
    | Closed
)
