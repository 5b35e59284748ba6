"""The statistics of the benchmarks: what a ratio, a spread and a round are."""

from __future__ import annotations

import time
from collections.abc import Sequence

import pytest

from bench import rounds
from bench.rounds import Spread, Workload, each, measure, ratio


def test_a_ratio_is_taken_within_each_round() -> None:
    # Both are slow in the second round: together they stay twice as fast as the other, whatever the medians say.
    times = {"ours": [1.0, 10.0, 1.0], "other": [2.0, 20.0, 2.0]}
    assert ratio(times, "ours", "other") == Spread(0.5, 0.5, 0.5)


def test_a_ratio_needs_as_many_rounds_of_both() -> None:
    with pytest.raises(ValueError, match="argument"):
        ratio({"ours": [1.0], "other": [1.0, 2.0]}, "ours", "other")


def test_a_spread_is_the_median_and_the_quartiles() -> None:
    assert Spread.of([5.0, 1.0, 2.0, 4.0, 3.0]) == Spread(median=3.0, low=2.0, high=4.0)
    assert Spread.of([7.0]) == Spread(7.0, 7.0, 7.0)
    assert Spread(1.0, 0.5, 2.0).scaled(10) == Spread(10.0, 5.0, 20.0)


def test_each_input_is_one_operation() -> None:
    seen: list[int] = []
    each(seen.append)([1, 2, 3])
    assert seen == [1, 2, 3]


def test_every_contestant_runs_once_a_round_on_inputs_of_its_own_and_they_take_turns() -> None:
    now = 0.0
    fed: list[int] = []
    order: list[str] = []

    def contestant(name: str, seconds: float) -> Workload:
        def run(inputs: Sequence[int]) -> None:
            nonlocal now
            order.append(name)
            now += seconds * len(inputs)

        return Workload(run, feed)

    def feed(count: int) -> list[int]:
        nonlocal now
        now += 100.0  # making inputs is never timed
        first = len(fed)
        fed.extend(range(first, first + count))
        return fed[first:]

    times = measure(
        {"a": contestant("a", 1.0), "b": contestant("b", 0.25)}, rounds=3, round_seconds=1.0, clock=lambda: now
    )
    assert times == {"a": [1.0, 1.0, 1.0], "b": [0.25, 0.25, 0.25]}
    assert order[-6:] == ["a", "b", "b", "a", "a", "b"]
    assert fed == list(range(len(fed)))


def test_a_contestant_does_about_a_rounds_worth_but_never_more_than_the_most() -> None:
    now = 0.0
    counts: dict[str, int] = {}

    def contestant(name: str, seconds: float) -> Workload:
        def run(inputs: Sequence[int]) -> None:
            nonlocal now
            counts[name] = len(inputs)
            now += seconds * len(inputs)

        return Workload(run, range)

    measure(
        {"slow": contestant("slow", 0.1), "fast": contestant("fast", 1e-9)},
        rounds=1,
        round_seconds=1.0,
        clock=lambda: now,
    )
    assert counts == {"slow": 10, "fast": rounds.MAX_OPERATIONS}


def test_a_feed_that_gives_fewer_inputs_than_asked_for_is_asked_again() -> None:
    now = 0.0
    given: list[int] = []

    def run(inputs: Sequence[int]) -> None:
        nonlocal now
        now += 0.5 * len(inputs)
        given.append(len(inputs))

    short = Workload(run, lambda count: range(min(count, 3)))
    times = measure({"a": short}, rounds=2, round_seconds=4.0, clock=lambda: now)
    assert times == {"a": [0.5, 0.5]}
    assert given[-6:] == [3, 3, 2, 3, 3, 2]


def test_time_is_the_processors_unless_told_otherwise() -> None:
    # A process that sleeps uses no processor.
    asleep = Workload(lambda _: time.sleep(0.05), lambda _: range(1))
    times = measure({"asleep": asleep}, rounds=3, round_seconds=1e-9)
    assert min(times["asleep"]) < 0.05
