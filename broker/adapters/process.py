"""Child processes with three pipes, in a process group of their own; no event loop, no threads.

What is guaranteed whatever the child does: its group is killed before its process id can be given to another process,
every descriptor on this side is close-on-exec and closed once, and no zombie stays behind a finished ``Child.poll``.
Source: octet wire notes, section 2.6 ("Spawn", "Environment", "Shutdown").
"""

from __future__ import annotations

import contextlib
import errno
import os
import signal
import subprocess
import threading
import time
import warnings
import weakref
from collections.abc import Callable, Mapping, Sequence
from typing import Final, Protocol

from broker.errors import SetupError
from broker.limits import MAX_SPAWN_RETRIES, SPAWN_RETRY_STEP_MS
from broker.wire.octet.manifest_model import Manifest

# The part of the host's environment every extension gets; everything else is left out.
INHERITED_NAMES: Final = (
    "PATH",
    "HOME",
    "USER",
    "LOGNAME",
    "SHELL",
    "TMPDIR",
    "TMP",
    "TEMP",
    "LANG",
    "LC_ALL",
    "LC_CTYPE",
    "TERM",
    "COLORTERM",
    "NO_COLOR",
    "SYSTEMROOT",
    "WINDIR",
    "COMSPEC",
    "PATHEXT",
    "OCTET_PACKAGE_DIR",
)
# What a process is said to have ended with when somebody else took its status, as asyncio says it.
LOST_STATUS: Final = 255


class Guard(Protocol):
    """What watches over process groups in case this process dies; see :mod:`broker.adapters.guard`."""

    def register(self, pgid: int) -> None:
        """End the process group ``pgid`` when this process dies."""
        ...

    def unregister(self, pgid: int) -> None:
        """Leave the process group ``pgid`` alone from now on. Its leader is not yet reaped."""
        ...


def build_environment(
    manifest: Manifest,
    *,
    host_environ: Mapping[str, str],
    workspace: str | os.PathLike[str],
    scratch: str | os.PathLike[str],
    manifest_path: str | os.PathLike[str],
) -> dict[str, str]:
    """The complete environment of an extension's process, built from nothing.

    In order, a later one winning: the :data:`INHERITED_NAMES` the host has; the manifest's ``env``; the host's names
    the manifest declares under ``capabilities.environment``, when not empty; and the six ``OCTET_*`` names of the API.
    ``scratch`` is a directory of this generation's own. All paths are made absolute.
    """
    file = os.path.abspath(manifest_path)
    environment = {name: host_environ[name] for name in INHERITED_NAMES if name in host_environ}
    environment.update(manifest.entrypoint.env)
    environment.update(
        {name: host_environ[name] for name in manifest.capabilities.environment if host_environ.get(name)}
    )
    environment["OCTET_EXTENSION_API_VERSION"] = manifest.api_version
    environment["OCTET_EXTENSION_NAME"] = manifest.name
    environment["OCTET_EXTENSION_DIR"] = os.path.dirname(file)
    environment["OCTET_EXTENSION_MANIFEST"] = file
    environment["OCTET_WORKSPACE"] = os.path.abspath(workspace)
    environment["OCTET_EXTENSION_SCRATCH"] = os.path.abspath(scratch)
    return environment


