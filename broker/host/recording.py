"""The format of a recorded session, ``broker-recording/v1``: one JSON object a line, secrets taken out.

The first line is the header, the last one the end, unless the recording was cut. Every other one is an entry: what one
process was started as, each frame it sent and heard, its stderr, and how its streams and its life ended, with the
milliseconds since the recording began. A frame stands there as JSON where that gives its bytes back, else as text.
Arguments and environment of a process are no part of it, and neither is what a host's own code did.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from typing import Any, Final, Literal, NamedTuple, TypeAlias

import cattrs
from attrs import evolve, field, frozen

from broker import canonical
from broker.errors import CanonicalError, SetupError
from broker.host.extension_process import ExtensionProcess
from broker.host.link import ProcessLink
from broker.host.mcp_server import McpServer
from broker.limits import MAX_MESSAGE_DEPTH, MAX_PORTABLE_INTEGER, MAX_RECORDED_LINE_BYTES
from broker.wire.mcp.decoding import is_deep
from broker.wire.octet.manifest_model import WIRES, Entrypoint, Manifest
from broker.wire.odek.config import ServerConfig
from broker.wire.odek.events.redaction import REDACTED, Redactor, names_secret
from broker.wire.odek.strict_json import loads

RECORDING_SCHEMA: Final = "broker-recording/v1"

Kind: TypeAlias = Literal["start", "heard", "sent", "stderr", "input_closed", "output_closed", "exited"]
KINDS: Final = ("start", "heard", "sent", "stderr", "input_closed", "output_closed", "exited")


def _strict_converter() -> cattrs.Converter:
    converter = cattrs.Converter(forbid_extra_keys=True)

    def exact(*kinds: type) -> Callable[[Any, Any], Any]:
        def structure(value: Any, _: Any) -> Any:
            if type(value) not in kinds:
                raise TypeError(f"expected {' or '.join(kind.__name__ for kind in kinds)}")
            return value

        return structure

    for kind in (str, int, bool):
        converter.register_structure_hook(kind, exact(kind))
    value_of_a_flag = exact(bool, int, str)
    converter.register_structure_hook_func(lambda wanted: wanted == bool | int | str, value_of_a_flag)
    return converter


_CONVERTER: Final = _strict_converter()
_ABSENT: Final = object()
END: Final = b'{"kind":"end"}\n'
"""The last line of a recording that was not cut."""
_CALLS: Final = ("tool/call", "tools/call")


@frozen
class Header:
    """When and where a session was recorded; ``workspace`` is the directory its processes ran in."""

    recorded_at_ms: int
    workspace: str

    def line(self) -> bytes:
        """The header's line, with its LF."""
        return _line({"schema": RECORDING_SCHEMA, "recorded_at_ms": self.recorded_at_ms, "workspace": self.workspace})


@frozen(kw_only=True)
class RecordedEntry:
    """One thing that happened to process ``number`` of ``name``, ``at_ms`` after the recording began.

    ``frame`` is a frame as JSON, or ``text`` what cannot be one, without LF. ``length`` is how many bytes a line had
    that was cut; ``invalid`` says that they were no UTF-8, ``torn`` that no LF followed. ``status`` is how it exited,
    ``manifest`` or ``server`` what it was started as. ``line_number`` is where it stood in a file it was read from.
    """

    at_ms: int
    kind: Kind
    name: str
    number: int
    frame: Any = field(default=_ABSENT, repr=False)
    text: str | None = None
    length: int | None = None
    invalid: bool = False
    torn: bool = False
    status: int | None = None
    manifest: Manifest | None = None
    server: ServerConfig | None = None
    line_number: int = field(default=0, eq=False)

    @property
    def what(self) -> str:
        """In a word or two, which line this is: the method of a frame, or what it answers."""
        if not self.is_frame or not isinstance(self.frame, dict):
            return self.kind
        method, number = self.frame.get("method"), self.frame.get("id")
        return str(method) if method is not None else f"answer to {number!r}"

    @property
    def is_frame(self) -> bool:
        """Whether the line is JSON that gives its bytes back."""
        return self.frame is not _ABSENT

    def line(self) -> bytes:
        """The entry's line, with its LF."""
        shown: dict[str, Any] = {"at_ms": self.at_ms, "kind": self.kind, "name": self.name, "number": self.number}
        if self.is_frame:
            shown["frame"] = self.frame
        shown |= {key: value for key in ("text", "length", "status") if (value := getattr(self, key)) is not None}
        shown |= {key: True for key in ("invalid", "torn") if getattr(self, key)}
        if self.manifest is not None:
            shown["manifest"] = _CONVERTER.unstructure(self.manifest)
        if self.server is not None:
            shown["server"] = {**_CONVERTER.unstructure(evolve(self.server, env={})), "env": {}}
        return _line(shown)


