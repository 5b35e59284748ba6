"""Every deadline, expiry, back-off and grace of a host in memory comes by the clock of the test, to the millisecond."""

from __future__ import annotations

import errno
from typing import Any

import pytest
from kit_members import Echo, text

from broker.adapters.event_retry import RetryingLog
from broker.bus import Field
from broker.errors import EventLogError, ExitedError, TimedOutError
from broker.host import HostSettings
from broker.limits import (
    CANCEL_GRACE_MS,
    EVENT_RETRY_BASE_MS,
    EXIT_GRACE_MS,
    MAX_BUS_MESSAGE_AGE_MS,
    MAX_RESTARTS,
    RELOAD_DRAIN_MS,
    REQUEST_TIMEOUT_MS,
    RESTART_BASE_MS,
    RESTART_CAP_MS,
    RESTART_RESET_MS,
    SERVER_EOF_GRACE_MS,
    SERVER_TERM_GRACE_MS,
    SERVER_TIMEOUT_SECONDS,
    SESSION_HOOK_TIMEOUT_MS,
    SHUTDOWN_TIMEOUT_MS,
    STREAM_END_GRACE_MS,
)
from broker.testing import (
    ManualClock,
    MemoryHost,
    MemorySession,
    Script,
    ScriptedExtension,
    ScriptedServer,
    entry,
)
from broker.testing.script import capture, captured, close_output, expect, request
from broker.wire.odek.events.event import Event


class Stubborn(ScriptedExtension):
    """Answers the handshake and nothing else, and ends only when it is killed."""

    def __init__(self) -> None:
        super().__init__(tools=("work",))

    def on_message(self, message: dict[str, Any]) -> None:
        if message.get("method") == "initialize":
            super().on_message(message)

    def on_eof(self) -> None:
        pass


class StubbornServer(ScriptedServer):
    """Answers no call, and hears neither the end of its input nor SIGTERM."""

    def __init__(self) -> None:
        super().__init__({"work": ""})

    def on_message(self, message: Any) -> None:
        if message.get("method") != "tools/call":
            super().on_message(message)

    def on_eof(self) -> None:
        pass

    def on_terminate(self) -> None:
        pass


class Mute(ScriptedExtension):
    """Hears everything and says nothing."""

    def on_message(self, message: dict[str, Any]) -> None:
        pass


def open_session(**settings: Any) -> MemorySession:
    return MemoryHost(settings=HostSettings(**settings)).open_session()


def at(session: MemorySession, what: str, **more: Any) -> list[int]:
    """When it happened."""
    return [one.at_ms for one in session.recorder.found(entry(what, **more))]


@pytest.mark.spec("octet.bus.age-exact")
def test_events_in_process_expire() -> None:
    session = open_session()
    alpha, beta = session.peer("alpha"), session.peer("beta")
    alpha.declare("bus.alpha.tick", [Field.integer("n")])
    beta.subscribe("bus.alpha.tick")
    alpha.publish("bus.alpha.tick", {"n": 1})
    session.advance(MAX_BUS_MESSAGE_AGE_MS)
    assert beta.take() is not None
    alpha.publish("bus.alpha.tick", {"n": 2})
    session.advance(MAX_BUS_MESSAGE_AGE_MS + 1)
    assert beta.take() is None
    assert beta.statistics().expired == 1


@pytest.mark.spec("octet.bus.age-exact")
@pytest.mark.parametrize(("stalled_ms", "heard"), [(MAX_BUS_MESSAGE_AGE_MS, 1), (MAX_BUS_MESSAGE_AGE_MS + 1, 0)])
def test_events_for_an_extension_that_does_not_read_expire(stalled_ms: int, heard: int) -> None:
    session = open_session()
    follower = Script(
        expect("bus/lifecycle", {"kind": "binding", "binding_id": capture("binding")}),
        request("bus/subscribe", {"binding_id": captured("binding"), "topic": "bus.alpha.tick"}),
        capabilities=("event_bus",),
    )
    alpha = session.peer("alpha")
    alpha.declare("bus.alpha.tick", [Field.integer("n")])
    session.start(follower, name="beta")
    process = session.process("beta")
    process.reading = False
    alpha.publish("bus.alpha.tick", {"n": 1})
    session.advance(stalled_ms)
    process.reading = True
    session.run()
    session.recorder.times(heard, "bus/event")


