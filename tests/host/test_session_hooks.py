"""Session hooks: one end for every start, whatever the extension answers or does not."""

from __future__ import annotations

from typing import Any

import pytest
from scripts import Actor, answers, exits, refuses

from broker.errors import UsageError
from broker.host import Health

HOOKS = ("lifecycle_events",)


def start(memory: Any, *plays: Any) -> Any:
    def make(number: int) -> Actor:
        return Actor(plays[number - 1] if number <= len(plays) else {}, capabilities=HOOKS)

    return memory.start(make, name="alpha")


@pytest.mark.spec(
    "octet.hook.start-once",
    "octet.hook.end-once",
    "octet.hook.before-shutdown",
    "octet.hook.binding-identity",
    "octet.method.hook-run",
    "octet.hook.settle-reason",
)
@pytest.mark.spec("octet.hook.payload-sanitised", "octet.hook.outcome-words", "octet.hook.reason-words")
@pytest.mark.parametrize(
    ("outcome", "reason"),
    [("completed", "shutdown"), ("failed", "shutdown"), ("cancelled", "cancelled"), ("limit_reached", "shutdown")],
)
def test_a_session_starts_and_ends_once(memory: Any, outcome: str, reason: str) -> None:
    extension = start(memory)
    memory.advance(1_234)
    stop = extension.stop(outcome=outcome)
    assert extension.stop(outcome="failed") is stop
    memory.settle(stop)
    (actor,) = memory.processes
    assert actor.heard == ["initialize", "session_start", "session_end", "shutdown"]
    binding = {
        "session_id": memory.session.session_id,
        "extension_instance_id": extension.instance_id,
        "process_generation": 1,
    }
    assert actor.params_of("session_start") == [{"hook": "session_start", "payload": {"binding": binding}}]
    payload = {"binding": binding, "outcome": outcome, "reason": reason, "duration_ms": 1_234}
    assert actor.params_of("session_end") == [{"hook": "session_end", "payload": payload}]
    assert memory.diagnostics() == []


@pytest.mark.spec("octet.hook.outcome-words")
@pytest.mark.parametrize(
    "outcome",
    ["completed", "failed", "cancelled", "interrupted", "frontend_disconnected", "shutdown", "limit_reached"],
)
def test_each_of_the_seven_outcomes_is_told(memory: Any, outcome: str) -> None:
    extension = start(memory)
    memory.settle(memory.session.close(outcome=outcome))
    assert memory.processes[0].params_of("session_end")[0]["payload"]["outcome"] == outcome
    assert extension.ended


@pytest.mark.spec("octet.hook.outcome-words")
@pytest.mark.parametrize("outcome", ["fine", "", "Completed", "\x1b[31m" * 99])
def test_any_other_outcome_is_refused_and_nothing_ends(memory: Any, outcome: str) -> None:
    extension = start(memory)
    for stop in (extension.stop, memory.session.close):
        with pytest.raises(UsageError, match="is none of completed, failed, ") as caught:
            stop(outcome=outcome)
        assert str(caught.value).isprintable()
    memory.call("alpha", "work")
    assert memory.processes[0].heard == ["initialize", "session_start", "tool/call"]


@pytest.mark.spec("octet.hook.pair-only")
def test_without_the_declared_pair_nothing_is_sent(memory: Any) -> None:
    extension = memory.start(Actor, name="alpha")
    memory.settle(extension.stop())
    assert memory.processes[0].heard == ["initialize", "shutdown"]


@pytest.mark.spec("octet.hook.crash-end", "octet.hook.end-once", "octet.hook.reason-words")
def test_after_a_crash_the_replacement_ends_the_old_session_first(memory: Any) -> None:
    memory.session.random_below = lambda bound: 0
    extension = start(memory, {"tool/call": exits(9)})
    memory.advance(700)
    extension.call("work", {})
    memory.run()
    memory.settle(extension.stop())
    first, second = memory.processes
    assert first.heard == ["initialize", "session_start", "tool/call"]
    assert second.heard == ["initialize", "session_end", "session_start", "session_end", "shutdown"]
    crash, end = (params["payload"] for params in second.params_of("session_end"))
    assert (crash["binding"]["process_generation"], crash["outcome"], crash["reason"]) == (1, "interrupted", "crash")
    assert crash["duration_ms"] == 700
    assert (end["binding"]["process_generation"], end["reason"]) == (2, "shutdown")


