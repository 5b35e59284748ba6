"""The inspector's page of stderr: one extension at a time, its newest lines."""

from __future__ import annotations

from rich.text import Text
from textual import on
from textual.app import ComposeResult
from textual.containers import Horizontal
from textual.widgets import OptionList, RichLog

from broker.inspector.inspection import Inspection
from broker.inspector.tables import plain_title
from broker.wire.quoting import escape


class StderrPage(Horizontal):
    """Names on the left, the tail of the chosen one on the right."""

    def __init__(self, inspection: Inspection) -> None:
        super().__init__()
        self._inspection = inspection
        self._names: tuple[str, ...] = ()
        self._lines: tuple[str, ...] = ()
        self.chosen: str | None = None
        self.names: OptionList = OptionList(markup=False, id="stderr-names")
        self.log_view: RichLog = RichLog(wrap=True, id="stderr-tail")

    def compose(self) -> ComposeResult:
        """The names and the lines."""
        self.names.border_title = "extensions"
        self.log_view.border_title = "stderr"
        yield self.names
        yield self.log_view

    def show(self) -> None:
        """Show new names and new lines."""
        names = self._inspection.names
        if names != self._names:
            self.names.add_options(Text(escape(name)) for name in names if name not in self._names)
            self._names = tuple(dict.fromkeys((*self._names, *names)))
            if self.chosen is None:
                self.chosen = self._names[0]
                self.names.highlighted = 0
        if self.chosen is None:
            return
        lines = self._inspection.stderr(self.chosen)
        if lines != self._lines:
            self._lines = lines
            self.log_view.clear()
            for line in lines:
                self.log_view.write(Text(line))

    @on(OptionList.OptionHighlighted)
    def choose(self, event: OptionList.OptionHighlighted) -> None:
        """Show another extension's lines."""
        self.chosen = self._names[event.option_index]
        self.log_view.border_title = plain_title(f"stderr of {self.chosen}")
        self._lines = ()
        self.log_view.clear()
        self.show()
