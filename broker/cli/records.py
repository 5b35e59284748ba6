"""One JSON object a line: what ``--json`` writes, and what the plain and the live view are made from.

Every record has ``kind``: started, topic_available, topic_unavailable, subscribed, event, call, diagnostic or exited.
"""

from __future__ import annotations

from typing import Any

from broker.bus import Active, trace
from broker.errors import BrokerError, RemoteError
from broker.host import Diagnostic, Exited, Health, HealthChanged, Notice, Started
from broker.wire.jsonrpc import ABSENT
from broker.wire.octet.models import ToolCallResult
from broker.wire.octet.schema import encode
from broker.wire.odek.result import ToolOutput

_UNWELL = (Health.CRASHED, Health.BACKOFF, Health.PARKED, Health.DEGRADED)


def from_notice(notice: Notice) -> dict[str, Any] | None:
    """The record of something a session announced, or None when it is of no interest."""
    if isinstance(notice, Started):
        return {
            "kind": "started",
            "extension": notice.extension,
            "generation": notice.generation,
            "tools": list(notice.tools),
        }
    if isinstance(notice, Exited):
        return {
            "kind": "exited",
            "extension": notice.extension,
            "generation": notice.generation,
            "status": notice.status,
            "reason": notice.reason,
        }
    if isinstance(notice, Diagnostic):
        return {
            "kind": "diagnostic",
            "extension": notice.extension,
            "generation": notice.generation,
            "source": notice.source,
            "reason": notice.text,
        }
    if isinstance(notice, HealthChanged) and notice.health in _UNWELL:
        return diagnostic(notice.extension, f"{notice.health.value}: {notice.reason}")
    return None


def from_trace(record: trace.Record) -> dict[str, Any] | None:
    """The record of something that happened on the bus, or None when it is of no interest."""
    if isinstance(record, trace.Published):
        event = record.event
        return {
            "kind": "event",
            "topic": event.topic,
            "publisher": event.publisher,
            "sequence": event.sequence,
            "published_at_ms": event.published_at_ms,
            "payload": event.payload,
        }
    if isinstance(record, trace.Declared):
        return {"kind": "topic_available", "topic": record.topic, "publisher": record.publisher}
    if isinstance(record, trace.Subscribed):
        state = "active" if isinstance(record.state, Active) else "pending"
        return {"kind": "subscribed", "extension": record.peer, "topic": record.topic, "state": state}
    if isinstance(record, trace.Withdrawn):
        return {"kind": "topic_unavailable", "topic": record.topic, "publisher": record.publisher}
    if isinstance(record, trace.Detached) and record.retired:
        return diagnostic(record.peer, f"taken off the bus: {record.reason}")
    return None


def from_result(extension: str, tool: str, result: ToolCallResult) -> dict[str, Any]:
    """The record of a call that was answered."""
    return {
        "kind": "call",
        "extension": extension,
        "tool": tool,
        "ok": not result.is_error,
        **{key: value for key, value in encode(result).items() if key != "is_error"},
    }


def from_output(server: str, tool: str, output: ToolOutput) -> dict[str, Any]:
    """The record of an MCP call that was answered."""
    return {
        "kind": "call",
        "extension": server,
        "tool": tool,
        "ok": not output.is_error,
        "content": [{"type": "text", "text": output.text}],
        "artifacts": [ref.id for ref in output.artifacts],
        "truncated": output.truncated,
    }


def from_error(extension: str, tool: str, error: BrokerError) -> dict[str, Any]:
    """The record of a call that failed."""
    shown: dict[str, Any] = {"name": error.name, "code": error.code, "message": error.message, "detail": str(error)}
    # An extension's error may carry data of null, which is not the same as none.
    if isinstance(error, RemoteError) and error.data is not ABSENT:
        shown["data"] = error.data
    return {"kind": "call", "extension": extension, "tool": tool, "ok": False, "error": shown}


def diagnostic(extension: str, reason: str) -> dict[str, Any]:
    """A diagnostic of the command's own."""
    return {"kind": "diagnostic", "extension": extension, "source": "host", "reason": reason}
