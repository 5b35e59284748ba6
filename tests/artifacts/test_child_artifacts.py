"""A child's artifacts: what its runner finds and measures, what its parent accepts, shows and reads."""

from __future__ import annotations

import hashlib
import json
import os
import stat
from pathlib import Path
from typing import Any

import pytest

from broker.adapters import child_artifacts
from broker.adapters.artifacts import ArtifactRoots
from broker.adapters.child_artifacts import make_task_root, new_task_id, remove_session_artifacts, scan
from broker.errors import InvalidParamsError, SetupError
from broker.host.artifacts import ArtifactRegistry
from broker.host.child_artifacts import ChildArtifacts, accept_child_artifacts, artifact_read
from broker.limits import MAX_ARTIFACT_BYTES, MAX_CHILD_NOTES


@pytest.fixture
def root(tmp_path: Path) -> Path:
    return Path(make_task_root(tmp_path / "artifacts", "session-1", new_task_id()))


def names(found: child_artifacts.Scan) -> list[str]:
    return [os.path.basename(ref.path) for ref in found.refs]


# -- the runner --------------------------------------------------------------------------------------------------------


@pytest.mark.spec("odek.subagent.root")
def test_each_task_has_a_private_root_of_its_own(tmp_path: Path) -> None:
    first, second = (make_task_root(tmp_path, "s-1", new_task_id()) for _ in range(2))
    assert first != second
    assert os.path.dirname(first) == os.path.dirname(second) == os.fspath(tmp_path / "s-1")
    assert {stat.S_IMODE(os.stat(path).st_mode) for path in (first, second, tmp_path / "s-1")} == {0o700}
    for odd in ("../../etc", "", "a/b", ".", "x" * 200, "a\0"):
        assert Path(make_task_root(tmp_path, odd, new_task_id())).parent == tmp_path / "unfiled"
    with pytest.raises(InvalidParamsError):
        make_task_root(tmp_path, "s-1", "../x")
    with pytest.raises(SetupError):
        make_task_root(tmp_path, "s-1", os.path.basename(first))


def test_a_sessions_artifacts_are_removed_and_nothing_else(tmp_path: Path) -> None:
    make_task_root(tmp_path, "s-1", new_task_id())
    other = make_task_root(tmp_path, "s-2", new_task_id())
    assert remove_session_artifacts(tmp_path, "s-1") is True
    assert remove_session_artifacts(tmp_path, "s-1") is False
    for odd in ("..", ".", "", "s-2/..", "/"):
        with pytest.raises(InvalidParamsError):
            remove_session_artifacts(tmp_path, odd)
    assert os.path.isdir(other)


@pytest.mark.spec("odek.subagent.measured-by-runner")
def test_the_runner_measures_what_is_there(root: Path) -> None:
    content = "Résumé of all\nsecond line\n".encode()
    (root / "report.md").write_bytes(content)
    (ref,) = scan(root).refs
    assert ref.to_json() == {
        "schema": "odek.artifact-ref/v1",
        "id": "report",
        "uri": f"file://{root}/report.md",
        "media_type": "text/markdown",
        "sha256": hashlib.sha256(content).hexdigest(),
        "size_bytes": len(content),
        "summary": "Résumé of all",
    }


@pytest.mark.parametrize(
    ("name", "artifact_id", "media_type"),
    [
        ("a.TXT", "a", "text/plain"),
        ("a.log", "a", "text/plain"),
        ("a.json", "a", "application/json"),
        ("a.csv", "a", "text/csv"),
        ("a.html", "a", "text/html"),
        ("a.yaml", "a", "application/yaml"),
        ("a.xml", "a", "application/xml"),
        ("a.bin", "a", "application/octet-stream"),
        ("archive.tar.gz", "archive.tar", "application/octet-stream"),
        (".hidden", "artifact-1", "application/octet-stream"),
        ("white space.md", "artifact-1", "text/markdown"),
        ("100%?x#y.md", "artifact-1", "text/markdown"),
        ("zwölf.md", "artifact-1", "text/markdown"),
        (os.fsdecode(b"\xff.md"), "artifact-1", "text/markdown"),
        ("a" * 64, "a" * 64, "application/octet-stream"),
        ("a" * 65, "artifact-1", "application/octet-stream"),
    ],
)
def test_ids_and_media_types_and_names_that_need_encoding(
    root: Path, name: str, artifact_id: str, media_type: str
) -> None:
    (root / name).write_bytes(b"x")
    (ref,) = scan(root).refs
    assert (ref.id, ref.media_type) == (artifact_id, media_type)
    accepted = accept(root, [ref.to_json()])
    assert (accepted.ids, accepted.notes) == ((artifact_id,), ())


