"""OpenTelemetry: the spans and counters of a session with servers and an extension, and what travels with a call."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("opentelemetry.sdk", reason="needs the OpenTelemetry SDK, which the test extra brings")

from approvals import started
from opentelemetry import baggage, context, trace
from opentelemetry.baggage.propagation import W3CBaggagePropagator
from opentelemetry.propagators.composite import CompositePropagator
from opentelemetry.propagators.textmap import TextMapPropagator
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import InMemoryMetricReader
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.trace import SpanKind, StatusCode
from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

from broker import Field
from broker.adapters.blocking import BlockingHost
from broker.adapters.otel import Telemetry
from broker.errors import BrokerError, CapabilityMismatchError, InvalidParamsError, UsageError
from broker.testing import ScriptedExtension, ScriptedServer
from broker.wire.odek.config import ServerConfig

World = Any


class Recorder:
    """Telemetry into memory."""

    def __init__(self, propagator: TextMapPropagator | None = None) -> None:
        self.exporter = InMemorySpanExporter()
        self.reader = InMemoryMetricReader()
        self.tracers = TracerProvider()
        self.tracers.add_span_processor(SimpleSpanProcessor(self.exporter))
        self.telemetry = Telemetry(
            tracer_provider=self.tracers,
            meter_provider=MeterProvider([self.reader]),
            propagator=propagator,
        )

    def spans(self) -> list[ReadableSpan]:
        """The ended spans that were not asked for yet."""
        spans = list(self.exporter.get_finished_spans())
        self.exporter.clear()
        return spans

    def ended(self) -> list[tuple[str, str | None]]:
        """Name and type of error of these spans."""
        return [(span.name, (span.attributes or {}).get("error.type")) for span in self.spans()]

    def metrics(self, prefix: str = "") -> dict[str, dict[tuple[Any, ...], Any]]:
        """The values of now, by name and by the values of the attributes in order of their names."""
        data = self.reader.get_metrics_data()
        found: dict[str, dict[tuple[Any, ...], Any]] = {}
        for resource in data.resource_metrics if data is not None else ():
            for scope in resource.scope_metrics:
                assert scope.scope.name == "broker"
                for metric in scope.metrics:
                    if metric.name.startswith(prefix):
                        found[metric.name] = {
                            tuple(value for _, value in sorted((point.attributes or {}).items())): point
                            for point in metric.data.data_points
                        }
        return found

    def values(self, prefix: str) -> dict[str, Any]:
        """The same for counters and gauges; one without attributes is its value alone."""
        return {
            name: points[()].value if () in points else {key: point.value for key, point in points.items()}
            for name, points in self.metrics(prefix).items()
        }


@pytest.fixture
def recorder() -> Recorder:
    return Recorder()


class Held(ScriptedServer):
    """Answers no call until told to."""

    def __init__(self) -> None:
        super().__init__({"work": ""})

    def on_message(self, message: Any) -> None:
        if message.get("method") != "tools/call":
            super().on_message(message)

    @property
    def calls(self) -> list[Any]:
        return [message for message in self.received if message.get("method") == "tools/call"]


class Echo(ScriptedExtension):
    def __init__(self) -> None:
        super().__init__(tools=("echo",))


def ids(span: ReadableSpan) -> tuple[str, str]:
    found = span.get_span_context()
    assert found is not None
    return trace.format_trace_id(found.trace_id), trace.format_span_id(found.span_id)


# -- spans -------------------------------------------------------------------------------------------------------------


def test_a_call_of_a_server_is_a_span_whose_context_goes_with_it(world: World, recorder: Recorder) -> None:
    held = Held()
    server = world.start(held, name="srv")
    recorder.telemetry.watch(world.session)
    with recorder.tracers.get_tracer("test").start_as_current_span("turn") as turn:
        token = context.attach(baggage.set_baggage("tenant", "a b"))
        call = server.call("work", {"secret": "hunter2"}, on_progress=lambda _: None)
        context.detach(token)
    world.run()
    (sent,) = held.calls
    assert [span.name for span in recorder.spans()] == ["turn"]
    world.clock.advance_ms(1_500)
    held.answer(sent["id"], {"content": [{"type": "text", "text": "hunter2"}]})
    assert world.settle(call).text == "hunter2"
    (span,) = recorder.spans()
    trace_id, span_id = ids(span)
    assert sent["params"]["_meta"] == {
        "traceparent": f"00-{trace_id}-{span_id}-{span.get_span_context().trace_flags:02x}",
        "progressToken": 1,
    }
    assert trace_id == ids(turn)[0]
    assert span.parent is not None
    assert trace.format_span_id(span.parent.span_id) == ids(turn)[1]
    assert (span.name, span.kind, span.status.status_code) == ("execute_tool work", SpanKind.CLIENT, StatusCode.UNSET)
    assert span.attributes == {
        "broker.extension": "srv",
        "broker.session": world.session.session_id,
        "gen_ai.operation.name": "execute_tool",
        "gen_ai.tool.name": "work",
    }
    assert "hunter2" not in span.to_json()


def test_baggage_goes_with_a_call_where_that_is_asked_for(world: World) -> None:
    both = CompositePropagator([TraceContextTextMapPropagator(), W3CBaggagePropagator()])
    held = Held()
    server = world.start(held, name="srv")
    Recorder(both).telemetry.watch(world.session)
    token = context.attach(baggage.set_baggage("tenant", "a b"))
    server.call("work", {})
    context.detach(token)
    world.run()
    meta = held.calls[0]["params"]["_meta"]
    assert (list(meta), meta["baggage"]) == (["traceparent", "baggage"], "tenant=a+b")


def test_what_is_sent_without_telemetry_is_what_it_was(world: World, recorder: Recorder) -> None:
    held = Held()
    server = world.start(held, name="srv")
    unwatch = recorder.telemetry.watch(world.session)
    unwatch()
    unwatch()
    server.call("work", {})
    world.run()
    assert held.calls[0]["params"] == {"name": "work", "arguments": {}}
    assert recorder.spans() == []


def test_how_calls_of_a_server_end(world: World, recorder: Recorder) -> None:
    held = Held()
    server = world.start(held, name="srv", timeout_seconds=2)
    recorder.telemetry.watch(world.session)
    calls = [server.call("work", {}) for _ in range(5)]
    world.run()
    sent = [call["id"] for call in held.calls]
    held.answer(sent[0], {"content": [], "isError": True})
    held.send({"jsonrpc": "2.0", "id": sent[1], "error": {"code": -1, "message": "secret"}})
    world.run()
    calls[2].cancel()
    world.advance(2_000)
    assert calls[3].done
    with pytest.raises(CapabilityMismatchError):
        server.call("no\x1bsuch" + "x" * 500, {})
    with pytest.raises(InvalidParamsError):
        server.call("work", {"a": float("nan")})
    spans = recorder.spans()
    assert [((span.attributes or {}).get("error.type"), span.status.status_code) for span in spans] == [
        ("tool_error", StatusCode.ERROR),
        ("McpError", StatusCode.ERROR),
        ("CancelledError", StatusCode.ERROR),
        ("TimedOutError", StatusCode.ERROR),
        ("TimedOutError", StatusCode.ERROR),
        ("CapabilityMismatchError", StatusCode.ERROR),
        ("InvalidParamsError", StatusCode.ERROR),
    ]
    assert spans[5].name == "execute_tool no\\x1bsuch" + "x" * 115 + "..."
    assert not any("secret" in span.to_json() or span.events for span in spans)
    durations = recorder.metrics("broker.tool_call.duration")["broker.tool_call.duration"]
    assert {key: (point.count, point.sum) for key, point in durations.items()} == {
        ("srv", "failed", "work"): (2, 0),
        ("srv", "cancelled", "work"): (1, 0),
        ("srv", "timed_out", "work"): (2, 4),
    }


def test_a_call_of_an_extension_is_a_span(world: World, recorder: Recorder) -> None:
    recorder.telemetry.watch(world.session)
    extension = world.start(Echo, name="ext")
    world.call("ext", "echo")
    with pytest.raises(InvalidParamsError):
        extension.call("echo", {"a": 1.5})
    assert recorder.ended() == [
        ("start ext", None),
        ("execute_tool echo", None),
        ("execute_tool echo", "CanonicalError"),
    ]
    durations = recorder.metrics("broker.tool_call.duration")["broker.tool_call.duration"]
    assert {key: point.count for key, point in durations.items()} == {("ext", "completed", "echo"): 1}


def test_starts_are_spans(world: World, recorder: Recorder) -> None:
    recorder.telemetry.watch(world.session)
    with recorder.tracers.get_tracer("test").start_as_current_span("turn") as turn:
        start = world.add(ScriptedServer({"echo": ""}), name="good").start()
    assert [span.name for span in recorder.spans()] == ["turn"]
    world.settle(start)
    (span,) = recorder.spans()
    assert (span.name, span.kind, span.status.status_code) == ("start good", SpanKind.INTERNAL, StatusCode.UNSET)
    assert span.attributes == {"broker.extension": "good", "broker.session": world.session.session_id}
    assert span.parent is not None
    assert span.parent.span_id == turn.get_span_context().span_id
    with pytest.raises(BrokerError):
        world.settle(world.session.add_server(ServerConfig(name="missing", source="operator", command="x")).start())
    assert recorder.ended() == [("start missing", "crashed")]
    world.stop("good")
    world.start(ScriptedServer({"echo": ""}), name="good")
    assert recorder.ended() == [("start good", None)]
    assert recorder.values("broker.extension") == {
        "broker.extension.starts": {("good", "completed"): 2, ("missing", "failed"): 1},
        "broker.extension.exits": {("good", "completed"): 1, ("missing", "failed"): 1},
    }


def test_a_reload_is_counted_and_a_restart_is_a_start(world: World, recorder: Recorder) -> None:
    recorder.telemetry.watch(world.session)
    world.start(Echo, name="ext")
    world.reload("ext")
    assert recorder.ended() == [("start ext", None)]
    world.process("ext").exit(1)
    world.run()
    for _ in range(20):
        world.advance(50)
    assert len(world.processes) == 3
    assert recorder.ended() == [("start ext", None)]
    values = recorder.values("broker.extension")
    assert values["broker.extension.starts"] == {("ext", "completed"): 3}
    assert values["broker.extension.exits"] == {("ext", "completed"): 1, ("ext", "failed"): 1}


def test_a_start_that_nobody_watches_to_its_end(world: World, recorder: Recorder) -> None:
    class Silent(ScriptedServer):
        def on_message(self, message: Any) -> None:
            pass

    unwatch = recorder.telemetry.watch(world.session)
    world.add(lambda: Silent({}), name="slow").start()
    world.run()
    assert recorder.spans() == []
    unwatch()
    assert recorder.ended() == [("start slow", "unwatched")]


def test_other_tools_of_a_server_are_no_start(world: World, recorder: Recorder) -> None:
    far = ScriptedServer({"a": ""})
    recorder.telemetry.watch(world.session)
    world.start(far, name="srv")
    far.tools = {"a": "", "b": ""}
    far.send({"jsonrpc": "2.0", "method": "notifications/tools/list_changed"})
    world.advance(2_000)
    assert started(world)[-1] == ("a", "b")
    assert recorder.values("broker.extension.starts") == {"broker.extension.starts": {("srv", "completed"): 1}}
    assert recorder.ended() == [("start srv", None)]


# -- counters ----------------------------------------------------------------------------------------------------------


def test_the_counters_of_the_bus(world: World, new_world: Callable[..., World], recorder: Recorder) -> None:
    other = new_world()
    for session in (world.session, other.session):
        recorder.telemetry.watch(session)
        alpha, beta = session.attach("alpha"), session.attach("beta")
        alpha.declare("bus.alpha.status", [Field.integer("step")])
        beta.subscribe("bus.alpha.status")
        for step in range(3):
            alpha.publish("bus.alpha.status", {"step": step})
        with pytest.raises(InvalidParamsError):
            alpha.publish("bus.alpha.status", {"step": "no"})
        session.clock.advance_ms(40 if session is world.session else 70)
    size = world.bus.statistics().peers[1].queued_bytes
    assert recorder.values("broker.bus") == {
        "broker.bus.published": 6,
        "broker.bus.refused": 2,
        "broker.bus.retired": 0,
        "broker.bus.handler_errors": 0,
        "broker.bus.queued_messages": {("alpha",): 0, ("beta",): 6},
        "broker.bus.queued_bytes": {("alpha",): 0, ("beta",): 2 * size},
        "broker.bus.oldest_age_ms": {("alpha",): 0, ("beta",): 70},
    }
    other.close()
    assert recorder.values("broker.bus.published") == {"broker.bus.published": 6}
    assert recorder.values("broker.bus.queued_messages")["broker.bus.queued_messages"][("beta",)] == 3


def test_a_closed_session_is_let_go(world: World, new_world: Callable[..., World]) -> None:
    """Also where nobody reads the counters, as without an SDK."""
    telemetry = Telemetry()
    for _ in range(3):
        passing = new_world()
        telemetry.watch(passing.session)
        passing.close()
    telemetry.watch(world.session)
    assert list(telemetry._sessions) == [world.session.session_id]


# -- faults ------------------------------------------------------------------------------------------------------------


def test_a_session_is_followed_once(world: World, recorder: Recorder) -> None:
    unwatch = recorder.telemetry.watch(world.session)
    with pytest.raises(UsageError, match="are followed already"):
        Telemetry().watch(world.session)
    unwatch()
    Telemetry().watch(world.session)


@pytest.mark.parametrize("failing", ["begin", "meta", "settled", "refused"])
def test_a_tracer_that_fails_stops_nothing(world: World, caplog: pytest.LogCaptureFixture, failing: str) -> None:
    class Faulty:
        meta: Any = {"a": "é", "b": "fine"} if failing != "meta" else None

        def begin(self, extension: str, tool: str) -> Faulty:
            if failing == "begin":
                raise RuntimeError("begin")
            return self

        def settled(self, outcome: Any) -> None:
            if failing == "settled":
                raise RuntimeError("settled")

        def refused(self, error: BaseException) -> None:
            if failing == "refused":
                raise RuntimeError("refused")

    held = ScriptedServer({"echo": ""})
    server = world.start(held, name="srv")
    world.session.call_tracer = Faulty()
    world.call_server("srv", "echo")
    with pytest.raises(InvalidParamsError):
        server.call("echo", {"a": float("nan")})
    assert "the tracer of a call failed" in caplog.text
    params = next(message["params"] for message in held.received if message["method"] == "tools/call")
    assert params.get("_meta") == (None if failing in ("begin", "meta") else {"b": "fine"})


# -- the extra ---------------------------------------------------------------------------------------------------------


def run(program: str) -> str:
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=60, check=False)
    return done.stdout + done.stderr


def test_nothing_else_imports_opentelemetry() -> None:
    program = """
