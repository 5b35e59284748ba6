"""The emitter never waits, never fails for its consumers, and loses nothing but what it counts."""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator
from typing import Any

import pytest

from broker.adapters.event_emitter import EventEmitter
from broker.errors import UsageError
from broker.limits import MAX_QUEUED_EVENTS
from broker.testing import ManualClock
from broker.wire.odek.events.event import Event
from broker.wire.odek.events.redaction import Redactor
from broker.wire.odek.events.types import RunStarted, SessionSaved

TOKEN = "sk" + "-" + "aB3" * 11


def saved(number: int) -> SessionSaved:
    return SessionSaved(message_count=number)


def numbers(events: list[Event]) -> list[int]:
    return [event.data["message_count"] for event in events]


class Gate:
    """A consumer that waits until it is opened."""

    def __init__(self) -> None:
        self.events: list[Event] = []
        self.entered = threading.Event()
        self.opened = threading.Event()

    def __call__(self, event: Event) -> None:
        self.entered.set()
        assert self.opened.wait(30)
        self.events.append(event)


@pytest.fixture
def gate() -> Iterator[Gate]:
    made = Gate()
    yield made
    made.opened.set()


@pytest.mark.spec("odek.sink.order", "odek.event.run-id", "odek.event.session-id")
def test_events_come_in_order_stamped_with_their_run() -> None:
    events: list[Event] = []
    clock = ManualClock(unix_ms=0)
    with EventEmitter(events.append, clock=clock) as emitter:
        assert emitter.emit(saved(1))
        emitter.session_id = "s-1"
        clock.advance_ms(1)
        assert emitter.emit(saved(2))
        for number in range(3, 500):
            emitter.emit(saved(number))
    assert numbers(events) == list(range(1, 500))
    assert {event.run_id for event in events} == {emitter.run_id}
    assert len(emitter.run_id) == 32
    assert [event.session_id for event in events[:3]] == [None, "s-1", "s-1"]
    assert [event.timestamp[-5:] for event in events[:2]] == [".000Z", ".001Z"]
    assert EventEmitter(events.append).run_id != emitter.run_id


@pytest.mark.spec("odek.sink.non-blocking")
def test_a_blocked_consumer_blocks_nobody_and_drops_are_counted(gate: Gate) -> None:
    emitter = EventEmitter(gate)
    emitter.emit(saved(0))
    assert gate.entered.wait(30)
    taken = [emitter.emit(saved(number)) for number in range(1, 4097)]
    assert taken == [True] * MAX_QUEUED_EVENTS + [False] * (4096 - MAX_QUEUED_EVENTS)
    statistics = emitter.statistics()
    assert (statistics.emitted, statistics.dropped, statistics.queued) == (1025, 3072, 1024)
    assert not emitter.close(timeout=0.01)
    gate.opened.set()
    assert emitter.close()
    # The newest were dropped, never those that waited.
    assert numbers(gate.events) == list(range(1025))
    assert emitter.statistics().delivered == 1025


@pytest.mark.parametrize("failure", [ValueError("x"), SystemExit(3), KeyboardInterrupt()])
@pytest.mark.spec("odek.sink.raising-consumer")
def test_a_raising_consumer_loses_that_event_alone(failure: BaseException) -> None:
    first: list[Event] = []
    last: list[Event] = []

    def raising(event: Event) -> None:
        if event.data["message_count"] == 2:
            raise failure
        first.append(event)

    with EventEmitter(raising, last.append) as emitter:
        for number in (1, 2, 3):
            emitter.emit(saved(number))
    assert (numbers(first), numbers(last)) == ([1, 3], [1, 2, 3])
    statistics = emitter.statistics()
    assert (statistics.delivered, statistics.failures, statistics.last_failure) == (2, 1, failure)


