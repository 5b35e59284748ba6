"""``broker import``: have a migration adapter read a setup and print what it would take over. Nothing is written."""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import sys
from pathlib import Path

from broker.adapters.aio import AsyncHost
from broker.adapters.source_roots import SourceRoots
from broker.cli.exit_codes import FAILURE, OK
from broker.cli.interrupts import interrupts
from broker.cli.sources import load_one
from broker.errors import UsageError
from broker.host import HostServices, HostSettings
from broker.wire.octet.manifest import Manifest
from broker.wire.octet.migration_models import MigrationImportResult
from broker.wire.octet.schema import encode
from broker.wire.quoting import escape


async def migrate(given: argparse.Namespace) -> int:
    """Carry out ``broker import``; gives the exit status: 1 when there is nothing to take over."""
    source, _ = load_one(given.path, None)
    if not isinstance(source, Manifest):
        raise UsageError(f"{given.path} is no extension")
    root = os.path.realpath(given.source_root)  # noqa: ASYNC240 - nothing else runs yet
    working = asyncio.ensure_future(_migrate(source, root, given.workspace, as_json=given.json))
    try:
        with interrupts(working.cancel):
            return await working
    except asyncio.CancelledError:
        print("broker: interrupted", file=sys.stderr)
        return FAILURE


async def _migrate(manifest: Manifest, root: str, workspace: Path, *, as_json: bool) -> int:
    services = HostServices(migrations=SourceRoots(root))
    async with AsyncHost(settings=HostSettings(restart=False), services=services) as host:
        session = await host.open_session(workspace)
        await session.start(manifest)
        setup = await session.detect_setup(manifest.name, root)
        found = setup.result.detected
        if found:
            result = await session.import_setup(setup)
        else:
            result = MigrationImportResult(models=(), skills=(), mcp_servers=(), diagnostics=setup.diagnostics)
    if as_json:
        print(json.dumps(encode(result), separators=(",", ":")))
    else:
        _show(result)
        if not found:
            print(f"no setup was found in {escape(root)}")
    return OK if found else FAILURE


def _show(result: MigrationImportResult) -> None:
    for model in result.models:
        print(escape(f"model       {model.provider}/{model.model} ({model.path})"))
    for skill in result.skills:
        print(escape(f"skill       {skill.name}, {len(skill.content.encode())} bytes ({skill.path})"))
    for server in result.mcp_servers:
        print(escape(f"mcp server  {server.name}: {' '.join((server.command, *server.args))} ({server.path})"))
    for diagnostic in result.diagnostics:
        print(escape(f"{diagnostic.severity:<11} {diagnostic.path}: {diagnostic.reason}"))
