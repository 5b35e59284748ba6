"""Artifact files: opened once, without following links, and judged by their descriptor alone.

A path is resolved first, and must lie in a resolved root. Then it is walked from the root's own descriptor, one
component at a time and never through a link, so that whatever is swapped in meanwhile is either not opened or not
accepted: the descriptor that is checked is the one that is hashed and read. Hard links cannot be told from files.

Source: odek contract, "Artifact-ref schema"; odek notes, sections 4.5 (steps 8 to 13) and 8.5.
"""

from __future__ import annotations

import hashlib
import os
import stat
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Final

from attrs import frozen

from broker.errors import ArtifactError
from broker.limits import MAX_ARTIFACT_BYTES, MAX_HASH_CHUNK_BYTES
from broker.wire.odek.artifact_ref import ArtifactRef

_DIRECTORY: Final = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_FILE: Final = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC | os.O_NOCTTY


@frozen
class _Root:
    path: str
    identity: tuple[int, int]


class ArtifactRoots:
    """The directories under which artifacts are accepted. Without any, every artifact is refused.

    ``roots`` are as configured: relative ones are meant from ``base`` (the working directory when None), blank ones
    mean nothing at all, and one that is a link is resolved first. A root is looked up at each use: it may come later.
    """

    def __init__(self, roots: Sequence[str], *, base: str | None = None) -> None:
        start = os.getcwd() if base is None else base
        self._roots = tuple(os.path.join(start, root) for root in roots if root.strip())

    def verify(self, ref: ArtifactRef) -> None:
        """Raise :class:`~broker.errors.ArtifactError` unless the file is there, within bounds, and as the ref says."""
        with self.opened(ref) as descriptor:
            size = _checked_size(ref, descriptor)
            if ref.sha256 is not None:
                _check_digest(ref, _hashed(ref, descriptor, size, 0, 0)[0])

    def read(self, ref: ArtifactRef, offset: int, limit: int) -> tuple[bytes, int]:
        """Bytes ``offset`` to ``offset + limit`` and the whole size, from the same pass that verifies the digest."""
        if ref.sha256 is None:
            raise ArtifactError(
                f"artifact {ref.id!a:.140} has no sha256, so what is read cannot be verified", artifact=ref.id
            )
        with self.opened(ref) as descriptor:
            size = _checked_size(ref, descriptor)
            digest, window = _hashed(ref, descriptor, size, offset, limit)
            _check_digest(ref, digest)
            return window, size

    def measure(self, ref: ArtifactRef, head: int) -> tuple[int, str, bytes]:
        """Size, digest and first ``head`` bytes of the ref's file, all of one descriptor, for whoever makes the ref.

        The ref's path must be the file's own, without a link anywhere in it.
        """
        with self.opened(ref, links=False) as descriptor:
            size = _checked_size(ref, descriptor)
            return size, *_hashed(ref, descriptor, size, 0, head)

    @contextmanager
    def opened(self, ref: ArtifactRef, *, links: bool = True) -> Iterator[int]:
        """The descriptor of the ref's file: a regular file inside a root. Closed at the end of the block.

        Links that lead from a root to a root are followed, unless ``links`` is False.
        """
        descriptor = self._open(ref, links)
        try:
            yield descriptor
        finally:
            os.close(descriptor)

    def _open(self, ref: ArtifactRef, links: bool) -> int:
        roots = self._resolved()
        if not roots:
            raise ArtifactError(f"artifact {ref.id!a:.140}: no artifact roots are configured", artifact=ref.id)
        try:
            resolved = os.path.realpath(ref.path, strict=True)
        except (OSError, ValueError) as error:
            raise ArtifactError(
                f"artifact {ref.id!a:.140}: its file cannot be resolved: {_why(error)}", artifact=ref.id
            ) from None
        if resolved != ref.path and not links:
            raise ArtifactError(f"artifact {ref.id!a:.140}: its path leads through a link", artifact=ref.id)
        for root in roots:
            if resolved.startswith(root.path.rstrip("/") + "/"):
                return _walk(ref, root, resolved)
        raise ArtifactError(f"artifact {ref.id!a:.140}: its file is outside every artifact root", artifact=ref.id)

    def _resolved(self) -> list[_Root]:
        roots = []
        for configured in self._roots:
            try:
                path = os.path.realpath(configured, strict=True)
                found = os.stat(path)
            except (OSError, ValueError):
                continue
            if stat.S_ISDIR(found.st_mode):
                roots.append(_Root(path, (found.st_dev, found.st_ino)))
        return roots


