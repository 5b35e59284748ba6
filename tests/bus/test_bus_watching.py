"""Watching a bus: every counter of the statistics, listeners, and traces in the order things happened."""

from __future__ import annotations

import asyncio
import logging
from typing import Any

import pytest

from broker import Active, Bus, Event, Field, Message, Peer, Pending
from broker.bus import PeerStatistics, TopicStatistics, trace
from broker.errors import BrokerError, InvalidParamsError
from broker.testing import ManualClock

STATUS = "bus.alpha.status"
GREEN = {"summary": "green"}
RAISED = [ValueError("the watcher failed"), SystemExit(3), asyncio.CancelledError(), GeneratorExit()]


# -- statistics --------------------------------------------------------------------------------------------------------


@pytest.mark.spec("octet.bus.statistics")
def test_a_fresh_peer_has_counted_nothing(bus: Bus) -> None:
    assert bus.attach("alpha", instance_id="i", generation=2).statistics() == PeerStatistics(
        name="alpha", instance_id="i", generation=2, closed=False, close_reason=None, draining=False, published=0,
        queued_messages=0, queued_bytes=0, held_messages=0, oldest_age_ms=None, taken=0, expired=0, invalidated=0,
        discarded=0, refusals=0, last_refused_topic=None, handler_errors=0, active=(), pending=(),
    )  # fmt: skip


@pytest.mark.spec("octet.bus.statistics")
def test_every_counter_of_a_peer_counts_its_own_thing(bus: Bus, clock: ManualClock, alpha: Peer, beta: Peer) -> None:
    gamma = bus.attach("gamma")
    gamma.declare("bus.gamma.b", [])
    gamma.declare("bus.gamma.a", [])
    for topic in ("bus.gamma.b", "bus.gamma.a", "bus.unknown.z", "bus.unknown.y"):
        beta.subscribe(topic)
    alpha.publish(STATUS, GREEN)  # expires
    clock.advance_ms(30_001)
    gamma.publish("bus.gamma.a", {})  # is invalidated
    beta.unsubscribe("bus.gamma.a")
    alpha.publish(STATUS, GREEN)  # is taken
    alpha.publish(STATUS, GREEN)  # is held
    first, held = beta.take(), beta.hold()
    assert isinstance(first, Event)
    assert held is not None
    clock.advance_ms(7)
    last = [alpha.publish(STATUS, GREEN) for _ in range(3)]
    clock.advance_ms(5)
    size = first.size
    assert beta.statistics() == PeerStatistics(
        name="beta", instance_id="b" * 32, generation=1, closed=False, close_reason=None, draining=False, published=0,
        queued_messages=4, queued_bytes=4 * size, held_messages=1, oldest_age_ms=12, taken=2, expired=1, invalidated=1,
        discarded=0, refusals=0, last_refused_topic=None, handler_errors=0, active=(STATUS, "bus.gamma.b"),
        pending=("bus.unknown.y", "bus.unknown.z"),
    )  # fmt: skip
    assert alpha.statistics().published == last[-1].sequence == 6
    beta.detach()
    after = beta.statistics()
    assert (after.closed, after.close_reason, after.discarded, after.queued_messages) == (True, "detached", 3, 1)
    assert (after.active, after.pending, after.oldest_age_ms) == ((), (), 12)
    held.release()
    assert beta.statistics().oldest_age_ms is None
    assert beta.statistics().queued_bytes == 0


@pytest.mark.spec("octet.bus.statistics")
def test_a_subscriber_that_never_reads_is_named(bus: Bus, clock: ManualClock, alpha: Peer, beta: Peer) -> None:
    slow = bus.attach("slow")
    slow.subscribe(STATUS)
    for _ in range(64):
        alpha.publish(STATUS, GREEN)
        beta.take()
    clock.advance_ms(1_234)
    for _ in range(3):
        with pytest.raises(BrokerError):
            alpha.publish(STATUS, GREEN)
    blamed = [row for row in bus.statistics().peers if row.refusals]
    assert [(row.name, row.refusals, row.last_refused_topic, row.oldest_age_ms) for row in blamed] == [
        ("slow", 3, STATUS, 1_234)
    ]
    slow.detach()
    assert alpha.publish(STATUS, GREEN).sequence == 65


