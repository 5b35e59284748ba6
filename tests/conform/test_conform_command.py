"""``broker conform``: what it prints, its exit status, its JSON and its JUnit XML."""

from __future__ import annotations

import errno
import json
import os
import shlex
import shutil
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest

from broker.cli.main import main
from broker.conform import CATALOGUE, Family, rules_of
from broker.wire.odek.config import ServerConfig

EXAMPLES = Path(__file__).parents[2] / "docs" / "examples"
CONTRIBUTES = ('tools = ["echo", "later"]', 'hooks = ["session_start", "session_end"]')


@pytest.fixture(scope="session")
def broken(octet_subject: Callable[..., Any]) -> str:
    return str(octet_subject("broken_octet.py", "other-version", "0.3", CONTRIBUTES).path)


def test_every_example_passes(capsys: pytest.CaptureFixture[str]) -> None:
    names = ("hello", "workbench", "parrot", "import-quill", "versions")
    assert main(["conform", *(str(EXAMPLES / name) for name in names)]) == 0
    out = capsys.readouterr().out
    assert "FAIL" not in out
    for target in ("hello (octet 0.3)", "board (", "checker (", "watcher (", "parrot (", "import-quill ("):
        assert target in out
    for target in ("outline (octet 0.1)", "tidy (octet 0.2)", "tasks (octet 0.4)"):
        assert target in out


def test_a_migration_adapter_reads_the_given_directory(capsys: pytest.CaptureFixture[str]) -> None:
    home = EXAMPLES / "import-quill" / "home"
    rule = "octet.migration.import"
    assert main(["conform", str(EXAMPLES / "import-quill"), "--source-root", str(home), "--rule", rule]) == 0
    assert f"pass  {rule}" in capsys.readouterr().out


def test_events_are_published_to_a_subscriber(capsys: pytest.CaptureFixture[str]) -> None:
    report = '{"file": "a.py", "verdict": "ok", "problems": 0, "summary": "compiles"}'
    given = ["--event", "bus.checker.report", report, "--rule", "octet.bus.events-read"]
    assert main(["conform", str(EXAMPLES / "workbench" / "board"), *given]) == 0
    assert "200 events on bus.checker.report" in capsys.readouterr().out


def test_a_broken_rule_is_shown_first_and_gives_status_1(broken: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["conform", broken]) == 1
    lines = capsys.readouterr().out.splitlines()
    assert lines[0] == f"subject (octet 0.3) {broken}"
    assert lines[1] == "  FAIL  octet.selection.version: api_version is the one asked for"
    assert lines[2].strip() == "a full offer: api_version: must be '0.3', not '0.4'"
    assert lines[3].strip() == "see octet: Version policy"
    assert "the extension did not start" in lines[4]
    assert lines[-1].startswith("  1 failed, 3 passed, ")


def test_json_has_every_finding(broken: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["conform", broken, "--json"]) == 1
    document = json.loads(capsys.readouterr().out)
    assert document["schema"] == "broker.conformance/v1"
    (report,) = document["reports"]
    assert (report["target"], report["kind"], report["path"]) == ("subject", "octet 0.3", broken)
    assert report["summary"]["fail"] == 1
    assert sum(report["summary"].values()) == len(report["findings"])
    failed = [finding for finding in report["findings"] if finding["outcome"] == "fail"]
    assert failed == [
        {
            "rule": "octet.selection.version",
            "outcome": "fail",
            "title": "api_version is the one asked for",
            "where": "octet: Version policy",
            "evidence": ["a full offer: api_version: must be '0.3', not '0.4'"],
        }
    ]


