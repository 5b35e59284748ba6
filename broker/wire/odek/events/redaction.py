"""Secrets taken out of every string that leaves: the values a host knows, and whatever has the shape of a secret.

All findings are looked for in the text as it came, and what they cover together is replaced. No order of rules can
therefore leave half of a secret behind. Time is linear in the text. Source: odek contract, "Event schema"; odek notes,
section 5.6.
"""

from __future__ import annotations

import base64
import json
import math
import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Final
from urllib.parse import quote as percent_encode

from broker.errors import ResourceExhaustedError, UsageError
from broker.limits import (
    MAX_JSON_DEPTH,
    MAX_KNOWN_SECRETS,
    MAX_REMEMBERED_CHARS,
    MAX_REMEMBERED_TEXTS,
    MIN_SECRET_CHARS,
    REDACTION_LOOKAHEAD_CHARS,
)
from broker.wire.odek.events.shapes import SHAPES
from broker.wire.quoting import scalar

REDACTED: Final = "[REDACTED]"

SECRET_NAME_PARTS: Final = (
    "KEY APIKEY TOKEN SECRET PASSWORD PASSWD PASS CREDENTIAL CREDENTIALS PRIVATEKEY ACCESSKEY SECRETKEY"
).split()
"""What makes a variable's value a secret: one of these as a part of its name, or as the end of a part."""

# The shortest text with anything to find is ://:x@.
_MIN_FINDING_CHARS: Final = 6
_ELLIPSIS: Final = "\u2026"
_NAME_PART: Final = re.compile("[A-Z0-9]+")
_ENDS: Final = tuple(SECRET_NAME_PARTS)


def names_secret(name: str) -> bool:
    """Whether a variable or a configuration key of this name holds a secret."""
    return any(part.endswith(_ENDS) for part in _NAME_PART.findall(name.upper()))


def secret_values(variables: Mapping[str, str]) -> tuple[str, ...]:
    """The values of those ``variables`` whose names say that they are secret, such as of the host's environment."""
    return tuple(value for name, value in variables.items() if names_secret(name))


