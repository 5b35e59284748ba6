"""The view of ``broker run --inspect``: the inspector, in the run's own loop."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from broker.bus import BusStatistics
from broker.errors import BrokerError, InternalError, UsageError
from broker.host import Session, records
from broker.inspector import Inspection

if TYPE_CHECKING:
    from broker.inspector.app import InspectorApp
    from broker.inspector.call_page import CallTool


class InspectorView:
    """A :class:`~broker.cli.views.View` that draws a whole session.

    Raises :class:`UsageError` where textual is not installed, or where there is no terminal.
    """

    def __init__(self) -> None:
        try:
            from broker.inspector.app import InspectorApp
        except ImportError:
            raise UsageError("--inspect needs textual; install the extra 'inspect'") from None
        if not (sys.stdin.isatty() and sys.stdout.isatty()):
            raise UsageError("--inspect needs a terminal; use --json where there is none")
        self._make = InspectorApp
        self._app: InspectorApp | None = None
        self._running: asyncio.Task[None] | None = None
        self._inspection: Inspection | None = None

    def open(self, session: Session, call: CallTool, *, on_end: Callable[[], object]) -> None:
        """Draw ``session`` from now on; ``on_end`` is called when a person quits."""

        async def called(extension: str, tool: str, arguments: Any) -> dict[str, Any]:
            try:
                return await call(extension, tool, arguments)
            except BrokerError as error:
                # No call was made: the budget of the run is spent.
                record = records.from_error(extension, tool, error)
                self.show(record)
                return record

        self._inspection = Inspection(session)
        self._app = self._make(self._inspection, called)
        self._running = asyncio.create_task(self._app.run_async())
        self._running.add_done_callback(lambda _: on_end())

    def show(self, record: dict[str, Any]) -> None:
        """Keep the record for the next drawing."""
        if self._inspection is not None:
            self._inspection.note(record)

    def refresh(self, statistics: BusStatistics) -> None:
        """Nothing to do: it looks for itself."""

    def close(self) -> None:
        """Ask it to leave the terminal as it was; :meth:`ended` waits until it has."""
        if self._app is not None and self._running is not None and not self._running.done():
            self._app.exit()

    async def ended(self) -> None:
        """Wait until the terminal is as it was; raises :class:`InternalError` when the drawing failed."""
        if self._running is not None and self._app is not None:
            await self._running
            if self._app.return_code:
                # textual has shown the traceback itself.
                raise InternalError("the inspector failed while it drew; please report it")
