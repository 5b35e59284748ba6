"""The author's kit for octet extensions of API 0.3 and 0.4: tools, typed topics, hooks and services from functions."""

from __future__ import annotations

from broker.bus import Bounds, Field, Receipt
from broker.extension.app import Extension
from broker.extension.context import Context
from broker.extension.events import HostInfo, TopicAvailability
from broker.extension.host_client import HostClient
from broker.extension.results import Result, ToolFailureError
from broker.extension.topics import Event, Topic
from broker.wire.octet.models import Continue, Defer, Deny, SessionBinding, SessionEnd, SessionStart

__all__ = [
    "Bounds",
    "Context",
    "Continue",
    "Defer",
    "Deny",
    "Event",
    "Extension",
    "Field",
    "HostClient",
    "HostInfo",
    "Receipt",
    "Result",
    "SessionBinding",
    "SessionEnd",
    "SessionStart",
    "ToolFailureError",
    "Topic",
    "TopicAvailability",
]
