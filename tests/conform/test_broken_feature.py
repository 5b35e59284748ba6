"""Extensions of API 0.1, 0.2 and 0.4 with one fault each: exactly the rule of that fault fails."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

CONTRIBUTES = ('tools = ["echo"]', 'commands = ["say"]', "context = true", 'ui = ["status"]', "confirmations = true")

# The version and the fault, the rules that it breaks, words that the evidence has, and the scenario it shows in.
FAULTS = {
    ("0.1", "protocol-on-v01"): ("octet.legacy.v01-frozen", "protocol"),
    ("0.1", "parts-on-v01"): ("octet.legacy.tool-result", "must be a string", "call_tools"),
    ("0.1", "hangs-in-call"): ("octet.method.tool-call", "no answer", "call_tools"),
    ("0.1", "any-method"): ("octet.legacy.unknown-method", "'result': {}", "unknown_method"),
    ("0.1", "latin-1"): ("octet.legacy.framing", "not JSON"),
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
    ("0.4", "other-surface"): ("octet.legacy.collect", "footer", "contribute"),
    ("0.4", "canonical-shutdown"): ("octet.legacy.shutdown", "terminal"),
    ("0.4", "deaf-to-eof"): ("octet.process.exit-on-eof", "still runs", "end_of_input"),
}


RIGHT = [("0.1", ""), ("0.2", ""), ("0.4", ""), ("0.2", "silent-progress")]


@pytest.fixture(scope="module")
def broken(examine_broken: Callable[..., Any], octet_subject: Callable[..., Any]) -> Any:
    def make(name: tuple[str, str]) -> Any:
        version, fault = name
        return octet_subject("broken_feature.py", fault, version, CONTRIBUTES)

    return examine_broken(FAULTS, make, RIGHT)


@pytest.mark.timeout(600)
@pytest.mark.parametrize("name", RIGHT)
def test_what_is_right_breaks_no_rule(broken: Any, name: tuple[str, str]) -> None:
    broken.assert_breaks_none(name, [fault for fault in FAULTS if fault[0] == name[0]])


@pytest.mark.spec("octet.legacy.envelope")
@pytest.mark.parametrize("fault", FAULTS)
def test_a_fault_breaks_its_rules_and_no_other(broken: Any, fault: tuple[str, str]) -> None:
    broken.assert_breaks_its_rules_alone(fault)


def test_no_fault_is_forgotten(faults_of: Callable[[str], set[str]]) -> None:
    assert faults_of("broken_feature.py") == {fault for _, fault in FAULTS} | {"silent-progress"}
