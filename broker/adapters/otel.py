"""OpenTelemetry: spans for tool calls and starts, counters of the bus, and trace context that goes with MCP calls.

Needs the extra ``otel``; nothing else in the package imports this module or OpenTelemetry::

    telemetry = Telemetry()                  # the providers that the program set up, or those given
    unwatch = telemetry.watch(session)       # a broker.Session; of an AsyncSession, its ``session``

A span says what ran, for how long and which type of error ended it. No argument, result, path or text of an error gets
into one: those may hold secrets. A call's span is a child of the span that was current where the call was made, and its
own context travels to an MCP server in ``_meta`` (``traceparent``, ``tracestate``).
"""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from functools import partial
from typing import Any, Final

from broker.bus.statistics import BusStatistics
from broker.errors import CancelledError, TimedOutError, UsageError
from broker.host import Exited, Health, HealthChanged, Notice, Outcome, Session, Started
from broker.wire.quoting import escape

try:
    from opentelemetry import metrics, trace
    from opentelemetry.metrics import CallbackOptions, Histogram, Observation
    from opentelemetry.propagators.textmap import TextMapPropagator
    from opentelemetry.trace import Span, SpanKind, StatusCode
    from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator
except ImportError as _missing:
    raise ImportError("broker.adapters.otel needs the extra 'otel': pip install '.[otel]' in a clone") from _missing

SCOPE: Final = "broker"
"""The name of the instrumentation scope."""

_NAME_CHARS: Final = 128
_OVER: Final = frozenset({Health.CRASHED, Health.PARKED, Health.STOPPED})
_TOTALS: Final = {
    "published": ("{event}", "events admitted"),
    "refused": ("{request}", "requests of peers that were refused"),
    "retired": ("{peer}", "peers closed because they could not take a notice"),
    "handler_errors": ("{error}", "errors that handlers of events raised"),
}
_QUEUES: Final = {
    "queued_messages": ("{message}", "messages that a peer has not taken"),
    "queued_bytes": ("By", "bytes of messages that a peer has not taken"),
    "oldest_age_ms": ("ms", "age of the oldest event that a peer has not taken"),
}


class Telemetry:
    """Watches sessions. The instruments are made once; make one for a program.

    ``tracer_provider`` and ``meter_provider`` are the global ones of OpenTelemetry when left out. What ``propagator``
    makes of a span's context is sent with a call: left out, the trace context alone, as baggage may hold what a server
    has no business with.
    Spans are made in each session's own thread, and the counters are read in the exporter's.

    Counters: ``broker.bus.published``, ``.refused``, ``.retired`` and ``.handler_errors`` over all watched sessions,
    closed ones included; ``broker.extension.starts`` and ``.exits``. Gauges by ``broker.peer``:
    ``broker.bus.queued_messages``, ``.queued_bytes`` (sums over sessions) and ``.oldest_age_ms`` (the greatest). The
    histogram ``broker.tool_call.duration`` (seconds) by extension, tool and ``broker.outcome``: ``completed``,
    ``failed``, ``timed_out`` or ``cancelled``.
    """

    def __init__(
        self,
        *,
        tracer_provider: trace.TracerProvider | None = None,
        meter_provider: metrics.MeterProvider | None = None,
        propagator: TextMapPropagator | None = None,
    ) -> None:
        self._tracer = trace.get_tracer(SCOPE, tracer_provider=tracer_provider)
        self._propagator = propagator or TraceContextTextMapPropagator()
        self._lock = threading.Lock()
        self._sessions: dict[str, Session] = {}
        self._ended: Counter[str] = Counter()
        meter = metrics.get_meter(SCOPE, meter_provider=meter_provider)
        self._durations = meter.create_histogram("broker.tool_call.duration", "s", "time of tool calls")
        self._starts = meter.create_counter("broker.extension.starts", "{start}", "starts of extensions and servers")
        self._exits = meter.create_counter("broker.extension.exits", "{exit}", "processes that ended")
        for name, (unit, text) in _TOTALS.items():
            meter.create_observable_counter(f"broker.bus.{name}", [partial(self._total, name)], unit, text)
        for name, (unit, text) in _QUEUES.items():
            meter.create_observable_gauge(f"broker.bus.{name}", [partial(self._queue, name)], unit, text)

    def watch(self, session: Session) -> Callable[[], None]:
        """Watch a session, from its own thread; gives what ends that. A closed session needs no ending.

        Raises :class:`~broker.errors.UsageError` when the session's calls are followed already.
        """
        if session.call_tracer is not None:
            raise UsageError(f"the calls of session {session.session_id} are followed already")
        watch = _Watch(self._tracer, self._propagator, self._durations, session)
        session.call_tracer = watch
        unobserve = session.add_observer(partial(self._notice, watch))
        with self._lock:
            self._statistics()  # lets go of the sessions that were closed, also where nobody reads the counters
            self._sessions[session.session_id] = session

        def unwatch() -> None:
            if session.call_tracer is watch:
                session.call_tracer = None
                unobserve()
                watch.end_starts("unwatched")
            with self._lock:
                self._retire(session)

        return unwatch

    # -- inside --------------------------------------------------------------------------------------------------------

    def _notice(self, watch: _Watch, notice: Notice) -> None:
        if isinstance(notice, HealthChanged):
            if notice.health is Health.STARTING:
                watch.begin_start(notice.extension)
            elif notice.health in _OVER and watch.end_start(notice.extension, notice.health.value):
                self._starts.add(1, {"broker.extension": notice.extension, "broker.outcome": "failed"})
        elif isinstance(notice, Started):
            if watch.is_new(notice):
                self._starts.add(1, {"broker.extension": notice.extension, "broker.outcome": "completed"})
            watch.end_start(notice.extension, None)
        elif isinstance(notice, Exited):
            outcome = "completed" if notice.error is None else "failed"
            watch.forget(notice)
            self._exits.add(1, {"broker.extension": notice.extension, "broker.outcome": outcome})

    def _total(self, name: str, _: CallbackOptions) -> Iterable[Observation]:
        with self._lock:
            live = sum(getattr(statistics, name) for statistics in self._statistics())
            return [Observation(self._ended[name] + live)]

    def _queue(self, name: str, _: CallbackOptions) -> Iterable[Observation]:
        with self._lock:
            peers = [peer for statistics in self._statistics() for peer in statistics.peers]
        values: dict[str, int] = {}
        for peer in peers:
            value = getattr(peer, name) or 0
            known = values.get(peer.name, 0)
            values[peer.name] = max(known, value) if name == "oldest_age_ms" else known + value
        return [Observation(value, {"broker.peer": peer}) for peer, value in values.items()]

    def _statistics(self) -> list[BusStatistics]:
        """Of every watched session that is open; what the others came to is kept."""
        for session in list(self._sessions.values()):
            if session.bus.statistics().closed:
                self._retire(session)
        return [session.bus.statistics() for session in self._sessions.values()]

    def _retire(self, session: Session) -> None:
        if self._sessions.pop(session.session_id, None) is not None:
            statistics = session.bus.statistics()
            self._ended.update({name: getattr(statistics, name) for name in _TOTALS})


