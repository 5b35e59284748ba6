"""The workbench's extensions as real processes, against a host that follows a script."""

from __future__ import annotations

import json
import os
import select
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from broker.adapters.discovery import load_manifest
from broker.canonical import decode, encode
from broker.errors import ERROR_TABLE
from broker.wire.framing import LineFramer
from broker.wire.octet.manifest import Manifest

WORKBENCH = Path(__file__).parents[2] / "docs" / "examples" / "workbench"
BOUND_SECONDS = 50.0
BUS = ["bus/declare", "bus/event", "bus/lifecycle", "bus/publish", "bus/subscribe", "bus/unsubscribe"]
REQUIRED_METHODS = ["$/cancelRequest", "initialize", "shutdown", "tool/call"]
REQUIRED_CAPABILITIES = ["content_parts", "core", "request_cancellation", "tool_call"]
CHANGES, REPORT = "bus.watcher.changes", "bus.checker.report"


class ScriptedHost:
    """One extension process and the host's end of its pipes. Every frame it writes must be canonical."""

    def __init__(self, program: Path, workspace: Path, *, path: str | None = None) -> None:
        self.workspace = workspace
        self.process = subprocess.Popen(
            [sys.executable, str(program)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            cwd=workspace,
            bufsize=0,
            env={"OCTET_EXTENSION_DIR": str(program.parent), "PATH": path or "/nowhere", "LANG": "C.UTF-8"},
        )
        self.framer = LineFramer(1_048_576)
        self.last_id = 0
        self.sequence = 0
        self.binding = ""
        self.revision = 0
        self.flags: dict[str, object] = {}

    def send(self, **message: Any) -> None:
        assert self.process.stdin is not None
        self.process.stdin.write(encode({"jsonrpc": "2.0", **message}) + b"\n")

    def receive(self, seconds: float = BOUND_SECONDS) -> dict[str, Any] | None:
        """The next frame, or None when none came in time or the output has ended."""
        assert self.process.stdout is not None
        deadline = time.monotonic() + seconds
        while (frame := self.framer.next_frame()) is None:
            ready, _, _ = select.select([self.process.stdout], [], [], max(0.0, deadline - time.monotonic()))
            chunk = os.read(self.process.stdout.fileno(), 65536) if ready else b""
            if not chunk:
                return None
            self.framer.feed(chunk)
        message: dict[str, Any] = decode(frame)
        return message

    def expect(self, method: str) -> dict[str, Any]:
        message = self.receive()
        assert message is not None, f"no {method} came"
        assert message.get("method") == method, message
        assert set(message) == {"jsonrpc", "id", "method", "params"}
        return message

    def request(self, method: str, params: Any) -> int:
        self.last_id += 1
        self.send(id=self.last_id, method=method, params=params)
        return self.last_id

    def answer_to(self, request_id: int) -> dict[str, Any]:
        message = self.receive()
        assert message is not None
        assert message["id"] == request_id
        return message

    def refuse(self, request: dict[str, Any], row: str) -> None:
        error = ERROR_TABLE[row]
        self.send(id=request["id"], error={"code": error.code, "message": error.message})

    def initialize(
        self, manifest: Manifest | None = None, *, hooks: tuple[str, ...] = (), api: str = "0.3"
    ) -> dict[str, Any]:
        contributes = {"hooks": list(hooks)} if manifest is None else manifest.contributes_json()
        request_id = self.request(
            "initialize",
            {
                "api_version": api,
                "octet_version": "0.8.0",
                "extension": {},
                "workspace": str(self.workspace),
                "capabilities": {},
                "contributes": contributes,
                "flag_values": [] if manifest is None else manifest.flag_values(self.flags),
                "host": {},
                "contract": {
                    "schema": "octet.extension.api/0.3",
                    "encoding": "octet-canonical-json-v1",
                    "required_capabilities": REQUIRED_CAPABILITIES,
                    "optional_capabilities": ["event_bus", "lifecycle_events"],
                    "required_methods": REQUIRED_METHODS,
                    "optional_methods": [*BUS, "hook/run"],
                    "limits": {"max_frame_bytes": 65536, "max_concurrent_requests": 64, "max_tools": 256},
                },
            },
        )
        return self.answer_to(request_id)

    def bind(self) -> None:
        self.revision += 1
        self.binding = f"binding-{self.revision}"
        params = {"kind": "binding", "binding_id": self.binding, "binding_revision": self.revision}
        self.send(method="bus/lifecycle", params=params)

    def ack(self, request: dict[str, Any], **more: Any) -> dict[str, Any]:
        assert request["params"]["binding_id"] == self.binding
        self.send(id=request["id"], result={"binding_id": self.binding, **more})
        params: dict[str, Any] = request["params"]
        return params

    def take_publication(self) -> tuple[str, dict[str, Any]]:
        request = self.expect("bus/publish")
        self.sequence += 1
        params = self.ack(request, sequence=self.sequence, published_at_ms=1)
        return params["topic"], params["payload"]

    def event(self, topic: str, binding: str | None = None, **payload: Any) -> None:
        self.sequence += 1
        params = {
            "binding_id": binding or self.binding,
            "topic": topic,
            "publisher": topic.split(".")[1],
            "publisher_instance_id": "0" * 32,
            "process_generation": 1,
            "sequence": self.sequence,
            "published_at_ms": 1,
            "payload": payload,
        }
        self.send(method="bus/event", params=params)

    def end(self) -> tuple[int, str]:
        """Close the input; the exit status and what stood on stderr."""
        assert self.process.stdin is not None
        self.process.stdin.close()
        status = self.process.wait(BOUND_SECONDS)
        assert self.process.stderr is not None
        return status, self.process.stderr.read().decode()


Start = Callable[..., ScriptedHost]


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Start]:
    hosts: list[ScriptedHost] = []
    workspace = tmp_path / "workspace"
    workspace.mkdir()

    def begin(name: str | Path, **options: Any) -> ScriptedHost:
        program = WORKBENCH / name / "main.py" if isinstance(name, str) else name
        hosts.append(ScriptedHost(program, workspace, **options))
        return hosts[-1]

    yield begin
    for host in hosts:
        host.process.kill()
        host.process.wait(BOUND_SECONDS)
        for pipe in (host.process.stdin, host.process.stdout, host.process.stderr):
            assert pipe is not None
            pipe.close()


