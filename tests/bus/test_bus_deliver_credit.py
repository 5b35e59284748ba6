"""Credit during a delivery, which takes messages without the bus's lock: given back in time, once, never lost."""

from __future__ import annotations

import threading

import pytest

from broker import Bus, Event, Field, Message, Peer
from broker.errors import ResourceExhaustedError
from broker.limits import MAX_BUS_QUEUE_MESSAGES
from broker.testing import ManualClock

TOPIC = "bus.alpha.count"
ROUNDS = 3_000


@pytest.fixture
def counting(bus: Bus) -> Peer:
    alpha = bus.attach("alpha")
    alpha.declare(TOPIC, [Field.integer("n")])
    return alpha


def number(message: Message) -> int:
    assert isinstance(message, Event)
    n: int = message.payload["n"]
    return n


@pytest.mark.spec("octet.bus.deliver-reentrant")
def test_a_handler_can_publish_into_a_queue_that_was_full_when_the_round_began(bus: Bus, counting: Peer) -> None:
    """Each message makes room for one as soon as its handler has it, not at the round's end."""
    beta = bus.attach("beta")
    beta.subscribe(TOPIC)
    seen: list[int] = []

    def echo(message: Message) -> None:
        seen.append(number(message))
        if number(message) < MAX_BUS_QUEUE_MESSAGES:
            counting.publish(TOPIC, {"n": number(message) + 1_000})

    beta.deliver_to(echo)
    for n in range(MAX_BUS_QUEUE_MESSAGES):
        counting.publish(TOPIC, {"n": n})
    with pytest.raises(ResourceExhaustedError):
        counting.publish(TOPIC, {"n": 0})
    assert bus.deliver() == 2 * MAX_BUS_QUEUE_MESSAGES
    assert seen == [*range(MAX_BUS_QUEUE_MESSAGES), *range(1_000, 1_000 + MAX_BUS_QUEUE_MESSAGES)]
    statistics = beta.statistics()
    assert (statistics.taken, statistics.handler_errors) == (2 * MAX_BUS_QUEUE_MESSAGES, 0)
    assert (statistics.queued_messages, statistics.queued_bytes) == (0, 0)


@pytest.mark.spec("octet.bus.deliver-reentrant")
def test_a_handler_cannot_publish_more_than_the_room_it_made(bus: Bus, counting: Peer) -> None:
    beta = bus.attach("beta")
    beta.subscribe(TOPIC)
    refused: list[int] = []

    def double(message: Message) -> None:
        for extra in (1, 2):
            try:
                counting.publish(TOPIC, {"n": 1_000})
            except ResourceExhaustedError as error:
                refused.append(extra)
                assert error.subscriber == "beta"

    registration = beta.deliver_to(lambda message: (double(message), registration.remove()))
    for n in range(MAX_BUS_QUEUE_MESSAGES):
        counting.publish(TOPIC, {"n": n})
    bus.deliver()
    assert refused == [2]
    assert beta.statistics().queued_messages == MAX_BUS_QUEUE_MESSAGES


@pytest.mark.spec("octet.bus.threads")
@pytest.mark.parametrize("deliverers", [1, 3])
def test_what_one_thread_publishes_others_deliver_once_and_in_order(counting: Peer, bus: Bus, deliverers: int) -> None:
    beta = bus.attach("beta")
    beta.subscribe(TOPIC)
    seen: list[int] = []
    beta.deliver_to(lambda message: seen.append(number(message)))
    done = threading.Event()

    def deliver() -> None:
        while not done.is_set():
            bus.deliver()

    threads = [threading.Thread(target=deliver) for _ in range(deliverers)]
    for thread in threads:
        thread.start()
    try:
        sent = 0
        while sent < ROUNDS:
            try:
                counting.publish(TOPIC, {"n": sent})
            except ResourceExhaustedError:
                continue
            sent += 1
    finally:
        done.set()
        for thread in threads:
            thread.join(timeout=30)
    bus.deliver()
    assert seen == list(range(ROUNDS))
    statistics = beta.statistics()
    assert (statistics.queued_messages, statistics.queued_bytes, statistics.taken) == (0, 0, ROUNDS)


@pytest.mark.spec("octet.bus.threads")
def test_a_message_published_and_delivered_by_a_second_thread_is_never_left_lying(bus: Bus, counting: Peer) -> None:
    """The second thread's deliver() may find the first one busy; the first one then goes another round."""
    beta = bus.attach("beta")
    beta.subscribe(TOPIC)
    seen: list[int] = []
    beta.deliver_to(lambda message: seen.append(number(message)))
    stop = threading.Event()
    idle = threading.Thread(target=lambda: [bus.deliver() for _ in iter(lambda: stop.is_set(), True)])
    idle.start()
    try:
        n = 0
        while n < 500:
            try:
                counting.publish(TOPIC, {"n": n})
            except ResourceExhaustedError:
                continue
            n += 1
            bus.deliver()
    finally:
        stop.set()
        idle.join(timeout=30)
    assert seen == list(range(500))


@pytest.mark.spec("octet.bus.threads")
def test_detaching_in_another_thread_ends_the_delivery_and_counts_every_message_once(bus: Bus, counting: Peer) -> None:
    for _ in range(50):
        beta = bus.attach("beta")
        beta.subscribe(TOPIC)
        seen: list[int] = []
        beta.deliver_to(lambda message, seen=seen: seen.append(number(message)))  # type: ignore[misc]
        for n in range(MAX_BUS_QUEUE_MESSAGES):
            counting.publish(TOPIC, {"n": n})
        thread = threading.Thread(target=beta.detach)
        thread.start()
        bus.deliver()
        thread.join(timeout=30)
        found = beta.statistics()
        assert seen == list(range(len(seen)))
        assert found.taken + found.discarded + found.invalidated == MAX_BUS_QUEUE_MESSAGES
        assert (found.taken, found.queued_messages, found.queued_bytes) == (len(seen), 0, 0)


@pytest.mark.spec("octet.bus.age-exact")
def test_age_is_judged_when_a_round_begins(bus: Bus, counting: Peer, clock: ManualClock) -> None:
    beta = bus.attach("beta")
    beta.subscribe(TOPIC)
    seen: list[int] = []

    def slow(message: Message) -> None:
        seen.append(number(message))
        if not seen[1:]:
            counting.publish(TOPIC, {"n": 9})
        clock.advance_ms(30_001)

    beta.deliver_to(slow)
    counting.publish(TOPIC, {"n": 1})
    counting.publish(TOPIC, {"n": 2})
    bus.deliver()
    # The second was young when the round began. The third was queued in that round and is too old for the next.
    assert seen == [1, 2]
    assert beta.statistics().expired == 1
