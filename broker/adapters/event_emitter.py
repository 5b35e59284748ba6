"""The emitter a host holds for a run: takes events without ever waiting, and hands them on from a thread of its own.

Redaction, encoding and whatever the consumers do happen in that thread. When it falls behind by 1024 events, newer ones
are dropped and counted. What a consumer raises is contained and counted, and costs that event alone. Source: odek
contract, "Event schema", sink behaviour; odek notes, section 5.7.
"""

from __future__ import annotations

import logging
import os
import secrets
import threading
from collections import deque
from collections.abc import Callable
from types import TracebackType
from typing import TypeAlias

from attrs import frozen

from broker.clock import Clock, SystemClock
from broker.errors import UsageError
from broker.limits import MAX_QUEUED_EVENTS
from broker.wire.odek.events.event import Event, Stamper, check_session_id
from broker.wire.odek.events.life import LifePayload
from broker.wire.odek.events.redaction import Redactor
from broker.wire.odek.events.types import Payload

Consumer: TypeAlias = Callable[[Event], object]

_LOG = logging.getLogger("broker.events")


@frozen
class EmitterStatistics:
    """What became of a run's events so far.

    ``emitted`` were taken, ``dropped`` not, because the queue was full. ``delivered`` went to every consumer,
    ``queued`` wait. ``failures`` counts what consumers raised, ``last_failure`` is the newest of that.
    """

    emitted: int
    dropped: int
    delivered: int
    queued: int
    failures: int
    last_failure: BaseException | None


class EventEmitter:
    """Stamps the events of one run and hands them to ``consumers``, in the order they were emitted.

    ``run_id`` is random unless given. Set ``session_id`` once it is known: later events carry it. Safe from any thread;
    in a process forked from the one it was made in, it does nothing. Close it, or what is still queued is lost when the
    interpreter ends.

    ::

        with EventLog("run.jsonl") as log, EventEmitter(log.write, redactor=redactor) as emitter:
            events = RunEvents(emitter.emit)
            events.started(model="m", sandbox=True, max_iterations=10)
    """

    def __init__(
        self,
        *consumers: Consumer,
        run_id: str | None = None,
        session_id: str | None = None,
        redactor: Redactor | None = None,
        include_args: bool = False,
        clock: Clock | None = None,
    ) -> None:
        if not consumers:
            raise UsageError("an emitter without a consumer tells nobody")
        self._consumers = consumers
        self._clock = clock or SystemClock()
        self._stamper = Stamper(run_id or secrets.token_hex(16), redactor=redactor, include_args=include_args)
        self._session_id = None if session_id is None else check_session_id(session_id)
        self._pid = os.getpid()
        self._changed = threading.Condition()  # over a lock that a signal handler's emit may take again
        self._queue: deque[tuple[Payload | LifePayload, int, str | None]] = deque()
        self._thread: threading.Thread | None = None
        self._closing = False
        self._emitted = self._dropped = self._delivered = self._failures = 0
        self._last_failure: BaseException | None = None

    @property
    def run_id(self) -> str:
        """The run's id, on each of its events."""
        return self._stamper.run_id

    @property
    def session_id(self) -> str | None:
        """The session's id, on each event emitted since it was set."""
        return self._session_id

    @session_id.setter
    def session_id(self, session_id: str) -> None:
        self._session_id = check_session_id(session_id)

    def emit(self, payload: Payload | LifePayload) -> bool:
        """Take an event, now. Never waits and never raises for what consumers do; ``False`` if it was not taken."""
        if os.getpid() != self._pid:
            return False
        now = self._clock.unix_ms()
        with self._changed:
            if self._closing:
                return False
            if len(self._queue) >= MAX_QUEUED_EVENTS:
                self._dropped += 1
                return False
            if self._thread is None and not self._start():
                self._dropped += 1
                return False
            self._emitted += 1
            self._queue.append((payload, now, self._session_id))
            self._changed.notify_all()
        return True

    def statistics(self) -> EmitterStatistics:
        """How the emitter stands."""
        with self._changed:
            return EmitterStatistics(
                self._emitted, self._dropped, self._delivered, len(self._queue), self._failures, self._last_failure
            )

    def close(self, *, timeout: float | None = None) -> bool:
        """Take nothing more, hand on what is queued, and wait for that, at most ``timeout`` seconds.

        Gives whether everything was handed on. Idempotent. From inside a consumer it does not wait: the events behind
        the current one are still handed on, and a close from outside waits for them.
        """
        if os.getpid() != self._pid:
            return True
        with self._changed:
            self._closing = True
            self._changed.notify_all()
            thread = self._thread
        if thread is None:
            return True
        if thread is threading.current_thread():
            return False
        thread.join(timeout)
        return not thread.is_alive()

    def _start(self) -> bool:
        """Start the thread; whether that was possible: there may be too many, or the interpreter about to end."""
        thread = threading.Thread(target=self._drain, name="broker-events", daemon=True)
        try:
            thread.start()
        except RuntimeError:
            return False
        self._thread = thread
        return True

    def _drain(self) -> None:
        while True:
            with self._changed:
                while not self._queue and not self._closing:
                    self._changed.wait()
                if not self._queue:
                    return
                payload, unix_ms, session_id = self._queue.popleft()
            failure = self._deliver(payload, unix_ms, session_id)
            with self._changed:
                if failure is None:
                    self._delivered += 1
                else:
                    self._failures += 1
                    self._last_failure = failure

    def _deliver(self, payload: Payload | LifePayload, unix_ms: int, session_id: str | None) -> BaseException | None:
        """Hand one event to every consumer; the newest failure."""
        failure: BaseException | None = None
        try:
            event = self._stamper.stamp(payload, unix_ms=unix_ms, session_id=session_id)
        except Exception as error:
            _LOG.exception("an event of type %s could not be made", payload.type)
            return error
        for consumer in self._consumers:
            try:
                consumer(event)
            except BaseException as error:
                # Whatever it is, SystemExit too: the run goes on, and so do its events.
                if failure is None or type(failure) is not type(error):
                    _LOG.warning("a consumer of events failed: %r", error)
                failure = error
        return failure

    def __enter__(self) -> EventEmitter:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()
