"""The text a model is shown of a tool's result: metadata lines for artifacts, and truncation with the exact notice.

The unit is the character, a Unicode scalar value; nothing is ever split. No path, no URI and no content of an artifact
gets in here. A line of a server's own text that looks like metadata is moved by one space and cannot pass for it.

Source: odek contract, "Timeout and limit behavior" and "Artifact-ref schema"; odek notes, section 4.6; design, D5, D6
and D7.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Final, NamedTuple

from broker.limits import (
    ARTIFACT_HASH_CHARS,
    MAX_ARTIFACT_FIELD_CHARS,
    MAX_LISTED_TOOL_NAME_CHARS,
    MAX_RESULT_CHARS,
    MIN_RESULT_CHARS_BESIDE_NOTICE,
)
from broker.wire.odek.artifact_ref import ArtifactRef
from broker.wire.quoting import INVISIBLE_CHARACTER

_ELLIPSIS: Final = "\u2026"
_LARGEST_OBSERVED: Final = 9_999_999_999
# Whatever some reader takes for the end of a line begins one here.
_METADATA: Final = "- artifact "
_FORGED: Final = re.compile(f"(?:^|(?<=[\n\r\x0b\x0c\x1c-\x1e\x85\u2028\u2029]))(?={_METADATA})")


class Bounds(NamedTuple):
    """Whose result it is, and how many characters of it a model is shown."""

    server: str
    tool: str
    max_result_chars: int


class Rendered(NamedTuple):
    """A text within its bounds; ``observed`` is the length it would have had."""

    text: str
    observed: int
    truncated: bool


def notice(bounds: Bounds, observed: int) -> str:
    """The notice of a cut result, without the LF that stands before it."""
    return (
        f'[odek: result truncated \u2014 server "{bounds.server}" tool "{bounds.tool}" produced {observed} chars, '
        f"exceeding the configured max_result_chars={bounds.max_result_chars}; the full result is available via the "
        "retained artifact references, if any]"
    )


def min_result_chars(server: str) -> int:
    """The least useful ``max_result_chars`` of ``server``: its longest notice, and a little text beside it."""
    longest = Bounds(server=server, tool="x" * MAX_LISTED_TOOL_NAME_CHARS, max_result_chars=MAX_RESULT_CHARS)
    return len("\n") + len(notice(longest, _LARGEST_OBSERVED)) + MIN_RESULT_CHARS_BESIDE_NOTICE


def neutralise(text: str) -> str:
    """``text`` with one space before each line that begins like metadata."""
    # Finding words is much faster than finding the beginnings of lines, and most texts have none of these words.
    return _FORGED.sub(" ", text) if _METADATA in text else text


def metadata_line(ref: ArtifactRef) -> str:
    """The one line that a model is shown of an artifact. Size and digest are the declared ones, if any."""
    parts = [flat(ref.media_type)]
    if ref.size_bytes is not None:
        parts.append(f"{ref.size_bytes} bytes")
    if ref.sha256 is not None:
        parts.append(f"sha256 {ref.sha256[:ARTIFACT_HASH_CHARS]}{_ELLIPSIS}")
    summary = f": {flat(ref.summary)}" if ref.summary else ""
    return f"{_METADATA}{shown_id(ref)} ({', '.join(parts)}){summary}"


def shown_id(ref: ArtifactRef) -> str:
    """The id as it is shown: bounded, on one line, quoted."""
    return f'"{"".join(map(_quoted, flat(ref.id)))}"'


def render(text: str, refs: Sequence[ArtifactRef], extra: str, bounds: Bounds, *, unshown: int = 0) -> Rendered:
    """Text, a metadata line for each reference, then further text, all within ``bounds``.

    ``unshown`` characters count towards the limit although they are never shown. What is too much is taken from the
    further text first, then from the text; metadata lines are cut only where they and the notice exceed the limit by
    themselves, and a limit below the notice's own length leaves its beginning.
    """
    text, lines = neutralise(text), [metadata_line(ref) for ref in refs]
    if extra:
        extra = neutralise(extra)
    whole = _joined(text, *lines, extra) if lines or extra else text
    limit, observed = bounds.max_result_chars, len(whole) + unshown
    if observed <= limit:
        return Rendered(whole, observed, False)
    ending = notice(bounds, observed)
    room = limit - len(ending) - len("\n")
    if room < 0:
        return Rendered(ending[:limit], observed, truncated=True)
    metadata = _joined(*lines)
    budget = room - len(metadata) - (1 if metadata and text else 0)
    text = text[: max(0, budget)]
    budget -= len(text) + (1 if extra and (metadata or text) else 0)
    body = _joined(text, *lines, extra[: max(0, budget)])
    return Rendered(f"{body[:room]}\n{ending}", observed, truncated=True)


def _joined(*parts: str) -> str:
    return "\n".join(part for part in parts if part)


def flat(text: str) -> str:
    """``text`` bounded and on one line."""
    if len(text) > MAX_ARTIFACT_FIELD_CHARS:
        text = text[:MAX_ARTIFACT_FIELD_CHARS] + _ELLIPSIS
    return INVISIBLE_CHARACTER.sub(" ", text)


def _quoted(character: str) -> str:
    if character in '"\\':
        return f"\\{character}"
    if character.isprintable():
        return character
    code = ord(character)
    return f"\\u{code:04x}" if code < 0x10000 else f"\\U{code:08x}"
