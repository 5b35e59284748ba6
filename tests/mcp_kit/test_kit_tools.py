"""The kit for servers: what becomes of a typed function, and what is refused while the server is being written."""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any, Literal
from urllib.parse import unquote

import pytest

from broker.adapters.artifacts import ArtifactRoots
from broker.adapters.mcp_server import Context, Envelope, Server
from broker.errors import ResourceExhaustedError, UsageError
from broker.limits import MAX_ARTIFACT_BYTES, MAX_ARTIFACTS, MAX_INPUT_SCHEMA_BYTES
from broker.wire.odek.artifact_ref import read_ref
from broker.wire.odek.envelope import detect

# -- schemas -----------------------------------------------------------------------------------------------------------


def schema_of(function: Callable[..., Any]) -> Any:
    server = Server("s")
    server.tool(function)
    return server._tools[0].input_schema


def test_types_become_a_schema() -> None:
    def many(
        text: str,
        count: int,
        ratio: float,
        flag: bool,
        anything: Any,
        words: list[str],
        table: dict[str, list[int]],
        choice: Literal["a", 1],
        context: Context,
        maybe: str | None = None,
        either: int | str = 0,
    ) -> str:
        """Do it."""
        return ""

    assert schema_of(many) == {
        "type": "object",
        "properties": {
            "text": {"type": "string"},
            "count": {"type": "integer"},
            "ratio": {"type": "number"},
            "flag": {"type": "boolean"},
            "anything": {},
            "words": {"type": "array", "items": {"type": "string"}},
            "table": {"type": "object", "additionalProperties": {"type": "array", "items": {"type": "integer"}}},
            "choice": {"enum": ["a", 1]},
            "maybe": {"anyOf": [{"type": "string"}, {"type": "null"}]},
            "either": {"anyOf": [{"type": "integer"}, {"type": "string"}]},
        },
        "required": ["text", "count", "ratio", "flag", "anything", "words", "table", "choice"],
    }


def test_no_parameters_are_an_empty_object() -> None:
    def nothing() -> str:
        """Do it."""
        return ""

    assert schema_of(nothing) == {"type": "object", "properties": {}}


def unannotated(text) -> str:  # type: ignore[no-untyped-def]
    """Do it."""
    return str(text)


def positional(text: str, /) -> str:
    """Do it."""
    return text


def several(*texts: str) -> str:
    """Do it."""
    return "".join(texts)


def keywords(**texts: str) -> str:
    """Do it."""
    return "".join(texts)


def bytes_in(data: bytes) -> str:
    """Do it."""
    return ""


def bare_list(data: list) -> str:  # type: ignore[type-arg]
    """Do it."""
    return ""


def integer_keys(data: dict[int, str]) -> str:
    """Do it."""
    return ""


def nested_bytes(data: list[dict[str, bytes | None]]) -> str:
    """Do it."""
    return ""


def literal_bytes(data: Literal[b"x"]) -> str:
    """Do it."""
    return ""


def unknown_name(data: Nowhere) -> str:  # type: ignore[name-defined] # noqa: F821
    """Do it."""
    return ""


def undocumented(text: str) -> str:
    return text


@pytest.mark.parametrize(
    ("function", "problem"),
    [
        (unannotated, "tool unannotated: parameter text needs a type annotation"),
        (positional, "tool positional: parameter text must be callable by name"),
        (several, "tool several: parameter texts must be callable by name"),
        (keywords, "tool keywords: parameter texts must be callable by name"),
        (bytes_in, "tool bytes_in: parameter data has the type <class 'bytes'>, which has no JSON schema here"),
        (bare_list, "tool bare_list: parameter data has the type <class 'list'>, which has no JSON schema here"),
        (integer_keys, "tool integer_keys: parameter data has the type dict[int, str], which has no JSON schema here"),
        (nested_bytes, "has no JSON schema here"),
        (literal_bytes, "has no JSON schema here"),
        (unknown_name, "tool unknown_name: its annotations cannot be read: name 'Nowhere' is not defined"),
        (undocumented, "tool undocumented needs a docstring: it is what the model reads"),
    ],
)
def test_what_cannot_be_a_tool_is_refused_at_once(function: Callable[..., Any], problem: str) -> None:
    server = Server("s")
    with pytest.raises(UsageError) as caught:
        server.tool(function)
    assert str(caught.value).endswith(problem)
    assert server._tools == []


