"""What one tool definition of an initialize answer must be: name, description, parameters, output schema.

The output schema is judged by its keywords, its depth and its property names only; whether it makes sense as a schema
is for whoever validates results with it.

Source: octet reference, model ``ToolDefinition`` and "Bounds"; octet notes 3 for the keyword list.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, Final

from broker import canonical
from broker.errors import CanonicalError, Fault
from broker.limits import (
    MAX_CATALOGUE_SCHEMA_BYTES,
    MAX_JSON_DEPTH,
    MAX_SCHEMA_PROPERTY_NAME_BYTES,
    MAX_TOOL_DESCRIPTION_BYTES,
    MAX_TOOL_NAME_BYTES,
)
from broker.wire.jsonrpc import ABSENT
from broker.wire.octet.models import ToolDefinition
from broker.wire.octet.schema import over, wrong_type
from broker.wire.quoting import CONTROL_CHARACTER, quote, utf8_length

OUTPUT_SCHEMA_KEYWORDS: Final = frozenset(
    (
        *("$schema", "title", "description", "default", "examples", "type", "enum", "const"),
        *("properties", "required", "additionalProperties", "minProperties", "maxProperties"),
        *("items", "minItems", "maxItems", "uniqueItems", "minLength", "maxLength"),
        *("minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum", "allOf", "anyOf", "oneOf"),
    )
)

_SCHEMA_OR_BOOLEAN: Final = ("additionalProperties", "items")
_SCHEMA_LISTS: Final = ("allOf", "anyOf", "oneOf")


def tool_faults(tools: Iterable[ToolDefinition], *, measure: Callable[[Any], int] = canonical.size) -> list[Fault]:
    """Every fault of the definitions of a catalogue, tool by tool, then that of their schemas' total size.

    ``measure`` gives the bytes of a schema on the wire it came by, or raises
    :class:`~broker.errors.CanonicalError`.
    """
    faults: list[Fault] = []
    total = 0
    for index, tool in enumerate(tools):
        path = f"tools[{index}]"
        _check_name(tool.name, f"{path}.name", faults)
        _check_description(tool.description, f"{path}.description", faults)
        if type(tool.parameters) is not dict:
            faults.append(wrong_type(f"{path}.parameters", "an object", tool.parameters))
        if tool.output_schema is not ABSENT:
            _check_schema(tool.output_schema, f"{path}.output_schema", faults)
        for member, schema in (("parameters", tool.parameters), ("output_schema", tool.output_schema)):
            if schema is not ABSENT:
                total += _size(schema, f"{path}.{member}", faults, measure)
    if total > MAX_CATALOGUE_SCHEMA_BYTES:
        faults.append(over("tools", "has schemas that are too large together", "MAX_CATALOGUE_SCHEMA_BYTES", total))
    return faults


def _check_name(name: str, path: str, faults: list[Fault]) -> None:
    size = utf8_length(name)
    if size > MAX_TOOL_NAME_BYTES:
        faults.append(over(path, f"{quote(name)} is too long", "MAX_TOOL_NAME_BYTES", size))
    elif not name:
        faults.append(Fault(path, "must not be empty"))
    elif CONTROL_CHARACTER.search(name):
        faults.append(Fault(path, f"{quote(name)} has a control character"))


def _check_description(description: str, path: str, faults: list[Fault]) -> None:
    size = utf8_length(description)
    if size > MAX_TOOL_DESCRIPTION_BYTES:
        faults.append(over(path, "is too long", "MAX_TOOL_DESCRIPTION_BYTES", size))
    elif not description.strip():
        faults.append(Fault(path, "must not be blank"))


def _size(schema: Any, path: str, faults: list[Fault], measure: Callable[[Any], int]) -> int:
    try:
        return measure(schema)
    except CanonicalError as error:
        faults.append(Fault(path, str(error)))
        return 0


def _check_schema(root: Any, root_path: str, faults: list[Fault]) -> None:
    pending: list[tuple[Any, str, int]] = [(root, root_path, 1)]
    while pending:
        schema, path, depth = pending.pop()
        if type(schema) is not dict:
            faults.append(wrong_type(path, "an object", schema))
            continue
        if depth > MAX_JSON_DEPTH:
            faults.append(
                Fault(path, "is nested too deeply", "invalid_params", "MAX_JSON_DEPTH", depth, MAX_JSON_DEPTH)
            )
            continue
        for keyword in sorted(schema.keys() - OUTPUT_SCHEMA_KEYWORDS):
            faults.append(Fault(f"{path}.{quote(keyword)}", "is not an allowed keyword"))
        inner = [*_properties(schema, path, faults), *_schema_lists(schema, path, faults)]
        for keyword in _SCHEMA_OR_BOOLEAN:
            if keyword in schema and type(schema[keyword]) is not bool:
                inner.append((schema[keyword], f"{path}.{keyword}"))
        pending.extend((value, at, depth + 1) for value, at in reversed(inner))


def _properties(schema: dict[str, Any], path: str, faults: list[Fault]) -> list[tuple[Any, str]]:
    if "properties" not in schema:
        return []
    properties = schema["properties"]
    if type(properties) is not dict:
        faults.append(wrong_type(f"{path}.properties", "an object", properties))
        return []
    for name in properties:
        size = utf8_length(name)
        if size > MAX_SCHEMA_PROPERTY_NAME_BYTES:
            at = f"{path}.properties.{quote(name)}"
            faults.append(over(at, "has a name that is too long", "MAX_SCHEMA_PROPERTY_NAME_BYTES", size))
    return [(value, f"{path}.properties.{quote(name)}") for name, value in properties.items()]


def _schema_lists(schema: dict[str, Any], path: str, faults: list[Fault]) -> list[tuple[Any, str]]:
    inner: list[tuple[Any, str]] = []
    for keyword in _SCHEMA_LISTS:
        if keyword not in schema:
            continue
        if type(schema[keyword]) is list:
            inner.extend((value, f"{path}.{keyword}[{index}]") for index, value in enumerate(schema[keyword]))
        else:
            faults.append(wrong_type(f"{path}.{keyword}", "an array", schema[keyword]))
    return inner
