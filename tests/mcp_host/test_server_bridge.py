"""An MCP server's place on the session's bus: what the host publishes in its name, and what the server cannot do."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest

from broker.bus import Binding, Event, Peer, TopicUnavailable
from broker.errors import (
    BrokerError,
    CapabilityMismatchError,
    InvalidParamsError,
    ResourceExhaustedError,
    UsageError,
)
from broker.limits import MAX_BUS_QUEUE_MESSAGES
from broker.testing import ScriptedServer

World = Any


class Talker(ScriptedServer):
    """Says what the test has it say."""

    def __init__(self, *names: str) -> None:
        super().__init__(dict.fromkeys(names, "hi"))

    def on_message(self, message: Any) -> None:
        if message.get("method") == "tools/call" and message["params"]["name"] == "hang":
            return
        super().on_message(message)

    def log(self, level: Any, data: Any) -> None:
        params = {"level": level, "data": data}
        self.send({"jsonrpc": "2.0", "method": "notifications/message", "params": params})

    def change(self, *names: str) -> None:
        self.tools = dict.fromkeys(names, "hi")
        self.send({"jsonrpc": "2.0", "method": "notifications/tools/list_changed"})


@pytest.fixture
def talker() -> Talker:
    return Talker("echo", "hang")


@pytest.fixture
def bridge(world: World, talker: Talker) -> Any:
    """The bridge of the server, which is started."""
    world.start(talker, name="srv")
    return world.session.bridge("srv")


@pytest.fixture
def watch(world: World) -> Callable[..., Peer]:
    """A plugin that is subscribed to topics of ``bus.srv``."""

    def make(*topics: str, name: str = "watcher") -> Peer:
        peer: Peer = world.attach(name)
        for topic in topics:
            peer.subscribe(f"bus.srv.{topic}")
        return peer

    return make


def payloads(world: World, peer: Peer) -> list[Any]:
    world.run()
    found = []
    while (message := peer.take()) is not None:
        if isinstance(message, Event):
            assert message.publisher == message.topic.split(".")[1]
            found.append(message.payload)
    return found


def test_how_calls_end_is_published(world: World, talker: Talker, watch: Any, bridge: Any) -> None:
    server = world.session.server("srv")
    peer = watch("calls")
    world.call_server("srv", "echo")
    server.call("hang", {}, timeout_ms=50)
    world.advance(50)
    server.call("hang", {}).cancel()
    dying = server.call("hang", {})
    world.advance(7)
    talker.exit(1)
    world.run()
    assert dying.error is not None
    assert payloads(world, peer) == [
        {"tool": "echo", "outcome": "completed", "duration_ms": 0, "artifacts": 0},
        {"tool": "hang", "outcome": "timed_out", "duration_ms": 50, "artifacts": 0},
        {"tool": "hang", "outcome": "cancelled", "duration_ms": 0, "artifacts": 0},
        {"tool": "hang", "outcome": "failed", "duration_ms": 7, "artifacts": 0},
    ]


def test_a_tools_own_failure_is_one(world: World, watch: Any) -> None:
    world.start(ScriptedServer({"t": {"content": [], "isError": True}}), name="srv")
    world.session.bridge("srv")
    peer = watch("calls")
    world.call_server("srv", "t")
    assert [payload["outcome"] for payload in payloads(world, peer)] == ["failed"]


@pytest.mark.spec("odek.transport.list-changed")
def test_tools_that_come_and_go_are_published(world: World, talker: Talker, watch: Any, bridge: Any) -> None:
    peer = watch("tools")
    talker.change("echo", "new")
    world.advance(1_000)
    assert payloads(world, peer) == [{"tool": "hang", "state": "withdrawn"}, {"tool": "new", "state": "offered"}]
    talker.exit(0)
    assert payloads(world, peer) == [{"tool": "echo", "state": "withdrawn"}, {"tool": "new", "state": "withdrawn"}]


def test_a_bridge_before_the_start_tells_of_the_first_tools(world: World, talker: Talker, watch: Any) -> None:
    server = world.add(talker, name="srv")
    world.session.bridge("srv")
    peer = watch("tools")
    world.settle(server.start())
    assert payloads(world, peer) == [{"tool": "echo", "state": "offered"}, {"tool": "hang", "state": "offered"}]


def test_notices_are_published_only_when_asked_for(world: World, talker: Talker, watch: Any, bridge: Any) -> None:
    talker.log("info", "hello")
    world.run()
    assert f"bus.{bridge.name}.notices" not in [topic.topic for topic in world.bus.statistics().topics]


def test_notices_are_bounded_screened_and_typed(world: World, talker: Talker, watch: Any) -> None:
    world.start(talker, name="srv")
    world.session.bridge("srv", notices=True)
    peer = watch("notices")
    left_out = "(left out: the bus carries no such text)"
    for level, data, shown in (
        ("warning", "disk is full", ("warning", "disk is full")),
        ("shouting", "x", ("info", "x")),
        (7, "x", ("info", "x")),
        (["info"], "x", ("info", "x")),
        ("error", {"code": 5}, ("error", "{'code': 5}")),
        ("error", None, ("error", "None")),
        ("error", "token ghp_0123456789abcdef", ("error", left_out)),
        ("error", "/etc/passwd", ("error", left_out)),
        ("error", "me@example.test", ("error", left_out)),
        ("error", "\x1b[31mred\n", ("error", "\\x1b[31mred\\n")),
    ):
        talker.log(level, data)
        assert payloads(world, peer) == [{"level": shown[0], "text": shown[1]}]
    talker.log("info", "é" * 100_000)
    [payload] = payloads(world, peer)
    assert len(payload["text"].encode()) <= 512
    for params in (None, [], "x", {}):
        talker.send({"jsonrpc": "2.0", "method": "notifications/message", "params": params})
    talker.send({"jsonrpc": "2.0", "method": "notifications/other", "params": {"level": "info", "data": "x"}})
    assert payloads(world, peer) == [{"level": "info", "text": "None"}]


def test_a_tool_with_a_name_the_bus_refuses_is_told_without_it(world: World, watch: Any) -> None:
    name = "ghp_0123456789abcdef"
    server = world.start(ScriptedServer({name: "hi"}), name="srv")
    world.session.bridge("srv")
    peer = watch("calls")
    assert world.settle(server.call(name, {})).text == "hi"
    assert [payload["tool"] for payload in payloads(world, peer)] == ["(left out: the bus carries no such text)"]


def test_a_reset_of_the_bus_declares_the_topics_again(world: World, talker: Talker, watch: Any, bridge: Any) -> None:
    peer = watch("calls")
    for _ in range(MAX_BUS_QUEUE_MESSAGES + 6):
        world.bus.reset()
        world.run()
        while (message := peer.take()) is not None:
            assert isinstance(message, Binding | TopicUnavailable)
    assert not bridge.peer.closed, "its notices were taken"
    assert type(peer.subscribe("bus.srv.calls")).__name__ == "Active"
    world.call_server("srv", "echo")
    assert len(payloads(world, peer)) == 1


def test_a_full_subscriber_loses_what_is_published_and_nothing_else(
    world: World, talker: Talker, watch: Any, bridge: Any
) -> None:
    peer = watch("calls")
    for _ in range(MAX_BUS_QUEUE_MESSAGES + 10):
        assert world.call_server("srv", "echo").text == "hi"
    assert sum(text.startswith("not published: ") for text in world.diagnostics()) == 10
    assert len(payloads(world, peer)) == MAX_BUS_QUEUE_MESSAGES


def test_a_server_gets_no_authority(world: World, talker: Talker, bridge: Any) -> None:
    """It has no way onto the bus: its requests for that are unknown, and its name on the bus is the host's to use."""
    before = world.bus.statistics()
    for number, method in enumerate(("bus/publish", "bus/subscribe", "bus/declare", "tools/call")):
        talker.request(number, method, {"topic": "bus.srv.calls", "payload": {}})
        talker.send({"jsonrpc": "2.0", "method": method, "params": {"topic": "bus.srv.calls"}})
    world.run()
    answers = [message for message in talker.received if "error" in message]
    assert [(answer["id"], answer["error"]["code"]) for answer in answers] == [(n, -32601) for n in range(4)]
    assert world.bus.statistics() == before
    other = world.attach("other")
    with pytest.raises(CapabilityMismatchError):
        other.publish("bus.srv.calls", {})


