"""What a user would write on top of a signal library to get what the bus promises, as directly as it can be written.

One class holds the work (check, screen, measure, bound, sequence, queue, deliver outside the lock), and the library
only carries the admitted event to each subscriber's queue. The rules are the bus's own, and a test holds both to the
same answers, so that two rows compare the same work:

* the payload is copied; declared fields only, all of them, with exact types, bounds and screened strings;
* the exact size of the canonical frame, against the bound of a message and the smallest frame bound of a subscriber;
* room in every queue, in messages and in bytes, before anything is queued; what has expired makes room first;
* a sequence that only an admitted publication uses, wall time for people, monotonic time for the age;
* handlers outside the lock, in the order of admission, one delivery at a time, in a bounded number of rounds; one that
  raises is reported and counted, the rest go on; what is too old is counted and not delivered;
* subscribers share a payload that none of them can change; a refusal names the subscriber and is counted.

What it leaves out costs the bus little or nothing in these figures: lifecycle notices, interest in topics that nobody
has declared, bindings and generations, held messages, traces, and an error that lists every fault. In one thing it is
laxer: a queue has its room back when its events are taken for a round, before the handlers have seen them.
"""

from __future__ import annotations

import logging
import re
import threading
import time
from collections import deque
from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any, TypeAlias

import orjson

MAX_MESSAGES, MAX_BYTES, MAX_FRAME, MAX_AGE_MS, MAX_ROUNDS = 64, 262_144, 8_192, 30_000, 64

Check: TypeAlias = Callable[[Any], bool]
# Sequence, wall milliseconds, monotonic milliseconds, payload, frame bytes.
Event: TypeAlias = tuple[int, int, int, Mapping[str, Any], int]

_ANYWHERE = re.compile(r"[\x00-\x1f\x7f-\x9f@]")
_BEARER = re.compile(r"bearer\s", re.IGNORECASE)
_TOKEN = re.compile(r"(?<![a-z0-9])(?:sk|pk|rk|ghp|gho|ghu|ghs|github_pat|xox[abprs])[-_][a-z0-9_-]{8}", re.IGNORECASE)
# What a token ends in, which is found sooner.
_TOKEN_TAIL = re.compile(r"[-_][A-Za-z0-9_-]{8}")
# A path, or a phone number, at the beginning.
_EDGE = re.compile(
    r"/|\\\\|~(?:[/\\]|\Z|[a-z0-9._-]+[/\\])|[a-z]:[/\\]"
    r"|(?=.{8})(?:\+[0-9]|[0-9]+[+ ().-])[0-9+ ().-]*\Z",
    re.IGNORECASE,
)

_LOG = logging.getLogger(__name__)


class RefusedError(Exception):
    """A publication that the bus would refuse: what was wrong, and which subscriber had no room."""

    def __init__(self, reason: str, *, subscriber: Queue | None = None) -> None:
        super().__init__(reason)
        self.subscriber = subscriber


class Queue:
    """One subscriber's bounded queue and its counters."""

    __slots__ = ("bytes", "events", "expired", "failures", "handler", "max_frame", "refusals", "subscribed", "taken")

    def __init__(self, handler: Callable[[Event], object], max_frame: int = 1_048_576) -> None:
        self.events: deque[Event] = deque()
        self.bytes = 0
        self.handler = handler
        self.max_frame = max_frame
        self.subscribed = True
        self.taken = self.expired = self.failures = self.refusals = 0

    def put(self, event: Event) -> None:
        """Queue an event that was found to have room."""
        self.events.append(event)
        self.bytes += event[4]

    def take_all(self) -> list[Event]:
        """Everything that is queued, and its room back."""
        events = list(self.events)
        self.events.clear()
        self.bytes = 0
        return events

    def drop_expired(self, now: int) -> None:
        """Make room: events are in the order of their age."""
        while self.events and now - self.events[0][2] > MAX_AGE_MS:
            self.bytes -= self.events.popleft()[4]
            self.expired += 1


