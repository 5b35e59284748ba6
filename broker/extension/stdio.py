"""An extension as a process: pipes, threads for plain functions, and an orderly end.

stdin and stdout are the protocol's alone. They are moved away before anything else runs, so that what an author
prints goes to stderr, and what is read from stdin is empty.
"""

from __future__ import annotations

import asyncio
import io
import json
import os
import shlex
import stat
import sys
import threading
import time
from collections import deque
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, NoReturn

from broker.errors import BrokerError
from broker.extension.logs import bounded
from broker.extension.runtime import Runtime
from broker.extension.workers import ThreadWorkers
from broker.limits import HANDLER_FINISH_MS, MAX_READ_CHUNK_BYTES

if TYPE_CHECKING:
    from broker.extension.app import Extension

_MANIFEST_VARIABLE = "OCTET_EXTENSION_MANIFEST"


def run(app: Extension) -> None:
    """Serve the host over the standard streams; see :meth:`broker.extension.Extension.run`."""
    if sys.stdin is None:
        _leave(f"{app.name} is an octet extension, and has no stdin to hear a host on.\n{_how(app)}")
    if not _is_stream(0):
        _leave(f"{app.name} is an octet extension: a host starts it and talks to it over pipes.\n{_how(app)}")
    try:
        app.check()
        manifest = _manifest_beside_program()
        if manifest is not None:
            app.check_manifest(manifest)
    except BrokerError as error:
        _leave(f"{app.name}: {error}")
    source, sink = os.dup(0), os.dup(1)
    nothing = os.open(os.devnull, os.O_RDONLY)
    os.dup2(nothing, 0)
    os.close(nothing)
    sys.stdout.flush()
    os.dup2(2, 1)
    if isinstance(sys.stdout, io.TextIOWrapper):
        # What is printed stands beside what is logged, in the order in which it was written.
        sys.stdout.reconfigure(line_buffering=True, errors="backslashreplace")
    # Not asyncio.run(): it waits for threads without an end.
    loop = asyncio.new_event_loop()
    try:
        status = loop.run_until_complete(_serve(app, source, sink))
    finally:
        loop.close()
    _leave_threads_behind(status)
    if status:
        sys.exit(status)


def _is_stream(descriptor: int) -> bool:
    """Whether there may be a host behind a descriptor, or its frames in a file: no terminal, no ``/dev/null``."""
    try:
        mode = os.fstat(descriptor).st_mode
    except OSError:
        return False
    return stat.S_ISFIFO(mode) or stat.S_ISSOCK(mode) or stat.S_ISREG(mode)


def _leave_threads_behind(status: int) -> None:
    """Give threads that Python would wait for a little time; then end without them, as a host would end it anyway."""
    end = time.monotonic() + HANDLER_FINISH_MS / 1000
    for thread in threading.enumerate():
        if thread is threading.main_thread() or thread.daemon:
            continue
        thread.join(max(0.0, end - time.monotonic()))
        if thread.is_alive():
            _log(f"ended without the thread {thread.name}, which goes on")
            sys.stdout.flush()
            os._exit(status)


async def _serve(app: Extension, source: int, sink: int) -> int:
    loop = asyncio.get_running_loop()
    ended: asyncio.Future[int] = loop.create_future()

    def end(status: int) -> None:
        if not ended.done():
            ended.set_result(status)

    out = _Sink(loop, sink)
    runtime = Runtime(
        app,
        loop=loop,
        workers=ThreadWorkers(loop),
        write=out.write,
        log=_log,
        on_end=end,
        drain=out.drained,
        backlog=out.backlog,
    )
    out.on_broken = runtime.receive_eof
    app.set_process_runtime(runtime)
    reading = _Source(loop, source, runtime)
    try:
        reading.start()
        status = await ended
        await out.finish()
        return status
    finally:
        reading.close()
        out.close()


