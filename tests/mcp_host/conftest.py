"""A session with MCP servers in memory, whose clock and approvals the test moves."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, TypeVar

import pytest

from broker.host import Diagnostic, Host, HostSettings, McpServer, Notice, Outcome
from broker.host.notices import Exited, HealthChanged, Started
from broker.testing import ManualClock, MemoryDriver, ScriptedServer
from broker.wire.odek.approval import ApprovalRequest
from broker.wire.odek.config import ServerConfig

T = TypeVar("T")
Make = Callable[[], ScriptedServer]


class McpWorld:
    """One session; ``asked`` are the approvals that wait for :meth:`decide`."""

    def __init__(self, workspace: Path, **settings: Any) -> None:
        self.workspace = str(workspace)
        self.clock = ManualClock()
        self.makers: dict[str, Any] = {}
        self.driver = MemoryDriver(self.clock, self.makers)
        self.asked: list[tuple[ApprovalRequest, Outcome[bool]]] = []
        self.host = Host(self.driver, settings=HostSettings(**settings), clock=self.clock, approve=self._approve)
        self.session = self.host.open_session(self.workspace)
        self.notices: list[Notice] = []
        self.session.add_observer(self.notices.append)

    def _approve(self, request: ApprovalRequest) -> Outcome[bool]:
        outcome: Outcome[bool] = Outcome()
        self.asked.append((request, outcome))
        return outcome

    def decide(self, *decisions: bool) -> list[str]:
        """Decide what was asked, in order; what that was about."""
        about = []
        for decision in decisions:
            request, outcome = self.asked.pop(0)
            about.append(request.tool or request.server)
            outcome.succeed(decision)
            self.driver.run()
        return about

    def add(self, make: Make | dict[str, Any] | None, name: str = "srv", **config: Any) -> McpServer:
        """Add a server whose process ``make`` makes (a dict: its tools; None: there is no such program)."""
        if isinstance(make, dict):
            tools = make
            self.makers[name] = lambda link: ScriptedServer(tools)
        elif make is not None:
            self.makers[name] = lambda link: make()
        given: dict[str, Any] = {"source": "operator", "command": name, **config}
        return self.session.add_server(ServerConfig(name=name, **given))

    def ready(self, make: Make | dict[str, Any], name: str = "srv", **config: Any) -> McpServer:
        server = self.add(make, name, **config)
        assert self.settle(server.start()) is server
        return server

    def settle(self, outcome: Outcome[T]) -> T:
        self.driver.run()
        assert outcome.done, "nothing more happens without the clock moving, and the outcome is still open"
        return outcome.result()

    def health(self, name: str = "srv") -> list[str]:
        return [n.health.value for n in self.notices if isinstance(n, HealthChanged) and n.extension == name]

    def started(self, name: str = "srv") -> list[tuple[str, ...]]:
        return [n.tools for n in self.notices if isinstance(n, Started) and n.extension == name]

    def exits(self, name: str = "srv") -> list[tuple[int | None, str]]:
        return [(n.status, n.reason) for n in self.notices if isinstance(n, Exited) and n.extension == name]

    def told(self) -> list[str]:
        return [n.text for n in self.notices if isinstance(n, Diagnostic)]

    def close(self) -> None:
        closing = self.host.close()
        self.driver.advance(60_000)
        assert closing.done


@pytest.fixture
def new_world(tmp_path: Path) -> Iterator[Callable[..., McpWorld]]:
    made: list[McpWorld] = []

    def make(**settings: Any) -> McpWorld:
        made.append(McpWorld(tmp_path, **settings))
        return made[-1]

    yield make
    for world in made:
        world.close()


@pytest.fixture
def world(new_world: Callable[..., McpWorld]) -> McpWorld:
    return new_world()
