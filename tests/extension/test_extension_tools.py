"""Tools made from functions: what they take, what they may return, how they fail, and how they are stopped."""

from __future__ import annotations

import asyncio
import json
import threading
from typing import Any, Literal

import pytest
from attrs import frozen

from broker import canonical
from broker.errors import RemoteError
from broker.extension import Context, Extension, Result, ToolFailureError
from broker.host import HostSettings
from broker.limits import HANDLER_CANCEL_MS
from broker.testing import ManualClock, hosted
from broker.wire.octet.models import TextPart


@frozen
class Point:
    x: int
    y: int


@pytest.mark.spec("octet.tool-call.result-parts")
def test_a_tool_is_a_function(world: Any, app: Extension) -> None:
    @app.tool
    async def greet(who: str, times: int = 1, tone: Literal["plain", "loud"] = "plain") -> str:
        """Greets somebody.

        As often as asked.
        """
        return " ".join([f"hello, {who}{'!' if tone == 'loud' else ''}"] * times)

    @app.tool(name="plain-greet")
    def plain(who: str) -> str:
        """Greets without a loop."""
        return f"hi, {who}"

    world.add(app)
    tools = {tool.name: tool for tool in world.session.extension("hello").generation.tools}
    assert tools["greet"].description == "Greets somebody.\n\nAs often as asked."
    assert tools["greet"].parameters == {
        "type": "object",
        "properties": {
            "who": {"type": "string"},
            "times": {"type": "integer"},
            "tone": {"enum": ["plain", "loud"]},
        },
        "required": ["who"],
    }
    assert world.text(app, "greet", who="Ada", times=2, tone="loud") == "hello, Ada! hello, Ada!"
    assert world.text(app, "plain-greet", who="Ada") == "hi, Ada"
    assert greet.__name__ == "greet"


@pytest.mark.parametrize(
    ("returned", "texts", "structured"),
    [
        ("text", ["text"], None),
        (["a", "b"], ["a", "b"], None),
        (None, [], None),
        (Result("seen", structured=[1]), ["seen"], [1]),
        (Result(["a", "b"], structured=None), ["a", "b"], "null"),
        ({"n": 1}, ['{"n": 1}'], {"n": 1}),
        (Point(1, 2), ['{"x": 1, "y": 2}'], {"x": 1, "y": 2}),
        ([Point(1, 2)], ['[{"x": 1, "y": 2}]'], [{"x": 1, "y": 2}]),
        (7, ["7"], 7),
        ("half \ud800 a pair", ["half � a pair"], None),
    ],
)
def test_what_a_tool_may_return(world: Any, app: Extension, returned: Any, texts: list[str], structured: Any) -> None:
    @app.tool
    def tool() -> Any:
        """Returns it."""
        return returned

    world.add(app)
    result = world.call(app, "tool")
    assert (result.is_error, result.metadata) == (False, None)
    assert [part.text for part in result.content] == texts
    if structured == "null":
        assert result.structured_content is None
    else:
        assert (result.structured_content or None) == structured


def test_a_result_with_everything(world: Any, app: Extension) -> None:
    @app.tool
    def tool() -> Result:
        """Returns all there is."""
        return Result("no", structured={"a": [1]}, metadata={"cost": 3}, is_error=True)

    world.add(app)
    result = world.call(app, "tool")
    assert (result.is_error, result.metadata, result.structured_content) == (True, {"cost": 3}, {"a": [1]})


@pytest.mark.parametrize("plain", [False, True])
@pytest.mark.parametrize(
    ("raised", "text", "logged"),
    [
        (ToolFailureError("no such file"), "no such file", None),
        (KeyError("secret value"), "tool failed: KeyError", "KeyError: 'secret value'"),
        (SystemExit(3), "tool failed: SystemExit", "SystemExit: 3"),
        (StopIteration(), "tool failed: StopIteration", "StopIteration"),
        (GeneratorExit(), "tool failed: GeneratorExit", "GeneratorExit"),
    ],
)
def test_how_a_tool_fails(
    world: Any, app: Extension, raised: BaseException, text: str, logged: str | None, plain: bool
) -> None:
    if plain:

        @app.tool(name="tool")
        def plainly() -> str:
            """Raises."""
            raise raised
    else:

        @app.tool(name="tool")
        async def patiently() -> str:
            """Raises."""
            raise raised

    world.add(app)
    result = world.call(app, "tool")
    assert result.is_error
    # In a coroutine Python itself makes a RuntimeError of it.
    wrapped = isinstance(raised, StopIteration) and not plain
    assert result.content[0].text == ("tool failed: RuntimeError" if wrapped else text)
    texts = "\n".join(world.diagnostics())
    assert (logged in texts) if logged else not texts
    assert world.call(app, "tool").is_error


