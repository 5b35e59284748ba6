"""MCP servers as real processes: how they start, fail, are heard out, and never outlive their host."""

from __future__ import annotations

import asyncio
import gc
import json
import os
import shlex
import sys
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest
from attrs import evolve
from mcp_kit import program

from broker.adapters.aio import AsyncHost, AsyncSession
from broker.adapters.blocking import BlockingHost
from broker.errors import (
    ArtifactError,
    BrokerError,
    CancelledError,
    CatalogueError,
    ExitedError,
    NegotiationError,
    ProtocolError,
    SetupError,
    TimedOutError,
    UsageError,
)
from broker.host import HostSettings
from broker.host.notices import Diagnostic
from broker.testing import ProcessSession, write_server
from broker.wire.mcp.requests import Progress
from broker.wire.odek.approval import ApprovalRequest
from broker.wire.odek.config import ServerConfig

QUICK = HostSettings(server_eof_grace_ms=200, server_term_grace_ms=200, restart_base_ms=1)
Server = Callable[..., ServerConfig]
Play = Callable[..., Any]


@pytest.fixture
def server(tmp_path: Path) -> Server:
    """The configuration of a server whose program is the given text."""

    def make(body: str = "start()\necho()", name: str = "srv", **config: Any) -> ServerConfig:
        given = write_server(tmp_path / "servers" / name, program(body), name=name)
        return evolve(given, **config)

    return make


@pytest.fixture
def fixture_server(tmp_path: Path) -> Server:
    """The configuration of the fixture server of the contract."""

    def make(name: str = "fixture", **config: Any) -> ServerConfig:
        given: dict[str, Any] = {
            "source": "operator",
            "command": sys.executable,
            "args": ("-m", "broker.testing.odek_server", "--root", str(tmp_path)),
            "env": {"PYTHONPATH": os.pathsep.join(filter(None, sys.path))},
            "artifact_roots": (str(tmp_path),),
            **config,
        }
        return ServerConfig(name=name, **given)

    return make


@pytest.fixture
def play() -> Play:
    """Runs a coroutine function with an open session, under a bound; gives what it returns."""

    def run(part: Callable[[AsyncSession], Awaitable[Any]], **host: Any) -> Any:
        async def main() -> Any:
            async with AsyncHost(**{"settings": QUICK, **host}) as made:
                return await part(await made.open_session())

        return asyncio.run(asyncio.wait_for(main(), 60))

    return run


@pytest.fixture
def session(broker_processes: Callable[..., ProcessSession]) -> ProcessSession:
    """A session over real processes."""
    return broker_processes(settings=QUICK)


