"""``broker record`` and ``broker replay``, as a person uses them."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

EXAMPLES = Path(__file__).parents[2] / "docs/examples"
BOUND_SECONDS = 60


def broker(*words: str | Path, **environ: str) -> subprocess.CompletedProcess[str]:
    """The command, run to its end."""
    return subprocess.run(
        [sys.executable, "-m", "broker.cli", *map(str, words)],
        capture_output=True,
        text=True,
        timeout=BOUND_SECONDS,
        env={**os.environ, **environ},
    )


def test_what_was_recorded_is_replayed_without_the_extension(tmp_path: Path) -> None:
    file = tmp_path / "r.jsonl"
    call = ("--call", "hello", "greet", '{"who": "my-long-secret"}')
    recorded = broker("record", file, EXAMPLES / "hello", "--for", "1", *call, MY_TOKEN="my-long-secret")
    assert (recorded.returncode, recorded.stderr) == (0, "")
    assert "call              hello greet answered: hello, my-long-secret" in recorded.stdout
    assert "my-long-secret" not in file.read_text()

    replayed = broker("replay", file)
    assert (replayed.returncode, replayed.stderr) == (0, "")
    *shown, last = replayed.stdout.splitlines()
    assert 'event             bus.hello.greeted #1 {"who": "[REDACTED]"}' in shown
    assert last.startswith("replayed ") and last.endswith(" differ") and " 0 differ" in last

    as_json = broker("replay", file, "--json", "--speed", "1000")
    end = json.loads(as_json.stdout.splitlines()[-1])
    assert (as_json.returncode, end["kind"], end["differences"]) == (0, "replayed", 0)
    assert end["entries"] == len(file.read_text().splitlines()) - 1


def test_a_difference_is_told_and_is_a_failure(tmp_path: Path) -> None:
    file = tmp_path / "r.jsonl"
    broker("record", file, EXAMPLES / "hello", "--for", "1", "--call", "hello", "greet", "{}")
    file.write_text(file.read_text().replace('"sequence":1', '"sequence":9'))
    replayed = broker("replay", file, "--json")
    (difference,) = [one for one in map(json.loads, replayed.stdout.splitlines()) if one["kind"] == "difference"]
    del difference["at_ms"]
    assert difference == {
        "kind": "difference",
        "extension": "hello",
        "generation": 1,
        "path": "$.result.sequence",
        "reason": "recorded '9', observed '1'",
    }
    assert replayed.returncode == 1


def test_a_recording_that_exists_is_not_overwritten(tmp_path: Path) -> None:
    file = tmp_path / "r.jsonl"
    file.write_text("mine")
    refused = broker("record", file, EXAMPLES / "hello", "--for", "1")
    assert (refused.returncode, refused.stderr) == (3, f"broker: {file}: File exists\n")
    assert file.read_text() == "mine"


def test_what_is_no_recording_is_refused(tmp_path: Path) -> None:
    file = tmp_path / "r.jsonl"
    file.write_text("mine\n")
    refused = broker("replay", file)
    assert (refused.returncode, refused.stdout) == (3, "")
    assert refused.stderr.startswith(f"broker: {file}: line 1: not JSON: ")
    assert broker("replay", tmp_path / "none").stderr == f"broker: {tmp_path / 'none'}: No such file or directory\n"
    assert broker("replay", file, "--speed", "0").returncode == 2
