"""Extensions of API 0.3 with one fault each: exactly the rules of that fault fail, and the evidence shows it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from broker.conform import ConformSettings, Report, Verdict

FAST = ConformSettings(answer_ms=2_000, quiet_ms=100)
CONTRIBUTES = ('tools = ["echo", "later"]', 'hooks = ["session_start", "session_end"]')

# The fault, the rules that it breaks, and words that the evidence of the first one has.
FAULTS = {
    # -- bytes
    "unsorted-keys": ("octet.canonical.key-order", "key order"),
    "white-space": ("octet.canonical.no-whitespace", "white space"),
    "escapes": ("octet.canonical.needless-escape", "escape not minimal"),
    "crlf": ("octet.framing.carriage-return", "CR before LF"),
    "empty-line": ("octet.framing.empty-line", "an empty line"),
    "unterminated": ("octet.framing.lf-terminated", "without LF"),
    "duplicate-key": ("octet.canonical.duplicate-key", "duplicate key"),
    "trailing-data": ("octet.canonical.trailing-data", "trailing data"),
    "byte-order-mark": ("octet.canonical.byte-order-mark", "BOM"),
    "banner": ("octet.framing.frames-only", "starting up"),
    "prints": ("octet.framing.frames-only", "debug: echo"),
    "latin-1": ("octet.canonical.invalid-utf8", "invalid UTF-8"),
    "lone-surrogate": ("octet.canonical.lone-surrogate", "lone surrogate"),
    "fraction": ("octet.canonical.no-float", "float"),
    "large-integer": ("octet.canonical.integers", "out of range"),
    "negative-zero": ("octet.canonical.number-spelling", "negative zero"),
    "over-bound": ("octet.framing.over-bound", "the bound is 1048576"),
    # -- envelopes
    "no-jsonrpc": ("octet.envelope.jsonrpc-version", "jsonrpc"),
    "extra-member": ("octet.envelope.unknown-member", "'note'"),
    "id-as-string": ("octet.envelope.id-exact", "was answered as"),
    "result-and-error": ("octet.envelope.mixed-shapes", "id, result, error"),
    "free-text-error": ("octet.envelope.error-pair", "something went wrong"),
    "foreign-code": ("octet.envelope.error-pair", "-32000"),
    "error-with-more": ("octet.envelope.error-shape", "hint"),
    "string-code": ("octet.envelope.error-shape", "error.code"),
    "shutdown-null": ("octet.envelope.result-null", "must not be null"),
    "request-without-id": ("octet.envelope.request-needs-id", "needs an id"),
    "null-id": ("octet.envelope.id-other-type", "not null"),
    "negative-id": ("octet.envelope.id-other-type", "integer id"),
    # -- the start
    "never-initialized": ("octet.initialize.answered", "no answer"),
    "initialize-error": ("octet.initialize.no-error", "-32603"),
    "early-request": ("octet.method.before-contract", "bus/declare"),
    "early-notification": ("octet.method.before-contract", "providers/complete"),
    "other-version": ("octet.selection.version", "'0.4'"),
    "other-schema": ("octet.selection.schema", "api/0.2"),
    "other-encoding": ("octet.selection.encoding", "'json'"),
    "unknown-capability": ("octet.selection.unknown-name", "telepathy"),
    "capability-twice": ("octet.selection.duplicate-name", "'core'"),
    "deferred-capability": ("octet.selection.deferred-name", "dynamic_tools"),
    "drops-required": ("octet.selection.missing-required", "request_cancellation"),
    "selects-unoffered": ("octet.selection.not-offered", "event_bus"),
    "method-alone": ("octet.selection.method-without-capability", "migration/detect"),
    "bus-without-lifecycle": ("octet.selection.bus-needs-lifecycle", "bus/lifecycle"),
    "subscribe-without-event": ("octet.selection.subscribe-needs-event", "bus/event"),
    "hooks-unselected": ("octet.selection.hooks-need-pair", "session hooks"),
    "fixed-limits": ("octet.selection.limit-over-offer", "max_frame_bytes"),
    "zero-limit": ("octet.selection.limit-zero", "max_concurrent_requests"),
    "fraction-limit": ("octet.selection.response-shape", "must be an integer"),
    "half-limit": ("octet.canonical.no-float", "max_tools"),
    "answer-with-more": ("octet.selection.response-shape", "'commands'"),
    "no-contract": ("octet.selection.response-shape", "contract: is missing"),
    "tool-missing": ("octet.selection.tools-match-manifest", "'later'"),
    "tool-twice": ("octet.selection.tools-match-manifest", "twice"),
    "blank-description": ("octet.selection.tool-description", "must not be blank"),
    "parameters-list": ("octet.selection.tool-parameters", "an array"),
    "null-output-schema": ("octet.selection.tool-output-schema", "null"),
    "output-schema-pattern": ("octet.selection.tool-output-schema", "patternProperties"),
    "dies-idle": ("octet.process.stays-alive", "status 9"),
    # -- reading
    "chunk-is-frame": ("octet.framing.chunk-independent", "byte by byte"),
    "one-frame-a-read": ("octet.framing.several-in-one-chunk", "1 answered"),
    "short-lines": ("octet.framing.at-bound", "the line is too long"),
    # -- calls
    "no-metadata": ("octet.tool-call.metadata-required", "metadata: is missing"),
    "image-part": ("octet.tool-call.result-parts", "deferred"),
    "content-string": ("octet.tool-call.result-parts", "must be an array"),
    "part-with-more": ("octet.tool-call.result-parts", "'style'"),
    "no-is-error": ("octet.tool-call.bad-result", "is_error: is missing"),
    "is-error-word": ("octet.tool-call.bad-result", "must be a boolean"),
    "unknown-result-member": ("octet.tool-call.bad-result", "'cost'"),
    "answers-any-tool": ("octet.tool-call.unknown-tool", "conformance-no-such-tool"),
    "silent-unknown-tool": ("octet.tool-call.unknown-tool", "no answer"),
    "dies-on-odd-arguments": ("octet.tool-call.arguments-any-json", "ended with status 1"),
    "silent-on-odd-arguments": ("octet.tool-call.arguments-any-json", "'[]'"),
    "tool-unknown-method": ("octet.method.tool-call", "-32601"),
    "dies-in-call": ("octet.method.tool-call", "ended with status 1"),
    "answers-twice": ("octet.method.answered-once", "was answered again"),
    "answers-unasked": ("octet.envelope.response-unknown-id", "4000000"),
    "silent-unknown-method": ("octet.method.unknown", "no answer"),
    "unknown-method-result": ("octet.method.unknown", "'result': {}"),
    "unknown-method-params": ("octet.method.unknown", "-32602"),
    # -- cancelling
    "ignores-cancel": ("octet.cancel.grace", "'later'"),
    "cancel-error": ("octet.cancel.terminal-result", "-32603"),
    "dies-on-late-cancel": ("octet.cancel.settled", "ended with status 1"),
    # -- what it asks
    "same-id-again": ("octet.method.id-reuse", "was used before"),
    "unselected-method": ("octet.method.unselected", "session/create"),
    "unknown-notification": ("octet.method.unselected", "log/message"),
    "field-with-more": ("octet.method.bad-params", "'label'"),
    "publish-with-more": ("octet.method.bad-params", "'sequence'"),
    "bus-before-binding": ("octet.bus.binding-first", "before the bus was bound"),
    "stale-binding": ("octet.bus.binding-stale", "the current is"),
    "bad-topic": ("octet.bus.topic-form", "'subject/said'"),
    "foreign-topic": ("octet.bus.topic-owner", "bus.other.said"),
    "secret-field": ("octet.bus.declare-faults", "'password'"),
    "unbounded-field": ("octet.bus.declare-faults", "max_bytes"),
    "declares-twice": ("octet.bus.declare-once", "declared already"),
    "hasty-publish": ("octet.bus.declare-acknowledged", "waited for its answer"),
    "undeclared-topic": ("octet.bus.publish-undeclared", "bus.subject.other"),
    "payload-number": ("octet.bus.payload-faults", "expected a string"),
    "payload-more": ("octet.bus.payload-faults", "not a declared field"),
    "payload-long": ("octet.bus.payload-faults", "observed 65, maximum 64"),
    "payload-path": ("octet.bus.payload-screened", "absolute path"),
    "payload-lines": ("octet.bus.payload-screened", "control character"),
    "many-subscriptions": ("octet.bus.subscriptions-bound", "has 16"),
    "deaf-to-new-topics": ("octet.bus.subscribe-again", "bus.other.news"),
    "declares-once": ("octet.bus.redeclare-after-reset", "bus.subject.said"),
    "subscribes-once": ("octet.bus.resubscribe-after-reset", "bus.other.news"),
    "dies-when-refused": ("octet.bus.survives-refusal", "ended with status 1"),
    "gives-up-when-refused": ("octet.bus.survives-refusal", "nothing was published any more"),
    "dies-on-notices": ("octet.bus.events-read", "ended with status 1"),
    "stops-reading": ("octet.bus.events-read", "no answer"),
    "hook-word": ("octet.hook.bad-result", "'allow'"),
    "hook-no-reason": ("octet.hook.bad-result", "'deny'"),
    "hook-silent": ("octet.hook.answered", "session_start"),
    # -- the end
    "deaf-to-shutdown": ("octet.method.shutdown", "no answer within 2 s"),
    "shutdown-word": ("octet.shutdown.terminal", "stopped"),
    "stays-after-shutdown": ("octet.shutdown.graceful", "still runs"),
    "exits-3": ("octet.shutdown.exit-status", "ended with status 3"),
    "ignores-eof": ("octet.process.exit-on-eof", "still runs"),
    "ignores-sigterm": ("octet.process.exit-on-sigterm", "still runs"),
    "leaves-child": ("octet.process.nothing-left", "sleep (pid "),
    "huge-stderr": ("octet.process.stderr-bounded", "bytes on stderr"),
}
# Faults that break two rules by what they are.
TWOFOLD = {
    "answers-late-cancel": {"octet.method.answered-once", "octet.envelope.response-unknown-id"},
    "first-binding-only": {"octet.bus.redeclare-after-reset", "octet.bus.resubscribe-after-reset"},
}


@pytest.fixture(scope="module")
def reports(examine_many: Callable[..., dict[str, Report]], octet_subject: Callable[..., Any]) -> dict[str, Report]:
    names = ["", *FAULTS, *TWOFOLD]
    return examine_many({name: (octet_subject("broken_octet.py", name, "0.3", CONTRIBUTES), FAST) for name in names})


@pytest.mark.timeout(600)
def test_what_is_right_breaks_no_rule(reports: dict[str, Report]) -> None:
    report = reports[""]
    assert report.failed == ()
    assert {finding.rule.id for finding in report.passed} >= {rule for rule, _ in FAULTS.values()}


@pytest.mark.spec(
    "octet.framing.frames-only",
    "octet.initialize.answered",
    "octet.initialize.no-error",
    "octet.tool-call.unknown-tool",
    "octet.bus.binding-first",
    "octet.bus.declare-acknowledged",
    "octet.bus.payload-screened",
    "octet.bus.subscriptions-bound",
    "octet.bus.redeclare-after-reset",
    "octet.bus.resubscribe-after-reset",
    "octet.bus.survives-refusal",
    "octet.bus.events-read",
    "octet.hook.answered",
    "octet.shutdown.exit-status",
    "octet.process.exit-on-eof",
    "octet.process.exit-on-sigterm",
    "octet.process.stays-alive",
    "octet.process.stderr-bounded",
)
@pytest.mark.parametrize("fault", FAULTS)
def test_one_fault_breaks_its_rule_and_no_other(reports: dict[str, Report], fault: str) -> None:
    rule, words = FAULTS[fault]
    failed = reports[fault].failed
    assert [finding.rule.id for finding in failed] == [rule], [finding.evidence for finding in failed]
    assert words in "\n".join(failed[0].evidence)


@pytest.mark.parametrize("fault", TWOFOLD)
def test_a_fault_that_is_two(reports: dict[str, Report], fault: str) -> None:
    assert {finding.rule.id for finding in reports[fault].failed} == TWOFOLD[fault]


def test_no_fault_is_forgotten(faults_of: Callable[[str], set[str]]) -> None:
    assert faults_of("broken_octet.py") == {*FAULTS, *TWOFOLD}


def test_evidence_is_bounded_and_printable(reports: dict[str, Report]) -> None:
    for report in reports.values():
        for finding in report.findings:
            assert finding.outcome is not Verdict.FAIL or finding.evidence
            for evidence in finding.evidence:
                assert len(evidence) <= 480
                assert evidence.isprintable()
