"""Proof that an extension, a server or a host keeps the contract: each rule by its id, with what was seen.

::

    from broker.adapters.discovery import load_manifest
    from broker.conform import examine

    (report,) = examine([load_manifest("hello/extension.toml")])
    assert not report.failed, [finding.evidence for finding in report.failed]

The program under test is started as a process and driven through the contract and its edges, as ``broker conform`` does
it. Nothing it does raises: what it does wrong is in the report.
"""

from __future__ import annotations

from broker.conform.conduct import Target, examine, examine_all
from broker.conform.findings import Finding, Verdict
from broker.conform.junit import junit_xml
from broker.conform.report import CutShort, Report, reports_json
from broker.conform.rules import CATALOGUE, Family, Rule, rules_of
from broker.conform.settings import ConformSettings

__all__ = [
    "CATALOGUE",
    "ConformSettings",
    "CutShort",
    "Family",
    "Finding",
    "Report",
    "Rule",
    "Target",
    "Verdict",
    "examine",
    "examine_all",
    "junit_xml",
    "reports_json",
    "rules_of",
]
