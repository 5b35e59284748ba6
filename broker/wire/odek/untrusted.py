"""The wrapper that marks what a server said as data, for hosts that put it before a model.

An option of the host, outside ``max_result_chars``. The tag carries a random part that no text can know, and the tag's
word inside the text is broken, so that nothing in it can end the wrapper. Source: odek notes, section 4.7.
"""

from __future__ import annotations

import re
from typing import Final

from broker.errors import UsageError

_NONCE: Final = re.compile(r"[0-9a-f]{16}")
_WORD: Final = re.compile("(untrusted)_(content)", re.IGNORECASE)
_LABEL: Final = str.maketrans({'"': "\u2033", "<": "\u2039", ">": "\u203a", "\r": " ", "\n": " "})


def wrap_untrusted(text: str, *, server: str, tool: str, nonce: str) -> str:
    """``text`` between an opening and a closing tag of its own lines; an empty text stays empty.

    ``nonce`` is 16 lower-case hexadecimal digits, random for each call; raises :class:`~broker.errors.UsageError` else.
    """
    return wrap_untrusted_from(f"mcp:{server}:{tool}", text, nonce=nonce)


def wrap_untrusted_from(source: str, text: str, *, nonce: str) -> str:
    """The same for a text of any ``source``, which stands in the opening tag; raises like :func:`wrap_untrusted`."""
    if _NONCE.fullmatch(nonce) is None:
        raise UsageError("a nonce is 16 lower-case hexadecimal digits")
    if not text:
        return text
    tag = f"untrusted_content_{nonce}"
    label = source.translate(_LABEL)
    return f'<{tag} source="{label}">\n{without_tags(text)}\n</{tag}>'


def without_tags(text: str) -> str:
    """``text`` in which nothing can be taken for the beginning or the end of a wrapper."""
    return _WORD.sub("\\1\u02cd\\2", text)
