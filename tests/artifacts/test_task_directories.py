"""Directories of tasks on disk: made by the parent, filled and measured by the runner, removed with the session."""

from __future__ import annotations

import errno
import hashlib
import os
import socket
import stat
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from broker.adapters import artifacts, child_artifacts
from broker.adapters.child_artifacts import TaskDirectories, collect_artifacts, relocate_artifacts
from broker.errors import ArtifactError, SetupError, UsageError
from broker.limits import MAX_ARTIFACT_BYTES, MAX_ARTIFACTS


@pytest.fixture
def root(tmp_path: Path) -> Path:
    path = tmp_path / "root"
    path.mkdir()
    return path


def sparse(path: Path, size: int) -> None:
    with path.open("wb") as file:
        file.truncate(size)


# -- the parent's directories ------------------------------------------------------------------------------------------


@pytest.mark.spec("odek.subagent.root")
def test_each_task_has_a_directory_of_its_own(tmp_path: Path) -> None:
    tasks = TaskDirectories(tmp_path / "home" / "artifacts")
    made = [tasks.make("session-1"), tasks.make("session-1"), tasks.make("session_2")]
    assert len({task.path for task in made}) == 3
    for task, session in zip(made, ("session-1", "session-1", "session_2"), strict=True):
        assert task.task_id.startswith("task-")
        assert len(task.task_id) == 5 + 16
        assert int(task.task_id[5:], 16) >= 0
        assert Path(task.path) == tmp_path / "home" / "artifacts" / session / task.task_id
        assert os.listdir(task.path) == []
        for directory in (task.path, os.path.dirname(task.path), tmp_path / "home" / "artifacts"):
            assert stat.S_IMODE(os.stat(directory).st_mode) == 0o700


@pytest.mark.parametrize("session_id", ["", "..", "a/b", "../../x", "a b", "é", "-x", ".x", "x" * 129, "a\n", "a\0"])
def test_a_session_id_that_can_be_no_name(tmp_path: Path, session_id: str) -> None:
    tasks = TaskDirectories(tmp_path)
    assert os.path.dirname(tasks.make(session_id).path) == str(tmp_path / "unfiled")
    with pytest.raises(UsageError, match="is no session id, nothing is removed"):
        tasks.remove_session(session_id)
    assert len(os.listdir(tmp_path / "unfiled")) == 1


def test_a_link_in_the_place_of_a_session(tmp_path: Path) -> None:
    outside = tmp_path / "outside"
    outside.mkdir()
    base = tmp_path / "base"
    base.mkdir()
    (base / "s").symlink_to(outside)
    with pytest.raises(SetupError, match="no directory for a task below"):
        TaskDirectories(base).make("s")
    assert os.listdir(outside) == []


def test_a_session_is_removed_with_its_artifacts_and_nothing_else(tmp_path: Path) -> None:
    tasks = TaskDirectories(tmp_path / "base")
    mine, other = tasks.make("mine"), tasks.make("other")
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "kept").write_text("kept")
    Path(mine.path, "link").symlink_to(outside)
    Path(mine.path, "below").mkdir()
    assert tasks.remove_session("mine") is True
    assert tasks.remove_session("mine") is False
    assert os.listdir(tmp_path / "base") == ["other"]
    assert os.path.isdir(other.path)
    assert (outside / "kept").read_text() == "kept"
    with pytest.raises(UsageError):
        tasks.remove_session("unfiled")
    (tmp_path / "base" / "linked").symlink_to(outside)
    with pytest.raises(SetupError, match="cannot be removed"):
        tasks.remove_session("linked")
    assert (outside / "kept").read_text() == "kept"


# -- the runner's scan -------------------------------------------------------------------------------------------------


