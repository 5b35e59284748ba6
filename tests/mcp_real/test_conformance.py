"""``broker conform`` on servers nobody here wrote: exactly these findings, each of them true."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from broker.conform import ConformSettings, Report, examine
from broker.wire.odek.config import ServerConfig

# Servers that know nothing of odek-extension/v1 send no envelopes and no references.
UNSEEN = {
    "odek.envelope.artifact-count",
    "odek.envelope.is-error-envelope",
    "odek.envelope.malformed-claim",
    "odek.envelope.single-item",
    "odek.artifact-ref.hash-match",
    "odek.artifact-ref.id-unique",
    "odek.artifact-ref.inside-root",
    "odek.artifact-ref.one-line",
    "odek.artifact-ref.path-clean",
    "odek.artifact-ref.regular-file",
    "odek.artifact-ref.required",
    "odek.artifact-ref.schema",
    "odek.artifact-ref.size-match",
    "odek.artifact-ref.uri-scheme",
}
SHORT = {"duration": 0.1, "steps": 1}


def check(report: Report) -> None:
    assert {finding.rule.id: finding.evidence for finding in report.failed} == {}
    assert {finding.rule.id for finding in report.skipped} == UNSEEN


@pytest.mark.timeout(120)
@pytest.mark.spec("odek.server.minimal")
def test_everything_keeps_every_rule(npm_server: Any, config: Callable[..., ServerConfig]) -> None:
    command, args = npm_server("server-everything")
    settings = ConformSettings(calls={"trigger-long-running-operation": (SHORT,)}, call_all=True)
    check(examine([config("everything", command, args)], settings)[0])


@pytest.mark.timeout(120)
@pytest.mark.spec("odek.server.minimal")
def test_filesystem_keeps_every_rule(npm_server: Any, config: Callable[..., ServerConfig], tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("a\n", encoding="utf-8")
    command, args = npm_server("server-filesystem", str(tmp_path))
    settings = ConformSettings(calls={"list_directory": ({"path": str(tmp_path)},)})
    check(examine([config("filesystem", command, args)], settings)[0])
    assert os.listdir(tmp_path) == ["a.txt"]


@pytest.mark.timeout(120)
@pytest.mark.spec("odek.server.minimal")
def test_a_server_of_the_python_sdk_keeps_every_rule(sdk: None, config: Callable[..., ServerConfig]) -> None:
    script = Path(__file__).parent / "sdk_server.py"
    settings = ConformSettings(calls={"slow": ({"seconds": 0.1},)}, call_all=True)
    check(examine([config("sdk", sys.executable, (str(script),))], settings)[0])
