"""Hosts among hostile extensions and servers: this project's own, one written naively, and what is none."""

from __future__ import annotations

import os
import shlex
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from broker.conform import ConformSettings, Family, Report, rules_of
from broker.conform.findings import Findings
from broker.conform.hostile.conduct import examine_host
from broker.conform.hostile.judge import ENDED, JUDGED, judge_ending
from broker.conform.hostile.judge_feature import ENDED as FEATURE_ENDED
from broker.conform.hostile.judge_feature import JUDGED as FEATURE_JUDGED
from broker.conform.hostile.judge_server import ENDED as SERVER_ENDED
from broker.conform.hostile.judge_server import JUDGED as SERVER_JUDGED
from broker.conform.hostile.log import Log
from broker.conform.hostile.run_host import Run
from broker.errors import SetupError, UsageError

HERE = Path(__file__).parent
RUN = shlex.join([sys.executable, "-m", "broker.cli", "run", "--for", "3"])
CALL = "--call hostile poke '{}'"
CHOSEN = (
    *("right", "over-bound", "unoffered", "unknown-things", "bus-refusals", "stops-reading", "deaf-with-child", "dies"),
    *("exits-at-once", "v04-right", "v04-not-json", "v02-answers-twice", "v04-deaf"),
    *("mcp-right", "mcp-deaf", "mcp-asks"),
)
# Each scenario starts a whole host. How one reads is the same on every Python, how it lives with processes may not be:
# all of them are run where tests are run for everybody, on one Python.
SCENARIOS = () if "CI" in os.environ and sys.version_info < (3, 12) else CHOSEN


def failures(report: Report) -> dict[str, tuple[str, ...]]:
    return {finding.rule.id: finding.evidence for finding in report.failed}


@pytest.mark.timeout(300)
@pytest.mark.parametrize(("place", "prefix"), [(f"{CALL} {{path}}", "octet."), ("{config}", "odek.")])
def test_this_projects_own_host_passes(
    place: str, prefix: str, monkeypatch: pytest.MonkeyPatch, broker_on_path: Callable[[], None]
) -> None:
    broker_on_path()
    report = examine_host(f"{RUN} {place}", ConformSettings(scenarios=SCENARIOS))
    assert failures(report) == {}
    passed = {finding.rule.id for finding in report.passed}
    both = {"octet.process.host-survives", "octet.process.nothing-left"}
    assert {rule for rule in passed if not rule.startswith(prefix)} <= both
    skipped = {finding.rule.id for finding in report.skipped if finding.rule.id.startswith(prefix)}
    assert skipped <= both or SCENARIOS


@pytest.mark.timeout(120)
def test_a_naive_host_fails_by_what_it_does_wrong() -> None:
    command = shlex.join([sys.executable, "-I", "-S", str(HERE / "naive_host.py"), "{path}", "2.5"])
    report = examine_host(command, ConformSettings(scenarios=(*ENDED, *JUDGED, *FEATURE_ENDED)))
    found = failures(report)
    assert {rule for scenario, rule in ENDED.items() if scenario != "bus-without-lifecycle"} <= {*found}
    assert {*FEATURE_ENDED.values()} <= {*found}
    assert {
        "octet.canonical.encode",
        "octet.envelope.host-ids",
        "octet.model.initialize-request",
        "octet.capability.required-set-fixed",
        "octet.process.environment-octet",
        "octet.process.environment-cleared",
        "octet.method.unknown",
        "octet.method.bus-lifecycle",
        "octet.shutdown.order",
        "octet.shutdown.timeout",
        "octet.process.grandchildren",
        "octet.process.nothing-left",
    } <= {*found}
    assert "white space at byte 11" in found["octet.canonical.encode"][0]
    passed = {finding.rule.id for finding in report.passed}
    assert {
        "octet.initialize.first-request",
        "octet.initialize.no-retry",
        "octet.process.host-survives",
        "octet.process.restart-backoff",
        "octet.process.stderr-drained",
    } <= passed


def test_what_starts_no_extension_is_no_host() -> None:
    report = examine_host("cat {path}/extension.toml")
    assert [*failures(report)] == ["octet.initialize.first-request"]
    assert "never started" in report.failed[0].evidence[0]


def test_a_command_without_a_place_gets_the_directory() -> None:
    report = examine_host("ls")
    assert [*failures(report)] == ["octet.initialize.first-request"]


def test_a_command_that_cannot_be_run_is_no_finding() -> None:
    with pytest.raises(SetupError, match="not an executable program"):
        examine_host("no-such-host-anywhere {path}")
    with pytest.raises(UsageError, match="No closing quotation"):
        examine_host("host '{path}")
    with pytest.raises(UsageError, match="no command"):
        examine_host("  ")


@pytest.mark.spec("octet.process.host-survives")
def test_a_host_that_crashes_is_found_out() -> None:
    report = examine_host("sh -c 'kill -SEGV $$' {path}")
    assert {"octet.process.host-survives", "octet.initialize.first-request"} == {*failures(report)}
    assert "signal 11" in failures(report)["octet.process.host-survives"][0]


@pytest.mark.spec("octet.process.host-survives")
@pytest.mark.parametrize(
    ("status", "asked", "survives"),
    [
        *((status, True, True) for status in (0, 1, 127, -2, -15, 130, 143)),
        *((status, False, False) for status in (-2, -15, 130, 143)),
        *((status, True, False) for status in (-11, -9, 137, 139, None)),
    ],
)
def test_a_host_may_end_by_the_signal_that_asked_it_to(
    status: int | None, asked: bool, survives: bool, tmp_path: Path
) -> None:
    findings = Findings(rules_of(Family.HOST))
    judge_ending(Run("right", Log(tmp_path / "log"), status, "ended", asked, 0.0), findings)
    assert findings.is_failed("octet.process.host-survives") is not survives


@pytest.mark.spec("octet.process.host-survives")
def test_a_host_that_dies_of_the_interrupt_has_not_crashed() -> None:
    settings = ConformSettings(scenarios=("right",), rules=("octet.process.host-survives",))
    report = examine_host("sh -c 'exec sleep 60' {path}", settings, timeout=0.2)
    assert [finding.rule.id for finding in report.passed] == ["octet.process.host-survives"]


def test_every_scenario_stands_in_one_table() -> None:
    tables = (ENDED, JUDGED, FEATURE_ENDED, FEATURE_JUDGED, SERVER_ENDED, SERVER_JUDGED)
    names = {scenario for table in tables for scenario in table}
    assert len(names) == sum(map(len, tables))
    assert names > {*CHOSEN}
