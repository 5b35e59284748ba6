"""Counting a run against its limits, at the four places of an agent loop where that matters.

::

    budget.start()
    while True:
        budget.check_runtime()                    # before each model call
        reply = call_the_model()
        budget.add_usage(input_tokens, output_tokens)     # before acting on the reply
        budget.claim_tool_calls(len(reply.tool_calls))    # before any of the batch runs

Each raises :class:`~broker.errors.BudgetExceededError` when its limit is reached. Source: odek contract, "Budget exit
behavior"; odek notes, section 7.3.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from fractions import Fraction
from typing import Any, Final

from attrs import frozen

from broker.clock import Clock, SystemClock
from broker.errors import BudgetExceededError, InvalidParamsError
from broker.limits import MAX_PORTABLE_INTEGER
from broker.wire.odek.budget.config import MICRO, Limits, Prices
from broker.wire.odek.budget.share import BudgetShare

_UNITS: Final = {
    "runtime": "seconds",
    "tool_calls": "tool calls",
    "input_tokens": "input tokens",
    "output_tokens": "output tokens",
    "cost_usd": "micro-USD",
}


@frozen
class Usage:
    """What a run has used so far; times in whole seconds, the cost in micro-USD (0 where it is not known)."""

    runtime_seconds: int
    tool_calls: int
    input_tokens: int
    output_tokens: int
    cost_micro_usd: int


@frozen
class ChildUsage:
    """What a child reports to have used. Its words, of whatever type: anything that is no sound number counts as 0."""

    tool_calls: Any = 0
    input_tokens: Any = 0
    output_tokens: Any = 0
    cost_usd: Any = 0


class Budget:
    """The budget of one run at a time; :meth:`start` begins the next with fresh counters. For one thread.

    ``model`` is the exact id that prices are looked up by. The cost is enforced only where both prices are known.
    ``on_exceeded(error)`` is told before the error is raised, such as
    :meth:`broker.wire.odek.events.run.RunEvents.budget_exceeded`. Sums stay at the largest integer that every JSON
    reader holds, however much is added.
    """

    def __init__(
        self,
        limits: Limits,
        *,
        prices: Prices | None = None,
        model: str = "",
        clock: Clock | None = None,
        on_exceeded: Callable[[BudgetExceededError], object] | None = None,
    ) -> None:
        self.limits: Limits = limits
        self._price = (prices or Prices()).of(model)
        self._clock = clock or SystemClock()
        self._on_exceeded = on_exceeded
        self.start()

    @property
    def enforces_cost(self) -> bool:
        """Whether there is a limit of the cost, and both prices to hold against it."""
        return self.limits.max_cost_micro_usd is not None and self._price.input > 0 and self._price.output > 0

    @property
    def usage(self) -> Usage:
        """What the run has used so far."""
        return Usage(
            (self._clock.monotonic_ms() - self._began_ms) // 1000,
            self._tool_calls,
            self._input_tokens,
            self._output_tokens,
            self._cost(),
        )

    def start(self) -> None:
        """Begin a run: every counter is 0, and its time begins now."""
        self._began_ms = self._clock.monotonic_ms()
        self._tool_calls = self._input_tokens = self._output_tokens = 0
        self._children_cost = 0

    def check_runtime(self) -> None:
        """Raise when the run's time is over; for before each model call."""
        maximum = self.limits.max_runtime_seconds
        observed = self.usage.runtime_seconds
        if maximum is not None and observed >= maximum:
            self._exceed("runtime", observed, maximum)

    def add_usage(self, input_tokens: int, output_tokens: int) -> None:
        """Count the tokens of a reply and raise when a limit is reached; for before anything in the reply is acted on.

        Tokens read from or written to a cache are input tokens. A count that is negative or no integer is refused.
        """
        for name, value in (("input_tokens", input_tokens), ("output_tokens", output_tokens)):
            _check_count(name, value, 0)
        self._input_tokens = _add(self._input_tokens, input_tokens)
        self._output_tokens = _add(self._output_tokens, output_tokens)
        for limit, observed, maximum in (
            ("input_tokens", self._input_tokens, self.limits.max_input_tokens),
            ("output_tokens", self._output_tokens, self.limits.max_output_tokens),
            ("cost_usd", self._cost(), self.limits.max_cost_micro_usd if self.enforces_cost else None),
        ):
            if maximum is not None and observed >= maximum:
                self._exceed(limit, observed, maximum)

    def claim_tool_calls(self, count: int) -> None:
        """Count a batch of tool calls that is about to run, or raise and count none; exactly the maximum may run."""
        _check_count("count", count, 0)
        total = _add(self._tool_calls, count)
        maximum = self.limits.max_tool_calls
        if maximum is not None and total > maximum:
            self._exceed("tool_calls", total, maximum)
        self._tool_calls = total

    def charge_child(self, report: ChildUsage) -> None:
        """Add what a child used. Nothing it reports gives anything back, and the next check finds what is spent."""
        self._tool_calls = _add(self._tool_calls, _sound(report.tool_calls, 1))
        self._children_cost = _add(self._children_cost, _sound(report.cost_usd, MICRO))
        self._input_tokens = _add(self._input_tokens, _sound(report.input_tokens, 1))
        self._output_tokens = _add(self._output_tokens, _sound(report.output_tokens, 1))

    def share(self) -> BudgetShare:
        """What is left for a child, and which limits are spent."""
        usage = self.usage
        cost = self.limits.max_cost_micro_usd if self.enforces_cost else None
        runtime, runtime_spent = _left(self.limits.max_runtime_seconds, usage.runtime_seconds)
        tool_calls, tool_calls_spent = _left(self.limits.max_tool_calls, usage.tool_calls)
        micro_usd, cost_spent = _left(cost, usage.cost_micro_usd)
        return BudgetShare(
            max_runtime_seconds=runtime,
            max_tool_calls=tool_calls,
            max_cost_micro_usd=micro_usd,
            runtime_exhausted=runtime_spent,
            tool_calls_exhausted=tool_calls_spent,
            cost_exhausted=cost_spent,
        )

    def _cost(self) -> int:
        """Micro-USD so far; a part of one counts as a whole, so that a limit is never passed unseen."""
        own: Fraction = self._input_tokens * self._price.input + self._output_tokens * self._price.output
        return _add(math.ceil(own), self._children_cost)

    def _exceed(self, limit: str, observed: int, maximum: int) -> None:
        error = BudgetExceededError(
            f"the budget is spent: {observed} {_UNITS[limit]}, the maximum is {maximum} (limit {limit})",
            limit=limit,
            observed=observed,
            maximum=maximum,
        )
        if self._on_exceeded is not None:
            self._on_exceeded(error)
        raise error


def _check_count(name: str, value: Any, least: int) -> None:
    if type(value) is not int or value < least:
        raise InvalidParamsError(f"{name}: expected an integer of at least {least}, got {value!a:.80}", path=name)


def _add(one: int, other: int) -> int:
    return min(one + other, MAX_PORTABLE_INTEGER)


def _sound(value: Any, factor: int) -> int:
    """A child's number times ``factor``, rounded up; 0 for what is none, or is negative."""
    if isinstance(value, bool) or not isinstance(value, int | float) or not value > 0:
        return 0
    return math.ceil(min(value, MAX_PORTABLE_INTEGER) * factor)


def _left(maximum: int | None, used: int) -> tuple[int, bool]:
    """What is left of a limit (0 when there is none), and whether it is spent."""
    if maximum is None:
        return 0, False
    return max(0, maximum - used), used >= maximum
