"""Credit and age: what a message costs until it is gone, how long it may wait, and what a writer holds."""

from __future__ import annotations

import pytest

from broker import Bus, Event, Field, Peer, TopicUnavailable
from broker.bus import Held
from broker.errors import ResourceExhaustedError
from broker.testing import ManualClock

STATUS = "bus.alpha.status"
GREEN = {"summary": "green"}
HOUR_MS = 3_600_000


def credit(peer: Peer) -> tuple[int, int]:
    return peer.statistics().queued_messages, peer.statistics().queued_bytes


def fill(publisher: Peer) -> None:
    for _ in range(64):
        publisher.publish(STATUS, GREEN)
    with pytest.raises(ResourceExhaustedError):
        publisher.publish(STATUS, GREEN)


def hold(peer: Peer) -> Held:
    held = peer.hold()
    assert held is not None
    return held


def sequence(message: object) -> int:
    assert isinstance(message, Event)
    return message.sequence


# -- age ---------------------------------------------------------------------------------------------------------------


@pytest.mark.spec("octet.bus.age-exact", "octet.bound.max-bus-message-age")
def test_30000_ms_are_delivered_and_one_more_is_not(clock: ManualClock, alpha: Peer, beta: Peer) -> None:
    alpha.publish(STATUS, GREEN)
    clock.advance_ms(1)
    alpha.publish(STATUS, GREEN)
    clock.advance_ms(29_999)
    assert sequence(beta.take()) == 1
    alpha.publish(STATUS, GREEN)
    clock.advance_ms(2)
    assert beta.statistics().oldest_age_ms == 30_001
    assert sequence(beta.take()) == 3
    assert (beta.statistics().expired, beta.statistics().taken, credit(beta)) == (1, 2, (0, 0))


@pytest.mark.spec("octet.bus.age-monotonic")
@pytest.mark.parametrize("step", [HOUR_MS, -HOUR_MS])
def test_stepping_the_wall_clock_expires_nothing_and_keeps_nothing(
    clock: ManualClock, alpha: Peer, beta: Peer, step: int
) -> None:
    alpha.publish(STATUS, GREEN)
    clock.step_wall_ms(step)
    clock.advance_ms(30_000)
    assert beta.statistics().oldest_age_ms == 30_000
    assert sequence(beta.take()) == 1
    alpha.publish(STATUS, GREEN)
    clock.step_wall_ms(-step)
    clock.advance_ms(30_001)
    assert beta.take() is None
    assert beta.statistics().expired == 1


@pytest.mark.spec("octet.bus.age-exact", "octet.bus.queue-messages-exact")
def test_a_full_queue_frees_itself_when_its_events_expire(clock: ManualClock, alpha: Peer, beta: Peer) -> None:
    fill(alpha)
    clock.advance_ms(30_000)
    with pytest.raises(ResourceExhaustedError):
        alpha.publish(STATUS, GREEN)
    assert beta.statistics().expired == 0
    clock.advance_ms(1)
    assert alpha.publish(STATUS, GREEN).sequence == 65
    assert (beta.statistics().expired, beta.statistics().queued_messages, beta.statistics().refusals) == (64, 1, 2)
    assert sequence(beta.take()) == 65


def test_only_what_is_too_old_expires(bus: Bus, clock: ManualClock, alpha: Peer, beta: Peer) -> None:
    gamma, late = bus.attach("gamma"), bus.attach("late")

    def counts() -> list[tuple[int, int]]:
        rows = [peer.statistics() for peer in (beta, gamma, late)]
        return [(row.expired, row.queued_messages) for row in rows]

    for joins, pause in ((None, 20_000), (gamma, 5_000), (late, 5_001)):
        if joins is not None:
            joins.subscribe(STATUS)
        for _ in range(20):
            alpha.publish(STATUS, GREEN)
        clock.advance_ms(pause)
    assert counts() == [(0, 60), (0, 40), (0, 20)]
    # Nobody takes anything: the publications alone find what became too old since the last one looked.
    alpha.publish(STATUS, GREEN)
    assert counts() == [(20, 41), (0, 41), (0, 21)]
    clock.advance_ms(20_000)
    alpha.publish(STATUS, GREEN)
    assert counts() == [(40, 22), (20, 22), (0, 22)]
    clock.advance_ms(5_000)
    alpha.publish(STATUS, GREEN)
    assert counts() == [(60, 3), (40, 3), (20, 3)]
    assert [sequence(late.take()) for _ in range(3)] == [61, 62, 63]


