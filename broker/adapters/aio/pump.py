"""Moves bytes between one child process and its link: chunked reads, one writer, no threads.

Reads take whatever is there and never wait for a line. The writer joins small frames into one write, and knows for each
frame whether its bytes are untouched, partly with the process, or all of them, which is what credits and stale frames
are about (design, "The bus" and "Performance").
"""

from __future__ import annotations

import asyncio
import os
import signal
import threading
from collections import deque
from collections.abc import Callable

from broker.adapters.process import Child
from broker.adapters.tap import Tap
from broker.host import ProcessLink
from broker.host.output import Output
from broker.limits import MAX_EXIT_DRAIN_BYTES, MAX_READ_CHUNK_BYTES, MAX_WRITE_CHUNK_BYTES


class ProcessPump:
    """The :class:`broker.host.Process` of one link, inside an asyncio loop."""

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        child: Child,
        link: ProcessLink,
        on_ended: Callable[[ProcessPump], None],
        tap: Tap | None = None,
    ) -> None:
        self._loop = loop
        self._child = child
        self._link = link
        self._on_ended = on_ended
        self._tap = tap
        self._outputs: deque[Output] = deque()
        self._queued_bytes = 0
        self._offset = 0
        self._writing = False
        self._write_blocked = False
        self._input_open = True
        self._close_input = False
        self._reading: set[int] = set()
        self._paused = False
        self._ended = False

    def start(self) -> None:
        """Begin to read and to watch for the exit."""
        self._read_from(self._child.stdout_fd, self._read_stdout)
        self._read_from(self._child.stderr_fd, self._read_stderr)
        self._watch_exit()

    # -- writing -------------------------------------------------------------------------------------------------------

    def flush(self) -> None:
        """Write what the link has to say, as far as the pipe takes it without waiting."""
        if self._paused and self._link.reading:
            self._resume()
        if self._writing or not self._input_open:
            return
        self._writing = True
        try:
            while self._input_open and not self._write_blocked and self._fill():
                self._write_some()
            if self._write_blocked and self._input_open and (not self._offset or self._check_partial()):
                self._drop_stale()
        finally:
            self._writing = False
        if self._close_input and not self._outputs:
            self._end_input()

    def close_stdin(self) -> None:
        """Close the process's input once everything queued was written."""
        self._close_input = True
        self._loop.call_soon(self.flush)

    @property
    def stale_at_ms(self) -> int | None:
        """Last monotonic millisecond at which every frame in here may still be delivered, if any of them ages."""
        helds = [output.held for output in self._outputs if output.held is not None]
        return min((due for held in helds if (due := held.valid_until_ms) is not None), default=None)

    def _fill(self) -> bool:
        while self._queued_bytes < MAX_WRITE_CHUNK_BYTES:
            output = self._link.next_output()
            if output is None:
                break
            self._outputs.append(output)
            self._queued_bytes += len(output.data)
        return bool(self._outputs)

    def _write_some(self) -> None:
        if self._offset and not self._check_partial():
            return
        self._drop_stale()
        if not self._outputs:
            return
        chunk = self._outputs[0].data
        if self._offset:
            chunk = chunk[self._offset :]
        if len(self._outputs) > 1 and len(chunk) < MAX_WRITE_CHUNK_BYTES:
            chunk = b"".join((chunk, *(output.data for output in list(self._outputs)[1:])))
        try:
            count = os.write(self._child.stdin_fd, chunk)
        except (BlockingIOError, InterruptedError):
            self._block()
            return
        except OSError:
            # The process closed its input or is gone. What it still says, and its exit, tell the rest.
            self._end_input()
            self._link.write_failed()
            return
        if self._tap is not None:
            self._tap.heard(self._link, bytes(chunk[:count]))
        self._written(count)
        if count < len(chunk):
            self._block()

    def _check_partial(self) -> bool:
        """Whether the frame that was begun may be finished; if not, the stream is ended instead."""
        if self._outputs[0].valid:
            return True
        held = self._outputs[0].held
        self._end_input()
        if held is not None:
            self._link.stale_write(held)
        return False

    def _drop_stale(self) -> None:
        for output in self._outputs:
            if not output.valid:
                break
        else:
            return
        kept: deque[Output] = deque()
        for index, output in enumerate(self._outputs):
            if (index == 0 and self._offset) or output.valid:
                kept.append(output)
            else:
                self._queued_bytes -= len(output.data)
                output.dropped()
        self._outputs = kept

    def _written(self, count: int) -> None:
        count += self._offset
        outputs = self._outputs
        while outputs and count >= (size := len(outputs[0].data)):
            output = outputs.popleft()
            count -= size
            self._offset = 0
            self._queued_bytes -= size
            output.written()
        self._offset = count

    def _block(self) -> None:
        self._write_blocked = True
        self._loop.add_writer(self._child.stdin_fd, self._writable)

    def _writable(self) -> None:
        self._loop.remove_writer(self._child.stdin_fd)
        self._write_blocked = False
        self._link.session.changed()

    def _end_input(self) -> None:
        if not self._input_open:
            return
        self._input_open = False
        if self._write_blocked:
            self._loop.remove_writer(self._child.stdin_fd)
        for output in self._outputs:
            output.dropped()
        self._outputs.clear()
        self._child.close_stdin()
        if self._tap is not None:
            self._tap.input_closed(self._link)

    # -- reading -------------------------------------------------------------------------------------------------------

    def _read_from(self, fd: int, callback: Callable[[], None]) -> None:
        self._loop.add_reader(fd, callback)
        self._reading.add(fd)

    def _stop_reading(self, fd: int) -> None:
        if fd in self._reading:
            self._reading.discard(fd)
            self._loop.remove_reader(fd)

    def _resume(self) -> None:
        self._paused = False
        self._read_from(self._child.stdout_fd, self._read_stdout)

    def _read_stdout(self) -> None:
        if not self._link.reading:
            # What is left in the pipe makes the process wait; the session is looked at again when there is room.
            self._stop_reading(self._child.stdout_fd)
            self._paused = True
            return
        data = _read(self._child.stdout_fd)
        if data:
            self._receive(data)
        elif data is not None:
            self._stop_reading(self._child.stdout_fd)
            if self._tap is not None:
                self._tap.output_closed(self._link)
            self._link.receive_eof()

    def _receive(self, data: bytes) -> None:
        if self._tap is not None:
            self._tap.sent(self._link, data)
        self._link.receive(data)

    def _receive_stderr(self, data: bytes) -> None:
        if self._tap is not None:
            self._tap.wrote_stderr(self._link, data)
        self._link.receive_stderr(data)

    def _read_stderr(self) -> None:
        data = _read(self._child.stderr_fd)
        if data:
            self._receive_stderr(data)
        elif data is not None:
            self._stop_reading(self._child.stderr_fd)

    # -- ending --------------------------------------------------------------------------------------------------------

    def terminate(self) -> None:
        """Send SIGTERM to the process group."""
        self._child.kill_group(signal.SIGTERM)

    def kill(self) -> None:
        """Kill the process group; the exit watch does the rest."""
        self._child.kill_group(signal.SIGKILL)

    def _watch_exit(self) -> None:
        if self._child.pidfd is not None:
            self._read_from(self._child.pidfd, self._exited)
            return
        thread = threading.Thread(target=self._wait_in_thread, name=f"broker-wait-{self._child.pid}", daemon=True)
        thread.start()

    def _wait_in_thread(self) -> None:
        try:
            os.waitid(os.P_PID, self._child.pid, os.WEXITED | os.WNOWAIT)
        except ChildProcessError:
            pass
        try:
            self._loop.call_soon_threadsafe(self._exited)
        except RuntimeError:
            pass  # the loop is gone, and the process with it

    def _exited(self) -> None:
        if self._ended:
            return
        self._ended = True
        if self._child.pidfd is not None:
            self._stop_reading(self._child.pidfd)
        if self._paused:
            self._resume()
        # What the process wrote just before it ended still counts; what a surviving helper writes on and on does not.
        self._drain(self._child.stderr_fd, self._receive_stderr)
        self._drain(self._child.stdout_fd, self._receive)
        status = self._child.poll()
        self.release()
        if self._tap is not None:
            self._tap.exited(self._link, status)
        self._link.exited(status)
        self._on_ended(self)

    def _drain(self, fd: int, feed: Callable[[bytes], None]) -> None:
        if fd not in self._reading:
            return
        room = MAX_EXIT_DRAIN_BYTES
        while room > 0 and (data := _read(fd)):
            feed(data)
            room -= len(data)

    def release(self) -> None:
        """Take everything out of the loop and close every descriptor. Idempotent."""
        for fd in list(self._reading):
            self._stop_reading(fd)
        self._end_input()
        self._child.close()


def _read(fd: int) -> bytes | None:
    """What is there: bytes, ``b""`` at the end, None when there is nothing yet."""
    try:
        return os.read(fd, MAX_READ_CHUNK_BYTES)
    except (BlockingIOError, InterruptedError):
        return None
    except OSError:
        return b""