class _Source:
    """The pipe from the host."""

    def __init__(self, loop: asyncio.AbstractEventLoop, descriptor: int, runtime: Runtime) -> None:
        self._loop = loop
        self._descriptor = descriptor
        self._runtime = runtime
        self._watched = False
        self._turn: asyncio.Handle | None = None

    def start(self) -> None:
        if stat.S_ISREG(os.fstat(self._descriptor).st_mode):
            # A selector has no use for a file, and reading it does not block.
            self._turn = self._loop.call_soon(self._read_file)
            return
        os.set_blocking(self._descriptor, False)
        self._loop.add_reader(self._descriptor, self._read)
        self._watched = True

    def close(self) -> None:
        self._unwatch()
        if self._turn is not None:
            self._turn.cancel()
        os.close(self._descriptor)

    def _read(self) -> None:
        try:
            data = os.read(self._descriptor, MAX_READ_CHUNK_BYTES)
        except BlockingIOError:
            return
        except OSError:
            data = b""
        if data:
            self._runtime.receive(data)
        else:
            self._unwatch()
            self._runtime.receive_eof()

    def _read_file(self) -> None:
        try:
            data = os.read(self._descriptor, MAX_READ_CHUNK_BYTES)
        except OSError:
            data = b""
        if data:
            self._runtime.receive(data)
            self._turn = self._loop.call_soon(self._read_file)
        else:
            self._runtime.receive_eof()

    def _unwatch(self) -> None:
        if self._watched:
            self._watched = False
            self._loop.remove_reader(self._descriptor)


class _Sink:
    """The pipe to the host. What does not fit waits; that is bounded by what may be open and unanswered."""

    def __init__(self, loop: asyncio.AbstractEventLoop, descriptor: int) -> None:
        self._loop = loop
        self._descriptor = descriptor
        self._waiting: deque[memoryview] = deque()
        self._size = 0
        self._empty = asyncio.Event()
        self._empty.set()
        self._broken = False
        self.on_broken: Callable[[], None] = lambda: None
        os.set_blocking(descriptor, False)

    def write(self, data: bytes) -> None:
        if self._broken:
            return
        self._waiting.append(memoryview(data))
        self._size += len(data)
        if self._empty.is_set():
            self._empty.clear()
            self._write_on()
            if self._waiting and not self._broken:
                self._loop.add_writer(self._descriptor, self._write_on)

    def backlog(self) -> int:
        """Bytes that wait to be written."""
        return self._size

    async def drained(self) -> None:
        """Wait until all is written."""
        await self._empty.wait()

    async def finish(self) -> None:
        """Wait until all is written, or the host has had its time to read it."""
        try:
            await asyncio.wait_for(self._empty.wait(), HANDLER_FINISH_MS / 1000)
        except TimeoutError:
            _log("the host did not read the last answers")

    def close(self) -> None:
        if self._waiting:
            self._loop.remove_writer(self._descriptor)
        os.close(self._descriptor)

    def _write_on(self) -> None:
        try:
            while self._waiting:
                view = self._waiting[0]
                written = os.write(self._descriptor, view)
                self._size -= written
                if written == len(view):
                    self._waiting.popleft()
                else:
                    self._waiting[0] = view[written:]
        except BlockingIOError:
            return
        except OSError:
            # The host is gone; what is left has no reader.
            self._broken = True
            self._waiting.clear()
            self._size = 0
            self._loop.call_soon(self.on_broken)
        self._loop.remove_writer(self._descriptor)
        self._empty.set()


def _manifest_beside_program() -> Path | None:
    """The manifest a host named, or the one beside the main file; ``None`` without either."""
    if named := os.environ.get(_MANIFEST_VARIABLE):
        return Path(named)
    program = getattr(sys.modules.get("__main__"), "__file__", None)
    if program is None:
        return None
    found = Path(program).resolve().with_name("extension.toml")
    return found if found.is_file() else None


def _how(app: Extension) -> str:
    program = getattr(sys.modules.get("__main__"), "__file__", None)
    where = Path(program).resolve().parent if program is not None else "DIRECTORY"
    shown = shlex.quote(str(where))
    run = f"broker run {shown}"
    for tool in app.declaration.tools:
        signature = app.handlers[f"tool {tool}"].signature
        arguments = json.dumps({} if signature is None else signature.example(), ensure_ascii=False)
        return f"Try it:  broker call {shown} {shlex.quote(tool)} {shlex.quote(arguments)}\n         {run}"
    return f"Try it:  {run}"


def _log(text: str) -> None:
    try:
        sys.stderr.write(bounded(text) + "\n")
        sys.stderr.flush()
    except (OSError, ValueError):
        pass  # nobody reads it


def _leave(text: str) -> NoReturn:
    _log(text)
    sys.exit(2)