@pytest.mark.spec("odek.names.length", "odek.names.alphabet", "odek.names.double-underscore")
@pytest.mark.parametrize("name", ["", "x" * 65, "a__b", "é", "a b", "a.b"])
def test_bad_names_are_refused(name: str) -> None:
    def tool() -> str:
        """Do it."""
        return ""

    tool.__name__ = name
    server = Server("s")
    with pytest.raises(UsageError, match=r"^tool name: "):
        server.tool(tool)
    assert server._tools == []


@pytest.mark.spec("odek.names.duplicate")
def test_a_duplicate_is_refused_and_the_first_stays() -> None:
    server = Server("s")

    @server.tool
    def echo() -> str:
        """One."""
        return "one"

    def second() -> str:
        """Two."""
        return "two"

    second.__name__ = "echo"
    with pytest.raises(UsageError, match=r"^tool echo is there already$"):
        server.tool(second)
    assert [tool.description for tool in server._tools] == ["One."]
    assert echo() == "one"


@pytest.mark.spec("odek.names.schema-bound")
def test_a_schema_has_a_bound() -> None:
    def tool(choice: str) -> str:
        """Do it."""
        return choice

    tool.__annotations__["choice"] = Literal[tuple("x" * 1_000 + str(n) for n in range(300))]  # type: ignore[misc]
    with pytest.raises(ResourceExhaustedError) as caught:
        Server("s").tool(tool)
    assert (caught.value.limit, caught.value.maximum) == ("MAX_INPUT_SCHEMA_BYTES", MAX_INPUT_SCHEMA_BYTES)


# -- envelopes and artifacts -------------------------------------------------------------------------------------------


@pytest.fixture
def server(tmp_path: Path) -> Server:
    return Server("s", artifact_root=tmp_path)


@pytest.mark.spec("odek.server.artifact-complete")
@pytest.mark.parametrize("directory", ["plain", "with space", "100%", "what?", "a#b", "é\u2028", "%2e%2e"])
def test_an_artifact_is_what_a_host_accepts(tmp_path: Path, directory: str) -> None:
    root = tmp_path / directory
    root.mkdir()
    made = Server("s", artifact_root=root).artifact(
        "r-1", "né", media_type="text/plain", summary="All", suffix=".tx t%"
    )
    assert made["uri"].startswith("file:///")
    assert made["uri"].isascii()
    path = Path(unquote(made["uri"].removeprefix("file://")))
    assert path.parent == root
    assert path.name.endswith(".tx t%")
    assert path.read_bytes() == "né".encode()
    assert {key: made[key] for key in made if key != "uri"} == {
        "schema": "odek.artifact-ref/v1",
        "id": "r-1",
        "media_type": "text/plain",
        "sha256": hashlib.sha256("né".encode()).hexdigest(),
        "size_bytes": 3,
        "summary": "All",
    }
    ArtifactRoots([str(root)]).verify(read_ref(made, place="it"))
    assert os.listdir(root) == [path.name]


def test_a_root_that_is_not_clean_gives_clean_references(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "root").mkdir()
    (tmp_path / "link").symlink_to("root")
    monkeypatch.chdir(tmp_path)
    for written in ("root/../link", "./link/", str(tmp_path / "root" / ".." / "root")):
        ref = read_ref(Server("s", artifact_root=written).artifact("r", b"", media_type="x/y"), place="it")
        ArtifactRoots(["root"]).verify(ref)
        assert ref.path.startswith(f"{tmp_path / 'root'}/")


@pytest.mark.parametrize(
    ("members", "path"),
    [
        ({"artifact_id": ""}, "artifact_id"),
        ({"artifact_id": "a\nb"}, "artifact_id"),
        ({"artifact_id": "x" * 4_097}, "artifact_id"),
        ({"media_type": ""}, "media_type"),
        ({"media_type": "text/\x1b"}, "media_type"),
        ({"summary": "two\nlines"}, "summary"),
        ({"summary": "\u202e"}, "summary"),
        ({"suffix": "/../../x"}, "suffix"),
        ({"suffix": "\0"}, "suffix"),
    ],
)
def test_what_would_be_refused_or_misread_is_not_written(
    server: Server, tmp_path: Path, members: dict[str, str], path: str
) -> None:
    given: dict[str, Any] = {"artifact_id": "a", "media_type": "text/plain", **members}
    with pytest.raises(UsageError) as caught:
        server.artifact(given.pop("artifact_id"), b"x", **given)
    assert caught.value.path == path
    assert os.listdir(tmp_path) == []


