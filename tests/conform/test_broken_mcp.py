"""MCP servers with one fault each: exactly the rule of that fault fails, and the evidence shows it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from broker.conform import ConformSettings, Report

FAST = ConformSettings(answer_ms=2_000, quiet_ms=100)

# The fault, the rule that it breaks, and words that the evidence has.
FAULTS = {
    # -- lines
    "banner": ("odek.transport.stdout-only-protocol", "listening on stdio"),
    "prints": ("odek.transport.stdout-only-protocol", "reporting"),
    "pretty": ("odek.transport.line", "several lines"),
    "latin-1": ("odek.transport.invalid-utf8", "not UTF-8"),
    "byte-order-mark": ("odek.transport.byte-order-mark", "byte order mark"),
    "batch": ("odek.transport.batch", "an array of 1"),
    "unterminated": ("odek.transport.last-line", "no LF"),
    "long-line": ("odek.server.line-bound", "max_response_bytes is 524288"),
    "no-jsonrpc": ("odek.server.jsonrpc", "jsonrpc must be"),
    "method-in-answer": ("odek.server.answer-shape", "a method beside"),
    "error-text": ("odek.server.error-shape", "not a string"),
    "error-code-word": ("odek.server.error-shape", "error.code must be an integer"),
    "id-as-string": ("odek.server.id-echoed", "was answered as"),
    "id-as-fraction": ("odek.server.id-echoed", "2.0"),
    "answers-twice": ("odek.server.answered-once", "was answered again"),
    "answers-notifications": ("odek.server.notifications-unanswered", "without an id"),
    "chunk-is-message": ("odek.transport.chunks", "initialize: no answer"),
    "dies-on-long-line": ("odek.server.long-line", "ended with status 1"),
    # -- handshake
    "initialize-error": ("odek.server.initialize-answered", "not today"),
    "initialize-silent": ("odek.server.initialize-answered", "no answer"),
    "future-version": ("odek.transport.compatible-version", "2099-01-01"),
    "no-version": ("odek.transport.compatible-version", "no protocolVersion"),
    "capabilities-list": ("odek.server.initialize-shape", "capabilities must be an object"),
    "no-server-info": ("odek.server.initialize-shape", "capabilities"),
    "no-tools-capability": ("odek.server.tools-capability", "2 tools"),
    "asks-early": ("odek.server.requests-before-initialized", "roots/list"),
    "needs-initialized": ("odek.server.without-initialized", "not initialized"),
    "ping-text": ("odek.server.ping", "pong"),
    "ping-silent": ("odek.server.ping", "no answer"),
    "unknown-method-result": ("odek.server.unknown-method", "'result': {}"),
    "unknown-method-code": ("odek.server.unknown-method", "-32603"),
    "unknown-method-silent": ("odek.server.unknown-method", "no answer"),
    # -- the list
    "list-needs-params": ("odek.server.list-without-params", "params are missing"),
    "tools-object": ("odek.server.list-shape", "an array, not an object"),
    "tool-word": ("odek.server.list-shape", "'third'"),
    "name-number": ("odek.server.list-shape", "tools[1]"),
    "name-empty": ("odek.names.length", "must not be empty"),
    "name-long": ("odek.names.length", "65 characters"),
    "name-dot": ("odek.names.alphabet", "change.it"),
    "name-newline": ("odek.names.alphabet", r"change\n"),
    "name-digits": ("odek.names.alphabet", "invalid character"),
    "name-dunder": ("odek.names.double-underscore", "srv__change"),
    "name-twice": ("odek.names.duplicate", "'report'"),
    "schema-missing": ("odek.server.input-schema", "is missing"),
    "schema-list": ("odek.server.input-schema", "an array"),
    "schema-string": ("odek.server.input-schema", "'string'"),
    "schema-huge": ("odek.names.schema-bound", "262144"),
    "description-number": ("odek.server.description", "an integer"),
    "same-cursor": ("odek.transport.pagination", "'again'"),
    "two-pages": ("odek.server.one-page", "2 pages"),
    # -- calls
    "tool-unknown": ("odek.server.tools-call", "-32601"),
    "slow-tool": ("odek.server.tools-call", "its timeout_seconds, 2 s"),
    "dies-in-call": ("odek.server.tools-call", "ended with status 1"),
    "result-list": ("odek.limits.result-malformed", "must be an object"),
    "content-string": ("odek.limits.result-malformed", "a string, not an array"),
    "content-missing": ("odek.limits.result-malformed", "content is missing"),
    "is-error-word": ("odek.limits.result-malformed", "isError is a string"),
    "text-number": ("odek.server.content-items", "content[1] of type text: text is an integer"),
    "unknown-kind": ("odek.server.content-items", "video"),
    "image-without-type": ("odek.server.content-items", "mimeType is missing"),
    "long-result": ("odek.server.result-within-limit", "20000 characters"),
    "cut": ("odek.envelope.malformed-claim", "malformed odek.tool-result/v1"),
    "artifacts-object": ("odek.envelope.malformed-claim", "artifacts must be an array"),
    "fenced": ("odek.envelope.single-item", "something around it"),
    "note-beside": ("odek.envelope.single-item", "among 2 text items"),
    "error-envelope": ("odek.envelope.is-error-envelope", "isError"),
    "many-refs": ("odek.envelope.artifact-count", "more than 64"),
    "other-ref-schema": ("odek.artifact-ref.schema", "artifacts[0].schema"),
    "no-media-type": ("odek.artifact-ref.required", "media_type"),
    "id-twice": ("odek.artifact-ref.id-unique", "'report-1'"),
    "http-uri": ("odek.artifact-ref.uri-scheme", "only file://"),
    "host-in-uri": ("odek.artifact-ref.uri-scheme", "a host"),
    "dotted-path": ("odek.artifact-ref.path-clean", "not clean"),
    "outside-root": ("odek.artifact-ref.inside-root", "outside every artifact root"),
    "no-file": ("odek.artifact-ref.regular-file", "cannot be resolved"),
    "directory": ("odek.artifact-ref.regular-file", "not a regular file"),
    "wrong-size": ("odek.artifact-ref.size-match", "declared are 13"),
    "size-word": ("odek.artifact-ref.size-match", "must be an integer"),
    "wrong-digest": ("odek.artifact-ref.hash-match", "declared is 000000000000"),
    "upper-digest": ("odek.artifact-ref.hash-match", "lower-case"),
    "two-line-summary": ("odek.artifact-ref.one-line", "summary"),
    "refuses-unknown-arguments": ("odek.names.unknown-arguments", "unknown argument"),
    "answers-any-tool": ("odek.server.unknown-tool", "conformance-no-such-tool"),
    "silent-unknown-tool": ("odek.server.unknown-tool", "no answer"),
    "dies-on-odd-arguments": ("odek.server.arguments-any", "ended with status 1"),
    "dies-on-bad-params": ("odek.server.bad-params", "ended with status 1"),
    "silent-on-bad-params": ("odek.server.bad-params", "no answer"),
    "takes-bad-params": ("odek.server.bad-params", "'result'"),
    "dies-on-cancel": ("odek.server.cancel-harmless", "ended with status 1"),
    # -- the end
    "ignores-eof": ("odek.server.exit-on-eof", "still runs"),
    "ignores-sigterm": ("odek.server.exit-on-sigterm", "still runs"),
    "leaves-child": ("odek.server.nothing-left", "sleep (pid "),
    "huge-stderr": ("odek.transport.stderr-drained", "bytes on stderr"),
}


@pytest.fixture(scope="module")
def reports(examine_many: Callable[..., dict[str, Report]], mcp_subject: Callable[[str], Any]) -> dict[str, Report]:
    return examine_many({name: (mcp_subject(name), FAST) for name in ["", "without-tools", *FAULTS]})


@pytest.mark.timeout(600)
def test_what_is_right_breaks_no_rule(reports: dict[str, Report]) -> None:
    report = reports[""]
    assert report.failed == ()
    assert {finding.rule.id for finding in report.passed} >= {rule for rule, _ in FAULTS.values()}


@pytest.mark.spec(
    "odek.server.jsonrpc",
    "odek.server.answer-shape",
    "odek.server.error-shape",
    "odek.server.answered-once",
    "odek.server.long-line",
    "odek.server.initialize-answered",
    "odek.server.initialize-shape",
    "odek.server.tools-capability",
    "odek.server.requests-before-initialized",
    "odek.server.without-initialized",
    "odek.server.unknown-method",
    "odek.server.list-shape",
    "odek.server.input-schema",
    "odek.server.description",
    "odek.server.one-page",
    "odek.server.tools-call",
    "odek.server.content-items",
    "odek.server.result-within-limit",
    "odek.artifact-ref.one-line",
    "odek.server.unknown-tool",
    "odek.server.bad-params",
    "odek.server.cancel-harmless",
    "odek.server.exit-on-sigterm",
    "odek.server.stays-alive",
    "odek.server.nothing-left",
)
@pytest.mark.parametrize("fault", FAULTS)
def test_one_fault_breaks_its_rule_and_no_other(reports: dict[str, Report], fault: str) -> None:
    rule, words = FAULTS[fault]
    failed = reports[fault].failed
    assert [finding.rule.id for finding in failed] == [rule], [finding.evidence for finding in failed]
    assert words in "\n".join(failed[0].evidence)


def test_no_fault_is_forgotten(faults_of: Callable[[str], set[str]]) -> None:
    assert faults_of("broken_mcp.py") == {"without-tools", *FAULTS}


def test_a_server_without_tools_breaks_no_rule(reports: dict[str, Report]) -> None:
    report = reports["without-tools"]
    assert report.failed == ()
    assert "odek.server.exit-on-sigterm" in {finding.rule.id for finding in report.passed}
    assert "odek.server.unknown-tool" in {finding.rule.id for finding in report.skipped}