@pytest.mark.spec("octet.bus.statistics")
def test_the_bus_counts_the_whole(bus: Bus, alpha: Peer, beta: Peer) -> None:
    alpha.declare("bus.alpha.b", [])
    for _ in range(3):
        alpha.publish(STATUS, GREEN)
    alpha.publish("bus.alpha.b", {})
    for wrong in (lambda: alpha.publish(STATUS, {}), lambda: alpha.declare(STATUS, []), lambda: beta.subscribe("x")):
        with pytest.raises(InvalidParamsError):
            wrong()
    snapshot = bus.statistics()
    assert (snapshot.binding_id, snapshot.binding_revision, snapshot.topic_revision) == (bus.binding_id, 1, 2)
    assert (snapshot.closed, snapshot.published, snapshot.refused, snapshot.retired) == (False, 4, 3, 0)
    assert snapshot.topics == (
        TopicStatistics("bus.alpha.b", "alpha", "a" * 32, 1, 2, 0, 1),
        TopicStatistics(STATUS, "alpha", "a" * 32, 1, 1, 1, 3),
    )
    assert snapshot.peers == (alpha.statistics(), beta.statistics())
    alpha.detach()
    assert (bus.statistics().published, bus.statistics().topic_revision) == (4, 4)
    # A snapshot stays what it was.
    assert len(snapshot.topics) == 2


# -- listeners ---------------------------------------------------------------------------------------------------------


def test_listeners_hear_of_every_admission_until_they_are_removed(bus: Bus, alpha: Peer, beta: Peer) -> None:
    log: list[Any] = []
    remove_one = bus.add_listener(lambda: log.append(("one", beta.statistics().queued_messages)))
    remove_two = bus.add_listener(lambda: log.append("two"))
    alpha.publish(STATUS, GREEN)
    assert log == [("one", 1), "two"]
    remove_one()
    remove_one()
    alpha.detach()
    assert log[2:] == ["two"]
    remove_two()
    bus.close()
    assert len(log) == 3


@pytest.mark.parametrize("error", RAISED, ids=repr)
def test_a_listener_may_use_the_bus_and_a_failing_one_is_logged(
    bus: Bus, alpha: Peer, beta: Peer, caplog: pytest.LogCaptureFixture, error: BaseException
) -> None:
    log: list[Message | None] = []

    def fail() -> None:
        raise error

    bus.add_listener(fail)
    bus.add_listener(lambda: log.append(beta.take()))
    assert alpha.publish(STATUS, GREEN).sequence == 1
    assert [type(message) for message in log] == [Event]
    assert [(record.name, record.levelno) for record in caplog.records] == [("broker.bus", logging.ERROR)]


# -- traces ------------------------------------------------------------------------------------------------------------


