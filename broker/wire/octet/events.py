"""What a connection tells its driver, one event at a time."""

from __future__ import annotations

from typing import Any, TypeAlias

from attrs import frozen

from broker.errors import InvalidParamsError
from broker.wire.events import Closed, Diagnostic
from broker.wire.octet.incoming import IncomingRequest
from broker.wire.octet.models import ToolDefinition
from broker.wire.octet.negotiation import Selection

__all__ = [
    "CancelReceived",
    "Closed",
    "ConnectionEvent",
    "Diagnostic",
    "Initialized",
    "NotificationReceived",
    "RequestReceived",
    "StreamFaulted",
]


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


@frozen
class NotificationReceived:
    """The extension notifies of something it may notify of; ``model`` is its parameters, their shape checked."""

    method: str
    model: Any


@frozen
class StreamFaulted:
    """A ``provider/event`` that can be told to belong to a stream has wrong parameters: that stream is broken."""

    stream_id: str
    error: InvalidParamsError


ConnectionEvent: TypeAlias = (
    Initialized | RequestReceived | NotificationReceived | StreamFaulted | CancelReceived | Diagnostic | Closed
)