def test_the_log_of_a_failure_begins_in_the_authors_code(world: Any, app: Extension) -> None:
    @app.tool
    async def tool() -> str:
        """Raises."""
        raise KeyError("x" * 10_000)

    world.add(app)
    world.call(app, "tool")
    lines = world.diagnostics()
    assert lines[:2] == ["tool failed:", "Traceback (most recent call last):"]
    assert "test_extension_tools.py" in lines[2]
    assert sum(map(len, lines)) < 5_000


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        ({}, "argument who is missing"),
        ({"who": 5}, "argument who: expected str, got 5"),
        ({"who": "Ada", "times": True}, "argument times: expected int, got True"),
        ({"times": "2"}, "argument who is missing; argument times: expected int, got '2'"),
    ],
)
def test_arguments_that_do_not_fit(world: Any, app: Extension, arguments: dict[str, Any], text: str) -> None:
    @app.tool
    def greet(who: str, times: int = 1) -> str:
        """Greets."""
        return who * times

    world.add(app)
    result = world.call(app, "greet", **arguments)
    assert (result.is_error, result.content) == (True, (TextPart(text=text),))


@pytest.mark.parametrize(
    ("returned", "text"),
    [
        ({"n": 1.5}, "tool: its structured_content is not what API 0.3 holds: float at $.n"),
        (object, "tool: returned what JSON does not hold: Object of type type is not JSON serializable"),
        (Result("", structured="x" * 300_000), "tool: its result: structured_content: is too large"),
        (["x"] * 257, "tool: its result: content: has too many items"),
    ],
)
def test_a_result_the_wire_does_not_hold_is_refused(world: Any, app: Extension, returned: Any, text: str) -> None:
    @app.tool
    def tool() -> Any:
        """Returns it."""
        return returned

    world.add(app)
    result = world.call(app, "tool")
    assert result.is_error
    assert result.content[0].text.startswith(text)


@pytest.mark.spec("octet.bound.max-frame-bytes")
def test_a_result_over_the_frame_bound_is_refused_or_cut(make_world: Any, app: Extension) -> None:
    @app.tool
    def refused(size: int) -> str:
        """Returns much."""
        return "é" * size

    @app.tool(truncate=True)
    def cut(size: int) -> list[str]:
        """Returns much, cut."""
        return ["begin", "é" * size, "end"]

    settings = HostSettings(max_frame_bytes=4_096)
    world = make_world(settings=settings)
    process = world.add(app)
    empty = (
        b'{"id":9,"jsonrpc":"2.0","result":{"content":[{"text":"","type":"text"}],"is_error":false,"metadata":null}}'
    )
    frame = len(empty)
    fits = (4_096 - frame) // 2
    assert world.text(app, "refused", size=fits) == "é" * fits
    result = world.call(app, "refused", size=fits + 1)
    assert (result.is_error, result.content[0].text) == (
        True,
        f"refused: the answer to tool/call takes {frame + 2 * fits + 2} bytes, at most 4096 are taken by the host",
    )
    parts = [part.text for part in world.call(app, "cut", size=5_000).content]
    assert (parts[0], set(parts[1])) == ("begin", {"é"})
    left_out = 5_000 + len("end") - len(parts[1])
    assert parts[2] == f"[{left_out} characters left out: the host takes no more]"
    assert len(parts[1]) > 1_850
    assert process.exit_status is None


def test_a_failure_over_the_frame_bound_is_still_an_answer(make_world: Any, app: Extension) -> None:
    @app.tool
    def fail() -> str:
        """Fails at length."""
        raise ToolFailureError("x" * 4_000)

    world = make_world(settings=HostSettings(max_frame_bytes=2_000))
    world.add(app)
    with pytest.raises(RemoteError) as caught:
        world.call(app, "fail")
    assert caught.value.name == "resource_exhausted"
    assert "at most 2000 are taken by the host" in caught.value.data["reason"]


def test_a_catalogue_over_the_offered_bound_is_not_sent(make_world: Any, app: Extension) -> None:
    for number in range(40):

        @app.tool(name=f"t{number}")
        def tool() -> str:
            """Does something that takes a while to explain."""
            return ""

    world = make_world(settings=HostSettings(max_frame_bytes=4_096))
    started = world.begin(app)
    assert str(started.error) == "hello refused to start: -32012 extension resource exhausted"
    assert "the answer to initialize takes" in world.diagnostics()[0]


# -- stopping ----------------------------------------------------------------------------------------------------------


@pytest.mark.spec("octet.cancel.notification")
def test_an_async_tool_is_cancelled_and_cleans_up(world: Any, app: Extension) -> None:
    steps: list[str] = []

    @app.tool
    async def wait(context: Context) -> str:
        """Waits."""
        try:
            await asyncio.sleep(60)
        finally:
            steps.append(f"{context.cancelled} {context.reason}")
        return "late"

    process = world.add(app)
    call = world.begin_call(app, "wait")
    call.cancel("user")
    world.driver.run()
    assert steps == ["True user"]
    last = json.loads(process_lines(world, process)[-1])
    assert last["error"] == {"code": -32800, "message": "request cancelled", "data": {"reason": "user"}}
    world.driver.advance(10_000)
    assert process.exit_status is None


