"""Recording a session's frames to a file, see :mod:`broker.host.recording` for the format.

The file is new and nobody but its owner can read it. Recording takes no part in the session: when a write fails, it
ends, and :attr:`FrameLog.failure` says why; what was written is whole lines, and at most one torn one at the end.
"""

from __future__ import annotations

import os
from typing import Any, Final

from attrs import define, evolve, field

from broker.errors import SetupError
from broker.host import ProcessLink, Session
from broker.host.recording import END, Header, Kind, RecordedEntry, covered, said, started
from broker.limits import MAX_RECORDED_LINE_BYTES, MAX_RECORDING_BYTES
from broker.wire.odek.events.redaction import Redactor, secret_values

_ASK_FOR_SECRETS: Final = ("secret/get", "input/request")
_FLAGS: Final = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC


@define
class _Lines:
    """Bytes of one direction until their LF; of a line that is too long only the beginning, and how long it was."""

    kept: bytearray = field(factory=bytearray)
    length: int = 0

    def feed(self, data: bytes) -> list[tuple[bytes, int]]:
        """The lines that are complete now, without LF: what is kept of each, and how many bytes it had."""
        *ends, rest = data.split(b"\n")
        lines = []
        for end in ends:
            self._keep(end)
            lines.append(self.take())
        self._keep(rest)
        return lines

    def take(self) -> tuple[bytes, int]:
        """What there is of a line, and forget it."""
        line = bytes(self.kept), self.length
        self.kept.clear()
        self.length = 0
        return line

    def _keep(self, data: bytes) -> None:
        self.length += len(data)
        self.kept += data[: max(0, MAX_RECORDED_LINE_BYTES - len(self.kept))]


class FrameLog:
    """A :class:`~broker.adapters.tap.Tap` that writes to ``path`` what the processes of one session say and hear.

    The session is the first that starts a process; others of the same host are left out. ``redactor`` takes the secrets
    out; without one it looks for the values of this process's environment whose names say that they are secret. Raises
    :class:`~broker.errors.SetupError` when the file exists or cannot be made.
    """

    def __init__(self, path: str | os.PathLike[str], *, redactor: Redactor | None = None) -> None:
        self.path: str = os.fspath(path)
        self.failure: str | None = None
        self.entries: int = 0
        self._redactor = redactor or Redactor(secret_values(os.environ))
        self._session: Session | None = None
        self._begun = 0
        self._size = 0
        self._lines: dict[tuple[ProcessLink, Kind], _Lines] = {}
        self._asked: dict[ProcessLink, set[Any]] = {}
        try:
            self._file = open(os.open(self.path, _FLAGS, 0o600), "wb")  # noqa: SIM115 - it lives as long as the log
        except (OSError, ValueError) as error:
            why = error.strerror if isinstance(error, OSError) else error
            raise SetupError(f"{self.path}: {why}", path=self.path) from error

    # -- what a tap is told --------------------------------------------------------------------------------------------

    def spawned(self, link: ProcessLink) -> None:
        """The link's process runs."""
        if self._session is None:
            self._session = link.session
            self._begun = link.session.clock.monotonic_ms()
            self._write(Header(link.session.clock.unix_ms(), link.session.workspace).line())
        if link.session is self._session:
            self._note(started(self._now(), link))

    def sent(self, link: ProcessLink, data: bytes) -> None:
        """The process wrote ``data``."""
        self._feed(link, "sent", data)

    def heard(self, link: ProcessLink, data: bytes) -> None:
        """``data`` is with the process."""
        self._feed(link, "heard", data)

    def wrote_stderr(self, link: ProcessLink, data: bytes) -> None:
        """The process wrote ``data`` to stderr."""
        self._feed(link, "stderr", data)

    def input_closed(self, link: ProcessLink) -> None:
        """The process's input was closed."""
        self._end(link, "heard")
        self._note_plain(link, "input_closed")

    def output_closed(self, link: ProcessLink) -> None:
        """The process closed its output."""
        self._end(link, "sent")
        self._note_plain(link, "output_closed")

    def exited(self, link: ProcessLink, status: int | None) -> None:
        """The process is gone."""
        for kind in ("heard", "sent", "stderr"):
            self._end(link, kind)
        self._asked.pop(link, None)
        self._note_plain(link, "exited", status)

    # -- the file ------------------------------------------------------------------------------------------------------

    def close(self) -> None:
        """Write what is left, and the end, and close the file. Idempotent; see :attr:`failure` afterwards.

        A file in which nothing was recorded is taken away again.
        """
        if self._file.closed:
            return
        for link, kind in list(self._lines):
            self._end(link, kind)
        try:
            with self._file:
                if self._session is None:
                    os.unlink(self.path)
                elif self.failure is None:
                    self._write(END)
        except OSError as error:
            self._fail(error)

    def _feed(self, link: ProcessLink, kind: Kind, data: bytes) -> None:
        if self.failure is None and link.session is self._session:
            for line, length in self._lines.setdefault((link, kind), _Lines()).feed(data):
                self._say(link, kind, line, length)

    def _end(self, link: ProcessLink, kind: Kind) -> None:
        """What there was of a line that never ended was said as well."""
        lines = self._lines.pop((link, kind), None)
        if lines is not None and lines.length:
            self._say(link, kind, *lines.take(), torn=True)

    def _say(self, link: ProcessLink, kind: Kind, line: bytes, length: int, *, torn: bool = False) -> None:
        entry = said(self._now(), kind, link, line, self._redactor, length=length, torn=torn)
        self._note(self._without_asked(link, entry))

    def _without_asked(self, link: ProcessLink, entry: RecordedEntry) -> RecordedEntry:
        """The entry without what it answers a request for a secret with, which has neither a name nor a shape."""
        frame = entry.frame
        if not entry.is_frame or not isinstance(frame, dict) or not isinstance(frame.get("id"), int | str):
            return entry
        number, method = frame["id"], frame.get("method")
        asked = self._asked.setdefault(link, set())
        if entry.kind == "sent" and method in _ASK_FOR_SECRETS:
            asked.add(number)
        elif entry.kind == "heard" and method is None and number in asked:
            asked.discard(number)
            return evolve(entry, frame={**frame, "result": covered(frame.get("result"))})
        return entry

    def _note_plain(self, link: ProcessLink, kind: Kind, status: int | None = None) -> None:
        if link.session is self._session:
            entry = RecordedEntry(at_ms=self._now(), kind=kind, name=link.name, number=link.number, status=status)
            self._note(entry)

    def _note(self, entry: RecordedEntry) -> None:
        if self.failure is None and self._write(entry.line()):
            self.entries += 1

    def _write(self, line: bytes) -> bool:
        if self._size + len(line) > MAX_RECORDING_BYTES:
            self.failure = f"a recording holds at most {MAX_RECORDING_BYTES} bytes"
            return False
        try:
            self._file.write(line)
            self._file.flush()
        except (OSError, ValueError) as error:
            self._fail(error)
            return False
        self._size += len(line)
        return True

    def _fail(self, error: OSError | ValueError) -> None:
        if self.failure is None:
            self.failure = str(error.strerror if isinstance(error, OSError) else error)

    def _now(self) -> int:
        return 0 if self._session is None else self._session.clock.monotonic_ms() - self._begun
