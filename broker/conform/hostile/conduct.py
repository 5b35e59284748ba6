"""Runs a host's command with one hostile program after another, several at a time."""

from __future__ import annotations

import asyncio
import time

from broker.adapters.guard import OrphanGuard
from broker.conform.findings import Findings
from broker.conform.hostile import judge, judge_feature, judge_server
from broker.conform.hostile.run_host import run_host, split_command
from broker.conform.report import Report
from broker.conform.rules import Family, check_ids, rules_of
from broker.conform.settings import ConformSettings
from broker.limits import CONFORM_HOST_MS, MAX_CONFORM_HOSTS


def examine_host(command: str, settings: ConformSettings | None = None, *, timeout: float | None = None) -> Report:
    """A report on the host that ``command`` runs; runs an event loop of its own.

    In ``command``, which no shell sees, ``{path}`` stands for the directory of an extension and ``{config}`` for a file
    with ``mcp_servers``; the scenarios of either are only run where it stands. A host that does not end within
    ``timeout`` seconds by itself is interrupted, and judged all the same.

    Raises :class:`~broker.errors.SetupError` when there is no such program, :class:`~broker.errors.UsageError` for a
    command that cannot be taken apart.
    """
    settings = settings or ConformSettings()
    check_ids(settings.rules)
    seconds = CONFORM_HOST_MS / 1000 if timeout is None else timeout
    return asyncio.run(_examine(command, split_command(command), settings, seconds))


async def _examine(command: str, words: list[str], settings: ConformSettings, seconds: float) -> Report:
    started = time.monotonic()
    findings = Findings(rules_of(Family.HOST))
    extensions = [*judge.ENDED, *judge.JUDGED, *judge_feature.ENDED, *judge_feature.JUDGED]
    octet = extensions if any("{path}" in word for word in words) else []
    mcp = [*judge_server.ENDED, *judge_server.JUDGED] if any("{config}" in word for word in words) else []
    for scenarios, place, prefix in ((octet, "{path}", "octet."), (mcp, "{config}", "odek.")):
        if not scenarios:
            rules = [rule.id for rule in rules_of(Family.HOST) if rule.id.startswith(prefix)]
            findings.skipped(f"the command has no {place}", *rules)
    room = asyncio.Semaphore(MAX_CONFORM_HOSTS)
    with OrphanGuard() as guard:

        async def run(scenario: str) -> None:
            async with room:
                found = await run_host(words, scenario, guard=guard, seconds=seconds)
            if scenario.startswith("mcp-"):
                judge_server.judge_server(found, findings)
            elif scenario in judge_feature.ENDED or scenario in judge_feature.JUDGED:
                judge_feature.judge_feature(found, findings)
            else:
                judge.judge(found, findings)

        async with asyncio.TaskGroup() as group:
            for scenario in filter(settings.wants, (*octet, *mcp)):
                group.create_task(run(scenario))
    return Report(words[0], command, "host", findings.results(settings.rules), time.monotonic() - started)
