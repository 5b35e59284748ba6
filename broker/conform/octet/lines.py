"""What is wrong with one line of an extension, by rule; and what it was probably meant to say.

A host ends the stream at the first bad frame. Here every frame is told apart, and whatever can still be understood of a
bad one is, so that one fault of an extension is one finding and not the end of the examination.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, Final

from attrs import frozen

from broker import canonical
from broker.errors import CanonicalError, ProtocolError
from broker.limits import MAX_CONFORM_QUOTED_BYTES
from broker.wire.jsonrpc import classify
from broker.wire.octet.contract import is_notification
from broker.wire.quoting import quote

# What the canonical decoder says first, and the rule it is about.
_CANONICAL: Final = (
    ("BOM", "octet.canonical.byte-order-mark"),
    ("key order", "octet.canonical.key-order"),
    ("duplicate key", "octet.canonical.duplicate-key"),
    ("white space", "octet.canonical.no-whitespace"),
    ("float", "octet.canonical.no-float"),
    ("integer out of range", "octet.canonical.integers"),
    ("malformed number", "octet.canonical.number-spelling"),
    ("negative zero", "octet.canonical.number-spelling"),
    ("escape not minimal", "octet.canonical.needless-escape"),
    ("malformed escape", "octet.canonical.needless-escape"),
    ("control character", "octet.canonical.needless-escape"),
    ("lone surrogate", "octet.canonical.lone-surrogate"),
    ("invalid UTF-8", "octet.canonical.invalid-utf8"),
    ("depth", "octet.canonical.depth"),
    ("trailing data", "octet.canonical.trailing-data"),
)
_NOISE: Final = "octet.framing.frames-only"
_SHOWN_BYTES: Final = MAX_CONFORM_QUOTED_BYTES

_BY_PATH: Final[Mapping[str, str]] = {
    "jsonrpc": "octet.envelope.jsonrpc-version",
    "id": "octet.envelope.id-other-type",
    "method": "octet.envelope.method-name-bound",
    "params": "octet.envelope.params-null",
    "result": "octet.envelope.result-null",
}
_BY_TEXT: Final = (
    ("a frame must be an object", "octet.envelope.not-an-object"),
    ("exactly one known combination", "octet.envelope.mixed-shapes"),
    ("takes no id", "octet.envelope.notification-forbids-id"),
    ("needs an id", "octet.envelope.request-needs-id"),
    ("is not in the error table", "octet.envelope.error-pair"),
)


@frozen
class ReadLine:
    """A line: the rules it breaks, each with what is wrong, and its value as far as it can be made out."""

    faults: tuple[tuple[str, str], ...] = ()
    value: Any = None
    understood: bool = False


def read_line(line: bytes, bound: int) -> ReadLine:
    """Judge ``line``, which has no LF; ``bound`` is the selected ``max_frame_bytes``."""
    faults: list[tuple[str, str]] = []
    if len(line) > bound:
        shown = quote(line, max_bytes=_SHOWN_BYTES)
        faults.append(("octet.framing.over-bound", f"a frame of {len(line)} bytes, the bound is {bound}: {shown}"))
    if line.endswith(b"\r"):
        faults.append(("octet.framing.carriage-return", f"CR before LF: {quote(line[-_SHOWN_BYTES:])}"))
        line = line[:-1]
    if not line:
        faults.append(("octet.framing.empty-line", "an empty line"))
        return ReadLine(tuple(faults))
    try:
        value = canonical.decode(line)
    except CanonicalError as error:
        rule = _canonical_rule(str(error))
        where = line if error.offset is None else line[max(0, error.offset - 24) :]
        value, understood = _guess(line)
        if not understood or not isinstance(value, (dict, list)):
            faults.append(
                (_NOISE if not _starts_frame(line) else rule, f"{error}: {quote(line, max_bytes=_SHOWN_BYTES)}")
            )
            return ReadLine(tuple(faults))
        faults.append((rule, f"{error}: ...{quote(where, max_bytes=_SHOWN_BYTES)}"))
    try:
        classify(value, is_notification=is_notification)
    except ProtocolError as error:
        faults.append((_envelope_rule(error), f"{error}; the frame is {quote(line, max_bytes=_SHOWN_BYTES)}"))
    return ReadLine(tuple(faults), value, understood=True)


def _canonical_rule(text: str) -> str:
    return next((rule for start, rule in _CANONICAL if text.startswith(start)), _NOISE)


def _envelope_rule(error: ProtocolError) -> str:
    text, path = str(error), error.path or ""
    for words, rule in _BY_TEXT:
        if words in text:
            return rule
    if "is not a member of this envelope" in text and not path.startswith("error."):
        return "octet.envelope.unknown-member"
    if path.startswith("error"):
        return "octet.envelope.error-shape"
    return _BY_PATH.get(path, "octet.envelope.mixed-shapes")


def _starts_frame(line: bytes) -> bool:
    """Whether this was meant as a frame at all."""
    return line.lstrip(b"\xef\xbb\xbf \t").startswith(b"{")


def _guess(line: bytes) -> tuple[Any, bool]:
    """The value a line that is not canonical was meant to have, and whether there is one."""
    text = line.decode("utf-8-sig", "replace").strip()
    try:
        value, _ = json.JSONDecoder(strict=False).raw_decode(text)
    except (ValueError, RecursionError):
        return None, False
    return value, True
