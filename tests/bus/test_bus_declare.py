"""Declaring topics: their form, their owner, their fields, and what a refused declaration leaves behind: nothing."""

from __future__ import annotations

from typing import Any

import pytest

from broker import Bus, Field, Peer
from broker.bus.fields import topic_fault
from broker.errors import (
    BrokerError,
    CapabilityMismatchError,
    Fault,
    InvalidParamsError,
    ResourceExhaustedError,
    UsageError,
)

PORTABLE = 9_007_199_254_740_991


def refusal(peer: Peer, topic: Any, fields: Any) -> BrokerError:
    """The error of a declaration that must be refused, and leave nothing."""
    before = peer.bus.statistics()
    with pytest.raises(BrokerError) as caught:
        peer.declare(topic, fields)
    after = peer.bus.statistics()
    assert (after.topics, after.topic_revision, after.refused) == (
        before.topics,
        before.topic_revision,
        before.refused + 1,
    )
    return caught.value


def field_faults(bus: Bus, *fields: Any) -> list[tuple[str, str]]:
    error = refusal(bus.attach("alpha"), "bus.alpha.status", list(fields))
    return [(fault.path, fault.problem) for fault in error.faults]


# -- topics ------------------------------------------------------------------------------------------------------------


@pytest.mark.spec("octet.bus.topic-form", "octet.bus.topic-segment-start")
@pytest.mark.parametrize("topic", ["bus.alpha.status", "bus.alpha.0", "bus.alpha.a_b-c_", "bus.alpha." + "x" * 64])
def test_a_topic_of_the_right_form_is_declared(bus: Bus, topic: str) -> None:
    bus.attach("alpha").declare(topic, [])
    assert [(row.topic, row.publisher, row.topic_revision) for row in bus.statistics().topics] == [(topic, "alpha", 1)]


@pytest.mark.spec("octet.bus.topic-form", "octet.bus.topic-segment-start")
@pytest.mark.parametrize(
    "topic",
    [
        "", "bus", "bus.alpha", "bus.alpha.", "bus..status", "bus.alpha.status.more", "but.alpha.status",
        "BUS.alpha.status", "bus.alpha.Status", "bus.alpha._x", "bus.alpha.-x", "bus.alpha.a b", "bus.alpha.é",
        "bus.alpha.x\n", " bus.alpha.x",
        "bus.alpha.\ud800", "bus.Alpha.x",
    ],
)  # fmt: skip
def test_a_topic_of_another_form_is_refused(bus: Bus, topic: str) -> None:
    error = refusal(bus.attach("alpha"), topic, [])
    assert isinstance(error, InvalidParamsError)
    assert (error.name, error.code, error.message) == ("invalid_params", -32602, "invalid params")
    assert (error.path, error.topic, error.limit) == ("topic", topic, None)
    assert str(error).isascii()


@pytest.mark.parametrize("topic", [None, 7, b"bus.alpha.x", ["bus.alpha.x"]])
def test_a_topic_that_is_no_string_is_refused(bus: Bus, topic: Any) -> None:
    error = refusal(bus.attach("alpha"), topic, [])
    assert isinstance(error, InvalidParamsError)
    assert (error.path, error.topic) == ("topic", None)
    assert str(error) == f"topic: expected a string, got {type(topic).__name__}"


@pytest.mark.spec("octet.bound.max-bus-identifier-bytes", "octet.bound.max-bus-topic-bytes")
def test_the_bounds_of_a_topic_are_exact() -> None:
    assert topic_fault(f"bus.{'o' * 64}.{'n' * 27}") is None
    assert topic_fault(f"bus.{'o' * 64}.{'n' * 28}") == Fault(
        "topic", "topic too long", "resource_exhausted", "MAX_BUS_TOPIC_BYTES", 97, 96
    )
    assert topic_fault(f"bus.a.{'n' * 64}") is None
    assert topic_fault(f"bus.a.{'n' * 65}") == Fault(
        "topic", "name too long", "resource_exhausted", "MAX_BUS_IDENTIFIER_BYTES", 65, 64
    )


