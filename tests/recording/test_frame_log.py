"""Recording real processes: what is in the file, what is not, and what happens when it cannot be written."""

from __future__ import annotations

import asyncio
import json
import resource
import stat
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest.mock import Mock

import pytest

from broker.adapters.aio import AsyncHost
from broker.adapters.frame_log import FrameLog
from broker.bus.trace import Declared
from broker.errors import BrokerError, SetupError
from broker.host.recording import RecordedEntry, read_recording
from broker.testing.replay import Replay
from broker.wire.odek.events.redaction import Redactor

HELLO = Path(__file__).parents[2] / "docs/examples/hello"
SECRET = "correct-horse-battery"


def frame_log(path: Path) -> FrameLog:
    return FrameLog(path, redactor=Redactor([SECRET]))


def record_hello(log: FrameLog, arguments: Any) -> None:
    async def run() -> None:
        async with AsyncHost(tap=log) as host:
            session = await host.open_session()
            declared = asyncio.Event()
            session.bus.add_trace(lambda record: declared.set() if isinstance(record, Declared) else None)
            await session.start(HELLO)
            await asyncio.wait_for(declared.wait(), 30)
            await session.call("hello", "greet", arguments)

    asyncio.run(run())
    log.close()


def entries_of(path: Path) -> tuple[RecordedEntry, ...]:
    return read_recording(path.read_bytes(), path=str(path)).entries


def test_every_frame_of_a_process_in_order_and_how_it_ended(tmp_path: Path) -> None:
    log = frame_log(tmp_path / "r.jsonl")
    record_hello(log, {"who": "Ada"})
    entries = entries_of(tmp_path / "r.jsonl")
    assert log.failure is None and log.entries == len(entries)
    shown = [(one.kind, one.frame.get("method") if one.is_frame else None) for one in entries]
    assert shown[:6] == [
        ("start", None),
        ("heard", "initialize"),
        ("sent", None),
        ("heard", "bus/lifecycle"),
        ("sent", "bus/declare"),
        ("heard", None),
    ]
    kinds = [kind for kind, _ in shown]
    # Which pipe ends first, and whether the exit is seen before the end of the output, is the system's to say.
    assert kinds[-1] == "exited"
    assert [kinds.count(kind) for kind in ("input_closed", "exited")] == [1, 1]
    assert kinds.count("output_closed") <= 1
    assert entries[-1].status == 0
    assert sum(method == "tool/call" for _, method in shown) == 1
    assert [one.at_ms for one in entries] == sorted(one.at_ms for one in entries)


def test_secrets_are_nowhere_in_the_file(tmp_path: Path) -> None:
    path = tmp_path / "r.jsonl"
    token = "ghp_" + "a1" * 18
    record_hello(frame_log(path), {"who": f"x {SECRET}", "password": "hunter2", "deep": [{"api_key": "k"}, token]})
    data = path.read_bytes()
    assert SECRET.encode() not in data and token.encode() not in data and b"hunter2" not in data
    (call,) = [one.frame for one in entries_of(path) if one.is_frame and one.frame.get("method") == "tool/call"]
    assert call["params"]["arguments"] == {
        "who": "x [REDACTED]",
        "password": "[REDACTED]",
        "deep": [{"api_key": "[REDACTED]"}, "[REDACTED]"],
    }
    assert Replay.read(path).run() == []


def test_whatever_stands_under_a_secrets_name_is_no_more_than_its_shape(tmp_path: Path) -> None:
    path = tmp_path / "r.jsonl"
    record_hello(frame_log(path), {"pin_token": 4711, "login": {"user": "u", "pass": [{"old": "p"}, None, True]}})
    (call,) = [one.frame for one in entries_of(path) if one.is_frame and one.frame.get("method") == "tool/call"]
    assert call["params"]["arguments"] == {
        "pin_token": "[REDACTED]",
        "login": {"user": "u", "pass": [{"old": "[REDACTED]"}, None, True]},
    }
    assert Replay.read(path).run() == []


def tapped(tmp_path: Path, *lines: tuple[str, bytes]) -> list[dict[str, Any]]:
    """What is recorded of lines that one process says and hears, from the second on: the first is its start."""
    clock = SimpleNamespace(unix_ms=lambda: 0, monotonic_ms=lambda: 0)
    link: Any = Mock(session=SimpleNamespace(clock=clock, workspace="/w"), number=1)
    link.name = "deep"
    log = frame_log(tmp_path / "r.jsonl")
    log.spawned(link)
    for way, line in lines:
        getattr(log, way)(link, line)
    log.close()
    assert log.failure is None
    return [json.loads(line) for line in (tmp_path / "r.jsonl").read_bytes().splitlines()[2:-1]]


