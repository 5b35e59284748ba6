"""From bytes to messages: lines, junk, batches, bounds, and that the size of a read never matters."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from typing import Any

import orjson
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from broker.errors import ProtocolError, ResultError
from broker.wire.mcp.decoding import Junk, decode_line
from broker.wire.mcp.events import Closed, Diagnostic, NotificationReceived, ServerRequest
from broker.wire.mcp.peer import Phase

NewMcp = Callable[..., Any]
Text = Callable[[str], dict[str, Any]]


def reply(request: Any, body: bytes) -> bytes:
    """An answer whose result is these bytes."""
    return b'{"jsonrpc":"2.0","id":%d,"result":%b}\n' % (request.id, body)


# -- framing -----------------------------------------------------------------------------------------------------------


@pytest.mark.spec("odek.transport.crlf-blank")
def test_crlf_and_blank_lines_are_passed_over(mcp: Any) -> None:
    call = mcp.sent()
    mcp.receive_raw(b"\n\r\n  \t\r\n \t" + reply(call, b"{}").removesuffix(b"\n") + b" \r\r\n")
    assert mcp.events() == []
    assert call.result == {}
    assert mcp.peer.statistics().junk_lines == 0


@pytest.mark.spec("odek.transport.byte-order-mark")
@pytest.mark.parametrize("crlf", [b"\n", b"\r\n"])
def test_a_byte_order_mark_is_stripped_once(new_mcp: NewMcp, crlf: bytes) -> None:
    wire = new_mcp()
    wire.peer.initialize()
    wire.written()
    answer = b'{"id":1,"result":{"protocolVersion":"2025-03-26"}}' + crlf
    wire.receive_raw(b"\xef\xbb\xbf" + answer)
    wire.events()
    assert wire.peer.phase is Phase.READY
    wire.receive_raw(b"\xef\xbb\xbf" + answer)
    assert "BOM" in wire.texts()[0]


@pytest.mark.spec("odek.transport.split-on-lf")
def test_only_lf_ends_a_line(mcp: Any) -> None:
    call = mcp.sent()
    text = "a\u2028b\u2029c\u0085d\x7f"
    mcp.receive_raw(reply(call, json.dumps({"x": text}, ensure_ascii=False).encode()))
    assert mcp.events() == []
    assert call.result == {"x": text}


@pytest.mark.spec("odek.transport.chunks")
def test_a_character_may_be_split_over_reads_and_two_messages_share_one(mcp: Any, text_result: Text) -> None:
    call, other = mcp.sent(), mcp.sent()
    line = json.dumps({"id": call.id, "result": text_result("café-日本-🚀")}, ensure_ascii=False).encode() + b"\n"
    for byte in line:
        mcp.receive_raw(bytes([byte]))
        mcp.events()
    assert call.result == text_result("café-日本-🚀")
    mcp.receive({"method": "notifications/message", "params": {}}, {"id": other.id, "result": text_result("REAL")})
    assert mcp.events() == [NotificationReceived("notifications/message", {})]
    assert other.result == text_result("REAL")


# -- the line bound ----------------------------------------------------------------------------------------------------


@pytest.mark.spec("odek.limits.line-at-bound", "odek.limits.line-over-bound", "odek.limits.line-small-bound")
@pytest.mark.parametrize("bound", [300, 1_023, 1_024, 65_535, 65_536, 65_537, 131_072])
@pytest.mark.parametrize("end", [b"\n", b"\r\n"])
def test_exactly_the_bound_passes_and_one_more_does_not(new_mcp: NewMcp, bound: int, end: bytes) -> None:
    """Fault 14, 117, 118: any N, the LF not counted."""
    wire = new_mcp(max_response_bytes=bound).ready()
    first, second = wire.sent(), wire.sent("slow")
    spare = bound - len(reply(first, b'{"x":""}')) + 1 - (len(end) - 1)
    wire.receive_raw(reply(first, b'{"x":"%b"}' % (b"y" * spare)).replace(b"\n", end))
    assert wire.events() == []
    assert first.result == {"x": "y" * spare}
    wire.receive_raw(reply(second, b'{"x":"%b"}' % (b"y" * (spare + 1))).replace(b"\n", end))
    assert [type(event) for event in wire.events()] == [Closed]
    assert isinstance(second.error, ProtocolError)


@pytest.mark.spec("odek.limits.line-fails-all", "odek.limits.errors-name")
def test_a_line_over_the_bound_fails_open_and_later_calls(new_mcp: NewMcp, text_result: Text) -> None:
    """Fault 16, 120, 121: the error names server, tool, limit and observed size, and later calls fail at once."""
    wire = new_mcp(max_response_bytes=65_536).ready()
    calls = [wire.sent(), wire.sent("slow")]
    wire.receive({"id": calls[0].id, "result": text_result("z" * 262_144)})
    [closed] = wire.events()
    for call in calls:
        error = call.error
        assert isinstance(error, ProtocolError)
        assert (error.extension, error.tool, error.name) == ("srv", call.tool, "resource_exhausted")
        assert (error.limit, error.observed, error.maximum) == ("max_response_bytes", 65_537, 65_536)
        assert str(error) == (
            "srv: a line of its output is over max_response_bytes=65536: 65537 bytes or more; "
            f"this ended the call of tool {call.tool}"
        )
    with pytest.raises(ProtocolError) as caught:
        wire.call("slow")
    assert (caught.value.tool, caught.value.observed) == ("slow", 65_537)
    assert wire.peer.failure is closed.error
    assert wire.peer.next_deadline() is None


@pytest.mark.spec("odek.limits.line-over-bound")
def test_the_default_bound_is_ten_mebibytes(mcp: Any) -> None:
    """Fault 15: an 11 MiB result under the default bound."""
    call = mcp.sent()
    mcp.receive_raw(reply(call, b'{"x":"%b"}' % (b"y" * 11 * 1_048_576)))
    mcp.events()
    assert isinstance(call.error, ProtocolError)
    assert call.error.maximum == 10_485_760


@pytest.mark.spec("odek.limits.line-memory", "odek.limits.line-over-bound")
def test_an_endless_line_is_not_kept(new_mcp: NewMcp) -> None:
    wire = new_mcp(max_response_bytes=1_000).ready()
    call = wire.sent()
    wire.receive_raw(b"x" * 1_001)
    assert [type(event) for event in wire.events()] == [Closed]
    assert call.settled
    for _ in range(100):
        wire.receive_raw(b"x" * 65_536)
    assert wire.peer._framer.pending == 0
    assert wire.events() == []


# -- junk --------------------------------------------------------------------------------------------------------------

NOISE = [
    " \u2584\u2580 tide server 3.1, listening".encode(),
    b"\x1b[33mwarn\x1b[0m: cache is cold",
    b"fetched 7 modules",
    b"{level=info}",
    b"42",
    b"null",
    b'"just a string"',
    b"true",
    b"\r  30%\r  60%\r",
    b"{}",
    b"[]",
    b"\xff\xfe\x00\x80",
    b'{"jsonrpc":"2.0"}',
    b'{"id":77}',
    b'{"method":7}',
    b'{"method":"x","id":null}',
    b'{"method":"x","id":1.5}',
    b'{"method":"x","id":[]}',
    b'{"method":"x","id":true}',
    b'{"method":"%b"}' % (b"m" * 129),
    b"[" * 100_000,
    b'{"method":"x","id":"%b"}' % (b"i" * 257),
    b'{"jsonrpc":"2.0","method":"notifications/message","params":{"data":"caf\xe9"}}',
    b'{"method":"ping","method":"ping","id":5}',
    b'{"method":"ping","id":5,"\\u0069d":6}',
    b'{"x":1e999}',
    b'{"x":%b}' % (b"1" * 5_000),
    b'{"x":NaN}',
    b'{"x":Infinity}',
    b'{"x":"\\ud835y"}',
    b"\xef\xbb\xbf{}",
    b'{"result":1}',
    b"{'a':1}",
    b"{}{}",
]


@pytest.mark.spec("odek.transport.junk-line", "odek.transport.stdout-only-protocol")
@pytest.mark.parametrize("junk", NOISE, ids=lambda junk: repr(junk[:24]))
def test_junk_is_dropped_counted_and_quoted(mcp: Any, junk: bytes, text_result: Text) -> None:
    call = mcp.sent()
    mcp.receive_raw(junk + b"\n")
    mcp.answer(call, text_result("REAL"))
    [event] = mcp.events()
    assert isinstance(event, Diagnostic)
    assert event.text.startswith("srv: dropped a line of ")
    assert event.text.isprintable() and len(event.text) < 500
    assert call.result == text_result("REAL")
    statistics = mcp.peer.statistics()
    assert (statistics.junk_lines, statistics.junk_bytes) == (1, len(junk.strip(b" \t\r\n")))


@pytest.mark.spec("odek.transport.junk-bound")
def test_a_thousand_lines_of_junk_end_the_connection(mcp: Any) -> None:
    call = mcp.sent()
    mcp.receive_raw(b"noise\n" * 999)
    assert len(mcp.events()) == 999
    assert mcp.peer.phase is Phase.READY
    mcp.receive_raw(b"no\x1bise\n")
    dropped, closed = mcp.events()
    assert isinstance(dropped, Diagnostic)
    error = closed.error
    assert (error.limit, error.observed, error.maximum) == ("MAX_JUNK_LINES", 1_000, 1_000)
    assert "'no\\x1bise'" in str(error)
    assert isinstance(call.error, ProtocolError)


@pytest.mark.spec("odek.transport.junk-bound")
def test_a_mebibyte_of_junk_ends_the_connection(mcp: Any) -> None:
    mcp.receive_raw(b"x" * 1_048_575 + b"\n")
    assert len(mcp.events()) == 1
    assert mcp.peer.phase is Phase.READY
    mcp.receive_raw(b"x\n")
    assert mcp.events()[-1].error.limit == "MAX_JUNK_BYTES"


@pytest.mark.spec("odek.transport.invalid-utf8")
@pytest.mark.parametrize(
    "body",
    [
        b'{"content":[{"type":"text","text":"caf\xe9"}]}',
        b'{"x":"\\ud835y"}',
        b'{"x":"\xed\xa0\x80"}',
        b'{"x":NaN}',
        b'{"x":1e999}',
        b'{"x":%b}' % (b"9" * 5_000),
        b"[" * 200 + b"]" * 200,
        b'{"a":' * 5_000 + b"1" + b"}" * 5_000,
        b'{},"result":{}',
        b'{},"resul\\u0074":{}',
    ],
    ids=lambda body: repr(body[:24]),
)
def test_an_unreadable_answer_fails_its_call_and_the_next_one_works(mcp: Any, body: bytes, text_result: Text) -> None:
    call, other = mcp.sent(), mcp.sent("slow")
    mcp.receive_raw(reply(call, body))
    assert mcp.events() == []
    error = call.error
    assert isinstance(error, ResultError)
    assert (error.extension, error.tool) == ("srv", "echo")
    assert str(error).startswith("srv: tool echo: its answer cannot be read: ")
    mcp.answer(other, text_result("REAL"))
    mcp.events()
    assert other.result == text_result("REAL")
    assert mcp.peer.statistics().junk_lines == 0


def test_an_unreadable_initialize_answer_ends_the_start_at_once(new_mcp: NewMcp) -> None:
    wire = new_mcp()
    wire.peer.initialize()
    wire.written()
    wire.receive_raw(b'{"id":1,"result":{"protocolVersion":"2025-03-26","x":"\xff"}}\n')
    [closed] = wire.events()
    assert "its answer cannot be read: not JSON" in str(closed.error)


@pytest.mark.parametrize(
    "line",
    [
        b'{"id":3,"result":{"content":[',  # cut off: where it ends is not known
        b'{"id":3,"id":4,"result":{}}',  # which of the two?
        b'{"id":3,"method":"x","params":"\xff"}',  # a request of the server
        b'{"params":{"id":3,"result":{}},"x":"\xff"}',  # not the member of a message
        b'{"id":"3","result":"\xff"}',
        b'{"id":3.0,"result":"\xff"}',
        b'{"id":-3,"result":"\xff"}',
        b'{"id":3,"result":{}} trailing',
        b'{"id":3,"result":{}} {"x":1}',
        b'log: {"id":3,"result":{}}',
        b'{"id":4,"result":"\xff"}',
    ],
)
def test_no_call_is_failed_by_a_line_in_doubt(mcp: Any, line: bytes) -> None:
    call = mcp.sent()
    assert call.id == 3
    mcp.receive_raw(line + b"\n")
    assert len(mcp.events()) == 1
    assert not call.settled
    assert mcp.peer.statistics().junk_lines == 1


# -- batches -----------------------------------------------------------------------------------------------------------


@pytest.mark.spec("odek.transport.batch")
def test_a_batch_is_handled_in_order_and_answered_as_one(mcp: Any, text_result: Text) -> None:
    first, second = mcp.sent(), mcp.sent("slow")
    mcp.receive(
        [
            {"jsonrpc": "2.0", "method": "notifications/message", "params": {"n": 1}},
            {"jsonrpc": "2.0", "id": second.id, "result": text_result("2")},
            {"jsonrpc": "2.0", "id": 0, "method": "ping"},
            7,
            {"jsonrpc": "2.0", "id": "", "method": "sampling/createMessage", "params": {}},
            {"jsonrpc": "2.0", "id": first.id, "error": {"code": 1, "message": "no"}},
        ]
    )
    events = mcp.events()
    assert events[:2] == [NotificationReceived("notifications/message", {"n": 1}), ServerRequest("ping", refused=False)]
    assert isinstance(events[2], Diagnostic) and "in a batch is no message: '7'" in events[2].text
    assert events[3:] == [ServerRequest("sampling/createMessage", refused=True)]
    assert mcp.settled == [second, first]
    assert mcp.written() == [
        [
            {"jsonrpc": "2.0", "id": 0, "result": {}},
            {"jsonrpc": "2.0", "id": "", "error": {"code": -32601, "message": "Method not found"}},
        ]
    ]


@pytest.mark.spec("odek.transport.batch")
def test_a_batch_has_a_bound(mcp: Any) -> None:
    note = {"method": "n"}
    mcp.receive([note] * 1_024)
    assert mcp.events() == [NotificationReceived("n", None)] * 1_024
    mcp.receive([note] * 1_025)
    assert "a batch of 1025 messages, more than 1024" in mcp.texts()[0]


def test_a_batch_with_a_duplicate_member_fails_the_calls_it_answers(mcp: Any) -> None:
    call = mcp.sent()
    mcp.receive_raw(b'[{"id":3,"result":{"id":3}},{"method":"a","method":"b"}]\n')
    assert mcp.events() == []
    assert isinstance(call.error, ResultError)


# -- requests of the server --------------------------------------------------------------------------------------------


@pytest.mark.spec("odek.transport.ping", "odek.transport.other-requests")
@pytest.mark.parametrize("request_id", [0, "", -1, 7, "x" * 256, "\u2028", 2**63])
def test_any_id_of_a_request_is_echoed(mcp: Any, request_id: Any) -> None:
    mcp.receive({"id": request_id, "method": "ping"}, {"id": request_id, "method": "elicitation/create"})
    mcp.events()
    assert mcp.written() == [
        {"jsonrpc": "2.0", "id": request_id, "result": {}},
        {"jsonrpc": "2.0", "id": request_id, "error": {"code": -32601, "message": "Method not found"}},
    ]


@pytest.mark.spec("odek.transport.roots-list")
def test_roots_come_from_the_host(new_mcp: NewMcp) -> None:
    from broker.wire.mcp.settings import Root

    wire = new_mcp(roots=(Root("file:///srv/work", "work"), Root("file:///tmp/x"))).ready()
    wire.receive({"id": 1, "method": "roots/list"})
    assert wire.events() == [ServerRequest("roots/list", refused=False)]
    [answer] = wire.written()
    assert answer["result"] == {"roots": [{"uri": "file:///srv/work", "name": "work"}, {"uri": "file:///tmp/x"}]}


def test_a_server_that_asks_and_never_reads_is_ended(mcp: Any) -> None:
    mcp.receive(*({"id": number, "method": "ping"} for number in range(129)))
    events = mcp.events()
    assert [type(event) for event in events[-2:]] == [ServerRequest, Closed]
    assert (events[-1].error.limit, events[-1].error.maximum) == ("MAX_WRITER_FRAMES", 128)


# -- the decoder alone -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("depth", [127, 128, 129, 254, 255, 1_024, 50_000])
@pytest.mark.parametrize(("opening", "closing"), [(b"[", b"]"), (b'{"a":', b"}"), (b'[{"]":', b"}]")])
def test_depth_is_bounded_alike_for_every_shape(depth: int, opening: bytes, closing: bytes) -> None:
    """What is accepted can also be written again, by the same codec."""
    repeats = depth // len(closing)
    line = opening * repeats + b"1" + closing * repeats
    value = decode_line(line)
    if repeats * len(closing) > 128:
        assert isinstance(value, Junk) and value.reason == "more than 128 nested containers"
    else:
        assert orjson.dumps(value).replace(b" ", b"") == line


def test_brackets_in_strings_do_not_nest() -> None:
    assert decode_line(b'["' + b"[{" * 10_000 + b'\\"[["]') == ["[{" * 10_000 + '"[[']


@pytest.mark.parametrize(
    "line",
    [
        b'{"id":1,"result":{"id":1,"error":{"id":2}}}',
        b'{"id":1,"result":{"items":[{"id":1},{"id":2},{"id":3}]},"jsonrpc":"2.0"}',
        b'{"id":1,"result":{"x":"\\u0001\\"id\\":","\\u0069d":{"a":[{},[]]}}}',
        b'[{"id":1,"result":{}},{"id":2,"result":{"id":1}}]',
        b'{"id":1,"result":"\\"id\\" \\"id\\" id"}',
    ],
)
def test_a_name_that_recurs_deeper_is_no_duplicate(line: bytes) -> None:
    assert decode_line(line) == json.loads(line)


JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**53), 2**53) | st.text(max_size=8) | st.sampled_from(["id", "result"]),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.sampled_from(["id", "result", "a\x01"]), inner),
    max_leaves=20,
)


@settings(max_examples=150, deadline=None)
@given(value=JSON, ascii_only=st.booleans(), indent=st.sampled_from([None, 1]))
def test_every_json_value_is_read_as_it_is(value: Any, ascii_only: bool, indent: int | None) -> None:
    line = json.dumps(value, ensure_ascii=ascii_only, indent=indent).encode()
    assert decode_line(line) == value


@settings(max_examples=200, deadline=None)
@given(
    keys=st.lists(st.sampled_from(["id", "result", "error", "x", "\\u0069d", "i\\u0064"]), max_size=5),
    inner=st.sampled_from(["1", "{}", '{"id":1}', "[{}]", '"id"']),
    space=st.sampled_from(["", " ", "\t"]),
)
def test_duplicates_are_found_however_they_are_written(keys: list[str], inner: str, space: str) -> None:
    line = "{" + ",".join(f'"{key}"{space}:{space}{inner}' for key in keys) + "}"
    names = [json.loads(f'"{key}"') for key in keys]
    envelope = [name for name in names if name != "x"]
    found = isinstance(decode_line(line.encode()), Junk)
    if len(set(envelope)) < len(envelope):
        assert found
    elif len(set(names)) == len(names):
        assert not found


@settings(max_examples=200, deadline=None)
@given(st.binary(max_size=60) | st.text(alphabet='{}[]":,\\u0i d1e', max_size=60).map(str.encode))
def test_no_bytes_make_the_decoder_raise(line: bytes) -> None:
    value = decode_line(line.strip(b" \t\r\n"))
    if not isinstance(value, Junk):
        orjson.dumps(value)


@pytest.mark.parametrize("line", [b"[", b'{"a":', b'"\\"', b'{"id":1,', b"[]", b'{"id":"\\u0000"},', b'\\"'])
def test_hostile_lines_take_linear_time(line: bytes) -> None:
    def seconds(repeats: int) -> float:
        data = b'{"id":1,"result":[' + line * repeats + b"]}"
        started = time.thread_time()
        decode_line(data)
        return time.thread_time() - started

    small = min(seconds(20_000) for _ in range(3))
    assert min(seconds(160_000) for _ in range(3)) < 8 * 4 * small + 0.05


# -- chunks ------------------------------------------------------------------------------------------------------------

LINES = st.sampled_from(
    [
        '{"jsonrpc":"2.0","id":3,"result":{"content":[{"type":"text","text":"caf\xe9 \U0001f680\u2028"}]}}'.encode(),
        b'{"jsonrpc":"2.0","id":4,"error":{"code":-1,"message":"no"}}',
        b'{"id":3,"result":"\xff"}',
        b'{"id":"a","method":"ping"}',
        b'[{"id":"b","method":"ping"},{"method":"n"},{"id":4,"result":null}]',
        b'{"method":"notifications/tools/list_changed"}',
        b'{"method":"notifications/progress","params":{"progressToken":1,"progress":0.5}}',
        b"",
        b"\r",
        b"  \t",
        b"noise",
        b"\xef\xbb\xbf",
        b"{}",
        b"x" * 300,
        b"x" * 301,
    ]
)


def run(wire: Any, chunks: list[bytes]) -> list[str]:
    """Everything that can be observed."""
    wire = wire.ready()
    steps: list[Any] = []
    calls = [wire.call(on_progress=steps.append), wire.call("slow")]
    wire.written()
    log: list[str] = []
    for chunk in chunks:
        wire.receive_raw(chunk)
        log += map(repr, wire.events())
    wire.peer.receive_eof()
    log += map(repr, wire.events())
    log += map(repr, wire.written_raw())
    log += [f"{call.id} {call.result!r} {call.error!r} {call.error and call.error.tool}" for call in calls]
    return [*log, repr(steps), repr(wire.peer.statistics()), repr(wire.peer.next_deadline())]


@pytest.mark.spec("odek.transport.chunks")
@settings(max_examples=150, deadline=None)
@given(data=st.data(), lines=st.lists(LINES, max_size=8), ended=st.booleans())
def test_any_chunking_gives_the_same_events(
    new_mcp: NewMcp, data: st.DataObject, lines: list[bytes], ended: bool
) -> None:
    stream = b"\n".join(lines) + (b"\n" if ended else b"")
    cuts = sorted(data.draw(st.lists(st.integers(0, len(stream)), max_size=12)))
    chunks = [stream[a:b] for a, b in zip([0, *cuts], [*cuts, len(stream)], strict=True)]
    assert run(new_mcp(max_response_bytes=300), chunks) == run(new_mcp(max_response_bytes=300), [stream])
