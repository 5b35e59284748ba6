"""The compiled payload check and the one that explains: they agree on every payload, and the size is exact."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from broker import Field, canonical
from broker.bus.fields import declaration_faults
from broker.bus.schema import NOT_FINE, compile_schema

PORTABLE = 9_007_199_254_740_991
# "ABSENT" and the others are words of the generated code: a field of that name must not disturb it.
NAMES = [
    "a",
    "b",
    "value",
    "payload",
    "size",
    "seen",
    "count",
    "ABSENT",
    "refusal",
    "get",
    "class",
    "None",
    "_",
    "long_name_9",
]

names = st.sampled_from(NAMES)
integers = st.one_of(
    st.integers(-20, 20), st.integers(), st.sampled_from([PORTABLE, -PORTABLE, PORTABLE + 1, -PORTABLE - 1, 1 << 70])
)
SPECIAL = [
    "", "x", "é", "😀", '"', "\\", "a b", "x" * 1024, "é" * 512, "x" * 1025, '"' * 1024, "😀" * 256 + "x",
    "\ud800", "a\nb", "a@b", "/x", "~/x", "c:/", "1 234567", "sk-12345678", "bearer x", "-----BEGIN",
    "task-force-alpha", "1.2.3",
]  # fmt: skip
pieces = st.one_of(st.text(max_size=12), st.sampled_from(SPECIAL))
texts = st.one_of(pieces, st.tuples(pieces, pieces).map("".join))
portable = st.integers(-PORTABLE, PORTABLE)


@st.composite
def fields(draw: st.DrawFn, name: str) -> Field:
    required = draw(st.booleans())
    kind = draw(st.sampled_from(["string", "integer", "boolean", "enum"]))
    if kind == "string":
        return Field.string(name, draw(st.sampled_from([1, 4, 12, 1024])), required=required)
    if kind == "integer":
        low = draw(st.one_of(st.none(), st.integers(-20, 20), portable))
        high = draw(st.one_of(st.none(), st.integers(-20, 20), portable))
        if low is not None and high is not None and low > high:
            low, high = high, low
        return Field.integer(name, low, high, required=required)
    if kind == "boolean":
        return Field.boolean(name, required=required)
    values = draw(st.lists(texts, min_size=1, max_size=5, unique=True))
    usable = [value for value in values if not declaration_faults([Field.enum("x", [value])])]
    return Field.enum(name, usable or ["only"], required=required)


@st.composite
def declarations(draw: st.DrawFn) -> tuple[Field, ...]:
    chosen = draw(st.lists(names, max_size=6, unique=True))
    declaration = tuple(draw(fields(name)) for name in chosen)
    assert declaration_faults(declaration) == []
    return declaration


wild: st.SearchStrategy[Any] = st.one_of(
    texts,
    integers,
    st.booleans(),
    st.none(),
    st.floats(),
    st.binary(max_size=2),
    st.just([]),
    st.just({}),
    st.just({"a": 1}),
)


def fitting(field: Field) -> st.SearchStrategy[Any]:
    """Values of the right type, mostly of the right size."""
    if field.kind == "string":
        return texts
    if field.kind == "boolean":
        return st.booleans()
    if field.kind == "enum":
        return st.sampled_from(field.values)
    low = -PORTABLE if field.minimum is None else field.minimum
    high = PORTABLE if field.maximum is None else field.maximum
    return st.one_of(st.integers(low, high), st.sampled_from([low, high, low - 1, high + 1]))


@st.composite
def cases(draw: st.DrawFn) -> tuple[tuple[Field, ...], dict[Any, Any]]:
    declaration = draw(declarations())
    payload: dict[Any, Any] = {}
    for field in draw(st.permutations(declaration)):
        fate = draw(st.integers(0, 9))
        if fate == 0:
            continue
        payload[field.name] = draw(wild if fate == 1 else fitting(field))
    if draw(st.integers(0, 9)) == 0:
        payload[draw(st.one_of(names, texts, st.integers(), st.none()))] = draw(wild)
    return declaration, payload


@pytest.mark.spec(
    "octet.bus.payload-faults", "octet.bus.payload-types", "octet.bus.message-size", "octet.canonical.measured-size"
)
@settings(max_examples=400, deadline=None)
@given(cases())
def test_the_fast_check_and_the_one_that_explains_agree(case: tuple[tuple[Field, ...], dict[Any, Any]]) -> None:
    declaration, payload = case
    schema = compile_schema(declaration)
    size = schema.measure(payload)
    faults = schema.faults(payload)
    assert (size == NOT_FINE) == bool(faults), faults
    if not faults:
        assert size == len(canonical.encode(payload))
        assert canonical.decode(canonical.encode(payload)) == payload
    for fault in faults:
        assert str(fault).isascii()


@settings(max_examples=100, deadline=None)
@given(declarations())
def test_equal_declarations_share_one_schema_and_a_fitting_payload_fits(declaration: tuple[Field, ...]) -> None:
    assert compile_schema(declaration) is compile_schema(tuple(declaration))
    plain: dict[str, Any] = {"string": "", "integer": None, "boolean": True, "enum": None}
    payload = {field.name: plain[field.kind] for field in declaration}
    for field in declaration:
        if field.kind == "integer":
            payload[field.name] = field.minimum if field.minimum is not None else field.maximum or 0
        elif field.kind == "enum":
            payload[field.name] = field.values[0]
    assert compile_schema(declaration).measure(payload) == len(canonical.encode(payload))


@pytest.mark.parametrize("name", NAMES)
def test_a_field_may_have_the_name_of_anything_in_the_generated_code(name: str) -> None:
    schema = compile_schema((Field.string(name), Field.boolean("other", required=False)))
    assert schema.measure({name: "x"}) == len(canonical.encode({name: "x"}))
    assert schema.measure({}) == NOT_FINE
    assert schema.measure({name: "x", "other": None}) == NOT_FINE


def test_bounds_that_are_equal_but_not_the_same_make_different_schemas() -> None:
    one = compile_schema((Field.integer("n", 0, 1),))
    two = compile_schema((Field.integer("n", 0, 2),))
    assert (one.measure({"n": 2}), two.measure({"n": 2})) == (NOT_FINE, 7)
