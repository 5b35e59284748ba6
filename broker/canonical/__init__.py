"""octet-canonical-json-v1: one value has exactly one encoding, and only that encoding is read back.

Source: octet reference, "Canonical framing and JSON-RPC envelopes" and "Bounds". The form, in short:

* UTF-8 without a byte order mark, no white space, object keys in code point order, no key twice;
* strings escape only ``"``, the backslash and U+0000..U+001F, each in its shortest form, hex digits in lower case;
* numbers are integers within :data:`~broker.limits.MAX_PORTABLE_INTEGER`, never ``-0``;
* at most :data:`~broker.limits.MAX_JSON_DEPTH` nested containers, the root container being the first.

orjson does the work, because its sorted compact output *is* this form for the types checked here. Reading is then
"parse, check, write again, compare": whatever orjson reads more liberally (a duplicate key, ``-0``, ``1e2``, an escaped
letter, an integer beyond 64 bits) cannot survive the comparison or the check for floats. Only bytes already known to be
wrong are scanned a second time, to say what is wrong and where.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Final, TypeAlias

import orjson

from broker.canonical.bytes_faults import Scanner
from broker.canonical.value_faults import SCALARS, refuse_value
from broker.errors import CanonicalError, InternalError, UsageError
from broker.limits import MAX_JSON_DEPTH

__all__ = ["JSONValue", "decode", "encode", "size", "string_size"]

JSONValue: TypeAlias = "dict[str, JSONValue] | list[JSONValue] | str | int | bool | None"

_OPTIONS: Final = orjson.OPT_SORT_KEYS | orjson.OPT_STRICT_INTEGER


def encode(value: JSONValue) -> bytes:
    """The canonical bytes of ``value``, without a line feed.

    Only exact ``dict`` (with ``str`` keys), ``list``, ``str``, ``int``, ``bool`` and ``None`` have a form; subclasses,
    tuples and floats do not. Raises :class:`~broker.errors.CanonicalError` whose ``path`` (such as ``$.a[3].b``) says
    where, with ``limit``, ``observed`` and ``maximum`` for depth and integers.
    """
    if _is_plain(value):
        try:
            return orjson.dumps(value, option=_OPTIONS)
        except orjson.JSONEncodeError:
            pass
    return refuse_value(value)


def decode(data: bytes | bytearray | memoryview) -> Any:
    """The value whose canonical bytes are exactly ``data`` (no line feed).

    Raises :class:`~broker.errors.CanonicalError` for anything else. Its text starts with the reason ("duplicate key",
    "key order", "float", "integer out of range", "negative zero", "escape not minimal", "lone surrogate",
    "invalid UTF-8", "BOM", "white space", "trailing data", "depth", ...), ``offset`` is the byte the fault starts at
    and ``path`` the value it is in. Where such numbers are all that is wrong, the error is a
    :class:`~broker.errors.NonportableNumberError`. Time and memory are linear in ``data``, whatever it holds.
    """
    if type(data) is not bytes:
        if not isinstance(data, (bytes, bytearray, memoryview)):
            raise UsageError(f"decode takes bytes, not {type(data).__name__}")
        data = bytes(data)
    try:
        value = orjson.loads(data)
        if _is_canonical_tree(value) and orjson.dumps(value, option=_OPTIONS) == data:
            return value
    except (orjson.JSONDecodeError, orjson.JSONEncodeError):
        pass
    Scanner(data).scan()
    raise InternalError("these bytes were refused, but no fault was found in them")


def size(value: JSONValue) -> int:
    """The number of bytes of :func:`encode`'s answer; refuses what it refuses."""
    return len(encode(value))


def string_size(text: str) -> int:
    """The number of bytes of ``text``'s canonical form, quotes included.

    Nothing around the string is built. The string's own form is, for a moment: orjson writes it several times faster
    than any count in Python could be made. Raises :class:`~broker.errors.CanonicalError` for a lone surrogate, or for
    anything but an exact ``str``.
    """
    if type(text) is str:
        try:
            return len(orjson.dumps(text))
        except orjson.JSONEncodeError:
            pass
        refuse_value(text)
    raise CanonicalError(f"type {type(text).__name__} is not str at $", path="$")


# -- the good path -----------------------------------------------------------------------------------------------------


def _is_plain(value: object) -> bool:
    """Exact types all the way down and not too deep. Walks level by level, so no value makes it recurse."""
    kind = type(value)
    if kind is not dict and kind is not list:
        return kind in SCALARS
    level: Iterable[Any] = (value,)
    for _ in range(MAX_JSON_DEPTH):
        # Keyed by identity: a container reached twice on one level is looked at once, or sharing doubles each level.
        below: dict[int, Any] = {}
        for container in level:
            children: Iterable[Any] = container
            if type(container) is dict:
                for key in container:
                    if type(key) is not str:
                        return False
                children = container.values()
            for child in children:
                kind = type(child)
                if kind is str or kind is int:
                    continue
                if kind is dict or kind is list:
                    below[id(child)] = child
                elif kind is not bool and child is not None:
                    return False
        if not below:
            return True
        level = below.values()
    return False


def _is_canonical_tree(value: object) -> bool:
    """What the comparison of bytes cannot see in a freshly parsed value: floats, and depth."""
    if type(value) is float:
        return False
    level: list[Any] = [value] if type(value) is dict or type(value) is list else []
    for _ in range(MAX_JSON_DEPTH):
        if not level:
            return True
        below: list[Any] = []
        for container in level:
            for child in container.values() if type(container) is dict else container:
                kind = type(child)
                if kind is str or kind is int:
                    continue
                if kind is float:
                    return False
                if kind is dict or kind is list:
                    below.append(child)
        level = below
    return not level
