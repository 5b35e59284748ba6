"""The payload check of one topic, compiled to Python once per distinct declaration.

``measure`` is the fast path: it answers only "fine, and this many canonical bytes" or "not fine". ``faults`` is the
slow path that says everything that is wrong. Both follow the same rules, and a property test holds them to it.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from typing import Any, Final

from attrs import frozen

from broker.bus.fields import Field, shown, string_fault
from broker.bus.screening import refusal
from broker.canonical import string_size
from broker.errors import Fault
from broker.limits import MAX_BUS_TOPICS, MAX_PORTABLE_INTEGER

NOT_FINE: Final = -1

Measure = Callable[[dict[str, Any]], int]


@frozen(eq=False)
class Schema:
    """A compiled declaration: ``measure(payload)`` gives the payload's canonical bytes, or ``NOT_FINE``."""

    fields: tuple[Field, ...]
    measure: Measure

    def faults(self, payload: dict[str, Any]) -> list[Fault]:
        """Every fault of a payload, declared fields first and in their order; empty when it is fine."""
        faults: list[Fault] = []
        for item in self.fields:
            path = f"payload.{item.name}"
            if item.name not in payload:
                if item.required:
                    faults.append(Fault(path, "missing"))
            elif fault := _value_fault(path, item, payload[item.name]):
                faults.append(fault)
        known = {item.name for item in self.fields}
        for name in payload:
            if type(name) is not str:
                faults.append(Fault("payload", f"expected strings as field names, got {shown(name)}"))
            elif name not in known:
                plain = name.isidentifier() and name.isascii()
                faults.append(Fault(f"payload.{name if plain else shown(name):.80}", "not a declared field"))
        return faults


def _value_fault(path: str, item: Field, value: object) -> Fault | None:
    if item.kind == "string":
        return string_fault(path, value, item.max_bytes)
    if item.kind == "boolean":
        return None if type(value) is bool else Fault(path, f"expected a boolean, got {type(value).__name__}")
    if item.kind == "enum":
        if type(value) is not str:
            return Fault(path, f"expected a string, got {type(value).__name__}")
        return None if value in item.values else Fault(path, f"{shown(value)} is not one of the declared values")
    if type(value) is not int:
        return Fault(path, f"expected an integer, got {type(value).__name__}")
    low, high = _integer_range(item)
    return None if low <= value <= high else Fault(path, _outside(value, low, high))


def _outside(value: int, low: int, high: int) -> str:
    shown = str(value) if abs(value) <= MAX_PORTABLE_INTEGER else "an integer beyond +-(2**53 - 1)"
    return f"{shown} is outside {low} to {high}"


def _integer_range(item: Field) -> tuple[int, int]:
    low = -MAX_PORTABLE_INTEGER if item.minimum is None else item.minimum
    high = MAX_PORTABLE_INTEGER if item.maximum is None else item.maximum
    return low, high


@lru_cache(maxsize=8 * MAX_BUS_TOPICS)
def compile_schema(fields: tuple[Field, ...]) -> Schema:
    """The schema of a checked declaration; equal declarations share one."""
    namespace: dict[str, Any] = {"refusal": refusal, "ABSENT": object()}
    required = sum(item.required for item in fields)
    lines = ["def measure(payload):", " count = len(payload)", " size = count + 1 if count else 2"]
    if required < len(fields):
        lines += [f" seen = {required}", " get = payload.get"]
    else:
        lines += [f" if count != {required}: return -1"]
    # A key of a foreign class may equal a field's name and still not be one.
    lines += [" for name in payload:", "  if type(name) is not str: return -1"]
    # One handler for all: a missing required field, a value that is not in an enum, a lone surrogate.
    lines += [" try:"]
    for index, item in enumerate(fields):
        lines += ["  " + line for line in _field_lines(index, item, namespace)]
    lines += ["  pass", " except (KeyError, UnicodeEncodeError):", "  return -1"]
    lines += [" return size if seen == count else -1" if required < len(fields) else " return size"]
    # Only checked identifiers and literals reach the source: declarations are validated before they are compiled.
    exec(compile("\n".join(lines), "<payload check>", "exec"), namespace)  # noqa: S102
    measure: Measure = namespace["measure"]
    return Schema(fields, measure)


def _field_lines(index: int, item: Field, namespace: dict[str, Any]) -> list[str]:
    key_bytes = string_size(item.name) + 1
    check = _check_lines(index, item, key_bytes, namespace)
    if item.required:
        return [f"value = payload[{item.name!r}]", *check]
    return [
        f"value = get({item.name!r}, ABSENT)",
        "if value is not ABSENT:",
        " seen += 1",
        *(" " + line for line in check),
    ]


def _check_lines(index: int, item: Field, key_bytes: int, namespace: dict[str, Any]) -> list[str]:
    if item.kind == "boolean":
        return [
            f"if value is True: size += {key_bytes + 4}",
            f"elif value is False: size += {key_bytes + 5}",
            "else: return -1",
        ]
    if item.kind == "integer":
        low, high = _integer_range(item)
        return [
            f"if type(value) is not int or not {low} <= value <= {high}: return -1",
            f"size += {key_bytes + 1} if 0 <= value <= 9 else {key_bytes} + len(str(value))",
        ]
    if item.kind == "enum":
        namespace[f"sizes_{index}"] = {value: string_size(value) + key_bytes for value in item.values}
        return ["if type(value) is not str: return -1", f"size += sizes_{index}[value]"]
    return [
        "if type(value) is not str: return -1",
        "length = len(value) if value.isascii() else len(value.encode())",
        f"if length > {item.max_bytes}: return -1",
        "if not value.isalnum():",
        " if refusal(value) is not None: return -1",
        # Screening leaves only two characters that a canonical string escapes.
        " if '\"' in value or '\\\\' in value: length += value.count('\"') + value.count('\\\\')",
        f"size += length + {key_bytes + 2}",
    ]
