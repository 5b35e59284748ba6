"""The inspector's tables: rows with keys, changed in place so that the cursor stays where a person put it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from rich.text import Text
from textual import markup
from textual.widgets import DataTable

from broker.wire.quoting import escape


class KeyedTable(DataTable[Text]):
    """A table whose rows are shown by key. Text is shown as it is: markup of an extension's has no effect."""

    def __init__(self, *columns: str, title: str, **options: Any) -> None:
        super().__init__(cursor_type="row", zebra_stripes=True, **options)
        self._labels: tuple[str, ...] = columns
        self.border_title = title

    def on_mount(self) -> None:
        """Add the columns."""
        for label in self._labels:
            self.add_column(label, key=label)

    def show(self, rows: Sequence[tuple[str, Sequence[str | Text]]]) -> None:
        """Show exactly ``rows``: (key, cells). Rows that stay keep their place; cells that did not change are left."""
        keys = [str(row.value) for row in self.rows]
        if keys != [key for key, _ in rows]:
            selected = keys[self.cursor_row] if 0 <= self.cursor_row < len(keys) else None
            self.clear()
            for key, cells in rows:
                self.add_row(*map(cell, cells), key=key)
            if selected in dict(rows):
                self.move_cursor(row=self.get_row_index(selected), animate=False)
            return
        for key, cells in rows:
            for label, content in zip(self._labels, map(cell, cells), strict=True):
                if self.get_cell(key, label) != content:
                    self.update_cell(key, label, content, update_width=True)


def cell(content: str | Text) -> Text:
    """What a table shows for ``content``: no markup, no control characters."""
    return content if isinstance(content, Text) else Text(escape(content), no_wrap=True)


def plain_title(text: str) -> str:
    """A title for a border, where textual reads markup: ``text`` with none in it."""
    return markup.escape(escape(text))


def clock_time(unix_ms: int) -> str:
    """A moment as UTC time of day with milliseconds."""
    # Reckoned here, as a recording may come from a year that no calendar of Python has.
    seconds, milliseconds = divmod(unix_ms, 1000)
    minutes, second = divmod(seconds, 60)
    return f"{minutes // 60 % 24:02}:{minutes % 60:02}:{second:02}.{milliseconds:03}"


def size(count: int) -> str:
    """Bytes for people."""
    return f"{count} B" if count < 1024 else f"{count / 1024:.1f} KiB"
