"""The sans-IO kernel: one isolated, typed, bounded bus for each host session."""

from typing import TYPE_CHECKING, Any

from broker.bus.bus import Bus
from broker.bus.event import Event
from broker.bus.fields import Field
from broker.bus.handlers import HandlerFailure, Registration
from broker.bus.hold import Held
from broker.bus.messages import (
    Active,
    Binding,
    Message,
    Pending,
    Receipt,
    SubscriptionState,
    TopicAvailable,
    TopicUnavailable,
)
from broker.bus.peer import Peer
from broker.bus.typed import Bounds, topic

if TYPE_CHECKING:
    from broker.bus.statistics import BusStatistics, PeerStatistics, TopicStatistics

__all__ = [
    "Active",
    "Binding",
    "Bounds",
    "Bus",
    "BusStatistics",
    "Event",
    "Field",
    "HandlerFailure",
    "Held",
    "Message",
    "Peer",
    "PeerStatistics",
    "Pending",
    "Receipt",
    "Registration",
    "SubscriptionState",
    "TopicAvailable",
    "TopicStatistics",
    "TopicUnavailable",
    "topic",
]


def __getattr__(name: str) -> Any:
    # Loaded late: only their names are needed before somebody counts.
    if name in ("BusStatistics", "PeerStatistics", "TopicStatistics"):
        from broker.bus import statistics

        return getattr(statistics, name)
    raise AttributeError(f"module 'broker.bus' has no attribute {name!r}")
