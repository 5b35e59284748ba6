"""A search over orders finds the few in which three extensions fail, and shows the shortest of them."""

from __future__ import annotations

import pytest
from hypothesis import Phase, given, settings
from kit_members import Echo, Index, Reader, Writer

from broker.errors import ExitedError, UsageError
from broker.testing import (
    FailingInterleaving,
    Faults,
    Interleaving,
    MemoryHost,
    MemorySession,
    SequenceError,
    explore,
    find_failing_interleaving,
    heard,
    interleavings,
)


def read_your_writes(host: MemoryHost) -> None:
    """Reading right after writing gives what was written: true, unless the index is late."""
    session = host.open_session()
    for member in (Writer, Index, Reader):
        session.start(member)
    answers = []
    writing = session.begin("writer", "write", {"n": 5})
    writing.add_callback(lambda _: answers.append(session.begin("reader", "read")))
    session.run()
    assert answers[0].result().content[0].text == "5", "stale read"


def read_at_rest(host: MemoryHost) -> None:
    """The same, read when nothing is on its way any more."""
    session = host.open_session()
    for member in (Writer, Index, Reader):
        session.start(member)
    session.call("writer", "write", {"n": 5})
    assert session.call("reader", "read").content[0].text == "5"


@pytest.fixture(scope="module")
def found() -> FailingInterleaving:
    found = find_failing_interleaving(read_your_writes)
    assert found is not None
    return found


def test_the_bug_hides_in_the_order_of_every_day() -> None:
    read_your_writes(MemoryHost())
    read_your_writes(MemoryHost(schedule=[]))


def test_the_shortest_failing_order_is_found(found: FailingInterleaving) -> None:
    assert found.interleaving.choices == (0, 0, 0, 1, 1)
    assert {number: str(choice) for number, choice in found.choices.items()} == {
        3: "writer writes, before index reads",
        4: "writer reads, before index reads",
    }
    # It is the shortest: without either of the two it passes.
    for choices in ([0, 0, 0, 1], [0, 0, 0, 0, 1]):
        read_your_writes(MemoryHost(schedule=choices))


def test_it_is_replayed_from_what_was_printed(found: FailingInterleaving) -> None:
    assert found.replay == "MemoryHost(schedule=[0, 0, 0, 1, 1])"
    for _ in range(2):
        with pytest.raises(AssertionError, match="stale read"):
            read_your_writes(MemoryHost(schedule=[0, 0, 0, 1, 1]))


def test_it_says_what_happened(found: FailingInterleaving) -> None:
    lines = str(found).splitlines()
    assert lines[:5] == [
        "the scenario fails when steps happen in this order: Interleaving([0, 0, 0, 1, 1])",
        "   choice 3: writer writes, before index reads",
        "   choice 4: writer reads, before index reads",
        "   to replay: MemoryHost(schedule=[0, 0, 0, 1, 1])",
        "AssertionError: stale read",
    ]
    assert max(map(len, lines)) <= 100
    events = [line for line in lines if "bus/event" in line or "tool/call" in line]
    assert [" ".join(line.split()[2:6]) for line in events] == [
        "host -> writer tool/call",
        "host -> index bus/event",
        "writer -> host result",
        "host -> reader tool/call",
        "host -> reader bus/event",
        "reader -> host result",
    ]


def test_the_same_seed_searches_the_same() -> None:
    tried: list[list[tuple[int, ...]]] = [[], []]
    for orders in tried:

        def make_host(order: Interleaving, orders: list[tuple[int, ...]] = orders) -> MemoryHost:
            orders.append(order.choices)
            return MemoryHost(schedule=order)

        assert find_failing_interleaving(read_at_rest, seed=3, max_examples=15, make_host=make_host) is None
    assert tried[0] == tried[1]
    assert len(set(tried[0])) > 10


def test_explore_fails_with_all_of_it() -> None:
    with pytest.raises(SequenceError, match="the scenario fails when steps happen in this order") as raised:
        explore(read_your_writes, max_examples=60)
    assert isinstance(raised.value.__cause__, AssertionError)
    explore(read_at_rest, max_examples=10)


