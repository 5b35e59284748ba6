"""Extensions made with the author's kit as in-memory processes: the same code as in a process, on a clock tests move.

Each process has an asyncio loop of its own whose time is the test's clock and which never waits: it runs until nothing
is left to do now. ``async`` functions run on it. A plain function runs in a thread, but only while everything else
stands still: the thread and the test take turns, so that the order is the same each time, and a plain function can
wait for the bus. What really sleeps (``time.sleep``) really sleeps, and a socket or another process is not waited for.
"""

from __future__ import annotations

import asyncio
import heapq
import itertools
import math
import selectors
import threading
from collections.abc import Callable, Coroutine
from contextvars import Context as Variables
from contextvars import copy_context
from functools import partial
from typing import Any, Final, TypeVar, TypeVarTuple, Unpack

from attrs import define, field

from broker.errors import UsageError
from broker.extension import Extension
from broker.extension.logs import bounded, describe_callable, describe_failure
from broker.extension.runtime import Runtime
from broker.extension.workers import settle
from broker.host import ProcessLink
from broker.limits import MAX_LOOP_PASSES, PLAIN_TURN_MS
from broker.testing.plan import ProcessPlan, make_manifest, process_of
from broker.testing.scripted import ScriptedProcess

T = TypeVar("T")
Ts = TypeVarTuple("Ts")

_ROUNDING: Final = 1e-6


class VirtualLoop(asyncio.SelectorEventLoop):
    """A loop that never waits. ``now_ms`` is its time in milliseconds; whoever owns it sets it."""

    def __init__(self) -> None:
        self.now_ms: int = 0
        self._asked = 0
        self._alarms: list[_Alarm] = []
        self._count = itertools.count()
        self.workers: _TurnWorkers = _TurnWorkers(self)
        super().__init__(_Unwaiting())

    def time(self) -> float:
        """Seconds of the test's monotonic clock."""
        return self.now_ms / 1000

    def run_until_idle(self) -> None:
        """Run everything that is ready or due, and what follows from it."""
        # A test may itself run on a loop, which stands still meanwhile.
        outer = asyncio._get_running_loop()
        asyncio._set_running_loop(None)
        try:
            for _ in range(MAX_LOOP_PASSES):
                self._asked = 0
                super().call_soon(self.stop)
                self.run_forever()
                due = self.next_deadline_ms()
                if not self._asked and (due is None or due > self.now_ms):
                    return
        finally:
            asyncio._set_running_loop(outer)
        raise AssertionError("the extension never comes to rest; does something in it poll with sleep(0)?")

    def next_deadline_ms(self) -> int | None:
        """The millisecond of the earliest timer, rounded up; ``None`` without one."""
        while self._alarms and (self._alarms[0].fired or self._alarms[0].handle.cancelled()):
            heapq.heappop(self._alarms)
        return self._alarms[0].due_ms if self._alarms else None

    def call_soon(
        self, callback: Callable[[Unpack[Ts]], object], *args: *Ts, context: Variables | None = None
    ) -> asyncio.Handle:
        """As any loop's; it is noted that there is something to do."""
        self._asked += 1
        return super().call_soon(callback, *args, context=context)

    def call_at(
        self,
        when: float,
        callback: Callable[[Unpack[Ts]], object],
        *args: *Ts,
        context: Variables | None = None,
    ) -> asyncio.TimerHandle:
        """As any loop's, on whole milliseconds; the timer is noted as a deadline."""
        # A timer of a fraction of a millisecond must not fire before its time; what rounding left over is no fraction.
        due_ms = math.ceil(when * 1000 - _ROUNDING)

        def fire() -> None:
            alarm.fired = True
            callback(*args)

        alarm = _Alarm(due_ms, next(self._count), super().call_at(due_ms / 1000, fire, context=context))
        self._asked += 1
        heapq.heappush(self._alarms, alarm)
        return alarm.handle

    def run_in_executor(self, executor: Any, func: Callable[[*Ts], T], *args: *Ts) -> asyncio.Future[T]:
        """Run ``func`` at once, as a plain function of the extension: ``asyncio.to_thread`` comes here."""
        return self.workers.run(partial(func, *args))

    def __del__(self) -> None:
        # A process that is killed has nobody who would close its loop.
        if not self.is_closed() and not self.is_running():
            self.close()


@define(order=True)
class _Alarm:
    due_ms: int
    number: int
    handle: asyncio.TimerHandle = field(order=False)
    fired: bool = field(default=False, order=False)


class _Unwaiting(selectors.DefaultSelector):
    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        return super().select(0)


