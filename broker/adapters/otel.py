"""OpenTelemetry for a session: spans for tool calls and starts, counters for the bus. Needs the extra ``otel``.

Nothing else of the package imports this module or what it needs. Arguments, results and texts of errors are in no span:
names, durations and kinds of failures are.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final

try:
    from opentelemetry import metrics, trace
    from opentelemetry.trace import Span, SpanKind, StatusCode
    from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator
except ImportError as _missing:
    raise ImportError("broker.adapters.otel needs OpenTelemetry: pip install 'extension-broker[otel]'") from _missing

from broker.bus import trace as bus_trace
from broker.errors import BrokerError
from broker.host import Exited, Health, HealthChanged, Notice, Outcome, Session, Started
from broker.host.instrument import Family

_SCOPE: Final = "broker"
_BROKEN: Final = (Health.CRASHED, Health.PARKED, Health.STOPPED)


class Telemetry:
    """Makes spans and counts for the sessions it watches, with the given providers or the global ones."""

    def __init__(
        self,
        *,
        tracer_provider: trace.TracerProvider | None = None,
        meter_provider: metrics.MeterProvider | None = None,
    ) -> None:
        self._tracer = trace.get_tracer(_SCOPE, tracer_provider=tracer_provider)
        meter = metrics.get_meter(_SCOPE, meter_provider=meter_provider)
        self._published = meter.create_counter("broker.bus.published", description="events admitted, by topic")
        self._refused = meter.create_counter("broker.bus.refused", description="refused requests, by peer and reason")
        self._retired = meter.create_counter("broker.bus.retired", description="peers that the bus closed")

    def watch(self, session: Session) -> Callable[[], None]:
        """Watch ``session``, in the place of any other instrument; gives what ends it."""
        starts: dict[str, Span] = {}
        session.instrument = self
        endings = (
            session.add_observer(lambda notice: self._noticed(notice, starts)),
            session.bus.add_trace(self._traced),
        )

        def end() -> None:
            if session.instrument is self:
                session.instrument = None
            for ending in endings:
                ending()
            while starts:
                starts.popitem()[1].end()

        return end

    def tool_call(self, owner: str, tool: str, family: Family) -> ToolSpan:
        """The span of a call, a child of the current one; part of :class:`broker.host.instrument.Instrument`."""
        attributes = {
            "gen_ai.operation.name": "execute_tool",
            "gen_ai.tool.name": tool,
            "broker.extension": owner,
            "broker.family": family,
        }
        span = self._tracer.start_span(f"execute_tool {tool}", kind=SpanKind.CLIENT, attributes=attributes)
        return ToolSpan(span)

    def _noticed(self, notice: Notice, starts: dict[str, Span]) -> None:
        if isinstance(notice, HealthChanged) and notice.health is Health.STARTING:
            if notice.extension not in starts:
                attributes = {"broker.extension": notice.extension}
                starts[notice.extension] = self._tracer.start_span("start_extension", attributes=attributes)
        elif isinstance(notice, Started):
            span = starts.pop(notice.extension, None)
            if span is not None:
                span.set_attribute("broker.generation", notice.generation)
                span.end()
        elif isinstance(notice, Exited) or (isinstance(notice, HealthChanged) and notice.health in _BROKEN):
            span = starts.pop(notice.extension, None)
            if span is not None:
                _fail(span, notice.error.name if isinstance(notice, Exited) and notice.error else "not_started")
                span.end()

    def _traced(self, record: bus_trace.Record) -> None:
        if isinstance(record, bus_trace.Published):
            self._published.add(1, {"topic": record.event.topic})
        elif isinstance(record, bus_trace.Refused):
            reason = {"peer": record.peer, "operation": record.operation, "error.type": record.error.name}
            self._refused.add(1, reason)
        elif isinstance(record, bus_trace.Detached) and record.retired:
            self._retired.add(1, {"peer": record.peer})


class ToolSpan:
    """The span of one tool call; a :class:`broker.host.instrument.CallTrace`."""

    def __init__(self, span: Span) -> None:
        self._span = span
        carrier: dict[str, str] = {}
        # The context alone: baggage may hold what a server has no business with.
        TraceContextTextMapPropagator().inject(carrier, context=trace.set_span_in_context(span))
        self.meta: Mapping[str, str] = carrier

    def started(self, outcome: Outcome[Any]) -> None:
        """The call is on its way."""
        outcome.add_callback(self._settled)

    def refused(self, error: BrokerError) -> None:
        """The call was refused."""
        _fail(self._span, error.name)
        self._span.end()

    def _settled(self, outcome: Outcome[Any]) -> None:
        if outcome.error is not None:
            _fail(self._span, outcome.error.name)
        elif getattr(outcome.result(), "is_error", False):
            _fail(self._span, "tool_error")
        self._span.end()


def _fail(span: Span, kind: str) -> None:
    span.set_attribute("error.type", kind)
    span.set_status(StatusCode.ERROR)
