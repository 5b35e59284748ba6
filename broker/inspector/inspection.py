"""What an inspector knows of one session: the newest records, who refused, and what each process wrote to stderr.

Free of any terminal: a view reads it and draws. Records are those of :mod:`broker.host.records`; tables are snapshots
of the session, made when they are asked for. Everything kept is bounded, so an inspector can stay open for days.
"""

from __future__ import annotations

import json
import threading
from collections import deque
from itertools import takewhile
from typing import Any

from attrs import frozen

from broker.bus import BusStatistics
from broker.host import Session
from broker.host.records import describe
from broker.inspector.search import Search
from broker.limits import (
    MAX_BUS_QUEUE_BYTES,
    MAX_BUS_QUEUE_MESSAGES,
    MAX_DIAGNOSTIC_CHARS,
    MAX_INSPECTED_CHARS,
    MAX_INSPECTED_RECORDS,
    MAX_INSPECTED_STDERR_LINES,
)
from broker.wire.quoting import escape


@frozen
class InspectedRecord:
    """One record and when it came: ``number`` counts from 1, ``unix_ms`` is the session's clock."""

    number: int
    unix_ms: int
    record: dict[str, Any]

    @property
    def kind(self) -> str:
        """The kind of the record."""
        return str(self.record["kind"])

    @property
    def who(self) -> str:
        """The extension or plugin the record is about."""
        record = self.record
        return str(record.get("extension") or record.get("publisher") or record.get("provider") or "")

    @property
    def topic(self) -> str:
        """The topic the record is about, or an empty text."""
        return str(self.record.get("topic") or "")

    def line(self) -> str:
        """The record on one line, without its kind, safe to print."""
        return escape(describe(self.record)[len(f"{self.kind:<17} ") :], max_chars=MAX_DIAGNOSTIC_CHARS)

    def detail(self) -> str:
        """The whole record as indented JSON, safe to print; cut after 65536 characters."""
        text = json.dumps(self.record, indent=2, ensure_ascii=False)
        lines = (escape(line, max_chars=MAX_INSPECTED_CHARS) for line in text[:MAX_INSPECTED_CHARS].split("\n"))
        return "\n".join(lines) + ("\n..." if len(text) > MAX_INSPECTED_CHARS else "")


@frozen
class ExtensionRow:
    """One extension or MCP server. ``family`` is its API or ``mcp``; ``generation`` is 0 while no process serves."""

    name: str
    family: str
    generation: int
    health: str
    tools: int
    open_calls: bool


@frozen
class SubscriberRow:
    """One peer of the bus and its inbox; ``oldest_age_ms`` is None while no event waits in it."""

    name: str
    generation: int
    active: tuple[str, ...]
    pending: tuple[str, ...]
    queued_messages: int
    queued_bytes: int
    oldest_age_ms: int | None
    refusals: int
    last_refused_topic: str | None

    @property
    def fullness(self) -> float:
        """How full the inbox is, from 0 to 1, by messages or bytes, whichever is more."""
        return max(self.queued_messages / MAX_BUS_QUEUE_MESSAGES, self.queued_bytes / MAX_BUS_QUEUE_BYTES)


@frozen
class Tool:
    """One tool that can be called: ``schema`` is the JSON schema of its arguments."""

    owner: str
    name: str
    description: str
    schema: Any

    @property
    def shown(self) -> str:
        """Owner and name, safe to print."""
        return escape(f"{self.owner} / {self.name}")

    @property
    def about(self) -> str:
        """The description, safe to print; its line ends stay."""
        return "\n".join(escape(line) for line in self.description.split("\n"))