def test_a_topic_that_is_too_long_is_resource_exhausted(bus: Bus) -> None:
    error = refusal(bus.attach("o" * 64), f"bus.{'o' * 64}.{'n' * 28}", [])
    assert isinstance(error, ResourceExhaustedError)
    assert (error.name, error.code) == ("resource_exhausted", -32012)
    assert (error.limit, error.observed, error.maximum) == ("MAX_BUS_TOPIC_BYTES", 97, 96)


@pytest.mark.spec("octet.bus.topic-owner")
@pytest.mark.parametrize("topic", ["bus.beta.status", "bus.alph.status", "bus.alpha2.status"])
def test_a_peer_declares_only_its_own_topics(bus: Bus, topic: str) -> None:
    error = refusal(bus.attach("alpha"), topic, [])
    assert isinstance(error, CapabilityMismatchError)
    assert (error.name, error.code, error.topic) == ("capability_mismatch", -32011, topic)
    assert error.message == "extension capability mismatch"


@pytest.mark.spec("octet.bus.declare-once", "octet.bus.declare-immutable", "octet.bus.declare-atomic")
def test_a_topic_is_declared_once_and_keeps_its_fields(alpha: Peer, beta: Peer) -> None:
    error = refusal(alpha, "bus.alpha.status", [Field.boolean("other")])
    assert isinstance(error, InvalidParamsError)
    assert (error.topic, str(error)) == ("bus.alpha.status", "topic bus.alpha.status is declared already")
    alpha.publish("bus.alpha.status", {"summary": "green"})
    with pytest.raises(InvalidParamsError):
        alpha.publish("bus.alpha.status", {"other": True})


@pytest.mark.spec("octet.bus.declare-immutable")
def test_changing_the_list_afterwards_changes_no_declaration(bus: Bus) -> None:
    alpha = bus.attach("alpha")
    fields = [Field.boolean("on")]
    alpha.declare("bus.alpha.status", fields)
    fields.append(Field.boolean("off"))
    alpha.publish("bus.alpha.status", {"on": True})
    with pytest.raises(InvalidParamsError):
        alpha.publish("bus.alpha.status", {"on": True, "off": True})


@pytest.mark.spec("octet.bound.max-bus-topics")
def test_the_129th_topic_is_refused_and_a_withdrawn_one_makes_room(bus: Bus) -> None:
    one, two = bus.attach("one"), bus.attach("two")
    for number in range(127):
        one.declare(f"bus.one.t{number}", [])
    two.declare("bus.two.last", [])
    error = refusal(one, "bus.one.over", [])
    assert isinstance(error, ResourceExhaustedError)
    assert (error.topic, error.limit, error.observed, error.maximum) == ("bus.one.over", "MAX_BUS_TOPICS", 129, 128)
    two.detach()
    one.declare("bus.one.over", [])


def test_topics_are_listed_in_code_point_order(bus: Bus) -> None:
    alpha = bus.attach("alpha")
    for name in ("b", "a0", "a-", "a_"):
        alpha.declare(f"bus.alpha.{name}", [])
    assert [row.topic for row in bus.statistics().topics] == [f"bus.alpha.{name}" for name in ("a-", "a0", "a_", "b")]


# -- fields ------------------------------------------------------------------------------------------------------------


@pytest.mark.spec("octet.bus.field-kinds")
def test_the_four_kinds_are_plain_values() -> None:
    assert Field.string("a") == Field("a", "string", True, 1024, (), None, None)
    assert Field.string("a", 5, required=False) == Field("a", "string", False, 5)
    assert Field.integer("a", 1, 2) == Field("a", "integer", True, 1024, (), 1, 2)
    assert Field.boolean("a", required=False) == Field("a", "boolean", False)
    assert Field.enum("a", ["x", "y"], max_bytes=9) == Field("a", "enum", True, 9, ("x", "y"))


@pytest.mark.spec("octet.bus.field-kinds")
@pytest.mark.parametrize("kind", ["float", "String", "", None, 3, ["string"]])
def test_another_kind_is_refused(bus: Bus, kind: Any) -> None:
    [(path, problem)] = field_faults(bus, Field("a", kind))
    assert path == "fields[0].kind"
    assert problem.startswith("expected one of string, integer, boolean, enum, got ")


