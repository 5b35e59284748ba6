"""One process of a session in memory: a scripted object, what is on its way to and from it, and what is wrong with it.

It moves in steps, each the smallest thing that can happen, so that their order can be decided from outside.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator
from typing import Any, Final, Literal, TypeAlias

import orjson
from attrs import frozen

from broker.host import ProcessLink
from broker.host.output import Output
from broker.limits import MEMORY_PIPE_BYTES
from broker.testing.scripted import ScriptedProcess

Direction: TypeAlias = Literal["heard", "sent"]
Pipe: TypeAlias = Literal["input", "output", "both"]

KILLED: Final = -9


@frozen
class Frame:
    """One line between a host and a process. ``direction`` is the process's: it ``heard`` it or ``sent`` it.

    ``data`` is without LF; ``message`` is None for what is no JSON object.
    """

    link: ProcessLink
    direction: Direction
    data: bytes
    message: dict[str, Any] | None


class Lines:
    """Makes frames of the bytes that pass one way."""

    def __init__(self, link: ProcessLink, direction: Direction) -> None:
        self._link = link
        self._direction: Direction = direction
        self._unread = bytearray()

    def feed(self, data: bytes) -> Iterator[Frame]:
        """The frames that ``data`` completes."""
        self._unread += data
        while (end := self._unread.find(b"\n")) >= 0:
            line = bytes(self._unread[:end])
            del self._unread[: end + 1]
            try:
                message = orjson.loads(line)
            except orjson.JSONDecodeError:
                message = None
            yield Frame(self._link, self._direction, line, message if type(message) is dict else None)


def step_name(link: ProcessLink) -> str:
    """What a process is called in choices: its name, its number from 2 on, its session where that has a name."""
    name = link.name if link.number == 1 else f"{link.name}/{link.number}"
    return f"{name} of {link.session.name}" if link.session.name else name


class MemoryProcess:
    """The :class:`broker.host.Process` of one link. ``label`` names it in choices.

    ``piped`` says that what the host writes waits in a pipe until a step reads it; else it is heard at once.
    ``passed(process, frame)`` is told of every frame when it arrives, ``strike(process, frame)`` at the moment at which
    something may go wrong: before it acts on what it heard, and after the host has what it sent.
    """

    def __init__(
        self,
        link: ProcessLink,
        extension: ScriptedProcess,
        *,
        now_ms: Callable[[], int],
        passed: Callable[[Frame], object],
        strike: Callable[[MemoryProcess, Frame], object],
        piped: bool = False,
    ) -> None:
        self.link: ProcessLink = link
        self.extension: ScriptedProcess = extension
        self.label: str = step_name(link)
        self.gone: bool = False
        self._now_ms = now_ms
        self._passed = passed
        self._strike = strike
        self._piped = piped
        self._pipe: deque[bytes] = deque()
        self._pipe_bytes = 0
        self._closing = False
        self._killed = False
        self._heard = Lines(link, "heard")
        self._sent = Lines(link, "sent")
        # What is wrong with it.
        self._stalled = False
        self._stalled_until: int | None = None
        self._pace_ms = 0
        self._hears_at: int | None = None
        self._deaf = False
        self._mute = False
        self._read = b""  # before it stalled, and not yet acted on
        self._piece: Callable[[int], int] | None = None

    # -- broker.host.Process -------------------------------------------------------------------------------------------

    def flush(self) -> None:
        """Take what the link has to say: into the pipe, or straight to the object."""
        if self._piped:
            while self._pipe_bytes < MEMORY_PIPE_BYTES and not self._deaf and not self.gone:
                output = self._next()
                if output is None:
                    return
                self._pipe.append(output.data)
                self._pipe_bytes += len(output.data)
                output.written()
            return
        while self._can_hear and self._hear_one():
            pass
        if self._can_end_input:
            self._end_input()

    def close_stdin(self) -> None:
        """Close the object's input once it heard everything."""
        self._closing = True

    def terminate(self) -> None:
        """Let it hear SIGTERM."""
        self.extension.on_terminate()

    def kill(self) -> None:
        """End it at its next step, as SIGKILL does: what it has not got rid of is lost."""
        self._killed = True

    # -- steps ---------------------------------------------------------------------------------------------------------

    def step(self) -> bool:
        """Let the host hear all that is there to hear; whether there was anything."""
        moved = False
        while self._can_tell:
            moved = True
            self._tell_one()
        while self._can_say:
            moved = True
            self._say_one()
        if self._can_exit:
            moved = True
            self._exit()
        return moved

    def steps(self) -> Iterator[tuple[str, Callable[[], object]]]:
        """What it can do now, each by a name."""
        self.flush()
        if self._pipe and self._can_hear:
            yield f"{self.label} reads", self._hear_one
        elif self._can_end_input:
            yield f"{self.label} reads the end", self._end_input
        if self._can_tell:
            yield f"{self.label} writes stderr", self._tell_one
        if self._can_say:
            yield f"{self.label} writes", self._say_one
        elif self._can_exit:
            yield f"{self.label} exits", self._exit

    def tick(self) -> None:
        """Let what is due act."""
        now = self._now_ms()
        if self._stalled_until is not None and now >= self._stalled_until:
            self._stalled, self._stalled_until = False, None
            read, self._read = self._read, b""
            self._act_on(read)
        if not self._stalled and not self._ended:
            self.extension.tick(now)

    def next_deadline(self) -> int | None:
        """The earliest monotonic millisecond at which :meth:`tick` has something to do."""
        if self._ended:
            return None
        if self._stalled:
            return self._stalled_until
        paced = self._hears_at if self._hears_at is not None and self._hears_at > self._now_ms() else None
        own = self.extension.next_deadline()
        return min((due for due in (paced, own) if due is not None), default=None)

    # -- what can go wrong ---------------------------------------------------------------------------------------------

    def stall(self, for_ms: int | None = None) -> None:
        """Neither read nor write, as a stopped process does; for ever or for some time."""
        self._stalled = True
        self._stalled_until = None if for_ms is None else self._now_ms() + for_ms

    def drop_pipe(self, which: Pipe) -> None:
        """Close its end of a pipe without ending."""
        if which != "input" and not self._mute:
            self._mute = True
            self.link.receive_eof()
        if which != "output" and not self._deaf:
            self._deaf = True
            self._pipe.clear()
            self.link.write_failed()

    def garble(self, data: bytes) -> None:
        """Write ``data`` before anything else."""
        self.extension.sent.appendleft(data)

    def slow_down(self, every_ms: int) -> None:
        """Read no more than one frame in so many milliseconds."""
        self._pace_ms = every_ms
        self._hears_at = self._now_ms() + every_ms

    def split(self, piece: Callable[[int], int]) -> None:
        """Have what it writes and reads come in pieces; ``piece(size)`` is the length of the next, from 1 on."""
        self._piece = piece

    # -- inside --------------------------------------------------------------------------------------------------------

    @property
    def _ended(self) -> bool:
        return self.gone or self._killed or self.extension.exit_status is not None

    @property
    def _can_hear(self) -> bool:
        if self._stalled or self._deaf or self._ended or not self.extension.reading:
            return False
        return self._hears_at is None or self._now_ms() >= self._hears_at

    @property
    def _can_end_input(self) -> bool:
        return self._closing and not self._pipe and not self.extension.stdin_closed and self._can_hear

    @property
    def _can_tell(self) -> bool:
        return bool(self.extension.stderr) and not self._stalled and not self.gone

    @property
    def _can_say(self) -> bool:
        if self.gone or self._killed or self._stalled or not self.extension.sent:
            return False
        return self.link.reading or self.extension.exit_status is not None

    @property
    def _can_exit(self) -> bool:
        if self.gone:
            return False
        return self._killed or (
            not self._stalled
            and self.extension.exit_status is not None
            and not self.extension.sent
            and not self.extension.stderr
        )

    def _next(self) -> Output | None:
        while (output := self.link.next_output()) is not None:
            if output.valid:
                return output
            output.dropped()
        return None

    def _hear_one(self) -> bool:
        """Give it the next frame, if there is one."""
        output = None
        if self._pipe:
            data = self._pipe.popleft()
            self._pipe_bytes -= len(data)
        else:
            output = self._next()
            if output is None:
                return False
            data = output.data
        if self._hears_at is not None:
            self._hears_at = self._now_ms() + self._pace_ms
        for frame in self._heard.feed(data):
            self._passed(frame)
            self._strike(self, frame)
        # A fault may have struck between reading the frame and acting on it.
        if self._stalled:
            self._read = data
        elif not self._ended and not self._deaf:
            self._act_on(data)
        if output is not None:
            output.written()
        return True

    def _end_input(self) -> None:
        self.extension.stdin_closed = True
        self.extension.on_eof()

    def _tell_one(self) -> None:
        self.link.receive_stderr(self.extension.stderr.popleft())

    def _say_one(self) -> None:
        data = self.extension.sent.popleft()
        if self._mute:
            return
        if data is None:
            self._mute = True
            self.link.receive_eof()
            return
        if self._piece is not None and len(data) > 1:
            size = self._piece(len(data))
            if size < len(data):
                self.extension.sent.appendleft(data[size:])
                data = data[:size]
        frames = list(self._sent.feed(data))
        for frame in frames:
            self._passed(frame)
        self.link.receive(data)
        for frame in frames:
            self._strike(self, frame)

    def _exit(self) -> None:
        self.gone = True
        self.extension.on_gone()
        self.link.exited(KILLED if self._killed else self.extension.exit_status)

    def _act_on(self, data: bytes) -> None:
        while self._piece is not None and len(data) > 1:
            size = self._piece(len(data))
            self.extension.hear(data[:size])
            data = data[size:]
        if data:
            self.extension.hear(data)
