"""Framing: the bound, the LF, and that the size of a chunk never matters."""

from __future__ import annotations

import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from broker.errors import ProtocolError, UsageError
from broker.wire.framing import LineFramer

MEBIBYTE = 1_048_576
CHUNK = 65_536


def drain(framer: LineFramer) -> list[bytes]:
    frames = []
    while (frame := framer.next_frame()) is not None:
        frames.append(frame)
    return frames


def read_all(chunks: list[bytes], bound: int) -> tuple[list[bytes], str]:
    """Every frame, and how the stream ended: ``open``, ``over`` or ``cut``."""
    framer = LineFramer(bound)
    frames: list[bytes] = []
    for chunk in chunks:
        framer.feed(chunk)
        try:
            while (frame := framer.next_frame()) is not None:
                frames.append(frame)
        except ProtocolError as error:
            assert (error.limit, error.observed, error.maximum) == ("MAX_FRAME_BYTES", bound + 1, bound)
            return frames, "over"
    try:
        framer.finish()
    except ProtocolError:
        return frames, "cut"
    return frames, "open"


def expected_reading(data: bytes, bound: int) -> tuple[list[bytes], str]:
    lines = data.split(b"\n")
    frames = []
    for line in lines[:-1]:
        if len(line) > bound:
            return frames, "over"
        frames.append(line)
    if len(lines[-1]) > bound:
        return frames, "over"
    return frames, "cut" if lines[-1] else "open"


@pytest.mark.spec("octet.framing.chunk-independent")
@given(
    st.lists(st.sampled_from([b"\n", b"a", b"\r", b"\xe2\x80\xa8", b"\xff", b"aaaaaaa"]), max_size=40).map(b"".join),
    st.integers(1, 12),
    st.data(),
)
def test_any_split_of_the_bytes_gives_the_same_frames(data: bytes, bound: int, draw: st.DataObject) -> None:
    cuts = sorted(draw.draw(st.lists(st.integers(0, len(data)), max_size=8)))
    chunks = [data[a:b] for a, b in zip([0, *cuts], [*cuts, len(data)], strict=True)]
    assert read_all(chunks, bound) == expected_reading(data, bound)
    assert read_all([data[n : n + 1] for n in range(len(data))], bound) == expected_reading(data, bound)


@pytest.mark.spec("octet.framing.at-bound", "octet.framing.over-bound", "octet.framing.bound-excludes-lf")
def test_a_frame_at_the_bound_passes_and_one_byte_more_does_not() -> None:
    framer = LineFramer(8)
    framer.feed(b"12345678\n" + "ééé\n".encode() + b"123456789\nnext\n")
    assert framer.next_frame() == b"12345678"
    assert framer.next_frame() == "ééé".encode()
    for _ in range(2):
        with pytest.raises(ProtocolError) as caught:
            framer.next_frame()
        assert (caught.value.limit, caught.value.observed, caught.value.maximum) == ("MAX_FRAME_BYTES", 9, 8)


@pytest.mark.spec("octet.framing.over-bound", "octet.framing.over-bound-unterminated")
def test_an_over_long_line_is_refused_without_waiting_for_its_lf() -> None:
    framer = LineFramer(8)
    framer.feed(b"12345678")
    assert framer.next_frame() is None
    assert framer.pending == 8
    framer.feed(b"9")
    with pytest.raises(ProtocolError):
        framer.next_frame()


@pytest.mark.spec("octet.framing.over-bound")
def test_frames_before_an_over_long_line_are_still_given() -> None:
    framer = LineFramer(4)
    framer.feed(b"one\ntwo\n12345")
    framer.feed(b"\nthree\n")
    assert framer.next_frame() == b"one"
    assert framer.next_frame() == b"two"
    with pytest.raises(ProtocolError):
        framer.next_frame()