def test_two_files_with_one_stem_have_two_ids(root: Path) -> None:
    for name in ("report.md", "report.txt", "report-2", "é", "ü"):
        (root / name).write_bytes(b"x")
    assert {os.path.basename(ref.path): ref.id for ref in scan(root).refs} == {
        "report-2": "report-2",
        "report.md": "report",
        "report.txt": "report-3",
        "é": "artifact-1",
        "ü": "artifact-2",
    }


@pytest.mark.spec("odek.subagent.scan")
def test_links_directories_and_pipes_are_left_out_with_a_note(root: Path, tmp_path: Path) -> None:
    (root / "kept.txt").write_text("x")
    (root / "link").symlink_to("/etc/passwd")
    (root / "inside").symlink_to("kept.txt")
    (root / "directory").mkdir()
    (root / "directory" / "below.txt").write_text("x")
    os.mkfifo(root / "pipe")
    found = scan(root)
    assert names(found) == ["kept.txt"]
    assert found.notes == (
        "'directory' was left out: it is a directory",
        "'inside' was left out: it is a symbolic link",
        "'link' was left out: it is a symbolic link",
        "'pipe' was left out: it is not a regular file",
    )


@pytest.mark.spec("odek.subagent.scan")
def test_the_largest_go_first_until_64_and_every_drop_has_a_note(root: Path) -> None:
    for number in range(70):
        (root / f"f{number:02}").write_bytes(b"x" * (number + 1))
    found = scan(root)
    assert names(found) == [f"f{number:02}" for number in range(69, 5, -1)]
    assert found.notes == tuple(
        f"'f{number:02}' was left out: 64 larger files were handed over already" for number in range(5, -1, -1)
    )


