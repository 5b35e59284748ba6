"""``broker new``: what it writes works at once, and what it cannot write is not there at all."""

from __future__ import annotations

import json
import os
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

import broker
from broker.cli.main import main
from broker.cli.new import create
from broker.errors import SetupError, UsageError

SOURCES = str(Path(broker.__file__).parents[1])
FILES = {
    "octet": ["README.rst", "extension.toml", "main.py", "test_tide_table.py"],
    "mcp": ["README.rst", "main.py", "server.json", "test_tide_table.py"],
}
KINDS = [("octet", "0.3"), ("octet", "0.4"), ("mcp", "0.3")]


def run(*command: object, cwd: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", *map(str, command)],
        cwd=cwd,
        env={**os.environ, "PYTHONPATH": SOURCES, "NO_COLOR": "1", "PYTEST_ADDOPTS": ""},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )


def made(family: str, api: str, parent: Path, name: str = "tide-table") -> Path:
    """A new extension whose process finds the broker that is tested, installed or not."""
    directory = create(name, family=family, api=api, parent=parent)
    if family == "mcp":
        config = json.loads((directory / "server.json").read_text())
        config["mcp_servers"][name]["env"] = {"PYTHONPATH": SOURCES}
        (directory / "server.json").write_text(json.dumps(config))
    else:
        manifest = directory / "extension.toml"
        manifest.write_text(f"{manifest.read_text()}\n[entrypoint.env]\nPYTHONPATH = {json.dumps(SOURCES)}\n")
    return directory


@pytest.mark.parametrize("family", ["octet", "mcp"])
def test_what_it_says_to_type_can_be_typed(tmp_path: Path, family: str, capsys: pytest.CaptureFixture[str]) -> None:
    parent = tmp_path / "it's here"
    parent.mkdir()
    assert main(["new", "tide-table", "--family", family, "--dir", str(parent)]) == 0
    told = dict(line.split(":", 1) for line in capsys.readouterr().out.splitlines() if ":" in line)
    directory = parent / "tide-table"
    what = [str(directory / "server.json"), "tide-table"] if family == "mcp" else [str(directory)]
    assert shlex.split(told["Try it"]) == ["broker", "call", *what, "greet", '{"who": "Ada"}']
    assert shlex.split(told["Test it"]) == ["pytest", str(directory)]


@pytest.mark.parametrize(("family", "api"), KINDS)
def test_its_tests_pass_and_a_call_is_answered(tmp_path: Path, family: str, api: str) -> None:
    directory = made(family, api, tmp_path)
    assert sorted(path.name for path in directory.iterdir()) == FILES[family]
    tested = run("pytest", "-q", "-p", "no:cacheprovider", cwd=directory)
    assert tested.returncode == 0, tested.stdout
    assert f"{3 if family == 'octet' else 2} passed" in tested.stdout
    what = [directory / "server.json", "tide-table"] if family == "mcp" else [directory]
    called = run("broker.cli", "call", *what, "greet", '{"who": "Ada"}', cwd=tmp_path)
    assert (called.returncode, called.stdout, called.stderr) == (0, "hello, Ada\n", "")
    checked = run("broker.cli", "check", what[0], cwd=tmp_path)
    assert checked.returncode == 0, checked.stdout


@pytest.mark.parametrize(("family", "api"), KINDS)
def test_its_files_are_filled_in(tmp_path: Path, family: str, api: str) -> None:
    directory = create("tide-table", family=family, api=api, parent=tmp_path)
    for path in directory.iterdir():
        # Where it is, and where Python is, may take any number of characters.
        text = path.read_text().replace(str(tmp_path), "").replace(sys.executable, "")
        assert all(len(line) <= 120 for line in text.splitlines())
        assert "$" not in text.replace("#!$", "")


@pytest.mark.parametrize("family", ["octet", "mcp"])
def test_two_are_tested_together(tmp_path: Path, family: str) -> None:
    made(family, "0.3", tmp_path, "todo")
    made(family, "0.3", tmp_path, "tally")
    tested = run("pytest", "-q", "-p", "no:cacheprovider", "todo", "tally", cwd=tmp_path)
    assert tested.returncode == 0, tested.stdout
    assert f"{6 if family == 'octet' else 4} passed" in tested.stdout


def test_the_command_says_what_it_wrote(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["new", "tide-table", "--family", "octet", "--dir", str(tmp_path)]) == 0
    directory = tmp_path / "tide-table"
    assert capsys.readouterr().out == (
        "".join(f"wrote {directory}/{name}\n" for name in FILES["octet"])
        + f'\nTry it:   broker call {directory} greet \'{{"who": "Ada"}}\'\nTest it:  pytest {directory}\n'
    )
    assert (directory / "main.py").stat().st_mode & 0o111
    assert "``test_tide_table.py``" in (directory / "README.rst").read_text()


@pytest.mark.parametrize("name", ["Tide", "1tide", "tide_table", "../tide", "", "t" * 65, "tide\n", "bus.tide"])
def test_a_name_no_manifest_may_have(tmp_path: Path, name: str) -> None:
    with pytest.raises(UsageError) as caught:
        create(name, family="octet", api="0.3", parent=tmp_path)
    assert str(caught.value).startswith("NAME is [a-z][a-z0-9-]*, at most 64 characters, not '")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("what", ["directory", "file", "dangling link"])
def test_what_is_there_stays_as_it_is(tmp_path: Path, what: str, capsys: pytest.CaptureFixture[str]) -> None:
    target = tmp_path / "tide"
    if what == "directory":
        target.mkdir()
    elif what == "file":
        target.write_text("mine")
    else:
        target.symlink_to(tmp_path / "nowhere")
    assert main(["new", "tide", "--dir", str(tmp_path)]) == 3
    assert capsys.readouterr().err == f"broker: {target} exists already; nothing was written\n"
    assert list(tmp_path.iterdir()) == [target]


def test_nothing_is_half_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(self: Path, mode: int) -> None:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(Path, "chmod", refuse)
    with pytest.raises(SetupError) as caught:
        create("tide", family="octet", api="0.3", parent=tmp_path)
    assert str(caught.value) == f"{tmp_path}/tide was not written: Permission denied"
    assert list(tmp_path.iterdir()) == []
    with pytest.raises(SetupError, match="is no directory; nothing was written"):
        create("tide", family="octet", api="0.3", parent=tmp_path / "nowhere")


def test_api_is_for_octet(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["new", "tide", "--family", "mcp", "--api", "0.4"]) == 2
    assert capsys.readouterr().err == "broker: --api is for --family octet; MCP has versions of its own\n"


def test_a_python_that_is_not_on_path_is_named_in_full(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    programs = tmp_path / "bin"
    programs.mkdir()
    (programs / "python3").touch(0o755)

    def first_line(name: str, python: Path | str) -> str:
        monkeypatch.setattr(sys, "executable", str(python))
        directory = create(name, family="octet", api="0.3", parent=tmp_path)
        return (directory / "main.py").read_text().splitlines()[0]

    monkeypatch.setenv("PATH", str(programs))
    assert first_line("beside", "/opt/it/bin/python") == "#!/opt/it/bin/python"
    assert first_line("found", programs / "python") == "#!/usr/bin/env python3"
    assert first_line("at-bound", "/" * 119 + "python") == f"#!{'/' * 119}python"
    for name, python in {"over": "/" * 120 + "python", "space": "/my env/bin/python", "tab": "/my\tenv/python"}.items():
        assert first_line(name, python) == "#!/usr/bin/env python3"
