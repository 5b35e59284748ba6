"""The file an event stream is kept in: one line an event, on stable storage before the write returns.

The file is opened once, without following a link, and only if it is a regular file; nobody but its owner can read it.
Each line goes in with one ``write``, under a lock that other processes on the same file respect. The lines of several
threads become durable together: one of them calls fsync, and those that were written meanwhile wait for the next.

Nothing fails silently. A line that did not fit is taken out of the file again and its write raises. When fsync fails,
every write that waited for it raises, and what is not known to be durable is kept and written once more before the next
fsync, because the system may have forgotten that its pages were never stored.

Source: odek contract, "Event schema", sink behaviour; odek notes, section 5.8; design, D1.
"""

from __future__ import annotations

import errno
import fcntl
import os
import stat
import threading
from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager
from types import TracebackType
from typing import Final

from attrs import evolve, frozen

from broker.errors import EventLogError, SetupError, UsageError
from broker.limits import MAX_EVENT_LINE_BYTES, MAX_READ_CHUNK_BYTES, MAX_UNSYNCED_LOG_BYTES
from broker.wire.odek.events.event import Event
from broker.wire.odek.events.reader import decode
from broker.wire.odek.events.types import EVENT_SCHEMA

_SAFELY: Final = os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC | os.O_NOCTTY
_MODE: Final = 0o600
_LF: Final = b"\n"
_BEGINNING: Final = f'{{"schema":"{EVENT_SCHEMA}"'.encode()


@frozen
class EventLogStatistics:
    """What became of the lines so far.

    ``written`` are in the file, ``durable`` of these on stable storage. ``syncs`` is how many calls of fsync that took,
    ``write_failures`` and ``sync_failures`` what was reported, ``healed`` how often a torn line was put right.
    """

    written: int = 0
    durable: int = 0
    syncs: int = 0
    write_failures: int = 0
    sync_failures: int = 0
    healed: int = 0


