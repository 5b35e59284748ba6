"""An extension at work: events of its connection become calls of the author's functions, on an asyncio loop.

It does no IO. The stdio runner and the memory host of :mod:`broker.testing` give it a loop, workers for plain
functions, and somewhere to write to. Time is the loop's.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Coroutine
from functools import partial
from typing import TYPE_CHECKING, Any

from attrs import define, field

from broker.bus import Receipt
from broker.errors import BrokerError, CapabilityMismatchError, TimedOutError, UnavailableError, UsageError
from broker.extension.bus_client import BusClient, TopicState
from broker.extension.calls import CallTable
from broker.extension.connection import HostConnection, connect
from broker.extension.context import Context
from broker.extension.events import (
    BusEvent,
    CallCancelled,
    CallReceived,
    Closed,
    Declared,
    HostCall,
    Initialized,
    Log,
    NoticeReceived,
    OwnRequest,
    ShutdownReceived,
    TopicAvailability,
)
from broker.extension.handlers import Handler
from broker.extension.logs import describe_failure
from broker.extension.scope import CURRENT, Scope
from broker.extension.topics import read_event
from broker.extension.workers import Workers, is_closed, was_cancelled
from broker.limits import BINDING_WAIT_MS, HANDLER_FINISH_MS, MAX_EVENTS_QUEUED, MAX_FRAME_BYTES, REQUEST_TIMEOUT_MS

if TYPE_CHECKING:
    from broker.extension.app import Extension


@define(eq=False)
class _Queue:
    """What functions are still to be told of one topic or by one kind of notification, oldest first."""

    waiting: deque[Callable[[], Coroutine[Any, Any, None]]] = field(factory=deque)
    dropped: int = 0
    task: asyncio.Task[None] | None = None


class Runtime:
    """One process of ``app``. ``write`` takes bytes for the host, ``log`` lines for stderr, ``on_end`` the exit status;
    ``drain`` waits until what was written has left, ``backlog`` says how many bytes of it have not.

    All methods are for the loop's thread, but for what :class:`~broker.extension.workers.Workers` says.
    """

    def __init__(
        self,
        app: Extension,
        *,
        loop: asyncio.AbstractEventLoop,
        workers: Workers,
        write: Callable[[bytes], None],
        log: Callable[[str], None],
        on_end: Callable[[int], None],
        drain: Callable[[], Coroutine[Any, Any, None]] | None = None,
        backlog: Callable[[], int] = lambda: 0,
    ) -> None:
        self.app: Extension = app
        self.loop: asyncio.AbstractEventLoop = loop
        self.workers: Workers = workers
        self.log: Callable[[str], None] = log
        self.connection: HostConnection = connect(app.declaration)
        self.calls: CallTable = CallTable(self)
        self._write = write
        self._on_end = on_end
        self._drain = drain
        self._backlog = backlog
        self._queues: dict[str, _Queue] = {}
        self._declared: list[asyncio.Future[None]] = []
        self._background: set[asyncio.Task[None]] = set()
        self._finishing: asyncio.Task[None] | None = None

    # -- the driver's side ---------------------------------------------------------------------------------------------

    def receive(self, data: bytes) -> None:
        """Take bytes of the host."""
        self.connection.receive_data(data)
        self.pump()

    def receive_eof(self) -> None:
        """Take the end of the host's output."""
        self.connection.receive_eof()
        self.pump()

    def pump(self) -> None:
        """Handle everything the connection has to tell, and write everything it has to send."""
        while (event := self.connection.next_event()) is not None:
            self._handle(event)
        self.flush()

    def flush(self) -> None:
        """Write everything there is to send."""
        if data := self.connection.data_to_send():
            self._write(data)

    async def drained(self) -> None:
        """Wait until the host has room for what was written."""
        if self._drain is not None:
            await self._drain()

    # -- what authors ask for ------------------------------------------------------------------------------------------

    @property
    def bus(self) -> BusClient | None:
        """The bus, if this host has one for this process."""
        return self.connection.bus

    async def publish(self, topic: str, payload: dict[str, Any]) -> Receipt:
        """Publish on a declared topic, when its declaration stands."""
        bus = self.bus
        if bus is None:
            raise CapabilityMismatchError(f"{topic}: this host has no event bus for this process", topic=topic)
        if bus.state(topic) is not TopicState.DECLARED:
            await self._declaration_of(bus, topic)
        result = await self._settled(partial(bus.publish, topic, payload), "bus/publish", REQUEST_TIMEOUT_MS)
        return Receipt(result.sequence, result.published_at_ms)

    async def request(self, method: str, params: dict[str, Any], timeout_ms: int = REQUEST_TIMEOUT_MS) -> Any:
        """Ask the host; the record of the result, or plain JSON where the reference leaves it open."""
        return await self._settled(partial(self.connection.request, method, params), method, timeout_ms)

    def notify(self, method: str, params: dict[str, Any]) -> None:
        """Tell the host something; from any thread."""
        if self._is_on_loop:
            self.connection.notify(method, params)
            self.flush()
        else:
            self.workers.wait(self._notify(method, params))

    def notify_if_agreed(self, name: str, method: str, params: dict[str, Any]) -> None:
        """As :meth:`notify`, unless ``name`` was not selected, or the host has enough to catch up on."""
        info = self.connection.info
        agreed = info is not None and name in info.selected and not self.connection.closed
        if agreed and self._backlog() < MAX_FRAME_BYTES:
            self.notify(method, params)

    def check_in_loop(self, instead: str) -> None:
        """Raise unless the caller runs on the loop."""
        if not self._is_on_loop:
            raise UsageError(f"a plain function cannot await; write {instead}")

    def check_in_worker(self, instead: str) -> None:
        """Raise unless the caller runs in a thread that may wait."""
        if self._is_on_loop:
            raise UsageError(f"waiting here would stop the extension; write {instead}")

    @property
    def _is_on_loop(self) -> bool:
        try:
            return asyncio.get_running_loop() is self.loop
        except RuntimeError:
            return False

    # -- calling authors' functions ------------------------------------------------------------------------------------

    async def invoke(self, handler: Handler, *args: Any, context: Context | None = None, **kwargs: Any) -> Any:
        """Call ``handler``: on the loop if it is ``async``, else in a thread."""
        CURRENT.set(Scope(self, context))
        if not handler.takes:
            args = ()
        kwargs.update(dict.fromkeys(handler.context, context))
        if handler.is_async:
            return await handler.function(*args, **kwargs)
        return await self.workers.run(partial(handler.function, *args, **kwargs))

    def spawn(self, coroutine: Coroutine[Any, Any, None], *, until_end: bool = True) -> asyncio.Task[None]:
        """Run a coroutine in a context of its own; it is cancelled at the end."""
        task = self.loop.create_task(coroutine)
        if until_end:
            self._background.add(task)
            task.add_done_callback(self._background.discard)
        return task

    # -- events of the connection --------------------------------------------------------------------------------------

    def _handle(self, event: object) -> None:
        if isinstance(event, CallReceived):
            self.calls.begin(event.call)
        elif isinstance(event, BusEvent):
            self._queue(f"events on {event.topic}", partial(self._hand_out, event))
        elif isinstance(event, CallCancelled):
            self.calls.cancel(event.call)
        elif isinstance(event, Declared):
            self._wake()
        elif isinstance(event, TopicAvailability):
            if event.topic in self.app.availability_handlers:
                self._queue(f"changes of {event.topic}", partial(self._tell, event))
        elif isinstance(event, NoticeReceived):
            self._on_notice(event)
        elif isinstance(event, Initialized):
            for handler in self.app.background_functions:
                self.spawn(self._guarded(handler))
        elif isinstance(event, ShutdownReceived):
            self._end(event.call, None)
        elif isinstance(event, Closed):
            self._end(None, event.error)
        elif isinstance(event, Log):
            self.log(event.text)

    def _on_notice(self, event: NoticeReceived) -> None:
        handler = self.app.handlers.get(f"notice {event.method}")
        if event.method == "provider/cancel":
            self.calls.cancel_stream(event.model.stream_id)
        elif handler is not None:
            self._queue(f"notifications {event.method}", partial(self._guarded, handler, event.params))

    async def _guarded(self, handler: Handler, *args: Any) -> None:
        """Call a function nobody waits for; what it raises is logged."""
        task = asyncio.current_task()
        try:
            await self.invoke(handler, *args)
        except KeyboardInterrupt:
            raise
        except BaseException as error:
            if isinstance(error, GeneratorExit) and is_closed(task):
                raise
            if isinstance(error, asyncio.CancelledError) and was_cancelled():
                raise
            self.log(describe_failure(handler.name, error))

    # -- what nobody is answered for -----------------------------------------------------------------------------------

    def _queue(self, what: str, deliver: Callable[[], Coroutine[Any, Any, None]]) -> None:
        """Have ``deliver`` awaited when everything else of its kind has been; of too many the newest is dropped."""
        queue = self._queues.setdefault(what, _Queue())
        if len(queue.waiting) >= MAX_EVENTS_QUEUED:
            queue.dropped += 1
            return
        queue.waiting.append(deliver)
        if queue.task is None:
            queue.task = self.spawn(self._consume(what, queue))

    async def _consume(self, what: str, queue: _Queue) -> None:
        """Deliver what waits, in order; ends when nothing does."""
        try:
            while queue.waiting:
                await queue.waiting.popleft()()
                if queue.dropped and not queue.waiting:
                    self.log(f"dropped {queue.dropped} {what}: {MAX_EVENTS_QUEUED} were waiting already")
                    queue.dropped = 0
        finally:
            queue.task = None

    async def _hand_out(self, event: BusEvent) -> None:
        for handler, typed in self.app.event_handlers.get(event.topic, ()):
            try:
                read = read_event(event, typed)
            except BrokerError as error:
                self.log(f"{handler.name} did not get an event: {error}")
                continue
            await self._guarded(handler, read)

    async def _tell(self, change: TopicAvailability) -> None:
        for handler in self.app.availability_handlers[change.topic]:
            await self._guarded(handler, change)

    # -- declarations --------------------------------------------------------------------------------------------------

    async def _declaration_of(self, bus: BusClient, topic: str) -> None:
        """Wait until the declaration of ``topic`` stands; raise when it is refused, or does not in time."""
        end = self.loop.time() + BINDING_WAIT_MS / 1000
        while (state := bus.state(topic)) is not TopicState.DECLARED:
            if state is TopicState.REFUSED:
                refused = bus.refusal(topic)
                name = refused.name if refused is not None else "internal_error"
                raise CapabilityMismatchError(f"{topic} is not declared: {refused}", name=name, topic=topic)
            future: asyncio.Future[None] = self.loop.create_future()
            self._declared.append(future)
            timer = self.loop.call_at(end, _resolve, future, None)
            try:
                await future
            finally:
                timer.cancel()
                if future in self._declared:
                    self._declared.remove(future)
            if self.loop.time() >= end and bus.state(topic) is state:
                raise UnavailableError(
                    f"{topic} was not published: it is {state.value}, {BINDING_WAIT_MS} ms after the attempt",
                    topic=topic,
                    limit="BINDING_WAIT_MS",
                )

    def _wake(self) -> None:
        waiting, self._declared = self._declared, []
        for future in waiting:
            _resolve(future, None)

    # -- own requests --------------------------------------------------------------------------------------------------

    async def _settled(
        self, ask: Callable[[Callable[[OwnRequest], None]], OwnRequest], method: str, timeout_ms: int
    ) -> Any:
        future: asyncio.Future[OwnRequest] = self.loop.create_future()
        request = ask(partial(_resolve, future))
        self.flush()
        timer = self.loop.call_later(timeout_ms / 1000, self._expire, request, future, timeout_ms)
        try:
            await future
        except asyncio.CancelledError:
            self.connection.cancel(request, "the extension gave it up")
            self.flush()
            raise
        finally:
            timer.cancel()
        if request.error is not None:
            raise request.error
        return request.result

    def _expire(self, request: OwnRequest, future: asyncio.Future[OwnRequest], timeout_ms: int) -> None:
        if future.done():
            return
        text = f"the host did not answer {request.method} within {timeout_ms} ms"
        future.set_exception(
            TimedOutError(text, method=request.method, limit="timeout_ms", observed=timeout_ms, maximum=timeout_ms)
        )
        self.connection.cancel(request, "timeout")
        self.flush()

    async def _notify(self, method: str, params: dict[str, Any]) -> None:
        self.connection.notify(method, params)
        self.flush()

    # -- the end -------------------------------------------------------------------------------------------------------

    def _end(self, shutdown: HostCall | None, error: BrokerError | None) -> None:
        if self._finishing is not None:
            return
        if error is not None:
            self.log(f"the connection to the host ended: {error}")
        # Held, as the loop holds its tasks by weak references alone.
        self._finishing = self.loop.create_task(self._finish(shutdown, 0 if error is None else 1))

    async def _finish(self, shutdown: HostCall | None, status: int) -> None:
        """Let everything end, within bounds; then answer ``shutdown`` and say so."""
        tasks = [*self.calls.cancel_all("shutdown"), *self._background]
        for task in self._background:
            task.cancel()
        if tasks:
            await asyncio.wait(tasks, timeout=HANDLER_FINISH_MS / 1000)
        self.calls.answer_rest()
        if shutdown is not None:
            self.connection.answer(shutdown, {"terminal": "shutdown"} if self.app.api == "0.3" else {})
            self.flush()
        self.connection.close()
        while self.connection.next_event() is not None:
            pass
        self._on_end(status)


def _resolve(future: asyncio.Future[Any], value: Any) -> None:
    if not future.done():
        future.set_result(value)
