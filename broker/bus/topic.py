"""One declared topic of one binding: who owns it, what it carries, and who receives it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from broker.bus.messages import TopicAvailable, TopicUnavailable, event_frame_parts
from broker.bus.schema import Schema
from broker.limits import MAX_FRAME_BYTES

if TYPE_CHECKING:
    from broker.bus.inbox import Inbox
    from broker.bus.peer import Peer
    from broker.bus.typed import TypedTopic


class Topic:
    """A declared topic. It lives until its publisher goes or the bus is bound anew, and is never declared again.

    ``sinks`` is the cached tuple of inboxes an event is appended to; ``frame_limit`` the smallest frame bound among
    them. Only the bus changes these, under its lock.
    """

    __slots__ = (
        "binding_id",
        "fixed_bytes",
        "frame_limit",
        "frame_parts",
        "generation",
        "instance_id",
        "name",
        "owner",
        "published",
        "publisher",
        "revision",
        "schema",
        "sinks",
        "subscribers",
    )

    def __init__(self, name: str, owner: Peer, schema: Schema, *, binding_id: str, revision: int) -> None:
        self.name: str = name
        self.owner: Peer = owner
        self.publisher: str = owner.name
        self.instance_id: str = owner.instance_id
        self.generation: int = owner.generation
        self.schema: Schema = schema
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
        self.sinks: tuple[Inbox, ...] = ()
        self.frame_limit: int = MAX_FRAME_BYTES

    def refresh_sinks(self) -> None:
        """Rebuild the cached tuple after a subscriber came, went or began to drain."""
        self.sinks = tuple(peer._inbox for peer in self.subscribers if not peer._draining)
        self.frame_limit = min((sink.max_frame_bytes for sink in self.sinks), default=MAX_FRAME_BYTES)

    def available(self) -> TopicAvailable:
        """The notice that says the topic can be subscribed to."""
        return TopicAvailable(self.binding_id, self.name, self.revision, self.instance_id, self.generation)

    def unavailable(self, revision: int) -> TopicUnavailable:
        """The notice that says its publisher is gone."""
        return TopicUnavailable(self.binding_id, self.name, revision, self.instance_id, self.generation)


class Interest:
    """One peer's interest in one topic name. ``topic`` is set while the subscription is active.

    ``after`` is the publisher's sequence when the subscription became active: whatever is not newer was published for
    an earlier subscription and is never delivered to this one.
    """

    __slots__ = ("after", "reader", "topic")

    def __init__(self, reader: TypedTopic | None = None) -> None:
        self.topic: Topic | None = None
        self.after: int = 0
        self.reader: TypedTopic | None = reader
