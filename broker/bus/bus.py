"""The bus of one session, as a host sees it: attach peers, bind anew, deliver, close, watch, count."""

from __future__ import annotations

import uuid
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, overload

from broker.bus.delivery import deliver
from broker.bus.fields import name_fault, shown, utf8_size
from broker.bus.kernel import NO_TOPICS, Kernel
from broker.bus.messages import Binding
from broker.bus.peer import Peer
from broker.bus.refusals import faults_error
from broker.bus.watching import Listener, Trace
from broker.errors import Fault, InvalidParamsError, ResourceExhaustedError
from broker.limits import MAX_BUS_INSTANCE_ID_BYTES, MAX_BUS_PEERS, MAX_FRAME_BYTES, MAX_PORTABLE_INTEGER

if TYPE_CHECKING:
    from broker.bus.statistics import BusStatistics


class Bus(Kernel):
    """One session's bus. ``clock`` gives wall and monotonic milliseconds; ``on_handler_error`` gets failing handlers.

    Nothing is shared between two buses. Every call is synchronous, never waits for another party and is safe from any
    thread; for speed, give a session one owner thread or loop.
    """

    __slots__ = ()

    @property
    def binding_revision(self) -> int:
        """Counts bindings, from 1."""
        return self._binding_revision

    @property
    def closed(self) -> bool:
        """Whether :meth:`close` was called."""
        return self._closed

    @overload
    def attach(self, name: str, *, max_frame_bytes: int = MAX_FRAME_BYTES, announce_binding: bool = False) -> Peer: ...

    @overload
    def attach(
        self,
        name: str,
        *,
        instance_id: str | None = None,
        generation: int = 1,
        max_frame_bytes: int = MAX_FRAME_BYTES,
        announce_binding: bool = False,
    ) -> Peer: ...

    def attach(
        self,
        name: Any,
        *,
        instance_id: Any = None,
        generation: Any = 1,
        max_frame_bytes: Any = MAX_FRAME_BYTES,
        announce_binding: bool = False,
    ) -> Peer:
        """Attach a peer under a name the host vouches for.

        ``instance_id`` (1 to 256 bytes, made up when left out) is kept over generations; a second peer of one name is
        admitted only as a newer generation of the same instance, and takes over a topic by declaring it.
        ``max_frame_bytes`` is the largest frame the peer can take. ``announce_binding`` queues the current ``Binding``
        first, for peers that learn of it no other way. Raises ``invalid_params`` or ``resource_exhausted`` (65th peer).
        """
        with self._lock:
            self._require_open()
            faults = _attach_faults(name, instance_id, generation, max_frame_bytes)
            if faults:
                raise faults_error(f"peer {shown(name)}", faults)
            namesakes = [peer for peer in self._peers if peer.name == name]
            for other in namesakes:
                if other.instance_id != instance_id:
                    raise InvalidParamsError(f"a peer named {name!r} is attached already", subscriber=name)
                if other.generation >= generation:
                    raise InvalidParamsError(
                        f"generation {generation} of peer {name!r} is not newer than {other.generation}",
                        subscriber=name,
                    )
            if len(self._peers) >= MAX_BUS_PEERS:
                raise ResourceExhaustedError(
                    f"peer {name!r}: the bus has {MAX_BUS_PEERS} peers",
                    subscriber=name,
                    limit="MAX_BUS_PEERS",
                    observed=len(self._peers) + 1,
                    maximum=MAX_BUS_PEERS,
                )
            if instance_id is None:
                self._instances += 1
            peer = Peer(self, name, self._instances if instance_id is None else instance_id, generation)
            if max_frame_bytes != MAX_FRAME_BYTES:
                peer._own_inbox(max_frame_bytes)
            self._peers = (*self._peers, peer)
            if self._traces:
                self._note("Attached", name, peer.instance_id, generation)
            if announce_binding:
                self._queue_notice(peer, Binding(self.binding_id, self._binding_revision))
                self._settle_notices()
        self._after()
        return peer

    def reset(self) -> str:
        """Bind anew: topics, subscriptions and interests are gone, every peer gets ``Binding``; gives the new id."""
        with self._lock:
            self._require_open()
            self._binding = binding_id = uuid.uuid4().hex
            self._binding_revision += 1
            self._topics = NO_TOPICS
            notice = Binding(binding_id, self._binding_revision)
            for peer in self._peers:
                if peer._voice.topics:
                    peer._voice.topics.clear()
                inbox = peer._own_inbox()
                for interest in peer._interests:
                    inbox.end(interest)
                inbox.binding_id = binding_id
                peer._set_interests(())
                self._queue_notice(peer, notice)
            self._note("Rebound", binding_id, self._binding_revision)
            self._settle_notices()
        self._after()
        return binding_id

    def deliver(self) -> int:
        """Hand every deliverable message to the handlers (:meth:`Peer.deliver_to`); gives how many messages.

        First in first out for each peer. Handlers run outside the lock and may publish, subscribe, unsubscribe or
        detach; what they cause is delivered too, in later rounds of the same call, at most 64 of them, so that handlers
        that publish for ever still let the call return. A raising handler is reported and counted, the rest go on; only
        a ``KeyboardInterrupt`` is raised again once they did. A peer whose handlers are all gone keeps what is left. A
        call from inside a handler, or from a second thread while one delivers, gives 0 at once: the delivery that is
        going on does its work. Whether an event is young enough is judged when its round begins.
        """
        return deliver(self)

    def close(self) -> None:
        """Close every peer and the bus. Idempotent."""
        with self._lock:
            self._closed = True
            for peer in list(self._peers):
                self._remove(peer, "bus closed")
            self._settle_notices()
        self._after()

    def statistics(self) -> BusStatistics:
        """A consistent snapshot of the whole bus."""
        from broker.bus.statistics import BusStatistics, TopicStatistics, peer_statistics

        with self._lock:
            now = self._monotonic_ms()
            topics = tuple(
                TopicStatistics(
                    topic.name,
                    topic.publisher,
                    topic.instance_id,
                    topic.generation,
                    topic.revision,
                    len(topic.subscribers),
                    topic.published,
                )
                for topic in self._topics.values()
            )
            return BusStatistics(
                self.binding_id,
                self._binding_revision,
                self._topic_revision,
                self._closed,
                self._published_by_gone + sum(peer._voice.sequence for peer in self._peers),
                self._refused,
                self._retired,
                self._handler_errors_of_gone + sum(peer._inbox.handler_errors for peer in self._peers),
                topics,
                tuple(peer_statistics(peer, now) for peer in self._peers),
            )

    def add_listener(self, listener: Listener) -> Callable[[], None]:
        """Call ``listener()`` after something was admitted or a peer was closed; gives a function that ends it.

        It runs in the thread that caused it, outside the lock, possibly more often than needed: it should only wake
        somebody. An exception it raises is logged.
        """
        with self._lock:
            self._listeners = (*self._listeners, listener)
            self._watched = True

        def remove() -> None:
            with self._lock:
                self._listeners = tuple(other for other in self._listeners if other is not listener)
                self._watched = bool(self._listeners or self._traces)

        return remove

    def add_trace(self, watcher: Trace) -> Callable[[], None]:
        """Call ``watcher(record)`` for everything that happens from now on (:mod:`broker.bus.trace`), outside the lock.

        Records come in the order things happened as long as one thread uses the bus. Gives a function that ends it.
        """
        with self._lock:
            self._traces = (*self._traces, watcher)
            self._watched = True

        def remove() -> None:
            with self._lock:
                self._traces = tuple(other for other in self._traces if other is not watcher)
                self._watched = bool(self._listeners or self._traces)

        return remove


