"""The artifacts a session has accepted, readable by id and by nothing else."""

from __future__ import annotations

from collections import OrderedDict
from itertools import chain, count
from typing import Protocol

from attrs import frozen

from broker.errors import ArtifactError, UsageError
from broker.limits import ARTIFACT_READ_DEFAULT_BYTES, MAX_ARTIFACT_READ_BYTES, MAX_REGISTERED_ARTIFACTS
from broker.wire.odek.artifact_ref import ArtifactRef


class ArtifactFiles(Protocol):
    """The files of one server's artifacts; an adapter opens them. Both calls may block and raise ``ArtifactError``."""

    def verify(self, ref: ArtifactRef) -> None:
        """Accept the ref's file, or raise."""
        ...

    def read(self, ref: ArtifactRef, offset: int, limit: int) -> tuple[bytes, int]:
        """Verify the file anew and give a window of it, and its whole size."""
        ...


@frozen
class ArtifactWindow:
    """Part of an artifact: ``data`` from ``offset`` on, of ``size`` bytes in all."""

    id: str
    media_type: str
    offset: int
    data: bytes
    size: int

    @property
    def at_end(self) -> bool:
        """Whether nothing follows."""
        return self.offset + len(self.data) >= self.size


class ArtifactRegistry:
    """Accepted artifacts by id; the oldest are forgotten when there are more than 1024.

    An id that is taken stays with its first owner; a later artifact gets ``<id>.<suffix>``, then ``<id>.<suffix>.2``
    and so on. The same file with the same digest is the same artifact, and keeps its id. Paths stay inside.
    Source: odek notes, section 8.5.
    """

    def __init__(self) -> None:
        self._entries: OrderedDict[str, tuple[ArtifactRef, ArtifactFiles]] = OrderedDict()

    @property
    def ids(self) -> tuple[str, ...]:
        """The known ids, oldest first."""
        return tuple(self._entries)

    def add(self, ref: ArtifactRef, files: ArtifactFiles, *, suffix: str) -> str:
        """Remember an accepted artifact; gives the id it can be read by."""
        for name in chain([ref.id, f"{ref.id}.{suffix}"], (f"{ref.id}.{suffix}.{n}" for n in count(2))):
            known = self._entries.get(name)
            if known is None:
                break
            if (known[0].uri, known[0].sha256) == (ref.uri, ref.sha256) and known[1] is files:
                return name
        self._entries[name] = (ref, files)
        while len(self._entries) > MAX_REGISTERED_ARTIFACTS:
            self._entries.popitem(last=False)
        return name

    def read(self, ref_id: str, *, offset: int = 0, limit: int = ARTIFACT_READ_DEFAULT_BYTES) -> ArtifactWindow:
        """Read part of an artifact, verified anew: same file, size and digest as when it was accepted. May block.

        ``limit`` is clamped to 262144 bytes. Raises :class:`UsageError` for a negative or non-integer argument, and
        :class:`ArtifactError` for an unknown id (which lists the known ones) or any doubt about the file.
        """
        for name, value, least in (("offset", offset, 0), ("limit", limit, 1)):
            if type(value) is not int or value < least:
                raise UsageError(f"{name}: expected an integer of at least {least}, got {value!a:.80}", path=name)
        entry = self._entries.get(ref_id) if isinstance(ref_id, str) else None
        if entry is None:
            known = ", ".join(f"{name!a:.80}" for name in list(self._entries)[-16:]) or "none"
            raise ArtifactError(f"no artifact {ref_id!a:.140}; known are: {known}", artifact=ref_id)
        ref, files = entry
        data, size = files.read(ref, offset, min(limit, MAX_ARTIFACT_READ_BYTES))
        return ArtifactWindow(ref_id, ref.media_type, offset, data, size)
