"""Finding manifests and programs among real files, links, FIFOs and directories."""

from __future__ import annotations

import gc
import os
from pathlib import Path

import pytest

from broker.adapters.discovery import (
    directory_warnings,
    discover,
    find_manifests,
    load_manifest,
    resolve_entrypoint,
)
from broker.errors import ManifestError, SetupError
from broker.limits import MAX_MANIFEST_BYTES

pytestmark = pytest.mark.timeout(30)


def write_manifest(directory: Path, *, name: str | None = None, command: str = "main.py", more: str = "") -> Path:
    directory.mkdir(parents=True, exist_ok=True)
    file = directory / "extension.toml"
    name = name or directory.name
    file.write_text(
        f'name = "{name}"\nversion = "1.0.0"\napi_version = "0.3"\n'
        f'[entrypoint]\ncommand = "{command}"\nargs = ["-x"]\n{more}'
    )
    return file


def write_program(file: Path, mode: int = 0o755) -> Path:
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text("#!/bin/sh\n")
    file.chmod(mode)
    return file


@pytest.mark.spec("octet.manifest.find")
def test_a_file_its_directory_and_a_folder_of_directories(tmp_path: Path) -> None:
    files = [write_manifest(tmp_path / name) for name in ("beta", "alpha", "gamma")]
    (tmp_path / "not-an-extension").mkdir()
    (tmp_path / "a-file").write_text("")
    assert find_manifests(files[0]) == [files[0]]
    assert find_manifests(files[0].parent) == [files[0]]
    assert find_manifests(str(tmp_path)) == sorted(files)


@pytest.mark.spec("octet.manifest.find")
def test_nothing_found_names_the_path(tmp_path: Path) -> None:
    for path in (tmp_path, tmp_path / "missing", tmp_path / "nul\0"):
        with pytest.raises(SetupError) as caught:
            find_manifests(path)
        assert caught.value.path == str(path)


def test_a_directory_of_a_server_is_told_to_be_named_by_its_file(tmp_path: Path) -> None:
    (tmp_path / "server.json").write_text('{"mcp_servers": {}}')
    with pytest.raises(SetupError) as caught:
        find_manifests(tmp_path)
    assert str(caught.value) == (
        f"{tmp_path} holds no extension.toml, and neither does a directory in it; "
        f"if you mean an MCP server, give its file: {tmp_path / 'server.json'}"
    )


