"""What a connection tells its driver, one event at a time."""

from __future__ import annotations

from typing import TypeAlias

from attrs import frozen

from broker.wire.events import Closed, Diagnostic
from broker.wire.octet.incoming import IncomingRequest
from broker.wire.octet.models import ToolDefinition
from broker.wire.octet.negotiation import Selection

__all__ = ["CancelReceived", "Closed", "ConnectionEvent", "Diagnostic", "Initialized", "RequestReceived"]


@frozen
class Initialized:
    """The contract exists: the connection is ready, both bounds are the selected one."""

    selection: Selection
    tools: tuple[ToolDefinition, ...]


@frozen
class RequestReceived:
    """The extension asks for something it may ask for, with parameters of the right shape; answer or refuse it."""

    incoming: IncomingRequest


@frozen
class CancelReceived:
    """The extension took back a request that was not answered yet. It has been told so; nothing is left to answer."""

    incoming: IncomingRequest
    reason: str | None


ConnectionEvent: TypeAlias = Initialized | RequestReceived | CancelReceived | Diagnostic | Closed
