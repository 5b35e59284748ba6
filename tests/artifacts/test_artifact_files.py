"""Artifact files: which one a reference opens, and everything that is refused about it. Real files, no stand-ins."""

from __future__ import annotations

import gc
import hashlib
import os
import socket
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from broker.adapters import artifacts
from broker.adapters.artifacts import ArtifactRoots
from broker.errors import ArtifactError
from broker.wire.odek.artifact_ref import ArtifactRef, read_ref

LARGEST = 67_108_864
CONTENT = b"FAIL pkg/a TestX\nok pkg/b 1.2s\n"
DIGEST = "8f178203af64"
Make = Callable[..., ArtifactRef]


def ref_to(path: str | os.PathLike[str], **members: Any) -> ArtifactRef:
    """A reference as the host makes it of a URI; the path is escaped where it has to be."""
    plain = os.fspath(path).replace("%", "%25").replace("?", "%3F").replace("#", "%23")
    value = {"schema": "odek.artifact-ref/v1", "id": "r", "uri": f"file://{plain}", "media_type": "text/plain"}
    return read_ref({**value, **members}, place="artifacts[0]")


def refused(roots: ArtifactRoots, ref: ArtifactRef) -> str:
    with pytest.raises(ArtifactError) as caught:
        roots.verify(ref)
    assert caught.value.artifact == "r"
    assert "/" not in str(caught.value), "an error must not tell where files are"
    return str(caught.value).removeprefix("artifact 'r': ")


@pytest.fixture
def root(tmp_path: Path) -> Path:
    directory = tmp_path / "root"
    directory.mkdir()
    (directory / "report.txt").write_bytes(CONTENT)
    return directory


@pytest.fixture
def outside(tmp_path: Path) -> Path:
    directory = tmp_path / "outside"
    directory.mkdir()
    (directory / "secret.txt").write_bytes(b"secret")
    return directory


# -- inside a root, or not -------------------------------------------------------------------------------------------


@pytest.mark.spec("odek.artifact-ref.inside-root", "odek.artifact-ref.hash-match", "odek.artifact-ref.size-match")
def test_a_file_inside_a_root_that_is_as_declared(root: Path) -> None:
    (root / "below" / "deeper").mkdir(parents=True)
    (root / "below" / "deeper" / "report.txt").write_bytes(CONTENT)
    digest = hashlib.sha256(CONTENT).hexdigest()
    assert digest.startswith(DIGEST)
    roots = ArtifactRoots([str(root)])
    for path in (root / "report.txt", root / "below" / "deeper" / "report.txt"):
        roots.verify(ref_to(path))
        roots.verify(ref_to(path, sha256=digest, size_bytes=31))
        assert roots.read(ref_to(path, sha256=digest), 5, 5) == (b"pkg/a", 31)


@pytest.mark.parametrize(
    "name", ["a b", "100%", "what?", "a#b", "%2e%2e", "%00", "é\u2028", "..a", "a..", "...", "~", "$HOME", "*"]
)
def test_a_name_is_taken_as_it_is(root: Path, name: str) -> None:
    (root / name).write_bytes(CONTENT)
    ArtifactRoots([str(root)]).verify(ref_to(root / name, size_bytes=31))


def test_a_name_that_is_no_text(root: Path) -> None:
    with open(os.fsencode(root) + b"/\xff\xfe", "wb") as file:
        file.write(CONTENT)
    ArtifactRoots([str(root)]).verify(ref_to(f"{root}/", uri=f"file://{root}/%ff%FE", size_bytes=31))


@pytest.mark.spec("odek.artifact-ref.inside-root")
def test_a_file_outside_every_root(root: Path, outside: Path) -> None:
    """Fault 59."""
    roots = ArtifactRoots([str(root), str(outside / "nothing")])
    assert refused(roots, ref_to(outside / "secret.txt")) == "its file is outside every artifact root"


@pytest.mark.spec("odek.artifact-ref.root-prefix")
def test_a_root_is_no_prefix_of_its_siblings(root: Path) -> None:
    sibling = Path(f"{root}-evil")
    sibling.mkdir()
    (sibling / "report.txt").write_bytes(CONTENT)
    for configured in (str(root), f"{root}/", f"{root}//", f"{root}/."):
        roots = ArtifactRoots([configured])
        assert refused(roots, ref_to(sibling / "report.txt")) == "its file is outside every artifact root"
        roots.verify(ref_to(root / "report.txt"))


