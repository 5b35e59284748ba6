"""Whatever an extension writes, nothing is raised, and every waiter ends once."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from broker.errors import InvalidParamsError
from broker.wire.events import Closed
from broker.wire.feature.events import RequestReceived
from broker.wire.feature.methods import METHODS
from broker.wire.octet.settings import Phase

Make = Callable[..., Any]
OWNER = {"session_id": "s1", "extension_instance_id": "i1", "process_generation": 1}
SCALARS = st.one_of(
    st.none(), st.booleans(), st.integers(-(2**70), 2**70), st.floats(allow_nan=False), st.text(max_size=8)
)
VALUES = st.recursive(
    SCALARS, lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=6), inner, max_size=4)
)
MEMBERS = st.sampled_from(
    """prompt detail destructive default secret mime_type size sha256 data path intent approval_token name names tools
    session_id level title message contribution snapshot request_id sequence event id reason""".split()
)
PARAMS = st.one_of(
    VALUES,
    st.dictionaries(MEMBERS, VALUES, max_size=5).flatmap(
        lambda fields: st.fixed_dictionaries(
            {},
            optional={
                "parent_request_id": st.one_of(st.integers(0, 5), VALUES),
                "resource_owner": st.one_of(st.just(OWNER), VALUES),
            },
        ).map(lambda scope: {**fields, **scope})
    ),
)
MESSAGES = st.fixed_dictionaries(
    {"jsonrpc": st.one_of(st.just("2.0"), st.just("2.0"), st.just("2.0"), VALUES)},
    optional={
        "id": st.one_of(st.integers(0, 6), st.text(max_size=3), VALUES),
        "method": st.one_of(st.sampled_from(sorted(METHODS)).map(lambda name: name.replace("*", "x")), VALUES),
        "params": PARAMS,
        "result": VALUES,
        "error": st.one_of(st.fixed_dictionaries({"code": st.integers(), "message": st.text(max_size=5)}), VALUES),
    },
)
LINES = st.one_of(
    MESSAGES.map(lambda message: json.dumps(message).encode()),
    st.binary(max_size=20).filter(lambda data: b"\n" not in data),
)


@pytest.mark.spec("octet.legacy.bad-line", "octet.legacy.bad-params")
@settings(max_examples=300)
@given(version=st.sampled_from(["0.1", "0.2", "0.4"]), lines=st.lists(LINES, max_size=12), answered=st.booleans())
def test_nothing_an_extension_writes_gets_out_of_hand(
    new_wire: Make, version: str, lines: list[bytes], answered: bool
) -> None:
    wire = new_wire(version).ready()
    calls = [wire.connection.request("tool/call", {}, on_settled=wire.settled.append) for _ in range(2)]
    wire.written()
    events = []
    for line in lines:
        wire.raw(line + b"\n")
        for event in wire.events():
            events.append(event)
            if isinstance(event, RequestReceived) and answered:
                wire.connection.refuse(event.incoming, InvalidParamsError("no"))
        wire.written()
    closed = [event for event in events if isinstance(event, Closed)]
    assert len(closed) == (wire.connection.phase is Phase.CLOSED)
    assert not closed or events[-1] is closed[0]
    wire.connection.close()
    assert all(call.settled for call in calls)
    assert sorted(map(id, wire.settled)) == sorted(map(id, calls))