def test_a_plain_tool_sees_that_it_is_cancelled(world: Any, app: Extension) -> None:
    topic = app.topic("step", [])
    seen: list[bool] = []

    @app.tool
    def wait(context: Context) -> str:
        """Waits for the bus a few times."""
        for _ in range(3):
            topic.publish_sync()
            seen.append(context.cancelled)
        return "done"

    world.add(app)
    assert world.text(app, "wait") == "done"
    assert seen == [False, False, False]


def test_a_tool_that_goes_on_is_answered_without_it(world: Any, app: Extension) -> None:
    @app.tool
    async def stubborn() -> str:
        """Does not end."""
        while True:
            try:
                await asyncio.sleep(60)
            except asyncio.CancelledError:
                await asyncio.sleep(60)

    process = world.add(app)
    call = world.begin_call(app, "stubborn")
    call.cancel("user")
    world.driver.advance(HANDLER_CANCEL_MS - 1)
    count = len(process_lines(world, process))
    world.driver.advance(1)
    lines = process_lines(world, process)
    assert len(lines) == count + 1
    assert json.loads(lines[-1])["error"]["code"] == -32800
    assert world.diagnostics()[0] == "stubborn goes on after it was cancelled; it was answered without it"
    world.driver.advance(60_000)
    assert process.exit_status is None
    assert len(process_lines(world, process)) == count + 1


@pytest.mark.spec("octet.cancel.every-request-ends-once")
@pytest.mark.parametrize("kind", ["async", "plain"])
def test_a_cancel_right_behind_its_call(world: Any, app: Extension, kind: str) -> None:
    ran: list[str] = []

    @app.tool(name="async")
    async def patiently() -> str:
        """Waits."""
        ran.append("async")
        return "done"

    @app.tool
    def plain() -> str:
        """Does not wait."""
        ran.append("plain")
        return "done"

    process = world.add(app)
    process.sent.clear()
    call = {"id": 70, "jsonrpc": "2.0", "method": "tool/call"}
    cancel = {"jsonrpc": "2.0", "method": "$/cancelRequest", "params": {"id": 70, "reason": "user"}}
    params = {"name": kind, "arguments": {}, "context": {}}
    process.hear(canonical.encode({**call, "params": params}) + b"\n" + canonical.encode(cancel) + b"\n")
    assert [canonical.decode(data.strip()) for data in process.sent] == [
        {
            "id": 70,
            "jsonrpc": "2.0",
            "error": {"code": -32800, "message": "request cancelled", "data": {"reason": "user"}},
        }
    ]
    process.sent.clear()
    assert (ran, world.diagnostics()) == ([], [])


def test_a_result_after_the_cancel_is_the_answer(world: Any, app: Extension) -> None:
    @app.tool
    async def finish() -> str:
        """Finishes anyway."""
        try:
            await asyncio.sleep(60)
        except asyncio.CancelledError:
            return "finished"
        return "late"

    process = world.add(app)
    world.begin_call(app, "finish").cancel("user")
    world.driver.run()
    assert json.loads(process_lines(world, process)[-1])["result"]["content"][0]["text"] == "finished"


def test_a_tool_with_a_timeout(world: Any, app: Extension) -> None:
    @app.tool(timeout_ms=1_500)
    async def slow(seconds: int) -> str:
        """Waits."""
        await asyncio.sleep(seconds)
        return "done"

    world.add(app)
    assert world.text(app, "slow", advance=1_000, seconds=1) == "done"
    call = world.begin_call(app, "slow", seconds=2)
    world.driver.advance(1_499)
    assert not call.done
    world.driver.advance(1)
    assert (call.result().is_error, call.result().content[0].text) == (True, "slow took more than 1500 ms")


@pytest.mark.spec("octet.bound.max-concurrent-requests")
def test_the_host_keeps_to_the_concurrency(world: Any) -> None:
    app = Extension("hello", "1.0.0", concurrency=2)
    running: list[int] = []

    @app.tool
    async def wait(number: int) -> str:
        """Waits."""
        running.append(number)
        await asyncio.sleep(1)
        return str(number)

    world.add(app)
    calls = [world.begin_call(app, "wait", number=number) for number in range(3)]
    assert running == [0, 1]
    world.driver.advance(2_000)
    assert [call.result().content[0].text for call in calls] == ["0", "1", "2"]