@pytest.mark.parametrize("name", ["Upper", "a.b", "a b", "", "x" * 65, "é"])
def test_a_name_that_is_no_peers_name(world: World, talker: Talker, name: str) -> None:
    world.start(talker, name="Upper")
    with pytest.raises((InvalidParamsError, ResourceExhaustedError)):
        world.session.bridge("Upper", name=name)
    assert world.bus.statistics().peers == ()
    world.session.bridge("Upper", name="fine")


def test_a_name_that_is_taken(world: World, talker: Talker) -> None:
    world.start(talker, name="srv")
    world.attach("srv")
    with pytest.raises(BrokerError, match="attached already"):
        world.session.bridge("srv")


def test_the_bridge_of_an_ended_server_makes_room_for_the_next(world: World, talker: Talker, watch: Any) -> None:
    server = world.start(talker, name="srv")
    older = world.session.bridge("srv")
    peer = watch("tools")
    world.settle(server.stop())
    assert len(payloads(world, peer)) == 2, "the last events are still there to be read"
    with pytest.raises(UsageError, match="srv has ended"):
        world.session.bridge("srv")
    world.start(ScriptedServer({"again": ""}), name="srv")
    newer = world.session.bridge("srv")
    assert (older.peer.closed, newer.peer.closed) == (True, False)


def test_a_closed_bridge_is_silent_and_the_server_goes_on(world: World, talker: Talker) -> None:
    world.start(talker, name="srv")
    bridge = world.session.bridge("srv", notices=True)
    bridge.close()
    bridge.close()
    talker.log("info", "x")
    assert world.call_server("srv", "echo").text == "hi"
    assert not [text for text in world.diagnostics() if "not published" in text]


def test_a_watcher_that_raises_stops_nothing(world: World, talker: Talker) -> None:
    class Bad:
        def tools_changed(self) -> None:
            raise RuntimeError("tools")

        def call_started(self, call: Any) -> None:
            raise RuntimeError("call")

        def notified(self, method: str, params: Any) -> None:
            raise RuntimeError(json.dumps(params))

    server = world.add(talker, name="srv")
    server.add_watcher(Bad())
    world.settle(server.start())
    assert world.call_server("srv", "echo").text == "hi"
    talker.log("info", "x")
    world.run()
    world.settle(server.stop())
    assert [text for text in world.diagnostics() if "watcher" in text] == [
        f"a watcher failed: RuntimeError({text})"
        for text in ("'tools'", "'call'", """'{"level": "info", "data": "x"}'""", "'tools'")
    ]
