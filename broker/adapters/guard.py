"""A helper process that outlives the host by a moment: it kills and removes what the host left behind.

A child notices the host's death by the end of its stdin, but only when it reads. One that is busy, stuck or hostile
would live on. So one tiny shell per host waits on a pipe that only the host holds: when the host ends, however it ends,
the pipe ends, and the shell sends SIGKILL to every process group still registered. Then it removes the directory those
processes could write to.

Source: design, "Failure": no orphan after any ending of the host.
"""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import threading
import time
import weakref
from typing import Final, Self

from broker.clock import SystemClock
from broker.errors import UsageError
from broker.limits import EXIT_GRACE_MS

# Reads "+PGID", "-PGID" and "=DIRECTORY" lines. POSIX sh, and built-ins only until every group is killed: it must work
# when nothing else does any more.
_SCRIPT: Final = """
trap '' HUP INT QUIT TERM
groups=' '
directory=
while IFS= read -r line; do
  case $line in
    =*) directory=${line#=} ;;
    +*) groups="$groups${line#+} " ;;
    -*) gone=" ${line#-} "
        case $groups in
          *"$gone"*) groups="${groups%%"$gone"*} ${groups#*"$gone"}" ;;
        esac ;;
  esac
done
for group in $groups; do
  kill -s KILL -- "-$group" 2>/dev/null
done
case $directory in
  /*) command -p rm -rf -- "$directory" 2>/dev/null || command -p rm -rf -- "$directory" 2>/dev/null ;;
esac
exit 0
"""
_DEAF_TO: Final = (signal.SIGHUP, signal.SIGINT, signal.SIGQUIT, signal.SIGTERM)
_POLL_SECONDS: Final = 0.005


class OrphanGuard:
    """Kills registered process groups when this process dies in any way, SIGKILL included.

    The helper is started by the first ``register`` and started again, with every group still registered, when it is
    found dead on a later call. It has a session of its own, so an interrupt typed at the terminal does not reach it.
    Safe from several threads; in a process forked from its owner it does nothing.

    ``available`` is false while no helper could be started (no shell, no process or descriptor to spare): groups are
    remembered and the next call tries again, nothing is raised.
    """

    def __init__(self, *, shell: str = "/bin/sh") -> None:
        self._shell = shell
        self._groups: set[int] = set()
        self._directory = ""
        self._pid: int | None = None
        self._pipe: int | None = None
        self._owner = os.getpid()
        self._lock = threading.Lock()
        self._closed = False
        self._available = True
        _guards.add(self)

    def __del__(self) -> None:
        # Children keep their guard, so none is left; without this the helper and its pipe would stay.
        with contextlib.suppress(Exception):
            self.close()

    @property
    def available(self) -> bool:
        """Whether the last attempt to have a helper succeeded; true before the first."""
        return self._available

    @property
    def pid(self) -> int | None:
        """The helper's process id, or ``None`` when there is none."""
        return self._pid

    @property
    def registered(self) -> frozenset[int]:
        """The groups that would be killed now."""
        with self._lock:
            return frozenset(self._groups)

    def register(self, pgid: int) -> None:
        """Have ``pgid`` killed when this process dies. Raises :class:`~broker.errors.UsageError` after ``close``."""
        if pgid <= 1:
            raise UsageError(f"{pgid} is not the id of a child's process group")
        with self._lock:
            if self._closed:
                raise UsageError("the orphan guard is closed")
            if os.getpid() != self._owner:
                return
            self._groups.add(pgid)
            self._tell(f"+{pgid}\n")

    def unregister(self, pgid: int) -> None:
        """Forget ``pgid``. To be called while its leader is not yet reaped, so that the id cannot be another's."""
        with self._lock:
            if os.getpid() != self._owner or pgid not in self._groups:
                return
            self._groups.discard(pgid)
            self._tell(f"-{pgid}\n")

    def sweep(self, directory: str | None) -> None:
        """Have ``directory``, an absolute path, removed with all that is in it when this process dies; None: nothing.

        It is for one directory, of which the caller takes care as long as it lives; one whose path has a line feed is
        left where it is.
        """
        with self._lock:
            if self._closed or os.getpid() != self._owner:
                return
            self._directory = "" if directory is None or "\n" in directory else directory
            self._tell(f"={self._directory}\n")

    def close(self) -> None:
        """End the helper and wait for it. Groups still registered are killed. Does nothing the second time."""
        if os.getpid() != self._owner:
            return
        with self._lock:
            self._closed = True
            self._groups.clear()
            self._close_pipe()
            clock = SystemClock()
            deadline = clock.monotonic_ms() + EXIT_GRACE_MS
            while not self._ended():
                if clock.monotonic_ms() >= deadline:
                    self._kill()
                    break
                time.sleep(_POLL_SECONDS)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc_info: object) -> None:
        self.close()

    def _tell(self, line: str) -> None:
        if self._pid is not None and not self._ended() and self._write(line):
            return
        # Nobody to tell: a new helper is told everything, this change included.
        self._kill()
        self._close_pipe()
        if self._groups:
            self._start()

    def _start(self) -> None:
        try:
            reader, writer = os.pipe()
        except OSError:
            self._available = False
            return
        # The mask is inherited, so the helper cannot be ended in the moment before its script sets its traps either.
        mask = signal.pthread_sigmask(signal.SIG_BLOCK, _DEAF_TO)
        try:
            process = subprocess.Popen(
                [self._shell, "-c", _SCRIPT, "orphan-guard"],
                stdin=reader,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                cwd="/",
                env={},
                close_fds=True,
                start_new_session=True,
            )
        except OSError:
            os.close(writer)
            self._available = False
            return
        finally:
            signal.pthread_sigmask(signal.SIG_SETMASK, mask)
            os.close(reader)
        process.returncode = 0  # waited for by its id alone: Popen must neither reap it nor warn about it
        self._pid, self._pipe = process.pid, writer
        os.set_blocking(writer, False)
        groups = "".join(f"+{pgid}\n" for pgid in sorted(self._groups))
        self._available = self._write(f"={self._directory}\n{groups}")

    def _write(self, text: str) -> bool:
        """Whether all of ``text`` went into the pipe. A helper that has stopped reading counts as dead."""
        if self._pipe is None:
            return False
        data = os.fsencode(text)
        try:
            return os.write(self._pipe, data) == len(data)
        except OSError:
            return False

    def _ended(self) -> bool:
        if self._pid is None:
            return True
        try:
            ended = os.waitpid(self._pid, os.WNOHANG)[0] == self._pid
        except ChildProcessError:
            ended = True
        if ended:
            self._pid = None
        return ended

    def _kill(self) -> None:
        if self._pid is not None:
            with contextlib.suppress(OSError):
                os.kill(self._pid, signal.SIGKILL)
            with contextlib.suppress(ChildProcessError):
                os.waitpid(self._pid, 0)
            self._pid = None

    def _close_pipe(self) -> None:
        if self._pipe is not None:
            os.close(self._pipe)
            self._pipe = None


_guards: weakref.WeakSet[OrphanGuard] = weakref.WeakSet()


def _after_fork_in_child() -> None:
    """A forked process must not hold the pipe, or the helper would wait for its end too."""
    for guard in tuple(_guards):
        guard._close_pipe()


os.register_at_fork(after_in_child=_after_fork_in_child)