@pytest.mark.spec("octet.bus.age-exact")
def test_making_room_discards_nothing_that_is_exactly_30000_ms_old(clock: ManualClock, alpha: Peer, beta: Peer) -> None:
    alpha.publish(STATUS, GREEN)
    clock.advance_ms(1)
    alpha.publish(STATUS, GREEN)
    clock.advance_ms(30_000)
    alpha.publish(STATUS, GREEN)
    assert (beta.statistics().expired, beta.statistics().queued_messages) == (1, 2)
    assert sequence(beta.take()) == 2


def test_notices_between_expired_events_stay(bus: Bus, clock: ManualClock, alpha: Peer, beta: Peer) -> None:
    gamma = bus.attach("gamma")
    gamma.declare("bus.gamma.x", [])
    beta.subscribe("bus.gamma.x")
    alpha.publish(STATUS, GREEN)
    gamma.detach()
    alpha.publish(STATUS, GREEN)
    clock.advance_ms(30_001)
    alpha.publish(STATUS, GREEN)
    assert beta.statistics().expired == 2
    assert isinstance(beta.take(), TopicUnavailable)
    assert sequence(beta.take()) == 3


# -- credit ------------------------------------------------------------------------------------------------------------


@pytest.mark.spec("octet.bus.credit-in-process")
def test_taking_gives_the_credit_back_at_once(alpha: Peer, beta: Peer) -> None:
    fill(alpha)
    assert sequence(beta.take()) == 1
    alpha.publish(STATUS, GREEN)
    assert beta.statistics().queued_messages == 64


@pytest.mark.spec("octet.bus.credit-invalidated")
@pytest.mark.parametrize("how", ["unsubscribe", "takeover"])
def test_invalidated_messages_keep_their_credit_until_they_are_discarded(
    bus: Bus, alpha: Peer, beta: Peer, how: str
) -> None:
    for _ in range(62):
        alpha.publish(STATUS, GREEN)
    bytes_before = credit(beta)[1]
    if how == "unsubscribe":
        publisher = alpha
        beta.unsubscribe(STATUS)
        notices = 0
    else:
        publisher = bus.attach("alpha", instance_id="a" * 32, generation=2)
        publisher.declare(STATUS, [Field.string("summary")])
        notices = 2
    beta.subscribe(STATUS)
    assert credit(beta)[0] == 62 + notices
    assert credit(beta)[1] >= bytes_before
    for _ in range(2 - notices):
        publisher.publish(STATUS, GREEN)
    with pytest.raises(ResourceExhaustedError) as caught:
        publisher.publish(STATUS, GREEN)
    assert (caught.value.subscriber, caught.value.limit) == ("beta", "MAX_BUS_QUEUE_MESSAGES")
    assert beta.take() is not None
    assert (beta.statistics().invalidated, credit(beta)[0]) == (62, 1)


@pytest.mark.spec("octet.bus.credit-invalidated")
def test_a_reset_gives_no_credit_back(bus: Bus, alpha: Peer, beta: Peer) -> None:
    for _ in range(63):
        alpha.publish(STATUS, GREEN)
    bus.reset()
    assert credit(beta)[0] == 64
    bus.reset()
    assert beta.closed


@pytest.mark.spec("octet.bus.credit-hold")
def test_a_held_message_keeps_its_credit_until_it_is_released(alpha: Peer, beta: Peer) -> None:
    fill(alpha)
    full = credit(beta)
    first, second = hold(beta), hold(beta)
    assert (sequence(first.message), sequence(second.message)) == (1, 2)
    assert (credit(beta), beta.statistics().held_messages, beta.statistics().taken) == (full, 2, 2)
    with pytest.raises(ResourceExhaustedError):
        alpha.publish(STATUS, GREEN)
    second.release()
    second.release()
    assert (credit(beta)[0], beta.statistics().held_messages) == (63, 1)
    with first:
        assert first.valid
    assert (credit(beta)[0], beta.statistics().held_messages) == (62, 0)
    alpha.publish(STATUS, GREEN)
    alpha.publish(STATUS, GREEN)
    with pytest.raises(ResourceExhaustedError):
        alpha.publish(STATUS, GREEN)