@pytest.mark.parametrize("fields", [None, "summary", {"name": "a"}, 3, iter(())])
def test_fields_that_are_no_list_are_refused(bus: Bus, fields: Any) -> None:
    error = refusal(bus.attach("alpha"), "bus.alpha.status", fields)
    assert error.faults == (Fault("fields", f"expected a list of Field, got {type(fields).__name__}"),)


def test_an_item_that_is_no_field_is_refused(bus: Bus) -> None:
    assert field_faults(bus, {"name": "a"}, Field.boolean("b"), "c") == [
        ("fields[0]", "expected a Field, got dict"),
        ("fields[2]", "expected a Field, got str"),
    ]


@pytest.mark.spec("octet.bus.field-name")
@pytest.mark.parametrize("name", ["a", "_", "_a", "A", "aB9_", "x" * 64])
def test_an_identifier_is_a_field_name(bus: Bus, name: str) -> None:
    bus.attach("alpha").declare("bus.alpha.status", [Field.boolean(name)])


@pytest.mark.spec("octet.bus.field-name")
@pytest.mark.parametrize("name", ["", "9a", "a-b", "a.b", "a b", "é", "a\n", "\ud800"])
def test_what_is_no_identifier_is_no_field_name(bus: Bus, name: str) -> None:
    [(path, problem)] = field_faults(bus, Field.boolean(name))
    assert path == "fields[0].name"
    assert problem == f"expected an identifier, got {name!a}"


@pytest.mark.spec("octet.bus.field-name")
def test_a_field_name_is_a_unique_string(bus: Bus) -> None:
    assert field_faults(bus, Field.boolean("a"), Field.integer("a"), Field.boolean(7)) == [  # type: ignore[arg-type]
        ("fields[1].name", "duplicate field name 'a'"),
        ("fields[2].name", "expected a string, got int"),
    ]


@pytest.mark.spec("octet.bus.field-name-screened")
@pytest.mark.parametrize(
    "fragment",
    [
        "apikey", "authorization", "capability", "credential", "cookie", "handle", "keychain", "oauth", "passwd",
        "password", "path", "pem", "private", "secret", "session", "token", "trust",
    ],
)  # fmt: skip
def test_a_secrets_word_in_a_field_name_is_refused_however_it_is_spelt(bus: Bus, fragment: str) -> None:
    spelt = [fragment, fragment.upper(), "_".join(fragment), f"my_{fragment}_2", f"x{fragment.capitalize()}s"]
    faults = field_faults(bus, *(Field.boolean(name) for name in spelt))
    assert [path for path, _ in faults] == [f"fields[{index}].name" for index in range(len(spelt))]
    assert all(
        problem.startswith(f"field name {name!r} contains ") for name, (_, problem) in zip(spelt, faults, strict=True)
    )


@pytest.mark.spec("octet.bus.field-name-screened")
def test_harmless_words_are_field_names(bus: Bus) -> None:
    names = ["api", "key", "author", "cap", "hand", "pass", "pat", "pe_n", "privacy", "sessio", "tokn"]
    bus.attach("alpha").declare("bus.alpha.status", [Field.boolean(name) for name in names])


@pytest.mark.spec("octet.bound.max-bus-identifier-bytes")
def test_a_field_name_has_at_most_64_bytes(bus: Bus) -> None:
    error = refusal(bus.attach("alpha"), "bus.alpha.status", [Field.boolean("x" * 65)])
    assert isinstance(error, ResourceExhaustedError)
    assert (error.path, error.limit, error.observed, error.maximum) == (
        "fields[0].name", "MAX_BUS_IDENTIFIER_BYTES", 65, 64,
    )  # fmt: skip


@pytest.mark.spec("octet.bound.max-bus-fields")
def test_a_topic_has_at_most_24_fields(bus: Bus) -> None:
    alpha = bus.attach("alpha")
    alpha.declare("bus.alpha.full", [Field.boolean(f"f{n}") for n in range(24)])
    error = refusal(alpha, "bus.alpha.over", [Field.boolean(f"f{n}") for n in range(25)])
    assert isinstance(error, ResourceExhaustedError)
    assert (error.path, error.limit, error.observed, error.maximum) == ("fields", "MAX_BUS_FIELDS", 25, 24)


