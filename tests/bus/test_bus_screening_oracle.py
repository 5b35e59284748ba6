"""The screen against a slow reading of its rules, character by character, on strings of what the rules look for."""

from __future__ import annotations

import unicodedata

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from broker.bus.screening import refusal

FRAGMENTS = [
    "sk", "pk", "rk", "ghp", "gho", "ghu", "ghs", "ghx", "github_pat", "xoxa", "xoxs", "xoxx", "SK", "Ghp", "k", "g",
    "-", "_", "--", "-----", "-----begin", "-----BEGIN", "bearer", "Bearer", "BEARER", "earer", "r", " ", "\u3000",
    "\xa0", "\u2028", "~", "/", "\\", ":", "c", "+", "1", "42", "(", ")", ".", "a", "abcdefgh", "abcdefg", "Z9", "@",
    "\x00", "\x7f", "\x85", "\u0130", "\u0131", "\u017f", "\u212a", "\u017fk", "s\u212a",
    "\xe9", "\xad", '"', "\U0001f600",
]  # fmt: skip

LETTERS = "abcdefghijklmnopqrstuvwxyz0123456789"
PREFIXES = ("sk", "pk", "rk", "ghp", "gho", "ghu", "ghs", "github_pat", "xoxa", "xoxb", "xoxp", "xoxr", "xoxs")
SAME_LETTER = {"\u0130": "i", "\u0131": "i", "\u017f": "s", "\u212a": "k"}


def lowered(character: str) -> str:
    character = SAME_LETTER.get(character, character)
    return character.lower() if character.isascii() else character


def is_token(text: str) -> bool:
    low = [lowered(character) for character in text]
    for start in range(len(low)):
        if start and low[start - 1] in LETTERS:
            continue
        for prefix in PREFIXES:
            end = start + len(prefix)
            tail = low[end + 1 : end + 9]
            if (
                low[start:end] == list(prefix)
                and low[end : end + 1] in (["-"], ["_"])
                and len(tail) == 8
                and all(character in LETTERS or character in "-_" for character in tail)
            ):
                return True
    return False


def is_bearer(text: str) -> bool:
    low = [lowered(character) for character in text]
    return any(
        low[start : start + 6] == list("bearer") and (text[start + 6 : start + 7]).isspace()
        for start in range(len(low))
    )


def is_armoured(text: str) -> bool:
    return "-----begin" in "".join(lowered(character) for character in text)


def is_address(text: str) -> bool:
    trimmed = text.strip()
    if trimmed.startswith(("/", "\\\\")):
        return True
    if trimmed[:1] == "~":
        name = ""
        for character in trimmed[1:]:
            if character in "/\\":
                return True
            if not (character.isascii() and (character.isalnum() or character in "._-")):
                return False
            name += character
        return not name
    if len(trimmed) > 2 and trimmed[0].isascii() and trimmed[0].isalpha() and trimmed[1] == ":" and trimmed[2] in "/\\":
        return True
    rest = trimmed.removeprefix("+")
    return (
        len(trimmed) >= 8
        and rest[:1] in tuple("0123456789")
        and all(character in "0123456789+ ().-" for character in trimmed)
        and any(character in "+ ().-" for character in trimmed)
    )


def is_refused(text: str) -> bool:
    control = any(unicodedata.category(character) == "Cc" for character in text)
    return control or "@" in text or is_address(text) or is_armoured(text) or is_token(text) or is_bearer(text)


@pytest.mark.spec("octet.bus.screen-linear", "octet.bus.screen-token", "octet.bus.screen-bearer")
@settings(max_examples=600)
@given(st.lists(st.sampled_from(FRAGMENTS), max_size=8).map("".join))
@example("a\u0130sk-abcdefgh")
@example("\u0130sk-abcdefgh")
@example("\u017fk_abcdefgh")
@example("+12345678")
def test_the_screen_refuses_what_its_rules_refuse(text: str) -> None:
    assert (refusal(text) is not None) == is_refused(text)


@pytest.mark.spec("octet.bus.screen-lookalikes")
@settings(max_examples=300)
@given(st.text(max_size=40))
def test_the_screen_agrees_with_its_rules_on_any_text(text: str) -> None:
    assert (refusal(text) is not None) == is_refused(text)
