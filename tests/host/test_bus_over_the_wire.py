"""The bus as extension processes see it: in memory on a manual clock, and over pipes that are really full."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from scripts import FIELD, Actor, Collector, Publisher, Stalled

from broker import Event, Field
from broker.errors import ExtensionError, InvalidParamsError, ResourceExhaustedError
from broker.host import Health
from broker.limits import MAX_BUS_PEERS, MAX_BUS_QUEUE_MESSAGES

BUS = ("event_bus",)
TOPIC = "bus.plugin.count"
COUNT = [Field.integer("n")]


def bus_actor(memory: Any, name: str = "alpha", **options: Any) -> Any:
    return memory.start(lambda: Actor(capabilities=BUS, **options), name=name)


def ask(memory: Any, message_id: int | str, method: str, params: dict[str, Any]) -> Any:
    """Have the newest process make a request, by default of the current binding; the answer."""
    actor = memory.processes[-1]
    params = {"binding_id": memory.bus.binding_id, **params}
    actor.request(message_id, method, params)
    memory.run()
    (answer,) = [message for message in actor.received if message.get("id") == message_id and "method" not in message]
    return answer.get("error", answer.get("result"))


def subscribed(memory: Any) -> tuple[Any, Any]:
    """A plugin and the process that is subscribed to its topic."""
    plugin = memory.attach("plugin")
    plugin.declare(TOPIC, COUNT)
    bus_actor(memory)
    ask(memory, 1, "bus/subscribe", {"topic": TOPIC})
    return plugin, memory.processes[0]


@pytest.mark.spec("octet.bus.binding-notice")
def test_the_binding_comes_before_anything_else(memory: Any) -> None:
    bus_actor(memory)
    (actor,) = memory.processes
    assert actor.heard == ["initialize", "bus/lifecycle"]
    assert actor.params_of("bus/lifecycle") == [
        {"kind": "binding", "binding_id": memory.bus.binding_id, "binding_revision": 1}
    ]


@pytest.mark.spec("octet.method.bus-declare", "octet.method.bus-subscribe", "octet.method.bus-unsubscribe")
@pytest.mark.spec("octet.method.bus-publish", "octet.bus.subscribe-pending", "octet.bus.subscribe-active")
def test_each_request_is_answered_with_its_result(memory: Any) -> None:
    extension = bus_actor(memory)
    bound = {"binding_id": memory.bus.binding_id}
    own = {**bound, "topic": "bus.alpha.count"}
    assert ask(memory, 1, "bus/subscribe", own) == {**bound, "state": "pending", "topic_revision": 0}
    assert ask(memory, 2, "bus/declare", {**own, "fields": [FIELD]}) == bound
    assert ask(memory, 3, "bus/subscribe", own) == {
        **bound,
        "state": "active",
        "topic_revision": 1,
        "publisher_instance_id": extension.instance_id,
        "process_generation": 1,
    }
    receipt = {"sequence": 1, "published_at_ms": memory.clock.unix_ms()}
    assert ask(memory, 4, "bus/publish", {**own, "payload": {"n": 1}}) == {**bound, **receipt}
    assert ask(memory, 5, "bus/unsubscribe", own) == bound


@pytest.mark.spec("octet.method.bus-event", "octet.method.bus-lifecycle", "octet.bus.wire-event")
def test_events_and_notices_are_notifications_with_the_publisher_as_the_host_knows_it(memory: Any) -> None:
    extension = bus_actor(memory)
    bound = {"binding_id": memory.bus.binding_id}
    own = {**bound, "topic": "bus.alpha.count"}
    source = {"publisher_instance_id": extension.instance_id, "process_generation": 1}
    ask(memory, 1, "bus/subscribe", own)
    ask(memory, 2, "bus/declare", {**own, "fields": [FIELD]})
    ask(memory, 3, "bus/subscribe", own)
    ask(memory, 4, "bus/publish", {**own, "payload": {"n": 7}})
    told = [message for message in memory.processes[0].received if message.get("method", "").startswith("bus/")]
    assert all(sorted(message) == ["jsonrpc", "method", "params"] for message in told)
    assert [(message["method"], message["params"]) for message in told] == [
        ("bus/lifecycle", {**bound, "kind": "binding", "binding_revision": 1}),
        ("bus/lifecycle", {**own, "kind": "topic_available", "topic_revision": 1, **source}),
        (
            "bus/event",
            {
                **own,
                **source,
                "publisher": "alpha",
                "sequence": 1,
                "published_at_ms": memory.clock.unix_ms(),
                "payload": {"n": 7},
            },
        ),
    ]


@pytest.mark.spec("octet.bus.ack-before-event")
def test_an_acknowledgement_that_waits_is_written_before_the_events_behind_it(memory: Any) -> None:
    plugin = memory.attach("plugin")
    plugin.declare(TOPIC, COUNT)
    bus_actor(memory)
    (actor,) = memory.processes
    actor.reading = False
    actor.request(1, "bus/subscribe", {"binding_id": memory.bus.binding_id, "topic": TOPIC})
    memory.run()
    plugin.publish(TOPIC, {"n": 1})
    before = len(actor.received)
    actor.reading = True
    memory.session.changed()
    memory.run()
    assert actor.heard[before:] == [1, "bus/event"]


@pytest.mark.spec("octet.bus.wire-no-replay")
@pytest.mark.parametrize("what", ["reset", "restart"])
def test_no_publication_is_repeated(memory: Any, what: str) -> None:
    memory.session.random_below = lambda bound: 0
    plugin, actor = subscribed(memory)
    actor.reading = False
    plugin.publish(TOPIC, {"n": 1})
    if what == "reset":
        memory.bus.reset()
        plugin.declare(TOPIC, COUNT)
        memory.processes[0].reading = True
        memory.session.changed()
    else:
        memory.processes[0].exit(1)
    memory.run()
    ask(memory, 2, "bus/subscribe", {"topic": TOPIC})
    plugin.publish(TOPIC, {"n": 2})
    memory.run()
    newest = memory.processes[-1]
    assert len(memory.processes) == (1 if what == "reset" else 2)
    assert [params["payload"]["n"] for params in newest.params_of("bus/event")] == [2]


@pytest.mark.spec("octet.process.stream-error")
def test_a_stream_error_ends_the_process_and_takes_it_off_the_bus(memory: Any) -> None:
    memory.session.random_below = lambda bound: bound - 1
    plugin = memory.attach("plugin")
    plugin.subscribe("bus.alpha.count")
    bus_actor(memory)
    declaration = {"topic": "bus.alpha.count", "fields": [FIELD]}
    ask(memory, 1, "bus/declare", declaration)
    memory.processes[0].send_bytes(b"not json\n")
    memory.run()
    assert [(number, status) for number, status, _ in memory.exits()] == [(1, -9)]
    assert [peer.name for peer in memory.bus.statistics().peers] == ["plugin"]
    assert [type(message).__name__ for message in iter(plugin.take, None)] == ["TopicAvailable", "TopicUnavailable"]


@pytest.mark.spec("octet.shutdown.order")
def test_a_process_is_off_the_bus_before_it_is_asked_to_end(memory: Any) -> None:
    peers: list[str] = []

    def act(actor: Actor, message: dict[str, Any]) -> None:
        peers.extend(peer.name for peer in memory.bus.statistics().peers)
        actor.answer(message["id"], {"terminal": "shutdown"})

    memory.attach("plugin")
    extension = memory.start(lambda: Actor({"shutdown": act}, capabilities=BUS), name="alpha")
    assert [peer.name for peer in memory.bus.statistics().peers] == ["plugin", "alpha"]
    memory.settle(extension.stop())
    assert peers == ["plugin"]


@pytest.mark.spec("octet.bus.binding-stale", "octet.bus.wire-answers")
def test_a_request_with_the_binding_of_before_a_reset_is_refused(memory: Any) -> None:
    bus_actor(memory)
    old = memory.bus.binding_id
    new = memory.bus.reset()
    stale = {"code": -32011, "message": "extension capability mismatch"}
    declaration = {"topic": "bus.alpha.count", "fields": [FIELD]}
    assert ask(memory, 1, "bus/declare", {"binding_id": old, **declaration}) == stale
    assert ask(memory, 2, "bus/subscribe", {"binding_id": old, "topic": TOPIC}) == stale
    assert ask(memory, 3, "bus/publish", {"binding_id": old, "topic": "bus.alpha.count", "payload": {"n": 1}}) == stale
    assert ask(memory, 4, "bus/declare", {"binding_id": new, **declaration}) == {"binding_id": new}


@pytest.mark.spec("octet.bus.wire-unselected")
def test_without_the_capability_the_methods_do_not_exist(memory: Any) -> None:
    memory.start(Actor, name="alpha")
    answer = ask(memory, 1, "bus/subscribe", {"topic": TOPIC})
    assert (answer["code"], answer["message"]) == (-32601, "unknown or unnegotiated method")
    assert memory.bus.statistics().peers == ()


@pytest.mark.spec("octet.bus.publish-identity", "octet.bus.wire-answers", "octet.process.identity-host-owned")
def test_a_forged_publication_is_refused_and_a_good_one_follows(memory: Any) -> None:
    plugin = memory.attach("plugin")
    plugin.subscribe("bus.alpha.count")
    bus_actor(memory)
    binding = {"binding_id": memory.bus.binding_id}
    ask(memory, 1, "bus/declare", {**binding, "topic": "bus.alpha.count", "fields": [FIELD]})
    plugin.subscribe("bus.alpha.count")
    good = {**binding, "topic": "bus.alpha.count", "payload": {"n": 1}}
    bad = {"code": -32602, "message": "invalid params"}
    for number, forged in enumerate(
        [
            {**good, "publisher": "plugin"},
            {**good, "sequence": 9},
            {**good, "published_at_ms": 0},
            {**good, "payload": {"n": True}},
            {**good, "payload": {}},
            {**good, "payload": {"n": 1, "m": 2}},
            {**good, "payload": None},
        ]
    ):
        assert ask(memory, 10 + number, "bus/publish", forged) == bad
    assert ask(memory, 30, "bus/publish", {**good, "topic": "bus.plugin.count"})["code"] in (-32602, -32011)
    assert ask(memory, 31, "bus/declare", {**binding, "topic": "bus.alpha.count", "fields": []}) == bad
    assert ask(memory, 32, "bus/publish", good)["sequence"] == 1
    events = [message for message in iter(plugin.take, None) if isinstance(message, Event)]
    assert [(event.publisher, event.sequence, event.payload) for event in events] == [("alpha", 1, {"n": 1})]


@pytest.mark.spec("octet.bus.wire-flow", "octet.bus.queue-messages-exact", "octet.bus.admission-refusal")
def test_a_process_that_does_not_read_holds_64_messages_and_is_named(memory: Any) -> None:
    plugin, actor = subscribed(memory)
    actor.reading = False
    for n in range(MAX_BUS_QUEUE_MESSAGES):
        assert plugin.publish(TOPIC, {"n": n}).sequence == n + 1
        memory.run()
    with pytest.raises(ResourceExhaustedError) as caught:
        plugin.publish(TOPIC, {"n": 64})
    error = caught.value
    assert (error.topic, error.subscriber, error.limit, error.observed, error.maximum) == (
        TOPIC, "alpha", "MAX_BUS_QUEUE_MESSAGES", 65, 64,
    )  # fmt: skip
    slow = next(peer for peer in memory.bus.statistics().peers if peer.name == "alpha")
    assert (slow.queued_messages, slow.refusals, slow.last_refused_topic) == (64, 1, TOPIC)
    actor.reading = True
    memory.session.changed()
    memory.run()
    assert [params["sequence"] for params in actor.params_of("bus/event")] == list(range(1, 65))
    assert plugin.publish(TOPIC, {"n": 65}).sequence == 65


@pytest.mark.spec("octet.bus.age-exact")
def test_events_nobody_read_for_half_a_minute_are_not_delivered(memory: Any) -> None:
    plugin, actor = subscribed(memory)
    actor.reading = False
    plugin.publish(TOPIC, {"n": 1})
    memory.advance(1)
    plugin.publish(TOPIC, {"n": 2})
    memory.advance(30_000)
    actor.reading = True
    memory.run()
    assert [params["payload"]["n"] for params in actor.params_of("bus/event")] == [2]


@pytest.mark.spec("octet.bus.notice-retires")
def test_a_process_that_cannot_take_a_notice_is_ended_and_restarted(memory: Any) -> None:
    memory.session.random_below = lambda bound: 0
    plugin = memory.attach("plugin")
    plugin.declare(TOPIC, COUNT)
    extension = bus_actor(memory)
    ask(memory, 1, "bus/subscribe", {"topic": TOPIC})
    call = extension.call("work", {})
    memory.processes[0].reading = False
    for n in range(MAX_BUS_QUEUE_MESSAGES):
        plugin.publish(TOPIC, {"n": n})
    plugin.detach()
    memory.run()
    ((number, status, reason),) = memory.exits()
    assert (number, status) == (1, -9)
    assert "taken off the bus: could not take a lifecycle notice" in reason
    assert isinstance(call.error, ExtensionError)
    assert call.error.name == "resource_exhausted"
    assert memory.bus.statistics().retired == 1
    assert extension.generation.number == 2


@pytest.mark.spec("octet.bound.max-bus-peers")
def test_the_65th_peer_fails_its_start(memory: Any) -> None:
    plugins = [memory.attach(f"plugin{n}") for n in range(MAX_BUS_PEERS)]
    extension = memory.add(lambda: Actor(capabilities=BUS), name="alpha")
    outcome = extension.start()
    memory.advance(300_000)
    assert isinstance(outcome.error, ResourceExhaustedError)
    assert (outcome.error.limit, outcome.error.observed) == ("MAX_BUS_PEERS", 65)
    assert len(memory.processes) == 1
    assert extension.health is Health.PARKED
    plugins[0].detach()
    memory.session.remove("alpha")
    bus_actor(memory)


def test_a_name_a_plugin_has_fails_the_start(memory: Any) -> None:
    memory.attach("alpha")
    extension = memory.add(lambda: Actor(capabilities=BUS), name="alpha")
    outcome = extension.start()
    memory.run()
    assert isinstance(outcome.error, InvalidParamsError)
    assert extension.health is Health.PARKED


@pytest.mark.spec("octet.bus.wire-session-isolated")
def test_a_process_shared_by_a_workspace_is_offered_no_bus(memory: Any) -> None:
    shared = {"lifecycle": "always", "sharing": "workspace"}
    extension = memory.add(lambda: Actor(capabilities=BUS), name="alpha", runtime=shared)
    memory.settle(extension.start())
    (offer,) = memory.processes[0].params_of("initialize")
    assert "event_bus" not in offer["contract"]["optional_capabilities"]
    assert memory.bus.statistics().peers == ()


@pytest.mark.spec("octet.bus.redeclare-after-reload", "octet.bus.generation-fence")
def test_a_new_generation_takes_its_topic_over_while_the_old_one_drains(memory: Any) -> None:
    plugin = memory.attach("plugin")
    plugin.subscribe("bus.alpha.count")
    extension = memory.start(
        lambda number: Actor({"tool/call": None} if number == 1 else {}, capabilities=BUS), name="alpha"
    )
    declaration = {"binding_id": memory.bus.binding_id, "topic": "bus.alpha.count", "fields": [FIELD]}
    ask(memory, 1, "bus/declare", declaration)
    extension.call("work", {})
    memory.settle(extension.reload())
    assert len(extension.generations) == 2
    assert ask(memory, 1, "bus/declare", declaration) == {"binding_id": declaration["binding_id"]}
    old = memory.processes[0]
    publication = {"binding_id": declaration["binding_id"], "topic": "bus.alpha.count", "payload": {"n": 1}}
    old.request(2, "bus/publish", publication)
    memory.run()
    assert old.received[-1]["error"]["code"] == -32011
    assert ask(memory, 2, "bus/publish", publication)["sequence"] == 1


@pytest.mark.spec("octet.bus.isolation")
def test_two_sessions_of_one_host_never_see_each_other(world: Any) -> None:
    """The same two extensions twice; each collector hears its own publisher only."""
    other = world.host.open_session(world.session.workspace)
    collectors = [session.start(Collector) for session in (world, other)]
    publishers = [session.start(Publisher) for session in (world, other)]
    for collector in collectors:
        world.until(lambda collector=collector: "active" in log(world, collector))
    for n, publisher in enumerate(publishers):
        assert world.settle(publisher.call("publish", {"n": n})).metadata["outcome"]["sequence"] == 1
    for n, collector in enumerate(collectors):
        world.until(lambda collector=collector: isinstance(log(world, collector)[-1], list))
        assert [entry for entry in log(world, collector) if isinstance(entry, list)] == [[1, n]]
    assert world.bus.binding_id != other.bus.binding_id
    other.close()
    assert publishers[0].health is Health.READY
    world.settle(publishers[0].call("publish", {"n": 7}))


def log(world: Any, collector: Any) -> list[Any]:
    entries: list[Any] = world.settle(collector.call("collected", {})).metadata["log"]
    return entries


# -- over pipes that are really full -----------------------------------------------------------------------------------


def fill(world: Any, plugin: Any, size: int) -> int:
    """Publish until the stalled subscriber has no room; how much was admitted."""
    count = 0
    while True:
        try:
            plugin.publish(TOPIC, {"n": count, "text": "x" * size})
        except ResourceExhaustedError as error:
            assert (error.topic, error.subscriber) == (TOPIC, "stalled")
            return count
        count += 1
        world.run()
        assert count < 2_000


def stall(world: Any) -> tuple[Any, Any]:
    plugin = world.attach("plugin")
    texts = [Field.string(f"t{n}", max_bytes=1024, required=False) for n in range(6)]
    plugin.declare(TOPIC, [Field.integer("n"), Field.string("text", max_bytes=1024), *texts])
    extension = world.start(Stalled)
    world.until(lambda: "stalled" in world.diagnostics())
    return plugin, extension


def partly_written(world: Any, extension: Any) -> bool:
    """Whether a frame has gone into the process's pipe in part."""
    pump = world.host.driver._pumps[extension.generation]
    return pump.stale_at_ms is not None and pump._offset > 0


