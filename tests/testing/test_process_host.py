"""A session over real processes that a test drives as it drives one in memory."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest
from kit_members import Echo, Index, Reader, Writer, late_server, slow_server

from broker.errors import ExitedError, InvalidParamsError, SetupError, UsageError
from broker.testing import (
    DrivenSession,
    Faults,
    ManualClock,
    MemorySession,
    ProcessHost,
    ProcessSession,
    ScriptedFeatureExtension,
    SequenceError,
    write_extension,
    write_server,
)

Open = Callable[..., DrivenSession]


class Telling(Echo):
    """Writes its process id to stderr."""

    def __init__(self) -> None:
        super().__init__()
        self.send_stderr(b"%d\n" % os.getpid())


class Other(Echo):
    def __init__(self) -> None:
        super().__init__()
        self.tools = ("echo", "never")


class Late(ScriptedFeatureExtension):
    def __init__(self) -> None:
        super().__init__(tools=("look",), text="seen")


def test_one_test_runs_both_ways(broker_both_ways: Open, request: pytest.FixtureRequest) -> None:
    session = broker_both_ways()
    assert type(session) is (MemorySession if "memory" in request.node.name else ProcessSession)
    for member in (Writer, Index, Reader):
        session.add(member)
    session.start()
    session.until(lambda: len([peer for peer in session.bus.statistics().peers if peer.active]) == 2)
    session.call("writer", "write", {"n": 7})
    session.until(lambda: session.call("reader", "read").content[0].text == "7")  # type: ignore[union-attr]
    session.start(slow_server, name="srv")
    assert session.call_server("srv", "work").text == "done"
    session.stop("srv")
    assert session.exits("srv") == [(1, 0, "stopped")]
    session.close()
    session.close()
    assert session.session.closed


def test_a_kill_hits_the_newest_process_or_the_one_that_is_named(broker_both_ways: Open) -> None:
    session = broker_both_ways()
    session.session.random_below = lambda bound: 0  # type: ignore[method-assign]
    echo = session.start(Echo)
    call = session.begin("echo", "never")
    session.reload("echo")
    session.inject(Faults().kill("echo"), generation=1)
    with pytest.raises(ExitedError, match="generation 1"):
        session.settle(call)
    session.inject(Faults().kill("echo"))
    session.until(lambda: echo.generation is not None and echo.generation.number == 3)
    assert [(number, status) for number, status, _ in session.exits()] == [(1, -9), (2, -9)]


def test_another_program_takes_over_at_the_next_generation(broker_both_ways: Open) -> None:
    session = broker_both_ways()
    session.start(Echo)
    session.replace("echo", Other)
    with pytest.raises(Exception, match="tools"):
        session.reload("echo")
    session.replace("echo", Echo)
    assert session.reload("echo").generation is not None


@pytest.mark.parametrize("version", ["0.1", "0.2", "0.4"])
def test_a_feature_extension_speaks_what_its_manifest_says(broker_both_ways: Open, version: str) -> None:
    session = broker_both_ways()
    extension = session.start(Late, api_version=version)
    assert (extension.manifest.api_version, session.call("late", "look").content[0].text) == (version, "seen")  # type: ignore[union-attr]


def test_what_is_on_disk_already_is_started_as_it_is(tmp_path: Path) -> None:
    path = write_extension(tmp_path / "somewhere", Echo, name="there")
    with ProcessHost(tmp_path / "other") as host:
        session = host.open_session(tmp_path)
        extension = session.start(path)
        assert session.call("there", "echo", {"text": "a"}).content[0].text == "a"  # type: ignore[union-attr]
        session.stop("there")
        assert session.start(extension.manifest).name == "there"
        session.start(write_server(tmp_path / "srv", slow_server, name="srv"))
        assert session.call_server("srv", "work").text == "done"
        with pytest.raises(UsageError, match="give nothing with it that it says itself"):
            session.add(path, name="else")
        with pytest.raises(SetupError):
            session.add(tmp_path / "nowhere")
        write_extension(tmp_path / "both" / "one", Echo, name="one")
        write_extension(tmp_path / "both" / "two", Echo, name="two")
        with pytest.raises(UsageError, match="holds 2 extensions; name one"):
            session.add(tmp_path / "both")
        with pytest.raises(UsageError, match="cannot be found by another process"):
            session.add(Echo(), name="echo")
    assert not (tmp_path / "other").exists()


def test_time_is_real_or_the_tests(tmp_path: Path) -> None:
    with ProcessHost(tmp_path, clock=ManualClock()) as host:
        session = host.open_session(tmp_path)
        session.start(Echo)
        call = session.begin("echo", "never", timeout_ms=500)
        session.advance(499)
        assert not call.done
        session.advance(1)
        assert call.done
    assert session.exits()[0][1] == -9
    with ProcessHost(tmp_path) as host:
        session = host.open_session(tmp_path)
        with pytest.raises(UsageError, match="give its host clock="):
            session.advance(1)
        session.start(late_server)
        assert session.call_server("late-server", "work").text == "late"


def test_what_does_not_come_is_shown_and_no_process_is_left(tmp_path: Path, gone: Callable[..., None]) -> None:
    def wait_for_nothing(wait: Callable[[ProcessSession], object]) -> None:
        with ProcessHost(tmp_path) as host:
            session = host.open_session(tmp_path)
            session.start(Telling)
            session.until(lambda: session.diagnostics())
            pids.extend(map(int, session.diagnostics()))
            wait(session)

    pids: list[int] = []
    waits: list[tuple[Callable[[ProcessSession], object], str]] = [
        (lambda session: session.settle(session.begin("telling", "never"), within_ms=50), "still open after 0.05 s:"),
        (lambda session: session.until(lambda: False, within_ms=50), "did not come to hold within 0.05 s:"),
    ]
    for wait, problem in waits:
        with pytest.raises(SequenceError, match=f"(?s){problem}.*started"):
            wait_for_nothing(wait)
    gone(*pids)


def test_a_session_is_a_context_as_one_in_memory_is(tmp_path: Path) -> None:
    with ProcessHost(tmp_path) as host:
        with host.open_session(tmp_path) as session:
            session.start(Echo)
            assert session.call("echo", "echo", {"text": "a"}).content[0].text == "a"  # type: ignore[union-attr]
        assert session.session.closed
        with pytest.raises(InvalidParamsError), host.open_session(tmp_path) as session:
            session.call(session.start(Echo).name, "none", {})
        assert session.session.closed and session.exits("echo")[0][2] == "the test is over"
