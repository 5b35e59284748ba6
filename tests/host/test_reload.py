"""A reload: a new generation beside the serving one, and what becomes of either when something goes wrong."""

from __future__ import annotations

from typing import Any

import pytest
from scripts import EMPTY, Actor, exits

from broker.errors import CancelledError, ExitedError, NegotiationError, SetupError, UsageError
from broker.host import Health
from broker.testing import make_manifest

HOOKS = ("lifecycle_events",)
SILENT = {"initialize": None}


def start(memory: Any, *plays: Any, hooks: bool = False) -> Any:
    """Start ``alpha``; generation n plays the n-th of ``plays``, later ones behave well."""
    capabilities = HOOKS if hooks else ()

    def make(number: int) -> Actor:
        return Actor(plays[number - 1] if number <= len(plays) else {}, capabilities=capabilities)

    return memory.start(make, name="alpha")


def let_in(actor: Actor) -> None:
    """Answer an initialize that was left open."""
    actor.answer(actor.received[0]["id"], actor.selection(actor.received[0]["params"]["contract"]))


@pytest.mark.spec("octet.process.reload-candidate")
def test_the_old_generation_serves_until_the_new_one_is_negotiated(memory: Any) -> None:
    extension = start(memory, {}, SILENT)
    reload = extension.reload()
    memory.run()
    old, new = memory.processes
    memory.call("alpha", "work", {"n": 1})
    assert not reload.done
    assert old.params_of("tool/call")[0]["arguments"] == {"n": 1}
    let_in(new)
    assert memory.settle(reload) is extension
    memory.call("alpha", "work", {"n": 2})
    assert new.heard == ["initialize", "tool/call"]
    assert old.heard == ["initialize", "tool/call", "shutdown"]
    assert memory.exits() == [(1, 0, "stopped")]
    assert extension.health is Health.READY
    assert [generation.number for generation in extension.generations] == [2]


@pytest.mark.spec("octet.process.reload-failed", "octet.process.generation")
@pytest.mark.parametrize("fault", ["exit", "refused", "spawn", "timeout"])
def test_a_candidate_that_fails_leaves_the_old_one_alone(memory: Any, fault: str) -> None:
    plays = {"exit": {"initialize": exits(4)}, "timeout": SILENT}

    def make(number: int) -> Actor:
        if number != 2:
            return Actor()
        if fault == "spawn":
            raise SetupError("gone")
        return Actor(tools=("another",)) if fault == "refused" else Actor(plays[fault])

    extension = memory.start(make, name="alpha")
    before = extension.generation
    reload = extension.reload()
    pending = extension.call("work", {})
    memory.advance(30_000 if fault == "timeout" else 0)
    assert reload.done
    assert type(reload.error).__name__ == {
        "exit": "ExitedError", "refused": "NegotiationError", "spawn": "SetupError", "timeout": "TimedOutError",
    }[fault]  # fmt: skip
    assert pending.result() is not None
    assert extension.generation is before
    assert extension.health is Health.READY
    assert memory.processes[0].heard == ["initialize", "tool/call"]
    memory.advance(600_000)
    assert [number for number, _, _ in memory.exits()] == [2]
    memory.settle(extension.reload())
    assert extension.generation.number == 3


def test_pending_calls_may_finish_in_the_old_generation(memory: Any) -> None:
    extension = start(memory, {"tool/call": None})
    pending = extension.call("work", {})
    memory.settle(extension.reload())
    old, new = memory.processes
    assert old.heard == ["initialize", "tool/call"]
    memory.advance(4_999)
    assert not pending.done
    old.finish()
    memory.settle(pending)
    assert old.heard == ["initialize", "tool/call", "shutdown"]
    assert new.heard == ["initialize"]
    assert memory.exits() == [(1, 0, "stopped")]


