"""Field declarations of a typed topic, and every check on them (octet reference, ``BusFieldSpec``; design, "The bus").

A :class:`Field` is a plain value and holds whatever it was given; :func:`declaration_faults` checks a whole declaration
at once, so that an author sees every fault in one error.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any, Final

from attrs import field, frozen

from broker.bus import screening
from broker.errors import Fault
from broker.limits import (
    MAX_BUS_ENUM_VALUES,
    MAX_BUS_FIELDS,
    MAX_BUS_IDENTIFIER_BYTES,
    MAX_BUS_STRING_BYTES,
    MAX_BUS_TOPIC_BYTES,
    MAX_PORTABLE_INTEGER,
)

KINDS: Final = ("string", "integer", "boolean", "enum")

_SEGMENT = re.compile(r"[a-z0-9][a-z0-9_-]*")
_IDENTIFIER = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_SHOWN_BITS = 128


def _as_tuple(value: Any) -> Any:
    return tuple(value) if isinstance(value, list | tuple) else value


@frozen
class Field:
    """One scalar field of a topic. Make it with :meth:`string`, :meth:`integer`, :meth:`boolean` or :meth:`enum`.

    ``max_bytes`` bounds the UTF-8 bytes of a string or enum value; ``minimum`` and ``maximum`` are inclusive bounds of
    an integer; ``values`` are the alternatives of an enum. Nothing is checked until the field is declared.
    """

    name: str
    kind: str
    required: bool = True
    max_bytes: int = MAX_BUS_STRING_BYTES
    values: tuple[str, ...] = field(default=(), converter=_as_tuple)
    minimum: int | None = None
    maximum: int | None = None

    @classmethod
    def string(cls, name: str, max_bytes: int = MAX_BUS_STRING_BYTES, *, required: bool = True) -> Field:
        """A string of at most ``max_bytes`` UTF-8 bytes (1 to 1024)."""
        return cls(name, "string", required, max_bytes)

    @classmethod
    def integer(
        cls, name: str, minimum: int | None = None, maximum: int | None = None, *, required: bool = True
    ) -> Field:
        """An integer within ``minimum`` and ``maximum`` (inclusive) and within plus or minus 2**53 - 1."""
        return cls(name, "integer", required, minimum=minimum, maximum=maximum)

    @classmethod
    def boolean(cls, name: str, *, required: bool = True) -> Field:
        """True or false."""
        return cls(name, "boolean", required)

    @classmethod
    def enum(
        cls, name: str, values: Sequence[str], *, max_bytes: int = MAX_BUS_STRING_BYTES, required: bool = True
    ) -> Field:
        """One of ``values`` (1 to 32 unique strings)."""
        return cls(name, "enum", required, max_bytes, values)


def utf8_size(text: str) -> int | None:
    """Bytes of ``text`` in UTF-8, or None when it holds a lone surrogate and has none."""
    if text.isascii():
        return len(text)
    try:
        return len(text.encode())
    except UnicodeEncodeError:
        return None


def shown(value: object) -> str:
    """A value for an error text: ASCII and at most 80 characters, without running any code of a foreign class."""
    if type(value) is str:
        return f"{value[:80]!a:.80}"
    if type(value) is int and value.bit_length() > _SHOWN_BITS:
        # Python refuses to print an integer of thousands of digits.
        return f"an integer of {value.bit_length()} bits"
    if value is None or type(value) in (bool, int, float):
        return f"{value!r:.80}"
    return f"a value of type {type(value).__name__}"


def name_fault(path: str, name: object) -> Fault | None:
    """What is wrong with a peer name or topic segment, if anything."""
    if type(name) is not str:
        return Fault(path, f"expected a string, got {type(name).__name__}")
    size = utf8_size(name)
    if size is not None and size > MAX_BUS_IDENTIFIER_BYTES:
        return Fault(
            path,
            "name too long",
            "resource_exhausted",
            "MAX_BUS_IDENTIFIER_BYTES",
            size,
            MAX_BUS_IDENTIFIER_BYTES,
        )
    if _SEGMENT.fullmatch(name) is None:
        return Fault(path, f"expected [a-z0-9][a-z0-9_-]*, got {shown(name)}")
    return None


def topic_fault(topic: object) -> Fault | None:
    """What is wrong with a topic's form, if anything: ``bus.<owner>.<name>``, 64 bytes a segment, 96 in all."""
    if type(topic) is not str:
        return Fault("topic", f"expected a string, got {type(topic).__name__}")
    segments = topic.split(".")
    if len(segments) != 3 or segments[0] != "bus":
        return Fault("topic", f"expected bus.<owner>.<name>, got {shown(topic)}")
    for segment in segments[1:]:
        if fault := name_fault("topic", segment):
            return fault
    if len(topic) > MAX_BUS_TOPIC_BYTES:
        return Fault(
            "topic", "topic too long", "resource_exhausted", "MAX_BUS_TOPIC_BYTES", len(topic), MAX_BUS_TOPIC_BYTES
        )
    return None


