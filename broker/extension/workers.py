"""Where plain functions run: in threads beside the loop, so that one that takes long does not silence the extension."""

from __future__ import annotations

import asyncio
import queue
import threading
from collections.abc import Callable, Coroutine
from contextvars import Context as Variables
from contextvars import copy_context
from typing import Any, Protocol, TypeVar

from broker.limits import MAX_HANDLER_THREADS

T = TypeVar("T")


class Workers(Protocol):
    """Runs plain functions away from the loop."""

    def run(self, function: Callable[[], T]) -> asyncio.Future[T]:
        """Start ``function`` with the context variables of the caller; called from the loop."""
        ...

    def wait(self, coroutine: Coroutine[Any, Any, T]) -> T:
        """Have the loop run ``coroutine`` and wait for it; called from such a function."""
        ...


class ThreadWorkers:
    """At most ``MAX_HANDLER_THREADS`` threads, each made when it is first needed; further functions wait."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._jobs: queue.SimpleQueue[tuple[Variables, Callable[[], Any], asyncio.Future[Any]]] = queue.SimpleQueue()
        self._threads = 0
        self._open = 0

    def run(self, function: Callable[[], T]) -> asyncio.Future[T]:
        """Start ``function`` in a thread, now or when one is free."""
        future: asyncio.Future[T] = self._loop.create_future()
        self._jobs.put((copy_context(), function, future))
        self._open += 1
        if self._threads < min(self._open, MAX_HANDLER_THREADS):
            self._threads += 1
            # Daemons: a function that never returns must not keep the process from ending.
            threading.Thread(target=self._work, name=f"handler-{self._threads}", daemon=True).start()
        return future

    def wait(self, coroutine: Coroutine[Any, Any, T]) -> T:
        """Wait in this thread for what the loop does."""
        return asyncio.run_coroutine_threadsafe(coroutine, self._loop).result()

    def _work(self) -> None:
        while True:
            variables, function, future = self._jobs.get()
            value: Any = None
            failure: BaseException | None = None
            # One that nobody waits for any more, and that has not begun, need not run.
            if not future.cancelled():
                try:
                    value = variables.run(function)
                except BaseException as error:
                    failure = error
            try:
                self._loop.call_soon_threadsafe(self._done, future, value, failure)
            except RuntimeError:
                return  # the loop is closed: the process is about to end
            del variables, function, future, value, failure

    def _done(self, future: asyncio.Future[Any], value: Any, failure: BaseException | None) -> None:
        self._open -= 1
        settle(future, value, failure)


def was_cancelled() -> bool:
    """Whether somebody gave up the task that runs now; else a ``CancelledError`` in it is of what it awaited."""
    task = asyncio.current_task()
    return task is not None and task.cancelling() > 0


def is_closed(task: asyncio.Task[Any] | None) -> bool:
    """Whether the coroutine of ``task`` is closed, not run; otherwise a ``GeneratorExit`` in it was raised below."""
    try:
        return asyncio.current_task() is not task
    except RuntimeError:
        return True  # the loop is over


def settle(future: asyncio.Future[Any], value: Any, failure: BaseException | None) -> None:
    """Settle a future that may have been given up; whatever ends a function is for its caller, never for the loop."""
    if future.done():
        return
    if failure is None:
        future.set_result(value)
    elif isinstance(failure, Exception) and not isinstance(failure, StopIteration):
        future.set_exception(failure)
    else:
        future.set_exception(HandlerExitError(failure))


class HandlerExitError(Exception):
    """A plain function raised what a future cannot hold; ``raised`` is that, ``SystemExit`` for example."""

    def __init__(self, raised: BaseException) -> None:
        super().__init__(f"{type(raised).__name__}: {raised}")
        self.raised = raised