def manifest_of(name: str) -> Manifest:
    return load_manifest(WORKBENCH / name / "extension.toml")


@pytest.mark.parametrize("name", ["watcher", "checker", "board"])
def test_each_selects_the_bus_and_nothing_it_did_not_declare(start: Start, name: str) -> None:
    manifest = manifest_of(name)
    assert (manifest.name, manifest.wire, manifest.deferred_contributions()) == (name, "canonical-json-rpc", ())
    assert os.access(WORKBENCH / name / "main.py", os.X_OK)
    host = start(name)
    result = host.initialize(manifest)["result"]
    assert result["api_version"] == "0.3"
    assert result["contract"] == {
        "schema": "octet.extension.api/0.3",
        "encoding": "octet-canonical-json-v1",
        "capabilities": sorted([*REQUIRED_CAPABILITIES, "event_bus"]),
        "methods": sorted([*REQUIRED_METHODS, *BUS]),
        "limits": {"max_frame_bytes": 65536, "max_concurrent_requests": 4, "max_tools": 256},
    }
    assert tuple(tool["name"] for tool in result["tools"]) == manifest.contributes.tools
    shutdown = host.request("shutdown", {})
    assert host.answer_to(shutdown)["result"] == {"terminal": "shutdown"}
    assert host.process.wait(BOUND_SECONDS) == 0


@pytest.mark.parametrize("name", ["watcher", "checker", "board"])
def test_each_ends_with_its_input(start: Start, name: str) -> None:
    host = start(name)
    host.initialize(manifest_of(name))
    host.bind()
    assert host.receive() is not None
    assert host.end() == (0, "")


