"""Findings, reports and the catalogue of rules."""

from __future__ import annotations

import re
from xml.etree import ElementTree

import pytest

from broker.conform import CATALOGUE, Family, Report, Verdict, junit_xml, rules_of
from broker.conform.findings import Findings
from broker.conform.joining import Joiner
from broker.conform.rules import table

PING = "odek.server.ping"


def findings_of(*outcomes: tuple[str, str]) -> Findings:
    findings = Findings(rules_of(Family.MCP))
    for outcome, text in outcomes:
        if outcome == "skip":
            findings.skipped(text, PING)
        elif outcome == "pass":
            findings.passed(PING, text)
        else:
            findings.failed(PING, text)
    return findings


@pytest.mark.parametrize(
    ("seen", "outcome", "evidence"),
    [
        ([], Verdict.SKIP, ("nothing of it was seen",)),
        ([("skip", "why")], Verdict.SKIP, ("why",)),
        ([("skip", "why"), ("pass", "note")], Verdict.PASS, ("note",)),
        ([("pass", ""), ("fail", "that"), ("pass", "")], Verdict.FAIL, ("that",)),
        ([("fail", "a"), ("fail", "a"), ("fail", "b"), ("fail", "c"), ("fail", "d")], Verdict.FAIL, ("a", "b", "c")),
    ],
)
def test_a_failure_outweighs_a_pass_and_a_pass_a_skip(
    seen: list[tuple[str, str]], outcome: Verdict, evidence: tuple[str, ...]
) -> None:
    (finding,) = findings_of(*seen).results([PING])
    assert (finding.outcome, finding.evidence) == (outcome, evidence)


def test_evidence_is_safe_to_print(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SUBJECT_API_KEY", "correct horse battery staple")
    findings = findings_of(("fail", "\x1b[31mred\x1b[0m\n\u202eflip correct horse battery staple " + "x" * 1_000))
    (finding,) = findings.results([PING])
    (evidence,) = finding.evidence
    assert evidence.startswith(r"\x1b[31mred\x1b[0m\n\u202eflip [REDACTED] xxx")
    assert len(evidence) <= 1_024
    assert evidence.isprintable()


def test_junit_holds_whatever_was_seen() -> None:
    report = Report('<a> & "b"\x00', "path", "kind", findings_of(("fail", "]]> <b> \ud800")).results([PING]), 0.5)
    root = ElementTree.fromstring(junit_xml([report]))
    (suite,) = root
    assert suite.get("name") == '<a> & "b"\ufffd (kind)'
    (failure,) = root.iter("failure")
    assert (failure.text or "").startswith("]]> <b> ")
    assert root.get("tests") == "1"


def test_ids_have_the_one_form_and_every_rule_says_how() -> None:
    for family, rules in CATALOGUE.items():
        for rule in rules.values():
            assert re.fullmatch(r"(octet|odek)\.[a-z0-9-]+\.[a-z0-9-]+", rule.id)
            assert rule.family is family
            assert rule.title and rule.where and rule.how


def test_an_id_that_stands_twice_is_refused() -> None:
    row = ("octet.a.b", "t", "w", "h")
    with pytest.raises(ValueError, match="stands twice"):
        table(Family.OCTET, (row, row))


@pytest.mark.parametrize(
    ("lines", "found"),
    [
        ([b"{}"], [(b"{}", False)]),
        ([b"{", b' "a": 1', b"}"], [(b'{\n "a": 1\n}', True)]),
        ([b"{", b"x", b"{}"], [(b"{", False), (b"x", False), (b"{}", False)]),
        ([b"noise", b"}"], [(b"noise", False), (b"}", False)]),
    ],
)
def test_a_value_over_several_lines_is_put_together(lines: list[bytes], found: list[tuple[bytes, bool]]) -> None:
    joiner = Joiner()
    assert [one for line in lines for one in joiner.feed(line)] == found


def test_names_and_paths_are_safe_to_print() -> None:
    path = "/a\x1b[31m/" + "b" * 2_000
    report = Report("na\x1bme", path, "kind", (), 0.5)
    assert next(report.lines()) == r"na\x1bme (kind) /a\x1b[31m/" + "b" * 2_000


def test_a_rule_is_not_reached_only_if_nothing_is_known_about_it() -> None:
    findings = findings_of(("skip", "it has no tools"))
    findings.passed("odek.server.initialize-answered")
    findings.failed("odek.server.initialize-shape", "no name")
    findings.not_reached("too late")
    rest = len(rules_of(Family.MCP)) - 3
    assert [finding.evidence for finding in findings.results()].count(("too late",)) == rest
    assert findings.count_not_reached() == rest
    assert findings.count_not_reached([PING, "odek.server.tools-call"]) == 1
    assert findings.results([PING])[0].evidence == ("it has no tools",)
