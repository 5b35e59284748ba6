"""Artifacts of sub-agents: what a task's runner sends, what its parent takes from it, and the line a model is shown.

The runner names its artifacts after their files and sends them with the task's result; whatever it leaves out it says
in a note. The parent takes each reference that is right by itself and says in a note what it drops: other than with an
MCP server, one bad reference does not cost the others. Nothing here looks at a file.

Source: odek contract, "Sub-agent result artifacts"; odek notes, section 8; design, D16.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from itertools import count
from typing import Any, Final

from attrs import frozen

from broker.errors import ArtifactError
from broker.limits import (
    ARTIFACT_HASH_CHARS,
    MAX_ARTIFACTS,
    MAX_CHILD_ARTIFACT_ID_CHARS,
    MAX_CHILD_ARTIFACTS_BYTES,
    MAX_CHILD_NOTE_CHARS,
    MAX_CHILD_NOTES,
    MAX_CHILD_SUMMARY_CHARS,
)
from broker.wire.jsonrpc import json_type
from broker.wire.odek.artifact_ref import ArtifactRef, read_ref
from broker.wire.odek.rendering import flat
from broker.wire.odek.untrusted import without_tags
from broker.wire.quoting import SURROGATE, escape, quote

ARTIFACTS_MEMBER: Final = "artifacts"
NOTES_MEMBER: Final = "artifact_notes"

_ID: Final = re.compile(f"[A-Za-z0-9][A-Za-z0-9._-]{{0,{MAX_CHILD_ARTIFACT_ID_CHARS - 1}}}")
_MEDIA_TYPE: Final = re.compile(
    r"[a-z0-9][a-z0-9.+-]{0,63}/[a-z0-9][a-z0-9.+-]{0,63}(?:; ?[a-z0-9-]{1,32}=[\w.-]{1,64})?"
)
_BINARY: Final = "application/octet-stream"
_MEDIA_TYPES: Final = {
    "md": "text/markdown",
    "txt": "text/plain",
    "log": "text/plain",
    "csv": "text/csv",
    "html": "text/html",
    "json": "application/json",
    "yaml": "application/yaml",
    "yml": "application/yaml",
    "xml": "application/xml",
}


@frozen
class CollectedArtifacts:
    """What a task's runner found: references it measured itself, and a note for each thing that it left out."""

    artifacts: tuple[ArtifactRef, ...] = ()
    notes: tuple[str, ...] = ()

    def to_json(self) -> dict[str, Any]:
        """The members of the task's result object; one that would be empty is left out."""
        members = {ARTIFACTS_MEMBER: [ref.to_json() for ref in self.artifacts], NOTES_MEMBER: [*self.notes]}
        return {key: value for key, value in members.items() if value}


class Notes:
    """Notes in order; the first 64 are kept and the others counted."""

    def __init__(self) -> None:
        self._texts: list[str] = []
        self._left_out = 0

    def add(self, text: str) -> None:
        """Take a note."""
        if len(self._texts) < MAX_CHILD_NOTES:
            self._texts.append(text)
        else:
            self._left_out += 1

    @property
    def texts(self) -> tuple[str, ...]:
        """The notes, and how many more there were."""
        return (*self._texts, f"{self._left_out} more notes are left out") if self._left_out else tuple(self._texts)


def media_type_of(name: str) -> str:
    """The media type that a file's name stands for; ``application/octet-stream`` for any other."""
    return _MEDIA_TYPES.get(name.rpartition(".")[2].lower(), _BINARY) if "." in name else _BINARY


def summary_of(name: str, head: bytes) -> str | None:
    """The first line that is not blank, of the beginning of a text file; ``None`` for a file of another kind."""
    if media_type_of(name) == _BINARY:
        return None
    lines = (flat(line).strip() for line in head.decode("utf-8", "replace").splitlines())
    return next((line[:MAX_CHILD_SUMMARY_CHARS] for line in lines if line), None)


