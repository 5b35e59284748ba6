"""Recognising a tool-result envelope (``odek.tool-result/v1``) in a text.

The ``schema`` member is a claim. A text that makes it and does not hold it is refused, never passed on as plain text:
what was cut or broken on its way would be shown to a model as raw JSON, paths included. A text without the claim is
plain, whatever it looks like. Source: odek contract, "Tool-result envelope"; odek notes, section 4.4.
"""

from __future__ import annotations

import re
from typing import Any, Final

import orjson
from attrs import frozen

from broker.errors import CanonicalError, ResultError
from broker.limits import MAX_ARTIFACTS
from broker.wire.jsonrpc import json_type
from broker.wire.odek.strict_json import JsonObject, loads
from broker.wire.quoting import quote

RESULT_SCHEMA: Final = "odek.tool-result/v1"

_BOM: Final = "\ufeff"
_CLAIM: Final = re.compile(rf'"schema"\s*:\s*"{re.escape(RESULT_SCHEMA)}"')


@frozen
class Envelope:
    """A tool's text, and its artifact references as sent: their number is checked, they themselves are not."""

    text: str
    artifacts: tuple[Any, ...] = ()


def detect(text: str) -> Envelope | None:
    """The envelope that ``text`` is, ``None`` for plain text.

    Raises :class:`~broker.errors.ResultError` for a claim that does not hold: broken or cut JSON, a member that stands
    twice or is of the wrong type, more than 64 references.
    """
    text = text.strip().removeprefix(_BOM).lstrip()
    if not text.startswith("{"):
        return None
    data = text.encode("utf-8", "surrogatepass")
    if _CLAIM.search(text) is None and not _has_schema(data):
        return None
    try:
        value = loads(data)
    except CanonicalError as error:
        raise _malformed(str(error)) from error
    if not isinstance(value, JsonObject):
        return None
    if value.get("schema") != RESULT_SCHEMA and "schema" not in value.repeated:
        return None  # the words stand deeper in it
    for key in ("schema", "text", "artifacts"):
        if key in value.repeated:
            raise _malformed(f"the member {quote(key)} stands twice")
    body, artifacts = value.get("text"), value.get("artifacts")
    if body is None:
        body = ""
    if artifacts is None:
        artifacts = []
    if type(body) is not str:
        raise _malformed(f"text must be a string, not {json_type(body)}", path="text")
    if type(artifacts) is not list:
        raise _malformed(f"artifacts must be an array, not {json_type(artifacts)}", path="artifacts")
    check_artifact_count(len(artifacts))
    for index, artifact in enumerate(artifacts):
        if not isinstance(artifact, JsonObject):
            raise _malformed(f"artifacts[{index}] must be an object, not {json_type(artifact)}", path="artifacts")
    return Envelope(body, tuple(artifacts))


def _has_schema(data: bytes) -> bool:
    """Whether this is an object with the schema member, however that may be written."""
    try:
        value = orjson.loads(data)
    except orjson.JSONDecodeError:
        return False
    return type(value) is dict and value.get("schema") == RESULT_SCHEMA


def check_artifact_count(count: int) -> None:
    """Raise :class:`~broker.errors.ResultError` for more references than one result may have."""
    if count > MAX_ARTIFACTS:
        raise ResultError(
            f"more than {MAX_ARTIFACTS} artifact references",
            name="resource_exhausted",
            path="artifacts",
            limit="MAX_ARTIFACTS",
            observed=count,
            maximum=MAX_ARTIFACTS,
        )


def _malformed(problem: str, path: str | None = None) -> ResultError:
    return ResultError(f"malformed {RESULT_SCHEMA}: {problem}", path=path)
