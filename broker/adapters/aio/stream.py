"""A provider stream for programs with an asyncio loop: the events of a :class:`broker.host.ProviderStream`, awaited."""

from __future__ import annotations

import asyncio
import weakref
from collections.abc import AsyncIterator
from types import TracebackType

from broker.errors import UsageError
from broker.host import ProviderStream
from broker.wire.octet.stream_models import StreamPayload


class AsyncStream(AsyncIterator[StreamPayload]):
    """The events of one stream, in order, for one reader. Leaving the ``async with`` block early cancels the stream.

    The last event of a stream that went well is :class:`~broker.wire.octet.stream_models.Finished`; otherwise reading
    raises what :meth:`broker.host.ProviderStream.take` raises, after everything received before. A reader that leaves
    32 events untaken for more than a moment loses the stream: do slow work elsewhere. A stream that nobody holds any
    more is cancelled as well.

    ::

        async with session.stream("acme", "small", {"messages": [...]}) as stream:
            async for event in stream:
                if isinstance(event, TextDelta):
                    print(event.delta, end="")
    """

    def __init__(self, stream: ProviderStream) -> None:
        self.stream = stream
        self._woken: asyncio.Future[None] | None = None
        self._over = False
        wake = weakref.WeakMethod(self._wake)
        stream.set_listener(lambda: None if (method := wake()) is None else method())
        weakref.finalize(self, _drop, stream, asyncio.get_running_loop()).atexit = False

    async def __anext__(self) -> StreamPayload:
        if self._woken is not None:
            raise UsageError("a stream has one reader")
        while True:
            if self._over:
                raise StopAsyncIteration
            try:
                payload = self.stream.take()
            except BaseException:
                self._over = True
                raise
            if payload is not None:
                return payload
            if self.stream.ended:
                self._over = True
                continue
            self._woken = asyncio.get_running_loop().create_future()
            try:
                await self._woken
            finally:
                self._woken = None

    def cancel(self, reason: str = "user") -> None:
        """End the stream now; see :meth:`broker.host.ProviderStream.cancel`. A reader that waits gets the error."""
        self.stream.cancel(reason)

    async def aclose(self) -> None:
        """End the stream if it has not ended. Idempotent."""
        if not self.stream.closed:
            self.stream.cancel("closed")
        # A reader in another task is to learn that this was not the end of the answer.
        self._over = self._woken is None

    def _wake(self) -> None:
        if self._woken is not None and not self._woken.done():
            self._woken.set_result(None)

    async def __aenter__(self) -> AsyncStream:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.aclose()


def _drop(stream: ProviderStream, loop: asyncio.AbstractEventLoop) -> None:
    """Nobody reads it any more. This may run wherever Python collects garbage, and after the loop was closed."""
    if not stream.closed:
        try:
            loop.call_soon_threadsafe(stream.cancel, "dropped")
        except RuntimeError:
            pass
