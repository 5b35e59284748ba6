"""Frozen snapshots of a bus: who publishes, who waits, who refuses, and how old the oldest message is."""

from __future__ import annotations

from typing import TYPE_CHECKING

from attrs import frozen

if TYPE_CHECKING:
    from broker.bus.peer import Peer


@frozen
class PeerStatistics:
    """One peer. Counters run from attach; ages are milliseconds; bytes are frame bytes without LF.

    ``queued_messages`` and ``queued_bytes`` are the credit in use, held messages included, and ``oldest_age_ms`` is the
    age of the oldest event among them. ``refusals`` counts the publications this peer's full inbox refused, the last of
    them on ``last_refused_topic``.
    """

    name: str
    instance_id: str
    generation: int
    closed: bool
    close_reason: str | None
    draining: bool
    published: int
    queued_messages: int
    queued_bytes: int
    held_messages: int
    oldest_age_ms: int | None
    taken: int
    expired: int
    invalidated: int
    discarded: int
    refusals: int
    last_refused_topic: str | None
    handler_errors: int
    active: tuple[str, ...]
    pending: tuple[str, ...]


@frozen
class TopicStatistics:
    """One declared topic: its owner, its revision, how many receive it and how much was published on it."""

    topic: str
    publisher: str
    publisher_instance_id: str
    process_generation: int
    topic_revision: int
    subscribers: int
    published: int


@frozen
class BusStatistics:
    """The whole bus; topics in code-point order, peers in order of attachment. ``retired`` counts closed laggards."""

    binding_id: str
    binding_revision: int
    topic_revision: int
    closed: bool
    published: int
    refused: int
    retired: int
    handler_errors: int
    topics: tuple[TopicStatistics, ...]
    peers: tuple[PeerStatistics, ...]


def peer_statistics(peer: Peer, now: int) -> PeerStatistics:
    """The snapshot of one peer at the monotonic millisecond ``now``; for the bus, under its lock."""
    inbox = peer._inbox
    oldest = inbox.oldest_admitted_ms()
    return PeerStatistics(
        name=peer.name,
        instance_id=peer.instance_id,
        generation=peer.generation,
        closed=peer._close_reason is not None,
        close_reason=peer._close_reason,
        draining=peer._draining,
        published=peer._voice.sequence,
        queued_messages=inbox.used_messages,
        queued_bytes=inbox.used_bytes,
        held_messages=len(inbox.held),
        oldest_age_ms=None if oldest is None else now - oldest,
        taken=inbox.taken,
        expired=inbox.expired,
        invalidated=inbox.invalidated,
        discarded=inbox.discarded,
        refusals=inbox.refusals,
        last_refused_topic=inbox.last_refused_topic,
        handler_errors=inbox.handler_errors,
        active=tuple(sorted(interest.name for interest in peer._interests if interest.topic is not None)),
        pending=tuple(sorted(interest.name for interest in peer._interests if interest.topic is None)),
    )
