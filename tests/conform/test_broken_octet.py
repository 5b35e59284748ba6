"""Extensions of API 0.3 with one fault each: exactly the rules of that fault fail, and the evidence shows it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from broker.conform import CATALOGUE, Family, Verdict

CONTRIBUTES = ('tools = ["echo", "later"]', 'hooks = ["session_start", "session_end"]')

# The fault, the rules that it breaks, words that the evidence has, and the scenario it shows in.
FAULTS = {
    # -- bytes
    "unsorted-keys": ("octet.canonical.key-order", "key order"),
    "white-space": ("octet.canonical.no-whitespace", "white space"),
    "escapes": ("octet.canonical.needless-escape", "escape not minimal", "call_tools"),
    "crlf": ("octet.framing.carriage-return", "CR before LF"),
    "empty-line": ("octet.framing.empty-line", "an empty line"),
    "unterminated": ("octet.framing.lf-terminated", "without LF"),
    "duplicate-key": ("octet.canonical.duplicate-key", "duplicate key"),
    "trailing-data": ("octet.canonical.trailing-data", "trailing data"),
    "byte-order-mark": ("octet.canonical.byte-order-mark", "BOM"),
    "banner": ("octet.framing.frames-only", "starting up"),
    "prints": ("octet.framing.frames-only", "debug: echo", "call_tools"),
    "latin-1": ("octet.canonical.invalid-utf8", "invalid UTF-8", "call_tools"),
    "lone-surrogate": ("octet.canonical.lone-surrogate", "lone surrogate", "call_tools"),
    "fraction": ("octet.canonical.no-float", "float", "call_tools"),
    "large-integer": ("octet.canonical.integers", "out of range", "call_tools"),
    "negative-zero": ("octet.canonical.number-spelling", "negative zero", "call_tools"),
    "too-deep": ("octet.canonical.depth", "depth", "call_tools"),
    "over-bound": ("octet.framing.over-bound", "the bound is 1048576", "call_tools"),
    # -- envelopes
    "no-jsonrpc": ("octet.envelope.jsonrpc-version", "jsonrpc"),
    "extra-member": ("octet.envelope.unknown-member", "'note'"),
    "id-as-string": ("octet.envelope.id-exact", "was answered as"),
    "array-frame": ("octet.envelope.not-an-object", "must be an object"),
    "long-method": ("octet.envelope.method-name-bound octet.method.unselected", "129"),
    "null-params": ("octet.envelope.params-null octet.method.bad-params", "null", "take_part"),
    "result-and-error": ("octet.envelope.mixed-shapes", "id, result, error"),
    "free-text-error": ("octet.envelope.error-pair", "something went wrong"),
    "foreign-code": ("octet.envelope.error-pair", "-32000"),
    "error-with-more": ("octet.envelope.error-shape", "hint"),
    "string-code": ("octet.envelope.error-shape", "error.code"),
    "shutdown-null": ("octet.envelope.result-null", "must not be null"),
    "request-without-id": ("octet.envelope.request-needs-id", "needs an id", "take_part"),
    "null-id": ("octet.envelope.id-other-type", "not null", "take_part"),
    "negative-id": ("octet.envelope.id-other-type", "integer id", "take_part"),
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
    "many-names": ("octet.selection.name-count", "too many names"),
    "selects-providers": ("octet.selection.provider-needs-contribution", "provider_catalog"),
    "contributes-commands": ("octet.selection.deferred-contribution", "commands"),
    "few-tools-selected": ("octet.selection.too-many-tools", "max_tools"),
    "selects-unoffered": ("octet.selection.not-offered", "event_bus", "bare_offer"),
    "method-alone": ("octet.selection.method-without-capability", "migration/detect"),
    "bus-without-lifecycle": ("octet.selection.bus-needs-lifecycle", "bus/lifecycle"),
    "subscribe-without-event": ("octet.selection.subscribe-needs-event", "bus/event"),
    "hooks-unselected": ("octet.selection.hooks-need-pair", "session hooks"),
    "fixed-limits": ("octet.selection.limit-over-offer", "max_frame_bytes", "lower_limits"),
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
    "chunk-is-frame": ("octet.framing.chunk-independent", "byte by byte", "in_pieces"),
    "unicode-lines": ("octet.framing.split-on-lf", "U+2028", "in_pieces"),
    "one-frame-a-read": ("octet.framing.several-in-one-chunk", "1 answered", "in_pieces"),
    "short-lines": ("octet.framing.at-bound", "the line is too long", "in_pieces"),
    # -- calls
    "no-metadata": ("octet.tool-call.metadata-required", "metadata: is missing", "call_tools"),
    "image-part": ("octet.tool-call.result-parts", "deferred", "call_tools"),
    "content-string": ("octet.tool-call.result-parts", "must be an array", "call_tools"),
    "part-with-more": ("octet.tool-call.result-parts", "'style'", "call_tools"),
    "no-is-error": ("octet.tool-call.bad-result", "is_error: is missing", "call_tools"),
    "is-error-word": ("octet.tool-call.bad-result", "must be a boolean", "call_tools"),
    "unknown-result-member": ("octet.tool-call.bad-result", "'cost'", "call_tools"),
    "answers-any-tool": ("octet.tool-call.unknown-tool", "conformance-no-such-tool"),
    "silent-unknown-tool": ("octet.tool-call.unknown-tool", "no answer"),
    "dies-on-odd-arguments": ("octet.tool-call.arguments-any-json", "ended with status 1", "call_tools"),
    "silent-on-odd-arguments": ("octet.tool-call.arguments-any-json", "'[]'", "call_tools"),
    "one-at-a-time": ("octet.tool-call.concurrency", "3 were not answered", "call_tools"),
    "tool-unknown-method": ("octet.method.tool-call", "-32601", "call_tools"),
    "dies-in-call": ("octet.method.tool-call", "ended with status 1", "call_tools"),
    "answers-twice": ("octet.method.answered-once", "was answered again", "call_tools"),
    "answers-unasked": ("octet.envelope.response-unknown-id", "4000000", "call_tools"),
    "silent-unknown-method": ("octet.method.unknown", "no answer", "unknown_method_and_sigterm"),
    "unknown-method-result": ("octet.method.unknown", "'result': {}", "unknown_method_and_sigterm"),
    "unknown-method-params": ("octet.method.unknown", "-32602", "unknown_method_and_sigterm"),
    # -- cancelling
    "ignores-cancel": ("octet.cancel.grace", "'later'", "cancel_calls"),
    "cancel-error": ("octet.cancel.terminal-result", "-32603", "cancel_calls"),
    "dies-on-late-cancel": ("octet.cancel.settled", "ended with status 1", "cancel_calls"),
    "answers-late-cancel": (
        "octet.method.answered-once octet.envelope.response-unknown-id",
        "never-sent",
        "cancel_calls",
    ),
    # -- what it asks
    "same-id-again": ("octet.method.id-reuse", "was used before", "take_part"),
    "asks-too-much": ("octet.method.outstanding-bound octet.bus.declare-once", "129 requests", "take_part"),
    "unselected-method": ("octet.method.unselected", "session/create"),
    "unknown-notification": ("octet.method.unselected", "log/message"),
    "field-with-more": ("octet.method.bad-params", "'label'", "take_part"),
    "publish-with-more": ("octet.method.bad-params", "'sequence'", "take_part"),
    "bus-before-binding": ("octet.bus.binding-first", "before the bus was bound", "take_part"),
    "stale-binding": ("octet.bus.binding-stale", "the current is", "take_part"),
    "bad-topic": ("octet.bus.topic-form", "'subject/said'", "take_part"),
    "foreign-topic": ("octet.bus.topic-owner", "bus.other.said", "take_part"),
    "secret-field": ("octet.bus.declare-faults", "'password'", "take_part"),
    "unbounded-field": ("octet.bus.declare-faults", "max_bytes", "take_part"),
    "declares-twice": ("octet.bus.declare-once", "declared already", "take_part"),
    "hasty-publish": ("octet.bus.declare-acknowledged", "waited for its answer", "take_part"),
    "undeclared-topic": ("octet.bus.publish-undeclared", "bus.subject.other", "take_part"),
    "publishes-foreign": ("octet.bus.publish-foreign", "bus.other.news", "take_part"),
    "large-event": ("octet.bus.message-over-bound", "8192", "take_part"),
    "payload-number": ("octet.bus.payload-faults", "expected a string", "take_part"),
    "payload-more": ("octet.bus.payload-faults", "not a declared field", "take_part"),
    "payload-long": ("octet.bus.payload-faults", "observed 65, maximum 64", "take_part"),
    "payload-path": ("octet.bus.payload-screened", "absolute path", "take_part"),
    "payload-lines": ("octet.bus.payload-screened", "control character", "take_part"),
    "many-subscriptions": ("octet.bus.subscriptions-bound", "has 16", "take_part"),
    "deaf-to-new-topics": ("octet.bus.subscribe-again", "bus.other.news", "take_part"),
    "declares-once": ("octet.bus.redeclare-after-reset", "bus.subject.said", "take_part"),
    "subscribes-once": ("octet.bus.resubscribe-after-reset", "bus.other.news", "take_part"),
    "first-binding-only": (
        "octet.bus.redeclare-after-reset octet.bus.resubscribe-after-reset",
        "bus.subject.said",
        "take_part",
    ),
    "dies-when-refused": ("octet.bus.survives-refusal", "ended with status 1", "take_part"),
    "gives-up-when-refused": ("octet.bus.survives-refusal", "nothing was published any more", "take_part"),
    "dies-on-notices": ("octet.bus.events-read", "ended with status 1", "take_part"),
    "stops-reading": ("octet.bus.events-read", "no answer", "take_part"),
    "hook-word": ("octet.hook.bad-result", "'allow'", "session_hooks"),
    "hook-no-reason": ("octet.hook.bad-result", "'deny'", "session_hooks"),
    "hook-silent": ("octet.hook.answered", "session_start", "session_hooks"),
    # -- the end
    "deaf-to-shutdown": ("octet.method.shutdown", "no answer within 2 s"),
    "shutdown-word": ("octet.shutdown.terminal", "stopped"),
    "stays-after-shutdown": ("octet.shutdown.graceful", "still runs"),
    "exits-3": ("octet.shutdown.exit-status", "ended with status 3"),
    "ignores-eof": ("octet.process.exit-on-eof", "still runs", "lower_limits"),
    "ignores-sigterm": ("octet.process.exit-on-sigterm", "still runs", "unknown_method_and_sigterm"),
    "leaves-child": ("octet.process.nothing-left", "sleep (pid "),
    "leaves-helper": ("octet.process.nothing-left", "with its tools called before it", "call_tools"),
    "huge-stderr": ("octet.process.stderr-bounded", "bytes on stderr", "call_tools"),
}
# Faults of a program that provides models and adapts a setup.
SERVICES = {
    "parallel-without-tools": ("octet.provider.register", "parallel_tool_calls", "provide"),
    "provider-label": ("octet.method.bad-params", "label", "provide"),
    "two-models-alike": ("octet.provider.register", "models", "provide"),
    "complete-with-id": ("octet.envelope.notification-forbids-id", "takes no id", "provide"),
    "never-complete": ("octet.provider.complete", "providers/complete", "provide"),
    "stream-in-part": ("octet.selection.stream-methods-together", "provider/stream"),
    "stream-silent": ("octet.provider.stream-accepted", "no answer", "provide"),
    "other-stream": ("octet.provider.stream-accepted", "'other'", "provide"),
    "delta-without-text": ("octet.provider.stream-kinds", "delta", "provide"),
    "unknown-kind": ("octet.provider.stream-kinds", "'thinking'", "provide"),
    "never-finished": ("octet.provider.stream-terminal", "text_end", "provide"),
    "finished-twice": ("octet.provider.stream-terminal", "'finished', 'finished'", "provide"),
    "after-the-end": ("octet.provider.stream-terminal", "heartbeat", "provide"),
    "counts-from-one": ("octet.provider.stream-sequence", "[1, 2, 3, 4, 5]", "provide"),
    "gap": ("octet.provider.stream-sequence", "[0, 1, 2, 4, 5]", "provide"),
    "dies-on-stream-cancel": ("octet.provider.stream-cancel", "ended with status 1", "provide"),
    "path-outside": ("octet.migration.detect", "config_paths", "migrate"),
    "severity-word": ("octet.migration.detect", "severity", "migrate"),
    "server-environment": ("octet.migration.import", "env", "migrate"),
    "adapter-silent": ("octet.migration.detect", "no answer", "migrate"),
    "adapter-writes": ("octet.migration.read-only", "has changed", "migrate"),
}

# Rules that no program breaks by itself, and why.
UNBREAKABLE = {
    "octet.selection.tool-name": "manifests have legal names only, so that any other breaks tools-match-manifest",
}


@pytest.fixture(scope="module")
def broken(examine_broken: Callable[..., Any], octet_subject: Callable[..., Any]) -> Any:
    def make(name: str) -> Any:
        more = ('commands = ["say"]',) if name == "contributes-commands" else ()
        return octet_subject("broken_octet.py", name, "0.3", (*CONTRIBUTES, *more))

    return examine_broken(FAULTS, make, [""])


@pytest.fixture(scope="module")
def broken_services(examine_broken: Callable[..., Any], octet_subject: Callable[..., Any]) -> Any:
    contributes = ("providers = true",)
    return examine_broken(SERVICES, lambda name: octet_subject("broken_services.py", name, "0.3", contributes), [""])


@pytest.mark.timeout(600)
def test_what_is_right_breaks_no_rule(broken: Any, broken_services: Any) -> None:
    broken.assert_breaks_none("", FAULTS)
    broken_services.assert_breaks_none("", SERVICES)


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
    "octet.migration.detect",
    "octet.migration.import",
    "octet.provider.stream-accepted",
)
@pytest.mark.parametrize("fault", FAULTS)
def test_a_fault_breaks_its_rules_and_no_other(broken: Any, fault: str) -> None:
    broken.assert_breaks_its_rules_alone(fault)


@pytest.mark.parametrize("fault", SERVICES)
def test_a_fault_of_a_service_breaks_its_rules_and_no_other(broken_services: Any, fault: str) -> None:
    broken_services.assert_breaks_its_rules_alone(fault)


def test_no_fault_is_forgotten(faults_of: Callable[[str], set[str]]) -> None:
    assert faults_of("broken_octet.py") | {"contributes-commands"} == {*FAULTS}
    assert faults_of("broken_services.py") == {*SERVICES}


def test_every_rule_has_a_program_that_breaks_it() -> None:
    broken = {rule for faults in (FAULTS, SERVICES) for rules, *_ in faults.values() for rule in rules.split()}
    assert {*CATALOGUE[Family.OCTET]} - broken == {*UNBREAKABLE}


def test_evidence_is_bounded_and_printable(broken: Any) -> None:
    for report in broken.reports.values():
        for finding in report.findings:
            assert finding.outcome is not Verdict.FAIL or finding.evidence
            for evidence in finding.evidence:
                assert len(evidence) <= 480
                assert evidence.isprintable()