def declaration_faults(fields: object) -> list[Fault]:
    """Every fault of a topic's field list, in order, each with a path such as ``fields[2].max_bytes``."""
    if not isinstance(fields, list | tuple):
        return [Fault("fields", f"expected a list of Field, got {type(fields).__name__}")]
    faults: list[Fault] = []
    if len(fields) > MAX_BUS_FIELDS:
        faults.append(
            Fault("fields", "too many fields", "resource_exhausted", "MAX_BUS_FIELDS", len(fields), MAX_BUS_FIELDS)
        )
    seen: set[str] = set()
    for index, item in enumerate(fields):
        path = f"fields[{index}]"
        if type(item) is not Field:
            faults.append(Fault(path, f"expected a Field, got {type(item).__name__}"))
            continue
        faults.extend(_name_faults(path, item, seen))
        if type(item.kind) is not str or item.kind not in KINDS:
            faults.append(Fault(f"{path}.kind", f"expected one of {', '.join(KINDS)}, got {shown(item.kind)}"))
            continue
        if type(item.required) is not bool:
            faults.append(Fault(f"{path}.required", f"expected true or false, got {shown(item.required)}"))
        if size_fault := _max_bytes_fault(path, item):
            faults.append(size_fault)
        faults.extend(_range_faults(path, item))
        faults.extend(_value_faults(path, item))
    return faults


def _name_faults(path: str, item: Field, seen: set[str]) -> list[Fault]:
    name: object = item.name
    path = f"{path}.name"
    if type(name) is not str:
        return [Fault(path, f"expected a string, got {type(name).__name__}")]
    size = utf8_size(name)
    if size is not None and size > MAX_BUS_IDENTIFIER_BYTES:
        return [
            Fault(
                path, "name too long", "resource_exhausted", "MAX_BUS_IDENTIFIER_BYTES", size, MAX_BUS_IDENTIFIER_BYTES
            )
        ]
    if _IDENTIFIER.fullmatch(name) is None:
        return [Fault(path, f"expected an identifier, got {shown(name)}")]
    faults = []
    if name in seen:
        faults.append(Fault(path, f"duplicate field name {name!r}"))
    seen.add(name)
    if fragment := screening.forbidden_fragment(name):
        faults.append(Fault(path, f"field name {name!r} contains {fragment!r}"))
    return faults


def _max_bytes_fault(path: str, item: Field) -> Fault | None:
    path = f"{path}.max_bytes"
    if type(item.max_bytes) is not int or not 1 <= item.max_bytes <= MAX_PORTABLE_INTEGER:
        return Fault(path, f"expected a portable integer of at least 1, got {shown(item.max_bytes)}")
    if item.max_bytes > MAX_BUS_STRING_BYTES:
        return Fault(
            path,
            "max_bytes too large",
            "resource_exhausted",
            "MAX_BUS_STRING_BYTES",
            item.max_bytes,
            MAX_BUS_STRING_BYTES,
        )
    return None


def _range_faults(path: str, item: Field) -> list[Fault]:
    faults = []
    sound: list[int] = []
    for key in ("minimum", "maximum"):
        bound: object = getattr(item, key)
        if bound is None:
            continue
        if item.kind != "integer":
            faults.append(Fault(f"{path}.{key}", f"not allowed on a field of kind {item.kind}"))
        elif type(bound) is not int:
            faults.append(Fault(f"{path}.{key}", f"expected an integer, got {shown(bound)}"))
        elif abs(bound) > MAX_PORTABLE_INTEGER:
            faults.append(Fault(f"{path}.{key}", "expected an integer within +-(2**53 - 1)"))
        else:
            sound.append(bound)
    if len(sound) == 2 and sound[0] > sound[1]:
        faults.append(Fault(f"{path}.minimum", f"minimum {sound[0]} is above maximum {sound[1]}"))
    return faults


def _value_faults(path: str, item: Field) -> list[Fault]:
    values: object = item.values
    path = f"{path}.values"
    if not isinstance(values, tuple):
        return [Fault(path, f"expected a list of strings, got {type(values).__name__}")]
    if item.kind != "enum":
        return [Fault(path, f"not allowed on a field of kind {item.kind}")] if values else []
    if not values:
        return [Fault(path, "expected at least one value")]
    faults = []
    if len(values) > MAX_BUS_ENUM_VALUES:
        faults.append(
            Fault(
                path, "too many values", "resource_exhausted", "MAX_BUS_ENUM_VALUES", len(values), MAX_BUS_ENUM_VALUES
            )
        )
    seen: set[str] = set()
    sound = type(item.max_bytes) is int and item.max_bytes >= 1
    for index, value in enumerate(values):
        at = f"{path}[{index}]"
        if fault := string_fault(at, value, item.max_bytes if sound else MAX_BUS_STRING_BYTES):
            faults.append(fault)
        elif value in seen:
            faults.append(Fault(at, f"duplicate value {shown(value)}"))
        else:
            seen.add(value)
    return faults


def string_fault(path: str, value: object, max_bytes: int) -> Fault | None:
    """What is wrong with one string of a payload or an enum: type, encoding, size, then screening."""
    if type(value) is not str:
        return Fault(path, f"expected a string, got {type(value).__name__}")
    size = utf8_size(value)
    if size is None:
        return Fault(path, "contains a lone surrogate")
    bound = min(max_bytes, MAX_BUS_STRING_BYTES)
    if size > bound:
        limit = "max_bytes" if max_bytes <= MAX_BUS_STRING_BYTES else "MAX_BUS_STRING_BYTES"
        return Fault(path, "string too long", "resource_exhausted", limit, size, bound)
    reason = screening.refusal(value)
    return Fault(path, reason) if reason else None
