"""What the repository says about itself is true."""

from __future__ import annotations

import configparser
import re
from pathlib import Path

ROOT = Path(__file__).parent.parent.parent


def read(name: str) -> str:
    return (ROOT / name).read_text(encoding="utf-8")


def test_ci_runs_the_command_that_the_readme_gives() -> None:
    commands = re.findall(r"^   (python3 -m venv .*)$", read("README.rst"), flags=re.MULTILINE)
    assert len(commands) == 2
    assert commands[1].endswith("tox p -p 2 -o")
    assert f"{{ {commands[1]}; }}" in read(".ci/run")


def test_every_core_dependency_has_its_reason() -> None:
    setup = configparser.ConfigParser()
    setup.read_string(read("setup.cfg"))
    needed = re.findall(r"^[a-z0-9-]+", setup["options"]["install_requires"], flags=re.MULTILINE)
    explained = re.findall(r"^([a-z0-9-]+)\n   \S", read("docs/dependencies.rst"), flags=re.MULTILINE)
    assert sorted(needed) == sorted(explained)


def test_all_configuration_is_where_it_is_said_to_be() -> None:
    assert not (ROOT / "pyproject.toml").exists()
