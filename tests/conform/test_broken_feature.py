"""Extensions of API 0.1, 0.2 and 0.4 with one fault each: exactly the rule of that fault fails."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from broker.conform import ConformSettings, Report

FAST = ConformSettings(answer_ms=2_000, quiet_ms=100)
CONTRIBUTES = ('tools = ["echo"]', 'commands = ["say"]', "context = true", 'ui = ["status"]', "confirmations = true")

# The version and the fault, the rule that it breaks, and words that the evidence has.
FAULTS = {
    ("0.1", "protocol-on-v01"): ("octet.legacy.v01-frozen", "protocol"),
    ("0.1", "parts-on-v01"): ("octet.legacy.tool-result", "must be a string"),
    ("0.1", "hangs-in-call"): ("octet.method.tool-call", "no answer"),
    ("0.1", "any-method"): ("octet.legacy.unknown-method", "'result': {}"),
    ("0.1", "latin-1"): ("octet.legacy.framing", "not JSON"),
    ("0.2", "banner"): ("octet.framing.frames-only", "ready when you are"),
    ("0.2", "pretty"): ("octet.legacy.framing", "several lines"),
    ("0.2", "version-1"): ("octet.legacy.envelope", "jsonrpc"),
    ("0.2", "string-id"): ("octet.envelope.id-exact", "an integer"),
    ("0.2", "other-version"): ("octet.version.reply-mismatch", "'0.3'"),
    ("0.2", "canonical-answer"): ("octet.legacy.unknown-answer-member", "'contract'"),
    ("0.2", "feature-twice"): ("octet.legacy.features", "twice"),
    ("0.2", "feature-missing"): ("octet.legacy.features", "content_parts"),
    ("0.2", "unoffered-feature"): ("octet.legacy.features", "was not offered"),
    ("0.2", "zero-concurrency"): ("octet.legacy.concurrency", "at least 1"),
    ("0.2", "unnegotiated"): ("octet.legacy.unnegotiated", "request_progress"),
    ("0.2", "same-sequence"): ("octet.legacy.progress", "sequence"),
    ("0.2", "no-parent"): ("octet.legacy.parent", "parent_request_id"),
    ("0.2", "other-parent"): ("octet.legacy.parent", "9999"),
    ("0.2", "bad-question"): ("octet.legacy.bad-params", "destructive"),
    ("0.2", "hangs-in-call"): ("octet.cancel.grace", "no answer"),
    ("0.4", "unknown-event"): ("octet.legacy.lifecycle-events", "tea/served"),
    ("0.4", "command-missing"): ("octet.legacy.tools-and-commands", "'say'"),
    ("0.4", "blank-tool"): ("octet.legacy.tool-definition", "must not be blank"),
    ("0.4", "any-tool"): ("octet.tool-call.unknown-tool", "conformance-no-such-tool"),
    ("0.4", "text-on-v02"): ("octet.legacy.tool-result", "must be an array"),
    ("0.4", "canonical-request"): ("octet.version.no-retag", "bus/publish"),
    ("0.4", "undeclared"): ("octet.legacy.undeclared-contribution", "notification"),
    ("0.4", "same-id"): ("octet.method.id-reuse", "the id 1 again"),
    ("0.4", "command-text"): ("octet.legacy.command", "must be an object"),
    ("0.4", "context-object"): ("octet.legacy.collect", "must be an array"),
    ("0.4", "other-surface"): ("octet.legacy.collect", "footer"),
    ("0.4", "canonical-shutdown"): ("octet.legacy.shutdown", "terminal"),
    ("0.4", "deaf-to-eof"): ("octet.process.exit-on-eof", "still runs"),
}


@pytest.fixture(scope="module")
def reports(examine_many: Callable[..., Any], octet_subject: Callable[..., Any]) -> dict[tuple[str, str], Report]:
    names = [*FAULTS, ("0.1", ""), ("0.2", ""), ("0.4", ""), ("0.2", "silent-progress")]
    found: dict[tuple[str, str], Report] = examine_many(
        {
            (version, fault): (octet_subject("broken_feature.py", fault, version, CONTRIBUTES), FAST)
            for version, fault in names
        }
    )
    return found


@pytest.mark.timeout(600)
@pytest.mark.parametrize(("version", "fault"), [("0.1", ""), ("0.2", ""), ("0.4", ""), ("0.2", "silent-progress")])
def test_what_is_right_breaks_no_rule(reports: dict[tuple[str, str], Report], version: str, fault: str) -> None:
    report = reports[version, fault]
    assert report.failed == ()
    rules = {rule for (of, _), (rule, _) in FAULTS.items() if of == version}
    assert {finding.rule.id for finding in report.passed} >= rules


@pytest.mark.spec(
    "octet.legacy.envelope",
)
@pytest.mark.parametrize(("version", "fault"), FAULTS)
def test_one_fault_breaks_its_rule_and_no_other(
    reports: dict[tuple[str, str], Report], version: str, fault: str
) -> None:
    rule, words = FAULTS[version, fault]
    failed = reports[version, fault].failed
    assert [finding.rule.id for finding in failed] == [rule], [finding.evidence for finding in failed]
    assert words in "\n".join(failed[0].evidence)


def test_no_fault_is_forgotten(faults_of: Callable[[str], set[str]]) -> None:
    assert faults_of("broken_feature.py") == {fault for _, fault in FAULTS} | {"silent-progress"}