class HostedExtension(ScriptedProcess):
    """One process of an :class:`~broker.extension.Extension`, for a :class:`~broker.testing.MemoryDriver`."""

    def __init__(self, app: Extension) -> None:
        super().__init__()
        self.app: Extension = app
        self._loop = VirtualLoop()
        self.runtime: Runtime = Runtime(
            app,
            loop=self._loop,
            workers=self._loop.workers,
            write=self.send_bytes,
            log=lambda text: self.send_stderr(bounded(text).encode("utf-8", "backslashreplace") + b"\n"),
            on_end=self.exit,
        )
        self._loop.set_exception_handler(self._on_stray_failure)

    def hear(self, data: bytes) -> None:
        """Take bytes from the host, in any chunks."""
        self._run(lambda: self.runtime.receive(data))

    def on_eof(self) -> None:
        """The host closed the input."""
        self._run(self.runtime.receive_eof)

    def on_gone(self) -> None:
        """Whatever runs of it is left where it stands, as the system does; threads that wait are ended."""
        self._loop.workers.abandon()
        self._loop.close()

    def next_deadline(self) -> int | None:
        """The earliest timer of the extension's code."""
        return None if self._loop.is_closed() else self._loop.next_deadline_ms()

    def tick(self, now_ms: int) -> None:
        """Let the extension's time be ``now_ms``, and what is due happen."""
        self._loop.now_ms = max(now_ms, self._loop.now_ms)
        due = self.next_deadline()
        if due is not None and due <= now_ms:
            self._run(None)

    def _run(self, first: Callable[[], None] | None) -> None:
        if self._loop.is_closed():
            return
        if first is not None:
            self._loop.call_soon(first)
        self._loop.run_until_idle()
        if self.exit_status is not None:
            self._close()

    def _on_stray_failure(self, loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
        error = context.get("exception")
        what = str(context.get("message"))
        self.runtime.log(describe_failure(what, error) if isinstance(error, BaseException) else what)

    def _close(self) -> None:
        for task in asyncio.all_tasks(self._loop):
            task.cancel()
        self._loop.run_until_idle()
        self._loop.close()


class _Turn:
    """One plain function: a thread that runs only while the loop waits for it."""

    def __init__(self, workers: _TurnWorkers, function: Callable[[], Any], future: asyncio.Future[Any]) -> None:
        self._workers = workers
        self._future = future
        self._name = describe_callable(function)
        self._mine = threading.Semaphore(0)
        self._loops = threading.Semaphore(0)
        self._asked: tuple[Coroutine[Any, Any, Any], Variables] | None = None
        self._answer: asyncio.Future[Any] | None = None
        self._finished = False
        self._abandoned = False
        variables = copy_context()
        self._thread = threading.Thread(target=lambda: variables.run(self._work, function), daemon=True)
        self._value: Any = None
        self._failure: BaseException | None = None

    def start(self) -> None:
        self._thread.start()
        self._wait_for_it()

    def wait(self, coroutine: Coroutine[Any, Any, T]) -> T:
        """In the thread: hand the turn back until the loop has an answer."""
        if self._abandoned:
            coroutine.close()
            raise SystemExit("the process is gone")
        self._asked = coroutine, copy_context()
        self._workers.waiting.add(self)
        self._loops.release()
        self._mine.acquire()
        self._workers.waiting.discard(self)
        answer, self._answer = self._answer, None
        if answer is None:
            raise SystemExit("the process is gone")
        return answer.result()  # type: ignore[no-any-return]

    def abandon(self) -> None:
        """End the thread, which waits for an answer that nobody gives any more."""
        self._abandoned = True
        self._mine.release()
        self._thread.join(PLAIN_TURN_MS / 1000)

    def _work(self, function: Callable[[], Any]) -> None:
        self._workers.current.turn = self
        try:
            self._value = function()
        except BaseException as error:
            self._failure = error
        self._finished = True
        self._loops.release()

    def _wait_for_it(self) -> None:
        if not self._loops.acquire(timeout=PLAIN_TURN_MS / 1000):
            raise AssertionError(
                f"{self._name} neither ended nor waited for its host within {PLAIN_TURN_MS} ms; "
                "in memory a plain function waits for nothing else, as everything stands still meanwhile, "
                "and nothing cancels it: test that with an async function, or with real processes"
            )
        if self._finished:
            self._thread.join()
            settle(self._future, self._value, self._failure)
            return
        asked, self._asked = self._asked, None
        assert asked is not None
        coroutine, variables = asked
        task = self._workers.loop.create_task(coroutine, context=variables)
        task.add_done_callback(self._go_on)

    def _go_on(self, answer: asyncio.Future[Any]) -> None:
        self._answer = answer
        self._mine.release()
        self._wait_for_it()


class _TurnWorkers:
    """Runs plain functions one at a time, each until it ends or waits for the loop."""

    def __init__(self, loop: VirtualLoop) -> None:
        self.loop: VirtualLoop = loop
        self.current: threading.local = threading.local()
        self.waiting: set[_Turn] = set()

    def run(self, function: Callable[[], T]) -> asyncio.Future[T]:
        """Run ``function`` at once; gives its outcome, which may be there already."""
        future: asyncio.Future[T] = self.loop.create_future()
        _Turn(self, function, future).start()
        return future

    def wait(self, coroutine: Coroutine[Any, Any, T]) -> T:
        """Wait in a plain function for what the loop does."""
        turn = getattr(self.current, "turn", None)
        if not isinstance(turn, _Turn):
            coroutine.close()
            raise UsageError("only a tool, hook or event function can wait here, not a thread of the test's own")
        return turn.wait(coroutine)

    def abandon(self) -> None:
        """End every function that waits for the loop."""
        for turn in tuple(self.waiting):
            turn.abandon()


@process_of.register(Extension)
def _(app: Extension, *, name: str | None = None, **fields: Any) -> ProcessPlan:
    # ``name`` may be that of the function that made it; an extension has a name of its own, which owns its topics.
    app.check()
    mine = app.declaration
    contributes: dict[str, Any] = {
        "tools": list(mine.tools),
        "commands": list(mine.commands),
        "hooks": list(mine.hook_names),
        "ui": list(mine.ui),
        "tool_renderers": list(mine.renders),
    }
    contributes = {key: value for key, value in contributes.items() if value}
    contributes.update({key: True for key in ("context", "menu") if getattr(mine, key)})
    if any(service.startswith("provider_") for service in mine.uses):
        contributes["providers"] = True
    given = {"api_version": mine.api, "version": mine.version, **contributes, **fields}

    def make(link: ProcessLink) -> ScriptedProcess:
        return HostedExtension(app)

    return ProcessPlan(make, make_manifest(mine.name, **given))
