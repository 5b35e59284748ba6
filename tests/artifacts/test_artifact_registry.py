"""Reading artifacts by id: what the registry knows, gives, clamps, forgets and refuses."""

from __future__ import annotations

import hashlib
import os
from pathlib import Path
from typing import Any

import pytest

from broker.adapters.artifacts import ArtifactRoots
from broker.errors import ArtifactError, UsageError
from broker.host.artifacts import ArtifactRegistry
from broker.limits import ARTIFACT_READ_DEFAULT_BYTES, MAX_ARTIFACT_READ_BYTES, MAX_REGISTERED_ARTIFACTS
from broker.wire.odek.artifact_ref import ArtifactRef, read_ref


def ref_to(path: Path, *, artifact_id: str = "report-1", digest: bool = True) -> ArtifactRef:
    value: dict[str, Any] = {
        "schema": "odek.artifact-ref/v1",
        "id": artifact_id,
        "uri": f"file://{path}",
        "media_type": "text/plain",
        "size_bytes": path.stat().st_size,
    }
    if digest:
        value["sha256"] = hashlib.sha256(path.read_bytes()).hexdigest()
    return read_ref(value, place="artifacts[0]")


class Shelf:
    """A registry and one root."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.files = ArtifactRoots([str(root)])
        self.registry = ArtifactRegistry()

    def add(self, name: str, content: bytes, artifact_id: str = "report-1", **options: Any) -> str:
        (self.root / name).write_bytes(content)
        ref = ref_to(self.root / name, artifact_id=artifact_id, **options)
        return self.registry.add(ref, self.files, suffix="srv-1")

    def refusal(self, artifact_id: Any = "report-1", **window: Any) -> str:
        with pytest.raises(ArtifactError) as caught:
            self.registry.read(artifact_id, **window)
        assert os.fspath(self.root) not in str(caught.value)
        return str(caught.value)


@pytest.fixture
def shelf(tmp_path: Path) -> Shelf:
    return Shelf(tmp_path)


@pytest.mark.parametrize(
    ("window", "data", "at_end"),
    [
        ({}, b"0123456789", True),
        ({"offset": 3}, b"3456789", True),
        ({"limit": 4}, b"0123", False),
        ({"offset": 8, "limit": 2}, b"89", True),
        ({"offset": 10}, b"", True),
        ({"offset": 2**60}, b"", True),
    ],
)
def test_a_window(shelf: Shelf, window: dict[str, int], data: bytes, at_end: bool) -> None:
    shelf.add("a", b"0123456789")
    read = shelf.registry.read("report-1", **window)
    assert (read.id, read.media_type, read.offset, read.data, read.size, read.at_end) == (
        "report-1",
        "text/plain",
        window.get("offset", 0),
        data,
        10,
        at_end,
    )


def test_a_window_has_a_default_and_a_bound(shelf: Shelf) -> None:
    shelf.add("a", bytes(1_000_000))
    assert len(shelf.registry.read("report-1").data) == ARTIFACT_READ_DEFAULT_BYTES == 65_536
    assert len(shelf.registry.read("report-1", limit=2**60).data) == MAX_ARTIFACT_READ_BYTES == 262_144


@pytest.mark.parametrize(
    ("window", "path"),
    [
        ({"offset": -1}, "offset"),
        ({"offset": True}, "offset"),
        ({"offset": 1.0}, "offset"),
        ({"offset": None}, "offset"),
        ({"limit": 0}, "limit"),
        ({"limit": -5}, "limit"),
        ({"limit": "10"}, "limit"),
    ],
)
def test_wrong_windows(shelf: Shelf, window: dict[str, Any], path: str) -> None:
    shelf.add("a", b"x")
    with pytest.raises(UsageError, match=f"^{path}: expected an integer") as caught:
        shelf.registry.read("report-1", **window)
    assert caught.value.path == path


@pytest.mark.parametrize(
    "asked", ["../../etc/passwd", "/etc/passwd", "", "Report-1", "report-1\0", "a", None, 7, ["report-1"]]
)
def test_an_id_is_never_a_path(shelf: Shelf, asked: Any) -> None:
    """Fault 111: whatever is asked for is looked up, and the known ids are told."""
    shelf.add("a", b"x")
    assert shelf.refusal(asked) == f"no artifact {asked!a}; known are: 'report-1'"


def test_no_artifacts_are_none(shelf: Shelf) -> None:
    assert shelf.refusal("x") == "no artifact 'x'; known are: none"


def test_without_a_digest_nothing_is_read(shelf: Shelf) -> None:
    """Fault 109: such a ref can be accepted, and not read."""
    shelf.add("a", b"x", digest=False)
    assert shelf.refusal() == "artifact 'report-1' has no sha256, so what is read cannot be verified"


def test_a_file_that_is_gone(shelf: Shelf) -> None:
    """Fault 110."""
    shelf.add("a", b"x")
    (shelf.root / "a").unlink()
    assert shelf.refusal() == "artifact 'report-1': its file cannot be resolved: No such file or directory"


def test_other_content_of_the_same_size(shelf: Shelf) -> None:
    """Fault 108."""
    shelf.add("a", b"before")
    (shelf.root / "a").write_bytes(b"after!")
    assert "its digest is" in shelf.refusal()


def test_other_content_of_another_size(shelf: Shelf) -> None:
    shelf.add("a", b"before")
    (shelf.root / "a").write_bytes(b"much later")
    assert shelf.refusal() == "artifact 'report-1': it has 10 bytes, declared are 6"


def test_a_file_that_became_a_link_outside(tmp_path: Path) -> None:
    """Fault 107: also when what it leads to has the same content."""
    (tmp_path / "root").mkdir()
    shelf = Shelf(tmp_path / "root")
    shelf.add("a", b"same")
    (tmp_path / "outside").write_bytes(b"same")
    (shelf.root / "a").unlink()
    (shelf.root / "a").symlink_to(tmp_path / "outside")
    assert shelf.refusal() == "artifact 'report-1': its file is outside every artifact root"


def test_the_first_of_an_id_keeps_it(shelf: Shelf) -> None:
    """Fault 112: each later one gets an id of its own, and none takes another's place."""
    given = [shelf.add(name, name.encode()) for name in ("a", "b", "c", "d")]
    assert given == ["report-1", "report-1.srv-1", "report-1.srv-1.2", "report-1.srv-1.3"]
    assert [shelf.registry.read(name).data for name in given] == [b"a", b"b", b"c", b"d"]


