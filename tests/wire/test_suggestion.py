"""What may have been meant by a name that there is not."""

from __future__ import annotations

import pytest

from broker.wire.suggestion import suggestion

MANY = [f"tool{letter}" for letter in "abcdefghijklmnopqrst"]


@pytest.mark.parametrize(
    ("name", "known", "text"),
    [
        ("ad", ["add", "remove"], "; did you mean add?"),
        ("xyz", ["add", "remove"], "; it has add, remove"),
        ("xyz", [], "; it has none"),
        (None, ["add"], "; it has add"),
        ("xyz", MANY, f"; it has {', '.join(MANY[:16])} and 4 more"),
        ("ad\x1b", ["add\x1b"], "; did you mean add\\x1b?"),
        ("a" * 1_000, ["a" * 1_000], f"; did you mean {'a' * 140}?"),
    ],
)
def test_the_closest_or_the_first(name: object, known: list[str], text: str) -> None:
    assert suggestion(name, known, listed="it has") == text
