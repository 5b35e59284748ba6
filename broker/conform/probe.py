"""A process under test and its three pipes, under the eyes of somebody who decides about every byte.

Unlike the drivers of :mod:`broker.adapters` this writes exactly what it is told, when it is told, and hands on every
line as it came with the moment it came at. It runs on the event loop that is running.
"""

from __future__ import annotations

import asyncio
import contextlib
import fcntl
import os
import signal
import struct
import termios
import time
from collections.abc import Callable, Coroutine, Mapping, Sequence
from types import TracebackType
from typing import Final, Self

from broker.adapters.guard import OrphanGuard
from broker.adapters.process import Child, spawn
from broker.conform.survivors import MARK_NAME, Survivor, end_survivors, find_survivors, new_mark
from broker.errors import ProtocolError
from broker.host.stderr import StderrLog
from broker.limits import (
    CONFORM_DEATH_MS,
    CONFORM_SURVIVOR_GRACE_MS,
    MAX_CONFORM_OUTPUT_BYTES,
    MAX_READ_CHUNK_BYTES,
)
from broker.wire.framing import LineFramer

_DEATH_WAIT_SECONDS: Final = CONFORM_DEATH_MS / 1000
_POLL_SECONDS: Final = 0.002
_PIECE_BYTES: Final = 100
_QUICK_LOOKS: Final = 8
_EXIT_LOOKS: Final = 15
_LAST_BYTES: Final = 8
_SURVIVOR_GRACE_SECONDS: Final = CONFORM_SURVIVOR_GRACE_MS / 1000


