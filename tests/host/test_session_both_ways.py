"""What a session does, shown over an in-memory pair and over real processes by the same tests."""

from __future__ import annotations

from typing import Any

import pytest
from scripts import Collector, Echo, Publisher

from broker import Event
from broker.errors import CancelledError, ExitedError, TimedOutError
from broker.host import Exited, Health, Started


@pytest.mark.spec("octet.method.tool-call")
def test_a_tool_answers(world: Any) -> None:
    echo = world.start(Echo)
    assert echo.health is Health.READY
    assert [tool.name for tool in echo.tools] == ["echo", "never", "quit"]
    assert Started("echo", 1, ("echo", "never", "quit")) in world.notices
    result = world.settle(echo.call("echo", {"text": "zwölf"}))
    assert [part.text for part in result.content] == ["zwölf"]
    assert result.is_error is False


@pytest.mark.spec("octet.cancel.caller-released")
def test_a_cancelled_call_settles_at_once_and_later_ones_work(world: Any) -> None:
    echo = world.start(Echo)
    call = echo.call("never", {})
    call.cancel("user")
    assert call.done
    assert isinstance(call.error, CancelledError)
    assert call.error.reason == "user"
    assert world.settle(echo.call("echo", {"text": "after"})).content[0].text == "after"


def test_a_crash_fails_the_call_with_status_and_stderr_and_a_new_generation_serves(world: Any) -> None:
    world.session.random_below = lambda bound: 0
    echo = world.start(Echo)
    pending = echo.call("never", {})
    fatal = echo.call("quit", {})
    with pytest.raises(ExitedError) as caught:
        world.settle(fatal)
    assert caught.value.status == 7
    assert caught.value.stderr_tail == "going down"
    assert pending.done
    assert isinstance(pending.error, ExitedError)
    world.until(lambda: echo.health is Health.READY and echo.generation.number == 2)
    assert world.settle(echo.call("echo", {"text": "again"})).content[0].text == "again"
    ended = [notice for notice in world.notices if isinstance(notice, Exited)]
    assert [(notice.generation, notice.status) for notice in ended] == [(1, 7)]


@pytest.mark.spec("octet.bus.ack-before-event")
def test_processes_and_a_plugin_share_one_bus(world: Any) -> None:
    plugin = world.attach("plugin")
    plugin.subscribe("bus.publisher.count")
    collector = world.start(Collector)
    publisher = world.start(Publisher)
    world.until(lambda: "collector" in [peer.name for peer in world.bus.statistics().peers if peer.active])
    plugin.subscribe("bus.publisher.count")
    for n in (5, 6, 7):
        outcome = world.settle(publisher.call("publish", {"n": n})).metadata["outcome"]
        assert outcome["sequence"] == n - 4
    world.until(lambda: collected(world, collector)[-3:] == [[1, 5], [2, 6], [3, 7]])
    assert collected(world, collector) == [
        "binding", "pending", "topic_available", "active", [1, 5], [2, 6], [3, 7]
    ]  # fmt: skip
    messages = [message for message in iter(plugin.take, None) if isinstance(message, Event)]
    assert [(event.publisher, event.sequence, event.payload) for event in messages] == [
        ("publisher", 1, {"n": 5}), ("publisher", 2, {"n": 6}), ("publisher", 3, {"n": 7}),
    ]  # fmt: skip
    assert {event.process_generation for event in messages} == {1}
    assert {event.publisher_instance_id for event in messages} == {publisher.instance_id}


def test_a_reset_reaches_every_process_and_all_of_them_come_back(world: Any) -> None:
    collector = world.start(Collector)
    world.start(Publisher)
    world.until(lambda: "active" in collected(world, collector))
    world.bus.reset()
    world.until(lambda: collected(world, collector).count("active") == 2)
    assert collected(world, collector).count("binding") == 2


def test_a_reload_moves_the_topic_to_the_new_generation(world: Any) -> None:
    collector = world.start(Collector)
    publisher = world.start(Publisher)
    world.until(lambda: "active" in collected(world, collector))
    world.settle(publisher.call("publish", {"n": 1}))
    world.settle(publisher.reload())
    assert publisher.generation.number == 2
    world.until(lambda: collected(world, collector).count("active") == 2)
    outcome = world.settle(publisher.call("publish", {"n": 2})).metadata["outcome"]
    assert outcome["sequence"] == 1
    world.until(lambda: collected(world, collector)[-1] == [1, 2])
    assert "topic_unavailable" in collected(world, collector)
    world.until(lambda: len(publisher.generations) == 1)
    assert [(n.generation, n.error) for n in world.notices if isinstance(n, Exited)] == [(1, None)]


def test_an_orderly_close_ends_every_process_with_status_zero(world: Any) -> None:
    world.start(Echo)
    world.start(Collector)
    pending = world.session.call("echo", "never", {})
    world.settle(world.session.close())
    assert isinstance(pending.error, CancelledError)
    assert pending.error.reason == "shutdown"
    ended = {notice.extension: notice for notice in world.notices if isinstance(notice, Exited)}
    assert {(notice.status, notice.reason, notice.error) for notice in ended.values()} == {(0, "stopped", None)}
    assert sorted(ended) == ["collector", "echo"]
    assert world.bus.closed


def test_a_call_times_out_and_the_silent_process_is_ended_after_its_grace(memory: Any) -> None:
    memory.session.random_below = lambda bound: 0
    echo = memory.start(Echo)
    call = echo.call("never", {}, timeout_ms=500)
    memory.advance(499)
    assert not call.done
    memory.advance(1)
    assert isinstance(call.error, TimedOutError)
    assert call.error.maximum == 500
    sent = memory.processes[0].received[-1]
    assert (sent["method"], sent["params"]["reason"]) == ("$/cancelRequest", "timeout")
    memory.advance(1_999)
    assert echo.generation.number == 1
    memory.advance(1)
    assert [(n.generation, n.status) for n in memory.notices if isinstance(n, Exited)] == [(1, -9)]
    assert echo.generation.number == 2


def collected(world: Any, collector: Any) -> list[Any]:
    log: list[Any] = world.settle(collector.call("collected", {})).metadata["log"]
    return log
