"""Handlers: their order, what they may do while they run, and what becomes of one that fails."""

from __future__ import annotations

import asyncio
import functools
import logging
import threading
from collections.abc import AsyncIterator, Callable, Iterator
from typing import Any

import pytest

from broker import Binding, Bus, Event, Field, Message, Peer
from broker.bus import HandlerFailure, Registration
from broker.errors import UsageError
from broker.testing import ManualClock

STATUS = "bus.alpha.status"
Log = list[Any]


def say(peer: Peer, text: str) -> None:
    peer.publish(STATUS, {"summary": text})


def text_of(message: Message) -> str:
    assert isinstance(message, Event)
    return str(message.payload["summary"])


@pytest.fixture
def failures() -> list[HandlerFailure]:
    return []


@pytest.fixture
def bus(clock: ManualClock, failures: list[HandlerFailure]) -> Bus:
    return Bus(clock=clock, on_handler_error=failures.append)


# -- order -------------------------------------------------------------------------------------------------------------


@pytest.mark.spec("octet.bus.deliver-order")
def test_messages_come_first_in_first_out_and_handlers_in_their_order(bus: Bus, alpha: Peer, beta: Peer) -> None:
    log: Log = []
    beta.deliver_to(lambda message: log.append(("one", text_of(message))))
    beta.deliver_to(lambda message: log.append(("two", text_of(message))))
    for text in "abc":
        say(alpha, text)
    assert bus.deliver() == 3
    assert log == [(name, text) for text in "abc" for name in ("one", "two")]
    assert bus.deliver() == 0
    assert (beta.statistics().taken, beta.statistics().queued_messages) == (3, 0)


def test_a_peer_without_handlers_keeps_its_messages(bus: Bus, alpha: Peer, beta: Peer) -> None:
    say(alpha, "a")
    assert bus.deliver() == 0
    assert beta.statistics().queued_messages == 1


def test_notices_are_delivered_too_and_stale_messages_are_not(
    bus: Bus, clock: ManualClock, alpha: Peer, beta: Peer
) -> None:
    log: Log = []
    beta.deliver_to(log.append)
    say(alpha, "old")
    clock.advance_ms(30_001)
    bus.reset()
    assert bus.deliver() == 1
    assert log == [Binding(bus.binding_id, 2)]


@pytest.mark.spec("octet.bus.deliver-reentrant", "octet.bus.publish-nested")
def test_a_handler_publishes_to_its_own_topic_and_everybody_sees_the_cause_first(
    bus: Bus, alpha: Peer, beta: Peer
) -> None:
    log: Log = []
    gamma = bus.attach("gamma")
    for peer in (alpha, gamma):
        peer.subscribe(STATUS)

    def answer(message: Message) -> None:
        log.append(("alpha", text_of(message)))
        if text_of(message) == "1":
            say(alpha, "2")

    alpha.deliver_to(answer)
    beta.deliver_to(lambda message: log.append(("beta", text_of(message))))
    gamma.deliver_to(lambda message: log.append(("gamma", text_of(message))))
    say(alpha, "1")
    assert bus.deliver() == 6
    for name in ("alpha", "beta", "gamma"):
        assert [text for who, text in log if who == name] == ["1", "2"]


@pytest.mark.spec("octet.bus.deliver-reentrant")
def test_handlers_that_publish_for_ever_let_deliver_return(bus: Bus, alpha: Peer) -> None:
    alpha.subscribe(STATUS)
    alpha.deliver_to(lambda message: say(alpha, "again"))
    say(alpha, "first")
    assert bus.deliver() == 64
    assert alpha.statistics().queued_messages == 1
    assert bus.deliver() == 64


def test_one_busy_peer_does_not_starve_another(bus: Bus, alpha: Peer, beta: Peer) -> None:
    log: Log = []
    alpha.subscribe(STATUS)

    def echo(message: Message) -> None:
        log.append("alpha")
        if len(log) < 6:
            say(alpha, "again")

    alpha.deliver_to(echo)
    beta.deliver_to(lambda message: log.append("beta"))
    say(alpha, "first")
    bus.deliver()
    # What alpha says while it is heard waits until everybody had a turn.
    assert log[:5] == ["alpha", "beta", "beta", "alpha", "beta"]


