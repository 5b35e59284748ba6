"""The file a session's references to outside state are kept in, beside whatever else a host keeps there.

::

    refs = SessionFile("sessions/4821.json")
    refs.add([parse_external_ref("ci-run=https://ci.example.test/runs/4821")])
    refs.save({"messages": messages})     # what the host keeps; the references stay
    refs.load()

Every change is atomic and durable: read, written under another name, flushed, renamed. A change waits for those of
other threads and processes to the same directory, so that none of them is lost. A file that is no session, or whose
references are not right, is never written over. Source: odek contract, "External-state-ref schema"; odek notes,
section 6.
"""

from __future__ import annotations

import fcntl
import os
import stat
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from broker.adapters.files import read_bounded, write_whole
from broker.clock import Clock, SystemClock
from broker.errors import BrokerError, SetupError
from broker.limits import MAX_SESSION_FILE_BYTES
from broker.wire.odek.events.redaction import Redactor
from broker.wire.odek.external_ref import ExternalRef, ExternalRefs, Redact
from broker.wire.odek.session_document import SessionDocument, encode_members, read_session_document


class SessionFile:
    """One session file. It need not exist, its directory must. Safe from any thread; calls block on the file system.

    ``redact`` takes the secrets out of each URI before it is kept; left out, those that are known by their shape. Every
    method raises :class:`~broker.errors.SetupError` when the file cannot be read or written or is no regular file (a
    symbolic link is none), and :class:`~broker.errors.ConfigError` when it holds something else than a session; each
    names the path.
    """

    def __init__(
        self, path: str | os.PathLike[str], *, clock: Clock | None = None, redact: Redact | None = None
    ) -> None:
        self.path: str = os.path.abspath(path)
        self._clock: Clock = clock or SystemClock()
        self._redact = Redactor().redact if redact is None else redact

    def load(self) -> tuple[ExternalRef, ...]:
        """The references, in the order they were added; none without a file."""
        return self._read()[0].refs

    def add(self, refs: Iterable[ExternalRef]) -> int:
        """Keep those that are not kept yet; how many that were. See :meth:`ExternalRefs.add`: all or none.

        They are on stable storage when this returns.
        """
        refs = tuple(refs)
        with self._changing() as (document, mode):
            kept = ExternalRefs(self._clock, document.refs, redact=self._redact)
            added = kept.add(refs)
            if added:
                self._write(SessionDocument(document.members, tuple(kept)), mode)
            return added

    def save(self, members: Mapping[str, Any]) -> None:
        """Replace everything the host keeps, JSON values by key, and leave the references as they are.

        Raises :class:`~broker.errors.InvalidParamsError` for what JSON cannot hold, and for a member that is named
        ``external_refs``.
        """
        with self._changing() as (document, mode):
            self._write(encode_members(members, keep=document.refs), mode)

    # -- inside --------------------------------------------------------------------------------------------------------

    @contextmanager
    def _changing(self) -> Iterator[tuple[SessionDocument, int]]:
        """The document and its mode, while nobody else changes a session of this directory."""
        directory = os.path.dirname(self.path)
        try:
            # The file itself is replaced by each change, so that a lock on it would be one on the past.
            lock = os.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        except OSError as error:
            raise SetupError(f"{directory} cannot be opened: {error.strerror}", path=directory) from error
        try:
            try:
                fcntl.flock(lock, fcntl.LOCK_EX)
            except OSError as error:
                raise SetupError(f"{directory} cannot be locked: {error.strerror}", path=directory) from error
            yield self._read()
        finally:
            os.close(lock)

    def _read(self) -> tuple[SessionDocument, int]:
        try:
            data = read_bounded(self.path, MAX_SESSION_FILE_BYTES)
            mode = stat.S_IMODE(os.stat(self.path, follow_symlinks=False).st_mode)
        except SetupError as error:
            if isinstance(error.__cause__, FileNotFoundError):
                return SessionDocument(), 0o600
            raise
        except OSError as error:
            raise SetupError(f"{self.path} cannot be read: {error.strerror}", path=self.path) from error
        try:
            return read_session_document(data), mode
        except BrokerError as error:
            error.args = (f"{self.path}: {error}",)
            raise

    def _write(self, document: SessionDocument, mode: int) -> None:
        content = document.to_bytes()
        try:
            write_whole(self.path, content, mode=mode)
        except OSError as error:
            raise SetupError(f"{self.path} cannot be written: {error.strerror}", path=self.path) from error
