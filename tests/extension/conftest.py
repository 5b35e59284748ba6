"""A session in memory with extensions of the author's kit beside scripted ones."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest

from broker import Host, Session
from broker.extension import Extension
from broker.host import Diagnostic, HostServices, HostSettings, Notice, Outcome
from broker.testing import ManualClock, MemoryDriver
from broker.testing.hosted import HostedExtension
from broker.testing.plan import process_of


class World:
    """One host, one session, a clock. ``add`` starts what it is given."""

    def __init__(self, settings: HostSettings | None = None, services: HostServices | None = None, **more: Any) -> None:
        self.clock = ManualClock()
        self.factories: dict[str, Any] = {}
        self.driver = MemoryDriver(self.clock, self.factories)
        self.frames: list[Any] = []
        self.driver.taps.append(self.frames.append)
        self.host = Host(self.driver, settings=settings, clock=self.clock, services=services, **more)
        self.session: Session = self.host.open_session("/workspace")
        self.notices: list[Notice] = []
        self.session.add_observer(self.notices.append)

    def add(self, thing: Any, **fields: Any) -> HostedExtension:
        """Start an extension; gives the newest process."""
        started = self.begin(thing, **fields)
        started.result()
        return self.driver.spawned[-1]  # type: ignore[return-value]

    def begin(self, thing: Any, **fields: Any) -> Outcome[Any]:
        """Start an extension, whatever becomes of it."""
        plan = process_of(thing, **fields)
        self.factories[plan.member.name] = plan.make
        started = self.session.add(plan.member).start()  # type: ignore[arg-type]
        self.driver.run()
        return started

    def call(self, app: Extension, tool: str, advance: int = 0, **arguments: Any) -> Any:
        """The result of a tool, after letting ``advance`` milliseconds pass."""
        outcome = self.begin_call(app, tool, **arguments)
        if advance:
            self.driver.advance(advance)
        assert outcome.done, "the call is still open"
        return outcome.result()

    def text(self, app: Extension, tool: str, advance: int = 0, **arguments: Any) -> str:
        """The texts of a tool's result, joined by ``|``."""
        return "|".join(part.text for part in self.call(app, tool, advance, **arguments).content)

    def begin_call(self, app: Extension, tool: str, **arguments: Any) -> Any:
        outcome = self.session.call(app.name, tool, arguments)
        self.driver.run()
        return outcome

    def diagnostics(self) -> list[str]:
        """What the extensions wrote to stderr, and what the host has to say."""
        return [notice.text for notice in self.notices if isinstance(notice, Diagnostic)]

    def close(self) -> None:
        """Close the host, however long that takes."""
        closed = self.host.close()
        self.driver.advance(60_000)
        assert closed.done


@pytest.fixture
def make_world() -> Iterator[Callable[..., World]]:
    made: list[World] = []

    def make(**options: Any) -> World:
        made.append(World(**options))
        return made[-1]

    yield make
    for world in made:
        world.close()


@pytest.fixture
def world(make_world: Callable[..., World]) -> World:
    return make_world()


@pytest.fixture
def app() -> Extension:
    return Extension("hello", "1.0.0")
