"""The state of one bus and every transition of it. All of it runs under one lock and is complete when the lock is free.

Clocks, listeners and traces are the only foreign code near it: clocks are read under the lock and must not call back,
listeners and traces run after it was released. Source: octet reference, the ``bus/*`` rows; design, "The bus".
"""

from __future__ import annotations

import uuid
from collections.abc import Callable
from typing import Any, Final

from sortedcontainers import SortedDict

from broker.bus.fields import declaration_faults
from broker.bus.handlers import HandlerFailure, log_failure
from broker.bus.inbox import NO_INBOX
from broker.bus.messages import Active, Notice, Pending, SubscriptionState
from broker.bus.peer import Peer
from broker.bus.refusals import (
    check_binding_id,
    check_takeover,
    check_topic,
    event_too_large,
    faults_error,
    no_room,
    too_many_subscriptions,
    too_many_topics,
)
from broker.bus.schema import compile_schema
from broker.bus.topic import Interest, Topic, find_interest
from broker.bus.typed import TypedTopic
from broker.bus.watching import Watched, contained
from broker.clock import Clock, SystemClock
from broker.errors import BrokerError, CapabilityMismatchError, Fault, InvalidParamsError
from broker.limits import (
    MAX_BUS_MESSAGE_AGE_MS,
    MAX_BUS_MESSAGE_BYTES,
    MAX_BUS_SUBSCRIPTIONS,
    MAX_BUS_TOPICS,
)

FailureReport = Callable[[HandlerFailure], object]

_NEVER: Final = 1 << 63
NO_TOPICS: Final[SortedDict[str, Topic]] = SortedDict()
"""The topics of a bus that has none, shared by all of them: looked at and never changed."""
_SYSTEM_CLOCK: Final = (SystemClock().unix_ms, SystemClock().monotonic_ms)