class Probe:
    """One running process. ``on_line`` gets each line without its LF, ``on_rest`` an unterminated last one.

    An asynchronous context manager: leaving it ends the process and everything it started.
    """

    def __init__(
        self,
        argv: Sequence[str],
        *,
        cwd: str,
        env: Mapping[str, str],
        guard: OrphanGuard,
        on_line: Callable[[bytes], None],
        on_rest: Callable[[bytes], None] = lambda rest: None,
        max_line: int = MAX_CONFORM_OUTPUT_BYTES,
    ) -> None:
        self.mark: str = new_mark()
        self._loop = asyncio.get_running_loop()
        self._child: Child = spawn(argv, cwd=cwd, env={**env, MARK_NAME: self.mark}, guard=guard)
        self._framer = LineFramer(max_line)
        self._on_line = on_line
        self._on_rest = on_rest
        self._activity = asyncio.Event()
        self._stderr = StderrLog()
        self._watched: set[int] = set()
        self._writing = asyncio.Lock()
        self._tasks: set[asyncio.Task[None]] = set()
        self.output_ended: bool = False
        self.overrun: bool = False
        self.output_bytes: int = 0
        self.stderr_bytes: int = 0
        self.last_output_at: float = self._loop.time()
        for descriptor, read in (
            (self._child.stdout_fd, self._read_stdout),
            (self._child.stderr_fd, self._read_stderr),
        ):
            self._loop.add_reader(descriptor, read)
            self._watched.add(descriptor)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.end()

    @property
    def now(self) -> float:
        """Seconds of the event loop's clock."""
        return self._loop.time()

    @property
    def pid(self) -> int:
        """The process id, also that of its group and session."""
        return self._child.pid

    @property
    def stderr_tail(self) -> str:
        """The end of what it wrote to stderr, safe to print."""
        return self._stderr.tail

    @property
    def exit_status(self) -> int | None:
        """How the process ended (negative: by that signal), ``None`` while it runs. It is not reaped by asking."""
        if self._child.returncode is not None:
            return self._child.returncode
        try:
            ended = os.waitid(os.P_PID, self.pid, os.WEXITED | os.WNOWAIT | os.WNOHANG)
        except ChildProcessError:
            return self._child.poll()
        if ended is None:
            return None
        return ended.si_status if ended.si_code == os.CLD_EXITED else -ended.si_status

    def ending(self) -> str:
        """In words, how the process stands: running, or ended and with what on stderr."""
        status = self.exit_status
        for _ in range(_EXIT_LOOKS if self.output_ended else 0):
            if status is not None:
                break
            # An exit closes the pipes a moment before it can be seen; waiting for it here is a matter of milliseconds.
            time.sleep(_POLL_SECONDS)
            status = self.exit_status
        if status is None and self.overrun:
            return f"after {self.output_bytes} bytes its output is not read any more"
        if status is None:
            return "its output has ended, the process still runs" if self.output_ended else "the process still runs"
        how = f"ended by signal {-status}" if status < 0 else f"ended with status {status}"
        tail = self.stderr_tail.replace("\n", " | ")
        return f"the process {how}" + (f"; stderr: {tail[-200:]}" if tail else "")

    def waited(self, seconds: float) -> str:
        """In words, how long something was waited for in vain: ``seconds``, or until nothing could come any more."""
        ending = self.ending()
        if self.exit_status is not None:
            return f"before {ending}"
        if self.output_ended:
            return "before its output ended; the process still runs"
        return f"within {seconds:g} s; {ending}"

    def call_soon(self, callback: Callable[[], None]) -> None:
        """Have ``callback`` called once what is being done now is done."""
        self._loop.call_soon(callback)

    def run_soon(self, work: Coroutine[None, None, None]) -> None:
        """Have ``work`` done beside everything else, until the process is ended."""
        task = self._loop.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    def take_unterminated(self) -> bytes | None:
        """What it wrote behind its last LF; taken away, so that it is no longer part of any line."""
        return None if self.overrun else self._framer.take_rest()

    # -- waiting -------------------------------------------------------------------------------------------------------

    async def until(self, condition: Callable[[], bool], seconds: float) -> bool:
        """Wait until ``condition`` holds; false when it does not within ``seconds`` or can no longer come about."""
        deadline = self.now + seconds
        while not condition():
            left = deadline - self.now
            if left <= 0 or self.output_ended:
                return condition()
            event = self._activity
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(event.wait(), left)
        return True

    async def quiet(self, seconds: float, most: float | None = None) -> None:
        """Wait ``seconds``; with ``most`` until there has been no output for ``seconds``, but no longer than that."""
        end = self.now + (seconds if most is None else most)
        while not self.output_ended:
            due = end if most is None else min(end, self.last_output_at + seconds)
            if most is not None and self.last_output_at + seconds < self.now:
                return
            if (left := due - self.now) <= 0:
                return
            await asyncio.sleep(left)

    async def wait_exit(self, seconds: float) -> int | None:
        """The exit status once the process has ended, ``None`` if it does not in time."""
        deadline = self.now + seconds
        while (status := self.exit_status) is None:
            if self.now >= deadline:
                return None
            await asyncio.sleep(_POLL_SECONDS)
        return status

    # -- writing -------------------------------------------------------------------------------------------------------

    async def write(self, data: bytes, seconds: float = 5.0) -> bool:
        """Write all of ``data``; false when the process does not take it in time, or has closed its input."""
        async with self._writing:
            return await self._write(data, self.now + seconds)

    async def dribble(self, data: bytes, single: int, seconds: float) -> bool:
        """Write in pieces, each when the one before it has been read; false as for :meth:`write`.

        The first ``single`` bytes and the last few are pieces of their own, those between are pieces of a hundred.
        """
        deadline = self.now + seconds
        middle = range(min(single, len(data)), max(single, len(data) - _LAST_BYTES), _PIECE_BYTES)
        starts = [*range(min(single, len(data))), *middle, *range(max(single, len(data) - _LAST_BYTES), len(data))]
        async with self._writing:
            for start, end in zip(starts, [*starts[1:], len(data)], strict=True):
                if not await self._write(data[start:end], deadline):
                    return False
                looks = 0
                while self._unread() > 0:
                    if self.now >= deadline or self.exit_status is not None:
                        return False
                    # A process that is reading takes it at once; one that is still starting does not.
                    await asyncio.sleep(0 if looks < _QUICK_LOOKS else _POLL_SECONDS)
                    looks += 1
        return True

    async def drained(self, seconds: float = 0.1) -> None:
        """Wait a moment for everything written to have been read, so that what comes next comes alone."""
        deadline = self.now + seconds
        while self._unread() > 0 and self.now < deadline and self.exit_status is None:  # noqa: ASYNC110 - of the other end
            await asyncio.sleep(_POLL_SECONDS)

    def close_stdin(self) -> None:
        """Let the process see the end of its input."""
        self._child.close_stdin()

    def signal(self, number: int) -> None:
        """Send a signal to the process alone."""
        with contextlib.suppress(OSError):
            os.kill(self.pid, number)

    # -- the end -------------------------------------------------------------------------------------------------------

    async def survivors(self) -> list[Survivor]:
        """What the ended process has left behind, after a moment to go away by itself; it is killed then."""
        deadline = self.now + _SURVIVOR_GRACE_SECONDS
        while found := find_survivors(self.pid, self.mark):
            if self.now >= deadline:
                break
            await asyncio.sleep(0.02)
        end_survivors(found)
        return found

    async def end(self) -> None:
        """Kill what is left of the process and all it started, and reap it. Does nothing the second time."""
        self._unwatch()
        for task in tuple(self._tasks):
            task.cancel()
        self._child.kill_group(signal.SIGKILL)
        deadline = self.now + _DEATH_WAIT_SECONDS
        # Before it is reaped: until then nobody else can have its id, by which the session is found. One that was just
        # being made when the others were found has their mark, and is found the next time.
        while self._child.returncode is None and (found := find_survivors(self.pid, self.mark)) and self.now < deadline:
            end_survivors(found)
            await asyncio.sleep(_POLL_SECONDS)
        while self._child.poll() is None and self.now < deadline:  # noqa: ASYNC110 - nothing else tells of a death
            await asyncio.sleep(_POLL_SECONDS)
        self._child.close()

    # -- inside --------------------------------------------------------------------------------------------------------

    def _read_stdout(self) -> None:
        data = self._read(self._child.stdout_fd)
        if data is None:
            return
        if not data:
            self._stop_watching(self._child.stdout_fd)
            self.output_ended = True
            rest = None if self.overrun else self._framer.take_rest()
            if rest is not None:
                self._on_rest(rest)
            self._stir()
            return
        self.last_output_at = self.now
        self.output_bytes += len(data)
        if self.output_bytes > MAX_CONFORM_OUTPUT_BYTES:
            # It is not read any more: whoever never stops writing is stopped by its pipe.
            self._stop_watching(self._child.stdout_fd)
            self.overrun = True
        if not self.overrun:
            self._framer.feed(data)
            try:
                while (line := self._framer.next_frame()) is not None:
                    self._on_line(line)
            except ProtocolError:
                self.overrun = True
        self._stir()

    def _read_stderr(self) -> None:
        data = self._read(self._child.stderr_fd)
        if data is None:
            return
        if not data:
            self._stop_watching(self._child.stderr_fd)
            return
        self.stderr_bytes += len(data)
        for _ in self._stderr.feed(data):
            pass

    def _read(self, descriptor: int) -> bytes | None:
        try:
            return os.read(descriptor, MAX_READ_CHUNK_BYTES)
        except BlockingIOError:
            return None
        except OSError:
            return b""

    def _stir(self) -> None:
        event, self._activity = self._activity, asyncio.Event()
        event.set()

    async def _write(self, data: bytes, deadline: float) -> bool:
        view = memoryview(data)
        while view:
            descriptor = self._child.stdin_fd
            if descriptor < 0:
                return False
            try:
                view = view[os.write(descriptor, view) :]
            except BlockingIOError:
                if self.now >= deadline or not await self._writable(descriptor, deadline - self.now):
                    return False
            except OSError:
                return False
        return True

    def _unread(self) -> int:
        """Bytes in the pipe that the process has not read; 0 where the system cannot say."""
        try:
            answer = fcntl.ioctl(self._child.stdin_fd, termios.FIONREAD, b"\0\0\0\0")
        except OSError:
            return 0
        return int(struct.unpack("i", answer)[0])

    async def _writable(self, descriptor: int, seconds: float) -> bool:
        ready = asyncio.Event()
        self._loop.add_writer(descriptor, ready.set)
        try:
            await asyncio.wait_for(ready.wait(), max(0.0, seconds))
        except TimeoutError:
            return False
        finally:
            self._loop.remove_writer(descriptor)
        return True

    def _stop_watching(self, descriptor: int) -> None:
        if descriptor in self._watched:
            self._watched.discard(descriptor)
            self._loop.remove_reader(descriptor)

    def _unwatch(self) -> None:
        for descriptor in tuple(self._watched):
            self._stop_watching(descriptor)
