"""A host in memory: extensions of every family as objects, calls, time, and what it says when nothing happens."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import pytest
from kit_members import Echo, Index, Reader, Writer, text

from broker.errors import ExitedError, InvalidParamsError, SetupError, TimedOutError, UsageError
from broker.host import Exited, Extension, McpServer, Outcome
from broker.limits import REQUEST_TIMEOUT_MS
from broker.testing import (
    ManualClock,
    MemoryHost,
    MemorySession,
    Script,
    ScriptedExtension,
    ScriptedFeatureExtension,
    ScriptedProcess,
    ScriptedServer,
    SequenceError,
    make_manifest,
)
from broker.wire.odek.approval import ApprovalRequest
from broker.wire.odek.config import ServerConfig


def server() -> ScriptedServer:
    return ScriptedServer({"work": "from a server"})


def test_three_extensions_one_of_which_crashes() -> None:
    """No time passes but by the clock: the wall clock of the machine is not read, and nothing waits."""
    with MemoryHost() as host, host.open_session() as session:
        session.start(Writer)
        session.start(Index)
        session.start(Echo)
        plugin = session.peer("plugin")
        plugin.subscribe("bus.index.indexed")
        session.call("writer", "write", {"n": 1})
        with pytest.raises(ExitedError, match="exited with status 3 while it was in use"):
            session.call("echo", "crash")
        session.until(lambda: session.extension("echo").health.value == "ready")
        assert session.call("echo", "echo", {"text": "again"}).content[0].text == "again"
        session.call("writer", "write", {"n": 2})
        received = []
        while (message := plugin.take()) is not None:
            received.append(message.payload)
        assert received == [{"n": 1}, {"n": 2}]
        restarted_after = session.extension("echo").generation
        assert restarted_after is not None
        assert restarted_after.number == 2
        assert 0 < host.clock.monotonic_ms() <= host.host.settings.restart_base_ms


def test_nothing_in_it_sleeps(monkeypatch: pytest.MonkeyPatch) -> None:
    def sleeps(seconds: float) -> None:
        raise AssertionError(f"slept {seconds} s")

    monkeypatch.setattr(time, "sleep", sleeps)
    with MemoryHost() as host, host.open_session() as session:
        session.start(Echo)
        with pytest.raises(TimedOutError):
            session.call("echo", "never")
        assert host.clock.monotonic_ms() == REQUEST_TIMEOUT_MS


def test_families_side_by_side() -> None:
    with MemoryHost() as host, host.open_session() as session:
        octet: Extension = session.start(Echo)
        feature = session.start(lambda: ScriptedFeatureExtension(tools=("work",), text="from 0.4"), name="late")
        older = session.start(
            lambda: ScriptedFeatureExtension(version="0.1", tools=("work",), text="from 0.1"), name="early"
        )
        mcp: McpServer = session.start(server)
        assert [one.manifest.api_version for one in (octet, feature, older)] == ["0.3", "0.4", "0.1"]
        assert session.call("echo", "echo", {"text": "from 0.3"}).content[0].text == "from 0.3"
        assert session.call("late", "work").content[0].text == "from 0.4"
        assert session.call("early", "work").content[0].text == "from 0.1"
        assert session.call_server("server", "work").text == "from a server"
        assert session.server("server") is mcp
        assert list(session.session.extensions) == ["echo", "late", "early"]


def test_what_was_added_is_started_together() -> None:
    with MemoryHost() as host, host.open_session() as session:
        session.add(Echo)
        session.add(server)
        session.start()
        assert session.extension("echo").health.value == session.server("server").health.value == "ready"
        session.start()  # all of them are


@pytest.mark.parametrize(
    ("thing", "options", "name"),
    [
        (Echo, {}, "echo"),
        (Echo, {"name": "other"}, "other"),
        (lambda: Echo(), {"name": "made"}, "made"),
        (lambda number: Echo(), {"name": "numbered"}, "numbered"),
        (Script(tools=("echo",)), {"name": "script"}, "script"),
        (Script(name="named", tools=("echo",)), {}, "named"),
    ],
)
def test_what_can_be_added(thing: Any, options: dict[str, Any], name: str) -> None:
    with MemoryHost() as host, host.open_session() as session:
        assert session.start(thing, **options).name == name
        assert "echo" in {tool.name for tool in session.extension(name).tools}


def test_a_class_is_asked_for_a_new_object_for_each_generation() -> None:
    numbers: list[int] = []

    def make(number: int) -> Echo:
        numbers.append(number)
        return Echo()

    with MemoryHost() as host, host.open_session() as session:
        session.start(make)
        first = session.process("make")
        with pytest.raises(ExitedError):
            session.call("make", "crash")
        session.advance(1_000)
        assert session.process("make") is not first
        assert numbers == [1, 2]


def test_an_object_runs_once() -> None:
    with MemoryHost() as host, host.open_session() as session:
        session.start(Echo())
        with pytest.raises(ExitedError):
            session.call("echo", "crash")
        session.advance(1_000)
        assert session.extension("echo").health.value == "parked"
        last = [notice for notice in session.notices if isinstance(notice, Exited)][-1]
        assert last.reason == (
            "echo: generation 2 needs another Echo, as an object runs once; add its class, or a function that makes one"
        )


def test_a_manifest_comes_with_what_stands_for_its_program() -> None:
    manifest = make_manifest("sonar", tools=["echo", "never", "crash"], runtime={"lifecycle": "session"})
    with MemoryHost() as host, host.open_session() as session:
        assert session.start(manifest, Echo).manifest == manifest
        config = ServerConfig(name="depth", source="operator", command="depth")
        assert session.start(config, server).config == config
        with pytest.raises(UsageError, match="sonar: give the object that stands for its program with it"):
            session.add(manifest)


def test_fields_of_the_manifest_are_checked_like_those_of_a_file() -> None:
    with MemoryHost() as host, host.open_session() as session:
        with pytest.raises(SetupError, match="no_such_key"):
            session.add(Echo, no_such_key=1)
        with pytest.raises(UsageError, match="server: a server has no tools; there are "):
            session.add(server, tools=["a"])
        assert session.add(Echo, hooks=["session_start", "session_end"]).manifest.session_hooks
        with pytest.raises(UsageError, match="server is an MCP server, which has no flags"):
            session.add(server, flags={"loud": True})
        assert session.add(server, timeout_seconds=5).config.timeout_seconds == 5


@pytest.mark.parametrize(
    ("thing", "problem"),
    [
        (5, "5 cannot be run as an extension: give a broker.extension.Extension, the directory of one "),
        (lambda: None, "made None, which is no extension"),
        (lambda: Echo(), "it has no name of its own; give one: name='...'"),
        (Script(), "a script has no name of its own; give one"),
        (ScriptedProcess, "ScriptedProcess does not say which protocol it speaks; add it with a manifest"),
    ],
)
def test_what_cannot_be_added_says_why(thing: Any, problem: str) -> None:
    session = MemoryHost().open_session()
    with pytest.raises(UsageError) as raised:
        session.add(thing)
    assert problem in str(raised.value)
    assert not session.session.extensions


def test_a_name_is_taken_once() -> None:
    session = MemoryHost().open_session()
    session.add(Echo)
    with pytest.raises(InvalidParamsError, match="extension echo is in this session already"):
        session.add(Echo)


def test_the_same_name_in_two_sessions_is_two_extensions() -> None:
    class Other(Echo):
        def on_message(self, message: dict[str, Any]) -> None:
            if message.get("method") == "tool/call":
                self.answer(message["id"], text("other"))
            else:
                super().on_message(message)

    for seed in (None, 1):
        with MemoryHost(seed=seed) as host:
            one, other = host.open_session(), host.open_session()
            one.start(Echo)
            other.start(Other, name="echo")
            assert one.call("echo", "echo", {"text": "one"}).content[0].text == "one"
            assert other.call("echo", "echo", {"text": "one"}).content[0].text == "other"
            one.recorder.exactly_once("tool/call")
            other.recorder.exactly_once("tool/call")


def test_an_outcome_that_stays_open_says_so_with_the_sequence() -> None:
    session = MemoryHost().open_session()
    session.start(Echo)
    with pytest.raises(SequenceError) as raised:
        session.settle(Outcome())
    assert str(raised.value).startswith("still open: nothing more happens by itself; does somebody wait for what")
    assert "host -> echo  initialize #1" in str(raised.value)


def test_time_is_left_alone_if_it_is_to_be() -> None:
    session = MemoryHost().open_session()
    session.start(Echo)
    call = session.begin("echo", "never", timeout_ms=500)
    with pytest.raises(SequenceError, match="nothing more happens within 100 ms; the next deadline is in 400 ms"):
        session.settle(call, within_ms=100)
    with pytest.raises(SequenceError, match="nothing more happens within 0 ms"):
        session.settle(call, within_ms=0)
    assert session.clock.monotonic_ms() == 100
    session.advance(400)
    assert isinstance(call.error, TimedOutError)


def test_a_failure_inside_a_session_is_shown_with_what_happened() -> None:
    def fails(session: MemorySession) -> None:
        with session:
            session.start(Echo)
            assert session.call("echo", "echo", {"text": "a"}).content[0].text == "b"

    session = MemoryHost(seed=4).open_session()
    with pytest.raises(AssertionError) as raised:
        fails(session)
    note = raised.value.__notes__[0]
    assert "host -> echo  tool/call #2" in note
    assert note.endswith("\n   to replay: MemoryHost(seed=4)")
    assert max(map(len, note.splitlines())) <= 100


def test_a_stopped_extension_makes_room() -> None:
    with MemoryHost() as host, host.open_session() as session:
        session.start(Echo)
        session.start(server)
        session.stop("echo")
        session.stop("server")
        assert session.server("server").ended
        session.start(Echo)
        with pytest.raises(UsageError, match="no process called server runs"):
            session.process("server")


def test_peers_are_attached_once() -> None:
    with MemoryHost() as host, host.open_session() as session:
        peer = session.peer("plugin")
        assert session.peer("plugin") is peer
        peer.detach()
        assert session.peer("plugin") is not peer


def test_approval_may_be_a_plain_answer() -> None:
    def approve(request: ApprovalRequest) -> bool:
        return request.tool != "work"

    with MemoryHost(approve=approve) as host, host.open_session() as session:
        session.start(lambda: ScriptedServer({"work": "", "play": ""}), name="srv", source="project")
        assert [tool.name for tool in session.server("srv").tools] == ["play"]


def test_the_same_seed_restarts_at_the_same_time() -> None:
    def restarted_at(seed: int) -> int:
        with MemoryHost(seed=seed) as host, host.open_session() as session:
            session.start(Echo)
            with pytest.raises(ExitedError):
                session.call("echo", "crash")
            session.until(lambda: session.extension("echo").health.value == "ready")
            return session.clock.monotonic_ms()

    times = [restarted_at(seed) for seed in range(8)]
    assert times == [restarted_at(seed) for seed in range(8)]
    assert len(set(times)) > 1


def test_a_clock_can_be_brought_along() -> None:
    clock = ManualClock(unix_ms=5_000, monotonic_ms=70)
    with MemoryHost(clock=clock) as host, host.open_session() as session:
        session.start(Echo)
        clock.advance_ms(30)
        session.call("echo", "echo")
        assert session.recorder.entries[-1].at_ms == 30


def test_readers_see_what_was_written() -> None:
    with MemoryHost() as host, host.open_session() as session:
        session.start(Writer)
        session.start(Index)
        session.start(Reader)
        session.call("writer", "write", {"n": 5})
        assert session.call("reader", "read").content[0].text == "5"


def test_a_host_without_patience_lets_no_time_pass(broker_open: Callable[..., MemorySession]) -> None:
    session = broker_open(patience_ms=0)
    session.start(Echo)
    call = session.begin("echo", "never", timeout_ms=10)
    with pytest.raises(SequenceError, match="nothing more happens within 0 ms; the next deadline is in 10 ms"):
        session.settle(call)
    assert session.clock.monotonic_ms() == 0
    with pytest.raises(TimedOutError):
        session.settle(call, within_ms=10)


def test_what_processes_were_and_said_is_kept_when_they_are_gone(broker_session: MemorySession) -> None:
    session = broker_session
    session.session.random_below = lambda bound: 0  # type: ignore[method-assign]
    session.start(Echo)
    with pytest.raises(ExitedError):
        session.call("echo", "crash")
    first, second = session.processes
    second.send_stderr(b"again\n")
    second.request("x", "bus/declare", {})
    session.run()
    assert first.params_of("tool/call")[0]["name"] == "crash"
    assert (first.answer_to("x"), second.answer_to("x")["error"]["code"]) == (None, -32601)
    assert [(number, status) for number, status, _ in session.exits()] == [(1, 3)]
    assert session.diagnostics("echo") == session.diagnostics()
    assert session.diagnostics()[0] == "again"
    assert session.diagnostics("other") == session.exits("other") == []


def test_a_condition_is_asked_no_more_once_it_held(broker_session: MemorySession) -> None:
    asked: list[bool] = []
    broker_session.until(lambda: asked.append(True) or True)  # type: ignore[func-returns-value]
    assert asked == [True]


def test_with_a_manifest_a_factory_is_not_asked_before_its_process_starts(broker_session: MemorySession) -> None:
    made: list[int] = []

    def make(number: int) -> Echo:
        made.append(number)
        raise SetupError("no such program")

    extension = broker_session.add(make_manifest("late", tools=["echo"], path="/elsewhere/extension.toml"), make)
    assert (made, extension.manifest.path) == ([], "/elsewhere/extension.toml")
    with pytest.raises(SetupError, match="no such program"):
        broker_session.settle(extension.start())
    assert made == [1]


def test_a_session_is_moved_and_struck_by_what_can_happen() -> None:
    with MemoryHost() as host, host.open_session() as session:
        with pytest.raises(UsageError, match="time cannot pass backwards: -1 ms"):
            session.advance(-1)
        with pytest.raises(UsageError, match=r"milliseconds: expected a whole number, got 1\.5"):
            session.advance(1.5)  # type: ignore[arg-type]
        with pytest.raises(UsageError, match=r"expected a fault, such as Faults\(\).kill\('name'\), got 'kill'"):
            session.inject("kill")  # type: ignore[arg-type]
        assert host.clock.monotonic_ms() == 0
    with pytest.raises(UsageError, match="patience_ms: expected a whole number from 0, got -1"):
        MemoryHost(patience_ms=-1)


def test_a_replay_has_the_seed_of_the_restarts_and_the_order_that_was_given() -> None:
    with MemoryHost(seed=7, schedule=[1]) as host, host.open_session() as session:
        for name in ("one", "other"):
            session.add(ScriptedExtension, name=name)
        session.start()
        assert host.replay == "MemoryHost(seed=7, schedule=[1])"
    assert MemoryHost(seed=7).replay == "MemoryHost(seed=7)"
    assert MemoryHost().replay == "MemoryHost()"
