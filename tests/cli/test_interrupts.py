"""Which signals ask a command for its end, and which it leaves alone."""

from __future__ import annotations

import asyncio
import os
import signal

import pytest

from broker.cli.interrupts import interrupts

SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


@pytest.mark.parametrize("number", SIGNALS)
def test_a_signal_that_was_ignored_from_the_start_stays_ignored(number: int) -> None:
    """As ``nohup broker run`` and ``broker run &`` in a script have it."""
    before = {one: signal.getsignal(one) for one in SIGNALS}
    signal.signal(number, signal.SIG_IGN)
    try:

        async def main() -> None:
            asked = asyncio.Event()
            with interrupts(asked.set):
                os.kill(os.getpid(), number)
                await asyncio.sleep(0)
                assert not asked.is_set()
                os.kill(os.getpid(), next(one for one in SIGNALS if one != number))
                await asyncio.wait_for(asked.wait(), 10)
            assert signal.getsignal(number) is signal.SIG_IGN

        asyncio.run(main())
    finally:
        for one, handler in before.items():
            signal.signal(one, handler)
