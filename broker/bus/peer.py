"""One participant of a bus: an in-process plugin, or one generation of an extension process."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Sequence
from typing import TYPE_CHECKING, Any, Final, overload

from broker.bus.delivery import decoded
from broker.bus.event import Event
from broker.bus.fields import Field
from broker.bus.handlers import Handler, Registration, check_handler
from broker.bus.hold import Held
from broker.bus.inbox import NO_INBOX, Inbox
from broker.bus.messages import Message, Receipt, SubscriptionState
from broker.bus.topic import NO_VOICE, Interest, Voice
from broker.bus.typed import typed_topic
from broker.errors import InvalidParamsError, UsageError
from broker.limits import MAX_BUS_MESSAGE_AGE_MS, MAX_FRAME_BYTES

if TYPE_CHECKING:
    from broker.bus.bus import Bus
    from broker.bus.statistics import PeerStatistics

AsyncReader = Callable[["Peer"], AsyncIterator[Message]]

_new: Final = tuple.__new__  # what a NamedTuple's own constructor calls, from Python


class Peer:
    """A peer's view of its bus. Made by :meth:`broker.Bus.attach`; safe from any thread; no call blocks.

    Every request takes an optional ``binding_id``: the binding the caller saw when it decided to ask. It is refused
    with ``capability_mismatch`` when it is not the current one. Left out, the current one is meant.
    """

    async_reader: AsyncReader | None = None
    """How ``async for message in peer`` waits; a driver for an event loop sets it."""

    __slots__ = (
        "__weakref__",
        "_bus",
        "_close_reason",
        "_draining",
        "_generation",
        "_inbox",
        "_instance",
        "_interests",
        "_name",
        "_voice",
    )

    def __init__(self, bus: Bus, name: str, instance: str | int, generation: int) -> None:
        self._bus = bus
        self._name = name
        self._instance = instance
        self._generation = generation
        # Most peers of most sessions are idle: queues and topics are theirs from the first one on.
        self._inbox: Inbox = NO_INBOX
        self._voice: Voice = NO_VOICE
        self._interests: tuple[Interest, ...] = ()
        self._draining = False
        self._close_reason: str | None = None

    @property
    def bus(self) -> Bus:
        """The bus the peer was attached to."""
        return self._bus

    @property
    def name(self) -> str:
        """The peer's name, and the owner segment of every topic it may declare."""
        return self._name

    @property
    def instance_id(self) -> str:
        """Identity of the plugin or process, kept over its generations."""
        instance = self._instance
        return instance if isinstance(instance, str) else self._bus._instance_id(instance)

    @property
    def generation(self) -> int:
        """Which start of the instance this is, from 1."""
        return self._generation

    @property
    def closed(self) -> bool:
        """Whether the peer was detached, retired, or its bus closed."""
        return self._close_reason is not None

    @property
    def close_reason(self) -> str | None:
        """Why the peer is closed, or None while it is open."""
        return self._close_reason

    # What a caller may pass stands in the overloads. The methods themselves take anything and judge it, compiled too.

    @overload
    def declare(self, topic: str, fields: Sequence[Field], *, binding_id: str | None = None) -> None: ...

    @overload
    def declare(self, topic: type, *, binding_id: str | None = None) -> None: ...

    def declare(self, topic: Any, fields: Any = None, *, binding_id: Any = None) -> None:
        """Declare an immutable typed topic ``bus.<own name>.<name>``: a name with fields, or a topic class alone.

        Peers that are interested get a ``TopicAvailable``. Raises ``invalid_params`` (form, fields, declared twice),
        ``capability_mismatch`` (another's topic) or ``resource_exhausted`` (a count or byte bound).
        Source: octet reference, ``BusDeclareParams``.
        """
        if isinstance(topic, type):
            if fields is not None:
                raise UsageError("declare a topic class alone: its fields are its attributes")
            described = typed_topic(topic)
            topic, fields = described.name, described.fields
        self._bus._declare(self, topic, fields, binding_id)

    @overload
    def subscribe(self, topic: str, *, binding_id: str | None = None) -> SubscriptionState: ...

    @overload
    def subscribe(self, topic: type, *, binding_id: str | None = None) -> SubscriptionState: ...

    def subscribe(self, topic: Any, *, binding_id: Any = None) -> SubscriptionState:
        """Ask for a topic's events; ``Active`` when it is declared, otherwise ``Pending``.

        With a topic class, ``Event.payload`` is an instance of it. Subscribing again is how a pending interest becomes
        active after ``TopicAvailable``; while active, it changes at most the class. Raises ``invalid_params`` (form, or
        a class that cannot read the declared fields) or ``resource_exhausted`` (17th interest).
        Source: octet reference, ``BusTopicParams`` and ``BusSubscribeResult``.
        """
        reader = None
        if isinstance(topic, type):
            reader = typed_topic(topic)
            topic = reader.name
        return self._bus._subscribe(self, topic, reader, binding_id)

    @overload
    def unsubscribe(self, topic: str, *, binding_id: str | None = None) -> None: ...

    @overload
    def unsubscribe(self, topic: type, *, binding_id: str | None = None) -> None: ...

    def unsubscribe(self, topic: Any, *, binding_id: Any = None) -> None:
        """Give up interest in a topic; queued events of it are no longer delivered. No interest is no error."""
        if isinstance(topic, type):
            topic = typed_topic(topic).name
        self._bus._unsubscribe(self, topic, binding_id)

    @overload
    def publish(self, topic: str, payload: dict[str, Any], *, binding_id: str | None = None) -> Receipt: ...

    @overload
    def publish(self, topic: object, *, binding_id: str | None = None) -> Receipt: ...

    def publish(self, topic: Any, payload: Any = None, *, binding_id: Any = None) -> Receipt:
        """Publish to one of this peer's own topics: a name with a payload, or an instance of a topic class alone.

        All or nothing: either every current subscriber has room and gets the event, or nobody does and no sequence is
        used. Raises ``invalid_params`` (undeclared topic, payload; ``faults`` lists all), ``capability_mismatch``
        (another's topic, stale binding, closed) or ``resource_exhausted`` (event over 8192 bytes, or ``subscriber`` has
        no room). Source: octet reference, ``BusPublishParams``; design, "The bus".
        """
        if type(topic) is not str:
            topic, payload = self._typed_publication(topic, payload)
        # The copy is what is checked and kept: a caller that changes its dict meanwhile changes nothing here.
        clean = payload.copy() if type(payload) is dict else payload
        bus = self._bus
        with bus._lock:
            now = bus._monotonic_ms()
            if now > bus._expiry_at:
                bus._sweep(now)
            record = bus._topics.get(topic)
            if (
                record is None
                or record.owner is not self
                or type(clean) is not dict
                or (binding_id is not None and (type(binding_id) is not str or binding_id != record.binding_id))
                or (payload_bytes := record.measure(clean)) < 0
            ):
                error = bus._publication_refusal(self, topic, clean, binding_id)
            else:
                published_at_ms = bus._unix_ms()
                voice = record.voice
                sequence = voice.sequence + 1
                if sequence >= voice.longer_from:
                    voice.digits += 1
                    voice.longer_from *= 10
                size = record.fixed_bytes + payload_bytes + voice.digits
                # Thirteen digits, from the year 2001 to 2286.
                size += 13 if 10**12 <= published_at_ms < 10**13 else len(str(published_at_ms))
                admitted_bytes = bus._admitted_bytes + size
                if (
                    size <= record.size_limit
                    and admitted_bytes <= record.room_bytes
                    and bus._admitted < record.room_messages
                ):
                    error = None
                else:
                    error = bus._find_room(self, record, size)
                if error is None:
                    event = Event(record, clean, sequence, published_at_ms, now, size)
                    for append in record.appends:
                        append(event)
                    voice.sequence = sequence
                    record.published += 1
                    bus._admitted += 1
                    bus._admitted_bytes = admitted_bytes
                    bus._stirred = True
                    if bus._expiry_at > now + MAX_BUS_MESSAGE_AGE_MS:
                        bus._expiry_at = now + MAX_BUS_MESSAGE_AGE_MS
                    if bus._traces:
                        bus._note("Published", event, len(record.appends))
        if bus._watched:
            bus._after()
        if error is not None:
            raise error
        return _new(Receipt, (sequence, published_at_ms))

    def take(self) -> Message | None:
        """The next deliverable message, in the order of admission, or None; its credit is given back at once.

        With a topic class whose own validators refuse the payload, raises ``invalid_params``; the event is consumed.
        """
        inbox = self._inbox
        if not inbox.queue:
            return None
        bus = self._bus
        with bus._lock:
            now = bus._monotonic_ms()
            if not inbox.careful and now <= bus._expiry_at:
                return inbox.pop_any()
            message = inbox.pop(now)
            reader = inbox.reader
        return message if message is None or reader is None else decoded(message, reader)

    def hold(self) -> Held | None:
        """As :meth:`take`, but the message's credit stays used until ``release()``: what a writer needs."""
        bus = self._bus
        with bus._lock:
            message = self._inbox.pop(bus._monotonic_ms())
            if message is None:
                return None
            held = Held(bus._lock, bus._monotonic_ms, self._inbox, message)
            self._inbox.held[held] = None
            reader = self._inbox.reader
        if reader is not None:
            try:
                held.message = decoded(message, reader)
            except BaseException:
                held.release()
                raise
        return held

    def deliver_to(self, handler: Handler) -> Registration:
        """Call ``handler(message)`` for every message from :meth:`broker.Bus.deliver`; gives back its registration.

        Several handlers of one peer are called in the order they were registered.
        """
        check_handler(handler)
        registration = Registration(self, handler)
        with self._bus._lock:
            inbox = self._own_inbox()
            inbox.set_handlers((*inbox.handlers, registration))
            self._bus._refresh_handled()
        return registration

    def drain(self) -> None:
        """Admit nothing more to this peer; what is queued can still be taken. A draining subscriber never refuses."""
        self._bus._drain(self)

    def detach(self) -> None:
        """Leave the bus: topics are withdrawn, interests dropped, queued messages discarded. Idempotent."""
        self._bus._detach(self, "detached")

    def statistics(self) -> PeerStatistics:
        """A snapshot of this peer's counters and queue."""
        from broker.bus.statistics import peer_statistics  # late, as everything that few programs need

        with self._bus._lock:
            return peer_statistics(self, self._bus._monotonic_ms())

    def __aiter__(self) -> AsyncIterator[Message]:
        reader = type(self).async_reader
        if reader is None:
            raise UsageError("no event-loop driver is installed; import broker rather than broker.bus alone")
        return reader(self)

    def __repr__(self) -> str:
        state = "closed" if self.closed else "draining" if self._draining else "open"
        return f"<Peer {self._name} instance={self.instance_id} generation={self._generation} {state}>"

    # -- for the kernel, under its lock --------------------------------------------------------------------------------

    def _own_inbox(self, max_frame_bytes: int = MAX_FRAME_BYTES) -> Inbox:
        if self._inbox is NO_INBOX:
            self._inbox = Inbox(max_frame_bytes, self._bus.binding_id, self._interests)
            self._inbox.beware()
        return self._inbox

    def _own_voice(self) -> Voice:
        if self._voice is NO_VOICE:
            self._voice = Voice()
        return self._voice

    def _set_interests(self, interests: tuple[Interest, ...]) -> None:
        """Have these interests from now on; what is queued may not be valid under them."""
        self._interests = interests
        if self._inbox is not NO_INBOX:
            self._inbox.interests = interests
            self._inbox.beware()

    @staticmethod
    def _typed_publication(value: Any, payload: Any) -> tuple[str, Any]:
        if payload is not None or isinstance(value, type):
            raise InvalidParamsError(f"topic: expected a string, got {type(value).__name__}")
        described = typed_topic(type(value))
        return described.name, described.payload(value)
