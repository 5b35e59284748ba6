"""Reading an event stream back: bytes to events, whatever else is in between.

Unknown types and fields are ignored, lines that are no events are passed over and counted, and a last line without its
LF is not an event yet: a writer that died may never finish it. Source: odek contract, "Event schema" and
"Compatibility rule".
"""

from __future__ import annotations

from typing import Any, Final

import orjson
from attrs import define

from broker.limits import MAX_EVENT_LINE_BYTES
from broker.wire.mcp.decoding import is_deep
from broker.wire.odek.events.event import Event
from broker.wire.odek.events.life import LIFE_TYPES
from broker.wire.odek.events.types import EVENT_SCHEMA, EVENT_TYPES

_LF: Final = b"\n"


@define
class ReaderStatistics:
    """What a reader has seen: ``events`` given out, ``unknown`` types ignored, ``malformed`` lines passed over."""

    events: int = 0
    unknown: int = 0
    malformed: int = 0


class EventReader:
    """Takes the bytes of an event stream as they come, in any pieces. Memory stays within one line's bound."""

    def __init__(self) -> None:
        self.statistics: ReaderStatistics = ReaderStatistics()
        self._rest = bytearray()
        self._skipping = False

    @property
    def torn(self) -> int:
        """Bytes of a last line that has no LF yet."""
        return len(self._rest)

    def feed(self, data: bytes) -> list[Event]:
        """The events that ``data`` completes, in order."""
        events: list[Event] = []
        start = 0
        while (end := data.find(_LF, start)) >= 0:
            piece = data[start:end]
            start = end + 1
            if self._skipping or len(self._rest) + len(piece) > MAX_EVENT_LINE_BYTES:
                self.statistics.malformed += not self._skipping
                self._skipping = False
                self._rest.clear()
                continue
            self._rest += piece
            line = bytes(self._rest)
            self._rest.clear()
            event = self._read(line)
            if event is not None:
                events.append(event)
        self._keep(data[start:])
        return events

    def _keep(self, piece: bytes) -> None:
        if self._skipping:
            return
        self._rest += piece
        if len(self._rest) > MAX_EVENT_LINE_BYTES:
            self.statistics.malformed += 1
            self._skipping = True
            self._rest.clear()

    def _read(self, line: bytes) -> Event | None:
        if not line.strip():
            return None
        event = decode(line)
        if event is None:
            self.statistics.malformed += 1
        elif event.type not in EVENT_TYPES and event.type not in LIFE_TYPES:
            self.statistics.unknown += 1
            return None
        else:
            self.statistics.events += 1
        return event


def decode(line: bytes) -> Event | None:
    """The event of one line, of whatever type; ``None`` when it is none of ``odek.event/v1``."""
    if is_deep(line):
        return None
    try:
        value = orjson.loads(line)
    except orjson.JSONDecodeError:
        return None
    if not isinstance(value, dict) or value.get("schema") != EVENT_SCHEMA:
        return None
    data = value.get("data", {})
    texts = [value.get(name) for name in ("type", "timestamp", "run_id")]
    optional = [value.get(name) for name in ("session_id", "tool")]
    iteration = value.get("iteration")
    if (
        not all(isinstance(text, str) and text for text in texts)
        or not all(text is None or isinstance(text, str) for text in optional)
        or not isinstance(data, dict)
        or not (iteration is None or type(iteration) is int)
    ):
        return None
    members: dict[str, Any] = {name: value.get(name) for name in ("type", "timestamp", "run_id", "session_id", "tool")}
    return Event(**members, iteration=iteration, data=data)
