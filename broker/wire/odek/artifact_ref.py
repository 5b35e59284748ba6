"""Artifact references (``odek.artifact-ref/v1``) as a server sends them: everything that can be judged without a file.

Whether the file is there, lies in a root and is what the reference says is for an adapter to check, on an open
descriptor. A reference that passed here names one absolute, clean path and nothing else.

Source: odek contract, "Artifact-ref schema"; odek notes, section 4.5, steps 1 to 7 and 12 to 14.
"""

from __future__ import annotations

import re
from typing import Any, Final
from urllib.parse import quote as percent_encode

from attrs import field, frozen

from broker.errors import ArtifactError
from broker.wire.jsonrpc import json_type
from broker.wire.quoting import CONTROL_CHARACTER, quote

REF_SCHEMA: Final = "odek.artifact-ref/v1"

_FILE_URI: Final = re.compile("file://(?=/)", re.IGNORECASE)
_SCHEME: Final = re.compile("file:", re.IGNORECASE)
_ESCAPE: Final = re.compile(rb"%([0-9A-Fa-f]{2})")
_STRAY_PERCENT: Final = re.compile("%(?![0-9A-Fa-f]{2})")
_DIGEST: Final = re.compile("[0-9a-f]{64}")


@frozen
class ArtifactRef:
    """One reference. ``path`` is the decoded path of its URI, for adapters only: it is never shown to a model.

    ``sha256`` and ``size_bytes`` are what the server declares, ``None`` where it declares nothing; they still have to
    be compared with the file. Bytes of the path that are not UTF-8 are kept as Python keeps them in file names.
    """

    id: str
    uri: str = field(repr=False)
    media_type: str
    path: str = field(repr=False)
    sha256: str | None = None
    size_bytes: int | None = None
    summary: str | None = None

    def to_json(self) -> dict[str, Any]:
        """The reference as it is sent; optional members that are not known are left out."""
        optional = {"sha256": self.sha256, "size_bytes": self.size_bytes, "summary": self.summary}
        members = {"schema": REF_SCHEMA, "id": self.id, "uri": self.uri, "media_type": self.media_type}
        return {**members, **{name: value for name, value in optional.items() if value is not None}}


def read_ref(value: Any, *, place: str) -> ArtifactRef:
    """The reference that the JSON ``value`` is; unknown members are ignored.

    ``place`` is where it stands, such as ``artifacts[2]``. Raises :class:`~broker.errors.ArtifactError` with the
    ``path`` of the first fault and, once it is known, the reference's id.
    """
    if not isinstance(value, dict):
        raise ArtifactError(f"{place}: must be an object, not {json_type(value)}", path=place)
    reader = _Reader(value, place)
    if value.get("schema") != REF_SCHEMA:
        raise reader.fault("schema", f"must be {REF_SCHEMA}")
    reader.id = reader.text("id", required=True)
    uri = reader.text("uri", required=True)
    media_type = reader.text("media_type", required=True)
    problem = uri_problem(uri)
    if problem is not None:
        raise reader.fault("uri", problem)
    sha256 = reader.text("sha256") or None
    if sha256 is not None and _DIGEST.fullmatch(sha256) is None:
        raise reader.fault("sha256", f"must be 64 lower-case hexadecimal digits, not {quote(sha256)}")
    summary = reader.text("summary") if value.get("summary") is not None else None
    return ArtifactRef(
        id=reader.id,
        uri=uri,
        media_type=media_type,
        path=parse_file_uri(uri),
        sha256=sha256,
        size_bytes=reader.size("size_bytes"),
        summary=summary,
    )


def parse_file_uri(uri: str) -> str:
    """The path of a ``file:///`` URI, percent-decoded once: absolute, and without empty, ``.`` or ``..`` elements.

    Raises :class:`~broker.errors.ArtifactError` for anything else. The URI itself is not in the error's text.
    """
    problem = uri_problem(uri)
    if problem is not None:
        raise ArtifactError(f"uri: {problem}", path="uri")
    return _decoded_path(uri)


def file_uri(path: str) -> str:
    """The URI of an absolute, clean path; every byte that is not unreserved is percent-encoded."""
    return f"file://{percent_encode(path.encode('utf-8', 'surrogateescape'), safe='/')}"


def uri_problem(uri: str) -> str | None:
    """Why ``uri`` is not the URI of one clean absolute path; ``None`` if it is."""
    start = _FILE_URI.match(uri)
    if start is None:
        if _SCHEME.match(uri) is None:
            return "only file:// URIs are accepted"
        return "must begin with file:/// : a host, a user or a relative path is refused"
    if "?" in uri or "#" in uri:
        return "a query or a fragment is refused"
    if CONTROL_CHARACTER.search(uri) is not None:
        return "holds a control character"
    if _STRAY_PERCENT.search(uri) is not None:
        return "holds a '%' that escapes nothing"
    path = _decoded_path(uri)
    if "\0" in path:
        return "its path holds NUL"
    if any(element in ("", ".", "..") for element in path.split("/")[1:]):
        return "its path is not clean: an empty, '.' or '..' element, or a slash at its end"
    return None


def _decoded_path(uri: str) -> str:
    path = uri[len("file://") :].encode("utf-8", "surrogatepass")
    return _ESCAPE.sub(lambda found: bytes((int(found[1], 16),)), path).decode("utf-8", "surrogateescape")


class _Reader:
    """Reads the members of one reference."""

    def __init__(self, value: dict[str, Any], place: str) -> None:
        self._value = value
        self._place = place
        self.id: str | None = None
        for key in getattr(value, "repeated", ()):
            raise self.fault(quote(key), "stands twice")

    def text(self, key: str, *, required: bool = False) -> str:
        """A string member; a missing or null one is empty, which a required one must not be."""
        value = self._value.get(key)
        if value is None:
            value = ""
        if type(value) is not str:
            raise self.fault(key, f"must be a string, not {json_type(value)}")
        if required and not value:
            raise self.fault(key, "is missing" if key not in self._value else "must not be empty")
        return value

    def size(self, key: str) -> int | None:
        """An integer member that is not negative; ``true`` is none. Missing and null differ from 0."""
        value = self._value.get(key)
        if value is not None and type(value) is not int:
            raise self.fault(key, f"must be an integer, not {json_type(value)}")
        if value is not None and value < 0:
            raise self.fault(key, f"must not be negative, as {value} is")
        return value

    def fault(self, key: str, problem: str) -> ArtifactError:
        """The error for a member."""
        name = "" if self.id is None else f" (artifact {quote(self.id)})"
        path = f"{self._place}.{key}"
        return ArtifactError(f"{path}{name}: {problem}", artifact=self.id, path=path)
