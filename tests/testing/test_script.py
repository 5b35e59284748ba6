"""Scripted peers: played in order, in any order, over time; and what they say when something else comes."""

from __future__ import annotations

from typing import Any

import pytest
from kit_members import EMPTY, NUMBER, Echo, text

from broker.errors import ExitedError, ProtocolError, RemoteError, TimedOutError, UsageError
from broker.host import HostSettings
from broker.testing import Faults, MemoryHost, Script, ScriptError, heard
from broker.testing.script import (
    Step,
    answer,
    any_order,
    capture,
    captured,
    close_output,
    complain,
    end,
    expect,
    expect_error,
    expect_result,
    notify,
    refuse,
    request,
    stop_reading,
    wait,
    write,
)

TOPIC = "bus.pub.count"
PUBLISHER = Script(
    expect("bus/lifecycle", {"kind": "binding", "binding_id": capture("binding")}),
    request("bus/declare", {"binding_id": captured("binding"), "topic": TOPIC, "fields": [NUMBER]}),
    expect_result({"binding_id": captured("binding")}),
    expect("tool/call", {"name": "go", "arguments": {"n": capture("n")}}),
    request("bus/publish", {"binding_id": captured("binding"), "topic": TOPIC, "payload": {"n": captured("n")}}),
    expect_result({"sequence": 1}),
    answer(EMPTY),
    tools=("go",),
    capabilities=("event_bus",),
)


def played(script: Script, *calls: str, **options: Any) -> Any:
    with MemoryHost() as host, host.open_session() as session:
        session.start(script, name="pub", **options)
        for tool in calls:
            session.call("pub", tool)
        return session


def failure(script: Script, *calls: str) -> list[str]:
    with pytest.raises(ScriptError) as raised:
        played(script, *calls)
    lines = str(raised.value).splitlines()
    assert max(map(len, lines)) <= 100
    return lines


def test_a_script_is_played_step_by_step() -> None:
    with MemoryHost() as host, host.open_session() as session:
        session.start(PUBLISHER, name="pub")
        plugin = session.peer("plugin")
        plugin.subscribe(TOPIC)
        session.call("pub", "go", {"n": 7})
        message = plugin.take()
        assert message is not None
        assert message.payload == {"n": 7}
        session.recorder.in_order("bus/lifecycle", "bus/declare", "declared", "tool/call", "bus/publish", "published")


def test_each_generation_plays_it_from_the_beginning() -> None:
    script = Script(expect("tool/call", {"name": "work"}), end(3), tools=("work",))
    with MemoryHost() as host, host.open_session() as session:
        session.start(script, name="pub")
        for generation in (1, 2):
            with pytest.raises(ExitedError, match=rf"pub \(generation {generation}\): exited with status 3"):
                session.call("pub", "work")
            session.advance(1_000)
        session.inject(Faults().kill("pub"))  # its third life has not played anything yet


def test_another_script_for_another_generation() -> None:
    def script(generation: int) -> Script:
        last = end(3) if generation == 1 else answer(text("better"))
        return Script(expect("tool/call"), last, tools=("work",))

    with MemoryHost() as host, host.open_session() as session:
        session.start(script)
        with pytest.raises(ExitedError):
            session.call("script", "work")
        session.advance(1_000)
        assert session.call("script", "work").content[0].text == "better"


def test_branches_come_in_any_order() -> None:
    script = Script(
        any_order(
            [expect("tool/call", {"name": "one"}), answer(text("1"))],
            [expect("tool/call", {"name": "two"}), answer(text("2"))],
        ),
        expect("tool/call", {"name": "one"}),
        answer(text("last")),
        tools=("one", "two"),
    )
    for order in (["one", "two"], ["two", "one"]):
        with MemoryHost() as host, host.open_session() as session:
            session.start(script, name="pub")
            assert [session.call("pub", tool).content[0].text for tool in [*order, "one"]] == [
                {"one": "1", "two": "2"}[order[0]],
                {"one": "1", "two": "2"}[order[1]],
                "last",
            ]


def test_requests_are_answered_out_of_order_by_their_ids() -> None:
    script = Script(
        expect("tool/call", {"arguments": {"n": 1}}, id=capture("first")),
        expect("tool/call", {"arguments": {"n": 2}}, id=capture("second")),
        answer(text("second"), id=captured("second")),
        answer(text("first"), id=captured("first")),
        tools=("work",),
    )
    with MemoryHost() as host, host.open_session() as session:
        session.start(script, name="pub")
        calls = [session.begin("pub", "work", {"n": n}) for n in (1, 2)]
        session.run()
        assert [call.result().content[0].text for call in calls] == ["first", "second"]


def test_it_waits_by_the_clock_of_the_test() -> None:
    script = Script(expect("tool/call"), wait(1_500), answer(text("late")), tools=("work",))
    with MemoryHost() as host, host.open_session() as session:
        session.start(script, name="pub")
        call = session.begin("pub", "work")
        session.advance(1_499)
        assert not call.done
        session.advance(1)
        assert call.result().content[0].text == "late"


