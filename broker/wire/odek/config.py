"""``mcp_servers`` of an operator's and a project's configuration: which servers there are, and within which limits.

Every fault of a file is found and named by its key path before any of it is used. What is merely too much is lowered,
with a warning for the operator. A server of the project never takes the place of one that the operator has named.

Source: odek contract, "Server configuration"; odek notes, section 1; design, "Decisions on odek-extension/v1".
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any, Final, Literal, TypeAlias

from attrs import field, frozen

from broker.errors import CanonicalError, ConfigError, Fault
from broker.limits import (
    MAX_CONFIG_BYTES,
    MAX_REPORTED_FAULTS,
    MAX_RESPONSE_BYTES,
    MAX_RESULT_CHARS,
    MAX_SERVER_TIMEOUT_SECONDS,
    MAX_SERVERS,
    RESPONSE_BYTES,
    RESULT_CHARS,
    SERVER_TIMEOUT_SECONDS,
)
from broker.wire.jsonrpc import json_type
from broker.wire.mcp.names import name_problem
from broker.wire.odek.environment import key_problem
from broker.wire.odek.rendering import min_result_chars
from broker.wire.odek.strict_json import JsonObject, loads
from broker.wire.quoting import escape, quote

Source: TypeAlias = Literal["operator", "project"]

SECTION: Final = "mcp_servers"

_BOM: Final = b"\xef\xbb\xbf"


def _frozen_mapping(mapping: Mapping[str, str]) -> Mapping[str, str]:
    return MappingProxyType(dict(mapping))


@frozen(kw_only=True)
class ServerConfig:
    """One entry of ``mcp_servers``, its limits in force.

    ``env`` is as written; what the process gets of it is :func:`broker.wire.odek.environment.child_environment`'s to
    say. ``artifact_roots`` are paths as written, none of them blank; a relative one is meant from the host's working
    directory. ``source`` is whose file it is from, and only an operator's entry can have ``auto_approve``.
    """

    name: str
    source: Source
    command: str
    args: tuple[str, ...] = ()
    env: Mapping[str, str] = field(factory=dict, converter=_frozen_mapping)
    timeout_seconds: int = SERVER_TIMEOUT_SECONDS
    max_response_bytes: int = RESPONSE_BYTES
    max_result_chars: int = RESULT_CHARS
    artifact_roots: tuple[str, ...] = ()
    enabled: bool = True
    auto_approve: bool = False


@frozen
class ServerSet:
    """The servers of a configuration in the order they stand there, what was changed on the way, and what is left out.

    ``refused`` are entries that are right but name something not supported (``url``), by name with the reason.
    """

    servers: tuple[ServerConfig, ...] = ()
    warnings: tuple[str, ...] = ()
    refused: Mapping[str, str] = field(factory=dict, converter=_frozen_mapping)

    def get(self, name: str) -> ServerConfig | None:
        """The server called ``name``, or ``None``."""
        return next((server for server in self.servers if server.name == name), None)


def parse_servers(data: bytes, *, source: Source, path: str = "") -> ServerSet:
    """The servers of a configuration file's bytes; other sections of it are not looked at.

    ``path`` is the file's name, for texts. Raises :class:`~broker.errors.ConfigError` with all ``faults`` found.
    """
    reader = _Reader(source)
    if len(data) > MAX_CONFIG_BYTES:
        reader.faults.append(
            Fault("", "is too long", "resource_exhausted", "MAX_CONFIG_BYTES", len(data), MAX_CONFIG_BYTES)
        )
    else:
        try:
            reader.read(loads(data.removeprefix(_BOM)))
        except CanonicalError as error:
            reader.faults.append(Fault("", str(error)))
    if reader.faults:
        faults = reader.faults[:MAX_REPORTED_FAULTS]
        what = f"{escape(path)}: " if path else ""
        raise ConfigError(
            f"{what}{'; '.join(map(str, faults))}",
            path=path or None,
            faults=faults,
            limit=faults[0].limit,
            observed=faults[0].observed,
            maximum=faults[0].maximum,
        )
    return ServerSet(tuple(reader.servers), tuple(reader.warnings), reader.refused)


def merge(operator: ServerSet, project: ServerSet) -> ServerSet:
    """Both sets as one. Where both name a server the operator's entry counts, also when it is disabled or refused."""
    taken = {server.name for server in operator.servers} | set(operator.refused)
    warnings = [
        f"server {name}: the project's entry is ignored, the operator has one of that name"
        for name in (*(server.name for server in project.servers), *project.refused)
        if name in taken
    ]
    return ServerSet(
        (*operator.servers, *(server for server in project.servers if server.name not in taken)),
        (*operator.warnings, *project.warnings, *warnings),
        {**{name: why for name, why in project.refused.items() if name not in taken}, **operator.refused},
    )


