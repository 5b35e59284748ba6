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

import json
import re
from collections.abc import Iterable
from typing import Any, Final, NoReturn, TypeAlias

import orjson
from attrs import define, field

from broker.errors import CanonicalError, InternalError, NonportableNumberError, UsageError
from broker.limits import MAX_JSON_DEPTH, MAX_PATH_KEY_CHARS, MAX_PORTABLE_INTEGER

JSONValue: TypeAlias = "dict[str, JSONValue] | list[JSONValue] | str | int | bool | None"

_OPTIONS: Final = orjson.OPT_SORT_KEYS | orjson.OPT_STRICT_INTEGER
_SCALARS: Final = frozenset({str, int, bool, type(None)})
_BOM: Final = b"\xef\xbb\xbf"
_WHITE_SPACE: Final = b" \t\n\r"

# How many decimal digits still may be portable: anything longer is out of range without being converted.
_PORTABLE_DIGITS: Final = len(str(MAX_PORTABLE_INTEGER))
_SHOWN_BITS: Final = 128

_IDENTIFIER: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_-]*", re.ASCII)
_PLAIN: Final = re.compile(rb'[^"\\\x00-\x1f]*')
_NUMBER: Final = re.compile(rb"[-+0-9.eE]+")
_INTEGER: Final = re.compile(rb"-?(?:0|[1-9][0-9]*)")
_ANY_NUMBER: Final = re.compile(rb"-?(?:0|[1-9][0-9]*)(?:\.[0-9]+)?(?:[eE][-+]?[0-9]+)?")
_HEX: Final = re.compile(rb"[0-9a-fA-F]{4}")
_LOW_SURROGATE: Final = re.compile(rb"\\u[dD][c-fC-F][0-9a-fA-F]{2}")
_SHORT_ESCAPES: Final = {0x08: "b", 0x09: "t", 0x0A: "n", 0x0C: "f", 0x0D: "r"}
_LITERALS: Final = (b"true", b"false", b"null")


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
    return _refuse_value(value)


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
    _Scanner(data).scan()
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
        _refuse_value(text)
    raise CanonicalError(f"type {type(text).__name__} is not str at $", path="$")


# -- the good path -----------------------------------------------------------------------------------------------------


def _is_plain(value: object) -> bool:
    """Exact types all the way down and not too deep. Walks level by level, so no value makes it recurse."""
    kind = type(value)
    if kind is not dict and kind is not list:
        return kind in _SCALARS
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


# -- saying what is wrong with a value ---------------------------------------------------------------------------------


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
        return _path(reversed(segments))


def _path(segments: Iterable[str | int]) -> str:
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


def _refuse_value(value: object) -> NoReturn:
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
        elif kind not in _SCALARS:
            reason = "float" if kind is float else f"type {kind.__name__} has no canonical form"
            raise CanonicalError(f"{reason} at {place}", path=str(place))
    raise InternalError("this value was refused, but no fault was found in it")


def _refuse_surrogate(text: str, place: _Place, what: str) -> None:
    try:
        text.encode()
    except UnicodeEncodeError:
        raise CanonicalError(f"lone surrogate in {what} at {place}", path=str(place)) from None


# -- saying what is wrong with bytes -----------------------------------------------------------------------------------


@define
class _Open:
    """A container being scanned: its closing byte, where the scan is in it, and the keys seen so far."""

    close: int
    segment: str | int | None = None
    keys: set[str] = field(factory=set)