def declared(host: ScriptedHost, topic: str) -> None:
    request = host.expect("bus/declare")
    assert request["params"]["topic"] == topic
    for field in request["params"]["fields"]:
        assert set(field) >= {"name", "kind", "required", "max_bytes", "values"}
        assert 1 <= field["max_bytes"] <= 1024
    host.ack(request)


def test_the_watcher_retries_what_had_no_room_and_skips_what_the_bus_refuses(start: Start) -> None:
    host = start("watcher")
    (host.workspace / "sub").mkdir()
    (host.workspace / ".git").mkdir()
    (host.workspace / "build").mkdir()
    for name, text in (("a.py", "1"), ("b@c.txt", ""), ("sub/d.txt", "22"), (".git/x", ""), ("build/y", "")):
        (host.workspace / name).write_text(text)
    (host.workspace / "link.py").symlink_to(host.workspace / "a.py")
    os.mkfifo(host.workspace / "fifo")
    (host.workspace / ("z" * 200)).mkdir()
    Path(os.fsdecode(os.fsencode(host.workspace) + b"/\xff.txt")).write_text("")
    host.flags = {"interval-ms": 50}
    host.initialize(manifest_of("watcher"))
    host.bind()
    declared(host, CHANGES)
    first = {"file": "a.py", "kind": "added", "size": 1}
    for _ in range(3):
        request = host.expect("bus/publish")
        assert request["params"]["payload"] == first
        host.refuse(request, "resource_exhausted")
    assert host.take_publication() == (CHANGES, first)
    refused = host.expect("bus/publish")
    assert refused["params"]["payload"]["file"] == "b@c.txt"
    host.refuse(refused, "invalid_params")
    assert host.take_publication() == (CHANGES, {"file": "sub/d.txt", "kind": "added", "size": 2})
    (host.workspace / "a.py").write_text("333")
    assert host.take_publication() == (CHANGES, {"file": "a.py", "kind": "changed", "size": 3})
    (host.workspace / "sub" / "d.txt").unlink()
    assert host.take_publication() == (CHANGES, {"file": "sub/d.txt", "kind": "removed", "size": 0})
    host.bind()
    declared(host, CHANGES)
    assert host.take_publication() == (CHANGES, {"file": "a.py", "kind": "added", "size": 3})
    status, said = host.end()
    assert status == 0
    assert said.splitlines() == [
        "skipped 'b@c.txt': not a name the bus takes (1 so far)",
        "skipped '\\udcff.txt': not a name the bus takes (2 so far)",
    ]


def test_the_watcher_watches_no_more_files_than_it_may(start: Start) -> None:
    host = start("watcher")
    for number in range(5):
        (host.workspace / f"f{number}").write_text("")
    host.flags = {"interval-ms": 50, "max-files": 2}
    host.initialize(manifest_of("watcher"))
    host.bind()
    declared(host, CHANGES)
    assert [host.take_publication()[1]["file"] for _ in range(2)] == ["f0", "f1"]
    assert host.receive(seconds=0.3) is None


def subscribed(host: ScriptedHost, *topics: str) -> None:
    for topic in topics:
        request = host.expect("bus/subscribe")
        assert request["params"]["topic"] == topic
        host.ack(request, state="pending", topic_revision=0)


def reports(host: ScriptedHost, count: int) -> dict[str, tuple[str, int, str]]:
    found = {}
    for _ in range(count):
        topic, payload = host.take_publication()
        assert topic == REPORT
        found[payload["file"]] = (payload["verdict"], payload["problems"], payload["summary"])
    return found


