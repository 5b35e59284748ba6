"""Single operations of the bus and of canonical JSON: what the tests of pytest-benchmark and the report both measure.

Each entry makes a fresh :class:`~bench.rounds.Workload`. What a feed does (filling queues, moving the clock, emptying)
is not timed.
"""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from typing import Any, TypeAlias

import orjson

from bench.contestants import BROKER, OURS, connected_bus, ignore
from bench.payloads import FOUR, HOSTILE, REFUSED, TOPIC, TWENTY_FOUR, Payload, Shape, hostile, text
from bench.rounds import Workload, each
from broker import BrokerError, Bus, canonical
from broker.clock import SystemClock
from broker.errors import ResourceExhaustedError
from broker.limits import MAX_BUS_MESSAGE_AGE_MS, MAX_BUS_PEERS, MAX_BUS_QUEUE_MESSAGES, MAX_BUS_TOPICS
from broker.testing import ManualClock

Make: TypeAlias = Callable[[], Workload]


def publish_and_deliver(subscribers: int, shape: Shape, *, consumer: str = OURS) -> Workload:
    """A publication and its handling by every subscriber, on payloads never seen before."""
    return Workload(BROKER[consumer](subscribers, shape), shape.fresh)


def publish_and_deliver_warm(subscribers: int, shape: Shape) -> Workload:
    """The same payload again and again: whatever is cached helps."""
    payload = shape.fresh(1)[0]
    return Workload(BROKER[OURS](subscribers, shape), lambda count: [payload] * count)


def publish_only(subscribers: int, shape: Shape) -> Workload:
    """The publication alone; the queues are emptied between the rounds."""
    _, sensor, peers = connected_bus(subscribers, shape)
    publish = sensor.publish

    def feed(count: int) -> list[Payload]:
        for peer in peers:
            while peer.take() is not None:
                pass
        return shape.fresh(min(count, MAX_BUS_QUEUE_MESSAGES))

    return Workload(each(lambda payload: publish(TOPIC, payload)), feed)


def publish_refused(make: Callable[[int], str]) -> Workload:
    """A publication whose string is refused, its error made and raised."""
    shape = hostile(make)
    _, sensor, _ = connected_bus(1, shape)

    def operation(payload: Payload) -> None:
        try:
            sensor.publish(TOPIC, payload)
        except BrokerError:
            return
        raise AssertionError("a string that should be refused was not")

    return Workload(each(operation), shape.fresh)


def queue_full() -> Workload:
    """A publication to 8 subscribers one of whom has no room."""
    _, sensor, peers = connected_bus(8, FOUR)
    for payload in FOUR.fresh(MAX_BUS_QUEUE_MESSAGES):
        sensor.publish(TOPIC, payload)
        for peer in peers[:-1]:
            peer.take()

    def operation(payload: Payload) -> None:
        with suppress(ResourceExhaustedError):
            sensor.publish(TOPIC, payload)
            raise AssertionError("a full queue should refuse")

    return Workload(each(operation), FOUR.fresh)


def take_waiting(*, age_ms: int) -> Workload:
    """Emptying the queue of one peer after ``age_ms``, for each message in it."""
    clock = ManualClock()
    bus = Bus(clock)
    sensor, display = bus.attach("sensor"), bus.attach("display")
    sensor.declare(TOPIC, FOUR.fields)
    display.subscribe(TOPIC)
    take = display.take

    def feed(_: int) -> list[Payload]:
        payloads = FOUR.fresh(MAX_BUS_QUEUE_MESSAGES)
        for payload in payloads:
            sensor.publish(TOPIC, payload)
        clock.advance_ms(age_ms)
        return payloads

    def run(_: Sequence[Any]) -> None:
        while take() is not None:
            pass

    return Workload(run, feed)


def none_expired() -> Workload:
    """Taking what is exactly as old as it may be."""
    return take_waiting(age_ms=MAX_BUS_MESSAGE_AGE_MS)


def all_expired() -> Workload:
    """Finding that everything that waits is too old."""
    return take_waiting(age_ms=MAX_BUS_MESSAGE_AGE_MS + 1)


