"""Lines of the feature-negotiated wire: what is one, what is passed over, and what ends the stream."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from broker.errors import ProtocolError
from broker.wire.events import Closed
from broker.wire.octet.settings import Phase

Make = Callable[..., Any]
TEXT_RESULT = {"content": [{"type": "text", "text": "14:05"}], "is_error": False, "metadata": None}


def closed_with(wire: Any) -> ProtocolError:
    events = wire.events()
    assert isinstance(events[-1], Closed)
    assert isinstance(events[-1].error, ProtocolError)
    assert wire.connection.phase is Phase.CLOSED
    return events[-1].error


@pytest.mark.spec("octet.legacy.framing")
@pytest.mark.parametrize(
    "line",
    [
        b'{"jsonrpc":"2.0","id":2,"result":{"ok":1}}\n',
        b'{ "result" : {"ok": 1}, "id": 2, "jsonrpc": "2.0" }\n',
        b'{"jsonrpc":"2.0","id":2,"result":{"ok":1},"unheard_of":[1.5e3]}\r\n',
        b'\n\r\n   \n\t\r\n{"jsonrpc":"2.0","id":2,"error":null,"result":{"ok":1}}\n',
        b'{"jsonrpc":"2.0","id":2,"result":{"\\u006fk":1}}\n',
    ],
)
def test_a_line_is_an_object_in_any_order_with_one_cr_removed_and_blank_lines_skipped(
    new_wire: Make, line: bytes
) -> None:
    wire = new_wire("0.2").ready()
    wire.call()
    wire.raw(line)
    assert wire.names() == []
    assert wire.settled[0].result == {"ok": 1}


@pytest.mark.spec("octet.legacy.fractions")
def test_fractions_pass_both_ways(new_wire: Make) -> None:
    wire = new_wire("0.4").ready()
    wire.connection.request("tool/call", {"arguments": {"depth": 1.25}}, on_settled=wire.settled.append)
    assert wire.written()[0]["params"] == {"arguments": {"depth": 1.25}}
    wire.receive({"jsonrpc": "2.0", "id": 2, "result": {"height": 0.5}})
    assert wire.events() == []
    assert wire.settled[0].result == {"height": 0.5}


@pytest.mark.spec("octet.legacy.bad-line")
@pytest.mark.parametrize(
    ("line", "name", "text"),
    [
        (b"not json\n", "parse_error", "not JSON"),
        (b'{"jsonrpc":"2.0","id":2,"result":{}} {}\n', "parse_error", "not JSON"),
        (b'\xef\xbb\xbf{"jsonrpc":"2.0","id":2,"result":{}}\n', "parse_error", "not JSON"),
        (b'{"jsonrpc":"2.0","id":2,"result":"\xff"}\n', "parse_error", "not JSON"),
        (b'{"jsonrpc":"2.0","id":2,"result":NaN}\n', "parse_error", "not JSON"),
        (b'{"jsonrpc":"2.0","id":2,"id":3,"result":{}}\n', "parse_error", "stands twice"),
        (b"[" * 100_000 + b"\n", "parse_error", "nested containers"),
        (b'[{"jsonrpc":"2.0","id":2,"result":{}}]\n', "invalid_request", "must be an object, not an array"),
        (b'"text"\n', "invalid_request", "must be an object, not a string"),
        (b'{"id":2,"result":{}}\n', "invalid_request", "jsonrpc"),
        (b'{"jsonrpc":"1.0","id":2,"result":{}}\n', "invalid_request", "jsonrpc"),
        (b'{"jsonrpc":"2.0","id":"2","result":{}}\n', "invalid_request", "an answer's id must be an integer"),
        (b'{"jsonrpc":"2.0","id":2.0,"result":{}}\n', "invalid_request", "an answer's id must be an integer"),
        (b'{"jsonrpc":"2.0","id":true,"result":{}}\n', "invalid_request", "an answer's id must be an integer"),
        (b'{"jsonrpc":"2.0","result":{}}\n', "invalid_request", "an answer's id must be an integer"),
        (b'{"jsonrpc":"2.0","id":2}\n', "invalid_request", "neither a method, a result nor an error"),
        (b'{"jsonrpc":"2.0","id":2,"result":1,"error":{}}\n', "invalid_request", "not both"),
        (b'{"jsonrpc":"2.0","id":2,"error":"no"}\n', "invalid_request", "error: must be an object"),
        (b'{"jsonrpc":"2.0","id":2,"error":{"code":"1","message":""}}\n', "invalid_request", "error.code"),
        (b'{"jsonrpc":"2.0","id":2,"error":{"code":1}}\n', "invalid_request", "error.message"),
        (b'{"jsonrpc":"2.0","method":7}\n', "invalid_request", "method"),
        (b'{"jsonrpc":"2.0","id":null,"method":"x"}\n', "invalid_request", "id"),
        (b'{"jsonrpc":"2.0","id":-1,"method":"x"}\n', "invalid_request", "id"),
        (b'{"jsonrpc":"2.0","id":18446744073709551616,"method":"x"}\n', "invalid_request", "id"),
        (b'{"jsonrpc":"2.0","id":"' + b"x" * 257 + b'","method":"x"}\n', "invalid_request", "observed 257"),
    ],
)
def test_what_cannot_be_told_apart_ends_the_stream_and_every_waiter(
    new_wire: Make, line: bytes, name: str, text: str
) -> None:
    wire = new_wire("0.2").ready()
    first, second = wire.call(), wire.call()
    wire.raw(line)
    error = closed_with(wire)
    assert error.name == name
    assert text in str(error)
    assert wire.settled == [first, second]
    assert {type(request.error) for request in wire.settled} == {ProtocolError}


@pytest.mark.spec("octet.legacy.framing", "octet.legacy.line-bound")
@pytest.mark.parametrize("over", [0, 1])
def test_a_line_of_one_mebibyte_with_its_lf_passes_and_one_byte_more_does_not(new_wire: Make, over: int) -> None:
    wire = new_wire("0.1").ready()
    wire.call()
    head, tail = b'{"jsonrpc":"2.0","id":2,"result":"', b'"}\n'
    line = head + b"x" * (1_048_576 - len(head) - len(tail) + over) + tail
    assert len(line) == 1_048_576 + over
    wire.raw(line)
    if over:
        assert closed_with(wire).limit == "MAX_FRAME_BYTES"
    else:
        assert wire.events() == []
        assert len(wire.settled[0].result) == len(line) - len(head) - len(tail)


@pytest.mark.spec("octet.legacy.line-bound")
def test_the_host_writes_no_longer_line_either(new_wire: Make) -> None:
    wire = new_wire("0.2").ready()
    with pytest.raises(Exception, match="over the bound of 1048575") as caught:
        wire.connection.request("tool/call", {"arguments": "x" * 1_048_576})
    assert type(caught.value).__name__ == "ResourceExhaustedError"
    assert wire.written() == []


@pytest.mark.spec("octet.legacy.bad-line")
def test_a_line_without_its_lf_at_the_end_ends_the_stream(new_wire: Make) -> None:
    wire = new_wire("0.2").ready()
    wire.raw(b'{"jsonrpc":"2.0"')
    wire.connection.receive_eof()
    assert "inside a frame" in str(closed_with(wire))


@pytest.mark.spec("octet.legacy.bad-line")
def test_nothing_may_be_said_before_initialize_is_answered(new_wire: Make, good_answer: Make) -> None:
    wire = new_wire("0.4")
    wire.initialize()
    wire.written()
    wire.ask(1, "input/request", prompt="?", secret=False)
    wire.receive({"jsonrpc": "2.0", "id": 1, "result": good_answer("0.4")})
    assert "before initialize was answered" in str(closed_with(wire))
    assert wire.connection.agreement is None


@pytest.mark.spec("octet.legacy.free-text-errors")
@pytest.mark.parametrize(
    ("code", "name"), [(-32602, "invalid_params"), (-32010, "version_mismatch"), (7, "internal_error")]
)
def test_an_error_answer_has_any_code_and_any_text(new_wire: Make, code: int, name: str) -> None:
    wire = new_wire("0.2").ready()
    wire.call()
    wire.receive({"jsonrpc": "2.0", "id": 2, "error": {"code": code, "message": "no \u001b[31mtide", "data": None}})
    assert wire.events() == []
    error = wire.settled[0].error
    assert (error.name, error.rpc_code, error.rpc_message, error.data) == (name, code, "no \x1b[31mtide", None)
    assert "\x1b" not in str(error)


@given(data=st.data())
def test_chunks_do_not_matter(new_wire: Make, data: st.DataObject) -> None:
    messages = [
        {"jsonrpc": "2.0", "method": "notification", "params": {"level": "info", "message": "one \u2028 line"}},
        {"jsonrpc": "2.0", "id": "a", "method": "nowhere"},
        {"jsonrpc": "2.0", "id": 2, "result": TEXT_RESULT},
    ]
    stream = b"\n".join(json.dumps(message, ensure_ascii=False).encode() for message in messages) + b"\r\n"
    cuts = sorted(data.draw(st.lists(st.integers(0, len(stream)), max_size=6)))
    wire = new_wire("0.2").ready()
    wire.call()
    seen: list[str] = []
    for start, end in zip([0, *cuts], [*cuts, len(stream)], strict=True):
        wire.raw(stream[start:end])
        seen += wire.names()
    assert seen == ["NoticeReceived", "Diagnostic"]
    assert wire.refusals() == [("a", -32601, "unsupported_feature")]
    assert wire.settled[0].result == TEXT_RESULT
