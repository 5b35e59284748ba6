"""Several threads on one bus: whatever they do, nothing is lost or charged twice, and nobody waits for ever."""

from __future__ import annotations

import threading
from collections.abc import Callable

import pytest

from broker import Bus, Event, Field, Peer
from broker.errors import BrokerError, CapabilityMismatchError, InvalidParamsError, ResourceExhaustedError
from broker.testing import ManualClock

ROUNDS = 300


def run_together(*bodies: Callable[[], None]) -> None:
    """Run every body in a thread of its own, from one start; raise the first thing any of them raised."""
    barrier = threading.Barrier(len(bodies))
    errors: list[BaseException] = []

    def guarded(body: Callable[[], None]) -> None:
        try:
            barrier.wait(timeout=30)
            body()
        except BaseException as error:
            errors.append(error)

    threads = [threading.Thread(target=guarded, args=(body,), daemon=True) for body in bodies]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(timeout=30)
    assert not any(thread.is_alive() for thread in threads)
    if errors:
        raise errors[0]


def drained(peer: Peer) -> bool:
    while peer.take() is not None:
        pass
    row = peer.statistics()
    return (row.queued_messages, row.queued_bytes, row.held_messages) == (0, 0, 0)


@pytest.mark.spec("octet.bus.threads", "octet.bus.order", "octet.bus.sequence-shared")
def test_publishers_and_readers_in_threads_lose_nothing(bus: Bus) -> None:
    publishers = [bus.attach(f"p{number}") for number in range(3)]
    readers = [bus.attach(f"r{number}") for number in range(2)]
    for publisher in publishers:
        publisher.declare(f"bus.{publisher.name}.x", [Field.integer("n")])
        for reader in readers:
            reader.subscribe(f"bus.{publisher.name}.x")
    admitted: dict[str, list[int]] = {publisher.name: [] for publisher in publishers}
    seen: dict[str, dict[str, list[int]]] = {reader.name: {name: [] for name in admitted} for reader in readers}
    finished = threading.Event()

    def publish(publisher: Peer) -> None:
        for number in range(ROUNDS):
            try:
                admitted[publisher.name].append(publisher.publish(f"bus.{publisher.name}.x", {"n": number}).sequence)
            except ResourceExhaustedError as error:
                assert error.subscriber in seen

    def read(reader: Peer) -> None:
        while True:
            last = finished.is_set()
            while (message := reader.take()) is not None:
                assert isinstance(message, Event)
                seen[reader.name][message.publisher].append(message.sequence)
            if last:
                return

    def publish_all() -> None:
        try:
            run_together(*(lambda publisher=publisher: publish(publisher) for publisher in publishers))
        finally:
            finished.set()

    run_together(publish_all, *(lambda reader=reader: read(reader) for reader in readers))
    for name, sequences in admitted.items():
        assert sequences == list(range(1, len(sequences) + 1))
        assert [seen[reader.name][name] for reader in readers] == [sequences, sequences]
    assert all(drained(reader) for reader in readers)
    assert bus.statistics().published == sum(map(len, admitted.values()))


@pytest.mark.spec("octet.bus.threads")
def test_everything_at_once_keeps_every_account(bus: Bus, clock: ManualClock) -> None:
    alpha, beta = bus.attach("alpha"), bus.attach("beta")
    topic = "bus.alpha.x"

    def tolerant(*requests: Callable[[], object]) -> Callable[[], None]:
        def body() -> None:
            for number in range(ROUNDS):
                try:
                    requests[number % len(requests)]()
                except (CapabilityMismatchError, InvalidParamsError, ResourceExhaustedError) as error:
                    assert isinstance(error, BrokerError)

        return body

    def hold() -> None:
        held = beta.hold()
        if held is not None:
            assert held.valid in (True, False)
            held.release()

    def come_and_go() -> None:
        bus.attach("guest", announce_binding=True).detach()

    run_together(
        tolerant(lambda: alpha.publish(topic, {"n": 1})),
        tolerant(lambda: alpha.declare(topic, [Field.integer("n")]), bus.reset),
        tolerant(lambda: beta.subscribe(topic), lambda: beta.unsubscribe(topic), beta.take),
        tolerant(hold, come_and_go, bus.statistics, lambda: clock.advance_ms(700)),
    )
    if not beta.closed:
        assert drained(beta)
    row = beta.statistics()
    assert (row.queued_messages, row.queued_bytes, row.held_messages) == (0, 0, 0)
    snapshot = bus.statistics()
    assert {peer.name for peer in snapshot.peers} <= {"alpha", "beta"}
    assert snapshot.published == alpha.statistics().published
    bus.close()
    assert (bus.statistics().topics, bus.statistics().peers) == ((), ())


@pytest.mark.spec("octet.bus.threads", "octet.bus.deliver-order")
def test_deliver_from_several_threads_hands_each_message_out_once_and_in_order(bus: Bus) -> None:
    alpha = bus.attach("alpha")
    alpha.declare("bus.alpha.x", [Field.integer("n")])
    alpha.subscribe("bus.alpha.x")
    log: list[int] = []
    alpha.deliver_to(lambda message: log.append(message.sequence if isinstance(message, Event) else 0))
    delivered: list[int] = []

    def publish() -> None:
        for number in range(ROUNDS):
            while True:
                try:
                    alpha.publish("bus.alpha.x", {"n": number})
                    break
                except ResourceExhaustedError:
                    delivered.append(bus.deliver())

    def deliver() -> None:
        for _ in range(ROUNDS):
            delivered.append(bus.deliver())

    run_together(publish, deliver, deliver)
    delivered.append(bus.deliver())
    assert log == list(range(1, ROUNDS + 1))
    assert sum(delivered) == ROUNDS
