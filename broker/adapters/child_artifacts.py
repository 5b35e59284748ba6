"""Directories for the artifacts of tasks: made by the parent, filled and measured by the task's runner.

In the parent::

    tasks = TaskDirectories("~/.odek/artifacts")
    directory = tasks.make(session_id)          # directory.path goes into the task's envelope as artifact_root

In the runner, once the model of the task has ended::

    notes = relocate_artifacts("artifacts", root)     # what the model staged in its workspace
    result = {"status": "ok", **collect_artifacts(root).to_json()}

The model names files and nothing else: sizes and digests are measured here, of the very descriptor that is checked.
Source: odek contract, "Sub-agent result artifacts"; odek notes, sections 8.1, 8.2 and 8.6.
"""

from __future__ import annotations

import errno
import os
import re
import secrets
import shutil
import stat
from itertools import count, islice
from typing import Final

from attrs import evolve, field, frozen

from broker.adapters.artifacts import ArtifactRoots
from broker.adapters.files import read_bounded, write_whole
from broker.errors import ArtifactError, SetupError, UsageError
from broker.limits import (
    MAX_ARTIFACT_BYTES,
    MAX_ARTIFACTS,
    MAX_CHILD_ARTIFACTS_BYTES,
    MAX_CHILD_SUMMARY_BYTES,
    MAX_SCANNED_ENTRIES,
)
from broker.wire.odek.artifact_ref import ArtifactRef, file_uri
from broker.wire.odek.child_artifacts import CollectedArtifacts, Notes, assign_ids, media_type_of, summary_of
from broker.wire.quoting import quote

UNFILED: Final = "unfiled"
"""The directory for tasks of a session whose id can be no directory's name."""

_SESSION_ID: Final = re.compile("[A-Za-z0-9][A-Za-z0-9_-]{0,127}")
_DIRECTORY: Final = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_KINDS: Final = {stat.S_IFDIR: "a directory", stat.S_IFLNK: "a symbolic link"}


@frozen
class TaskDirectory:
    """The directory of one task. ``files`` verifies and reads what is in it, and nothing else."""

    task_id: str
    path: str
    files: ArtifactRoots = field(repr=False)


class TaskDirectories:
    """Directories ``<base>/<session id>/<task id>``, each of mode 0700. ``base`` is made when it is needed."""

    def __init__(self, base: str | os.PathLike[str]) -> None:
        self._base = os.path.abspath(os.path.expanduser(base))

    def make(self, session_id: str) -> TaskDirectory:
        """A new directory for a task of the session; a session id that can be no name is filed under ``unfiled``.

        Raises :class:`~broker.errors.SetupError` when it cannot be made, also where a link stands in its place.
        """
        session = session_id if _SESSION_ID.fullmatch(session_id) else UNFILED
        task_id = f"task-{secrets.token_hex(8)}"
        try:
            os.makedirs(self._base, mode=0o700, exist_ok=True)
            base = os.path.realpath(self._base, strict=True)
            above = os.path.join(base, session)
            if not os.path.lexists(above):
                os.makedirs(above, mode=0o700, exist_ok=True)
            descriptor = os.open(above, _DIRECTORY)
            try:
                os.mkdir(task_id, 0o700, dir_fd=descriptor)
            finally:
                os.close(descriptor)
        except OSError as error:
            raise SetupError(
                f"no directory for a task below {self._base}: {error.strerror}", path=self._base
            ) from error
        path = os.path.join(above, task_id)
        return TaskDirectory(task_id, path, ArtifactRoots([path]))

    def remove_session(self, session_id: str) -> bool:
        """Remove the artifacts of all tasks of a session; whether there were any.

        Raises :class:`~broker.errors.UsageError` for a session id that can be no name, and then removes nothing; links
        are removed and never followed. Raises :class:`~broker.errors.SetupError` when something cannot be removed.
        """
        if _SESSION_ID.fullmatch(session_id) is None or session_id == UNFILED:
            raise UsageError(f"{session_id!a:.140} is no session id, nothing is removed", path="session_id")
        path = os.path.join(self._base, session_id)
        if not os.path.lexists(path):
            return False
        try:
            shutil.rmtree(path)
        except OSError as error:
            raise SetupError(f"{path} cannot be removed: {error.strerror or error}", path=path) from error
        return True


def relocate_artifacts(staging: str | os.PathLike[str], root: str | os.PathLike[str]) -> tuple[str, ...]:
    """Move the regular files of the directory ``staging`` into the task's ``root``; the notes on what stays behind.

    A file whose name is taken in ``root`` gets a number. A staging directory that does not exist holds nothing. Raises
    :class:`~broker.errors.SetupError` for one that is no directory, or a link to one, and for a ``root`` that is none.
    """
    notes = Notes()
    target = _open_directory(os.path.realpath(root))
    try:
        try:
            source = _open_directory(staging)
        except SetupError as error:
            if isinstance(error.__cause__, FileNotFoundError):
                return ()
            raise
        try:
            for name, _ in _regular_files(source, notes):
                try:
                    _move(name, os.path.join(staging, name), source, os.path.realpath(root), target)
                except (OSError, SetupError) as error:
                    why = error.strerror if isinstance(error, OSError) else "it is no regular file any more"
                    notes.add(f"{quote(name)} is left out: it cannot be moved: {why}")
        finally:
            os.close(source)
    finally:
        os.close(target)
    return notes.texts


