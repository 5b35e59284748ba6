"""The size of a read never matters: any split of the same bytes gives the same events, answers and settlements."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from broker import canonical

NewWire = Callable[..., Any]

TOPIC = {"binding_id": "b", "topic": "bus.tide.\ue000\U0001f600"}

good_lines = st.sampled_from(
    [
        {"jsonrpc": "2.0", "id": "a", "method": "bus/subscribe", "params": TOPIC},
        {"jsonrpc": "2.0", "id": 1, "method": "bus/publish", "params": {**TOPIC, "payload": {"level": "é"}}},
        {"jsonrpc": "2.0", "id": 2, "method": "bus/declare", "params": {}},
        {"jsonrpc": "2.0", "id": 3, "method": "session/create", "params": {}},
        {"jsonrpc": "2.0", "method": "$/cancelRequest", "params": {"id": "a"}},
        {"jsonrpc": "2.0", "method": "never/heard", "params": {}},
        {"jsonrpc": "2.0", "id": 2, "result": {"text": "\U0001f600"}},
        {"jsonrpc": "2.0", "id": 3, "error": {"code": -32603, "message": "internal error"}},
        {"jsonrpc": "2.0", "id": 40, "result": {}},
    ]
).map(canonical.encode)
bad_lines = st.sampled_from([b"", b"\r", b"{}", b"\xff", b"[1,]", b'{"id":2,"jsonrpc":"2.0","result":1.5}', b"x" * 301])


def shown(wire: Any) -> list[str]:
    """Every event there is now, as it was when it came out."""
    log = []
    while (event := wire.connection.next_event()) is not None:
        log.append(repr(event))
    return log


def run(wire: Any, chunks: list[bytes], eof: bool) -> list[str]:
    calls = [wire.call(), wire.call()]
    wire.written()
    log: list[str] = []
    for chunk in chunks:
        wire.connection.receive_data(chunk)
        log += shown(wire)
    if eof:
        wire.connection.receive_eof()
        log += shown(wire)
    log += map(repr, wire.written())
    log += [f"{call.id} {call.result!r} {type(call.error).__name__} {call.error}" for call in wire.settled]
    assert all(call in calls for call in wire.settled)
    return log


@pytest.mark.spec("octet.framing.chunk-independent")
@settings(max_examples=80, deadline=None)
@given(
    lines=st.lists(good_lines | bad_lines, max_size=6),
    terminated=st.booleans(),
    eof=st.booleans(),
    data=st.data(),
)
def test_any_split_gives_the_same_events(
    new_wire: NewWire, lines: list[bytes], terminated: bool, eof: bool, data: st.DataObject
) -> None:
    stream = b"\n".join(lines) + (b"\n" if terminated and lines else b"")
    cuts = sorted(data.draw(st.lists(st.integers(0, len(stream)), max_size=8)))
    parts = [stream[start:end] for start, end in zip([0, *cuts], [*cuts, len(stream)], strict=True)]
    whole = run(new_wire().ready(max_frame_bytes=300), [stream], eof)
    assert run(new_wire().ready(max_frame_bytes=300), parts, eof) == whole


@pytest.mark.spec("octet.framing.chunk-independent", "octet.framing.bound-change")
def test_the_handshake_byte_by_byte(new_wire: NewWire, good_result: Any) -> None:
    answer = {"jsonrpc": "2.0", "id": 1, "result": good_result(max_frame_bytes=120)}
    stream = canonical.encode(answer) + b"\n" + b"x" * 121
    logs = []
    for size in (1, 7, len(stream)):
        wire = new_wire()
        wire.initialize()
        log = []
        for start in range(0, len(stream), size):
            wire.connection.receive_data(stream[start : start + size])
            log += shown(wire)
        logs.append(log)
    assert logs[0] == logs[1] == logs[2]
    assert len(logs[0]) == 2 and "Closed" in logs[0][1]
