"""Examines programs: an extension by its manifest, an MCP server by its configuration."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence
from typing import TypeAlias

from broker.adapters.discovery import resolve_entrypoint
from broker.adapters.guard import OrphanGuard
from broker.conform.feature.bench import FeatureBench
from broker.conform.feature.conduct import conduct as conduct_feature
from broker.conform.findings import Findings
from broker.conform.mcp.bench import McpBench, directory_of, resolve_command
from broker.conform.mcp.conduct import conduct as conduct_mcp
from broker.conform.octet.bench import OctetBench
from broker.conform.octet.conduct import conduct as conduct_octet
from broker.conform.report import CutShort, Report
from broker.conform.rules import Family, check_ids, rules_of
from broker.conform.settings import ConformSettings
from broker.conform.workspace import make_workspace
from broker.errors import SetupError
from broker.limits import MAX_CONFORM_TARGETS
from broker.wire.octet.manifest_model import Manifest
from broker.wire.odek.config import ServerConfig

Target: TypeAlias = Manifest | ServerConfig
"""What can be examined."""


def examine(targets: Sequence[Target], settings: ConformSettings | None = None) -> list[Report]:
    """A report on each of ``targets``, in their order; runs an event loop of its own.

    Raises :class:`~broker.errors.SetupError` when a program cannot be started at all, and
    :class:`~broker.errors.UsageError` for an unknown rule in the settings. What a program does wrong never raises.
    """
    return asyncio.run(examine_all(targets, settings or ConformSettings()))


async def examine_all(targets: Sequence[Target], settings: ConformSettings) -> list[Report]:
    """As :func:`examine`, on the running loop."""
    check_ids(settings.rules)
    for target in targets:
        _check_startable(target, settings)
    with OrphanGuard() as guard:
        try:
            room = asyncio.Semaphore(MAX_CONFORM_TARGETS)

            async def examined(target: Target) -> Report:
                async with room:
                    return await _examine(target, settings, guard)

            async with asyncio.TaskGroup() as group:
                tasks = [group.create_task(examined(target)) for target in targets]
            return [task.result() for task in tasks]
        except* SetupError as group:
            error: BaseException = group
            while isinstance(error, BaseExceptionGroup):
                error = error.exceptions[0]
            raise error from None


def _check_startable(target: Target, settings: ConformSettings) -> None:
    if isinstance(target, ServerConfig):
        resolve_command(target, directory_of(settings))
        return
    with make_workspace(settings.workspace) as (workspace, _):
        resolve_entrypoint(target, workspace)


async def _examine(target: Target, settings: ConformSettings, guard: OrphanGuard) -> Report:
    started = time.monotonic()
    if isinstance(target, ServerConfig):
        family, kind, path = Family.MCP, "MCP, odek-extension/v1", target.command
    elif target.api_version == "0.3":
        family, kind, path = Family.OCTET, "octet 0.3", target.path
    else:
        family, kind, path = Family.FEATURE, f"octet {target.api_version}", target.path
    findings = Findings(rules_of(family))
    cut_short: CutShort | None = None
    try:
        async with asyncio.timeout(settings.total_ms / 1000):
            if isinstance(target, ServerConfig):
                await conduct_mcp(McpBench(config=target, settings=settings, findings=findings, guard=guard))
            elif family is Family.OCTET:
                await conduct_octet(OctetBench(manifest=target, settings=settings, findings=findings, guard=guard))
            else:
                await conduct_feature(FeatureBench(manifest=target, settings=settings, findings=findings, guard=guard))
    except TimeoutError:
        seconds = settings.total_ms / 1000
        findings.not_reached(f"not reached within {seconds:g} s")
        cut_short = CutShort(findings.count_not_reached(settings.rules), seconds)
    return Report(
        target.name,
        path,
        kind,
        findings.results(settings.rules),
        time.monotonic() - started,
        tuple(findings.remarks),
        frozenset(findings.usable),
        cut_short,
    )
