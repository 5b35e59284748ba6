"""What a hostile program wrote down of a host, and what its processes are doing."""

from __future__ import annotations

import contextlib
import json
import os
import signal
from pathlib import Path
from typing import Any

from attrs import define, field, frozen


@frozen
class Entry:
    """One line of the log: what happened, in which process, at which second of the monotonic clock."""

    event: str
    pid: int
    at: float
    more: dict[str, Any] = field(factory=dict)


@define
class Log:
    """The log of one run of a host, read as it grows, and the moments its processes were seen to be gone."""

    path: Path
    entries: list[Entry] = field(factory=list)
    gone_at: dict[int, float] = field(factory=dict)
    _read: int = 0

    def update(self, now: float) -> None:
        """Read what is new, and look which processes are still there."""
        with contextlib.suppress(OSError):
            with self.path.open("rb") as stream:
                stream.seek(self._read)
                data = stream.read()
            whole = data[: data.rfind(b"\n") + 1]
            self._read += len(whole)
            for line in whole.splitlines():
                value = json.loads(line)
                self.entries.append(Entry(value.pop("event"), value.pop("pid"), value.pop("at"), value))
        for pid in self.pids:
            if pid not in self.gone_at and not self._is_alive(pid):
                self.gone_at[pid] = now

    @property
    def pids(self) -> list[int]:
        """Every process the host started, and what those started themselves, in order."""
        found = dict.fromkeys(entry.pid for entry in self.entries)
        found.update(dict.fromkeys(entry.more["child"] for entry in self.entries if entry.event == "child"))
        return list(found)

    @property
    def living(self) -> list[int]:
        """Those that are still there."""
        return [pid for pid in self.pids if pid not in self.gone_at]

    def of(self, event: str) -> list[Entry]:
        """The entries of one kind."""
        return [entry for entry in self.entries if entry.event == event]

    def frames(self) -> list[tuple[Entry, Any]]:
        """Every frame of the host with its value, ``None`` for what is no JSON."""
        found = []
        for entry in self.of("frame"):
            try:
                found.append((entry, json.loads(entry.more["text"])))
            except ValueError:
                found.append((entry, None))
        return found

    def answers(self) -> dict[Any, dict[str, Any]]:
        """The host's answers by the ids of the requests."""
        return {
            value["id"]: value
            for _, value in self.frames()
            if isinstance(value, dict) and "id" in value and "method" not in value
        }

    def end_all(self) -> None:
        """Kill what is left; only what is still the program that wrote this log."""
        for pid in self.living:
            if self._is_alive(pid):
                with contextlib.suppress(OSError):
                    os.kill(pid, signal.SIGKILL)

    def _is_alive(self, pid: int) -> bool:
        """Whether ``pid`` is still a process of this run: one whose command names the log."""
        try:
            state = (
                Path(f"/proc/{pid}/stat").read_text(encoding="utf-8", errors="replace").rpartition(")")[2].split()[0]
            )
            command = Path(f"/proc/{pid}/cmdline").read_bytes()
        except OSError:
            return False
        return state not in ("Z", "X") and os.fsencode(self.path) in command
