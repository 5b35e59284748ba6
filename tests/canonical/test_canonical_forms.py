"""Exact bytes, exact refusals and exact bounds of octet-canonical-json-v1."""

from __future__ import annotations

import enum
import time
from collections import OrderedDict
from typing import Any

import pytest

from broker.canonical import decode, encode, string_size
from broker.errors import CanonicalError, UsageError

PORTABLE = 9_007_199_254_740_991

# A hostile input of a mebibyte takes milliseconds in linear time and minutes in quadratic time.
SECONDS_ALLOWED = 5.0


class Level(enum.IntEnum):
    ONE = 1


class Word(enum.StrEnum):
    YES = "yes"


class OwnText(str):
    pass


class OwnList(list[int]):
    pass


def nested(depth: int, inside: str = "") -> bytes:
    return ("[" * depth + inside + "]" * depth).encode()


def nested_value(depth: int, inside: Any = None) -> Any:
    value: Any = [] if inside is None else [inside]
    for _ in range(depth - 1):
        value = [value]
    return value


def refusal(data: bytes) -> CanonicalError:
    with pytest.raises(CanonicalError) as caught:
        decode(data)
    return caught.value


def refused_value(value: Any) -> CanonicalError:
    with pytest.raises(CanonicalError) as caught:
        encode(value)
    return caught.value


@pytest.mark.spec("octet.canonical.key-order", "octet.canonical.key-order-nested", "octet.canonical.literals")
def test_keys_sort_by_code_point_at_every_depth() -> None:
    value = {"\U0001f600": 1, "\ue000": 2, "b": [9, {"z": None, "a": True}, 1], "B": False, "": 0}
    data = b'{"":0,"B":false,"b":[9,{"a":true,"z":null},1],"\xee\x80\x80":2,"\xf0\x9f\x98\x80":1}'
    assert encode(value) == data
    assert decode(data) == value


@pytest.mark.spec("octet.canonical.key-order")
def test_the_utf16_order_of_keys_is_refused() -> None:
    error = refusal(b'{"\xf0\x9f\x98\x80":1,"\xee\x80\x80":2}')
    assert str(error).startswith("key order")
    assert error.offset == 10


@pytest.mark.spec("octet.canonical.escapes")
def test_every_escape_is_the_shortest_and_everything_else_is_raw() -> None:
    controls = "".join(map(chr, range(0x20)))
    expected = (
        rb"\u0000\u0001\u0002\u0003\u0004\u0005\u0006\u0007\b\t\n\u000b\f\r\u000e\u000f"
        rb"\u0010\u0011\u0012\u0013\u0014\u0015\u0016\u0017\u0018\u0019\u001a\u001b\u001c\u001d\u001e\u001f"
    )
    assert encode(controls) == b'"' + expected + b'"'
    assert decode(b'"' + expected + b'"') == controls
    raw = "/\x7f\x85\u2028\u2029é\U0001f600"
    assert encode(raw) == b'"' + raw.encode() + b'"'
    assert encode('"\\') == rb'"\"\\"'


@pytest.mark.spec("octet.canonical.integers", "octet.bound.max-portable-json-integer")
@pytest.mark.parametrize("number", [0, -1, PORTABLE, -PORTABLE])
def test_portable_integers_pass(number: int) -> None:
    assert encode([number]) == f"[{number}]".encode()
    assert decode(f"[{number}]".encode()) == [number]


@pytest.mark.spec("octet.canonical.integers", "octet.bound.max-portable-json-integer")
@pytest.mark.parametrize("number", [2**53, -(2**53), 2**63, 2**64, -(2**64)])
def test_one_beyond_the_integer_bound_is_refused(number: int) -> None:
    for error in (refusal(f'{{"a":{number}}}'.encode()), refused_value({"a": number})):
        assert str(error).startswith("integer out of range")
        assert error.limit == "MAX_PORTABLE_INTEGER"
        assert error.maximum == PORTABLE
        assert error.path == "$.a"
    assert refused_value(number).observed == number
    assert refusal(b"9007199254740992").observed == 2**53


