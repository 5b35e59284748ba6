"""Random operations on the bus and on the plain model of it: every answer, error and counter must be the same."""

from __future__ import annotations

import importlib.util
import sys
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)

from broker import Active, Binding, Bus, Event, Field, Message, Pending, TopicAvailable, TopicUnavailable
from broker.errors import ERROR_TABLE, BrokerError
from broker.testing import ManualClock


def _load_model() -> ModuleType:
    spec = importlib.util.spec_from_file_location("bus_model", Path(__file__).with_name("bus_model.py"))
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules["bus_model"] = module
    spec.loader.exec_module(module)
    return module


model = _load_model()

WALL = 1_700_000_000_000
FIELDS = [*(Field.string(name, required=False) for name in model.TEXTS), Field.integer("n", 0, 9, required=False)]
TOPICS = ["bus.alpha.a", "bus.alpha.b", "bus.beta.a", "bus.gamma.a"]

topics = st.sampled_from([*TOPICS, *TOPICS, *TOPICS, "nonsense"])
bindings = st.sampled_from([None] * 30 + ["current"] * 4 + ["stale", ""])
seldom = st.sampled_from([False, True])
texts = st.sampled_from(["", "x", "é" * 300, '"' * 400, "\\", "😀" * 256, "x" * 1024, "x" * 700])
wrong_texts = st.sampled_from([None, 5, "me@here", "x" * 1025, "é" * 513])
fine = st.dictionaries(st.sampled_from(model.TEXTS), texts, max_size=9)
payloads = st.one_of(
    st.just({"f0": "x"}),
    fine,
    fine.map(lambda payload: payload | {"n": 7}),
    st.dictionaries(st.sampled_from(model.TEXTS), st.one_of(texts, wrong_texts), max_size=4),
    st.dictionaries(
        st.sampled_from(["f0", "n", "z", "y"]), st.sampled_from([3, 10, True, "x", None, "a@b"]), max_size=4
    ),
)
floods = st.sampled_from(
    [
        {"f0": "x"},
        {},
        {f"f{n}": "x" * 1024 for n in range(7)},
        {f"f{n}": "é" * 512 for n in range(4)},
        {f"f{n}": "x" * 1024 for n in range(8)},
        {f"f{n}": '"' * 600 for n in range(7)},
    ]
)
numbers = st.integers(0, 63)


def facts_of(message: Message | None) -> dict[str, Any] | None:
    """A message as the model tells it."""
    if message is None:
        return None
    if isinstance(message, Binding):
        return {"kind": "binding", "binding_id": message.binding_id, "binding_revision": message.binding_revision}
    named: dict[str, Any] = {"binding_id": message.binding_id, "topic": message.topic}
    named |= {"publisher_instance_id": message.publisher_instance_id, "process_generation": message.process_generation}
    if isinstance(message, TopicAvailable | TopicUnavailable):
        kind = "topic_available" if isinstance(message, TopicAvailable) else "topic_unavailable"
        return {"kind": kind, "topic_revision": message.topic_revision, **named}
    named |= {"publisher": message.publisher, "sequence": message.sequence, "payload": message.payload}
    return {"kind": "event", "published_at_ms": message.published_at_ms, **named}