class _Scanner:
    """Finds the first fault, by offset, in bytes that are not canonical. Iterative, one pass."""

    def __init__(self, data: bytes) -> None:
        self._data = data
        self._at = 0
        self._open: list[_Open] = []
        self._numbers: list[tuple[int, int, CanonicalError]] = []

    def scan(self) -> None:
        """Raise for the first fault; return if there is none."""
        if self._data.startswith(_BOM):
            self._refuse("BOM", 0)
        while True:
            opened = self._value()
            if not opened and not self._next():
                break
        rest = self._data[self._at :]
        if rest:
            self._refuse("trailing data" if rest.strip(_WHITE_SPACE) else "white space", self._at)
        if self._numbers:
            self._refuse_numbers()

    def _refuse_numbers(self) -> NoReturn:
        """Raise for numbers alone, everything else being canonical."""
        pieces: list[bytes] = []
        done = 0
        for start, end, _ in self._numbers:
            pieces += (self._data[done:start], b"0")
            done = end
        pieces.append(self._data[done:])
        first = self._numbers[0][2]
        raise NonportableNumberError(
            str(first),
            paths=[str(error.path) for _, _, error in self._numbers],
            zeroed=orjson.loads(b"".join(pieces)),
            path=first.path,
            offset=first.offset,
            limit=first.limit,
            observed=first.observed,
            maximum=first.maximum,
        )

    def _value(self) -> bool:
        """Scan a scalar, or the opening of a container up to its first value; true if a value must follow."""
        byte = self._peek()
        if byte == 0x22:
            self._string()
        elif byte in b"-+0123456789.":
            self._number()
        elif byte in b"[{":
            if len(self._open) == MAX_JSON_DEPTH:
                self._refuse(
                    f"depth: more than {MAX_JSON_DEPTH} nested containers",
                    self._at,
                    limit="MAX_JSON_DEPTH",
                    observed=MAX_JSON_DEPTH + 1,
                    maximum=MAX_JSON_DEPTH,
                )
            self._at += 1
            container = _Open(close=byte + 2)
            self._open.append(container)
            if self._peek() == container.close:
                self._at += 1
                self._open.pop()
                return False
            if byte == 0x7B:
                self._key(container)
            else:
                container.segment = 0
            return True
        else:
            for literal in _LITERALS:
                if self._data.startswith(literal, self._at):
                    self._at += len(literal)
                    return False
            self._refuse("unexpected byte, expected a value", self._at)
        return False

    def _next(self) -> bool:
        """After a value: close containers, or go on to the next value; false when the root value has ended."""
        while self._open:
            container = self._open[-1]
            byte = self._peek()
            if byte == container.close:
                self._at += 1
                self._open.pop()
                continue
            if byte != 0x2C:
                self._refuse("unexpected byte, expected a comma or the container's end", self._at)
            self._at += 1
            if container.close == 0x7D:
                self._key(container)
            else:
                container.segment = int(container.segment or 0) + 1
            return True
        return False

    def _key(self, container: _Open) -> None:
        last, container.segment = container.segment, None
        if self._peek() != 0x22:
            self._refuse("unexpected byte, expected a key", self._at)
        start = self._at
        key = self._string()
        if key in container.keys:
            self._refuse(f"duplicate key {_path([key])[1:]}", start)
        if last is not None and key < str(last):
            self._refuse(f"key order: {_path([key])[1:]} after {_path([last])[1:]}", start)
        container.keys.add(key)
        if self._peek() != 0x3A:
            self._refuse("unexpected byte, expected a colon", self._at)
        self._at += 1
        container.segment = key

    def _number(self) -> None:
        start = self._at
        match = _NUMBER.match(self._data, start)
        text = match.group() if match else b""
        self._at = start + len(text)
        if _INTEGER.fullmatch(text) is None:
            if _ANY_NUMBER.fullmatch(text) is None:
                self._refuse("malformed number", start)
            self._numbers.append((start, self._at, self._fault("float", start)))
            return
        if text == b"-0":
            self._refuse("negative zero", start)
        digits = len(text) - text.startswith(b"-")
        # A longer run of digits is never converted: that takes quadratic time, and Python refuses it.
        observed = int(text) if digits <= _PORTABLE_DIGITS + 3 else None
        if observed is None or abs(observed) > MAX_PORTABLE_INTEGER:
            fault = self._fault(
                f"integer out of range, {digits} digits",
                start,
                limit="MAX_PORTABLE_INTEGER",
                observed=observed,
                maximum=MAX_PORTABLE_INTEGER,
            )
            self._numbers.append((start, self._at, fault))

    def _string(self) -> str:
        data = self._data
        start = self._at
        at = start + 1
        while True:
            match = _PLAIN.match(data, at)
            end = match.end() if match else at
            try:
                data[at:end].decode()
            except UnicodeDecodeError as error:
                self._refuse("invalid UTF-8", at + error.start)
            if end == len(data):
                self._refuse("unexpected end in a string", end)
            if data[end] == 0x22:
                self._at = end + 1
                return str(orjson.loads(data[start : end + 1]))
            if data[end] < 0x20:
                self._refuse("control character in a string", end)
            at = self._escape(end)

    def _escape(self, start: int) -> int:
        """Check the escape at ``start`` and give the offset behind it."""
        letter = self._data[start + 1 : start + 2]
        if not letter:
            self._refuse("unexpected end in a string", start + 1)
        if letter in b'"\\bfnrt':
            return start + 2
        if letter == b"/":
            self._refuse("escape not minimal", start)
        digits = self._data[start + 2 : start + 6]
        if letter != b"u" or _HEX.fullmatch(digits) is None:
            self._refuse("malformed escape", start)
        unit = int(digits, 16)
        if 0xD800 <= unit <= 0xDFFF and (unit >= 0xDC00 or _LOW_SURROGATE.match(self._data, start + 6) is None):
            self._refuse("lone surrogate", start)
        if unit >= 0x20 or unit in _SHORT_ESCAPES or digits != digits.lower():
            self._refuse("escape not minimal", start)
        return start + 6

    def _peek(self) -> int:
        if self._at >= len(self._data):
            self._refuse("unexpected end", self._at)
        byte = self._data[self._at]
        if byte in _WHITE_SPACE:
            self._refuse("white space", self._at)
        return byte

    def _refuse(self, reason: str, offset: int, **bound: Any) -> NoReturn:
        """Raise for the first fault there is: a number that was passed over, or else this one."""
        raise self._numbers[0][2] if self._numbers else self._fault(reason, offset, **bound)

    def _fault(
        self,
        reason: str,
        offset: int,
        *,
        limit: str | None = None,
        observed: int | None = None,
        maximum: int | None = None,
    ) -> CanonicalError:
        path = _path(container.segment for container in self._open if container.segment is not None)
        return CanonicalError(
            f"{reason} at byte {offset}, in {path}",
            path=path,
            offset=offset,
            limit=limit,
            observed=observed,
            maximum=maximum,
        )
