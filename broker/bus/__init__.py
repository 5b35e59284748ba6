"""The sans-IO kernel: one isolated, typed, bounded bus for each host session."""

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
from broker.bus.statistics import BusStatistics, PeerStatistics, TopicStatistics
from broker.bus.typed import Bounds, topic

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
