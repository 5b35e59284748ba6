"""Frames of a recording that is played again: as what they are compared, and which begin the end of a process."""

from __future__ import annotations

import json
from typing import Any, Final

from broker.host.recording import RecordedEntry

# By the method of a frame, None for an answer: the member that is a reading of the clock, or is reckoned from two.
_OF_THE_CLOCK: Final[dict[Any, tuple[str, ...]]] = {
    "bus/event": ("params", "published_at_ms"),
    "hook/run": ("params", "payload", "duration_ms"),
    None: ("result", "published_at_ms"),
}
_BUS_MESSAGES: Final = ("bus/event", "bus/lifecycle")


def expected_of(entry: RecordedEntry) -> Any:
    """What the host has to say where this was heard, as :func:`timeless` gives it."""
    return timeless(entry.frame) if entry.is_frame else entry.text


def begins_end(entry: RecordedEntry) -> bool:
    """Whether this is the first that an extension of either wire may hear of being stopped by its host."""
    if not isinstance(entry.frame, dict):
        return False
    if entry.frame.get("method") != "hook/run":
        return bool(entry.frame.get("method") == "shutdown")
    return told_of_end(entry).get("reason") in ("shutdown", "cancelled")


def told_of_end(entry: RecordedEntry) -> dict[str, Any]:
    """What a ``session_end`` says; nothing of any other frame."""
    params = entry.frame.get("params")
    payload = params.get("payload") if isinstance(params, dict) and params.get("hook") == "session_end" else None
    return payload if isinstance(payload, dict) else {}


def timeless(frame: Any) -> Any:
    """A frame with what it reads off the clock, if it does, taken out."""
    method = frame.get("method") if isinstance(frame, dict) else None
    return _without(frame, _OF_THE_CLOCK.get(method, ()) if method is None or isinstance(method, str) else ())


def _without(value: Any, path: tuple[str, ...]) -> Any:
    if not path:
        return None if type(value) is int else value
    if not isinstance(value, dict) or path[0] not in value:
        return value
    return {**value, path[0]: _without(value[path[0]], path[1:])}


def of_the_bus(frame: Any) -> bool:
    """Whether it is one of the messages that come from the bus by themselves."""
    return isinstance(frame, dict) and frame.get("method") in _BUS_MESSAGES


def read_frame(line: bytes) -> Any:
    """The JSON of a line, or its text where it has none."""
    try:
        return json.loads(line)
    except ValueError:
        return line.decode("utf-8", "backslashreplace")