# -- handlers that change something ------------------------------------------------------------------------------------


@pytest.mark.spec("octet.bus.deliver-reentrant")
def test_handlers_that_run_once_remove_themselves_and_none_is_skipped(bus: Bus, alpha: Peer, beta: Peer) -> None:
    log: Log = []
    registrations: list[Registration] = []

    def once(number: int, message: Message) -> None:
        log.append((number, text_of(message)))
        registrations[number].remove()

    registrations += [beta.deliver_to(functools.partial(once, number)) for number in range(3)]
    assert [registration.active for registration in registrations] == [True, True, True]
    for text in "abc":
        say(alpha, text)
    assert bus.deliver() == 1
    assert log == [(0, "a"), (1, "a"), (2, "a")]
    assert [registration.active for registration in registrations] == [False, False, False]
    registrations[0].remove()
    # Nobody is left to hear the others, so they wait.
    assert beta.statistics().queued_messages == 2
    beta.deliver_to(lambda message: log.append(text_of(message)))
    assert bus.deliver() == 2
    assert log[3:] == ["b", "c"]


def test_a_handler_may_remove_the_one_behind_it_and_add_another(bus: Bus, alpha: Peer, beta: Peer) -> None:
    log: Log = []

    def first(message: Message) -> None:
        log.append(("first", text_of(message)))
        if second.active:
            second.remove()
            beta.deliver_to(lambda message: log.append(("third", text_of(message))))

    beta.deliver_to(first)
    second = beta.deliver_to(lambda message: log.append(("second", text_of(message))))
    say(alpha, "a")
    say(alpha, "b")
    bus.deliver()
    assert log == [("first", "a"), ("first", "b"), ("third", "b")]


@pytest.mark.spec("octet.bus.deliver-reentrant", "octet.bus.unsubscribe")
@pytest.mark.parametrize("how", ["unsubscribe", "detach", "reset", "close"])
def test_what_a_handler_ends_is_over_for_the_messages_behind(bus: Bus, alpha: Peer, beta: Peer, how: str) -> None:
    log: Log = []
    ends: dict[str, Callable[[], object]] = {
        "unsubscribe": lambda: beta.unsubscribe(STATUS),
        "detach": beta.detach,
        "reset": bus.reset,
        "close": bus.close,
    }

    def end(message: Message) -> None:
        log.append(message)
        if isinstance(message, Event):
            ends[how]()

    beta.deliver_to(end)
    beta.deliver_to(log.append)
    for text in "abc":
        say(alpha, text)
    bus.deliver()
    events = [message for message in log if isinstance(message, Event)]
    assert [text_of(event) for event in events] == ["a", "a"]
    assert log[2:] == ([Binding(bus.binding_id, 2)] * 2 if how == "reset" else [])


@pytest.mark.spec("octet.bus.deliver-reentrant")
def test_a_handler_may_attach_declare_and_subscribe(bus: Bus, alpha: Peer, beta: Peer) -> None:
    log: Log = []

    def grow(message: Message) -> None:
        log.append(message)
        if len(log) == 1:
            gamma = bus.attach("gamma")
            beta.subscribe("bus.gamma.x")
            gamma.declare("bus.gamma.x", [])

    beta.deliver_to(grow)
    say(alpha, "a")
    assert bus.deliver() == 2
    assert [type(message).__name__ for message in log] == ["Event", "TopicAvailable"]


# -- handlers that fail ------------------------------------------------------------------------------------------------


