"""What happens in a session as JSON objects: what ``broker run --json`` writes, and what every view is made from.

Every record has ``kind``: started, tools_changed, topic_available, topic_unavailable, subscribed, event, refused, call,
diagnostic or exited.
"""

from __future__ import annotations

import json
from typing import Any

from broker.bus import Active, trace
from broker.errors import BrokerError, RemoteError
from broker.host.notices import CatalogueChanged, Diagnostic, Exited, Health, HealthChanged, Notice, Started
from broker.wire.feature.results import ToolResult
from broker.wire.jsonrpc import ABSENT
from broker.wire.octet.schema import encode
from broker.wire.odek.result import ToolOutput
from broker.wire.quoting import escape

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
    if isinstance(notice, CatalogueChanged):
        return {
            "kind": "tools_changed",
            "extension": notice.extension,
            "generation": notice.generation,
            "revision": notice.revision,
            "tools": list(notice.tools),
        }
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
    if isinstance(record, trace.Refused):
        error = record.error
        full = {name: getattr(error, name) for name in ("subscriber", "limit", "observed", "maximum")}
        return {
            "kind": "refused",
            "extension": record.peer,
            "operation": record.operation,
            "topic": error.topic,
            **{name: value for name, value in full.items() if value is not None},
            "error": _error(error),
        }
    if isinstance(record, trace.Detached) and record.retired:
        return diagnostic(record.peer, f"taken off the bus: {record.reason}")
    return None


def from_result(extension: str, tool: str, result: ToolResult) -> dict[str, Any]:
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
    shown = _error(error)
    # An extension's error may carry data of null, which is not the same as none.
    if isinstance(error, RemoteError) and error.data is not ABSENT:
        shown["data"] = error.data
    return {"kind": "call", "extension": extension, "tool": tool, "ok": False, "error": shown}


def _error(error: BrokerError) -> dict[str, Any]:
    return {"name": error.name, "code": error.code, "message": error.message, "detail": str(error)}


def diagnostic(extension: str, reason: str) -> dict[str, Any]:
    """A diagnostic of the command's own."""
    return {"kind": "diagnostic", "extension": extension, "source": "host", "reason": reason}


def describe(record: dict[str, Any]) -> str:
    """A record as a line for people, safe to print."""
    kind = record["kind"]
    if kind == "started":
        text = f"{record['extension']} started, tools: {', '.join(record['tools']) or 'none'}"
    elif kind == "tools_changed":
        text = f"{record['extension']} changed its tools: {', '.join(record['tools']) or 'none'}"
    elif kind == "topic_available":
        text = f"{record['topic']} is available from {record['publisher']}"
    elif kind == "topic_unavailable":
        text = f"{record['topic']} is no longer available from {record['publisher']}"
    elif kind == "subscribed":
        text = f"{record['extension']} subscribed to {record['topic']} ({record['state']})"
    elif kind == "event":
        payload = json.dumps(record["payload"], ensure_ascii=False)
        text = f"{record['topic']} #{record['sequence']} {payload}"
    elif kind == "refused":
        text = f"{record['extension']} {record['operation']} refused: {record['error']['detail']}"
    elif kind == "call":
        text = _describe_call(record)
    elif kind == "provided":
        models = ", ".join(record["models"]) or "no models"
        text = f"{record['provider']} ({record['status']}) from {record['extension']}: {models}"
    elif kind == "withdrawn":
        text = f"{record['provider']} is no longer provided by {record['extension']}"
    elif kind == "answer":
        end = "" if record["ok"] else f" (failed: {record['error']['detail']})"
        text = f"{record['provider']}/{record['model']}: {record['text']}{end}"
    elif kind == "exited":
        text = f"{record['extension']} exited with status {record['status']}: {record['reason']}"
    elif kind == "difference":
        where = f", line {record['line']}, {record['at_ms']} ms, {record['what']}" if "line" in record else ""
        where += f", at {record['path']}" if record["path"] else ""
        text = f"{record['extension']} (generation {record['generation']}){where}: {record['reason']}"
    elif kind == "replayed":
        text = f"{record['entries']} entries, {record['compared']} frames compared, {record['differences']} differ"
        text += "" if record["complete"] else "; the recording was cut, and ends here"
    else:
        text = f"{record['extension']} [{record['source']}] {record['reason']}"
    return escape(f"{kind:<17} {text}")


def _describe_call(record: dict[str, Any]) -> str:
    what = f"{record['extension']} {record['tool']}"
    if "error" in record:
        return f"{what} failed: {record['error']['detail']}"
    text = " ".join(part.get("text", part.get("alt", part.get("transcript", ""))) for part in record["content"])
    return f"{what} {'answered' if record['ok'] else 'answered with an error'}: {text}"
