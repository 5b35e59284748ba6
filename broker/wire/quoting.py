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

SURROGATE: Final = re.compile("[\ud800-\udfff]")
"""Matches one half of a surrogate pair, which JSON may hold and no encoding does."""

INVISIBLE_CHARACTER: Final = re.compile(
    "[\x00-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028\u2029\u202a-\u202e\u2066-\u2069\ufeff]"
)
"""Matches a control character, a line or paragraph separator, a byte order mark, or a character that sets direction.

Joiners and the soft hyphen are not among them: scripts and emoji need those.
"""

_TERMINAL_SEQUENCE: Final = re.compile(
    "(?:\x1b\\[|\x9b)[0-?]*+[ -/]*+[@-~]?"  # CSI
    "|(?:\x1b[]PX^_]|[\x90\x98\x9d-\x9f])[^\x07\x1b\x9c]*+(?:\x07|\x9c|\x1b\\\\)?"  # OSC, DCS, SOS, PM, APC
    "|\x1b[ -/]*+[0-~]?"  # any other escape
)


def utf8_length(text: str) -> int:
    """Bytes of ``text`` in UTF-8. A lone surrogate counts as the three bytes it would take."""
    return len(text) if text.isascii() else len(text.encode("utf-8", "surrogatepass"))


def scalar(text: str) -> str:
    """``text`` without lone surrogates, which no encoding holds; each becomes U+FFFD, and two that are a pair join."""
    if text.isascii():
        return text
    try:
        text.encode()
    except UnicodeEncodeError:
        return text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
    return text


def escape(text: str, *, max_chars: int = MAX_DIAGNOSTIC_CHARS) -> str:
    """``text`` with every unprintable character as a backslash escape, at most ``max_chars`` characters.

    Longer text is cut at a whole character or escape and ends in ``...``.
    """
    if len(text) <= max_chars and text.isprintable():
        return text
    return _bounded(text, max_chars, count_bytes=False)


def describe(error: BaseException) -> str:
    """What an exception of somebody else's code is: its type, and its text if that can be had."""
    try:
        return f"{type(error).__name__}: {error}"
    except Exception:  # making the text is somebody else's code, too
        return type(error).__name__


def quote(data: str | bytes, *, max_bytes: int = MAX_QUOTED_BYTES) -> str:
    """``data`` in single quotes: bytes that are not UTF-8 and unprintable characters escaped, the quotes not counted.

    What stands between the quotes takes at most ``max_bytes`` bytes of UTF-8.
    """
    if isinstance(data, bytes):
        data = data[: max_bytes + 1].decode("utf-8", "backslashreplace")
    return f"'{_bounded(data, max_bytes, count_bytes=True)}'"


def plain(text: str, *, max_chars: int = MAX_DIAGNOSTIC_CHARS, keep: str = "") -> str:
    """``text`` for people to read: terminal sequences removed, any other control or direction character a space.

    The characters of ``keep`` stay. Longer text is cut at ``max_chars`` characters and ends in ``...``. Unlike
    :func:`escape` this does not show what was there, so it is for prose and never for telling two names apart.
    """
    # Cut twice: sequences are at least one character each, so that a bounded part of a huge text is looked at.
    text = _TERMINAL_SEQUENCE.sub("", text[: max_chars * 8])
    text = INVISIBLE_CHARACTER.sub(lambda found: found[0] if found[0] in keep else " ", text)
    return text if len(text) <= max_chars else text[: max_chars - len(_ELLIPSIS)] + _ELLIPSIS


def _bounded(text: str, maximum: int, *, count_bytes: bool) -> str:
    pieces: list[str] = []
    used = fits_with_ellipsis = 0
    for count, character in enumerate(text, start=1):
        piece = character if character.isprintable() else character.encode("unicode_escape").decode("ascii")
        used += utf8_length(piece) if count_bytes else len(piece)
        if used > maximum:
            return "".join(pieces[:fits_with_ellipsis]) + _ELLIPSIS
        pieces.append(piece)
        if used <= maximum - len(_ELLIPSIS):
            fits_with_ellipsis = count
    return "".join(pieces)
