"""An event stream read back: in any pieces, past anything that is no event, up to a torn last line."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from broker.limits import MAX_EVENT_LINE_BYTES
from broker.wire.odek.events.reader import EventReader, decode

RUN_ID = "ab" * 16


def line(number: int = 1, **members: Any) -> bytes:
    value = {
        "schema": "odek.event/v1",
        "type": "session_saved",
        "run_id": RUN_ID,
        "timestamp": "2026-08-07T12:00:00Z",
        "data": {"message_count": number},
        **members,
    }
    return json.dumps({name: member for name, member in value.items() if member is not ...}).encode() + b"\n"


def numbers(reader: EventReader, *pieces: bytes) -> list[int]:
    return [event.data["message_count"] for piece in pieces for event in reader.feed(piece)]


@pytest.mark.spec("odek.event.unknown-ignored")
def test_unknown_types_and_fields_are_ignored() -> None:
    reader = EventReader()
    data = line(1) + line(2, type="brand_new") + line(3, turn_id="x", data={"message_count": 3, "more": [1]})
    assert numbers(reader, data) == [1, 3]
    assert (reader.statistics.events, reader.statistics.unknown, reader.statistics.malformed) == (2, 1, 0)


def test_a_torn_last_line_is_no_event_until_it_is_finished() -> None:
    reader = EventReader()
    whole = line(1) + line(2)
    assert numbers(reader, whole[:-9]) == [1]
    assert reader.torn == len(line(2)) - 9
    assert numbers(reader, whole[-9:]) == [2]
    assert (reader.torn, reader.statistics.malformed) == (0, 0)


@pytest.mark.parametrize(
    "junk",
    [
        b"\n\n   \n",
        b"not json\n",
        b"[]\n",
        b'{"schema":"odek.event/v2"}\n',
        b'{"schema":"odek.event/v1","type":"sess\n',
        b"[" * 100_000 + b"\n",
        b"\xff\xfe\n",
        line(type=7),
        line(type=...),
        line(run_id=None),
        line(data=[]),
        line(iteration="1"),
        line(tool=1),
    ],
)
def test_what_is_no_event_is_passed_over(junk: bytes) -> None:
    reader = EventReader()
    assert numbers(reader, line(1) + junk + line(2)) == [1, 2]
    assert reader.statistics.malformed == (1 if junk.strip() else 0)


def test_an_endless_line_keeps_memory_flat() -> None:
    reader = EventReader()
    for _ in range(5):
        assert numbers(reader, b"x" * (MAX_EVENT_LINE_BYTES // 2)) == []
        assert reader.torn <= MAX_EVENT_LINE_BYTES
    assert numbers(reader, b"\n" + line(5)) == [5]
    assert reader.statistics.malformed == 1
    assert numbers(reader, b"x" * (MAX_EVENT_LINE_BYTES + 1) + b"\n" + line(6)) == [6]


@given(st.lists(st.integers(1, 40), max_size=60))
@settings(max_examples=60, deadline=None)
def test_pieces_of_any_size(sizes: list[int]) -> None:
    data = line(1) + b"junk\n" + line(2, type="new") + line(3) + b"torn"
    reader = EventReader()
    found: list[int] = []
    at = 0
    for size in [*sizes, len(data)]:
        found += numbers(reader, data[at : at + size])
        at += size
    assert found == [1, 3]
    assert reader.torn == 4


def test_members_that_do_not_apply_are_none() -> None:
    event = decode(line(1))
    assert event is not None
    assert (event.session_id, event.iteration, event.tool) == (None, None, None)
    event = decode(line(1, session_id="s", iteration=3, tool="t", data=...))
    assert event is not None
    assert (event.session_id, event.iteration, event.tool, event.data) == ("s", 3, "t", {})
