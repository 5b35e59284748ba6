"""What a user would write on top of a signal library to get what the bus promises, as directly as it can be written.

One class holds the work (check, screen, measure, bound, sequence, queue, deliver outside the lock), and the library
only carries the admitted event to each subscriber's queue. The rules are the bus's own, so that two rows compare the
same work: declared fields with exact types, string screening, the exact size of the canonical frame, room in every
queue before anything is queued, a queue bounded in messages and bytes, age, handlers called without the lock.
"""

from __future__ import annotations

import re
import threading
import time
from collections import deque
from collections.abc import Callable
from typing import Any

import orjson

MAX_MESSAGES, MAX_BYTES, MAX_FRAME, MAX_AGE_MS = 64, 262_144, 8_192, 30_000

_SCREEN = re.compile(
    r"[\x00-\x1f\x7f-\x9f@]|-----begin|bearer\s"
    r"|(?<![a-z0-9])(?:sk|pk|rk|ghp|gho|ghu|ghs|github_pat|xox[abprs])[-_][a-z0-9_-]{8}",
    re.IGNORECASE,
)
_EDGE = re.compile(
    r"/|\\\\|~(?:[/\\]|$)|[a-z]:[/\\]|\+?[0-9](?=[0-9+ ().-]{7,}$)[0-9]*[+ ().-][0-9+ ().-]*$", re.IGNORECASE
)


class RefusedError(Exception):
    """A publication that the bus would refuse."""


class Queue:
    """One subscriber's bounded queue."""

    __slots__ = ("bytes", "events", "handler")

    def __init__(self, handler: Callable[[Any], object]) -> None:
        self.events: deque[tuple[int, int, dict[str, Any], int]] = deque()
        self.bytes = 0
        self.handler = handler

    def put(self, event: tuple[int, int, dict[str, Any], int]) -> None:
        """Queue an event that was found to have room."""
        self.events.append(event)
        self.bytes += event[3]


class SameWork:
    """The bus's work on one topic, with ``carry(event)`` given to a signal library."""

    def __init__(self, topic: str, fields: dict[str, Callable[[Any], bool]], carry: Callable[[Any], object]) -> None:
        self._topic = topic
        self._fields = fields
        self._carry = carry
        self._lock = threading.Lock()
        self._sequence = 0
        self.queues: list[Queue] = []

    def publish(self, payload: dict[str, Any]) -> int:
        """Check, measure, admit to every queue or none; gives the sequence."""
        payload = dict(payload)
        if payload.keys() != self._fields.keys():
            raise RefusedError("fields")
        for name, fits in self._fields.items():
            if not fits(payload[name]):
                raise RefusedError(name)
        with self._lock:
            sequence = self._sequence + 1
            frame = {
                "jsonrpc": "2.0",
                "method": "bus/event",
                "params": {
                    "binding_id": "0123456789abcdef0123456789abcdef",
                    "payload": payload,
                    "process_generation": 1,
                    "published_at_ms": time.time_ns() // 1_000_000,
                    "publisher": "sensor",
                    "publisher_instance_id": "0123456789abcdef0123456789abcdef",
                    "sequence": sequence,
                    "topic": self._topic,
                },
            }
            size = len(orjson.dumps(frame, option=orjson.OPT_SORT_KEYS))
            if size > MAX_FRAME:
                raise RefusedError("frame")
            for queue in self.queues:
                if len(queue.events) >= MAX_MESSAGES or queue.bytes + size > MAX_BYTES:
                    raise RefusedError("full")
            self._sequence = sequence
            self._carry((sequence, time.monotonic_ns() // 1_000_000, payload, size))
        return sequence

    def deliver(self) -> int:
        """Hand what is queued to the handlers, outside the lock."""
        count = 0
        for queue in self.queues:
            while queue.events:
                with self._lock:
                    event = queue.events.popleft()
                    queue.bytes -= event[3]
                if time.monotonic_ns() // 1_000_000 - event[1] <= MAX_AGE_MS:
                    queue.handler(event)
                    count += 1
        return count


def string(max_bytes: int) -> Callable[[Any], bool]:
    """A field of at most ``max_bytes`` UTF-8 bytes that passes the screen."""

    def fits(value: Any) -> bool:
        return (
            type(value) is str
            and len(value.encode()) <= max_bytes
            and not _SCREEN.search(value)
            and not _EDGE.match(value.strip())
        )

    return fits


def integer(minimum: int, maximum: int) -> Callable[[Any], bool]:
    """An integer within bounds; a boolean is none."""
    return lambda value: type(value) is int and minimum <= value <= maximum


def boolean(value: Any) -> bool:
    """True or false."""
    return value is True or value is False


def enum(*values: str) -> Callable[[Any], bool]:
    """One of some strings."""
    allowed = frozenset(values)
    return lambda value: type(value) is str and value in allowed
