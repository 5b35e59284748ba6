"""The agent loop of the examples, as its reader would run it."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

AGENT = Path(__file__).parents[2] / "docs" / "examples" / "agent" / "main.py"


@pytest.mark.spec("odek.budget.state-saved", "odek.budget.exit-codes", "odek.event.budget-before-failed")
def test_the_agent_ends_with_4_when_its_budget_is_spent(tmp_path: Path) -> None:
    env = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
    done = subprocess.run(
        [sys.executable, AGENT, "--directory", tmp_path],
        capture_output=True,
        text=True,
        timeout=60,
        env=env,
        check=False,
    )
    assert done.returncode == 4, done.stderr
    assert "4 tool calls, the maximum is 3" in done.stderr
    assert done.stdout.splitlines() == [
        "{'iteration': 1, 'tool_calls': 2}",
        "{'iteration': 2, 'tool_calls': 3}",
    ]
    events = [json.loads(line) for line in (tmp_path / "run.jsonl").read_text().splitlines()]
    types = [event["type"] for event in events]
    of_run = [name for name in types if not name.startswith("extension_")]
    assert of_run == [
        "run_started",
        *["tool_call_started"] * 2,
        *["tool_call_completed"] * 2,
        "iteration_completed",
        "tool_call_started",
        "tool_call_completed",
        "iteration_completed",
        "budget_exceeded",
        "session_saved",
        "run_failed",
    ]
    assert types.count("extension_started") == types.count("extension_exited") == 2
    ends = {event["data"]["call_id"]: event["data"] for event in events if event["type"] == "tool_call_completed"}
    assert sorted(ends) == ["call-from-the-provider", "it1-call0", "it1-call1"]
    assert ends["it1-call1"]["artifact_count"] == 1
    # The state that was saved holds no call without its result.
    messages = json.loads((tmp_path / "session.json").read_text())
    assert [message["role"] for message in messages] == ["user", "assistant", "tool", "tool", "assistant", "tool"]
