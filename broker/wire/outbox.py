"""The bounded queue of control frames waiting to be written to one process.

The queue holds complete frames only. What does not fit is the connection's to decide: requests wait, notifications are
dropped, an answer without room ends the connection. Bus events do not pass through here; they have their own credits.
"""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, Final

from attrs import define, field

from broker.errors import ResourceExhaustedError
from broker.limits import MAX_WRITER_FRAMES

if TYPE_CHECKING:
    from broker.wire.requests import HostRequest

_LF: Final = b"\n"


@define(eq=False)
class OutFrame:
    """One frame to write: ``data`` is its bytes with the LF; ``request`` the host request it carries, if any."""

    data: bytes
    request: HostRequest | None = None
    written: bool = field(default=False, init=False)

    @property
    def size(self) -> int:
        """Bytes that count against ``max_frame_bytes``: all but the LF."""
        return len(self.data) - len(_LF)


class Outbox:
    """First in, first out, at most ``capacity`` frames, each within ``bound`` bytes when queued and when taken.

    ``frames`` are those that wait, for a look from outside.
    """

    __slots__ = ("_capacity", "bound", "frames")

    def __init__(self, bound: int, *, capacity: int = MAX_WRITER_FRAMES) -> None:
        self.bound: int = bound
        self._capacity = capacity
        self.frames: deque[OutFrame] = deque()

    def __len__(self) -> int:
        return len(self.frames)

    @property
    def has_room(self) -> bool:
        """Whether one more frame may be queued."""
        return len(self.frames) < self._capacity

    def check_size(self, size: int) -> None:
        """Raise :class:`~broker.errors.ResourceExhaustedError` if a frame of ``size`` bytes is over the bound."""
        if size > self.bound:
            raise ResourceExhaustedError(
                f"a frame of {size} bytes is over the bound of {self.bound}",
                limit="MAX_FRAME_BYTES",
                observed=size,
                maximum=self.bound,
            )

    def push(self, payload: bytes, request: HostRequest | None = None) -> OutFrame:
        """Queue ``payload`` (without LF). The caller has checked room; the size is checked here."""
        self.check_size(len(payload))
        frame = OutFrame(payload + _LF, request)
        self.frames.append(frame)
        return frame

    def pop(self) -> OutFrame | None:
        """The next frame, or ``None``. Raises :class:`~broker.errors.ResourceExhaustedError` if the bound has been
        lowered below its size since it was queued.
        """
        if not self.frames:
            return None
        self.check_size(self.frames[0].size)
        return self.frames.popleft()

    def discard(self, frame: OutFrame) -> None:
        """Take a frame that is still queued out of the queue, unwritten."""
        self.frames.remove(frame)

    def clear(self) -> None:
        """Drop everything."""
        self.frames.clear()
