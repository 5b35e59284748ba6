"""What a bus hands out beside events: lifecycle notices, subscription states and receipts.

The canonical ``bus/lifecycle`` frames are laid out here as well, because a frame's exact size is what the bus charges
against every byte bound (octet reference, section "Bounds", ``max_bus_message_bytes``).
"""

from __future__ import annotations

from typing import Any, NamedTuple, TypeAlias, cast

from attrs import field, frozen

from broker import canonical
from broker.bus.event import Event


@frozen
class Active:
    """A subscription that receives events from exactly this publisher generation (``BusSubscribeResult``)."""

    topic_revision: int
    publisher_instance_id: str
    process_generation: int


@frozen
class Pending:
    """Recorded interest in a topic nobody has declared; a ``TopicAvailable`` follows when somebody does."""

    topic_revision: int


SubscriptionState: TypeAlias = Active | Pending


class Receipt(NamedTuple):
    """An admitted publication: its sequence (per publisher generation, from 1) and wall time in Unix milliseconds."""

    sequence: int
    published_at_ms: int


def _lifecycle_frame(params: dict[str, Any]) -> bytes:
    return canonical.encode({"jsonrpc": "2.0", "method": "bus/lifecycle", "params": params})


@frozen
class Binding:
    """The bus was bound anew: declarations, subscriptions and interests of the older binding are gone."""

    binding_id: str
    binding_revision: int
    frame: bytes = field(init=False, repr=False, eq=False)

    def __attrs_post_init__(self) -> None:
        frame = _lifecycle_frame(
            {"binding_id": self.binding_id, "binding_revision": self.binding_revision, "kind": "binding"}
        )
        object.__setattr__(self, "frame", frame)


@frozen
class _TopicNotice:
    binding_id: str
    topic: str
    topic_revision: int
    publisher_instance_id: str
    process_generation: int
    frame: bytes = field(init=False, repr=False, eq=False)

    _kind = ""

    def __attrs_post_init__(self) -> None:
        frame = _lifecycle_frame(
            {
                "binding_id": self.binding_id,
                "kind": self._kind,
                "process_generation": self.process_generation,
                "publisher_instance_id": self.publisher_instance_id,
                "topic": self.topic,
                "topic_revision": self.topic_revision,
            }
        )
        object.__setattr__(self, "frame", frame)


@frozen
class TopicAvailable(_TopicNotice):
    """A topic the peer is interested in was declared; the peer must subscribe again to receive its events."""

    _kind = "topic_available"


@frozen
class TopicUnavailable(_TopicNotice):
    """The publisher of a topic the peer is interested in is gone; the interest itself survives."""

    _kind = "topic_unavailable"


Notice: TypeAlias = Binding | TopicAvailable | TopicUnavailable
Message: TypeAlias = Event | Notice


def message_size(message: Message) -> int:
    """Frame bytes of any message, without the LF."""
    if type(message) is Event:
        return message._size
    return len(cast(Notice, message).frame)
