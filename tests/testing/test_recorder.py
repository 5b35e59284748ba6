"""What a recorder asserts, and how a sequence with something missing or surplus reads."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from kit_members import Echo, Index, Reader, Writer

from broker.bus import Field
from broker.errors import ExitedError, UsageError
from broker.testing import Faults, MemoryHost, MemorySession, Recorder, ScriptedServer, SequenceError, entry
from broker.testing import recorder as recorder_module
from broker.testing.sequence import Entry, Mark, render

TOPIC = "bus.alpha.tick"


@pytest.fixture
def session() -> Iterator[MemorySession]:
    """A session in which alpha has published 1, 2 and 3."""
    with MemoryHost() as host, host.open_session() as session:
        alpha = session.peer("alpha")
        alpha.declare(TOPIC, [Field.integer("n")])
        for number in (1, 2, 3):
            session.advance(10)
            alpha.publish(TOPIC, {"n": number})
        yield session


def published(number: int) -> Any:
    return entry("published", source="alpha", payload={"n": number})


def problems(error: pytest.ExceptionInfo[SequenceError]) -> list[str]:
    return str(error.value).splitlines()


def test_what_is_true_passes(session: MemorySession) -> None:
    recorder = session.recorder
    recorder.in_order("attached", "declared", published(1), published(3))
    recorder.exactly_once("declared", published(2))
    recorder.times(3, "published")
    recorder.never("refused", published(4))
    recorder.nothing_else(published(1), published(2), published(3), among="published")
    recorder.nothing_else("attached", "declared", "published", "published", "published")
    assert [one.payload for one in recorder.found("published")] == [{"n": 1}, {"n": 2}, {"n": 3}]


def test_a_wrong_order_shows_what_came_too_early(session: MemorySession) -> None:
    with pytest.raises(SequenceError) as raised:
        session.recorder.in_order("declared", published(2), published(1))
    assert problems(raised) == [
        "not in this order:",
        f"  number 3 of 3 did not happen after number 2, {published(2)}: {published(1)}",
        '    0 ms  alpha -> bus             attached      {"generation":1}',
        '=   0 ms  alpha -> bus.alpha.tick  declared      {"revision":1}',
        '!  10 ms  alpha -> bus.alpha.tick  published #1  {"n":1}',
        '          ^ too early: published from alpha with {"n":1}',
        '=  20 ms  alpha -> bus.alpha.tick  published #2  {"n":2}',
        '   30 ms  alpha -> bus.alpha.tick  published #3  {"n":3}',
    ]


def test_too_many_and_too_few_are_shown(session: MemorySession) -> None:
    with pytest.raises(SequenceError) as raised:
        session.recorder.exactly_once("published")
    assert problems(raised)[:2] == ["not as often:", "  expected once, happened 3 times: published"]
    assert [line[0] for line in problems(raised)[2:]] == [" ", " ", "=", "!", "!"]
    with pytest.raises(SequenceError, match="expected twice, happened never: refused"):
        session.recorder.times(2, "refused")
    with pytest.raises(SequenceError, match="expected never, happened once: declared"):
        session.recorder.never("declared")


def test_missing_and_surplus_are_marked_in_their_places(session: MemorySession) -> None:
    with pytest.raises(SequenceError) as raised:
        session.recorder.nothing_else(published(1), published(4), published(3), among=entry(kind="bus", target=TOPIC))
    assert problems(raised) == [
        "not exactly this:",
        '  surplus: declared from alpha to bus.alpha.tick at 0 ms {"revision":1}',
        '  surplus: published #2 from alpha to bus.alpha.tick at 20 ms {"n":2}',
        '  missing: published from alpha with {"n":4}',
        '    0 ms  alpha -> bus             attached      {"generation":1}',
        '+   0 ms  alpha -> bus.alpha.tick  declared      {"revision":1}',
        "          ^ not expected",
        '=  10 ms  alpha -> bus.alpha.tick  published #1  {"n":1}',
        '+  20 ms  alpha -> bus.alpha.tick  published #2  {"n":2}',
        "          ^ not expected",
        '          - missing here: published from alpha with {"n":4}',
        '=  30 ms  alpha -> bus.alpha.tick  published #3  {"n":3}',
    ]


def test_what_is_missing_before_everything_is_shown_above(session: MemorySession) -> None:
    with pytest.raises(SequenceError) as raised:
        session.recorder.nothing_else("refused", "attached", among="attached")
    assert problems(raised)[1:3] == ["  missing: refused", "   - missing here: refused"]


def test_a_part_is_what_follows(session: MemorySession) -> None:
    part = session.recorder.from_here()
    part.never("published")
    session.peer("alpha").publish(TOPIC, {"n": 4})
    part.nothing_else(published(4))
    assert len(session.recorder.found("published")) == 4


def test_a_full_recorder_does_not_pretend_to_know_everything(
    session: MemorySession, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(recorder_module, "MAX_RECORDED_ENTRIES", 5)
    part = session.recorder.from_here()
    session.peer("alpha").publish(TOPIC, {"n": 4})
    with pytest.raises(UsageError, match=r"dropped its first 1 entries; assert on recorder.from_here\(\)") as raised:
        session.recorder.never("refused")
    assert (raised.value.limit, raised.value.observed, raised.value.maximum) == ("MAX_RECORDED_ENTRIES", 6, 5)
    part.exactly_once("published")


def test_frames_calls_notices_and_faults_are_all_there() -> None:
    with MemoryHost() as host, host.open_session() as session:
        for member in (Writer, Index, Reader, Echo):
            session.start(member)
        session.start(lambda: ScriptedServer({"work": "done"}), name="srv")
        session.call("writer", "write", {"n": 5})
        session.call_server("srv", "work")
        with pytest.raises(ExitedError):
            session.call("echo", "crash")
        session.inject(Faults().kill("reader"))
        recorder = session.recorder
        recorder.in_order(
            entry("call", source="test", target="writer", payload={"tool": "write", "arguments": {"n": 5}}),
            entry("tool/call", kind="frame", source="host", target="writer"),
            entry("bus/publish", source="writer", target="host"),
            entry("published", kind="bus", source="writer"),
            entry("bus/event", source="host", target="index", payload={"payload": {"n": 5}}),
            entry("bus/event", source="host", target="reader"),
            entry("tools/call", source="host", target="srv"),
            entry("exited", kind="notice", source="echo", payload={"status": 3}),
            entry("kill", kind="fault", target="reader"),
            entry("exited", kind="notice", source="reader", payload={"status": -9}),
        )
        recorder.exactly_once(entry("bus/event", target="reader"))
        recorder.times(2, entry("returned", kind="call"))
        recorder.exactly_once(entry("raised", kind="call", source="echo"))
        answers = [one for one in recorder.found("result") if one.source == "writer"]
        assert [one.note for one in answers] == ["of initialize", "of tool/call"]


def test_any_session_can_be_recorded_but_for_its_frames() -> None:
    with MemoryHost() as host:
        session = host.host.open_session("/workspace")
        recorder = Recorder(session)
        session.attach("alpha").declare(TOPIC, [Field.integer("n")])
        recorder.nothing_else("attached", "declared")
        recorder.close()
        session.attach("beta")
        recorder.exactly_once("attached")
        session.close()


def test_a_long_sequence_is_shown_in_part() -> None:
    entries = [Entry(number, "bus", "a", "b", "published") for number in range(200)]
    lines = render(entries, {100: Mark("+", "^ not expected")}, limit=8).splitlines()
    assert lines == [
        "     0 ms  a -> b  published",
        "     1 ms  a -> b  published",
        "   ... 98 more ...",
        "+  100 ms  a -> b  published",
        "           ^ not expected",
        "   ... 93 more ...",
        *[f"   {number} ms  a -> b  published" for number in range(194, 200)],
    ]
    assert render([]) == "   (nothing happened)"


def test_a_pattern_of_no_kind_is_refused() -> None:
    with pytest.raises(UsageError, match="kind: expected one of frame, bus, notice, call, fault, got 'frames'"):
        entry("tool/call", kind="frames")  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("wrong", "problem"),
    [
        (lambda recorder: recorder.times("call", 1), "count: expected a whole number from 0, got 'call'"),
        (lambda recorder: recorder.times(-1, "call"), "count: expected a whole number from 0, got -1"),
        (lambda recorder: recorder.never(5), r"expected what happened, a string or entry\(...\), got 5"),
        (lambda recorder: recorder.nothing_else("call", among=["call"]), "what happened, .* got ..call.."),
    ],
)
def test_what_means_nothing_is_refused(session: MemorySession, wrong: Any, problem: str) -> None:
    with pytest.raises(UsageError, match=problem):
        wrong(session.recorder)


def test_what_somebody_said_is_shown_whole() -> None:
    advice = "SetupError: " + " ".join(f"word{number}" for number in range(20))
    entries = [
        Entry(0, "notice", "alpha", "", "stderr", "one line"),
        Entry(5, "notice", "alpha", "", "crashed", f"generation 1 {'exited with status 3 ' * 4}in the end"),
        Entry(10, "call", "alpha", "test", "raised", f"{advice}\n  and a second line\x07", 1),
        Entry(12, "frame", "host", "alpha", "tool/call", {"text": "w" * 200}, 2),
    ]
    assert render(entries).splitlines() == [
        "    0 ms  alpha           stderr        one line",
        "    5 ms  alpha           crashed       generation 1 exited with status 3 exited with status 3",
        "            exited with status 3 exited with status 3 in the end",
        "   10 ms  alpha -> test   raised #1     SetupError: word0 word1 word2 word3 word4 word5 word6 word7",
        "            word8 word9 word10 word11 word12 word13 word14 word15 word16 word17 word18 word19",
        "              and a second line\\x07",
        '   12 ms  host  -> alpha  tool/call #2  {"text":"wwwwwwwwwwww...,...}',
    ]


def test_texts_have_a_bound_and_stay_within_the_columns() -> None:
    # However little room its first line leaves.
    for what in ("a", "a" * 30, "a" * 60):
        text = render([Entry(1, "notice", "some-module-by-name", "", what, "x" * 700 + "y" * 5_000 + "z" * 700)])
        assert max(map(len, text.splitlines())) <= 100
        said = "".join(line.strip() for line in text.splitlines()).replace(" ", "").partition("x")[2]
        assert said == "x" * 499 + "[5400characters]" + "z" * 500