def collect_artifacts(root: str | os.PathLike[str]) -> CollectedArtifacts:
    """The artifacts of a task: the regular files at the top of its ``root``, measured now.

    The largest come first until there are 64 of them or 64 MiB in all, and are listed by name. Directories, links,
    special files, files over 64 MiB, and those that change while they are measured are left out; each has a note.
    Raises :class:`~broker.errors.SetupError` for a ``root`` that is no directory.
    """
    notes = Notes()
    path = os.path.realpath(root)
    descriptor = _open_directory(path)
    try:
        found = sorted(_regular_files(descriptor, notes), key=lambda entry: (-entry[1], entry[0]))
    finally:
        os.close(descriptor)
    roots = ArtifactRoots([path])
    kept: dict[str, ArtifactRef] = {}
    total = 0
    for name, size in found:
        if size > MAX_ARTIFACT_BYTES:
            notes.add(f"{quote(name)} is left out: it has {size} bytes, at most {MAX_ARTIFACT_BYTES} are accepted")
        elif len(kept) == MAX_ARTIFACTS:
            notes.add(f"{quote(name)} is left out: there are {MAX_ARTIFACTS} artifacts already")
        elif total + size > MAX_CHILD_ARTIFACTS_BYTES:
            notes.add(f"{quote(name)} is left out: with it there are more than {MAX_CHILD_ARTIFACTS_BYTES} bytes")
        else:
            try:
                ref = _measured(roots, path, name, MAX_CHILD_ARTIFACTS_BYTES - total)
            except ArtifactError as error:
                notes.add(f"{quote(name)} is left out: {error}")
            else:
                kept[name] = ref
                total += ref.size_bytes or 0
    names = sorted(kept)
    ids = assign_ids(names)
    return CollectedArtifacts(tuple(evolve(kept[name], id=ids[name]) for name in names), notes.texts)


def _measured(roots: ArtifactRoots, root: str, name: str, room: int) -> ArtifactRef:
    path = os.path.join(root, name)
    ref = ArtifactRef(id=name, uri=file_uri(path), media_type=media_type_of(name), path=path)
    size, digest, head = roots.measure(ref, MAX_CHILD_SUMMARY_BYTES)
    if size > room:
        raise ArtifactError(f"it grew to {size} bytes, and there is room for {room}", artifact=name)
    return evolve(ref, sha256=digest, size_bytes=size, summary=summary_of(name, head))


def _open_directory(path: str | os.PathLike[str]) -> int:
    try:
        return os.open(path, _DIRECTORY)
    except OSError as error:
        shown = os.fspath(path)
        raise SetupError(f"{shown} is no directory that can be used: {error.strerror}", path=shown) from error


def _regular_files(directory: int, notes: Notes) -> list[tuple[str, int]]:
    """Names and sizes of the regular files of an open directory, by name; the rest is noted."""
    with os.scandir(directory) as entries:
        names = sorted(entry.name for entry in islice(entries, MAX_SCANNED_ENTRIES + 1))
    if len(names) > MAX_SCANNED_ENTRIES:
        notes.add(f"only {MAX_SCANNED_ENTRIES} entries of the directory were looked at")
    files = []
    for name in names[:MAX_SCANNED_ENTRIES]:
        try:
            found = os.stat(name, dir_fd=directory, follow_symlinks=False)
        except OSError as error:
            notes.add(f"{quote(name)} is left out: {error.strerror}")
            continue
        if stat.S_ISREG(found.st_mode):
            files.append((name, found.st_size))
        else:
            notes.add(f"{quote(name)} is left out: it is {_KINDS.get(stat.S_IFMT(found.st_mode), 'a special file')}")
    return files


def _move(name: str, path: str, source: int, root: str, target: int) -> None:
    new = next(free for n in count(1) if not _exists(free := _numbered(name, n), target))
    try:
        os.rename(name, new, src_dir_fd=source, dst_dir_fd=target)
    except OSError as error:
        if error.errno != errno.EXDEV:
            raise
        content = read_bounded(path, MAX_ARTIFACT_BYTES)
        if len(content) > MAX_ARTIFACT_BYTES:
            raise OSError(errno.EFBIG, os.strerror(errno.EFBIG)) from None
        write_whole(os.path.join(root, new), content)
        os.unlink(name, dir_fd=source)


def _numbered(name: str, number: int) -> str:
    stem, dot, ending = name.rpartition(".")
    if number == 1:
        return name
    return f"{stem}-{number}{dot}{ending}" if stem else f"{name}-{number}"


def _exists(name: str, directory: int) -> bool:
    try:
        os.stat(name, dir_fd=directory, follow_symlinks=False)
    except FileNotFoundError:
        return False
    return True
