"""The work that the bus is compared with follows the bus's rules; else the comparison would compare two things."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from bench import payloads, same_work
from broker import BrokerError, Bus, Field
from broker.bus.screening import refusal

EDGES = """ + ~ / \\\\ a:/ sk- xoxb_ github_pat- bearer -----BEGIN @ 1 ( \x7f _ k . """.split(" ")
strings = st.one_of(st.text(max_size=24), st.lists(st.sampled_from([*EDGES, *"ab19-é "]), max_size=12).map("".join))


@given(strings)
@example("+12345678")
@example("+1234567")
@example("12345678")
@example("1234567 ")
@example("1234 567")
@example("12 34567")
@example("~ada/x")
@example("~a b/")
@example("task-abcdefgh")
@example("Bearer\u2003x")
def test_screens_what_the_bus_screens(text: str) -> None:
    assert same_work.screened(text) is (refusal(text) is not None)


def publish_to_both(payload: dict[str, Any], shape: payloads.Shape) -> tuple[int | None, int | None]:
    """The frame bytes of the admitted event with the bus and with the same work; None when refused."""
    bus = Bus()
    # The ids the same work has in its frames: 32 characters each.
    sensor, display = bus.attach("sensor"), bus.attach("display")
    sensor.declare(payloads.TOPIC, shape.fields)
    display.subscribe(payloads.TOPIC)
    queue = same_work.Queue(lambda event: None)
    work = same_work.SameWork(payloads.TOPIC, shape.checks, queue.put)
    work.subscribe(queue)
    ours: int | None = None
    theirs: int | None = None
    try:
        sensor.publish(payloads.TOPIC, payload)
    except BrokerError:
        pass
    else:
        event: Any = display.take()
        ours = len(event.frame)
    try:
        work.publish(payloads.TOPIC, payload)
    except (same_work.RefusedError, TypeError):
        pass
    else:
        theirs = queue.events[0][4]
    return ours, theirs


values = st.one_of(strings, st.integers(), st.booleans(), st.none(), st.floats(), st.sampled_from(payloads.TRENDS))


@given(
    st.fixed_dictionaries(
        {
            "station": st.one_of(strings, values),
            "level": st.one_of(st.integers(-10_001, 10_001), values),
            "steady": st.one_of(st.booleans(), values),
            "trend": st.one_of(st.sampled_from(payloads.TRENDS), values),
        },
        optional={"more": values},
    )
)
def test_admits_what_the_bus_admits_at_the_same_size(payload: dict[str, Any]) -> None:
    ours, theirs = publish_to_both(payload, payloads.FOUR)
    assert ours == theirs


@pytest.mark.parametrize("shape", [payloads.FOUR, payloads.TWENTY_FOUR, payloads.text(10), payloads.text(1024)])
def test_both_admit_what_is_measured(shape: payloads.Shape) -> None:
    first, second = shape.fresh(2)
    assert first != second
    ours, theirs = publish_to_both(first, shape)
    assert ours is not None
    assert ours == theirs


@pytest.mark.parametrize(("size"), [10, 11, 100, 117, 118, 119, 1023, 1024])
def test_texts_have_their_size(size: int) -> None:
    assert [len(payload["text"].encode()) for payload in payloads.text(size).fresh(3)] == [size] * 3


@pytest.mark.parametrize(("named", "admitted"), [(payloads.HOSTILE, True), (payloads.REFUSED, False)])
def test_hostile_strings_have_their_size_and_end_as_said(named: dict[str, Any], admitted: bool) -> None:
    for name, make in named.items():
        text = make(17)
        assert len(text.encode()) == 1024, name
        assert (refusal(text) is None) is admitted, name


def work_with(*queues: same_work.Queue) -> same_work.SameWork:
    work = same_work.SameWork(
        payloads.TOPIC, {"n": same_work.integer(0, 99)}, lambda event: [q.put(event) for q in queues]
    )
    for queue in queues:
        work.subscribe(queue)
    return work


def test_a_full_queue_refuses_for_all_and_uses_no_sequence() -> None:
    full, other = same_work.Queue(lambda event: None), same_work.Queue(lambda event: None)
    work = work_with(full, other)
    for n in range(same_work.MAX_MESSAGES):
        work.publish(payloads.TOPIC, {"n": n})
    other.events.clear()
    with pytest.raises(same_work.RefusedError) as caught:
        work.publish(payloads.TOPIC, {"n": 1})
    assert caught.value.subscriber is full
    assert (full.refusals, other.refusals, len(other.events)) == (1, 0, 0)
    full.events.clear()
    assert work.publish(payloads.TOPIC, {"n": 1})[0] == same_work.MAX_MESSAGES + 1


def test_a_raising_handler_is_counted_and_the_rest_go_on() -> None:
    seen: list[int] = []

    def fails(event: Any) -> None:
        raise ValueError

    first, second = same_work.Queue(fails), same_work.Queue(lambda event: seen.append(event[0]))
    work = work_with(first, second)
    work.publish(payloads.TOPIC, {"n": 1})
    assert work.deliver() == 2
    assert (first.failures, second.failures, seen) == (1, 0, [1])


def test_a_handler_may_publish_and_the_call_ends() -> None:
    def again(event: Any) -> None:
        work.publish(payloads.TOPIC, {"n": 1})
        assert work.deliver() == 0

    work = work_with(same_work.Queue(again))
    work.publish(payloads.TOPIC, {"n": 1})
    assert work.deliver() == same_work.MAX_ROUNDS


def test_subscribers_cannot_change_what_others_see() -> None:
    queue = same_work.Queue(lambda event: None)
    work = work_with(queue)
    payload = {"n": 1}
    work.publish(payloads.TOPIC, payload)
    payload["n"] = 2
    event: Any = queue.events[0]
    assert event[3] == {"n": 1}
    with pytest.raises(TypeError):
        event[3]["n"] = 3


def test_what_is_too_old_makes_room_and_is_not_delivered(monkeypatch: pytest.MonkeyPatch) -> None:
    now = 0
    monkeypatch.setattr(same_work.time, "monotonic_ns", lambda: now * 1_000_000)
    seen: list[int] = []
    queue = same_work.Queue(lambda event: seen.append(event[0]))
    work = work_with(queue)
    for n in range(same_work.MAX_MESSAGES):
        work.publish(payloads.TOPIC, {"n": n})
    now = same_work.MAX_AGE_MS
    with pytest.raises(same_work.RefusedError):
        work.publish(payloads.TOPIC, {"n": 1})
    now += 1
    last, _ = work.publish(payloads.TOPIC, {"n": 1})
    assert (work.deliver(), seen, queue.expired) == (1, [last], same_work.MAX_MESSAGES)


def test_the_smallest_frame_bound_counts() -> None:
    work = work_with(same_work.Queue(lambda event: None, max_frame=64))
    with pytest.raises(same_work.RefusedError, match="frame"):
        work.publish(payloads.TOPIC, {"n": 1})


def test_fields_use_every_kind() -> None:
    assert {item.kind for item in payloads.FOUR.fields} == {"string", "integer", "boolean", "enum"}
    assert all(isinstance(item, Field) for item in payloads.TWENTY_FOUR.fields)
    assert len(payloads.TWENTY_FOUR.fields) == 24
