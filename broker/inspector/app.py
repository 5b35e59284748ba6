"""The terminal view of a session: five pages over one :class:`~broker.inspector.Inspection` (extra ``inspect``)."""

from __future__ import annotations

from pathlib import PurePath
from typing import ClassVar, TypeAlias

from textual.app import App, ComposeResult
from textual.binding import BindingType
from textual.widgets import Footer, Static, TabbedContent, TabPane

from broker.inspector.call_page import CallPage, CallTool
from broker.inspector.event_page import EventPage, RefusalPage
from broker.inspector.inspection import Inspection
from broker.inspector.overview import Overview
from broker.inspector.stderr_page import StderrPage
from broker.limits import VIEW_REFRESH_MS

_Page: TypeAlias = Overview | EventPage | RefusalPage | StderrPage | CallPage

_PAGES = ("overview", "records", "refusals", "stderr", "calls")
_MAIN = dict(zip(_PAGES, ("#subscribers", "#event-list", "#refusal-list", "#stderr-names", "#tools"), strict=True))


class InspectorApp(App[None]):
    """Draws ``inspection``, four times a second while something changes; ``call`` makes a tool call for its last page.

    It changes nothing in the session but by that call. ``q`` or Ctrl-C ends it.
    """

    CSS_PATH: ClassVar[str | PurePath | list[str | PurePath] | None] = "inspector.tcss"
    ENABLE_COMMAND_PALETTE: ClassVar[bool] = False
    TITLE: str | None = "broker"
    BINDINGS: ClassVar[list[BindingType]] = [
        *((str(number), f"page('{page}')", page) for number, page in enumerate(_PAGES, 1)),
        ("slash", "search", "search"),
        ("space", "pause", "pause"),
        ("escape", "leave", "leave the line"),
        ("q", "quit", "quit"),
        ("ctrl+c", "quit", ""),
    ]

    def __init__(self, inspection: Inspection, call: CallTool) -> None:
        super().__init__()
        self._inspection = inspection
        self.overview: Overview = Overview(inspection)
        self.events: EventPage = EventPage(inspection)
        self.refusals: RefusalPage = RefusalPage(inspection)
        self.stderr_page: StderrPage = StderrPage(inspection)
        self.calls: CallPage = CallPage(inspection, call)
        self.status: Static = Static("", markup=False, id="status")
        self.tabs: TabbedContent = TabbedContent(initial=_PAGES[0], id="pages")
        self._line = ""
        pages = (self.overview, self.events, self.refusals, self.stderr_page, self.calls)
        self._pages: dict[str, _Page] = dict(zip(_PAGES, pages, strict=True))

    def compose(self) -> ComposeResult:
        """The status line, the pages, the keys."""
        yield self.status
        with self.tabs:
            for name, page in self._pages.items():
                with TabPane(name, id=name):
                    yield page
        yield Footer()

    def on_mount(self) -> None:
        """Begin to look."""
        self.show()
        self.set_interval(VIEW_REFRESH_MS / 1000, self.show)

    def show(self) -> None:
        """Draw how it stands: the status line, and the page that is looked at."""
        session, bus = self._inspection.session, self._inspection.statistics()
        paused = " | paused" if self.events.paused else ""
        line = (
            f"session {session.session_id[:8]} | {len(session.extensions) + len(session.servers)} extensions | "
            f"binding {bus.binding_revision} | {len(bus.topics)} topics | {bus.published} published | "
            f"{bus.refused} refused | {bus.retired} retired{paused}"
        )
        if line != self._line:
            self._line = line
            self.status.update(line)
        self._pages[self.tabs.active].show()

    def action_page(self, name: str) -> None:
        """Turn to a page, and give it the keys."""
        self._turn_to(name, _MAIN[name])

    def _turn_to(self, page: str, selector: str) -> None:
        # What has the focus would otherwise call the page it is on back.
        self.set_focus(None)
        self.tabs.active = page
        self._pages[page].show()
        self.call_after_refresh(self.query_one(selector).focus)

    def action_search(self) -> None:
        """Turn to the records, the cursor in the search line."""
        self._turn_to("records", "#search")

    def action_leave(self) -> None:
        """Leave a line of text, so that keys are commands again."""
        page = self.tabs.active
        self.query_one(_MAIN[page]).focus()

    def action_pause(self) -> None:
        """Hold the list of records still, or let it go on."""
        self.events.paused = not self.events.paused
        self.show()
