"""Payloads: exact types, exact bounds, and every fault at once with its path."""

from __future__ import annotations

import enum
from collections import OrderedDict
from typing import Any

import pytest

from broker import Bus, Field, Peer
from broker.errors import BrokerError, InvalidParamsError, ResourceExhaustedError

PORTABLE = 9_007_199_254_740_991
STATUS = "bus.alpha.status"


def refusal(peer: Peer, topic: str, payload: Any) -> BrokerError:
    """The error of a publication that must be refused without using a sequence."""
    before = peer.statistics().published
    with pytest.raises(BrokerError) as caught:
        peer.publish(topic, payload)
    assert peer.statistics().published == before
    return caught.value


def faults(peer: Peer, payload: Any, topic: str = STATUS) -> list[tuple[str, str]]:
    return [(fault.path, fault.problem) for fault in refusal(peer, topic, payload).faults]


@pytest.mark.spec("octet.bus.payload-fields")
@pytest.mark.parametrize("payload", [None, "green", 3, [], [("summary", "x")], ("summary",), {"summary"}])
def test_a_payload_is_an_object(alpha: Peer, payload: Any) -> None:
    assert faults(alpha, payload) == [("payload", f"expected an object, got {type(payload).__name__}")]


def test_a_payload_is_a_plain_dict(alpha: Peer) -> None:
    assert faults(alpha, OrderedDict(summary="x")) == [("payload", "expected a plain dict, got OrderedDict")]


@pytest.mark.spec("octet.bus.payload-fields", "octet.bus.payload-faults")
def test_required_fields_are_there_and_no_others(alpha: Peer) -> None:
    assert faults(alpha, {}) == [("payload.summary", "missing")]
    assert faults(alpha, {"step": 1, "Summary": "x", "odd key": 1, 7: 2, ("a",): 3}) == [
        ("payload.summary", "missing"),
        ("payload.Summary", "not a declared field"),
        ("payload.'odd key'", "not a declared field"),
        ("payload", "expected strings as field names, got 7"),
        ("payload", "expected strings as field names, got a value of type tuple"),
    ]


def test_a_key_that_only_equals_a_fields_name_is_refused(alpha: Peer) -> None:
    class Key(enum.StrEnum):
        SUMMARY = "summary"

    assert faults(alpha, {Key.SUMMARY: "x"}) == [
        ("payload", "expected strings as field names, got a value of type Key")
    ]


@pytest.mark.spec("octet.bus.payload-types", "octet.bus.payload-scalars")
@pytest.mark.parametrize("wrong", [None, 1.0, b"x", [], ["x"], {}, {"a": 1}, object(), float("nan")], ids=repr)
def test_no_field_takes_a_value_of_no_scalar_type(bus: Bus, wrong: Any) -> None:
    alpha = bus.attach("alpha")
    alpha.declare(
        STATUS, [Field.string("s"), Field.integer("i", required=False), Field.boolean("b"), Field.enum("e", ["x"])]
    )
    kind = type(wrong).__name__
    assert faults(alpha, {"s": wrong, "i": wrong, "b": wrong, "e": wrong}) == [
        ("payload.s", f"expected a string, got {kind}"),
        ("payload.i", f"expected an integer, got {kind}"),
        ("payload.b", f"expected a boolean, got {kind}"),
        ("payload.e", f"expected a string, got {kind}"),
    ]


@pytest.mark.spec("octet.bus.payload-types")
def test_types_are_exact(bus: Bus) -> None:
    class Text(str):
        pass

    class Number(enum.IntEnum):
        ONE = 1

    class Colour(enum.StrEnum):
        RED = "red"

    alpha = bus.attach("alpha")
    alpha.declare(STATUS, [Field.string("s"), Field.integer("i"), Field.boolean("b"), Field.enum("e", ["red"])])
    alpha.publish(STATUS, {"s": "x", "i": 1, "b": True, "e": "red"})
    assert faults(alpha, {"s": Text("x"), "i": True, "b": 1, "e": Colour.RED}) == [
        ("payload.s", "expected a string, got Text"),
        ("payload.i", "expected an integer, got bool"),
        ("payload.b", "expected a boolean, got int"),
        ("payload.e", "expected a string, got Colour"),
    ]
    assert faults(alpha, {"s": 5, "i": Number.ONE, "b": "true", "e": 1}) == [
        ("payload.s", "expected a string, got int"),
        ("payload.i", "expected an integer, got Number"),
        ("payload.b", "expected a boolean, got str"),
        ("payload.e", "expected a string, got int"),
    ]
    assert faults(alpha, {"s": "x", "i": "5", "b": False, "e": "red"}) == [
        ("payload.i", "expected an integer, got str")
    ]


