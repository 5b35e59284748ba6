"""Waiting until a session has come to rest: nothing was started, declared or published for a moment."""

from __future__ import annotations

import asyncio

from broker.limits import SETTLE_MS, SETTLE_QUIET_MS


class Activity:
    """Told of everything that happens; says when nothing has for a while."""

    def __init__(self, quiet: float = SETTLE_QUIET_MS / 1000) -> None:
        self._quiet = quiet
        self._happened = asyncio.Event()

    def note(self) -> None:
        """Something happened."""
        self._happened.set()

    async def settle(self, limit: float | None = None) -> None:
        """Wait until nothing happened for the quiet time, at most ``limit`` seconds (``SETTLE_MS`` when None)."""
        loop = asyncio.get_running_loop()
        end = loop.time() + (SETTLE_MS / 1000 if limit is None else limit)
        while (left := end - loop.time()) > 0:
            self._happened.clear()
            try:
                await asyncio.wait_for(self._happened.wait(), min(self._quiet, left))
            except TimeoutError:
                return
