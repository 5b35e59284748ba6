"""What a program says when it uses the kit wrongly at its top level: one line; and what it leaves to Python."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

import broker

SOURCES = str(Path(broker.__file__).parents[1])
HEAD = (
    "from broker.errors import UsageError\nfrom broker.extension import Extension\napp = Extension('todo', '1.0.0')\n"
)


def run(program: str, cwd: Path, *, file: str = "main.py") -> str:
    """What a program that fails writes to stderr."""
    (cwd / file).write_text(program)
    done = subprocess.run(
        [sys.executable, file],
        cwd=cwd,
        env={**os.environ, "PYTHONPATH": SOURCES},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert (done.returncode, done.stdout) == (1, "")
    return done.stderr


@pytest.mark.parametrize(
    ("program", "line"),
    [
        (
            HEAD + "\n@app.tool\ndef add(title: str) -> str:\n    return title\n",
            (
                "main.py:5: UsageError: tool add needs a docstring, which becomes its description: "
                '"""Says what it does."""\n'
            ),
        ),
        (HEAD + "app.tool(5)\n", "main.py:4: UsageError: @app.tool decorates a function, not int\n"),
        (
            "from broker.extension import Extension\nExtension('Todo', '1.0.0')\n",
            "main.py:2: UsageError: an extension's name is [a-z][a-z0-9-]*, at most 64 bytes, not 'Todo'\n",
        ),
    ],
)
def test_wrong_use_is_one_line(tmp_path: Path, program: str, line: str) -> None:
    assert run(program, tmp_path) == line


def test_wrong_use_in_a_module_the_program_imports(tmp_path: Path) -> None:
    (tmp_path / "tools.py").write_text(HEAD + "app.tool(5)\n")
    assert run("import tools\n", tmp_path) == "tools.py:4: UsageError: @app.tool decorates a function, not int\n"
    # From elsewhere the whole path is of use.
    other = tmp_path / "other"
    other.mkdir()
    program = f"import sys\nsys.path.insert(0, {str(tmp_path)!r})\nimport tools\n"
    assert run(program, other).startswith(f"{tmp_path}/tools.py:4: UsageError: ")


@pytest.mark.parametrize(
    ("program", "end"),
    [
        (HEAD + "1 / 0\n", "ZeroDivisionError: division by zero\n"),
        (HEAD + "raise UsageError('mine')\n", "broker.errors.UsageError: mine\n"),
        (HEAD + "def late():\n    app.tool(5)\nlate()\n", "UsageError: @app.tool decorates a function, not int\n"),
        (HEAD + "app.tool(name=5)(print, 6)\n", "TypeError: "),
    ],
)
def test_everything_else_has_its_traceback(tmp_path: Path, program: str, end: str) -> None:
    said = run(program, tmp_path)
    assert said.startswith('Traceback (most recent call last):\n  File "')
    assert end in said


def test_a_hook_that_is_there_is_called_for_the_rest(tmp_path: Path) -> None:
    mine = "import sys\nsys.excepthook = lambda kind, error, trace: print('mine:', error, file=sys.stderr)\n"
    assert run(mine + HEAD + "again = Extension('again', '1.0.0')\n1 / 0\n", tmp_path) == "mine: division by zero\n"
    assert run(mine + HEAD + "app.tool(5)\n", tmp_path).startswith("main.py:6: UsageError: ")


def test_nothing_is_changed_where_no_program_is_read() -> None:
    from broker.extension import Extension

    before = sys.excepthook
    Extension("todo", "1.0.0")
    assert sys.excepthook is before
