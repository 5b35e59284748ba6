"""``session/*``: changes of the host's sessions wait for its idle boundary, and each is answered once."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from telling import answered, ask, notify, send, start, told_one

from broker.errors import InvalidParamsError, UsageError
from broker.host import Health, HostServices, Outcome, Principal

SERVICE = "session_lifecycle"


class Sessions:
    """A session driver that notes what it is asked and answers as it is told."""

    def __init__(self, answer: Callable[[str], Any] = lambda what: f"{what}-1") -> None:
        self.log: list[tuple[str, ...]] = []
        self.asked_by: list[Principal] = []
        self.answer = answer

    def _do(self, asked_by: Principal, *what: str) -> Any:
        self.log.append(what)
        self.asked_by.append(asked_by)
        return self.answer(what[0])

    def create(self, asked_by: Principal) -> Any:
        return self._do(asked_by, "create")

    def fork(self, asked_by: Principal) -> Any:
        return self._do(asked_by, "fork")

    def switch(self, asked_by: Principal, session_id: str) -> Any:
        return self._do(asked_by, "switch", session_id)

    def reload(self, asked_by: Principal) -> Any:
        return self._do(asked_by, "reload")


@pytest.mark.spec("octet.capability.session-lifecycle")
@pytest.mark.parametrize(
    ("method", "params", "done"),
    [
        pytest.param(
            "session/create",
            {},
            ("create",),
            marks=pytest.mark.spec("octet.method.session-create", "octet.session.create"),
        ),
        pytest.param(
            "session/fork", {}, ("fork",), marks=pytest.mark.spec("octet.method.session-fork", "octet.session.fork")
        ),
        pytest.param(
            "session/switch",
            {"session_id": "s-7"},
            ("switch", "s-7"),
            marks=pytest.mark.spec("octet.method.session-switch", "octet.session.switch"),
        ),
        pytest.param(
            "session/reload",
            {},
            ("reload",),
            marks=pytest.mark.spec("octet.method.session-reload", "octet.session.reload"),
        ),
    ],
)
def test_each_change_is_made_by_the_hosts_driver(told: Any, method: str, params: Any, done: tuple[str, ...]) -> None:
    """The driver is called once, with who asked, and nothing else changes: create and fork do not switch."""
    driver = Sessions()
    world, extension = told_one(told(HostServices(session_driver=driver)), SERVICE)
    assert ask(world, extension, method, params) == {"session_id": f"{done[0]}-1"}
    assert driver.log == [done]
    session = world.session
    assert driver.asked_by == [Principal(session.session_id, "ext", extension.instance_id, 1)]
    assert extension.far.params_of(method) == []


@pytest.mark.spec("octet.capability.session-lifecycle", "octet.capability.offered-when-bound")
def test_without_a_driver_it_is_neither_offered_nor_served(told: Any) -> None:
    world, extension = told_one(told(), SERVICE)
    (offer,) = [params["contract"] for params in extension.far.params_of("initialize")]
    assert SERVICE not in offer["optional_capabilities"]
    assert not [method for method in offer["optional_methods"] if method.startswith("session/")]
    assert ask(world, extension, "session/create", {}) == (-32601, {"method": "session/create"})


@pytest.mark.spec("octet.session.idle-boundary")
def test_changes_wait_for_the_idle_boundary_and_run_one_by_one_in_order(told: Any) -> None:
    pending: list[Outcome[str]] = []

    def later(what: str) -> Outcome[str]:
        pending.append(Outcome())
        return pending[-1]

    driver = Sessions(later)
    world = told(HostServices(session_driver=driver))
    one, two = start(world, SERVICE, name="one"), start(world, SERVICE, name="two")
    control = world.session.control
    control.begin_turn()
    control.begin_turn()
    first = send(world, one, "session/create", {})
    second = send(world, two, "session/switch", {"session_id": "x"})
    third = send(world, one, "session/reload", {})
    control.end_turn()
    assert (driver.log, control.waiting, control.idle) == ([], 3, False)
    control.end_turn()
    assert (driver.log, control.waiting, control.idle) == ([("create",)], 2, True)
    pending[0].succeed("new")
    assert driver.log == [("create",), ("switch", "x")]
    control.begin_turn()
    pending[1].succeed("x")
    assert len(driver.log) == 2
    world.run()
    assert answered(one, first) == {"session_id": "new"}
    assert answered(two, second) == {"session_id": "x"}
    assert answered(one, third) is None
    control.end_turn()
    pending[2].succeed("x")
    world.run()
    assert answered(one, third) == {"session_id": "x"}
    with pytest.raises(UsageError, match="end_turn without begin_turn"):
        control.end_turn()


@pytest.mark.spec("octet.session.bad-params")
@pytest.mark.parametrize(
    ("method", "params", "code"),
    [
        ("session/create", {"name": "x"}, -32602),
        ("session/switch", {}, -32602),
        ("session/switch", {"session_id": None}, -32602),
        ("session/switch", {"session_id": ""}, -32602),
        ("session/switch", {"session_id": "x" * 257}, -32012),
        ("session/reload", [], -32602),
    ],
)
def test_bad_parameters_are_answered_and_the_stream_lives(told: Any, method: str, params: Any, code: int) -> None:
    driver = Sessions()
    world, extension = told_one(told(HostServices(session_driver=driver)), SERVICE)
    assert ask(world, extension, method, params) == (code, None)
    assert driver.log == []
    assert ask(world, extension, "session/create", {}) == {"session_id": "create-1"}
    assert extension.health is Health.READY


class UnspeakableError(Exception):
    def __str__(self) -> str:
        raise RuntimeError("no text")


def raises(error: Exception) -> Callable[[str], Any]:
    def answer(what: str) -> Any:
        raise error

    return answer


def fails_later(what: str) -> Outcome[str]:
    outcome: Outcome[str] = Outcome()
    outcome.fail(InvalidParamsError("the disk is full"))
    return outcome


@pytest.mark.spec("octet.session.no-driver")
@pytest.mark.parametrize(
    ("answer", "reason"),
    [
        (raises(InvalidParamsError("no session s-7")), "no session s-7"),
        (raises(ValueError("/home/ada/secret")), "the host's own code raised ValueError"),
        (raises(UnspeakableError()), "the host's own code raised UnspeakableError"),
        (fails_later, "the disk is full"),
        (lambda what: None, "the session driver gave no session id"),
        (lambda what: "x" * 257, "the session driver gave no session id"),
    ],
)
def test_a_change_that_fails_is_an_internal_error_with_a_reason(told: Any, answer: Any, reason: str) -> None:
    world, extension = told_one(told(HostServices(session_driver=Sessions(answer))), SERVICE)
    assert ask(world, extension, "session/switch", {"session_id": "s-7"}) == (-32603, {"reason": reason})
    assert extension.health is Health.READY


@pytest.mark.spec("octet.session.no-driver")
def test_a_driver_that_is_taken_away_fails_what_waits_and_what_runs(told: Any) -> None:
    running: Outcome[str] = Outcome()
    driver = Sessions(lambda what: running)
    world, extension = told_one(told(HostServices(session_driver=driver)), SERVICE)
    control = world.session.control
    first, second = (send(world, extension, "session/create", {}) for _ in range(2))
    control.deactivate()
    world.run()
    unavailable = (-32603, {"reason": "unavailable"})
    assert answered(extension, first) == answered(extension, second) == unavailable
    assert ask(world, extension, "session/fork", {}) == unavailable
    running.succeed("late")
    world.run()
    assert driver.log == [("create",)]
    control.activate(Sessions())
    assert ask(world, extension, "session/fork", {}) == {"session_id": "fork-1"}


@pytest.mark.spec("octet.session.queue-full")
def test_the_queue_and_each_process_have_their_bound(told: Any) -> None:
    world = told(HostServices(session_driver=Sessions()))
    extensions = [start(world, SERVICE, name=name) for name in ("one", "two", "three")]
    world.session.control.begin_turn()
    asked = [[send(world, extension, "session/create", {}) for _ in range(8)] for extension in extensions[:2]]
    assert world.session.control.waiting == 16
    assert ask(world, extensions[0], "session/fork", {}) == (-32012, {"reason": "too many requests"})
    assert ask(world, extensions[2], "session/fork", {}) == (-32012, {"reason": "the queue is full"})
    world.session.control.end_turn()
    world.run()
    for extension, ids in zip(extensions, asked, strict=False):
        assert [answered(extension, one) for one in ids] == [{"session_id": "create-1"}] * 8
    assert ask(world, extensions[2], "session/fork", {}) == {"session_id": "fork-1"}


@pytest.mark.spec("octet.session.cancelled")
def test_a_cancelled_change_is_not_made_unless_it_has_begun(told: Any) -> None:
    running: Outcome[str] = Outcome()
    driver = Sessions(lambda what: running if what == "create" else what)
    world, extension = told_one(told(HostServices(session_driver=driver)), SERVICE)
    begun = send(world, extension, "session/create", {})
    waiting = send(world, extension, "session/fork", {})
    last = send(world, extension, "session/reload", {})
    for request_id in (waiting, begun):
        notify(world, extension, "$/cancelRequest", {"id": request_id})
        assert answered(extension, request_id) == (-32800, None)
    running.succeed("made")
    world.run()
    assert driver.log == [("create",), ("reload",)]
    assert answered(extension, begun) == (-32800, None)
    assert answered(extension, last) == {"session_id": "reload"}


def test_a_process_that_ends_takes_its_waiting_changes_with_it(told: Any) -> None:
    driver = Sessions()
    world = told(HostServices(session_driver=driver), restart=False)
    dying, other = start(world, SERVICE, name="dying"), start(world, SERVICE, name="other")
    control = world.session.control
    control.begin_turn()
    send(world, dying, "session/create", {})
    kept = send(world, other, "session/fork", {})
    dying.far.exit(-9)
    world.run()
    assert control.waiting == 1
    control.end_turn()
    world.run()
    assert driver.log == [("fork",)]
    assert answered(other, kept) == {"session_id": "fork-1"}


def test_a_stopped_extension_is_told_that_its_change_is_not_made(told: Any) -> None:
    driver = Sessions()
    world, extension = told_one(told(HostServices(session_driver=driver)), SERVICE)
    world.session.control.begin_turn()
    waiting = send(world, extension, "session/create", {})
    world.settle(extension.stop())
    assert answered(extension, waiting) == (-32603, {"reason": "the process is being stopped"})
    world.session.control.end_turn()
    assert driver.log == []


def test_an_answer_without_a_canonical_form_is_an_internal_error(told: Any) -> None:
    world, extension = told_one(told(HostServices(session_driver=Sessions(lambda what: "a\ud800"))), SERVICE)
    assert ask(world, extension, "session/create", {}) == (-32603, None)
    assert extension.health is Health.READY
