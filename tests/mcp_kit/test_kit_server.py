"""A server made with the kit, as a process and by raw bytes: what it writes, when, and how it ends."""

from __future__ import annotations

import json
import os
import select
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from urllib.parse import unquote

import pytest

from broker.limits import MAX_SERVER_WORKERS

SCRIPT = Path(__file__).with_name("kit_server.py")
BOUND_S = 50.0


class Kit:
    """The process and its pipes; every wait has a bound."""

    def __init__(self, **environment: str) -> None:
        self.process = subprocess.Popen(
            [sys.executable, SCRIPT],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            bufsize=0,
            env={**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path)), **environment},
        )
        assert self.process.stdin is not None and self.process.stdout is not None and self.process.stderr is not None
        self.stdin, self.stdout, self.stderr = self.process.stdin, self.process.stdout, self.process.stderr
        self._read = b""
        self._number = 0

    def write(self, data: bytes) -> None:
        self.stdin.write(data)

    def line(self) -> bytes:
        """The next line it writes, LF included."""
        while b"\n" not in self._read:
            data = self.read_some()
            assert data, "it closed its output"
            self._read += data
        line, _, self._read = self._read.partition(b"\n")
        return line + b"\n"

    def read_some(self) -> bytes:
        assert select.select([self.stdout], [], [], BOUND_S)[0], "it writes nothing"
        return os.read(self.stdout.fileno(), 65_536)

    def message(self) -> Any:
        return json.loads(self.line())

    def send(self, method: str, params: Any = None, **members: Any) -> int:
        self._number += 1
        message = {"jsonrpc": "2.0", "id": self._number, "method": method, **members}
        self.write(json.dumps(message if params is None else {**message, "params": params}).encode() + b"\n")
        return self._number

    def ask(self, method: str, params: Any = None, **members: Any) -> Any:
        number = self.send(method, params, **members)
        answer = self.message()
        assert answer["id"] == number
        return answer

    def call(self, tool: str, arguments: Any = None, **params: Any) -> tuple[list[str], bool]:
        """The texts of an answer, and whether they are an error."""
        result = self.ask("tools/call", {"name": tool, "arguments": arguments, **params})["result"]
        assert all(item["type"] == "text" for item in result["content"])
        return [item["text"] for item in result["content"]], result["isError"]

    def end(self) -> tuple[int, bytes, bytes]:
        """Close its input: its exit status, what else it wrote, and its stderr."""
        self.stdin.close()
        status = self.process.wait(BOUND_S)
        return status, self._read + self.stdout.read(), self.stderr.read()

    def close(self) -> None:
        if self.process.poll() is None:
            self.process.kill()
            self.process.wait()
        for pipe in (self.stdin, self.stdout, self.stderr):
            pipe.close()


@pytest.fixture
def start() -> Iterator[Callable[..., Kit]]:
    started: list[Kit] = []

    def make(**environment: str) -> Kit:
        started.append(Kit(**environment))
        return started[-1]

    yield make
    for kit in started:
        kit.close()


@pytest.fixture
def kit(start: Callable[..., Kit]) -> Kit:
    return start()


# -- the protocol ------------------------------------------------------------------------------------------------------


@pytest.mark.spec("odek.server.minimal", "odek.server.ping", "odek.server.id-echoed", "odek.server.list-without-params")
def test_the_bytes_of_a_conversation(kit: Kit) -> None:
    """tools/list comes first, without params and without any handshake."""
    kit.write(b'{"jsonrpc":"2.0","id":"a","method":"tools/list"}\r\n\n')
    tools = json.loads(kit.line())
    assert tools["id"] == "a"
    assert list(tools["result"]) == ["tools"]
    assert tools["result"]["tools"][0] == {
        "name": "add",
        "description": "Add.",
        "inputSchema": {
            "type": "object",
            "properties": {"a": {"type": "integer"}, "b": {"type": "integer"}},
            "required": ["a"],
        },
    }
    kit.write(b'{"jsonrpc":"2.0","id":0,"method":"initialize","params":{"protocolVersion":"2024-11-05"}}\n')
    assert kit.line() == (
        b'{"jsonrpc":"2.0","id":0,"result":{"protocolVersion":"2024-11-05","capabilities":{"tools":{}},'
        b'"serverInfo":{"name":"kit","version":"1.2"}}}\n'
    )
    kit.write(b'{"jsonrpc":"2.0","id":-5,"method":"ping"}\n')
    assert kit.line() == b'{"jsonrpc":"2.0","id":-5,"result":{}}\n'
    kit.write(b'{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"add","arguments":{"a":2}}}\n')
    assert kit.line() == b'{"jsonrpc":"2.0","id":1,"result":{"content":[{"type":"text","text":"3"}],"isError":false}}\n'
    assert kit.end() == (0, b"", b"")


