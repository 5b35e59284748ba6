"""References to outside state: what each may be, which are one, what a command line may say."""

from __future__ import annotations

import re
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from broker.errors import InvalidParamsError, ResourceExhaustedError
from broker.limits import MAX_EXTERNAL_REFS
from broker.testing import ManualClock
from broker.wire.odek.external_ref import (
    ExternalRef,
    ExternalRefs,
    parse_external_ref,
    read_external_ref,
    read_external_refs,
    rfc3339,
)
from broker.wire.odek.strict_json import loads

URI = "https://ci.example.test/runs/4821"
TIME = "2026-08-07T12:00:00Z"
WHOLE = {"kind": "ci-run", "uri": URI, "created_by": "ci-orchestrator", "read_only": True, "created_at": TIME}


def make_ref(**members: Any) -> ExternalRef:
    return ExternalRef(**{"kind": "ci-run", "uri": URI, "created_by": "ci-orchestrator", **members})


def refused(**members: Any) -> InvalidParamsError:
    """The error for a reference of these members, which is the same however it is made."""
    with pytest.raises(InvalidParamsError) as read:
        read_external_ref({**WHOLE, **members})
    with pytest.raises(InvalidParamsError) as made:
        make_ref(**members)
    assert read.value.faults[0].problem == made.value.faults[0].problem
    return made.value


@pytest.mark.spec("odek.external-ref.kind", "odek.external-ref.uri", "odek.external-ref.created-by")
def test_a_reference_as_the_contract_shows_it() -> None:
    ref = read_external_ref(WHOLE)
    assert ref == make_ref(read_only=True, created_at=TIME)
    assert ref.to_json() == WHOLE
    assert list(ref.to_json()) == ["kind", "uri", "created_by", "read_only", "created_at"]
    bare = read_external_ref({"kind": "k", "uri": "u", "created_by": "c", "read_only": None, "later": {"v": 2}})
    assert bare.to_json() == {"kind": "k", "uri": "u", "created_by": "c"}
    assert read_external_ref({**WHOLE, "read_only": False}).to_json() == {
        key: value for key, value in WHOLE.items() if key != "read_only"
    }


@pytest.mark.spec("odek.external-ref.kind")
@pytest.mark.parametrize("kind", ["a", "ci-run", "0_-z", "a" * 64])
def test_kinds(kind: str) -> None:
    assert make_ref(kind=kind).kind == kind


@pytest.mark.spec("odek.external-ref.kind")
@pytest.mark.parametrize("kind", ["CI", "a b", "a/b", "é", "a.b", "a\n", "\uff41", "\u0663"])
def test_other_kinds(kind: str) -> None:
    """Fault 104."""
    error = refused(kind=kind)
    assert error.path == "kind"
    assert error.faults[0].problem.startswith("may hold only a-z, 0-9, _ and -, not ")


@pytest.mark.spec("odek.external-ref.uri")
@pytest.mark.parametrize("uri", ["x", "urn:isbn:1", "s3://bucket/a b,c=d", "C:\\x", "not a uri", "//x", "é" * 2048])
def test_uris_are_opaque(uri: str) -> None:
    assert make_ref(uri=uri).uri == uri


@pytest.mark.spec("odek.external-ref.uri", "odek.external-ref.created-by")
@pytest.mark.parametrize("member", ["uri", "created_by"])
@pytest.mark.parametrize("character", ["\n", "\0", "\t", "\x7f", "\x85", "\x1b"])
def test_control_characters_are_refused(member: str, character: str) -> None:
    """Fault 104."""
    for text in (f"a{character}", f"{character}a"):
        error = refused(**{member: text})
        assert str(error) == f"external ref: {member}: holds a control character"


@pytest.mark.spec(
    "odek.external-ref.kind", "odek.external-ref.uri", "odek.external-ref.created-by", "odek.external-ref.characters"
)
@pytest.mark.parametrize(
    ("member", "limit", "maximum", "character"),
    [
        ("kind", "MAX_EXTERNAL_KIND_CHARS", 64, "a"),
        ("uri", "MAX_EXTERNAL_URI_CHARS", 2_048, "\U0001f600"),
        ("created_by", "MAX_EXTERNAL_AUTHOR_CHARS", 128, "\U0001f600"),
    ],
)
def test_lengths_count_characters(member: str, limit: str, maximum: int, character: str) -> None:
    """Fault 104."""
    assert getattr(make_ref(**{member: character * maximum}), member) == character * maximum
    assert str(refused(**{member: ""})) == f"external ref: {member}: must not be empty"
    error = refused(**{member: character * (maximum + 1)})
    assert (error.limit, error.observed, error.maximum, error.path) == (limit, maximum + 1, maximum, member)


def test_what_no_file_can_hold() -> None:
    for member in ("uri", "created_by"):
        assert refused(**{member: "a\ud835"}).path == member