def _walk(ref: ArtifactRef, root: _Root, resolved: str) -> int:
    """Open ``resolved`` from the root's descriptor; a link on the way was put there after it was resolved."""
    parts = [part for part in resolved[len(root.path.rstrip("/")) :].split("/") if part]
    try:
        directory = os.open(root.path, _DIRECTORY)
        try:
            found = os.fstat(directory)
            if (found.st_dev, found.st_ino) != root.identity:
                raise ArtifactError(f"artifact {ref.id!a:.140}: its root was replaced", artifact=ref.id)
            for part in parts[:-1]:
                below = os.open(part, _DIRECTORY, dir_fd=directory)
                os.close(directory)
                directory = below
            # Looked at before it is opened: opening a device may have effects, and a FIFO has a writer to disturb.
            before = os.stat(parts[-1], dir_fd=directory, follow_symlinks=False)
            _require_regular(ref, before)
            descriptor = os.open(parts[-1], _FILE, dir_fd=directory)
        finally:
            os.close(directory)
    except OSError as error:
        raise ArtifactError(
            f"artifact {ref.id!a:.140}: its file cannot be opened: {_why(error)}", artifact=ref.id
        ) from None
    try:
        _require_regular(ref, os.fstat(descriptor))
    except BaseException:
        os.close(descriptor)
        raise
    return descriptor


def _require_regular(ref: ArtifactRef, found: os.stat_result) -> None:
    if not stat.S_ISREG(found.st_mode):
        raise ArtifactError(f"artifact {ref.id!a:.140}: it is not a regular file", artifact=ref.id)


def _checked_size(ref: ArtifactRef, descriptor: int) -> int:
    size = os.fstat(descriptor).st_size
    if size > MAX_ARTIFACT_BYTES:
        raise ArtifactError(
            f"artifact {ref.id!a:.140}: it has {size} bytes, at most {MAX_ARTIFACT_BYTES} are accepted",
            artifact=ref.id,
            limit="MAX_ARTIFACT_BYTES",
            observed=size,
            maximum=MAX_ARTIFACT_BYTES,
        )
    if ref.size_bytes is not None and ref.size_bytes != size:
        raise ArtifactError(
            f"artifact {ref.id!a:.140}: it has {size} bytes, declared are {ref.size_bytes}",
            artifact=ref.id,
            observed=size,
        )
    return size


def _hashed(ref: ArtifactRef, descriptor: int, size: int, offset: int, limit: int) -> tuple[str, bytes]:
    """The digest of the file and the window ``offset``, ``limit`` of it; a file that grows or shrinks is refused."""
    digest = hashlib.sha256()
    window = bytearray()
    position = 0
    while True:
        chunk = os.read(descriptor, min(MAX_HASH_CHUNK_BYTES, size + 1 - position))
        if not chunk:
            break
        digest.update(chunk)
        start, end = max(offset - position, 0), offset + limit - position
        if start < len(chunk) and end > 0:
            window += chunk[start:end]
        position += len(chunk)
        if position > size:
            break
    if position != size:
        raise ArtifactError(f"artifact {ref.id!a:.140}: it changed while it was read", artifact=ref.id)
    return digest.hexdigest(), bytes(window)


def _check_digest(ref: ArtifactRef, digest: str) -> None:
    if digest != ref.sha256:
        raise ArtifactError(
            f"artifact {ref.id!a:.140}: its digest is {digest[:12]}..., declared is {str(ref.sha256)[:12]}...",
            artifact=ref.id,
        )


def _why(error: BaseException) -> str:
    return error.strerror or str(error) if isinstance(error, OSError) else str(error)