def test_a_frame_as_deep_as_a_wire_takes_is_recorded_as_one(tmp_path: Path) -> None:
    def deep(containers: int) -> bytes:
        return b'{"a":' + b"[" * (containers - 1) + b'"x"' + b"]" * (containers - 1) + b"}\n"

    frame, text = tapped(tmp_path, ("sent", deep(128)), ("sent", deep(129)))
    assert frame["frame"] == json.loads(deep(128))
    assert text["text"] == deep(129)[:-1].decode()


@pytest.mark.parametrize("method", ["secret/get", "input/request"])
def test_what_a_person_or_the_host_was_asked_for_is_not_recorded(tmp_path: Path, method: str) -> None:
    asked = b'{"jsonrpc":"2.0","id":7,"method":"%s","params":{"name":"KEY"}}\n' % method.encode()
    answer = b'{"jsonrpc":"2.0","id":7,"result":{"value":"hunter2"}}\n'
    first, second, third = tapped(tmp_path, ("sent", asked), ("heard", answer), ("heard", answer))
    assert first["frame"] == json.loads(asked)
    assert second["frame"] == {"jsonrpc": "2.0", "id": 7, "result": {"value": "[REDACTED]"}}
    assert third["frame"] == json.loads(answer)  # of another request of that number, which asked for no secret


def test_a_file_that_somebody_took_away_is_closed_all_the_same(tmp_path: Path) -> None:
    log = frame_log(tmp_path / "r.jsonl")
    (tmp_path / "r.jsonl").unlink()
    log.close()
    assert log.failure == "No such file or directory" and log._file.closed


def test_of_a_host_with_two_sessions_the_first_is_recorded(tmp_path: Path) -> None:
    log = frame_log(tmp_path / "r.jsonl")

    async def run() -> None:
        async with AsyncHost(tap=log) as host:
            first, second = await host.open_session(tmp_path), await host.open_session()
            await first.start(HELLO)
            await second.start(HELLO)

    asyncio.run(run())
    log.close()
    header, entries, _ = read_recording((tmp_path / "r.jsonl").read_bytes(), path="r")
    assert header.workspace == str(tmp_path)
    assert sum(one.kind == "start" for one in entries) == 1
    assert sum(one.kind == "exited" for one in entries) == 1


def test_only_its_owner_reads_it_and_nothing_is_overwritten(tmp_path: Path) -> None:
    path = tmp_path / "r.jsonl"
    frame_log(path).close()
    assert not path.exists()  # nothing was recorded
    record_hello(frame_log(path), {})
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    before = path.read_bytes()
    with pytest.raises(SetupError) as caught:
        frame_log(path)
    assert str(caught.value) == f"{path}: File exists"
    (tmp_path / "link").symlink_to(tmp_path / "elsewhere")
    with pytest.raises(SetupError):
        frame_log(tmp_path / "link")
    assert path.read_bytes() == before and not (tmp_path / "elsewhere").exists()


def test_a_full_disk_ends_the_recording_and_not_the_session(tmp_path: Path) -> None:
    path = tmp_path / "r.jsonl"
    log = frame_log(path)
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (2000, hard))
    try:
        record_hello(log, {"who": "Ada"})
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    assert log.failure == "File too large"
    entries = entries_of(path)
    assert len(entries) == log.entries > 0


RUDE = r"""
os.write(2, b"first\nno \xfflf")
os.write(1, b"\xff\xfe{}\n")
os.write(1, b"A" * 5_000_000 + b"\n")
os.write(1, b"half a line")
"""


def test_bytes_that_are_no_frames_are_kept_as_what_they_are(tmp_path: Path, rogue: Any) -> None:
    log = frame_log(tmp_path / "r.jsonl")

    async def run() -> None:
        async with AsyncHost(tap=log) as host:
            session = await host.open_session(tmp_path)
            with pytest.raises(BrokerError):
                await session.start(rogue(RUDE))

    asyncio.run(run())
    log.close()
    entries = entries_of(tmp_path / "r.jsonl")
    first = next(one for one in entries if one.kind == "sent")
    assert (first.text, first.invalid, first.torn, first.is_frame) == ("\\xff\\xfe{}", True, False, False)
    long = [one for one in entries if one.length is not None]
    assert all(one.text is not None and len(one.text) == 4_194_304 for one in long)
    (replayed,) = [one for one in entries if one.kind == "exited"]
    assert replayed.number == 1