@pytest.mark.parametrize(
    ("members", "problem"),
    [
        ({"kind": None}, "kind: is missing"),
        ({"uri": 5}, "uri: must be a string, not an integer"),
        ({"created_by": ["a"]}, "created_by: must be a string, not an array"),
        ({"read_only": "true"}, "read_only: must be a boolean, not a string"),
        ({"read_only": 1}, "read_only: must be a boolean, not an integer"),
        ({"created_at": 5}, "created_at: must be a time as in RFC 3339, not an integer"),
        ({"created_at": ""}, "created_at: must be a time as in RFC 3339, not ''"),
    ],
)
def test_another_type(members: dict[str, Any], problem: str) -> None:
    assert str(refused(**members)) == f"external ref: {problem}"


@pytest.mark.spec("odek.external-ref.created-at")
@pytest.mark.parametrize(
    "time",
    [
        TIME,
        "2026-08-07t12:00:00z",
        "2026-08-07T12:00:00.123456789+05:30",
        "2016-12-31T23:59:60Z",
        "2024-02-29T00:00:00-00:00",
    ],
)
def test_a_time_is_kept_as_it_is_given(time: str) -> None:
    refs = ExternalRefs(ManualClock())
    refs.add([make_ref(created_at=time)])
    assert [ref.created_at for ref in refs] == [time]


@pytest.mark.spec("odek.external-ref.created-at")
@pytest.mark.parametrize(
    "time",
    [
        "2026-08-07", "2026-08-07 12:00:00Z", "2026-08-07T12:00:00", "2026-13-07T12:00:00Z", "2026-02-30T12:00:00Z",
        "2026-08-07T25:00:00Z", "2026-08-07T12:00:00.Z", "2026-08-07T12:00:00+24:00", "yesterday", f"{TIME}\n",
        "2026-08-07T12:00:0\u0663Z", f"{TIME[:-1]}.{'1' * 5000}Z",
    ],
)  # fmt: skip
def test_what_is_no_time(time: str) -> None:
    assert refused(created_at=time).path == "created_at"


@pytest.mark.spec("odek.external-ref.created-at")
def test_a_reference_without_a_time_gets_the_time_of_now() -> None:
    clock = ManualClock(unix_ms=1_786_104_000_999)
    refs = ExternalRefs(clock)
    refs.add([make_ref()])
    clock.advance_ms(60_000)
    refs.add([make_ref(kind="later"), make_ref()])
    assert [ref.created_at for ref in refs] == ["2026-08-07T12:00:00Z", "2026-08-07T12:01:00Z"]
    assert rfc3339(0) == "1970-01-01T00:00:00Z"


def test_all_faults_are_found_at_once_with_their_places() -> None:
    with pytest.raises(InvalidParamsError) as caught:
        read_external_refs([WHOLE, {"kind": "A", "uri": "\n"}, 5, {**WHOLE, "created_by": "x" * 129}])
    assert [fault.path for fault in caught.value.faults] == [
        "external_refs[1].kind",
        "external_refs[1].uri",
        "external_refs[1].created_by",
        "external_refs[2]",
        "external_refs[3].created_by",
    ]
    with pytest.raises(InvalidParamsError, match="external_refs: must be an array, not an object"):
        read_external_refs({})
    assert read_external_refs(None) == ()
    with pytest.raises(InvalidParamsError, match="'uri': stands twice"):
        read_external_ref(loads(b'{"kind":"k","uri":"a","uri":"b","created_by":"c"}'))


@pytest.mark.spec("odek.external-ref.deduplicated")
def test_the_same_reference_twice_is_one() -> None:
    """Fault 105: kind, URI and author decide, and the first stays."""
    refs = ExternalRefs(ManualClock())
    assert refs.add([make_ref(read_only=True, created_at=TIME), make_ref()]) == 1
    assert refs.add([make_ref(), make_ref(created_by="other"), make_ref(kind="other"), make_ref(uri="other")]) == 3
    assert refs.add([make_ref()]) == 0
    assert [ref.key for ref in refs] == [
        ("ci-run", URI, "ci-orchestrator"),
        ("ci-run", URI, "other"),
        ("other", URI, "ci-orchestrator"),
        ("ci-run", "other", "ci-orchestrator"),
    ]
    assert next(iter(refs)) == make_ref(read_only=True, created_at=TIME)


@pytest.mark.spec("odek.external-ref.deduplicated")
def test_references_are_compared_as_they_are_kept() -> None:
    """Fault 105: a secret in the URI, saved, added again, is still one reference."""

    def redact(text: str) -> str:
        return text.replace("hunter2-hunter2", "[REDACTED]")

    secret = make_ref(uri="https://u:hunter2-hunter2@ci.test/1")
    refs = ExternalRefs(ManualClock(), redact=redact)
    assert refs.add([secret, secret]) == 1
    again = ExternalRefs(ManualClock(), read_external_refs(refs.to_json()), redact=redact)
    assert again.add([secret]) == 0
    assert again.to_json() == refs.to_json()
    assert [ref.uri for ref in again] == ["https://u:[REDACTED]@ci.test/1"]


