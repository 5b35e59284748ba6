"""Frames on their way to a process, and what must be told when they are written or dropped."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeAlias

from broker.bus import Held
from broker.wire.outbox import OutFrame


class ControlOutput:
    """A frame of the protocol itself, such as a request or an answer; never stale."""

    __slots__ = ("_frame", "_written", "data")

    held: Held | None = None
    valid = True

    def __init__(self, frame: OutFrame, written: Callable[[OutFrame], None]) -> None:
        self._frame = frame
        self._written = written
        self.data: bytes = frame.data

    def written(self) -> None:
        """All bytes are with the process."""
        self._written(self._frame)

    def dropped(self) -> None:
        """The stream ended before it was written."""


class BusOutput:
    """A bus message whose credit is used until it is written or dropped."""

    __slots__ = ("_done", "data", "held")

    def __init__(self, held: Held, done: Callable[[], None]) -> None:
        self.held: Held | None = held
        self.data: bytes = held.message.frame + b"\n"
        self._done = done

    @property
    def valid(self) -> bool:
        """Whether the message may still be delivered."""
        return self.held is not None and self.held.valid

    def written(self) -> None:
        """All bytes are with the process: give the credit back."""
        if self.held is not None:
            self.held.release()
            self._done()

    def dropped(self) -> None:
        """It was not delivered: give the credit back, and have it counted as what it became."""
        if self.held is not None:
            self.held.discard()
            self._done()


Output: TypeAlias = ControlOutput | BusOutput
