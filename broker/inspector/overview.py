"""The inspector's first page: extensions, topics, and every subscriber with what waits for it."""

from __future__ import annotations

from rich.text import Text
from textual.app import ComposeResult
from textual.containers import Horizontal, Vertical

from broker.inspector.inspection import Inspection, SubscriberRow
from broker.inspector.tables import KeyedTable, size
from broker.limits import MAX_BUS_QUEUE_BYTES, MAX_BUS_QUEUE_MESSAGES

_HEALTH_STYLES = {"ready": "green", "degraded": "yellow", "backoff": "yellow", "crashed": "red", "parked": "red"}
_FULL = 0.9


class Overview(Vertical):
    """Three tables over one inspection."""

    def __init__(self, inspection: Inspection) -> None:
        super().__init__()
        self._inspection = inspection
        self._extensions = KeyedTable(
            "name", "family", "gen", "health", "tools", "busy", title="extensions", id="extensions"
        )
        self._topics = KeyedTable("topic", "publisher", "gen", "rev", "subs", "published", title="topics", id="topics")
        self._subscribers = KeyedTable(
            "peer",
            "gen",
            "active",
            "pending",
            "queued",
            "bytes",
            "oldest",
            "refusals",
            "refused last",
            title=f"subscribers (a queue holds {MAX_BUS_QUEUE_MESSAGES} messages, {MAX_BUS_QUEUE_BYTES // 1024} KiB)",
            id="subscribers",
        )

    def compose(self) -> ComposeResult:
        """The tables."""
        with Horizontal():
            yield self._extensions
            yield self._topics
        yield self._subscribers

    def show(self) -> None:
        """Show how it stands now."""
        inspection = self._inspection
        self._extensions.show(
            [
                (
                    row.name,
                    (
                        row.name,
                        row.family,
                        str(row.generation or "-"),
                        Text(row.health, style=_HEALTH_STYLES.get(row.health, "")),
                        str(row.tools),
                        "yes" if row.open_calls else "",
                    ),
                )
                for row in inspection.extensions()
            ]
        )
        self._topics.show(
            [
                (
                    topic.topic,
                    (
                        topic.topic,
                        topic.publisher,
                        str(topic.process_generation),
                        str(topic.topic_revision),
                        str(topic.subscribers),
                        str(topic.published),
                    ),
                )
                for topic in inspection.statistics().topics
            ]
        )
        self._subscribers.show([(f"{row.name} {row.generation}", _cells(row)) for row in inspection.subscribers()])


def _cells(row: SubscriberRow) -> tuple[str | Text, ...]:
    style = "red" if row.fullness >= _FULL else ""
    return (
        row.name,
        str(row.generation),
        ", ".join(row.active),
        Text(", ".join(row.pending), style="yellow"),
        Text(str(row.queued_messages), style=style),
        Text(size(row.queued_bytes), style=style),
        "" if row.oldest_age_ms is None else f"{row.oldest_age_ms} ms",
        Text(str(row.refusals) if row.refusals else "", style="red"),
        row.last_refused_topic or "",
    )
