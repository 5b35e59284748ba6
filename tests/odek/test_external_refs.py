"""References to outside state: what is accepted, what is one, how they are stored, and their shorthand."""

from __future__ import annotations

import json
import os
import stat
import threading
from pathlib import Path
from typing import Any

import pytest

from broker.adapters import session_file
from broker.adapters.session_file import add_external_refs, load_external_refs
from broker.errors import InvalidParamsError, ResourceExhaustedError, SetupError
from broker.limits import MAX_EXTERNAL_REFS
from broker.testing import ManualClock
from broker.wire.odek.events.redaction import Redactor
from broker.wire.odek.external_ref import ExternalRef, ExternalRefs, parse_shorthand, read_external_ref

VALID: dict[str, Any] = {"kind": "ci-run", "uri": "https://ci.example.test/runs/4821", "created_by": "ci-orchestrator"}
NOW = "2026-08-07T12:00:00.000Z"


@pytest.mark.parametrize(
    ("name", "good"),
    [
        ("kind", "a"),
        ("kind", "a_b-9" * 12 + "abcd"),
        ("uri", "x"),
        ("uri", "é" * 2048),
        ("uri", "s3://bucket/a b,c=d"),
        ("created_by", "é" * 128),
        ("read_only", True),
        ("created_at", "2026-08-07T12:00:00Z"),
        ("created_at", "2026-08-07t12:00:00.123456+05:30"),
        ("created_at", None),
    ],
)
@pytest.mark.spec(
    "odek.external-ref.kind",
    "odek.external-ref.uri",
    "odek.external-ref.created-by",
    "odek.external-ref.characters",
    "odek.external-ref.created-at",
)
def test_what_is_accepted(name: str, good: Any) -> None:
    ref = read_external_ref({**VALID, name: good, "unknown": [1]})
    assert getattr(ref, name) == good
    assert read_external_ref(ref.to_json()) == ref


@pytest.mark.parametrize(
    ("name", "bad"),
    [
        *[("kind", bad) for bad in ("", "A", "a b", "a/b", "ä", "a" * 65, 7, None)],
        *[("uri", bad) for bad in ("", "x" * 2049, "a\nb", "a\0b", "a\tb", "a\x7fb", "a\x85b", 7)],
        *[("created_by", bad) for bad in ("", "x" * 129, "a\nb", "\ud800", 7)],
        *[("read_only", bad) for bad in ("true", 1)],
        *[("created_at", bad) for bad in ("yesterday", "2026-08-07", "2026-13-07T12:00:00Z", 7, "")],
    ],
)
@pytest.mark.spec("odek.external-ref.kind", "odek.external-ref.uri", "odek.external-ref.created-by")
def test_a_bad_member_is_named_and_nothing_is_stored(tmp_path: Path, name: str, bad: Any) -> None:
    with pytest.raises(InvalidParamsError) as caught:
        read_external_ref({**VALID, name: bad})
    assert caught.value.path == f"external_ref.{name}"
    assert str(caught.value).startswith(f"external_ref.{name}: ")
    path = tmp_path / "session.json"
    path.write_text(json.dumps({"external_refs": [VALID, {**VALID, name: bad}]}))
    before = path.read_bytes()
    with pytest.raises(InvalidParamsError, match=r"external_refs\[1\]"):
        add_external_refs(path, [ExternalRef("k", "u", "c")])
    assert path.read_bytes() == before


@pytest.mark.spec("odek.external-ref.deduplicated", "odek.external-ref.created-at")
def test_the_same_reference_is_there_once() -> None:
    refs = ExternalRefs()
    ref = read_external_ref(VALID)
    assert refs.add([ref, ref], now=NOW) == 1
    assert (
        refs.add([read_external_ref({**VALID, "created_at": "2030-01-01T00:00:00Z", "read_only": True})], now=NOW) == 0
    )
    assert (
        refs.add([read_external_ref({**VALID, "created_by": "other", "created_at": "2030-01-01T00:00:00Z"})], now=NOW)
        == 1
    )
    assert refs.to_json() == [
        {**VALID, "created_at": NOW},
        {**VALID, "created_by": "other", "created_at": "2030-01-01T00:00:00Z"},
    ]


@pytest.mark.spec("odek.external-ref.deduplicated")
def test_a_secret_in_a_uri_is_stored_redacted_and_still_one(tmp_path: Path) -> None:
    path = tmp_path / "session.json"
    ref = ExternalRef("db", "postgres://me:hunter2hunter2@db.test/x?key=known-secret", "cli")
    redactor = Redactor(["known-secret"])
    for _ in range(3):
        add_external_refs(path, [ref], redactor=redactor)
    assert [stored.uri for stored in load_external_refs(path)] == ["postgres://me:[REDACTED]@db.test/x?key=[REDACTED]"]
    assert "hunter2" not in path.read_text()