@pytest.mark.spec("octet.bus.deliver-raising")
@pytest.mark.parametrize("error", [ValueError("x"), SystemExit(3), asyncio.CancelledError(), GeneratorExit()], ids=repr)
def test_a_raising_handler_is_reported_and_the_others_run(
    bus: Bus, alpha: Peer, beta: Peer, failures: list[HandlerFailure], error: BaseException
) -> None:
    log: Log = []
    gamma = bus.attach("gamma")
    gamma.subscribe(STATUS)

    def fail(message: Message) -> None:
        raise error

    beta.deliver_to(fail)
    beta.deliver_to(lambda message: log.append(("beta", text_of(message))))
    gamma.deliver_to(lambda message: log.append(("gamma", text_of(message))))
    say(alpha, "a")
    say(alpha, "b")
    assert bus.deliver() == 4
    assert log == [("beta", "a"), ("beta", "b"), ("gamma", "a"), ("gamma", "b")]
    assert [(failure.peer, failure.topic, failure.handler, failure.error) for failure in failures] == [
        ("beta", STATUS, fail, error)
    ] * 2
    assert [text_of(failure.message) for failure in failures if failure.message is not None] == ["a", "b"]
    assert (beta.statistics().handler_errors, gamma.statistics().handler_errors) == (2, 0)
    assert bus.statistics().handler_errors == 2
    beta.detach()
    assert bus.statistics().handler_errors == 2


def test_an_error_of_a_handler_that_detached_its_peer_is_counted(bus: Bus, alpha: Peer, beta: Peer) -> None:
    def leave(message: Message) -> None:
        beta.detach()
        raise ValueError("and fail")

    beta.deliver_to(leave)
    say(alpha, "a")
    bus.deliver()
    assert (beta.statistics().handler_errors, bus.statistics().handler_errors) == (1, 1)


@pytest.mark.spec("octet.bus.deliver-raising")
def test_a_keyboard_interrupt_is_raised_again_after_the_others(
    bus: Bus, alpha: Peer, beta: Peer, failures: list[HandlerFailure]
) -> None:
    log: Log = []
    gamma = bus.attach("gamma")
    gamma.subscribe(STATUS)
    interrupt = KeyboardInterrupt()

    def stop(message: Message) -> None:
        raise interrupt

    beta.deliver_to(stop)
    beta.deliver_to(lambda message: log.append(("beta", text_of(message))))
    gamma.deliver_to(lambda message: log.append(("gamma", text_of(message))))
    say(alpha, "a")
    with pytest.raises(KeyboardInterrupt) as caught:
        bus.deliver()
    assert caught.value is interrupt
    assert log == [("beta", "a"), ("gamma", "a")]
    assert [failure.error for failure in failures] == [interrupt]
    say(alpha, "b")
    with pytest.raises(KeyboardInterrupt):
        bus.deliver()
    assert log[2:] == [("beta", "b"), ("gamma", "b")]


def test_a_keyboard_interrupt_ends_the_call_after_its_round(bus: Bus, alpha: Peer, beta: Peer) -> None:
    def stop(message: Message) -> None:
        say(alpha, "again")
        raise KeyboardInterrupt

    beta.deliver_to(stop)
    say(alpha, "first")
    with pytest.raises(KeyboardInterrupt):
        bus.deliver()
    assert (beta.statistics().taken, beta.statistics().queued_messages) == (1, 1)