@pytest.mark.parametrize("required", [1, 0, None, "yes"])
def test_required_is_true_or_false(bus: Bus, required: Any) -> None:
    [(path, _)] = field_faults(bus, Field("a", "string", required))
    assert path == "fields[0].required"


@pytest.mark.spec("octet.bus.field-max-bytes", "octet.bound.max-bus-string-bytes")
def test_max_bytes_is_1_to_1024(bus: Bus) -> None:
    alpha = bus.attach("alpha")
    alpha.declare("bus.alpha.ends", [Field.string("a", 1), Field.string("b", 1024)])
    for wrong in (0, -1, True, 1.0, "5", None, 1 << 20_000, -(1 << 20_000)):
        error = refusal(alpha, "bus.alpha.wrong", [Field.string("a", wrong)])  # type: ignore[arg-type]
        assert isinstance(error, InvalidParamsError)
        assert [fault.path for fault in error.faults] == ["fields[0].max_bytes"]
    error = refusal(alpha, "bus.alpha.over", [Field.string("a", 1025)])
    assert isinstance(error, ResourceExhaustedError)
    assert (error.path, error.limit, error.observed, error.maximum) == (
        "fields[0].max_bytes", "MAX_BUS_STRING_BYTES", 1025, 1024,
    )  # fmt: skip


@pytest.mark.spec("octet.bus.field-range")
def test_a_range_is_in_order_portable_and_only_on_an_integer(bus: Bus) -> None:
    assert field_faults(
        bus,
        Field.integer("a", 2, 1),
        Field("b", "string", minimum=0),
        Field("c", "boolean", maximum=0),
        Field("d", "enum", values=("x",), minimum=0, maximum=1),
        Field.integer("e", True, 1.0),  # type: ignore[arg-type]
        Field.integer("f", -PORTABLE - 1, PORTABLE + 1),
        Field.integer("g", -PORTABLE, PORTABLE),
        Field.integer("h", 3, 3),
        Field.integer("i", 1 << 20_000),
    ) == [
        ("fields[0].minimum", "minimum 2 is above maximum 1"),
        ("fields[1].minimum", "not allowed on a field of kind string"),
        ("fields[2].maximum", "not allowed on a field of kind boolean"),
        ("fields[3].minimum", "not allowed on a field of kind enum"),
        ("fields[3].maximum", "not allowed on a field of kind enum"),
        ("fields[4].minimum", "expected an integer, got True"),
        ("fields[4].maximum", "expected an integer, got 1.0"),
        ("fields[5].minimum", "expected an integer within +-(2**53 - 1)"),
        ("fields[5].maximum", "expected an integer within +-(2**53 - 1)"),
        ("fields[8].minimum", "expected an integer within +-(2**53 - 1)"),
    ]


@pytest.mark.spec("octet.bus.field-values", "octet.bus.screen-enum-values")
def test_values_are_unique_screened_strings_and_only_on_an_enumeration(bus: Bus) -> None:
    assert field_faults(
        bus,
        Field.enum("a", []),
        Field.enum("b", ["x", "y", "x"]),
        Field("c", "string", values=("x",)),
        Field("d", "enum", values="xy"),
        Field.enum("e", ["ok", 1, None, True]),  # type: ignore[list-item]
        Field.enum("f", ["a@b", "/etc", "\ud800"]),
        Field.enum("g", ["x", "Y", "", "é"]),
        Field.enum("h", ["long"], max_bytes=0),
    ) == [
        ("fields[0].values", "expected at least one value"),
        ("fields[1].values[2]", "duplicate value 'x'"),
        ("fields[2].values", "not allowed on a field of kind string"),
        ("fields[3].values", "expected a list of strings, got str"),
        ("fields[4].values[1]", "expected a string, got int"),
        ("fields[4].values[2]", "expected a string, got NoneType"),
        ("fields[4].values[3]", "expected a string, got bool"),
        ("fields[5].values[0]", "contains '@'"),
        ("fields[5].values[1]", "is an absolute path"),
        ("fields[5].values[2]", "contains a lone surrogate"),
        ("fields[7].max_bytes", "expected a portable integer of at least 1, got 0"),
    ]