def test_traces_see_everything_in_order(bus: Bus) -> None:
    log: list[trace.Record] = []
    remove = bus.add_trace(log.append)
    alpha, beta = bus.attach("alpha", instance_id="i"), bus.attach("beta", instance_id="j", generation=2)
    beta.subscribe(STATUS)
    alpha.declare(STATUS, [Field.string("summary")])
    beta.subscribe(STATUS)
    alpha.publish(STATUS, GREEN)
    with pytest.raises(InvalidParamsError) as caught:
        alpha.publish(STATUS, {})
    beta.unsubscribe(STATUS)
    beta.unsubscribe(STATUS)
    alpha.publish(STATUS, GREEN)
    alpha.detach()
    bus.reset()
    bus.close()
    first, second = log[5], log[8]
    assert isinstance(first, trace.Published)
    assert isinstance(second, trace.Published)
    assert (first.event.sequence, first.subscribers, second.event.sequence, second.subscribers) == (1, 1, 2, 0)
    assert log == [
        trace.Attached("alpha", "i", 1),
        trace.Attached("beta", "j", 2),
        trace.Subscribed("beta", STATUS, Pending(0)),
        trace.Declared(STATUS, "alpha", "i", 1, 1),
        trace.Subscribed("beta", STATUS, Active(1, "i", 1)),
        first,
        trace.Refused("alpha", "publish", caught.value),
        trace.Unsubscribed("beta", STATUS),
        second,
        trace.Detached("alpha", "i", 1, "detached", False),
        trace.Withdrawn(STATUS, "alpha", "i", 1, 2),
        trace.Rebound(bus.binding_id, 2),
        trace.Detached("beta", "j", 2, "bus closed", False),
    ]
    remove()
    with pytest.raises(BrokerError):
        bus.attach("gamma")
    assert len(log) == 13


@pytest.mark.parametrize("operation", ["declare", "subscribe", "unsubscribe", "publish"])
def test_a_refusal_names_the_operation(bus: Bus, alpha: Peer, operation: str) -> None:
    log: list[trace.Record] = []
    bus.add_trace(log.append)
    with pytest.raises(InvalidParamsError) as caught:
        getattr(alpha, operation)(
            "nonsense", *([[]] if operation == "declare" else [{}] if operation == "publish" else [])
        )
    assert log == [trace.Refused("alpha", operation, caught.value)]


@pytest.mark.spec("octet.bus.publish-nested")
def test_what_a_trace_causes_is_told_after_its_cause_to_all_of_them(bus: Bus, alpha: Peer, beta: Peer) -> None:
    log: list[tuple[str, int]] = []

    def sequence(record: trace.Record) -> int:
        assert isinstance(record, trace.Published)
        return record.event.sequence

    def audit(record: trace.Record) -> None:
        log.append(("audit", sequence(record)))
        if sequence(record) < 3:
            alpha.publish(STATUS, GREEN)

    bus.add_trace(audit)
    bus.add_trace(lambda record: log.append(("recorder", sequence(record))))
    alpha.publish(STATUS, GREEN)
    assert log == [(name, number) for number in (1, 2, 3) for name in ("audit", "recorder")]


def test_a_trace_that_publishes_for_ever_lets_publish_return(bus: Bus, alpha: Peer) -> None:
    count = 0

    def echo(record: trace.Record) -> None:
        nonlocal count
        count += 1
        alpha.publish(STATUS, GREEN)

    remove = bus.add_trace(echo)
    alpha.publish(STATUS, GREEN)
    assert count == 64
    remove()


@pytest.mark.parametrize("error", RAISED, ids=repr)
def test_a_failing_trace_is_logged_and_the_others_are_told(
    bus: Bus, alpha: Peer, caplog: pytest.LogCaptureFixture, error: BaseException
) -> None:
    log: list[trace.Record] = []

    def fail(record: trace.Record) -> None:
        raise error

    bus.add_trace(fail)
    bus.add_trace(log.append)
    assert alpha.publish(STATUS, GREEN).sequence == 1
    alpha.publish(STATUS, GREEN)
    assert [type(record) for record in log] == [trace.Published, trace.Published]
    assert [(record.name, record.levelno) for record in caplog.records] == [("broker.bus", logging.ERROR)] * 2


def test_a_trace_hears_only_of_what_happens_after_it_was_added(bus: Bus, alpha: Peer) -> None:
    first: list[trace.Record] = []
    second: list[trace.Record] = []
    bus.add_trace(first.append)
    alpha.publish(STATUS, GREEN)
    bus.add_trace(second.append)
    alpha.publish(STATUS, GREEN)
    assert (len(first), len(second)) == (2, 1)
