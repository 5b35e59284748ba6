"""Moving files that a child has named out of its workspace into its artifact root, before they are scanned.

A name is looked up from the workspace without following a link out of it, and what was opened is what is copied. The
file in the workspace goes only when its copy is complete. Source: odek contract, "Sub-agent result artifacts".
"""

from __future__ import annotations

import os
from collections.abc import Iterable
from itertools import count

from broker.adapters.artifacts import ArtifactRoots
from broker.errors import ArtifactError
from broker.limits import MAX_ARTIFACT_BYTES, MAX_CHILD_ARTIFACTS, MAX_HASH_CHUNK_BYTES
from broker.wire.odek.artifact_ref import ArtifactRef, file_uri
from broker.wire.quoting import quote


def stage(names: Iterable[str], *, workspace: str | os.PathLike[str], root: str | os.PathLike[str]) -> tuple[str, ...]:
    """Move the files ``names`` of ``workspace`` to the top level of ``root``; gives a note for each that was not.

    Names are relative to the workspace. A second file of one base name gets a number before its ending. At most 64
    files of 64 MiB each; what is left out stays where it is.
    """
    base, target = os.path.realpath(workspace), os.path.realpath(root)
    files = ArtifactRoots([base])
    notes: list[str] = []
    moved = 0
    for name in names:
        if moved == MAX_CHILD_ARTIFACTS:
            notes.append(f"{quote(name)} was not staged: {MAX_CHILD_ARTIFACTS} files were already")
            continue
        path = os.path.normpath(os.path.join(base, name))
        try:
            _move(files, path, target)
        except ArtifactError as error:
            notes.append(f"{quote(name)} was not staged: {error}")
        except (OSError, ValueError) as error:
            why = error.strerror if isinstance(error, OSError) else str(error)
            notes.append(f"{quote(name)} was not staged: {why}")
        else:
            moved += 1
    return tuple(notes)


def _move(files: ArtifactRoots, path: str, target: str) -> None:
    ref = ArtifactRef(id=os.path.basename(path), uri=file_uri(path), media_type="", path=path)
    with files.opened(ref) as source:
        size = os.fstat(source).st_size
        if size > MAX_ARTIFACT_BYTES:
            raise ArtifactError(f"it has {size} bytes, at most {MAX_ARTIFACT_BYTES} are handed over")
        copy, descriptor = _create(target, os.path.basename(path))
        try:
            with os.fdopen(descriptor, "wb") as file:
                left = size + 1
                while left > 0 and (chunk := os.read(source, min(MAX_HASH_CHUNK_BYTES, left))):
                    file.write(chunk)
                    left -= len(chunk)
                file.flush()
                os.fsync(file.fileno())
            if left != 1:
                raise ArtifactError("it changed while it was copied")
        except BaseException:
            os.unlink(copy)
            raise
    os.unlink(path)


def _create(target: str, name: str) -> tuple[str, int]:
    """A new file in ``target`` called ``name``, or with a number if there is one of that name."""
    stem, ending = os.path.splitext(name)
    for number in count(1):
        path = os.path.join(target, name if number == 1 else f"{stem}-{number}{ending}")
        try:
            return path, os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
        except FileExistsError:
            continue
    raise AssertionError("count ends never")
