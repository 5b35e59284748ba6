"""Everybody who publishes in the comparison: one operation is a publication and its handling by every subscriber."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import Any

import blinker
import psygnal
import pyee

from bench import same_work
from broker import Bus, Field

TOPIC = "bus.sensor.reading"
# A prime number of them, so that no period of the measurement meets the same few again and again.
PAYLOADS = [
    {
        "station": f"station {('north', 'south', 'east', 'west')[n % 4]} x-{n}",
        "level": (n * 7919) % 20_001 - 10_000,
        "steady": n % 3 == 0,
        "trend": ("rising", "falling", "level")[n % 3],
    }
    for n in range(251)
]

Operation = Callable[[dict[str, Any]], object]


def ignore(*_: Any, **__: Any) -> None:
    """A handler that costs as little as a Python call can."""


def broker_handlers(subscribers: int) -> Operation:
    """The bus, consumed by handlers."""
    bus, publish = _bus(subscribers, handlers=True)

    def operation(payload: dict[str, Any]) -> None:
        publish(TOPIC, payload)
        bus.deliver()

    return operation


def broker_take(subscribers: int) -> Operation:
    """The bus, consumed by ``take()``."""
    bus, publish = _bus(subscribers, handlers=False)
    takes = [peer.take for peer in bus._peers if peer.name != "sensor"]

    def operation(payload: dict[str, Any]) -> None:
        publish(TOPIC, payload)
        for take in takes:
            ignore(take())

    return operation


def _bus(subscribers: int, *, handlers: bool) -> tuple[Bus, Callable[..., object]]:
    bus = Bus()
    sensor = bus.attach("sensor")
    sensor.declare(
        TOPIC,
        [
            Field.string("station", max_bytes=64),
            Field.integer("level", minimum=-10_000, maximum=10_000),
            Field.boolean("steady"),
            Field.enum("trend", ["rising", "falling", "level"]),
        ],
    )
    for n in range(subscribers):
        peer = bus.attach(f"display-{n}")
        peer.subscribe(TOPIC)
        if handlers:
            peer.deliver_to(lambda event: None)
    return bus, sensor.publish


def _same_work(subscribers: int, carry: Callable[[Any], object], connect: Callable[[Any], object]) -> Operation:
    work = same_work.SameWork(
        TOPIC,
        {
            "station": same_work.string(64),
            "level": same_work.integer(-10_000, 10_000),
            "steady": same_work.boolean,
            "trend": same_work.enum("rising", "falling", "level"),
        },
        carry,
    )
    for _ in range(subscribers):
        queue = same_work.Queue(lambda event: None)
        work.queues.append(queue)
        connect(queue)

    def operation(payload: dict[str, Any]) -> None:
        work.publish(payload)
        work.deliver()

    return operation


def blinker_bare(subscribers: int) -> Operation:
    """blinker, calling handlers and nothing else."""
    signal = blinker.Signal()
    handlers = [lambda _sender, payload: None for _ in range(subscribers)]
    for handler in handlers:
        signal.connect(handler, weak=False)
    return lambda payload: signal.send("sensor", payload=payload)


def blinker_same_work(subscribers: int) -> Operation:
    """The same work on blinker."""
    signal = blinker.Signal()
    return _same_work(
        subscribers,
        lambda event: signal.send("sensor", event=event),
        lambda queue: signal.connect(lambda _sender, event: queue.put(event), weak=False),
    )


class _Emitter:
    fired = psygnal.Signal(object)


def psygnal_bare(subscribers: int) -> Operation:
    """psygnal (compiled), calling handlers and nothing else."""
    emitter = _Emitter()
    for _ in range(subscribers):
        emitter.fired.connect(lambda payload: None)
    return emitter.fired.emit


def psygnal_same_work(subscribers: int) -> Operation:
    """The same work on psygnal."""
    emitter = _Emitter()
    return _same_work(subscribers, emitter.fired.emit, lambda queue: emitter.fired.connect(queue.put))


def pyee_bare(subscribers: int) -> Operation:
    """pyee, calling handlers and nothing else."""
    emitter = pyee.EventEmitter()
    for _ in range(subscribers):
        emitter.add_listener("reading", lambda payload: None)
    return lambda payload: emitter.emit("reading", payload)


def pyee_same_work(subscribers: int) -> Operation:
    """The same work on pyee."""
    emitter = pyee.EventEmitter()
    return _same_work(
        subscribers,
        lambda event: emitter.emit("reading", event),
        lambda queue: emitter.add_listener("reading", queue.put),
    )


def floor(subscribers: int) -> Operation:
    """The least that can be done: append, popleft, call."""
    queues: list[deque[Any]] = [deque() for _ in range(subscribers)]

    def operation(payload: dict[str, Any]) -> None:
        for queue in queues:
            queue.append(payload)
        for queue in queues:
            ignore(queue.popleft())

    return operation


CONTESTANTS: dict[str, Callable[[int], Operation]] = {
    "broker, handlers": broker_handlers,
    "broker, take()": broker_take,
    "same work on blinker": blinker_same_work,
    "same work on psygnal": psygnal_same_work,
    "same work on pyee": pyee_same_work,
    "blinker bare": blinker_bare,
    "psygnal bare": psygnal_bare,
    "pyee bare": pyee_bare,
    "floor": floor,
}
