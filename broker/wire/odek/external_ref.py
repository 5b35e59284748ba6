"""References to state outside of a session (CI runs, dashboards, object stores): kept and passed on, never followed.

A session holds them in the order they came, each once: two are one when kind, URI and author are the same, and the
first stays. A URI may carry a secret, and what is kept has it taken out, so URIs are compared as they are kept: adding
the same reference after saving and loading changes nothing.

Source: odek contract, "External-state-ref schema"; odek notes, section 6; design, D15.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from datetime import UTC, datetime, timedelta
from typing import Any, Final, TypeAlias

from attrs import evolve, frozen

from broker.clock import Clock
from broker.errors import Fault, InvalidParamsError, ResourceExhaustedError
from broker.limits import (
    MAX_EXTERNAL_AUTHOR_CHARS,
    MAX_EXTERNAL_KIND_CHARS,
    MAX_EXTERNAL_REFS,
    MAX_EXTERNAL_URI_CHARS,
    MAX_REDACTION_ROUNDS,
    MAX_REPORTED_FAULTS,
)
from broker.wire.jsonrpc import json_type
from broker.wire.quoting import CONTROL_CHARACTER, SURROGATE, quote

Redact: TypeAlias = Callable[[str], str]
"""Takes secrets out of a text."""

COMMAND_LINE_AUTHOR: Final = "cli"
"""``created_by`` of a reference given on a command line that names no other."""

_KIND: Final = re.compile("[a-z0-9_-]*")
_TIME: Final = re.compile(
    r"(\d{4}-\d\d-\d\d)[Tt](\d\d:\d\d):(\d\d)(?:\.\d{1,9})?([Zz]|[+-](?:[01]\d|2[0-3]):[0-5]\d)", re.ASCII
)
_TEXTS: Final = {
    "kind": ("MAX_EXTERNAL_KIND_CHARS", MAX_EXTERNAL_KIND_CHARS),
    "uri": ("MAX_EXTERNAL_URI_CHARS", MAX_EXTERNAL_URI_CHARS),
    "created_by": ("MAX_EXTERNAL_AUTHOR_CHARS", MAX_EXTERNAL_AUTHOR_CHARS),
}


@frozen
class ExternalRef:
    """One reference; raises :class:`~broker.errors.InvalidParamsError` with all ``faults`` when a member is not right.

    ``kind`` is 1 to 64 characters ``a-z 0-9 _ -``; ``uri`` 1 to 2048 without control characters, of any scheme;
    ``created_by`` 1 to 128 without control characters; ``read_only`` a hint that nobody enforces; ``created_at`` an
    RFC 3339 time, or ``None`` until the reference is added to a session. Lengths count characters.
    """

    kind: str
    uri: str
    created_by: str
    read_only: bool = False
    created_at: str | None = None

    def __attrs_post_init__(self) -> None:
        _raise(list(_faults({**self.to_json(), "read_only": self.read_only})))

    @property
    def key(self) -> tuple[str, str, str]:
        """What makes two references one: kind, URI and author."""
        return self.kind, self.uri, self.created_by

    def to_json(self) -> dict[str, Any]:
        """The reference as an object of the contract; ``read_only`` stands only when true."""
        value: dict[str, Any] = {"kind": self.kind, "uri": self.uri, "created_by": self.created_by}
        if self.read_only:
            value["read_only"] = True
        if self.created_at is not None:
            value["created_at"] = self.created_at
        return value


class ExternalRefs:
    """The references of one session, in the order they came. ``redact`` takes the secrets out of a URI that is added.

    ``refs`` are those that were kept before; raises like :meth:`add`.
    """

    def __init__(self, clock: Clock, refs: Iterable[ExternalRef] = (), *, redact: Redact | None = None) -> None:
        self._clock = clock
        self._redact = redact
        self._refs: dict[tuple[str, str, str], ExternalRef] = {}
        self.add(refs)

    def __len__(self) -> int:
        return len(self._refs)

    def __iter__(self) -> Iterator[ExternalRef]:
        return iter(tuple(self._refs.values()))

    def add(self, refs: Iterable[ExternalRef]) -> int:
        """Add those that are not there yet, stamped with the time of now if they have none; how many that were.

        All or none: raises :class:`~broker.errors.InvalidParamsError` for a URI that is too long once its secrets are
        replaced, and :class:`~broker.errors.ResourceExhaustedError` for more than 1024 references.
        """
        kept = dict(self._refs)
        now = rfc3339(self._clock.unix_ms())
        for ref in refs:
            clean = self._clean(ref)
            if clean.key not in kept:
                kept[clean.key] = clean if clean.created_at is not None else evolve(clean, created_at=now)
        if len(kept) > MAX_EXTERNAL_REFS:
            raise ResourceExhaustedError(
                f"{len(kept)} external refs in one session, at most {MAX_EXTERNAL_REFS} are kept",
                limit="MAX_EXTERNAL_REFS",
                observed=len(kept),
                maximum=MAX_EXTERNAL_REFS,
            )
        added = len(kept) - len(self._refs)
        self._refs = kept
        return added

    def _clean(self, ref: ExternalRef) -> ExternalRef:
        """``ref`` as it is kept. What is kept passes unchanged, so that it is the same when it is added again."""
        if self._redact is None:
            return ref
        uri = self._redact(ref.uri)
        for _ in range(MAX_REDACTION_ROUNDS - 1):
            before, uri = uri, self._redact(uri)
            if uri == before:
                break
        return ref if uri == ref.uri else evolve(ref, uri=uri)

    def to_json(self) -> list[dict[str, Any]]:
        """The references as a session keeps them under ``external_refs``."""
        return [ref.to_json() for ref in self]


def read_external_ref(value: Any, *, place: str = "external_ref") -> ExternalRef:
    """The reference that the JSON ``value`` is; unknown members are ignored.

    Raises :class:`~broker.errors.InvalidParamsError` with all ``faults``, their paths below ``place``.
    """
    return _made(value, list(_place_faults(value, place)))


def read_external_refs(value: Any, *, place: str = "external_refs") -> tuple[ExternalRef, ...]:
    """The references that the JSON array ``value`` holds; ``None`` stands for none. Raises with all ``faults``."""
    if value is None:
        return ()
    if type(value) is not list:
        _raise([Fault(place, f"must be an array, not {json_type(value)}")])
    _raise([fault for index, item in enumerate(value) for fault in _place_faults(item, f"{place}[{index}]")])
    return tuple(_made(item, []) for item in value)


def parse_external_ref(text: str) -> ExternalRef:
    """The reference that a command line's ``--external-ref`` gives.

    Either ``KIND=URI``, whose URI may hold anything and whose author is ``cli``, or
    ``kind=...,uri=...,created_by=...,read_only=...`` in any order: taken for that when it begins with one of these
    four and holds a comma. In that form a comma belongs to the URI unless a word and ``=`` follow, and a word that is
    none of the four is an error. Raises :class:`~broker.errors.InvalidParamsError` for that and anything else amiss.
    """
    first, equals, rest = text.partition("=")
    if not equals:
        _raise([Fault("", f"{quote(text)} is not KIND=URI")])
    if first not in _LONG_FORM or "," not in text:
        return ExternalRef(first, rest, COMMAND_LINE_AUTHOR)
    members: dict[str, Any] = {"created_by": COMMAND_LINE_AUTHOR}
    seen: set[str] = set()
    for key, part in _parts(text):
        if key not in _LONG_FORM:
            _raise([Fault("", f"{quote(key)} is none of {', '.join(_LONG_FORM)}")])
        if key in seen:
            _raise([Fault(key, "stands twice")])
        seen.add(key)
        if key == "read_only" and part not in _BOOLEANS:
            _raise([Fault(key, f"must be true or false, not {quote(part)}")])
        members[key] = _BOOLEANS[part] if key == "read_only" else part
    return read_external_ref(members, place="")


def rfc3339(unix_ms: int) -> str:
    """A wall time as RFC 3339 in UTC, to the second."""
    moment = datetime(1970, 1, 1, tzinfo=UTC) + timedelta(seconds=unix_ms // 1_000)
    return moment.strftime("%Y-%m-%dT%H:%M:%SZ")


_LONG_FORM: Final = ("kind", "uri", "created_by", "read_only")
_BOOLEANS: Final = {"true": True, "false": False, "1": True, "0": False}
_KEY: Final = re.compile("[A-Za-z_-]+=")


def _parts(text: str) -> Iterator[tuple[str, str]]:
    """The keys and values of the long form."""
    found: list[list[str]] = []
    for piece in text.split(","):
        if found and found[-1][0] == "uri" and _KEY.match(piece) is None:
            found[-1][1] += f",{piece}"
        else:
            key, _, value = piece.partition("=")
            found.append([key, value])
    return ((key, value) for key, value in found)


def _made(value: Any, faults: list[Fault]) -> ExternalRef:
    _raise(faults)
    return ExternalRef(
        kind=value["kind"],
        uri=value["uri"],
        created_by=value["created_by"],
        read_only=value.get("read_only") or False,
        created_at=value.get("created_at"),
    )


def _place_faults(value: Any, place: str) -> Iterator[Fault]:
    if not isinstance(value, dict):
        yield Fault(place, f"must be an object, not {json_type(value)}")
        return
    for fault in _faults(value):
        yield evolve(fault, path=f"{place}.{fault.path}" if place else fault.path)


def _faults(value: Mapping[str, Any]) -> Iterator[Fault]:
    for key in getattr(value, "repeated", ()):
        yield Fault(quote(key), "stands twice")
    for key, (limit, maximum) in _TEXTS.items():
        text = value.get(key)
        if type(text) is not str:
            yield Fault(key, "is missing" if text is None else f"must be a string, not {json_type(text)}")
        elif not text:
            yield Fault(key, "must not be empty")
        elif len(text) > maximum:
            yield Fault(key, "is too long", "resource_exhausted", limit, len(text), maximum)
        elif key == "kind" and _KIND.fullmatch(text) is None:
            yield Fault(key, f"may hold only a-z, 0-9, _ and -, not {quote(text)}")
        elif CONTROL_CHARACTER.search(text) is not None:
            yield Fault(key, "holds a control character")
        elif SURROGATE.search(text) is not None:
            yield Fault(key, "holds half of a surrogate pair, which no file can hold")
    read_only, created_at = value.get("read_only"), value.get("created_at")
    if read_only is not None and type(read_only) is not bool:
        yield Fault("read_only", f"must be a boolean, not {json_type(read_only)}")
    if created_at is not None and (type(created_at) is not str or not _is_time(created_at)):
        shown = quote(created_at) if type(created_at) is str else json_type(created_at)
        yield Fault("created_at", f"must be a time as in RFC 3339, not {shown}")


def _is_time(text: str) -> bool:
    found = _TIME.fullmatch(text)
    if found is None:
        return False
    date, minute, second, _ = found.groups()
    try:
        # A leap second is a time, though not for Python.
        datetime.fromisoformat(f"{date}T{minute}:{'59' if second == '60' else second}")
    except ValueError:
        return False
    return True


def _raise(faults: list[Fault]) -> None:
    if faults:
        first = faults[0]
        raise InvalidParamsError(
            f"external ref: {'; '.join(map(str, faults[:MAX_REPORTED_FAULTS]))}",
            path=first.path or None,
            faults=faults[:MAX_REPORTED_FAULTS],
            limit=first.limit,
            observed=first.observed,
            maximum=first.maximum,
        )