@pytest.mark.spec("octet.bus.payload-integer-range")
def test_integers_stay_in_range(bus: Bus) -> None:
    alpha = bus.attach("alpha")
    alpha.declare(STATUS, [Field.integer("free", required=False), Field.integer("step", 0, 9, required=False)])
    alpha.declare("bus.alpha.low", [Field.integer("n", minimum=-3)])
    alpha.declare("bus.alpha.high", [Field.integer("n", maximum=-3)])
    for number in (-PORTABLE, 0, PORTABLE):
        alpha.publish(STATUS, {"free": number})
    for number in (0, 9):
        alpha.publish(STATUS, {"step": number})
    alpha.publish("bus.alpha.low", {"n": -3})
    alpha.publish("bus.alpha.low", {"n": PORTABLE})
    alpha.publish("bus.alpha.high", {"n": -PORTABLE})
    beyond = "an integer beyond +-(2**53 - 1) is outside"
    for payload, topic, problem in (
        ({"free": PORTABLE + 1}, STATUS, f"{beyond} -{PORTABLE} to {PORTABLE}"),
        ({"free": -PORTABLE - 1}, STATUS, f"{beyond} -{PORTABLE} to {PORTABLE}"),
        ({"free": 1 << 20_000}, STATUS, f"{beyond} -{PORTABLE} to {PORTABLE}"),
        ({"step": -1}, STATUS, "-1 is outside 0 to 9"),
        ({"step": 10}, STATUS, "10 is outside 0 to 9"),
        ({"n": -4}, "bus.alpha.low", f"-4 is outside -3 to {PORTABLE}"),
        ({"n": -2}, "bus.alpha.high", f"-2 is outside -{PORTABLE} to -3"),
    ):
        error = refusal(alpha, topic, payload)
        assert isinstance(error, InvalidParamsError)
        assert [(fault.path, fault.problem) for fault in error.faults] == [(f"payload.{next(iter(payload))}", problem)]


@pytest.mark.spec("octet.bus.payload-string-bytes", "octet.bound.max-bus-string-bytes")
@pytest.mark.parametrize(
    ("max_bytes", "fits", "over"),
    [
        (1, "x", "xx"),
        (4, "xéx", "xéxx"),
        (4, "😀", "😀x"),
        (4, 'a"\\b', 'a"\\bc'),
        (1024, "x" * 1024, "x" * 1025),
        (2, "é", "éé"),
    ],
)
def test_a_string_is_bounded_in_bytes(bus: Bus, max_bytes: int, fits: str, over: str) -> None:
    alpha = bus.attach("alpha")
    alpha.declare(STATUS, [Field.string("s", max_bytes)])
    alpha.publish(STATUS, {"s": fits})
    error = refusal(alpha, STATUS, {"s": over})
    assert isinstance(error, ResourceExhaustedError)
    assert (error.path, error.limit) == ("payload.s", "max_bytes")
    assert (error.observed, error.maximum) == (len(over.encode()), max_bytes)


@pytest.mark.spec("octet.bus.payload-string-bytes")
def test_a_lone_surrogate_is_refused(alpha: Peer) -> None:
    assert faults(alpha, {"summary": "a\ud800b"}) == [("payload.summary", "contains a lone surrogate")]
    assert faults(alpha, {"\ud800": 1, "summary": "x"}) == [("payload.'\\ud800'", "not a declared field")]


@pytest.mark.spec("octet.bus.payload-enum")
def test_an_enumeration_takes_its_own_values_only(bus: Bus) -> None:
    alpha = bus.attach("alpha")
    alpha.declare(STATUS, [Field.enum("e", ["red", "é"])])
    alpha.publish(STATUS, {"e": "red"})
    alpha.publish(STATUS, {"e": "é"})
    for wrong in ("Red", "re", "", "e\u0301", "x" * 5000):
        [(path, problem)] = faults(alpha, {"e": wrong})
        assert path == "payload.e"
        assert problem.endswith(" is not one of the declared values")
        assert len(problem) < 120


@pytest.mark.spec("octet.bus.payload-faults")
def test_all_faults_come_at_once_each_with_its_path(bus: Bus) -> None:
    alpha = bus.attach("alpha")
    alpha.declare(
        STATUS,
        [Field.string("a", 4), Field.integer("b", 0, 9), Field.boolean("c"), Field.enum("d", ["x"]), Field.string("e")],
    )
    error = refusal(alpha, STATUS, {"z": 1, "e": "me@here", "d": "y", "c": 0, "b": 10, "a": "longer"})
    assert isinstance(error, InvalidParamsError)
    assert [(fault.path, fault.name) for fault in error.faults] == [
        ("payload.a", "resource_exhausted"),
        ("payload.b", "invalid_params"),
        ("payload.c", "invalid_params"),
        ("payload.d", "invalid_params"),
        ("payload.e", "invalid_params"),
        ("payload.z", "invalid_params"),
    ]
    assert (error.path, error.limit, error.observed, error.maximum) == ("payload.a", "max_bytes", 6, 4)
    assert str(error) == f"publication to {STATUS}: " + "; ".join(map(str, error.faults))
    assert str(error.faults[0]) == "payload.a: string too long (max_bytes: observed 6, maximum 4)"


def test_a_payload_of_countless_faults_lists_them_all_and_prints_a_few() -> None:
    alpha = Bus().attach("alpha")
    alpha.declare("bus.alpha.t", [Field.integer("n")])
    with pytest.raises(InvalidParamsError) as caught:
        alpha.publish("bus.alpha.t", {f"k{n}": n for n in range(5_000)})
    assert len(caught.value.faults) == 5_001
    assert str(caught.value).endswith("payload.k30: not a declared field; and 4969 more")
