"""The manifest and the tests agree: ``broker`` never looks more complete than its list of rules."""

from __future__ import annotations

import ast
import re
import tomllib
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path
from textwrap import dedent

import pytest
from attrs import frozen

TESTS = Path(__file__).parent.parent
STATUSES = {"done", "not-yet"}
WORDS = "[a-z0-9]+(-[a-z0-9]+)*"
# fmt: off
AREAS = {
    "octet": {
        "bound", "bus", "cancel", "canonical", "capability", "disposition", "envelope", "error", "framing", "hook",
        "initialize", "legacy", "manifest", "method", "migration", "model", "process", "provider", "selection",
        "session", "shutdown", "theme", "tool-call", "version",
    },
    "odek": {
        "artifact-ref", "budget", "config", "envelope", "event", "external-ref", "limits", "names", "server", "sink",
        "subagent", "transport",
    },
}
# fmt: on


@frozen
class Rule:
    """One testable rule of a reference text."""

    id: str
    status: str
    where: str
    rule: str


@frozen
class Use:
    """One place where a test carries a rule's id; ``rule_id`` is None when it is not written out as a string."""

    rule_id: str | None
    path: str
    line: int


def read_rules(text: str) -> list[Rule]:
    """The rules of one manifest file; an id that stands twice in it is a ``tomllib.TOMLDecodeError``."""
    return [Rule(rule_id, **row) for rule_id, row in tomllib.loads(text).items()]


def find_uses(source: str, path: str) -> Iterator[Use]:
    """Every rule id in a ``pytest.mark.spec(...)`` of the source, whether or not its test is selected in this run."""
    for node in ast.walk(ast.parse(source, filename=path)):
        if isinstance(node, ast.Call) and ast.unparse(node.func) == "pytest.mark.spec":
            for argument in node.args:
                written_out = isinstance(argument, ast.Constant) and isinstance(argument.value, str)
                yield Use(argument.value if written_out else None, path, argument.lineno)


def malformed_ids(rules: Sequence[Rule]) -> list[str]:
    """Ids of another form than ``family.area.short-words``, or in no known area."""
    return [
        rule.id
        for rule in rules
        if not re.fullmatch(rf"({'|'.join(AREAS)})\.{WORDS}\.{WORDS}", rule.id)
        or rule.id.split(".")[1] not in AREAS[rule.id.split(".")[0]]
    ]


def unknown_uses(rules: Sequence[Rule], uses: Sequence[Use]) -> list[Use]:
    """Places where a test carries an id that no rule has, or one that cannot be read from the source."""
    known = {rule.id for rule in rules}
    return [use for use in uses if use.rule_id not in known]


def untested_rules(rules: Sequence[Rule], uses: Sequence[Use]) -> list[str]:
    """Rules that are marked done although no test carries their id."""
    shown = {use.rule_id for use in uses}
    return [rule.id for rule in rules if rule.status == "done" and rule.id not in shown]


@pytest.fixture(scope="module")
def rules() -> list[Rule]:
    manifests = [TESTS / "spec" / f"{family}.toml" for family in AREAS]
    return [rule for manifest in manifests for rule in read_rules(manifest.read_text(encoding="utf-8"))]


@pytest.fixture(scope="module")
def uses() -> list[Use]:
    return [
        use
        for path in sorted(TESTS.rglob("*.py"))
        for use in find_uses(path.read_text(encoding="utf-8"), str(path.relative_to(TESTS.parent)))
    ]


def test_every_id_is_well_formed(rules: list[Rule]) -> None:
    assert malformed_ids(rules) == []


def test_every_status_is_known(rules: list[Rule]) -> None:
    assert [rule.id for rule in rules if rule.status not in STATUSES] == []


def test_every_rule_is_stated_and_no_two_alike(rules: list[Rule]) -> None:
    assert [rule.id for rule in rules if not rule.rule.strip() or not rule.where.strip()] == []
    assert [text for text, count in Counter(rule.rule for rule in rules).items() if count > 1] == []


def test_every_id_in_a_test_is_in_the_manifest(rules: list[Rule], uses: list[Use]) -> None:
    assert unknown_uses(rules, uses) == []


def test_every_id_of_a_collected_test_is_in_the_manifest(
    rules: list[Rule], collected_spec_ids: dict[str, list[str]]
) -> None:
    known = {rule.id for rule in rules}
    assert {rule_id: tests for rule_id, tests in collected_spec_ids.items() if rule_id not in known} == {}


def test_every_rule_marked_done_has_a_test(rules: list[Rule], uses: list[Use]) -> None:
    assert untested_rules(rules, uses) == []


def test_an_id_that_stands_twice_is_refused() -> None:
    row = '"octet.framing.at-bound" = { status = "done", where = "w", rule = "r" }\n'
    assert read_rules(row) == [Rule("octet.framing.at-bound", "done", "w", "r")]
    with pytest.raises(tomllib.TOMLDecodeError):
        read_rules(row + row)


@pytest.mark.parametrize(
    "rule_id",
    ["octet.framing", "octet.framing.at.bound", "octet.framing.At-bound", "octet.nowhere.at-bound", "other.framing.x"],
)
def test_a_malformed_id_is_found(rule_id: str) -> None:
    assert malformed_ids([Rule(rule_id, "not-yet", "w", "r")]) == [rule_id]


def test_unknown_and_missing_ids_are_found() -> None:
    rules = [Rule("octet.bus.one", "done", "w", "r"), Rule("octet.bus.two", "done", "w", "r")]
    known, unknown, computed = Use("octet.bus.one", "p", 1), Use("octet.bus.three", "p", 2), Use(None, "p", 3)
    assert unknown_uses(rules, [known, unknown, computed]) == [unknown, computed]
    assert untested_rules(rules, [known, unknown, computed]) == ["octet.bus.two"]


def test_ids_are_found_wherever_a_mark_can_stand() -> None:
    source = dedent("""
        import pytest

        pytestmark = [pytest.mark.spec("octet.a.module")]

        @pytest.mark.spec("octet.a.class")
        class TestIt:
            @pytest.mark.spec(
                "octet.a.first",
                "octet.a.second",
            )
            @pytest.mark.parametrize("n", [pytest.param(1, marks=pytest.mark.spec("octet.a.param")), 2])
            def test_it(self, n): ...

        @pytest.mark.spec(COMPUTED)
        def test_computed(): ...

        @pytest.mark.other("octet.a.other")
        def test_other(): ...
    """)
    assert sorted(find_uses(source, "x.py"), key=lambda use: use.line) == [
        Use("octet.a.module", "x.py", 4),
        Use("octet.a.class", "x.py", 6),
        Use("octet.a.first", "x.py", 9),
        Use("octet.a.second", "x.py", 10),
        Use("octet.a.param", "x.py", 12),
        Use(None, "x.py", 15),
    ]
