"""The contestants that need an event loop, and the bus read in one: each publishes a list of payloads from one task."""

from __future__ import annotations

import asyncio
import atexit
import logging
import os
from collections.abc import Awaitable, Callable, Sequence
from typing import Literal

from bench.contestants import Contestant, connected_bus, ignore
from bench.payloads import TOPIC, Payload, Shape
from bench.rounds import Run

# Before the first import: it sets up logging of its own and says so on stderr.
os.environ.setdefault("BUBUS_LOGGING_LEVEL", "CRITICAL")
import bubus
import pydantic

logging.getLogger("bubus").setLevel(logging.CRITICAL)

_LOOP = asyncio.new_event_loop()
_bubuses: list[bubus.EventBus] = []


@atexit.register
def _close_loop() -> None:
    async def stop_all() -> None:
        for bus in _bubuses:
            await bus.stop(timeout=0, clear=True)
        if tasks := asyncio.all_tasks() - {asyncio.current_task()}:
            await asyncio.wait(tasks, timeout=1)

    _LOOP.run_until_complete(stop_all())
    _LOOP.close()


def _in_loop(publish_all: Callable[[Sequence[Payload]], Awaitable[None]]) -> Run:
    return lambda payloads: _LOOP.run_until_complete(publish_all(payloads))


class Reading(bubus.BaseEvent[None]):
    """The payload of four fields, with the bounds that the bus checks as well; nothing screens its strings."""

    station: str = pydantic.Field(max_length=64)
    level: int = pydantic.Field(ge=-10_000, le=10_000, strict=True)
    steady: bool = pydantic.Field(strict=True)
    trend: Literal["rising", "falling", "level"]


def bubus_bare(subscribers: int, _shape: Shape) -> Run:
    """bubus: pydantic events of four fields, every handler awaited."""
    own: list[bubus.EventBus] = []

    def named(number: int) -> Callable[[Reading], None]:
        def handler(event: Reading) -> None: ...

        # It tells handlers apart by their names, and warns when two are alike.
        handler.__name__ = handler.__qualname__ = f"handler_{number}"
        return handler

    async def publish_all(payloads: Sequence[Payload]) -> None:
        if not own:
            # It belongs to the loop that runs when it is made, and its name to it alone.
            own.append(bubus.EventBus(f"Sensor{len(_bubuses)}"))
            _bubuses.append(own[0])
            for number in range(subscribers):
                own[0].on(Reading, named(number))
        dispatch = own[0].dispatch
        for payload in payloads:
            await dispatch(Reading(**payload))

    return _in_loop(publish_all)


def asyncio_queues(subscribers: int, _shape: Shape) -> Run:
    """One bounded ``asyncio.Queue`` for each subscriber, filled and awaited in one task."""
    queues: list[asyncio.Queue[Payload]] = []

    async def publish_all(payloads: Sequence[Payload]) -> None:
        if not queues:
            queues.extend(asyncio.Queue(64) for _ in range(subscribers))
        for payload in payloads:
            for queue in queues:
                queue.put_nowait(payload)
            for queue in queues:
                ignore(await queue.get())

    return _in_loop(publish_all)


def broker_in_loop(subscribers: int, shape: Shape) -> Run:
    """The bus, read with ``await anext(peer)`` by one task."""
    _, sensor, peers = connected_bus(subscribers, shape)
    readers = [aiter(peer) for peer in peers]

    async def publish_all(payloads: Sequence[Payload]) -> None:
        for payload in payloads:
            sensor.publish(TOPIC, payload)
            for reader in readers:
                ignore(await anext(reader))

    return _in_loop(publish_all)


IN_LOOP = "broker, async for"
LOOP: dict[str, Contestant] = {IN_LOOP: broker_in_loop, "asyncio.Queue": asyncio_queues, "bubus": bubus_bare}
