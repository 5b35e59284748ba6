"""The side of a child that hands over files: a directory of its own for each task, and what the runner finds in it.

The runner, not the model, says what there is: it looks at the top level of the directory when the task has ended,
measures size and digest itself on one descriptor, and leaves a note for the parent about everything it left out.

Source: odek contract, "Sub-agent result artifacts"; odek notes, sections 8.1 and 8.2.
"""

from __future__ import annotations

import hashlib
import os
import re
import secrets
import shutil
import stat
from collections.abc import Iterator
from itertools import count
from typing import Final

from attrs import frozen

from broker.errors import InvalidParamsError, SetupError
from broker.limits import (
    MAX_ARTIFACT_BYTES,
    MAX_ARTIFACT_SUMMARY_CHARS,
    MAX_CHILD_ARTIFACT_BYTES,
    MAX_CHILD_ARTIFACTS,
    MAX_CHILD_FILES,
    MAX_CHILD_NOTES,
    MAX_HASH_CHUNK_BYTES,
)
from broker.wire.odek.artifact_ref import ArtifactRef, file_uri
from broker.wire.quoting import plain, quote

_DIRECTORY: Final = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_FILE: Final = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC | os.O_NOCTTY
_ID: Final = re.compile("[A-Za-z0-9][A-Za-z0-9._-]{0,63}")
_SESSION_ID: Final = re.compile("[A-Za-z0-9][A-Za-z0-9_-]{0,127}")
_TASK_ID: Final = re.compile("task-[0-9a-f]{16}")
_UNFILED: Final = "unfiled"
_PRIVATE: Final = 0o700
_MAX_ID_CHARS: Final = 64
_SUMMARY_BYTES: Final = MAX_ARTIFACT_SUMMARY_CHARS * 4
_TEXT: Final = "text/"
_MEDIA_TYPES: Final = {
    ".md": "text/markdown",
    ".txt": "text/plain",
    ".log": "text/plain",
    ".json": "application/json",
    ".csv": "text/csv",
    ".html": "text/html",
    ".yaml": "application/yaml",
    ".yml": "application/yaml",
    ".xml": "application/xml",
}


@frozen
class Scan:
    """What a task left: references in the order they were chosen, the largest first, and notes on what was left out."""

    refs: tuple[ArtifactRef, ...]
    notes: tuple[str, ...]


@frozen
class _Found:
    name: str
    size: int


def new_task_id() -> str:
    """A random id of a task."""
    return f"task-{secrets.token_hex(8)}"


def make_task_root(artifacts: str | os.PathLike[str], session_id: str, task_id: str) -> str:
    """Make ``<artifacts>/<session id>/<task id>``, the two last of them private; gives its path.

    A session id that could be anything but one plain name goes to ``unfiled``. Raises ``invalid_params`` for a task id
    of another form and :class:`~broker.errors.SetupError` when the directory cannot be made or is there already.
    """
    if _TASK_ID.fullmatch(task_id) is None:
        raise InvalidParamsError(f"task id {quote(task_id)}: expected task- and 16 hexadecimal digits", path="task_id")
    session = session_id if _SESSION_ID.fullmatch(session_id) else _UNFILED
    path = os.path.join(os.path.abspath(artifacts), session, task_id)
    try:
        os.makedirs(os.path.dirname(path), mode=_PRIVATE, exist_ok=True)
        os.mkdir(path, _PRIVATE)
    except (OSError, ValueError) as error:
        raise SetupError(f"artifact root {path!a:.200}: {_why(error)}", path=path) from error
    return path


def remove_session_artifacts(artifacts: str | os.PathLike[str], session_id: str) -> bool:
    """Remove everything under ``<artifacts>/<session id>``; whether there was anything.

    Nothing is removed, and ``invalid_params`` raised, for a session id that is not one plain name.
    """
    if _SESSION_ID.fullmatch(session_id) is None or session_id == _UNFILED:
        raise InvalidParamsError(f"session id {quote(session_id)} is not one plain name", path="session_id")
    path = os.path.join(os.path.abspath(artifacts), session_id)
    try:
        shutil.rmtree(path)
    except FileNotFoundError:
        return False
    except OSError as error:
        raise SetupError(f"artifacts {path!a:.200}: {_why(error)}", path=path) from error
    return True


def scan(root: str | os.PathLike[str]) -> Scan:
    """Look at the files in ``root``, for after its task has ended.

    Links, directories and whatever else is no regular file are left out, files over 64 MiB too; then the largest go
    first until 64 or 64 MiB in total. Raises :class:`~broker.errors.SetupError` when ``root`` is no directory.
    """
    path = os.path.realpath(root)
    try:
        directory = os.open(path, _DIRECTORY)
    except (OSError, ValueError) as error:
        raise SetupError(f"artifact root {path!a:.200}: {_why(error)}", path=path) from error
    try:
        return _Scanner(path, directory).run()
    finally:
        os.close(directory)