class Redactor:
    """Replaces secrets by ``[REDACTED]``. Safe from any thread.

    ``secrets`` are values that the host knows, found as they stand and in the forms that programs write them in: JSON
    escapes, percent-encoding, base64 (also inside of a longer base64 text), hexadecimal, backwards. Those of fewer than
    8 characters are left out: they would be found in innocent text. Raises
    :class:`~broker.errors.ResourceExhaustedError` for more than 1024.
    """

    def __init__(self, secrets: Iterable[str] = ()) -> None:
        values = {stripped for value in secrets if len(stripped := value.strip()) >= MIN_SECRET_CHARS}
        values = {value for value in values if value not in REDACTED}
        if len(values) > MAX_KNOWN_SECRETS:
            raise ResourceExhaustedError(
                f"{len(values)} secrets to look for, at most {MAX_KNOWN_SECRETS}",
                limit="MAX_KNOWN_SECRETS",
                observed=len(values),
                maximum=MAX_KNOWN_SECRETS,
            )
        forms = {form for value in values for form in _forms(value)}
        self._known: tuple[str, ...] = tuple(sorted(forms, key=lambda form: (len(form), form)))
        # Short texts without a secret: the same names and words come again and again.
        self._innocent: set[str] = set()

    def redact(self, text: str, *, max_chars: int | None = None) -> str:
        """``text`` without its secrets. What no encoding can hold, a lone surrogate, becomes U+FFFD.

        Of a text of more than ``max_chars`` characters only these are shown, and behind them just enough is searched to
        find the secrets that begin among them: however long it is, the time is that of a bounded one.
        """
        if len(text) < _MIN_FINDING_CHARS or text in self._innocent:
            text = scalar(text)
            if max_chars is None or len(text) <= max_chars:
                return text
        cut = max_chars is not None and len(text) > max_chars
        if max_chars is not None and cut:
            text = text[: max_chars + REDACTION_LOOKAHEAD_CHARS]
        text = scalar(text)
        end = max_chars if max_chars is not None and cut else len(text)
        pieces: list[str] = []
        position = 0
        for start, stop in sorted(self._spans(text)):
            if start >= end:
                break
            if start >= position or not pieces:
                pieces += (text[position:start], REDACTED)
            position = max(position, stop)
        if not pieces and not cut and len(text) <= MAX_REMEMBERED_CHARS:
            if len(self._innocent) >= MAX_REMEMBERED_TEXTS:
                self._innocent.clear()
            self._innocent.add(text)
        shown = "".join((*pieces, text[position:end])) if pieces else text[:end]
        if max_chars is not None and (cut or len(shown) > max_chars):
            return shown[: max_chars - 1] + _ELLIPSIS
        return shown

    def redact_value(self, value: Any, *, max_chars: int | None = None, max_depth: int = MAX_JSON_DEPTH) -> Any:
        """A copy of a JSON-like ``value`` with every string in it redacted, keys as well; the value stays as it was.

        ``max_chars`` is for each string, as of :meth:`redact`. Mappings become dicts, sequences lists. Raises
        :class:`~broker.errors.UsageError` for anything that is no JSON, and for more than ``max_depth`` nested
        containers.
        """
        return self._redacted(value, max_chars, max_depth, max_depth)

    def _redacted(self, value: Any, max_chars: int | None, max_depth: int, left: int) -> Any:
        if value is None or isinstance(value, bool | int):
            return value
        if isinstance(value, str):
            return self.redact(value, max_chars=max_chars)
        if isinstance(value, float) and math.isfinite(value):
            return value
        if not isinstance(value, Mapping | list | tuple | set | frozenset):
            raise UsageError(f"an event holds JSON, not {type(value).__name__}")
        if not left:
            raise UsageError(
                f"an event nests at most {max_depth} containers", limit="MAX_JSON_DEPTH", maximum=max_depth
            )
        if isinstance(value, Mapping):
            copy: dict[str, Any] = {}
            for key, member in value.items():
                name = self.redact(str(key), max_chars=max_chars)
                copy[_unused(name, copy)] = self._redacted(member, max_chars, max_depth, left - 1)
            return copy
        return [self._redacted(member, max_chars, max_depth, left - 1) for member in value]

    def _spans(self, text: str) -> Iterator[tuple[int, int]]:
        for form in self._known:
            if len(form) > len(text):
                break
            start = text.find(form)
            while start >= 0:
                yield start, start + len(form)
                start = text.find(form, start + len(form))
        folded = text.lower()
        for shape in SHAPES:
            yield from shape.spans(text, folded)


def _unused(key: str, taken: Mapping[str, Any]) -> str:
    """``key``, or with a number behind it when another key became the same by its redaction."""
    name, number = key, 1
    while name in taken:
        number += 1
        name = f"{key} {number}"
    return name


def _forms(value: str) -> Iterator[str]:
    """The texts that stand for ``value``, itself first."""
    data = value.encode("utf-8", "surrogatepass")
    value = scalar(value)
    yield value
    yield value[::-1]
    for ensure_ascii in (True, False):
        yield json.dumps(value, ensure_ascii=ensure_ascii)[1:-1]
    percent = percent_encode(data, safe="")
    yield percent
    yield re.sub("%..", lambda found: found[0].lower(), percent)
    yield "".join(f"%{byte:02X}" for byte in data)
    yield "".join(f"%{byte:02x}" for byte in data)
    yield data.hex()
    yield data.hex().upper()
    for encode in (base64.b64encode, base64.urlsafe_b64encode):
        yield encode(data).decode()
        for before in range(3):
            # Inside of a longer text the first and the last characters also depend on what stands beside it.
            whole = encode(bytes(before) + data).decode().rstrip("=")
            end = len(whole) - (1 if (before + len(data)) % 3 else 0)
            yield whole[(before * 8 + 5) // 6 : end]
            if not before:
                yield whole
