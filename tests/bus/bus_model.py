"""The bus once more, as plainly as possible: lists, no caches, no counters of room, each rule looked up when needed.

It shares nothing with the kernel but :mod:`broker.canonical`, which has a test oracle of its own. An event remembers
the subscription object it was queued for; it is stale once its peer has another one, which is all the fence there is.
"""

from __future__ import annotations

from typing import Any

from attrs import define, field

from broker import canonical

AGE_MS = 30_000
QUEUE_MESSAGES, QUEUE_BYTES = 64, 262_144
TEXTS = [f"f{n}" for n in range(9)]


class RefusedError(Exception):
    """The facts of an error: the row of the error table and the attributes that are not None."""

    def __init__(self, name: str, *paths: str, **facts: Any) -> None:
        super().__init__(name)
        self.facts = {"name": name, "paths": list(paths), **facts}


@define(eq=False)
class Topic:
    name: str
    owner: Peer
    revision: int
    published: int = 0
    subscribers: list[Peer] = field(factory=list)


@define(eq=False)
class Subscription:
    """One stretch of time in which one peer receives one topic."""

    topic: Topic


@define(eq=False)
class Entry:
    """A message on its way to one peer: ``facts`` is what the peer is told, ``frame`` is that as bytes."""

    facts: dict[str, Any]
    binding_id: str
    at: int
    subscription: Subscription | None = None

    @property
    def frame(self) -> bytes:
        kind = self.facts["kind"]
        if kind == "event":
            params = {key: value for key, value in self.facts.items() if key != "kind"}
            return canonical.encode({"jsonrpc": "2.0", "method": "bus/event", "params": params})
        return canonical.encode({"jsonrpc": "2.0", "method": "bus/lifecycle", "params": self.facts})


@define(eq=False)
class Peer:
    name: str
    instance_id: str
    generation: int
    max_frame_bytes: int
    close_reason: str | None = None
    draining: bool = False
    sequence: int = 0
    queue: list[Entry] = field(factory=list)
    held: list[Entry] = field(factory=list)
    interests: dict[str, Subscription | None] = field(factory=dict)
    taken: int = 0
    expired: int = 0
    invalidated: int = 0
    discarded: int = 0
    refusals: int = 0
    last_refused_topic: str | None = None

    def shortage(self, size: int) -> tuple[str, str, int, int] | None:
        """Where there is no room, which limit it is, the observed value and the maximum."""
        charged = self.queue + self.held
        messages, used = len(charged), sum(len(entry.frame) for entry in charged)
        if size > self.max_frame_bytes:
            return "frame: frame too large", "max_frame_bytes", size, self.max_frame_bytes
        if messages + 1 > QUEUE_MESSAGES:
            return "inbox: inbox full", "MAX_BUS_QUEUE_MESSAGES", messages + 1, QUEUE_MESSAGES
        if used + size > QUEUE_BYTES:
            return "inbox: inbox full", "MAX_BUS_QUEUE_BYTES", used + size, QUEUE_BYTES
        return None

    def expire(self, now: int) -> None:
        old = [entry for entry in self.queue if entry.subscription is not None and now - entry.at > AGE_MS]
        self.expired += len(old)
        self.queue = [entry for entry in self.queue if entry not in old]