class _Watch:
    """Follows one session: the open spans of its starts, and its calls as their tracer."""

    def __init__(
        self,
        tracer: trace.Tracer,
        propagator: TextMapPropagator,
        durations: Histogram,
        session: Session,
    ) -> None:
        self._tracer = tracer
        self._propagator = propagator
        self._durations = durations
        self._session = session
        self._starting: dict[str, Span] = {}
        self._generations: dict[str, int] = {}

    def begin_start(self, extension: str) -> None:
        """An extension or a server begins to start; the first of several words about that counts."""
        if extension not in self._starting:
            self._starting[extension] = self._span(f"start {extension}", SpanKind.INTERNAL, extension)

    def end_start(self, extension: str, problem: str | None) -> bool:
        """It started, or did not; whether it was starting."""
        span = self._starting.pop(extension, None)
        if span is not None:
            _end(span, problem)
        return span is not None

    def end_starts(self, problem: str) -> None:
        """Nobody watches any more."""
        for extension in list(self._starting):
            self.end_start(extension, problem)

    def is_new(self, notice: Started) -> bool:
        """Whether this tells of a process, and not of other tools of one that is known."""
        known = self._generations.get(notice.extension)
        self._generations[notice.extension] = notice.generation
        return known != notice.generation

    def forget(self, notice: Exited) -> None:
        """A process ended: the next of its name is another, whatever its generation."""
        if self._generations.get(notice.extension) == notice.generation:
            del self._generations[notice.extension]

    def begin(self, extension: str, tool: str) -> _Call:
        """A tool is about to be called."""
        shown = escape(tool, max_chars=_NAME_CHARS) if isinstance(tool, str) else "?"
        span = self._span(f"execute_tool {shown}", SpanKind.CLIENT, extension)
        span.set_attribute("gen_ai.operation.name", "execute_tool")
        span.set_attribute("gen_ai.tool.name", shown)
        meta: dict[str, str] = {}
        self._propagator.inject(meta, context=trace.set_span_in_context(span))
        return _Call(self, extension, shown, span, meta)

    def record(self, extension: str, tool: str, started_ms: int, outcome: str) -> None:
        """A call took this long and came to this."""
        attributes = {"broker.extension": extension, "gen_ai.tool.name": tool, "broker.outcome": outcome}
        self._durations.record((self.now_ms() - started_ms) / 1_000, attributes)

    def now_ms(self) -> int:
        """Monotonic milliseconds of the session's clock."""
        return self._session.clock.monotonic_ms()

    def _span(self, name: str, kind: SpanKind, extension: str) -> Span:
        attributes = {"broker.extension": extension, "broker.session": self._session.session_id}
        return self._tracer.start_span(name, kind=kind, attributes=attributes)


class _Call:
    """The span of one call."""

    def __init__(self, watch: _Watch, extension: str, tool: str, span: Span, meta: Mapping[str, str]) -> None:
        self.meta = meta
        self._watch = watch
        self._extension = extension
        self._tool = tool
        self._span = span
        self._started_ms = watch.now_ms()

    def refused(self, error: BaseException) -> None:
        """Nothing was sent. Such a call has a span and no duration: its tool may be any word that a model made up."""
        _end(self._span, type(error).__name__)

    def settled(self, outcome: Outcome[Any]) -> None:
        """The call came to this."""
        if outcome.error is None:
            failed = getattr(outcome.result(), "is_error", False)
            word, problem = ("failed", "tool_error") if failed else ("completed", None)
        elif isinstance(outcome.error, TimedOutError):
            word, problem = "timed_out", TimedOutError.__name__
        elif isinstance(outcome.error, CancelledError):
            word, problem = "cancelled", CancelledError.__name__
        else:
            word, problem = "failed", type(outcome.error).__name__
        _end(self._span, problem)
        self._watch.record(self._extension, self._tool, self._started_ms, word)


def _end(span: Span, problem: str | None) -> None:
    if problem is not None:
        span.set_attribute("error.type", problem)
        span.set_status(StatusCode.ERROR)
    span.end()
