"""Spans of tool calls and starts, counters of the bus, and the trace context that MCP servers get."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from typing import Any

import pytest

from broker.bus import Field
from broker.errors import BrokerError, CapabilityMismatchError
from broker.testing import ScriptedServer
from broker.wire.mcp.requests import encode_call

pytest.importorskip("opentelemetry.sdk", reason="needs the SDK of OpenTelemetry")

from opentelemetry import trace
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import InMemoryMetricReader
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

from broker.adapters.otel import Telemetry


class Watched:
    """What was exported of a session."""

    def __init__(self, session: Any) -> None:
        self.exporter = InMemorySpanExporter()
        self.provider = TracerProvider()
        self.provider.add_span_processor(SimpleSpanProcessor(self.exporter))
        self.reader = InMemoryMetricReader()
        self.telemetry = Telemetry(
            tracer_provider=self.provider, meter_provider=MeterProvider(metric_readers=[self.reader])
        )
        self.end = self.telemetry.watch(session)

    def spans(self) -> list[tuple[str, str, Any]]:
        return [
            (span.name, span.status.status_code.name, (span.attributes or {}).get("error.type"))
            for span in self.exporter.get_finished_spans()
        ]

    def counts(self) -> dict[tuple[str, ...], int]:
        data = self.reader.get_metrics_data()
        return {
            (metric.name, *map(str, sorted(point.attributes.values()))): point.value
            for resource in (data.resource_metrics if data else ())
            for scope in resource.scope_metrics
            for metric in scope.metrics
            for point in metric.data.data_points
        }


@pytest.fixture
def watched(world: Any) -> Iterator[Watched]:
    made = Watched(world.session)
    yield made
    made.provider.shutdown()


def test_spans_of_a_start_and_of_calls(world: Any, watched: Watched) -> None:
    server = world.ready({"echo": "x"})
    world.settle(server.call("echo", {"text": "secret"}))
    with pytest.raises(CapabilityMismatchError):
        server.call("missing", {})
    assert watched.spans() == [
        ("start_extension", "UNSET", None),
        ("execute_tool echo", "UNSET", None),
        ("execute_tool missing", "ERROR", "capability_mismatch"),
    ]
    echo = watched.exporter.get_finished_spans()[1]
    assert dict(echo.attributes or {}) == {
        "gen_ai.operation.name": "execute_tool",
        "gen_ai.tool.name": "echo",
        "broker.extension": "srv",
        "broker.family": "mcp",
    }
    assert "secret" not in echo.to_json()


def test_a_server_that_does_not_start_is_an_error(world: Any, watched: Watched) -> None:
    server = world.add(None)
    with pytest.raises(BrokerError):
        world.settle(server.start())
    assert [(name, status) for name, status, _ in watched.spans()] == [("start_extension", "ERROR")]


class Heard(ScriptedServer):
    """Remembers what it was called with."""

    def meta(self) -> list[Any]:
        return [m["params"].get("_meta") for m in self.received if m.get("method") == "tools/call"]


def test_a_server_gets_the_context_of_its_call(world: Any, watched: Watched) -> None:
    heard = Heard({"echo": "x"})
    server = world.ready(lambda: heard)
    with watched.provider.get_tracer("test").start_as_current_span("outer") as outer:
        context = outer.get_span_context()
        world.settle(server.call("echo", {}))
    ((name, traceparent),) = heard.meta()[0].items()
    _, trace_id, span_id, _ = traceparent.split("-")
    assert name == "traceparent"
    assert trace_id == trace.format_trace_id(context.trace_id)
    assert span_id != trace.format_span_id(context.span_id)
    assert span_id == trace.format_span_id(watched.exporter.get_finished_spans()[1].get_span_context().span_id)


def test_where_the_context_stands_in_a_request() -> None:
    assert encode_call("t", {}, 7, {"traceparent": "00-x"}).endswith(
        b'"_meta":{"traceparent":"00-x","progressToken":7}}}'
    )
    assert encode_call("t", {}, None, {"traceparent": "00-x"}).endswith(b'"_meta":{"traceparent":"00-x"}}}')
    assert b"_meta" not in encode_call("t", {}, None, {})


def test_counters_of_the_bus(world: Any, watched: Watched) -> None:
    alpha = world.session.attach("alpha")
    alpha.declare("bus.alpha.state", [Field.integer("n")])
    for number in range(3):
        alpha.publish("bus.alpha.state", {"n": number})
    with pytest.raises(BrokerError):
        alpha.publish("bus.alpha.state", {"n": "x"})
    assert watched.counts() == {
        ("broker.bus.published", "bus.alpha.state"): 3,
        ("broker.bus.refused", "alpha", "invalid_params", "publish"): 1,
    }


def test_after_the_end_nothing_is_made(world: Any, watched: Watched) -> None:
    watched.end()
    server = world.ready({"echo": "x"})
    world.settle(server.call("echo", {}))
    assert watched.spans() == []
    assert world.session.instrument is None


def test_nothing_of_it_is_loaded_without_being_asked_for() -> None:
    program = (
        "import sys, broker, broker.host, broker.adapters.aio, broker.adapters.event_emitter, broker.cli.main\n"
        "sys.exit(any(name.startswith('opentelemetry') for name in sys.modules))"
    )
    assert (
        subprocess.run([sys.executable, "-c", program], env={"PYTHONPATH": ":".join(sys.path)}, check=False).returncode
        == 0
    )