def test_the_checker_reports_on_python_files(start: Start, tmp_path: Path) -> None:
    host = start("checker")
    for name, text in (
        ("good.py", "x = 1\n"),
        ("broken.py", "def f(:\n"),
        ("warned.py", "x = 1 is 1\n"),
        ("nul.py", "x = '\0'\n"),
        ("text.txt", "def f(:"),
        ("gone.py", ""),
    ):
        (host.workspace / name).write_text(text)
    outside = tmp_path / "outside.py"
    outside.write_text("x = 1\n")
    (host.workspace / "out.py").symlink_to(outside)
    host.initialize(manifest_of("checker"))
    host.bind()
    declared(host, REPORT)
    subscribed(host, CHANGES)
    (host.workspace / "gone.py").unlink()
    for name in ("text.txt", "gone.py", "out.py", "../outside.py", "good.py", "broken.py", "warned.py", "nul.py"):
        host.event(CHANGES, file=name, kind="added", size=1)
    found = reports(host, 4)
    assert list(found) == ["good.py", "broken.py", "warned.py", "nul.py"]
    assert found["good.py"] == ("ok", 0, "compiles")
    assert found["broken.py"] == ("error", 1, "SyntaxError on line 1")
    assert found["warned.py"] == ("warning", 1, "compiles, 1 finding")
    assert found["nul.py"][:2] == ("error", 1)
    assert not list(host.workspace.rglob("*.pyc"))
    (host.workspace / "broken.py").write_text("x = 2\n")
    host.event(CHANGES, file="broken.py", kind="changed", size=6)
    request = host.expect("bus/publish")
    host.refuse(request, "resource_exhausted")
    assert reports(host, 1) == {"broken.py": ("ok", 0, "compiles")}
    assert host.end() == (0, "")


def test_the_checker_counts_what_ruff_finds(start: Start, tmp_path: Path) -> None:
    ruff = tmp_path / "bin" / "ruff"
    ruff.parent.mkdir()
    ruff.write_text("#!/bin/sh\necho one\necho two\n")
    ruff.chmod(0o755)
    host = start("checker", path=f"{ruff.parent}:/usr/bin:/bin")
    (host.workspace / "good.py").write_text("x = 1\n")
    host.initialize(manifest_of("checker"))
    host.bind()
    declared(host, REPORT)
    subscribed(host, CHANGES)
    host.event(CHANGES, file="good.py", kind="added", size=6)
    assert reports(host, 1) == {"good.py": ("warning", 2, "compiles, 2 findings")}


def test_the_board_keeps_both_topics_and_answers_summary(start: Start) -> None:
    host = start("board")
    result = host.initialize(manifest_of("board"))["result"]
    assert [tool["name"] for tool in result["tools"]] == ["summary"]
    host.bind()
    subscribed(host, CHANGES, REPORT)
    host.send(
        method="bus/lifecycle",
        params={
            "kind": "topic_available",
            "binding_id": host.binding,
            "topic": CHANGES,
            "topic_revision": 1,
            "publisher_instance_id": "0" * 32,
            "process_generation": 1,
        },
    )
    request = host.expect("bus/subscribe")
    assert request["params"]["topic"] == CHANGES
    host.ack(request, state="active", topic_revision=1, publisher_instance_id="0" * 32, process_generation=1)
    for name in ("a.py", "b.py", "c.py"):
        host.event(CHANGES, file=name, kind="added", size=10)
    host.event(REPORT, file="a.py", verdict="ok", problems=0, summary="compiles")
    host.event(REPORT, file="b.py", verdict="error", problems=1, summary="SyntaxError on line 1")
    host.event(REPORT, file="c.py", verdict="warning", problems=2, summary="compiles, 2 findings")
    host.event(REPORT, binding="binding-0", file="stale.py", verdict="ok", problems=0, summary="compiles")
    call = host.request("tool/call", {"name": "summary", "arguments": {"limit": 1}, "context": {}})
    bad = {"file": "b.py", "verdict": "error", "problems": 1, "summary": "SyntaxError on line 1"}
    assert host.answer_to(call)["result"] == {
        "content": [
            {
                "type": "text",
                "text": "3 files, 30 bytes; 3 checked: 1 ok, 1 with findings, 1 broken\n"
                "error: b.py: SyntaxError on line 1",
            }
        ],
        "is_error": False,
        "metadata": None,
        "structured_content": {
            "files": 3,
            "bytes": 30,
            "checked": 3,
            "ok": 1,
            "warning": 1,
            "error": 1,
            "worst": [bad],
        },
    }
    host.event(CHANGES, file="b.py", kind="removed", size=0)
    call = host.request("tool/call", {"name": "summary", "arguments": {}, "context": {}})
    assert host.answer_to(call)["result"]["structured_content"]["error"] == 0
    for arguments in ({"limit": True}, {"limit": 101}, {"more": 1}, [], None, "x"):
        call = host.request("tool/call", {"name": "summary", "arguments": arguments, "context": {}})
        assert host.answer_to(call)["result"]["is_error"] is True
    call = host.request("tool/call", {"name": "other", "arguments": {}, "context": {}})
    assert host.answer_to(call)["error"] == {"code": -32602, "message": "invalid params"}
    assert host.end() == (0, "")


