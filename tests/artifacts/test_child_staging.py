"""Files a child has named are moved to its artifact root, and nothing from outside of its workspace is."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from broker.adapters import child_staging
from broker.adapters.child_staging import stage
from broker.limits import MAX_ARTIFACT_BYTES


@pytest.fixture
def places(tmp_path: Path) -> tuple[Path, Path]:
    workspace, root = tmp_path / "workspace", tmp_path / "root"
    (workspace / "deep").mkdir(parents=True)
    root.mkdir()
    return workspace, root


def contents(directory: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in sorted(directory.iterdir()) if path.is_file()}


@pytest.mark.spec("odek.subagent.root")
def test_named_files_are_moved(places: tuple[Path, Path]) -> None:
    workspace, root = places
    (workspace / "report.md").write_bytes(b"one")
    (workspace / "deep" / "report.md").write_bytes(b"two")
    (workspace / "kept.txt").write_bytes(b"kept")
    assert stage(["report.md", "deep/report.md"], workspace=workspace, root=root) == ()
    assert contents(root) == {"report-2.md": b"two", "report.md": b"one"}
    assert contents(workspace) == {"kept.txt": b"kept"}
    assert os.listdir(workspace / "deep") == []


@pytest.mark.parametrize(
    "name", ["../outside", "/etc/hostname", "link", "deep", "missing", "", "a\0b", "pipe", "dir-link/f"]
)
def test_what_is_outside_or_no_file_stays(places: tuple[Path, Path], name: str) -> None:
    workspace, root = places
    outside = workspace.parent / "outside"
    outside.write_bytes(b"mine")
    (workspace.parent / "other").mkdir()
    (workspace.parent / "other" / "f").write_bytes(b"mine")
    (workspace / "link").symlink_to(outside)
    (workspace / "dir-link").symlink_to(workspace.parent / "other")
    os.mkfifo(workspace / "pipe")
    (note,) = stage([name], workspace=workspace, root=root)
    assert " was not staged: " in note
    assert contents(root) == {}
    assert outside.read_bytes() == b"mine"
    assert (workspace.parent / "other" / "f").read_bytes() == b"mine"


def test_a_huge_file_and_one_that_grows_stay(places: tuple[Path, Path], monkeypatch: pytest.MonkeyPatch) -> None:
    workspace, root = places
    with (workspace / "huge").open("wb") as file:
        file.truncate(MAX_ARTIFACT_BYTES + 1)
    assert "at most" in stage(["huge"], workspace=workspace, root=root)[0]
    (workspace / "growing").write_bytes(b"x")
    read = os.read

    def grow(descriptor: int, size: int) -> bytes:
        with (workspace / "growing").open("ab") as file:
            file.write(b"more")
        return read(descriptor, size)

    monkeypatch.setattr(child_staging.os, "read", grow)
    assert "changed" in stage(["growing"], workspace=workspace, root=root)[0]
    assert contents(root) == {}
    assert (workspace / "huge").exists() and (workspace / "growing").exists()


def test_at_most_64_files(places: tuple[Path, Path]) -> None:
    workspace, root = places
    names = [f"f{number:02}" for number in range(66)]
    for name in names:
        (workspace / name).write_bytes(b"x")
    notes = stage(names, workspace=workspace, root=root)
    assert len(notes) == 2 and len(contents(root)) == 64
    assert sorted(contents(workspace)) == ["f64", "f65"]
