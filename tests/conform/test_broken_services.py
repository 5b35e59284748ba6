"""Providers of models and migration adapters with one fault each: exactly the rule of that fault fails."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from broker.conform import ConformSettings, Report

FAST = ConformSettings(answer_ms=2_000, quiet_ms=100)

# The fault, the rule that it breaks, and words that the evidence has.
FAULTS = {
    "parallel-without-tools": ("octet.provider.register", "parallel_tool_calls"),
    "provider-label": ("octet.method.bad-params", "label"),
    "two-models-alike": ("octet.provider.register", "models"),
    "never-complete": ("octet.provider.complete", "providers/complete"),
    "stream-in-part": ("octet.selection.stream-methods-together", "provider/stream"),
    "stream-silent": ("octet.provider.stream-accepted", "no answer"),
    "other-stream": ("octet.provider.stream-accepted", "'other'"),
    "delta-without-text": ("octet.provider.stream-kinds", "delta"),
    "unknown-kind": ("octet.provider.stream-kinds", "'thinking'"),
    "never-finished": ("octet.provider.stream-terminal", "text_end"),
    "finished-twice": ("octet.provider.stream-terminal", "'finished', 'finished'"),
    "after-the-end": ("octet.provider.stream-terminal", "heartbeat"),
    "counts-from-one": ("octet.provider.stream-sequence", "[1, 2, 3, 4, 5]"),
    "gap": ("octet.provider.stream-sequence", "[0, 1, 2, 4, 5]"),
    "dies-on-stream-cancel": ("octet.provider.stream-cancel", "ended with status 1"),
    "path-outside": ("octet.migration.detect", "config_paths"),
    "severity-word": ("octet.migration.detect", "severity"),
    "server-environment": ("octet.migration.import", "env"),
    "adapter-silent": ("octet.migration.detect", "no answer"),
    "adapter-writes": ("octet.migration.read-only", "has changed"),
}


@pytest.fixture(scope="module")
def reports(examine_many: Callable[..., dict[str, Report]], octet_subject: Callable[..., Any]) -> dict[str, Report]:
    names = ["", *FAULTS]
    contributes = ("providers = true",)
    return examine_many({name: (octet_subject("broken_services.py", name, "0.3", contributes), FAST) for name in names})


@pytest.mark.timeout(600)
def test_what_is_right_breaks_no_rule(reports: dict[str, Report]) -> None:
    report = reports[""]
    assert report.failed == ()
    assert {finding.rule.id for finding in report.passed} >= {rule for rule, _ in FAULTS.values()}


@pytest.mark.spec("octet.migration.detect", "octet.migration.import", "octet.provider.stream-accepted")
@pytest.mark.parametrize("fault", FAULTS)
def test_one_fault_breaks_its_rule_and_no_other(reports: dict[str, Report], fault: str) -> None:
    rule, words = FAULTS[fault]
    failed = reports[fault].failed
    assert [finding.rule.id for finding in failed] == [rule], [finding.evidence for finding in failed]
    assert words in "\n".join(failed[0].evidence)


def test_no_fault_is_forgotten(faults_of: Callable[[str], set[str]]) -> None:
    assert faults_of("broken_services.py") == {*FAULTS}
