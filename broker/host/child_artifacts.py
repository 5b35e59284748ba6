"""The parent's side of a child's artifacts: checked against that task's own root, shown by a line each, read by id.

A reference that is not right is dropped with a note, and the rest stays: a child's work is not thrown away for one bad
file. Small texts come along whole, read by the same pass that verified them. Paths never leave.

Source: odek contract, "Sub-agent result artifacts"; odek notes, sections 8.4 and 8.5; design, D16.
"""

from __future__ import annotations

import base64
from collections.abc import Sequence
from typing import Any, Final

from attrs import frozen

from broker.errors import ArtifactError, BrokerError
from broker.host.artifacts import ArtifactFiles, ArtifactRegistry
from broker.limits import (
    ARTIFACT_HASH_CHARS,
    ARTIFACT_READ_DEFAULT_BYTES,
    MAX_CHILD_ARTIFACTS,
    MAX_CHILD_NOTES,
    MAX_INLINE_ARTIFACT_BYTES,
    MAX_INLINE_TOTAL_BYTES,
)
from broker.wire.jsonrpc import json_type
from broker.wire.odek.artifact_ref import ArtifactRef, read_ref
from broker.wire.odek.rendering import flat
from broker.wire.quoting import escape

_TEXT: Final = "text/"


@frozen
class InlineText:
    """The whole text of a small artifact. A child wrote it: show it as somebody else's words."""

    id: str
    text: str


@frozen
class ChildArtifacts:
    """What of a child's result was accepted.

    ``ids`` are those the artifacts can be read by, ``lines`` one line of metadata for each, ``inlined`` the small
    texts, and ``notes`` say what was dropped and why.
    """

    ids: tuple[str, ...]
    lines: tuple[str, ...]
    inlined: tuple[InlineText, ...]
    notes: tuple[str, ...]


@frozen
class _Accepted:
    id: str
    ref: ArtifactRef
    size: int
    beginning: bytes


def accept_child_artifacts(
    artifacts: Any, *, task: int, files: ArtifactFiles | None, registry: ArtifactRegistry, notes: Sequence[str] = ()
) -> ChildArtifacts:
    """Check the ``artifacts`` of the result of child number ``task``. May block: each file is read once.

    ``files`` is that task's own root and no other, ``None`` where it had none: then nothing is accepted. ``notes`` are
    the child runner's. Nothing is raised for what a child says.
    """
    reader = _Reader(task, files, registry)
    accepted = reader.read(artifacts)
    dropped = [*(escape(str(note)) for note in notes), *reader.notes]
    if len(dropped) > MAX_CHILD_NOTES:
        dropped[MAX_CHILD_NOTES:] = [f"{len(dropped) - MAX_CHILD_NOTES} more notes"]
    return ChildArtifacts(
        ids=tuple(artifact.id for artifact in accepted),
        lines=tuple(_line(artifact, task) for artifact in accepted),
        inlined=tuple(_inlined(accepted)),
        notes=tuple(dropped),
    )


class _Reader:
    def __init__(self, task: int, files: ArtifactFiles | None, registry: ArtifactRegistry) -> None:
        self._task = task
        self._files = files
        self._registry = registry
        self.notes: list[str] = []

    def read(self, artifacts: Any) -> list[_Accepted]:
        if artifacts is None:
            return []
        if not isinstance(artifacts, list):
            self.notes.append(f"artifacts were dropped: expected an array, not {json_type(artifacts)}")
            return []
        if len(artifacts) > MAX_CHILD_ARTIFACTS:
            over = len(artifacts) - MAX_CHILD_ARTIFACTS
            self.notes.append(f"{over} artifacts were dropped: at most {MAX_CHILD_ARTIFACTS} are accepted")
        accepted: list[_Accepted] = []
        seen: set[str] = set()
        for index, value in enumerate(artifacts[:MAX_CHILD_ARTIFACTS]):
            try:
                accepted.append(self._one(value, f"artifacts[{index}]", seen))
            except BrokerError as error:
                self.notes.append(f"an artifact was dropped: {escape(str(error))}")
        return accepted

    def _one(self, value: Any, place: str, seen: set[str]) -> _Accepted:
        ref = read_ref(value, place=place)
        shown = flat(ref.id)
        if shown in seen:
            raise ArtifactError(f"{place}: its id is also that of another one", artifact=ref.id)
        if self._files is None:
            raise ArtifactError(f"{place}: its task has no artifact root", artifact=ref.id)
        # The digest is what every later read is held against.
        window, size = self._files.read(ref, 0, MAX_INLINE_ARTIFACT_BYTES)
        seen.add(shown)
        name = self._registry.add(ref, self._files, suffix=f"t{self._task}")
        return _Accepted(name, ref, size, window)


def _line(artifact: _Accepted, task: int) -> str:
    ref = artifact.ref
    digest = (ref.sha256 or "")[:ARTIFACT_HASH_CHARS]
    summary = f" \u2014 {flat(ref.summary)}" if ref.summary else ""
    about = f"{flat(ref.media_type)}, {artifact.size} bytes, sha256:{digest}, task {task}"
    return f"- {flat(artifact.id)} ({about}){summary}"


def _inlined(accepted: list[_Accepted]) -> list[InlineText]:
    """The small texts, the largest first, as far as there is room for all of them together."""
    room = MAX_INLINE_TOTAL_BYTES
    texts: list[InlineText] = []
    for artifact in sorted(accepted, key=lambda artifact: -artifact.size):
        small = artifact.size <= min(room, MAX_INLINE_ARTIFACT_BYTES)
        if small and artifact.ref.media_type.lower().startswith(_TEXT):
            room -= artifact.size
            texts.append(InlineText(artifact.id, artifact.beginning.decode("utf-8", "replace")))
    return texts


def artifact_read(registry: ArtifactRegistry, arguments: Any) -> dict[str, Any]:
    """What the tool ``artifact_read`` answers: part of an artifact by its id, or an ``error`` and no bytes.

    Arguments are ``id``, ``offset`` (0) and ``limit`` (65536, at most 262144). Bytes that are no UTF-8 text come as
    ``base64``, those of a text with U+FFFD. May block. Show it to a model as somebody else's words.
    """
    if not isinstance(arguments, dict) or not isinstance(arguments.get("id"), str):
        return {"error": "expected an object with id, and optionally offset and limit"}
    try:
        window = registry.read(
            arguments["id"],
            offset=_default(arguments.get("offset"), 0),
            limit=_default(arguments.get("limit"), ARTIFACT_READ_DEFAULT_BYTES),
        )
    except BrokerError as error:
        return {"error": escape(str(error))}
    answer: dict[str, Any] = {
        "id": window.id,
        "media_type": window.media_type,
        "offset": window.offset,
        "bytes": len(window.data),
        "size_bytes": window.size,
        "at_end": window.at_end,
    }
    try:
        # A window may begin or end inside of a character.
        errors = "replace" if window.media_type.lower().startswith(_TEXT) else "strict"
        answer["text"] = window.data.decode(errors=errors)
    except UnicodeDecodeError:
        answer["base64"] = base64.b64encode(window.data).decode()
    return answer


def _default(value: Any, default: int) -> Any:
    return default if value is None else value
