"""Extensions without processes: a session runs over an in-memory pair, in one thread, on a clock the test moves.

:class:`MemoryDriver` stands in for the asyncio driver. Each generation it starts talks to a :class:`MemoryExtension`,
a plain object that is handed the host's frames and answers with frames, exactly as a process would over its pipes.
Everything happens inside :meth:`MemoryDriver.run`, in a fixed order; nothing sleeps.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import Any, TypeAlias

from broker import canonical
from broker.errors import BrokerError, SetupError
from broker.host import Generation, Session
from broker.host.output import Output
from broker.limits import MAX_DELIVERY_ROUNDS
from broker.testing.clock import ManualClock

Factory: TypeAlias = Callable[[Generation], "MemoryExtension"]


class MemoryExtension:
    """The far end of one generation. Subclass it, or use it as it is and feed it by hand.

    ``received`` holds every decoded frame the host sent, in order. :meth:`on_message` is called for each of them; the
    default answers ``initialize`` with ``selection``, tool calls with an empty result, hooks with ``continue`` and
    ``shutdown`` as it should be, and ignores the rest.
    """

    def __init__(self, *, tools: tuple[str, ...] = (), capabilities: tuple[str, ...] = ()) -> None:
        self.received: list[dict[str, Any]] = []
        self.tools = tools
        self.capabilities = capabilities
        self.limits: dict[str, int] = {}
        self.stdin_closed = False
        self.reading = True
        self._sent: deque[bytes | None] = deque()
        self._stderr: deque[bytes] = deque()
        self._exit: int | None = None
        self._unread = bytearray()

    # -- what it says --------------------------------------------------------------------------------------------------

    def send(self, message: dict[str, Any]) -> None:
        """Write one canonical frame."""
        self.send_bytes(canonical.encode(message) + b"\n")

    def send_bytes(self, data: bytes) -> None:
        """Write raw bytes."""
        self._sent.append(data)

    def send_stderr(self, data: bytes) -> None:
        """Write to stderr."""
        self._stderr.append(data)

    def answer(self, message_id: int | str, result: dict[str, Any]) -> None:
        """Answer a request of the host."""
        self.send({"jsonrpc": "2.0", "id": message_id, "result": result})

    def request(self, message_id: int | str, method: str, params: dict[str, Any]) -> None:
        """Ask the host."""
        self.send({"jsonrpc": "2.0", "id": message_id, "method": method, "params": params})

    def close_stdout(self) -> None:
        """Close the output without exiting."""
        self._sent.append(None)

    def exit(self, status: int = 0) -> None:
        """Exit after what was sent so far; a negative status is a signal."""
        if self._exit is None:
            self._exit = status

    # -- what it hears -------------------------------------------------------------------------------------------------

    def on_message(self, message: dict[str, Any]) -> None:
        """One frame of the host. Override it to behave differently."""
        method, message_id = message.get("method"), message.get("id")
        if message_id is None or method is None:
            return
        if method == "initialize":
            self.answer(message_id, self.selection(message["params"]["contract"]))
        elif method == "tool/call":
            self.answer(message_id, {"content": [], "is_error": False, "metadata": None})
        elif method == "hook/run":
            self.answer(message_id, {"disposition": {"kind": "continue"}})
        elif method == "shutdown":
            self.answer(message_id, {"terminal": "shutdown"})
            self.exit(0)

    def on_eof(self) -> None:
        """The host closed the input; a good extension exits."""
        self.exit(0)

    def selection(self, offer: dict[str, Any]) -> dict[str, Any]:
        """The result of ``initialize``: what is required, and every offered method of ``self.capabilities``."""
        prefixes = {"event_bus": "bus/", "lifecycle_events": "hook/"}
        chosen = [name for name in self.capabilities if name in offer["optional_capabilities"]]
        starts = tuple(prefixes[name] for name in chosen)
        methods = [name for name in offer["optional_methods"] if name.startswith(starts)] if starts else []
        return {
            "api_version": "0.3",
            "tools": [{"name": name, "description": name, "parameters": {"type": "object"}} for name in self.tools],
            "contract": {
                "schema": offer["schema"],
                "encoding": offer["encoding"],
                "capabilities": [*offer["required_capabilities"], *chosen],
                "methods": [*offer["required_methods"], *methods],
                "limits": {**offer["limits"], **self.limits},
            },
        }

    # -- for the driver ------------------------------------------------------------------------------------------------

    def _hear(self, data: bytes) -> None:
        self._unread += data
        while (end := self._unread.find(b"\n")) >= 0:
            message = canonical.decode(bytes(self._unread[:end]))
            del self._unread[: end + 1]
            self.received.append(message)
            self.on_message(message)


class _MemoryProcess:
    def __init__(self, generation: Generation, extension: MemoryExtension) -> None:
        self.generation = generation
        self.extension = extension
        self.partial: tuple[Output, int] | None = None
        self._closing = False
        self._killed = False
        self._gone = False

    def flush(self) -> None:
        while self.extension.reading and not self._gone:
            output = self._next()
            if output is None:
                break
            self.extension._hear(output.data)
            output.written()
        if self._closing and not self.extension.stdin_closed and not self._gone:
            self.extension.stdin_closed = True
            self.extension.on_eof()

    def _next(self) -> Output | None:
        while (output := self.generation.next_output()) is not None:
            if output.valid:
                return output
            output.dropped()
        return None

    def close_stdin(self) -> None:
        self._closing = True

    def kill(self) -> None:
        self._killed = True

    def step(self) -> bool:
        """Move what is there to move; whether anything was."""
        if self._gone:
            return False
        moved = False
        extension = self.extension
        while extension._stderr:
            moved = True
            self.generation.receive_stderr(extension._stderr.popleft())
        while extension._sent and not self._killed:
            moved = True
            data = extension._sent.popleft()
            if data is None:
                self.generation.receive_eof()
            else:
                self.generation.receive(data)
        if self._killed or extension._exit is not None:
            self._gone = moved = True
            self.generation.exited(-9 if self._killed else extension._exit)
        return moved


class MemoryDriver:
    """A :class:`broker.host.Driver` whose processes are objects. ``factories`` maps an extension's name to its maker."""

    def __init__(self, clock: ManualClock, factories: dict[str, Factory]) -> None:
        self._clock = clock
        self._factories = factories
        self._processes: list[_MemoryProcess] = []
        self._starting: deque[Generation] = deque()
        self._sessions: dict[Session, None] = {}
        self.spawned: list[MemoryExtension] = []

    def spawn(self, generation: Generation) -> None:
        """Start the generation's object at the next :meth:`run`."""
        self._starting.append(generation)

    def schedule(self, session: Session) -> None:
        """Remember the session; :meth:`run` looks at all of them."""
        self._sessions[session] = None

    def run(self) -> None:
        """Let everything happen that can without the clock moving."""
        for _ in range(MAX_DELIVERY_ROUNDS * MAX_DELIVERY_ROUNDS):
            if not self._round():
                return
        raise AssertionError("the extensions never come to rest")

    def advance(self, milliseconds: int) -> None:
        """Move the clock, stopping at every deadline on the way, and let everything happen that follows."""
        self.run()
        end = self._clock.monotonic_ms() + milliseconds
        while True:
            now = self._clock.monotonic_ms()
            due = [deadline for session in self._sessions if (deadline := session.next_deadline()) is not None]
            step = min([end, *(max(deadline, now) for deadline in due)])
            self._clock.advance_ms(step - now)
            for session in list(self._sessions):
                session.tick()
            self.run()
            if step == end:
                return

    def _round(self) -> bool:
        moved = False
        while self._starting:
            moved = True
            self._start(self._starting.popleft())
        for process in list(self._processes):
            process.flush()
            moved = process.step() or moved
            if process._gone:
                self._processes.remove(process)
        for session in list(self._sessions):
            session.tick()
            moved = session.bus.deliver() > 0 or moved
        return moved

    def _start(self, generation: Generation) -> None:
        try:
            factory = self._factories[generation.extension.name]
            extension = factory(generation)
        except KeyError:
            generation.spawn_failed(SetupError(f"no such executable for {generation.extension.name}"))
            return
        except BrokerError as error:
            generation.spawn_failed(error)
            return
        process = _MemoryProcess(generation, extension)
        self._processes.append(process)
        self.spawned.append(extension)
        generation.spawned(process)
