"""kill -9 at every step of start, call, cancel, hook, reload and shutdown: the host stays whole, waiters end once."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import feature_scripts as play
import pytest
from feature_kit import add_feature, ask_host, start_feature

from broker.errors import CancelledError, ExitedError, ExtensionError
from broker.host import Health, HostSettings, Outcome

Open = Callable[..., Any]
VERSIONS = ("0.1", "0.2", "0.4")
QUESTION = ["confirmation/request", {"prompt": "?", "destructive": True, "default": False}]
SETTINGS = HostSettings(restart=False)


@pytest.fixture(autouse=True)
def in_workspace(tmp_path: Path) -> Iterator[None]:
    """In memory the extensions run here, so that they find the marks they leave where processes find theirs."""
    before = os.getcwd()
    os.chdir(tmp_path)
    yield
    os.chdir(before)


class Watch:
    """Counts how often each outcome settles."""

    def __init__(self) -> None:
        self.settled: Counter[str] = Counter()

    def add(self, name: str, outcome: Outcome[Any]) -> Outcome[Any]:
        outcome.add_callback(lambda _: self.settled.update([name]))
        return outcome


@pytest.fixture
def scene(open_world: Open, service: Any) -> Callable[..., Any]:
    """A world with a bystander and an extension that is going to die."""

    def make(script: str, version: str, **options: Any) -> tuple[Any, Any, Any, Watch]:
        service.answers["confirm"] = Outcome
        world = open_world(service.bind("confirmations"), SETTINGS)
        bystander = start_feature(world, play.Plain, version, name="bystander")
        dying = add_feature(world, getattr(play, script), version, **options)
        return world, bystander, dying, Watch()

    return make


def check_whole(world: Any, bystander: Any, dying: Any, watch: Watch, expected: set[str]) -> None:
    """Every waiter ended once, the dead process is reaped, the other extension works, the session closes."""
    world.until(lambda: dying.ended)
    assert watch.settled == dict.fromkeys(expected, 1)
    assert world.settle(bystander.call("work", {})).content[0].text == "done"
    assert dying.generations == ()
    closing = watch.add("close", world.session.close())
    world.settle(closing)
    assert watch.settled == dict.fromkeys({*expected, "close"}, 1)
    assert world.session.links == ()


@pytest.mark.spec("octet.legacy.deaths")
@pytest.mark.parametrize("version", VERSIONS)
def test_at_start(scene: Any, version: str) -> None:
    world, bystander, dying, watch = scene("DyingAtInitialize", version)
    with pytest.raises(ExitedError) as caught:
        world.settle(watch.add("start", dying.start()))
    assert caught.value.status == -9
    check_whole(world, bystander, dying, watch, {"start"})


@pytest.mark.spec("octet.legacy.deaths")
@pytest.mark.parametrize("version", VERSIONS)
def test_right_after_start(scene: Any, version: str) -> None:
    world, bystander, dying, watch = scene("DyingAfterInitialize", version)
    world.settle(watch.add("start", dying.start()))
    world.until(lambda: dying.health in (Health.CRASHED, Health.PARKED))
    with pytest.raises(ExtensionError, match="does not serve"):
        dying.call("work", {})
    check_whole(world, bystander, dying, watch, {"start"})


@pytest.mark.spec("octet.legacy.deaths")
@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("script", ["DyingAtCall", "DyingAfterAsking"])
def test_at_a_call_with_others_open_and_a_question_to_the_host(
    scene: Any, service: Any, version: str, script: str
) -> None:
    world, bystander, dying, watch = scene(script, version)
    world.settle(dying.start())
    calls = [watch.add(name, dying.call("work", {"ask": [QUESTION, QUESTION]})) for name in ("one", "two", "three")]
    for call in calls:
        with pytest.raises(ExitedError) as caught:
            world.settle(call)
        assert caught.value.status == -9
    check_whole(world, bystander, dying, watch, {"one", "two", "three"})


@pytest.mark.spec("octet.legacy.deaths")
@pytest.mark.parametrize("version", VERSIONS)
def test_at_an_answer_of_the_host(scene: Any, service: Any, version: str) -> None:
    world, bystander, dying, watch = scene("DyingAtAnswer", version)
    world.settle(dying.start())
    held: list[Outcome[bool]] = []
    told: list[str] = []

    def hold() -> Outcome[bool]:
        held.append(Outcome())
        return held[-1]

    service.answers["confirm"] = hold
    call = watch.add("call", dying.call("work", {"ask": [QUESTION, QUESTION]}))
    world.until(lambda: len(held) == 2)
    held[0].succeed(True)
    with pytest.raises(ExitedError):
        world.settle(call)
    held[1].succeed(True)
    check_whole(world, bystander, dying, watch, {"call"})
    assert told == []


@pytest.mark.spec("octet.legacy.deaths")
@pytest.mark.parametrize("version", ["0.2", "0.4"])
def test_at_a_cancel(scene: Any, version: str) -> None:
    world, bystander, dying, watch = scene("DyingAtCancel", version)
    world.settle(dying.start())
    cancelled = watch.add("cancelled", dying.call("work", {"stay": True}))
    other = watch.add("other", dying.call("work", {"stay": True}))
    world.until(lambda: dying.generation.connection.queued_frames == 0)
    cancelled.cancel("user")  # type: ignore[attr-defined]
    with pytest.raises(CancelledError):
        cancelled.result()
    with pytest.raises(ExitedError):
        world.settle(other)
    check_whole(world, bystander, dying, watch, {"cancelled", "other"})


@pytest.mark.spec("octet.legacy.deaths")
@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("script", ["DyingAtShutdown", "DyingAfterShutdown"])
def test_at_shutdown(scene: Any, version: str, script: str) -> None:
    world, bystander, dying, watch = scene(script, version)
    world.settle(dying.start())
    call = watch.add("call", dying.call("work", {"stay": True}))
    world.settle(watch.add("stop", dying.stop()))
    with pytest.raises(CancelledError):
        call.result()
    check_whole(world, bystander, dying, watch, {"call", "stop"})
    assert world.exits()[0][1] == -9


@pytest.mark.spec("octet.legacy.deaths")
@pytest.mark.parametrize("version", ["0.2", "0.4"])
def test_at_a_session_hook(scene: Any, version: str) -> None:
    world, bystander, dying, watch = scene("DyingAtHook", version, hooks=["session_start", "session_end"])
    world.settle(watch.add("start", dying.start()))
    check_whole(world, bystander, dying, watch, {"start"})


@pytest.mark.spec("octet.legacy.deaths", "octet.legacy.reload")
@pytest.mark.parametrize("version", VERSIONS)
def test_a_candidate_that_dies_leaves_the_serving_generation_alone(
    open_world: Open, tmp_path: Path, version: str
) -> None:
    world = open_world(None, SETTINGS)
    extension = add_feature(world, play.DyingAtInitialize, version)
    mark = tmp_path / "died-at-initialize"
    mark.touch()
    world.settle(extension.start())
    mark.unlink()
    watch = Watch()
    with pytest.raises(ExitedError):
        world.settle(watch.add("reload", extension.reload()))
    assert world.settle(extension.call("work", {})).content[0].text == "done"
    assert (extension.generation.number, extension.health) == (1, Health.READY)
    assert watch.settled == {"reload": 1}


@pytest.mark.spec("octet.legacy.deaths", "octet.process.restart-backoff")
@pytest.mark.parametrize("version", VERSIONS)
def test_a_process_that_was_killed_is_replaced_and_owns_nothing_of_the_old_one(
    open_world: Open, service: Any, version: str
) -> None:
    service.answers["confirm"] = True
    world = open_world(service.bind("confirmations", "presentation"))
    world.session.random_below = lambda bound: 0
    extension = start_feature(world, play.DyingAtCall, version)
    with pytest.raises(ExitedError):
        world.settle(extension.call("work", {"ask": [QUESTION]}))
    world.until(lambda: extension.health is Health.READY)
    assert ask_host(world, extension, QUESTION) == [{"confirmed": True}]
    assert service.log[-1][1].generation == 2