def test_the_same_artifact_again_keeps_its_id(shelf: Shelf) -> None:
    assert [shelf.add(name, name.encode()) for name in ("a", "b", "a", "b")] == [
        "report-1",
        "report-1.srv-1",
        "report-1",
        "report-1.srv-1",
    ]


def test_an_id_that_looks_like_an_alias_is_not_overwritten(shelf: Shelf) -> None:
    assert shelf.add("x", b"x", "report-1.srv-1") == "report-1.srv-1"
    shelf.add("a", b"a")
    assert shelf.add("b", b"b") == "report-1.srv-1.2"
    assert shelf.registry.read("report-1.srv-1").data == b"x"


def test_the_oldest_are_forgotten(shelf: Shelf) -> None:
    (shelf.root / "a").write_bytes(b"a")
    for number in range(MAX_REGISTERED_ARTIFACTS + 2):
        shelf.registry.add(ref_to(shelf.root / "a", artifact_id=f"n{number}"), shelf.files, suffix="s")
    assert len(shelf.registry.ids) == MAX_REGISTERED_ARTIFACTS == 1_024
    assert shelf.registry.ids[0] == "n2"
    refusal = shelf.refusal("n1")
    assert refusal.startswith("no artifact 'n1'; known are: 'n1010', ")
    assert refusal.endswith("'n1025'")
    assert refusal.count(",") == 15
