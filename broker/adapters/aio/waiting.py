"""Outcomes awaited, and awaitables as outcomes."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Awaitable
from typing import Any, Final, TypeVar

from broker.errors import CancelledError, UsageError
from broker.host import Outcome

T = TypeVar("T")
_ANSWERING: Final[set[asyncio.Future[Any]]] = set()  # a loop holds its tasks weakly


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


def settling(answer: Awaitable[T]) -> Outcome[T]:
    """The outcome of an awaitable, which runs in the loop; if it is cancelled, so is the outcome."""
    outcome: Outcome[T] = Outcome()

    def done(task: asyncio.Future[T]) -> None:
        _ANSWERING.discard(task)
        if task.cancelled():
            outcome.fail(CancelledError("the host's own code was cancelled", reason="host"))
        else:
            outcome.settle_with(task.result)

    task = asyncio.ensure_future(answer)
    _ANSWERING.add(task)
    task.add_done_callback(done)
    return outcome


def milliseconds(seconds: float) -> int:
    """A timeout given in seconds; raises :class:`UsageError` unless it is positive."""
    if not 0 < seconds < math.inf:
        raise UsageError(f"timeout: expected a positive number of seconds, got {seconds!a:.80}", path="timeout")
    return max(1, round(seconds * 1000))
