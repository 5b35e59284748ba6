"""A slow, independent reading of the canonical form, from the standard library alone."""

from __future__ import annotations

import json
from typing import Any

LARGEST = 2**53 - 1
DEPTH = 32
NAMED = {"\b": "\\b", "\t": "\\t", "\n": "\\n", "\f": "\\f", "\r": "\\r", '"': '\\"', "\\": "\\\\"}


class NotCanonicalError(Exception):
    pass


def write(value: Any, depth: int = 1) -> str:
    if value is None:
        return "null"
    if value is True:
        return "true"
    if value is False:
        return "false"
    if type(value) is int:
        if abs(value) > LARGEST:
            raise NotCanonicalError("integer")
        return str(value)
    if type(value) is str:
        if any(0xD800 <= ord(c) <= 0xDFFF for c in value):
            raise NotCanonicalError("surrogate")
        return '"' + "".join(NAMED.get(c, f"\\u{ord(c):04x}" if ord(c) < 0x20 else c) for c in value) + '"'
    if type(value) not in (list, dict):
        raise NotCanonicalError("type")
    if depth > DEPTH:
        raise NotCanonicalError("depth")
    if type(value) is list:
        return "[" + ",".join(write(item, depth + 1) for item in value) + "]"
    if any(type(key) is not str for key in value):
        raise NotCanonicalError("key type")
    keys = sorted(value, key=lambda key: [ord(c) for c in key])
    return "{" + ",".join(write(key) + ":" + write(value[key], depth + 1) for key in keys) + "}"


def encode(value: Any) -> bytes:
    return write(value).encode()


def decode(data: bytes) -> Any:
    def pairs(items: list[tuple[str, Any]]) -> dict[str, Any]:
        if len({key for key, _ in items}) != len(items):
            raise NotCanonicalError("duplicate key")
        return dict(items)

    def number(text: str) -> Any:
        raise NotCanonicalError("float")

    try:
        value = json.loads(data.decode("utf-8"), object_pairs_hook=pairs, parse_float=number, parse_constant=number)
        again = encode(value)
    except (ValueError, RecursionError) as error:
        raise NotCanonicalError("syntax") from error
    if again != data:
        raise NotCanonicalError("not the canonical form")
    return value
