"""The inspector's list of records, live, with a search line and the chosen record in full; and the refusals alone."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from rich.text import Text
from textual import on
from textual.app import ComposeResult
from textual.containers import Horizontal, Vertical, VerticalScroll
from textual.widgets import DataTable, Input, Label, Static

from broker.errors import UsageError
from broker.inspector.inspection import InspectedRecord, Inspection
from broker.inspector.search import Search
from broker.inspector.tables import KeyedTable, clock_time
from broker.limits import MAX_INSPECTED_RECORDS
from broker.wire.quoting import escape

_SURPLUS = MAX_INSPECTED_RECORDS // 4
_STYLES = {"refused": "red", "diagnostic": "yellow", "exited": "red", "call": "cyan", "event": ""}


class EntryList(Horizontal):
    """A table of entries beside the chosen one in full. It follows the newest until a person moves up."""

    def __init__(
        self, title: str, *columns: str, cells: Callable[[InspectedRecord], Sequence[str | Text]], name: str
    ) -> None:
        super().__init__()
        self._cells = cells
        self._entries: dict[str, InspectedRecord] = {}
        self.table: KeyedTable = KeyedTable(*columns, title=title, id=f"{name}-list")
        self.detail: Static = Static("", markup=False, id=f"{name}-detail")

    def compose(self) -> ComposeResult:
        """The table and the detail."""
        yield self.table
        with VerticalScroll(classes="detail") as scroll:
            scroll.border_title = "record"
            yield self.detail

    def clear(self) -> None:
        """Forget every entry."""
        self._entries.clear()
        self.table.clear()
        self.detail.update("")

    def add(self, entries: Sequence[InspectedRecord]) -> None:
        """Add entries, newest last; of more than 2500 only the newest 2000 stay."""
        if not entries:
            return
        table = self.table
        following = table.row_count == 0 or table.cursor_row >= table.row_count - 1
        for entry in entries:
            key = str(entry.number)
            self._entries[key] = entry
            table.add_row(*(_text(content, entry) for content in self._cells(entry)), key=key)
        if table.row_count > MAX_INSPECTED_RECORDS + _SURPLUS:
            # Taking rows out one by one costs the length of the table each time.
            selected = list(self._entries)[table.cursor_row]
            kept = list(self._entries.values())[-MAX_INSPECTED_RECORDS:]
            self.clear()
            self.add(kept)
            if selected in self._entries and not following:
                table.move_cursor(row=table.get_row_index(selected), animate=False)
        if following:
            table.move_cursor(row=table.row_count - 1, animate=False)

    @on(DataTable.RowHighlighted)
    def show_detail(self, event: DataTable.RowHighlighted) -> None:
        """Show the record under the cursor in full."""
        entry = self._entries.get(str(event.row_key.value))
        self.detail.update("" if entry is None else Text(entry.detail()))


class EventPage(Vertical):
    """Every record that the search finds; :attr:`paused` holds the list still."""

    def __init__(self, inspection: Inspection) -> None:
        super().__init__()
        self._inspection = inspection
        self._search = Search()
        self._shown = 0
        self.paused: bool = False
        self.line: Input = Input(placeholder="kind:event topic:bus.board.* -who:noisy text", id="search")
        self.problem: Label = Label("", markup=False, id="search-problem")
        self.list: EntryList = EntryList(
            "records", "time (UTC)", "kind", "who", "what", cells=_event_cells, name="event"
        )

    def compose(self) -> ComposeResult:
        """The search line and the list."""
        yield self.line
        yield self.problem
        yield self.list

    def show(self) -> None:
        """Add what is new."""
        if not self.paused and self._shown != self._inspection.revision:
            after, self._shown = self._shown, self._inspection.revision
            self.list.add(self._inspection.matching(self._search, after=after))
        title = "records, paused" if self.paused else "records"
        title = f"{title} ({self.list.table.row_count} of {len(self._inspection.entries)})"
        if title != self.list.table.border_title:
            self.list.table.border_title = title

    @on(Input.Changed, "#search")
    def search(self, event: Input.Changed) -> None:
        """Show what the search line finds; a wrong one says what is wrong, and the list stays."""
        try:
            self._search = Search(event.value)
        except UsageError as error:
            self.problem.update(str(error))
            return
        self.problem.update("")
        self.list.clear()
        self._shown = self._inspection.revision
        self.list.add(self._inspection.matching(self._search))


class RefusalPage(Vertical):
    """Every refused request: who asked, who had no room, and which bound was passed."""

    def __init__(self, inspection: Inspection) -> None:
        super().__init__()
        self._inspection = inspection
        self._shown = 0
        self.list: EntryList = EntryList(
            "refusals",
            "time (UTC)",
            "who asked",
            "operation",
            "topic",
            "no room at",
            "limit",
            "observed",
            "maximum",
            cells=_refusal_cells,
            name="refusal",
        )

    def compose(self) -> ComposeResult:
        """The list."""
        yield self.list

    def show(self) -> None:
        """Add what is new."""
        new = [entry for entry in self._inspection.refusals if entry.number > self._shown]
        if new:
            self._shown = new[-1].number
            self.list.add(new)


def _text(content: str | Text, entry: InspectedRecord) -> Text:
    return (
        content if isinstance(content, Text) else Text(escape(content), style=_STYLES.get(entry.kind, ""), no_wrap=True)
    )


def _event_cells(entry: InspectedRecord) -> tuple[str | Text, ...]:
    return clock_time(entry.unix_ms), entry.kind, entry.who, entry.line()


def _refusal_cells(entry: InspectedRecord) -> tuple[str | Text, ...]:
    record = entry.record
    shown = [record.get(key) for key in ("operation", "topic", "subscriber", "limit", "observed", "maximum")]
    return clock_time(entry.unix_ms), entry.who, *("" if value is None else str(value) for value in shown)
