"""Says what is wrong with bytes that are not canonical JSON: the first fault, by offset and path."""

from __future__ import annotations

import re
from typing import Any, Final, NoReturn

import orjson
from attrs import define, field

from broker.canonical.value_faults import path_text
from broker.errors import CanonicalError, NonportableNumberError
from broker.limits import MAX_JSON_DEPTH, MAX_PORTABLE_INTEGER

_BOM: Final = b"\xef\xbb\xbf"
_WHITE_SPACE: Final = b" \t\n\r"

# How many decimal digits still may be portable: anything longer is out of range without being converted.
_PORTABLE_DIGITS: Final = len(str(MAX_PORTABLE_INTEGER))

_PLAIN: Final = re.compile(rb'[^"\\\x00-\x1f]*')
_NUMBER: Final = re.compile(rb"[-+0-9.eE]+")
_INTEGER: Final = re.compile(rb"-?(?:0|[1-9][0-9]*)")
_ANY_NUMBER: Final = re.compile(rb"-?(?:0|[1-9][0-9]*)(?:\.[0-9]+)?(?:[eE][-+]?[0-9]+)?")
_HEX: Final = re.compile(rb"[0-9a-fA-F]{4}")
_LOW_SURROGATE: Final = re.compile(rb"\\u[dD][c-fC-F][0-9a-fA-F]{2}")
_SHORT_ESCAPES: Final = {0x08: "b", 0x09: "t", 0x0A: "n", 0x0C: "f", 0x0D: "r"}
_LITERALS: Final = (b"true", b"false", b"null")


@define
class _Open:
    """A container being scanned: its closing byte, where the scan is in it, and the keys seen so far."""

    close: int
    segment: str | int | None = None
    keys: set[str] = field(factory=set)


class Scanner:
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
            self._refuse(f"duplicate key {path_text([key])[1:]}", start)
        if last is not None and key < str(last):
            self._refuse(f"key order: {path_text([key])[1:]} after {path_text([last])[1:]}", start)
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
        path = path_text(container.segment for container in self._open if container.segment is not None)
        return CanonicalError(
            f"{reason} at byte {offset}, in {path}",
            path=path,
            offset=offset,
            limit=limit,
            observed=observed,
            maximum=maximum,
        )