@pytest.mark.spec("octet.tool-call.never-replayed")
def test_pending_calls_are_cancelled_at_the_drain_deadline_and_not_repeated(memory: Any) -> None:
    extension = start(memory, {"tool/call": None})
    pending = extension.call("work", {})
    memory.settle(extension.reload())
    memory.advance(4_999)
    assert not pending.done
    memory.advance(1)
    assert isinstance(pending.error, CancelledError)
    assert pending.error.reason == "reload drain deadline"
    old, new = memory.processes
    assert old.heard == ["initialize", "tool/call", "$/cancelRequest", "shutdown"]
    assert old.params_of("$/cancelRequest") == [{"id": 2, "reason": "reload drain deadline"}]
    assert new.heard == ["initialize"]
    memory.call("alpha", "work")


@pytest.mark.spec("octet.process.reload-compatible")
def test_a_manifest_that_contributes_something_else_is_refused(memory: Any) -> None:
    extension = start(memory)
    before = extension.manifest
    for other in (
        make_manifest("beta", tools=["work"]),
        make_manifest("alpha", tools=["work", "more"]),
        make_manifest("alpha", tools=["work"], hooks=["session_start", "session_end"]),
    ):
        with pytest.raises(SetupError, match="a reload must keep name, API version, tools and hooks"):
            extension.reload(other)
    assert extension.manifest is before
    memory.run()
    assert len(memory.processes) == 1
    newer = make_manifest("alpha", path="/elsewhere/extension.toml", tools=["work"], version="1.0.1")
    memory.settle(extension.reload(newer))
    assert extension.manifest is newer
    told = memory.processes[1].params_of("initialize")[0]["extension"]["manifest_path"]
    assert told == "/elsewhere/extension.toml"


@pytest.mark.spec("octet.process.reload-failed")
def test_a_failed_candidates_manifest_is_forgotten(memory: Any) -> None:
    memory.session.random_below = lambda bound: 0
    extension = start(memory, {"tool/call": exits(1)}, {"initialize": exits(1)})
    before = extension.manifest
    reload = extension.reload(make_manifest("alpha", path="/broken/extension.toml", tools=["work"]))
    memory.run()
    assert isinstance(reload.error, ExitedError)
    assert extension.manifest is before
    extension.call("work", {})
    memory.run()
    assert extension.generation.number == 3
    assert memory.processes[2].params_of("initialize")[0]["extension"]["manifest_path"] == before.path


def test_only_one_reload_at_a_time_and_only_of_what_serves(memory: Any) -> None:
    extension = start(memory, {}, SILENT)
    extension.reload()
    with pytest.raises(UsageError, match="is being reloaded already"):
        extension.reload()
    other = memory.add(Actor, name="beta")
    with pytest.raises(UsageError, match="beta cannot be reloaded while it is stopped"):
        other.reload()


def test_a_stop_during_a_reload_ends_both(memory: Any) -> None:
    extension = start(memory, {}, SILENT, hooks=True)
    reload = extension.reload()
    memory.run()
    memory.settle(extension.stop())
    assert isinstance(reload.error, CancelledError)
    old, new = memory.processes
    assert old.heard == ["initialize", "session_start", "session_end", "shutdown"]
    assert new.heard == ["initialize"]
    assert sorted((number, status) for number, status, _ in memory.exits()) == [(1, 0), (2, -9)]
    memory.advance(600_000)
    assert len(memory.processes) == 2


@pytest.mark.spec("octet.hook.start-once", "octet.shutdown.order")
def test_a_stop_while_the_old_generation_ends_starts_no_session_in_the_new_one(memory: Any) -> None:
    extension = start(memory, {"session_end": None}, hooks=True)
    memory.settle(extension.reload())
    old, new = memory.processes
    stop = extension.stop()
    memory.advance(250)
    assert new.heard == ["initialize", "shutdown"]
    memory.advance(5_000)
    assert stop.done
    assert new.heard == ["initialize", "shutdown"]
    assert old.heard.count("session_end") == 1


