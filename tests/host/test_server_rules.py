"""MCP servers of a session: who is asked before one starts, what becomes of one that is refused, and how it ends."""

from __future__ import annotations

from typing import Any

import pytest

from broker.errors import CapabilityMismatchError, NegotiationError, SetupError, UsageError
from broker.host import Health, Outcome
from broker.testing import ScriptedServer
from broker.wire.odek.config import ServerConfig


def add(memory: Any, make: Any = None, **members: Any) -> Any:
    """Add the server ``srv``, whose process is ``make()``."""
    memory._factories["srv"] = lambda link: make() if make else ScriptedServer({"echo": "hello", "other": "x"})
    return memory.session.add_server(ServerConfig(**{"name": "srv", "source": "operator", "command": "x", **members}))


class Asked:
    """A host's answers, and what it was asked."""

    def __init__(self, *refused: str) -> None:
        self.refused = refused
        self.requests: list[tuple[str, str | None]] = []

    def __call__(self, request: Any) -> Outcome[bool]:
        self.requests.append((request.kind, request.tool))
        outcome: Outcome[bool] = Outcome()
        outcome.succeed((request.tool or request.kind) not in self.refused)
        return outcome


@pytest.mark.spec("odek.config.disabled")
@pytest.mark.parametrize("source", ["operator", "project"])
def test_a_disabled_server_is_refused_and_never_started(memory: Any, source: str) -> None:
    memory.session.approve = Asked()
    with pytest.raises(UsageError, match="server srv is disabled") as caught:
        add(memory, source=source, enabled=False)
    assert (caught.value.extension, caught.value.path) == ("srv", "enabled")
    memory.driver.advance(60_000)
    assert (memory.driver.spawned, dict(memory.session.servers), memory.session.approve.requests) == ([], {}, [])


@pytest.mark.spec("odek.config.operator-trust")
def test_an_operators_server_starts_without_a_question(memory: Any) -> None:
    memory.session.approve = Asked("server", "echo", "other")
    server = add(memory)
    memory.settle(server.start())
    assert memory.session.approve.requests == []
    assert [tool.name for tool in server.tools] == ["echo", "other"]
    assert memory.settle(server.call("echo", {})).text == "hello"


@pytest.mark.spec("odek.config.project-approval")
def test_a_projects_server_and_each_of_its_tools_are_asked_for(memory: Any) -> None:
    memory.session.approve = Asked("other")
    server = add(memory, source="project")
    memory.settle(server.start())
    assert memory.session.approve.requests == [("server", None), ("tool", "echo"), ("tool", "other")]
    assert [tool.name for tool in server.tools] == ["echo"]
    assert memory.settle(server.call("echo", {})).text == "hello"
    with pytest.raises(CapabilityMismatchError, match="tool other is not approved"):
        server.call("other", {})


@pytest.mark.spec("odek.config.project-approval")
def test_without_a_callback_a_projects_server_is_not_started(memory: Any) -> None:
    outcome = add(memory, source="project").start()
    memory.driver.advance(60_000)
    assert isinstance(outcome.error, SetupError)
    assert "not approved, not started" in str(outcome.error)
    assert memory.driver.spawned == []


@pytest.mark.spec("odek.transport.compatible-version")
def test_a_server_of_another_version_is_stopped(memory: Any) -> None:
    class Newer(ScriptedServer):
        def on_message(self, message: Any) -> None:
            self.answer(message["id"], {"protocolVersion": "2099-01-01", "capabilities": {}})

    server = add(memory, Newer)
    outcome = server.start()
    memory.driver.advance(60_000)
    assert isinstance(outcome.error, NegotiationError)
    assert len(memory.driver.spawned) == 1
    assert server.ended
    assert [status for _, status, _ in memory.exits()] == [-9]
    assert [message["method"] for message in memory.driver.spawned[0].received] == ["initialize"]


class Stubborn(ScriptedServer):
    """Stays when its input ends, and, with ``deaf``, when it is asked to terminate."""

    deaf = False

    def __init__(self) -> None:
        super().__init__({"echo": "hello"})
        self.seen: list[str] = []

    def on_eof(self) -> None:
        self.seen.append("eof")

    def on_terminate(self) -> None:
        self.seen.append("terminate")
        if not self.deaf:
            self.exit(-15)


class Deaf(Stubborn):
    deaf = True


@pytest.mark.spec("odek.transport.shutdown")
@pytest.mark.parametrize(("make", "status"), [(Stubborn, -15), (Deaf, -9)])
def test_the_input_ends_then_the_group_is_terminated_then_killed(memory: Any, make: Any, status: int) -> None:
    settings = memory.session.settings
    server = add(memory, make)
    memory.settle(server.start())
    (process,) = memory.driver.spawned
    stop = server.stop()
    memory.driver.advance(settings.server_eof_grace_ms - 1)
    assert (process.seen, stop.done) == (["eof"], False)
    memory.driver.advance(1)
    assert process.seen == ["eof", "terminate"]
    assert stop.done is (status == -15)
    if status == -9:
        memory.driver.advance(settings.server_term_grace_ms - 1)
        assert not stop.done
        memory.driver.advance(1)
    assert stop.done
    assert [ended for _, ended, _ in memory.exits()] == [status]
    assert server.health is Health.STOPPED