def test_without_a_root_there_are_no_artifacts() -> None:
    with pytest.raises(UsageError, match=r"^this server has no artifact_root$"):
        Server("s").artifact("a", b"x", media_type="x/y")


@pytest.mark.spec("odek.artifact-ref.size-bound")
def test_an_artifact_has_a_bound(server: Server, tmp_path: Path) -> None:
    with pytest.raises(ResourceExhaustedError) as caught:
        server.artifact("a", bytes(MAX_ARTIFACT_BYTES + 1), media_type="x/y")
    assert (caught.value.limit, caught.value.observed) == ("MAX_ARTIFACT_BYTES", MAX_ARTIFACT_BYTES + 1)
    assert os.listdir(tmp_path) == []


@pytest.mark.spec("odek.server.artifact-complete")
def test_an_artifact_is_written_whole(server: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Written in part writes, synced, renamed, and the directory synced: in this order, and only then named."""
    steps: list[Any] = []
    real_write, real_fsync, real_rename = os.write, os.fsync, os.rename

    def write(descriptor: int, data: bytes) -> int:
        steps.append("write")
        return real_write(descriptor, bytes(data[:4]))

    def fsync(descriptor: int) -> None:
        found = os.readlink(f"/proc/self/fd/{descriptor}")
        steps.append(("fsync", Path(found).name, [path.name for path in tmp_path.iterdir()]))
        real_fsync(descriptor)

    def rename(source: str, target: str) -> None:
        steps.append(("rename", Path(source).name, Path(target).name, Path(source).stat().st_size))
        real_rename(source, target)

    for name, function in (("write", write), ("fsync", fsync), ("rename", rename)):
        monkeypatch.setattr(os, name, function)
    ref = read_ref(server.artifact("a", b"0123456789", media_type="x/y"), place="it")
    name = Path(ref.path).name
    assert name.startswith("artifact-")
    temporary = steps[3][1]
    assert temporary.startswith(f".{name}-")
    assert steps == [
        "write",
        "write",
        "write",
        ("fsync", temporary, [temporary]),
        ("rename", temporary, name, 10),
        ("fsync", tmp_path.name, [name]),
    ]


@pytest.mark.parametrize("failing", ["write", "fsync", "rename"])
def test_what_could_not_be_written_leaves_nothing(
    server: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, failing: str
) -> None:
    def fail(*_: Any) -> Any:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, failing, fail)
    with pytest.raises(OSError, match="No space left"):
        server.artifact("a", b"x", media_type="x/y")
    monkeypatch.undo()
    assert os.listdir(tmp_path) == []
    assert not [name for name in map(_target, os.listdir("/proc/self/fd")) if name.startswith(str(tmp_path))]


def _target(descriptor: str) -> str:
    try:
        return os.readlink(f"/proc/self/fd/{descriptor}")
    except FileNotFoundError:
        return ""


def test_a_root_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        Server("s", artifact_root=tmp_path / "missing").artifact("a", b"x", media_type="x/y")
    assert os.listdir(tmp_path) == []


@pytest.mark.spec("odek.envelope.schema", "odek.envelope.single-item")
def test_an_envelope_is_what_a_host_detects(server: Server) -> None:
    refs = [server.artifact(f"r{n}", b"x", media_type="x/y") for n in range(MAX_ARTIFACTS)]
    text = Envelope("né \ud835", refs).to_json()
    found = detect(text)
    assert found is not None
    assert len(found.artifacts) == MAX_ARTIFACTS
    assert json.loads(text) == {"schema": "odek.tool-result/v1", "text": "né \ufffd", "artifacts": refs}


@pytest.mark.spec("odek.envelope.artifact-count", "odek.artifact-ref.id-unique")
def test_an_envelope_has_bounds() -> None:
    with pytest.raises(ResourceExhaustedError, match=r"^65 artifacts in one result, at most 64 are accepted$"):
        Envelope("x", [{"id": str(n)} for n in range(65)]).to_json()
    with pytest.raises(UsageError, match=r"^two artifacts of one result have the same id$"):
        Envelope("x", [{"id": "a"}, {"id": "b"}, {"id": "a"}]).to_json()