def test_a_crash_that_the_replacement_does_not_hear_of_is_not_told_twice(memory: Any) -> None:
    memory.session.random_below = lambda bound: 0
    extension = start(memory, {"tool/call": exits(9)}, {"session_end": exits(9)})
    extension.call("work", {})
    memory.run()
    assert extension.generation.number == 3
    assert memory.processes[1].heard == ["initialize", "session_end"]
    assert memory.processes[2].heard == ["initialize", "session_start"]


@pytest.mark.spec("octet.hook.timeout", "octet.hook.end-once", "octet.hook.bad-result")
def test_a_start_that_is_not_answered_still_gets_its_end(memory: Any) -> None:
    extension = start(memory, {"session_start": None})
    memory.advance(249)
    assert memory.diagnostics() == []
    memory.advance(1)
    assert memory.diagnostics() == ["session_start: no answer to hook/run within 250 ms"]
    assert extension.health is Health.READY
    memory.settle(extension.stop())
    (actor,) = memory.processes
    assert actor.heard == ["initialize", "session_start", "$/cancelRequest", "session_end", "shutdown"]
    assert actor.params_of("$/cancelRequest")[0]["reason"] == "timeout"
    assert memory.exits() == [(1, 0, "stopped")]


@pytest.mark.spec("octet.hook.timeout", "octet.cancel.grace")
def test_a_hook_that_is_never_answered_ends_the_process_after_the_grace(memory: Any) -> None:
    memory.session.random_below = lambda bound: bound - 1
    extension = start(memory, {"session_start": None})
    memory.advance(2_249)
    assert extension.health is Health.READY
    memory.advance(1)
    assert extension.health is Health.BACKOFF
    assert [(number, status) for number, status, _ in memory.exits()] == [(1, -9)]


@pytest.mark.spec("octet.hook.no-veto", "octet.disposition.deny", "octet.disposition.defer")
@pytest.mark.parametrize("kind", ["deny", "defer"])
def test_a_veto_is_recorded_and_not_obeyed(memory: Any, kind: str) -> None:
    veto = answers({"disposition": {"kind": kind, "reason": "not \x1b[2Jnow"}})
    extension = start(memory, {"session_start": veto, "session_end": veto})
    memory.call("alpha", "work")
    memory.settle(extension.stop())
    assert [text.partition(": ")[0] for text in memory.diagnostics()] == ["session_start", "session_end"]
    assert all(f"{kind} is recorded, not obeyed: not " in text for text in memory.diagnostics())
    assert all(text.isprintable() for text in memory.diagnostics())
    assert memory.exits() == [(1, 0, "stopped")]


@pytest.mark.spec("octet.hook.bad-result", "octet.method.hook-run")
@pytest.mark.parametrize(
    "answer",
    [
        answers({}),
        answers({"disposition": {"kind": "perhaps"}}),
        answers({"disposition": {"kind": "deny"}}),
        answers({"disposition": {"kind": "continue", "reason": None}}),
        answers({"disposition": {"kind": "continue"}, "more": 1}),
        refuses(-32603, "internal error"),
    ],
)
def test_a_bad_answer_is_a_diagnostic_and_no_more(memory: Any, answer: Any) -> None:
    extension = start(memory, {"session_start": answer, "session_end": answer})
    memory.call("alpha", "work")
    memory.settle(extension.stop())
    assert [text.partition(": ")[0] for text in memory.diagnostics()] == ["session_start", "session_end"]
    assert memory.exits() == [(1, 0, "stopped")]


@pytest.mark.spec("octet.tool-call.bypass", "octet.shutdown.order")
def test_hooks_and_shutdown_need_no_slot(memory: Any) -> None:
    extension = memory.start(
        lambda: Actor({"tool/call": None}, capabilities=HOOKS, limits={"max_concurrent_requests": 1}), name="alpha"
    )
    extension.call("work", {})
    memory.run()
    memory.settle(extension.stop())
    assert memory.processes[0].heard == [
        "initialize", "session_start", "tool/call", "session_end", "$/cancelRequest", "shutdown",
    ]  # fmt: skip


def test_an_observer_that_stops_a_starting_extension_gets_no_session_started(memory: Any) -> None:
    stops: list[Any] = []
    extension = memory.add(lambda: Actor(capabilities=HOOKS), name="alpha")
    memory.session.add_observer(
        lambda notice: stops.append(extension.stop()) if extension.health is Health.READY and not stops else None
    )
    start = extension.start()
    memory.run()
    assert start.done
    assert stops[0].done
    assert memory.processes[0].heard == ["initialize", "shutdown"]
