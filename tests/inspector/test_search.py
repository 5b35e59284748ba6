"""The inspector's search line: what it finds, and what it says of a wrong one."""

from __future__ import annotations

from typing import Any

import pytest

from broker.errors import UsageError
from broker.inspector import InspectedRecord, Search

EVENT = {
    "kind": "event",
    "topic": "bus.board.News",
    "publisher": "board",
    "sequence": 4,
    "payload": {"text": "Gr\xfcn"},
}
STDERR = {"kind": "diagnostic", "extension": "noisy", "generation": 2, "source": "stderr", "reason": "Time[out]"}


def found(text: str, *records: dict[str, Any]) -> list[str]:
    entries = [InspectedRecord(number, 0, record) for number, record in enumerate(records or (EVENT, STDERR), 1)]
    search = Search(text)
    return [entry.kind for entry in entries if search.finds(entry)]


@pytest.mark.parametrize(
    ("text", "kinds"),
    [
        ("", ["event", "diagnostic"]),
        ("kind:event", ["event"]),
        ("-kind:event", ["diagnostic"]),
        ("kind:*", ["event", "diagnostic"]),
        ("topic:bus.board.*", ["event"]),
        ("topic:bus.board", []),
        ("who:noisy", ["diagnostic"]),
        ("who:board kind:diagnostic", []),
        ("GR\xdcN", ["event"]),
        ("time[out]", ["diagnostic"]),
        ("sequence", ["event"]),
        ("-sequence -noisy", []),
        ("-", []),
    ],
)
def test_every_word_has_to_be_met(text: str, kinds: list[str]) -> None:
    assert found(text) == kinds


def test_brackets_and_stars_in_a_value_mean_themselves_and_anything() -> None:
    odd = {"kind": "diagnostic", "extension": "a[b]c", "source": "host", "reason": "-"}
    assert found("who:a[b]c", odd) == ["diagnostic"]
    assert found("who:a*c", odd) == ["diagnostic"]
    assert found("who:a[x]c", odd) == []


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("colour:red", "no key 'colour': a search knows kind:, who:, topic:"),
        ("kind:", "kind: needs a value, such as kind:*"),
        ("http://x", "no key 'http': a search knows kind:, who:, topic:"),
        ("-who:", "who: needs a value, such as who:*"),
    ],
)
def test_a_wrong_line_says_what_is_wrong(text: str, problem: str) -> None:
    with pytest.raises(UsageError) as caught:
        Search(text)
    assert str(caught.value) == problem
