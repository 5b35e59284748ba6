"""Ties the tests to the rules they show: ``@pytest.mark.spec("octet.framing.at-bound")``."""

from __future__ import annotations

import pytest

_COLLECTED: pytest.StashKey[dict[str, list[str]]] = pytest.StashKey()


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    collected: dict[str, list[str]] = {}
    for item in items:
        for mark in item.iter_markers("spec"):
            if mark.kwargs or not mark.args or not all(isinstance(rule_id, str) for rule_id in mark.args):
                raise pytest.UsageError(f"{item.nodeid}: spec takes rule ids as strings, got {mark.args} {mark.kwargs}")
            for rule_id in mark.args:
                collected.setdefault(rule_id, []).append(item.nodeid)
    config.stash[_COLLECTED] = collected


@pytest.fixture(scope="session")
def collected_spec_ids(pytestconfig: pytest.Config) -> dict[str, list[str]]:
    """The rule ids that this run's tests carry, each with the tests that carry it."""
    return pytestconfig.stash[_COLLECTED]
