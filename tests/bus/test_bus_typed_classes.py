"""Topic classes that are wrong: each is refused where it is defined, with the attribute and the reason."""

from __future__ import annotations

import enum
from typing import Annotated, Any, Generic, Literal, TypeVar

import attrs
import pytest

from broker import Bounds, topic
from broker.errors import UsageError

T = TypeVar("T")


class Numbered(enum.Enum):
    ONE = 1


@topic("bus.alpha.right")
@attrs.frozen
class Right:
    a: int


def define(annotation: Any, *, name: str = "a", default: Any = attrs.NOTHING, topic_name: str = "bus.alpha.x") -> type:
    made = attrs.make_class("Wrong", {name: attrs.field(default=default, type=annotation)})
    made.__annotations__ = {name: annotation}
    return topic(topic_name)(made)


@pytest.mark.spec("octet.bus.typed-topic")
@pytest.mark.parametrize(
    ("annotation", "text"),
    [
        (float, "is no bus field type"),
        (bytes, "is no bus field type"),
        (list[str], "is no bus field type"),
        (dict, "is no bus field type"),
        (Any, "is no bus field type"),
        (object, "is no bus field type"),
        (int | str, "is no bus field type"),
        (int | str | None, "is no bus field type"),
        (Literal["a", 1], "is no bus field type"),
        (Numbered, "is no bus field type"),
        (None, "is no bus field type"),
        (Right, "is no bus field type"),
        (int | None, "None stands for an absent field, so give it the default None"),
        (Annotated[str, Bounds(max_bytes=0)], "max_bytes: expected a portable integer of at least 1, got 0"),
        (Annotated[str, Bounds(max_bytes=1025)], "MAX_BUS_STRING_BYTES: observed 1025, maximum 1024"),
        (Annotated[str, Bounds(minimum=1)], "minimum: not allowed on a field of kind string"),
        (Annotated[bool, Bounds(maximum=1)], "maximum: not allowed on a field of kind boolean"),
        (Annotated[int, Bounds(max_bytes=5)], "max_bytes bounds strings, not a field of kind integer"),
        (Annotated[int, Bounds(minimum=2, maximum=1)], "minimum 2 is above maximum 1"),
        (Literal["me@here"], "contains '@'"),
    ],
    ids=str,
)
def test_a_wrong_attribute_is_refused_where_the_class_is_defined(annotation: Any, text: str) -> None:
    with pytest.raises(UsageError) as caught:
        define(annotation)
    assert text in str(caught.value)
    assert "Wrong" in str(caught.value)


@pytest.mark.parametrize("default", [5, attrs.Factory(int)])
def test_a_default_that_would_come_back_for_none_is_refused(default: Any) -> None:
    with pytest.raises(UsageError, match=r"Wrong\.a: None stands for an absent field"):
        define(int | None, default=default)
    define(int, default=default)
    define(int | None, default=None)


def test_a_field_name_is_screened_where_the_class_is_defined() -> None:
    with pytest.raises(UsageError, match="field name 'session_id' contains 'session'"):
        define(str, name="session_id")


def test_a_private_attribute_is_refused() -> None:
    with pytest.raises(UsageError, match=r"Wrong\._a: a topic attribute is public and has no alias"):
        define(str, name="_a")


@pytest.mark.parametrize("name", ["status", "bus.alpha", "bus.Alpha.x", "bus.alpha." + "x" * 65])
def test_a_wrong_topic_is_refused_where_the_class_is_defined(name: str) -> None:
    with pytest.raises(UsageError, match=r"on Wrong: topic: "):
        define(str, topic_name=name)


def test_a_class_without_attrs_or_in_the_wrong_order() -> None:
    class Plain:
        a: str

    with pytest.raises(UsageError, match=r"put it above @attrs\.frozen; it needs an attrs class"):
        topic("bus.alpha.x")(Plain)
    with pytest.raises(UsageError, match=r"put it above @attrs\.frozen"):
        topic("bus.alpha.x")(type("Derived", (Right,), {}))


def test_a_class_with_an_open_type_variable_is_refused() -> None:
    with pytest.raises(UsageError, match="Open: a topic class has no open type variables"):

        @topic("bus.alpha.x")
        @attrs.frozen
        class Open(Generic[T]):
            a: str


def test_an_annotation_that_cannot_be_evaluated() -> None:
    class Local(enum.Enum):
        A = "a"

    with pytest.raises(UsageError, match="an annotation cannot be evaluated"):

        @topic("bus.alpha.x")
        @attrs.frozen
        class Lost:
            a: Local