def test_relative_paths_become_absolute(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_manifest(tmp_path / "alpha")
    monkeypatch.chdir(tmp_path)
    assert find_manifests("alpha") == [tmp_path / "alpha" / "extension.toml"]
    assert load_manifest("alpha/extension.toml").path == str(tmp_path / "alpha" / "extension.toml")


@pytest.mark.spec("octet.manifest.file")
def test_links_fifos_devices_and_directories_are_refused_without_waiting(tmp_path: Path) -> None:
    real = write_manifest(tmp_path / "alpha")
    link, dangling, fifo = tmp_path / "link.toml", tmp_path / "dangling.toml", tmp_path / "fifo.toml"
    link.symlink_to(real)
    dangling.symlink_to(tmp_path / "nowhere")
    os.mkfifo(fifo)
    for path, problem in (
        (link, "is a symbolic link"),
        (dangling, "is a symbolic link"),
        (fifo, "is not a regular file"),
        (Path("/dev/null"), "is not a regular file"),
        (tmp_path, "is not a regular file"),
        (tmp_path / "missing", "cannot be opened: No such file"),
        (tmp_path / "nul\0", "is not a path"),
    ):
        with pytest.raises(SetupError, match=problem) as caught:
            load_manifest(path)
        assert caught.value.path == str(path)


@pytest.mark.spec("octet.manifest.bounds", "octet.manifest.file")
def test_no_more_than_the_bound_is_read(tmp_path: Path) -> None:
    file = write_manifest(tmp_path / "alpha")
    text = file.read_text()
    file.write_text(text + "#" * (MAX_MANIFEST_BYTES - len(text)))
    assert load_manifest(file).name == "alpha"
    os.truncate(file, 1 << 40)
    with pytest.raises(ManifestError) as caught:
        load_manifest(file)
    (fault,) = caught.value.faults
    assert (fault.limit, fault.observed) == ("MAX_MANIFEST_BYTES", MAX_MANIFEST_BYTES + 1)


def test_descriptors_are_not_leaked_by_refusals(tmp_path: Path) -> None:
    gc.collect()  # what earlier tests left would be closed some time in this one
    before = sorted(os.listdir("/proc/self/fd"))
    for path in (tmp_path, Path("/dev/null"), tmp_path / "missing"):
        with pytest.raises(SetupError):
            load_manifest(path)
    assert sorted(os.listdir("/proc/self/fd")) == before


@pytest.mark.spec("octet.manifest.shadowed", "octet.manifest.bad-neighbour", "octet.manifest.directory-name")
def test_the_first_manifest_of_a_name_wins_and_bad_ones_do_not_hide_others(tmp_path: Path) -> None:
    first = write_manifest(tmp_path / "one" / "alpha")
    later = write_manifest(tmp_path / "two" / "alpha")
    other = write_manifest(tmp_path / "two" / "beta", name="gamma")
    bad = tmp_path / "two" / "broken" / "extension.toml"
    bad.parent.mkdir()
    bad.write_text("name = 1")
    found = discover([tmp_path / "one", tmp_path / "two", tmp_path / "missing", first])
    assert [manifest.path for manifest in found.manifests] == [str(first), str(other)]
    assert [str(warning) for warning in found.warnings] == [
        f"{later}: extension alpha is shadowed by {first}",
        f"{other}: directory 'beta' is not named after its extension 'gamma'",
    ]
    assert [error.path for error in found.errors] == [str(bad), str(tmp_path / "missing")]


@pytest.mark.spec("octet.manifest.directory-name")
def test_a_directory_named_otherwise_is_a_warning(tmp_path: Path) -> None:
    assert directory_warnings(load_manifest(write_manifest(tmp_path / "alpha"))) == []
    (warning,) = directory_warnings(load_manifest(write_manifest(tmp_path / "beta", name="alpha")))
    assert warning.path == str(tmp_path / "beta" / "extension.toml")


@pytest.mark.spec("octet.process.command-beside-manifest")
def test_a_relative_command_stands_beside_the_manifest(tmp_path: Path) -> None:
    program = write_program(tmp_path / "alpha" / "bin" / "run")
    manifest = load_manifest(write_manifest(tmp_path / "alpha", command="bin/run"))
    assert resolve_entrypoint(manifest, tmp_path) == [str(program), "-x"]


@pytest.mark.spec("octet.process.command-beside-manifest", "octet.process.command-on-path")
def test_a_bare_name_is_looked_for_beside_the_manifest_and_then_on_path(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    write_program(tmp_path / "relative" / "tool")
    write_program(tmp_path / "tool")
    manifest = load_manifest(write_manifest(tmp_path / "alpha", command="tool"))
    (tmp_path / "first" / "tool").mkdir(parents=True)
    write_program(tmp_path / "second" / "tool", 0o644)
    on_path = write_program(tmp_path / "third" / "tool")
    environ = {"PATH": ":".join(["relative", ""] + [str(tmp_path / d) for d in ("first", "second", "third")])}
    assert resolve_entrypoint(manifest, tmp_path, host_environ=environ) == [str(on_path), "-x"]
    (tmp_path / "alpha" / "tool").mkdir()
    assert resolve_entrypoint(manifest, tmp_path, host_environ=environ) == [str(on_path), "-x"]
    (tmp_path / "alpha" / "tool").rmdir()
    beside = write_program(tmp_path / "alpha" / "tool")
    assert resolve_entrypoint(manifest, tmp_path, host_environ=environ) == [str(beside), "-x"]


@pytest.mark.spec("octet.process.command-absolute")
def test_an_absolute_command_is_taken_as_it_is(tmp_path: Path) -> None:
    program = write_program(tmp_path / "elsewhere" / "run")
    manifest = load_manifest(write_manifest(tmp_path / "alpha", command=str(program)))
    assert resolve_entrypoint(manifest, tmp_path) == [str(program), "-x"]


@pytest.mark.spec("octet.process.spawn-failure")
@pytest.mark.parametrize(
    ("command", "problem"),
    [
        ("/nowhere/run", "does not exist"),
        ("nothing-of-this-name", "does not exist beside its manifest or on PATH"),
        ("bin/missing", "does not exist beside its manifest"),
        ("plain", "is not executable"),
        ("/", "is not a regular file"),
    ],
)
def test_a_program_that_cannot_be_started_is_named(tmp_path: Path, command: str, problem: str) -> None:
    write_program(tmp_path / "alpha" / "plain", 0o644)
    manifest = load_manifest(write_manifest(tmp_path / "alpha", command=command))
    with pytest.raises(SetupError, match=problem) as caught:
        resolve_entrypoint(manifest, tmp_path)
    assert caught.value.extension == "alpha"
    assert caught.value.path is not None
    assert caught.value.path.endswith(command.lstrip("/"))


@pytest.mark.spec("octet.process.working-directory")
def test_the_workspace_must_be_a_directory(tmp_path: Path) -> None:
    write_program(tmp_path / "alpha" / "main.py")
    manifest = load_manifest(write_manifest(tmp_path / "alpha"))
    with pytest.raises(SetupError, match=r"workspace .* is not a directory"):
        resolve_entrypoint(manifest, tmp_path / "missing")