@pytest.mark.spec(
    "odek.artifact-ref.path-traversal", "odek.artifact-ref.path-clean", "odek.artifact-ref.uri-decoded-once"
)
@pytest.mark.parametrize(
    "between",
    ["/../outside/", "/%2e%2e/outside/", "/%2E./outside/", "%2F..%2Foutside%2F", "/./../outside/", "//../outside/"],
)
def test_no_way_of_writing_dots_leads_out(root: Path, outside: Path, between: str) -> None:
    """Fault 63, from the URI to the file."""
    with pytest.raises(ArtifactError, match="its path is not clean"):
        ref_to(root, uri=f"file://{root}{between}secret.txt")
    assert (outside / "secret.txt").exists()


def test_what_is_escaped_twice_is_a_name(root: Path) -> None:
    roots = ArtifactRoots([str(root)])
    why = refused(roots, ref_to(root, uri=f"file://{root}/%252e%252e/outside/secret.txt"))
    assert why == "its file cannot be resolved: No such file or directory"
    (root / "%2e%2e").mkdir()
    (root / "%2e%2e" / "x").write_bytes(CONTENT)
    roots.verify(ref_to(root, uri=f"file://{root}/%252e%252e/x", size_bytes=31))


# -- roots -------------------------------------------------------------------------------------------------------------


@pytest.mark.spec("odek.config.roots-empty", "odek.config.roots-resolved")
@pytest.mark.parametrize("configured", [[], [""], [" \t"], ["nowhere"], ["report.txt"], ["/dev/null"], ["a\0b"]])
def test_without_a_root_nothing_is_accepted(root: Path, monkeypatch: pytest.MonkeyPatch, configured: list[str]) -> None:
    """Fault 57 and 58: a blank root is not the working directory, and a file or a hole is no root."""
    monkeypatch.chdir(root)
    assert refused(ArtifactRoots(configured), ref_to(root / "report.txt")) == "no artifact roots are configured"


@pytest.mark.spec("odek.config.roots-blank")
def test_a_root_after_a_blank_one_counts(root: Path) -> None:
    ArtifactRoots(["", "  ", str(root)]).verify(ref_to(root / "report.txt"))


