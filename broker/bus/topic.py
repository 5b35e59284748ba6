"""One declared topic of one binding: who owns it, what it carries, and who receives it."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Final

from broker.bus.event import event_frame_parts
from broker.bus.messages import Message, TopicAvailable, TopicUnavailable
from broker.bus.schema import Measure, Schema
from broker.limits import MAX_BUS_MESSAGE_BYTES

if TYPE_CHECKING:
    from broker.bus.peer import Peer
    from broker.bus.typed import TypedTopic


class Voice:
    """What one peer has said: the sequence of its last publication over all its topics, which are the current ones.

    ``digits`` is how many the next sequence has; it has one more from ``longer_from`` on.
    """

    __slots__ = ("digits", "longer_from", "sequence", "topics")

    def __init__(self) -> None:
        self.sequence: int = 0
        self.digits: int = 1
        self.longer_from: int = 10
        self.topics: dict[str, Topic] = {}


class Topic:
    """A declared topic. It lives until its publisher goes or the bus is bound anew, and is never declared again.

    ``appends`` puts an event into the inbox of each subscriber; ``size_limit`` is the largest frame all of them can
    take. Until the bus has admitted ``room_messages`` messages in all, or ``room_bytes`` bytes, no inbox can be full:
    each got one of them at most, and was found to have that much room. Only the bus changes these, under its lock.
    """

    __slots__ = (
        "appends",
        "binding_id",
        "fixed_bytes",
        "frame_parts",
        "generation",
        "instance_id",
        "measure",
        "name",
        "owner",
        "published",
        "publisher",
        "revision",
        "room_bytes",
        "room_messages",
        "schema",
        "size_limit",
        "subscribers",
        "voice",
    )

    def __init__(self, name: str, owner: Peer, schema: Schema, *, binding_id: str, revision: int) -> None:
        self.name: str = name
        self.owner: Peer = owner
        self.voice: Voice = owner._own_voice()
        self.publisher: str = owner.name
        self.instance_id: str = owner.instance_id
        self.generation: int = owner.generation
        self.schema: Schema = schema
        self.measure: Measure = schema.measure
        self.binding_id: str = binding_id
        self.revision: int = revision
        self.published: int = 0
        self.frame_parts: tuple[bytes, bytes, bytes, bytes] = event_frame_parts(
            binding_id=binding_id,
            topic=name,
            publisher=owner.name,
            instance_id=owner.instance_id,
            generation=owner.generation,
        )
        self.fixed_bytes: int = sum(map(len, self.frame_parts))
        self.subscribers: dict[Peer, None] = {}
        self.refresh()

    def refresh(self) -> None:
        """Rebuild what is cached after a subscriber came, went or began to drain."""
        sinks = [peer._inbox for peer in self.subscribers if not peer._draining]
        self.appends: tuple[Callable[[Message], None], ...] = tuple(sink.append for sink in sinks)
        self.size_limit: int = min((sink.max_frame_bytes for sink in sinks), default=MAX_BUS_MESSAGE_BYTES)
        self.size_limit = min(self.size_limit, MAX_BUS_MESSAGE_BYTES)
        self.room_messages: int = 0
        self.room_bytes: int = 0

    def available(self) -> TopicAvailable:
        """The notice that says the topic can be subscribed to."""
        return TopicAvailable(self.binding_id, self.name, self.revision, self.instance_id, self.generation)

    def unavailable(self, revision: int) -> TopicUnavailable:
        """The notice that says its publisher is gone."""
        return TopicUnavailable(self.binding_id, self.name, revision, self.instance_id, self.generation)


class Interest:
    """One peer's interest in one topic name. ``topic`` is set while the subscription is active.

    ``after`` is the publisher's sequence when the subscription became active: whatever is not newer was published for
    an earlier subscription and is never delivered to this one. ``since`` is how much had been published on the topic
    when its events began to be admitted for this interest, None while they are not.
    """

    __slots__ = ("after", "name", "reader", "since", "topic")

    def __init__(self, name: str) -> None:
        self.name: str = name
        self.topic: Topic | None = None
        self.after: int = 0
        self.since: int | None = None
        self.reader: TypedTopic | None = None

    @property
    def admitted(self) -> int:
        """How many events were admitted for this subscription as it stands now."""
        return 0 if self.since is None or self.topic is None else self.topic.published - self.since


def find_interest(interests: tuple[Interest, ...], name: str) -> Interest | None:
    """The interest in the topic called ``name``, if there is one. A peer has at most 16, so no index is kept."""
    for interest in interests:
        if interest.name == name:
            return interest
    return None


NO_VOICE: Final = Voice()
"""What a peer has that never declared a topic, shared by all of them: it is looked at and never changed."""
