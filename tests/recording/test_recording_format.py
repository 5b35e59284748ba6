"""``broker-recording/v1``: entries as lines and back, and files that are none."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from broker.errors import SetupError
from broker.host.recording import END, Header, RecordedEntry, read_recording
from broker.wire.octet.manifest import parse_manifest
from broker.wire.odek.config import ServerConfig

HEADER = Header(1_700_000_000_000, "/workspace")
MANIFEST = parse_manifest(
    b"""
    name = "greeter"
    version = "1.0.0"
    api_version = "0.4"
    [entrypoint]
    command = "greeter"
    [contributes]
    tools = ["greet"]
    [[contributes.flags]]
    name = "loud"
    type = "boolean"
    default = true
    [[contributes.shortcuts]]
    name = "hello"
    key = "ctrl+h"
    description = "Greets."
    """,
    path="/greeter/extension.toml",
)
SERVER = ServerConfig(name="files", source="operator", command="files-server", artifact_roots=("/tmp",))


def nested(containers: int) -> list[Any]:
    value: list[Any] = []
    for _ in range(containers - 1):
        value = [value]
    return value


def recording(*entries: RecordedEntry) -> bytes:
    return HEADER.line() + b"".join(entry.line() for entry in entries) + END


def test_the_lines_of_a_recording() -> None:
    assert HEADER.line() == (
        b'{"schema":"broker-recording/v1","recorded_at_ms":1700000000000,"workspace":"/workspace"}\n'
    )
    heard = RecordedEntry(at_ms=7, kind="heard", name="greeter", number=1, frame={"id": 1, "text": "\u2028\x1b"})
    assert heard.line() == (
        b'{"at_ms":7,"kind":"heard","name":"greeter","number":1,"frame":{"id":1,"text":"\\u2028\\u001b"}}\n'
    )
    junk = RecordedEntry(
        at_ms=8, kind="sent", name="greeter", number=1, text="\\xffx", length=99, invalid=True, torn=True
    )
    assert junk.line() == (
        b'{"at_ms":8,"kind":"sent","name":"greeter","number":1,"text":"\\\\xffx","length":99,"invalid":true,"torn":true}\n'
    )


def test_what_is_written_is_read_back() -> None:
    entries = (
        RecordedEntry(at_ms=0, kind="start", name="greeter", number=1, manifest=MANIFEST),
        RecordedEntry(at_ms=1, kind="start", name="files", number=2, server=SERVER),
        RecordedEntry(at_ms=2, kind="sent", name="files", number=2, frame=None),
        RecordedEntry(at_ms=2, kind="sent", name="files", number=2, frame=nested(128)),
        RecordedEntry(at_ms=3, kind="stderr", name="files", number=2, text="going down"),
        RecordedEntry(at_ms=3, kind="exited", name="files", number=2, status=-9),
    )
    assert read_recording(recording(*entries), path="r") == (HEADER, entries, True)
    assert entries[3].is_frame and not entries[4].is_frame


def test_a_torn_last_line_is_left_out() -> None:
    entry = RecordedEntry(at_ms=0, kind="input_closed", name="a", number=1)
    cut = HEADER.line() + entry.line() + entry.line()[:-1]
    read = read_recording(cut, path="r")
    assert read == (HEADER, (entry,), False)
    assert read.entries[0].line_number == 2


PLAIN = {"name": "a", "version": "1.0.0", "api_version": "0.3", "path": "", "entrypoint": {"command": "x"}}


def entry(**members: Any) -> dict[str, Any]:
    return {"at_ms": 0, "kind": "sent", "name": "a", "number": 1, "text": "x"} | members


@pytest.mark.parametrize(
    ("lines", "problem"),
    [
        ([], "r: no recording: it has no complete line"),
        (["{"], "r: line 1: not JSON: Expecting property name enclosed in double quotes: line 1 column 2 (char 1)"),
        ([[]], "r: line 1: expected an object"),
        ([{}], "r: no recording: its first line does not say broker-recording/v1"),
        ([{"schema": "broker-recording/v1"}], "r: line 1: needs workspace and recorded_at_ms"),
        (
            [{"schema": "broker-recording/v1", "workspace": "/", "recorded_at_ms": 2**53}],
            "r: line 1: recorded_at_ms: expected a whole number from 0 to 9007199254740991",
        ),
        (
            [None, entry(at_ms=2**53 - 1)],
            "r: line 2: at_ms: no time is that long after 1700000000000 ms, which is when it was recorded",
        ),
        ([None, entry(at_ms=-1)], "r: line 2: at_ms: expected a whole number from 0 on"),
        ([None, entry(at_ms=True)], "r: line 2: at_ms: expected a whole number from 0 on"),
        ([None, entry(), entry(number="1")], "r: line 3: number: expected a whole number from 0 on"),
        ([None, entry(name=1)], "r: line 2: name: expected a string"),
        (
            [None, entry(kind="said")],
            "r: line 2: kind: expected one of start, heard, sent, stderr, input_closed, output_closed, exited",
        ),
        ([None, entry(text=1)], "r: line 2: text: expected a string"),
        ([None, entry(status="0")], "r: line 2: status: expected a whole number"),
        ([None, entry(status=10**20)], "r: line 2: status: expected a whole number"),
        ([None, entry(length=-1)], "r: line 2: length: expected a whole number from 0 on"),
        ([None, entry(frame=nested(129))], "r: line 2: more than 128 nested containers"),
        ([None, entry(text=None)], "r: line 2: a line that was heard or sent has a frame or a text"),
        ([None, entry(kind="start")], "r: line 2: a start has a manifest or a server"),
        (
            [
                None,
                entry(
                    kind="start", manifest={"name": 1, "api_version": "0.3", "path": "", "entrypoint": {"command": "x"}}
                ),
            ],
            (
                "r: line 2: invalid value for type, expected str @ manifest.name; "
                "required field missing @ manifest.version"
            ),
        ),
        (
            [None, entry(kind="start", manifest={**PLAIN, "api_version": "0.5"})],
            "r: line 2: manifest.api_version: expected one of 0.1, 0.2, 0.3, 0.4",
        ),
    ],
)
def test_what_is_no_recording_is_refused_with_its_line(lines: list[Any], problem: str) -> None:
    texts = [
        HEADER.line() if line is None else (line if isinstance(line, str) else json.dumps(line)).encode() + b"\n"
        for line in lines
    ]
    with pytest.raises(SetupError) as caught:
        read_recording(b"".join(texts), path="r")
    assert str(caught.value) == problem
    assert caught.value.path == "r"


@settings(max_examples=60)
@given(
    st.lists(st.binary(max_size=80) | st.sampled_from([json.dumps(entry()).encode(), HEADER.line()[:-1]]), max_size=4)
)
def test_whatever_a_file_holds_it_is_read_or_refused(lines: list[bytes]) -> None:
    try:
        _, entries, _ = read_recording(HEADER.line() + b"".join(line + b"\n" for line in lines), path="r")
    except SetupError as error:
        assert str(error).startswith("r: line ")
    else:
        assert all(one.kind == "sent" for one in entries)
