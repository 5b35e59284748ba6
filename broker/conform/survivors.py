"""Processes that are still there after the one that started them has ended.

Found by the session they were started in and, for those that made a session of their own, by a mark in the environment
they inherited. Where the system has no ``/proc`` nothing is found.
"""

from __future__ import annotations

import contextlib
import os
import secrets
import signal
from pathlib import Path
from typing import Final

from attrs import frozen

MARK_NAME: Final = "BROKER_CONFORMANCE_RUN"
"""The environment variable that marks every process of one run."""


@frozen
class Survivor:
    """A process that outlived its parent: its id, and what it is."""

    pid: int
    command: str


def new_mark() -> str:
    """A value of :data:`MARK_NAME` that nothing else on this machine has."""
    return secrets.token_hex(16)


def find_survivors(leader: int, mark: str) -> list[Survivor]:
    """Living processes of the session that ``leader`` began, or with ``mark`` in their environment, but ``leader``."""
    wanted = f"{MARK_NAME}={mark}".encode()
    found: list[Survivor] = []
    try:
        entries = os.listdir("/proc")
    except OSError:
        return found
    for entry in entries:
        if not entry.isdigit() or int(entry) in (leader, os.getpid()):
            continue
        directory = Path("/proc", entry)
        with contextlib.suppress(OSError, ValueError, IndexError):
            name, fields = _status(directory)
            if fields[0] in ("Z", "X"):
                continue
            if int(fields[3]) == leader or wanted in (directory / "environ").read_bytes().split(b"\0"):
                found.append(Survivor(int(entry), name))
    return found


def end_survivors(survivors: list[Survivor]) -> None:
    """Kill exactly these processes."""
    for survivor in survivors:
        with contextlib.suppress(OSError):
            os.kill(survivor.pid, signal.SIGKILL)


def _status(directory: Path) -> tuple[str, list[str]]:
    """The name of a process, and the fields of its status behind the name: state, parent, group, session."""
    text = (directory / "stat").read_text(encoding="utf-8", errors="replace")
    name = text[text.index("(") + 1 : text.rindex(")")]
    return name, text[text.rindex(")") + 2 :].split()