class BusMachine(RuleBasedStateMachine):
    """Does everything twice. ``pairs`` are all peers ever attached, ``holds`` all messages that were held."""

    def __init__(self) -> None:
        super().__init__()
        self.clock = ManualClock(unix_ms=WALL)
        self.bus = Bus(clock=self.clock)
        self.model = model.ModelBus(self.bus.binding_id, WALL)
        self.stale = "0" * 32
        self.pairs: list[tuple[Any, Any]] = []
        self.holds: list[tuple[Any, Any, Any]] = []

    def compare(self, real: Callable[[], Any], expected: Callable[[], Any], *, counted: bool = True) -> Any:
        """Run both; they must answer alike, or refuse with the same row and the same facts."""
        try:
            wanted, refusal = expected(), None
        except model.RefusedError as error:
            wanted, refusal = None, error.facts
            self.model.refused += counted
        try:
            answer = real()
        except BrokerError as error:
            assert refusal is not None, f"refused: {error}"
            row = ERROR_TABLE[refusal["name"]]
            assert (error.name, error.code, error.message) == (row.name, row.code, row.message)
            assert [fault.path for fault in error.faults] == refusal["paths"]
            for key in ("topic", "subscriber", "limit", "observed", "maximum"):
                assert getattr(error, key) == refusal.get(key), key
            path = refusal.get("path", (refusal["paths"] or [None])[0])
            assert error.path == (None if path in ("inbox", "frame") else path)
            return None
        assert refusal is None, f"not refused: {refusal}"
        return answer, wanted

    def pick(self, number: int) -> tuple[Any, Any]:
        # Mostly somebody who is still there: the newest four.
        return (
            self.pairs[-1 - number % 4]
            if number < 48 and len(self.pairs) >= 4
            else self.pairs[number % len(self.pairs)]
        )

    def binding(self, which: str | None) -> str | None:
        return {"current": self.bus.binding_id, "stale": self.stale}.get(which, which) if which else which

    # -- operations ----------------------------------------------------------------------------------------------------

    @initialize()
    def start(self) -> None:
        self.revive()

    @rule()
    def revive(self) -> None:
        """Attach who is missing, declare every topic and let everybody subscribe, so that something can happen."""
        for name in ("alpha", "beta", "gamma"):
            here = [(peer, twin) for peer, twin in self.pairs if peer.name == name and not peer.closed]
            if not here:
                self.attach(name, "i", 1, 1_048_576, False)
        for peer, _ in list(self.pairs):
            place = next(index for index, (other, _) in enumerate(self.pairs) if other is peer)
            for topic in TOPICS:
                if not peer.closed:
                    self.only(place, self.declare, topic, True, None)
        for place in range(len(self.pairs)):
            for topic in TOPICS:
                if not self.pairs[place][0].closed:
                    self.only(place, self.subscribe, topic, None)

    def only(self, place: int, operation: Callable[..., None], *arguments: Any) -> None:
        """Run an operation with the peer at one place."""
        pairs, self.pairs = self.pairs, [self.pairs[place]]
        try:
            operation(0, *arguments)
        finally:
            self.pairs = pairs

    @rule(
        name=st.sampled_from(["alpha", "beta", "gamma"]),
        instance_id=st.sampled_from(["i", "i", 'j"é']),
        generation=st.integers(1, 5),
        max_frame_bytes=st.sampled_from([1_048_576, 1_048_576, 2_000, 250]),
        announce=st.booleans(),
    )
    def attach(self, name: str, instance_id: str, generation: int, max_frame_bytes: int, announce: bool) -> None:
        both = self.compare(
            lambda: self.bus.attach(
                name,
                instance_id=instance_id,
                generation=generation,
                max_frame_bytes=max_frame_bytes,
                announce_binding=announce,
            ),
            lambda: self.model.attach(name, instance_id, generation, max_frame_bytes, announce),
            counted=False,
        )
        if both is not None:
            self.pairs.append(both)

    @rule(number=numbers, topic=topics, valid=st.sampled_from([True] * 5 + [False]), binding=bindings)
    def declare(self, number: int, topic: str, valid: bool, binding: str | None) -> None:
        peer, twin = self.pick(number)
        fields = FIELDS if valid else [Field("a", "float")]
        binding_id = self.binding(binding)
        self.compare(
            lambda: peer.declare(topic, fields, binding_id=binding_id),
            lambda: self.model.declare(twin, topic, valid, binding_id),
        )

    @rule(number=numbers, topic=topics, binding=bindings)
    def subscribe(self, number: int, topic: str, binding: str | None) -> None:
        peer, twin = self.pick(number)
        binding_id = self.binding(binding)
        both = self.compare(
            lambda: peer.subscribe(topic, binding_id=binding_id),
            lambda: self.model.subscribe(twin, topic, binding_id),
        )
        if both is not None:
            state, (kind, *facts) = both
            assert state == {"pending": Pending, "active": Active}[kind](*facts)

    @rule(number=numbers, topic=topics, binding=bindings)
    def unsubscribe(self, number: int, topic: str, binding: str | None) -> None:
        peer, twin = self.pick(number)
        binding_id = self.binding(binding)
        self.compare(
            lambda: peer.unsubscribe(topic, binding_id=binding_id),
            lambda: self.model.unsubscribe(twin, topic, binding_id),
        )

    @rule(number=numbers, payload=payloads, binding=bindings)
    def publish_own(self, number: int, payload: dict[str, Any], binding: str | None) -> None:
        self.publish(number, f"bus.{self.pick(number)[0].name}.a", payload, binding)

    @rule(number=numbers, topic=topics, payload=payloads, binding=bindings)
    def publish(self, number: int, topic: str, payload: dict[str, Any], binding: str | None) -> None:
        peer, twin = self.pick(number)
        binding_id = self.binding(binding)
        both = self.compare(
            lambda: peer.publish(topic, dict(payload), binding_id=binding_id),
            lambda: self.model.publish(twin, topic, payload, binding_id),
        )
        if both is not None:
            receipt, facts = both
            assert (receipt.sequence, receipt.published_at_ms) == facts

    @precondition(lambda self: self.model.topics)
    @rule(number=numbers, payload=floods, count=st.sampled_from([1, 2, 8, 33, 66]))
    def flood(self, number: int, payload: dict[str, Any], count: int) -> None:
        topic = list(self.model.topics)[number % len(self.model.topics)]
        owner = self.model.topics[topic].owner
        place = next(index for index, (_, twin) in enumerate(self.pairs) if twin is owner)
        for _ in range(count):
            self.only(place, self.publish, topic, payload, None)

    @rule(number=numbers, count=st.sampled_from([1, 1, 5, 70]))
    def take(self, number: int, count: int) -> None:
        peer, twin = self.pick(number)
        for _ in range(count):
            message, entry = peer.take(), self.model.pop(twin)
            assert facts_of(message) == (None if entry is None else entry.facts)
            if message is None:
                break
            assert message.frame == entry.frame

    @rule(number=numbers)
    def hold(self, number: int) -> None:
        peer, twin = self.pick(number)
        held, entry = peer.hold(), self.model.pop(twin)
        assert facts_of(held and held.message) == (None if entry is None else entry.facts)
        if held is not None:
            twin.held.append(entry)
            self.holds.append((held, twin, entry))

    @precondition(lambda self: self.holds)
    @rule(number=numbers)
    def release(self, number: int) -> None:
        held, twin, entry = self.holds[number % len(self.holds)]
        held.release()
        if entry in twin.held:
            twin.held.remove(entry)

    @rule(really=seldom)
    def reset(self, really: bool) -> None:
        if not really:
            return
        self.stale = self.bus.binding_id
        self.model.reset(self.bus.reset())

    @rule(number=numbers, really=seldom)
    def detach(self, number: int, really: bool) -> None:
        if not really:
            return
        peer, twin = self.pick(number)
        peer.detach()
        self.model.detach(twin)

    @rule(number=numbers, really=seldom)
    def drain(self, number: int, really: bool) -> None:
        if not really:
            return
        peer, twin = self.pick(number)
        peer.drain()
        twin.draining = True

    @rule(milliseconds=st.sampled_from([0, 1, 1, 7, 999, 999, 15_000, 29_999, 30_000, 30_001]))
    def advance(self, milliseconds: int) -> None:
        self.clock.advance_ms(milliseconds)
        self.model.now += milliseconds
        self.model.wall += milliseconds

    @rule(milliseconds=st.sampled_from([3_600_000, -3_600_000, -WALL + 5]))
    def step_wall(self, milliseconds: int) -> None:
        self.clock.step_wall_ms(milliseconds)
        self.model.wall += milliseconds

    # -- what must be alike after every step ---------------------------------------------------------------------------

    @invariant()
    def peers_agree(self) -> None:
        for peer, twin in self.pairs:
            row = peer.statistics()
            queued = twin.queue + twin.held
            assert (row.closed, row.close_reason) == (twin.close_reason is not None, twin.close_reason)
            assert (row.draining, row.published) == (twin.draining, twin.sequence)
            assert (row.queued_messages, row.held_messages) == (len(queued), len(twin.held))
            assert row.queued_bytes == sum(len(entry.frame) for entry in queued)
            assert row.queued_messages <= 64
            assert row.queued_bytes <= 262_144
            ages = [self.model.now - entry.at for entry in queued if entry.subscription is not None]
            assert row.oldest_age_ms == max(ages, default=None)
            assert (row.taken, row.expired, row.invalidated) == (twin.taken, twin.expired, twin.invalidated)
            assert (row.discarded, row.refusals) == (twin.discarded, twin.refusals)
            assert row.last_refused_topic == twin.last_refused_topic
            states = [(name, subscription is not None) for name, subscription in sorted(twin.interests.items())]
            assert row.active == tuple(name for name, active in states if active)
            assert row.pending == tuple(name for name, active in states if not active)

    @invariant()
    def buses_agree(self) -> None:
        row = self.bus.statistics()
        assert (row.binding_id, row.binding_revision) == (self.model.binding_id, self.model.binding_revision)
        assert row.topic_revision == self.model.topic_revision
        assert (row.published, row.refused, row.retired) == (
            self.model.published,
            self.model.refused,
            self.model.retired,
        )
        assert [(each.name, each.generation) for each in row.peers] == [
            (twin.name, twin.generation) for twin in self.model.peers
        ]
        assert [
            (each.topic, each.process_generation, each.topic_revision, each.subscribers, each.published)
            for each in row.topics
        ] == [
            (name, topic.owner.generation, topic.revision, len(topic.subscribers), topic.published)
            for name, topic in sorted(self.model.topics.items())
        ]

    @invariant()
    def holds_agree(self) -> None:
        for held, twin, entry in self.holds:
            assert held.valid == self.model.valid(twin, entry)


@pytest.mark.spec(
    "octet.bus.admission-all-or-nothing",
    "octet.bus.age-exact",
    "octet.bus.credit-hold",
    "octet.bus.credit-invalidated",
    "octet.bus.message-size",
    "octet.bus.notice-retires",
    "octet.bus.statistics",
    "octet.bus.topic-revision",
)
def test_random_operations_agree_with_the_model() -> None:
    profile = settings(
        max_examples=100,
        stateful_step_count=50,
        deadline=None,
        derandomize=True,
        database=None,
        suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
    )
    run_state_machine_as_test(BusMachine, settings=profile)


def test_an_event_has_a_place_in_the_model() -> None:
    # The machine would be blind if messages were never compared.
    machine = BusMachine()
    machine.start()
    machine.flood(0, {"f0": "x"}, 2)
    message = machine.pairs[1][0].take()
    assert isinstance(message, Event)
    assert facts_of(message) == machine.model.pop(machine.pairs[1][1]).facts
    machine.teardown()