class EventLog:
    """An event file for appending. Safe from any thread; several processes may have the same file open.

    ``path`` is created with mode 0600, and gets that mode if it exists; its directory must exist. Raises
    :class:`~broker.errors.SetupError` for a directory that does not, for a link, a pipe, a device or a directory at the
    path, and for a file that cannot be opened or made private.
    """

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self.path: str = os.fspath(path)
        self._fd = _open(self.path)
        self._lock = threading.Lock()  # over the file's end and everything below
        self._synced = threading.Condition(self._lock)
        self._closed = False
        self._syncing = False
        self._end = -1  # the size of the file after the last write; unknown at first
        self._number = 0  # of the last line written
        self._durable = 0  # every line up to this number is on stable storage
        self._unsynced: deque[tuple[int, int, bytes]] = deque()  # number, offset and bytes of the lines after it
        self._unsynced_bytes = 0
        self._rewrite = False  # the last fsync failed
        self._failure: tuple[int, OSError] | None = None  # the last line that the newest failed fsync was for, and why
        self._statistics = EventLogStatistics()
        try:
            with self._lock, self._exclusive():
                self._heal_tail()
        except OSError as error:
            os.close(self._fd)
            raise _refusal(self.path, f"its end cannot be put right: {_why(error)}") from error

    def statistics(self) -> EventLogStatistics:
        """How the log stands."""
        with self._lock:
            return evolve(self._statistics, written=self._number, durable=self._durable)

    def write(self, event: Event) -> None:
        """Append the event's line; it is on stable storage when this returns. See :meth:`write_line`."""
        self.write_line(event.line())

    def write_line(self, line: bytes) -> None:
        """Append ``line``, which ends in its only LF; it is on stable storage when this returns.

        Raises :class:`EventLogError` when it could not be written, or not be made durable, and
        :class:`~broker.errors.UsageError` after the close or for something that is not one line within 4 MiB.
        """
        if not line.endswith(_LF) or line.count(_LF) != 1 or len(line) > MAX_EVENT_LINE_BYTES:
            raise UsageError("an event is one line with its LF, of at most 4 MiB", limit="MAX_EVENT_LINE_BYTES")
        with self._lock:
            self._require_open()
            number = self._append(line)
            self._wait_until_durable(number)

    def flush(self) -> None:
        """Make durable whatever is not yet, as after a write that raised. Raises :class:`EventLogError`."""
        with self._lock:
            self._require_open()
            self._wait_until_durable(self._number)

    def close(self) -> None:
        """Make durable what is not yet, and close the file. Idempotent; raises :class:`EventLogError` and is closed."""
        with self._lock:
            if self._closed:
                return
            self._closed = True
            try:
                self._wait_until_durable(self._number)
            finally:
                while self._syncing:
                    self._synced.wait()
                os.close(self._fd)

    def _require_open(self) -> None:
        if self._closed:
            raise UsageError(f"the event log {self.path} is closed", path=self.path)

    # -- appending -----------------------------------------------------------------------------------------------------

    def _append(self, line: bytes) -> int:
        """Write one line at the end of the file, whole or not at all; gives its number."""
        if self._unsynced_bytes + len(line) > MAX_UNSYNCED_LOG_BYTES:
            # Nothing gets durable: before more is kept in memory, that has to be put right.
            try:
                self._wait_until_durable(self._number)
            except EventLogError as error:
                error.written = False
                raise
            self._require_open()
        try:
            with self._exclusive():
                self._heal_tail()
                offset = self._end
                try:
                    _write_all(self._fd, line)
                except OSError:
                    self._take_back(offset)
                    raise
                self._end = offset + len(line)
        except OSError as error:
            self._count(write_failures=1)
            raise self._error("an event could not be written", error, written=False) from error
        self._number += 1
        self._unsynced.append((self._number, offset, line))
        self._unsynced_bytes += len(line)
        return self._number

    @contextmanager
    def _exclusive(self) -> Iterator[None]:
        """Keep other processes' logs out of the file."""
        fcntl.flock(self._fd, fcntl.LOCK_EX)
        try:
            yield
        finally:
            fcntl.flock(self._fd, fcntl.LOCK_UN)

    def _take_back(self, offset: int) -> None:
        """Remove the part of a line that went in before the rest failed."""
        if os.fstat(self._fd).st_size > offset:
            os.ftruncate(self._fd, offset)
            self._count(healed=1)
        self._end = offset

    def _heal_tail(self) -> None:
        """See to it that the file ends with a whole line; only what somebody else wrote can be torn.

        A part of an event was never promised to anyone and is removed. Anything else is left, on a line of its own.
        """
        size = os.fstat(self._fd).st_size
        if size == self._end:
            return
        tail = _tail(self._fd, size)
        if tail:
            whole = decode(tail) is not None
            ours = len(tail) <= MAX_EVENT_LINE_BYTES and tail[: len(_BEGINNING)] == _BEGINNING[: len(tail)]
            if ours and not whole:
                os.ftruncate(self._fd, size - len(tail))
                size -= len(tail)
            elif os.write(self._fd, _LF):
                size += 1
            self._count(healed=1)
        self._end = size

    # -- durability ----------------------------------------------------------------------------------------------------

    def _wait_until_durable(self, number: int) -> None:
        """Return once every line up to ``number`` is durable; raise when an fsync that was for them failed."""
        known = self._failure
        while self._durable < number:
            if self._syncing:
                self._synced.wait()
            else:
                self._sync()
            failure = self._failure
            if failure is not None and failure is not known and failure[0] >= number > self._durable:
                raise self._error("an event is written but not durable", failure[1], written=True) from failure[1]

    def _sync(self) -> None:
        """Call fsync for everything written so far, while other threads go on writing."""
        upto = self._number
        failure: OSError | None = None
        self._syncing = True
        try:
            if self._rewrite:
                self._write_again()
            self._lock.release()
            try:
                os.fsync(self._fd)
            finally:
                self._lock.acquire()
        except OSError as error:
            failure = error
        finally:
            self._syncing = False
            self._synced.notify_all()
        self._rewrite = failure is not None
        if failure is not None:
            self._count(sync_failures=1)
            self._failure = (upto, failure)
            return
        self._count(syncs=1)
        self._durable = upto
        while self._unsynced and self._unsynced[0][0] <= upto:
            self._unsynced_bytes -= len(self._unsynced.popleft()[2])

    def _write_again(self) -> None:
        """Write what is not durable to the same places again, so that the system knows of it again."""
        flags = fcntl.fcntl(self._fd, fcntl.F_GETFL)
        with self._exclusive():
            size = os.fstat(self._fd).st_size
            # While this flag is set, Linux appends whatever offset is given.
            fcntl.fcntl(self._fd, fcntl.F_SETFL, flags & ~os.O_APPEND)
            try:
                for _, offset, line in self._unsynced:
                    # A file that somebody cut off meanwhile gets no hole.
                    if offset + len(line) <= size:
                        _write_all(self._fd, line, offset)
            finally:
                fcntl.fcntl(self._fd, fcntl.F_SETFL, flags)

    def _count(self, **more: int) -> None:
        changed = {name: getattr(self._statistics, name) + number for name, number in more.items()}
        self._statistics = evolve(self._statistics, **changed)

    def _error(self, what: str, error: OSError, *, written: bool) -> EventLogError:
        return EventLogError(
            f"{self.path}: {what}: {error.strerror or error}", errno=error.errno, written=written, path=self.path
        )

    def __enter__(self) -> EventLog:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


