"""What an inspection knows of a session, without any terminal."""

from __future__ import annotations

import asyncio
import sys
import threading
from typing import TYPE_CHECKING

import pytest

from broker import Field
from broker.errors import ResourceExhaustedError
from broker.inspector import ExtensionRow, Search
from broker.limits import MAX_BUS_QUEUE_MESSAGES, MAX_INSPECTED_CHARS, MAX_INSPECTED_RECORDS, MAX_INSPECTED_STDERR_LINES

if TYPE_CHECKING:
    from conftest import World


def test_extensions_their_generation_and_health(world: World) -> None:
    inspection = world.inspection
    assert inspection.extensions() == [ExtensionRow("greeter", "octet 0.3", 1, "ready", 2, False)]
    call = world.session.call("greeter", "crash", {})
    assert inspection.extensions()[0].open_calls
    world.memory.run()
    assert call.done
    assert inspection.extensions() == [ExtensionRow("greeter", "octet 0.3", 0, "backoff", 0, False)]
    world.memory.advance(250)
    assert inspection.extensions() == [ExtensionRow("greeter", "octet 0.3", 2, "ready", 2, False)]


def test_stderr_is_kept_by_extension_and_safe_to_print(world: World) -> None:
    asyncio.run(world.call("greeter", "crash", {}))
    assert world.inspection.stderr("greeter") == ("[1] going \\x1b[31mdown",)
    assert world.inspection.stderr("nobody") == ()
    assert world.inspection.names == ("greeter",)


def test_a_full_inbox_shows_who_refused(world: World) -> None:
    bus = world.session.bus
    noisy, slow = bus.attach("noisy"), bus.attach("slow")
    noisy.declare("bus.noisy.tick", [Field.integer("n")])
    slow.subscribe("bus.noisy.tick")
    slow.subscribe("bus.later.news")
    for n in range(MAX_BUS_QUEUE_MESSAGES):
        noisy.publish("bus.noisy.tick", {"n": n})
    world.clock.advance_ms(40)
    with pytest.raises(ResourceExhaustedError):
        noisy.publish("bus.noisy.tick", {"n": 64})
    (row,) = [row for row in world.inspection.subscribers() if row.name == "slow"]
    assert (row.active, row.pending) == (("bus.noisy.tick",), ("bus.later.news",))
    assert (row.queued_messages, row.oldest_age_ms, row.refusals) == (MAX_BUS_QUEUE_MESSAGES, 40, 1)
    assert (row.last_refused_topic, row.fullness) == ("bus.noisy.tick", 1.0)
    (refusal,) = world.inspection.refusals
    assert refusal.who == "noisy" and refusal.topic == "bus.noisy.tick"
    assert {key: refusal.record[key] for key in ("operation", "subscriber", "limit", "observed", "maximum")} == {
        "operation": "publish",
        "subscriber": "slow",
        "limit": "MAX_BUS_QUEUE_MESSAGES",
        "observed": MAX_BUS_QUEUE_MESSAGES + 1,
        "maximum": MAX_BUS_QUEUE_MESSAGES,
    }
    assert refusal.record["error"]["name"] == "resource_exhausted"


def test_a_refusal_that_no_queue_is_to_blame_for_names_none(world: World) -> None:
    from broker.errors import CapabilityMismatchError

    alpha = world.session.bus.attach("alpha")
    with pytest.raises(CapabilityMismatchError):
        alpha.declare("bus.beta.x", [Field.integer("n")])
    (refusal,) = world.inspection.refusals
    assert sorted(refusal.record) == ["error", "extension", "kind", "operation", "topic"]
    assert (refusal.record["operation"], refusal.who) == ("declare", "alpha")


def test_what_is_kept_is_bounded_and_the_newest(world: World) -> None:
    for n in range(MAX_INSPECTED_RECORDS + 3):
        world.inspection.note(
            {"kind": "diagnostic", "extension": "greeter", "generation": 1, "source": "stderr", "reason": f"line {n}"}
        )
    assert len(world.inspection.entries) == MAX_INSPECTED_RECORDS
    assert world.inspection.entries[-1].record["reason"] == f"line {MAX_INSPECTED_RECORDS + 2}"
    assert len(world.inspection.stderr("greeter")) == MAX_INSPECTED_STDERR_LINES
    assert world.inspection.stderr("greeter")[-1] == f"[1] line {MAX_INSPECTED_RECORDS + 2}"
    assert len(list(world.inspection.matching(Search("reason")))) == MAX_INSPECTED_RECORDS


def test_a_record_is_shown_whole_escaped_and_cut(world: World) -> None:
    entry = world.inspection.note(
        {"kind": "event", "topic": "bus.a.b", "sequence": 1, "payload": {"text": "\x9b31m\u202e"}}
    )
    assert entry.detail().split("\n") == [
        "{",
        '  "kind": "event",',
        '  "topic": "bus.a.b",',
        '  "sequence": 1,',
        '  "payload": {',
        '    "text": "\\x9b31m\\u202e"',
        "  }",
        "}",
    ]
    long = world.inspection.note({"kind": "diagnostic", "extension": "a", "source": "host", "reason": "x" * 100_000})
    assert len(long.detail()) < MAX_INSPECTED_CHARS + 100
    assert long.detail().endswith("\n...")
    assert long.line().endswith("...")


def test_the_tools_that_can_be_called(world: World) -> None:
    greet, crash = world.inspection.tools()
    assert (greet.owner, greet.name, greet.description) == ("greeter", "greet", "Greets [red]somebody[/red].")
    assert sorted(greet.schema["properties"]) == ["loud", "who"]
    assert crash.schema == {"type": "object"}


def test_records_may_come_from_any_thread_while_they_are_looked_at(world: World) -> None:
    record = {"kind": "event", "topic": "bus.a.b", "publisher": "a", "sequence": 1, "payload": {}}
    before = world.inspection.revision
    interval = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    threads = [threading.Thread(target=lambda: [world.inspection.note(record) for _ in range(3_000)]) for _ in range(2)]
    try:
        for thread in threads:
            thread.start()
        while any(thread.is_alive() for thread in threads):
            world.inspection.matching(Search("nothing"), after=before)
    finally:
        for thread in threads:
            thread.join()
        sys.setswitchinterval(interval)
    numbers = [entry.number for entry in world.inspection.entries]
    assert numbers == list(range(numbers[0], before + 6_001))
