"""The session file: what is kept beside references, what is refused, what a crash or a rival leaves."""

from __future__ import annotations

import json
import os
import socket
import stat
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from broker.adapters.session_file import SessionFile
from broker.errors import BrokerError, ConfigError, InvalidParamsError, ResourceExhaustedError, SetupError
from broker.testing import ManualClock
from broker.wire.odek import session_document
from broker.wire.odek.external_ref import ExternalRef
from broker.wire.odek.session_document import SessionDocument, read_session_document

REF = ExternalRef("ci-run", "https://ci.example.test/runs/4821", "ci-orchestrator")
STORED = {**REF.to_json(), "created_at": "2026-08-07T12:00:00Z"}


@pytest.fixture
def file(tmp_path: Path) -> SessionFile:
    return SessionFile(tmp_path / "session.json", clock=ManualClock(unix_ms=1_786_104_000_000))


def content(file: SessionFile) -> Any:
    return json.loads(Path(file.path).read_text())


@pytest.mark.spec("odek.external-ref.deduplicated", "odek.external-ref.created-at")
def test_a_file_is_made_when_there_is_something_to_keep(file: SessionFile) -> None:
    assert file.load() == ()
    assert file.add([]) == 0
    assert not os.path.lexists(file.path)
    assert file.add([REF, REF]) == 1
    assert content(file) == {"external_refs": [STORED]}
    assert stat.S_IMODE(os.stat(file.path).st_mode) == 0o600
    before = os.stat(file.path)
    assert file.add([REF]) == 0
    assert os.stat(file.path).st_ino == before.st_ino
    assert [ref.to_json() for ref in SessionFile(file.path).load()] == [STORED]


def test_what_else_is_in_the_file_stays_as_it_was_written(file: SessionFile) -> None:
    others = '"z" : 123456789012345678901234567890, "a": [1.0, 1e5, {"b" :null, "b": 2}],'
    others += '"\\u0061b\\n":"\\u00e9",\n"s":"}]\\""'
    Path(file.path).write_text(f'  {{{others}, "external_refs": [] }}\n', encoding="utf-8")
    os.chmod(file.path, 0o640)
    file.add([REF])
    text = Path(file.path).read_text(encoding="utf-8")
    for member in ("123456789012345678901234567890", '[1.0, 1e5, {"b" :null, "b": 2}]', '"\\u00e9"', '"}]\\""'):
        assert member in text
    assert list(content(file)) == ["z", "a", "ab\n", "s", "external_refs"]
    assert stat.S_IMODE(os.stat(file.path).st_mode) == 0o640


VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(max_size=8),
    lambda below: st.lists(below, max_size=3) | st.dictionaries(st.text(max_size=4), below, max_size=3),
    max_leaves=8,
)


@settings(max_examples=80)
@given(
    st.dictionaries(st.text(max_size=6).filter(lambda key: key != "external_refs"), VALUES, max_size=4),
    st.integers(0, 4),
)
def test_any_member_is_kept_to_the_letter(members: dict[str, Any], indent: int) -> None:
    texts = {key: json.dumps(value, indent=indent) for key, value in members.items()}
    written = " {" + " ,".join(f"\t{json.dumps(key)}\n: {text} " for key, text in texts.items()) + "}\n"
    try:
        document = read_session_document(written.encode())
    except ConfigError:
        assert "\\ud" in written  # half of a surrogate pair
        return
    assert document == SessionDocument(texts)
    with_ref = SessionDocument(texts, (REF,))
    assert read_session_document(with_ref.to_bytes()) == with_ref


def test_saving_a_session_leaves_its_references(file: SessionFile) -> None:
    file.save({"messages": ["a"], "n": 1})
    assert content(file) == {"messages": ["a"], "n": 1}
    file.add([REF])
    file.save({"messages": []})
    assert content(file) == {"messages": [], "external_refs": [STORED]}
    file.save({})
    assert [ref.to_json() for ref in file.load()] == [STORED]


