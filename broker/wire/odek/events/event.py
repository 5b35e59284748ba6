"""One event as it leaves: stamped with its run and its time, every string redacted and bounded, one line of JSON.

Source: odek contract, "Event schema"; odek notes, sections 5.1 and 5.6.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from typing import Any, Final

import orjson
from attrs import frozen

from broker.errors import InvalidParamsError
from broker.limits import MAX_EVENT_ARGS_CHARS, MAX_EVENT_TEXT_CHARS
from broker.wire.odek.events.life import LifePayload
from broker.wire.odek.events.redaction import Redactor
from broker.wire.odek.events.types import EVENT_SCHEMA, Payload, ToolCallStarted, split
from broker.wire.quoting import CONTROL_CHARACTER

RUN_ID: Final = re.compile("[0-9a-f]{32}")
"""A run's id: 128 random bits."""

_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)


@frozen(kw_only=True)
class Event:
    """An event as a consumer gets it. ``data`` holds plain JSON; nothing in it needs to be hidden any more."""

    type: str
    timestamp: str
    run_id: str
    session_id: str | None = None
    iteration: int | None = None
    tool: str | None = None
    data: Mapping[str, Any]

    def to_json(self) -> dict[str, Any]:
        """The event as a JSON object; members that do not apply are left out."""
        members = {
            "schema": EVENT_SCHEMA,
            "type": self.type,
            "run_id": self.run_id,
            "session_id": self.session_id,
            "iteration": self.iteration,
            "tool": self.tool,
            "timestamp": self.timestamp,
        }
        return {**{name: value for name, value in members.items() if value is not None}, "data": dict(self.data)}

    def line(self) -> bytes:
        """The event's one line, with its LF. No LF stands inside: JSON escapes them."""
        return orjson.dumps(self.to_json(), option=orjson.OPT_APPEND_NEWLINE)


class Stamper:
    """Makes events of one run. Stateless but for what it was made with, and safe from any thread.

    ``include_args`` lets the arguments of tool calls through, redacted; without it they never leave.
    """

    def __init__(self, run_id: str, *, redactor: Redactor | None = None, include_args: bool = False) -> None:
        if not isinstance(run_id, str) or RUN_ID.fullmatch(run_id) is None:
            raise InvalidParamsError(f"run_id: expected 32 lower-case hexadecimal digits, got {run_id!a:.80}")
        self.run_id: str = run_id
        self._redactor = redactor or Redactor()
        self._include_args = include_args

    def stamp(self, payload: Payload | LifePayload, *, unix_ms: int, session_id: str | None = None) -> Event:
        """The event that ``payload`` is at the time ``unix_ms``."""
        envelope, data = split(payload)
        args = data.pop("args", None)
        shown = self._redactor.redact_value(data, max_chars=MAX_EVENT_TEXT_CHARS)
        if isinstance(payload, ToolCallStarted) and args is not None and self._include_args:
            shown["args"] = self._redactor.redact(args, max_chars=MAX_EVENT_ARGS_CHARS)
        tool = envelope.get("tool")
        return Event(
            type=payload.type,
            timestamp=rfc3339(unix_ms),
            run_id=self.run_id,
            session_id=session_id,
            iteration=envelope.get("iteration"),
            tool=None if tool is None else self._redactor.redact(tool, max_chars=MAX_EVENT_TEXT_CHARS),
            data=shown,
        )


def check_session_id(session_id: str) -> str:
    """``session_id`` if events can carry it: one line of text that is not empty. Raises ``invalid_params`` else."""
    if (
        not isinstance(session_id, str)
        or not 0 < len(session_id) <= MAX_EVENT_TEXT_CHARS
        or CONTROL_CHARACTER.search(session_id) is not None
    ):
        raise InvalidParamsError(f"session_id: expected one line of text, got {session_id!a:.80}", path="session_id")
    session_id.encode()
    return session_id


def rfc3339(unix_ms: int) -> str:
    """A time in UTC as RFC 3339 has it, with milliseconds."""
    moment = _EPOCH + timedelta(milliseconds=unix_ms)
    return moment.isoformat(timespec="milliseconds").replace("+00:00", "Z")
