"""What a host without an event loop stands on: a loop in a thread of its own, and results and streams it hands over."""

from __future__ import annotations

import asyncio
import concurrent.futures
import logging
import os
import queue
import threading
import weakref
from collections.abc import Callable, Coroutine, Iterator
from types import TracebackType
from typing import Any, Final, Generic, TypeAlias, TypeVar

from broker.adapters.aio.stream import AsyncStream
from broker.errors import BrokerError, CancelledError, ResourceExhaustedError, UsageError
from broker.limits import MAX_PROVIDER_STREAM_BACKLOG
from broker.wire.octet.stream_models import StreamPayload

T = TypeVar("T")
_Events: TypeAlias = "queue.SimpleQueue[StreamPayload | BrokerError | None]"
_LOG: Final = logging.getLogger(__name__)
_HANDING_OVER: Final[set[asyncio.Future[None]]] = set()  # a loop holds its tasks weakly


class BackgroundLoop:
    """An asyncio loop in a daemon thread."""

    def __init__(self) -> None:
        self._pid = os.getpid()
        self._loop = asyncio.new_event_loop()
        self._lock = threading.Lock()
        self._stopping = False
        self._told_to_stop = False
        self._thread = threading.Thread(target=self._run, name="broker-loop", daemon=True)
        self._thread.start()

    def _run(self) -> None:
        while not self._told_to_stop:
            try:
                self._loop.run_forever()
            except BaseException:
                # asyncio lets SystemExit and KeyboardInterrupt of a callback or task through. In a thread they end no
                # program, only the loop, and every caller would wait for ever.
                _LOG.exception("the host's own code tried to end the thread of its loop")

    def _stop(self) -> None:
        self._told_to_stop = True
        self._loop.stop()

    @property
    def stopped(self) -> bool:
        """Whether nothing can be submitted any more: closed, or a process forked from the one it runs in."""
        return self._stopping or os.getpid() != self._pid

    def submit(self, work: Coroutine[Any, Any, T]) -> concurrent.futures.Future[T]:
        """Begin ``work`` in the loop."""
        if os.getpid() != self._pid:
            # Not even the lock may be touched: another thread of the parent may have held it at the fork.
            work.close()
            raise UsageError("this process was forked from the host; open a host of its own here")
        try:
            self.require_another_thread()
            with self._lock:
                if self._stopping:
                    raise UsageError("the host is closed")
                return asyncio.run_coroutine_threadsafe(work, self._loop)
        except UsageError:
            work.close()
            raise

    def require_another_thread(self) -> None:
        """Raise :class:`UsageError` in the loop's own thread."""
        if threading.current_thread() is self._thread:
            raise UsageError("a handler or observer runs in the host's own thread and cannot wait for it")

    def run(self, work: Coroutine[Any, Any, T]) -> T:
        """Do ``work`` in the loop and wait for it."""
        try:
            return self.submit(work).result()
        except concurrent.futures.CancelledError:
            raise CancelledError("the host was closed meanwhile", reason="closed") from None

    def post(self, act: Callable[[], object]) -> None:
        """Have the loop call ``act()`` soon, unless it is closed. Callable from any thread, the loop's own too."""
        if not self.stopped:
            try:
                self._loop.call_soon_threadsafe(act)
            except RuntimeError:
                pass

    def close(self) -> None:
        """End the loop, its thread and whatever still runs in it."""
        with self._lock:
            self._stopping = True
        self._loop.call_soon_threadsafe(self._stop)
        self._thread.join()
        self._loop.run_until_complete(self._cancel_the_rest())
        self._loop.run_until_complete(self._loop.shutdown_default_executor())
        self._loop.close()

    @staticmethod
    async def _cancel_the_rest() -> None:
        """What was submitted between the end of the sessions and that of the thread is answered as well."""
        left = asyncio.all_tasks() - {asyncio.current_task()}
        for task in left:
            task.cancel()
        await asyncio.gather(*left, return_exceptions=True)


class PendingCall(Generic[T]):
    """A tool call on its way in a :class:`BlockingSession`."""

    def __init__(self, future: concurrent.futures.Future[T]) -> None:
        self._future = future

    @property
    def done(self) -> bool:
        """Whether it settled."""
        return self._future.done()

    def result(self, timeout: float | None = None) -> T:
        """Wait, at most ``timeout`` seconds, for the result; the call itself goes on after a ``TimeoutError``."""
        try:
            return self._future.result(timeout)
        except concurrent.futures.CancelledError:
            raise CancelledError("the call was cancelled", reason="user") from None

    def cancel(self) -> None:
        """Release the call at once; the extension is told once, if it had it. Idempotent."""
        self._future.cancel()


class BlockingStream(Iterator[StreamPayload]):
    """The events of one provider stream, waited for. Made by :meth:`BlockingSession.stream`; for one thread.

    Iteration ends after :class:`~broker.wire.octet.stream_models.Finished`, or raises why the stream ended; a stream
    has deadlines, so it never waits for ever. A reader that falls 1024 events behind loses the stream. Leaving the
    ``with`` block early cancels it, and so does letting go of it.
    """

    def __init__(self, loop: BackgroundLoop, open_stream: Callable[[], AsyncStream]) -> None:
        self._loop = loop
        self._events: _Events = queue.SimpleQueue()
        self._over = False
        self._closed = threading.Event()
        self._stream = loop.run(_open(open_stream, self._events, self._closed))
        weakref.finalize(self, loop.post, self._stream.cancel).atexit = False

    def __next__(self) -> StreamPayload:
        event = None if self._over else self._events.get()
        if event is None:
            self._over = True
            raise StopIteration
        if isinstance(event, BrokerError):
            self._over = True
            raise event
        return event

    def wait_closed(self, timeout: float | None = None) -> bool:
        """Wait, at most ``timeout`` seconds, until no more events come; whether that is so. None is taken."""
        return self._closed.wait(timeout)

    def close(self) -> None:
        """End the stream if it has not ended. Idempotent, also after the host was closed."""
        self._over = True
        if not self._loop.stopped:
            self._loop.run(self._stream.aclose())

    def __enter__(self) -> BlockingStream:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


# What carries a stream from the loop to its reader knows nothing of the reader, so that the reader can be let go.
async def _open(open_stream: Callable[[], AsyncStream], events: _Events, closed: threading.Event) -> AsyncStream:
    stream = open_stream()
    handing_over = asyncio.ensure_future(_hand_over(stream, events, closed))
    _HANDING_OVER.add(handing_over)
    handing_over.add_done_callback(_HANDING_OVER.discard)
    return stream


async def _hand_over(stream: AsyncStream, events: _Events, closed: threading.Event) -> None:
    end: BrokerError | None = None
    try:
        async for event in stream:
            if events.qsize() >= MAX_PROVIDER_STREAM_BACKLOG:
                stream.cancel("backpressure")
                raise ResourceExhaustedError(
                    f"provider stream {stream.stream.id}: its reader is too slow",
                    limit="MAX_PROVIDER_STREAM_BACKLOG",
                    observed=events.qsize() + 1,
                    maximum=MAX_PROVIDER_STREAM_BACKLOG,
                )
            events.put(event)
    except BrokerError as error:
        end = error
    except asyncio.CancelledError:
        end = CancelledError("the host was closed meanwhile", reason="closed")
    finally:
        events.put(end)
        closed.set()
