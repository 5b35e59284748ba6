"""What a parent's budget leaves for a child, as the child's task file carries it.

A remaining 0 says nothing about whether there was a limit; a flag does. A set flag leaves a child nothing at all.
Source: odek contract, "Budget exit behavior"; odek notes, section 7.5.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any, Final

from attrs import frozen

from broker.errors import BudgetExceededError, InvalidParamsError
from broker.limits import MAX_PORTABLE_INTEGER
from broker.wire.jsonrpc import json_type
from broker.wire.odek.budget.config import MICRO, Limits

BUDGET_EXHAUSTED: Final = "budget_exhausted"
"""The ``status`` of a child that ended, or did not begin, for its budget."""

_FLAGS: Final = {"runtime_exhausted": "runtime", "tool_calls_exhausted": "tool_calls", "cost_exhausted": "cost_usd"}


@frozen(kw_only=True)
class BudgetShare:
    """The parent's remaining budget; 0 without its flag is no limit. The cost is in micro-USD."""

    max_runtime_seconds: int = 0
    max_tool_calls: int = 0
    max_cost_micro_usd: int = 0
    runtime_exhausted: bool = False
    tool_calls_exhausted: bool = False
    cost_exhausted: bool = False

    def to_json(self) -> dict[str, Any] | None:
        """The ``budget`` member of a task file; ``None`` when nothing is limited and it is left out."""
        members = {
            "max_runtime_seconds": self.max_runtime_seconds,
            "max_tool_calls": self.max_tool_calls,
            "max_cost_usd": self.max_cost_micro_usd / MICRO,
            "runtime_exhausted": self.runtime_exhausted,
            "tool_calls_exhausted": self.tool_calls_exhausted,
            "cost_exhausted": self.cost_exhausted,
        }
        return members if any(members.values()) else None


def read_share(value: Any) -> BudgetShare:
    """The ``budget`` member of a task file; ``None`` is an absent one. Unknown members are ignored.

    Raises ``invalid_params`` for a member of the wrong type or a negative number: a budget that cannot be read must not
    become none.
    """
    if value is None:
        return BudgetShare()
    if not isinstance(value, Mapping):
        raise InvalidParamsError(f"budget: must be an object, not {json_type(value)}", path="budget")
    return BudgetShare(
        max_runtime_seconds=_count(value, "max_runtime_seconds"),
        max_tool_calls=_count(value, "max_tool_calls"),
        max_cost_micro_usd=_micro_usd(value),
        runtime_exhausted=_flag(value, "runtime_exhausted"),
        tool_calls_exhausted=_flag(value, "tool_calls_exhausted"),
        cost_exhausted=_flag(value, "cost_exhausted"),
    )


def child_limits(operator: Limits, share: BudgetShare | None) -> Limits:
    """The limits of a child: the smaller of the operator's and what the parent has left.

    Raises :class:`~broker.errors.BudgetExceededError` when the parent has nothing left of one: the child must not
    begin. ``None`` is a child that does not share its parent's budget.
    """
    if share is None:
        return operator
    for flag, limit in _FLAGS.items():
        if getattr(share, flag):
            raise BudgetExceededError(
                f"the parent's budget is spent: a child gets no {limit}", limit=limit, observed=0, maximum=0
            )
    inherited = Limits(
        max_runtime_seconds=share.max_runtime_seconds or None,
        max_tool_calls=share.max_tool_calls or None,
        max_cost_micro_usd=share.max_cost_micro_usd or None,
    )
    return operator.lowered_by(inherited)


def _count(value: Mapping[str, Any], name: str) -> int:
    number: Any = value.get(name)
    if number is None:
        return 0
    if not isinstance(number, int) or isinstance(number, bool) or not 0 <= number <= MAX_PORTABLE_INTEGER:
        raise _fault(name, "an integer that is not negative", number)
    return number


def _micro_usd(value: Mapping[str, Any]) -> int:
    number: Any = value.get("max_cost_usd")
    if number is None:
        return 0
    if type(number) not in (int, float) or not math.isfinite(number) or number < 0:
        raise _fault("max_cost_usd", "a number that is not negative", number)
    # Less than a micro-USD is still a limit.
    micro_usd: int = math.ceil(round(number * MICRO, 3))
    return min(micro_usd, MAX_PORTABLE_INTEGER)


def _flag(value: Mapping[str, Any], name: str) -> bool:
    flag = value.get(name, False)
    if type(flag) is not bool:
        raise _fault(name, "a boolean", flag)
    return flag


def _fault(name: str, expected: str, value: Any) -> InvalidParamsError:
    path = f"budget.{name}"
    return InvalidParamsError(f"{path}: must be {expected}, not {value!a:.80}", path=path)
