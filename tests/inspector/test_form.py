"""Forms from JSON schemas: which fields, what is typed into them, and schemas that are no use."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from broker.errors import InvalidParamsError
from broker.inspector import Form, FormField
from broker.inspector.form import read_json
from broker.limits import MAX_SCHEMA_PROPERTY_NAME_BYTES

SCHEMA = {
    "type": "object",
    "properties": {
        "limit": {"type": "integer", "default": 10, "description": "at most\x1b[31m"},
        "path": {"type": "string"},
        "mode": {"enum": ["fast", "slow"], "type": "string", "default": "fast"},
        "level": {"enum": [1, None, "x"]},
        "deep": {"type": "boolean"},
        "ratio": {"type": "number"},
        "tags": {"type": "array", "items": {"type": "string"}},
        "any": {"type": ["string", "null"]},
    },
    "required": ["path", "tags"],
}


def test_fields_are_those_of_the_schema_the_required_ones_first() -> None:
    assert Form.from_schema(SCHEMA).fields == (
        FormField("path", "string", True),
        FormField("tags", "json", True),
        FormField("limit", "integer", False, "at most\\x1b[31m", (), "10"),
        FormField("mode", "string", False, "", ("fast", "slow"), "fast"),
        FormField("level", "json", False, "", ("1", "null", '"x"')),
        FormField("deep", "boolean", False),
        FormField("ratio", "number", False),
        FormField("any", "json", False),
    )


def test_what_is_typed_becomes_typed_values_and_an_empty_option_is_left_out() -> None:
    form = Form.from_schema(SCHEMA)
    typed = {
        "path": "",
        "tags": '["a"]',
        "limit": "7",
        "mode": "slow",
        "level": "null",
        "deep": "false",
        "ratio": "0.5",
        "any": '"5"',
    }
    assert form.read(typed) == {
        "path": "",
        "tags": ["a"],
        "limit": 7,
        "mode": "slow",
        "level": None,
        "deep": False,
        "ratio": 0.5,
        "any": "5",
    }
    assert form.read({"path": "x", "tags": "[]"}) == {"path": "x", "tags": []}


def test_every_wrong_field_is_named_at_once() -> None:
    with pytest.raises(InvalidParamsError) as caught:
        Form.from_schema(SCHEMA).read(
            {"limit": "7.5", "mode": "odd", "deep": "yes", "ratio": "true", "any": "NaN", "level": "2"}
        )
    assert [str(fault) for fault in caught.value.faults] == [
        "tags: a value is required",
        "limit: expected a whole number",
        "mode: expected one of fast, slow",
        'level: expected one of 1, null, "x"',
        "deep: expected true or false",
        "ratio: expected a number",
        "any: expected JSON: NaN is no JSON",
    ]


@pytest.mark.parametrize("text", ["1_000", "\u0663", "9" * 5_000, "0x10", "1e3"])
def test_a_whole_number_is_written_in_digits(text: str) -> None:
    with pytest.raises(InvalidParamsError, match="limit: expected a whole number"):
        Form.from_schema(SCHEMA).read({"limit": text, "tags": "[]"})
    assert Form.from_schema(SCHEMA).read({"limit": " -7 ", "tags": "[]"})["limit"] == -7


@pytest.mark.parametrize("schema", [None, True, [], {"type": "string"}, {"properties": []}, {"anyOf": [{}]}])
def test_a_schema_without_properties_asks_for_json(schema: Any) -> None:
    form = Form.from_schema(schema)
    assert form.fields == ()
    assert form.problem == "the schema names no properties: write the arguments as JSON"


def test_an_object_without_properties_has_an_empty_form() -> None:
    assert Form.from_schema({"type": "object"}) == Form(())


def test_json_arguments_are_read_as_they_stand() -> None:
    assert read_json(" ") == {}
    assert read_json('{"a": [1]}') == {"a": [1]}
    with pytest.raises(InvalidParamsError, match="the arguments are not JSON: Infinity is no JSON"):
        read_json("Infinity")
    with pytest.raises(InvalidParamsError, match="the arguments are not JSON"):
        read_json("[" * 100_000)


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda inner: (
        st.lists(inner) | st.dictionaries(st.sampled_from(["type", "enum", "properties", "default", "a"]), inner)
    ),
    max_leaves=8,
)


@settings(max_examples=50)
@given(st.fixed_dictionaries({"properties": st.dictionaries(st.text(), json_values), "required": json_values}))
def test_no_schema_breaks_it(schema: dict[str, Any]) -> None:
    form = Form.from_schema(schema)
    short = {name for name in schema["properties"] if len(name.encode()) <= MAX_SCHEMA_PROPERTY_NAME_BYTES}
    assert {field.name for field in form.fields} == short
    try:
        arguments = form.read({field.name: field.default for field in form.fields})
    except InvalidParamsError as error:
        assert {fault.path for fault in error.faults} <= set(schema["properties"])
    else:
        assert set(arguments) <= set(schema["properties"])