def test_junit_is_one_suite_a_program(broken: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "report.xml"
    hello = str(EXAMPLES / "hello")
    assert main(["conform", broken, hello, "--junit", str(file)]) == 1
    root = ElementTree.fromstring(file.read_bytes())
    assert root.tag == "testsuites"
    suites = {suite.get("name"): suite for suite in root}
    assert [*suites] == ["subject (octet 0.3)", "hello (octet 0.3)"]
    subject = suites["subject (octet 0.3)"]
    assert subject.get("failures") == "1"
    assert int(subject.get("tests", "")) == len(subject)
    (failure,) = subject.iter("failure")
    assert failure.text == "a full offer: api_version: must be '0.3', not '0.4'"
    assert suites["hello (octet 0.3)"].get("failures") == "0"


def test_an_earlier_junit_report_is_replaced_as_a_whole_or_not_at_all(
    broken: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    file, link = tmp_path / "report.xml", tmp_path / "latest.xml"
    file.write_bytes(b"earlier")
    link.symlink_to(file)

    def fail(descriptor: int) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    given = ["conform", broken, "--rule", "octet.selection.schema", "--junit", str(link)]
    with monkeypatch.context() as patched:
        patched.setattr(os, "fsync", fail)
        assert main(given) == 3
    assert f"{link} cannot be written: No space left on device" in capsys.readouterr().err
    assert file.read_bytes() == b"earlier"
    mask = os.umask(0o027)
    try:
        assert main(given) == 0
    finally:
        os.umask(mask)
    assert link.is_symlink()
    assert file.stat().st_mode & 0o777 == 0o640
    assert ElementTree.fromstring(file.read_bytes()).tag == "testsuites"
    assert sorted(tmp_path.iterdir()) == [link, file]


def test_a_junit_report_may_go_to_a_device(broken: str) -> None:
    assert main(["conform", broken, "--rule", "octet.selection.schema", "--junit", "/dev/null"]) == 0
    assert Path("/dev/null").is_char_device()


@pytest.mark.parametrize(("name", "why"), [("", "it is a directory"), ("no/report.xml", "no is not a directory")])
def test_a_report_that_cannot_be_written_is_known_before_anything_runs(
    name: str, why: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    ran = tmp_path / "ran"
    servers = write_servers(tmp_path / "config.json", subject=f"open({str(ran)!r}, 'w')")
    assert main(["conform", servers, "--junit", str(tmp_path / name)]) == 3
    shown = capsys.readouterr()
    assert shown.out == ""
    assert f"{tmp_path / name} cannot be written: " in shown.err
    assert f"{why}\n" in shown.err
    assert not ran.exists()


def test_one_rule_alone_can_be_asked_for(broken: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["conform", broken, "--rule", "octet.selection.schema"]) == 0
    assert "1 skipped" in capsys.readouterr().out


def test_a_server_of_a_configuration(
    tmp_path: Path, mcp_subject: Callable[[str], ServerConfig], capsys: pytest.CaptureFixture[str]
) -> None:
    right, wrong = mcp_subject(""), mcp_subject("ping-text")
    servers = {
        name: {
            "command": server.command,
            "args": [*server.args],
            "artifact_roots": [*server.artifact_roots],
            "max_response_bytes": server.max_response_bytes,
        }
        for name, server in (("right", right), ("wrong", wrong))
    }
    file = tmp_path / "config.json"
    file.write_text(json.dumps({"mcp_servers": servers}), encoding="utf-8")
    assert main(["conform", str(file), "--server", "right"]) == 0
    capsys.readouterr()
    assert main(["conform", str(file)]) == 1
    out = capsys.readouterr().out
    assert out.count("FAIL") == 1
    assert "FAIL  odek.server.ping" in out
    assert main(["conform", str(file), "--server", "right", "--call", "change", "{}", "--verbose"]) == 0
    assert "pass  odek.server.tools-call" in capsys.readouterr().out
    assert main(["conform", str(file), "--server", "right", "--no-calls", "--rule", "odek.server.tools-call"]) == 0
    assert "no tool is to be called" in capsys.readouterr().out


@pytest.mark.parametrize("given", [(), ("--workspace", "place")], ids=["here", "workspace"])
def test_a_relative_command_is_one_of_the_directory_the_server_runs_in(
    given: tuple[str, ...], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    example = EXAMPLES / "log-analyzer"
    root = tmp_path / "place" if given else tmp_path
    server = root / "docs" / "examples" / "log-analyzer"
    server.mkdir(parents=True)
    for name in ("server.py", "build.log"):
        shutil.copy(example / name, server / name)
    python = root / ".venv" / "bin" / "python"
    python.parent.mkdir(parents=True)
    path = shlex.quote(os.pathsep.join(filter(None, sys.path)))
    python.write_text(f'#!/bin/sh\nPYTHONPATH={path} exec "{sys.executable}" "$@"\n', encoding="utf-8")
    python.chmod(0o755)
    monkeypatch.chdir(tmp_path)
    rule = ("--rule", "odek.server.initialize-answered")
    assert main(["conform", str(example / "servers.json"), *rule, *given]) == 0
    assert "pass  odek.server.initialize-answered" in capsys.readouterr().out


def write_servers(file: Path, **commands: str) -> str:
    """A configuration of servers that each run this Python code."""
    servers = {name: {"command": sys.executable, "args": ["-I", "-S", "-c", code]} for name, code in commands.items()}
    file.write_text(json.dumps({"mcp_servers": servers}), encoding="utf-8")
    return str(file)


def test_what_was_not_judged_to_the_end_is_no_success(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    given = [write_servers(tmp_path / "config.json", silent="import time; time.sleep(60)"), "--total-timeout", "0.2"]
    assert main(["conform", *given]) == 3
    shown = capsys.readouterr()
    count = len(rules_of(Family.MCP))
    assert shown.err == f"broker: silent: not judged to the end: {count} rules not reached within 0.2 s\n"
    assert f"0 failed, 0 passed, {count} skipped" in shown.out
    junit = tmp_path / "report.xml"
    assert main(["conform", *given, "--json", "--junit", str(junit), "--rule", "odek.server.ping"]) == 3
    shown = capsys.readouterr()
    assert json.loads(shown.out)["reports"][0]["cut_short"] == {"rules": 1, "seconds": 0.2}
    assert "1 rule not reached" in shown.err
    root = ElementTree.fromstring(junit.read_bytes())
    (suite,) = root
    assert (root.get("errors"), suite.get("errors"), suite.get("tests"), len(suite)) == ("1", "1", "2", 2)
    (error,) = root.iter("error")
    assert error.get("message") == "1 rule not reached within 0.2 s"


def test_a_broken_rule_outweighs_what_was_not_reached(
    broken: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    servers = write_servers(tmp_path / "config.json", silent="import time; time.sleep(60)")
    assert main(["conform", broken, servers, "--total-timeout", "8"]) == 1
    assert "silent: not judged to the end" in capsys.readouterr().err


def test_evidence_names_no_time_that_did_not_pass(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    servers = write_servers(
        tmp_path / "config.json",
        ends="raise SystemExit(7)",
        closes="import os, time; os.close(1); time.sleep(60)",
    )
    assert main(["conform", servers]) == 1
    out = capsys.readouterr().out
    assert "initialize: no answer before the process ended with status 7\n" in out
    assert "initialize: no answer before its output ended; the process still runs\n" in out
    assert "no answer within" not in out


def test_paths_reach_no_terminal_raw(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    directory = tmp_path / "od\x1b[31md"
    directory.mkdir()
    manifest = 'name = "subject"\nversion = "1.0.0"\napi_version = "0.3"\n[entrypoint]\ncommand = "/bin/false"\n'
    (directory / "extension.toml").write_text(manifest, encoding="utf-8")
    assert main(["conform", str(directory)]) == 1
    assert main(["conform", "--host", "true \x1b[31m {path}", "--rule", "octet.bus.topic-form"]) == 0
    shown = capsys.readouterr()
    assert r"/od\x1b[31md/extension.toml" in shown.out
    assert r"true (host) true \x1b[31m {path}" in shown.out
    assert "warning: " in shown.err
    assert "\x1b" not in shown.out + shown.err


def test_the_rules_are_listed(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["conform", "--list"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) == sum(map(len, CATALOGUE.values()))
    assert any(line.startswith("mcp     odek.server.ping: ping is answered with {}") for line in lines)
    assert main(["conform", "--list", "--json"]) == 0
    rules = json.loads(capsys.readouterr().out)["rules"]
    assert len(rules) == len(lines)
    assert {*rules[0]} == {"id", "family", "title", "where", "how"}


@pytest.mark.parametrize(
    ("given", "status", "words"),
    [
        ([], 2, "nothing to judge"),
        (["--host", "x", "PATH"], 2, "takes no PATH"),
        (["--rule", "octet.no.such", "HELLO"], 2, "there is no rule"),
        (["HELLO", "--call", "greet", "{"], 2, "--call greet"),
        (["HELLO", "--event", "bus.a.b", "[]"], 2, "a payload is an object"),
        (["HELLO", "--workspace", "/no/such/directory"], 3, "is not a directory"),
        (["HELLO", "--junit", "/no/such/directory/report.xml"], 3, "cannot be written"),
        (["/no/such/extension"], 3, "does not exist"),
        (["--host", "no-such-host-anywhere"], 3, "not an executable program"),
    ],
)
def test_wrong_use_and_wrong_set_up_have_their_status(
    given: list[str], status: int, words: str, capsys: pytest.CaptureFixture[str]
) -> None:
    given = [str(EXAMPLES / "hello") if word == "HELLO" else word for word in given]
    assert main(["conform", *given]) == status
    assert words in capsys.readouterr().err


def test_a_program_that_is_not_there_is_no_finding(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    directory = tmp_path / "subject"
    directory.mkdir()
    manifest = 'name = "subject"\nversion = "1.0.0"\napi_version = "0.3"\n[entrypoint]\ncommand = "./gone"\n'
    (directory / "extension.toml").write_text(manifest, encoding="utf-8")
    assert main(["conform", str(directory)]) == 3
    assert "does not exist" in capsys.readouterr().err