@pytest.mark.spec("odek.config.roots-relative")
def test_a_relative_root_is_meant_from_where_the_host_was(
    root: Path, tmp_path: Path, outside: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    roots, elsewhere = ArtifactRoots(["root"]), ArtifactRoots(["root"], base=str(outside))
    monkeypatch.chdir(outside)
    roots.verify(ref_to(root / "report.txt"))
    assert refused(elsewhere, ref_to(root / "report.txt")) == "no artifact roots are configured"


@pytest.mark.spec("odek.config.roots-resolved")
def test_a_root_that_is_a_link(root: Path, tmp_path: Path) -> None:
    """Fault 62."""
    (tmp_path / "link").symlink_to(root)
    (tmp_path / "parent").symlink_to(tmp_path)
    for configured in ("link", "parent/root", "parent/parent/link"):
        roots = ArtifactRoots([str(tmp_path / configured)])
        for way in (root, tmp_path / "link", tmp_path / "parent" / "link"):
            roots.verify(ref_to(way / "report.txt", size_bytes=31))


@pytest.mark.spec("odek.artifact-ref.root-slash")
def test_the_root_of_everything(root: Path) -> None:
    roots = ArtifactRoots(["/"])
    roots.verify(ref_to(root / "report.txt", size_bytes=31))
    assert refused(roots, ref_to(root)) == "it is not a regular file"


def test_a_root_may_come_later_and_go(tmp_path: Path) -> None:
    late = tmp_path / "late"
    roots = ArtifactRoots([str(late)])
    ref = ref_to(late / "x")
    assert refused(roots, ref) == "no artifact roots are configured"
    late.mkdir()
    (late / "x").write_bytes(b"x")
    roots.verify(ref)
    late.rename(tmp_path / "gone")
    assert refused(roots, ref) == "no artifact roots are configured"


@pytest.mark.spec("odek.artifact-ref.one-handle")
def test_a_root_replaced_while_it_is_opened(root: Path, outside: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (outside / "report.txt").write_bytes(CONTENT)
    real_open = os.open

    def swap_then_open(path: Any, flags: int, *rest: Any, **options: Any) -> int:
        if path == str(root):
            monkeypatch.setattr(os, "open", real_open)
            root.rename(root.with_name("moved"))
            outside.rename(root)
        return real_open(path, flags, *rest, **options)

    monkeypatch.setattr(os, "open", swap_then_open)
    assert refused(ArtifactRoots([str(root)]), ref_to(root / "report.txt")) == "its root was replaced"


# -- links -------------------------------------------------------------------------------------------------------------


@pytest.mark.spec("odek.artifact-ref.symlink-in")
def test_links_inside_that_stay_inside(root: Path) -> None:
    """Fault 61."""
    (root / "file-link").symlink_to("report.txt")
    (root / "below").mkdir()
    (root / "below" / "up").symlink_to("..")
    roots = ArtifactRoots([str(root)])
    for way in ("file-link", "below/up/report.txt", "below/up/below/up/file-link"):
        roots.verify(ref_to(root / way, size_bytes=31))


@pytest.mark.spec("odek.artifact-ref.symlink-out")
def test_links_that_lead_out(root: Path, outside: Path) -> None:
    """Fault 60."""
    (root / "file-link").symlink_to(outside / "secret.txt")
    (root / "relative").symlink_to("../outside/secret.txt")
    (root / "directory-link").symlink_to(outside)
    (root / "twice").symlink_to("file-link")
    roots = ArtifactRoots([str(root)])
    for way in ("file-link", "relative", "directory-link/secret.txt", "twice"):
        assert refused(roots, ref_to(root / way)) == "its file is outside every artifact root"


@pytest.mark.spec("odek.artifact-ref.missing")
def test_what_is_not_there(root: Path) -> None:
    """Fault 65: missing, dangling, a loop, and a file taken for a directory."""
    (root / "dangling").symlink_to("nowhere")
    (root / "loop").symlink_to("loop")
    roots = ArtifactRoots([str(root)])
    for way, why in (
        ("missing", "No such file or directory"),
        ("dangling", "No such file or directory"),
        ("loop", "Too many levels of symbolic links"),
        ("report.txt/x", "Not a directory"),
        ("x" * 300, "File name too long"),
    ):
        assert refused(roots, ref_to(root / way)) == f"its file cannot be resolved: {why}"


# -- kinds of files ----------------------------------------------------------------------------------------------------


@pytest.mark.spec("odek.artifact-ref.regular-file")
def test_only_regular_files(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Fault 66 and further kinds; nothing waits for a writer of the FIFO."""
    (root / "directory").mkdir()
    os.mkfifo(root / "fifo")
    monkeypatch.chdir(root)  # the name of a socket has to be short
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind("socket")
        roots = ArtifactRoots([str(root), "/dev"])
        for path in (root / "directory", root / "fifo", root / "socket", Path("/dev/null"), Path("/dev/zero")):
            assert refused(roots, ref_to(path)) == "it is not a regular file"


@pytest.mark.spec("odek.artifact-ref.regular-file")
def test_a_fifo_put_in_place_after_the_look(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    real_stat = os.stat

    def look_then_swap(path: Any, *rest: Any, **options: Any) -> os.stat_result:
        found = real_stat(path, *rest, **options)
        if path == "report.txt":
            (root / "report.txt").unlink()
            os.mkfifo(root / "report.txt")
        return found

    monkeypatch.setattr(os, "stat", look_then_swap)
    assert refused(ArtifactRoots([str(root)]), ref_to(root / "report.txt")) == "it is not a regular file"


def test_a_file_that_cannot_be_read(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    if os.geteuid():
        (root / "report.txt").chmod(0)
    else:  # the permission means nothing to root
        real_open = os.open

        def deny(path: Any, flags: int, *rest: Any, **options: Any) -> int:
            if path == "report.txt":
                raise PermissionError(13, "Permission denied", path)
            return real_open(path, flags, *rest, **options)

        monkeypatch.setattr(os, "open", deny)
    assert refused(ArtifactRoots([str(root)]), ref_to(root / "report.txt")) == (
        "its file cannot be opened: Permission denied"
    )


# -- size and digest ---------------------------------------------------------------------------------------------------


@pytest.mark.spec("odek.artifact-ref.size-match")
@pytest.mark.parametrize("declared", [0, 30, 32, 2**63])
def test_another_size(root: Path, declared: int) -> None:
    """Fault 51 and 67: 0 is a declared size too."""
    why = refused(ArtifactRoots([str(root)]), ref_to(root / "report.txt", size_bytes=declared))
    assert why == f"it has 31 bytes, declared are {declared}"


def test_an_empty_file(root: Path) -> None:
    (root / "empty").touch()
    digest = hashlib.sha256(b"").hexdigest()
    roots = ArtifactRoots([str(root)])
    ref = ref_to(root / "empty", size_bytes=0, sha256=digest)
    roots.verify(ref)
    assert roots.read(ref, 0, 10) == (b"", 0)


@pytest.mark.spec("odek.artifact-ref.hash-match")
def test_another_digest(root: Path) -> None:
    """Fault 68."""
    why = refused(ArtifactRoots([str(root)]), ref_to(root / "report.txt", sha256="0" * 64, size_bytes=31))
    assert why == f"its digest is {DIGEST}..., declared is 000000000000..."


@pytest.mark.spec("odek.artifact-ref.size-bound")
def test_64_mebibytes_and_no_more(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Fault 69: refused by its size, before a byte is read."""
    with open(root / "big", "wb") as file:
        file.truncate(LARGEST)
    roots = ArtifactRoots([str(root)])
    roots.verify(ref_to(root / "big", size_bytes=LARGEST))
    with open(root / "big", "r+b") as file:
        file.truncate(LARGEST + 1)

    def read(*_: Any) -> bytes:
        raise AssertionError("it was read")

    monkeypatch.setattr(artifacts.os, "read", read)
    with pytest.raises(ArtifactError) as caught:
        roots.verify(ref_to(root / "big", sha256="0" * 64))
    assert (caught.value.limit, caught.value.observed, caught.value.maximum) == (
        "MAX_ARTIFACT_BYTES",
        LARGEST + 1,
        LARGEST,
    )


@pytest.mark.spec("odek.artifact-ref.growing")
@pytest.mark.parametrize("change", ["grow", "grow for ever", "shrink"])
def test_a_file_that_changes_while_it_is_hashed(root: Path, monkeypatch: pytest.MonkeyPatch, change: str) -> None:
    """Fault 70: the hashing stops, at the latest one byte past the size that was found."""
    path = root / "report.txt"
    digest = hashlib.sha256(CONTENT).hexdigest()
    real_read, taken = os.read, []

    def read(descriptor: int, count: int) -> bytes:
        with open(path, "r+b") as file:
            file.truncate(20 if change == "shrink" else 32 if change == "grow" else 1_000_000 * (len(taken) + 1))
        taken.append(real_read(descriptor, count))
        return taken[-1]

    monkeypatch.setattr(artifacts.os, "read", read)
    why = refused(ArtifactRoots([str(root)]), ref_to(path, sha256=digest))
    assert why == "it changed while it was read"
    assert sum(map(len, taken)) <= 32


def test_a_digest_over_several_chunks(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(artifacts, "MAX_HASH_CHUNK_BYTES", 7)
    content = bytes(range(100))
    (root / "x").write_bytes(content)
    roots, ref = ArtifactRoots([str(root)]), ref_to(root / "x", sha256=hashlib.sha256(content).hexdigest())
    for offset in (0, 1, 6, 7, 8, 50, 99, 100, 101, 10**9):
        for limit in (1, 6, 7, 8, 100, 1_000):
            assert roots.read(ref, offset, limit) == (content[offset : offset + limit], 100)


# -- what is swapped in meanwhile --------------------------------------------------------------------------------------


@pytest.fixture
def swapping() -> Iterator[Callable[[Callable[[], None], Callable[[], None]], None]]:
    """Runs two changes by turns in a thread until the test ends."""
    stop = threading.Event()
    threads: list[threading.Thread] = []

    def start(there: Callable[[], None], back: Callable[[], None]) -> None:
        def loop() -> None:
            while not stop.is_set():
                there()
                back()

        threads.append(threading.Thread(target=loop))
        threads[-1].start()

    yield start
    stop.set()
    for thread in threads:
        thread.join()


def _read_by_turns(roots: ArtifactRoots, ref: ArtifactRef, seconds: float) -> tuple[set[bytes], int]:
    """What was read, and how often nothing was. Ends early once both have happened often enough."""
    accepted, refusals, good = set(), 0, 0
    end = time.monotonic() + seconds
    while time.monotonic() < end and not (refusals >= 50 and good >= 50):
        try:
            with roots.opened(ref) as descriptor:
                accepted.add(os.read(descriptor, 100))
            good += 1
        except ArtifactError:
            refusals += 1
    return accepted, refusals


@pytest.mark.spec("odek.artifact-ref.one-handle")
def test_a_file_swapped_for_a_link_is_never_followed(
    root: Path, outside: Path, swapping: Callable[[Callable[[], None], Callable[[], None]], None]
) -> None:
    path, link, kept = root / "report.txt", root / "link", root / "kept"
    os.link(path, kept)
    link.symlink_to(outside / "secret.txt")

    def there() -> None:
        os.replace(link, path)
        link.symlink_to(outside / "secret.txt")

    def back() -> None:
        os.link(kept, root / "again")
        os.replace(root / "again", path)

    swapping(there, back)
    accepted, refusals = _read_by_turns(ArtifactRoots([str(root)]), ref_to(path), 30)
    assert accepted <= {CONTENT}
    assert refusals


@pytest.mark.spec("odek.artifact-ref.one-handle")
def test_a_parent_swapped_for_a_link_is_never_followed(
    root: Path, outside: Path, swapping: Callable[[Callable[[], None], Callable[[], None]], None]
) -> None:
    (outside / "report.txt").write_bytes(b"secret")
    parent, kept, link = root / "parent", root / "kept", root / "link"
    parent.mkdir()
    (parent / "report.txt").write_bytes(CONTENT)
    link.symlink_to(outside)

    def there() -> None:
        parent.rename(kept)
        link.rename(parent)

    def back() -> None:
        parent.rename(link)
        kept.rename(parent)

    swapping(there, back)
    accepted, refusals = _read_by_turns(ArtifactRoots([str(root)]), ref_to(parent / "report.txt"), 30)
    assert accepted <= {CONTENT}
    assert refusals


@pytest.mark.spec("odek.artifact-ref.one-handle")
@pytest.mark.parametrize("part", ["file", "parent"])
def test_a_link_put_in_place_after_resolving(
    root: Path, outside: Path, monkeypatch: pytest.MonkeyPatch, part: str
) -> None:
    """The same by one exact step, for a machine on which the threads never meet."""
    (outside / "report.txt").write_bytes(b"secret")
    (root / "parent").mkdir()
    (root / "parent" / "report.txt").write_bytes(CONTENT)
    real = os.path.realpath

    def resolve_then_swap(path: Any, *, strict: bool = False) -> str:
        resolved = real(path, strict=strict)
        if resolved.endswith("report.txt"):
            if part == "file":
                os.unlink(resolved)
                os.symlink(outside / "report.txt", resolved)
            else:
                (root / "parent").rename(root / "kept")
                (root / "parent").symlink_to(outside)
        return resolved

    monkeypatch.setattr(os.path, "realpath", resolve_then_swap)
    why = refused(ArtifactRoots([str(root)]), ref_to(root / "parent" / "report.txt"))
    assert why == ("it is not a regular file" if part == "file" else "its file cannot be opened: Not a directory")


def test_no_descriptor_is_left_open(root: Path, outside: Path) -> None:
    (root / "link").symlink_to(outside / "secret.txt")
    os.mkfifo(root / "fifo")
    roots = ArtifactRoots([str(root)])
    gc.collect()  # what earlier tests left would be closed some time in this one
    before = os.listdir("/proc/self/fd")
    for way, members in (
        ("report.txt", {}),
        ("report.txt", {"sha256": "0" * 64}),
        ("report.txt", {"size_bytes": 1}),
        ("link", {}),
        ("fifo", {}),
        ("missing/x", {}),
    ):
        try:
            roots.verify(ref_to(root / way, **members))
        except ArtifactError:
            pass
    assert os.listdir("/proc/self/fd") == before
