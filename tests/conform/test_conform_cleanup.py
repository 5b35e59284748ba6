"""What is left of a program that was judged: nothing, whatever it did and however judging ended."""

from __future__ import annotations

import json
import os
import shlex
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from broker.cli.main import main
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


@pytest.mark.parametrize(
    ("of", "number", "at_first"),
    [
        *(("extension", number, "default_int_handler") for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)),
        *(("host", number, "default_int_handler") for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)),
        ("extension", signal.SIGTERM, "SIG_IGN"),  # as in the background of a script
    ],
)
def test_an_interrupted_run_leaves_nothing(of: str, number: signal.Signals, at_first: str, tmp_path: Path) -> None:
    pid_file, temporary = tmp_path / "pid", tmp_path / "temporary"
    temporary.mkdir()
    # It tells of itself, and then neither answers nor ends.
    code = (
        "import os, signal, sys, time; signal.signal(signal.SIGTERM, signal.SIG_IGN)\n"
        f"open({str(tmp_path / 'new')!r}, 'w').write(str(os.getpid()))\n"
        f"os.rename({str(tmp_path / 'new')!r}, {str(pid_file)!r})\n"
        "time.sleep(600)"
    )
    program = [sys.executable, "-I", "-S", "-c", code]
    if of == "host":
        given = ["--host", shlex.join([*program, "{path}"])]
    else:
        extension = tmp_path / "subject"
        extension.mkdir()
        manifest = (
            'name = "subject"\nversion = "1.0.0"\napi_version = "0.3"\n[entrypoint]\n'
            f"command = {json.dumps(program[0])}\nargs = {json.dumps(program[1:])}\n"
        )
        (extension / "extension.toml").write_text(manifest, encoding="utf-8")
        given = [str(extension)]
    env = {**os.environ, "TMPDIR": str(temporary), "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
    start = (
        f"import signal, sys; signal.signal(signal.SIGINT, signal.{at_first}); "
        "signal.signal(signal.SIGHUP, signal.SIG_DFL); from broker.cli.main import main; sys.exit(main())"
    )
    command = [sys.executable, "-c", start, "conform", *given, "--timeout", "60"]
    with subprocess.Popen(command, env=env, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as running:
        try:
            deadline = time.monotonic() + 30
            while not pid_file.exists() and time.monotonic() < deadline and running.poll() is None:
                time.sleep(0.01)
            pid = int(pid_file.read_text(encoding="utf-8"))
            assert list(temporary.iterdir())
            running.send_signal(number)
            out, err = running.communicate(timeout=30)
        finally:
            running.kill()
    assert (running.returncode, out, err) == (130, b"", b"broker: interrupted, nothing was judged\n")
    assert list(temporary.iterdir()) == []
    assert not is_running(pid)


def test_an_interrupt_before_anything_is_judged_breaks_no_rule(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    def interrupted(file: Path) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("broker.cli.conform._check_writable", interrupted)
    assert main(["conform", str(tmp_path), "--junit", str(tmp_path / "j.xml")]) == 130
    assert capsys.readouterr() == ("", "broker: interrupted, nothing was judged\n")