def test_both_families_and_every_version() -> None:
    with MemoryHost() as host, host.open_session() as session:
        for version in ("0.1", "0.2", "0.4"):
            content: Any = "late" if version == "0.1" else [{"type": "text", "text": "late"}]
            script = Script(
                expect("tool/call"), answer({"content": content, "is_error": False}), version=version, tools=("work",)
            )
            name = f"v{version[-1]}"
            session.start(script, name=name)
            assert session.call(name, "work").content[0].text == "late"
        mcp = Script(
            expect("tools/call", {"name": "work", "arguments": {"a": 1}}),
            notify("notifications/message", {"level": "info", "data": "working"}),
            answer({"content": [{"type": "text", "text": "from a server"}]}),
            version="mcp",
            tools={"work": ""},
        )
        session.start(mcp, name="srv")
        assert session.call_server("srv", "work", {"a": 1}).text == "from a server"


def test_the_handshake_is_its_own_if_it_mentions_it() -> None:
    script = Script(expect("initialize"), complain("no luck"), end(9))
    session = MemoryHost().open_session()
    with pytest.raises(ExitedError, match=r"exited with status 9 before it answered initialize; .*no luck"):
        session.start(script, name="pub")


def test_it_can_misbehave() -> None:
    with MemoryHost(settings=HostSettings(restart=False)) as host, host.open_session() as session:
        session.start(Script(expect("tool/call"), write(b"no frame\n"), tools=("work",)), name="garbage")
        with pytest.raises(ProtocolError, match="a frame that is not canonical JSON"):
            session.call("garbage", "work")
        session.start(Script(expect("tool/call"), close_output(), tools=("work",)), name="mute")
        with pytest.raises(ExitedError, match="closed its output but did not exit"):
            session.call("mute", "work")
        session.start(Script(expect("tool/call"), stop_reading(), tools=("work",)), name="deaf")
        with pytest.raises(TimedOutError):
            session.call("deaf", "work", timeout_ms=50)
        session.start(Script(expect("tool/call"), refuse(-32603, "internal error"), tools=("work",)), name="unwilling")
        with pytest.raises(RemoteError):
            session.call("unwilling", "work")


def test_a_refusal_by_the_host_can_be_expected() -> None:
    script = Script(
        expect("bus/lifecycle", {"binding_id": capture("binding")}),
        request("bus/publish", {"binding_id": captured("binding"), "topic": TOPIC, "payload": {}}),
        expect_error({"code": -32602}),
        capabilities=("event_bus",),
    )
    played(script)


def test_what_came_and_what_was_expected_are_shown_with_the_exchange() -> None:
    script = Script(
        expect("tool/call", {"name": "one", "arguments": {}}), answer(EMPTY), expect("hook/run"), tools=("one", "two")
    )
    lines = failure(script, "two")
    assert lines[:7] == [
        "the script of pub did not expect what came:",
        '    tool/call #2 {"name":"two","arguments":{},"context":{"execution_s...,...}',
        "expected at step 1 of 3:",
        "    expect('tool/call', {'name': 'one', 'arguments': {}})",
        "the difference:",
        '    params.name: expected "one", came "two"',
        "the exchange so far:",
    ]
    assert [line.partition("{")[0].rstrip() for line in lines[7:]] == [
        "   0 ms  host -> pub   initialize #1",
        "   0 ms  pub  -> host  result #1 of initialize",
        "   0 ms  host -> pub   tool/call #2",
    ]


def test_a_message_that_comes_too_early_is_found_later_in_the_script() -> None:
    script = Script(
        expect("tool/call", {"name": "one"}),
        answer(EMPTY),
        expect("tool/call", {"name": "two"}),
        answer(EMPTY),
        tools=("one", "two"),
    )
    lines = failure(script, "two")
    assert lines[
        lines.index("it is expected later; was a message left out, or do they come in any_order(...)?") + 1
    ] == ("    step 3 of 4: expect('tool/call', {'name': 'two'})")


def test_a_message_after_the_end_says_what_to_add() -> None:
    script = Script(expect("tool/call"), answer(EMPTY), tools=("one",))
    assert failure(script, "one", "one")[2] == "it is at its end; if this belongs to it, add expect('tool/call')"


def test_a_message_while_it_waits_is_not_expected() -> None:
    script = Script(expect("tool/call"), wait(500), answer(EMPTY), tools=("one",))
    session = MemoryHost().open_session()
    session.start(script, name="pub")
    session.begin("pub", "one")
    session.begin("pub", "one")
    with pytest.raises(ScriptError) as raised:
        session.run()
    assert str(raised.value).splitlines()[2:4] == ["it expects nothing now:", "    step 2 of 3: wait(500)"]


def test_every_branch_that_waits_is_shown() -> None:
    script = Script(
        any_order(expect("tool/call", {"name": "one"}), [expect("tool/call", {"name": "two"}), answer(EMPTY)]),
        tools=("one", "two", "three"),
    )
    lines = failure(script, "three")
    assert "expected at step 1 of 1, branch 1, step 1 of 1:" in lines
    assert "expected at step 1 of 1, branch 2, step 1 of 2:" in lines


