"""Arguments for a tool nobody has said anything about but its JSON schema: the smallest that satisfy it.

What is made up is deliberately dull: required members only, the first of several choices, the shortest text, the
smallest number. A schema may ask for what cannot be made up (a pattern, a condition); the result then is a best
attempt, and the tool is free to refuse it.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any, Final

from broker.limits import MAX_SYNTHESIS_CHARS, MAX_SYNTHESIS_DEPTH, MAX_SYNTHESIS_ITEMS

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
    value = _make(schema, schema, 0)
    return value if isinstance(value, dict) else {}


def _make(schema: Any, root: Any, depth: int) -> Any:
    if not isinstance(schema, dict) or depth > MAX_SYNTHESIS_DEPTH:
        return None
    if "$ref" in schema:
        return _make(_resolve(schema["$ref"], root), root, depth + 1)
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
            return _make(_merged(base, choices[0]), root, depth + 1)
    parts = schema.get("allOf")
    if isinstance(parts, list):
        whole = {name: value for name, value in schema.items() if name != "allOf"}
        for part in parts:
            referred = isinstance(part, dict) and "$ref" in part
            whole = _merged(whole, _resolve(part["$ref"], root) if referred else part)
        return _make(whole, root, depth + 1)
    return _of_type(schema, root, depth)


def _of_type(schema: dict[str, Any], root: Any, depth: int) -> Any:
    kind = schema.get("type")
    if isinstance(kind, list):
        kind = next((name for name in kind if name != "null"), "null")
    if kind == "object" or (kind is None and ("properties" in schema or depth == 0)):
        return _object(schema, root, depth)
    if kind == "array":
        count = _whole(schema.get("minItems"), 0)
        return [_make(schema.get("items", {}), root, depth + 1) for _ in range(min(count, MAX_SYNTHESIS_ITEMS))]
    if kind == "string":
        return _text(schema)
    if kind in ("integer", "number"):
        return _number(schema)
    if kind == "boolean":
        return False
    return None if kind == "null" else _WORD


def _object(schema: dict[str, Any], root: Any, depth: int) -> dict[str, Any]:
    required, properties = schema.get("required"), schema.get("properties")
    properties = properties if isinstance(properties, dict) else {}
    names = [name for name in required if isinstance(name, str)] if isinstance(required, list) else []
    for name in properties:
        if len(names) >= _whole(schema.get("minProperties"), 0):
            break
        if name not in names:
            names.append(name)
    return {name: _make(properties.get(name, {"type": "string"}), root, depth + 1) for name in names}


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
    if isinstance(step, (int, float)) and not isinstance(step, bool) and step > 0:
        value = math.ceil(value / step) * step
    return math.ceil(value) if schema.get("type") == "integer" or float(value).is_integer() else value


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


def _resolve(reference: Any, root: Any) -> Any:
    """What a reference inside of the same schema points at; ``None`` for any other."""
    if not isinstance(reference, str) or not reference.startswith("#"):
        return None
    found = root
    for part in filter(None, reference[1:].split("/")):
        name = part.replace("~1", "/").replace("~0", "~")
        if not isinstance(found, dict) or name not in found:
            return None
        found = found[name]
    return found
