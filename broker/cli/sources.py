"""What the paths on a command line stand for: extensions by their manifests, MCP servers by their configuration."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TypeAlias

from broker.adapters.aio import AsyncSession
from broker.adapters.discovery import (
    directory_warnings,
    find_manifests,
    is_server_config,
    load_manifest,
    load_servers,
)
from broker.errors import SetupError, UsageError
from broker.wire.octet.manifest import Manifest
from broker.wire.odek.config import ServerConfig

Source: TypeAlias = Manifest | ServerConfig


def load_all(paths: Sequence[Path]) -> tuple[list[Source], list[tuple[str, str]]]:
    """Everything under ``paths``, and warnings as (name, text).

    All faults of all files are in one :class:`SetupError`, before anything starts. A configuration named on the command
    line is the operator's own; its disabled servers are left out.
    """
    found: dict[str, tuple[Source, str]] = {}
    warnings: list[tuple[str, str]] = []
    errors: list[SetupError] = []

    def add(sources: Iterable[Source], path: str) -> None:
        for source in sources:
            first = found.setdefault(source.name, (source, path))
            if first[0] is not source and (first[1] != path or isinstance(source, ServerConfig)):
                errors.append(SetupError(f"{path}: {source.name} is also at {first[1]}"))

    for path in paths:
        try:
            if is_server_config(path):
                servers = load_servers(path)
                errors += [SetupError(f"{path}: server {name}: {why}") for name, why in servers.refused.items()]
                warnings += [(path.name, warning) for warning in servers.warnings]
                add((server for server in servers.servers if server.enabled), str(path))
                continue
            for file in find_manifests(path):
                try:
                    manifest = load_manifest(file)
                except SetupError as error:
                    errors.append(error)
                    continue
                warnings += [(manifest.name, str(warning)) for warning in directory_warnings(manifest)]
                add([manifest], manifest.path)
        except SetupError as error:
            errors.append(error)
    if errors:
        details = [f"{error.path}: {fault}" for error in errors for fault in error.faults]
        details += [str(error) for error in errors if not error.faults]
        raise SetupError("; ".join(details)) if len(errors) > 1 else errors[0]
    return [source for source, _ in found.values()], warnings


def load_one(path: Path, server: str | None) -> tuple[Source, list[tuple[str, str]]]:
    """The one extension under ``path``, or ``server`` of a configuration; :class:`UsageError` for none or several."""
    sources, warnings = load_all([path])
    if server is not None:
        named = [source for source in sources if source.name == server]
        if not named:
            known = ", ".join(source.name for source in sources) or "none"
            raise UsageError(f"{path} has no enabled server {server!r}; it has: {known}")
        return named[0], warnings
    if len(sources) != 1:
        raise UsageError(f"{path} holds {len(sources)} extensions; name one")
    return sources[0], warnings


async def start(session: AsyncSession, source: Source) -> None:
    """Start an extension or a server, and wait until it serves."""
    if isinstance(source, ServerConfig):
        await session.start_server(source)
    else:
        await session.start(source)
