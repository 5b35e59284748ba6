"""Extensions of API 0.1, 0.2 and 0.4 with one fault each: exactly the rule of that fault fails."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from broker.conform import CATALOGUE, Family

CONTRIBUTES = ('tools = ["echo"]', 'commands = ["say"]', "context = true", 'ui = ["status"]', "confirmations = true")
LATER = ('tool_renderers = ["echo"]', 'hooks = ["session_start", "session_end"]')

# The version and the fault, the rules that it breaks, words that the evidence has, and the scenario it shows in.
FAULTS = {
    ("0.1", "protocol-on-v01"): ("octet.legacy.v01-frozen", "protocol"),
    ("0.1", "parts-on-v01"): ("octet.legacy.tool-result", "must be a string", "call_tools"),
    ("0.1", "hangs-in-call"): ("octet.method.tool-call", "no answer", "call_tools"),
    ("0.1", "any-method"): ("octet.legacy.unknown-method", "'result': {}", "unknown_method"),
    ("0.1", "latin-1"): ("octet.legacy.framing", "not JSON"),
    ("0.1", "early-request"): ("octet.method.before-contract", "confirmation/request"),
    ("0.1", "never-initialized"): ("octet.initialize.answered", "no answer"),
    ("0.1", "initialize-error"): ("octet.initialize.no-error", "-32601"),
    ("0.1", "chunk-is-line"): ("octet.framing.chunk-independent", "byte by byte", "in_pieces"),
    ("0.1", "dies-idle"): ("octet.process.stays-alive", "ended with status 9"),
    ("0.1", "ignores-sigterm"): ("octet.process.exit-on-sigterm", "still runs", "sigterm"),
    ("0.1", "exits-3"): ("octet.shutdown.exit-status", "ended with status 3"),
    ("0.2", "unterminated"): ("octet.framing.lf-terminated", "without LF"),
    ("0.2", "long-line"): ("octet.legacy.line-bound", "a line of 11", "call_tools"),
    ("0.2", "answers-unasked"): ("octet.envelope.response-unknown-id", "4000000", "call_tools"),
    ("0.2", "answers-twice"): ("octet.method.answered-once", "answered again", "call_tools"),
    ("0.2", "unicode-lines"): ("octet.framing.split-on-lf", "U+2028", "in_pieces"),
    ("0.2", "one-line-a-read"): ("octet.framing.several-in-one-chunk", "1 answered", "in_pieces"),
    ("0.2", "short-lines"): ("octet.framing.at-bound", "the line is too long", "in_pieces"),
    ("0.2", "silent-on-odd-arguments"): ("octet.tool-call.arguments-any-json", "'[]'", "call_tools"),
    ("0.2", "hook-kind"): ("octet.legacy.session-hooks", "'kind'", "contribute"),
    ("0.2", "banner"): ("octet.framing.frames-only", "ready when you are"),
    ("0.2", "pretty"): ("octet.legacy.framing", "several lines"),
    ("0.2", "version-1"): ("octet.legacy.envelope", "jsonrpc"),
    ("0.2", "string-id"): ("octet.envelope.id-exact", "an integer"),
    ("0.2", "other-version"): ("octet.version.reply-mismatch", "'0.3'"),
    ("0.2", "canonical-answer"): ("octet.legacy.unknown-answer-member", "'contract'"),
    ("0.2", "feature-twice"): ("octet.legacy.features", "twice"),
    ("0.2", "feature-missing"): ("octet.legacy.features", "content_parts"),
    ("0.2", "unoffered-feature"): ("octet.legacy.features", "was not offered", "bare_offer"),
    ("0.2", "zero-concurrency"): ("octet.legacy.concurrency", "at least 1"),
    ("0.2", "unnegotiated"): ("octet.legacy.unnegotiated", "request_progress", "bare_offer"),
    ("0.2", "same-sequence"): ("octet.legacy.progress", "sequence", "call_tools"),
    ("0.2", "no-parent"): ("octet.legacy.parent", "parent_request_id", "call_tools"),
    ("0.2", "other-parent"): ("octet.legacy.parent", "9999", "call_tools"),
    ("0.2", "bad-question"): ("octet.legacy.bad-params", "destructive", "call_tools"),
    ("0.2", "hangs-in-call"): ("octet.cancel.grace", "no answer", "cancel_calls"),
    ("0.4", "unknown-event"): ("octet.legacy.lifecycle-events", "tea/served"),
    ("0.4", "command-missing"): ("octet.legacy.tools-and-commands", "'say'"),
    ("0.4", "blank-tool"): ("octet.legacy.tool-definition", "must not be blank"),
    ("0.4", "any-tool"): ("octet.tool-call.unknown-tool", "conformance-no-such-tool", "unknown_tool"),
    ("0.4", "text-on-v02"): ("octet.legacy.tool-result", "must be an array", "call_tools"),
    ("0.4", "canonical-request"): ("octet.version.no-retag", "bus/publish", "call_tools"),
    ("0.4", "undeclared"): ("octet.legacy.undeclared-contribution", "notification", "call_tools"),
    ("0.4", "same-id"): ("octet.method.id-reuse", "the id 1 again", "call_tools"),
    ("0.4", "command-text"): ("octet.legacy.command", "must be an object", "contribute"),
    ("0.4", "context-object"): ("octet.legacy.collect", "must be an array", "contribute"),
    ("0.4", "render-text"): ("octet.legacy.render", "must be an object", "contribute"),
    ("0.4", "dies-on-late-cancel"): ("octet.cancel.settled", "ended with status 1", "cancel_calls"),
    ("0.4", "stays-after-shutdown"): ("octet.shutdown.graceful", "still runs"),
    ("0.4", "leaves-child"): ("octet.process.nothing-left", "sleep (pid "),
    ("0.4", "leaves-helper"): ("octet.process.nothing-left", "with its tools called before it", "call_tools"),
    ("0.4", "huge-stderr"): ("octet.process.stderr-bounded", "bytes on stderr", "call_tools"),
    ("0.4", "other-surface"): ("octet.legacy.collect", "footer", "contribute"),
    ("0.4", "canonical-shutdown"): ("octet.legacy.shutdown", "terminal"),
    ("0.4", "deaf-to-eof"): ("octet.process.exit-on-eof", "still runs", "end_of_input"),
}


RIGHT = [("0.1", ""), ("0.2", ""), ("0.4", ""), ("0.2", "silent-progress")]


@pytest.fixture(scope="module")
def broken(examine_broken: Callable[..., Any], octet_subject: Callable[..., Any]) -> Any:
    def make(name: tuple[str, str]) -> Any:
        version, fault = name
        later = () if version == "0.1" else LATER
        return octet_subject("broken_feature.py", fault, version, (*CONTRIBUTES, *later))

    return examine_broken(FAULTS, make, RIGHT)


@pytest.mark.timeout(600)
@pytest.mark.parametrize("name", RIGHT, ids="-".join)
def test_what_is_right_breaks_no_rule(broken: Any, name: tuple[str, str]) -> None:
    broken.assert_breaks_none(name, [fault for fault in FAULTS if fault[0] == name[0]])


@pytest.mark.spec("octet.legacy.envelope")
@pytest.mark.parametrize("fault", FAULTS, ids="-".join)
def test_a_fault_breaks_its_rules_and_no_other(broken: Any, fault: tuple[str, str]) -> None:
    broken.assert_breaks_its_rules_alone(fault)


def test_no_fault_is_forgotten(faults_of: Callable[[str], set[str]]) -> None:
    assert faults_of("broken_feature.py") == {fault for _, fault in FAULTS} | {"silent-progress"}


def test_every_rule_has_a_program_that_breaks_it() -> None:
    assert {rule for rules, *_ in FAULTS.values() for rule in rules.split()} == {*CATALOGUE[Family.FEATURE]}
