"""Programs under test, and their reports: made once for all tests of a module, several at a time."""

from __future__ import annotations

import asyncio
import os
import re
import sys
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any

import pytest
from attrs import evolve

from broker.adapters.discovery import load_manifest
from broker.conform import ConformSettings, Report, Target, examine_all
from broker.wire.odek.config import ServerConfig

HERE = Path(__file__).parent
AT_ONCE = 8
FAST = ConformSettings(answer_ms=2_000, quiet_ms=100)
# A death has to fall into a pause, whatever else the machine has to do.
PATIENT = evolve(FAST, quiet_ms=3_000)

Faults = Mapping[Any, tuple[str, ...]]
"""By fault: the rules it breaks, words of the evidence, and the scenarios it shows in (none: it shows at once)."""


class Broken:
    """Programs with one fault each and their reports, made a few at a time; those of ``right`` are examined whole."""

    def __init__(self, faults: Faults, make: Callable[[Any], Target], right: Iterable[Any]) -> None:
        self._faults = faults
        wanted = {fault: scenarios or ("none",) for fault, (_, _, *scenarios) in faults.items()}
        wanted |= dict.fromkeys(right, ())
        self.reports: dict[Any, Report] = asyncio.run(self._examine(make, wanted))

    async def _examine(self, make: Callable[[Any], Target], wanted: Mapping[Any, Iterable[str]]) -> dict[Any, Report]:
        room = asyncio.Semaphore(AT_ONCE)

        async def examined(name: Any) -> Report:
            async with room:
                settings = PATIENT if "dies-idle" in name else FAST
                (report,) = await examine_all([make(name)], evolve(settings, scenarios=tuple(wanted[name])))
                return report

        reports = await asyncio.gather(*map(examined, wanted))
        return dict(zip(wanted, reports, strict=True))

    def assert_breaks_its_rules_alone(self, fault: Any) -> None:
        rules, words, *_ = self._faults[fault]
        failed = self.reports[fault].failed
        assert {finding.rule.id for finding in failed} == {*rules.split()}, [finding.evidence for finding in failed]
        assert words in "\n".join(failed[0].evidence)

    def assert_breaks_none(self, name: Any, faults: Iterable[Any]) -> None:
        """Nothing is broken, and kept is every rule that ``faults`` break."""
        report = self.reports[name]
        assert report.failed == (), [finding.evidence for finding in report.failed]
        rules = {rule for fault in faults for rule in self._faults[fault][0].split()}
        assert {finding.rule.id for finding in report.passed} >= rules


@pytest.fixture(scope="session")
def examine_broken() -> type[Broken]:
    """Examines programs with one fault each."""
    return Broken


@pytest.fixture(scope="session")
def octet_subject(tmp_path_factory: pytest.TempPathFactory) -> Callable[..., Target]:
    """The manifest of one of the programs beside this file, with a fault."""

    def make(script: str, fault: str, api_version: str, contributes: Iterable[str]) -> Target:
        directory = tmp_path_factory.mktemp(fault or "right") / "subject"
        directory.mkdir()
        lines = [
            'name = "subject"',
            'version = "1.0.0"',
            f'api_version = "{api_version}"',
            "[entrypoint]",
            f'command = "{sys.executable}"',
            f'args = ["-E", "-s", "-S", "{HERE / script}", "{fault}", "{api_version}"]',
            "[contributes]",
            *contributes,
        ]
        (directory / "extension.toml").write_text("\n".join(lines) + "\n", encoding="utf-8")
        return load_manifest(directory / "extension.toml")

    return make


@pytest.fixture(scope="session")
def mcp_subject(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], ServerConfig]:
    """The configuration of the server beside this file, with a fault."""

    def make(fault: str) -> ServerConfig:
        root = tmp_path_factory.mktemp(fault or "right")
        args = ("-E", "-s", "-S", str(HERE / "broken_mcp.py"), fault, str(root))
        return ServerConfig(
            name="subject",
            source="operator",
            command=sys.executable,
            args=args,
            timeout_seconds=2,
            max_response_bytes=524_288,
            max_result_chars=10_000,
            artifact_roots=(str(root),),
        )

    return make


def faults_in(script: str) -> set[str]:
    """The names of all faults a program beside this file has."""
    source = (HERE / script).read_text(encoding="utf-8")
    groups = re.findall(r'is_fault\(((?:\s*"[a-z0-9-]+",?)+\s*)\)', source)
    return {name for group in groups for name in re.findall(r'"([a-z0-9-]+)"', group)}


@pytest.fixture(scope="session")
def faults_of() -> Callable[[str], set[str]]:
    """The names of all faults a program beside this file has."""
    return faults_in


@pytest.fixture
def broker_on_path(monkeypatch: pytest.MonkeyPatch) -> Callable[[], None]:
    """Lets child processes import what this process imports, installed or not."""

    def use() -> None:
        monkeypatch.setenv("PYTHONPATH", os.pathsep.join(filter(None, sys.path)))

    return use
