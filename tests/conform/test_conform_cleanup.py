"""What is left of a program that was judged: nothing, whatever it did and however judging ended."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from broker.conform import ConformSettings, examine
from broker.wire.odek.config import ServerConfig

# It starts a process that leaves its group, its session and its parent, as a daemon does.
DAEMON = """
import os, sys, time
reader, writer = os.pipe()
if os.fork() == 0:
    os.setsid()
    if os.fork() == 0:
        with open(sys.argv[1], "a") as file:
            file.write(f"{os.getpid()}\\n")
        os.close(writer)
        os.close(reader)
        for descriptor in range(3):
            os.close(descriptor)
        time.sleep(600)
    os._exit(0)
os.close(writer)
os.read(reader, 1)  # until the daemon has written its id
"""


def server_of(code: str, *args: str) -> ServerConfig:
    return ServerConfig(
        name="subject",
        source="operator",
        command=sys.executable,
        args=("-I", "-S", "-c", code, *args),
        timeout_seconds=2,
        max_response_bytes=65_536,
        max_result_chars=10_000,
        artifact_roots=(),
    )


def is_running(pid: int) -> bool:
    try:
        stat = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8")
    except OSError:
        return False
    return stat.rpartition(")")[2].split()[0] not in ("Z", "X")


@pytest.mark.skipif(not Path("/proc/self/environ").exists(), reason="daemons are found in /proc")
def test_daemons_are_ended_after_every_scenario(tmp_path: Path) -> None:
    pids = tmp_path / "pids"
    (report,) = examine([server_of(DAEMON, str(pids))], ConformSettings(answer_ms=2_000, quiet_ms=100))
    assert "odek.server.initialize-answered" in {finding.rule.id for finding in report.failed}
    started = [int(line) for line in pids.read_text(encoding="utf-8").split()]
    assert started
    assert [pid for pid in started if is_running(pid)] == []
