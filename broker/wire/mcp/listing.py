"""Asking a server for its tools: page after page, bounded, and again when it says that they changed.

A list that cannot be completed is no list: a cursor that comes back, too many pages or tools, a page of the wrong shape
or an error refuse all of it (design, "Decisions on odek-extension/v1", D9). An announced change is dealt with by asking
again later, never while a line is being read; announcements meanwhile become one, and a server that announces a change
whenever it is asked is asked once a second.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from broker.errors import BrokerError, CatalogueError
from broker.limits import MAX_TOOL_PAGES, RELIST_INTERVAL_MS
from broker.wire.jsonrpc import json_type
from broker.wire.mcp.catalogue import Catalogue, check_count, read_catalogue
from broker.wire.mcp.requests import HostRequest
from broker.wire.quoting import quote

Ask = Callable[[dict[str, Any] | None, Callable[[HostRequest], None]], None]
"""Sends ``tools/list`` with parameters; the callback gets the settled request."""


class Listing:
    """The listings of one connection, at most one at a time.

    ``ask`` sends a page's request, ``done`` takes the outcome of a listing: a catalogue, or why there is none.
    """

    __slots__ = ("_ask", "_cursors", "_done", "_entries", "_pages", "_server", "_started_ms", "running", "wanted")

    def __init__(self, server: str, ask: Ask, done: Callable[[Catalogue | BrokerError], None]) -> None:
        self._server = server
        self._ask = ask
        self._done = done
        self._started_ms: int | None = None
        self.wanted: bool = False
        self.running: bool = False

    def want(self) -> None:
        """A listing is needed; :meth:`tick` starts it."""
        self.wanted = True

    def due_ms(self, now_ms: int) -> int | None:
        """The monotonic millisecond at which :meth:`tick` will start a listing, ``None`` if none is needed now."""
        if not self.wanted or self.running:
            return None
        return now_ms if self._started_ms is None else self._started_ms + RELIST_INTERVAL_MS

    def tick(self, now_ms: int) -> None:
        """Start a listing that is due."""
        due_ms = self.due_ms(now_ms)
        if due_ms is not None and due_ms <= now_ms:
            self._started_ms = now_ms
            self.wanted = False
            self.running = True
            self._entries: list[Any] = []
            self._cursors: set[str] = set()
            self._pages = 0
            self._ask(None, self._settled)

    def stop(self) -> None:
        """Want nothing more."""
        self.wanted = False

    def _settled(self, request: HostRequest) -> None:
        try:
            if request.error is not None:
                raise request.error
            cursor = self._take_page(request.result)
            outcome = None if cursor is not None else read_catalogue(self._server, self._entries)
        except BrokerError as error:
            self._end(error)
            return
        if outcome is None:
            self._ask({"cursor": cursor}, self._settled)
        else:
            self._end(outcome)

    def _end(self, outcome: Catalogue | BrokerError) -> None:
        self.running = False
        self._entries = []
        self._cursors = set()
        self._done(outcome)

    def _take_page(self, result: dict[str, Any]) -> str | None:
        """Keep a page's entries; the cursor of the next page, if there is one. An empty string is a cursor."""
        tools, cursor = result.get("tools"), result.get("nextCursor")
        if tools is not None and type(tools) is not list:
            raise self._refusal(f"tools must be an array, not {json_type(tools)}", path="tools")
        if cursor is not None and type(cursor) is not str:
            raise self._refusal(f"nextCursor must be a string, not {json_type(cursor)}", path="nextCursor")
        check_count(self._server, len(self._entries) + len(tools or ()))
        self._entries += tools or ()
        self._pages += 1
        if cursor is None:
            return None
        if cursor in self._cursors:
            raise self._refusal(f"the cursor {quote(cursor)} was repeated", path="nextCursor")
        if self._pages >= MAX_TOOL_PAGES:
            raise self._refusal(
                f"more than {MAX_TOOL_PAGES} pages",
                name="resource_exhausted",
                limit="MAX_TOOL_PAGES",
                observed=self._pages + 1,
                maximum=MAX_TOOL_PAGES,
            )
        self._cursors.add(cursor)
        return cursor

    def _refusal(self, problem: str, **fields: Any) -> CatalogueError:
        return CatalogueError(
            f"{self._server}: its list of tools is refused: {problem}",
            extension=self._server,
            method="tools/list",
            **fields,
        )
