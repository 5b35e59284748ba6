"""The records of ``migration/detect`` and ``migration/import`` (octet 0.3).

What an adapter found is source-relative and free of secrets: there is no member for environment variables, headers,
credentials, working directories or permissions, and unknown members are refused. Source: octet reference, models
``Migration*``; octet notes, section 4.8.
"""

from __future__ import annotations

from typing import Any, Final

from attrs import field, frozen

from broker.errors import Fault, ResultError
from broker.limits import LIMITS
from broker.wire.octet.schema import Boolean, Items, Nested, Text, decode, over, wire, wrong_type
from broker.wire.quoting import CONTROL_CHARACTER, INVISIBLE_CHARACTER, quote, utf8_length

SEVERITIES: Final = ("warning", "error")
ROOT_SIGN: Final = "$"
_ZERO_WIDTH: Final = "\u200b\u200c\u200d\u2060"


@frozen
class SourcePath:
    """A path below the source root: parts joined by ``/``, none of them ``.`` or ``..``, nothing that does not show.

    ``root_sign`` allows ``$``, which means the root itself.
    """

    root_sign: bool = False

    def check(self, value: Any, path: str, faults: list[Fault]) -> None:
        """Append the fault of ``value``, if it has one."""
        if type(value) is not str:
            faults.append(wrong_type(path, "a string", value))
            return
        size = utf8_length(value)
        if size > LIMITS["MAX_MIGRATION_PATH_BYTES"].value:
            faults.append(over(path, "is too long", "MAX_MIGRATION_PATH_BYTES", size))
        elif not (self.root_sign and value == ROOT_SIGN):
            problem = path_problem(value)
            if problem is not None:
                faults.append(Fault(path, f"{problem}: {quote(value)}"))

    def decode(self, value: Any) -> Any:
        """The same string."""
        return value

    def encode(self, value: Any) -> Any:
        """The same string."""
        return value


def path_problem(path: str) -> str | None:
    """What is wrong with a source-relative path; ``None`` when nothing is."""
    if not path:
        return "must not be empty"
    if CONTROL_CHARACTER.search(path) or INVISIBLE_CHARACTER.search(path) or any(map(path.__contains__, _ZERO_WIDTH)):
        return "must have no control, direction or zero-width characters"
    if "\\" in path:
        return "must have no backslash"
    if path.startswith("/"):
        return "must be relative to the source root"
    if any(part in ("", ".", "..") for part in path.split("/")):
        return "must have no empty part and none that is . or .."
    return None


_ROOT: Final = Text("MAX_MIGRATION_PATH_BYTES", empty=False)
_NAME: Final = Text("MAX_MIGRATION_NAME_BYTES", label=True, empty=False)


@frozen(kw_only=True)
class MigrationDiagnostic:
    """Something a person should know about a source file; ``path`` may be ``$`` for the root."""

    path: str = field(metadata=wire(SourcePath(root_sign=True)))
    severity: str = field(metadata=wire(Text(choices=SEVERITIES)))
    reason: str = field(metadata=wire(Text("MAX_MIGRATION_DIAGNOSTIC_BYTES")))


@frozen(kw_only=True)
class MigrationDetectParams:
    """The parameters of ``migration/detect``: the directory the host lets the adapter read."""

    source_root: str = field(metadata=wire(_ROOT))


@frozen(kw_only=True)
class MigrationDetectResult:
    """Whether there is a setup below the root, and the files that hold it."""

    detected: bool = field(metadata=wire(Boolean()))
    config_paths: tuple[str, ...] = field(metadata=wire(Items(SourcePath(), "MAX_MIGRATION_ITEMS")))
    diagnostics: tuple[MigrationDiagnostic, ...] = field(
        metadata=wire(Items(Nested(MigrationDiagnostic), "MAX_MIGRATION_ITEMS"))
    )


@frozen(kw_only=True)
class MigrationImportParams:
    """The parameters of ``migration/import``: the same root, and paths that detection gave."""

    source_root: str = field(metadata=wire(_ROOT))
    config_paths: tuple[str, ...] = field(metadata=wire(Items(SourcePath(), "MAX_MIGRATION_ITEMS")))


@frozen(kw_only=True)
class MigrationModel:
    """A model the source setup selects, and the file that says so."""

    path: str = field(metadata=wire(SourcePath()))
    provider: str = field(metadata=wire(_NAME))
    model: str = field(metadata=wire(_NAME))


@frozen(kw_only=True)
class MigrationSkill:
    """A skill of the source setup, with its text."""

    path: str = field(metadata=wire(SourcePath()))
    name: str = field(metadata=wire(_NAME))
    content: str = field(metadata=wire(Text("MAX_MIGRATION_SKILL_BYTES")))


@frozen(kw_only=True)
class MigrationMcpServer:
    """A local MCP server of the source setup: its command and arguments, and nothing else."""

    path: str = field(metadata=wire(SourcePath()))
    name: str = field(metadata=wire(_NAME))
    command: str = field(metadata=wire(Text("MAX_MIGRATION_COMMAND_BYTES", label=True, empty=False)))
    args: tuple[str, ...] = field(metadata=wire(Items(Text("MAX_MIGRATION_ARGUMENT_BYTES"), "MAX_MIGRATION_ITEMS")))


@frozen(kw_only=True)
class MigrationImportResult:
    """What could be converted. The host decides what of it is written, and where."""

    models: tuple[MigrationModel, ...] = field(metadata=wire(Items(Nested(MigrationModel), "MAX_MIGRATION_ITEMS")))
    skills: tuple[MigrationSkill, ...] = field(metadata=wire(Items(Nested(MigrationSkill), "MAX_MIGRATION_ITEMS")))
    mcp_servers: tuple[MigrationMcpServer, ...] = field(
        metadata=wire(Items(Nested(MigrationMcpServer), "MAX_MIGRATION_ITEMS"))
    )
    diagnostics: tuple[MigrationDiagnostic, ...] = field(
        metadata=wire(Items(Nested(MigrationDiagnostic), "MAX_MIGRATION_ITEMS"))
    )


def decode_detect_result(value: Any) -> MigrationDetectResult:
    """A ``migration/detect`` result, or :class:`~broker.errors.ResultError` with its faults."""
    return decode(MigrationDetectResult, value, what="result of migration/detect", error=ResultError)


def decode_import_result(value: Any) -> MigrationImportResult:
    """A ``migration/import`` result, or :class:`~broker.errors.ResultError` with its faults."""
    return decode(MigrationImportResult, value, what="result of migration/import", error=ResultError)
