"""Arguments made up from a schema: they satisfy it, and are as small as may be."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import jsonschema
import pytest
from hypothesis import given
from hypothesis import strategies as st

from broker.conform.schema_arguments import make_arguments
from broker.limits import MAX_SYNTHESIS_VALUES

SCHEMAS: list[tuple[Any, Any]] = [
    ({}, {}),
    (None, {}),
    ({"type": "object"}, {}),
    ({"type": "object", "properties": {"a": {"type": "string"}}}, {}),
    ({"type": "object", "properties": {"a": {"type": "string"}}, "required": ["a"]}, {"a": "conformance"}),
    ({"type": "object", "required": ["a"]}, {"a": "conformance"}),
    (
        {
            "type": "object",
            "properties": {
                "n": {"type": "integer", "minimum": 5},
                "x": {"type": "number", "exclusiveMaximum": 0.5},
                "f": {"type": "boolean"},
                "e": {"enum": ["red", "green"]},
                "c": {"const": 7},
                "l": {"type": "array", "items": {"type": "integer"}, "minItems": 2},
                "s": {"type": "string", "minLength": 12, "maxLength": 13},
                "t": {"type": "string", "maxLength": 3},
                "u": {"type": ["null", "string"]},
                "d": {"type": "string", "default": "given"},
                "o": {"anyOf": [{"type": "integer"}, {"type": "null"}]},
            },
            "required": ["n", "x", "f", "e", "c", "l", "s", "t", "u", "d", "o"],
        },
        {
            "n": 5,
            "x": -0.5,
            "f": False,
            "e": "red",
            "c": 7,
            "l": [1, 1],
            "s": "conformancex",
            "t": "con",
            "u": "conformance",
            "d": "given",
            "o": 1,
        },
    ),
    (
        {
            "type": "object",
            "properties": {"p": {"$ref": "#/$defs/point"}},
            "required": ["p"],
            "$defs": {"point": {"type": "object", "properties": {"x": {"type": "integer"}}, "required": ["x"]}},
        },
        {"p": {"x": 1}},
    ),
    (
        {
            "allOf": [
                {"type": "object", "properties": {"a": {"type": "integer", "multipleOf": 4}}, "required": ["a"]},
                {"properties": {"b": {"type": "string", "format": "uri"}}, "required": ["b"]},
            ]
        },
        {"a": 4, "b": "https://example.org/"},
    ),
]


@pytest.mark.parametrize(("schema", "arguments"), SCHEMAS)
def test_the_smallest_arguments(schema: Any, arguments: Any) -> None:
    assert make_arguments(schema) == arguments
    if schema is not None:
        jsonschema.validate(arguments, schema)


def test_what_refers_to_itself_comes_to_an_end() -> None:
    schema = {"type": "object", "properties": {"next": {"$ref": "#"}}, "required": ["next"]}
    assert set(make_arguments(schema)) == {"next"}


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3),
    max_leaves=8,
)
KEYWORDS = [
    "type",
    "properties",
    "required",
    "items",
    "enum",
    "anyOf",
    "allOf",
    "$ref",
    "minimum",
    "minLength",
    "format",
]


@given(st.dictionaries(st.sampled_from(KEYWORDS), json_values))
def test_a_schema_that_is_none_raises_nothing(schema: dict[str, Any]) -> None:
    assert isinstance(make_arguments(schema), dict)


def test_lists_of_lists_are_made_up_to_a_bound() -> None:
    schema: dict[str, Any] = {"type": "null"}
    for _ in range(8):
        schema = {"type": "array", "minItems": 64, "items": schema}
    made = make_arguments({"type": "object", "required": ["deep"], "properties": {"deep": schema}})
    assert sum(1 for _ in _values(made)) <= MAX_SYNTHESIS_VALUES


def _values(value: Any) -> Iterator[Any]:
    yield value
    for member in value.values() if isinstance(value, dict) else value if isinstance(value, list) else ():
        yield from _values(member)


@pytest.mark.parametrize(
    "number",
    [
        {"type": "integer", "minimum": float("inf")},
        {"type": "number", "minimum": 10**400},
        {"type": "number", "multipleOf": 5e-324},
        {"type": "number", "minimum": 1e308, "multipleOf": 0.1},
    ],
)
def test_numbers_beyond_any_float_are_not_tried(number: dict[str, Any]) -> None:
    assert make_arguments({"type": "object", "required": ["n"], "properties": {"n": number}}) == {"n": 1}