class Kernel(Watched):
    """What :class:`broker.Bus` is built on; peers and the bus call it, nobody else does."""

    __slots__ = (
        "__weakref__",
        "_admitted",
        "_admitted_bytes",
        "_binding",
        "_binding_revision",
        "_closed",
        "_expiry_at",
        "_handled",
        "_handler_errors_of_gone",
        "_in_delivery",
        "_instances",
        "_monotonic_ms",
        "_notices",
        "_peers",
        "_published_by_gone",
        "_report",
        "_retired",
        "_seed",
        "_stirred",
        "_topic_revision",
        "_topics",
        "_unix_ms",
    )

    def __init__(self, clock: Clock | None = None, *, on_handler_error: FailureReport = log_failure) -> None:
        super().__init__()
        if clock is None or type(clock) is SystemClock:
            self._unix_ms, self._monotonic_ms = _SYSTEM_CLOCK
        else:
            self._unix_ms, self._monotonic_ms = clock.unix_ms, clock.monotonic_ms
        self._report = on_handler_error
        # Random, so that no two buses share an id; those of this bus follow from it when somebody asks for them.
        self._seed = uuid.uuid4().int
        self._instances = 0
        self._binding: str | None = None
        self._binding_revision = 1
        self._topic_revision = 0
        self._topics: SortedDict[str, Topic] = NO_TOPICS
        self._peers: tuple[Peer, ...] = ()
        self._handled: tuple[Peer, ...] = ()
        # Set by every admission: a delivery that finds it unset after a round is over.
        self._stirred = False
        # The peers whose queues the delivering thread takes from, without the lock, until its round is over.
        self._in_delivery: tuple[Peer, ...] | None = None
        self._notices: list[tuple[Peer, Notice]] | None = None
        # No queued event is older than this allows; nobody looks at ages until it has passed.
        self._expiry_at = _NEVER
        # Everything that was ever admitted: no inbox got more. What the room of a topic is measured by.
        self._admitted = 0
        self._admitted_bytes = 0
        self._closed = False
        self._published_by_gone = 0
        self._handler_errors_of_gone = 0
        self._retired = 0

    @property
    def binding_id(self) -> str:
        """Identity of the current binding; a request that names another one is refused."""
        return self._instance_id(0) if self._binding is None else self._binding

    def _instance_id(self, number: int) -> str:
        return f"{(self._seed + number) % 2**128:032x}"

    # -- requests of peers ---------------------------------------------------------------------------------------------

    def _declare(self, peer: Peer, name: Any, fields: Any, binding_id: Any) -> None:
        # The copy is what is checked and compiled, whatever its owner does to the list meanwhile.
        fields = tuple(fields) if isinstance(fields, list | tuple) else fields
        with self._lock:
            try:
                self._check_request(peer, binding_id)
                check_topic(name)
                if name.split(".")[1] != peer.name:
                    raise CapabilityMismatchError(f"topic {name} belongs to another peer than {peer.name}", topic=name)
                if faults := declaration_faults(fields):
                    raise faults_error(f"declaration of {name}", faults, topic=name)
                older = self._topics.get(name)
                if older is not None:
                    check_takeover(peer, older)
                elif len(self._topics) >= MAX_BUS_TOPICS:
                    raise too_many_topics(name, len(self._topics))
                schema = compile_schema(fields)
                if older is not None:
                    self._withdraw(older)
                self._topic_revision += 1
                topic = Topic(name, peer, schema, binding_id=self.binding_id, revision=self._topic_revision)
                if self._topics is NO_TOPICS:
                    self._topics = SortedDict()
                self._topics[name] = topic.voice.topics[name] = topic
                self._note("Declared", name, topic.publisher, topic.instance_id, topic.generation, topic.revision)
                notice = topic.available()
                for interested, _ in self._interested(name):
                    self._queue_notice(interested, notice)
                self._settle_notices()
                error = None
            except BrokerError as refusal:
                error = self._refusal(peer, "declare", refusal)
        self._conclude(error)

    def _subscribe(self, peer: Peer, name: Any, reader: TypedTopic | None, binding_id: Any) -> SubscriptionState:
        state: SubscriptionState | None = None
        with self._lock:
            try:
                self._check_request(peer, binding_id)
                check_topic(name)
                topic = self._topics.get(name)
                if reader is not None and topic is not None and (faults := reader.mismatches(topic.schema.fields)):
                    raise faults_error(f"{reader.cls.__qualname__} cannot read {name}", faults, topic=name)
                interest = find_interest(peer._interests, name)
                if interest is None:
                    if len(peer._interests) >= MAX_BUS_SUBSCRIPTIONS:
                        raise too_many_subscriptions(name, peer.name, len(peer._interests))
                    interest = Interest(name)
                    interest.reader = reader
                    peer._set_interests((*peer._interests, interest))
                elif interest.reader is not reader:
                    interest.reader = reader
                    peer._set_interests(peer._interests)
                if topic is None:
                    state = Pending(self._topic_revision)
                else:
                    if interest.topic is None:
                        peer._own_inbox()
                        interest.topic = topic
                        interest.after = topic.voice.sequence
                        interest.since = None if peer._draining else topic.published
                        topic.subscribers[peer] = None
                        topic.refresh()
                    state = Active(topic.revision, topic.instance_id, topic.generation)
                self._note("Subscribed", peer.name, name, state)
                error = None
            except BrokerError as refusal:
                error = self._refusal(peer, "subscribe", refusal)
        self._conclude(error)
        assert state is not None
        return state

    def _unsubscribe(self, peer: Peer, name: Any, binding_id: Any) -> None:
        with self._lock:
            try:
                self._check_request(peer, binding_id)
                check_topic(name)
                if self._forget(peer, name):
                    self._note("Unsubscribed", peer.name, name)
                error = None
            except BrokerError as refusal:
                error = self._refusal(peer, "unsubscribe", refusal)
        self._conclude(error)

    def _drain(self, peer: Peer) -> None:
        with self._lock:
            peer._draining = True
            for interest in peer._interests:
                if interest.topic is not None:
                    peer._inbox.end(interest)
                    interest.topic.refresh()

    def _detach(self, peer: Peer, reason: str) -> None:
        with self._lock:
            self._remove(peer, reason)
            self._settle_notices()
        self._after()

    def _publication_refusal(self, peer: Peer, name: Any, payload: Any, binding_id: Any) -> BrokerError:
        """Why a publication was not fine: the same checks as the fast path, slowly, in the order they are promised."""
        try:
            self._check_request(peer, binding_id)
            topic = self._topics.get(name)
            if topic is None:
                check_topic(name)
                raise InvalidParamsError(f"publication to {name}: not a declared topic", topic=name)
            if topic.owner is not peer:
                raise CapabilityMismatchError(
                    f"publication to {name}: it belongs to {topic.publisher}, generation {topic.generation}",
                    topic=name,
                )
            if not isinstance(payload, dict):
                faults = [Fault("payload", f"expected an object, got {type(payload).__name__}")]
            else:
                faults = topic.schema.faults(payload)
            # A dict subclass passes every rule but its own type: it may lie about what it holds.
            faults = faults or [Fault("payload", f"expected a plain dict, got {type(payload).__name__}")]
            raise faults_error(f"publication to {name}", faults, topic=name)
        except BrokerError as refusal:
            return self._refusal(peer, "publish", refusal)

    def _find_room(self, peer: Peer, topic: Topic, size: int) -> BrokerError | None:
        """Why a publication of ``size`` frame bytes is not admitted, or None; measures anew how much room there is."""
        if size > MAX_BUS_MESSAGE_BYTES:
            return self._refusal(peer, "publish", event_too_large(topic.name, size))
        messages = free = _NEVER
        for subscriber in topic.subscribers:
            if subscriber._draining:
                continue
            inbox = subscriber._inbox
            fits, room = inbox.room(size)
            if fits < 1 or room < size or size > inbox.max_frame_bytes:
                fault = inbox.shortage(size)
                if fault is not None:
                    inbox.refusals += 1
                    inbox.last_refused_topic = topic.name
                    return self._refusal(peer, "publish", no_room(topic.name, subscriber.name, fault))
                fits, room = 1, size  # a delivering thread has just taken something
            messages, free = min(messages, fits), min(free, room)
        topic.room_messages = self._admitted + messages
        topic.room_bytes = self._admitted_bytes + free
        return None

    # -- checks --------------------------------------------------------------------------------------------------------

    def _require_open(self) -> None:
        if self._closed:
            raise CapabilityMismatchError("the bus is closed")

    def _check_request(self, peer: Peer, binding_id: object) -> None:
        self._require_open()
        if peer._close_reason is not None:
            raise CapabilityMismatchError(f"peer {peer.name} is closed: {peer._close_reason}", subscriber=peer.name)
        if binding_id is not None:
            check_binding_id(binding_id, self.binding_id)

    # -- transitions that several requests share -----------------------------------------------------------------------

    def _forget(self, peer: Peer, name: str) -> bool:
        interest = find_interest(peer._interests, name)
        if interest is None:
            return False
        if interest.topic is not None:
            peer._inbox.end(interest)
            del interest.topic.subscribers[peer]
            interest.topic.refresh()
        peer._set_interests(tuple(other for other in peer._interests if other is not interest))
        return True

    def _interested(self, name: str) -> list[tuple[Peer, Interest]]:
        """Who is interested in the topic called ``name``. Asked rarely, so no index is kept of it."""
        found = ((peer, find_interest(peer._interests, name)) for peer in self._peers)
        return [(peer, interest) for peer, interest in found if interest is not None]

    def _withdraw(self, topic: Topic) -> None:
        del self._topics[topic.name]
        del topic.voice.topics[topic.name]
        self._topic_revision += 1
        notice = topic.unavailable(self._topic_revision)
        self._note("Withdrawn", topic.name, topic.publisher, topic.instance_id, topic.generation, self._topic_revision)
        for peer, interest in self._interested(topic.name):
            if interest.topic is not None:
                peer._inbox.end(interest)
                interest.topic = None
                peer._inbox.beware()
            self._queue_notice(peer, notice)

    def _remove(self, peer: Peer, reason: str, *, retired: bool = False) -> None:
        if peer._close_reason is not None:
            return
        self._peers = tuple(other for other in self._peers if other is not peer)
        self._refresh_handled()
        peer._close_reason = reason
        if peer._inbox is not NO_INBOX:
            peer._inbox.closed = True
        self._published_by_gone += peer._voice.sequence
        self._handler_errors_of_gone += peer._inbox.handler_errors
        self._note("Detached", peer.name, peer.instance_id, peer.generation, reason, retired)
        for interest in peer._interests:
            self._forget(peer, interest.name)
        for topic in list(peer._voice.topics.values()):
            self._withdraw(topic)
        peer._inbox.clear()

    def _queue_notice(self, peer: Peer, notice: Notice) -> None:
        if self._notices is None:
            self._notices = []
        self._notices.append((peer, notice))

    def _settle_notices(self) -> None:
        """Admit queued notices; a peer without room is retired, which may withdraw topics and cause further notices."""
        while self._notices:
            peer, notice = self._notices.pop(0)
            if peer._close_reason is not None or peer._draining:
                continue
            size = len(notice.frame)
            inbox = peer._own_inbox()
            fault = inbox.shortage(size)
            if fault is not None:
                # What has expired makes room first, as it does for an event.
                inbox.sweep(self._monotonic_ms(), delivering=peer in (self._in_delivery or ()))
                fault = inbox.shortage(size)
            if fault is None:
                inbox.put(notice)
                self._admitted += 1
                self._admitted_bytes += size
                self._stirred = True
            else:
                self._retired += 1
                self._remove(peer, f"could not take a lifecycle notice: {fault}", retired=True)

    def _sweep(self, now: int) -> None:
        oldest = []
        busy = frozenset(self._in_delivery or ())
        for peer in self._peers:
            left = peer._inbox.sweep(now, delivering=peer in busy)
            if left is not None:
                oldest.append(left)
        self._expiry_at = min(oldest) + MAX_BUS_MESSAGE_AGE_MS if oldest else _NEVER

    # -- delivery and statistics ---------------------------------------------------------------------------------------

    def _begin_round(self) -> int | None:
        """The time of a new round over ``_in_delivery``, for the one thread that delivers; else None."""
        with self._lock:
            if self._in_delivery is not None:
                # Whoever delivers goes another round, so that what this caller published is not left lying.
                self._stirred = True
                # That thread ends without the lock; if it has just done so, it may not have seen that.
                if self._in_delivery is not None:
                    return None
            self._stirred = False
            self._in_delivery = self._handled
            return self._monotonic_ms()

    def _discard_stale(self, peer: Peer, *, expired: bool) -> None:
        with self._lock:
            peer._inbox.discard_stale(expired=expired)
            peer._inbox.relax()

    def _relax(self, peer: Peer) -> None:
        with self._lock:
            peer._inbox.relax()

    def _refresh_handled(self) -> None:
        self._handled = tuple(peer for peer in self._peers if peer._inbox.handlers)

    def _handler_failed(self, peer: Peer, failure: HandlerFailure) -> None:
        with self._lock:
            peer._inbox.handler_errors += 1
            if peer._close_reason is not None:
                self._handler_errors_of_gone += 1
        contained(self._report, failure)