@pytest.mark.parametrize(
    "error", [RuntimeError("the report failed"), SystemExit(3), asyncio.CancelledError()], ids=repr
)
def test_a_failing_report_stops_nothing(
    clock: ManualClock, caplog: pytest.LogCaptureFixture, error: BaseException
) -> None:
    def report(failure: HandlerFailure) -> None:
        raise error

    bus = Bus(clock=clock, on_handler_error=report)
    alpha = bus.attach("alpha")
    alpha.declare("bus.alpha.x", [])
    alpha.subscribe("bus.alpha.x")
    log: Log = []
    alpha.deliver_to(lambda message: 1 // 0)
    alpha.deliver_to(log.append)
    alpha.publish("bus.alpha.x", {})
    assert bus.deliver() == 1
    assert (len(log), alpha.statistics().handler_errors) == (1, 1)
    assert [record.levelno for record in caplog.records] == [logging.ERROR]


@pytest.mark.spec("octet.bus.deliver-raising")
def test_by_default_a_failure_is_logged_with_handler_topic_and_traceback(
    clock: ManualClock, caplog: pytest.LogCaptureFixture
) -> None:
    bus = Bus(clock=clock)
    alpha = bus.attach("alpha")
    alpha.declare("bus.alpha.x", [Field.string("s", required=False)])
    alpha.subscribe("bus.alpha.x")

    def broken(message: Message) -> None:
        raise ValueError("of its own")

    alpha.deliver_to(broken)
    alpha.publish("bus.alpha.x", {})
    bus.deliver()
    bus.reset()
    bus.deliver()
    first, second = caplog.records
    assert (first.name, first.levelno) == ("broker.bus", logging.ERROR)
    assert "broken" in first.getMessage()
    assert "peer 'alpha' failed on bus.alpha.x" in first.getMessage()
    assert first.exc_info is not None
    assert str(first.exc_info[1]) == "of its own"
    assert "failed on a binding notice" in second.getMessage()


# -- deliver inside deliver --------------------------------------------------------------------------------------------


@pytest.mark.spec("octet.bus.deliver-reentrant")
def test_deliver_inside_a_handler_leaves_the_work_to_the_delivery_that_goes_on(
    bus: Bus, alpha: Peer, beta: Peer
) -> None:
    log: Log = []
    gamma = bus.attach("gamma")
    gamma.subscribe(STATUS)

    def nested(message: Message) -> None:
        log.append(("beta", text_of(message)))
        log.append(bus.deliver())

    beta.deliver_to(nested)
    gamma.deliver_to(lambda message: log.append(("gamma", text_of(message))))
    say(alpha, "a")
    say(alpha, "b")
    assert bus.deliver() == 4
    assert log == [("beta", "a"), 0, ("beta", "b"), 0, ("gamma", "a"), ("gamma", "b")]


@pytest.mark.spec("octet.bus.deliver-reentrant", "octet.bus.threads")
def test_deliver_in_a_second_thread_passes_over_the_peer_that_is_busy(bus: Bus, alpha: Peer, beta: Peer) -> None:
    log: Log = []

    def elsewhere(message: Message) -> None:
        log.append(text_of(message))
        thread = threading.Thread(target=lambda: log.append(bus.deliver()))
        thread.start()
        thread.join(timeout=30)
        assert not thread.is_alive()

    beta.deliver_to(elsewhere)
    say(alpha, "a")
    say(alpha, "b")
    assert bus.deliver() == 2
    assert log == ["a", 0, "b", 0]


@pytest.mark.spec("octet.bus.threads")
def test_the_lock_is_free_while_a_handler_runs(bus: Bus, alpha: Peer, beta: Peer) -> None:
    log: Log = []

    def elsewhere(message: Message) -> None:
        thread = threading.Thread(
            target=lambda: log.append(alpha.publish(STATUS, {"summary": "from elsewhere"}).sequence)
        )
        thread.start()
        thread.join(timeout=30)
        registration.remove()

    registration = beta.deliver_to(elsewhere)
    say(alpha, "a")
    bus.deliver()
    assert log == [2]


# -- what is no handler ------------------------------------------------------------------------------------------------


def test_what_is_awaited_or_iterated_is_no_handler(beta: Peer) -> None:
    async def coroutine(message: Message) -> None: ...

    async def stream(message: Message) -> AsyncIterator[int]:
        yield 1

    def generator(message: Message) -> Iterator[int]:
        yield 1

    class Awaited:
        async def __call__(self, message: Message) -> None: ...

        async def method(self, message: Message) -> None: ...

    for wrong in (coroutine, stream, generator, Awaited(), Awaited().method, functools.partial(coroutine)):
        with pytest.raises(UsageError, match=r"deliver_to\(\) calls plain functions"):
            beta.deliver_to(wrong)
    for wrong_type in (None, "print", 7):
        with pytest.raises(UsageError, match="a handler is a callable of one message"):
            beta.deliver_to(wrong_type)  # type: ignore[arg-type]
