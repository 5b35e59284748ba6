"""Starting an MCP server: the handshake, who is asked, what waits after a failed start, and the names of its tools."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from approvals import Asked, health, started

from broker.errors import (
    BrokerError,
    CancelledError,
    CapabilityMismatchError,
    CatalogueError,
    ExitedError,
    InvalidParamsError,
    NegotiationError,
    SetupError,
    TimedOutError,
    UsageError,
)
from broker.host import Outcome
from broker.host.link import Stage
from broker.host.notices import Health
from broker.testing import MemorySession, ScriptedServer
from broker.wire.odek.config import ServerConfig

World = Any


class Listing(ScriptedServer):
    """Lists ``entries`` as they are now; a test changes them and announces it."""

    def __init__(self, *entries: dict[str, Any]) -> None:
        super().__init__({})
        self.entries = list(entries)

    def on_message(self, message: Any) -> None:
        if message.get("method") == "tools/list":
            self.answer(message["id"], {"tools": self.entries})
        else:
            super().on_message(message)

    def change(self, *entries: dict[str, Any]) -> None:
        self.entries = list(entries)
        self.send({"jsonrpc": "2.0", "method": "notifications/tools/list_changed"})


class Mute(ScriptedServer):
    def on_message(self, message: Any) -> None:
        pass


class Exits(ScriptedServer):
    def on_message(self, message: Any) -> None:
        self.send_stderr(b"no API key\n")
        self.exit(3)


class Refuses(ScriptedServer):
    def on_message(self, message: Any) -> None:
        self.answer(message["id"], {"protocolVersion": "2099-01-01", "capabilities": {}, "serverInfo": {}})


def names(world: World) -> list[str]:
    return list(world.session.names.tools)


# -- the handshake -----------------------------------------------------------------------------------------------------


@pytest.mark.spec("odek.config.operator-trust", "odek.transport.plain-mcp", "odek.transport.initialized")
def test_an_operators_server_starts_without_a_question(world: World, asked: Asked) -> None:
    server = world.start(ScriptedServer({"echo": "hi", "other": ""}), name="srv")
    assert asked.requests == []
    assert [message["method"] for message in world.processes[0].received] == [
        "initialize",
        "notifications/initialized",
        "tools/list",
    ]
    assert (server.stage, server.health) == (Stage.READY, Health.READY)
    assert health(world) == ["starting", "initializing", "ready"]
    assert started(world) == [("echo", "other")]
    assert names(world) == ["srv__echo", "srv__other"]
    assert world.call_server("srv", "echo").text == "hi"


@pytest.mark.spec("odek.names.no-tools")
def test_a_server_without_tools_is_ready(world: World) -> None:
    assert world.start(ScriptedServer(), name="srv").tools == ()
    assert started(world) == [()]


def test_a_server_is_started_once(world: World) -> None:
    server = world.start(ScriptedServer(), name="srv")
    with pytest.raises(UsageError, match="was started"):
        server.start()


def test_a_server_that_was_stopped_before_it_was_started_stays_so(world: World) -> None:
    server = world.add(ScriptedServer(), name="srv")
    world.settle(server.stop())
    with pytest.raises(UsageError):
        server.start()
    assert world.processes == []


def test_a_server_that_was_replaced_is_not_started(world: World) -> None:
    older = world.add(ScriptedServer(), name="srv")
    world.start(ScriptedServer(), name="srv")
    with pytest.raises(UsageError):
        older.start()


def test_a_name_belongs_to_one_at_a_time(world: World) -> None:
    world.start(ScriptedServer(), name="srv")
    with pytest.raises(InvalidParamsError, match="srv is in this session already"):
        world.add(ScriptedServer(), name="srv")
    assert len(world.processes) == 1


def test_a_name_is_free_again_after_the_end(world: World) -> None:
    first = world.start(ScriptedServer({"a": ""}), name="srv")
    world.settle(first.stop())
    second = world.start(ScriptedServer({"b": ""}), name="srv")
    assert (first.number, second.number) == (1, 2)
    assert names(world) == ["srv__b"]


@pytest.mark.spec("odek.config.disabled")
def test_a_disabled_server_is_not_added(world: World) -> None:
    with pytest.raises(UsageError, match="srv is disabled") as caught:
        world.add(ScriptedServer(), name="srv", enabled=False)
    assert (caught.value.extension, caught.value.path) == ("srv", "enabled")
    assert (dict(world.session.servers), world.processes) == ({}, [])


@pytest.mark.parametrize(
    ("script", "kind", "text"),
    [
        (Exits, ExitedError, "exited with status 3 before it answered initialize; its stderr ends with: no API key"),
        (Refuses, NegotiationError, "2099-01-01"),
        (lambda: Listing({"name": "read file"}), CatalogueError, "read file"),
        (lambda: Listing({"name": "a"}, {"name": "a"}), CatalogueError, "a"),
    ],
)
def test_a_start_that_fails_says_why_and_leaves_no_process(
    world: World, script: Callable[[], ScriptedServer], kind: type[BrokerError], text: str
) -> None:
    server = world.add(script, name="srv")
    with pytest.raises(kind) as caught:
        world.settle(server.start())
    assert text in str(caught.value)
    assert (server.stage, server.health) == (Stage.ENDED, Health.PARKED)
    assert world.session.links == ()
    assert names(world) == []
    with pytest.raises(BrokerError):
        server.call("a", {})


def test_a_program_that_is_not_there(world: World) -> None:
    """Fault 18."""
    server = world.session.add_server(ServerConfig(name="srv", source="operator", command="srv"))
    with pytest.raises(SetupError, match="no factory for srv"):
        world.settle(server.start())
    assert server.ended


def test_a_server_that_never_answers_times_out_and_is_killed(world: World) -> None:
    starting = world.add(Mute, name="srv", timeout_seconds=5).start()
    world.advance(4_999)
    assert not starting.done
    world.advance(1)
    with pytest.raises(TimedOutError) as caught:
        starting.result()
    assert (caught.value.extension, caught.value.observed, caught.value.maximum) == ("srv", 5_000, 5_000)
    assert world.exits()[0][1] == -9


# -- approval ----------------------------------------------------------------------------------------------------------


@pytest.mark.spec("odek.config.project-approval")
def test_a_projects_server_and_each_tool_are_asked_about(world: World, asked: Asked) -> None:
    far = ScriptedServer({"a": "A", "b": "B", "c": "C"})
    server = world.add(far, name="srv", source="project", args=("--x",), env={"LEVEL": "1"})
    starting = server.start()
    world.run()
    assert world.processes == []
    [(request, _)] = asked.requests
    assert (request.kind, request.server, request.tool, request.command) == ("server", "srv", None, "srv --x")
    assert request.environment == ("LEVEL",)
    assert asked.decide(world, True) == ["srv"]
    assert len(world.processes) == 1
    assert not starting.done
    assert (asked.requests[0][0].kind, asked.requests[0][0].qualified) == ("tool", "srv__a")
    assert asked.decide(world, True, False, True) == ["a", "b", "c"]
    assert starting.result() is server
    assert [tool.name for tool in server.tools] == ["a", "c"]
    assert names(world) == ["srv__a", "srv__c"]
    assert "tool b is not approved" in world.diagnostics()
    with pytest.raises(CapabilityMismatchError, match=r"^srv: tool b is not approved$"):
        server.call("b", {})
    with pytest.raises(InvalidParamsError):
        world.session.call_qualified("srv__b", {})
    assert world.call_server("srv", "c").text == "C"


@pytest.mark.spec("odek.config.project-approval")
def test_a_project_server_that_is_refused_never_runs(world: World, asked: Asked) -> None:
    server = world.add(ScriptedServer(), name="srv", source="project")
    starting = server.start()
    assert asked.decide(world, False) == ["srv"]
    with pytest.raises(SetupError, match=r"^srv: not approved, not started$") as caught:
        starting.result()
    assert caught.value.name == "capability_mismatch"
    assert (world.processes, server.ended) == ([], True)
    again = world.add(ScriptedServer(), name="srv", source="project").start()
    assert asked.decide(world, True) == ["srv"]
    assert again.done, "nothing ran, so there is nothing to wait for"


def test_an_error_of_whoever_decides_is_a_refusal(world: World, asked: Asked) -> None:
    starting = world.add(ScriptedServer(), name="srv", source="project").start()
    asked.requests.pop()[1].fail(UsageError("no terminal"))
    world.run()
    assert isinstance(starting.error, SetupError)


def test_a_tool_whose_question_cannot_be_asked_is_refused(world: World, asked: Asked) -> None:
    server = world.add(ScriptedServer({"a": "", "b": ""}), name="srv", source="project")
    starting = server.start()
    asks = world.session.approve

    def ask(request: Any) -> Any:
        if request.tool == "a":
            raise RuntimeError("no terminal")
        return asks(request)

    world.session.approve = ask
    asked.decide(world, True, True)
    assert [tool.name for tool in starting.result().tools] == ["b"]
    assert "asking for approval failed, which counts as a refusal: RuntimeError('no terminal')" in world.diagnostics()


def test_many_tools_may_be_decided_at_once(world: World) -> None:
    def yes(request: Any) -> Outcome[bool]:
        outcome: Outcome[bool] = Outcome()
        outcome.succeed(request.tool != "t7")
        return outcome

    world.session.approve = yes
    server = world.start(ScriptedServer({f"t{n}": "" for n in range(1_024)}), name="srv", source="project")
    assert len(server.tools) == 1_023


@pytest.mark.spec("odek.config.project-approval")
def test_a_host_without_anybody_to_ask_refuses(broker_session: MemorySession) -> None:
    with pytest.raises(SetupError):
        broker_session.start(ScriptedServer(), name="srv", source="project")
    assert broker_session.processes == []


def test_a_stop_does_not_wait_for_the_answer(world: World, asked: Asked) -> None:
    server = world.add(ScriptedServer({"a": ""}), name="srv", source="project")
    starting = server.start()
    world.settle(server.stop())
    assert isinstance(starting.error, CancelledError)
    assert asked.decide(world, True) == ["srv"]
    assert world.processes == []


def test_a_stop_while_a_tool_is_asked_about(world: World, asked: Asked) -> None:
    server = world.add(ScriptedServer({"a": ""}), name="srv", source="project")
    starting = server.start()
    asked.decide(world, True)
    world.settle(server.stop())
    assert isinstance(starting.error, CancelledError)
    assert asked.decide(world, True) == ["a"]
    assert (server.tools, names(world), server.stage) == ((), [], Stage.ENDED)


def test_an_exit_while_a_tool_is_asked_about(world: World, asked: Asked) -> None:
    starting = world.add(ScriptedServer({"a": ""}), name="srv", source="project").start()
    asked.decide(world, True)
    world.processes[0].exit(4)
    world.run()
    assert isinstance(starting.error, ExitedError)
    assert asked.decide(world, True) == ["a"]
    assert names(world) == []


@pytest.mark.spec("odek.config.hostile-metadata")
def test_what_a_person_is_asked_is_safe_to_print(world: World, asked: Asked) -> None:
    far = Listing({"name": "a", "description": "\x1b]0;owned\x07x\x1b[31m\r\ny\x00"})
    world.add(far, name="srv", source="project").start()
    asked.decide(world, True)
    assert asked.requests[0][0].description.isprintable()
    asked.decide(world, False)


@pytest.mark.spec("odek.config.project-approval", "odek.transport.list-changed")
def test_what_changes_is_asked_about_again_and_withdrawn_until_then(world: World, asked: Asked) -> None:
    far = Listing({"name": "a", "description": "one"}, {"name": "b"}, {"name": "c"})
    server = world.add(far, name="srv", source="project")
    server.start()
    asked.decide(world, True, True, True, False)
    assert [tool.name for tool in server.tools] == ["a", "b"]

    far.change({"name": "a", "description": "two"}, {"name": "b"}, {"name": "c"}, {"name": "d"})
    world.advance(1_000)
    assert [request.tool for request, _ in asked.requests] == ["a"], "what was answered is not asked again"
    assert [tool.name for tool in server.tools] == ["b"], "what changed is not callable meanwhile"
    with pytest.raises(CapabilityMismatchError):
        server.call("a", {})
    assert asked.decide(world, True, True) == ["a", "d"]
    assert [tool.name for tool in server.tools] == ["a", "b", "d"]
    assert started(world) == [("a", "b"), ("b",), ("a", "b", "d")]


def test_a_newer_list_overtakes_the_questions_about_an_older_one(world: World, asked: Asked) -> None:
    far = Listing({"name": "a", "description": "1"})
    server = world.add(far, name="srv", source="project")
    starting = server.start()
    asked.decide(world, True)
    far.change({"name": "a", "description": "2"})
    world.advance(1_000)
    assert [request.description for request, _ in asked.requests] == ["1", "2"]
    assert asked.decide(world, True) == ["a"]
    assert not starting.done, "the answer was about what is no longer listed"
    assert asked.decide(world, True) == ["a"]
    assert starting.result().tools[0].description == "2"


def test_a_refused_tool_cannot_ask_again_by_announcing_changes(world: World, asked: Asked) -> None:
    far = Listing({"name": "a"})
    world.add(far, name="srv", source="project").start()
    asked.decide(world, True, False)
    for count in range(5):
        far.change({"name": "a"}, *({"name": f"n{n}"} for n in range(count % 2)))
        world.advance(1_000)
        while asked.requests:
            assert asked.decide(world, True) == ["n0"]


def test_an_operators_server_may_change_its_tools(world: World) -> None:
    far = Listing({"name": "a"})
    server = world.start(far, name="srv")
    far.change({"name": "b"})
    world.advance(1_000)
    assert started(world) == [("a",), ("b",)]
    assert names(world) == ["srv__b"]
    assert world.settle(world.session.names.get("srv__b") and server.stop()) is None


# -- back-off ----------------------------------------------------------------------------------------------------------


@pytest.mark.spec("odek.transport.eof")
def test_a_failed_start_is_waited_out_and_the_wait_doubles_up_to_its_cap(new_world: Any) -> None:
    world = new_world(restart_base_ms=100, restart_cap_ms=500)
    for wait in (0, 100, 200, 400, 500, 500):
        spawned = len(world.processes)
        starting = world.add(Exits, name="srv").start()
        world.run()
        assert starting.done is (wait == 0)
        if wait:
            world.advance(wait - 1)
            assert len(world.processes) == spawned
            world.advance(1)
        assert len(world.processes) == spawned + 1
        assert isinstance(starting.error, ExitedError)


def test_a_wait_runs_from_the_failure(new_world: Any) -> None:
    world = new_world(restart_base_ms=100)
    world.add(Exits, name="srv").start()
    world.advance(60)
    starting = world.add(Exits, name="srv").start()
    world.advance(39)
    assert not starting.done
    assert health(world)[-1] == "backoff"
    world.advance(1)
    assert starting.done


def test_a_start_that_succeeds_forgets_what_was_before(new_world: Any) -> None:
    world = new_world(restart_base_ms=100)
    for _ in range(3):
        world.add(Exits, name="srv").start()
        world.advance(1_000)
    world.settle(world.start(ScriptedServer(), name="srv").stop())
    world.add(Exits, name="srv").start()
    world.run()
    starting = world.add(Exits, name="srv").start()
    world.advance(100)
    assert starting.done


def test_there_is_no_second_process_while_one_starts(world: World) -> None:
    world.add(Mute, name="srv").start()
    world.run()
    with pytest.raises(InvalidParamsError):
        world.add(Mute, name="srv")
    world.advance(20_000)
    assert len(world.processes) == 1


def test_other_servers_do_not_wait_with_it(world: World) -> None:
    world.add(Exits, name="bad").start()
    world.run()
    world.start(ScriptedServer(), name="good")


def test_a_stop_ends_the_wait(world: World) -> None:
    world.add(Exits, name="srv").start()
    world.run()
    server = world.add(Exits, name="srv")
    starting = server.start()
    world.run()
    world.settle(server.stop())
    assert isinstance(starting.error, CancelledError)
    world.advance(60_000)
    assert len(world.processes) == 1


# -- names across servers ----------------------------------------------------------------------------------------------


@pytest.mark.spec("odek.names.qualified")
def test_the_same_tool_on_two_servers(world: World) -> None:
    world.start(ScriptedServer({"execute": "one"}), name="s1")
    world.start(ScriptedServer({"execute": "two"}), name="s2")
    assert world.settle(world.session.call_qualified("s1__execute", {})).text == "one"
    assert world.settle(world.session.call_qualified("s2__execute", {})).text == "two"


@pytest.mark.spec("odek.names.unambiguous")
def test_a_name_that_could_mean_two_tools_refuses_the_later_server(world: World) -> None:
    world.start(ScriptedServer({"b": "first"}), name="a_")
    second = world.add(ScriptedServer({"_b": "second", "fine": ""}), name="a")
    with pytest.raises(CatalogueError, match="a___b: already stands for tool 'b' of server 'a_'"):
        world.settle(second.start())
    assert names(world) == ["a___b"]
    assert world.settle(world.session.call_qualified("a___b", {})).text == "first"
    assert second.ended


def test_a_change_that_takes_anothers_name_is_refused(world: World) -> None:
    far = Listing({"name": "x"})
    world.start(ScriptedServer({"b": ""}), name="a_")
    server = world.start(far, name="a")
    far.change({"name": "_b"})
    world.advance(1_000)
    assert [tool.name for tool in server.tools] == ["x"]
    assert any("its tools stay as they were" in text for text in world.diagnostics())
    assert server.stage is Stage.READY


@pytest.mark.parametrize("name", ["srv", "echo", "srv__", "__echo", "srv__echo__x", "SRV__echo", ""])
def test_a_qualified_name_is_looked_up_and_never_taken_apart(world: World, name: str) -> None:
    world.start(ScriptedServer({"echo": ""}), name="srv")
    hint = r"(did you mean srv__echo\?|there are srv__echo)"
    with pytest.raises(InvalidParamsError, match=f"^no tool '{name}' in this session; {hint}$"):
        world.session.call_qualified(name, {})


def test_the_names_of_a_server_go_with_it(world: World) -> None:
    world.start(ScriptedServer({"echo": ""}), name="srv")
    world.processes[0].exit(1)
    world.run()
    assert names(world) == []


def test_two_sessions_share_nothing(world: World) -> None:
    other = world.host.open_session()
    world.start(ScriptedServer({"echo": "one"}), name="srv")
    other.start(ScriptedServer({"echo": "two"}), name="srv")
    assert world.settle(world.session.call_qualified("srv__echo", {})).text == "one"
    assert world.settle(other.session.call_qualified("srv__echo", {})).text == "two"
    world.processes[0].exit(1)
    world.run()
    assert names(world) == []
    assert world.settle(other.session.call_qualified("srv__echo", {})).text == "two"
