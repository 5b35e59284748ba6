"""Artifact references: everything that is judged without looking at a file."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from broker.errors import ArtifactError
from broker.wire.odek.artifact_ref import ArtifactRef, parse_file_uri, read_ref

GOOD = {
    "schema": "odek.artifact-ref/v1",
    "id": "report-1",
    "uri": "file:///var/ci/junit.xml",
    "media_type": "application/xml",
}


def refused(value: Any) -> ArtifactError:
    with pytest.raises(ArtifactError) as caught:
        read_ref(value, place="artifacts[2]")
    return caught.value


@pytest.mark.spec("odek.artifact-ref.required", "odek.artifact-ref.summary", "odek.envelope.unknown-field")
def test_a_reference_with_and_without_the_optional_members() -> None:
    """Fault 45: unknown members are ignored."""
    assert read_ref({**GOOD, "future": {"x": 1}}, place="artifacts[0]") == ArtifactRef(
        "report-1", "file:///var/ci/junit.xml", "application/xml", "/var/ci/junit.xml"
    )
    full = read_ref({**GOOD, "sha256": "0f" * 32, "size_bytes": 7, "summary": "Tests"}, place="artifacts[0]")
    assert (full.sha256, full.size_bytes, full.summary) == ("0f" * 32, 7, "Tests")


@pytest.mark.spec("odek.artifact-ref.size-match", "odek.artifact-ref.size-type")
def test_absent_null_and_zero_are_told_apart() -> None:
    """Fault 51: 0 is a size that was declared; null and an empty digest are not."""
    assert read_ref({**GOOD, "size_bytes": 0}, place="x").size_bytes == 0
    absent = read_ref({**GOOD, "size_bytes": None, "sha256": "", "summary": None}, place="x")
    assert (absent.size_bytes, absent.sha256, absent.summary) == (None, None, None)
    assert read_ref({**GOOD, "sha256": None}, place="x").sha256 is None


@pytest.mark.spec(
    "odek.artifact-ref.schema",
    "odek.artifact-ref.required",
    "odek.artifact-ref.hash-form",
    "odek.artifact-ref.size-type",
)
@pytest.mark.parametrize(
    ("members", "path", "problem"),
    [
        ({"schema": "odek.artifact-ref/v2"}, "schema", "must be odek.artifact-ref/v1"),
        ({"schema": None}, "schema", "must be odek.artifact-ref/v1"),
        ({"id": ""}, "id", "must not be empty"),
        ({"id": None}, "id", "must not be empty"),
        ({"id": 7}, "id", "must be a string, not an integer"),
        ({"uri": ""}, "uri", "must not be empty"),
        ({"uri": []}, "uri", "must be a string, not an array"),
        ({"media_type": ""}, "media_type", "must not be empty"),
        ({"media_type": {}}, "media_type", "must be a string, not an object"),
        ({"sha256": "0F" * 32}, "sha256", "must be 64 lower-case hexadecimal digits"),
        ({"sha256": "0f" * 16}, "sha256", "must be 64 lower-case hexadecimal digits"),
        ({"sha256": "0g" * 32}, "sha256", "must be 64 lower-case hexadecimal digits"),
        ({"sha256": "0f" * 32 + "\n"}, "sha256", "must be 64 lower-case hexadecimal digits"),
        ({"sha256": "\u0660" * 64}, "sha256", "must be 64 lower-case hexadecimal digits"),
        ({"sha256": 5}, "sha256", "must be a string, not an integer"),
        ({"size_bytes": -1}, "size_bytes", "must not be negative, as -1 is"),
        ({"size_bytes": True}, "size_bytes", "must be an integer, not a boolean"),
        ({"size_bytes": 7.0}, "size_bytes", "must be an integer, not a fraction"),
        ({"size_bytes": "7"}, "size_bytes", "must be an integer, not a string"),
        ({"summary": 7}, "summary", "must be a string, not an integer"),
    ],
)
def test_a_bad_member_is_named_with_its_place_and_the_id(members: dict[str, Any], path: str, problem: str) -> None:
    """Fault 67, 68 and 71, as far as they need no file."""
    error = refused({**GOOD, **members})
    assert error.path == f"artifacts[2].{path}"
    assert problem in str(error)
    if path not in ("schema", "id"):
        assert error.artifact == "report-1" and "(artifact 'report-1')" in str(error)


@pytest.mark.spec("odek.artifact-ref.required")
@pytest.mark.parametrize("key", ["schema", "id", "uri", "media_type"])
def test_a_missing_member_is_refused(key: str) -> None:
    """Fault 71."""
    error = refused({name: value for name, value in GOOD.items() if name != key})
    assert error.path == f"artifacts[2].{key}"


@pytest.mark.parametrize("value", [None, "x", 7, []])
def test_a_reference_is_an_object(value: Any) -> None:
    assert "artifacts[2]: must be an object" in str(refused(value))


@pytest.mark.spec("odek.artifact-ref.uri-scheme", "odek.artifact-ref.uri-decoded-once")
@pytest.mark.parametrize(
    ("uri", "path"),
    [
        ("file:///a", "/a"),
        ("FILE:///a/b.txt", "/a/b.txt"),
        ("file:///a%20b", "/a b"),
        ("file:///a b", "/a b"),
        ("file:///a%2Fb", "/a/b"),
        ("file:///a/%252e%252e/b", "/a/%2e%2e/b"),
        ("file:///a%3Fq%23f", "/a?q#f"),
        ("file:///caf%C3%A9", "/café"),
        ("file:///café", "/café"),
        ("file:///%FF", "/\udcff"),
        ("file:///...", "/..."),
        ("file:///a/..b/.c", "/a/..b/.c"),
        ("file:///a:b@c", "/a:b@c"),
    ],
)
def test_the_path_is_decoded_once(uri: str, path: str) -> None:
    assert parse_file_uri(uri) == path


# fmt: off
BAD_URIS = [
    "http://x/a", "https://x/a", "ftp://x/a", "", "/a", "a", "file", "filex:///a", " file:///a", "data:,x",
    "file:/a", "file:a", "file:", "file://", "file://host/a", "file://localhost/a", "file://user@/a", "file://u:p@h/a",
    "file://127.0.0.1:80/a", "file:////a", "file:\\\\\\a",
    "file:///a?q", "file:///a#f", "file:///a?", "file:///a#", "file:///?", "file:///a%", "file:///a%2", "file:///a%zz",
    "file:///a%+1", "file:///a%0", "file:///a\n", "file:///a\tb", "file:///a\x7f", "file:///a\x85",
    "file:///a%00", "file:///a/%00/b",
    "file:///", "file:///a/", "file:///a//b", "file:///a/./b", "file:///.", "file:///a/.", "file:///..", "file:///a/..",
    "file:///a/../b", "file:///a/%2e%2e/b", "file:///a/%2E%2e", "file:///a/.%2e/b", "file:///a/%2e/b", "file:///a%2F%2Fb",
    "file:///a%2F..%2Fb", "file:///a%2F", "file:///%2F",
]
# fmt: on


@pytest.mark.spec(
    "odek.artifact-ref.uri-scheme",
    "odek.artifact-ref.uri-parts",
    "odek.artifact-ref.uri-nul",
    "odek.artifact-ref.path-clean",
    "odek.artifact-ref.path-traversal",
)
@pytest.mark.parametrize("uri", BAD_URIS)
def test_any_other_uri_is_refused(uri: str) -> None:
    """Fault 63 and 64."""
    with pytest.raises(ArtifactError) as caught:
        parse_file_uri(uri)
    assert caught.value.path == "uri"
    if uri:
        error = refused({**GOOD, "uri": uri})
        assert (error.path, error.artifact) == ("artifacts[2].uri", "report-1")


def test_a_refused_path_is_not_told() -> None:
    assert "private" not in str(refused({**GOOD, "uri": "file:///private/../x"}))


@settings(max_examples=300, deadline=None)
@given(st.text(alphabet="/.%2eEfF0aé\0\n?#:\\", max_size=20))
def test_a_path_that_passes_is_always_clean(rest: str) -> None:
    try:
        path = parse_file_uri(f"file://{rest}")
    except ArtifactError:
        return
    assert path.startswith("/") and "\0" not in path
    assert all(element not in ("", ".", "..") for element in path[1:].split("/"))
