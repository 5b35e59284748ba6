"""Records of what happened on a bus, for those who watch it (a command line, a recorder, a log) without taking part."""

from __future__ import annotations

from typing import TypeAlias

from attrs import frozen

from broker.bus.event import Event
from broker.bus.messages import SubscriptionState
from broker.errors import BrokerError


@frozen
class Attached:
    """A peer joined."""

    peer: str
    instance_id: str
    generation: int


@frozen
class Detached:
    """A peer left. ``retired`` says that the bus closed it because it could not take a lifecycle notice."""

    peer: str
    instance_id: str
    generation: int
    reason: str
    retired: bool


@frozen
class Declared:
    """A topic became available."""

    topic: str
    publisher: str
    instance_id: str
    generation: int
    topic_revision: int


@frozen
class Withdrawn:
    """A topic became unavailable."""

    topic: str
    publisher: str
    instance_id: str
    generation: int
    topic_revision: int


@frozen
class Subscribed:
    """A peer subscribed; ``state`` is what it was told."""

    peer: str
    topic: str
    state: SubscriptionState


@frozen
class Unsubscribed:
    """A peer gave up its interest."""

    peer: str
    topic: str


@frozen
class Published:
    """An event was admitted to the inboxes of ``subscribers`` peers."""

    event: Event
    subscribers: int


@frozen
class Refused:
    """A request of a peer was refused; nothing changed."""

    peer: str
    operation: str
    error: BrokerError


@frozen
class Rebound:
    """The bus was reset."""

    binding_id: str
    binding_revision: int


Record: TypeAlias = (
    Attached | Detached | Declared | Withdrawn | Subscribed | Unsubscribed | Published | Refused | Rebound
)
