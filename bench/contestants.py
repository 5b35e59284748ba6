"""Everybody who publishes in the comparison: an operation is one publication and its handling by every subscriber.

Each entry makes, for a number of subscribers and a shape of payloads, a function that publishes a list of payloads.
"""

from __future__ import annotations

import weakref
from collections import deque
from collections.abc import Callable
from typing import Any, TypeAlias

import blinker
import orjson
import pluggy
import psygnal
import pyee
import zmq

from bench import same_work
from bench.payloads import TOPIC, Payload, Shape
from bench.rounds import Run, each
from broker import Bus
from broker.bus import Peer

Contestant: TypeAlias = Callable[[int, Shape], Run]


def ignore(_message: Any) -> None:
    """A handler that does nothing with what it gets, as those of the other libraries."""


# -- the bus -----------------------------------------------------------------------------------------------------------


def connected_bus(subscribers: int, shape: Shape) -> tuple[Bus, Peer, list[Peer]]:
    """A bus with one publisher of the shape, its topic declared, and subscribers."""
    bus = Bus()
    sensor = bus.attach("sensor")
    sensor.declare(TOPIC, shape.fields)
    peers = [bus.attach(f"display-{n}") for n in range(subscribers)]
    for peer in peers:
        peer.subscribe(TOPIC)
    return bus, sensor, peers


def broker_handlers(subscribers: int, shape: Shape) -> Run:
    """The bus, consumed by handlers."""
    bus, sensor, peers = connected_bus(subscribers, shape)
    for peer in peers:
        peer.deliver_to(ignore)
    publish, deliver = sensor.publish, bus.deliver

    def operation(payload: Payload) -> None:
        publish(TOPIC, payload)
        deliver()

    return each(operation)


def broker_take(subscribers: int, shape: Shape) -> Run:
    """The bus, consumed by ``take()``."""
    _, sensor, peers = connected_bus(subscribers, shape)
    publish, takes = sensor.publish, [peer.take for peer in peers]

    def operation(payload: Payload) -> None:
        publish(TOPIC, payload)
        for take in takes:
            ignore(take())

    return each(operation)


# -- the same work on a signal library ---------------------------------------------------------------------------------


def _same_work(
    subscribers: int, shape: Shape, carry: Callable[[Any], object], connect: Callable[[same_work.Queue], object]
) -> Run:
    work = same_work.SameWork(TOPIC, shape.checks, carry)
    for _ in range(subscribers):
        queue = same_work.Queue(ignore)
        work.subscribe(queue)
        connect(queue)
    publish, deliver = work.publish, work.deliver

    def operation(payload: Payload) -> None:
        publish(TOPIC, payload)
        deliver()

    return each(operation)


def blinker_same_work(subscribers: int, shape: Shape) -> Run:
    """The same work on blinker."""
    signal = blinker.Signal()
    return _same_work(
        subscribers,
        shape,
        lambda event: signal.send("sensor", event=event),
        lambda queue: signal.connect(lambda _sender, event: queue.put(event), weak=False),
    )


class _Emitter:
    fired = psygnal.Signal(object)


def psygnal_same_work(subscribers: int, shape: Shape) -> Run:
    """The same work on psygnal."""
    emitter = _Emitter()
    emit = emitter.fired.emit
    return _same_work(subscribers, shape, emit, lambda queue: emitter.fired.connect(queue.put))


def pyee_same_work(subscribers: int, shape: Shape) -> Run:
    """The same work on pyee."""
    emitter = pyee.EventEmitter()
    emit = emitter.emit
    return _same_work(
        subscribers,
        shape,
        lambda event: emit("reading", event),
        lambda queue: emitter.add_listener("reading", queue.put),
    )


# -- bare: the library as it is, and nothing else ----------------------------------------------------------------------


def blinker_bare(subscribers: int, _shape: Shape) -> Run:
    """blinker, calling handlers and nothing else."""
    signal = blinker.Signal()
    handlers = [lambda _sender, payload: None for _ in range(subscribers)]
    for handler in handlers:
        signal.connect(handler, weak=False)
    return each(lambda payload: signal.send("sensor", payload=payload))


def psygnal_bare(subscribers: int, _shape: Shape) -> Run:
    """psygnal (compiled), calling handlers and nothing else."""
    emitter = _Emitter()
    for _ in range(subscribers):
        emitter.fired.connect(lambda payload: None)
    return each(emitter.fired.emit)


def pyee_bare(subscribers: int, _shape: Shape) -> Run:
    """pyee, calling handlers and nothing else."""
    emitter = pyee.EventEmitter()
    for _ in range(subscribers):
        emitter.add_listener("reading", lambda payload: None)
    return each(lambda payload: emitter.emit("reading", payload))


def pluggy_bare(subscribers: int, _shape: Shape) -> Run:
    """pluggy, calling one hook of every plugin."""
    specification, implementation = pluggy.HookspecMarker("bench"), pluggy.HookimplMarker("bench")

    class Hooks:
        @specification
        def reading(self, payload: Payload) -> None: ...

    class Plugin:
        @implementation
        def reading(self, payload: Payload) -> None: ...

    manager = pluggy.PluginManager("bench")
    manager.add_hookspecs(Hooks)
    for _ in range(subscribers):
        manager.register(Plugin())
    return each(lambda payload: manager.hook.reading(payload=payload))


def zmq_inproc(subscribers: int, _shape: Shape) -> Run:
    """pyzmq PUB and SUB sockets over inproc: JSON written once, read by every subscriber."""
    context = zmq.Context()
    publisher = context.socket(zmq.PUB)
    publisher.bind("inproc://reading")
    sockets = [context.socket(zmq.SUB) for _ in range(subscribers)]
    for socket in sockets:
        socket.connect("inproc://reading")
        socket.subscribe(b"")
    receivers = [socket.recv for socket in sockets]

    def operation(payload: Payload) -> None:
        publisher.send(orjson.dumps(payload))
        for receive in receivers:
            ignore(orjson.loads(receive()))

    weakref.finalize(operation, context.destroy, linger=0)
    return each(operation)


def floor(subscribers: int, _shape: Shape) -> Run:
    """The least that can be done: append, popleft, call."""
    queues: list[deque[Any]] = [deque() for _ in range(subscribers)]

    def operation(payload: Payload) -> None:
        for queue in queues:
            queue.append(payload)
        for queue in queues:
            ignore(queue.popleft())

    return each(operation)


OURS = "broker, handlers"
TAKE = "broker, take()"

BROKER: dict[str, Contestant] = {OURS: broker_handlers, TAKE: broker_take}
SAME_WORK: dict[str, Contestant] = {
    "same work on blinker": blinker_same_work,
    "same work on psygnal": psygnal_same_work,
    "same work on pyee": pyee_same_work,
}
BARE: dict[str, Contestant] = {
    "blinker bare": blinker_bare,
    "psygnal bare": psygnal_bare,
    "pyee bare": pyee_bare,
    "pluggy bare": pluggy_bare,
    "pyzmq inproc": zmq_inproc,
    "floor": floor,
}