@pytest.mark.parametrize("asked", ["2099-01-01", None, 7, [], {}])
def test_an_unknown_version_is_answered_with_our_own(kit: Kit, asked: Any) -> None:
    assert kit.ask("initialize", {"protocolVersion": asked})["result"]["protocolVersion"] == "2025-03-26"


@pytest.mark.spec("odek.server.notifications-unanswered")
def test_notifications_and_answers_are_never_answered(kit: Kit) -> None:
    for message in (
        {"method": "notifications/initialized"},
        {"method": "notifications/cancelled", "params": {"requestId": 99}},
        {"method": "notifications/cancelled"},
        {"method": "tools/call", "params": {"name": "add", "arguments": {"a": 1}}},
        {"id": 7, "result": {}},
        {"id": 7, "error": {"code": 1, "message": ""}},
    ):
        kit.write(json.dumps(message).encode() + b"\n")
    assert kit.ask("ping")["result"] == {}
    assert kit.end() == (0, b"", b"")


@pytest.mark.parametrize(
    ("line", "request_id", "code"),
    [
        (b"{", None, -32700),
        (b"\xff\xfe", None, -32700),
        (b"[" * 100_000, None, -32700),
        (b'{"id":NaN,"method":"ping"}', None, -32700),
        (b'{"id":5,"method":"tools/call","params":{"name":"add","arguments":{"a":Infinity}}}', None, -32700),
        (b"7", None, -32600),
        (b"[]", None, -32600),
        (b'{"id":1e999,"method":"ping"}', None, -32600),
        (b'{"id":-1e999,"method":7}', None, -32600),
        (b'{"id":%b,"method":"ping"}' % (b"[" * 500 + b"]" * 500), None, -32600),
        (b'{"id":{},"method":"tools/call","params":{"name":"add"}}', None, -32600),
        (b'[{"id":5}]', 5, -32600),
        (b'{"id":5,"method":7}', 5, -32600),
        (b'{"id":5,"method":"resources/list"}', 5, -32601),
        (b'{"id":5,"method":"tools/call"}', 5, -32602),
        (b'{"id":5,"method":"tools/call","params":[]}', 5, -32602),
        (b'{"id":5,"method":"tools/call","params":{"name":["add"]}}', 5, -32602),
        (b'{"id":5,"method":"tools/call","params":{"name":"missing"}}', 5, -32602),
    ],
    ids=lambda value: repr(value)[:40],
)
def test_what_cannot_be_answered_well_is_answered_with_an_error(
    kit: Kit, line: bytes, request_id: Any, code: int
) -> None:
    kit.write(line + b"\n")
    answer = kit.message()
    assert (answer["id"], answer["error"]["code"]) == (request_id, code)
    assert kit.ask("ping")["result"] == {}


def test_a_batch_is_taken_apart(kit: Kit) -> None:
    kit.write(b'[{"id":1,"method":"ping"},{"method":"notifications/x"},{"id":"b","method":"ping"}]\n')
    assert [kit.message()["id"] for _ in range(2)] == [1, "b"]


def test_lines_come_in_any_pieces(kit: Kit) -> None:
    for byte in b'{"id":1,"method":"ping"}\n{"id":2,':
        kit.write(bytes([byte]))
    assert kit.message()["id"] == 1
    kit.write(b'"method":"ping"}\n')
    assert kit.message()["id"] == 2


# -- arguments ---------------------------------------------------------------------------------------------------------