class _Reader:
    """Reads one file's value; collects faults, warnings and servers."""

    def __init__(self, source: Source) -> None:
        self._source = source
        self.faults: list[Fault] = []
        self.warnings: list[str] = []
        self.servers: list[ServerConfig] = []
        self.refused: dict[str, str] = {}

    def read(self, value: Any) -> None:
        if self._object(value, "$") is None:
            return
        section = value.get(SECTION)
        if section is None or self._object(section, SECTION) is None:
            return
        if len(section) > MAX_SERVERS:
            self.faults.append(
                Fault(SECTION, "has too many", "resource_exhausted", "MAX_SERVERS", len(section), MAX_SERVERS)
            )
            return
        for name, entry in section.items():
            self._read_server(name, entry)

    def _read_server(self, name: str, entry: Any) -> None:
        problem = name_problem(name)
        path = f"{SECTION}[{quote(name)}]" if problem else f"{SECTION}.{name}"
        before = len(self.faults)
        if problem is not None:
            self.faults.append(Fault(path, problem))
        if self._object(entry, path) is None:
            return
        # Everything is read before anything is decided, so that all faults of the entry are found.
        command = self._text(entry, "command", path)
        url = self._text(entry, "url", path)
        self._text(entry, "token_env", path)
        fields: dict[str, Any] = {
            "args": self._texts(entry, "args", path),
            "env": self._env(entry, path),
            "enabled": self._flag(entry, "enabled", path, default=True),
            "auto_approve": self._flag(entry, "auto_approve", path, default=False),
            "artifact_roots": self._roots(entry, name, path),
            **self._limits(entry, name, path),
        }
        if url:
            self.refused[name] = "url: servers over HTTP are not supported"
            self.warnings.append(f"server {name} is left out: {self.refused[name]}")
        elif command is None or not command.strip():
            self.faults.append(Fault(f"{path}.command", "is missing" if command is None else "must not be empty"))
        elif len(self.faults) == before:
            if fields["auto_approve"] and self._source == "project":
                fields["auto_approve"] = False
                self.warnings.append(f"server {name}: auto_approve is ignored, only the operator's file may say so")
            self.servers.append(ServerConfig(name=name, source=self._source, command=command, **fields))

    def _limits(self, entry: JsonObject, name: str, path: str) -> dict[str, int]:
        timeout = self._number(entry, "timeout_seconds", path) or SERVER_TIMEOUT_SECONDS
        response = self._number(entry, "max_response_bytes", path) or RESPONSE_BYTES
        result = self._number(entry, "max_result_chars", path) or RESULT_CHARS
        if response > MAX_RESPONSE_BYTES:
            self.faults.append(
                Fault(
                    f"{path}.max_response_bytes",
                    f"is over the ceiling of {MAX_RESPONSE_BYTES}",
                    "resource_exhausted",
                    "MAX_RESPONSE_BYTES",
                    response,
                    MAX_RESPONSE_BYTES,
                )
            )
        floor = min_result_chars(name)
        for field_name, value, bound, verb in (
            ("timeout_seconds", timeout, min(timeout, MAX_SERVER_TIMEOUT_SECONDS), "lowered"),
            ("max_result_chars", result, min(result, MAX_RESULT_CHARS), "lowered"),
            ("max_result_chars", result, max(result, floor), "raised"),
        ):
            if value != bound:
                self.warnings.append(f"server {escape(name)}: {field_name} {value} is {verb} to {bound}")
        return {
            "timeout_seconds": min(timeout, MAX_SERVER_TIMEOUT_SECONDS),
            "max_response_bytes": response,
            "max_result_chars": max(floor, min(result, MAX_RESULT_CHARS)),
        }

    def _env(self, entry: JsonObject, path: str) -> dict[str, str]:
        value = entry.get("env")
        if value is None or self._object(value, f"{path}.env") is None:
            return {}
        for key, text in value.items():
            problem = key_problem(key)
            if problem is not None:
                self.faults.append(Fault(f"{path}.env", problem))
            self._check_text(text, f"{path}.env.{escape(key)}")
        return dict(value)

    def _roots(self, entry: JsonObject, name: str, path: str) -> tuple[str, ...]:
        roots = self._texts(entry, "artifact_roots", path)
        kept = tuple(root for root in roots if root.strip())
        if len(kept) < len(roots):
            self.warnings.append(
                f"server {escape(name)}: blank artifact_roots are ignored, they never mean a directory"
            )
        return kept

    # -- members -------------------------------------------------------------------------------------------------------

    def _object(self, value: Any, path: str) -> JsonObject | None:
        if not isinstance(value, JsonObject):
            self.faults.append(Fault(path, f"must be an object, not {json_type(value)}"))
            return None
        self.faults += [Fault(path, f"the key {quote(key)} stands twice") for key in value.repeated]
        return value

    def _check_text(self, value: Any, path: str) -> bool:
        if type(value) is not str:
            self.faults.append(Fault(path, f"must be a string, not {json_type(value)}"))
        elif "\0" in value:
            self.faults.append(Fault(path, "must not hold NUL"))
        else:
            return True
        return False

    def _text(self, entry: JsonObject, key: str, path: str) -> str | None:
        value = entry.get(key)
        if value is None:
            return None
        # A malformed value counts as given, so that it is not reported as missing too.
        return str(value) if self._check_text(value, f"{path}.{key}") else "malformed"

    def _texts(self, entry: JsonObject, key: str, path: str) -> tuple[str, ...]:
        value = entry.get(key)
        if value is None:
            return ()
        if type(value) is not list:
            self.faults.append(Fault(f"{path}.{key}", f"must be an array, not {json_type(value)}"))
            return ()
        return tuple(item for index, item in enumerate(value) if self._check_text(item, f"{path}.{key}[{index}]"))

    def _number(self, entry: JsonObject, key: str, path: str) -> int:
        value = entry.get(key)
        if value is None:
            return 0
        if type(value) is not int:
            self.faults.append(Fault(f"{path}.{key}", f"must be an integer, not {json_type(value)}"))
        elif value < 0:
            self.faults.append(Fault(f"{path}.{key}", f"must not be negative, as {value} is"))
        else:
            return value
        return 0

    def _flag(self, entry: JsonObject, key: str, path: str, *, default: bool) -> bool:
        value = entry.get(key)
        if value is None:
            return default
        if type(value) is not bool:
            self.faults.append(Fault(f"{path}.{key}", f"must be a boolean, not {json_type(value)}"))
            return default
        return value
