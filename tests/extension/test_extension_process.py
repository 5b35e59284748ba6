"""An extension of the author's kit as a real process, by its raw bytes: what it writes, and how it ends."""

from __future__ import annotations

import os
import pty
import re
import select
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import broker
from broker import canonical
from broker.wire.octet.contract import build_offer
from broker.wire.octet.schema import encode

SCRIPT = Path(__file__).with_name("extension_script.py")
SOURCES = str(Path(broker.__file__).parents[1])
BOUND_S = 50.0
TOOLS = ["greet", "publish", "publish_plainly", "wait", "watch", "meet", "never", "borrow", "hurry", "leave"]


def initialize_params(name: str = "hello", tools: list[str] = TOOLS) -> dict[str, Any]:
    return {
        "api_version": "0.3",
        "octet_version": "0.8.0",
        "extension": {"name": name},
        "workspace": "/",
        "capabilities": {},
        "contributes": {"tools": tools, "hooks": []},
        "flag_values": [],
        "host": {},
        "contract": encode(build_offer(["event_bus"])),
    }


class Process:
    """The process and its pipes; every wait has a bound."""

    def __init__(self, script: Path = SCRIPT, **options: Any) -> None:
        environment = {name: value for name, value in os.environ.items() if not name.startswith("OCTET_")}
        self.process = subprocess.Popen(
            [sys.executable, "-W", "error", script],
            stdin=options.pop("stdin", subprocess.PIPE),
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            bufsize=0,
            env={**environment, "PYTHONPATH": SOURCES, **options},
        )
        assert self.process.stdout is not None and self.process.stderr is not None
        self.stdout, self.stderr = self.process.stdout, self.process.stderr
        self._read = b""
        self._logged = b""
        self._last_id = 0

    def send(self, **message: Any) -> None:
        assert self.process.stdin is not None
        self.process.stdin.write(canonical.encode({"jsonrpc": "2.0", **message}) + b"\n")

    def ask(self, method: str, params: Any) -> int:
        self._last_id += 1
        self.send(id=self._last_id, method=method, params=params)
        return self._last_id

    def call(self, tool: str, **arguments: Any) -> int:
        return self.ask("tool/call", {"name": tool, "arguments": arguments, "context": {}})

    def message(self) -> Any:
        """The next frame it writes."""
        while b"\n" not in self._read:
            assert select.select([self.stdout], [], [], BOUND_S)[0], "it writes nothing"
            data = os.read(self.stdout.fileno(), 65_536)
            assert data, f"it closed its output: {self.stderr.read()!r}"
            self._read += data
        line, _, self._read = self._read.partition(b"\n")
        return canonical.decode(line)

    def texts(self) -> list[str]:
        return [part["text"] for part in self.message()["result"]["content"]]

    def initialize(self, name: str = "hello", tools: list[str] = TOOLS) -> Any:
        self.ask("initialize", initialize_params(name, tools))
        return self.message()

    def bind(self, binding: str = "b1", revision: int = 1) -> None:
        """Give it a binding and take its declaration."""
        params = {"kind": "binding", "binding_id": binding, "binding_revision": revision}
        self.send(method="bus/lifecycle", params=params)
        declare = self.message()
        assert (declare["method"], declare["params"]["topic"]) == ("bus/declare", "bus.hello.report")
        self.send(id=declare["id"], result={"binding_id": binding})

    def until_begun(self, *tools: str) -> None:
        """Wait until these tools run, and forget that they said so."""
        for tool in tools:
            sign = f"{tool} begins\n".encode()
            while sign not in self._logged:
                assert select.select([self.stderr], [], [], BOUND_S)[0], f"{tool} does not begin"
                self._logged += os.read(self.stderr.fileno(), 65_536)
            self._logged = self._logged.replace(sign, b"", 1)

    def end(self, status: int = 0) -> str:
        """Close its input; its stderr, once it has exited with ``status``."""
        assert self.process.stdin is not None
        self.process.stdin.close()
        return self.exited(status)

    def exited(self, status: int) -> str:
        assert self.process.wait(BOUND_S) == status, self.stderr.read()
        return (self._logged + self.stderr.read()).decode()


@pytest.fixture
def start() -> Iterator[Callable[..., Process]]:
    started: list[Process] = []

    def run(*given: Any, **options: Any) -> Process:
        started.append(Process(*given, **options))
        return started[-1]

    yield run
    for one in started:
        one.process.kill()
        one.process.wait()
        for pipe in (one.process.stdin, one.stdout, one.stderr):
            if pipe is not None:
                pipe.close()


@pytest.fixture
def process(start: Callable[..., Process]) -> Process:
    made = start()
    made.initialize()
    return made


def test_the_answer_to_initialize(start: Callable[..., Process]) -> None:
    answer = start().initialize()
    assert answer["result"]["contract"] == {
        "schema": "octet.extension.api/0.3",
        "encoding": "octet-canonical-json-v1",
        "capabilities": ["content_parts", "core", "event_bus", "request_cancellation", "tool_call"],
        "methods": [
            *("$/cancelRequest", "bus/declare", "bus/event", "bus/lifecycle", "bus/publish", "bus/subscribe"),
            *("bus/unsubscribe", "initialize", "shutdown", "tool/call"),
        ],
        "limits": {"max_frame_bytes": 1_048_576, "max_concurrent_requests": 16, "max_tools": 256},
    }
    assert [tool["name"] for tool in answer["result"]["tools"]] == TOOLS


