"""Outcomes awaited, and timeouts in seconds."""

from __future__ import annotations

import asyncio
import math
from typing import TypeVar

from broker.errors import UsageError
from broker.host import Outcome

T = TypeVar("T")


async def wait(outcome: Outcome[T]) -> T:
    """Wait for an outcome; cancelling the wait leaves the outcome alone."""
    if not outcome.done:
        future: asyncio.Future[None] = asyncio.get_running_loop().create_future()

        def settled(_: Outcome[T]) -> None:
            if not future.done():
                future.set_result(None)

        outcome.add_callback(settled)
        await future
    return outcome.result()


def milliseconds(seconds: float) -> int:
    """A timeout given in seconds; raises :class:`UsageError` unless it is positive."""
    if isinstance(seconds, bool) or not isinstance(seconds, int | float) or not 0 < seconds < math.inf:
        raise UsageError(f"timeout: expected a positive number of seconds, got {seconds!a:.80}", path="timeout")
    return max(1, round(seconds * 1000))