def write_partly(world: Any, plugin: Any, extension: Any) -> None:
    """More at once than a pipe takes: the write ends inside a frame."""
    for n in range(15):
        plugin.publish(TOPIC, {"n": n, "text": "x", **{f"t{k}": "x" * 1_000 for k in range(6)}})
    world.run()
    assert partly_written(world, extension)


@pytest.mark.spec("octet.bus.wire-flow", "octet.bus.credit-process")
def test_a_full_pipe_holds_64_messages_and_no_more(manual_processes: Any) -> None:
    world = manual_processes
    plugin, extension = stall(world)
    fill(world, plugin, 900)
    peer = next(peer for peer in world.bus.statistics().peers if peer.name == "stalled")
    assert peer.queued_messages == MAX_BUS_QUEUE_MESSAGES
    assert peer.queued_bytes <= 262_144
    assert peer.held_messages > 0
    assert extension.health is Health.READY


@pytest.mark.spec("octet.bus.stale-write", "octet.process.stream-error")
def test_a_frame_partly_written_for_half_a_minute_ends_the_stream(manual_processes: Any) -> None:
    world = manual_processes
    world.session.random_below = lambda bound: bound - 1
    plugin, extension = stall(world)
    write_partly(world, plugin, extension)
    call = extension.call("work", {}, timeout_ms=10_000_000)
    world.advance(30_000)
    world.run()
    assert world.exits() == []
    world.advance(1)
    world.until(lambda: bool(world.exits()))
    ((number, status, reason),) = world.exits()
    assert (number, status) == (1, -9)
    assert "reads too slowly: Event went stale while it was being written" in reason
    assert isinstance(call.error, ExtensionError)
    assert [peer.name for peer in world.bus.statistics().peers] == ["plugin"]