def started(at_ms: int, link: ProcessLink) -> RecordedEntry:
    """The entry of a process that runs now."""
    manifest = server = None
    if isinstance(link, ExtensionProcess):
        manifest = evolve(link.manifest, entrypoint=Entrypoint(link.manifest.entrypoint.command))
    elif isinstance(link, McpServer):
        server = evolve(link.config, args=(), env={})
    return RecordedEntry(
        at_ms=at_ms, kind="start", name=link.name, number=link.number, manifest=manifest, server=server
    )


def said(
    at_ms: int, kind: Kind, link: ProcessLink, line: bytes, redactor: Redactor, *, length: int, torn: bool = False
) -> RecordedEntry:
    """The entry of one line without LF: as JSON where that gives the same bytes, or the same meaning, back.

    ``line`` is at least its first 4194304 bytes, ``length`` how many there were.
    """
    strict = isinstance(link, ExtensionProcess) and link.manifest.api_version == "0.3"
    entry = RecordedEntry(at_ms=at_ms, kind=kind, name=link.name, number=link.number, torn=torn)
    cut = length > MAX_RECORDED_LINE_BYTES
    if kind != "stderr" and not cut:
        try:
            frame = canonical.decode(line) if strict else loads(line)
            return evolve(entry, frame=_redacted(frame, redactor))
        except (CanonicalError, RecursionError):
            pass
    kept = line[:MAX_RECORDED_LINE_BYTES]
    text = redactor.redact(kept.decode("utf-8", "backslashreplace"))
    try:
        kept.decode()
        invalid = False
    except UnicodeDecodeError as error:
        invalid = not (cut and error.end == len(kept))
    return evolve(entry, text=text, length=length if cut else None, invalid=invalid)


class Recorded(NamedTuple):
    """A recording that was read. ``complete`` says that it was not cut: its last line is the end."""

    header: Header
    entries: tuple[RecordedEntry, ...]
    complete: bool


def read_recording(data: bytes, *, path: str) -> Recorded:
    """What a file holds; a last line without its LF was torn, and is left out.

    Raises :class:`~broker.errors.SetupError` that names the first wrong line and what is wrong with it.
    """
    lines = data.split(b"\n")[:-1]
    if not lines:
        raise SetupError(f"{path}: no recording: it has no complete line", path=path)
    header = _read(lines[0], path, 1)
    if header.get("schema") != RECORDING_SCHEMA:
        raise SetupError(f"{path}: no recording: its first line does not say {RECORDING_SCHEMA}", path=path)
    if type(header.get("workspace")) is not str or type(header.get("recorded_at_ms")) is not int:
        raise SetupError(f"{path}: line 1: needs workspace and recorded_at_ms", path=path)
    begun = header["recorded_at_ms"]
    if not 0 <= begun <= MAX_PORTABLE_INTEGER:
        problem = f"recorded_at_ms: expected a whole number from 0 to {MAX_PORTABLE_INTEGER}"
        raise SetupError(f"{path}: line 1: {problem}", path=path)
    numbered = [(number, _read(line, path, number)) for number, line in enumerate(lines[1:], 2)]
    complete = bool(numbered) and numbered[-1][1] == {"kind": "end"}
    entries = tuple(_entry(shown, path, number) for number, shown in (numbered[:-1] if complete else numbered))
    for entry in entries:
        if begun + entry.at_ms > MAX_PORTABLE_INTEGER:
            problem = f"at_ms: no time is that long after {begun} ms, which is when it was recorded"
            raise SetupError(f"{path}: line {entry.line_number}: {problem}", path=path)
    return Recorded(Header(begun, header["workspace"]), entries, complete)


