"""What was found out about each rule, put together from everything that several scenarios saw of it."""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence
from enum import Enum

from attrs import define, field, frozen

from broker.conform.rules import Rule
from broker.limits import MAX_CONFORM_EVIDENCE, MAX_CONFORM_EVIDENCE_CHARS
from broker.wire.odek.events.redaction import Redactor, secret_values
from broker.wire.quoting import escape


class Verdict(Enum):
    """How a rule came out."""

    FAIL = "fail"
    PASS = "pass"  # noqa: S105 - an outcome, no password
    SKIP = "skip"


@frozen
class Finding:
    """One rule's outcome. ``evidence`` are the observations, or for a skipped rule the reason; safe to print."""

    rule: Rule
    outcome: Verdict
    evidence: tuple[str, ...] = ()


@define
class _Entry:
    passed: bool = False
    failures: list[str] = field(factory=list)
    notes: list[str] = field(factory=list)
    reasons: list[str] = field(factory=list)


class Findings:
    """Collects observations by rule. A failure outweighs any pass, a pass outweighs any reason to skip.

    Secrets are taken out of every text: values of this process's environment whose names say that they are secret, and
    what looks like a credential.
    """

    def __init__(self, rules: Sequence[Rule]) -> None:
        self._rules = {rule.id: rule for rule in rules}
        self._entries = {rule.id: _Entry() for rule in rules}
        self._redactor = Redactor(secret_values(os.environ))
        self.remarks: list[str] = []
        self.usable: set[tuple[str, str]] = set()
        self._not_reached: set[str] = set()

    def remark(self, text: str) -> None:
        """Something its author should know that is no matter of a rule; safe to print."""
        self._add(self.remarks, text)

    def has_use(self, option: str, name: str) -> None:
        """What ``option``, such as ``--call``, gives for ``name`` has, or would have, its use."""
        self.usable.add((option, name))

    def passed(self, rule_id: str, note: str = "") -> None:
        """The rule was kept, as seen once."""
        entry = self._entries[rule_id]
        entry.passed = True
        self._add(entry.notes, note)

    def failed(self, rule_id: str, evidence: str) -> None:
        """The rule was broken; ``evidence`` is what was seen."""
        self._add(self._entries[rule_id].failures, evidence)

    def skipped(self, reason: str, *rule_ids: str) -> None:
        """These rules could not be looked at, for ``reason``."""
        for rule_id in rule_ids:
            self._add(self._entries[rule_id].reasons, reason)

    def not_reached(self, reason: str) -> None:
        """Of whatever nothing is known so far, neither an outcome nor a reason to skip it: it was not looked at."""
        for rule_id, entry in self._entries.items():
            if not (entry.failures or entry.passed or entry.reasons):
                self._not_reached.add(rule_id)
                self.skipped(reason, rule_id)

    def count_not_reached(self, wanted: Iterable[str] = ()) -> int:
        """How many rules, of all or of ``wanted``, were not reached."""
        chosen = frozenset(wanted)
        return len(self._not_reached & chosen if chosen else self._not_reached)

    def judge(self, rule_id: str, kept: bool, evidence: str) -> None:
        """Pass or fail by ``kept``."""
        if kept:
            self.passed(rule_id)
        else:
            self.failed(rule_id, evidence)

    def is_failed(self, rule_id: str) -> bool:
        """Whether a failure of the rule has been seen."""
        return bool(self._entries[rule_id].failures)

    def results(self, wanted: Iterable[str] = ()) -> tuple[Finding, ...]:
        """One finding for each rule, in the order of the catalogue; only those of ``wanted`` if that names any."""
        chosen = frozenset(wanted)
        return tuple(
            self._finding(rule, self._entries[rule.id])
            for rule in self._rules.values()
            if not chosen or rule.id in chosen
        )

    def _finding(self, rule: Rule, entry: _Entry) -> Finding:
        if entry.failures:
            return Finding(rule, Verdict.FAIL, tuple(entry.failures))
        if entry.passed:
            return Finding(rule, Verdict.PASS, tuple(entry.notes))
        return Finding(rule, Verdict.SKIP, tuple(entry.reasons or ["nothing of it was seen"]))

    def _add(self, texts: list[str], text: str) -> None:
        if not text:
            return
        shown = escape(self._redactor.redact(text, max_chars=MAX_CONFORM_EVIDENCE_CHARS))
        if shown not in texts and len(texts) < MAX_CONFORM_EVIDENCE:
            texts.append(shown)