def assign_ids(names: Sequence[str]) -> dict[str, str]:
    """An id for each file name, all different: the name without its ending where that can be an id.

    The first of several files with one stem keeps it, the others get a number behind it; a name that can be no id
    becomes ``artifact-<n>``.
    """
    ids: dict[str, str] = {}
    taken: set[str] = set()
    later: list[str] = []
    for name in names:
        stem = _stem(name)
        if _ID.fullmatch(stem) is not None and stem not in taken:
            ids[name] = stem
            taken.add(stem)
        else:
            later.append(name)
    for name in later:
        stem = _stem(name)
        base, first = (stem, 2) if stem in taken else ("artifact", 1)
        ids[name] = next(new for n in count(first) if (new := _numbered(base, n)) not in taken)
        taken.add(ids[name])
    return ids


def read_child_result(result: Any) -> tuple[tuple[ArtifactRef, ...], tuple[str, ...]]:
    """The references of a task's result object that are right as far as no file is needed, and the notes on the rest.

    The runner's own notes come first. A reference is dropped when it breaks a rule of artifact references, has an id or
    a media type that a runner does not give, lacks the size or the digest that a runner measures, has the id of an
    earlier one, or goes beyond what one task may send. Other members of ``result`` are not looked at.
    """
    notes = Notes()
    if not isinstance(result, dict):
        notes.add(f"its result is no object but {json_type(result)}")
        return (), notes.texts
    for text in _list(result, NOTES_MEMBER, notes):
        if type(text) is str:
            notes.add(escape(text, max_chars=MAX_CHILD_NOTE_CHARS))
    return tuple(_accepted(_list(result, ARTIFACTS_MEMBER, notes), notes)), notes.texts


def child_line(ref: ArtifactRef, task: int) -> str:
    """The one line that a model is shown of an artifact of the task with this number."""
    summary = f" \u2014 {without_tags(flat(ref.summary))}" if ref.summary else ""
    digest = (ref.sha256 or "")[:ARTIFACT_HASH_CHARS]
    return f"- {ref.id} ({ref.media_type}, {ref.size_bytes} bytes, sha256:{digest}, task {task}){summary}"


def is_text(ref: ArtifactRef) -> bool:
    """Whether an artifact's content may be shown as it is, if it is small: media types ``text/*``."""
    return ref.media_type.startswith("text/")


def _stem(name: str) -> str:
    return name.rpartition(".")[0] or name


def _numbered(base: str, number: int) -> str:
    ending = f"-{number}"
    return base[: MAX_CHILD_ARTIFACT_ID_CHARS - len(ending)] + ending


def _list(result: dict[str, Any], key: str, notes: Notes) -> list[Any]:
    value = result.get(key)
    if value is None:
        return []
    if type(value) is not list:
        notes.add(f"{key} is no array but {json_type(value)}")
        return []
    if len(value) > MAX_ARTIFACTS:
        notes.add(f"{key}: {len(value) - MAX_ARTIFACTS} are left out, at most {MAX_ARTIFACTS} are taken")
    return value[:MAX_ARTIFACTS]


def _accepted(values: Iterable[Any], notes: Notes) -> Iterator[ArtifactRef]:
    seen: set[str] = set()
    total = 0
    for index, value in enumerate(values):
        try:
            ref = read_ref(value, place=f"artifacts[{index}]")
        except ArtifactError as error:
            notes.add(f"dropped: {error}")
            continue
        problem = _problem(ref)
        if problem is None and ref.id in seen:
            problem = "an earlier one has the same id"
        if problem is None and total + (ref.size_bytes or 0) > MAX_CHILD_ARTIFACTS_BYTES:
            problem = f"with it there are more than {MAX_CHILD_ARTIFACTS_BYTES} bytes"
        if problem is not None:
            notes.add(f"dropped: artifact {quote(ref.id)}: {problem}")
            continue
        seen.add(ref.id)
        total += ref.size_bytes or 0
        yield ref


def _problem(ref: ArtifactRef) -> str | None:
    if _ID.fullmatch(ref.id) is None:
        return "a runner gives no such id"
    if _MEDIA_TYPE.fullmatch(ref.media_type) is None:
        return f"{quote(ref.media_type)} is no media type"
    if ref.sha256 is None or ref.size_bytes is None:
        return "it was not measured: sha256 and size_bytes are needed"
    if ref.summary is not None and SURROGATE.search(ref.summary) is not None:
        return "its summary holds half of a surrogate pair, which no encoding holds"
    return None
