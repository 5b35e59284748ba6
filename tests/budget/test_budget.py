"""Counting against limits: when each fires, what it says, prices, children, and exit codes."""

from __future__ import annotations

import json
from typing import Any

import pytest

from broker.errors import (
    BudgetExceededError,
    CapacityError,
    ConfigError,
    InvalidParamsError,
    SetupError,
    TimedOutError,
)
from broker.limits import MAX_PORTABLE_INTEGER
from broker.testing import ManualClock
from broker.wire.odek.budget.budget import Budget, ChildUsage, Usage
from broker.wire.odek.budget.config import BudgetConfig, Limits, Prices, merge_limits, parse_limits
from broker.wire.odek.budget.exit_codes import exit_code
from broker.wire.odek.budget.share import BudgetShare, child_limits, read_share
from broker.wire.odek.events.run import ModelToolCall, RunEvents

PRICES: dict[str, Any] = {"input_cost_per_million_usd": 3, "output_cost_per_million_usd": 15}


def operator(**section: Any) -> BudgetConfig:
    return parse_limits(section, source="operator")


def project(**section: Any) -> BudgetConfig:
    return parse_limits(section, source="project")


def budget(clock: ManualClock | None = None, model: str = "m", **section: Any) -> Budget:
    config = operator(**section)
    return Budget(config.limits, prices=config.prices, model=model, clock=clock or ManualClock())


def fired(act: Any) -> tuple[str | None, int | None, int | None]:
    with pytest.raises(BudgetExceededError) as caught:
        act()
    return caught.value.limit, caught.value.observed, caught.value.maximum


# -- configuration -----------------------------------------------------------------------------------------------------


def test_every_limit_and_unknown_members() -> None:
    config = operator(
        max_runtime_seconds=60, max_tool_calls=5, max_input_tokens=7, max_output_tokens=8, max_cost_usd=0.1, other=[1]
    )
    assert config.limits == Limits(
        max_runtime_seconds=60,
        max_tool_calls=5,
        max_input_tokens=7,
        max_output_tokens=8,
        max_cost_micro_usd=100_000,
    )
    assert parse_limits(None, source="operator") == BudgetConfig()
    assert operator(max_tool_calls=0, max_cost_usd=0).limits == Limits()
    assert operator(max_cost_usd=1e-12).limits == Limits(max_cost_micro_usd=1)


@pytest.mark.parametrize(
    ("name", "wrong"),
    [
        ("max_runtime_seconds", -5),
        ("max_tool_calls", True),
        ("max_input_tokens", "7"),
        ("max_output_tokens", 1.0),
        ("max_runtime_seconds", MAX_PORTABLE_INTEGER + 1),
        ("max_cost_usd", -0.1),
        ("max_cost_usd", float("nan")),
        ("input_cost_per_million_usd", "3"),
        ("model_prices", []),
    ],
)
def test_a_fault_is_named_by_its_path(name: str, wrong: Any) -> None:
    with pytest.raises(ConfigError) as caught:
        operator(**{name: wrong, "max_tool_calls_other": "ignored"})
    assert [fault.path for fault in caught.value.faults] == [f"limits.{name}"]
    with pytest.raises(ConfigError):
        parse_limits([], source="operator")