@pytest.mark.spec("octet.initialize.timeout")
def test_a_start_times_out() -> None:
    session = open_session()
    with pytest.raises(TimedOutError):
        session.start(Mute)
    assert at(session, "crashed") == [REQUEST_TIMEOUT_MS]


@pytest.mark.spec("octet.tool-call.timeout", "octet.cancel.grace")
def test_a_call_times_out_and_is_ended_after_the_grace() -> None:
    session = open_session()
    session.start(Stubborn)
    with pytest.raises(TimedOutError):
        session.call("stubborn", "work", timeout_ms=700)
    session.until(lambda: session.extension("stubborn").health.value != "ready")
    assert at(session, "$/cancelRequest") == [700]
    assert at(session, "crashed") == [700 + CANCEL_GRACE_MS]


@pytest.mark.spec("octet.shutdown.timeout")
def test_the_ladder_of_a_shutdown() -> None:
    session = open_session()
    session.start(Stubborn)
    session.close()
    assert at(session, "shutdown") == [0]
    assert at(session, "exited") == [SHUTDOWN_TIMEOUT_MS + EXIT_GRACE_MS]


@pytest.mark.spec("octet.hook.timeout")
def test_a_session_hook_may_take_its_time_and_no_more() -> None:
    class Hooked(Stubborn):
        def __init__(self) -> None:
            super().__init__()
            self.capabilities = ("lifecycle_events",)

    session = open_session()
    session.start(Hooked)
    session.advance(SESSION_HOOK_TIMEOUT_MS)
    session.close()
    assert at(session, "hook/run") == [0, SESSION_HOOK_TIMEOUT_MS]
    assert at(session, "shutdown") == [SESSION_HOOK_TIMEOUT_MS * 2]


def test_the_end_of_the_output_leaves_a_moment_for_the_exit() -> None:
    session = open_session(restart=False)
    session.start(Script(expect("tool/call"), close_output(), tools=("work",)), name="gone")
    with pytest.raises(ExitedError, match="closed its output but did not exit"):
        session.call("gone", "work")
    assert at(session, "crashed") == [STREAM_END_GRACE_MS]


@pytest.mark.spec("octet.process.restart-backoff", "octet.process.restart-parked")
def test_restarts_back_off_and_are_given_up() -> None:
    session = open_session()
    session.session.random_below = lambda bound: bound - 1  # type: ignore[method-assign]
    session.start(Script(expect("tool/call"), tools=("work",)), name="frail")
    for _ in range(MAX_RESTARTS + 1):
        session.until(lambda: session.extension("frail").health.value == "ready")
        session.process("frail").exit(1)
        session.run()
    pauses = [min(RESTART_BASE_MS << number, RESTART_CAP_MS) for number in range(MAX_RESTARTS)]
    assert at(session, "starting") == [0, *(sum(pauses[: number + 1]) for number in range(MAX_RESTARTS))]
    assert session.extension("frail").health.value == "parked"


@pytest.mark.spec("octet.process.restart-budget")
def test_a_long_life_makes_the_restarts_whole_again() -> None:
    session = open_session()
    session.session.random_below = lambda bound: bound - 1  # type: ignore[method-assign]
    session.start(Echo)
    for life_ms in (0, RESTART_RESET_MS - 1, RESTART_RESET_MS):
        session.advance(life_ms)
        session.process("echo").exit(1)
        session.until(lambda: session.extension("echo").health.value == "ready")
    crashed, started = at(session, "crashed"), at(session, "starting")[1:]
    pauses = [start - crash for crash, start in zip(crashed, started, strict=True)]
    assert pauses == [RESTART_BASE_MS, RESTART_BASE_MS * 2, RESTART_BASE_MS]


