"""What the documentation shows is run: Python by doctest or here, configurations and commands here."""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

from broker.wire.odek.config import parse_servers

ROOT = Path(__file__).parents[2]
PAGES = [ROOT / "README.rst", *sorted((ROOT / "docs").glob("*.rst"))]

ENVIRONMENT = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}

# A first word of a command that needs a network, a terminal, or files a reader would have made before.
ELSEWHERE = {
    "pip": "installing is what the README's commands do, which are run as they are",
    "python3": "the same",
    "tox": "the tests themselves",
    "broker run --inspect": "needs a terminal; tests/cli runs it on one",
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
    done = subprocess.run(
        [sys.executable, "-c", text], cwd=tmp_path, env=ENVIRONMENT, capture_output=True, text=True, timeout=60
    )
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("text", named("json"))
def test_a_configuration_is_sound(text: str) -> None:
    servers = parse_servers(text.encode(), source="operator")
    assert servers.servers and not servers.warnings and not servers.refused


def commands() -> list[object]:
    """The commands of console blocks that are run here."""
    lines = [
        (where, line[2:]) for where, text in blocks("console") for line in text.split("\n") if line.startswith("$ ")
    ]
    return [
        pytest.param(line, id=f"{where} {line}")
        for where, line in lines
        if not line.startswith(tuple(ELSEWHERE)) and not Path(shlex.split(line)[0]).name.startswith(tuple(ELSEWHERE))
    ]


@pytest.mark.parametrize("line", commands())
def test_a_command_of_the_pages_succeeds(line: str) -> None:
    program, *words = shlex.split(line)
    assert program == "broker", f"nothing is known of {program}: run it elsewhere, and say where"
    done = subprocess.run(
        [sys.executable, "-m", "broker.cli", *words],
        cwd=ROOT,
        env=ENVIRONMENT,
        capture_output=True,
        text=True,
        timeout=100,
    )
    assert done.returncode == 0, done.stdout + done.stderr
