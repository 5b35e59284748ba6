"""Artifacts of sub-agents without files: names, lines, and what a parent takes of a task's result."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from broker.limits import MAX_ARTIFACTS, MAX_CHILD_NOTES
from broker.wire.odek.artifact_ref import ArtifactRef, file_uri, parse_file_uri, read_ref
from broker.wire.odek.child_artifacts import (
    CollectedArtifacts,
    Notes,
    assign_ids,
    child_line,
    is_text,
    media_type_of,
    read_child_result,
    summary_of,
)

DIGEST = "8f178203af64" + "0" * 52


def make_value(**members: Any) -> dict[str, Any]:
    return {
        "schema": "odek.artifact-ref/v1",
        "id": "report",
        "uri": "file:///r/report.txt",
        "media_type": "text/plain",
        "sha256": DIGEST,
        "size_bytes": 31,
        **members,
    }


def make_ref(**members: Any) -> ArtifactRef:
    return read_ref(make_value(**members), place="it")


def test_ids_are_stems() -> None:
    assert assign_ids(["report.md", "data.tar.gz", "A1_-.x", "plain", "0"]) == {
        "report.md": "report",
        "data.tar.gz": "data.tar",
        "A1_-.x": "A1_-",
        "plain": "plain",
        "0": "0",
    }


def test_files_with_one_stem_have_ids_of_their_own() -> None:
    names = ["a-2.txt", "a.csv", "a.md", "a.txt", "x" * 64 + ".a", "x" * 64 + ".b"]
    ids = assign_ids(names)
    assert [ids[name] for name in names] == ["a-2", "a", "a-3", "a-4", "x" * 64, "x" * 62 + "-2"]


def test_names_that_are_no_ids() -> None:
    names = [".hidden", "a b.txt", "artifact-1.txt", "é.md", "\udcff.bin", "-x", "x" * 65]
    ids = assign_ids(names)
    assert [ids[name] for name in names] == [
        "artifact-2", "artifact-3", "artifact-1", "artifact-4", "artifact-5", "artifact-6", "artifact-7",
    ]  # fmt: skip


@settings(max_examples=80)
@given(st.lists(st.text(alphabet="ab.-2", min_size=1, max_size=5) | st.text(min_size=1, max_size=3), unique=True))
def test_ids_are_unique_and_of_the_parents_alphabet(names: list[str]) -> None:
    ids = assign_ids(names)
    assert set(ids) == set(names)
    assert len(set(ids.values())) == len(names)
    refs, notes = read_child_result({"artifacts": [make_value(id=i, size_bytes=0) for i in list(ids.values())[:64]]})
    assert (len(refs), notes) == (min(len(names), 64), ())


def test_media_types_come_from_the_ending() -> None:
    expected = {
        "a.md": "text/markdown", "a.TXT": "text/plain", "a.log": "text/plain", "a.csv": "text/csv",
        "a.html": "text/html", "a.json": "application/json", "a.yaml": "application/yaml",
        "a.yml": "application/yaml", "a.xml": "application/xml",
    }  # fmt: skip
    assert {name: media_type_of(name) for name in expected} == expected
    assert {media_type_of(name) for name in ("md", "a", "a.exe", "a.md.gz", ".", "a.")} == {"application/octet-stream"}


@pytest.mark.parametrize(
    ("head", "summary"),
    [
        (b"# Report\nmore", "# Report"),
        (b"\n  \n\tfirst \x1b[31mline\r\nmore", "first  [31mline"),
        (b"x" * 500, "x" * 120),
        (b"\xff\xfe\n", "\ufffd\ufffd"),
        (b"", None),
        (b"\n \n", None),
    ],
)
def test_a_summary_is_the_first_line(head: bytes, summary: str | None) -> None:
    assert summary_of("report.md", head) == summary
    assert summary_of("report.bin", head) is None


@pytest.mark.parametrize("name", ["a b", "100%", "what?", "a#b", "%2e%2e", "é\u2028", "\udcff\udcfe", "~", "a&b<c>"])
def test_any_name_has_a_uri_that_names_it(name: str) -> None:
    uri = file_uri(f"/tasks/{name}")
    assert uri.isascii()
    assert not set(uri) & set('?#"<> ')
    assert parse_file_uri(uri) == f"/tasks/{name}"


def test_what_a_runner_sends_is_what_a_parent_reads() -> None:
    refs = (make_ref(summary="one"), make_ref(id="other", size_bytes=0))
    assert CollectedArtifacts(refs, ("a note",)).to_json() == {
        "artifacts": [make_value(summary="one"), make_value(id="other", size_bytes=0)],
        "artifact_notes": ["a note"],
    }
    assert CollectedArtifacts().to_json() == {}
    sent = {"status": "ok", **CollectedArtifacts(refs, ("a note",)).to_json()}
    assert read_child_result(sent) == (refs, ("a note",))
    assert read_child_result({"status": "ok"}) == ((), ())


@pytest.mark.spec("odek.subagent.bad-ref-dropped")
@pytest.mark.parametrize(
    ("value", "note"),
    [
        (5, "dropped: artifacts[1]: must be an object, not an integer"),
        (make_value(schema="odek.artifact-ref/v2"), "dropped: artifacts[1].schema: must be odek.artifact-ref/v1"),
        (
            make_value(id="b", uri="https://x/y"),
            "dropped: artifacts[1].uri (artifact 'b'): only file:// URIs are accepted",
        ),
        (make_value(id="b", uri="file:///r/../x"), "dropped: artifacts[1].uri (artifact 'b'): its path is not clean"),
        (make_value(id="a/../b"), "dropped: artifact 'a/../b': a runner gives no such id"),
        (
            make_value(id="b (text/plain, 1 bytes)"),
            "dropped: artifact 'b (text/plain, 1 bytes)': a runner gives no such",
        ),
        (make_value(id="b\n- forged"), "dropped: artifact 'b\\n- forged': a runner gives no such id"),
        (
            make_value(id="b", media_type="text/plain, 9 bytes"),
            "dropped: artifact 'b': 'text/plain, 9 bytes' is no media",
        ),
        (make_value(id="b", media_type="text\n/x"), "dropped: artifact 'b': 'text\\n/x' is no media type"),
        (
            make_value(id="b", sha256=None),
            "dropped: artifact 'b': it was not measured: sha256 and size_bytes are needed",
        ),
        (make_value(id="b", size_bytes=None), "dropped: artifact 'b': it was not measured"),
        (make_value(id="b", summary="x\ud835"), "dropped: artifact 'b': its summary holds half of a surrogate pair"),
        (make_value(id="first"), "dropped: artifact 'first': an earlier one has the same id"),
        (
            make_value(id="b", size_bytes=67_108_834),
            "dropped: artifact 'b': with it there are more than 67108864 bytes",
        ),
    ],
)
def test_a_bad_reference_is_dropped_and_the_rest_stays(value: Any, note: str) -> None:
    """Fault 113, half: what is wrong without a look at the file."""
    first, last = make_value(id="first"), make_value(id="last", media_type="text/plain; charset=utf-8")
    refs, notes = read_child_result({"artifacts": [first, value, last]})
    assert [ref.id for ref in refs] == ["first", "last"]
    assert len(notes) == 1
    assert notes[0].startswith(note)


@pytest.mark.spec("odek.subagent.bad-ref-dropped")
def test_a_result_that_is_none() -> None:
    assert read_child_result([]) == ((), ("its result is no object but an array",))
    assert read_child_result({"artifacts": {}, "artifact_notes": "x"}) == (
        (),
        ("artifact_notes is no array but a string", "artifacts is no array but an object"),
    )
    assert read_child_result({"artifacts": None, "artifact_notes": [1, None]}) == ((), ())


def test_a_task_sends_64_references_and_as_many_notes() -> None:
    values = [make_value(id=f"a{n}", size_bytes=0) for n in range(MAX_ARTIFACTS + 3)]
    refs, notes = read_child_result({"artifacts": values, "artifact_notes": ["\x1b[31m" + "n" * 500]})
    assert [ref.id for ref in refs] == [f"a{n}" for n in range(64)]
    assert notes == ("\\x1b[31m" + "n" * 245 + "...", "artifacts: 3 are left out, at most 64 are taken")
    many = Notes()
    for n in range(MAX_CHILD_NOTES + 2):
        many.add(str(n))
    assert many.texts == (*map(str, range(64)), "2 more notes are left out")


@pytest.mark.spec("odek.subagent.read-by-id")
def test_the_line_of_an_artifact() -> None:
    assert child_line(make_ref(summary="All\npassed \u202e"), 2) == (
        "- report (text/plain, 31 bytes, sha256:8f178203af64, task 2) \u2014 All passed  "
    )
    assert child_line(make_ref(size_bytes=0), 0) == "- report (text/plain, 0 bytes, sha256:8f178203af64, task 0)"
    assert [is_text(make_ref(media_type=kind)) for kind in ("text/x", "application/json", "xtext/a")] == [
        True,
        False,
        False,
    ]
