"""What the report says of a figure beside its goal."""

from __future__ import annotations

import pytest

from bench.goals import GOALS, Goal, _times_faster, expiry_share, worst_hostile
from bench.operations import PLAIN_TEXT, SCREENING
from bench.payloads import HOSTILE
from bench.results import Results
from bench.rounds import Spread


@pytest.mark.parametrize(
    ("at_least", "figure", "verdict"),
    [
        (False, 0.3, "aim reached"),
        (False, 0.31, "reached"),
        (False, 0.4, "reached"),
        (False, 0.41, "**missed**"),
        (True, 0.41, "aim reached"),
        (True, 0.39, "reached"),
        (True, 0.29, "**missed**"),
    ],
)
def test_a_bound_itself_is_reached(at_least: bool, figure: float, verdict: str) -> None:
    must, aim = (0.3, 0.4) if at_least else (0.4, 0.3)
    goal = Goal("work", lambda results: Spread(0, 0, 0), must, aim, at_least=at_least)
    assert goal.verdict(figure) == verdict


def test_times_faster_turns_the_ratio_and_its_quartiles_round() -> None:
    results: Results = {("calls", "ratio"): Spread(0.5, 0.25, 1.0)}
    assert _times_faster("calls", "ratio")(results) == Spread(2.0, 1.0, 4.0)


def test_the_worst_hostile_string_is_found_among_all() -> None:
    results: Results = {("screening", name, "seconds"): Spread(2.0, 2.0, 2.0) for name in SCREENING}
    results["screening", PLAIN_TEXT, "seconds"] = Spread(2.0, 1.0, 9.0)
    worst = list(HOSTILE)[3]
    results["screening", worst, "seconds"] = Spread(6.0, 4.0, 8.0)
    assert worst_hostile(results) == (worst, Spread(3.0, 2.0, 4.0))


def test_the_share_of_expiry_leaves_out_what_measuring_costs() -> None:
    results: Results = {
        ("published", "publish only, N=1", "seconds"): Spread(10.0, 10.0, 10.0),
        ("expiry", "nothing at all", "seconds"): Spread(1.0, 1.0, 1.0),
        ("expiry", "the comparisons alone", "seconds"): Spread(1.5, 1.2, 2.0),
    }
    share = expiry_share(results)
    assert (share.median, share.low, share.high) == pytest.approx((5.0, 2.0, 10.0))


def test_an_aim_is_never_easier_than_what_must_be() -> None:
    for goal in GOALS:
        assert goal.aim is None or goal.met(goal.aim, goal.must), goal.work
