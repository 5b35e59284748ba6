"""A session file as references to outside state see it: one object of a host's own, in which they are one member.

Every other member belongs to the host. It is kept as it was written, byte for byte, whatever it holds: a number of any
length, an order of keys, a member that a later version added. Source: odek notes, section 6.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from typing import Any, Final

import orjson
from attrs import field, frozen

from broker.errors import CanonicalError, ConfigError, InvalidParamsError, ResourceExhaustedError
from broker.limits import MAX_SESSION_FILE_BYTES
from broker.wire.jsonrpc import json_type
from broker.wire.odek.external_ref import ExternalRef, read_external_refs
from broker.wire.odek.strict_json import JsonObject, loads
from broker.wire.quoting import quote

MEMBER: Final = "external_refs"

# Where a member's text begins and ends is all that is wanted: no number is made of its digits.
_SCANNER: Final = json.JSONDecoder(parse_int=len, parse_float=len)
_WHITESPACE: Final = " \t\n\r"


@frozen
class SessionDocument:
    """One session file: the texts of the host's ``members`` by key, in order, and the ``refs`` kept among them."""

    members: Mapping[str, str] = field(factory=dict)
    refs: tuple[ExternalRef, ...] = ()

    def to_bytes(self) -> bytes:
        """The document as a file holds it. Without references it has no member for them.

        Raises :class:`~broker.errors.ResourceExhaustedError` for one that could not be read again.
        """
        members = dict(self.members)
        members.pop(MEMBER, None)
        if self.refs:
            members[MEMBER] = orjson.dumps([ref.to_json() for ref in self.refs]).decode()
        body = ",\n".join(f"{orjson.dumps(key).decode()}: {text}" for key, text in members.items())
        data = f"{{\n{body}\n}}\n".encode()
        if len(data) > MAX_SESSION_FILE_BYTES:
            raise ResourceExhaustedError(
                f"a session of {len(data)} bytes, at most {MAX_SESSION_FILE_BYTES} are kept",
                limit="MAX_SESSION_FILE_BYTES",
                observed=len(data),
                maximum=MAX_SESSION_FILE_BYTES,
            )
        return data


def read_session_document(data: bytes) -> SessionDocument:
    """The document that a file's bytes are.

    Raises :class:`~broker.errors.ConfigError` for what is no session, or whose references are not right: an empty file
    or a torn one, another value than an object, a key that stands twice, a reference that breaks a rule.
    """
    if len(data) > MAX_SESSION_FILE_BYTES:
        raise ConfigError(
            "is too long for a session file",
            limit="MAX_SESSION_FILE_BYTES",
            observed=len(data),
            maximum=MAX_SESSION_FILE_BYTES,
        )
    try:
        value = loads(data)
    except CanonicalError as error:
        raise ConfigError(f"is no session file: {error}") from error
    if not isinstance(value, JsonObject):
        raise ConfigError(f"is no session file: it holds {json_type(value)}, not an object")
    if value.repeated:
        raise ConfigError(f"is no session file: its key {quote(value.repeated[0])} stands twice")
    try:
        refs = read_external_refs(value.get(MEMBER), place=MEMBER)
    except InvalidParamsError as error:
        raise ConfigError(
            str(error),
            path=error.path,
            faults=error.faults,
            limit=error.limit,
            observed=error.observed,
            maximum=error.maximum,
        ) from error
    members = _texts(data.decode())
    members.pop(MEMBER, None)
    return SessionDocument(members, refs)


def encode_members(members: Mapping[str, Any], *, keep: Iterable[ExternalRef]) -> SessionDocument:
    """The document of a host's ``members``, JSON values by key, with the references to ``keep``.

    Raises :class:`~broker.errors.InvalidParamsError` for a value that JSON cannot hold, and for a member that is named
    as the references are.
    """
    texts: dict[str, str] = {}
    for key, value in members.items():
        if type(key) is not str or key == MEMBER:
            raise InvalidParamsError(f"{key!a:.80} is no name for a member of the host's own", path=MEMBER)
        try:
            texts[key] = json.dumps(value, ensure_ascii=False, allow_nan=False)
            texts[key].encode()
        except (TypeError, ValueError, RecursionError) as error:
            raise InvalidParamsError(f"member {quote(key)}: {error}", path=key) from error
    document = SessionDocument(texts, tuple(keep))
    try:
        read_session_document(document.to_bytes())
    except ConfigError as error:
        raise InvalidParamsError(f"the members could not be read again: it {error}", path=error.path) from error
    return document


def _texts(text: str) -> dict[str, str]:
    """The texts of the members of the valid JSON object ``text``, by key."""
    texts: dict[str, str] = {}
    position = _past(text, _past(text, 0) + 1)
    while text[position] != "}":
        key, position = _SCANNER.raw_decode(text, position)
        position = _past(text, _past(text, position) + 1)
        _, end = _SCANNER.raw_decode(text, position)
        texts[key] = text[position:end]
        position = _past(text, end)
        if text[position] == ",":
            position = _past(text, position + 1)
    return texts


def _past(text: str, position: int) -> int:
    while text[position] in _WHITESPACE:
        position += 1
    return position