def churn() -> Workload:
    """Unsubscribing and subscribing again, on a topic with 63 subscribers."""
    _, _, peers = connected_bus(MAX_BUS_PEERS - 1, FOUR)

    def operation(n: int) -> None:
        peer = peers[n % len(peers)]
        peer.unsubscribe(TOPIC)
        peer.subscribe(TOPIC)

    return Workload(each(operation), range)


def crowd() -> Workload:
    """A publication on one of 128 topics, on a bus with 64 peers of 16 subscriptions: 8 subscribers each."""
    bus = Bus()
    peers = [bus.attach(f"peer-{n}") for n in range(MAX_BUS_PEERS)]
    topics = []
    for n in range(MAX_BUS_TOPICS):
        owner = peers[n % len(peers)]
        topics.append((owner, f"bus.{owner.name}.t{n}"))
        owner.declare(topics[-1][1], FOUR.fields)
    for index, peer in enumerate(peers):
        for step in range(16):
            peer.subscribe(topics[(index * 16 + step) % len(topics)][1])
        peer.deliver_to(ignore)
    turn = _cycle(topics)

    def operation(payload: Payload) -> None:
        owner, topic = next(turn)
        owner.publish(topic, payload)
        bus.deliver()

    return Workload(each(operation), FOUR.fresh)


def _cycle(items: list[Any]) -> Iterator[Any]:
    while True:
        yield from items


def threads(number: int) -> Workload:
    """Publishing and taking by each of ``number`` threads on one bus, a topic and a subscriber of its own for each."""
    bus = Bus()
    pairs = []
    for n in range(number):
        publisher, subscriber = bus.attach(f"sensor-{n}"), bus.attach(f"display-{n}")
        topic = f"bus.sensor-{n}.reading"
        publisher.declare(topic, FOUR.fields)
        subscriber.subscribe(topic)
        pairs.append((publisher.publish, topic, subscriber.take))

    def work(publish: Callable[..., object], topic: str, take: Callable[[], object], payloads: list[Payload]) -> None:
        for payload in payloads:
            publish(topic, payload)
            take()

    def run(payloads: Sequence[Payload]) -> None:
        workers = [
            threading.Thread(target=work, args=(*pair, payloads[index::number])) for index, pair in enumerate(pairs)
        ]
        for worker in workers:
            worker.start()
        for worker in workers:
            worker.join()

    # Enough of them that starting the threads does not count.
    return Workload(run, lambda count: FOUR.fresh(max(count, 2_000)))


