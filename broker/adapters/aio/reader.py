"""``async for message in peer``: a thin wait above the kernel, in whatever asyncio loop is running."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

from broker.bus import Message, Peer
from broker.limits import MAX_BUS_QUEUE_MESSAGES


async def read_messages(peer: Peer) -> AsyncIterator[Message]:
    """Every message of ``peer`` as it comes, until the peer is closed and its inbox is empty."""
    loop = asyncio.get_running_loop()
    wake = asyncio.Event()

    def notify() -> None:
        try:
            loop.call_soon_threadsafe(wake.set)
        except RuntimeError:
            pass  # the loop is closed; nobody waits here any more

    remove = peer.bus.add_listener(notify)
    in_a_row = 0
    try:
        while True:
            wake.clear()
            message = peer.take()
            if message is not None:
                yield message
                in_a_row += 1
                if in_a_row % MAX_BUS_QUEUE_MESSAGES == 0:
                    # A publisher in another thread must not keep this loop from everything else it has to do.
                    await asyncio.sleep(0)
            elif peer.closed:
                return
            else:
                await wake.wait()
    finally:
        remove()