class Inspection:
    """What is known of one session. Give it every record with :meth:`note`; read the rest when it is to be shown.

    ``revision`` rises with every record, so that a view knows whether there is something new. :meth:`note` may be
    called from any thread, everything else belongs to the session's.
    """

    def __init__(self, session: Session) -> None:
        self.session: Session = session
        self.revision: int = 0
        # The bus tells of what happens in the thread that did it.
        self._lock = threading.Lock()
        self._entries: deque[InspectedRecord] = deque(maxlen=MAX_INSPECTED_RECORDS)
        self._refusals: deque[InspectedRecord] = deque(maxlen=MAX_INSPECTED_RECORDS)
        self._calls: deque[InspectedRecord] = deque(maxlen=MAX_INSPECTED_RECORDS)
        self._stderr: dict[str, deque[str]] = {}

    @property
    def entries(self) -> tuple[InspectedRecord, ...]:
        """The newest records, oldest first."""
        with self._lock:
            return tuple(self._entries)

    @property
    def refusals(self) -> tuple[InspectedRecord, ...]:
        """The newest records of a refusal, oldest first."""
        with self._lock:
            return tuple(self._refusals)

    @property
    def calls(self) -> tuple[InspectedRecord, ...]:
        """The newest records of a call, oldest first."""
        with self._lock:
            return tuple(self._calls)

    def note(self, record: dict[str, Any]) -> InspectedRecord:
        """Keep one more record; gives it back with its number and time."""
        with self._lock:
            self.revision += 1
            entry = InspectedRecord(self.revision, self.session.clock.unix_ms(), record)
            self._entries.append(entry)
            if entry.kind == "refused":
                self._refusals.append(entry)
            elif entry.kind == "call":
                self._calls.append(entry)
            elif entry.kind == "diagnostic" and record["source"] == "stderr":
                lines = self._stderr.setdefault(entry.who, deque(maxlen=MAX_INSPECTED_STDERR_LINES))
                lines.append(f"[{record.get('generation', '-')}] {record['reason']}")
        return entry

    def matching(self, search: Search, *, after: int = 0) -> list[InspectedRecord]:
        """The kept records with a number above ``after`` that ``search`` finds, oldest first."""
        newer = takewhile(lambda entry: entry.number > after, reversed(self.entries))
        return [entry for entry in newer if search.finds(entry)][::-1]

    def stderr(self, name: str) -> tuple[str, ...]:
        """The newest lines ``name`` wrote to stderr, each with its generation."""
        with self._lock:
            return tuple(self._stderr.get(name, ()))

    @property
    def names(self) -> tuple[str, ...]:
        """Every extension and server of the session, and whoever else wrote to stderr, in order of appearance."""
        session = self.session
        with self._lock:
            return tuple(dict.fromkeys((*session.extensions, *session.servers, *self._stderr)))

    def statistics(self) -> BusStatistics:
        """The bus as it stands."""
        return self.session.bus.statistics()

    def extensions(self) -> list[ExtensionRow]:
        """Every extension and MCP server of the session."""
        rows = []
        for extension in self.session.extensions.values():
            generation = extension.generation
            number = 0 if generation is None else generation.number
            busy = generation is not None and generation.busy
            rows.append(
                ExtensionRow(
                    extension.name,
                    f"octet {extension.manifest.api_version}",
                    number,
                    extension.health.value,
                    len(extension.tools),
                    busy,
                )
            )
        rows += [
            ExtensionRow(server.name, "mcp", server.number, server.health.value, len(server.tools), False)
            for server in self.session.servers.values()
        ]
        return rows

    def subscribers(self) -> list[SubscriberRow]:
        """Every peer of the bus that is not closed."""
        return [
            SubscriberRow(
                name=peer.name,
                generation=peer.generation,
                active=peer.active,
                pending=peer.pending,
                queued_messages=peer.queued_messages,
                queued_bytes=peer.queued_bytes,
                oldest_age_ms=peer.oldest_age_ms,
                refusals=peer.refusals,
                last_refused_topic=peer.last_refused_topic,
            )
            for peer in self.statistics().peers
            if not peer.closed
        ]

    def tools(self) -> list[Tool]:
        """Every tool that can be called now."""
        found = [
            Tool(extension.name, tool.name, tool.description, tool.parameters)
            for extension in self.session.extensions.values()
            for tool in extension.tools
        ]
        found += [
            Tool(server.name, tool.name, tool.description or "", tool.input_schema)
            for server in self.session.servers.values()
            for tool in server.tools
        ]
        return found