@pytest.mark.parametrize("how", ["fail", "raises"])
def test_what_pytest_raises_is_a_failure_too(how: str) -> None:
    def scenario(host: MemoryHost) -> None:
        try:
            read_your_writes(host)
        except AssertionError:
            if how == "fail":
                pytest.fail("stale read")
            with pytest.raises(KeyError):
                pass

    found = find_failing_interleaving(scenario)
    assert found is not None and found.interleaving.choices == (0, 0, 0, 1, 1)
    assert isinstance(found.error, pytest.fail.Exception)
    with pytest.raises(SequenceError, match="to replay: MemoryHost"):
        explore(scenario)


@pytest.mark.parametrize("outcome", [pytest.skip.Exception, pytest.xfail.Exception, KeyboardInterrupt])
def test_what_is_no_failure_ends_a_search(outcome: type[BaseException]) -> None:
    def scenario(host: MemoryHost) -> None:
        raise outcome("not here")

    with pytest.raises(outcome, match="not here"):
        explore(scenario)


def test_a_bug_late_in_a_long_scenario_is_found_and_made_short() -> None:
    def scenario(host: MemoryHost) -> None:
        session = host.open_session()
        for member in (Writer, Index, Reader):
            session.add(member)
        session.start()
        for number in range(3):
            session.call("writer", "write", {"n": number})
        read_late(session)

    def read_late(session: MemorySession) -> None:
        answers = []
        writing = session.begin("writer", "write", {"n": 5})
        writing.add_callback(lambda _: answers.append(session.begin("reader", "read")))
        session.run()
        assert answers[0].result().content[0].text == "5"

    found = find_failing_interleaving(scenario, seed=1)
    assert found is not None
    assert min(found.choices) > 20
    assert [str(choice) for choice in found.choices.values()] == [
        "writer writes, before index reads",
        "writer reads, before index reads",
    ]


def test_what_fails_in_any_order_is_told_to() -> None:
    def broken(host: MemoryHost) -> None:
        session = host.open_session()
        session.start(Echo)
        session.call("echo", "crash")

    found = find_failing_interleaving(broken)
    assert found is not None
    assert found.interleaving.choices == ()
    assert isinstance(found.error, ExitedError)
    assert "nothing overtakes anything: it fails in the order in which steps became possible" in str(found)


def test_faults_and_orders_are_searched_together() -> None:
    def make_host(order: Interleaving) -> MemoryHost:
        return MemoryHost(schedule=order, faults=Faults().kill("index", when=heard("bus/event")))

    found = find_failing_interleaving(read_your_writes, make_host=make_host)
    assert found is not None
    assert found.replay == "MemoryHost(schedule=[], faults=Faults(0).kill('index', when=heard('bus/event')))"


def test_a_host_without_the_order_is_refused() -> None:
    with pytest.raises(UsageError, match="make_host: the host has no schedule; give it the order"):
        find_failing_interleaving(read_at_rest, make_host=lambda order: MemoryHost())


@pytest.mark.parametrize("given", [{"steps": 0}, {"steps": 5_000}, {"overtakings": 0}])
def test_the_size_of_a_search_is_bounded(given: dict[str, int]) -> None:
    with pytest.raises(UsageError, match="expected a whole number from 1 to 1024"):
        interleavings(**given)


@given(interleavings(steps=60))
@settings(max_examples=25)
def test_any_test_is_a_search_with_the_strategy(order: Interleaving) -> None:
    assert len(order.choices) <= 60
    read_at_rest(MemoryHost(schedule=order))


def test_hypothesis_shrinks_a_given_order_too() -> None:
    @given(interleavings())
    @settings(max_examples=80, database=None, derandomize=True, phases=(Phase.generate, Phase.shrink))
    def fails(order: Interleaving) -> None:
        read_your_writes(MemoryHost(schedule=order))

    with pytest.raises(AssertionError) as raised:
        fails()
    assert "order=Interleaving([0, 0, 0, 1, 1])" in "".join(raised.value.__notes__)
