"""What the documentation shows is run: Python by doctest or here, configurations and commands here."""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys
from importlib import metadata
from pathlib import Path

import pytest

from broker.wire.odek.config import parse_servers

ROOT = Path(__file__).parents[2]
PAGES = [ROOT / "README.rst", *sorted((ROOT / "docs").glob("*.rst"))]

ENVIRONMENT = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}

# Words of commands that are not run here, and why.
ELSEWHERE = {
    "pip install": "installing is what the README's commands do, which are run as they are",
    "-m venv": "the same",
    ".venv/bin/activate": "the same",
    "--host": "tests/conform/test_hosts.py runs it, which takes its time",
    "--inspect": "needs a terminal; tests/cli runs it on one",
}


def blocks(language: str) -> list[tuple[str, str]]:
    """Every ``code-block`` of a language, as (page and line, text)."""
    found = []
    for page in PAGES:
        text = page.read_text(encoding="utf-8")
        for match in re.finditer(rf"^\.\. code-block:: {language}\n\n((?:   .*\n|\n)+)", text, flags=re.MULTILINE):
            line = text.count("\n", 0, match.start()) + 1
            found.append((f"{page.name}:{line}", re.sub(r"^   ", "", match[1], flags=re.MULTILINE)))
    return found


def named(language: str) -> list[object]:
    return [pytest.param(text, id=where) for where, text in blocks(language)]


@pytest.mark.parametrize("text", named("python"))
def test_a_block_of_python_runs(text: str, tmp_path: Path) -> None:
    (tmp_path / "test_block.py").write_text(text, encoding="utf-8")
    if tests := "def test_" in text:
        # As tests/conftest.py does: the plugin comes by itself only where the project is installed.
        installed = any(point.name == "broker" for point in metadata.entry_points(group="pytest11"))
        (tmp_path / "conftest.py").write_text("" if installed else 'pytest_plugins = ["broker.testing.plugin"]\n')
    how = ["-m", "pytest", "-q", "-p", "no:cacheprovider"] if tests else []
    done = subprocess.run(
        [sys.executable, *how, "test_block.py"],
        cwd=tmp_path,
        env=ENVIRONMENT,
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.parametrize("text", named("json"))
def test_a_configuration_is_sound(text: str) -> None:
    servers = parse_servers(text.encode(), source="operator")
    assert servers.servers and not servers.warnings and not servers.refused


@pytest.fixture
def place(tmp_path: Path) -> Path:
    """A directory like the root of the repository, in which a reader may write."""
    for name in ("docs", "tests"):
        (tmp_path / name).symlink_to(ROOT / name)
    programs = tmp_path / ".bin"
    programs.mkdir()
    for name, module in (("broker", "broker.cli"), ("pytest", "pytest")):
        (programs / name).write_text(f'#!/bin/sh\nexec {shlex.quote(sys.executable)} -m {module} "$@"\n')
        (programs / name).chmod(0o755)
    return tmp_path


@pytest.mark.parametrize("text", named("console"))
def test_the_commands_of_a_block_do_what_it_shows(text: str, place: Path) -> None:
    """Commands are run one after the other; the lines below one are exactly what it prints, ``...`` stands for more."""
    environment = {**ENVIRONMENT, "PATH": f"{place / '.bin'}{os.pathsep}{os.environ['PATH']}", "COLUMNS": "120"}
    for match in re.finditer(r"^\$ (.*)\n((?:(?!\$ ).*\n)*)", text, flags=re.MULTILINE):
        command, shown = match[1], match[2].strip("\n")
        if any(word in command for word in ELSEWHERE):
            continue
        done = subprocess.run(
            ["bash", "-c", command], cwd=place, env=environment, capture_output=True, text=True, timeout=110
        )
        assert done.returncode == 0, f"{command}\n{done.stdout}{done.stderr}"
        if shown:
            pattern = "".join(".*" if part == "..." else re.escape(part) for part in re.split(r"(\.\.\.)", shown))
            assert re.fullmatch(pattern, done.stdout.strip("\n"), flags=re.DOTALL), f"{command}\n{done.stdout}"
