"""Text of a peer made safe to show: control and invisible characters escaped, length bounded.

Whatever an extension sends may end in a terminal, a log or an approval prompt. Everything in an error or a diagnostic
that a peer chose goes through :func:`escape` or :func:`quote` first (design, "Decisions on odek-extension/v1", D13).
"""

from __future__ import annotations

import re
from typing import Final

from broker.limits import MAX_DIAGNOSTIC_CHARS, MAX_QUOTED_BYTES

_ELLIPSIS: Final = "..."

CONTROL_CHARACTER: Final = re.compile("[\x00-\x1f\x7f-\x9f]")
"""Matches one control character: C0, DEL or C1 (Unicode category Cc)."""


def utf8_length(text: str) -> int:
    """Bytes of ``text`` in UTF-8. A lone surrogate counts as the three bytes it would take."""
    return len(text) if text.isascii() else len(text.encode("utf-8", "surrogatepass"))


def escape(text: str, *, max_chars: int = MAX_DIAGNOSTIC_CHARS) -> str:
    """``text`` with every unprintable character as a backslash escape, at most ``max_chars`` characters.

    Longer text is cut at a whole character or escape and ends in ``...``.
    """
    if len(text) <= max_chars and text.isprintable():
        return text
    return _bounded(text, max_chars, count_bytes=False)


def quote(data: str | bytes, *, max_bytes: int = MAX_QUOTED_BYTES) -> str:
    """``data`` in single quotes: bytes that are not UTF-8 and unprintable characters escaped, the quotes not counted.

    What stands between the quotes takes at most ``max_bytes`` bytes of UTF-8.
    """
    if isinstance(data, bytes):
        data = data[: max_bytes + 1].decode("utf-8", "backslashreplace")
    return f"'{_bounded(data, max_bytes, count_bytes=True)}'"


def _bounded(text: str, maximum: int, *, count_bytes: bool) -> str:
    pieces: list[str] = []
    used = kept = 0
    fits_with_ellipsis = 0
    for character in text:
        piece = character if character.isprintable() else character.encode("unicode_escape").decode("ascii")
        used += utf8_length(piece) if count_bytes else len(piece)
        if used > maximum:
            return "".join(pieces[:fits_with_ellipsis]) + _ELLIPSIS
        pieces.append(piece)
        kept += 1
        if used <= maximum - len(_ELLIPSIS):
            fits_with_ellipsis = kept
    return "".join(pieces)