class _Group:
    """A process group and its leader, from spawn to reaping. Every signal goes through here, under one lock."""

    def __init__(self, pid: int, guard: Guard | None) -> None:
        self.pid = pid
        self.returncode: int | None = None
        self._guard = guard
        self._owner = os.getpid()
        self._lock = threading.Lock()
        if guard is not None:
            try:
                guard.register(pid)
            except BaseException:
                self.end()
                raise

    def signal(self, number: int) -> bool:
        with self._lock:
            return self._signal(number)

    def poll(self) -> int | None:
        with self._lock:
            if self.returncode is None and os.getpid() == self._owner:
                self.returncode = self._reap(os.WNOHANG)
            return self.returncode

    def end(self) -> bool:
        """Kill the group and wait for its leader; true if that was still to be done. For a child nobody closed."""
        with self._lock:
            if self.returncode is not None or os.getpid() != self._owner:
                return False
            self._signal(signal.SIGKILL)
            self.returncode = self._reap(0)
            return True

    def _signal(self, number: int) -> bool:
        if self.returncode is not None or os.getpid() != self._owner:
            return False
        try:
            os.killpg(self.pid, number)
        except (ProcessLookupError, PermissionError):
            return False
        return True

    def _reap(self, options: int) -> int | None:
        try:
            ended = os.waitid(os.P_PID, self.pid, os.WEXITED | os.WNOWAIT | options)
            if ended is None:
                return None
            # Still a zombie, so its id is still taken: what is left of the group can be killed without hitting others.
            self._signal(signal.SIGKILL)
            self._unregister()
            return os.waitstatus_to_exitcode(os.waitpid(self.pid, 0)[1])
        except ChildProcessError:
            self._unregister()
            return LOST_STATUS

    def _unregister(self) -> None:
        if self._guard is not None:
            self._guard.unregister(self.pid)


class Child:
    """A running process with its three pipe ends, all non-blocking. Made by :func:`spawn`.

    ``pid`` is also the id of its process group and session. ``stdin_fd``, ``stdout_fd`` and ``stderr_fd`` are this
    side's ends; ``pidfd`` becomes readable when the process ends, or is ``None`` where the system has no such thing.
    The descriptors belong to this object: poll them, read and write them, but close them through it. Signals and
    ``poll`` are safe from several threads. A child that is forgotten before it was reaped is killed with its group, and
    a ``ResourceWarning`` says so.
    """

    __slots__ = ("__weakref__", "_descriptors", "_finalizer", "_group", "args")

    def __init__(self, args: Sequence[str], pid: int, descriptors: dict[str, int], guard: Guard | None) -> None:
        self.args: tuple[str, ...] = tuple(args)
        self._descriptors = descriptors
        self._group = _Group(pid, guard)
        with contextlib.suppress(AttributeError, OSError):
            descriptors["pidfd"] = os.pidfd_open(pid)
        self._finalizer = weakref.finalize(self, _forgotten, self._group, descriptors)

    @property
    def pid(self) -> int:
        """The process id, also that of its group."""
        return self._group.pid

    @property
    def stdin_fd(self) -> int:
        """The end that writes the child's stdin; ``-1`` when closed."""
        return self._descriptors.get("stdin", -1)

    @property
    def stdout_fd(self) -> int:
        """The end that reads the child's stdout; ``-1`` when closed."""
        return self._descriptors.get("stdout", -1)

    @property
    def stderr_fd(self) -> int:
        """The end that reads the child's stderr; ``-1`` when closed."""
        return self._descriptors.get("stderr", -1)

    @property
    def pidfd(self) -> int | None:
        """A descriptor that is readable once the process has ended, or ``None``."""
        return self._descriptors.get("pidfd")

    @property
    def returncode(self) -> int | None:
        """What the last :meth:`poll` answered."""
        return self._group.returncode

    def close_stdin(self) -> None:
        """Close the child's stdin: it sees the end of its input. Does nothing the second time."""
        _close(self._descriptors, "stdin")

    def kill_group(self, number: int = signal.SIGKILL) -> bool:
        """Send a signal to every process of the group; false when the leader was reaped or no process is left."""
        return self._group.signal(number)

    def poll(self) -> int | None:
        """The exit status once the process has ended (negative: the signal that ended it), else ``None``.

        Never waits. The first answer that is not ``None`` reaps the process, and before that sends SIGKILL to what is
        left of its group. 255 means that the status was lost: somebody else waited for the process.
        """
        return self._group.poll()

    def close(self) -> None:
        """Close every descriptor; the process is not touched. Does nothing the second time."""
        for name in ("stdin", "stdout", "stderr", "pidfd"):
            _close(self._descriptors, name)

    def __repr__(self) -> str:
        state = "running" if self.returncode is None else f"ended with {self.returncode}"
        return f"<Child {self.pid} {self.args[0]!r} {state}>"


