"""What ``broker conform`` tells besides the rules: events that were not sent, options that had no use."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

HERE = os.pathsep.join(filter(None, sys.path))
TALLY = f"""#!{sys.executable}
import sys
sys.path[:0] = {HERE.split(os.pathsep)!r}
from attrs import frozen
from broker.extension import Event, Extension

app = Extension("tally", "1.0.0")

@frozen
class Added:
    title: str

@app.on("bus.todo.added", Added)
def added(event: Event[Added]) -> None:
    pass

@app.tool
def count(step: int = 1) -> int:
    \"\"\"Counts.\"\"\"
    return step

app.run()
"""


@pytest.fixture
def tally(tmp_path: Path) -> Path:
    directory = tmp_path / "tally"
    directory.mkdir()
    (directory / "extension.toml").write_text(
        'name = "tally"\nversion = "1.0.0"\napi_version = "0.3"\n[entrypoint]\ncommand = "main.py"\n'
        '[contributes]\ntools = ["count"]\n'
    )
    (directory / "main.py").write_text(TALLY)
    (directory / "main.py").chmod(0o755)
    return directory


def conform(*words: object) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "broker.cli", "conform", *map(str, words)],
        env={**os.environ, "PYTHONPATH": HERE},
        capture_output=True,
        text=True,
        timeout=100,
    )


def notes(done: subprocess.CompletedProcess[str]) -> list[str]:
    return [line for line in done.stdout.splitlines() if line.startswith("  note  ")]


def test_a_subscriber_that_got_no_events_is_told_of(tally: Path) -> None:
    done = conform(tally)
    assert done.returncode == 0, done.stdout
    note = "bus.todo.added got no events, as nobody knows their payload: give --event bus.todo.added JSON"
    assert notes(done) == [f"  note  {note}"]


def test_events_that_do_not_fit_show_what_the_program_wrote(tally: Path) -> None:
    done = conform(tally, "--event", "bus.todo.added", '{"titel": "milk"}')
    assert done.returncode == 0, done.stdout
    (note,) = notes(done)
    assert note.startswith("  note  while 200 events on bus.todo.added came it wrote to stderr, lastly: ")
    assert note.endswith("does not fit Added: payload.title: missing")
    assert notes(conform(tally, "--event", "bus.todo.added", '{"title": "milk"}')) == []


@pytest.mark.parametrize(
    ("words", "problem"),
    [
        (["--call", "cuont", "{}"], "--call cuont: nothing judged has such a tool; did you mean count?"),
        (
            ["--event", "bus.other.x", "{}"],
            "--event bus.other.x: nothing judged has such a topic subscribed to; known are bus.todo.added",
        ),
    ],
)
def test_an_option_without_a_use_is_wrong_usage(tally: Path, words: list[str], problem: str) -> None:
    done = conform(tally, *words)
    assert (done.returncode, done.stderr) == (2, f"broker: {problem}\n")
