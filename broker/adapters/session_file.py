"""The external refs of a session in its file, beside whatever else a host keeps there.

The file is one JSON object. Only its ``external_refs`` are touched, and it is replaced as a whole: a reader sees the
old one or the new one, and after a return the new one is on stable storage. Source: odek notes, section 6.
"""

from __future__ import annotations

import fcntl
import json
import os
import secrets
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import Any, Final

from broker.clock import Clock, SystemClock
from broker.errors import InvalidParamsError, SetupError
from broker.limits import MAX_SESSION_FILE_BYTES
from broker.wire.odek.events.event import rfc3339
from broker.wire.odek.events.redaction import Redactor
from broker.wire.odek.external_ref import ExternalRef, ExternalRefs, read_external_ref

EXTERNAL_REFS: Final = "external_refs"

_MODE: Final = 0o600


def load_external_refs(path: str | os.PathLike[str], *, redactor: Redactor | None = None) -> ExternalRefs:
    """The external refs in the session file ``path``; none in a file without them, or where there is no file yet.

    Raises :class:`~broker.errors.SetupError` for a file that cannot be read or is no JSON object, and
    ``invalid_params`` for a reference in it that is not valid.
    """
    return _refs(_load(os.fspath(path)), redactor)


def add_external_refs(
    path: str | os.PathLike[str],
    refs: Iterable[ExternalRef],
    *,
    redactor: Redactor | None = None,
    clock: Clock | None = None,
) -> int:
    """Add those of ``refs`` that the session file has not yet; gives how many. All of them are stored, or none is.

    The file, made with mode 0600 if there is none, is on stable storage when this returns. Processes that add to one
    file at the same time do so one after the other. Errors as of :func:`load_external_refs`.
    """
    name = os.path.realpath(path)
    now = rfc3339((clock or SystemClock()).unix_ms())
    with _exclusive(name):
        session = _load(name)
        stored = _refs(session, redactor)
        added = stored.add(refs, now=now)
        if added:
            session[EXTERNAL_REFS] = stored.to_json()
            # All ASCII: whatever strings and numbers the host has put there are read back as the same.
            _replace(name, json.dumps(session, separators=(",", ":")).encode() + b"\n")
    return added


def _refs(session: dict[str, Any], redactor: Redactor | None) -> ExternalRefs:
    listed = session.get(EXTERNAL_REFS)
    if listed is None:
        listed = []
    if not isinstance(listed, list):
        raise InvalidParamsError(f"{EXTERNAL_REFS}: must be an array", path=EXTERNAL_REFS)
    refs = [read_external_ref(value, place=f"{EXTERNAL_REFS}[{index}]") for index, value in enumerate(listed)]
    return ExternalRefs(refs, redactor=redactor)


def _load(path: str) -> dict[str, Any]:
    try:
        with open(path, "rb") as file:
            data = file.read(MAX_SESSION_FILE_BYTES + 1)
    except FileNotFoundError:
        return {}
    except (OSError, ValueError) as error:
        raise _fault(path, error) from error
    if len(data) > MAX_SESSION_FILE_BYTES:
        raise SetupError(
            f"session file {path!a:.200}: is too long", path=path, limit="MAX_SESSION_FILE_BYTES", observed=len(data)
        )
    try:
        session = json.loads(data)
    except (ValueError, RecursionError) as error:
        raise _fault(path, error) from error
    if not isinstance(session, dict):
        raise SetupError(f"session file {path!a:.200}: is no JSON object", path=path)
    return session


@contextmanager
def _exclusive(path: str) -> Iterator[None]:
    """Keep other processes off the file; the directory is what is locked, for the file itself is replaced."""
    try:
        directory = os.open(os.path.dirname(path) or ".", os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    except (OSError, ValueError) as error:
        raise _fault(path, error) from error
    try:
        fcntl.flock(directory, fcntl.LOCK_EX)
        yield
    finally:
        os.close(directory)


def _replace(path: str, data: bytes) -> None:
    """Put ``data`` in the place of the file: complete and durable under another name first, then under its own."""
    directory = os.path.dirname(path) or "."
    temporary = os.path.join(directory, f".{os.path.basename(path)}.{secrets.token_hex(8)}")
    try:
        descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, _MODE)
        try:
            with os.fdopen(descriptor, "wb") as file:
                file.write(data)
                file.flush()
                os.fsync(file.fileno())
            os.replace(temporary, path)
        except BaseException:
            os.unlink(temporary)
            raise
        parent = os.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            os.fsync(parent)
        finally:
            os.close(parent)
    except OSError as error:
        raise _fault(path, error) from error


def _fault(path: str, error: BaseException) -> SetupError:
    why = error.strerror or str(error) if isinstance(error, OSError) else str(error)
    return SetupError(f"session file {path!a:.200}: {why}", path=path)
