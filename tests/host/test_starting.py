"""First starts that fail, and what follows when an extension that served breaks."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from scripts import Actor, exits, refuses

from broker.errors import ExitedError, ExtensionError, NegotiationError, SetupError, TimedOutError, UsageError
from broker.host import Exited, Health, HealthChanged
from broker.testing import make_manifest

LONG_MS = 600_000
CRASH = {"tool/call": exits(9)}


def health(memory: Any) -> list[str]:
    return [notice.health.value for notice in memory.notices if isinstance(notice, HealthChanged)]


def crash(memory: Any, extension: Any) -> None:
    call = extension.call("work", {})
    memory.run()
    assert isinstance(call.error, ExitedError)


def start_and_stay_down(memory: Any, play: Any) -> Any:
    """Start one that fails, let ten minutes pass; the error. Exactly one process was started."""
    extension = memory.add(lambda: Actor(play), name="alpha")
    outcome = extension.start()
    memory.advance(LONG_MS)
    assert len(memory.processes) == 1
    assert extension.health is Health.PARKED
    assert extension.ended
    assert extension.tools == ()
    with pytest.raises(ExtensionError, match="alpha does not serve: it is parked"):
        extension.call("work", {})
    with pytest.raises(UsageError, match="was started already"):
        extension.start()
    return outcome.error


@pytest.mark.spec("octet.process.spawn-failure", "octet.initialize.no-retry")
def test_a_program_that_cannot_be_started_fails_the_start_once(memory: Any) -> None:
    tries: list[int] = []

    def make(number: int) -> Actor:
        tries.append(number)
        raise SetupError("no such program", path="/ext/alpha/main.py")

    extension = memory.add(make_manifest("alpha", tools=["work"]), make)
    outcome = extension.start()
    memory.advance(LONG_MS)
    assert isinstance(outcome.error, SetupError)
    assert outcome.error.path == "/ext/alpha/main.py"
    assert tries == [1]
    assert health(memory) == ["starting", "crashed", "parked"]
    assert memory.exits() == [(1, None, "no such program")]
    assert extension.ended


@pytest.mark.spec("octet.initialize.exit-before-answer", "octet.initialize.no-retry")
def test_an_exit_before_the_answer_names_status_and_stderr(memory: Any) -> None:
    error = start_and_stay_down(memory, {"initialize": exits(3, b"KEY is not set\nsee \x1b[1mREADME\n")})
    assert isinstance(error, ExitedError)
    assert error.status == 3
    assert error.stderr_tail == "KEY is not set\nsee \\x1b[1mREADME"
    assert str(error).startswith("alpha (generation 1): exited with status 3 before it answered initialize; its stderr")
    assert error.extension == "alpha"


@pytest.mark.spec("octet.selection.nothing-visible", "octet.initialize.no-error-frame", "octet.initialize.no-retry")
def test_a_refused_selection_ends_the_process_and_sends_nothing(memory: Any) -> None:
    def other_tools(actor: Actor, message: dict[str, Any]) -> None:
        actor.tools = ("work", "more")
        actor.answer(message["id"], actor.selection(message["params"]["contract"]))

    error = start_and_stay_down(memory, {"initialize": other_tools})
    assert isinstance(error, NegotiationError)
    assert memory.exits() == [(1, -9, str(error))]
    assert memory.processes[0].heard == ["initialize"]
    assert memory.bus.statistics().peers == ()


@pytest.mark.spec("octet.initialize.timeout", "octet.initialize.no-retry")
def test_silence_fails_the_start_at_the_request_timeout(memory: Any) -> None:
    extension = memory.add(lambda: Actor({"initialize": None}), name="alpha")
    outcome = extension.start()
    memory.advance(29_999)
    assert not outcome.done
    assert extension.health is Health.INITIALIZING
    memory.advance(1)
    assert isinstance(outcome.error, TimedOutError)
    assert (outcome.error.method, outcome.error.maximum) == ("initialize", 30_000)
    memory.advance(LONG_MS)
    assert memory.exits() == [(1, -9, str(outcome.error))]
    assert memory.processes[0].heard == ["initialize"]
    assert len(memory.processes) == 1


@pytest.mark.spec("octet.initialize.remote-error", "octet.initialize.no-retry")
def test_an_error_answer_is_a_failed_start_with_its_code(memory: Any) -> None:
    error = start_and_stay_down(
        memory, {"initialize": refuses(-32011, "extension capability mismatch", data={"why": "too old"})}
    )
    assert isinstance(error, NegotiationError)
    assert (error.code, error.data) == (-32011, {"why": "too old"})
    assert memory.exits() == [(1, -9, str(error))]


@pytest.mark.spec("octet.envelope.error-pair")
def test_an_error_answer_outside_the_table_is_no_better(memory: Any) -> None:
    error = start_and_stay_down(memory, {"initialize": refuses(-32000, "\x1b[31mgo away")})
    assert isinstance(error, ExtensionError)
    assert "\x1b" not in str(error)


@pytest.mark.spec("octet.initialize.first-request", "octet.initialize.octet-version", "octet.initialize.extension")
@pytest.mark.spec("octet.initialize.workspace", "octet.initialize.host", "octet.initialize.manifest-members")
@pytest.mark.spec("octet.version.announced", "octet.initialize.api-version", "octet.initialize.flag-values")
def test_initialize_says_what_is_started_where_and_by_whom(memory: Any, tmp_path: Path) -> None:
    memory.start(Actor, name="alpha")
    (message,) = memory.processes[0].received
    assert (message["id"], message["method"]) == (1, "initialize")
    assert tmp_path.is_absolute()
    assert {name: value for name, value in message["params"].items() if name != "contract"} == {
        "api_version": "0.3",
        "octet_version": "0.8.0",
        "extension": {
            "manifest_path": "/extensions/alpha/extension.toml",
            "name": "alpha",
            "source": "explicit",
            "version": "1.0.0",
        },
        "workspace": str(tmp_path),
        "capabilities": {"filesystem": "none", "network": False, "process": False},
        "contributes": {
            "commands": [],
            "confirmations": False,
            "context": False,
            "hooks": [],
            "notifications": False,
            "shortcuts": [],
            "tool_renderers": [],
            "tools": ["work"],
            "ui": [],
        },
        "flag_values": [],
        "host": {
            "active_skills": [],
            "model": None,
            "reasoning": None,
            "session_id": memory.session.session_id,
            "session_name": None,
        },
    }


@pytest.mark.spec("octet.initialize.first-request")
def test_a_slow_starter_is_waited_for_and_told_nothing_meanwhile(memory: Any) -> None:
    extension = memory.add(lambda: Actor({"initialize": None}), name="alpha")
    outcome = extension.start()
    memory.advance(8_000)
    (actor,) = memory.processes
    assert actor.heard == ["initialize"]
    actor.answer(actor.received[0]["id"], actor.selection(actor.received[0]["params"]["contract"]))
    assert memory.settle(outcome) is extension
    memory.call("alpha", "work")
    assert len(memory.processes) == 1


@pytest.mark.spec("octet.process.restart-backoff", "octet.process.restart-budget")
def test_restarts_wait_longer_and_longer_and_end_after_the_eighth(memory: Any) -> None:
    bounds: list[int] = []
    memory.session.random_below = lambda bound: bounds.append(bound) or bound - 1
    extension = memory.add(lambda number: Actor(CRASH if number == 1 else {"initialize": exits(1)}), name="alpha")
    memory.settle(extension.start())
    crash(memory, extension)
    assert extension.health is Health.BACKOFF
    assert not extension.ended
    times: list[int] = []
    while extension.health is not Health.PARKED:
        due = memory.session.next_deadline()
        times.append(due - memory.clock.monotonic_ms())
        memory.advance(times[-1])
    ceilings = [250, 500, 1_000, 2_000, 4_000, 8_000, 16_000, 30_000]
    assert bounds == [ceiling + 1 for ceiling in ceilings]
    assert times == ceilings
    assert [number for number, _, _ in memory.exits()] == list(range(1, 10))
    memory.advance(LONG_MS)
    assert len(memory.processes) == 9
    assert extension.ended


@pytest.mark.spec("octet.process.restart-backoff")
def test_the_delay_may_be_nothing_at_all(memory: Any) -> None:
    memory.session.random_below = lambda bound: 0
    extension = memory.start(lambda number: Actor(CRASH if number < 3 else {}), name="alpha")
    crash(memory, extension)
    assert extension.generation.number == 2
    crash(memory, extension)
    assert extension.generation.number == 3
    memory.call("alpha", "work")


@pytest.mark.spec("octet.process.restart-budget")
@pytest.mark.parametrize(("ready_ms", "ceiling"), [(29_999, 500), (30_000, 250)])
def test_half_a_minute_of_service_makes_the_budget_whole(memory: Any, ready_ms: int, ceiling: int) -> None:
    bounds: list[int] = []
    memory.session.random_below = lambda bound: bounds.append(bound) or 0
    extension = memory.start(lambda: Actor(CRASH), name="alpha")
    crash(memory, extension)
    memory.advance(ready_ms)
    crash(memory, extension)
    assert bounds == [251, ceiling + 1]


@pytest.mark.spec("octet.process.restart-budget")
def test_service_between_crashes_that_is_too_short_uses_the_budget_up(memory: Any) -> None:
    memory.session.random_below = lambda bound: bound - 1
    extension = memory.start(lambda: Actor(CRASH), name="alpha")
    for _ in range(9):
        memory.advance(30_000 - 250 if extension.generation is None else 0)
        if extension.generation is None:
            memory.advance(300)
        crash(memory, extension)
    assert extension.health is Health.PARKED
    assert len(memory.processes) == 9


@pytest.mark.spec("octet.process.restart-parked")
def test_a_restart_that_does_not_negotiate_parks_at_once(memory: Any) -> None:
    def make(number: int) -> Actor:
        return Actor(CRASH) if number == 1 else Actor(tools=("another",))

    memory.session.random_below = lambda bound: 0
    extension = memory.start(make, name="alpha")
    crash(memory, extension)
    memory.advance(LONG_MS)
    assert extension.health is Health.PARKED
    assert len(memory.processes) == 2


@pytest.mark.spec("octet.process.restart-backoff")
def test_no_second_process_is_started_while_a_handshake_runs(memory: Any) -> None:
    memory.session.random_below = lambda bound: 0
    extension = memory.start(lambda number: Actor(CRASH if number == 1 else {"initialize": None}), name="alpha")
    crash(memory, extension)
    memory.advance(29_999)
    assert len(memory.processes) == 2
    assert extension.health is Health.INITIALIZING
    memory.advance(1)
    assert len(memory.processes) == 3


def test_a_host_may_do_without_restarts(make_memory: Callable[..., Any]) -> None:
    memory = make_memory(restart=False)
    extension = memory.start(lambda: Actor(CRASH), name="alpha")
    crash(memory, extension)
    memory.advance(LONG_MS)
    assert extension.health is Health.PARKED
    assert len(memory.processes) == 1


@pytest.mark.spec("octet.process.health-words")
def test_health_goes_through_its_words(memory: Any) -> None:
    assert {word.value for word in Health} == {
        "starting", "initializing", "ready", "degraded", "draining", "stopped", "crashed", "backoff", "parked",
    }  # fmt: skip
    memory.session.random_below = lambda bound: bound - 1
    extension = memory.start(lambda number: Actor(CRASH if number == 1 else {}), name="alpha")
    crash(memory, extension)
    memory.advance(250)
    memory.settle(memory.session.close())
    assert health(memory) == [
        "starting", "initializing", "ready", "crashed", "backoff", "starting", "initializing", "ready", "draining",
        "stopped",
    ]  # fmt: skip


@pytest.mark.spec("octet.process.instance-id", "octet.process.generation")
def test_one_instance_over_all_generations(memory: Any) -> None:
    memory.session.random_below = lambda bound: 0
    extension = memory.start(lambda number: Actor(CRASH if number == 1 else {}), name="alpha")
    first = extension.instance_id
    crash(memory, extension)
    memory.call("alpha", "work")
    owner = memory.processes[1].params_of("tool/call")[0]["context"]["resource_owner"]
    assert owner == {
        "session_id": memory.session.session_id, "extension_instance_id": first, "process_generation": 2,
    }  # fmt: skip
    memory.settle(extension.reload())
    memory.call("alpha", "work")
    owner = memory.processes[2].params_of("tool/call")[0]["context"]["resource_owner"]
    assert (owner["extension_instance_id"], owner["process_generation"]) == (first, 3)
    assert len(first) == 32
    assert set(first) <= set("0123456789abcdef")


def test_a_stop_during_the_back_off_starts_nothing_more(memory: Any) -> None:
    memory.session.random_below = lambda bound: bound - 1
    extension = memory.start(lambda: Actor(CRASH), name="alpha")
    crash(memory, extension)
    assert memory.settle(extension.stop()) is None
    memory.advance(LONG_MS)
    assert len(memory.processes) == 1
    assert extension.health is Health.STOPPED


def test_a_stop_before_the_process_runs_ends_the_start(memory: Any) -> None:
    extension = memory.add(Actor, name="alpha")
    outcome = extension.start()
    stop = extension.stop()
    memory.settle(stop)
    assert outcome.error is not None
    assert outcome.error.name == "request_cancelled"
    assert [notice.status for notice in memory.notices if isinstance(notice, Exited)] == [-9]
    assert extension.ended


def test_an_extension_that_was_stopped_before_it_was_started_stays_so(memory: Any) -> None:
    extension = memory.add(Actor, name="alpha")
    memory.settle(extension.stop())
    with pytest.raises(UsageError, match="alpha was stopped"):
        extension.start()
    memory.run()
    assert memory.processes == []