class ModelBus:
    """What the bus should do. ``now`` is the monotonic clock, ``wall`` the other one, ``binding_id`` is given to it."""

    def __init__(self, binding_id: str, wall: int) -> None:
        self.binding_id = binding_id
        self.binding_revision = 1
        self.topic_revision = 0
        self.now = 0
        self.wall = wall
        self.peers: list[Peer] = []
        self.topics: dict[str, Topic] = {}
        self.interested: dict[str, list[Peer]] = {}
        self.notices: list[tuple[Peer, dict[str, Any]]] = []
        self.published = 0
        self.refused = 0
        self.retired = 0

    # -- requests ------------------------------------------------------------------------------------------------------

    def attach(self, name: str, instance_id: str, generation: int, max_frame_bytes: int, announce: bool) -> Peer:
        for other in self.peers:
            if other.name == name and (other.instance_id != instance_id or other.generation >= generation):
                raise RefusedError("invalid_params", subscriber=name)
        peer = Peer(name, instance_id, generation, max_frame_bytes)
        self.peers.append(peer)
        if announce:
            self.notices.append((peer, self._binding()))
            self._settle()
        return peer

    def declare(self, peer: Peer, name: str, valid: bool, binding_id: str | None) -> None:
        self._check(peer, binding_id)
        self._check_topic(name)
        if name.split(".")[1] != peer.name:
            raise RefusedError("capability_mismatch", topic=name)
        if not valid:
            raise RefusedError("invalid_params", "fields[0].kind", topic=name)
        older = self.topics.get(name)
        if older is not None:
            if older.owner is peer:
                raise RefusedError("invalid_params", topic=name)
            if older.owner.generation > peer.generation:
                raise RefusedError("capability_mismatch", topic=name)
            self._withdraw(older)
        self.topic_revision += 1
        topic = self.topics[name] = Topic(name, peer, self.topic_revision)
        self._tell(topic, "topic_available", topic.revision)
        self._settle()

    def subscribe(self, peer: Peer, name: str, binding_id: str | None) -> tuple[Any, ...]:
        self._check(peer, binding_id)
        self._check_topic(name)
        if name not in peer.interests:
            if len(peer.interests) >= 16:
                full = {"limit": "MAX_BUS_SUBSCRIPTIONS", "observed": 17, "maximum": 16}
                raise RefusedError("resource_exhausted", topic=name, subscriber=peer.name, **full)
            peer.interests[name] = None
            self.interested.setdefault(name, []).append(peer)
        topic = self.topics.get(name)
        if topic is None:
            return ("pending", self.topic_revision)
        if peer.interests[name] is None:
            peer.interests[name] = Subscription(topic)
            topic.subscribers.append(peer)
        return ("active", topic.revision, topic.owner.instance_id, topic.owner.generation)

    def unsubscribe(self, peer: Peer, name: str, binding_id: str | None) -> None:
        self._check(peer, binding_id)
        self._check_topic(name)
        self._forget(peer, name)

    def publish(self, peer: Peer, name: str, payload: dict[str, Any], binding_id: str | None) -> tuple[int, int]:
        for each in self.peers:
            each.expire(self.now)
        self._check(peer, binding_id)
        topic = self.topics.get(name)
        if topic is None:
            self._check_topic(name)
            raise RefusedError("invalid_params", topic=name)
        if topic.owner is not peer:
            raise RefusedError("capability_mismatch", topic=name)
        self._check_payload(name, payload)
        facts = {
            "kind": "event",
            "binding_id": self.binding_id,
            "topic": name,
            "publisher": peer.name,
            "publisher_instance_id": peer.instance_id,
            "process_generation": peer.generation,
            "sequence": peer.sequence + 1,
            "published_at_ms": self.wall,
            "payload": payload,
        }
        size = len(Entry(facts, self.binding_id, self.now).frame)
        if size > 8192:
            raise RefusedError(
                "resource_exhausted", topic=name, limit="MAX_BUS_MESSAGE_BYTES", observed=size, maximum=8192
            )
        hearers = [subscriber for subscriber in topic.subscribers if not subscriber.draining]
        for hearer in hearers:
            if shortage := hearer.shortage(size):
                hearer.refusals += 1
                hearer.last_refused_topic = name
                where, limit, observed, maximum = shortage
                room = {"limit": limit, "observed": observed, "maximum": maximum}
                raise RefusedError(
                    "resource_exhausted", where.split(":")[0], topic=name, subscriber=hearer.name, **room
                )
        for hearer in hearers:
            hearer.queue.append(Entry(facts, self.binding_id, self.now, hearer.interests[name]))
        peer.sequence += 1
        topic.published += 1
        self.published += 1
        return (peer.sequence, self.wall)

    # -- taking --------------------------------------------------------------------------------------------------------

    def pop(self, peer: Peer) -> Entry | None:
        while peer.queue:
            entry = peer.queue.pop(0)
            if not self.current(peer, entry):
                peer.invalidated += 1
            elif entry.subscription is not None and self.now - entry.at > AGE_MS:
                peer.expired += 1
            else:
                peer.taken += 1
                return entry
        return None

    def current(self, peer: Peer, entry: Entry) -> bool:
        if entry.subscription is None:
            return entry.binding_id == self.binding_id
        return peer.interests.get(entry.facts["topic"]) is entry.subscription

    def valid(self, peer: Peer, entry: Entry) -> bool:
        young = entry.subscription is None or self.now - entry.at <= AGE_MS
        return peer.close_reason is None and young and self.current(peer, entry)

    # -- the host ------------------------------------------------------------------------------------------------------

    def reset(self, binding_id: str) -> None:
        self.binding_id = binding_id
        self.binding_revision += 1
        self.topics = {}
        self.interested = {}
        for peer in self.peers:
            peer.interests = {}
            self.notices.append((peer, self._binding()))
        self._settle()

    def detach(self, peer: Peer) -> None:
        self._remove(peer, "detached")
        self._settle()

    # -- parts ---------------------------------------------------------------------------------------------------------

    def _check(self, peer: Peer, binding_id: str | None) -> None:
        if peer.close_reason is not None:
            raise RefusedError("capability_mismatch", subscriber=peer.name)
        if binding_id == "":
            limit = {"limit": "MAX_BUS_BINDING_ID_BYTES", "observed": 0, "maximum": 256}
            raise RefusedError("invalid_params", path="binding_id", **limit)
        if binding_id is not None and binding_id != self.binding_id:
            raise RefusedError("capability_mismatch", path="binding_id")

    def _check_topic(self, name: str) -> None:
        if not name.startswith("bus."):
            raise RefusedError("invalid_params", "topic", topic=name)

    def _check_payload(self, name: str, payload: dict[str, Any]) -> None:
        faults: list[tuple[str, int | None]] = []
        for key in [*TEXTS, "n"]:
            if key not in payload:
                continue
            value = payload[key]
            if key == "n":
                if type(value) is not int or not 0 <= value <= 9:
                    faults.append((f"payload.{key}", None))
            elif type(value) is not str:
                faults.append((f"payload.{key}", None))
            elif len(value.encode()) > 1024:
                faults.append((f"payload.{key}", len(value.encode())))
            elif "@" in value:
                faults.append((f"payload.{key}", None))
        faults += [(f"payload.{key}", None) for key in payload if key not in [*TEXTS, "n"]]
        if faults:
            sizes = [size for _, size in faults if size is not None]
            bound = {"limit": "max_bytes", "observed": sizes[0], "maximum": 1024} if sizes else {}
            row = "resource_exhausted" if len(sizes) == len(faults) else "invalid_params"
            raise RefusedError(row, *(path for path, _ in faults), topic=name, **bound)

    def _binding(self) -> dict[str, Any]:
        return {"kind": "binding", "binding_id": self.binding_id, "binding_revision": self.binding_revision}

    def _tell(self, topic: Topic, kind: str, revision: int) -> None:
        notice = {
            "kind": kind,
            "binding_id": self.binding_id,
            "topic": topic.name,
            "topic_revision": revision,
            "publisher_instance_id": topic.owner.instance_id,
            "process_generation": topic.owner.generation,
        }
        self.notices += [(peer, notice) for peer in self.interested.get(topic.name, [])]

    def _withdraw(self, topic: Topic) -> None:
        del self.topics[topic.name]
        self.topic_revision += 1
        for peer in self.interested.get(topic.name, []):
            peer.interests[topic.name] = None
        self._tell(topic, "topic_unavailable", self.topic_revision)

    def _forget(self, peer: Peer, name: str) -> None:
        if name in peer.interests:
            subscription = peer.interests.pop(name)
            self.interested[name].remove(peer)
            if subscription is not None:
                subscription.topic.subscribers.remove(peer)

    def _remove(self, peer: Peer, reason: str) -> None:
        if peer not in self.peers:
            return
        self.peers.remove(peer)
        peer.close_reason = reason
        for name in list(peer.interests):
            self._forget(peer, name)
        for topic in [topic for topic in self.topics.values() if topic.owner is peer]:
            self._withdraw(topic)
        peer.discarded += len(peer.queue)
        peer.queue = []

    def _settle(self) -> None:
        while self.notices:
            peer, facts = self.notices.pop(0)
            if peer.close_reason is not None or peer.draining:
                continue
            entry = Entry(facts, self.binding_id, self.now)
            if peer.shortage(len(entry.frame)):
                peer.expire(self.now)
            if shortage := peer.shortage(len(entry.frame)):
                where, limit, observed, maximum = shortage
                self.retired += 1
                facts_text = f"{where} ({limit}: observed {observed}, maximum {maximum})"
                self._remove(peer, f"could not take a lifecycle notice: {facts_text}")
            else:
                peer.queue.append(entry)