@pytest.mark.spec("odek.budget.project-lowers", "odek.budget.no-environment")
def test_a_project_only_lowers(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ODEK_MAX_TOOL_CALLS", "1")
    theirs = project(max_runtime_seconds=90, max_tool_calls=3, max_input_tokens=0, max_output_tokens=11)
    merged = merge_limits(operator(max_runtime_seconds=60, max_tool_calls=5, max_input_tokens=7), theirs)
    assert merged.limits == Limits(max_runtime_seconds=60, max_tool_calls=3, max_input_tokens=7, max_output_tokens=11)
    overridden = merge_limits(merged, overrides=Limits(max_runtime_seconds=600, max_tool_calls=1))
    assert overridden.limits == Limits(
        max_runtime_seconds=600, max_tool_calls=1, max_input_tokens=7, max_output_tokens=11
    )


@pytest.mark.spec("odek.budget.project-prices")
def test_a_projects_prices_never_count() -> None:
    theirs = project(**PRICES, model_prices={"m": "even malformed"})
    assert theirs.prices == Prices()
    assert "prices" in theirs.warnings[0]
    mine = operator(input_cost_per_million_usd=1)
    assert merge_limits(mine, theirs).prices == mine.prices
    assert merge_limits(operator(), theirs).prices == Prices()


@pytest.mark.spec("odek.budget.price-exact", "odek.budget.price-fallback")
def test_a_models_price_goes_first_and_falls_back_one_by_one() -> None:
    prices = operator(
        **PRICES,
        model_prices={"big": {"input_cost_per_million_usd": 30}, "odd": {"output_cost_per_million_usd": -1}, "x": {}},
    ).prices
    found = {
        model: (float(p.input), float(p.output)) for model in ("big", "odd", "x", "Big", "") if (p := prices.of(model))
    }
    assert found == {"big": (30, 15), "odd": (3, 15), "x": (3, 15), "Big": (3, 15), "": (3, 15)}


# -- counting ----------------------------------------------------------------------------------------------------------


@pytest.mark.spec("odek.budget.token-comparison", "odek.budget.typed-error")
def test_time_that_reaches_its_maximum_is_over() -> None:
    clock = ManualClock()
    made = budget(clock, max_runtime_seconds=2)
    clock.advance_ms(1_999)
    made.check_runtime()
    clock.step_wall_ms(3_600_000)
    made.check_runtime()
    clock.advance_ms(1)
    assert fired(made.check_runtime) == ("runtime", 2, 2)


@pytest.mark.spec("odek.budget.token-comparison", "odek.budget.typed-error")
def test_tokens_that_reach_their_maximum_are_spent_and_input_comes_first() -> None:
    made = budget(max_input_tokens=10, max_output_tokens=5)
    made.add_usage(9, 4)
    assert fired(lambda: made.add_usage(1, 1)) == ("input_tokens", 10, 10)
    assert fired(lambda: budget(max_output_tokens=5).add_usage(100, 6)) == ("output_tokens", 6, 5)
    with pytest.raises(CapacityError, match="10 input tokens, the maximum is 10"):
        made.add_usage(0, 0)


@pytest.mark.spec("odek.budget.tool-calls-exact")
def test_exactly_the_maximum_of_tool_calls_runs_and_a_denied_batch_does_not_count() -> None:
    made = budget(max_tool_calls=3)
    made.claim_tool_calls(2)
    assert fired(lambda: made.claim_tool_calls(2)) == ("tool_calls", 4, 3)
    assert made.usage.tool_calls == 2
    made.claim_tool_calls(1)
    made.claim_tool_calls(0)
    assert fired(lambda: made.claim_tool_calls(1)) == ("tool_calls", 4, 3)
    one = budget(max_tool_calls=1)
    one.claim_tool_calls(1)
    assert fired(lambda: one.claim_tool_calls(1)) == ("tool_calls", 2, 1)


@pytest.mark.spec("odek.budget.typed-error")
def test_cost_is_exact_in_micro_usd() -> None:
    made = budget(max_cost_usd=0.1, **PRICES)
    made.add_usage(10_000, 4_665)  # 0.03 + 0.069975
    assert made.usage.cost_micro_usd == 99_975
    assert fired(lambda: made.add_usage(9, 0)) == ("cost_usd", 100_002, 100_000)
    # A third of a micro-USD for a token adds up to whole ones.
    thirds = budget(max_cost_usd=1, input_cost_per_million_usd=0.1, output_cost_per_million_usd=0.1)
    for _ in range(10):
        thirds.add_usage(1, 0)
    assert thirds.usage.cost_micro_usd == 1


@pytest.mark.parametrize("prices", [{}, {"input_cost_per_million_usd": 3}, {"output_cost_per_million_usd": 15}])
@pytest.mark.spec("odek.budget.cost-needs-prices")
def test_without_both_prices_the_cost_is_off_and_tokens_are_not(prices: dict[str, Any]) -> None:
    made = budget(max_cost_usd=0.000001, max_input_tokens=100, **prices)
    made.add_usage(99, 10_000_000)
    assert not made.enforces_cost
    assert made.share().cost_exhausted is False
    assert fired(lambda: made.add_usage(1, 0)) == ("input_tokens", 100, 100)


def test_without_limits_nothing_fires() -> None:
    made = budget()
    made.add_usage(10**40, 10**40)
    made.claim_tool_calls(10**40)
    made.check_runtime()
    assert made.usage.input_tokens == made.usage.tool_calls == MAX_PORTABLE_INTEGER


@pytest.mark.spec("odek.budget.fresh")
def test_the_next_run_begins_with_fresh_counters() -> None:
    clock = ManualClock()
    made = budget(clock, max_tool_calls=1, max_runtime_seconds=5, max_cost_usd=1, **PRICES)
    made.claim_tool_calls(1)
    made.add_usage(5, 5)
    made.charge_child(ChildUsage(cost_usd=0.5))
    clock.advance_ms(4_000)
    made.start()
    assert made.usage == Usage(0, 0, 0, 0, 0)
    made.claim_tool_calls(1)
    clock.advance_ms(4_000)
    made.check_runtime()


@pytest.mark.parametrize("wrong", [-1, 1.0, True, "1", None])
def test_a_loops_own_counts_must_be_counts(wrong: Any) -> None:
    made = budget()
    for act in (
        lambda: made.add_usage(wrong, 0),
        lambda: made.add_usage(0, wrong),
        lambda: made.claim_tool_calls(wrong),
    ):
        with pytest.raises(InvalidParamsError):
            act()
    assert made.usage == Usage(0, 0, 0, 0, 0)


# -- a loop ------------------------------------------------------------------------------------------------------------


@pytest.mark.spec("odek.budget.event", "odek.budget.state-saved", "odek.event.budget-before-failed")
def test_the_order_when_a_reply_with_tool_calls_crosses_a_limit() -> None:
    told: list[str] = []
    clock = ManualClock()
    events = RunEvents(lambda payload: told.append(payload.type), clock=clock)
    made = Budget(Limits(max_output_tokens=5), clock=clock, on_exceeded=events.budget_exceeded)
    status = -1

    def loop() -> None:
        made.check_runtime()
        told.append("model")
        calls = [ModelToolCall("shell", "{}")]
        try:
            made.add_usage(1, 6)
        except BudgetExceededError:
            told.append("saved without dangling calls")
            raise
        made.claim_tool_calls(len(calls))
        events.tool_calls(1, calls)

    try:
        loop()
    except BudgetExceededError as error:
        events.failed(error)
        status = exit_code(error)
    assert told == ["model", "budget_exceeded", "saved without dangling calls", "run_failed"]
    assert status == 4


@pytest.mark.spec("odek.budget.exit-codes")
def test_exit_codes() -> None:
    spent = BudgetExceededError("x", limit="runtime", observed=1, maximum=1)
    wrapped = RuntimeError("wrapped")
    wrapped.__cause__ = spent
    assert [
        exit_code(error)
        for error in (None, ValueError(), TimedOutError("a tool"), TimeoutError(), SetupError("x"), ConfigError("x"))
    ] == [0, 1, 1, 2, 3, 3]
    assert [exit_code(error) for error in (spent, wrapped, ExceptionGroup("g", [wrapped]))] == [4, 4, 4]


# -- children ----------------------------------------------------------------------------------------------------------


@pytest.mark.spec("odek.budget.share-remaining")
def test_a_child_gets_what_is_left() -> None:
    clock = ManualClock()
    made = budget(clock, max_runtime_seconds=60, max_tool_calls=5, max_cost_usd=1, **PRICES)
    made.claim_tool_calls(2)
    made.add_usage(100_000, 0)
    clock.advance_ms(10_999)
    assert json.loads(json.dumps(made.share().to_json())) == {
        "max_runtime_seconds": 50,
        "max_tool_calls": 3,
        "max_cost_usd": 0.7,
        "runtime_exhausted": False,
        "tool_calls_exhausted": False,
        "cost_exhausted": False,
    }
    assert read_share(made.share().to_json()) == made.share()
    assert budget().share().to_json() is None
    assert read_share(None) == BudgetShare()


@pytest.mark.parametrize(
    ("spend", "limit"),
    [
        (lambda made, clock: clock.advance_ms(60_000), "runtime"),
        (lambda made, clock: made.claim_tool_calls(5), "tool_calls"),
        (lambda made, clock: made.charge_child(ChildUsage(cost_usd=1)), "cost_usd"),
    ],
)
@pytest.mark.spec("odek.budget.share-flag")
def test_a_spent_limit_is_a_flag_and_the_child_does_not_begin(spend: Any, limit: str) -> None:
    clock = ManualClock()
    made = budget(clock, max_runtime_seconds=60, max_tool_calls=5, max_cost_usd=1, **PRICES)
    spend(made, clock)
    share = read_share(made.share().to_json())
    assert fired(lambda: child_limits(Limits(), share)) == (limit, 0, 0)
    with pytest.raises(BudgetExceededError) as caught:
        child_limits(Limits(), share)
    assert exit_code(caught.value) == 4


@pytest.mark.spec("odek.budget.share-zero", "odek.budget.child-limit")
def test_a_childs_limit_is_the_smaller_one_and_0_without_a_flag_is_none() -> None:
    mine = Limits(max_runtime_seconds=30, max_tool_calls=9, max_input_tokens=7)
    share = BudgetShare(max_runtime_seconds=50, max_tool_calls=3, max_cost_micro_usd=5)
    assert child_limits(mine, share) == Limits(
        max_runtime_seconds=30, max_tool_calls=3, max_input_tokens=7, max_cost_micro_usd=5
    )
    assert child_limits(mine, BudgetShare()) == mine
    assert child_limits(mine, None) == mine


@pytest.mark.parametrize(
    "wrong",
    [
        [],
        {"max_tool_calls": -1},
        {"max_tool_calls": True},
        {"max_runtime_seconds": 1.5},
        {"max_cost_usd": "1"},
        {"max_cost_usd": float("inf")},
        {"cost_exhausted": 1},
        {"runtime_exhausted": None},
    ],
)
def test_a_share_that_cannot_be_read_is_none(wrong: Any) -> None:
    with pytest.raises(InvalidParamsError) as caught:
        read_share(wrong)
    assert str(caught.value.path).startswith("budget")


def test_what_a_child_reports_is_never_refunded() -> None:
    made = budget(max_cost_usd=10, max_tool_calls=5, **PRICES)
    made.add_usage(10, 0)
    before = made.usage
    for odd in (float("nan"), -1, float("-inf"), "7", None, True, [], -(10**400)):
        made.charge_child(ChildUsage(tool_calls=odd, input_tokens=odd, output_tokens=odd, cost_usd=odd))
    assert made.usage == before
    made.charge_child(ChildUsage(tool_calls=2, cost_usd=0.25))
    assert (made.usage.tool_calls, made.usage.cost_micro_usd) == (2, 250_030)
    for huge in (float("inf"), 1e308, 10**400):
        made.charge_child(ChildUsage(tool_calls=huge, input_tokens=huge, output_tokens=huge, cost_usd=huge))
    assert {made.usage.tool_calls, made.usage.input_tokens, made.usage.cost_micro_usd} == {MAX_PORTABLE_INTEGER}
    assert fired(lambda: made.claim_tool_calls(1))[0] == "tool_calls"
    assert made.share().cost_exhausted