def running(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except (FileNotFoundError, ProcessLookupError):
        return False


def assert_gone(*pids: int) -> None:
    end = time.monotonic() + 20
    while left := [pid for pid in pids if running(pid)]:
        assert time.monotonic() < end, f"still running: {left}"
        time.sleep(0.01)


def pids_in(path: Path, count: int) -> list[int]:
    end = time.monotonic() + 20
    while len(found := path.read_text().split() if path.exists() else []) < count:
        assert time.monotonic() < end
        time.sleep(0.01)
    return [int(pid) for pid in found]


# -- starting ----------------------------------------------------------------------------------------------------------


def test_a_server_that_exits_before_it_answers(server: Server, session: ProcessSession) -> None:
    with pytest.raises(ExitedError) as caught:
        session.start(server("sys.stderr.write('no API key\\n'); sys.exit(3)"))
    assert (caught.value.status, caught.value.stderr_tail) == (3, "no API key")


def test_a_server_that_exits_right_after_its_answer(server: Server, session: ProcessSession) -> None:
    """What is written to a process that is gone fails the start, not the host."""
    body = (
        "m = receive()\nsend(id=m['id'], result={'protocolVersion': '2025-03-26', 'capabilities': {'tools': {}}, "
        "'serverInfo': {'name': 'x', 'version': '0'}})\nos._exit(4)"
    )
    with pytest.raises(ExitedError) as caught:
        session.start(server(body))
    assert caught.value.status == 4


@pytest.mark.spec("odek.transport.compatible-version")
def test_another_version_stops_the_process(server: Server, session: ProcessSession) -> None:
    body = (
        "sys.stderr.write(f'{os.getpid()}\\n')\nm = receive()\n"
        "send(id=m['id'], result={'protocolVersion': '2099-01-01', 'capabilities': {}, 'serverInfo': {}})\n"
        "time.sleep(60)"
    )
    with pytest.raises(NegotiationError, match="2099-01-01"):
        session.start(server(body))
    pids = int(next(d.text for d in session.session.diagnostics if d.source == "stderr"))
    session.host.close()
    assert_gone(pids)


@pytest.mark.parametrize("name", ["read file", "a.b", "x" * 65, "", "é"])
@pytest.mark.spec("odek.names.one-bad-name")
def test_a_bad_name_is_found_at_the_start(server: Server, session: ProcessSession, name: str) -> None:
    with pytest.raises(CatalogueError) as caught:
        session.start(server(f"start('fine', {name!r})\necho()"))
    assert [fault.path for fault in caught.value.faults] == ["tools[1].name"]


@pytest.mark.spec("odek.config.command")
@pytest.mark.parametrize(
    ("config", "text"),
    [
        ({"command": "no-such-program-anywhere"}, "'no-such-program-anywhere' is not on PATH"),
        ({"command": "/no/such/program"}, "/no/such/program cannot be started: no such file"),
        ({"command": "/etc/passwd"}, "/etc/passwd cannot be started: Permission denied"),
        ({"args": ("a\0b",)}, "cannot be started: embedded null byte"),
    ],
)
def test_what_cannot_be_started(server: Server, session: ProcessSession, config: dict[str, Any], text: str) -> None:
    """Fault 18: and no descriptor is left open."""
    session.start(server(name="warm"))
    session.stop("warm")
    gc.collect()  # what earlier tests left would be closed some time in this one
    before = len(os.listdir("/proc/self/fd"))
    with pytest.raises(SetupError) as caught:
        session.start(server(**config))
    assert text in str(caught.value)
    assert len(os.listdir("/proc/self/fd")) == before


@pytest.mark.spec("odek.config.command")
def test_a_relative_command_is_meant_from_the_workspace(server: Server, tmp_path: Path) -> None:
    config = server()
    program = tmp_path / "bin" / "srv"
    program.parent.mkdir()
    program.write_text(f"#!/bin/sh\nexec {shlex.join([config.command, *config.args])}\n")
    program.chmod(0o755)

    async def main() -> None:
        async with AsyncHost(settings=QUICK) as host:
            session = await host.open_session(tmp_path)
            started = await session.start_server(ServerConfig(name="srv", source="operator", command="bin/srv"))
            assert [tool.name for tool in started.tools] == ["work"]

    asyncio.run(main())


@pytest.mark.spec("odek.config.env-allowed", "odek.config.env-secrets", "odek.config.env", "odek.config.args")
def test_the_environment_and_the_arguments_are_as_configured(server: Server, play: Play) -> None:
    """Fault 27 to 30."""
    body = "start()\nc = next_request()\nreply(c, json.dumps([dict(os.environ), sys.argv[1:]]))\nreceive()"
    environ = {"PATH": os.environ["PATH"], "HOME": "/h", "TZ": "UTC", "FOO_API_KEY": "k", "EDITOR": "vi", "path": "x"}
    config = server(body, env={"LEVEL": "1", "BOT_TOKEN": "t", "TZ": "", "NEW": "a=b"})
    args = ("--flag", "", "a b", "$HOME", "*", "é")

    async def part(session: AsyncSession) -> Any:
        await session.start_server(
            ServerConfig(name="srv", source="operator", command=config.command, args=config.args + args, env=config.env)
        )
        told = [d.text for d in session.session.diagnostics if d.source == "host"]
        assert any("BOT_TOKEN" in text for text in told)
        return json.loads((await session.call_server("srv", "work")).text)

    variables, arguments = play(part, environ=environ)
    assert arguments == list(args)
    variables.pop("LC_CTYPE", None)  # the interpreter's own
    assert variables == {"PATH": os.environ["PATH"], "HOME": "/h", "LEVEL": "1", "NEW": "a=b"}


def test_approval_may_take_its_time(server: Server, play: Play) -> None:
    asked: list[ApprovalRequest] = []

    async def decide(request: ApprovalRequest) -> bool:
        await asyncio.sleep(0)
        asked.append(request)
        return request.tool != "b"

    async def part(session: AsyncSession) -> list[str]:
        started = await session.start_server(server("start('a', 'b')\necho()", source="project"))
        return [tool.name for tool in started.tools]

    assert play(part, approve=decide) == ["a"]
    assert [(request.kind, request.tool) for request in asked] == [("server", None), ("tool", "a"), ("tool", "b")]


@pytest.mark.parametrize("approve", [None, lambda _: False, lambda _: None, lambda _: 1 / 0, lambda _: _raise()])
def test_a_project_server_without_approval_never_runs(server: Server, play: Play, tmp_path: Path, approve: Any) -> None:
    async def part(session: AsyncSession) -> None:
        with pytest.raises(BrokerError):
            await session.start_server(server(f"open({str(tmp_path / 'ran')!r}, 'w')\nstart()", source="project"))

    play(part, approve=approve)
    assert not (tmp_path / "ran").exists()


async def _raise() -> bool:
    raise RuntimeError("no terminal")


def test_a_cancelled_start_leaves_no_process(server: Server, play: Play, tmp_path: Path) -> None:
    body = f"open({str(tmp_path / 'pid')!r}, 'w').write(str(os.getpid()))\ntime.sleep(60)"

    async def part(session: AsyncSession) -> list[int]:
        starting = asyncio.create_task(session.start_server(server(body)))
        pids = await asyncio.to_thread(pids_in, tmp_path / "pid", 1)
        starting.cancel()
        with pytest.raises(asyncio.CancelledError):
            await starting
        return pids

    assert_gone(*play(part))


# -- being heard out ---------------------------------------------------------------------------------------------------


@pytest.mark.spec("odek.transport.eof", "odek.transport.drain-before-exit", "odek.transport.last-line")
def test_an_exit_in_the_middle_of_calls(server: Server, session: ProcessSession) -> None:
    """Fault 17 and G11, G12: the last answer counts, even without LF; the rest fails within a second."""
    body = (
        "start()\na, b, c = next_request(), next_request(), next_request()\nreply(a, 'x' * 1000000)\n"
        "sys.stderr.write('out of memory\\n')\nwrite(encode(id=b['id'], result=text('last')))\nos._exit(9)"
    )
    session.start(server(body, max_result_chars=1_000_000))
    first, second, third = (session.begin_server("srv", "work", timeout_ms=1_000_000) for _ in range(3))
    session.until(lambda: third.done)
    assert (len(first.result().text), second.result().text) == (1_000_000, "last")
    error = third.error
    assert isinstance(error, ExitedError)
    assert (error.status, error.stderr_tail, error.tool) == (9, "out of memory", "work")
    with pytest.raises(ExitedError):
        session.call_server("srv", "work", timeout_ms=1_000_000)


@pytest.mark.spec("odek.transport.own-group")
def test_a_helper_that_holds_the_output_does_not_hide_the_exit(
    server: Server, session: ProcessSession, tmp_path: Path
) -> None:
    """G14: the helper is in the group, and goes with it."""
    body = (
        "start()\nc = next_request()\np = subprocess.Popen(['sleep', '60'], stdin=subprocess.DEVNULL)\n"
        f"open({str(tmp_path / 'pid')!r}, 'w').write(str(p.pid))\nos._exit(2)"
    )
    session.start(server(body))
    with pytest.raises(ExitedError) as caught:
        session.call_server("srv", "work", timeout_ms=1_000_000)
    assert caught.value.status == 2
    pids = pids_in(tmp_path / "pid", 1)
    session.host.close()
    assert_gone(*pids)


@pytest.mark.spec("odek.limits.line-over-bound", "odek.limits.line-memory")
def test_an_endless_line_ends_the_server(server: Server, session: ProcessSession) -> None:
    """Fault 14: 96 MiB without LF at a bound of 1 MiB."""
    body = "start()\nnext_request()\nfor _ in range(96): write(b'x' * 1048576)\ntime.sleep(60)"
    session.start(server(body, max_response_bytes=1_048_576))
    with pytest.raises(ProtocolError) as caught:
        session.call_server("srv", "work", timeout_ms=1_000_000)
    assert (caught.value.limit, caught.value.maximum) == ("max_response_bytes", 1_048_576)
    assert 1_048_576 < (caught.value.observed or 0) < 3_000_000


@pytest.mark.spec("odek.limits.line-at-bound")
@pytest.mark.parametrize("size", [65_535, 65_536, 65_537, 1_048_576])
def test_a_line_of_exactly_the_limit(server: Server, session: ProcessSession, size: int) -> None:
    body = (
        f"start()\nc = next_request()\nn = {size} - len(encode(id=c['id'], result=text('')))\nreply(c, 'x' * n)\n"
        f"c = next_request()\nn = {size} + 1 - len(encode(id=c['id'], result=text('')))\nreply(c, 'x' * n)\nreceive()"
    )
    session.start(server(body, max_response_bytes=size, max_result_chars=1_000_000))
    assert session.call_server("srv", "work").observed_chars > size - 200
    with pytest.raises(ProtocolError):
        session.call_server("srv", "work")


@pytest.mark.spec("odek.transport.stderr-drained")
def test_much_on_stderr_stops_nothing(server: Server, session: ProcessSession) -> None:
    session.start(server("sys.stderr.write(('x' * 99 + '\\n') * 20000)\nstart()\necho()"))
    assert session.call_server("srv", "work", {"text": "hi"}).text == "hi"


@pytest.mark.spec("odek.transport.junk-line", "odek.transport.byte-order-mark", "odek.transport.invalid-utf8")
def test_noise_around_the_protocol(server: Server, session: ProcessSession) -> None:
    body = (
        "write(b'\\xef\\xbb\\xbf> srv@1.0 start\\r\\n\\x1b[32mready\\x1b[0m\\n\\n\\xff\\xfe\\n[dotenv] 3 loaded\\n')\n"
        "start()\nwhile True:\n    c = next_request()\n    write(b'debug: calling\\n')\n"
        "    reply(c, c['params']['name'])"
    )
    session.start(server(body))
    assert session.call_server("srv", "work").text == "work"
    told = [d.text for d in session.session.diagnostics if d.source == "wire"]
    assert len(told) == 5
    assert all(text.isprintable() for text in told)
    assert "debug: calling" in told[-1]


def test_a_message_in_many_pieces_and_many_in_one(server: Server, session: ProcessSession) -> None:
    body = (
        "start()\ndef answer(call, value): return encode(id=call['id'], result=text(value)) + b'\\n'\n"
        "a, b = next_request(), next_request()\ndata = answer(b, 'é\\u2028🚀') + answer(a, 'a')\n"
        "for n in range(len(data)): write(data[n:n+1])\n"
        "a, b = next_request(), next_request()\nwrite(answer(b, 'b') + answer(a, 'a'))\nreceive()"
    )
    session.start(server(body))
    for texts in (["a", "é\u2028🚀"], ["a", "b"]):
        calls = [session.begin_server("srv", "work") for _ in range(2)]
        assert [session.settle(call).text for call in calls] == texts


def test_many_large_calls_to_a_slow_reader(server: Server, session: ProcessSession) -> None:
    """One writer: the server reads whole messages, however slowly."""
    body = "start()\nwhile True:\n    c = next_request()\n    reply(c, str(len(c['params']['arguments']['text'])))"
    session.start(server(body))
    calls = [session.begin_server("srv", "work", {"text": chr(97 + n % 26) * (200_000 + n)}) for n in range(50)]
    assert [session.settle(call).text for call in calls] == [str(200_000 + n) for n in range(50)]


def test_a_burst_of_requests_of_the_server(server: Server, session: ProcessSession) -> None:
    """Who asks much in one write and then reads is answered everything, whatever one read of the host brings."""
    body = (
        "start()\nc = next_request()\nwrite(b''.join(encode(id=n, method='ping') + b'\\n' for n in range(1_000)))\n"
        "ids = [receive()['id'] for n in range(1_000)]\nreply(c, str(ids == [*range(1_000)]))\nreceive()"
    )
    session.start(server(body))
    assert session.call_server("srv", "work").text == "True"


def test_a_question_of_a_slow_reader_with_many_calls_to_read(
    server: Server, session: ProcessSession, tmp_path: Path
) -> None:
    body = (
        f"start()\nwhile not os.path.exists({str(tmp_path / 'go')!r}): time.sleep(0.01)\n"
        "send(id='ask', method='ping')\nwrite(b'heard\\n')\nwhile not os.path.exists("
        f"{str(tmp_path / 'read')!r}): time.sleep(0.01)\necho()"
    )
    session.start(server(body))
    calls = [session.begin_server("srv", "work", {"text": f"{n} {'x' * 2_000}"}) for n in range(400)]
    (tmp_path / "go").touch()
    session.until(lambda: any("'heard'" in d.text for d in session.session.diagnostics))
    (tmp_path / "read").touch()
    assert [session.settle(call).text.partition(" ")[0] for call in calls] == [str(n) for n in range(400)]


@pytest.mark.spec("odek.transport.stalled-reader", "odek.transport.unknown-outcome", "odek.transport.not-dispatched")
def test_a_server_that_reads_no_more(server: Server, session: ProcessSession) -> None:
    """Fault 5, 6 and 7: what is half in the pipe may have arrived, what is behind it has not."""
    session.start(server("start()\ntime.sleep(60)"))
    calls = [session.begin_server("srv", "work", {"text": text}, timeout_ms=500) for text in ("x" * 131_072, "y")]
    session.until(lambda: all(call.done for call in calls))
    first, second = (call.error for call in calls)
    assert isinstance(first, TimedOutError) and isinstance(second, TimedOutError)
    assert (first.dispatched, second.dispatched) == (True, False)


# -- calling -----------------------------------------------------------------------------------------------------------


@pytest.mark.spec(
    "odek.limits.timeout-process-lives", "odek.limits.timeout-late-answer", "odek.limits.timeout-cancelled"
)
def test_a_late_answer_is_nobodys(server: Server, session: ProcessSession) -> None:
    body = (
        "start()\na = next_request()\nn = receive()\nreply(a, 'late')\nb = next_request()\n"
        "reply(b, n['method'] + ' ' + str(n['params']['requestId'] == a['id']))\nreceive()"
    )
    session.start(server(body))
    with pytest.raises(TimedOutError) as caught:
        session.call_server("srv", "work", timeout_ms=500)
    assert (caught.value.dispatched, caught.value.maximum) == (True, 500)
    assert session.call_server("srv", "work").text == "notifications/cancelled True"


@pytest.mark.parametrize("timeout", [0, -1, float("nan"), float("inf")])
def test_a_timeout_is_a_positive_number(server: Server, play: Play, timeout: float) -> None:
    async def part(session: AsyncSession) -> None:
        await session.start_server(server())
        with pytest.raises(UsageError, match="timeout: expected a positive number of seconds"):
            await session.call_server("srv", "work", timeout=timeout)

    play(part)


def test_cancelling_the_task_cancels_the_call(fixture_server: Server, play: Play) -> None:
    async def part(session: AsyncSession) -> str:
        await session.start_server(fixture_server())
        task = asyncio.create_task(session.call_server("fixture", "slow", {"seconds": 30}))
        await asyncio.sleep(0)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        return (await session.call_server("fixture", "echo", {"text": "still there"})).text

    assert play(part) == "still there"


@pytest.mark.spec("odek.server.fixtures", "odek.limits.result-refs-first", "odek.artifact-ref.hash-match")
def test_the_six_fixture_tools(fixture_server: Server, session: ProcessSession) -> None:
    started = session.start(fixture_server(max_result_chars=1_000))
    names = ["echo", "large_result", "artifact_result", "bad_artifact", "slow", "error_result"]
    assert [tool.name for tool in started.tools] == names
    call = session.call_server
    assert call("fixture", "echo", {"text": "né", "unknown": 1}).text == "né"
    large = call("fixture", "large_result")
    assert (len(large.text), large.truncated, large.observed_chars) == (1_000, True, 5_000)
    assert large.text.endswith(
        '\n[odek: result truncated — server "fixture" tool "large_result" produced 5000 chars, exceeding the '
        "configured max_result_chars=1000; the full result is available via the retained artifact references, "
        "if any]"
    )
    output = call("fixture", "artifact_result", {"text": "y" * 5_000})
    line = '- artifact "report-1" (text/plain, 31 bytes, sha256 8f178203af64…): Full CI test results (JUnit XML)'
    assert line in output.text
    assert (len(output.text), output.artifact_count) == (1_000, 1)
    part = session.settle(session.session.read_artifact("report-1", offset=5, limit=5))
    assert (part.data, part.size) == (b"pkg/a", 31)
    for fault in ("digest", "size", "outside", "traversal", "missing", "http", "schema"):
        with pytest.raises(ArtifactError) as caught:
            call("fixture", "bad_artifact", {"fault": fault})
        assert (caught.value.extension, caught.value.tool) == ("fixture", "bad_artifact")
    assert call("fixture", "slow", {"seconds": 0.01}).text == "done"
    failed = call("fixture", "error_result", {"text": "no"})
    assert (failed.is_error, failed.text) == (True, "no")
    assert session.session.artifacts.ids == ("report-1",)


def test_progress_and_the_wrapper(server: Server, play: Play) -> None:
    body = (
        "start()\nc = next_request()\nsend(method='notifications/progress', "
        "params={'progressToken': c['params']['_meta']['progressToken'], 'progress': 1})\nreply(c, 'done')\nreceive()"
    )

    async def part(session: AsyncSession) -> tuple[str, list[Progress]]:
        seen: list[Progress] = []
        await session.start_server(server(body))
        output = await session.call_server("srv", "work", on_progress=seen.append, untrusted=True)
        return output.text, seen

    text, seen = play(part)
    assert text.startswith("<untrusted_content_")
    assert [progress.progress for progress in seen] == [1]


def test_a_fifo_as_artifact_blocks_nothing(server: Server, session: ProcessSession, tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "fifo")
    ref = {"schema": "odek.artifact-ref/v1", "id": "f", "uri": f"file://{tmp_path}/fifo", "media_type": "x/y"}
    envelope = json.dumps({"schema": "odek.tool-result/v1", "text": "", "artifacts": [ref]})
    session.start(server(f"start()\nreply(next_request(), {envelope!r})\nreceive()", artifact_roots=(str(tmp_path),)))
    with pytest.raises(ArtifactError, match="it is not a regular file"):
        session.call_server("srv", "work", timeout_ms=1_000_000)


def test_the_tools_change_while_it_runs(server: Server, session: ProcessSession) -> None:
    body = (
        "start('old')\nsend(method='notifications/tools/list_changed')\n"
        "m = next_request('tools/list')\nsend(id=m['id'], result={'tools': [{'name': 'new'}]})\necho()"
    )
    started = session.start(server(body))
    session.until(lambda: [tool.name for tool in started.tools] == ["new"])
    assert session.call_server("srv", "new", {"text": "hi"}).text == "hi"


# -- the end -----------------------------------------------------------------------------------------------------------

STUBBORN = """
for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP): signal.signal(number, signal.SIG_IGN)
child = subprocess.Popen(["sleep", "60"], start_new_session=False)
open({path!r}, "w").write(f"{{os.getpid()}} {{child.pid}}")
start()
while True: time.sleep(60)
"""


@pytest.mark.spec("odek.transport.shutdown", "odek.transport.own-group")
def test_what_ignores_everything_is_killed_with_its_helpers(
    server: Server, session: ProcessSession, tmp_path: Path
) -> None:
    session.start(server(STUBBORN.format(path=str(tmp_path / "pids")), "stubborn"))
    session.start(server(name="fine"))
    before = time.monotonic()
    session.stop("stubborn")
    assert time.monotonic() - before >= 0.4
    assert [status for _, status, _ in session.exits()] == [-9]
    assert session.call_server("fine", "work", {"text": "unharmed"}).text == "unharmed"
    pids = pids_in(tmp_path / "pids", 2)
    session.host.close()
    assert_gone(*pids)


@pytest.mark.spec("odek.transport.shutdown")
@pytest.mark.parametrize(
    ("body", "status", "eof_grace_ms"),
    [
        ("start()\necho()", 0, 1_000_000),
        ("start()\nwhile receive() is not None: pass\nos._exit(7)", 7, 1_000_000),
        ("signal.signal(15, lambda *_: os._exit(8))\nstart()\nwhile True: time.sleep(60)", 8, 100),
        (
            "start()\nwhile receive() is not None: pass\nfor n in range(500): send(id=n, method='ping')\nos._exit(9)",
            9,
            1_000_000,
        ),
        ("start()\nwhile True: time.sleep(60)", -15, 100),
    ],
)
def test_how_a_server_is_asked_to_end(
    server: Server, broker_processes: Callable[..., ProcessSession], body: str, status: int, eof_grace_ms: int
) -> None:
    # What it does of its own accord, it may do as late as the machine has it.
    graces = HostSettings(server_eof_grace_ms=eof_grace_ms, server_term_grace_ms=1_000_000)
    session = broker_processes(settings=graces)
    session.start(server(body))
    session.stop("srv")
    session.stop("srv")
    assert [ended for _, ended, _ in session.exits()] == [status]


def test_servers_end_in_any_order_and_from_any_task(server: Server, play: Play) -> None:
    async def part(session: AsyncSession) -> None:
        for name in ("a", "b", "c"):
            await session.start_server(server(name=name))
        await session.stop_server("b")
        await asyncio.create_task(session.stop_server("a"))
        assert (await session.call_server("c", "work", {"text": "c"})).text == "c"

    play(part)


def test_a_failing_server_is_not_started_over_and_over(server: Server, broker_processes: Any, tmp_path: Path) -> None:
    body = f"open({str(tmp_path / 'starts')!r}, 'a').write('x')\nsys.exit(1)"
    session = broker_processes(settings=HostSettings(restart_base_ms=100))
    end = time.monotonic() + 1
    while time.monotonic() < end:
        with pytest.raises(ExitedError):
            session.start(server(body))
    assert len((tmp_path / "starts").read_text()) <= 5


# -- without a loop of one's own ---------------------------------------------------------------------------------------


def test_the_blocking_host(fixture_server: Server) -> None:
    with BlockingHost(settings=QUICK, approve=lambda request: request.tool != "echo") as host:
        session = host.open_session()
        started = session.start_server(fixture_server())
        assert len(started.tools) == 6
        assert session.call_server("fixture", "echo", {"text": "hi"}).text == "hi"
        assert session.call_server("fixture", "echo", untrusted=True).text == ""
        pending = [session.submit_server("fixture", "echo", {"text": str(n)}) for n in range(20)]
        assert [call.result(30).text for call in pending] == [str(n) for n in range(20)]
        slow = session.submit_server("fixture", "slow", {"seconds": 30})
        assert not slow.done
        slow.cancel()
        with pytest.raises(CancelledError):
            slow.result()
        with pytest.raises(TimedOutError):
            session.call_server("fixture", "slow", {"seconds": 30}, timeout=0.1)
        session.call_server("fixture", "artifact_result")
        assert session.read_artifact("report-1", offset=5, limit=5).data == b"pkg/a"
        project = session.start_server(fixture_server("project", source="project"))
        assert len(project.tools) == 5
        session.stop_server("fixture")
        with pytest.raises(BrokerError):
            session.call_server("fixture", "echo")


def test_two_hosts_at_once(fixture_server: Server) -> None:
    with BlockingHost(settings=QUICK) as one, BlockingHost(settings=QUICK) as two:
        sessions = [one.open_session(), two.open_session(), one.open_session()]
        for session in sessions:
            session.start_server(fixture_server())
        sessions[0].stop_server("fixture")
        for session in sessions[1:]:
            assert session.call_server("fixture", "echo", {"text": "hi"}).text == "hi"


@pytest.mark.spec("odek.transport.stderr-drained")
def test_diagnostics_say_whose_they_are(server: Server, session: ProcessSession) -> None:
    session.start(server("sys.stderr.write('\\x1b[31mred\\n'); sys.stderr.flush()\nstart()\necho()"))
    assert list(session.session.diagnostics) == [Diagnostic("srv", 1, "stderr", "\\x1b[31mred")]
