"""Publications to 1, 8 and 63 in-process subscribers: the bus beside every other library. A round is 64 publications.

63 is the most that one bus can have: 64 peers, less the publisher.
"""

from __future__ import annotations

from typing import Any

import pytest

from bench import contestants, loop_contestants
from bench.compare import CONTESTANTS
from bench.payloads import FOUR

PUBLICATIONS = 64

fan_out = pytest.mark.parametrize("subscribers", [1, 8, 63])


@fan_out
@pytest.mark.parametrize("contestant", [name for name in CONTESTANTS if name != "bubus"])
def test_publish(benchmark: Any, contestant: str, subscribers: int) -> None:
    run = CONTESTANTS[contestant](subscribers, FOUR)
    benchmark.group = f"{PUBLICATIONS} publications to {subscribers}"
    benchmark.pedantic(run, setup=lambda: ((FOUR.fresh(PUBLICATIONS),), {}), rounds=200, warmup_rounds=1)


@fan_out
def test_publish_with_bubus(benchmark: Any, subscribers: int) -> None:
    run = CONTESTANTS["bubus"](subscribers, FOUR)
    benchmark.group = f"1 publication to {subscribers}"
    benchmark.pedantic(run, setup=lambda: ((FOUR.fresh(1),), {}), rounds=5, warmup_rounds=1)


# These hand over what they carry to a function that can be replaced; the bare libraries call functions of their own.
@fan_out
@pytest.mark.parametrize(
    "contestant",
    [*contestants.BROKER, *contestants.SAME_WORK, "pyzmq inproc", "floor", "broker, async for", "asyncio.Queue"],
)
def test_every_subscriber_gets_every_publication(
    monkeypatch: pytest.MonkeyPatch, contestant: str, subscribers: int
) -> None:
    seen: list[object] = []
    for module in (contestants, loop_contestants):
        monkeypatch.setattr(module, "ignore", seen.append)
    CONTESTANTS[contestant](subscribers, FOUR)(FOUR.fresh(5))
    assert len(seen) == 5 * subscribers
    assert None not in seen
