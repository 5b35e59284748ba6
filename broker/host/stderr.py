"""Turns a process's stderr into bounded, safe lines, and keeps its end for the error that names the exit."""

from __future__ import annotations

from collections.abc import Iterator

from broker.limits import MAX_STDERR_LINE_BYTES, MAX_STDERR_NOTE_CHARS, MAX_STDERR_TAIL_BYTES
from broker.wire.quoting import escape


class StderrLog:
    """Feed it bytes in any chunks; it never holds more than one bounded line and the tail."""

    def __init__(self) -> None:
        self._line = bytearray()
        self._tail = bytearray()

    def feed(self, data: bytes) -> Iterator[str]:
        """The lines that ``data`` completes: split on LF, CR dropped, cut at the bound, invalid UTF-8 replaced."""
        self._tail += data
        del self._tail[:-MAX_STDERR_TAIL_BYTES]
        start = 0
        while (end := data.find(b"\n", start)) >= 0:
            self._extend(data[start:end])
            yield self._flush()
            start = end + 1
        self._extend(data[start:])

    def finish(self) -> Iterator[str]:
        """The unterminated last line, if any."""
        if self._line:
            yield self._flush()

    @property
    def tail(self) -> str:
        """The end of everything written, safe to print."""
        lines = self._tail.decode("utf-8", "replace").splitlines()
        return "\n".join(escape(line) for line in lines if line.strip())

    @property
    def last_lines(self) -> str:
        """As many of the last lines as are a note of at most 400 characters; of one that is longer its end."""
        note = ""
        for line in reversed(self.tail.splitlines()):
            longer = f"{line}\n{note}" if note else line
            if len(longer) > MAX_STDERR_NOTE_CHARS:
                return note or f"...{line[3 - MAX_STDERR_NOTE_CHARS :]}"
            note = longer
        return note

    def _extend(self, part: bytes) -> None:
        self._line += part[: MAX_STDERR_LINE_BYTES - len(self._line)]

    def _flush(self) -> str:
        line = bytes(self._line).rstrip(b"\r").decode("utf-8", "replace")
        self._line.clear()
        return escape(line)