@pytest.mark.spec("odek.subagent.measured-by-runner")
def test_files_are_measured_by_the_runner(root: Path) -> None:
    (root / "report.md").write_text("\n# Report\nall fine\n")
    (root / "b 100%?#.bin").write_bytes(bytes(range(256)))
    (root / "empty.txt").write_bytes(b"")
    collected = collect_artifacts(root)
    assert collected.notes == ()
    assert [ref.to_json() for ref in collected.artifacts] == [
        {
            "schema": "odek.artifact-ref/v1",
            "id": "artifact-1",
            "uri": f"{root.as_uri()}/b%20100%25%3F%23.bin",
            "media_type": "application/octet-stream",
            "sha256": hashlib.sha256(bytes(range(256))).hexdigest(),
            "size_bytes": 256,
        },
        {
            "schema": "odek.artifact-ref/v1",
            "id": "empty",
            "uri": f"{root.as_uri()}/empty.txt",
            "media_type": "text/plain",
            "sha256": hashlib.sha256(b"").hexdigest(),
            "size_bytes": 0,
        },
        {
            "schema": "odek.artifact-ref/v1",
            "id": "report",
            "uri": f"{root.as_uri()}/report.md",
            "media_type": "text/markdown",
            "sha256": hashlib.sha256(b"\n# Report\nall fine\n").hexdigest(),
            "size_bytes": 19,
            "summary": "# Report",
        },
    ]
    files = artifacts.ArtifactRoots([str(root)])
    for ref in collected.artifacts:
        files.verify(ref)