@pytest.mark.spec("odek.external-ref.deduplicated")
def test_a_secret_that_another_one_hid_is_found() -> None:
    """A redaction may see one secret only once another is gone; what is kept is what it finds nothing more in."""
    rounds: list[str] = []

    def redact(text: str) -> str:
        rounds.append(text)
        return re.sub(r"\bsk-\w+", "[X]", text.replace("hunter2", "[X]"))

    secret = make_ref(uri="https://ci.test/hunter2sk-secret")
    refs = ExternalRefs(ManualClock(), [secret], redact=redact)
    assert [ref.uri for ref in refs] == ["https://ci.test/[X][X]"]
    assert len(rounds) == 2
    assert ExternalRefs(ManualClock(), refs, redact=redact).add([secret]) == 0

    def restless(text: str) -> str:
        rounds.append(text)
        return text + "."

    rounds.clear()
    ExternalRefs(ManualClock(), [secret], redact=restless)
    assert len(rounds) == 8


def test_what_cannot_be_kept_keeps_nothing() -> None:
    refs = ExternalRefs(ManualClock(), [make_ref()], redact=lambda text: text.replace("s", "[REDACTED]"))
    before = refs.to_json()
    with pytest.raises(InvalidParamsError) as caught:
        refs.add([make_ref(kind="fine"), make_ref(uri="s" * 500)])
    assert (caught.value.limit, caught.value.observed) == ("MAX_EXTERNAL_URI_CHARS", 5_000)
    with pytest.raises(ResourceExhaustedError) as full:
        refs.add(make_ref(uri=str(n)) for n in range(MAX_EXTERNAL_REFS))
    assert (full.value.limit, full.value.observed, full.value.maximum) == ("MAX_EXTERNAL_REFS", 1_025, 1_024)
    assert refs.to_json() == before
    assert refs.add(make_ref(uri=str(n)) for n in range(MAX_EXTERNAL_REFS - 1)) == len(refs) - 1 == 1_023


@pytest.mark.parametrize(
    ("text", "ref"),
    [
        ("ci-run=https://x/?a=1,b=2&c=,d", ExternalRef("ci-run", "https://x/?a=1,b=2&c=,d", "cli")),
        ("kind=x", ExternalRef("kind", "x", "cli")),
        ("uri=https://x", ExternalRef("uri", "https://x", "cli")),
        ("dash==", ExternalRef("dash", "=", "cli")),
        ("kind=k,uri=https://x/?a=1", ExternalRef("k", "https://x/?a=1", "cli")),
        ("uri=u,read_only=true,kind=k,created_by=me", ExternalRef("k", "u", "me", read_only=True)),
        ("kind=k,uri=a,b,,c,read_only=false", ExternalRef("k", "a,b,,c", "cli")),
        ("created_by=a b,kind=k,uri=u,1=2", ExternalRef("k", "u,1=2", "a b")),
    ],
)
def test_what_a_command_line_may_say(text: str, ref: ExternalRef) -> None:
    """Fault 106: a URI's commas and equals signs are its own."""
    assert parse_external_ref(text) == ref


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("ci-run", "'ci-run' is not KIND=URI"),
        ("", "'' is not KIND=URI"),
        ("=x", "kind: must not be empty"),
        ("k=", "uri: must not be empty"),
        ("CI=x", "kind: may hold only a-z, 0-9, _ and -, not 'CI'"),
        ("kind=k,uri=u,owner=me", "'owner' is none of kind, uri, created_by, read_only"),
        ("kind=k,what,uri=u", "'what' is none of kind, uri, created_by, read_only"),
        ("kind=k,uri=u,read_only=yes", "read_only: must be true or false, not 'yes'"),
        ("kind=k,uri=u,read_only=", "read_only: must be true or false, not ''"),
        ("kind=k,uri=u,kind=l", "kind: stands twice"),
        ("kind=k,created_by=me", "uri: is missing"),
        ("uri=u,created_by=me", "kind: is missing"),
        ("kind=k,uri=u,created_by=", "created_by: must not be empty"),
    ],
)
def test_what_a_command_line_may_not_say(text: str, problem: str) -> None:
    with pytest.raises(InvalidParamsError) as caught:
        parse_external_ref(text)
    assert str(caught.value) == f"external ref: {problem}"


@settings(max_examples=80)
@given(st.text(alphabet=st.characters(exclude_categories=["Cc", "Cs"]), min_size=1, max_size=40))
def test_any_uri_can_be_given_and_comes_back(uri: str) -> None:
    ref = parse_external_ref(f"run={uri}")
    assert (ref.kind, ref.uri) == ("run", uri)
    assert read_external_ref(ref.to_json()) == ref
