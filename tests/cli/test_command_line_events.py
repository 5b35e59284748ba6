"""The event stream and the budget on the command line, and reading a stream back with ``broker tail``."""

from __future__ import annotations

import json
import os
import signal
import stat
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from broker.adapters.event_log import EventLog
from broker.wire.odek.events.event import Event

Broker = Callable[..., subprocess.CompletedProcess[str]]
ENV = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path)), "MY_API_KEY": "s3cr3t-of-the-host"}
COMMAND = (sys.executable, "-m", "broker.cli")


@pytest.fixture
def broker(tmp_path: Path) -> Broker:
    """Runs ``broker``."""

    def run(*arguments: object) -> subprocess.CompletedProcess[str]:
        command = [*COMMAND, *map(str, arguments)]
        return subprocess.run(
            command, capture_output=True, encoding="utf-8", timeout=60, cwd=tmp_path, env=ENV, check=False
        )

    return run


@pytest.fixture
def config(tmp_path: Path) -> Path:
    """A configuration with the fixture server as ``fixture``."""
    fixture = {
        "command": sys.executable,
        "args": ["-m", "broker.testing.odek_server", "--root", str(tmp_path)],
        "env": {"PYTHONPATH": ENV["PYTHONPATH"]},
        "artifact_roots": [str(tmp_path)],
    }
    path = tmp_path / "servers.json"
    path.write_text(json.dumps({"mcp_servers": {"fixture": fixture}}))
    return path


def events(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text().splitlines()]


@pytest.mark.spec("odek.event.args-hidden", "odek.event.call-id-pairs", "odek.event.no-credentials")
def test_a_run_tells_of_its_calls_and_its_servers(broker: Broker, config: Path, tmp_path: Path) -> None:
    log = tmp_path / "run.jsonl"
    done = broker(
        "run", config, "--for", 10, "--events-jsonl", log,
        "--call", "fixture", "echo", '{"text":"s3cr3t-of-the-host"}',
        "--call", "fixture", "artifact_result", "{}",
        "--call", "fixture", "error_result", "{}",
    )  # fmt: skip
    assert done.returncode == 1, done.stderr
    found = events(log)
    assert [event["type"] for event in found] == [
        "run_started",
        "extension_started",
        *["tool_call_started", "tool_call_completed", "iteration_completed"] * 2,
        *["tool_call_started", "tool_call_failed", "iteration_completed"],
        "extension_exited",
        "run_failed",
    ]
    assert len({event["run_id"] for event in found}) == 1
    assert ["session_id" in event for event in found] == [False, *[True] * (len(found) - 1)]
    calls = [event for event in found if event.get("tool")]
    assert [event["data"]["call_id"] for event in calls] == [f"it{n}-call0" for n in (1, 1, 2, 2, 3, 3)]
    assert calls[1]["data"]["result_bytes"] == len("s3cr3t-of-the-host")
    assert calls[3]["data"]["artifact_count"] == 1
    assert calls[5]["data"]["error_class"] == "tool_error"
    assert "s3cr3t" not in log.read_text()
    assert stat.S_IMODE(log.stat().st_mode) == 0o600