def test_prints_go_to_stderr_and_stdin_is_empty(process: Process) -> None:
    process.call("greet", who="Ada")
    assert process.texts() == ["hello, Ada"]
    assert process.end() == "print: Ada\nwrite\nread: ''\n"


def test_a_publication_from_the_loop_and_from_a_thread(process: Process) -> None:
    process.bind()
    for tool in ("publish", "publish_plainly"):
        process.call(tool)
        publish = process.message()
        assert publish["params"] == {"binding_id": "b1", "topic": "bus.hello.report", "payload": {}}
        result = {"binding_id": "b1", "sequence": 7, "published_at_ms": 1}
        process.send(id=publish["id"], result=result)
        assert process.texts() == ["7"]


def test_a_publication_that_is_refused(process: Process) -> None:
    process.bind()
    process.call("publish")
    error = {"code": -32012, "message": "extension resource exhausted"}
    process.send(id=process.message()["id"], error=error)
    assert process.texts() == ["the host refused bus/publish: resource exhausted"]


def test_a_new_binding_while_a_publication_is_on_its_way(process: Process) -> None:
    process.bind()
    process.call("publish")
    publish = process.message()
    process.bind("b2", 2)
    process.send(id=publish["id"], error={"code": -32011, "message": "extension capability mismatch"})
    assert process.texts() == [
        "bus.hello.report: the session got a new binding while this event was on its way; it was not published"
    ]


def test_plain_functions_run_beside_each_other(process: Process) -> None:
    ids = {process.call("meet", count=16) for _ in range(16)}
    answers = [process.message() for _ in range(16)]
    assert {answer["id"] for answer in answers} == ids
    assert {answer["result"]["content"][0]["text"] for answer in answers} == {"handler"}


@pytest.mark.spec("octet.bound.max-concurrent-requests")
def test_more_requests_than_were_agreed_are_refused(process: Process) -> None:
    for _ in range(16):
        process.call("wait")
    over = process.call("wait")
    assert process.message() == {
        "id": over,
        "jsonrpc": "2.0",
        "error": {
            "code": -32012,
            "message": "extension resource exhausted",
            "data": {"reason": "more than 16 requests at once"},
        },
    }


@pytest.mark.spec("octet.cancel.notification")
def test_cancelling_a_coroutine_and_a_thread(process: Process) -> None:
    first, second = process.call("wait"), process.call("watch")
    process.until_begun("wait", "watch")
    for call in (first, second):
        process.send(method="$/cancelRequest", params={"id": call, "reason": "user"})
    answers = {answer["id"]: answer for answer in (process.message(), process.message())}
    assert answers[first]["error"]["code"] == -32800
    assert answers[first]["error"]["data"] == {"reason": "user"}
    # What a function has to say in time is the answer.
    assert answers[second]["result"]["content"][0]["text"] == "noticed user"


@pytest.mark.spec("octet.cancel.terminal-result")
def test_a_thread_that_goes_on_is_answered_without_it(process: Process) -> None:
    call = process.call("never")
    process.until_begun("never")
    process.send(method="$/cancelRequest", params={"id": call})
    assert process.message()["error"] == {"code": -32800, "message": "request cancelled"}
    process.call("greet", who="Ada")
    assert process.texts() == ["hello, Ada"]
    assert process.end().startswith("never goes on after it was cancelled; it was answered without it\n")


def test_a_thread_that_takes_too_long(process: Process) -> None:
    process.call("hurry")
    answer = process.message()["result"]
    assert (answer["is_error"], answer["content"][0]["text"]) == (True, "hurry took more than 50 ms")


def test_a_tool_does_not_end_the_process(process: Process) -> None:
    process.call("leave")
    assert process.texts() == ["leave failed: SystemExit"]
    process.call("greet", who="Ada")
    assert process.texts() == ["hello, Ada"]


@pytest.mark.spec("octet.shutdown.terminal")
def test_shutdown_with_calls_open(process: Process) -> None:
    calls = [process.call("wait"), process.call("never")]
    process.until_begun("wait", "never")
    process.ask("shutdown", {})
    answers = [process.message() for _ in range(3)]
    assert [answer["id"] for answer in answers] == [*calls, 4]
    assert [answer.get("error", {}).get("code") for answer in answers] == [-32800, -32800, None]
    assert answers[2]["result"] == {"terminal": "shutdown"}
    assert process.exited(0) == "never goes on after it was cancelled; it was answered without it\n"


@pytest.mark.parametrize("tool", [None, "wait", "never", "borrow"])
def test_the_end_of_the_input_ends_it(process: Process, tool: str | None) -> None:
    if tool is not None:
        process.call(tool)
        process.until_begun(tool)
    text = process.end(0)
    assert text.startswith("ended without the thread asyncio_0, which goes on\n") is (tool == "borrow")


