"""One publication to 1, 8 and 63 in-process subscribers, beside the bare dispatch of blinker and psygnal.

An operation is one publication and its receipt by every subscriber. 63 is the most that one bus can have: 64 peers,
less the publisher.
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import cycle
from typing import Any

import blinker
import psygnal
import pytest

from broker import Bus, Event, Field

TOPIC = "bus.sensor.reading"
FIELDS = [
    Field.string("station", max_bytes=32),
    Field.integer("level", minimum=-10_000, maximum=10_000),
    Field.boolean("steady"),
    Field.enum("trend", ["rising", "falling", "level"]),
]
# A prime number of them, so that no period of the measurement meets the same few again and again.
PAYLOADS = [
    {
        "station": f"station {('north', 'south', 'east', 'west')[n % 4]} {n}",
        "level": (n * 7919) % 20_001 - 10_000,
        "steady": n % 3 == 0,
        "trend": ("rising", "falling", "level")[n % 3],
    }
    for n in range(251)
]

fan_out = pytest.mark.parametrize("subscribers", [1, 8, 63])


class Sink:
    """A subscriber of the other libraries: keeps what it was given last."""

    last: Any = None

    def receive(self, payload: dict[str, Any]) -> None:
        self.last = payload

    def receive_signal(self, _sender: object, payload: dict[str, Any]) -> None:
        self.last = payload


def measure(benchmark: Any, subscribers: int, publish_and_receive: Callable[[], None]) -> None:
    benchmark.group = f"publish to {subscribers}"
    benchmark(publish_and_receive)


@fan_out
def test_broker(benchmark: Any, subscribers: int) -> None:
    bus = Bus()
    publisher = bus.attach("sensor")
    publisher.declare(TOPIC, FIELDS)
    peers = [bus.attach(f"display-{n}") for n in range(subscribers)]
    for peer in peers:
        peer.subscribe(TOPIC)
        while peer.take() is not None:
            pass
    payloads = cycle(PAYLOADS)
    takes = [peer.take for peer in peers]

    def publish_and_receive() -> None:
        publisher.publish(TOPIC, next(payloads))
        for take in takes:
            take()

    measure(benchmark, subscribers, publish_and_receive)
    receipt = publisher.publish(TOPIC, PAYLOADS[0])
    for peer in peers:
        event = peer.take()
        assert isinstance(event, Event)
        assert (event.sequence, event.payload) == (receipt.sequence, PAYLOADS[0])
        assert peer.take() is None


@fan_out
def test_blinker(benchmark: Any, subscribers: int) -> None:
    signal = blinker.Signal()
    sinks = [Sink() for _ in range(subscribers)]
    for sink in sinks:
        signal.connect(sink.receive_signal)
    payloads = cycle(PAYLOADS)

    def publish_and_receive() -> None:
        signal.send("sensor", payload=next(payloads))

    measure(benchmark, subscribers, publish_and_receive)
    signal.send("sensor", payload=PAYLOADS[0])
    assert all(sink.last is PAYLOADS[0] for sink in sinks)


class Emitter:
    reading = psygnal.Signal(dict)


@fan_out
def test_psygnal(benchmark: Any, subscribers: int) -> None:
    emitter = Emitter()
    sinks = [Sink() for _ in range(subscribers)]
    for sink in sinks:
        emitter.reading.connect(sink.receive)
    emit = emitter.reading.emit
    payloads = cycle(PAYLOADS)

    def publish_and_receive() -> None:
        emit(next(payloads))

    measure(benchmark, subscribers, publish_and_receive)
    emit(PAYLOADS[0])
    assert all(sink.last is PAYLOADS[0] for sink in sinks)
