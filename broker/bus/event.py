"""One publication, as every subscriber gets it, and the canonical ``bus/event`` frame that it stands for.

The frame's exact size is what the bus charges against every byte bound (octet reference, section "Bounds",
``max_bus_message_bytes``).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import orjson

from broker import canonical

if TYPE_CHECKING:
    from broker.bus.topic import Topic


class Event:
    """One publication, shared by all of its subscribers and read-only for all of them.

    ``payload`` is a fresh ``dict`` on every access (or the decoded object, for a subscription made with a class), so
    that no subscriber can change what another one sees.
    """

    __slots__ = ("_admitted_ms", "_decoded", "_payload", "_published_at_ms", "_sequence", "_size", "_topic")

    # Set on the copies that with_decoded() makes; left unset on every other event, where it would only cost time.
    _decoded: Any

    def __init__(
        self,
        topic: Topic,
        payload: dict[str, Any],
        sequence: int,
        published_at_ms: int,
        admitted_ms: int,
        size: int,
    ) -> None:
        self._topic = topic
        self._payload = payload
        self._sequence = sequence
        self._published_at_ms = published_at_ms
        self._admitted_ms = admitted_ms
        self._size = size

    @property
    def topic(self) -> str:
        """The exact topic."""
        return self._topic.name

    @property
    def publisher(self) -> str:
        """Name of the publishing peer, known to the host, never claimed by the peer."""
        return self._topic.publisher

    @property
    def publisher_instance_id(self) -> str:
        """Instance of the publishing peer."""
        return self._topic.instance_id

    @property
    def process_generation(self) -> int:
        """Generation of the publishing peer, from 1."""
        return self._topic.generation

    @property
    def binding_id(self) -> str:
        """The binding the event was published under."""
        return self._topic.binding_id

    @property
    def sequence(self) -> int:
        """Position among all publications of this publisher generation, from 1."""
        return self._sequence

    @property
    def published_at_ms(self) -> int:
        """Wall time of admission, Unix milliseconds."""
        return self._published_at_ms

    @property
    def size(self) -> int:
        """Bytes of :attr:`frame`; what the event costs in every byte bound."""
        return self._size

    @property
    def payload(self) -> Any:
        """The published fields as a fresh ``dict``, or the object they were decoded into."""
        try:
            return self._decoded
        except AttributeError:
            return self._payload.copy()

    @property
    def frame(self) -> bytes:
        """The canonical ``bus/event`` frame without its LF, built on each access."""
        prefix, after_payload, after_time, suffix = self._topic.frame_parts
        return b"".join(
            (
                prefix,
                orjson.dumps(self._payload, option=orjson.OPT_SORT_KEYS),
                after_payload,
                b"%d" % self._published_at_ms,
                after_time,
                b"%d" % self._sequence,
                suffix,
            )
        )

    def __repr__(self) -> str:
        return f"Event(topic={self.topic!r}, sequence={self._sequence}, payload={self.payload!r})"


def with_decoded(event: Event, decoded: object) -> Event:
    """A copy of ``event`` whose ``payload`` is ``decoded``."""
    copy = Event(event._topic, event._payload, event._sequence, event._published_at_ms, event._admitted_ms, event._size)
    copy._decoded = decoded
    return copy


def event_frame_parts(
    *, binding_id: str, topic: str, publisher: str, instance_id: str, generation: int
) -> tuple[bytes, bytes, bytes, bytes]:
    """The constant pieces of a topic's event frames: before the payload, then after it, the time and the sequence."""
    marker = 0
    whole = canonical.encode(
        {
            "jsonrpc": "2.0",
            "method": "bus/event",
            "params": {
                "binding_id": binding_id,
                "payload": {},
                "process_generation": generation,
                "published_at_ms": marker,
                "publisher": publisher,
                "publisher_instance_id": instance_id,
                "sequence": marker,
                "topic": topic,
            },
        }
    )
    # Each key below occurs once at its own level: every string value before it is quoted and cannot hold a bare quote.
    prefix, rest = whole.split(b'"payload":{}', 1)
    before_time, rest = rest.split(b'"published_at_ms":0', 1)
    before_sequence, suffix = rest.rsplit(b'"sequence":0', 1)
    return (
        prefix + b'"payload":',
        before_time + b'"published_at_ms":',
        before_sequence + b'"sequence":',
        suffix,
    )