def expiry_armed(*, waiting: int) -> Workload:
    """Publishing and delivering to 8 while ``waiting`` events of others wait: what watching their age costs."""
    bus, sensor, peers = connected_bus(8, FOUR)
    for peer in peers:
        peer.deliver_to(ignore)
    other = bus.attach("other")
    other.declare("bus.other.reading", FOUR.fields)
    for n in range(waiting // MAX_BUS_QUEUE_MESSAGES):
        bus.attach(f"waits-{n}").subscribe("bus.other.reading")
    for payload in FOUR.fresh(MAX_BUS_QUEUE_MESSAGES if waiting else 0):
        other.publish("bus.other.reading", payload)

    def operation(payload: Payload) -> None:
        sensor.publish(TOPIC, payload)
        bus.deliver()

    return Workload(each(operation), FOUR.fresh)


def expiry_comparisons() -> Workload:
    """What a publication does about expiry when nothing expires: it reads the clock and compares two numbers twice."""
    now_ms, deadline = SystemClock().monotonic_ms, 1 << 62

    def operation(_: int) -> None:
        now = now_ms()
        if now > deadline or deadline < now + MAX_BUS_MESSAGE_AGE_MS:
            raise AssertionError("nothing expires here")

    return Workload(each(operation), range)


def empty() -> Workload:
    """A loop over a Python call that does nothing: what measuring itself costs."""
    return Workload(each(ignore), range)


# -- canonical JSON ----------------------------------------------------------------------------------------------------


def _frame(size: int) -> Callable[[int], list[dict[str, Any]]]:
    shape = text(min(size, 1024))

    def feed(count: int) -> list[dict[str, Any]]:
        return [
            {
                "jsonrpc": "2.0",
                "method": "bus/event",
                "params": {
                    "binding_id": "0123456789abcdef0123456789abcdef",
                    "sequence": n + 1,
                    "topic": TOPIC,
                    "payload": {"parts": shape.fresh(max(1, size // 1024))},
                },
            }
            for n in range(min(count, 200))
        ]

    return feed


def encoding(encode: Callable[[Any], object], size: int) -> Workload:
    """One frame to bytes."""
    return Workload(each(encode), _frame(size))


def decoding(decode: Callable[[bytes], object], size: int) -> Workload:
    """One frame from bytes."""
    feed = _frame(size)
    return Workload(each(decode), lambda count: [canonical.encode(value) for value in feed(count)])


def _json_dumps(value: Any) -> bytes:
    return json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=False).encode()


ENCODERS: dict[str, Callable[[Any], object]] = {
    "broker.canonical": canonical.encode,
    "orjson, sorted": lambda value: orjson.dumps(value, option=orjson.OPT_SORT_KEYS),
    "json, sorted": _json_dumps,
}
DECODERS: dict[str, Callable[[bytes], object]] = {
    "broker.canonical": canonical.decode,
    "orjson": orjson.loads,
    "json": json.loads,
}
JSON_SIZES = (256, 16_384)
TEXT_SIZES = (10, 32, 100, 320, 1024)

# -- the names they are reported under ---------------------------------------------------------------------------------

PLAIN_TEXT = "1024 B of plain text"

DELIVERED: dict[str, Make] = {
    "4 fields, cold": lambda: publish_and_deliver(8, FOUR),
    "4 fields, warm": lambda: publish_and_deliver_warm(8, FOUR),
    "24 fields, cold": lambda: publish_and_deliver(8, TWENTY_FOUR),
    "24 fields, warm": lambda: publish_and_deliver_warm(8, TWENTY_FOUR),
    "1024 B text, cold": lambda: publish_and_deliver(8, text(1024)),
    "1024 B text, warm": lambda: publish_and_deliver_warm(8, text(1024)),
}
PUBLISHED: dict[str, Make] = {
    f"publish only, N={subscribers}": lambda subscribers=subscribers: publish_only(subscribers, FOUR)  # type: ignore[misc]
    for subscribers in (0, 1, 8, 63)
}
TEXTS: dict[str, Make] = {
    f"{size} B text": lambda size=size: publish_and_deliver(8, text(size))  # type: ignore[misc]
    for size in TEXT_SIZES
}
BOUNDS: dict[str, Make] = {
    "taken, none expired": none_expired,
    "taken, all expired": all_expired,
    "refused, one of 8 full": queue_full,
    "unsubscribed and subscribed again, 63 subscribers": churn,
    "128 topics, 64 peers, 8 subscribers a topic": crowd,
}
THREADS: dict[str, Make] = {
    "published and taken by one thread": lambda: threads(1),
    "published and taken by two threads": lambda: threads(2),
}
EXPIRY: dict[str, Make] = {
    "nothing waits": lambda: expiry_armed(waiting=0),
    "3200 events of others wait": lambda: expiry_armed(waiting=3200),
    "the comparisons alone": expiry_comparisons,
    "nothing at all": empty,
}
HOSTILE_ACCEPTED: dict[str, Make] = {
    name: lambda make=make: publish_only(1, hostile(make))  # type: ignore[misc]
    for name, make in HOSTILE.items()
}
HOSTILE_REFUSED: dict[str, Make] = {
    name: lambda make=make: publish_refused(make)  # type: ignore[misc]
    for name, make in REFUSED.items()
}
SCREENING: dict[str, Make] = {
    PLAIN_TEXT: lambda: publish_only(1, text(1024)),
    **HOSTILE_ACCEPTED,
    **HOSTILE_REFUSED,
}
ENCODING: dict[str, Make] = {
    f"encode {size} B, {name}": lambda size=size, encode=encode: encoding(encode, size)  # type: ignore[misc]
    for size in JSON_SIZES
    for name, encode in ENCODERS.items()
}
DECODING: dict[str, Make] = {
    f"decode {size} B, {name}": lambda size=size, decode=decode: decoding(decode, size)  # type: ignore[misc]
    for size in JSON_SIZES
    for name, decode in DECODERS.items()
}
