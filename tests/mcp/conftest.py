"""A client with a scripted server on its other side: exact bytes in both directions, no IO, a manual clock."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest

from broker.testing import ManualClock
from broker.wire.mcp.events import McpEvent, Ready
from broker.wire.mcp.peer import McpPeer, McpRequest, McpSettings
from broker.wire.requests import HostRequest


def tool(name: Any = "echo", **members: Any) -> dict[str, Any]:
    """An entry of tools/list."""
    return {"name": name, "inputSchema": {"type": "object"}, **members}


def text(value: str) -> dict[str, Any]:
    """A tool result of one text."""
    return {"content": [{"type": "text", "text": value}], "isError": False}


INITIALIZED = {
    "protocolVersion": "2025-03-26",
    "capabilities": {"tools": {}},
    "serverInfo": {"name": "scripted", "version": "1"},
}


class McpWire:
    """One client and the server that talks to it."""

    def __init__(self, **settings: Any) -> None:
        self.clock = ManualClock(monotonic_ms=5_000)
        self.peer = McpPeer(self.clock, McpSettings(**settings), "srv")
        self.settled: list[HostRequest] = []

    def ready(self, *names: str) -> McpWire:
        """Bring the client to READY with these tools, with nothing left to read or write."""
        self.peer.initialize()
        self.written()
        self.receive({"jsonrpc": "2.0", "id": 1, "result": INITIALIZED})
        assert self.events() == []
        assert [message["method"] for message in self.written()] == ["notifications/initialized", "tools/list"]
        self.receive(
            {"jsonrpc": "2.0", "id": 2, "result": {"tools": [tool(name) for name in names or ("echo", "slow")]}}
        )
        assert [type(event) for event in self.events()] == [Ready]
        return self

    def call(self, name: str = "echo", arguments: Any = None, **options: Any) -> McpRequest:
        """Queue a call."""
        arguments = {} if arguments is None else arguments
        return self.peer.call(name, arguments, on_settled=self.settled.append, **options)

    def sent(self, name: str = "echo", **options: Any) -> McpRequest:
        """Make a call and write it."""
        request = self.call(name, **options)
        self.written()
        return request

    def receive(self, *messages: Any) -> None:
        """The server writes these messages, one a line, in one go."""
        self.receive_raw(b"".join(json.dumps(message, ensure_ascii=False).encode() + b"\n" for message in messages))

    def receive_raw(self, data: bytes) -> None:
        """The server writes these bytes."""
        self.peer.receive_data(data)

    def answer(self, request: HostRequest, result: Any) -> None:
        """The server answers a request."""
        self.receive({"jsonrpc": "2.0", "id": request.id, "result": result})

    def events(self) -> list[McpEvent]:
        """Every event there is now."""
        found = []
        while (event := self.peer.next_event()) is not None:
            found.append(event)
        return found

    def texts(self) -> list[str]:
        """The diagnostics there are now; there is nothing else."""
        return [event.text for event in self.events()]  # type: ignore[union-attr]

    def written_raw(self) -> list[bytes]:
        """Write every frame there is now; their bytes with LF."""
        found = []
        while (frame := self.peer.next_frame()) is not None:
            found.append(frame.data)
            self.peer.frame_written(frame)
        return found

    def written(self) -> list[Any]:
        """Write every frame there is now; their messages."""
        return [json.loads(frame) for frame in self.written_raw()]

    def pass_ms(self, milliseconds: int) -> None:
        """Let time pass and the client notice it."""
        self.clock.advance_ms(milliseconds)
        self.peer.tick()


@pytest.fixture(scope="session")
def new_mcp() -> Callable[..., McpWire]:
    """Makes a client in phase NEW; keyword arguments are its settings."""
    return McpWire


@pytest.fixture
def mcp() -> McpWire:
    """A client that is ready, with the tools echo and slow."""
    return McpWire().ready()


@pytest.fixture(scope="session")
def entry() -> Callable[..., dict[str, Any]]:
    return tool


@pytest.fixture(scope="session")
def text_result() -> Callable[[str], dict[str, Any]]:
    return text
