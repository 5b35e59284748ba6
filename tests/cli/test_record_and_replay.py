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
    assert end["complete"] is True
    assert end["entries"] == len(file.read_text().splitlines()) - 2  # without the header and the end


def test_a_difference_is_told_and_is_a_failure(tmp_path: Path) -> None:
    file = tmp_path / "r.jsonl"
    broker("record", file, EXAMPLES / "hello", "--for", "1", "--call", "hello", "greet", "{}")
    file.write_text(file.read_text().replace('"sequence":1', '"sequence":9'))
    replayed = broker("replay", file, "--json")
    (difference,) = [one for one in map(json.loads, replayed.stdout.splitlines()) if one["kind"] == "difference"]
    del difference["at_ms"]
    lines = file.read_text().splitlines()
    assert '"sequence":9' in lines[difference.pop("line") - 1]
    assert difference == {
        "kind": "difference",
        "extension": "hello",
        "generation": 1,
        "path": "$.result.sequence",
        "reason": "recorded '9', observed '1'",
        "what": "answer to 2",
    }
    assert replayed.returncode == 1


def test_a_recording_that_was_cut_is_played_as_far_as_it_goes(tmp_path: Path) -> None:
    file = tmp_path / "r.jsonl"
    broker("record", file, EXAMPLES / "hello", "--for", "1", "--call", "hello", "greet", "{}")
    file.write_bytes(file.read_bytes()[:-60])
    replayed = broker("replay", file)
    assert (replayed.returncode, replayed.stderr) == (0, "")
    *shown, last = replayed.stdout.splitlines()
    assert last.endswith(" 0 differ; the recording was cut, and ends here")
    assert not any("no answer" in line or "acknowledged" in line for line in shown)


def test_a_run_that_starts_nothing_leaves_no_recording(tmp_path: Path) -> None:
    file = tmp_path / "r.jsonl"
    servers = tmp_path / "servers.json"
    servers.write_text('{"mcp_servers": {"none": {"command": "/no/such/program"}}}')
    for _ in range(2):
        assert broker("record", file, servers, "--for", "1").returncode == 3
        assert not file.exists()


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


def test_a_run_that_never_begins_leaves_no_recording(tmp_path: Path) -> None:
    file = tmp_path / "r.jsonl"
    failed = broker("record", file, EXAMPLES / "hello", "--events-jsonl", tmp_path / "nowhere" / "events")
    assert failed.returncode == 3, failed.stderr
    assert not file.exists()