@pytest.mark.spec("odek.names.unknown-arguments", "odek.server.arguments-any")
@pytest.mark.parametrize("arguments", [None, "text", 7, [], True, {}, {"unknown": 1, "other": {"x": []}}])
def test_any_arguments_are_tolerated(kit: Kit, arguments: Any) -> None:
    assert kit.call("kinds", arguments) == (['{"number": null, "words": null, "choice": "x"}'], False)


def test_arguments_may_be_left_out(kit: Kit) -> None:
    answer = kit.ask("tools/call", {"name": "kinds"})
    assert answer["result"]["isError"] is False


@pytest.mark.parametrize(
    ("arguments", "problem"),
    [
        (None, "argument a is missing"),
        ({"b": 1}, "argument a is missing"),
        ({"a": "1"}, "argument a: expected int, got '1'"),
        ({"a": True}, "argument a: expected int, got True"),
        ({"a": 1.0}, "argument a: expected int, got 1.0"),
        ({"a": None}, "argument a: expected int, got None"),
        ({"a": 1, "b": []}, "argument b: expected int, got []"),
    ],
)
def test_arguments_are_checked(kit: Kit, arguments: Any, problem: str) -> None:
    assert kit.call("add", arguments) == ([problem], True)


@pytest.mark.parametrize(
    ("arguments", "problem"),
    [
        ({"number": "1"}, "argument number: expected float | None, got '1'"),
        ({"words": ["a", 1]}, "argument words: expected list[str] | None, got ['a', 1]"),
        ({"choice": 1}, "argument choice: expected Literal['x', 2], got 1"),
        ({"choice": 2.0}, "argument choice: expected Literal['x', 2], got 2.0"),
    ],
)
def test_composed_types_are_checked(kit: Kit, arguments: Any, problem: str) -> None:
    assert kit.call("kinds", arguments) == ([problem], True)


def test_an_integer_is_a_number(kit: Kit) -> None:
    texts, is_error = kit.call("kinds", {"number": 3, "words": [], "choice": 2})
    assert (json.loads(texts[0]), is_error) == ({"number": 3, "words": [], "choice": 2}, False)


# -- results -----------------------------------------------------------------------------------------------------------


def test_what_tools_return_and_raise(kit: Kit) -> None:
    assert kit.call("texts") == (["one", "two\u2028\n"], False)
    assert kit.call("fail") == (["it\nfailed"], True)
    assert kit.call("unserialisable") == (["unserialisable failed: TypeError"], True)
    assert kit.call("bad_progress", _meta={"progressToken": 1}) == (["bad_progress failed: ValueError"], True)
    assert kit.call("twice") == (["this server has no artifact_root"], True)
    assert kit.call("leave") == (["leave failed: SystemExit"], True)
    assert kit.call("add", {"a": 1}) == (["2"], False)


@pytest.mark.parametrize(
    ("how", "text"),
    [
        ("text", "x\ufffdy"),
        ("error", "x\ufffdy"),
        ("keys", '{"\ufffd": ["\ufffd", "\U0001d538"]}'),
        ("envelope", '{"schema": "odek.tool-result/v1", "text": "x\ufffdy", "artifacts": [{"id": "\ufffd"}]}'),
    ],
)
def test_half_a_pair_is_never_written(kit: Kit, how: str, text: str) -> None:
    assert kit.call("surrogate", {"how": how}) == ([text], how == "error")


def test_a_description_is_whole_too(kit: Kit) -> None:
    kit.write(b'{"jsonrpc":"2.0","id":"\\u00e9","method":"tools/list"}\n')
    line = kit.line()
    assert line.isascii()
    assert b'"id":"\\u00e9"' in line
    assert b'"description":"Half a pair: \\ufffd."' in line


def test_the_text_of_a_foreign_error_stays_here(kit: Kit) -> None:
    assert kit.call("crash") == (["crash failed: RuntimeError"], True)
    status, rest, stderr = kit.end()
    assert (status, rest) == (0, b"")
    assert b"crash failed: RuntimeError('password=hunter2')" in stderr


