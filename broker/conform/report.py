"""The report of a run: what came of each rule, for people, for programs and for continuous integration."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, Final

from attrs import asdict, frozen

from broker.conform.findings import Finding, Verdict
from broker.wire.quoting import escape

SCHEMA: Final = "broker.conformance/v1"
# As long as a path can be where it can be opened, and each of its bytes an escape of four characters.
_MOST_PATH_CHARS: Final = 4 * 4_096
_SIGNS: Final = {Verdict.FAIL: "FAIL", Verdict.PASS: "pass", Verdict.SKIP: "skip"}


@frozen
class CutShort:
    """The time for one program, in seconds, was over with so many rules not reached."""

    rules: int
    seconds: float

    def __str__(self) -> str:
        return f"{self.rules} rule{'' if self.rules == 1 else 's'} not reached within {self.seconds:g} s"


@frozen
class Report:
    """What was found out about one program.

    ``target`` is its name, ``path`` where it is from, ``kind`` what it was judged as (such as ``octet 0.3``), and
    ``seconds`` how long that took. ``remarks`` are what its author should know besides, and ``usable`` the options,
    each with its name, such as ``("--event", "bus.todo.added")``, that have a use for it. ``cut_short`` says that it
    was not judged to the end: what was seen stands, and rules that only the rest would have looked at are skipped.
    """

    target: str
    path: str
    kind: str
    findings: tuple[Finding, ...]
    seconds: float
    remarks: tuple[str, ...] = ()
    usable: frozenset[tuple[str, str]] = frozenset()
    cut_short: CutShort | None = None

    @property
    def failed(self) -> tuple[Finding, ...]:
        """The rules that were broken."""
        return self._with(Verdict.FAIL)

    @property
    def passed(self) -> tuple[Finding, ...]:
        """The rules that were kept."""
        return self._with(Verdict.PASS)

    @property
    def skipped(self) -> tuple[Finding, ...]:
        """The rules that could not be looked at."""
        return self._with(Verdict.SKIP)

    def to_json(self) -> dict[str, Any]:
        """The report as plain JSON; its members are described in the documentation and only ever added to."""
        return {
            "target": self.target,
            "path": self.path,
            "kind": self.kind,
            "seconds": round(self.seconds, 3),
            "summary": {
                "fail": len(self.failed),
                "pass": len(self.passed),
                "skip": len(self.skipped),
            },
            "cut_short": None if self.cut_short is None else asdict(self.cut_short),
            "remarks": list(self.remarks),
            "findings": [
                {
                    "rule": finding.rule.id,
                    "outcome": finding.outcome.value,
                    "title": finding.rule.title,
                    "where": finding.rule.where,
                    "evidence": list(finding.evidence),
                }
                for finding in self.findings
            ],
        }

    def lines(self, *, verbose: bool = False) -> Iterator[str]:
        """The report as text: failures first with all that was seen, then the rest, then the summary.

        Without ``verbose`` the rules that were kept are only counted, and those skipped are grouped by the reason.
        """
        yield " ".join((escape(self.target), f"({self.kind})", escape(self.path, max_chars=_MOST_PATH_CHARS)))
        for finding in self.failed:
            yield from _finding_lines(finding)
        if verbose:
            for finding in (*self.skipped, *self.passed):
                yield from _finding_lines(finding)
        else:
            yield from self._skips()
        for remark in self.remarks:
            yield f"  note  {remark}"
        yield (
            f"  {len(self.failed)} failed, {len(self.passed)} passed, {len(self.skipped)} skipped"
            f" in {self.seconds:.1f} s"
        )

    def _skips(self) -> Iterator[str]:
        by_reason: dict[str, int] = {}
        for finding in self.skipped:
            reason = finding.evidence[0] if finding.evidence else ""
            by_reason[reason] = by_reason.get(reason, 0) + 1
        for reason, count in by_reason.items():
            yield f"  skip  {count} rule{'s' if count > 1 else ''}: {reason}"

    def _with(self, outcome: Verdict) -> tuple[Finding, ...]:
        return tuple(finding for finding in self.findings if finding.outcome is outcome)


def reports_json(reports: Sequence[Report]) -> dict[str, Any]:
    """Several reports as one JSON object."""
    return {"schema": SCHEMA, "reports": [report.to_json() for report in reports]}


def _finding_lines(finding: Finding) -> Iterator[str]:
    yield f"  {_SIGNS[finding.outcome]}  {finding.rule.id}: {finding.rule.title}"
    for evidence in finding.evidence:
        yield f"          {evidence}"
    if finding.outcome is Verdict.FAIL:
        yield f"          see {finding.rule.where}"