@pytest.mark.spec("octet.bound.max-bus-enum-values", "octet.bound.max-bus-string-bytes")
def test_the_bounds_of_enumeration_values_are_exact(bus: Bus) -> None:
    alpha = bus.attach("alpha")
    alpha.declare(
        "bus.alpha.full",
        [
            Field.enum("a", [f"v{n}" for n in range(32)]),
            Field.enum("b", ["x" * 1024]),
            Field.enum("c", ["éé"], max_bytes=4),
        ],
    )
    for field, path, limit, observed, maximum in (
        (Field.enum("a", [f"v{n}" for n in range(33)]), "fields[0].values", "MAX_BUS_ENUM_VALUES", 33, 32),
        (Field.enum("a", ["x" * 1025]), "fields[0].values[0]", "max_bytes", 1025, 1024),
        (Field.enum("a", ["ok", "éé"], max_bytes=3), "fields[0].values[1]", "max_bytes", 4, 3),
    ):
        error = refusal(alpha, "bus.alpha.over", [field])
        assert isinstance(error, ResourceExhaustedError)
        assert (error.path, error.limit, error.observed, error.maximum) == (path, limit, observed, maximum)


@pytest.mark.spec("octet.bus.declare-faults", "octet.bus.declare-atomic")
def test_all_faults_come_at_once_each_with_its_path(bus: Bus) -> None:
    error = refusal(
        bus.attach("alpha"),
        "bus.alpha.status",
        [
            Field.string("token", 2000),
            Field.integer("a", 5, 1),
            Field("b", "float"),
            Field("c", "enum", 1, 9, ()),  # type: ignore[arg-type]
        ],
    )
    assert isinstance(error, InvalidParamsError)
    assert error.faults == (
        Fault("fields[0].name", "field name 'token' contains 'token'"),
        Fault("fields[0].max_bytes", "max_bytes too large", "resource_exhausted", "MAX_BUS_STRING_BYTES", 2000, 1024),
        Fault("fields[1].minimum", "minimum 5 is above maximum 1"),
        Fault("fields[2].kind", "expected one of string, integer, boolean, enum, got 'float'"),
        Fault("fields[3].required", "expected true or false, got 1"),
        Fault("fields[3].values", "expected at least one value"),
    )
    assert error.path == "fields[0].name"
    assert str(error) == "declaration of bus.alpha.status: " + "; ".join(map(str, error.faults))


def test_faults_that_are_all_bounds_are_resource_exhausted_together(bus: Bus) -> None:
    error = refusal(bus.attach("alpha"), "bus.alpha.status", [Field.string("a", 2000), Field.string("x" * 65)])
    assert isinstance(error, ResourceExhaustedError)
    assert len(error.faults) == 2
    assert (error.limit, error.observed, error.maximum) == ("MAX_BUS_STRING_BYTES", 2000, 1024)


def test_faults_are_shown_without_running_foreign_code(bus: Bus) -> None:
    class Hostile:
        def __repr__(self) -> str:
            raise AssertionError("the bus has no business with this")

        def __eq__(self, other: object) -> bool:
            raise AssertionError("the bus has no business with this")

        __hash__ = None  # type: ignore[assignment]

    odd: Any = Hostile()
    fields = [
        Field(odd, odd),
        Field("a", "string", odd, odd),
        Field("b", "integer", minimum=odd),
        Field("c", "enum", values=odd),
    ]
    assert [path for path, _ in field_faults(bus, *fields)] == [
        "fields[0].name", "fields[0].kind", "fields[1].required", "fields[1].max_bytes", "fields[2].minimum",
        "fields[3].values",
    ]  # fmt: skip


def test_a_topic_class_is_declared_alone(bus: Bus) -> None:
    alpha = bus.attach("alpha")
    with pytest.raises(UsageError, match="not a topic class"):
        alpha.declare(int)
    with pytest.raises(UsageError, match="declare a topic class alone"):
        alpha.declare(int, [])
