"""Puts a JSON object back together that was written over several lines, which no wire here allows."""

from __future__ import annotations

import json

from broker.limits import MAX_CONFORM_JOINED_BYTES, MAX_CONFORM_JOINED_LINES


class Joiner:
    """Feed it lines: it gives back whole ones at once, and those of an object that spans several as one, at its end.

    A line that could begin such an object and does not turn out to is given back as it was, with what followed.
    """

    def __init__(self) -> None:
        self._lines: list[bytes] = []
        self._bytes = 0

    def feed(self, line: bytes) -> list[tuple[bytes, bool]]:
        """The lines that are complete now, each with whether it was put together from several."""
        if not self._lines:
            if line.strip() != b"{":
                return [(line, False)]
        elif _is_object(line):
            return [*self._give_up(), (line, False)]
        self._lines.append(line)
        self._bytes += len(line)
        if len(self._lines) > MAX_CONFORM_JOINED_LINES or self._bytes > MAX_CONFORM_JOINED_BYTES:
            return self._give_up()
        whole = b"\n".join(self._lines)
        if line.strip() != b"}" or not _is_object(whole):
            return []
        self._lines, self._bytes = [], 0
        return [(whole, True)]

    def _give_up(self) -> list[tuple[bytes, bool]]:
        lines, self._lines, self._bytes = self._lines, [], 0
        return [(line, False) for line in lines]


def _is_object(text: bytes) -> bool:
    try:
        return isinstance(json.loads(text), dict)
    except (ValueError, RecursionError):
        return False
