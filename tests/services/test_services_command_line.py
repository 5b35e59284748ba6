"""The command line with extensions that use services: real subprocesses, their output and their exit status."""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from broker.cli.main import main
from broker.cli.providers import ask
from broker.wire.octet.stream_models import TextDelta

ROOT = Path(__file__).parents[2]
EXAMPLES = ROOT / "docs" / "examples"


def broker(workspace: Path, *arguments: object) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "broker.cli", *map(str, arguments)],
        capture_output=True,
        text=True,
        timeout=60,
        cwd=workspace,
        env={**os.environ, "PYTHONPATH": str(ROOT), "NO_COLOR": "1"},
        check=False,
    )


def said(text: str) -> str:
    return json.dumps({"messages": [{"role": "user", "content": text}]})


def test_check_finds_the_examples_sound(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["check", str(EXAMPLES / "parrot"), str(EXAMPLES / "import-quill")]) == 0
    out = capsys.readouterr().out
    assert "ok: parrot 1.0.0, extension API 0.3" in out and "ok: import-quill 1.0.0" in out


def test_run_shows_providers_and_asks_a_model(tmp_path: Path) -> None:
    ask = ("--ask", "parrot", "echo", said("hello there"))
    done = broker(tmp_path, "run", EXAMPLES / "parrot", "--json", "--for", "5", *ask)
    assert (done.returncode, done.stderr) == (0, "")
    records = [json.loads(line) for line in done.stdout.splitlines()]
    assert [record["kind"] for record in records] == ["started", "provided", "answer", "withdrawn", "exited"]
    assert records[1] == {
        "kind": "provided", "provider": "parrot", "extension": "parrot", "generation": 1, "status": "ready",
        "models": ["echo"],
    }  # fmt: skip
    assert records[2] == {
        "kind": "answer", "provider": "parrot", "model": "echo", "ok": True, "text": "hello there"
    }  # fmt: skip
    assert records[3] == {"kind": "withdrawn", "provider": "parrot", "extension": "parrot"}


def test_run_says_what_failed_of_an_ask(tmp_path: Path) -> None:
    asks = ("--ask", "parrot", "echo", said("a fail"), "--ask", "parrot", "gpt", "{}")
    done = broker(tmp_path, "run", EXAMPLES / "parrot", "--for", "5", *asks)
    assert done.returncode == 1
    answers = [line for line in done.stdout.splitlines() if line.startswith("answer")]
    assert answers[0].startswith("answer            parrot/echo: a ")
    assert "no model 'parrot'/'gpt' is provided" in answers[1]
    done = broker(tmp_path, "run", EXAMPLES / "parrot", "--ask", "parrot", "echo", "{")
    assert (done.returncode, "--ask" in done.stderr) == (2, True)


def test_an_answer_without_end_is_cut_off() -> None:
    class Stream:
        taken = 0
        closed = False

        async def __aenter__(self) -> Stream:
            return self

        async def __aexit__(self, *_: object) -> None:
            self.closed = True

        def __aiter__(self) -> Stream:
            return self

        async def __anext__(self) -> TextDelta:
            self.taken += 1
            return TextDelta(index=0, delta="x" * 60_000)

    class Both:
        def __init__(self) -> None:
            self.made = Stream()
            self.shown: list[dict[str, Any]] = []

        def stream(self, *_: object) -> Stream:
            return self.made

        def show(self, record: dict[str, Any]) -> None:
            self.shown.append(record)

    both: Any = Both()
    assert asyncio.run(ask(both, both, "acme", "small", {})) is False
    assert (both.made.taken, both.made.closed) == (18, True)
    (answer,) = both.shown
    assert (len(answer["text"]), answer["ok"]) == (1_048_576, False)
    assert answer["error"]["name"] == "resource_exhausted"


def test_import_prints_what_would_be_taken_over(tmp_path: Path) -> None:
    home = EXAMPLES / "import-quill" / "home"
    done = broker(tmp_path, "import", EXAMPLES / "import-quill", home)
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.splitlines() == [
        "model       quill/quill-large (.quill/config.toml)",
        "skill       review, 86 bytes (.quill/skills/review.md)",
        "skill       tests, 51 bytes (.quill/skills/tests.md)",
        "mcp server  files: files-server --root . (.quill/config.toml)",
        "warning     .quill/config.toml: the key of the model is not taken over",
        "warning     .quill/config.toml: server search is not a local one",
    ]
    done = broker(tmp_path, "import", EXAMPLES / "import-quill", home, "--json")
    found: dict[str, Any] = json.loads(done.stdout)
    assert list(found) == ["models", "skills", "mcp_servers", "diagnostics"]
    assert "not-a-" not in done.stdout


def test_import_says_when_there_is_nothing_and_when_it_cannot(tmp_path: Path) -> None:
    done = broker(tmp_path, "import", EXAMPLES / "import-quill", tmp_path)
    assert (done.returncode, done.stderr) == (1, "")
    assert done.stdout.splitlines() == [
        "warning     $: there is no .quill here",
        f"no setup was found in {tmp_path}",
    ]
    done = broker(tmp_path, "import", EXAMPLES / "import-quill", tmp_path, "--json")
    assert done.returncode == 1
    assert json.loads(done.stdout) == {
        "models": [],
        "skills": [],
        "mcp_servers": [],
        "diagnostics": [{"path": "$", "severity": "warning", "reason": "there is no .quill here"}],
    }
    done = broker(tmp_path, "import", EXAMPLES / "hello", tmp_path)
    assert (done.returncode, done.stdout) == (1, "")
    assert "hello has not selected migration/detect" in done.stderr
    done = broker(tmp_path, "import", EXAMPLES / "import-quill", tmp_path / "nothing")
    assert (done.returncode, "No such file or directory" in done.stderr) == (3, True)
