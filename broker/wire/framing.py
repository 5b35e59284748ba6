"""Bytes to lines: a frame is what stands before one LF, up to a bound that does not count the LF.

Sans-IO. The framer splits on LF and on nothing else (U+2028 or CR inside a frame are just bytes); what an empty line or
a trailing CR means is the calling wire's decision. Source: octet reference, "Canonical framing and JSON-RPC envelopes".
"""

from __future__ import annotations

from typing import Final

from broker.errors import ProtocolError, UsageError

_LF: Final = b"\n"


class LineFramer:
    """Cuts a byte stream into frames of at most ``max_bytes`` bytes each.

    ``feed`` what was read, then call ``next_frame`` until it answers ``None``; at the end of the stream, ``finish``.
    Every byte is looked at a bounded number of times, whatever the size of the chunks. A line over the bound is known
    at its first byte too many, without its LF; from then on nothing more is kept, so memory stays within the frames
    not yet taken, the bound and one chunk.
    """

    __slots__ = ("_buffer", "_max_bytes", "_passed", "_refused", "_scanned", "_start", "_tail")

    def __init__(self, max_bytes: int) -> None:
        self._buffer = bytearray()
        self._start = 0  # where the first frame not yet taken begins
        self._scanned = 0  # no LF stands between _start and here
        self._tail = 0  # bytes behind the last LF
        self._passed: int | None = None  # the bound that a line went over; nothing is kept after it
        self._refused = False  # next_frame has reached that line
        self.set_bound(max_bytes)

    @property
    def max_bytes(self) -> int:
        """The bound of a frame, in bytes, without its LF."""
        return self._max_bytes

    @property
    def pending(self) -> int:
        """How many bytes are held: frames not yet taken, their LFs, and the line not yet complete."""
        return len(self._buffer) - self._start

    def set_bound(self, max_bytes: int) -> None:
        """Judge every byte not yet returned by ``next_frame``, buffered or to come, under this bound.

        A line that was already found to be over the earlier bound stays refused, even under a larger one.
        """
        if max_bytes < 1:
            raise UsageError(f"a frame bound is at least 1 byte, not {max_bytes}")
        self._max_bytes = max_bytes

    def feed(self, data: bytes | bytearray | memoryview) -> None:
        """Take bytes as they were read. Never raises for what they are: ``next_frame`` does, in order."""
        if self._passed is not None:
            return
        buffer = self._buffer
        before = len(buffer)
        buffer += data
        last = buffer.rfind(_LF, before)
        self._tail = self._tail + len(data) if last < 0 else len(buffer) - last - 1
        if self._tail > self._max_bytes:
            self._passed = self._max_bytes

    def next_frame(self) -> bytes | None:
        """The next complete frame without its LF, or ``None`` when more bytes are needed.

        Raises :class:`~broker.errors.ProtocolError` (``MAX_FRAME_BYTES``) for a line over the bound, when the frames
        before it have been taken; the stream cannot be read on, and every later call raises the same.
        """
        buffer = self._buffer
        if not buffer and self._passed is None:
            return None
        if self._refused:
            raise self._over()
        start = self._start
        stop = start + self._max_bytes + 1
        end = buffer.find(_LF, self._scanned, stop)
        if end >= 0:
            frame = bytes(buffer[start:end])
            end += 1
            if end == len(buffer):
                buffer.clear()
                end = 0
            self._start = self._scanned = end
            return frame
        if len(buffer) >= stop:
            self._refused = True
            self._passed = self._max_bytes
        if self._passed is not None and self.pending == self._tail:
            self._refused = True
        if self._refused:
            raise self._over()
        if self._start:
            # Only when the frames before it have been taken: what moves is one line's beginning, once.
            del buffer[: self._start]
            self._start = 0
        self._scanned = len(buffer)
        return None

    def finish(self) -> None:
        """Say that the stream has ended. Raises :class:`~broker.errors.ProtocolError` if its last line has no LF."""
        if self._tail:
            raise ProtocolError(f"the stream ended inside a frame, after {self._tail} bytes of it")

    def take_rest(self) -> bytes | None:
        """The last line of a stream that ended without its LF, ``None`` if there is none.

        For wires that accept such a line; called instead of :meth:`finish` when ``next_frame`` has answered ``None``.
        """
        rest = bytes(self._buffer[self._start :])
        self._buffer.clear()
        self._start = self._scanned = self._tail = 0
        return rest or None

    def _over(self) -> ProtocolError:
        bound = self._passed or self._max_bytes
        return ProtocolError(
            f"a frame of more than {bound} bytes",
            name="resource_exhausted",
            limit="MAX_FRAME_BYTES",
            observed=bound + 1,
            maximum=bound,
        )