@pytest.mark.spec("odek.external-ref.created-at")
def test_the_session_file_keeps_everything_else(tmp_path: Path) -> None:
    path = tmp_path / "session.json"
    path.write_text('{"messages": ["é", {"n": 1.5, "big": 123456789012345678901234567890}], "id": "s"}')
    path.chmod(0o644)
    clock = ManualClock(unix_ms=1_786_104_000_000)
    assert add_external_refs(path, [read_external_ref(VALID)], clock=clock) == 1
    assert json.loads(path.read_text()) == {
        "messages": ["é", {"n": 1.5, "big": 123456789012345678901234567890}],
        "id": "s",
        "external_refs": [{**VALID, "created_at": NOW}],
    }
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert os.listdir(tmp_path) == ["session.json"]
    before = path.stat()
    assert add_external_refs(path, [read_external_ref(VALID)], clock=clock) == 0
    assert path.stat() == before
    assert len(load_external_refs(tmp_path / "none.json")) == 0
    (tmp_path / "old.json").write_text("{}")
    assert len(load_external_refs(tmp_path / "old.json")) == 0


def test_a_file_that_cannot_be_replaced_stays_as_it_was(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "session.json"
    path.write_text('{"id": "s"}')

    def fail(descriptor: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(session_file.os, "fsync", fail)
    with pytest.raises(SetupError, match="No space"):
        add_external_refs(path, [read_external_ref(VALID)])
    assert (path.read_text(), os.listdir(tmp_path)) == ('{"id": "s"}', ["session.json"])


@pytest.mark.parametrize("content", ["", "[]", "{", '{"external_refs": {}}'])
def test_a_file_that_is_no_session_is_left_alone(tmp_path: Path, content: str) -> None:
    path = tmp_path / "session.json"
    path.write_text(content)
    with pytest.raises((SetupError, InvalidParamsError)):
        add_external_refs(path, [read_external_ref(VALID)])
    assert path.read_text() == content
    with pytest.raises(SetupError):
        add_external_refs(tmp_path / "missing" / "session.json", [read_external_ref(VALID)])


def test_threads_that_add_at_once_lose_none(tmp_path: Path) -> None:
    path = tmp_path / "session.json"
    threads = [
        threading.Thread(target=add_external_refs, args=(path, [ExternalRef("k", f"u-{n}", "c")])) for n in range(16)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(ref.uri for ref in load_external_refs(path)) == sorted(f"u-{n}" for n in range(16))


def test_their_number_is_bounded_and_none_is_added_beyond() -> None:
    refs = ExternalRefs()
    refs.add([ExternalRef("k", f"u{n}", "c") for n in range(MAX_EXTERNAL_REFS - 1)], now=NOW)
    with pytest.raises(ResourceExhaustedError) as caught:
        refs.add([ExternalRef("k", "a", "c"), ExternalRef("k", "b", "c")], now=NOW)
    assert (caught.value.limit, len(refs)) == ("MAX_EXTERNAL_REFS", MAX_EXTERNAL_REFS - 1)
    assert refs.add([ExternalRef("k", "a", "c")], now=NOW) == 1


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("ci-run=https://ci.test/r?a=1,b=2", ("ci-run", "https://ci.test/r?a=1,b=2", "cli", False)),
        ("kind=x", ("kind", "x", "cli", False)),
        ("kind=ci,uri=u", ("ci", "u", "cli", False)),
        ("uri=https://x/?a=1,b=2,kind=ci", ("ci", "https://x/?a=1,b=2", "cli", False)),
        ("kind=ci,uri=u,created_by=me,read_only=true", ("ci", "u", "me", True)),
        ("read_only=false,uri=a,b,kind=ci", ("ci", "a,b", "cli", False)),
    ],
)
def test_the_shorthand_of_the_command_line(text: str, expected: tuple[Any, ...]) -> None:
    ref = parse_shorthand(text)
    assert (ref.kind, ref.uri, ref.created_by, ref.read_only) == expected


@pytest.mark.parametrize(
    "text",
    ["", "nothing", "=u", "ci=", "kind=ci,uri=u,other=1", "kind=ci,uri=u,read_only=yes", "kind=a,kind=b,uri=u",
     "kind=ci,created_by=x", "uri=u,created_by=x", "kind=CI,uri=u"],
)  # fmt: skip
def test_a_bad_shorthand_is_refused(text: str) -> None:
    if text == "kind=ci,uri=u,other=1":
        # Only the four keys end a URI, so this is all of it.
        assert parse_shorthand(text).uri == "u,other=1"
        text = "kind=ci,other=1,uri=u"
    with pytest.raises(InvalidParamsError):
        parse_shorthand(text)


@pytest.mark.spec("odek.external-ref.never-dereferenced")
def test_a_reference_is_never_followed(tmp_path: Path) -> None:
    # Whoever opened this pipe would wait for ever, and whoever made it a path would find it is none.
    os.mkfifo(tmp_path / "pipe")
    refs = [ExternalRef("file", f"file://{tmp_path}/pipe", "c"), ExternalRef("nothing", "http://127.0.0.1:1/x", "c")]
    add_external_refs(tmp_path / "session.json", refs)
    assert [ref.uri for ref in load_external_refs(tmp_path / "session.json")] == [ref.uri for ref in refs]