def test_open_calls_settle_at_shutdown(world: Any, app: Extension) -> None:
    cleaned: list[str] = []

    @app.tool
    async def wait() -> str:
        """Waits."""
        try:
            await asyncio.sleep(60)
        finally:
            cleaned.append("call")
        return "late"

    @app.background
    async def tick() -> None:
        try:
            await asyncio.sleep(10_000)
        finally:
            cleaned.append("background")

    process = world.add(app)
    call = world.begin_call(app, "wait")
    closed = world.session.close()
    world.driver.run()
    assert closed.done and call.done
    assert cleaned == ["call", "background"]
    assert process.exit_status == 0


def test_background_work_on_the_tests_clock(world: Any, app: Extension) -> None:
    ticks = app.topic("tick", [])
    clock: ManualClock = world.clock

    @app.background
    async def tick() -> None:
        while True:
            await asyncio.sleep(0.25)
            await ticks.publish()

    published: list[int] = []
    watcher = world.session.bus.attach("watcher")
    watcher.deliver_to(lambda message: published.append(clock.monotonic_ms()))
    start = clock.monotonic_ms()
    watcher.subscribe("bus.hello.tick")
    world.add(app)
    watcher.subscribe("bus.hello.tick")
    published.clear()
    world.driver.advance(1_000)
    assert [moment - start for moment in published] == [250, 500, 750, 1_000]


def test_a_thread_of_asyncio(world: Any, app: Extension) -> None:
    topic = app.topic("step", [])

    @app.tool
    async def work() -> list[int]:
        """Has plain functions run in threads."""
        first = await asyncio.to_thread(lambda: topic.publish_sync().sequence)
        second = await asyncio.get_running_loop().run_in_executor(None, divmod, 7, 4)
        return [first, *second]

    world.add(app)
    assert world.call(app, "work").structured_content == [1, 1, 3]


def test_a_plain_function_that_blocks_is_told_so(world: Any, app: Extension, monkeypatch: pytest.MonkeyPatch) -> None:
    forever = threading.Event()
    monkeypatch.setattr(hosted, "PLAIN_TURN_MS", 20)

    @app.tool
    def block() -> str:
        """Waits for another thread."""
        forever.wait(20)
        return "late"

    world.add(app)
    assert world.text(app, "block") == "block failed: AssertionError"
    assert any("block neither ended nor waited for its host within 20 ms" in text for text in world.diagnostics())
    forever.set()


def test_the_context_tells_of_the_call(world: Any, app: Extension) -> None:
    @app.tool
    def where(context: Context) -> str:
        """Says where."""
        context.progress("nobody negotiated this")
        return f"{context.host_context['workspace']} {context.request_id} {context.cancelled}"

    world.add(app)
    assert world.text(app, "where") == f"{world.session.workspace} 2 False"


def test_an_unknown_tool_is_the_hosts_fault(world: Any, app: Extension) -> None:
    process = world.add(app)
    process.hear(
        b'{"id":90,"jsonrpc":"2.0","method":"tool/call","params":{"arguments":{},"context":{},"name":"nope"}}\n'
    )
    assert b"there is no tool 'nope'" in process.sent[-1]  # type: ignore[operator]
    process.sent.clear()


def process_lines(world: Any, process: Any) -> list[bytes]:
    """Every frame the process sent so far."""
    return [frame.data for frame in world.frames if frame.direction == "sent" and frame.link.name == process.app.name]


def test_all_that_is_wrong_with_arguments_is_said_at_once(world: Any, app: Extension) -> None:
    @app.tool
    def file(title: str, tags: list[str], due: dict[str, int | None], kind: Literal["a", "b"] = "a") -> str:
        """Files something."""
        return title

    world.add(app)
    given = {"title": 1, "tags": ["x", 2, None], "due": {"soon": 3, "la\nter": "4"}, "kind": "c"}
    assert world.text(app, "file", **given).split("; ") == [
        "argument title: expected str, got 1",
        "argument tags[1]: expected str, got 2",
        "argument tags[2]: expected str, got None",
        "argument due.la\\nter: expected int | None, got '4'",
        "argument kind: expected Literal['a', 'b'], got 'c'",
    ]
    # Of many faults the first are told, and that there are more.
    said = world.text(app, "file", title="t", tags=list(range(1_000)), due={}).split("; ")
    assert (len(said), said[31], said[32]) == (33, "argument tags[31]: expected str, got 31", "...")
    signature = app.handlers["tool file"].signature
    assert signature is not None
    assert signature.example() == {"title": "title", "tags": ["tags"], "due": {"key": 1}}


def test_a_publication_that_nobody_awaits_is_named(world: Any, app: Extension) -> None:
    topic = app.topic("step", [])

    @app.tool
    async def forget() -> str:
        """Forgets to await."""
        topic.publish()
        return ""

    world.add(app)
    with pytest.warns(RuntimeWarning, match="^coroutine 'Topic.publish of bus.hello.step' was never awaited$"):
        world.call(app, "forget")
