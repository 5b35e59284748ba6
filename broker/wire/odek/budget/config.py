"""``limits`` of an operator's and a project's configuration, and what the command line overrides.

A project only ever lowers a limit, or brings one where the operator has none; its prices never count. No variable of
the environment sets anything. Source: odek contract, "Budget exit behavior"; odek notes, sections 7.1 and 7.2.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from decimal import Decimal
from fractions import Fraction
from types import MappingProxyType
from typing import Any, Final, Literal

from attrs import Attribute, evolve, field, fields, frozen

from broker.errors import ConfigError, Fault, InvalidParamsError
from broker.limits import MAX_PORTABLE_INTEGER, MAX_REPORTED_FAULTS
from broker.wire.jsonrpc import json_type
from broker.wire.quoting import quote

MICRO: Final = 1_000_000
"""Micro-USD in a US dollar; a price in USD for a million tokens is one in micro-USD for a token."""

_NO_PRICE: Final = Fraction(0)
_COUNTS: Final = ("max_runtime_seconds", "max_tool_calls", "max_input_tokens", "max_output_tokens")
_PRICES: Final = ("input_cost_per_million_usd", "output_cost_per_million_usd")


def _limit(instance: Any, attribute: Attribute[Any], value: Any) -> None:
    if value is not None and (type(value) is not int or not 0 < value <= MAX_PORTABLE_INTEGER):
        raise InvalidParamsError(
            f"{attribute.name}: expected a positive integer, got {value!a:.80}", path=attribute.name
        )


@frozen(kw_only=True)
class Limits:
    """The limits of a run; ``None`` is none. Times are whole seconds, the cost is in micro-USD."""

    max_runtime_seconds: int | None = field(default=None, validator=_limit)
    max_tool_calls: int | None = field(default=None, validator=_limit)
    max_input_tokens: int | None = field(default=None, validator=_limit)
    max_output_tokens: int | None = field(default=None, validator=_limit)
    max_cost_micro_usd: int | None = field(default=None, validator=_limit)

    def lowered_by(self, other: Limits) -> Limits:
        """The smaller of both for each limit; one that only one of them has is that."""
        return Limits(**{name: _smaller(mine, theirs) for name, mine, theirs in _pairs(self, other)})

    def overridden_by(self, other: Limits) -> Limits:
        """The limits of ``other`` where it has them, in either direction."""
        return Limits(**{name: mine if theirs is None else theirs for name, mine, theirs in _pairs(self, other)})


@frozen
class Price:
    """Micro-USD for one input and one output token, exact; 0 is no price."""

    input: Fraction = _NO_PRICE
    output: Fraction = _NO_PRICE


def _frozen_mapping(mapping: Mapping[str, Price]) -> Mapping[str, Price]:
    return MappingProxyType(dict(mapping))


@frozen
class Prices:
    """What tokens cost: for ``models`` by their exact ids, and ``flat`` for whatever those leave out."""

    flat: Price = Price()
    models: Mapping[str, Price] = field(factory=dict, converter=_frozen_mapping)

    def of(self, model: str) -> Price:
        """The price of ``model``; what its entry does not name is the flat one's."""
        entry = self.models.get(model, Price())
        return Price(entry.input or self.flat.input, entry.output or self.flat.output)


@frozen
class BudgetConfig:
    """The limits and prices in force, and what was ignored on the way."""

    limits: Limits = Limits()
    prices: Prices = Prices()
    warnings: tuple[str, ...] = ()


