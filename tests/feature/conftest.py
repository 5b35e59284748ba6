"""A feature-negotiated connection with a scripted extension on its other side: exact lines, no IO, a manual clock."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable
from typing import Any

import pytest

from broker.testing import ManualClock
from broker.wire.feature.connection import FeatureConnection
from broker.wire.feature.events import FeatureEvent
from broker.wire.feature.features import FEATURES, REQUIRED_FEATURES, is_since
from broker.wire.feature.negotiation import Declared, Offer
from broker.wire.feature.scope import ResourceOwner
from broker.wire.octet.settings import ConnectionSettings
from broker.wire.requests import HostRequest

OWNER = {"session_id": "s1", "extension_instance_id": "i1", "process_generation": 1}
DECLARES = ("notifications", "confirmations", "context", "presentation", "ui", "ui.status")
TOOL = {"name": "tide", "description": "Next high water.", "parameters": {"type": "object"}}


def optional_features(version: str) -> tuple[str, ...]:
    """Every optional feature of a version."""
    rows = FEATURES.values()
    return () if version == "0.1" else tuple(r.name for r in rows if not r.required and is_since(version, r.since))


def make_answer(version: str, features: Iterable[str] = (), **changes: Any) -> dict[str, Any]:
    """An answer to initialize that is right in every point; ``changes`` replace members, ``None`` removes one."""
    answer: dict[str, Any] = {"api_version": version, "tools": [TOOL], "commands": []}
    if version != "0.1":
        answer["protocol"] = {
            "version": version,
            "features": [*REQUIRED_FEATURES, *features],
            "limits": {"max_concurrent_requests": 4},
        }
    answer.update(changes)
    return {key: value for key, value in answer.items() if value is not None}


class FeatureWire:
    """One connection and the extension that talks to it."""

    def __init__(self, version: str = "0.4", *, declares: Iterable[str] = DECLARES, **settings: Any) -> None:
        self.version = version
        self.clock = ManualClock(monotonic_ms=5_000)
        self.connection = FeatureConnection(
            version=version,  # type: ignore[arg-type]
            clock=self.clock,
            extension="tide",
            owner=ResourceOwner(**OWNER),  # type: ignore[arg-type]
            declares=tuple(declares),
            settings=ConnectionSettings(**settings),
        )
        self.settled: list[HostRequest] = []
        self._pending: list[FeatureEvent] = []

    def initialize(self, offered: Iterable[str] | None = None, **declared: Any) -> HostRequest:
        """Queue and write initialize, offering ``offered`` (every optional feature when left out)."""
        features = optional_features(self.version) if offered is None else tuple(offered)
        return self.connection.initialize(
            {"api_version": self.version},
            Offer(version=self.version, optional_features=features, max_concurrent_requests=8),  # type: ignore[arg-type]
            Declared(**{"tools": ("tide",), **declared}),
            self.settled.append,
        )

    def ready(self, features: Iterable[str] | None = None, **changes: Any) -> FeatureWire:
        """Bring the connection to READY with these features (all of them when left out)."""
        chosen = optional_features(self.version) if features is None else tuple(features)
        self.initialize()
        self.written()
        self.receive({"jsonrpc": "2.0", "id": 1, "result": make_answer(self.version, chosen, **changes)})
        assert [type(event).__name__ for event in self.events()] == ["Initialized"]
        self.settled.clear()
        return self

    def call(self, *, write: bool = True, **options: Any) -> HostRequest:
        """Make a tool call, and have it written."""
        request = self.connection.request("tool/call", {"name": "tide"}, on_settled=self.settled.append, **options)
        if write:
            self.written()
        return request

    def receive(self, *messages: Any) -> None:
        """The extension writes these messages in one go."""
        self.raw(*[json.dumps(message).encode() + b"\n" for message in messages])

    def raw(self, *data: bytes) -> None:
        """The extension writes these bytes."""
        self.connection.receive_data(b"".join(data))
        self._pump()

    def ask(self, message_id: int | str, method: str, **params: Any) -> None:
        """The extension makes a request."""
        self.receive({"jsonrpc": "2.0", "id": message_id, "method": method, "params": params})

    def tell(self, method: str, **params: Any) -> None:
        """The extension sends a notification."""
        self.receive({"jsonrpc": "2.0", "method": method, "params": params})

    def events(self) -> list[FeatureEvent]:
        """Every event there is now."""
        self._pump()
        found, self._pending = self._pending, []
        return found

    def _pump(self) -> None:
        while (event := self.connection.next_event()) is not None:
            self._pending.append(event)

    def names(self) -> list[str]:
        """The types of every event there is now."""
        return [type(event).__name__ for event in self.events()]

    def written(self) -> list[dict[str, Any]]:
        """Write every line there is now; what they say."""
        found = []
        while (frame := self.connection.next_frame()) is not None:
            assert frame.data.endswith(b"\n")
            found.append(json.loads(frame.data))
            self.connection.frame_written(frame)
        return found

    def refusals(self) -> list[tuple[Any, int, str | None]]:
        """Write everything; id, code and reason of each refusal in it."""
        return [
            (line["id"], line["error"]["code"], line["error"]["data"].get("reason"))
            for line in self.written()
            if "error" in line
        ]

    def pass_ms(self, milliseconds: int) -> None:
        """Let time pass and the connection notice it."""
        self.clock.advance_ms(milliseconds)
        self.connection.tick()


@pytest.fixture(scope="session")
def new_wire() -> Callable[..., FeatureWire]:
    """Makes a connection in phase NEW: a version, and keyword arguments for its settings."""
    return FeatureWire


@pytest.fixture(scope="session")
def good_answer() -> Callable[..., dict[str, Any]]:
    return make_answer


@pytest.fixture(scope="session")
def every_feature() -> Callable[[str], tuple[str, ...]]:
    return optional_features
