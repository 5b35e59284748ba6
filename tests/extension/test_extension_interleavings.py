"""Extensions of the author's kit in whatever order things may happen, and with faults in the middle."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from broker.extension import Event, Extension, Field
from broker.testing import Faults, MemoryHost

SEEDS = range(25)
PUBLISHED = 6


def counter() -> Extension:
    app = Extension("counter", "1.0.0")
    count = app.topic("count", [Field.integer("number")])

    @app.tool
    async def publish(number: int) -> int:
        """Publishes a number."""
        return (await count.publish(number=number)).sequence

    @app.tool
    def plainly(number: int) -> int:
        """Publishes a number in a thread."""
        return count.publish_sync(number=number).sequence

    return app


def make_counter() -> Extension:
    """As anybody would call it; the extension has a name of its own."""
    return counter()


def board(seen: list[int]) -> Extension:
    app = Extension("board", "1.0.0")

    @app.on("bus.counter.count")
    async def show(event: Event[dict[str, Any]]) -> None:
        await asyncio.sleep(0)
        seen.append(event.payload["number"])

    return app


@pytest.mark.parametrize("seed", SEEDS)
def test_every_event_arrives_once_and_in_order(seed: int) -> None:
    seen: list[int] = []
    with MemoryHost(seed=seed) as host, host.open_session() as session:
        session.add(counter())
        session.add(board(seen))
        session.start()
        session.until(lambda: ready(session))
        calls = [
            session.begin("counter", "publish" if number % 2 else "plainly", {"number": number})
            for number in range(PUBLISHED)
        ]
        sequences = [int(session.settle(call).content[0].text) for call in calls]
        assert sorted(sequences) == list(range(1, PUBLISHED + 1))
        session.until(lambda: len(seen) == PUBLISHED)
        # Numbers stand in the order of their sequences, whatever order the host got them in.
        assert seen == [number for _, number in sorted(zip(sequences, range(PUBLISHED), strict=True))]


def ready(session: Any) -> bool:
    """Whether the board's subscription is active."""
    topics = session.bus.statistics().topics
    return any(topic.topic == "bus.counter.count" and topic.subscribers == 1 for topic in topics)


@pytest.mark.parametrize("seed", SEEDS)
def test_a_reset_and_a_crash_in_the_middle(seed: int) -> None:
    seen: list[int] = []
    with MemoryHost(seed=seed) as host, host.open_session() as session:
        session.add(make_counter)
        session.add(board(seen))
        session.start()
        session.until(lambda: ready(session))
        session.call("counter", "publish", {"number": 1})
        session.bus.reset()
        session.call("counter", "plainly", {"number": 2})
        session.inject(Faults().kill("counter"))
        session.advance(30_000)
        session.until(lambda: ready(session))
        session.call("counter", "publish", {"number": 3})
        session.until(lambda: seen[-1:] == [3])
        # What was published while nobody was subscribed yet is not for anybody; nothing comes twice.
        assert seen == sorted(set(seen))
