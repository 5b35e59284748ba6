"""Tool names, one server's catalogue, and the names under which a host knows the tools of all its servers."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from broker.errors import CatalogueError
from broker.wire.mcp.catalogue import Catalogue, ListedTool, read_catalogue
from broker.wire.mcp.events import Closed
from broker.wire.mcp.names import QualifiedNames, name_problem, qualified_name
from broker.wire.quoting import plain

Entry = Callable[..., dict[str, Any]]

# -- names -------------------------------------------------------------------------------------------------------------

GOOD = ["echo", "large_result", "ci-test-results", "A1_-z", "a", "x" * 64, "_", "-", "_b", "a_", "0"]
BAD = [
    *(
        "",
        "x" * 65,
        "read file",
        "read/file",
        "read\\file",
        "read.file",
        "tool;rm",
        "a__b",
        "tools/call",
        "___",
        "ok\n",
    ),
    *("ok\r", "\u0430bc", "caf\u00e9", "a\u0661", "a\u200b", "\uff41", "a\x00", "\ud800", "\x1b[31m", "srv__tool"),
    *(None, 7, True, [], {}, 1.5),
]


@pytest.mark.spec("odek.names.length", "odek.names.alphabet")
@pytest.mark.parametrize("name", GOOD)
def test_good_names(name: str) -> None:
    assert name_problem(name) is None


@pytest.mark.spec("odek.names.length", "odek.names.alphabet", "odek.names.double-underscore", "odek.names.one-bad-name")
@pytest.mark.parametrize("name", BAD, ids=ascii)
def test_one_bad_name_refuses_the_whole_server(name: Any, entry: Entry) -> None:
    """Fault 32, 33 and 34: the offending name is in the error, safe to print."""
    with pytest.raises(CatalogueError) as caught:
        read_catalogue("srv", [entry("good"), entry(name), entry("fine")])
    error = caught.value
    assert (error.extension, error.method, error.path) == ("srv", "tools/list", "tools[1].name")
    assert [fault.path for fault in error.faults] == ["tools[1].name"]
    assert str(error).isprintable()
    if type(name) is str and name.isascii() and name.isprintable() and name:
        assert f"'{name}'" in str(error)


@pytest.mark.spec("odek.names.one-bad-name")
@pytest.mark.parametrize("name", ["read file", "a__b"])
def test_a_server_with_a_bad_name_is_not_ready(mcp: Any, new_mcp: Callable[..., Any], entry: Entry, name: str) -> None:
    """Fault 32 and 33, through the connection."""
    wire = new_mcp()
    wire.peer.initialize()
    wire.written()
    wire.receive({"id": 1, "result": {"protocolVersion": "2025-03-26", "capabilities": {"tools": {}}}})
    wire.events()
    wire.written()
    wire.receive({"id": 2, "result": {"tools": [entry("good"), entry(name)]}})
    [closed] = wire.events()
    assert isinstance(closed, Closed) and isinstance(closed.error, CatalogueError)
    with pytest.raises(CatalogueError):
        wire.call("good")


@pytest.mark.spec("odek.names.duplicate")
def test_a_duplicate_name_refuses_the_server(entry: Entry) -> None:
    with pytest.raises(CatalogueError, match=r"tools\[2\]\.name: 'a' is also the name of tools\[0\]"):
        read_catalogue("srv", [entry("a"), entry("b"), entry("a")])
    with pytest.raises(CatalogueError):
        read_catalogue("srv", [entry("a", inputSchema=[]), entry("a")])


def test_all_bad_entries_are_named_up_to_a_bound(entry: Entry) -> None:
    with pytest.raises(CatalogueError) as caught:
        read_catalogue("srv", [entry("a b"), 7, {}, entry("ok"), *[entry("")] * 50])
    paths = [fault.path for fault in caught.value.faults]
    assert paths[:4] == ["tools[0].name", "tools[1]", "tools[2].name", "tools[4].name"]
    assert len(paths) == 32


# -- entries -----------------------------------------------------------------------------------------------------------


@pytest.mark.spec("odek.names.schema-default")
def test_description_and_schema_are_optional(entry: Entry) -> None:
    schema = {"type": "object", "properties": {"x": {"type": "number", "minimum": 0.5}}}
    found = read_catalogue(
        "srv",
        [{"name": "a"}, {"name": "b", "inputSchema": None, "description": None}, entry("c", inputSchema=schema, x=1)],
    )
    assert found.tools == (
        ListedTool("a", "", {"type": "object"}),
        ListedTool("b", "", {"type": "object"}),
        ListedTool("c", "", schema),
    )
    assert (found.warnings, found.server) == ((), "srv")
    assert found.get("c") is found.tools[2] and found.get("d") is None
    assert "a" in found and "d" not in found and 7 not in found
    assert found.tools[0].input_schema is not found.tools[1].input_schema


@pytest.mark.spec("odek.names.schema-bound")
def test_a_schema_over_256_kib_leaves_its_tool_out(entry: Entry) -> None:
    frame = len(json.dumps({"x": ""}, separators=(",", ":")))
    fits, over = {"x": "y" * (262_144 - frame)}, {"x": "y" * (262_145 - frame)}
    found = read_catalogue("srv", [entry("a", inputSchema=over), entry("b", inputSchema=fits)])
    assert [tool.name for tool in found.tools] == ["b"]
    assert found.warnings == ("srv: tool a is left out: its inputSchema takes 262145 bytes, more than 262144",)


def test_an_unusable_schema_or_description_is_warned_of(entry: Entry) -> None:
    found = read_catalogue("srv", [entry("a", inputSchema=[1]), entry("b", description=7), entry("c", inputSchema="x")])
    assert [(tool.name, tool.description) for tool in found.tools] == [("b", "")]
    assert found.warnings == (
        "srv: tool a is left out: its inputSchema is an array, not an object",
        "srv: tool b: its description is an integer, not a string, and ignored",
        "srv: tool c is left out: its inputSchema is a string, not an object",
    )


@pytest.mark.spec("odek.config.hostile-metadata")
def test_a_description_is_safe_to_print_and_kept_raw_for_approval(entry: Entry) -> None:
    hostile = "Adds.\x1b]0;owned\x07\x1b[2J\n\tMore\r\x9b31m\u202etxt\x00"
    [tool] = read_catalogue("srv", [entry("a", description=hostile)]).tools
    assert tool.description == "Adds.\n\tMore  txt "
    assert tool.raw_description == hostile
    [tool] = read_catalogue("srv", [entry("a", description="x" * 1_000_000)]).tools
    assert tool.description == "x" * 16_381 + "..."


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("", ""),
        ("plain é 🚀\u200d", "plain é 🚀\u200d"),
        ("a\x1b[1;31mb\x1b[0m", "ab"),
        ("a\x1b]8;;http://x\x1b\\link\x1b]8;;\x1b\\b", "alinkb"),
        ("a\x1bPq#0\x1b\\b\x1b_x\x9cc", "abc"),
        ("a\x1b(Bb\x1bc", "ab"),
        ("a\x1b", "a"),
        ("a\x1b[", "a"),
        ("a\x1b]never ends", "a"),
        ("a\nb\tc", "a b c"),
        ("a\u2028b\u061c\ufeff\x7f", "a b   "),
    ],
)
def test_plain_text_for_people(text: str, shown: str) -> None:
    assert plain(text) == shown


@settings(max_examples=200, deadline=None)
@given(st.text(alphabet="\x1b[]0;mP\\\x07\x9b\x9c\n\u202ea", max_size=80), st.integers(4, 40))
def test_plain_text_holds_no_control_character_and_its_bound(text: str, maximum: int) -> None:
    shown = plain(text, max_chars=maximum)
    assert len(shown) <= maximum
    assert not set(shown) & set("\x1b\x07\x9b\x9c\n\u202e")


# -- qualified names ---------------------------------------------------------------------------------------------------


@pytest.mark.spec("odek.names.qualified", "odek.names.unambiguous")
def test_a_qualified_name_is_looked_up() -> None:
    names = QualifiedNames()
    names.replace("srv", ["execute", "_x"])
    names.replace("other_", ["execute"])
    assert names.get("srv__execute") == ("srv", "execute")
    assert names.get("other___execute") == ("other_", "execute")
    assert names.get("srv___x") == ("srv", "_x")
    assert names.get("srv__nope") is None
    assert list(names.tools) == ["srv__execute", "srv___x", "other___execute"]
    assert ("srv__execute" in names, len(names)) == (True, 3)


@pytest.mark.spec("odek.names.unambiguous")
def test_a_collision_is_refused_by_name_and_changes_nothing() -> None:
    names = QualifiedNames()
    names.replace("a_", ["b", "c"])
    with pytest.raises(CatalogueError) as caught:
        names.replace("a", ["ok", "_b", "_c"])
    assert caught.value.extension == "a"
    assert [(fault.path, fault.problem) for fault in caught.value.faults] == [
        ("a___b", "already stands for tool 'b' of server 'a_'"),
        ("a___c", "already stands for tool 'c' of server 'a_'"),
    ]
    assert dict(names.tools) == {"a___b": ("a_", "b"), "a___c": ("a_", "c")}
    names.replace("a_", ["c"])
    names.replace("a", ["_b"])
    assert names.get("a___b") == ("a", "_b")
    names.remove("a_")
    assert dict(names.tools) == {"a___b": ("a", "_b")}


NAMES = st.text(alphabet="ab_", min_size=1, max_size=4).filter(lambda name: name_problem(name) is None)


@pytest.mark.spec("odek.names.unambiguous")
@settings(max_examples=150, deadline=None)
@given(st.lists(st.tuples(NAMES, st.lists(NAMES, unique=True, max_size=4)), max_size=6))
def test_every_name_stands_for_exactly_one_tool(steps: list[tuple[str, list[str]]]) -> None:
    names = QualifiedNames()
    expected: dict[str, list[str]] = {}
    for server, tools in steps:
        taken = {qualified_name(other, tool) for other, owned in expected.items() if other != server for tool in owned}
        if any(qualified_name(server, tool) in taken for tool in tools):
            with pytest.raises(CatalogueError):
                names.replace(server, tools)
        else:
            names.replace(server, tools)
            expected[server] = tools
    assert sorted(names.tools.values()) == sorted(
        (server, tool) for server, tools in expected.items() for tool in tools
    )


def test_an_empty_catalogue() -> None:
    assert read_catalogue("srv", []) == Catalogue("srv")
