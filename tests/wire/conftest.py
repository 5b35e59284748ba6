"""A connection with a scripted extension on its other side: exact bytes in both directions, no IO, a manual clock."""

from __future__ import annotations

import importlib.util
import sys
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import pytest

from broker import canonical
from broker.testing import ManualClock
from broker.wire.octet.connection import Connection, ConnectionSettings, HostRequest
from broker.wire.octet.contract import build_offer
from broker.wire.octet.events import ConnectionEvent
from broker.wire.octet.models import InitializeRequest, ProtocolLimits
from broker.wire.octet.negotiation import Expectation
from broker.wire.octet.schema import encode


def _load(name: str) -> Any:
    if name not in sys.modules:
        spec = importlib.util.spec_from_file_location(name, Path(__file__).with_name(f"{name}.py"))
        assert spec is not None and spec.loader is not None
        module = importlib.util.module_from_spec(spec)
        sys.modules[name] = module
        spec.loader.exec_module(module)
    return sys.modules[name]


negotiation_model = _load("negotiation_model")

CORE = ("content_parts", "core", "request_cancellation", "tool_call")
CORE_METHODS = ("$/cancelRequest", "initialize", "shutdown", "tool/call")
BUS_METHODS = ("bus/declare", "bus/event", "bus/lifecycle", "bus/publish", "bus/subscribe", "bus/unsubscribe")


def initialize_params(bound: Iterable[str] = ("event_bus", "lifecycle_events"), **limits: int) -> dict[str, Any]:
    """Complete parameters of initialize, offering what is bound."""
    return encode(
        InitializeRequest(
            octet_version="0.8.0",
            extension={
                "name": "tide",
                "version": "1.2.0",
                "manifest_path": "/srv/tide/extension.toml",
                "source": "explicit",
            },
            workspace="/srv/work",
            capabilities={"filesystem": "none", "network": False, "process": False},
            contributes={"tools": ["tide"]},
            flag_values=(),
            host={"session_id": None},
            contract=build_offer(bound, limits=ProtocolLimits(**limits)),
        )
    )


def initialize_result(
    *, bus: bool = True, hooks: bool = False, tools: tuple[str, ...] = ("tide",), **limits: int
) -> dict[str, Any]:
    """A selection that is right in every point."""
    return {
        "api_version": "0.3",
        "tools": [
            {"name": name, "description": "Next high water.", "parameters": {"type": "object"}} for name in tools
        ],
        "contract": {
            "schema": "octet.extension.api/0.3",
            "encoding": "octet-canonical-json-v1",
            "capabilities": [*CORE, *(["event_bus"] if bus else []), *(["lifecycle_events"] if hooks else [])],
            "methods": [*CORE_METHODS, *(BUS_METHODS if bus else []), *(["hook/run"] if hooks else [])],
            "limits": {"max_frame_bytes": 1_048_576, "max_concurrent_requests": 2, "max_tools": 16, **limits},
        },
    }


class Wire:
    """One connection and the extension that talks to it."""

    def __init__(self, **settings: Any) -> None:
        self.clock = ManualClock(monotonic_ms=5_000)
        self.connection = Connection(clock=self.clock, settings=ConnectionSettings(**settings), extension="tide")
        self.settled: list[HostRequest] = []

    def initialize(self, *, hooks: bool = False, tools: tuple[str, ...] = ("tide",), **limits: Any) -> HostRequest:
        """Queue and write initialize."""
        request = self.connection.initialize(
            initialize_params(**limits), Expectation(tools=tools, session_hooks=hooks), self.settled.append
        )
        self.written()
        return request

    def ready(self, *, bus: bool = True, hooks: bool = False, **limits: Any) -> Wire:
        """Bring the connection to READY, with nothing left to read or write."""
        self.initialize(hooks=hooks)
        self.receive({"jsonrpc": "2.0", "id": 1, "result": initialize_result(bus=bus, hooks=hooks, **limits)})
        assert [type(event).__name__ for event in self.events()] == ["Initialized"]
        self.settled.clear()
        return self

    def call(self, **options: Any) -> HostRequest:
        """Queue a tool call."""
        params = {"name": "tide", "arguments": {}, "context": {}}
        return self.connection.request("tool/call", params, on_settled=self.settled.append, **options)

    def receive(self, *envelopes: Any) -> None:
        """The extension writes these envelopes in one go."""
        self.connection.receive_data(b"".join(canonical.encode(envelope) + b"\n" for envelope in envelopes))

    def events(self) -> list[ConnectionEvent]:
        """Every event there is now."""
        found = []
        while (event := self.connection.next_event()) is not None:
            found.append(event)
        return found

    def written(self) -> list[bytes]:
        """Write every frame there is now; their bytes with LF."""
        found = []
        while (frame := self.connection.next_frame()) is not None:
            found.append(frame.data)
            self.connection.frame_written(frame)
        return found

    def pass_ms(self, milliseconds: int) -> None:
        """Let time pass and the connection notice it."""
        self.clock.advance_ms(milliseconds)
        self.connection.tick()


@pytest.fixture(scope="session")
def new_wire() -> Callable[..., Wire]:
    """Makes a connection in phase NEW; keyword arguments are its settings."""
    return Wire


@pytest.fixture(scope="session")
def good_params() -> Callable[..., dict[str, Any]]:
    return initialize_params


@pytest.fixture(scope="session")
def good_result() -> Callable[..., dict[str, Any]]:
    return initialize_result
