"""Reports as JUnit XML: one test suite for each program, one test case for each rule."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Final
from xml.etree import ElementTree

from broker.conform.findings import Finding, Verdict
from broker.conform.report import Report

# What XML 1.0 cannot hold, escaped or not.
_NOT_XML: Final = re.compile("[^\t\n\r\u0020-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")


def junit_xml(reports: Sequence[Report]) -> bytes:
    """The document, in UTF-8."""
    root = ElementTree.Element(
        "testsuites",
        name="broker conform",
        tests=str(sum(map(_tests, reports))),
        failures=str(sum(len(report.failed) for report in reports)),
        errors=str(sum(map(_errors, reports))),
        time=f"{sum(report.seconds for report in reports):.3f}",
    )
    for report in reports:
        suite = ElementTree.SubElement(
            root,
            "testsuite",
            name=_text(f"{report.target} ({report.kind})"),
            tests=str(_tests(report)),
            failures=str(len(report.failed)),
            skipped=str(len(report.skipped)),
            errors=str(_errors(report)),
            time=f"{report.seconds:.3f}",
        )
        for finding in report.findings:
            _add_case(suite, report, finding)
        if report.cut_short is not None:
            case = _case(suite, report, "judged to the end")
            ElementTree.SubElement(case, "error", message=str(report.cut_short), type="total-timeout")
    ElementTree.indent(root)
    document: bytes = ElementTree.tostring(root, encoding="utf-8", xml_declaration=True)
    return document + b"\n"


def _add_case(suite: ElementTree.Element, report: Report, finding: Finding) -> None:
    case = _case(suite, report, finding.rule.id)
    seen = _text("\n".join(finding.evidence))
    if finding.outcome is Verdict.FAIL:
        failure = ElementTree.SubElement(case, "failure", message=_text(finding.rule.title), type=finding.rule.where)
        failure.text = seen
    elif finding.outcome is Verdict.SKIP:
        ElementTree.SubElement(case, "skipped", message=seen)


def _case(suite: ElementTree.Element, report: Report, name: str) -> ElementTree.Element:
    return ElementTree.SubElement(suite, "testcase", classname=_text(report.target), name=name, time="0")


def _errors(report: Report) -> int:
    return int(report.cut_short is not None)


def _tests(report: Report) -> int:
    return len(report.findings) + _errors(report)


def _text(text: str) -> str:
    return _NOT_XML.sub("\ufffd", text)
