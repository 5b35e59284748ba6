"""The end of a process: asked, waited for, killed; every step at its millisecond."""

from __future__ import annotations

from typing import Any

import pytest
from scripts import Actor, answers, exits, refuses

from broker.errors import CancelledError, ExtensionError, UsageError
from broker.host import Exited, Health


def start(memory: Any, play: Any, **options: Any) -> Any:
    return memory.start(lambda: Actor(play, **options), name="alpha")


def stays(actor: Actor, message: dict[str, Any]) -> None:
    actor.answer(message["id"], {"terminal": "shutdown"})


@pytest.mark.spec("octet.shutdown.terminal", "octet.shutdown.graceful", "octet.method.shutdown")
def test_answered_and_exited_is_stopped(memory: Any) -> None:
    extension = start(memory, {})
    memory.settle(extension.stop())
    assert memory.exits() == [(1, 0, "stopped")]
    assert extension.health is Health.STOPPED
    assert memory.processes[0].heard == ["initialize", "shutdown"]
    assert memory.processes[0].params_of("shutdown") == [{}]


@pytest.mark.spec("octet.shutdown.graceful")
@pytest.mark.parametrize("status", [0, 3, -15])
def test_exited_without_an_answer_is_said(memory: Any, status: int) -> None:
    extension = start(memory, {"shutdown": exits(status)})
    memory.settle(extension.stop())
    assert memory.exits() == [(1, status, "ended without acknowledging shutdown")]
    assert [notice.error for notice in memory.notices if isinstance(notice, Exited)] == [None]


@pytest.mark.spec("octet.shutdown.ack-then-eof")
def test_an_answer_and_at_once_the_end_of_output_still_counts(memory: Any) -> None:
    def act(actor: Actor, message: dict[str, Any]) -> None:
        stays(actor, message)
        actor.close_stdout()
        actor.exit(0)

    extension = start(memory, {"shutdown": act})
    memory.settle(extension.stop())
    assert memory.exits() == [(1, 0, "stopped")]


@pytest.mark.spec("octet.shutdown.ack-then-eof")
def test_after_the_answer_the_input_ends(memory: Any) -> None:
    extension = start(memory, {"shutdown": stays})
    memory.settle(extension.stop())
    assert memory.processes[0].stdin_closed
    assert memory.exits() == [(1, 0, "stopped")]


@pytest.mark.spec("octet.shutdown.timeout", "octet.shutdown.graceful")
def test_answered_but_never_exited_is_killed_two_seconds_later(memory: Any) -> None:
    extension = start(memory, {"shutdown": stays, "eof": None})
    stop = extension.stop()
    memory.advance(1_999)
    assert not stop.done
    memory.advance(1)
    assert memory.exits() == [(1, -9, "acknowledged shutdown but did not exit, and was killed")]
    assert stop.done


@pytest.mark.spec("octet.shutdown.timeout", "octet.shutdown.graceful")
def test_one_that_ignores_everything_is_killed_after_four_seconds(memory: Any) -> None:
    extension = start(memory, {"shutdown": None, "eof": None})
    stop = extension.stop()
    memory.advance(1_999)
    assert not memory.processes[0].stdin_closed
    memory.advance(1)
    assert memory.processes[0].stdin_closed
    memory.advance(1_999)
    assert not stop.done
    assert extension.health is Health.DRAINING
    memory.advance(1)
    assert stop.done
    assert memory.exits() == [(1, -9, "was killed without acknowledging shutdown")]
    assert extension.health is Health.STOPPED


@pytest.mark.spec("octet.shutdown.terminal", "octet.method.shutdown")
@pytest.mark.parametrize(
    "answer",
    [
        answers({"terminal": "bye"}),
        answers({}),
        answers({"terminal": "shutdown", "x": 1}),
        refuses(-32603, "internal error"),
    ],
)
def test_another_answer_acknowledges_nothing(memory: Any, answer: Any) -> None:
    extension = start(memory, {"shutdown": answer})
    memory.settle(extension.stop())
    assert memory.exits() == [(1, 0, "ended without acknowledging shutdown")]
    (text,) = memory.diagnostics()
    assert text.startswith("shutdown: ")