@pytest.mark.spec("octet.canonical.bool-not-integer")
def test_booleans_and_integers_stay_apart() -> None:
    assert encode([True, 1, False, 0]) == b"[true,1,false,0]"
    assert [type(item) for item in decode(b"[true,1,false,0]")] == [bool, int, bool, int]


@pytest.mark.spec("octet.canonical.depth", "octet.bound.max-json-depth")
@pytest.mark.parametrize("inside", ["", "0", '"a"'])
def test_32_nested_containers_pass_whatever_is_inside(inside: str) -> None:
    value = decode(nested(32, inside))
    assert encode(value) == nested(32, inside)


@pytest.mark.spec("octet.canonical.depth", "octet.bound.max-json-depth")
@pytest.mark.parametrize("depth", [33, 34, 300, 2000])
@pytest.mark.parametrize("inside", ["", "0"])
def test_33_nested_containers_are_refused_even_empty(depth: int, inside: str) -> None:
    decoded = refusal(nested(depth, inside))
    assert decoded.offset == 32
    encoded = refused_value(nested_value(depth, 0 if inside else None))
    for error in (decoded, encoded):
        assert str(error).startswith("depth")
        assert (error.limit, error.observed, error.maximum) == ("MAX_JSON_DEPTH", 33, 32)
        assert error.path == "$" + "[0]" * 32


@pytest.mark.spec("octet.canonical.depth")
def test_depth_counts_objects_and_lists_alike() -> None:
    data = b'{"a":[' * 16 + b"]}" * 16
    assert encode(decode(data)) == data
    assert refusal(b'{"a":[' * 16 + b"{}" + b"]}" * 16).observed == 33