@pytest.mark.spec("octet.hook.crash-end", "octet.process.reload-candidate")
def test_a_crash_of_the_old_generation_leaves_the_candidate_to_serve(memory: Any) -> None:
    extension = start(memory, {"tool/call": exits(5)}, SILENT, hooks=True)
    reload = extension.reload()
    memory.run()
    call = extension.call("work", {})
    memory.run()
    assert isinstance(call.error, ExitedError)
    assert extension.health is Health.CRASHED
    assert not reload.done
    assert len(memory.processes) == 2
    let_in(memory.processes[1])
    assert memory.settle(reload) is extension
    assert extension.health is Health.READY
    new = memory.processes[1]
    assert new.heard == ["initialize", "session_end", "session_start"]
    (end,) = new.params_of("session_end")
    assert (end["payload"]["binding"]["process_generation"], end["payload"]["reason"]) == (1, "crash")
    memory.call("alpha", "work")
    memory.settle(extension.reload())
    assert extension.generation.number == 3


def test_a_crash_of_both_generations_is_followed_by_a_restart(memory: Any) -> None:
    memory.session.random_below = lambda bound: 0
    extension = start(memory, {"tool/call": exits(5)}, SILENT)
    reload = extension.reload()
    memory.run()
    extension.call("work", {})
    memory.run()
    memory.processes[1].exit(6)
    memory.run()
    assert isinstance(reload.error, ExitedError)
    assert extension.generation.number == 3
    memory.call("alpha", "work")


def test_a_crash_of_the_new_generation_before_the_switch_is_over_is_a_crash(memory: Any) -> None:
    memory.session.random_below = lambda bound: 0
    extension = start(memory, {"session_end": None}, {"tool/call": exits(5)}, hooks=True)
    memory.settle(extension.reload())
    extension.call("work", {})
    memory.run()
    memory.advance(10_000)
    assert extension.generation is not None
    assert extension.generation.number == 3
    third = memory.processes[2]
    assert third.heard == ["initialize", "session_start"]
    assert len(extension.generations) == 1


@pytest.mark.spec("octet.hook.reload-order", "octet.hook.reason-words")
def test_the_old_generation_gets_its_end_before_the_new_one_its_start(memory: Any) -> None:
    order: list[tuple[int, str]] = []

    def noted(number: int, what: str) -> Any:
        def act(actor: Actor, message: dict[str, Any]) -> None:
            order.append((number, what))
            actor.answer(message["id"], {"disposition": {"kind": "continue"}})

        return act

    extension = start(
        memory,
        {"session_start": noted(1, "start"), "session_end": noted(1, "end")},
        {"session_start": noted(2, "start"), "session_end": noted(2, "end")},
        hooks=True,
    )
    memory.settle(extension.reload())
    memory.settle(extension.stop())
    assert order == [(1, "start"), (1, "end"), (2, "start"), (2, "end")]
    (end,) = memory.processes[0].params_of("session_end")
    assert end["payload"]["binding"]["process_generation"] == 1
    assert (end["payload"]["outcome"], end["payload"]["reason"]) == ("interrupted", "reload")


@pytest.mark.spec("octet.process.restart-parked")
def test_an_old_generation_that_crashes_beside_a_refused_candidate_is_not_left_hanging(memory: Any) -> None:
    def make(number: int) -> Actor:
        return Actor({"tool/call": exits(1)}) if number == 1 else Actor(SILENT, tools=("another",))

    extension = memory.start(make, name="alpha")
    reload = extension.reload()
    memory.run()
    extension.call("work", {})
    memory.run()
    let_in(memory.processes[1])
    memory.run()
    assert isinstance(reload.error, NegotiationError)
    assert extension.health is Health.PARKED
    assert extension.ended


def test_answers_of_the_old_generation_reach_their_callers_after_the_switch(memory: Any) -> None:
    extension = start(memory, {"tool/call": None})
    first, second = extension.call("work", {"n": 1}), extension.call("work", {"n": 2})
    memory.settle(extension.reload())
    third = extension.call("work", {"n": 3})
    old = memory.processes[0]
    calls = [message for message in old.received if message.get("method") == "tool/call"]
    for message in reversed(calls):
        old.answer(message["id"], {**EMPTY, "metadata": message["params"]["arguments"]})
    memory.run()
    assert first.result().metadata == {"n": 1}
    assert second.result().metadata == {"n": 2}
    assert third.result().metadata is None