@pytest.mark.parametrize(
    ("members", "problem"),
    [
        ({"external_refs": []}, "'external_refs' is no name for a member of the host's own"),
        ({"a": float("nan")}, "member 'a': Out of range float values are not JSON compliant"),
        ({"a": object()}, "member 'a': Object of type object is not JSON serializable"),
        ({"a": "\ud835"}, "member 'a': 'utf-8' codec can't encode"),
        ({5: 1}, "5 is no name for a member of the host's own"),
    ],
)
def test_what_cannot_be_saved_changes_nothing(file: SessionFile, members: Any, problem: str) -> None:
    file.save({"kept": True})
    with pytest.raises(InvalidParamsError) as caught:
        file.save(members)
    assert str(caught.value).startswith(problem)
    assert content(file) == {"kept": True}


def test_a_session_has_a_bound(file: SessionFile, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(session_document, "MAX_SESSION_FILE_BYTES", 200)
    file.save({"a": "x" * 100})
    with pytest.raises(ResourceExhaustedError) as caught:
        file.add([REF])
    assert (caught.value.limit, caught.value.maximum) == ("MAX_SESSION_FILE_BYTES", 200)
    assert content(file) == {"a": "x" * 100}
    Path(file.path).write_text(json.dumps({"a": "x" * 300}))
    with pytest.raises(ConfigError, match="is too long for a session file"):
        file.load()


@pytest.mark.parametrize(
    ("written", "problem"),
    [
        (b"", "is no session file: not JSON"),
        (b'{"external_refs": [', "is no session file: not JSON"),
        (b'{"a": NaN}', "is no session file: not JSON"),
        (b"\xff\xfe", "is no session file: not JSON"),
        (b"[" * 100_000, "is no session file: more than 128 nested containers"),
        (b"[]", "is no session file: it holds an array, not an object"),
        (b'"text"', "is no session file: it holds a string, not an object"),
        (b'{"a": 1, "a": 2}', "is no session file: its key 'a' stands twice"),
        (b'{"external_refs": {}}', "external ref: external_refs: must be an array, not an object"),
        (b'{"external_refs": [{"kind": "K"}]}', "external ref: external_refs[0].kind: may hold only"),
        (b'{"external_refs": [{"kind":"k","kind":"l"}]}', "external ref: external_refs[0].'kind': stands twice"),
    ],
)
def test_what_is_no_session_is_never_written_over(file: SessionFile, written: bytes, problem: str) -> None:
    Path(file.path).write_bytes(written)
    for change in (file.load, lambda: file.add([REF]), lambda: file.save({})):
        with pytest.raises(ConfigError) as caught:
            change()
        assert str(caught.value).startswith(f"{file.path}: {problem}")
    assert Path(file.path).read_bytes() == written
    assert os.listdir(os.path.dirname(file.path)) == ["session.json"]


@pytest.mark.parametrize("kind", ["link", "dangling", "directory", "fifo", "socket"])
def test_what_is_no_regular_file_is_refused(
    file: SessionFile, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    other = tmp_path / "other.json"
    if kind in ("link", "dangling"):
        os.symlink(other, file.path)
        if kind == "link":
            other.write_text("{}")
    elif kind == "directory":
        os.mkdir(file.path)
    elif kind == "fifo":
        os.mkfifo(file.path)
    else:
        with socket.socket(socket.AF_UNIX) as listener:
            monkeypatch.chdir(tmp_path)  # the name of a socket has to be short
            listener.bind("session.json")
    for change in (file.load, lambda: file.add([REF])):
        with pytest.raises(SetupError) as caught:
            change()
        assert caught.value.path == file.path
    assert not other.exists() or other.read_text() == "{}"


def test_a_directory_that_is_not_there(tmp_path: Path) -> None:
    file = SessionFile(tmp_path / "missing" / "session.json")
    assert file.load() == ()
    with pytest.raises(SetupError, match="missing cannot be opened"):
        file.add([REF])
    assert os.listdir(tmp_path) == []


@pytest.mark.parametrize("failing", ["write", "fsync", "rename"])
def test_a_write_that_fails_leaves_the_old_file(
    file: SessionFile, monkeypatch: pytest.MonkeyPatch, failing: str
) -> None:
    file.save({"kept": True})

    def fail(*_: Any) -> Any:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, failing, fail)
    with pytest.raises(SetupError, match="cannot be written: No space left on device"):
        file.add([REF])
    monkeypatch.undo()
    assert content(file) == {"kept": True}
    assert os.listdir(os.path.dirname(file.path)) == ["session.json"]


def test_no_change_of_a_rival_is_lost(file: SessionFile) -> None:
    """Eight threads, each with files of its own, add to one session at once."""
    problems: list[BaseException] = []
    barrier = threading.Barrier(8)

    def work(number: int) -> None:
        try:
            own = SessionFile(file.path)
            barrier.wait(30)
            for step in range(5):
                own.add([ExternalRef("run", f"x:{number}:{step}", "thread")])
        except (BrokerError, threading.BrokenBarrierError) as error:
            problems.append(error)

    threads = [threading.Thread(target=work, args=(n,)) for n in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(30)
    assert problems == []
    assert sorted(ref.uri for ref in file.load()) == sorted(f"x:{n}:{s}" for n in range(8) for s in range(5))


@pytest.mark.spec("odek.external-ref.never-dereferenced")
def test_a_reference_is_never_followed(file: SessionFile, tmp_path: Path) -> None:
    """Whatever its URI names is neither opened nor asked for: the interpreter itself reports both."""
    target = tmp_path / "secret.txt"
    target.write_text("secret")
    file.save({})
    touched: list[tuple[str, Any]] = []
    watching = True

    def watch(event: str, arguments: tuple[Any, ...]) -> None:
        if watching and (event.startswith(("socket.", "urllib.", "subprocess.", "http.")) or event == "open"):
            touched.append((event, arguments))

    sys.addaudithook(watch)
    file.add(
        [
            ExternalRef("k", uri, "c")
            for uri in (f"file://{target}", str(target), "https://ci.example.test/x", "ftp://x")
        ]
    )
    assert len(file.load()) == 4
    watching = False
    opened = {os.fspath(arguments[0]) for event, arguments in touched if event == "open" and arguments[0] is not None}
    assert {event for event, _ in touched} == {"open"}
    assert all(path == file.path or path == str(tmp_path) or "/.session.json-" in path for path in opened)


@pytest.mark.spec("odek.external-ref.deduplicated")
def test_a_writer_that_is_killed_loses_nothing(tmp_path: Path) -> None:
    """SIGKILL at any moment: the file is whole, and every reference whose ``add`` returned is in it."""
    path = tmp_path / "session.json"
    path.write_text('{"messages": ["kept"]}')
    program = """
import itertools, os, sys
from broker.adapters.session_file import SessionFile
from broker.wire.odek.external_ref import ExternalRef
file = SessionFile(sys.argv[1])
for number in itertools.count(int(sys.argv[2])):
    file.add([ExternalRef("run", f"x:{number}", "writer")])
    os.write(1, b".")
"""
    expected = 0
    for round_number in range(6):
        with subprocess.Popen(
            [sys.executable, "-c", program, str(path), str(expected)],
            stdout=subprocess.PIPE,
            env={**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))},
        ) as writer:
            assert writer.stdout is not None
            done = len(os.read(writer.stdout.fileno(), 1))
            while done < 3 * round_number:
                done += len(os.read(writer.stdout.fileno(), 64))
            writer.kill()
            done += len(writer.stdout.read())
        uris = [ref.uri for ref in SessionFile(path).load()]
        assert expected + done <= len(uris) <= expected + done + 1
        assert uris == [f"x:{number}" for number in range(len(uris))]
        expected = len(uris)
        assert json.loads(path.read_text())["messages"] == ["kept"]
    SessionFile(path).add([ExternalRef("run", "x:last", "writer")])
    assert len(SessionFile(path).load()) == expected + 1
