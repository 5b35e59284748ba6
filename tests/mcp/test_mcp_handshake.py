"""From the first byte to Ready: initialize, the version, the notification, and every page of tools/list."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from broker.errors import (
    CatalogueError,
    ExitedError,
    McpError,
    NegotiationError,
    ResultError,
    TimedOutError,
    UsageError,
)
from broker.wire.mcp.events import CatalogueChanged, Closed, Diagnostic, Ready, ServerRequest
from broker.wire.mcp.peer import Phase

NewMcp = Callable[..., Any]
Entry = Callable[..., dict[str, Any]]


def greet(wire: Any, result: Any = None, **members: Any) -> list[Any]:
    """Initialise with this result; the events that follow."""
    wire.peer.initialize()
    wire.written()
    good = {"protocolVersion": "2025-03-26", "capabilities": {"tools": {}}}
    wire.receive({"jsonrpc": "2.0", "id": 1, **({"result": good if result is None else result} | members)})
    return list(wire.events())


def closed_by(events: list[Any]) -> Any:
    """The error of the one Closed event at the end."""
    assert [type(event) for event in events] == [Closed]
    return events[0].error


@pytest.mark.spec("odek.transport.initialize-version", "odek.transport.line")
def test_initialize_is_the_first_line(new_mcp: NewMcp) -> None:
    wire = new_mcp(client_name="host", client_version="3")
    wire.peer.initialize()
    [line] = wire.written_raw()
    assert line == (
        b'{"id":1,"jsonrpc":"2.0","method":"initialize","params":{"protocolVersion":"2025-03-26","capabilities":{},'
        b'"clientInfo":{"name":"host","version":"3"}}}\n'
    )
    with pytest.raises(UsageError, match="initialize was called in phase initializing"):
        wire.peer.initialize()


@pytest.mark.spec("odek.transport.roots-list")
def test_roots_are_announced_only_where_there_are_any(new_mcp: NewMcp) -> None:
    wire = new_mcp(roots=())
    wire.peer.initialize()
    assert wire.written()[0]["params"]["capabilities"] == {"roots": {}}


@pytest.mark.spec("odek.transport.initialized", "odek.transport.tools-list", "odek.transport.plain-mcp")
def test_the_notification_and_the_list_follow_the_answer(new_mcp: NewMcp, entry: Entry) -> None:
    wire = new_mcp()
    info = {"name": "x", "version": "1"}
    answer = {"protocolVersion": "2025-03-26", "capabilities": {"tools": {}}, "serverInfo": info, "instructions": "hi"}
    assert greet(wire, answer) == []
    assert wire.peer.phase is Phase.LISTING
    assert wire.written_raw() == [
        b'{"jsonrpc":"2.0","method":"notifications/initialized"}\n',
        b'{"id":2,"jsonrpc":"2.0","method":"tools/list"}\n',
    ]
    wire.receive({"jsonrpc": "2.0", "id": 2, "result": {"tools": [entry("b"), entry("a")]}})
    [ready] = wire.events()
    assert isinstance(ready, Ready)
    assert [tool.name for tool in ready.catalogue.tools] == ["b", "a"]
    assert (ready.protocol_version, ready.server_info) == ("2025-03-26", info)
    assert wire.peer.phase is Phase.READY
    assert wire.peer.catalogue is ready.catalogue


@pytest.mark.spec("odek.transport.compatible-version")
@pytest.mark.parametrize("version", ["2024-11-05", "2025-03-26", "2025-06-18", "2025-11-25"])
def test_known_versions_are_accepted(new_mcp: NewMcp, version: str) -> None:
    wire = new_mcp()
    events = greet(wire, {"protocolVersion": version, "capabilities": {}})
    assert [event.protocol_version for event in events] == [version]


@pytest.mark.spec("odek.transport.compatible-version")
@pytest.mark.parametrize(
    ("version", "shown"),
    [("2099-01-01", "'\"2099-01-01\"'"), (20250326, "'20250326'"), (None, "'null'"), (["2025-03-26"], "'[\"2025")],
)
def test_other_versions_are_refused_naming_both(new_mcp: NewMcp, version: Any, shown: str) -> None:
    wire = new_mcp()
    error = closed_by(greet(wire, {"protocolVersion": version, "capabilities": {"tools": {}}}))
    assert isinstance(error, NegotiationError)
    assert (error.name, error.path, error.extension) == ("version_mismatch", "protocolVersion", "srv")
    assert "asked for protocol version 2025-03-26" in str(error) and shown in str(error)
    assert wire.written() == []
    assert wire.peer.failure is error


@pytest.mark.spec("odek.transport.compatible-version")
def test_a_missing_version_is_refused(new_mcp: NewMcp) -> None:
    error = closed_by(greet(new_mcp(), {"capabilities": {"tools": {}}}))
    assert "asked for protocol version 2025-03-26, it answered with no protocolVersion" in str(error)


def test_an_error_answer_is_refused(new_mcp: NewMcp) -> None:
    wire = new_mcp()
    error = closed_by(greet(wire, result=None, error={"code": -32602, "message": "Unsupported\x1b[31m"}))
    assert isinstance(error, NegotiationError)
    assert isinstance(error.__cause__, McpError)
    assert str(error) == ("srv: initialize: error -32602: Unsupported\\x1b[31m (asked for protocol version 2025-03-26)")


@pytest.mark.parametrize("result", [7, [], "x"])
def test_a_result_that_is_no_object_is_refused(new_mcp: NewMcp, result: Any) -> None:
    error = closed_by(greet(new_mcp(), result))
    assert isinstance(error, NegotiationError)
    assert isinstance(error.__cause__, ResultError)


def test_a_null_result_has_no_version(new_mcp: NewMcp) -> None:
    wire = new_mcp()
    wire.peer.initialize()
    wire.written()
    wire.receive({"jsonrpc": "2.0", "id": 1, "result": None})
    assert "no protocolVersion" in str(closed_by(list(wire.events())))


def test_malformed_capabilities_are_refused(new_mcp: NewMcp) -> None:
    error = closed_by(greet(new_mcp(), {"protocolVersion": "2025-03-26", "capabilities": []}))
    assert (type(error), error.path) == (NegotiationError, "capabilities")


@pytest.mark.spec("odek.names.no-tools")
@pytest.mark.parametrize("capabilities", [{}, None, {"tools": None}, {"prompts": {}}])
def test_a_server_without_tools_is_not_asked_for_them(new_mcp: NewMcp, capabilities: Any) -> None:
    wire = new_mcp()
    [ready] = greet(wire, {"protocolVersion": "2025-03-26", "capabilities": capabilities})
    assert ready.catalogue.tools == ()
    assert [message["method"] for message in wire.written()] == ["notifications/initialized"]
    wire.receive({"jsonrpc": "2.0", "method": "notifications/tools/list_changed"})
    assert wire.events() == [] and wire.peer.next_deadline() is None


@pytest.mark.spec("odek.limits.timeout-cancelled")
def test_initialize_that_times_out_ends_the_connection_without_a_cancel(new_mcp: NewMcp) -> None:
    """Fault 13, 120: the deadline covers initialize; its error names server, limit and observed time."""
    wire = new_mcp(timeout_ms=8_000)
    wire.peer.initialize()
    wire.written()
    assert wire.peer.next_deadline() == 13_000
    wire.pass_ms(7_999)
    assert wire.events() == []
    wire.pass_ms(1)
    error = closed_by(wire.events())
    assert isinstance(error, TimedOutError)
    assert (error.extension, error.method, error.maximum, error.observed) == ("srv", "initialize", 8_000, 8_000)
    assert error.dispatched is True
    assert wire.written() == []


@pytest.mark.spec("odek.transport.eof")
def test_the_end_before_the_answer_ends_the_start(new_mcp: NewMcp) -> None:
    """Fault 17: a server that is gone before it answers fails the start at once."""
    wire = new_mcp()
    wire.peer.initialize()
    wire.written()
    wire.peer.receive_eof()
    assert isinstance(closed_by(wire.events()), ExitedError)


@pytest.mark.spec("odek.transport.ping", "odek.transport.roots-list")
def test_the_server_may_ask_before_it_answers(new_mcp: NewMcp) -> None:
    wire = new_mcp()
    wire.peer.initialize()
    wire.written()
    wire.receive(
        {"jsonrpc": "2.0", "method": "notifications/message", "params": {"level": "info", "data": "warming up"}},
        {"jsonrpc": "2.0", "id": "srv-ping", "method": "ping"},
        {"jsonrpc": "2.0", "id": "srv-roots", "method": "roots/list"},
    )
    assert wire.events()[1:] == [ServerRequest("ping", refused=False), ServerRequest("roots/list", refused=True)]
    assert wire.written() == [
        {"jsonrpc": "2.0", "id": "srv-ping", "result": {}},
        {"jsonrpc": "2.0", "id": "srv-roots", "error": {"code": -32601, "message": "Method not found"}},
    ]
    assert wire.peer.phase is Phase.INITIALIZING


# -- pages -------------------------------------------------------------------------------------------------------------


def list_pages(wire: Any, *pages: Any) -> list[Any]:
    """Answer tools/list with each of these pages in turn; the events after the last."""
    events = greet(wire)
    for page in pages:
        assert events == []
        message = wire.written()[-1]
        assert message["method"] == "tools/list"
        wire.receive({"jsonrpc": "2.0", "id": message["id"], "result": page})
        events = list(wire.events())
    return events


@pytest.mark.spec("odek.transport.pagination")
def test_pages_are_followed_and_an_empty_cursor_is_one(new_mcp: NewMcp, entry: Entry) -> None:
    wire = new_mcp()
    assert greet(wire) == []
    wire.written()
    wire.receive({"jsonrpc": "2.0", "id": 2, "result": {"tools": [entry("a")], "nextCursor": ""}})
    assert wire.events() == []
    assert wire.written_raw() == [b'{"id":3,"jsonrpc":"2.0","method":"tools/list","params":{"cursor":""}}\n']
    wire.receive({"jsonrpc": "2.0", "id": 3, "result": {"tools": [entry("b")], "nextCursor": None}})
    [ready] = wire.events()
    assert [tool.name for tool in ready.catalogue.tools] == ["a", "b"]


@pytest.mark.spec("odek.names.no-tools")
@pytest.mark.parametrize("page", [{}, {"tools": None}, {"tools": []}])
def test_no_tools_are_fine(new_mcp: NewMcp, page: Any) -> None:
    [ready] = list_pages(new_mcp(), page)
    assert ready.catalogue.tools == ()


@pytest.mark.spec("odek.transport.pagination")
@pytest.mark.parametrize("cursor", ["", "again"])
def test_a_repeated_cursor_refuses_the_server(new_mcp: NewMcp, entry: Entry, cursor: str) -> None:
    error = closed_by(
        list_pages(
            new_mcp(), {"tools": [entry("a")], "nextCursor": cursor}, {"tools": [entry("b")], "nextCursor": cursor}
        )
    )
    assert isinstance(error, CatalogueError)
    assert f"the cursor '{cursor}' was repeated" in str(error)


@pytest.mark.spec("odek.transport.pagination")
def test_at_most_64_pages(new_mcp: NewMcp) -> None:
    pages = [{"nextCursor": str(number)} for number in range(63)]
    assert isinstance(list_pages(new_mcp(), *pages, {})[0], Ready)
    error = closed_by(list_pages(new_mcp(), *pages, {"nextCursor": "63"}))
    assert (error.limit, error.observed, error.maximum) == ("MAX_TOOL_PAGES", 65, 64)


@pytest.mark.spec("odek.transport.pagination")
def test_at_most_1024_tools(new_mcp: NewMcp, entry: Entry) -> None:
    first = {"tools": [entry(f"t{number}") for number in range(1_000)], "nextCursor": "more"}
    rest = [entry(f"u{number}") for number in range(24)]
    [ready] = list_pages(new_mcp(), first, {"tools": rest})
    assert len(ready.catalogue.tools) == 1_024
    error = closed_by(list_pages(new_mcp(), first, {"tools": [*rest, entry("last")], "nextCursor": "x"}))
    assert (error.limit, error.observed, error.maximum) == ("MAX_LISTED_TOOLS", 1_025, 1_024)


@pytest.mark.parametrize(
    ("page", "path"), [({"tools": {}}, "tools"), ({"tools": "x"}, "tools"), ({"nextCursor": 7}, "nextCursor")]
)
def test_a_malformed_page_refuses_the_server(new_mcp: NewMcp, page: Any, path: str) -> None:
    error = closed_by(list_pages(new_mcp(), page))
    assert (type(error), error.path, error.method) == (CatalogueError, path, "tools/list")


def test_an_error_for_the_list_refuses_the_server(new_mcp: NewMcp) -> None:
    wire = new_mcp()
    greet(wire)
    wire.written()
    wire.receive({"jsonrpc": "2.0", "id": 2, "error": {"code": -32000, "message": "broken"}})
    error = closed_by(wire.events())
    assert (type(error), error.rpc_code, error.method) == (McpError, -32000, "tools/list")


def test_each_page_has_its_own_deadline(new_mcp: NewMcp) -> None:
    wire = new_mcp(timeout_ms=1_000)
    greet(wire)
    wire.written()
    wire.clock.advance_ms(900)
    wire.receive({"jsonrpc": "2.0", "id": 2, "result": {"nextCursor": "x"}})
    assert wire.events() == []
    wire.written()
    wire.pass_ms(999)
    assert wire.peer.phase is Phase.LISTING
    wire.pass_ms(1)
    error = closed_by(wire.events())
    assert (type(error), error.method) == (TimedOutError, "tools/list")


# -- list_changed ------------------------------------------------------------------------------------------------------

CHANGED = {"jsonrpc": "2.0", "method": "notifications/tools/list_changed"}


@pytest.mark.spec("odek.transport.list-changed")
def test_announcements_become_one_listing_off_the_reader(mcp: Any, entry: Entry) -> None:
    mcp.clock.advance_ms(1_000)
    mcp.receive(CHANGED, CHANGED, CHANGED)
    assert mcp.events() == [] and mcp.written() == []
    assert mcp.peer.next_deadline() <= mcp.clock.monotonic_ms()
    mcp.peer.tick()
    assert [message["method"] for message in mcp.written()] == ["tools/list"]
    mcp.receive({"jsonrpc": "2.0", "id": 3, "result": {"tools": [entry("new")]}})
    [changed] = mcp.events()
    assert isinstance(changed, CatalogueChanged)
    assert "new" in mcp.peer.catalogue and "echo" not in mcp.peer.catalogue
    assert mcp.peer.next_deadline() is None


@pytest.mark.spec("odek.transport.list-changed")
def test_a_server_that_always_announces_is_asked_once_a_second(mcp: Any) -> None:
    mcp.clock.advance_ms(1_000)
    mcp.receive(CHANGED)
    mcp.events()
    mcp.peer.tick()
    mcp.written()
    mcp.receive(CHANGED, {"jsonrpc": "2.0", "id": 3, "result": {"tools": []}}, CHANGED)
    assert [type(event) for event in mcp.events()] == [CatalogueChanged]
    mcp.peer.tick()
    assert mcp.written() == []
    assert mcp.peer.next_deadline() == 7_000
    mcp.pass_ms(1_000)
    assert [message["method"] for message in mcp.written()] == ["tools/list"]


@pytest.mark.spec("odek.transport.list-changed")
def test_an_unchanged_list_is_no_news(mcp: Any, entry: Entry) -> None:
    mcp.clock.advance_ms(1_000)
    mcp.receive(CHANGED)
    mcp.events()
    mcp.peer.tick()
    mcp.written()
    mcp.receive({"jsonrpc": "2.0", "id": 3, "result": {"tools": [entry("echo"), entry("slow")]}})
    assert mcp.events() == []


@pytest.mark.spec("odek.transport.list-changed")
def test_a_refused_new_list_keeps_the_old_one(mcp: Any, entry: Entry) -> None:
    mcp.clock.advance_ms(1_000)
    mcp.receive(CHANGED)
    mcp.events()
    mcp.peer.tick()
    mcp.written()
    mcp.receive({"jsonrpc": "2.0", "id": 3, "result": {"tools": [entry("a b")]}})
    [diagnostic] = mcp.events()
    assert isinstance(diagnostic, Diagnostic)
    assert "its tools stay as they were" in diagnostic.text and "'a b' holds an invalid character" in diagnostic.text
    assert "echo" in mcp.peer.catalogue
    assert mcp.peer.phase is Phase.READY


def test_the_list_changes_while_a_call_waits(mcp: Any, entry: Entry, text_result: Callable[[str], Any]) -> None:
    call = mcp.sent()
    mcp.clock.advance_ms(1_000)
    mcp.receive(CHANGED, {"jsonrpc": "2.0", "id": call.id, "result": text_result("REAL")})
    mcp.events()
    assert call.result == text_result("REAL")


@pytest.mark.spec("odek.transport.eof")
@pytest.mark.parametrize("listed_before", [False, True])
def test_an_end_while_the_tools_are_listed_is_no_refused_list(new_mcp: NewMcp, listed_before: bool) -> None:
    wire = new_mcp()
    if listed_before:
        wire.ready()
        wire.clock.advance_ms(1_000)
        wire.receive(CHANGED)
        assert wire.events() == []
        wire.peer.tick()
    else:
        assert greet(wire) == []
    assert wire.written()[-1]["method"] == "tools/list"
    wire.peer.receive_eof()
    assert str(closed_by(wire.events())) == "srv closed its output"
