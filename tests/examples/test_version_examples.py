"""The examples of API 0.1, 0.2 and 0.4, as a reader runs them: on the command line and linked into a host."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from broker.adapters.blocking import BlockingHost, BlockingSession
from broker.host import CatalogueChanged, FeatureServices
from broker.host.feature import Contributions

ROOT = Path(__file__).parents[2]
EXAMPLES = ROOT / "docs" / "examples" / "versions"
VERSIONS = {"outline": "0.1", "tidy": "0.2", "tasks": "0.4"}


@pytest.fixture
def workspace(tmp_path: Path) -> Path:
    (tmp_path / "README.rst").write_text("Tides\n=====\n\ntext  \n\nNorth\n-----\n\nmore\t\n")
    return tmp_path


def broker(*arguments: object, workspace: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "broker.cli", *map(str, arguments)],
        cwd=workspace,
        env={**os.environ, "PYTHONPATH": str(ROOT), "NO_COLOR": "1"},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )


@pytest.mark.spec("octet.version.v01", "octet.version.v02", "octet.version.v04")
def test_check_says_how_each_version_stands(workspace: Path) -> None:
    done = broker("check", EXAMPLES, EXAMPLES.parent / "hello", workspace=workspace)
    assert done.returncode == 0
    said = {line.partition(": ok: ")[2].split(" ")[0]: line.rpartition(": ")[2] for line in done.stdout.splitlines()}
    assert said == {
        "outline": "frozen, runs, not installable from a bundle",
        "tidy": "supported, runs, installable from a bundle",
        "tasks": "current, runs, installable from a bundle",
        "hello": "supported, runs, installable from a bundle once requires_octet is one exact version",
    }


@pytest.mark.parametrize("arguments", [[], 5, "x", {}, {"file": 5, "text": 5}, {"file": "a\0b"}])
@pytest.mark.parametrize(("name", "tool"), [("outline", "outline"), ("tidy", "tidy"), ("tasks", "add")])
def test_arguments_that_make_no_sense_are_answered(workspace: Path, name: str, tool: str, arguments: Any) -> None:
    with BlockingHost() as host:
        session = host.open_session(workspace)
        extension = session.start(EXAMPLES / name)
        assert session.call(name, tool, arguments).is_error
        assert session.call(name, tool, {"file": "README.rst", "text": "sweep"}) is not None
        assert extension.generation is not None and extension.generation.number == 1


@pytest.mark.spec("octet.version.announced")
@pytest.mark.parametrize(
    ("name", "tool", "arguments", "text"),
    [
        ("outline", "outline", {"file": "README.rst"}, "Tides\nNorth"),
        ("tidy", "tidy", {"file": "README.rst"}, "README.rst would be changed, but there is nobody to ask"),
        ("tasks", "add", {"text": "sail"}, "1. [ ] sail"),
    ],
)
def test_call_works_with_each(workspace: Path, name: str, tool: str, arguments: Any, text: str) -> None:
    done = broker("call", "--json", EXAMPLES / name, tool, json.dumps(arguments), workspace=workspace)
    record = json.loads(done.stdout)
    assert (done.returncode, record["ok"]) == (0, True)
    assert record["content"][0]["text"].startswith(text)


@pytest.mark.spec("octet.legacy.fractions")
def test_a_tool_of_this_wire_can_be_given_fractions(workspace: Path) -> None:
    done = broker("call", EXAMPLES / "tasks", "done", '{"number": 1.5}', workspace=workspace)
    assert (done.returncode, done.stderr) == (1, "number: expected 1 to 0\n")


def test_run_works_with_all_of_them(workspace: Path) -> None:
    calls = ("--call", "tasks", "list", "{}", "--call", "outline", "outline", '{"file": "nowhere"}')
    done = broker("run", "--json", "--for", "2", EXAMPLES, *calls, workspace=workspace)
    records = [json.loads(line) for line in done.stdout.splitlines()]
    assert {r["extension"]: r["tools"] for r in records if r["kind"] == "started"} == {
        "outline": ["outline"],
        "tidy": ["tidy"],
        "tasks": ["add", "list", "done"],
    }
    assert [(r["extension"], r["ok"]) for r in records if r["kind"] == "call"] == [("tasks", True), ("outline", False)]
    assert {r["extension"]: (r["status"], r["reason"]) for r in records if r["kind"] == "exited"} == dict.fromkeys(
        VERSIONS, (0, "stopped")
    )
    assert done.returncode == 1  # a call answered with an error


class Desk:
    """The services of a host with somebody at it."""

    def __init__(self) -> None:
        self.asked: list[str] = []
        self.shown: list[str] = []
        self.agrees = True

    async def confirm(self, call: Any, question: Any) -> bool:
        self.asked.append(question.prompt)
        return self.agrees

    def notify(self, origin: Any, notification: Any) -> None:
        self.shown.append(notification.message)

    def change(self, call: Any, change: Any) -> None:
        self.shown.append(f"{','.join(change.put)}-{','.join(change.removed)}")

    def report(self, origin: Any, report: Any) -> None:
        self.shown.append(report.event.text)


@pytest.fixture
def desk() -> Desk:
    return Desk()


@pytest.fixture
def session(desk: Desk, workspace: Path) -> Iterator[BlockingSession]:
    services = FeatureServices(confirmations=desk, notifications=desk, dynamic_tools=desk, progress=desk)
    with BlockingHost(feature_services=services) as host:
        yield host.open_session(workspace)


def test_tidy_asks_before_it_changes_a_file(session: BlockingSession, desk: Desk, workspace: Path) -> None:
    file = workspace / "README.rst"
    before = file.read_text()
    session.start(EXAMPLES / "tidy")
    desk.agrees = False
    assert session.call("tidy", "tidy", {"file": "README.rst"}).content[0].text == "README.rst was left alone"
    assert file.read_text() == before
    desk.agrees = True
    assert session.call("tidy", "tidy", {"file": "README.rst"}).content[0].text == "README.rst is tidy now"
    assert file.read_text() == before.replace("text  ", "text").replace("more\t", "more")
    assert desk.asked == ["Change 2 lines of README.rst?"] * 2
    assert desk.shown == ["2 of 10 lines end in white space"] * 2 + ["README.rst is tidy now"]
    for outside in ("../other", "/etc/hostname", "nowhere"):
        assert session.call("tidy", "tidy", {"file": outside}).is_error


def test_tasks_has_a_tool_that_comes_and_goes(session: BlockingSession, desk: Desk) -> None:
    changes: list[Any] = []
    extension = session.start(EXAMPLES / "tasks")
    session.add_observer(lambda notice: changes.append(notice) if isinstance(notice, CatalogueChanged) else None)
    session.call("tasks", "add", {"text": "sail"})
    session.call("tasks", "done", {"number": 1})
    assert session.call("tasks", "add", {"text": "rest"}).structured_content == {"open": 1, "all": 2}
    assert [tool.name for tool in extension.tools] == ["add", "list", "done", "sweep"]
    assert session.call("tasks", "sweep", {}).content[0].text == "1. [ ] rest"
    assert session.call("tasks", "done", {"number": 9}).is_error
    assert [change.revision for change in changes] == [1, 2]
    assert desk.shown == ["sweep-", "-sweep"]


def test_tasks_contributes_a_command_a_menu_status_and_context(session: BlockingSession) -> None:
    session.start(EXAMPLES / "tasks")

    def ask(of: Contributions) -> Any:
        return of.execute("tasks", ["sail", "north"])

    assert session.contribution(ask, "tasks").text == "1. [ ] sail north"
    assert session.contribution(lambda of: of.collect_status("status"), "tasks").text == "1 open tasks"  # type: ignore[union-attr]
    assert session.contribution(lambda of: of.collect_context("x"), "tasks")[0].content == "sail north"
    menu = session.contribution(lambda of: of.collect_menu(), "tasks")
    assert menu.tree == {"items": [{"label": "sail north", "command": "tasks"}]}


def test_outline_gives_context_to_a_0_1_host(session: BlockingSession) -> None:
    extension = session.start(EXAMPLES / "outline")
    (item,) = session.contribution(lambda of: of.collect_context("x"), "outline")
    assert (item.label, item.content) == ("headings of README.rst", "Tides\nNorth")
    assert session.contribution(lambda of: of.execute("headings"), "outline").text.startswith("usage")
    assert extension.contributions.features == frozenset()
