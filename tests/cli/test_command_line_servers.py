"""The command line with configurations of MCP servers among its paths."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

Broker = Callable[..., subprocess.CompletedProcess[str]]


@pytest.fixture
def broker(tmp_path: Path) -> Broker:
    """Runs ``broker``."""
    workspace = tmp_path / "workspace"
    workspace.mkdir()
    env = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path)), "COLUMNS": "200"}

    def run(*arguments: object) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [sys.executable, "-m", "broker.cli", *map(str, arguments)],
            capture_output=True,
            text=True,
            encoding="utf-8",
            timeout=60,
            cwd=workspace,
            env=env,
            check=False,
        )

    return run


@pytest.fixture
def config(tmp_path: Path) -> Callable[..., Path]:
    """Writes a configuration with the fixture server as ``fixture``; keyword arguments add or change servers."""

    def make(name: str = "servers.json", **servers: Any) -> Path:
        fixture = {
            "command": sys.executable,
            "args": ["-m", "broker.testing.odek_server", "--root", str(tmp_path)],
            "env": {"PYTHONPATH": os.pathsep.join(filter(None, sys.path))},
            "artifact_roots": [str(tmp_path)],
        }
        path = tmp_path / name
        path.write_text(json.dumps({"mcp_servers": {"fixture": fixture, **servers}}))
        return path

    return make


def lines(text: str) -> list[dict[str, Any]]:
    return [json.loads(line) for line in text.splitlines()]


def test_call_prints_the_answer(broker: Broker, config: Any) -> None:
    done = broker("call", config(), "fixture", "echo", '{"text":"zwölf\\nnext"}')
    assert (done.returncode, done.stdout, done.stderr) == (0, "zwölf\nnext\n", "")


def test_call_shows_artifacts_by_their_metadata(broker: Broker, config: Any, tmp_path: Path) -> None:
    done = broker("call", "--json", config(), "fixture", "artifact_result", "{}")
    assert done.returncode == 0
    assert 'artifact \\"report-1\\" (text/plain, 31 bytes' in done.stdout
    assert str(tmp_path) not in done.stdout


@pytest.mark.parametrize(
    ("tool", "arguments", "text"),
    [
        ("error_result", '{"text":"no \\u001b[31mluck"}', "no \\x1b[31mluck"),
        ("bad_artifact", "{}", "its digest is"),
        ("missing", "{}", "has no tool"),
    ],
)
def test_a_failure_is_1_and_its_text_is_safe(broker: Broker, config: Any, tool: str, arguments: str, text: str) -> None:
    done = broker("call", config(), "fixture", tool, arguments)
    assert (done.returncode, done.stdout) == (1, "")
    assert text in done.stderr
    assert "\x1b" not in done.stderr
    assert "Traceback" not in done.stderr


def test_wrong_words_are_2(broker: Broker, config: Any) -> None:
    for words in (("echo", "{}"), ("fixture", "echo", "{"), ("nobody", "echo", "{}"), ("fixture",)):
        done = broker("call", config(), *words)
        assert done.returncode == 2, words
        assert done.stderr.startswith("broker: ") or "usage:" in done.stderr
        assert "Traceback" not in done.stderr


def test_a_program_that_is_not_there_is_3(broker: Broker, config: Any) -> None:
    done = broker("call", config(gone={"command": "no-such-program-anywhere"}), "gone", "echo", "{}")
    assert done.returncode == 3
    assert "no-such-program-anywhere" in done.stderr


def test_check_lists_every_fault_with_its_path(broker: Broker, config: Any) -> None:
    done = broker(
        "check", config(other={"command": "x", "enabled": False}, slow={"command": "x", "timeout_seconds": 7200})
    )
    assert (done.returncode, done.stderr) == (0, "")
    warning, *sound = done.stdout.splitlines()
    assert warning.startswith("warning: ") and "slow" in warning and "3600" in warning
    assert [line.rpartition("ok: ")[2] for line in sound] == [
        f"server fixture: {sys.executable}",
        "server other: x, not enabled",
        "server slow: x",
    ]
    done = broker("check", config(bad={"command": 7, "args": "x"}, a__b={"command": "x"}))
    assert (done.returncode, done.stderr) == (3, "")
    assert "ok: " not in done.stdout
    for path in ("mcp_servers.bad.command", "mcp_servers.bad.args", "a__b"):
        assert path in done.stdout
    done = broker("check", config(web={"url": "https://example.test/mcp"}))
    assert done.returncode == 3
    assert "server web: " in done.stdout


def test_run_starts_servers_and_stops_them(broker: Broker, config: Any) -> None:
    done = broker("run", "--json", "--for", "0.5", config(off={"command": "no-such-program", "enabled": False}))
    assert done.returncode == 0, done.stderr
    records = lines(done.stdout)
    assert {record.get("extension") for record in records} <= {"fixture", None}
    assert [record["kind"] for record in records if record["kind"] in ("started", "exited")] == ["started", "exited"]


def test_one_name_at_two_places_is_3(broker: Broker, config: Any) -> None:
    done = broker("run", "--json", "--for", "1", config(), config("again.json"))
    assert done.returncode == 3
    assert "fixture is also at" in done.stderr
