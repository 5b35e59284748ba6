"""``broker run --inspect`` on a real terminal, and where there is none."""

from __future__ import annotations

import os
import pty
import select
import subprocess
import sys
import time
from pathlib import Path

HELLO = Path(__file__).parents[2] / "docs/examples/hello"
BOUND_SECONDS = 60


def read_until(fd: int, wanted: bytes) -> bytes:
    """What comes from the terminal up to ``wanted``."""
    seen = b""
    end = time.monotonic() + BOUND_SECONDS
    while wanted not in seen:
        readable, _, _ = select.select([fd], [], [], max(0, end - time.monotonic()))
        assert readable, f"{wanted!r} never came; the terminal shows {seen[-2000:]!r}"
        seen += os.read(fd, 65536)
    return seen


def test_it_draws_the_session_and_q_ends_the_run_in_order() -> None:
    ours, theirs = pty.openpty()
    process = subprocess.Popen(
        [sys.executable, "-m", "broker.cli", "run", "--inspect", str(HELLO)],
        stdin=theirs,
        stdout=theirs,
        stderr=theirs,
        env={**os.environ, "TERM": "xterm-256color", "COLUMNS": "120", "LINES": "40"},
        start_new_session=True,
    )
    os.close(theirs)
    try:
        # A line that is drawn whole whenever it changes; a cell of a table may come in pieces.
        read_until(ours, b"| 1 topics |")
        os.write(ours, b"q")
        # The alternate screen is left, so that the terminal is as it was.
        read_until(ours, b"\x1b[?1049l")
        assert process.wait(BOUND_SECONDS) == 0
    finally:
        process.kill()
        process.wait()
        os.close(ours)


def test_without_a_terminal_it_says_so() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "broker.cli", "run", "--inspect", str(HELLO)],
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=BOUND_SECONDS,
    )
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr == "broker: --inspect needs a terminal; use --json where there is none\n"


def test_it_is_one_view_of_several() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "broker.cli", "run", "--inspect", "--json", str(HELLO)],
        capture_output=True,
        text=True,
        timeout=BOUND_SECONDS,
    )
    assert done.returncode == 2
    assert "not allowed with argument" in done.stderr
