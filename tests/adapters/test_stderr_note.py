"""The last lines of stderr that an error's text shows."""

from __future__ import annotations

import pytest

from broker.host.stderr import StderrLog
from broker.limits import MAX_STDERR_NOTE_CHARS


@pytest.mark.parametrize(
    ("written", "note"),
    [
        (b"", ""),
        (b"one\n\n  \ntwo\n", "one\ntwo"),
        (b"x" * MAX_STDERR_NOTE_CHARS, "x" * MAX_STDERR_NOTE_CHARS),
        (b"first\n" + b"x" * MAX_STDERR_NOTE_CHARS, "x" * MAX_STDERR_NOTE_CHARS),
        (b"x" * MAX_STDERR_NOTE_CHARS + b"y", "..." + "x" * (MAX_STDERR_NOTE_CHARS - 4) + "y"),
        (b"a" * 300 + b"\n" + b"b" * 98 + b"\nc\n", "b" * 98 + "\nc"),
        (b"a" * 300 + b"\n" + b"b" * 97 + b"\nc\n", "a" * 300 + "\n" + "b" * 97 + "\nc"),
    ],
)
def test_whole_lines_from_the_end(written: bytes, note: str) -> None:
    log = StderrLog()
    for _ in log.feed(written):
        pass
    assert log.last_lines == note
    assert len(note) <= MAX_STDERR_NOTE_CHARS
