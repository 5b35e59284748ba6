"""MCP servers with one fault each: exactly the rule of that fault fails, and the evidence shows it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from broker.conform import CATALOGUE, Family

# The fault, the rules that it breaks, words that the evidence has, and the scenario it shows in.
FAULTS = {
    # -- lines
    "banner": ("odek.transport.stdout-only-protocol", "listening on stdio"),
    "prints": ("odek.transport.stdout-only-protocol", "reporting", "call_tools"),
    "pretty": ("odek.transport.line", "several lines"),
    "latin-1": ("odek.transport.invalid-utf8", "not UTF-8", "call_tools"),
    "byte-order-mark": ("odek.transport.byte-order-mark", "byte order mark"),
    "batch": ("odek.transport.batch", "an array of 1"),
    "unterminated": ("odek.transport.last-line", "no LF"),
    "long-line": ("odek.server.line-bound", "max_response_bytes is 524288", "call_tools"),
    "no-jsonrpc": ("odek.server.jsonrpc", "jsonrpc must be"),
    "method-in-answer": ("odek.server.answer-shape", "a method beside"),
    "error-text": ("odek.server.error-shape", "not a string", "edges"),
    "error-code-word": ("odek.server.error-shape", "error.code must be an integer", "edges"),
    "id-as-string": ("odek.server.id-echoed", "was answered as"),
    "id-as-fraction": ("odek.server.id-echoed", "2.0"),
    "answers-twice": ("odek.server.answered-once", "was answered again", "call_tools"),
    "answers-initialized": ("odek.server.answered-once", "an answer to id 'None', which nothing has"),
    "answers-notifications": ("odek.server.notifications-unanswered", "without an id", "unknown_things"),
    "unicode-lines": ("odek.transport.split-on-lf", "U+2028", "edges"),
    "chunk-is-message": ("odek.transport.chunks", "initialize: no answer", "in_pieces"),
    "dies-on-long-line": ("odek.server.long-line", "ended with status 1", "edges"),
    # -- handshake
    "initialize-error": ("odek.server.initialize-answered", "not today"),
    "initialize-silent": ("odek.server.initialize-answered", "no answer"),
    "future-version": ("odek.transport.compatible-version", "2099-01-01"),
    "no-version": ("odek.transport.compatible-version", "no protocolVersion"),
    "capabilities-list": ("odek.server.initialize-shape", "capabilities must be an object"),
    "no-server-info": ("odek.server.initialize-shape", "capabilities"),
    "no-tools-capability": ("odek.server.tools-capability", "2 tools"),
    "asks-early": ("odek.server.requests-before-initialized", "roots/list"),
    "needs-initialized": ("odek.server.without-initialized", "not initialized", "without_initialized"),
    "ping-text": ("odek.server.ping", "pong", "unknown_things"),
    "ping-silent": ("odek.server.ping", "no answer", "unknown_things"),
    "unknown-method-result": ("odek.server.unknown-method", "'result': {}", "unknown_things"),
    "unknown-method-code": ("odek.server.unknown-method", "-32603", "unknown_things"),
    "unknown-method-silent": ("odek.server.unknown-method", "no answer", "unknown_things"),
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
    "tool-unknown": ("odek.server.tools-call", "-32601", "call_tools"),
    "slow-tool": ("odek.server.tools-call", "its timeout_seconds, 2 s", "call_tools"),
    "dies-in-call": ("odek.server.tools-call", "ended with status 1", "call_tools"),
    "result-list": ("odek.limits.result-malformed", "must be an object", "call_tools"),
    "content-string": ("odek.limits.result-malformed", "a string, not an array", "call_tools"),
    "content-missing": ("odek.limits.result-malformed", "content is missing", "call_tools"),
    "is-error-word": ("odek.limits.result-malformed", "isError is a string", "call_tools"),
    "text-number": ("odek.server.content-items", "content[1] of type text: text is an integer", "call_tools"),
    "unknown-kind": ("odek.server.content-items", "video", "call_tools"),
    "image-without-type": ("odek.server.content-items", "mimeType is missing", "call_tools"),
    "long-result": ("odek.server.result-within-limit", "20000 characters", "call_tools"),
    "cut": ("odek.envelope.malformed-claim", "malformed odek.tool-result/v1", "call_tools"),
    "artifacts-object": ("odek.envelope.malformed-claim", "artifacts must be an array", "call_tools"),
    "fenced": ("odek.envelope.single-item", "something around it", "call_tools"),
    "note-beside": ("odek.envelope.single-item", "among 2 text items", "call_tools"),
    "error-envelope": ("odek.envelope.is-error-envelope", "isError", "call_tools"),
    "many-refs": ("odek.envelope.artifact-count", "more than 64", "call_tools"),
    "other-ref-schema": ("odek.artifact-ref.schema", "artifacts[0].schema", "call_tools"),
    "no-media-type": ("odek.artifact-ref.required", "media_type", "call_tools"),
    "id-twice": ("odek.artifact-ref.id-unique", "'report-1'", "call_tools"),
    "http-uri": ("odek.artifact-ref.uri-scheme", "only file://", "call_tools"),
    "host-in-uri": ("odek.artifact-ref.uri-scheme", "a host", "call_tools"),
    "dotted-path": ("odek.artifact-ref.path-clean", "not clean", "call_tools"),
    "outside-root": ("odek.artifact-ref.inside-root", "outside every artifact root", "call_tools"),
    "no-file": ("odek.artifact-ref.regular-file", "cannot be resolved", "call_tools"),
    "directory": ("odek.artifact-ref.regular-file", "not a regular file", "call_tools"),
    "wrong-size": ("odek.artifact-ref.size-match", "declared are 13", "call_tools"),
    "size-word": ("odek.artifact-ref.size-match", "must be an integer", "call_tools"),
    "wrong-digest": ("odek.artifact-ref.hash-match", "declared is 000000000000", "call_tools"),
    "upper-digest": ("odek.artifact-ref.hash-match", "lower-case", "call_tools"),
    "two-line-summary": ("odek.artifact-ref.one-line", "summary", "call_tools"),
    "refuses-unknown-arguments": ("odek.names.unknown-arguments", "unknown argument", "call_tools"),
    "answers-any-tool": ("odek.server.unknown-tool", "conformance-no-such-tool", "edges"),
    "silent-unknown-tool": ("odek.server.unknown-tool", "no answer", "edges"),
    "dies-on-odd-arguments": ("odek.server.arguments-any", "ended with status 1", "edges"),
    "one-at-a-time": ("odek.transport.out-of-order", "answered", "edges"),
    "dies-on-bad-params": ("odek.server.bad-params", "ended with status 1", "edges"),
    "silent-on-bad-params": ("odek.server.bad-params", "no answer", "edges"),
    "takes-bad-params": ("odek.server.bad-params", "'result'", "edges"),
    "dies-on-cancel": ("odek.server.cancel-harmless", "ended with status 1", "edges"),
    # -- the end
    "ignores-eof": ("odek.server.exit-on-eof", "still runs"),
    "ignores-sigterm": ("odek.server.exit-on-sigterm", "still runs", "sigterm"),
    "dies-idle": ("odek.server.stays-alive", "ended with status 9", "call_tools"),
    "leaves-child": ("odek.server.nothing-left", "sleep (pid "),
    "leaves-helper": ("odek.server.nothing-left", "with its tools called before it", "call_tools"),
    "huge-stderr": ("odek.transport.stderr-drained", "bytes on stderr", "call_tools"),
}


@pytest.fixture(scope="module")
def broken(examine_broken: Callable[..., Any], mcp_subject: Callable[[str], Any]) -> Any:
    return examine_broken(FAULTS, mcp_subject, ["", "without-tools"])


@pytest.mark.timeout(600)
def test_what_is_right_breaks_no_rule(broken: Any) -> None:
    broken.assert_breaks_none("", FAULTS)


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
def test_a_fault_breaks_its_rules_and_no_other(broken: Any, fault: str) -> None:
    broken.assert_breaks_its_rules_alone(fault)


def test_no_fault_is_forgotten(faults_of: Callable[[str], set[str]]) -> None:
    assert faults_of("broken_mcp.py") == {"without-tools", *FAULTS}


def test_every_rule_has_a_program_that_breaks_it() -> None:
    assert {rule for rules, *_ in FAULTS.values() for rule in rules.split()} == {*CATALOGUE[Family.MCP]}


def test_a_server_without_tools_breaks_no_rule(broken: Any) -> None:
    broken.assert_breaks_none("without-tools", ["ignores-sigterm"])
    report = broken.reports["without-tools"]
    assert "odek.server.unknown-tool" in {finding.rule.id for finding in report.skipped}