@pytest.fixture
def slow_program(tmp_path: Path) -> Path:
    program = tmp_path / "slow" / "main.py"
    program.parent.mkdir()
    program.write_text(
        f"import sys\nsys.dont_write_bytecode = True\nsys.path.insert(0, {json.dumps(str(WORKBENCH))})\n"
        "from octet_client import Extension, Tool\n"
        "def wait(arguments, cancelled):\n    cancelled.wait(30)\n    return 'ended', None\n"
        "def large(arguments, cancelled):\n    return 'x' * 70000, None\n"
        "def broken(arguments, cancelled):\n    raise RuntimeError('inside')\n"
        "tools = {f.__name__: Tool('d', {'type': 'object'}, f) for f in (wait, large, broken)}\n"
        "sys.exit(Extension(tools=tools).run())\n"
    )
    return program


def test_a_cancelled_call_ends_once_while_others_go_on(start: Start, slow_program: Path) -> None:
    host = start(slow_program)
    result = host.initialize()["result"]
    assert result["contract"]["capabilities"] == REQUIRED_CAPABILITIES
    first = host.request("tool/call", {"name": "wait", "arguments": {}, "context": {}})
    second = host.request("tool/call", {"name": "broken", "arguments": {}, "context": {}})
    assert host.answer_to(second)["result"]["is_error"] is True
    for cancelled in (first, first, 99, "text"):
        host.send(method="$/cancelRequest", params={"id": cancelled})
    assert host.answer_to(first)["error"] == {"code": -32800, "message": "request cancelled"}
    third = host.request("tool/call", {"name": "large", "arguments": {}, "context": {}})
    assert host.answer_to(third)["error"] == {"code": -32603, "message": "internal error"}
    unknown = host.request("session/create", {})
    assert host.answer_to(unknown)["error"] == {"code": -32601, "message": "unknown or unnegotiated method"}
    status, said = host.end()
    assert (status, said) == (0, "tool failed: RuntimeError: inside\n")


def test_session_hooks_are_selected_only_when_the_pair_is_declared(start: Start, slow_program: Path) -> None:
    contract = start(slow_program).initialize(hooks=("session_start",))["result"]["contract"]
    assert "lifecycle_events" not in contract["capabilities"]
    host = start(slow_program)
    contract = host.initialize(hooks=("session_start", "session_end"))["result"]["contract"]
    assert "lifecycle_events" in contract["capabilities"]
    assert "hook/run" in contract["methods"]
    call = host.request("hook/run", {"hook": "session_start", "payload": {}})
    assert host.answer_to(call)["result"] == {"disposition": {"kind": "continue"}}


def test_another_api_version_is_refused_and_the_process_ends(start: Start, slow_program: Path) -> None:
    host = start(slow_program)
    assert host.initialize(api="0.4")["error"] == {"code": -32010, "message": "extension API version mismatch"}
    assert host.process.wait(BOUND_SECONDS) == 0