class _Scanner:
    def __init__(self, path: str, directory: int) -> None:
        self._path = path
        self._directory = directory
        self._notes: list[str] = []
        self._unsaid = 0
        self._ids: set[str] = set()

    def run(self) -> Scan:
        refs: list[ArtifactRef] = []
        total = 0
        for found in sorted(self._regular(), key=lambda found: (-found.size, found.name)):
            if len(refs) == MAX_CHILD_ARTIFACTS:
                self._note(found.name, f"{MAX_CHILD_ARTIFACTS} larger files were handed over already")
            elif total + found.size > MAX_CHILD_ARTIFACT_BYTES:
                self._note(found.name, f"with it there would be more than {MAX_CHILD_ARTIFACT_BYTES} bytes in all")
            else:
                ref = self._measure(found)
                if ref is not None:
                    refs.append(ref)
                    total += found.size
        if self._unsaid:
            self._notes.append(f"{self._unsaid} more entries were left out")
        return Scan(tuple(refs), tuple(self._notes))

    def _regular(self) -> Iterator[_Found]:
        with os.scandir(self._directory) as entries:
            names: list[str] = []
            for entry in entries:
                if len(names) == MAX_CHILD_FILES:
                    self._unsaid += 1
                else:
                    names.append(entry.name)
        for name in sorted(names):
            try:
                status = os.stat(name, dir_fd=self._directory, follow_symlinks=False)
            except OSError as error:
                self._note(name, _why(error))
                continue
            if stat.S_ISLNK(status.st_mode):
                self._note(name, "it is a symbolic link")
            elif stat.S_ISDIR(status.st_mode):
                self._note(name, "it is a directory")
            elif not stat.S_ISREG(status.st_mode):
                self._note(name, "it is not a regular file")
            elif status.st_size > MAX_ARTIFACT_BYTES:
                self._note(name, f"it has {status.st_size} bytes, at most {MAX_ARTIFACT_BYTES} are handed over")
            else:
                yield _Found(name, status.st_size)

    def _measure(self, found: _Found) -> ArtifactRef | None:
        """The reference to a file, measured on one descriptor; ``None`` with a note if it is no longer what it was."""
        digest = hashlib.sha256()
        beginning = b""
        position = 0
        try:
            descriptor = os.open(found.name, _FILE, dir_fd=self._directory)
            try:
                regular = stat.S_ISREG(os.fstat(descriptor).st_mode)
                while regular and position <= found.size:
                    chunk = os.read(descriptor, min(MAX_HASH_CHUNK_BYTES, found.size + 1 - position))
                    if not chunk:
                        break
                    beginning = beginning or chunk[:_SUMMARY_BYTES]
                    digest.update(chunk)
                    position += len(chunk)
            finally:
                os.close(descriptor)
        except OSError as error:
            self._note(found.name, _why(error))
            return None
        if not regular or position != found.size:
            self._note(found.name, "it changed while it was measured")
            return None
        media_type = _MEDIA_TYPES.get(os.path.splitext(found.name)[1].lower(), "application/octet-stream")
        path = os.path.join(self._path, found.name)
        return ArtifactRef(
            id=self._id(found.name),
            uri=file_uri(path),
            media_type=media_type,
            path=path,
            sha256=digest.hexdigest(),
            size_bytes=found.size,
            summary=_summary(beginning, media_type),
        )

    def _id(self, name: str) -> str:
        """The stem of the file's name where it can be an id, and unlike any other."""
        stem = os.path.splitext(name)[0]
        if _ID.fullmatch(stem) is None:
            candidates = (f"artifact-{number}" for number in count(1))
        else:
            endings = ("", *(f"-{number}" for number in range(2, MAX_CHILD_ARTIFACTS + 2)))
            candidates = (stem[: _MAX_ID_CHARS - len(ending)] + ending for ending in endings)
        chosen = next(candidate for candidate in candidates if candidate not in self._ids)
        self._ids.add(chosen)
        return chosen

    def _note(self, name: str, why: str) -> None:
        if len(self._notes) == MAX_CHILD_NOTES:
            self._unsaid += 1
        else:
            self._notes.append(f"{quote(os.fsencode(name))} was left out: {why}")


def _summary(beginning: bytes, media_type: str) -> str | None:
    """The first line of a text, bounded and safe to show; ``None`` for an empty one and for anything else."""
    if not media_type.startswith(_TEXT):
        return None
    line = beginning.split(b"\n", 1)[0].decode("utf-8", "replace")
    return plain(line, max_chars=MAX_ARTIFACT_SUMMARY_CHARS).strip() or None


def _why(error: BaseException) -> str:
    return error.strerror or str(error) if isinstance(error, OSError) else str(error)