def _attach_faults(name: object, instance_id: object, generation: object, max_frame_bytes: object) -> list[Fault]:
    faults = [fault] if (fault := name_fault("name", name)) else []
    if instance_id is not None:
        size = utf8_size(instance_id) if type(instance_id) is str else None
        if not size:
            faults.append(Fault("instance_id", "expected a string of at least 1 byte"))
        elif size > MAX_BUS_INSTANCE_ID_BYTES:
            faults.append(
                Fault(
                    "instance_id",
                    "instance id too long",
                    "resource_exhausted",
                    "MAX_BUS_INSTANCE_ID_BYTES",
                    size,
                    MAX_BUS_INSTANCE_ID_BYTES,
                )
            )
    if type(generation) is not int or not 1 <= generation <= MAX_PORTABLE_INTEGER:
        faults.append(Fault("generation", f"expected a portable integer of at least 1, got {shown(generation)}"))
    if type(max_frame_bytes) is not int or not 1 <= max_frame_bytes <= MAX_PORTABLE_INTEGER:
        faults.append(
            Fault("max_frame_bytes", f"expected a portable integer of at least 1, got {shown(max_frame_bytes)}")
        )
    elif max_frame_bytes > MAX_FRAME_BYTES:
        faults.append(
            Fault(
                "max_frame_bytes",
                "frame bound too large",
                "resource_exhausted",
                "MAX_FRAME_BYTES",
                max_frame_bytes,
                MAX_FRAME_BYTES,
            )
        )
    return faults
