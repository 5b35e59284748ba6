"""Servers made with this project's kit keep every rule."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Any

import pytest

from broker.conform import ConformSettings, examine
from broker.wire.odek.config import ServerConfig

KIT = Path(__file__).parents[1] / "mcp_kit" / "kit_server.py"
FAST = ConformSettings(answer_ms=3_000, quiet_ms=100)


def server(root: Path, *args: str) -> ServerConfig:
    env = {"PYTHONPATH": os.pathsep.join(filter(None, sys.path)), "KIT_ROOT": str(root)}
    return ServerConfig(
        name="kit", source="operator", command=sys.executable, args=args, env=env, artifact_roots=(str(root),)
    )


@pytest.mark.timeout(120)
@pytest.mark.spec("odek.server.minimal", "odek.server.fixtures")
def test_the_fixture_server_and_its_one_bad_tool(tmp_path: Path) -> None:
    calls = {name: ({},) for name in ("echo", "large_result", "artifact_result", "error_result")}
    config = server(tmp_path, "-m", "broker.testing.odek_server", "--root", str(tmp_path))
    right = ConformSettings(answer_ms=3_000, quiet_ms=100, calls=calls)
    wrong = ConformSettings(answer_ms=3_000, quiet_ms=100, calls={"bad_artifact": ({"fault": "size"},)})
    (report,) = examine([config], right)
    assert report.failed == ()
    assert not [finding.rule.id for finding in report.skipped]
    (report,) = examine([config], wrong)
    assert [finding.rule.id for finding in report.failed] == ["odek.artifact-ref.size-match"]


@pytest.mark.timeout(120)
def test_a_server_of_the_kit(tmp_path: Path) -> None:
    calls: dict[str, tuple[Any, ...]] = {name: ({},) for name in ("texts", "fail", "crash", "attach", "noisy")}
    calls |= {"add": ({"a": 1},), "surrogate": tuple({"how": how} for how in ("text", "keys", "error"))}
    (report,) = examine([server(tmp_path, str(KIT))], ConformSettings(answer_ms=3_000, quiet_ms=100, calls=calls))
    assert {finding.rule.id: finding.evidence for finding in report.failed} == {}