@pytest.mark.spec("octet.shutdown.pending-cancelled", "octet.shutdown.order", "octet.cancel.every-request-ends-once")
def test_open_and_waiting_calls_end_with_the_reason_shutdown(memory: Any) -> None:
    extension = start(memory, {"tool/call": None}, limits={"max_concurrent_requests": 1})
    settled: list[str] = []
    calls = [extension.call("work", {"n": n}) for n in range(3)]
    for call in calls:
        call.add_callback(lambda call: settled.append(call.error.reason))
    memory.run()
    memory.settle(extension.stop())
    assert settled == ["shutdown"] * 3
    assert [call.error.dispatched for call in calls] == [True, False, False]
    assert memory.processes[0].heard == ["initialize", "tool/call", "$/cancelRequest", "shutdown"]


@pytest.mark.spec("octet.shutdown.no-new-calls")
def test_a_call_while_draining_is_refused(memory: Any) -> None:
    extension = start(memory, {"shutdown": None})
    extension.stop()
    memory.run()
    with pytest.raises(ExtensionError, match="alpha does not serve: it is draining"):
        extension.call("work", {})
    with pytest.raises(UsageError, match="cannot be reloaded while it is draining"):
        extension.reload()


@pytest.mark.spec("octet.shutdown.idempotent")
def test_stopping_twice_or_after_a_crash_does_nothing_more(memory: Any) -> None:
    memory.session.random_below = lambda bound: bound - 1
    extension = start(memory, {"tool/call": exits(1)})
    extension.call("work", {})
    memory.run()
    stop = extension.stop()
    assert stop is extension.stop()
    memory.settle(stop)
    assert [number for number, _, _ in memory.exits()] == [1]


def test_a_crash_while_draining_is_still_an_end(memory: Any) -> None:
    def act(actor: Actor, message: dict[str, Any]) -> None:
        actor.send_bytes(b"not json\n")

    extension = start(memory, {"shutdown": act, "eof": None})
    memory.settle(extension.stop())
    ((number, status, reason),) = memory.exits()
    assert (number, status) == (1, -9)
    assert "not json" in reason or "offset" in reason
    memory.advance(600_000)
    assert len(memory.processes) == 1


def test_a_process_that_survives_its_killing_is_given_up_and_said(memory: Any) -> None:
    extension = start(memory, {"shutdown": None, "eof": None})
    process = extension.generation._process
    process.kill = lambda: None
    stop = extension.stop()
    memory.advance(5_999)
    assert not stop.done
    memory.advance(1)
    assert stop.done
    assert memory.exits() == [(1, None, "was killed without acknowledging shutdown")]
    assert "the process was killed but has not ended; it is left behind" in memory.diagnostics()


def test_a_closed_session_takes_nothing_more(memory: Any) -> None:
    extension = start(memory, {})
    close = memory.session.close()
    assert memory.session.close() is close
    memory.settle(close)
    assert memory.session.closed
    assert memory.host.host.sessions == ()
    with pytest.raises(UsageError, match="the session is closed"):
        memory.add(Actor, name="beta")
    with pytest.raises(UsageError, match="the session is closed"):
        memory.attach("plugin")
    with pytest.raises(ExtensionError, match="it is stopped"):
        extension.call("work", {})
    memory.host.host.close()
    with pytest.raises(UsageError, match="the host is closed"):
        memory.host.open_session("/")


def test_a_close_settles_when_the_slowest_has_ended(memory: Any) -> None:
    memory.add(Actor, name="quick").start()
    memory.add(lambda: Actor({"shutdown": None, "eof": None}), name="slow").start()
    memory.run()
    close = memory.session.close()
    memory.advance(3_999)
    assert not close.done
    memory.advance(1)
    assert close.done
    assert memory.bus.closed


def test_cancelled_error_of_a_call_says_that_it_may_have_run(memory: Any) -> None:
    extension = start(memory, {"tool/call": None})
    call = extension.call("work", {})
    memory.run()
    memory.settle(memory.session.close())
    assert isinstance(call.error, CancelledError)
    assert call.error.dispatched
