"""Arguments for a tool nobody has said anything about but its JSON schema: the smallest that satisfy it.

What is made up is deliberately dull: required members only, the first of several choices, the shortest text, the
smallest number. A schema may ask for what cannot be made up (a pattern, a condition); the result then is a best
attempt, and the tool is free to refuse it.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any, Final

from broker.limits import MAX_SYNTHESIS_CHARS, MAX_SYNTHESIS_DEPTH, MAX_SYNTHESIS_ITEMS, MAX_SYNTHESIS_VALUES

_FORMATS: Final[Mapping[str, str]] = {
    "date": "2026-01-01",
    "date-time": "2026-01-01T00:00:00Z",
    "time": "00:00:00Z",
    "email": "someone@example.org",
    "hostname": "localhost",
    "ipv4": "127.0.0.1",
    "ipv6": "::1",
    "uri": "https://example.org/",
    "uuid": "00000000-0000-4000-8000-000000000000",
}
_WORD: Final = "conformance"


def make_arguments(schema: Any) -> Any:
    """The smallest arguments the schema of a tool's parameters allows; ``{}`` for a schema that says nothing."""
    value = _Maker(schema).make(schema, 0)
    return value if isinstance(value, dict) else {}


class _Maker:
    """Makes the values of one schema up, a bounded number of them: lists of lists multiply."""

    def __init__(self, root: Any) -> None:
        self._root = root
        self._left = MAX_SYNTHESIS_VALUES

    def make(self, schema: Any, depth: int) -> Any:
        """A value of ``schema``, ``depth`` schemas below the first; None where that goes too far."""
        self._left -= 1
        if not isinstance(schema, dict) or depth > MAX_SYNTHESIS_DEPTH or self._left < 0:
            return None
        if "$ref" in schema:
            return self.make(self._resolve(schema["$ref"]), depth + 1)
        if "const" in schema:
            return schema["const"]
        for key in ("enum", "examples"):
            choices = schema.get(key)
            if isinstance(choices, list) and choices:
                return choices[0]
        if "default" in schema:
            return schema["default"]
        for key in ("anyOf", "oneOf"):
            choices = schema.get(key)
            if isinstance(choices, list) and choices:
                base = {name: value for name, value in schema.items() if name != key}
                return self.make(_merged(base, choices[0]), depth + 1)
        parts = schema.get("allOf")
        if isinstance(parts, list):
            whole = {name: value for name, value in schema.items() if name != "allOf"}
            for part in parts:
                referred = isinstance(part, dict) and "$ref" in part
                whole = _merged(whole, self._resolve(part["$ref"]) if referred else part)
            return self.make(whole, depth + 1)
        return self._of_type(schema, depth)

    def _of_type(self, schema: dict[str, Any], depth: int) -> Any:
        kind = schema.get("type")
        if isinstance(kind, list):
            kind = next((name for name in kind if name != "null"), "null")
        if kind == "object" or (kind is None and ("properties" in schema or depth == 0)):
            return self._object(schema, depth)
        if kind == "array":
            count = min(_whole(schema.get("minItems"), 0), MAX_SYNTHESIS_ITEMS)
            return [self.make(schema.get("items", {}), depth + 1) for _ in range(count) if self._left > 0]
        if kind == "string":
            return _text(schema)
        if kind in ("integer", "number"):
            return _number(schema)
        if kind == "boolean":
            return False
        return None if kind == "null" else _WORD

    def _object(self, schema: dict[str, Any], depth: int) -> dict[str, Any]:
        required, properties = schema.get("required"), schema.get("properties")
        properties = properties if isinstance(properties, dict) else {}
        given = required if isinstance(required, list) else []
        names = dict.fromkeys(name for name in given if isinstance(name, str))
        least = _whole(schema.get("minProperties"), 0)
        for name in properties:
            if len(names) >= least:
                break
            names[name] = None
        return {name: self.make(properties.get(name, {"type": "string"}), depth + 1) for name in names}

    def _resolve(self, reference: Any) -> Any:
        """What a reference inside of the same schema points at; ``None`` for any other."""
        if not isinstance(reference, str) or not reference.startswith("#"):
            return None
        found = self._root
        for part in filter(None, reference[1:].split("/")):
            name = part.replace("~1", "/").replace("~0", "~")
            if not isinstance(found, dict) or name not in found:
                return None
            found = found[name]
        return found


def _text(schema: dict[str, Any]) -> str:
    text = _FORMATS.get(str(schema.get("format")), _WORD)
    shortest, longest = _whole(schema.get("minLength"), 0), _whole(schema.get("maxLength"), MAX_SYNTHESIS_CHARS)
    if len(text) < shortest:
        text += "x" * (min(shortest, MAX_SYNTHESIS_CHARS) - len(text))
    return text[:longest]


def _number(schema: dict[str, Any]) -> int | float:
    low = _bound(schema, "minimum", "exclusiveMinimum", 1)
    high = _bound(schema, "maximum", "exclusiveMaximum", -1)
    value: float = 1
    if low is not None and value < low:
        value = low
    if high is not None and value > high:
        value = high
    step = schema.get("multipleOf")
    try:
        if isinstance(step, (int, float)) and not isinstance(step, bool) and step > 0:
            value = math.ceil(value / step) * step
        return math.ceil(value) if schema.get("type") == "integer" or float(value).is_integer() else value
    except OverflowError:  # beyond what a float holds: the tool may refuse it
        return 1


def _bound(schema: dict[str, Any], inclusive: str, exclusive: str, step: int) -> float | None:
    found = schema.get(exclusive)
    if isinstance(found, (int, float)) and not isinstance(found, bool):
        return found + step
    found = schema.get(inclusive)
    return found if isinstance(found, (int, float)) and not isinstance(found, bool) else None


def _whole(value: Any, otherwise: int) -> int:
    return value if type(value) is int and value >= 0 else otherwise


def _merged(base: dict[str, Any], part: Any) -> dict[str, Any]:
    if not isinstance(part, dict):
        return base
    merged = {**base, **part}
    for key in ("properties", "required"):
        ours, theirs = base.get(key), part.get(key)
        if isinstance(ours, dict) and isinstance(theirs, dict):
            merged[key] = {**ours, **theirs}
        elif isinstance(ours, list) and isinstance(theirs, list):
            merged[key] = [*ours, *theirs]
    return merged
