"""What an expected value matches, and how a difference reads."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from broker.testing.matching import capture, captured, exactly, filled_in, matches, problems, such_that

VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=8,
)


@given(VALUES)
def test_every_value_matches_itself(value: Any) -> None:
    assert matches(value, value)
    assert matches(exactly(value), value)
    assert matches(..., value)


@given(st.dictionaries(st.text(max_size=5), VALUES, max_size=4), st.text(min_size=6, max_size=8), VALUES)
def test_an_object_may_have_more_members_unless_it_is_to_be_exact(value: dict[str, Any], key: str, more: Any) -> None:
    assert matches(value, {**value, key: more})
    assert not matches(exactly(value), {**value, key: more})
    assert not matches({**value, key: ...}, value)


@pytest.mark.parametrize(
    ("expected", "value", "difference"),
    [
        (1, True, "it: expected 1, came true"),
        (None, 0, "it: expected null, came 0"),
        ("a", "b", 'it: expected "a", came "b"'),
        ({"a": {"b": 1}}, {"a": {"b": 2}}, "a.b: expected 1, came 2"),
        ({"a": 1}, {"b": 1, "c": 2}, "a: is missing; there is b, c"),
        ({"a": 1}, {}, "a: is missing; there is no members"),
        ({"a": 1}, [1], "it: expected an object, came [1]"),
        ([1, 2], [1], "it: expected 2 items, came [1]"),
        ({"a": [1, {"b": 2}]}, {"a": [1, {"b": 3}]}, "a[1].b: expected 2, came 3"),
        (exactly({"a": 1}), {"a": 1, "b": 2}, 'it: expected {"a":1}, came {"a":1,"b":2}'),
        ({"n": such_that(lambda n: n > 3, "more than 3")}, {"n": 3}, "n: expected more than 3, came 3"),
    ],
)
def test_a_difference_says_where_and_what(expected: Any, value: Any, difference: str) -> None:
    assert list(problems(expected, value)) == [difference]


def test_every_difference_is_told() -> None:
    assert list(problems({"a": 1, "b": 2, "c": 3}, {"a": 1, "b": 3})) == [
        "b: expected 2, came 3",
        "c: is missing; there is a, b",
    ]


def test_what_was_captured_is_expected_and_filled_in() -> None:
    captures: dict[str, Any] = {}
    assert not list(problems({"id": capture("id", such_that(str.isdigit, "digits"))}, {"id": "12"}, "", captures))
    assert captures == {"id": "12"}
    assert list(problems([captured("id")], ["13"], "params", captures)) == ['params[0]: expected "12", came "13"']
    assert filled_in({"a": [captured("id"), 1]}, captures) == {"a": ["12", 1]}


def test_what_does_not_match_is_not_captured() -> None:
    captures: dict[str, Any] = {}
    assert list(problems(capture("id", 1), 2, "id", captures)) == ["id: expected 1, came 2"]
    assert captures == {}
