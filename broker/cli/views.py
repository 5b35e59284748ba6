"""How records are shown: JSON lines, plain lines, or a live table on a terminal."""

from __future__ import annotations

import json
import sys
from collections import deque
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Protocol, TextIO

from broker.bus import BusStatistics
from broker.host.records import describe
from broker.limits import MAX_RECENT_EVENTS
from broker.wire.quoting import escape

if TYPE_CHECKING:
    from rich.console import RenderableType


class View(Protocol):
    """Shows records as they come."""

    def show(self, record: dict[str, Any]) -> None:
        """One more record."""
        ...

    def refresh(self, statistics: BusStatistics) -> None:
        """The bus stands like this now."""
        ...

    def close(self) -> None:
        """No more records."""
        ...


def make_view(*, as_json: bool) -> View:
    """JSON lines when asked for, a live table on a terminal where rich is installed, else plain lines."""
    if as_json:
        return JsonView(sys.stdout, sys.stderr)
    if sys.stdout.isatty():
        try:
            return LiveView()
        except ImportError:
            print("broker: install the extra 'cli' for a live view", file=sys.stderr)
    return PlainView(sys.stdout, sys.stderr)


class StoppingView:
    """Another view whose first failure to write stops the run: ``on_failure`` is called, and nothing more is written.

    Records are shown from observers, whose exceptions go no further than a log.
    """

    def __init__(self, view: View, on_failure: Callable[[], object]) -> None:
        self._view = view
        self._on_failure = on_failure
        self.failure: OSError | None = None

    def show(self, record: dict[str, Any]) -> None:
        """Show the record, unless writing has failed."""
        self._try(lambda: self._view.show(record))

    def refresh(self, statistics: BusStatistics) -> None:
        """Show the bus's counters, unless writing has failed."""
        self._try(lambda: self._view.refresh(statistics))

    def close(self) -> None:
        """Close the view."""
        self._try(self._view.close)

    def _try(self, act: Callable[[], object]) -> None:
        if self.failure is None:
            try:
                act()
            except OSError as error:
                self.failure = error
                self._on_failure()


class JsonView:
    """One JSON object a line on stdout; diagnostics on stderr as well."""

    def __init__(self, out: TextIO, err: TextIO) -> None:
        self._out = out
        self._err = err

    def show(self, record: dict[str, Any]) -> None:
        """Write the record. Characters beyond ASCII are escaped, so that any encoding of stdout can take them."""
        if record["kind"] == "diagnostic":
            print(describe(record), file=self._err, flush=True)
        print(json.dumps(record, separators=(",", ":")), file=self._out, flush=True)

    def refresh(self, statistics: BusStatistics) -> None:
        """Nothing to do."""

    def close(self) -> None:
        """Nothing to do."""


class PlainView:
    """One readable line a record; diagnostics go to stderr."""

    def __init__(self, out: TextIO, err: TextIO) -> None:
        self._out = out
        self._err = err

    def show(self, record: dict[str, Any]) -> None:
        """Write the record's line."""
        print(describe(record), file=self._err if record["kind"] == "diagnostic" else self._out, flush=True)

    def refresh(self, statistics: BusStatistics) -> None:
        """Nothing to do."""

    def close(self) -> None:
        """Nothing to do."""


class LiveView:
    """A live table on a terminal: extensions, topics, subscriptions, the latest events."""

    def __init__(self) -> None:
        from rich.console import Console
        from rich.live import Live

        self._extensions: dict[str, dict[str, str]] = {}
        self._recent: deque[str] = deque(maxlen=MAX_RECENT_EVENTS)
        self._statistics: BusStatistics | None = None
        self._console = Console()
        self._live = Live(self._render(), console=self._console, refresh_per_second=8)
        self._live.start()

    def show(self, record: dict[str, Any]) -> None:
        """Add the record to the tables."""
        kind = record["kind"]
        if kind in ("started", "exited"):
            state = "ready" if kind == "started" else record["reason"]
            row = self._extensions.setdefault(record["extension"], {"tools": ""})
            row.update(generation=str(record["generation"]), state=escape(state, max_chars=80))
        if kind in ("started", "tools_changed") and record["extension"] in self._extensions:
            self._extensions[record["extension"]]["tools"] = escape(", ".join(record["tools"]))
        if kind in ("call", "answer") or (kind == "diagnostic" and record["source"] == "host"):
            # An answer and why something failed are to be read whole: they go above the tables, where nothing is cut.
            self._console.print(describe(record), markup=False, highlight=False)
        else:
            self._recent.append(describe(record))
        self._live.update(self._render())

    def refresh(self, statistics: BusStatistics) -> None:
        """Show the bus's counters."""
        self._statistics = statistics
        self._live.update(self._render())

    def close(self) -> None:
        """Leave the last tables on the screen."""
        self._live.stop()

    def _render(self) -> RenderableType:
        from rich.console import Group
        from rich.table import Table
        from rich.text import Text

        extensions = Table("extension", "generation", "state", "tools", title="extensions", expand=True)
        for name, row in self._extensions.items():
            extensions.add_row(Text(escape(name)), row["generation"], Text(row["state"]), Text(row["tools"]))
        topics = Table("topic", "publisher", "subscribers", "published", title="topics", expand=True)
        peers = Table("peer", "queued", "oldest", "taken", "refusals", "subscriptions", title="peers", expand=True)
        if self._statistics is not None:
            for topic in self._statistics.topics:
                topics.add_row(topic.topic, topic.publisher, str(topic.subscribers), str(topic.published))
            for peer in self._statistics.peers:
                oldest = "" if peer.oldest_age_ms is None else f"{peer.oldest_age_ms} ms"
                waiting = [f"({name})" for name in peer.pending]
                peers.add_row(
                    Text(escape(peer.name)),
                    str(peer.queued_messages),
                    oldest,
                    str(peer.taken),
                    str(peer.refusals),
                    ", ".join([*peer.active, *waiting]),
                )
        recent = Table.grid()
        for line in self._recent:
            recent.add_row(Text(line, overflow="ellipsis", no_wrap=True))
        return Group(extensions, topics, peers, recent)