@pytest.mark.spec("odek.subagent.scan")
def test_only_regular_files_at_the_top_are_artifacts(
    root: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Fault 114: links and directories are left out with a note; nothing that could block or act is opened."""
    (root / "kept.txt").write_text("kept")
    (root / "below").mkdir()
    (root / "below" / "hidden.txt").write_text("hidden")
    (root / "inside").symlink_to(root / "kept.txt")
    (tmp_path / "secret").write_text("secret")
    (root / "outside").symlink_to(tmp_path / "secret")
    (root / "dangling\x1b").symlink_to("nothing")
    os.mkfifo(root / "pipe")
    monkeypatch.chdir(root)
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind("socket")
    collected = collect_artifacts(root)
    assert [ref.id for ref in collected.artifacts] == ["kept"]
    assert collected.notes == (
        "'below' is left out: it is a directory",
        "'dangling\\x1b' is left out: it is a symbolic link",
        "'inside' is left out: it is a symbolic link",
        "'outside' is left out: it is a symbolic link",
        "'pipe' is left out: it is a special file",
        "'socket' is left out: it is a special file",
    )


@pytest.mark.spec("odek.subagent.scan")
def test_a_root_that_is_a_link_is_resolved(root: Path, tmp_path: Path) -> None:
    (root / "a.txt").write_text("a")
    (tmp_path / "link").symlink_to(root)
    assert [ref.path for ref in collect_artifacts(tmp_path / "link").artifacts] == [f"{root}/a.txt"]
    with pytest.raises(SetupError, match="is no directory that can be used"):
        collect_artifacts(root / "a.txt")
    with pytest.raises(SetupError, match="is no directory that can be used"):
        collect_artifacts(root / "missing")


@pytest.mark.spec("odek.subagent.scan")
def test_64_artifacts_and_the_largest_of_them(root: Path) -> None:
    """Fault 114."""
    for n in range(MAX_ARTIFACTS + 2):
        (root / f"f{n:02}.txt").write_text("x" * (n + 1))
    collected = collect_artifacts(root)
    assert [ref.id for ref in collected.artifacts] == [f"f{n:02}" for n in range(2, 66)]
    assert collected.notes == tuple(f"'f{n:02}.txt' is left out: there are 64 artifacts already" for n in (1, 0))


@pytest.mark.spec("odek.subagent.scan")
def test_64_mebibytes_and_the_largest_first(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Fault 114: a file that does not fit makes room for smaller ones."""
    sparse(root / "big", 1_001)
    sparse(root / "half", 600)
    sparse(root / "more", 500)
    sparse(root / "less", 400)
    sparse(root / "last", 1)
    monkeypatch.setattr(child_artifacts, "MAX_ARTIFACT_BYTES", 1_000)
    monkeypatch.setattr(child_artifacts, "MAX_CHILD_ARTIFACTS_BYTES", 1_000)
    collected = collect_artifacts(root)
    assert [(ref.id, ref.size_bytes) for ref in collected.artifacts] == [("half", 600), ("less", 400)]
    assert collected.notes == (
        "'big' is left out: it has 1001 bytes, at most 1000 are accepted",
        "'more' is left out: with it there are more than 1000 bytes",
        "'last' is left out: with it there are more than 1000 bytes",
    )


@pytest.mark.spec("odek.subagent.scan")
def test_a_file_over_64_mebibytes_is_not_read(root: Path) -> None:
    sparse(root / "huge", MAX_ARTIFACT_BYTES + 1)
    collected = collect_artifacts(root)
    assert collected.artifacts == ()
    assert collected.notes == ("'huge' is left out: it has 67108865 bytes, at most 67108864 are accepted",)


@pytest.mark.spec("odek.subagent.measured-by-runner", "odek.subagent.scan")
@pytest.mark.parametrize("change", ["link", "gone", "fifo", "grown"])
def test_a_file_that_changes_before_it_is_measured(
    root: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, change: str
) -> None:
    (root / "a.txt").write_text("as it was listed")
    (root / "b.txt").write_text("stays")
    (root / "c").write_text("inside")
    real = child_artifacts._measured

    def measured(roots: Any, path: str, name: str, room: int) -> Any:
        if name == "a.txt":
            if change == "grown":
                (root / name).write_bytes(b"x" * (room + 1))
            else:
                (root / name).unlink()
                if change == "link":
                    (root / name).symlink_to(root / "c")
                elif change == "fifo":
                    os.mkfifo(root / name)
        return real(roots, path, name, room)

    monkeypatch.setattr(child_artifacts, "_measured", measured)
    monkeypatch.setattr(child_artifacts, "MAX_CHILD_ARTIFACTS_BYTES", 1_000)
    collected = collect_artifacts(root)
    assert [ref.id for ref in collected.artifacts] == ["b", "c"]
    problem = {
        "link": "artifact 'a.txt': its path leads through a link",
        "gone": "artifact 'a.txt': its file cannot be resolved: No such file or directory",
        "fifo": "artifact 'a.txt': it is not a regular file",
        "grown": "it grew to 1001 bytes, and there is room for 1000",
    }[change]
    assert collected.notes == (f"'a.txt' is left out: {problem}",)


def test_a_file_that_changes_while_it_is_measured(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (root / "a.txt").write_text("before")
    real = os.read

    def read(descriptor: int, size: int) -> bytes:
        with (root / "a.txt").open("ab") as file:
            file.write(b"more")
        return real(descriptor, size)

    monkeypatch.setattr(artifacts.os, "read", read)
    assert collect_artifacts(root).notes == ("'a.txt' is left out: artifact 'a.txt': it changed while it was read",)


def test_a_directory_without_end_is_looked_at_in_part(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(child_artifacts, "MAX_SCANNED_ENTRIES", 3)
    for n in range(5):
        (root / str(n)).mkdir()
    notes = collect_artifacts(root).notes
    assert notes[0] == "only 3 entries of the directory were looked at"
    assert len(notes) == 4


def test_measuring_keeps_to_the_root(root: Path, tmp_path: Path) -> None:
    outside = tmp_path / "outside.txt"
    outside.write_text("outside")
    ref = artifacts.ArtifactRef(id="a", uri="file:///a", media_type="text/plain", path=str(outside))
    with pytest.raises(ArtifactError, match="its file is outside every artifact root"):
        artifacts.ArtifactRoots([str(root)]).measure(ref, 10)


# -- what was staged ---------------------------------------------------------------------------------------------------


@pytest.fixture(params=["same", "other"])
def device(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Callable[[], None]:
    """Whether the staging directory is on the file system of the root."""

    def apply() -> None:
        if request.param == "other":
            real = os.rename

            def rename(old: Any, new: Any, **directories: Any) -> None:
                if directories:
                    raise OSError(errno.EXDEV, os.strerror(errno.EXDEV))
                real(old, new)

            monkeypatch.setattr(os, "rename", rename)

    return apply


@pytest.mark.spec("odek.subagent.measured-by-runner", "odek.subagent.scan")
def test_staged_files_are_moved_into_the_root(root: Path, tmp_path: Path, device: Callable[[], None]) -> None:
    staging = tmp_path / "staging"
    staging.mkdir()
    (root / "a.txt").write_text("there already")
    (root / "a-2.txt").write_text("that too")
    (root / "b").symlink_to("nowhere")
    for name in ("a.txt", "b", ".c", "d.tar.gz"):
        (staging / name).write_text(name)
    (staging / "below").mkdir()
    (staging / "link").symlink_to(root / "a.txt")
    device()
    assert relocate_artifacts(staging, root) == (
        "'below' is left out: it is a directory",
        "'link' is left out: it is a symbolic link",
    )
    assert sorted(os.listdir(staging)) == ["below", "link"]
    moved = {path.name: path.read_text() for path in root.iterdir() if not path.is_symlink()}
    assert moved == {
        "a.txt": "there already", "a-2.txt": "that too", "a-3.txt": "a.txt", "b-2": "b", ".c": ".c",
        "d.tar.gz": "d.tar.gz",
    }  # fmt: skip


def test_a_file_that_cannot_be_moved_stays(root: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    staging = tmp_path / "staging"
    staging.mkdir()
    (staging / "a").write_text("a")

    def rename(*_: Any, **__: Any) -> None:
        raise PermissionError(errno.EACCES, os.strerror(errno.EACCES))

    monkeypatch.setattr(os, "rename", rename)
    assert relocate_artifacts(staging, root) == ("'a' is left out: it cannot be moved: Permission denied",)
    assert (staging / "a").read_text() == "a"
    assert os.listdir(root) == []


def test_a_staging_directory_that_is_none(root: Path, tmp_path: Path) -> None:
    assert relocate_artifacts(tmp_path / "missing", root) == ()
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "elsewhere" / "private").write_text("private")
    (tmp_path / "link").symlink_to(tmp_path / "elsewhere")
    for path in (tmp_path / "link", tmp_path / "elsewhere" / "private"):
        with pytest.raises(SetupError, match="is no directory that can be used"):
            relocate_artifacts(path, root)
    with pytest.raises(SetupError, match="missing is no directory"):
        relocate_artifacts(tmp_path / "elsewhere", tmp_path / "missing")
    assert (tmp_path / "elsewhere" / "private").read_text() == "private"
    assert os.listdir(root) == []


@pytest.mark.parametrize("device", ["other"], indirect=True)
@pytest.mark.parametrize("change", ["too-long", "link"])
def test_what_another_file_system_does_not_give(
    root: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, device: Callable[[], None], change: str
) -> None:
    """A file that has to be copied is copied through one descriptor, within the bound, or stays where it is."""
    staging = tmp_path / "staging"
    staging.mkdir()
    (staging / "a").write_text("12345")
    (staging / "b").write_text("1234")
    monkeypatch.setattr(child_artifacts, "MAX_ARTIFACT_BYTES", 4)
    if change == "link":
        real = child_artifacts.read_bounded

        def read_bounded(file: str, maximum: int) -> bytes:
            if file.endswith("/a"):
                os.unlink(file)
                os.symlink("/etc/passwd", file)
            return real(file, maximum)

        monkeypatch.setattr(child_artifacts, "read_bounded", read_bounded)
    device()
    problem = "File too large" if change == "too-long" else "it is no regular file any more"
    assert relocate_artifacts(staging, root) == (f"'a' is left out: it cannot be moved: {problem}",)
    assert os.listdir(staging) == ["a"]
    assert os.listdir(root) == ["b"]


def test_a_file_that_goes_while_the_directory_is_read(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (root / "a").write_text("a")
    (root / "b").write_text("b")
    real = os.stat

    def found(path: Any, **options: Any) -> os.stat_result:
        if path == "a" and "dir_fd" in options:
            (root / "a").unlink(missing_ok=True)
        return real(path, **options)

    monkeypatch.setattr(child_artifacts.os, "stat", found)
    collected = collect_artifacts(root)
    assert [ref.id for ref in collected.artifacts] == ["b"]
    assert collected.notes == ("'a' is left out: No such file or directory",)