@pytest.mark.spec("octet.framing.lf-only")
def test_only_lf_ends_a_frame() -> None:
    framer = LineFramer(64)
    data = "a\u2028b\u2029c\u0085d\x0b\x0ce\r".encode()
    framer.feed(data + b"\n\n")
    assert drain(framer) == [data, b""]
    assert framer.pending == 0


@pytest.mark.spec("octet.framing.bound-change")
def test_a_lowered_bound_judges_bytes_already_buffered() -> None:
    framer = LineFramer(MEBIBYTE)
    framer.feed(b"the initialize answer\n12345678\n123456789\n")
    assert framer.next_frame() == b"the initialize answer"
    framer.set_bound(8)
    assert framer.max_bytes == 8
    assert framer.next_frame() == b"12345678"
    with pytest.raises(ProtocolError) as caught:
        framer.next_frame()
    assert caught.value.maximum == 8


@pytest.mark.spec("octet.framing.bound-change")
def test_a_lowered_bound_judges_a_line_still_coming() -> None:
    framer = LineFramer(64)
    framer.feed(b"123456789")
    assert framer.next_frame() is None
    framer.set_bound(8)
    with pytest.raises(ProtocolError):
        framer.next_frame()


def test_a_raised_bound_takes_effect_but_forgives_nothing() -> None:
    framer = LineFramer(4)
    framer.feed(b"12345678\n")
    framer.set_bound(8)
    assert framer.next_frame() == b"12345678"
    framer = LineFramer(4)
    framer.feed(b"12345")
    framer.set_bound(8)
    with pytest.raises(ProtocolError) as caught:
        framer.next_frame()
    assert (caught.value.observed, caught.value.maximum) == (5, 4)


@pytest.mark.parametrize("bound", [0, -1])
def test_a_bound_below_one_byte_is_a_usage_error(bound: int) -> None:
    with pytest.raises(UsageError):
        LineFramer(bound)


@pytest.mark.spec("octet.framing.unterminated", "octet.framing.eof-on-boundary")
def test_the_end_of_the_stream_inside_a_line_is_an_error_and_between_lines_is_not() -> None:
    framer = LineFramer(64)
    framer.finish()
    framer.feed(b"whole\n")
    framer.finish()
    framer.feed(b"half")
    assert framer.next_frame() == b"whole"
    assert framer.next_frame() is None
    with pytest.raises(ProtocolError, match="after 4 bytes"):
        framer.finish()


@pytest.mark.spec("octet.framing.memory")
@pytest.mark.parametrize("asked_each_time", [True, False])
def test_32_mebibytes_without_lf_are_not_kept(asked_each_time: bool) -> None:
    framer = LineFramer(MEBIBYTE)
    refused = 0
    for _ in range(32 * MEBIBYTE // CHUNK):
        framer.feed(b"x" * CHUNK)
        assert framer.pending <= MEBIBYTE + CHUNK
        if asked_each_time:
            try:
                assert framer.next_frame() is None
            except ProtocolError:
                refused += 1
    with pytest.raises(ProtocolError):
        framer.next_frame()
    assert refused == (32 * MEBIBYTE // CHUNK - 16 if asked_each_time else 0)


@pytest.mark.spec("octet.framing.linear")
def test_a_mebibyte_in_single_bytes_and_many_small_frames_take_linear_time() -> None:
    started = time.thread_time()
    framer = LineFramer(MEBIBYTE)
    for _ in range(MEBIBYTE // 4):
        framer.feed(b"x")
        assert framer.next_frame() is None
    framer.feed(b"\n")
    assert framer.next_frame() == b"x" * (MEBIBYTE // 4)
    framer.feed(b"{}\n" * 300_000)
    assert len(drain(framer)) == 300_000
    assert time.thread_time() - started < 5


def test_the_rest_of_an_ended_stream_can_be_taken_once() -> None:
    framer = LineFramer(8)
    framer.feed(b"one\ntwo")
    assert framer.next_frame() == b"one"
    assert framer.next_frame() is None
    assert framer.take_rest() == b"two"
    assert framer.take_rest() is None
    assert framer.pending == 0
    framer.finish()