def test_a_closed_output_ends_it(process: Process) -> None:
    process.stdout.close()
    process.call("greet", who="Ada")
    process.exited(0)


@pytest.mark.parametrize(
    ("data", "reason"),
    [
        (b'{"jsonrpc": "2.0"}\n', "white space"),
        (b"\n", "unexpected end at byte 0"),
        (b'{"id":2,"jsonrpc":"2.0","method":"tool/call","params":null}\n', "params: must not be null"),
        (b"x" * 1_048_577, "a frame of more than 1048576 bytes"),
    ],
)
@pytest.mark.spec("octet.framing.over-bound")
def test_a_host_that_breaks_the_protocol(process: Process, data: bytes, reason: str) -> None:
    assert process.process.stdin is not None
    process.process.stdin.write(data)
    text = process.exited(1)
    assert text.startswith("the connection to the host ended: ")
    assert reason in text


def test_another_version_is_refused(start: Callable[..., Process]) -> None:
    process = start()
    process.ask("initialize", {"api_version": "0.4"})
    error = process.message()["error"]
    assert (error["code"], error["message"]) == (-32010, "extension API version mismatch")
    assert process.exited(1) == (
        "the connection to the host ended: initialize: api_version is '0.4', and this extension speaks '0.3'\n"
    )


def test_another_name_is_refused(start: Callable[..., Process]) -> None:
    process = start()
    error = process.initialize(name="other")["error"]
    assert error["code"] == -32011
    assert error["data"]["reason"] == (
        "the manifest names this extension 'other', its code says Extension('hello'); make them the same"
    )
    process.exited(1)


@pytest.mark.parametrize("what", ["terminal", "/dev/null"])
def test_without_a_host_it_says_what_it_is(start: Callable[..., Process], what: str) -> None:
    opened = pty.openpty() if what == "terminal" else (os.open(what, os.O_RDONLY),)
    try:
        process = start(stdin=opened[-1])
        assert process.exited(2) == (
            "hello is an octet extension: a host starts it and talks to it over pipes.\n"
            f'Try it:  broker call {SCRIPT.parent} greet \'{{"who": "who"}}\'\n         broker run {SCRIPT.parent}\n'
        )
    finally:
        for descriptor in opened:
            os.close(descriptor)


def test_frames_may_stand_in_a_file_and_what_follows_the_end_is_not_read(
    start: Callable[..., Process], tmp_path: Path
) -> None:
    script, file = tmp_path / "main.py", tmp_path / "frames"
    script.write_text("from broker.extension import Extension\n\nExtension('hello', '1.0.0').run()\n")
    frames = [
        {"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": initialize_params(tools=[])},
        {"jsonrpc": "2.0", "id": 2, "method": "shutdown", "params": {}},
    ]
    with file.open("wb") as stream:
        stream.writelines(canonical.encode(frame) + b"\n" for frame in frames)
        late = {"jsonrpc": "2.0", "method": "$/cancelRequest", "params": {"id": 9}}
        stream.write((canonical.encode(late) + b"\n") * 100_000)
    with file.open("rb") as stream:
        process = start(script, stdin=stream)
        assert [process.message()["id"] for _ in range(2)] == [1, 2]
        assert process.exited(0) == ""


def test_a_manifest_beside_the_program_is_held_against_it(start: Callable[..., Process], tmp_path: Path) -> None:
    script = tmp_path / "main.py"
    script.write_text(SCRIPT.read_text())
    manifest = tmp_path / "extension.toml"
    manifest.write_text('name = "hello"\nversion = "2.0.0"\napi_version = "0.3"\n[entrypoint]\ncommand = "main.py"\n')
    text = start(script).exited(2)
    lines = text.splitlines()
    assert lines[0] == f"hello: {manifest} and the code disagree:"
    assert lines[1:3] == [
        '  version: is "2.0.0", the code says "1.0.0"',
        '  contributes.tools: lacks "greet", which the code has',
    ]


def test_a_named_manifest_is_the_one(start: Callable[..., Process], tmp_path: Path) -> None:
    manifest = tmp_path / "extension.toml"
    manifest.write_text("")
    process = start(OCTET_EXTENSION_MANIFEST=str(manifest))
    assert re.match(r"hello: .* is not a valid manifest:\n  name: required key is missing", process.exited(2))


def test_it_is_idle_while_nothing_happens(process: Process) -> None:
    def cpu_ticks() -> int:
        fields = Path(f"/proc/{process.process.pid}/stat").read_text().rpartition(")")[2].split()
        return int(fields[11]) + int(fields[12])

    process.call("greet", who="Ada")
    process.texts()

    def ticks_of_a_while() -> int:
        before = cpu_ticks()
        select.select([], [], [], 0.3)
        return cpu_ticks() - before

    # Nothing to wait for but time: a thread that is busy would use all of it, each time. Once, what the call left to do
    # may be in it.
    assert min(ticks_of_a_while() for _ in range(3)) <= 2


def test_a_signal_ends_it(process: Process) -> None:
    process.process.send_signal(signal.SIGTERM)
    assert process.process.wait(BOUND_S) == -signal.SIGTERM
