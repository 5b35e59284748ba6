"""What every process of a session has in common, whatever protocol it speaks: stderr, deadlines, and how it ends.

A link is fed by a driver and drives nothing itself. Its life is a line: starting, initializing, ready, draining, ended.
Whatever goes wrong on the way leads to :meth:`ProcessLink.fail`, which settles everything open and kills the process
group; the line ends when the driver says that the process is gone. Source: octet notes, section 2.6.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from enum import Enum
from typing import TYPE_CHECKING, Final

from broker.bus import Held
from broker.errors import BrokerError, ExitedError
from broker.host.driver import Process
from broker.host.notices import Diagnostic
from broker.host.output import Output
from broker.host.stderr import StderrLog
from broker.limits import MAX_WRITER_FRAMES
from broker.wire.quoting import escape

if TYPE_CHECKING:
    from broker.host.session import Session


class Stage(Enum):
    """How far a process is on its line."""

    STARTING = "starting"
    INITIALIZING = "initializing"
    READY = "ready"
    DRAINING = "draining"
    ENDED = "ended"


_ENDED: Final = Stage.ENDED  # looking it up in its class takes longer


class ProcessLink(ABC):
    """One process of a session. The session calls the first half of its methods, the driver the second."""

    def __init__(self, session: Session, name: str, number: int) -> None:
        self.session = session
        self.name = name
        self.number = number
        self.stage: Stage = Stage.STARTING
        self.failure: BrokerError | None = None
        self._process: Process | None = None
        self._stderr = StderrLog()
        self._killed = False
        self._deadline: tuple[int, Callable[[], None]] | None = None

    # -- the session's side --------------------------------------------------------------------------------------------

    @property
    def alive(self) -> bool:
        """Whether it was neither asked to end nor found broken."""
        return self.failure is None and self.stage in (Stage.STARTING, Stage.INITIALIZING, Stage.READY)

    def fail(self, error: BrokerError) -> None:
        """It is broken: settle everything open with ``error`` and kill the process. Idempotent."""
        if self.failure is not None or self.stage is Stage.ENDED:
            return
        self.failure = error
        self._settle_failed(error)
        self._kill()
        self._failed(error)

    def tick(self) -> None:
        """Let every deadline that has passed act."""
        if self._deadline is not None and self.session.clock.monotonic_ms() >= self._deadline[0]:
            act = self._deadline[1]
            self._deadline = None
            act()
        if self.stage in (Stage.INITIALIZING, Stage.READY, Stage.DRAINING) and not self._killed:
            self._tick_protocol()

    def next_deadline(self) -> int | None:
        """The earliest monotonic millisecond at which :meth:`tick` has something to do."""
        mine = None if self._deadline is None else self._deadline[0]
        theirs = None if self.stage is Stage.ENDED or self._killed else self._protocol_deadline()
        return min((due for due in (mine, theirs) if due is not None), default=None)

    # -- the driver's side ---------------------------------------------------------------------------------------------

    def spawned(self, process: Process) -> None:
        """The process runs."""
        self._process = process
        if self.failure is not None:
            self._kill()
            return
        self.stage = Stage.INITIALIZING
        try:
            self._initialize()
        except BrokerError as error:
            self.fail(error)
        self.session.changed()

    def spawn_failed(self, error: BrokerError) -> None:
        """The process could not be started."""
        if self.failure is None:
            self.failure = error
            self._settle_failed(error)
            self._failed(error)
        self._end(None)

    @property
    def reading(self) -> bool:
        """Whether it wants more of the process's output now; a driver leaves the rest in the pipe until it does."""
        return True

    def receive(self, data: bytes) -> None:
        """Bytes from the process's stdout, in any chunks."""
        if self.failure is None and self.stage is not _ENDED:
            self._receive_data(data)
            self._moved()

    def receive_stderr(self, data: bytes) -> None:
        """Bytes from the process's stderr, in any chunks."""
        for line in self._stderr.feed(data):
            self._diagnose(line, source="stderr")

    def receive_eof(self) -> None:
        """The process closed its stdout. A moment is left for its exit, so that the error can say how it ended."""
        if self.alive:
            self._after(self.session.settings.stream_end_grace_ms, lambda: self._closed_but_alive("output"))

    def write_failed(self) -> None:
        """The process closed its stdin; what it still has to say, and its exit, decide what happens."""
        if self.alive:
            self._after(self.session.settings.stream_end_grace_ms, lambda: self._closed_but_alive("input"))

    def exited(self, status: int | None) -> None:
        """The process is gone and reaped; everything it wrote was received before."""
        for line in self._stderr.finish():
            self._diagnose(line, source="stderr")
        if self.alive:
            error = self._exit_error(status)
            self._end_of_output(error)
            self.fail(error)
        self._end(status)

    @abstractmethod
    def next_output(self) -> Output | None:
        """The next frame to write, if there is one."""

    def stale_write(self, held: Held) -> None:
        """A bus message that was partly written may no longer be delivered; it must not be finished."""
        raise AssertionError("only a link that writes bus messages is told of stale ones")

    # -- what a protocol adds ------------------------------------------------------------------------------------------

    @abstractmethod
    def _initialize(self) -> None:
        """Begin the handshake."""

    @abstractmethod
    def _receive_data(self, data: bytes) -> None:
        """Take bytes of the process and act on what they say."""

    def _end_of_output(self, error: BrokerError) -> None:  # noqa: B027 - not every protocol has something to add
        """Take the end of the process's output, before the link fails with ``error`` for it."""

    @abstractmethod
    def _settle_failed(self, error: BrokerError) -> None:
        """Settle everything open with ``error``."""

    @abstractmethod
    def _settle_ended(self) -> None:
        """Settle what is still open after an orderly end."""

    @abstractmethod
    def _tick_protocol(self) -> None:
        """Let the protocol's own deadlines act."""

    @abstractmethod
    def _protocol_deadline(self) -> int | None:
        """The protocol's own next deadline."""

    @abstractmethod
    def _failed(self, error: BrokerError) -> None:
        """Tell the owner that it is broken; the process may still have to be reaped."""

    @abstractmethod
    def _ended(self, status: int | None) -> None:
        """Tell the owner that the process is gone."""

    # -- inside --------------------------------------------------------------------------------------------------------

    @property
    def _shown(self) -> str:
        return f"{self.name} (generation {self.number})"

    def _moved(self) -> None:
        """Something was received; have the driver look if that is of any use."""
        self.session.changed()

    def _relieve(self, queued: int) -> None:
        """Write if ``queued`` frames are many: a burst of answers must not fill the queue of a process that reads."""
        if queued >= MAX_WRITER_FRAMES // 2 and self._process is not None:
            self._process.flush()

    def _enter(self, stage: Stage) -> None:
        self.stage = stage

    def _closed_but_alive(self, which: str) -> None:
        error = ExitedError(
            f"{self._shown}: closed its {which} but did not exit{self._stderr_note()}",
            extension=self.name,
            stderr_tail=self._stderr.tail,
        )
        if which == "output":
            self._end_of_output(error)
        self.fail(error)

    def _exit_error(self, status: int | None) -> BrokerError:
        when = "while it was in use" if self.stage is Stage.READY else "before it answered initialize"
        how = f"exited with status {status}" if status is None or status >= 0 else f"was killed by signal {-status}"
        return ExitedError(
            f"{self._shown}: {how} {when}{self._stderr_note()}",
            extension=self.name,
            status=status,
            stderr_tail=self._stderr.tail,
        )

    def _stderr_note(self) -> str:
        note = self._stderr.last_lines
        return f"; its stderr ends with: {note}" if note else ""

    def _kill(self) -> None:
        self._killed = True
        if self._process is not None:
            self._process.kill()
            self._after(self.session.settings.exit_grace_ms, self._give_up)

    def _give_up(self) -> None:
        self._diagnose("the process was killed but has not ended; it is left behind")
        self._end(None)

    def _end(self, status: int | None) -> None:
        if self.stage is Stage.ENDED:
            return
        self.stage = Stage.ENDED
        self._deadline = None
        self._settle_ended()
        self._ended(status)
        self.session.changed()

    def _after(self, delay_ms: int, act: Callable[[], None]) -> None:
        self._deadline = (self.session.clock.monotonic_ms() + delay_ms, act)
        self.session.changed()

    def _diagnose(self, text: str, *, source: str = "host") -> None:
        self.session.announce(Diagnostic(self.name, self.number, source, escape(text)))
