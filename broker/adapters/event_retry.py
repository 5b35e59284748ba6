"""A consumer that keeps trying while the disk is full: events wait in the emitter's queue, and none is lost unheard.

Source: odek notes, section 5.8; design, D1.
"""

from __future__ import annotations

import threading
from collections.abc import Callable

from broker.adapters.event_log import EventLog
from broker.errors import EventLogError
from broker.limits import EVENT_RETRY_BASE_MS, EVENT_RETRY_CAP_MS
from broker.wire.odek.events.event import Event


class RetryingLog:
    """Writes events to ``log``; for the thread of one emitter.

    What fails is reported by ``report(error)`` when it begins to fail, and tried again after a growing delay: an event
    that is not in the file is written again, one that is there but not durable is made so. After :meth:`give_up` each
    event is tried once, and its failure raised for the emitter to count. ``wait(seconds)`` waits, at most that long,
    and answers whether to give up; tests replace it.
    """

    def __init__(
        self,
        log: EventLog,
        *,
        report: Callable[[EventLogError], object],
        wait: Callable[[float], bool] | None = None,
    ) -> None:
        self._log = log
        self._report = report
        self._given_up = threading.Event()
        self._wait = wait or self._given_up.wait
        self.retries: int = 0

    def give_up(self) -> None:
        """Try no more than once from now on, as when the run is over. Callable from any thread."""
        self._given_up.set()

    def __call__(self, event: Event) -> None:
        """Write the event; returns when it is durable."""
        line = event.line()
        written = False
        delay_ms = EVENT_RETRY_BASE_MS
        first = True
        while True:
            try:
                if written:
                    self._log.flush()
                else:
                    self._log.write_line(line)
                return
            except EventLogError as error:
                written = written or error.written
                if first:
                    self._report(error)
                    first = False
                if self._given_up.is_set() or self._wait(delay_ms / 1000):
                    raise
                self.retries += 1
                delay_ms = min(delay_ms * 2, EVENT_RETRY_CAP_MS)