def spawn(
    argv: Sequence[str],
    *,
    cwd: str | os.PathLike[str],
    env: Mapping[str, str],
    guard: Guard | None = None,
    sleep: Callable[[float], None] = time.sleep,
) -> Child:
    """Start ``argv`` in ``cwd`` with exactly ``env``, as the leader of a new session and process group.

    ``guard`` is told of the group, and told again just before the leader is reaped. A program file that somebody is
    still writing ("text file busy") is tried again a few times, ``sleep`` (seconds) between. Raises
    :class:`~broker.errors.SetupError` naming the missing or unusable program or directory; nothing is left behind then.
    """
    if not os.path.isdir(cwd):
        raise SetupError(f"working directory {os.fspath(cwd)} is not a directory", path=os.fspath(cwd))
    ours: dict[str, int] = {}
    theirs: list[int] = []
    try:
        for name in ("stdin", "stdout", "stderr"):
            reader, writer = os.pipe()
            ours[name], other = (writer, reader) if name == "stdin" else (reader, writer)
            theirs.append(other)
            os.set_blocking(ours[name], False)
        pid = _start(argv, cwd, env, theirs, sleep)
        return Child(argv, pid, ours, guard)
    except BaseException:
        for name in tuple(ours):
            _close(ours, name)
        raise
    finally:
        for descriptor in theirs:
            os.close(descriptor)


def _start(
    argv: Sequence[str],
    cwd: str | os.PathLike[str],
    env: Mapping[str, str],
    pipes: Sequence[int],
    sleep: Callable[[float], None],
) -> int:
    stdin, stdout, stderr = pipes
    attempt = 0
    while True:
        try:
            process = subprocess.Popen(
                list(argv),
                stdin=stdin,
                stdout=stdout,
                stderr=stderr,
                cwd=cwd,
                env=dict(env),
                close_fds=True,
                start_new_session=True,
            )
        except OSError as error:
            if error.errno == errno.ETXTBSY and attempt < MAX_SPAWN_RETRIES:
                attempt += 1
                sleep(attempt * SPAWN_RETRY_STEP_MS / 1000)
                continue
            raise _start_error(argv[0], cwd, error) from error
        except ValueError as error:  # a NUL in an argument or in the environment
            raise SetupError(f"{argv[0]!r} cannot be started: {error}", path=argv[0]) from error
        # From here on the process is waited for by its id alone: Popen must neither reap it nor warn about it.
        process.returncode = 0
        return process.pid


def _start_error(program: str, cwd: str | os.PathLike[str], error: OSError) -> SetupError:
    if not os.path.isdir(cwd) or error.filename == os.fspath(cwd):
        return SetupError(
            f"working directory {os.fspath(cwd)} cannot be entered: {error.strerror}", path=os.fspath(cwd)
        )
    problem = error.strerror
    if error.errno == errno.ENOENT and os.path.exists(program):
        problem = "the interpreter its first line names does not exist"
    elif error.errno == errno.ENOENT:
        problem = "no such file"
    return SetupError(f"{program} cannot be started: {problem}", path=program)


def _close(descriptors: dict[str, int], name: str) -> None:
    descriptor = descriptors.pop(name, None)
    if descriptor is not None:
        with contextlib.suppress(OSError):
            os.close(descriptor)


def _forgotten(group: _Group, descriptors: dict[str, int]) -> None:
    """What is left to do for a child nobody holds any more, or that is still there when the interpreter ends."""
    for name in tuple(descriptors):
        _close(descriptors, name)
    if group.end():
        warnings.warn(f"child process {group.pid} was never reaped and has been killed", ResourceWarning, stacklevel=2)
