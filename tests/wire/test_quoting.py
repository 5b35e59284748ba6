"""What a peer sent is safe to print: no control character survives, and its length is bounded."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from broker.wire.quoting import escape, quote, utf8_length


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("plain é", "plain é"),
        ("\x1b[31mred\x07", "\\x1b[31mred\\x07"),
        ("a\r\nb\x7f\x9b", "a\\r\\nb\\x7f\\x9b"),
        ("\u202eevil\u200b", "\\u202eevil\\u200b"),
        ("\ud800", "\\ud800"),
    ],
)
def test_unprintable_characters_are_escaped(text: str, shown: str) -> None:
    assert escape(text) == shown


def test_text_is_cut_at_a_whole_escape() -> None:
    assert escape("x" * 10, max_chars=10) == "x" * 10
    assert escape("x" * 11, max_chars=10) == "x" * 7 + "..."
    assert escape("xxxxx\x1bxxxxx", max_chars=10) == "xxxxx..."


def test_quoted_bytes_are_bounded_and_need_not_be_utf8() -> None:
    assert quote(b"ok") == "'ok'"
    assert quote(b"\xff\xfe{") == "'\\xff\\xfe{'"
    assert quote(b"x" * 128) == "'" + "x" * 128 + "'"
    assert quote(b"x" * 129) == "'" + "x" * 125 + "...'"
    assert quote("é" * 64) == "'" + "é" * 64 + "'"
    assert quote("é" * 65) == "'" + "é" * 62 + "...'"


@given(st.text() | st.binary(), st.integers(8, 64))
def test_quote_is_printable_and_within_its_bound(data: str | bytes, bound: int) -> None:
    shown = quote(data, max_bytes=bound)
    assert shown.isprintable()
    assert utf8_length(shown) - 2 <= bound
