"""Says what is wrong with a Python value that has no canonical form: the first fault in document order, by path."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable
from typing import Any, Final, NoReturn

from attrs import define

from broker.errors import CanonicalError, InternalError
from broker.limits import MAX_JSON_DEPTH, MAX_PATH_KEY_CHARS, MAX_PORTABLE_INTEGER

SCALARS: Final = frozenset({str, int, bool, type(None)})
"""The exact types of values without children."""

_SHOWN_BITS: Final = 128
_IDENTIFIER: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_-]*", re.ASCII)


@define
class _Place:
    """Where a value is: a segment (a key or an index) below another place."""

    above: _Place | None
    segment: str | int | None

    def __str__(self) -> str:
        segments: list[str | int] = []
        place: _Place | None = self
        while place is not None:
            if place.segment is not None:
                segments.append(place.segment)
            place = place.above
        return path_text(reversed(segments))


def path_text(segments: Iterable[str | int]) -> str:
    """``$`` and one part a segment: ``.key``, ``["odd key"]`` or ``[3]``; pure ASCII, long keys shortened."""
    parts = ["$"]
    for segment in segments:
        if type(segment) is int:
            parts.append(f"[{segment}]")
            continue
        key = str(segment)
        if len(key) > MAX_PATH_KEY_CHARS:
            key = key[:MAX_PATH_KEY_CHARS] + "..."
        parts.append(f".{key}" if _IDENTIFIER.fullmatch(key) else f"[{json.dumps(key)}]")
    return "".join(parts)


def refuse_value(value: object) -> NoReturn:
    """Raise for the first fault of ``value`` in document order."""
    item: Any
    waiting: list[tuple[Any, int, _Place]] = [(value, 1, _Place(None, None))]
    seen: set[tuple[int, int]] = set()
    while waiting:
        item, depth, place = waiting.pop()
        kind = type(item)
        if kind is str:
            _refuse_surrogate(item, place, "string")
        elif kind is int:
            if not -MAX_PORTABLE_INTEGER <= item <= MAX_PORTABLE_INTEGER:
                raise CanonicalError(
                    f"integer out of range at {place}",
                    path=str(place),
                    limit="MAX_PORTABLE_INTEGER",
                    # A number of thousands of digits is named by its place alone: Python refuses to print it.
                    observed=item if -(1 << _SHOWN_BITS) < item < 1 << _SHOWN_BITS else None,
                    maximum=MAX_PORTABLE_INTEGER,
                )
        elif kind is dict or kind is list:
            if depth > MAX_JSON_DEPTH:
                raise CanonicalError(
                    f"depth: more than {MAX_JSON_DEPTH} nested containers at {place}",
                    path=str(place),
                    limit="MAX_JSON_DEPTH",
                    observed=depth,
                    maximum=MAX_JSON_DEPTH,
                )
            if (id(item), depth) in seen:
                continue
            seen.add((id(item), depth))
            children: list[tuple[Any, int, _Place]] = []
            if kind is dict:
                for key, child in item.items():
                    if type(key) is not str:
                        raise CanonicalError(f"key of type {type(key).__name__} is not str in {place}", path=str(place))
                    below = _Place(place, key)
                    _refuse_surrogate(key, below, "key")
                    children.append((child, depth + 1, below))
            else:
                children.extend((child, depth + 1, _Place(place, n)) for n, child in enumerate(item))
            waiting.extend(reversed(children))
        elif kind not in SCALARS:
            reason = "float" if kind is float else f"type {kind.__name__} has no canonical form"
            raise CanonicalError(f"{reason} at {place}", path=str(place))
    raise InternalError("this value was refused, but no fault was found in it")


def _refuse_surrogate(text: str, place: _Place, what: str) -> None:
    try:
        text.encode()
    except UnicodeEncodeError:
        raise CanonicalError(f"lone surrogate in {what} at {place}", path=str(place)) from None