def test_several_held_messages_come_back_to_nothing_in_any_order(alpha: Peer, beta: Peer) -> None:
    for step in range(5):
        alpha.publish(STATUS, {"summary": "x" * step, "step": step})
    held = [hold(beta) for _ in range(5)]
    assert beta.hold() is None
    for index in (3, 0, 4, 1, 2):
        held[index].release()
    assert (credit(beta), beta.statistics().held_messages) == ((0, 0), 0)


# -- what makes a held message invalid ---------------------------------------------------------------------------------


@pytest.mark.spec("octet.bus.age-exact")
def test_a_held_event_is_valid_for_30000_ms(clock: ManualClock, alpha: Peer, beta: Peer) -> None:
    clock.advance_ms(5)
    alpha.publish(STATUS, GREEN)
    held = hold(beta)
    assert held.valid_until_ms == 30_005
    clock.advance_ms(30_000)
    assert held.valid
    clock.step_wall_ms(HOUR_MS)
    assert held.valid
    clock.advance_ms(1)
    assert not held.valid


def test_a_held_event_is_invalid_once_its_subscription_is_gone(alpha: Peer, beta: Peer) -> None:
    alpha.publish(STATUS, GREEN)
    held = hold(beta)
    assert held.valid
    beta.subscribe(STATUS)
    assert held.valid
    beta.unsubscribe(STATUS)
    assert not held.valid
    beta.subscribe(STATUS)
    assert not held.valid


@pytest.mark.parametrize("how", ["publisher", "takeover", "reset", "detach", "close"])
def test_a_held_event_is_invalid_once_its_world_is_gone(bus: Bus, alpha: Peer, beta: Peer, how: str) -> None:
    alpha.publish(STATUS, GREEN)
    held = hold(beta)
    beta.drain()
    assert held.valid
    if how == "publisher":
        alpha.detach()
    elif how == "takeover":
        bus.attach("alpha", instance_id="a" * 32, generation=2).declare(STATUS, [])
    elif how == "reset":
        bus.reset()
    elif how == "detach":
        beta.detach()
    else:
        bus.close()
    assert not held.valid
    held.release()
    assert (credit(beta), beta.statistics().held_messages) == ((0, 0), 0)


def test_a_held_notice_is_valid_until_the_next_binding(bus: Bus, clock: ManualClock, alpha: Peer, beta: Peer) -> None:
    alpha.detach()
    held = hold(beta)
    assert isinstance(held.message, TopicUnavailable)
    assert held.valid_until_ms is None
    clock.advance_ms(10 * HOUR_MS)
    beta.unsubscribe(STATUS)
    assert held.valid
    bus.reset()
    assert not held.valid


def test_a_held_notice_is_invalid_once_its_peer_is_closed(alpha: Peer, beta: Peer) -> None:
    alpha.detach()
    held = hold(beta)
    assert held.valid
    beta.detach()
    assert not held.valid


def test_nothing_to_hold(beta: Peer) -> None:
    assert beta.hold() is None
    assert (beta.statistics().held_messages, beta.statistics().taken) == (0, 0)


def test_a_held_message_counts_against_a_notice(bus: Bus, alpha: Peer, beta: Peer) -> None:
    fill(alpha)
    held = [hold(beta) for _ in range(64)]
    assert beta.take() is None
    bus.reset()
    assert beta.closed
    for each in held:
        each.release()
    assert credit(beta) == (0, 0)


# -- what a writer gives up --------------------------------------------------------------------------------------------


@pytest.mark.spec("octet.bus.credit-process")
@pytest.mark.parametrize(
    ("became", "counters"),
    [
        ("expired", (0, 1, 0, 0)),
        ("invalidated", (0, 0, 1, 0)),
        ("closed", (0, 0, 0, 1)),
        ("given up", (0, 0, 0, 1)),
    ],
)
def test_a_discarded_message_is_counted_as_what_it_became(
    clock: ManualClock, alpha: Peer, beta: Peer, became: str, counters: tuple[int, ...]
) -> None:
    alpha.publish(STATUS, GREEN)
    held = hold(beta)
    if became == "expired":
        clock.advance_ms(30_001)
    elif became == "invalidated":
        beta.unsubscribe(STATUS)
    elif became == "closed":
        beta.detach()
    held.discard()
    held.discard()
    held.release()
    found = beta.statistics()
    assert (found.taken, found.expired, found.invalidated, found.discarded) == counters
    assert (found.held_messages, found.queued_messages, found.queued_bytes) == (0, 0, 0)