class SameWork:
    """The bus's work for one publisher, with ``carry(event)`` given to a signal library."""

    def __init__(self, topic: str, fields: dict[str, Check], carry: Callable[[Event], object]) -> None:
        self._fields = {topic: fields}
        self._carry = carry
        self._lock = threading.Lock()
        self._delivering = False
        self._stirred = False
        self._sequence = 0
        self._queues: tuple[Queue, ...] = ()
        self._max_frame = MAX_FRAME
        frame = {
            "jsonrpc": "2.0",
            "method": "bus/event",
            "params": {
                "binding_id": "0123456789abcdef0123456789abcdef",
                "payload": "",
                "process_generation": 1,
                "published_at_ms": "",
                "publisher": "sensor",
                "publisher_instance_id": "0123456789abcdef0123456789abcdef",
                "sequence": "",
                "topic": topic,
            },
        }
        # All of a frame but its payload, time and sequence, which stand here as two quotes each.
        self._fixed_bytes = len(orjson.dumps(frame)) - 3 * len('""')

    def subscribe(self, queue: Queue) -> None:
        """Admit events to this queue from now on."""
        with self._lock:
            self._queues += (queue,)
            self._max_frame = min(self._max_frame, queue.max_frame)

    def publish(self, topic: str, payload: dict[str, Any]) -> tuple[int, int]:
        """Check, measure, admit to every queue or none; gives the sequence and the wall time."""
        payload = dict(payload)
        fields = self._fields.get(topic)
        if fields is None:
            raise RefusedError("topic")
        if payload.keys() != fields.keys():
            raise RefusedError("fields")
        for name, fits in fields.items():
            if not fits(payload[name]):
                raise RefusedError(name)
        payload_bytes = len(orjson.dumps(payload))
        with self._lock:
            sequence = self._sequence + 1
            published_at_ms = time.time_ns() // 1_000_000
            now = time.monotonic_ns() // 1_000_000
            size = self._fixed_bytes + payload_bytes + len(str(published_at_ms)) + len(str(sequence))
            if size > self._max_frame:
                raise RefusedError("frame")
            for queue in self._queues:
                if len(queue.events) >= MAX_MESSAGES or queue.bytes + size > MAX_BYTES:
                    queue.drop_expired(now)
                    if len(queue.events) >= MAX_MESSAGES or queue.bytes + size > MAX_BYTES:
                        queue.refusals += 1
                        raise RefusedError("full", subscriber=queue)
            self._sequence = sequence
            self._stirred = True
            self._carry((sequence, published_at_ms, now, MappingProxyType(payload), size))
        return sequence, published_at_ms

    def deliver(self) -> int:
        """Hand what is queued, and what that causes, to the handlers, outside the lock; gives how many events."""
        count = 0
        with self._lock:
            if self._delivering:
                return 0
            self._delivering = True
        try:
            for _ in range(MAX_ROUNDS):
                with self._lock:
                    if not self._stirred:
                        self._delivering = False
                        return count
                    self._stirred = False
                    batches = [(queue, queue.take_all()) for queue in self._queues if queue.events]
                oldest = time.monotonic_ns() // 1_000_000 - MAX_AGE_MS
                for queue, events in batches:
                    for event in events:
                        if not queue.subscribed:
                            break
                        if event[2] < oldest:
                            queue.expired += 1
                            continue
                        queue.taken += 1
                        count += 1
                        try:
                            queue.handler(event)
                        except Exception:
                            queue.failures += 1
                            _LOG.exception("a handler failed")
        finally:
            self._delivering = False
        return count


def string(max_bytes: int) -> Check:
    """A field of at most ``max_bytes`` UTF-8 bytes that passes the screen."""

    def fits(value: Any) -> bool:
        return type(value) is str and _utf8_size(value) <= max_bytes and not screened(value)

    return fits


def _utf8_size(value: str) -> float:
    try:
        return len(value.encode())
    except UnicodeEncodeError:
        return float("inf")


def screened(value: str) -> bool:
    """Whether a string looks like a secret, an address, a path or a phone number; cheap tests before dear ones."""
    if value.isalnum():
        return False
    if _ANYWHERE.search(value) or _EDGE.match(value.strip()):
        return True
    if _TOKEN_TAIL.search(value) and _TOKEN.search(value):
        return True
    lower = value.lower()
    return "-----begin" in lower or ("bearer" in lower and _BEARER.search(value) is not None)


def integer(minimum: int, maximum: int) -> Check:
    """An integer within bounds; a boolean is none."""
    return lambda value: type(value) is int and minimum <= value <= maximum


def boolean(value: Any) -> bool:
    """True or false."""
    return value is True or value is False


def enum(*values: str) -> Check:
    """One of some strings."""
    allowed = frozenset(values)
    return lambda value: type(value) is str and value in allowed