@pytest.mark.spec("octet.bus.stale-write", "octet.bus.credit-invalidated")
@pytest.mark.parametrize("how", ["reset", "publisher gone"])
def test_a_frame_partly_written_that_is_invalidated_ends_the_stream(manual_processes: Any, how: str) -> None:
    world = manual_processes
    world.session.random_below = lambda bound: bound - 1
    plugin, extension = stall(world)
    write_partly(world, plugin, extension)
    if how == "reset":
        world.bus.reset()
    else:
        plugin.detach()
    world.until(lambda: bool(world.exits()))
    assert "went stale while it was being written" in world.exits()[0][2]


@pytest.mark.spec("octet.bus.age-exact", "octet.bus.credit-process")
def test_untouched_frames_that_expire_in_a_stalled_writer_give_their_room_back(manual_processes: Any) -> None:
    """The pipe is full at a frame's end, so nothing is partly written: what is too old is only discarded."""
    world = manual_processes
    plugin, extension = stall(world)
    fill(world, plugin, 900)
    assert not partly_written(world, extension)
    world.advance(30_001)
    world.until(lambda: _queued(world) == 0)
    assert extension.health is Health.READY
    stalled = next(peer for peer in world.bus.statistics().peers if peer.name == "stalled")
    assert stalled.expired > 0
    assert fill(world, plugin, 900) == MAX_BUS_QUEUE_MESSAGES


def _queued(world: Any) -> int:
    peer = next(peer for peer in world.bus.statistics().peers if peer.name == "stalled")
    return peer.held_messages


@pytest.mark.spec("octet.shutdown.timeout")
def test_a_frame_partly_written_at_shutdown_does_not_hold_the_ladder_up(manual_processes: Any) -> None:
    world = manual_processes
    plugin, extension = stall(world)
    write_partly(world, plugin, extension)
    stop = extension.stop()
    world.run()
    world.advance(1_999)
    world.run()
    assert not stop.done
    world.advance(1)
    world.until(lambda: stop.done)
    assert [(number, status) for number, status, _ in world.exits()] == [(1, -9)]
    assert extension.ended


@pytest.mark.spec("octet.shutdown.order")
def test_a_frame_being_written_at_shutdown_is_finished_when_the_process_reads_on(
    manual_processes: Any, tmp_path: Path
) -> None:
    world = manual_processes
    plugin, extension = stall(world)
    write_partly(world, plugin, extension)
    stop = extension.stop()
    world.run()
    (tmp_path / "go").touch()
    world.until(lambda: stop.done)
    assert world.exits() == [(1, 0, "stopped")]