def test_a_refusal_that_no_step_expects_fails() -> None:
    script = Script(
        expect("bus/lifecycle", {"binding_id": capture("binding")}),
        request("bus/publish", {"binding_id": captured("binding"), "topic": TOPIC, "payload": {}}),
        capabilities=("event_bus",),
    )
    assert failure(script)[1].startswith("    error #script-1 ")


def test_what_is_left_of_a_script_fails_at_the_end() -> None:
    script = Script(expect("tool/call", {"name": "one"}), answer(EMPTY), tools=("one",))
    assert failure(script)[:3] == [
        "the script of pub was not played to its end; it waits at",
        "    step 1 of 2: expect('tool/call', {'name': 'one'})",
        "the exchange so far:",
    ]


def test_a_script_that_a_fault_struck_need_not_be_played_to_its_end() -> None:
    script = Script(expect("tool/call"), answer(EMPTY), expect("tool/call"), answer(EMPTY), tools=("work",))
    with MemoryHost(faults=Faults().kill("pub", when=heard("tool/call"))) as host, host.open_session() as session:
        session.start(script, name="pub")
        with pytest.raises(ExitedError, match="was killed by signal 9"):
            session.call("pub", "work")
        session.stop("pub")


BAD: list[tuple[list[Any], str]] = [
    ([answer(EMPTY)], "step 1, answer({'content': [], 'is_error': False, 'metadata': None}): there is no request to"),
    ([expect("bus/event"), answer(1)], "step 2, answer(1): there is no request to answer; put expect('tool/call')"),
    ([expect_result()], "step 1, expect_result(): nothing was asked; put request(method, params) before it"),
    ([expect("tool/cal")], "step 1: the host sends no 'tool/cal' in 0.3; did you mean 'tool/call'?"),
    ([expect("bus/publish")], "step 1: it is the extension that sends 'bus/publish'; use request('bus/publish', ...)"),
    ([request("bus/event")], "step 1: it is the host that sends 'bus/event'; use expect('bus/event')"),
    ([request("xyz")], "step 1: an extension sends no 'xyz' in 0.3; there are $/cancelRequest, bus/declare,"),
    (
        [expect("tool/call", id=capture("a")), answer(captured("b"))],
        "step 2, answer(captured('b')): 'b' is not captured before (a is); put capture('b') in an earlier step",
    ),
    ([end(1), expect("tool/call")], "step 2, expect('tool/call'): comes after end() and is never reached"),
    (["tool/call"], "step 1: 'tool/call' is no step; use expect(), request(), answer() and the like"),
    ([any_order(expect("tool/call"))], "step 1: any_order() of one branch is just its steps"),
    (
        [any_order(expect("tool/call"), request("bus/publish"))],
        "step 1, branch 2: has to begin with expect(), which decides when it is played",
    ),
    (
        [expect("tool/call"), answer(EMPTY), answer(1)],
        "step 3, answer(1): there is no request to answer; put expect('tool/call') or the like before it",
    ),
    (
        [any_order([expect("tool/call", id=capture("a")), answer(1)], [expect("tool/call"), answer(captured("a"))])],
        "step 1, branch 2, step 2, answer(captured('a')): 'a' is not captured before (nothing is)",
    ),
    ([wait(-1)], "step 1, wait(-1): expected a whole number of milliseconds"),
]


@pytest.mark.parametrize(("steps", "problem"), BAD, ids=range(len(BAD)))
def test_a_script_that_cannot_be_played_is_refused_with_the_fix(steps: list[Step], problem: str) -> None:
    with pytest.raises(UsageError) as raised:
        Script(*steps)
    first, *problems = str(raised.value).splitlines()
    assert first == "this script cannot be played:"
    assert any(line.startswith(f"  {problem}") for line in problems), problems


def test_everything_that_is_wrong_with_a_script_is_told_at_once() -> None:
    with pytest.raises(UsageError) as raised:
        Script(answer(1), expect("tool/cal"), expect_error())
    assert len(str(raised.value).splitlines()) == 4


def test_versions_and_options_are_checked() -> None:
    with pytest.raises(UsageError, match=r"version: expected one of 0.1, 0.2, 0.3, 0.4, mcp, got '0.5'"):
        Script(version="0.5")  # type: ignore[arg-type]
    session = MemoryHost().open_session()
    with pytest.raises(UsageError, match=r"the script of pub has options that mcp has not: .*capabilities"):
        session.add(Script(version="mcp", capabilities=("event_bus",)), name="pub")


def test_scripts_and_classes_play_together() -> None:
    with MemoryHost() as host, host.open_session() as session:
        session.start(PUBLISHER, name="pub")
        session.start(Echo)
        session.call("pub", "go", {"n": 1})
        assert session.call("echo", "echo", {"text": "a"}).content[0].text == "a"