@pytest.mark.spec("odek.event.args-opt-in")
def test_arguments_are_told_when_asked_for_and_redacted(broker: Broker, config: Path, tmp_path: Path) -> None:
    log = tmp_path / "run.jsonl"
    done = broker(
        "run", config, "--for", 5, "--events-jsonl", log, "--events-include-args",
        "--call", "fixture", "echo", '{"text":"say s3cr3t-of-the-host"}',
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    (started,) = [event for event in events(log) if event["type"] == "tool_call_started"]
    assert started["data"]["args"] == '{"text":"say [REDACTED]"}'
    assert broker("run", config, "--events-include-args").returncode == 2


@pytest.mark.spec("odek.budget.exit-codes", "odek.event.budget-before-failed", "odek.budget.tool-calls-exact")
def test_one_tool_call_more_than_allowed_ends_the_run_with_4(broker: Broker, config: Path, tmp_path: Path) -> None:
    log = tmp_path / "run.jsonl"
    echo = ("--call", "fixture", "echo", '{"text":"x"}')
    done = broker("run", config, "--for", 10, "--max-tool-calls", 1, "--events-jsonl", log, *echo, *echo)
    assert done.returncode == 4
    assert "2 tool calls, the maximum is 1" in done.stderr
    found = events(log)
    assert [event["type"] for event in found].count("tool_call_started") == 1
    assert [event["type"] for event in found][-2:] == ["budget_exceeded", "run_failed"]
    assert found[-2]["data"] == {"limit_name": "tool_calls", "observed": 2, "limit": 1}


@pytest.mark.spec("odek.budget.exit-codes")
def test_a_run_whose_time_is_over_ends_with_4(broker: Broker, config: Path, tmp_path: Path) -> None:
    log = tmp_path / "run.jsonl"
    done = broker("run", config, "--max-runtime", 1, "--events-jsonl", log)
    assert (done.returncode, "1 seconds, the maximum is 1" in done.stderr) == (4, True)
    assert [event["type"] for event in events(log)][-2:] == ["budget_exceeded", "run_failed"]


@pytest.mark.parametrize("option", ["--max-runtime", "--max-tool-calls"])
@pytest.mark.parametrize("value", [["0"], ["-5"], ["abc"], [], ["1.5"], ["1_0"], ["9" * 20]])
def test_a_limit_is_a_whole_number_above_0(broker: Broker, config: Path, option: str, value: list[str]) -> None:
    done = broker("run", config, "--for", 1, option, *value)
    assert (done.returncode, "Traceback" in done.stderr) == (2, False)


@pytest.mark.spec("odek.sink.parent", "odek.sink.symlink", "odek.sink.special-file")
def test_a_file_that_is_none_is_3_and_nothing_starts(broker: Broker, config: Path, tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to(tmp_path / "target")
    for path in (tmp_path / "missing" / "x", tmp_path / "link", "/dev/null"):
        done = broker("run", config, "--for", 1, "--events-jsonl", path)
        assert (done.returncode, done.stdout) == (3, "")
        assert done.stderr.startswith("broker: event log")


def test_a_file_that_may_grow_no_more_is_tried_again_reported_and_a_failure(config: Path, tmp_path: Path) -> None:
    log = tmp_path / "run.jsonl"
    limited = (
        "import resource, runpy, sys; resource.setrlimit(resource.RLIMIT_FSIZE, (500, 500)); "
        "runpy.run_module('broker.cli', run_name='__main__')"
    )
    command = [sys.executable, "-c", limited, "run", str(config), "--for", "1", "--events-jsonl", str(log)]
    done = subprocess.run(
        command, capture_output=True, encoding="utf-8", timeout=60, cwd=tmp_path, env=ENV, check=False
    )
    assert done.returncode == 1, done.stderr
    assert "File too large; trying again" in done.stderr
    assert "events were not written" in done.stderr
    # What is there is whole, and in order.
    assert [event["type"] for event in events(log)] == ["run_started", "extension_started"]


# -- tail --------------------------------------------------------------------------------------------------------------


def event(number: int, kind: str = "session_saved", **members: Any) -> Event:
    data = members.pop("data", {"message_count": number})
    return Event(type=kind, timestamp="2026-08-07T12:00:00.000Z", run_id="ab" * 16, data=data, **members)


@pytest.fixture
def log(tmp_path: Path) -> Iterator[EventLog]:
    with EventLog(tmp_path / "run.jsonl") as log:
        yield log


def test_tail_shows_a_line_for_each_event_and_nothing_else(broker: Broker, log: EventLog) -> None:
    log.write(event(1))
    log.write(event(2, "tool_call_completed", tool="srv__echo", iteration=3, data={"call_id": "a b", "n": 1}))
    log.write_line(b"junk\n")
    log.write(event(3, "brand_new"))
    log.write(event(4, "run_started", data={"model": "\x1b[31m evil\n"}))
    with open(log.path, "ab") as file:
        file.write(event(5).line()[:-9])
    done = broker("tail", log.path)
    assert (done.returncode, done.stderr) == (0, "")
    assert [line.split(maxsplit=2)[2] for line in done.stdout.splitlines()] == [
        "session_saved             message_count=1",
        'it3  tool_call_completed       srv__echo call_id="a b" n=1',
        'run_started               model="\\u001b[31m evil\\n"',
    ]
    assert done.stdout.startswith("2026-08-07T12:00:00.000Z abababab ")


def test_tail_chooses_by_type_and_gives_json(broker: Broker, log: EventLog) -> None:
    log.write(event(1))
    log.write(event(2, "run_completed"))
    done = broker("tail", "--json", "--type", "run_completed", log.path)
    assert [json.loads(line) for line in done.stdout.splitlines()] == [event(2, "run_completed").to_json()]
    assert broker("tail", "--type", "nonsense", log.path).returncode == 2
    assert broker("tail", "/nowhere/x").returncode == 3


@pytest.mark.parametrize("how", ["append", "truncate", "replace"])
def test_tail_follows_until_it_is_interrupted(log: EventLog, how: str, tmp_path: Path) -> None:
    log.write(event(1, data={"message_count": 1, "filling": "x" * 500}))
    command = [*COMMAND, "tail", "--follow", "--json", log.path]
    with subprocess.Popen(command, stdout=subprocess.PIPE, encoding="utf-8", env=ENV) as process:
        assert process.stdout is not None
        assert json.loads(process.stdout.readline())["data"]["message_count"] == 1
        if how == "truncate":
            os.truncate(log.path, 0)
        if how == "replace":
            (tmp_path / "new").write_bytes(event(2).line())
            os.replace(tmp_path / "new", log.path)
        else:
            log.write(event(2))
        found = json.loads(process.stdout.readline())
        assert found["data"] == {"message_count": 2}
        process.send_signal(signal.SIGINT)
        assert process.wait(60) == 0