@pytest.mark.spec("odek.sink.close")
def test_a_consumer_may_close_and_emit() -> None:
    events: list[Event] = []
    results: list[Any] = []

    def closing(event: Event) -> None:
        events.append(event)
        if len(events) == 1:
            started.wait(30)
            results.append(emitter.close())
            results.append(emitter.emit(saved(9)))

    started = threading.Event()
    emitter = EventEmitter(closing)
    for number in (1, 2, 3):
        emitter.emit(saved(number))
    started.set()
    assert emitter.close(timeout=20)
    assert numbers(events) == [1, 2, 3]
    assert results == [False, False]


@pytest.mark.spec("odek.sink.close")
def test_emitting_after_the_close_does_nothing() -> None:
    events: list[Event] = []
    emitter = EventEmitter(events.append)
    assert emitter.close() and emitter.close()
    assert emitter.emit(saved(1)) is False
    used = EventEmitter(events.append)
    used.emit(saved(1))
    assert used.close()
    assert used.emit(saved(2)) is False
    assert numbers(events) == [1]
    assert used.statistics().dropped == 0


def test_a_consumer_may_emit() -> None:
    events: list[Event] = []

    def echoing(event: Event) -> None:
        events.append(event)
        if event.data["message_count"] < 5:
            emitter.emit(saved(event.data["message_count"] + 1))
        else:
            done.set()

    done = threading.Event()
    emitter = EventEmitter(echoing)
    emitter.emit(saved(1))
    assert done.wait(30)
    assert emitter.close()
    assert numbers(events) == [1, 2, 3, 4, 5]


def test_a_huge_payload_holds_up_no_emitter() -> None:
    class SlowRedactor(Redactor):
        def redact(self, text: str, *, max_chars: int | None = None) -> str:
            entered.set()
            assert opened.wait(30)
            return super().redact(text, max_chars=max_chars)

    entered, opened = threading.Event(), threading.Event()
    events: list[Event] = []
    emitter = EventEmitter(events.append, redactor=SlowRedactor())
    huge = RunStarted(model=("redis://:" * 100 + TOKEN) * 2000, sandbox=True, max_iterations=1)
    assert emitter.emit(huge)
    assert entered.wait(30)
    for _ in range(49):
        assert emitter.emit(huge)
    assert (emitter.statistics().queued, events) == (49, [])
    opened.set()
    assert emitter.close()
    assert len(events) == 50
    assert TOKEN not in str(events)


def test_what_cannot_be_stamped_is_counted_and_the_rest_arrives() -> None:
    events: list[Event] = []
    broken = RunStarted(model="m", sandbox=True, max_iterations=1)
    object.__setattr__(broken, "model", object())
    with EventEmitter(events.append) as emitter:
        emitter.emit(broken)
        emitter.emit(saved(2))
    assert numbers(events) == [2]
    assert isinstance(emitter.statistics().last_failure, UsageError)


def test_threads_that_emit_at_once_lose_nothing() -> None:
    events: list[Event] = []
    with EventEmitter(events.append) as emitter:
        threads = [
            threading.Thread(target=lambda start=start: [emitter.emit(saved(start + n)) for n in range(100)])
            for start in range(0, 800, 100)
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert sorted(numbers(events)) == list(range(800))
    for start in range(0, 800, 100):
        mine = [number for number in numbers(events) if start <= number < start + 100]
        assert mine == sorted(mine)


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
@pytest.mark.filterwarnings("ignore:.*multi-threaded.*:DeprecationWarning")
def test_in_a_forked_process_it_does_nothing(gate: Gate) -> None:
    emitter = EventEmitter(gate)
    emitter.emit(saved(1))
    assert gate.entered.wait(30)
    pid = os.fork()
    if pid == 0:
        os._exit(0 if emitter.emit(saved(2)) is False and emitter.close() else 1)
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0
    gate.opened.set()
    assert emitter.close()


def test_somebody_must_listen() -> None:
    with pytest.raises(UsageError):
        EventEmitter()
