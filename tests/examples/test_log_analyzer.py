"""The MCP server of the examples, called as its configuration says, with this Python and directories of the test's."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parents[2]
EXAMPLE = ROOT / "docs/examples/log-analyzer"


@pytest.fixture
def config(tmp_path: Path) -> Path:
    """The example's own configuration, its paths replaced."""
    written: dict[str, Any] = json.loads((EXAMPLE / "servers.json").read_text())
    entry = written["mcp_servers"]["log-analyzer"]
    assert (ROOT / entry["args"][0]).samefile(EXAMPLE / "server.py")
    entry["command"] = sys.executable
    entry["env"] = {"ARTIFACTS": str(tmp_path), "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
    entry["artifact_roots"] = [str(tmp_path)]
    path = tmp_path / "servers.json"
    path.write_text(json.dumps(written))
    return path


def call(config: Path, arguments: dict[str, Any]) -> subprocess.CompletedProcess[str]:
    words = ["call", config, "log-analyzer", "summarize", json.dumps(arguments), "--workspace", ROOT, "--json"]
    return subprocess.run(
        [sys.executable, "-m", "broker.cli", *map(str, words)], capture_output=True, text=True, timeout=60
    )


def test_the_summary_names_the_failures_and_the_artifact_holds_all(config: Path, tmp_path: Path) -> None:
    done = call(config, {"file": str(EXAMPLE / "build.log"), "limit": 1})
    assert done.returncode == 0, done.stderr
    answer = json.loads(done.stdout)
    text = answer["content"][0]["text"]
    assert text.startswith("2 of 5 lines failed.\nFAILED assert 2 == 3")
    assert answer["artifacts"] == ["failures"]
    (report,) = tmp_path.glob("artifact-*")
    assert report.read_text() == "FAILED assert 2 == 3\nERROR fixture 'screen' not found\n"


def test_a_file_that_is_not_there_fails_the_call_and_not_the_server(config: Path) -> None:
    done = call(config, {"file": "no/such.log"})
    assert done.returncode == 1
    assert "no/such.log cannot be read" in done.stdout
