"""References to state outside of the host: a CI run, a dashboard, an object. Kept and passed on, never followed.

Source: odek contract, "External-state-ref schema"; odek notes, section 6; design, D15.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Final

from attrs import evolve, frozen

from broker.errors import InvalidParamsError, ResourceExhaustedError
from broker.limits import (
    MAX_EXTERNAL_CREATOR_CHARS,
    MAX_EXTERNAL_KIND_CHARS,
    MAX_EXTERNAL_REFS,
    MAX_EXTERNAL_URI_CHARS,
)
from broker.wire.jsonrpc import json_type
from broker.wire.odek.events.redaction import Redactor
from broker.wire.quoting import CONTROL_CHARACTER, quote, scalar

CREATED_BY_CLI: Final = "cli"

_KIND: Final = re.compile("[a-z0-9_-]+")
_RFC3339: Final = re.compile(
    r"\d{4}-(?:0[1-9]|1[0-2])-(?:0[1-9]|[12]\d|3[01])[Tt](?:[01]\d|2[0-3]):[0-5]\d:(?:[0-5]\d|60)(?:\.\d{1,9})?"
    r"(?:[Zz]|[+-](?:[01]\d|2[0-3]):[0-5]\d)",
    re.ASCII,
)
_LONG_FORM: Final = re.compile("(?:kind|uri|created_by|read_only)=")
_NEXT_KEY: Final = re.compile(",(?=[a-z_]{1,32}=)")
_BOOLEANS: Final = {"true": True, "false": False}


@frozen
class ExternalRef:
    """One reference; lengths count characters. ``read_only`` is a hint that nothing enforces."""

    kind: str
    uri: str
    created_by: str
    read_only: bool = False
    created_at: str | None = None

    def __attrs_post_init__(self) -> None:
        _check("kind", self.kind, MAX_EXTERNAL_KIND_CHARS)
        if _KIND.fullmatch(self.kind) is None:
            raise _fault("kind", f"must be of a-z, 0-9, _ and -, not {quote(self.kind)}")
        _check("uri", self.uri, MAX_EXTERNAL_URI_CHARS)
        _check("created_by", self.created_by, MAX_EXTERNAL_CREATOR_CHARS)
        if type(self.read_only) is not bool:
            raise _fault("read_only", f"must be a boolean, not {json_type(self.read_only)}")
        if self.created_at is not None and (
            type(self.created_at) is not str or _RFC3339.fullmatch(self.created_at) is None
        ):
            raise _fault("created_at", "must be a time as RFC 3339 writes it")

    @property
    def key(self) -> tuple[str, str, str]:
        """What makes two references one."""
        return self.kind, self.uri, self.created_by

    def to_json(self) -> dict[str, Any]:
        """The reference as a session keeps it; ``read_only`` is left out when false."""
        members: dict[str, Any] = {"kind": self.kind, "uri": self.uri, "created_by": self.created_by}
        if self.read_only:
            members["read_only"] = True
        if self.created_at is not None:
            members["created_at"] = self.created_at
        return members


def read_external_ref(value: Any, *, place: str = "external_ref") -> ExternalRef:
    """The reference that the JSON ``value`` is; unknown members are ignored.

    Raises ``invalid_params`` with the path of the first fault.
    """
    if not isinstance(value, Mapping):
        raise InvalidParamsError(f"{place}: must be an object, not {json_type(value)}", path=place)
    try:
        return ExternalRef(
            kind=value.get("kind", ""),
            uri=value.get("uri", ""),
            created_by=value.get("created_by", ""),
            read_only=False if value.get("read_only") is None else value["read_only"],
            created_at=value.get("created_at"),
        )
    except InvalidParamsError as error:
        error.path = f"{place}.{error.path}"
        error.args = (f"{place}.{error}",)
        raise


def parse_shorthand(text: str) -> ExternalRef:
    """The reference that a word of a command line stands for.

    ``kind=uri`` is the short form: the URI is everything behind the first ``=``, and ``created_by`` is ``cli``. The
    long form is ``kind=...,uri=...,created_by=...,read_only=...`` in any order: its first key is one of these four, and
    it holds a comma. There a URI goes on until a comma that one of its keys follows. Raises ``invalid_params`` for an
    unknown or repeated key, a bad boolean, or a reference that is not valid.
    """
    if _LONG_FORM.match(text) is None or "," not in text:
        kind, equals, uri = text.partition("=")
        if not equals:
            raise InvalidParamsError(f"external ref {quote(text)}: expected kind=uri", path="external_ref")
        return ExternalRef(kind=kind, uri=uri, created_by=CREATED_BY_CLI)
    members: dict[str, Any] = {"created_by": CREATED_BY_CLI}
    seen: set[str] = set()
    for part in _parts(text):
        key, _, value = part.partition("=")
        if key not in ("kind", "uri", "created_by", "read_only") or key in seen:
            problem = "stands twice" if key in seen else "is no key of an external ref"
            raise InvalidParamsError(f"external ref: {quote(key)} {problem}", path=key)
        seen.add(key)
        if key == "read_only" and value not in _BOOLEANS:
            raise _fault("read_only", f"must be true or false, not {quote(value)}")
        members[key] = _BOOLEANS[value] if key == "read_only" else value
    for key in ("kind", "uri"):
        if key not in members:
            raise _fault(key, "is missing")
    return ExternalRef(**members)


def _parts(text: str) -> Iterator[str]:
    """The ``key=value`` parts; inside of a URI only a comma before one of the four keys ends it."""
    start = 0
    for found in _NEXT_KEY.finditer(text):
        if text.startswith("uri=", start) and _LONG_FORM.match(text, found.end()) is None:
            continue
        yield text[start : found.start()]
        start = found.end()
    yield text[start:]


class ExternalRefs:
    """The references of one session, in the order they were added; the same one is there once.

    URIs are compared as they are stored, with their secrets redacted: what was saved and is added again is no second
    one. Immutable references, a mutable list; for one thread.
    """

    def __init__(self, refs: Iterable[ExternalRef] = (), *, redactor: Redactor | None = None) -> None:
        self._redactor = redactor or Redactor()
        self._refs: dict[tuple[str, str, str], ExternalRef] = {}
        for ref in refs:
            stored = self._stored(ref)
            self._refs.setdefault(stored.key, stored)

    def __iter__(self) -> Iterator[ExternalRef]:
        return iter(tuple(self._refs.values()))

    def __len__(self) -> int:
        return len(self._refs)

    def add(self, refs: Iterable[ExternalRef], *, now: str) -> int:
        """Add those that are not there yet, stamped with ``now`` where they have no time; gives how many those were.

        Raises :class:`~broker.errors.ResourceExhaustedError`, and adds none, when there would be more than 1024.
        """
        added: dict[tuple[str, str, str], ExternalRef] = {}
        for ref in refs:
            stored = self._stored(ref if ref.created_at is not None else evolve(ref, created_at=now))
            if stored.key not in self._refs:
                added.setdefault(stored.key, stored)
        total = len(self._refs) + len(added)
        if total > MAX_EXTERNAL_REFS:
            raise ResourceExhaustedError(
                f"{total} external refs, a session keeps at most {MAX_EXTERNAL_REFS}",
                limit="MAX_EXTERNAL_REFS",
                observed=total,
                maximum=MAX_EXTERNAL_REFS,
            )
        self._refs.update(added)
        return len(added)

    def to_json(self) -> list[dict[str, Any]]:
        """The ``external_refs`` of a session; left out there when empty."""
        return [ref.to_json() for ref in self]

    def _stored(self, ref: ExternalRef) -> ExternalRef:
        uri = self._redactor.redact(ref.uri)[:MAX_EXTERNAL_URI_CHARS]
        return ref if uri == ref.uri else evolve(ref, uri=uri)


def _check(name: str, value: Any, maximum: int) -> None:
    if type(value) is not str:
        raise _fault(name, f"must be a string, not {json_type(value)}")
    if not value:
        raise _fault(name, "must not be empty")
    if len(value) > maximum:
        raise InvalidParamsError(
            f"{name}: has {len(value)} characters, at most {maximum} are accepted",
            path=name,
            limit=f"MAX_EXTERNAL_{'CREATOR' if name == 'created_by' else name.upper()}_CHARS",
            observed=len(value),
            maximum=maximum,
        )
    if CONTROL_CHARACTER.search(value) is not None:
        raise _fault(name, f"holds a control character: {quote(value)}")
    if scalar(value) != value:
        raise _fault(name, f"is no text: {quote(value)}")


def _fault(name: str, problem: str) -> InvalidParamsError:
    return InvalidParamsError(f"{name}: {problem}", path=name)
