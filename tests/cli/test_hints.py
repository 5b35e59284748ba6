"""What a newcomer does wrong, and what the command says about it."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

HERE = os.pathsep.join(filter(None, sys.path))
MANIFEST = 'name = "todo"\nversion = "1.0.0"\napi_version = "0.3"\n[entrypoint]\ncommand = "main.py"\n'


def broker(*words: object) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "broker.cli", *map(str, words)],
        env={**os.environ, "PYTHONPATH": HERE},
        capture_output=True,
        text=True,
        timeout=60,
    )


@pytest.mark.parametrize(
    ("program", "problem"),
    [
        (None, "entrypoint 'main.py' of todo does not exist beside its manifest or on PATH"),
        (0o644, "entrypoint {main} of todo is not executable; chmod +x makes it so"),
    ],
)
def test_check_warns_of_a_program_that_cannot_be_started_here(
    tmp_path: Path, program: int | None, problem: str
) -> None:
    directory = tmp_path / "todo"
    directory.mkdir()
    (directory / "extension.toml").write_text(MANIFEST)
    if program is not None:
        (directory / "main.py").touch(program)
    done = broker("check", directory)
    first, second = done.stdout.splitlines()
    manifest = directory / "extension.toml"
    assert first == f"warning: {manifest}: {problem.format(main=directory / 'main.py')}"
    assert second.startswith(f"{manifest}: ok: todo 1.0.0, ")
    assert done.returncode == 0


SUBSCRIBER = """
from broker.extension import Extension

app = Extension("tally", "1.0.0")

@app.on("bus.hello.greted")
def seen(event):
    pass
"""


def test_run_says_which_topic_was_meant(tmp_path: Path) -> None:
    misspelt = tmp_path / "tally"
    misspelt.mkdir()
    (misspelt / "extension.toml").write_text(MANIFEST.replace("todo", "tally"))
    (misspelt / "main.py").write_text(
        f"#!{sys.executable}\nimport sys\nsys.path[:0] = {HERE.split(os.pathsep)!r}\n{SUBSCRIBER}\napp.run()\n"
    )
    (misspelt / "main.py").chmod(0o755)
    hello = Path(__file__).parents[2] / "docs/examples/hello"
    done = broker("run", hello, misspelt, "--for", "2")
    assert done.returncode == 0
    assert done.stderr.splitlines() == [
        "diagnostic        tally [host] bus.hello.greted was never declared; did you mean bus.hello.greeted?"
    ]


LONG_TRACEBACK = """#!{python}
import sys
print("\\n".join(f"  frame {{n}} of many" for n in range(60)), file=sys.stderr)
sys.exit("UsageError: the reason")
"""


def test_a_failed_start_ends_with_its_reason_and_tells_it_once(tmp_path: Path) -> None:
    directory = tmp_path / "todo"
    directory.mkdir()
    (directory / "extension.toml").write_text(MANIFEST)
    (directory / "main.py").write_text(LONG_TRACEBACK.format(python=sys.executable))
    (directory / "main.py").chmod(0o755)
    done = broker("call", directory, "add", "{}")
    assert done.returncode == 1
    *lines, last = done.stderr.splitlines()
    assert [line for line in lines if "[stderr]" not in line] == []
    assert len(lines) == 61
    start = "broker: todo (generation 1): exited with status 1 before it answered initialize; its stderr ends with: "
    assert last.startswith(start) and last.endswith("\\n  frame 59 of many\\nUsageError: the reason")
    assert len(last) < len(start) + 500


@pytest.mark.parametrize("words", [["check", "extension.toml"], ["--version"], ["run", "--help"], ["tail", "--tpye"]])
def test_what_needs_no_host_does_not_load_one(tmp_path: Path, words: list[str]) -> None:
    (tmp_path / "extension.toml").write_text(MANIFEST)
    program = (
        "import atexit, sys\n"
        "atexit.register(lambda: print(sorted({'asyncio', 'broker.host', 'broker.testing'} & set(sys.modules))))\n"
        "from broker.cli.main import main\n"
        "sys.exit(main(sys.argv[1:]))"
    )
    done = subprocess.run(
        [sys.executable, "-c", program, *words],
        env={**os.environ, "PYTHONPATH": HERE},
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert done.stdout.splitlines()[-1] == "[]"
    assert done.returncode == (2 if "--tpye" in words else 0), done.stderr