def parse_limits(section: Any, *, source: Literal["operator", "project"]) -> BudgetConfig:
    """The budget of one configuration's ``limits``; ``None`` is an absent section. Unknown members are ignored.

    Zero means no limit. Raises :class:`~broker.errors.ConfigError` with every fault and its key path. A project's
    prices are left out with a warning.
    """
    reader = _Reader()
    if section is None:
        return BudgetConfig()
    if not isinstance(section, Mapping):
        reader.faults.append(Fault("limits", f"must be an object, not {json_type(section)}"))
        section = {}
    counts = {name: reader.count(section, name) for name in _COUNTS}
    cost = reader.amount(section, "max_cost_usd", "limits.max_cost_usd")
    micro = None if not cost else min(max(1, round(cost * MICRO)), MAX_PORTABLE_INTEGER)
    # A project's prices do not count, so that nothing in them can be wrong either.
    prices = reader.prices(section) if source == "operator" else Prices()
    if reader.faults:
        faults = reader.faults[:MAX_REPORTED_FAULTS]
        raise ConfigError("; ".join(map(str, faults)), faults=faults)
    warnings: tuple[str, ...] = ()
    if source == "project" and any(section.get(name) for name in (*_PRICES, "model_prices")):
        warnings = ("limits: the project's prices are ignored; only the operator sets them",)
    return BudgetConfig(Limits(**counts, max_cost_micro_usd=micro), prices, warnings)


def merge_limits(
    operator: BudgetConfig, project: BudgetConfig | None = None, overrides: Limits | None = None
) -> BudgetConfig:
    """What is in force: the operator's, lowered by the project's, then overridden by the command line's."""
    limits, warnings = operator.limits, operator.warnings
    if project is not None:
        limits, warnings = limits.lowered_by(project.limits), (*warnings, *project.warnings)
    if overrides is not None:
        limits = limits.overridden_by(overrides)
    return evolve(operator, limits=limits, warnings=warnings)


def _pairs(one: Limits, other: Limits) -> list[tuple[str, int | None, int | None]]:
    return [(entry.name, getattr(one, entry.name), getattr(other, entry.name)) for entry in fields(Limits)]


def _smaller(one: int | None, other: int | None) -> int | None:
    return min((value for value in (one, other) if value is not None), default=None)


class _Reader:
    """Reads the members of ``limits``; collects faults."""

    def __init__(self) -> None:
        self.faults: list[Fault] = []

    def count(self, section: Mapping[str, Any], name: str) -> int | None:
        value = section.get(name)
        if value is None:
            return None
        if type(value) is not int or not 0 <= value <= MAX_PORTABLE_INTEGER:
            shown = value if type(value) is int else json_type(value)
            self.faults.append(Fault(f"limits.{name}", f"must be an integer that is not negative, not {shown}"))
            return None
        return value or None

    def amount(self, section: Mapping[str, Any], name: str, path: str) -> Fraction:
        value = section.get(name)
        if value is None:
            return _NO_PRICE
        if type(value) not in (int, float) or not math.isfinite(value) or value < 0:
            shown = value if type(value) in (int, float) else json_type(value)
            self.faults.append(Fault(path, f"must be a number that is not negative, not {shown}"))
            return _NO_PRICE
        # The number that was written, not the double next to it.
        return Fraction(Decimal(str(value)))

    def prices(self, section: Mapping[str, Any]) -> Prices:
        flat = self._price(section, "limits")
        entries = section.get("model_prices")
        if entries is None:
            return Prices(flat)
        if not isinstance(entries, Mapping):
            self.faults.append(Fault("limits.model_prices", f"must be an object, not {json_type(entries)}"))
            return Prices(flat)
        models: dict[str, Price] = {}
        for model, entry in entries.items():
            path = f"limits.model_prices.{quote(model)}"
            if isinstance(entry, Mapping):
                models[model] = self._price(entry, path)
            else:
                self.faults.append(Fault(path, f"must be an object, not {json_type(entry)}"))
        return Prices(flat, models)

    def _price(self, entry: Mapping[str, Any], path: str) -> Price:
        numbers = {name: entry.get(name) for name in _PRICES}
        if path != "limits":
            # A negative price of a model is one that is missing; the flat one takes its place.
            numbers = {name: None if _is_negative(value) else value for name, value in numbers.items()}
        return Price(*(self.amount(numbers, name, f"{path}.{name}") for name in _PRICES))


def _is_negative(value: Any) -> bool:
    return type(value) in (int, float) and bool(value < 0)
