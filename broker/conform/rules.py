"""The catalogue of rules that conformance is judged by: the one place that says what is tested, and how.

The tables themselves stand in ``rules_octet``, ``rules_feature``, ``rules_mcp`` and ``rules_host``, one for each family
of programs under test. An id that is also an id of the project's own list of host duties is the same text of the
reference, seen from the other side.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from enum import Enum
from types import MappingProxyType
from typing import Final

from attrs import frozen

from broker.errors import UsageError


class Family(Enum):
    """What kind of program a rule is about."""

    OCTET = "octet"
    """An extension of API 0.3, the canonical wire."""
    FEATURE = "feature"
    """An extension of API 0.1, 0.2 or 0.4, the feature-negotiated wire."""
    MCP = "mcp"
    """An MCP server under ``odek-extension/v1``."""
    HOST = "host"
    """A host that runs extensions."""


@frozen
class Rule:
    """One rule: its stable id, what it asks for, the section of the reference it is from, and how it is tested."""

    id: str
    family: Family
    title: str
    where: str
    how: str


SEEN: Final = "every line of every process is looked at"
"""How rules are tested that anything a program says may break; kept by all that was seen, unless one is broken."""
START: Final = "the answer to initialize is judged as a host judges it"
CALLS: Final = "each tool is called with the smallest arguments its schema allows, or those given with --call"


def seen(rules: Mapping[str, Rule]) -> tuple[str, ...]:
    """The ids of those ``rules`` that anything a program says may break."""
    return tuple(rule.id for rule in rules.values() if rule.how == SEEN)


def table(family: Family, rows: Iterable[tuple[str, str, str, str]]) -> Mapping[str, Rule]:
    """The rules of ``rows`` (id, title, where, how) by their ids; raises ``ValueError`` for an id that stands twice."""
    rules: dict[str, Rule] = {}
    for rule_id, title, where, how in rows:
        if rule_id in rules:
            raise ValueError(f"{rule_id} stands twice among the {family.value} rules")
        rules[rule_id] = Rule(rule_id, family, title, where, how)
    return MappingProxyType(rules)


def rules_of(family: Family) -> tuple[Rule, ...]:
    """The rules of one family, in the order in which they are reported."""
    return tuple(CATALOGUE[family].values())


def check_ids(rule_ids: Iterable[str]) -> None:
    """Raise :class:`~broker.errors.UsageError` for an id that no family has."""
    known = {rule_id for rules in CATALOGUE.values() for rule_id in rules}
    for rule_id in rule_ids:
        if rule_id not in known:
            raise UsageError(f"there is no rule {rule_id!a:.200}; broker conform --list shows all")


# The tables need what is above, and whoever needs a rule imports this module.
from broker.conform.rules_feature import FEATURE_RULES  # noqa: E402
from broker.conform.rules_host import HOST_RULES  # noqa: E402
from broker.conform.rules_mcp import MCP_RULES  # noqa: E402
from broker.conform.rules_octet import OCTET_RULES  # noqa: E402

CATALOGUE: Final[Mapping[Family, Mapping[str, Rule]]] = MappingProxyType(
    {
        Family.OCTET: OCTET_RULES,
        Family.FEATURE: FEATURE_RULES,
        Family.MCP: MCP_RULES,
        Family.HOST: HOST_RULES,
    }
)
"""Every rule by family and id."""