def _entry(shown: Mapping[str, Any], path: str, number: int) -> RecordedEntry:
    def wrong(what: str) -> SetupError:
        return SetupError(f"{path}: line {number}: {what}", path=path)

    def whole(key: str) -> int:
        value = shown.get(key)
        if type(value) is not int or not 0 <= value <= MAX_PORTABLE_INTEGER:
            raise wrong(f"{key}: expected a whole number from 0 on")
        return value

    at_ms, generation = whole("at_ms"), whole("number")
    kind, name = shown.get("kind"), shown.get("name")
    if type(name) is not str:
        raise wrong("name: expected a string")
    if kind not in KINDS:
        raise wrong(f"kind: expected one of {', '.join(KINDS)}")
    text, status = shown.get("text"), shown.get("status")
    length = whole("length") if shown.get("length") is not None else None
    if text is not None and type(text) is not str:
        raise wrong("text: expected a string")
    if status is not None and (type(status) is not int or abs(status) > MAX_PORTABLE_INTEGER):
        raise wrong("status: expected a whole number")
    if kind in ("heard", "sent") and "frame" not in shown and text is None:
        raise wrong("a line that was heard or sent has a frame or a text")
    manifest = server = None
    if kind == "start":
        try:
            manifest = _CONVERTER.structure(shown["manifest"], Manifest) if "manifest" in shown else None
            server = _CONVERTER.structure(shown["server"], ServerConfig) if "server" in shown else None
        except Exception as error:
            faults = "; ".join(cattrs.transform_error(error, path="manifest" if "manifest" in shown else "server"))
            raise wrong(faults) from error
        if (manifest is None) == (server is None):
            raise wrong("a start has a manifest or a server")
        if manifest is not None and manifest.api_version not in WIRES:
            raise wrong(f"manifest.api_version: expected one of {', '.join(WIRES)}")
    return RecordedEntry(
        at_ms=at_ms,
        kind=kind,
        name=name,
        number=generation,
        frame=shown.get("frame", _ABSENT),
        text=text,
        length=length,
        invalid=shown.get("invalid") is True,
        torn=shown.get("torn") is True,
        status=status,
        manifest=manifest,
        server=server,
        line_number=number,
    )


def _read(line: bytes, path: str, number: int) -> dict[str, Any]:
    try:
        value = json.loads(line)
    except (ValueError, RecursionError) as error:
        raise SetupError(f"{path}: line {number}: not JSON: {error}", path=path) from None
    if not isinstance(value, dict):
        raise SetupError(f"{path}: line {number}: expected an object", path=path)
    # The braces of the line itself are none of its frame.
    if is_deep(line.strip()[1:-1]):
        raise SetupError(
            f"{path}: line {number}: more than {MAX_MESSAGE_DEPTH} nested containers",
            path=path,
            limit="MAX_MESSAGE_DEPTH",
            maximum=MAX_MESSAGE_DEPTH,
        )
    return value


def _line(value: Mapping[str, Any]) -> bytes:
    return json.dumps(value, separators=(",", ":")).encode() + b"\n"


def _redacted(frame: Any, redactor: Redactor) -> Any:
    """A frame without its secrets; of a call's arguments also whatever stands under a name that says so."""
    # As deep as any wire takes: a frame that is sound is never too deep to be recorded.
    clean = redactor.redact_value(frame, max_depth=MAX_MESSAGE_DEPTH)
    if isinstance(clean, dict) and clean.get("method") in _CALLS and isinstance(clean.get("params"), dict):
        params = clean["params"]
        if "arguments" in params:
            params["arguments"] = _without_named(params["arguments"])
    return clean


def _without_named(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: covered(member) if names_secret(key) else _without_named(member) for key, member in value.items()}
    return [_without_named(member) for member in value] if isinstance(value, list) else value


def covered(value: Any) -> Any:
    """What stands under a secret's name, without every text and number of it; its shape stays, for a schema's sake."""
    if isinstance(value, dict):
        return {key: covered(member) for key, member in value.items()}
    if isinstance(value, list):
        return [covered(member) for member in value]
    return value if value is None or isinstance(value, bool) else REDACTED