@pytest.mark.spec(
    "octet.canonical.refused-forms",
    "octet.canonical.error-position",
    "octet.canonical.no-whitespace",
    "octet.canonical.literals",
    "octet.canonical.needless-escape",
    "octet.canonical.lone-surrogate",
    "octet.canonical.invalid-utf8",
    "octet.canonical.byte-order-mark",
    "octet.canonical.no-float",
    "octet.canonical.number-spelling",
    "octet.canonical.no-nan",
    "octet.canonical.duplicate-key",
    "octet.canonical.trailing-data",
    "octet.canonical.truncated",
)
@pytest.mark.parametrize(
    ("data", "reason", "offset", "path"),
    [
        (b"", "unexpected end", 0, "$"),
        (b'{"a":1,"a":1}', "duplicate key", 7, "$"),
        (b'{"a":1,"b":2,"a":1}', "duplicate key", 13, "$"),
        (b'[{"x":{"k":1,"k":2}}]', "duplicate key", 13, "$[0].x"),
        (b'{"b":1,"a":1}', "key order", 7, "$"),
        (b'{"a":1,"a\\u0000":1,"a\\u0000":1}', "duplicate key", 19, "$"),
        (b"[1.0]", "float", 1, "$[0]"),
        (b"[0,1e2]", "float", 3, "$[1]"),
        (b"1.5", "float", 0, "$"),
        (b"1e999", "float", 0, "$"),
        (b'{"a":-0}', "negative zero", 5, "$.a"),
        (b"-0.0", "float", 0, "$"),
        (b"01", "malformed number", 0, "$"),
        (b"+1", "malformed number", 0, "$"),
        (b"-", "malformed number", 0, "$"),
        (b"1.", "malformed number", 0, "$"),
        (b".5", "malformed number", 0, "$"),
        (b"NaN", "unexpected byte", 0, "$"),
        (b"[Infinity]", "unexpected byte", 1, "$[0]"),
        (b"-Infinity", "malformed number", 0, "$"),
        (b"\xef\xbb\xbf{}", "BOM", 0, "$"),
        (b"{}{}", "trailing data", 2, "$"),
        (b"1 2", "trailing data", 1, "$"),
        (b"[]]", "trailing data", 2, "$"),
        (b" 1", "white space", 0, "$"),
        (b"1\n", "white space", 1, "$"),
        (b"[1, 2]", "white space", 3, "$[1]"),
        (b'{"a" :1}', "white space", 4, "$"),
        (b"{}\r", "white space", 2, "$"),
        (b'["\\u0041"]', "escape not minimal", 2, "$[0]"),
        (b'"\\/"', "escape not minimal", 1, "$"),
        (b'"\\u001F"', "escape not minimal", 1, "$"),
        (b'"\\u000a"', "escape not minimal", 1, "$"),
        (b'"\\u0022"', "escape not minimal", 1, "$"),
        (b'"\\u007f"', "escape not minimal", 1, "$"),
        (b'"\\ud83d\\ude00"', "escape not minimal", 1, "$"),
        (b'"ab\\ud83d"', "lone surrogate", 3, "$"),
        (b'"\\ude00"', "lone surrogate", 1, "$"),
        (b'"\\ud83d\\u0041"', "lone surrogate", 1, "$"),
        (b'{"\\ud800":1}', "lone surrogate", 2, "$"),
        (b'"\\x41"', "malformed escape", 1, "$"),
        (b'"\\u12"', "malformed escape", 1, "$"),
        (b'"a\x01"', "control character in a string", 2, "$"),
        (b'"\n"', "control character in a string", 1, "$"),
        (b'["\xff"]', "invalid UTF-8", 2, "$[0]"),
        (b'"\xc0\xaf"', "invalid UTF-8", 1, "$"),
        (b'"\xed\xa0\x80"', "invalid UTF-8", 1, "$"),
        (b'"\xf4\x90\x80\x80"', "invalid UTF-8", 1, "$"),
        (b'{"a\xc3":1}', "invalid UTF-8", 3, "$"),
        (b'"abc', "unexpected end in a string", 4, "$"),
        (b'"abc\\', "unexpected end in a string", 5, "$"),
        (b'{"a":', "unexpected end", 5, "$.a"),
        (b"[1,]", "unexpected byte", 3, "$[1]"),
        (b"[1}", "unexpected byte", 2, "$[0]"),
        (b'{"a":1,}', "unexpected byte", 7, "$"),
        (b"{1:2}", "unexpected byte", 1, "$"),
        (b'{"we ird":[tru]}', "unexpected byte", 11, '$["we ird"][0]'),
    ],
)
def test_a_refused_form_names_reason_offset_and_path(data: bytes, reason: str, offset: int, path: str) -> None:
    error = refusal(data)
    assert str(error).startswith(reason)
    assert (error.offset, error.path, error.name) == (offset, path, "parse_error")


@pytest.mark.spec("octet.canonical.refused-forms")
def test_the_first_fault_by_offset_is_the_one_reported() -> None:
    error = refusal(b'{"b":1.5,"a":"\xff"}')
    assert (str(error)[:5], error.offset) == ("float", 5)


@pytest.mark.spec(
    "octet.canonical.string-keys",
    "octet.canonical.unknown-type",
    "octet.canonical.no-float",
    "octet.canonical.no-nan",
    "octet.canonical.lone-surrogate",
    "octet.canonical.error-position",
)
@pytest.mark.parametrize(
    ("value", "reason", "path"),
    [
        (1.0, "float", "$"),
        ({"a": [0, float("nan")]}, "float", "$.a[1]"),
        (float("inf"), "float", "$"),
        ((1,), "type tuple", "$"),
        ([Level.ONE], "type Level", "$[0]"),
        ({"k": Word.YES}, "type Word", "$.k"),
        ([OwnText("a")], "type OwnText", "$[0]"),
        (OwnList([1]), "type OwnList", "$"),
        (OrderedDict(a=1), "type OrderedDict", "$"),
        ({"a": {1: 2}}, "key of type int", "$.a"),
        ({OwnText("a"): 2}, "key of type OwnText", "$"),
        ({"a": b"x"}, "type bytes", "$.a"),
        (["\ud835"], "lone surrogate in string", "$[0]"),
        ({"\ud835": 1}, "lone surrogate in key", '$["\\ud835"]'),
    ],
)
def test_a_value_without_a_canonical_form_is_refused_with_its_path(value: Any, reason: str, path: str) -> None:
    error = refused_value(value)
    assert str(error).startswith(reason)
    assert error.path == path


