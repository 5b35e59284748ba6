"""Files read and written as a whole: never through a final link, and on stable storage before anyone relies on it.

A file is read through one descriptor that was opened without following a final symbolic link and without waiting, so a
FIFO cannot block the host and a file swapped after the check is never the one read. A file is written under another
name, flushed, and renamed: whoever opens it finds the old content or the new one, also after a loss of power.
"""

from __future__ import annotations

import errno
import os
import stat
import tempfile

from broker.errors import SetupError


def read_bounded(file: str, maximum: int) -> bytes:
    """At most one byte more than ``maximum``: enough to tell that there is more.

    Raises :class:`~broker.errors.SetupError` naming ``file`` when it is not a readable regular file; a symbolic link is
    none. The error's cause is a ``FileNotFoundError`` when there is nothing of that name.
    """
    try:
        descriptor = os.open(file, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC | os.O_NOCTTY)
    except OSError as error:
        # Opening a link without following it: ELOOP on Linux and macOS, EMLINK on FreeBSD.
        link = error.errno in (errno.ELOOP, errno.EMLINK) and os.path.islink(file)
        problem = "is a symbolic link" if link else f"cannot be opened: {error.strerror}"
        raise SetupError(f"{file} {problem}", path=file) from error
    except ValueError as error:
        raise SetupError(f"{file!r} is not a path: {error}", path=file) from error
    try:
        if not stat.S_ISREG(os.fstat(descriptor).st_mode):
            raise SetupError(f"{file} is not a regular file", path=file)
        chunks: list[bytes] = []
        room = maximum + 1
        while room and (chunk := os.read(descriptor, room)):
            chunks.append(chunk)
            room -= len(chunk)
        return b"".join(chunks)
    except OSError as error:
        raise SetupError(f"{file} cannot be read: {error.strerror}", path=file) from error
    finally:
        os.close(descriptor)


def write_whole(file: str | os.PathLike[str], content: bytes, *, mode: int = 0o600) -> None:
    """Make ``content`` the file's content: temporary name, fsync, rename, fsync of the directory.

    What was there is replaced as a whole. Raises ``OSError`` when that cannot be done; then the file is what it was,
    and nothing is left behind.
    """
    directory, name = os.path.split(os.path.abspath(file))
    # A name may have 255 bytes, of which a character may take four.
    descriptor, temporary = tempfile.mkstemp(prefix=f".{name[:32]}-", dir=directory)
    try:
        try:
            os.fchmod(descriptor, mode)
            view = memoryview(content)
            while view:
                view = view[os.write(descriptor, view) :]
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
        os.rename(temporary, os.path.join(directory, name))
    except BaseException:
        os.unlink(temporary)
        raise
    sync_directory(directory)


def sync_directory(directory: str | os.PathLike[str]) -> None:
    """Put the directory's own entries on stable storage."""
    descriptor = os.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