def test_a_reload_drains() -> None:
    session = open_session()
    session.start(Echo)
    session.begin("echo", "never")
    session.settle(session.extension("echo").reload())
    session.until(lambda: len(session.extension("echo").generations) == 1)
    assert at(session, "shutdown") == [RELOAD_DRAIN_MS]


def test_a_call_of_a_server_times_out() -> None:
    session = open_session()
    session.start(StubbornServer, name="srv")
    with pytest.raises(TimedOutError):
        session.call_server("srv", "work")
    assert at(session, "raised") == [SERVER_TIMEOUT_SECONDS * 1000]
    assert at(session, "notifications/cancelled") == [SERVER_TIMEOUT_SECONDS * 1000]


def test_the_ladder_of_a_server() -> None:
    session = open_session()
    session.start(StubbornServer, name="srv")
    session.close()
    assert at(session, "draining") == [0]
    assert at(session, "exited") == [SERVER_EOF_GRACE_MS + SERVER_TERM_GRACE_MS]


def test_a_server_that_failed_to_start_is_waited_for() -> None:
    class Failing(ScriptedServer):
        def on_message(self, message: Any) -> None:
            self.exit(1)

    session = open_session()
    with pytest.raises(ExitedError):
        session.start(Failing, name="srv")
    session.start(lambda: ScriptedServer({"work": ""}), name="srv")
    assert at(session, "backoff") == [0]
    assert at(session, "ready") == [RESTART_BASE_MS]


def test_the_time_of_an_object_is_that_of_the_host() -> None:
    class Slow(Echo):
        due: int | None = None
        now = 0
        call: Any = None

        def on_message(self, message: dict[str, Any]) -> None:
            if message.get("method") == "tool/call":
                self.due, self.call = self.now + 120, message["id"]
            else:
                super().on_message(message)

        def next_deadline(self) -> int | None:
            return self.due

        def tick(self, now_ms: int) -> None:
            self.now = now_ms
            if self.due is not None and now_ms >= self.due:
                self.due = None
                self.answer(self.call, text(str(now_ms)))

    for seed in (None, 5):
        session = MemoryHost(seed=seed).open_session()
        session.start(Slow)
        assert session.call("slow", "echo").content[0].text == "120"
        assert session.call("slow", "echo").content[0].text == "240"


def test_an_event_log_is_tried_again_by_the_same_clock() -> None:
    class Full:
        failures = 3

        def write_line(self, line: bytes) -> None:
            if self.failures:
                self.failures -= 1
                raise EventLogError("no room", errno=errno.ENOSPC, written=False)

    clock = ManualClock()
    log: Any = Full()
    RetryingLog(log, report=lambda error: None, wait=clock.wait)(
        Event(type="session_saved", timestamp="x", run_id="ab" * 16, data={})
    )
    assert clock.monotonic_ms() == EVENT_RETRY_BASE_MS * (1 + 2 + 4)


def test_the_wall_clock_changes_nothing_that_is_measured() -> None:
    session = open_session()
    session.start(Stubborn)
    call = session.begin("stubborn", "work", timeout_ms=1_000)
    session.advance(500)
    session.clock.step_wall_ms(3_600_000)
    session.advance(499)
    assert not call.done
    session.clock.step_wall_ms(-7_200_000)
    session.advance(1)
    assert isinstance(call.error, TimedOutError)


def test_who_has_ended_wants_nothing_at_any_time() -> None:
    class Ticking(ScriptedExtension):
        def next_deadline(self) -> int | None:
            return 10

    session = open_session(restart=False)
    session.start(Ticking)
    assert session.host.driver.next_deadline() == 10
    session.process("ticking").exit(0)
    session.run()
    assert session.host.driver.next_deadline() is None


def test_a_deadline_that_does_not_go_away_is_told_whose_it_is() -> None:
    class Forgetful(ScriptedExtension):
        def next_deadline(self) -> int | None:
            return 10

    session = open_session()
    session.start(Forgetful)
    with pytest.raises(
        AssertionError, match=r"a deadline at 10 ms does not go away, now at 10 ms: next_deadline\(\) of forg"
    ):
        session.advance(50)