@pytest.mark.spec("odek.subagent.scan")
def test_a_huge_file_and_too_much_in_all(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with (root / "huge").open("wb") as file:
        file.truncate(MAX_ARTIFACT_BYTES + 1)
    monkeypatch.setattr(child_artifacts, "MAX_CHILD_ARTIFACT_BYTES", 100)
    for name, size in (("a", 60), ("b", 50), ("c", 40), ("d", 1)):
        (root / name).write_bytes(b"x" * size)
    found = scan(root)
    assert names(found) == ["a", "c"]
    assert found.notes == (
        f"'huge' was left out: it has {MAX_ARTIFACT_BYTES + 1} bytes, at most {MAX_ARTIFACT_BYTES} are handed over",
        "'b' was left out: with it there would be more than 100 bytes in all",
        "'d' was left out: with it there would be more than 100 bytes in all",
    )


def test_notes_are_bounded(root: Path) -> None:
    for number in range(MAX_CHILD_NOTES + 6):
        (root / f"d{number}").mkdir()
    found = scan(root)
    assert len(found.notes) == MAX_CHILD_NOTES + 1
    assert found.notes[-1] == "6 more entries were left out"


def test_a_file_that_changes_while_it_is_measured_is_left_out(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (root / "growing").write_bytes(b"x" * 10)
    read = os.read

    def grow(descriptor: int, size: int) -> bytes:
        with (root / "growing").open("ab") as file:
            file.write(b"more")
        return read(descriptor, size)

    monkeypatch.setattr(child_artifacts.os, "read", grow)
    found = scan(root)
    assert (found.refs, found.notes) == ((), ("'growing' was left out: it changed while it was measured",))


def test_a_summary_is_one_safe_line_of_a_text(root: Path) -> None:
    (root / "long.txt").write_text("\x1b[31mé" * 200)
    (root / "data.json").write_text('{"first": "line"}')
    (root / "empty.txt").write_text("")
    found = {ref.id: ref.summary for ref in scan(root).refs}
    assert found["data"] is None and found["empty"] is None
    assert found["long"] is not None and len(found["long"]) <= 120 and "\x1b" not in found["long"]
    with pytest.raises(SetupError):
        scan(root / "missing")


# -- the parent --------------------------------------------------------------------------------------------------------


def accept(
    root: Path | None, artifacts: Any, *, task: int = 1, registry: Any = None, notes: Any = ()
) -> ChildArtifacts:
    files = None if root is None else ArtifactRoots([os.fspath(root)])
    registry = ArtifactRegistry() if registry is None else registry
    return accept_child_artifacts(artifacts, task=task, files=files, registry=registry, notes=notes)


def handed_over(root: Path) -> list[dict[str, Any]]:
    result: list[dict[str, Any]] = json.loads(json.dumps([ref.to_json() for ref in scan(root).refs]))
    return result


@pytest.mark.spec("odek.subagent.validated", "odek.subagent.inline-bound")
def test_what_is_right_is_shown_by_a_line_and_small_text_comes_along(root: Path) -> None:
    (root / "report.md").write_text("# All fine\nmore")
    (root / "data.json").write_text('{"n": 1}')
    (root / "big.txt").write_bytes(b"y" * 32_769)
    (root / "fits.txt").write_bytes(b"z" * 32_768)
    accepted = accept(root, handed_over(root), task=3, notes=["from the \x1b runner"])
    digest = hashlib.sha256(b"# All fine\nmore").hexdigest()[:12]
    assert accepted.ids == ("big", "fits", "report", "data")
    assert accepted.lines[2] == f"- report (text/markdown, 15 bytes, sha256:{digest}, task 3) \u2014 # All fine"
    assert accepted.lines[3].startswith("- data (application/json, 8 bytes, sha256:")
    assert [(text.id, len(text.text)) for text in accepted.inlined] == [("fits", 32_768), ("report", 15)]
    assert accepted.notes == ("from the \\x1b runner",)
    assert os.fspath(root) not in repr(accepted)


@pytest.mark.spec("odek.subagent.inline-bound")
def test_inlined_texts_have_128_kib_together_and_the_largest_go_first(root: Path) -> None:
    for number in range(5):
        (root / f"f{number}.txt").write_bytes(b"x" * (32_768 - number))
    (root / "small.txt").write_bytes(b"x" * 6)
    accepted = accept(root, handed_over(root))
    assert [text.id for text in accepted.inlined] == ["f0", "f1", "f2", "f3", "small"]


@pytest.mark.parametrize(
    ("change", "why"),
    [
        ({"sha256": "0" * 64}, "its digest is"),
        ({"size_bytes": 3}, "it has 1 bytes"),
        ({"sha256": None}, "has no sha256"),
        ({"uri": "file:///etc/passwd"}, "outside every artifact root"),
        ({"uri": "https://x/"}, "only file://"),
        ({"schema": "odek.artifact-ref/v2"}, "must be odek.artifact-ref/v1"),
        ({"id": ""}, "must not be empty"),
        ({"id": "good"}, "also that of another"),
    ],
)
@pytest.mark.spec("odek.subagent.bad-ref-dropped", "odek.subagent.validated")
def test_a_bad_reference_is_dropped_with_a_note_and_the_rest_stays(root: Path, change: Any, why: str) -> None:
    (root / "good.txt").write_bytes(b"good")
    (root / "odd.txt").write_bytes(b"x")
    refs = handed_over(root)
    refs[1].update(change)
    accepted = accept(root, refs)
    assert accepted.ids == ("good",)
    assert [text.id for text in accepted.inlined] == ["good"]
    assert len(accepted.notes) == 1 and why in accepted.notes[0]
    assert os.fspath(root) not in accepted.notes[0]


@pytest.mark.spec("odek.subagent.validated")
def test_another_tasks_file_is_outside_and_without_a_root_everything_is(root: Path, tmp_path: Path) -> None:
    other = Path(make_task_root(tmp_path / "artifacts", "session-1", new_task_id()))
    (other / "x.txt").write_bytes(b"x")
    assert "outside" in accept(root, handed_over(other)).notes[0]
    accepted = accept(None, handed_over(other))
    assert (accepted.ids, len(accepted.notes)) == ((), 1)


@pytest.mark.parametrize("odd", ["x", {}, 7, [None], ["x"], [[]]])
def test_artifacts_that_are_none_are_dropped(root: Path, odd: Any) -> None:
    accepted = accept(root, odd)
    assert accepted.ids == () and len(accepted.notes) == 1
    assert accept(root, None) == ChildArtifacts((), (), (), ())


def test_more_than_64_are_dropped_with_a_note(root: Path) -> None:
    (root / "x.txt").write_bytes(b"x")
    (ref,) = handed_over(root)
    accepted = accept(root, [{**ref, "id": f"x{number}"} for number in range(70)])
    assert len(accepted.ids) == 64
    assert accepted.notes == ("6 artifacts were dropped: at most 64 are accepted",)


def test_a_child_cannot_break_a_line(root: Path) -> None:
    (root / "x.txt").write_bytes(b"x")
    (ref,) = handed_over(root)
    ref.update(id="a\nb", summary="c\u2028d\x1b", media_type="text/plain\r")
    (line,) = accept(root, [ref]).lines
    assert line.startswith("- a b (text/plain , 1 bytes") and line.endswith("c d ")


# -- artifact_read -----------------------------------------------------------------------------------------------------


@pytest.mark.spec("odek.subagent.read-by-id", "odek.subagent.read-verified")
def test_artifact_read_gives_a_window_or_an_error(root: Path) -> None:
    registry = ArtifactRegistry()
    (root / "report.txt").write_text("zwölf lines")
    (root / "raw.bin").write_bytes(b"\xff\x00")
    accept(root, handed_over(root), registry=registry)
    assert artifact_read(registry, {"id": "report", "offset": 0, "limit": 4}) == {
        "id": "report",
        "media_type": "text/plain",
        "offset": 0,
        "bytes": 4,
        "size_bytes": 12,
        "at_end": False,
        "text": "zwö",
    }
    assert artifact_read(registry, {"id": "raw"})["base64"] == "/wA="
    assert artifact_read(registry, {"id": "report", "offset": 3})["text"] == "\ufffdlf lines"
    for odd in (
        None,
        {},
        {"id": 7},
        {"id": "../../etc/passwd"},
        {"id": "report", "offset": -1},
        {"id": "report", "limit": 0},
    ):
        answer = artifact_read(registry, odd)
        assert list(answer) == ["error"], odd
    assert "'report'" in artifact_read(registry, {"id": "unknown"})["error"]
    (root / "report.txt").write_text("ELEVEN line.")
    assert "digest" in artifact_read(registry, {"id": "report"})["error"]
    (root / "report.txt").unlink()
    (root / "report.txt").symlink_to("/etc/passwd")
    assert list(artifact_read(registry, {"id": "report"})) == ["error"]
    assert os.fspath(root) not in json.dumps(artifact_read(registry, {"id": "report"}))


def test_the_first_of_an_id_keeps_it_and_the_second_is_named_for_its_task(tmp_path: Path) -> None:
    registry = ArtifactRegistry()
    roots = [Path(make_task_root(tmp_path, "s", new_task_id())) for _ in range(2)]
    for number, root in enumerate(roots, start=1):
        (root / "report.txt").write_text(f"of task {number}")
        accepted = accept(root, handed_over(root), task=number, registry=registry)
    assert accepted.ids == ("report.t2",)
    assert accepted.lines[0].startswith("- report.t2 (")
    assert artifact_read(registry, {"id": "report"})["text"] == "of task 1"
    assert artifact_read(registry, {"id": "report.t2"})["text"] == "of task 2"
