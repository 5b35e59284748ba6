"""What a session needs from the adapter that does its IO; whatever offers these two protocols can drive a session."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from typing import TYPE_CHECKING, Protocol, TypeVar

from broker.host.artifacts import ArtifactFiles
from broker.host.outcome import Outcome
from broker.host.work import Work

if TYPE_CHECKING:
    from broker.host.link import ProcessLink
    from broker.host.session import Session

T = TypeVar("T")


class Process(Protocol):
    """A started process of one link."""

    def flush(self) -> None:
        """Write what the link has to say, as far as the process takes it without waiting."""
        ...

    def close_stdin(self) -> None:
        """Close the process's input once everything queued was written. Idempotent."""
        ...

    def terminate(self) -> None:
        """Ask the process and everything it started to end (SIGTERM). Idempotent."""
        ...

    def kill(self) -> None:
        """End the process and everything it started, at once. ``exited()`` follows. Idempotent."""
        ...


class Driver(Protocol):
    """Starts processes and is told when there is something to do.

    A driver answers :meth:`spawn` with ``link.spawned(process)`` or ``link.spawn_failed(error)``, then feeds
    ``link.receive``, ``receive_stderr``, ``receive_eof`` and finally ``exited`` exactly once, all of them in the
    session's own thread. It leaves output in the pipe while ``link.reading`` says so, but not what is left when the
    process has ended.
    """

    def spawn(self, link: ProcessLink) -> None:
        """Begin to start the link's process; returns at once."""
        ...

    def offload(self, work: Callable[[], T]) -> Outcome[T]:
        """Do ``work`` where it may block, away from the session's thread; settles in the session's thread."""
        ...

    def adopt(self, awaitable: Awaitable[T]) -> Work[T]:
        """Wait for what a host's service answered with; giving the work up cancels the awaitable."""
        ...

    def artifact_files(self, roots: Sequence[str]) -> ArtifactFiles:
        """The artifacts below ``roots``, directories as configured."""
        ...

    def schedule(self, session: Session) -> None:
        """Soon write what the session's links have to say and look at its deadlines. Callable from any thread."""
        ...
