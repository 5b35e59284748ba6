"""The fast codec against the slow one, both ways."""

from __future__ import annotations

import importlib.util
import json
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from broker.canonical import decode, encode, size, string_size
from broker.errors import CanonicalError


def _load_oracle() -> ModuleType:
    spec = importlib.util.spec_from_file_location("canonical_oracle", Path(__file__).with_name("canonical_oracle.py"))
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


oracle = _load_oracle()

texts = st.text(st.characters(exclude_categories=()), max_size=8) | st.sampled_from(
    ["\ue000", "\U0001f600", "\x7f\x85\u2028\u2029", '"\\/', "\b\t\n\f\r\x00\x0b\x1f", "\ud83d", "\ud83d\ude00"]
)
numbers = st.integers(-(2**53) - 1, 2**53 + 1) | st.sampled_from([2**53 - 1, 2**53, -(2**53), 2**64, -(2**70), 0])
scalars = st.none() | st.booleans() | numbers | texts | st.floats() | st.just(()) | st.binary(max_size=2)
values = st.recursive(scalars, lambda inner: st.lists(inner, max_size=4) | st.dictionaries(texts, inner, max_size=4))
good_texts = st.text(max_size=8)
good_scalars = st.none() | st.booleans() | st.integers(-(2**53) + 1, 2**53 - 1) | good_texts
good_values = st.recursive(
    good_scalars, lambda inner: st.lists(inner, max_size=4) | st.dictionaries(good_texts, inner, max_size=4)
)


@pytest.mark.spec("octet.canonical.encode", "octet.canonical.measured-size")
@given(values)
def test_encoding_agrees_with_the_oracle(value: Any) -> None:
    try:
        expected = oracle.encode(value)
    except oracle.NotCanonicalError:
        with pytest.raises(CanonicalError) as caught:
            encode(value)
        assert caught.value.path is not None and caught.value.path.startswith("$")
    else:
        assert encode(value) == expected
        assert size(value) == len(expected)


@pytest.mark.spec("octet.canonical.round-trip")
@given(good_values)
def test_what_was_written_is_read_back_equal(value: Any) -> None:
    assert decode(encode(value)) == value
    assert encode(decode(encode(value))) == encode(value)


def agree_on(data: bytes) -> None:
    try:
        expected = oracle.decode(data)
    except oracle.NotCanonicalError:
        with pytest.raises(CanonicalError) as caught:
            decode(data)
        assert caught.value.offset is not None and 0 <= caught.value.offset <= len(data)
        assert caught.value.path is not None
    else:
        answer = decode(data)
        assert answer == expected
        assert oracle.encode(answer) == data


@pytest.mark.spec("octet.canonical.strict-decode")
@given(good_values, st.sampled_from([{}, {"ensure_ascii": False}, {"separators": (",", ":")}, {"sort_keys": True}]))
def test_decoding_other_writers_output_agrees_with_the_oracle(value: Any, options: dict[str, Any]) -> None:
    agree_on(json.dumps(value, **options).encode("utf-8", "surrogatepass"))


@pytest.mark.spec("octet.canonical.strict-decode")
@given(good_values, st.data())
def test_decoding_damaged_bytes_agrees_with_the_oracle(value: Any, draw: st.DataObject) -> None:
    data = bytearray(oracle.encode(value))
    for _ in range(draw.draw(st.integers(1, 3))):
        at = draw.draw(st.integers(0, len(data)))
        piece = draw.draw(
            st.sampled_from(
                [b"", b" ", b",", b'"', b"\\", b"0", b"-", b".", b"e1", b"\xff", b"{", b"]", b":", b"\\u00", b"\\n"]
            )
        )
        data[at : at + draw.draw(st.integers(0, 2))] = piece
    agree_on(bytes(data))


@pytest.mark.spec("octet.canonical.strict-decode")
@given(st.text(alphabet='{}[]":,\\u0123456789abcdefD8-+.eEtrnlsfa \n\té', max_size=24))
def test_decoding_json_like_text_agrees_with_the_oracle(text: str) -> None:
    agree_on(text.encode())


@pytest.mark.spec("octet.canonical.measured-size")
@given(st.text(alphabet=st.characters(exclude_categories=()), max_size=40))
def test_the_size_of_a_string_is_that_of_its_form(text: str) -> None:
    try:
        expected = len(oracle.encode(text))
    except oracle.NotCanonicalError:
        with pytest.raises(CanonicalError, match=r"^lone surrogate"):
            string_size(text)
    else:
        assert string_size(text) == expected