@pytest.mark.spec("odek.transport.stdout-only-protocol")
def test_what_a_tool_prints_goes_to_stderr(kit: Kit) -> None:
    assert kit.call("noisy") == (["''"], False)
    status, rest, stderr = kit.end()
    assert (status, rest) == (0, b"")
    assert sorted(stderr.split()) == [b"echoed", b"printed", b"written"]


@pytest.mark.spec("odek.server.line-bound")
def test_an_answer_that_is_too_long_becomes_an_error(start: Callable[..., Kit]) -> None:
    """The bound is max_response_bytes less one, as other hosts count the LF."""
    kit = start(KIT_BYTES="1000")
    kit.send("tools/call", {"name": "long", "arguments": {"chars": 0}})
    overhead = len(kit.line()) - 1
    most = 999 - overhead
    kit.send("tools/call", {"name": "long", "arguments": {"chars": most}})
    assert len(kit.line()) == 1_000
    texts, is_error = kit.call("long", {"chars": most + 1})
    assert (texts, is_error) == (["the answer of long is a line of 1000 bytes, over 999"], True)
    tools = kit.ask("tools/list")
    assert tools["error"]["code"] == -32603
    assert "the answer of the server is a line of" in tools["error"]["message"]


# -- at the same time --------------------------------------------------------------------------------------------------


def test_tools_run_side_by_side_and_ping_is_answered(kit: Kit) -> None:
    waiting = [kit.send("tools/call", {"name": "wait"}) for _ in range(MAX_SERVER_WORKERS - 1)]
    assert kit.ask("ping")["result"] == {}
    opening = kit.send("tools/call", {"name": "open_gate"})
    answers = [kit.message() for _ in range(len(waiting) + 1)]
    assert {answer["id"]: answer["result"]["content"][0]["text"] for answer in answers} == {
        **dict.fromkeys(waiting, "opened"),
        opening: "open",
    }


def test_more_calls_than_threads_wait_their_turn(kit: Kit) -> None:
    sent = [kit.send("tools/call", {"name": "add", "arguments": {"a": n}}) for n in range(200)]
    answers = {answer["id"]: answer["result"]["content"][0]["text"] for answer in (kit.message() for _ in sent)}
    assert answers == {number: str(n + 1) for n, number in enumerate(sent)}


def test_a_call_can_be_cancelled(kit: Kit) -> None:
    first, second = (kit.send("tools/call", {"name": "wait"}) for _ in range(2))
    for wrong in (str(first), 99, None, True):
        kit.write(json.dumps({"method": "notifications/cancelled", "params": {"requestId": wrong}}).encode() + b"\n")
    kit.write(json.dumps({"method": "notifications/cancelled", "params": {"requestId": second}}).encode() + b"\n")
    answer = kit.message()
    assert (answer["id"], answer["result"]["content"][0]["text"]) == (second, "cancelled")
    kit.send("tools/call", {"name": "open_gate"})
    texts = {(answer["id"], answer["result"]["content"][0]["text"]) for answer in (kit.message() for _ in range(2))}
    assert (first, "opened") in texts


def test_progress_is_written_when_it_is_made(kit: Kit) -> None:
    number = kit.send("tools/call", {"name": "steps", "_meta": {"progressToken": "p"}})
    params = {"progressToken": "p", "progress": 1, "total": 2, "message": "half"}
    assert kit.message() == {"jsonrpc": "2.0", "method": "notifications/progress", "params": params}
    opening = kit.send("tools/call", {"name": "open_gate"})
    rest = [kit.message() for _ in range(3)]
    assert [message for message in rest if message.get("id") != opening] == [
        {"jsonrpc": "2.0", "method": "notifications/progress", "params": {"progressToken": "p", "progress": 2}},
        {"jsonrpc": "2.0", "id": number, "result": {"content": [{"type": "text", "text": "done"}], "isError": False}},
    ]


@pytest.mark.parametrize("token", [b"1e999", b"[1]", b'{"a":1}', b"null"])
def test_what_is_no_token_asks_for_no_progress(kit: Kit, token: bytes) -> None:
    kit.call("open_gate")
    kit.write(
        b'{"id":"x","method":"tools/call","params":{"name":"steps","_meta":{"progressToken":%b}}}\n' % token,
    )
    answer = kit.message()
    assert (answer["id"], answer["result"]["content"][0]["text"]) == ("x", "done")
    assert kit.end() == (0, b"", b"")


