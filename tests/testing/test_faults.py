"""Faults on purpose: each strikes whom and when the plan says, and a plan that is drawn strikes the same way again."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from kit_members import Echo, Index, Reader, Writer

from broker.errors import ExitedError, ExtensionError, ProtocolError, TimedOutError, UsageError
from broker.host import HostSettings
from broker.testing import Faults, MemoryHost, MemorySession, ScriptedServer, at, entry, heard, sent
from broker.testing.faults import When

NO_RESTART = HostSettings(restart=False)


def struck(faults: Faults, *, settings: HostSettings = NO_RESTART) -> MemorySession:
    """A session with an echo that the faults befall."""
    session = MemoryHost(faults=faults, settings=settings).open_session()
    session.start(Echo)
    return session


def echoed(session: MemorySession, text: str = "a") -> str:
    content: Any = session.call("echo", "echo", {"text": text}).content[0]
    return str(content.text)


def test_a_kill_at_the_nth_frame_heard() -> None:
    session = struck(Faults().kill("echo", when=heard(3)))
    assert echoed(session) == "a"
    with pytest.raises(ExitedError, match=r"echo \(generation 1\): was killed by signal 9 while it was in use"):
        echoed(session)
    assert session.recorder.found("exited")[0].payload["status"] == -9
    session.recorder.times(1, entry("result", source="echo", payload={"content": ...}))


def test_a_kill_after_the_nth_frame_sent() -> None:
    session = struck(Faults().kill("echo", when=sent(2)))
    assert echoed(session) == "a"  # it had said so
    session.recorder.in_order(entry("result", source="echo", payload={"content": ...}), "kill", "exited")


def test_a_kill_at_a_time_and_of_a_later_generation() -> None:
    faults = Faults().kill("echo", when=at(70)).kill("echo", when=heard("tool/call", 2), generation=2)
    session = struck(faults, settings=HostSettings())
    session.advance(1_000)
    assert [one.at_ms for one in session.recorder.found("exited")] == [70]
    assert echoed(session) == "a"
    with pytest.raises(ExitedError, match="generation 2"):
        echoed(session)
    assert not session.host.driver._faults.to_come


def test_every_generation_can_be_struck() -> None:
    session = struck(Faults().kill("echo", when=heard("tool/call"), generation=None), settings=HostSettings())
    for generation in (1, 2, 3):
        with pytest.raises(ExitedError, match=f"generation {generation}"):
            echoed(session)
        session.advance(2_000)


def test_who_is_stalled_neither_hears_nor_says_until_it_goes_on() -> None:
    session = struck(Faults().stall("echo", for_ms=400, when=heard("tool/call")))
    call = session.begin("echo", "echo", {"text": "late"})
    session.advance(399)
    assert not call.done
    session.advance(1)
    assert call.result().content[0].text == "late"
    session.recorder.exactly_once("tool/call")


def test_who_is_stalled_for_ever_is_ended() -> None:
    session = struck(Faults().stall("echo", when=heard("tool/call")))
    with pytest.raises(TimedOutError):
        echoed(session)
    session.close()
    assert session.recorder.found("exited")[0].payload["status"] == -9


@pytest.mark.parametrize(
    ("which", "problem"), [("output", "closed its output"), ("input", "closed its input"), ("both", "closed its")]
)
def test_a_dropped_pipe(which: Any, problem: str) -> None:
    session = struck(Faults().drop_pipe("echo", which=which, when=heard("tool/call")))
    with pytest.raises(ExitedError, match=f"{problem}.* but did not exit"):
        session.call("echo", "never")


def test_garbage_is_the_end_of_an_extension_and_its_bytes_are_the_seeds() -> None:
    def garbage(seed: int) -> Any:
        session = struck(Faults(seed).garbage("echo", when=sent(2)))
        echoed(session)
        session.recorder.in_order("garbage", entry("garbage", kind="frame"), "crashed")
        return session.recorder.found(entry("garbage", kind="frame"))[0].payload

    assert garbage(1) == garbage(1) != garbage(2)
    session = struck(Faults().garbage("echo", data=b"{}\n", when=heard("tool/call")))
    with pytest.raises(ProtocolError):
        session.call("echo", "never")


def test_a_slow_reader_hears_one_frame_in_its_time() -> None:
    session = struck(Faults().slow_reader("echo", every_ms=100, when=at(0)))
    calls = [session.begin("echo", "echo", {"text": str(number)}) for number in range(3)]
    session.settle(calls[-1])
    assert [one.at_ms for one in session.recorder.found("tool/call")] == [200, 300, 400]
    assert [call.result().content[0].text for call in calls] == ["0", "1", "2"]


@pytest.mark.parametrize("size", [1, 3, None])
def test_split_bytes_change_nothing(size: int | None) -> None:
    whole, split = struck(Faults()), struck(Faults(3).split("echo", size=size))
    for session in (whole, split):
        assert echoed(session, "grüße") == "grüße"
        session.close()
    said = [[one.what for one in session.recorder.found(entry(kind="frame"))] for session in (whole, split)]
    assert said[0] == said[1]
    split.recorder.exactly_once("split")


def test_the_wall_clock_jumps_and_only_times_of_day_do() -> None:
    with MemoryHost(faults=Faults().clock_jump(-3_600_000, when=at(500))) as host, host.open_session() as session:
        session.start(Writer)
        plugin = session.peer("plugin")
        plugin.subscribe("bus.writer.wrote")
        published = []
        for number in (1, 2):
            session.call("writer", "write", {"n": number})
            published.append(plugin.take())
            session.advance(1_000)
        first, second = published
        assert first is not None
        assert second is not None
        assert second.published_at_ms - first.published_at_ms == 1_000 - 3_600_000
        assert host.clock.monotonic_ms() == 2_000
        session.recorder.exactly_once(entry("clock_jump", target="clock"))


def test_after_a_suspension_everything_is_late_at_once() -> None:
    session = struck(Faults().suspend(600_000, when=at(100)))
    call = session.begin("echo", "never", timeout_ms=1_000)
    session.advance(100)
    assert isinstance(call.error, TimedOutError)
    assert session.clock.monotonic_ms() == 600_100


def test_faults_can_be_injected_at_once() -> None:
    session = struck(Faults())
    session.inject(Faults().kill("echo"))
    assert session.extension("echo").health.value == "parked"
    with pytest.raises(UsageError, match=r"kill\('echo', when=.*\): no process called echo runs"):
        session.inject(Faults().kill("echo"))


def test_servers_are_struck_like_extensions() -> None:
    faults = Faults().garbage("srv", data=b"debug output\n", when=heard("tools/call")).kill("srv", when=sent(4))
    with MemoryHost(faults=faults) as host, host.open_session() as session:
        session.start(lambda: ScriptedServer({"work": "done"}), name="srv")
        session.call_server("srv", "work")
        with pytest.raises(ExtensionError):
            session.call_server("srv", "work")
        session.recorder.in_order("garbage", "exited")


def test_a_plan_prints_as_what_makes_it() -> None:
    plan = (
        Faults(7)
        .kill("a", when=heard("bus/event", 2))
        .stall("a")
        .stall("b", for_ms=50, when=sent(3), generation=2)
        .garbage("a")
        .drop_pipe("b", which="output", when=heard("tool/call"), generation=None)
        .slow_reader("a", every_ms=10)
        .split("a")
        .split("b", size=2)
        .clock_jump(-5, when=at(10))
        .suspend(5, when=at(20))
    )
    again = eval(repr(plan), {"Faults": Faults, "heard": heard, "sent": sent, "at": at})
    assert again.faults == plan.faults
    assert repr(again) == repr(plan)


def test_what_is_drawn_is_the_same_for_the_same_seed() -> None:
    plans = [repr(Faults(seed).any_of(["a", "b"], count=4)) for seed in range(6)]
    assert plans == [repr(Faults(seed).any_of(["a", "b"], count=4)) for seed in range(6)]
    assert len(set(plans)) == 6


@given(seed=st.integers(0, 2**32))
@settings(max_examples=40)
def test_whatever_is_struck_by_whatever_everything_settles(seed: int) -> None:
    def run() -> str:
        faults = Faults(seed).any_of(["writer", "index", "reader"], count=3)
        with MemoryHost(seed=seed, faults=faults) as host, host.open_session() as session:
            for member in (Writer, Index, Reader):
                session.add(member)
            try:
                session.start()
                for number in (1, 2, 3):
                    session.call("writer", "write", {"n": number}, timeout_ms=2_000)
                    session.call("reader", "read", timeout_ms=2_000)
            except ExtensionError:
                pass
            session.advance(5_000)
        assert not session.bus.statistics().peers
        return "\n".join(f"{one.at_ms} {one.source} {one.target} {one.what}" for one in session.recorder.entries)

    assert run() == run()


@pytest.mark.parametrize(
    ("make", "problem"),
    [
        (lambda: Faults().kill("a", when=5), "when: expected at(ms), heard(n) or sent(n), got 5"),  # type: ignore[arg-type]
        (lambda: Faults().stall("a", for_ms=0), "for_ms: expected a whole number from 1, got 0"),
        (lambda: Faults().split("a", size=0), "size: expected a whole number from 1, got 0"),
        (lambda: Faults().drop_pipe("a", which="all"), "which: expected 'input', 'output' or 'both', got 'all'"),  # type: ignore[arg-type]
        (lambda: Faults().clock_jump(1, when=heard(1)), "clock_jump: a clock hears no frames; give when=at(ms)"),
        (lambda: heard(0), "the number of a frame: expected a whole number from 1, got 0"),
        (lambda: at(-1), "at: expected a whole number from 0, got -1"),
    ],
)
def test_a_plan_that_means_nothing_is_refused(make: Any, problem: str) -> None:
    with pytest.raises(UsageError) as raised:
        make()
    assert str(raised.value) == problem


def test_moments_print_as_they_are_written() -> None:
    assert [repr(one) for one in (at(5), heard(), sent(2), heard("tool/call"), sent("bus/publish", 3))] == [
        "at(5)",
        "heard(1)",
        "sent(2)",
        "heard('tool/call')",
        "sent('bus/publish', 3)",
    ]
    assert heard() == When(direction="heard", nth=1)


@pytest.mark.parametrize("names", ["collector", []])
def test_faults_of_nobody_are_refused(names: Any) -> None:
    with pytest.raises(UsageError, match="any_of: expected a list of names, got"):
        Faults().any_of(names)
