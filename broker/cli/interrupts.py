"""Ctrl-C, SIGTERM and a closed terminal: the first asks for an orderly end, the second ends the program at once."""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Final

from broker.cli.exit_codes import FAILURE

_INTERRUPTS: Final = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


@contextmanager
def interrupts(ask: Callable[[], object]) -> Iterator[None]:
    """Have the first interrupt call ``ask()`` in the running loop, and the second end the program.

    The second is not left to the loop, which hears nothing while it waits for somebody to read the output.
    """
    loop = asyncio.get_running_loop()
    asked = False

    def interrupt(_: int, __: FrameType | None) -> None:
        nonlocal asked
        if asked:
            # No more waiting for anybody. The orphan guard kills what is left of the extensions.
            os._exit(FAILURE)
        asked = True
        loop.call_soon_threadsafe(ask)

    with handled(_INTERRUPTS, interrupt):
        yield


@contextmanager
def handled(numbers: Iterable[signal.Signals], handler: Callable[[int, FrameType | None], object]) -> Iterator[None]:
    """Have ``handler`` called for these signals.

    One that is ignored, as nohup and a shell's background have it, stays so.
    """
    taken = [number for number in numbers if signal.getsignal(number) is not signal.SIG_IGN]
    before = {number: signal.signal(number, handler) for number in taken}
    try:
        yield
    finally:
        for number, former in before.items():
            signal.signal(number, former)