def test_nobody_who_did_not_ask_gets_progress(kit: Kit) -> None:
    kit.call("open_gate")
    assert kit.call("steps") == (["done"], False)
    assert kit.end() == (0, b"", b"")


# -- the end -----------------------------------------------------------------------------------------------------------


@pytest.mark.spec("odek.server.exit-on-eof")
def test_the_end_of_the_input_ends_it_after_open_calls(kit: Kit) -> None:
    """As in ``printf ... | server``: what was asked is answered."""
    kit.send("tools/call", {"name": "add", "arguments": {"a": 1}})
    kit.send("tools/call", {"name": "wait"})
    status, rest, stderr = kit.end()
    assert (status, stderr) == (0, b"")
    answers = [json.loads(line) for line in rest.splitlines()]
    assert {answer["id"]: answer["result"]["content"][0]["text"] for answer in answers} == {1: "2", 2: "cancelled"}


@pytest.mark.spec("odek.server.exit-on-eof")
def test_a_tool_that_never_ends_does_not_hold_it_up(kit: Kit) -> None:
    kit.send("tools/call", {"name": "deaf"})
    assert select.select([kit.stderr], [], [], BOUND_S)[0]
    status, rest, stderr = kit.end()
    assert (status, rest, stderr) == (0, b"", b"deaf\n")


def test_sigterm_ends_it_at_once(kit: Kit) -> None:
    kit.send("tools/call", {"name": "deaf"})
    assert select.select([kit.stderr], [], [], BOUND_S)[0]
    kit.process.send_signal(signal.SIGTERM)
    assert kit.process.wait(BOUND_S) == -signal.SIGTERM


def test_a_client_that_reads_no_more_does_not_make_it_fail(kit: Kit) -> None:
    assert kit.ask("ping")["result"] == {}
    kit.stdout.close()
    kit.send("tools/call", {"name": "add", "arguments": {"a": 1}})
    kit.send("ping")
    kit.stdin.close()
    assert kit.process.wait(BOUND_S) == 0
    assert kit.stderr.read() == b""


# -- artifacts ---------------------------------------------------------------------------------------------------------


@pytest.mark.spec("odek.server.artifact-complete")
def test_an_artifact_is_there_before_its_answer(start: Callable[..., Kit], tmp_path: Path) -> None:
    kit = start(KIT_ROOT=str(tmp_path))
    [text], is_error = kit.call("attach", {"size": 100_000})
    envelope = json.loads(text)
    [ref] = envelope["artifacts"]
    assert (is_error, envelope["text"], ref["size_bytes"]) == (False, "see it", 100_000)
    assert Path(unquote(ref["uri"].removeprefix("file://"))).read_bytes() == b"x" * 100_000
    assert kit.call("twice") == (["two artifacts of one result have the same id"], True)


def test_a_full_disk_fails_the_call_and_leaves_nothing(start: Callable[..., Kit], tmp_path: Path) -> None:
    mount = shutil.which("mount")
    options = ["-t", "tmpfs", "-o", "size=64k", "tmpfs", os.fspath(tmp_path)]
    if mount is None or os.geteuid() or subprocess.run([mount, *options], capture_output=True).returncode:
        pytest.skip("mounting a small file system needs root")
    try:
        kit = start(KIT_ROOT=str(tmp_path))
        assert kit.call("attach", {"size": 1_000_000}) == (["attach failed: OSError"], True)
        assert os.listdir(tmp_path) == []
        assert kit.call("attach", {"size": 10})[1] is False
        kit.end()
    finally:
        subprocess.run(["umount", os.fspath(tmp_path)], check=True)


def test_a_read_only_root_fails_the_call(start: Callable[..., Kit]) -> None:
    kit = start(KIT_ROOT="/proc/self")
    texts, is_error = kit.call("attach")
    assert is_error
    assert texts[0].startswith("attach failed: ")
