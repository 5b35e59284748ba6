"""JSON texts that people or servers wrote, read so that two readers cannot disagree about what they say.

``json`` and ``orjson`` both take the last of two equal keys. Here every object remembers which of its keys stood twice,
and whoever reads a member can refuse them; an object nobody reads may hold what it likes.
"""

from __future__ import annotations

import json
from collections import Counter
from typing import Any

import orjson

from broker.errors import CanonicalError
from broker.limits import MAX_MESSAGE_DEPTH
from broker.wire.mcp.decoding import is_deep


class JsonObject(dict[str, Any]):
    """An object of a JSON text; ``repeated`` are its keys that stood more than once, in order."""

    __slots__ = ("repeated",)

    def __init__(self, pairs: list[tuple[str, Any]]) -> None:
        super().__init__(pairs)
        self.repeated: tuple[str, ...] = ()
        if len(self) < len(pairs):
            counts = Counter(key for key, _ in pairs)
            self.repeated = tuple(key for key, count in counts.items() if count > 1)


def loads(data: bytes) -> Any:
    """The value of a JSON text, its objects as :class:`JsonObject`.

    Raises :class:`~broker.errors.CanonicalError` for anything that is not strict JSON in UTF-8: also for ``NaN``,
    numbers that no double holds, lone surrogates, and more than 128 nested containers.
    """
    if is_deep(data):
        raise CanonicalError(
            f"more than {MAX_MESSAGE_DEPTH} nested containers", limit="MAX_MESSAGE_DEPTH", maximum=MAX_MESSAGE_DEPTH
        )
    try:
        orjson.loads(data)
    except orjson.JSONDecodeError as error:
        raise CanonicalError(f"not JSON: {error}") from error
    # A whole number that is too long for an integer is a double for orjson, and here as well.
    return json.loads(data.decode(), object_pairs_hook=JsonObject, parse_int=_integer)


def _integer(digits: str) -> int | float:
    value = float(digits)
    return int(digits) if -(2.0**64) < value < 2.0**64 else value