def _open(path: str) -> int:
    """The descriptor of the file at ``path``, checked, private, and durable as a name."""
    directory, name = os.path.split(path)
    if not name or name in (".", ".."):
        raise SetupError(f"{path!a:.200} names no file", path=path)
    try:
        parent = os.open(directory or ".", os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    except (OSError, ValueError) as error:
        raise _refusal(path, f"its directory cannot be opened: {_why(error)}") from error
    try:
        try:
            # Looked at before it is opened: opening a device may have effects, and a pipe has a reader to disturb.
            _require_regular(path, os.stat(name, dir_fd=parent, follow_symlinks=False))
        except FileNotFoundError:
            pass
        descriptor = os.open(name, os.O_RDWR | os.O_CREAT | os.O_APPEND | _SAFELY, _MODE, dir_fd=parent)
        try:
            _require_regular(path, os.fstat(descriptor))
            os.fchmod(descriptor, _MODE)
            os.fsync(parent)
        except BaseException:
            os.close(descriptor)
            raise
        return descriptor
    except (OSError, ValueError) as error:
        link = isinstance(error, OSError) and error.errno == errno.ELOOP
        raise _refusal(path, "it is a symbolic link" if link else f"it cannot be opened: {_why(error)}") from error
    finally:
        os.close(parent)


def _require_regular(path: str, found: os.stat_result) -> None:
    if stat.S_ISLNK(found.st_mode):
        raise _refusal(path, "it is a symbolic link")
    if not stat.S_ISREG(found.st_mode):
        raise _refusal(path, "it is not a regular file")


def _refusal(path: str, why: str) -> SetupError:
    return SetupError(f"event log {path!a:.200}: {why}", path=path)


def _why(error: BaseException) -> str:
    return error.strerror or str(error) if isinstance(error, OSError) else str(error)


def _tail(descriptor: int, size: int) -> bytes:
    """What stands behind the last LF, or as much of it as a line may have."""
    pieces: list[bytes] = []
    position = size
    while position > 0 and size - position <= MAX_EVENT_LINE_BYTES:
        start = max(0, position - MAX_READ_CHUNK_BYTES)
        piece = os.pread(descriptor, position - start, start)
        end = piece.rfind(_LF)
        pieces.append(piece[end + 1 :])
        if end >= 0:
            break
        position = start
    return b"".join(reversed(pieces))


def _write_all(descriptor: int, data: bytes, offset: int | None = None) -> None:
    """Write ``data`` at the end, or at ``offset``. One write takes it all, unless the disk is full or a limit near."""
    done = 0
    while done < len(data):
        rest = data[done:] if done else data
        wrote = os.write(descriptor, rest) if offset is None else os.pwrite(descriptor, rest, offset + done)
        if not wrote:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        done += wrote
