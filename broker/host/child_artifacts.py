"""What a host takes of the artifacts of its sub-agents: verified references, small texts, ids to read the rest by.

One call that ran several tasks goes through :func:`accept_artifacts` at once, as the bound of what is shown inline is
one of the call. Source: odek contract, "Sub-agent result artifacts"; odek notes, section 8.4; design, D16.
"""

from __future__ import annotations

import secrets
from collections.abc import Sequence
from typing import Any

from attrs import define, evolve, field, frozen

from broker.errors import ArtifactError
from broker.host.artifacts import ArtifactFiles, ArtifactRegistry
from broker.limits import MAX_INLINE_TEXT_BYTES, MAX_INLINE_TEXTS_BYTES
from broker.wire.odek.artifact_ref import ArtifactRef
from broker.wire.odek.child_artifacts import Notes, child_line, is_text, read_child_result
from broker.wire.odek.untrusted import wrap_untrusted_from


@frozen
class TaskResult:
    """What one task came to: its number as a model knows it, the ``result`` object its runner sent, and its files.

    ``files`` accepts what is below the task's own directory; ``None`` stands for a task that was given none, none of
    whose artifacts is accepted.
    """

    task: int
    result: Any = field(repr=False)
    files: ArtifactFiles | None = field(repr=False)


@frozen
class AcceptedArtifact:
    """An artifact of a task. ``id`` is what it is shown as and read by; ``content`` its text, where that is shown."""

    task: int
    id: str
    ref: ArtifactRef
    content: str | None = field(default=None, repr=False)


@frozen
class AcceptedArtifacts:
    """What is taken of the artifacts of one call. ``text`` is for a model: no path, and no content but small texts.

    ``notes`` are on what was dropped, each with the number of its task.
    """

    artifacts: tuple[AcceptedArtifact, ...]
    notes: tuple[tuple[int, str], ...]
    text: str


def accept_artifacts(results: Sequence[TaskResult], registry: ArtifactRegistry) -> AcceptedArtifacts:
    """Verify the artifacts of some tasks and put them into ``registry``; a bad one is dropped with a note.

    The text has a line for each artifact, then the content of text artifacts of up to 32 KiB, the largest first up to
    128 KiB, each verified anew while it is read and wrapped as somebody else's words, then the notes. An id that is
    taken already is followed by ``.t<task>``. Reads and hashes files: it may block, and belongs into
    :meth:`broker.host.driver.Driver.offload` where that must not be. Raises nothing that a task can cause.
    """
    noted: list[tuple[int, str]] = []
    verified: list[_Verified] = []
    for result in results:
        refs, texts = read_child_result(result.result)
        notes = Notes()
        for ref in refs:
            try:
                verified.append(_verify(ref, result))
            except ArtifactError as error:
                notes.add(f"dropped: {error}")
        noted += [(result.task, text) for text in (*texts, *notes.texts)]
    _read_texts(verified, noted)
    accepted = []
    for found in verified:
        if not found.changed:
            name = registry.add(found.ref, found.files, suffix=f"t{found.task}")
            accepted.append(AcceptedArtifact(found.task, name, found.ref, found.content))
    return AcceptedArtifacts(tuple(accepted), tuple(noted), _render(accepted, noted))


@define
class _Verified:
    """A verified reference, and what became of reading its content."""

    task: int
    ref: ArtifactRef
    files: ArtifactFiles
    size: int
    content: str | None = None
    changed: bool = False


def _verify(ref: ArtifactRef, result: TaskResult) -> _Verified:
    if result.files is None:
        raise ArtifactError(f"artifact {ref.id!a:.140}: its task has no directory for artifacts", artifact=ref.id)
    result.files.verify(ref)
    return _Verified(result.task, ref, result.files, ref.size_bytes or 0)


def _read_texts(verified: Sequence[_Verified], noted: list[tuple[int, str]]) -> None:
    """Read the contents to show, the largest first; one that is no more what it was when it was verified is dropped."""
    room = MAX_INLINE_TEXTS_BYTES
    for found in sorted(verified, key=lambda found: -found.size):
        if not is_text(found.ref) or not 0 < found.size <= min(MAX_INLINE_TEXT_BYTES, room):
            continue
        try:
            data, _ = found.files.read(found.ref, 0, found.size)
            found.content = data.decode()
        except ArtifactError as error:
            found.changed = True
            noted.append((found.task, f"dropped: {error}"))
        except UnicodeDecodeError:
            continue  # no text, whatever its name says; it can still be read by its id
        else:
            room -= found.size


def _render(artifacts: Sequence[AcceptedArtifact], noted: Sequence[tuple[int, str]]) -> str:
    parts = [child_line(evolve(artifact.ref, id=artifact.id), artifact.task) for artifact in artifacts]
    for artifact in artifacts:
        if artifact.content is not None:
            source = f"task:{artifact.task}:{artifact.id}"
            parts.append(wrap_untrusted_from(source, artifact.content, nonce=secrets.token_hex(8)))
    parts += [f"[task {task}: {text}]" for task, text in noted]
    return "\n".join(parts)