import importlib, pkgutil, sys
import broker
for module in pkgutil.walk_packages(broker.__path__, "broker."):
    if module.name not in ("broker.adapters.otel", "broker.cli.__main__"):
        importlib.import_module(module.name)
print(sorted(name for name in sys.modules if name.split(".")[0] == "opentelemetry"))
"""
    assert run(program) == "[]\n"


def test_without_the_extra_the_error_names_it() -> None:
    text = run("import sys; sys.modules['opentelemetry'] = None; import broker.adapters.otel")
    assert re.search(r"^ImportError: .*pip install '\.\[otel\]' in a clone$", text, re.MULTILINE)


def test_the_api_alone_does_nothing(world: World) -> None:
    """Without an SDK spans are not recorded, and calls are as ever."""
    held = ScriptedServer({"echo": ""})
    world.start(held, name="srv")
    Telemetry(tracer_provider=trace.NoOpTracerProvider()).watch(world.session)
    world.call_server("srv", "echo")
    params = next(message["params"] for message in held.received if message["method"] == "tools/call")
    assert "_meta" not in params


def test_a_call_without_a_loop_belongs_to_the_callers_span(recorder: Recorder, tmp_path: Path) -> None:
    """The host's thread is another, and a real server hears of the span."""
    body = """
import json, sys
def say(identifier, result): print(json.dumps({"jsonrpc": "2.0", "id": identifier, "result": result}), flush=True)
for line in sys.stdin:
    message = json.loads(line)
    if message["method"] == "initialize":
        info = {"name": "s", "version": "0"}
        say(message["id"], {"protocolVersion": "2025-03-26", "capabilities": {"tools": {}}, "serverInfo": info})
    elif message["method"] == "tools/list":
        say(message["id"], {"tools": [{"name": "meta"}]})
    elif message["method"] == "tools/call":
        text = json.dumps(message["params"].get("_meta", {}))
        say(message["id"], {"content": [{"type": "text", "text": text}]})
"""
    config = ServerConfig(name="srv", source="operator", command=sys.executable, args=("-c", body))
    with BlockingHost() as host:
        session = host.open_session(tmp_path)
        unwatch = session.watch(recorder.telemetry.watch)
        session.start_server(config)
        with recorder.tracers.get_tracer("test").start_as_current_span("turn") as turn:
            output = session.call_server("srv", "meta")
        unwatch()
        with pytest.raises(KeyError):
            json.loads(session.call_server("srv", "meta").text)["traceparent"]
    spans = {span.name: span for span in recorder.spans()}
    call = spans["execute_tool meta"]
    assert call.parent is not None
    assert call.parent.span_id == turn.get_span_context().span_id
    assert json.loads(output.text)["traceparent"].split("-")[1:3] == [*ids(call)]
