"""Programs under test, and their reports: made once for all tests of a module, several at a time."""

from __future__ import annotations

import asyncio
import os
import re
import sys
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path

import pytest

from broker.adapters.discovery import load_manifest
from broker.conform import ConformSettings, Report, Target, examine_all
from broker.wire.odek.config import ServerConfig

HERE = Path(__file__).parent
AT_ONCE = 8

Reports = Callable[[Mapping[str, tuple[Target, ConformSettings]]], dict[str, Report]]


@pytest.fixture(scope="session")
def examine_many() -> Reports:
    """Reports on several programs by name, a few of them examined at a time."""

    def examine(targets: Mapping[str, tuple[Target, ConformSettings]]) -> dict[str, Report]:
        async def main() -> dict[str, Report]:
            room = asyncio.Semaphore(AT_ONCE)

            async def one(target: Target, settings: ConformSettings) -> Report:
                async with room:
                    (report,) = await examine_all([target], settings)
                    return report

            found = await asyncio.gather(*(one(*given) for given in targets.values()))
            return dict(zip(targets, found, strict=True))

        return asyncio.run(main())

    return examine


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
            f'args = ["-I", "-S", "{HERE / script}", "{fault}", "{api_version}"]',
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
        args = ("-I", "-S", str(HERE / "broken_mcp.py"), str(root), fault)
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
