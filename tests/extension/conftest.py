"""A session in memory with extensions of the author's kit beside scripted ones."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from broker import Session
from broker.extension import Extension
from broker.host import Outcome
from broker.testing import HostedExtension, MemorySession

sys.path.append(str(Path(__file__).parent))  # for what several tests share


class World:
    """One session, and its tools called by whose they are. ``add`` starts what it is given."""

    def __init__(self, memory: MemorySession) -> None:
        self.memory = memory
        self.clock = memory.clock
        self.driver = memory.host.driver
        self.session: Session = memory.session
        self.notices = memory.notices
        self.diagnostics = memory.diagnostics
        self.frames: list[Any] = []
        self.driver.taps.append(self.frames.append)

    def add(self, thing: Any, **fields: Any) -> HostedExtension:
        """Start an extension; gives the newest process."""
        self.memory.start(thing, **fields)
        return self.memory.processes[-1]  # type: ignore[no-any-return]

    def begin(self, thing: Any, **fields: Any) -> Outcome[Any]:
        """Start an extension, whatever becomes of it."""
        started = self.memory.add(thing, **fields).start()
        self.memory.run()
        return started

    def call(self, app: Extension, tool: str, advance: int = 0, **arguments: Any) -> Any:
        """The result of a tool, after letting ``advance`` milliseconds pass."""
        outcome = self.begin_call(app, tool, **arguments)
        if advance:
            self.memory.advance(advance)
        assert outcome.done, "the call is still open"
        return outcome.result()

    def text(self, app: Extension, tool: str, advance: int = 0, **arguments: Any) -> str:
        """The texts of a tool's result, joined by ``|``."""
        return "|".join(part.text for part in self.call(app, tool, advance, **arguments).content)

    def begin_call(self, app: Extension, tool: str, **arguments: Any) -> Any:
        outcome = self.session.call(app.name, tool, arguments)
        self.memory.run()
        return outcome


@pytest.fixture
def make_world(broker_open: Callable[..., MemorySession]) -> Callable[..., World]:
    return lambda **options: World(broker_open(patience_ms=0, **options))


@pytest.fixture
def world(make_world: Callable[..., World]) -> World:
    return make_world()


@pytest.fixture
def app() -> Extension:
    return Extension("hello", "1.0.0")
