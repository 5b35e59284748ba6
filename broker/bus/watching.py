"""Those who watch a bus: listeners, which are told that something happened, and traces, which are told what.

Both run outside the lock, in the thread that caused it, and what they raise is logged and stops nothing.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import TYPE_CHECKING

from broker.errors import BrokerError
from broker.limits import MAX_DELIVERY_ROUNDS

if TYPE_CHECKING:
    from broker.bus import trace
    from broker.bus.peer import Peer

Listener = Callable[[], object]
Trace = Callable[["trace.Record"], object]


class Watched:
    """What can be watched. :meth:`_after` tells whoever watches, after the lock was released."""

    __slots__ = ("_journal", "_listeners", "_lock", "_refused", "_telling", "_traces", "_watched")

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._refused = 0
        self._listeners: tuple[Listener, ...] = ()
        self._traces: tuple[Trace, ...] = ()
        self._watched = False
        self._journal: list[trace.Record] | None = None
        self._telling = False

    def _note(self, kind: str, *facts: object) -> None:
        """Journal a record of :mod:`broker.bus.trace`, which is loaded once somebody watches."""
        if self._traces:
            from broker.bus import trace

            if self._journal is None:
                self._journal = []
            self._journal.append(getattr(trace, kind)(*facts))

    def _refusal(self, peer: Peer, operation: str, error: BrokerError) -> BrokerError:
        self._refused += 1
        self._note("Refused", peer.name, operation, error)
        return error

    def _conclude(self, error: BrokerError | None) -> None:
        self._after()
        if error is not None:
            raise error

    def _after(self) -> None:
        for _ in range(MAX_DELIVERY_ROUNDS):
            if not self._journal or not self._tell_traces():
                break
        for listener in self._listeners:
            contained(listener)

    def _tell_traces(self) -> bool:
        """Hand out the journal, unless a call further out is doing so: what a watcher causes comes after its cause."""
        with self._lock:
            if self._telling:
                return False
            self._telling = True
            records, self._journal = self._journal or [], None
        try:
            for record in records:
                for watcher in self._traces:
                    contained(watcher, record)
        finally:
            with self._lock:
                self._telling = False
        return True


def contained(call: Callable[..., object], *arguments: object) -> None:
    """Call a watcher; what it raises is logged, but for a ``KeyboardInterrupt``, which is not the watcher's own."""
    try:
        call(*arguments)
    except KeyboardInterrupt:
        raise
    except BaseException:
        # SystemExit or a cancellation as well: what was admitted must not look refused, nor the other watchers starve.
        import logging  # a bus that works has nothing to log

        logging.getLogger("broker.bus").exception("a watcher of the bus failed: %r", call)