def test_an_integer_too_long_to_print_is_refused() -> None:
    error = refused_value([10**6000])
    assert (error.path, error.limit, error.observed) == ("$[0]", "MAX_PORTABLE_INTEGER", None)


def test_a_key_shown_in_a_path_is_shortened_and_ascii() -> None:
    error = refused_value({"é" * 500: 1.5})
    assert error.path is not None and error.path.isascii() and error.path.endswith('..."]')
    assert len(error.path) < 500


@pytest.mark.spec("octet.canonical.hostile", "octet.canonical.integer-digits")
@pytest.mark.parametrize(
    ("data", "reason"),
    [
        (b"[" * 100_000, "depth"),
        (b'{"":' * 100_000, "depth"),
        (b"[" * 500_000 + b"]" * 500_000, "depth"),
        (b"9" * 1_000_000, "integer out of range, 1000000 digits"),
        (b"[-" + b"9" * 1_000_000 + b"]", "integer out of range, 1000000 digits"),
        (b"1." + b"0" * 1_000_000, "float"),
        (b"1e" + b"9" * 1_000_000, "float"),
        (b'["' + b"\\n" * 500_000, "unexpected end"),
        (b'["' + b"\\\\" * 500_000 + b'\xff"]', "invalid UTF-8"),
        (b"[" + b"0," * 500_000 + b"1.5]", "float"),
        (b"{" + b",".join(b'"%07d":0' % n for n in range(90_000)) + b',"0000000":0}', "duplicate key"),
        (b" " * 1_000_000, "white space"),
        (b"0" + b" " * 1_000_000, "white space"),
    ],
    ids=lambda value: value if isinstance(value, str) else f"{value[:6]!r}",
)
def test_hostile_bytes_are_refused_in_linear_time(data: bytes, reason: str) -> None:
    started = time.thread_time()
    assert str(refusal(data)).startswith(reason)
    assert time.thread_time() - started < SECONDS_ALLOWED


@pytest.mark.spec("octet.canonical.hostile")
def test_deep_shared_and_self_containing_values_are_refused_without_recursion() -> None:
    itself: list[Any] = []
    itself.extend([itself, itself])
    holds_itself: dict[str, Any] = {}
    holds_itself["x"] = [holds_itself]
    shared: Any = [0.5]
    for _ in range(31):
        shared = [shared, shared]
    deep: Any = []
    for _ in range(100_000):
        deep = [deep]
    started = time.thread_time()
    assert str(refused_value(itself)).startswith("depth")
    assert str(refused_value(holds_itself)).startswith("depth")
    assert str(refused_value(deep)).startswith("depth")
    assert refused_value(shared).path == "$" + "[0]" * 32
    assert time.thread_time() - started < SECONDS_ALLOWED
    while deep:  # taken apart by hand: freeing it in one go would recurse
        deep = deep.pop()


def test_views_and_bytearrays_are_read_and_text_is_not() -> None:
    assert decode(bytearray(b'{"a":1}')) == {"a": 1}
    assert decode(memoryview(b"[1]")) == [1]
    with pytest.raises(UsageError):
        decode("[1]")  # type: ignore[arg-type]


def test_the_size_of_a_string_refuses_other_types() -> None:
    assert string_size("aé\n\x00") == 2 + 1 + 2 + 2 + 6
    with pytest.raises(CanonicalError, match="type OwnText is not str"):
        string_size(OwnText("a"))
