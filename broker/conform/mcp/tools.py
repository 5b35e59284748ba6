"""A server's list of tools, and what it answers when they are called."""

from __future__ import annotations

from typing import Any, Final

from broker.conform.bench import LINE_SEPARATORS, NO_SUCH_TOOL
from broker.conform.mcp.bench import McpBench
from broker.conform.mcp.peer import McpPeer
from broker.conform.mcp.results import judge_result
from broker.conform.peer import Call
from broker.limits import CONFORM_LONG_ARGUMENT_BYTES, MAX_INPUT_SCHEMA_BYTES, MAX_LISTED_TOOLS, MAX_TOOL_PAGES
from broker.wire.feature.values import compact_size
from broker.wire.jsonrpc import json_type
from broker.wire.mcp.names import name_problem
from broker.wire.quoting import quote

_LIST: Final = (
    *("odek.server.list-shape", "odek.names.length", "odek.names.alphabet", "odek.names.double-underscore"),
    *("odek.names.duplicate", "odek.server.input-schema", "odek.names.schema-bound", "odek.server.description"),
)
_METHOD_NOT_FOUND: Final = -32601


async def list_tools(bench: McpBench, peer: McpPeer) -> bool:
    """Ask for every page and judge every entry; false when the server does not list."""
    findings, seconds = bench.findings, bench.settings.answer_seconds
    entries: list[Any] = []
    cursors: set[str] = set()
    params: dict[str, Any] | None = None
    for _ in range(MAX_TOOL_PAGES):
        call = await peer.ask("tools/list", params, seconds)
        if call.answer is None:
            bench.no_answer(peer, "odek.server.list-without-params", "tools/list without params", seconds)
            return False
        if call.error_code == _METHOD_NOT_FOUND and not bench.has_tools_capability:
            findings.skipped("it has no tools capability and no tools", "odek.server.list-without-params", *_LIST)
            bench.lists_tools = False
            return True
        if not isinstance(call.result, dict):
            findings.failed("odek.server.list-without-params", f"tools/list was answered with {call.answer}")
            return False
        findings.passed("odek.server.list-without-params")
        tools = call.result.get("tools")
        if not isinstance(tools, list):
            findings.failed("odek.server.list-shape", f"tools must be an array, not {json_type(tools)}")
            return False
        entries += tools
        cursor = call.result.get("nextCursor")
        if cursor is None:
            break
        if not isinstance(cursor, str) or cursor in cursors or len(entries) > MAX_LISTED_TOOLS:
            findings.failed("odek.transport.pagination", f"the cursor {quote(str(cursor))} after {len(entries)} tools")
            return False
        cursors.add(cursor)
        params = {"cursor": cursor}
    else:
        findings.failed("odek.transport.pagination", f"more than {MAX_TOOL_PAGES} pages")
        return False
    findings.passed("odek.transport.pagination")
    what = f"the {len(entries)} tools stand on {len(cursors) + 1} pages"
    findings.judge("odek.server.one-page", not cursors, what)
    bench.tools = judge_entries(bench, entries)
    what = f"{len(entries)} tools are listed, and capabilities has no tools"
    findings.judge("odek.server.tools-capability", bench.has_tools_capability or not entries, what)
    return True


def judge_entries(bench: McpBench, entries: list[Any]) -> tuple[dict[str, Any], ...]:
    """The entries that can be called."""
    findings = bench.findings
    named: dict[str, dict[str, Any]] = {}
    for index, entry in enumerate(entries):
        if not isinstance(entry, dict) or not isinstance(entry.get("name"), str):
            findings.failed("odek.server.list-shape", f"tools[{index}] is no object with a name: {quote(repr(entry))}")
            continue
        name = entry["name"]
        problem = name_problem(name)
        if problem is not None:
            findings.failed(_name_rule(problem), f"tools[{index}]: {problem}")
        if name in named:
            findings.failed("odek.names.duplicate", f"{quote(name)} stands at tools[{index}] again")
        named.setdefault(name, entry)
        _judge_schema(bench, index, entry)
        if not isinstance(entry.get("description", ""), str):
            found = json_type(entry["description"])
            findings.failed("odek.server.description", f"tools[{index}].description is {found}")
    for rule in _LIST:
        findings.passed(rule)
    return tuple(named.values())


def _judge_schema(bench: McpBench, index: int, entry: dict[str, Any]) -> None:
    schema = entry.get("inputSchema")
    shown = f"tools[{index}] ({quote(entry['name'])}).inputSchema"
    if not isinstance(schema, dict):
        found = "missing" if "inputSchema" not in entry else json_type(schema)
        bench.findings.failed("odek.server.input-schema", f"{shown} is {found}")
        return
    if schema.get("type") != "object":
        bench.findings.failed("odek.server.input-schema", f"{shown} has the type {schema.get('type')!r}, not 'object'")
    size = compact_size(schema)
    if size > MAX_INPUT_SCHEMA_BYTES:
        bench.findings.failed(
            "odek.names.schema-bound", f"{shown} takes {size} bytes, at most {MAX_INPUT_SCHEMA_BYTES}"
        )


def _name_rule(problem: str) -> str:
    if "must not be empty" in problem or "characters, more than" in problem:
        return "odek.names.length"
    return "odek.names.double-underscore" if "contains '__'" in problem else "odek.names.alphabet"


# -- calls -------------------------------------------------------------------------------------------------------------


async def call_tools(bench: McpBench, peer: McpPeer) -> None:
    """Call what may be called, each once and then with one argument more."""
    if not bench.callable_tools:
        reason = "no tool says that it only reads, and none was named with --call"
        reason = reason if bench.settings.allow_calls else "no tool is to be called"
        bench.findings.skipped(reason, "odek.server.tools-call", "odek.names.unknown-arguments")
        return
    for tool in bench.callable_tools:
        for arguments in bench.arguments_of(tool):
            if not await _call(bench, peer, tool["name"], arguments):
                return


async def _call(bench: McpBench, peer: McpPeer, name: str, arguments: Any) -> bool:
    # A tool may take as long as a host waits for it, which is what the configuration says.
    seconds = max(bench.settings.answer_seconds, float(bench.config.timeout_seconds))
    call = await peer.ask("tools/call", {"name": name, "arguments": arguments}, seconds)
    if call.answer is None:
        if peer.probe.output_ended:
            bench.no_answer(peer, "odek.server.tools-call", f"tool {quote(name)}", seconds)
            return False
        await peer.notify("notifications/cancelled", {"requestId": call.id, "reason": "timeout"})
        bench.findings.failed(
            "odek.server.tools-call",
            f"tool {quote(name)}: no answer within its timeout_seconds, {seconds:g} s",
        )
        return True
    if call.failed:
        bench.findings.judge(
            "odek.server.tools-call",
            call.error_code != _METHOD_NOT_FOUND,
            f"tool {quote(name)} of the list is answered with {call.answer}",
        )
        return True
    bench.findings.passed("odek.server.tools-call")
    judge_result(bench, name, call.result)
    if isinstance(arguments, dict) and _worked(call):
        more = {**arguments, "conformance_unknown": None}
        again = await peer.ask("tools/call", {"name": name, "arguments": more}, seconds)
        bench.findings.judge(
            "odek.names.unknown-arguments",
            _worked(again),
            f"tool {quote(name)} works, and with one more argument is answered with {again.answer}",
        )
    return True


def _worked(call: Call) -> bool:
    return isinstance(call.result, dict) and call.result.get("isError") is not True


async def edges(bench: McpBench, peer: McpPeer) -> None:
    """Tools that do not exist, arguments of all kinds, bad parameters, several at once, cancels, long and odd lines."""
    await _unknown_tool(bench, peer)
    if peer.blamed:
        return
    await _odd_arguments(bench, peer)
    await _bad_params(bench, peer)
    await _cancels(bench, peer)
    if bench.findings.is_failed("odek.transport.chunks"):
        reason = "messages that arrive in pieces or together are not read"
        rules = ("odek.transport.out-of-order", "odek.server.long-line", "odek.transport.split-on-lf")
        bench.findings.skipped(reason, *rules)
        return
    await _at_once(bench, peer)
    await _long_line(bench, peer)
    params = {"name": NO_SUCH_TOOL, "arguments": {"padding": LINE_SEPARATORS}}
    await bench.judge_separators(peer, "odek.transport.split-on-lf", "tools/call", params)


async def _unknown_tool(bench: McpBench, peer: McpPeer) -> None:
    rule, seconds = "odek.server.unknown-tool", bench.settings.answer_seconds
    call = await peer.ask("tools/call", {"name": NO_SUCH_TOOL, "arguments": {}}, seconds)
    if call.answer is None:
        bench.no_answer(peer, rule, "a tool that does not exist", seconds)
        return
    what = f"tool {NO_SUCH_TOOL!r}, which does not exist, was answered with {call.answer}"
    bench.findings.judge(rule, not _worked(call), what)


async def _odd_arguments(bench: McpBench, peer: McpPeer) -> None:
    rule, seconds = "odek.server.arguments-any", bench.settings.answer_seconds
    odd: tuple[Any, ...] = (None, "text", [], {"conformance_unknown": 1})
    for arguments in odd:
        call = await peer.ask("tools/call", {"name": NO_SUCH_TOOL, "arguments": arguments}, seconds)
        if call.answer is None:
            bench.no_answer(peer, rule, f"a call with the arguments {arguments!r}", seconds)
            return
    bench.findings.passed(rule)


async def _bad_params(bench: McpBench, peer: McpPeer) -> None:
    rule, seconds = "odek.server.bad-params", bench.settings.answer_seconds
    if peer.blamed:
        return
    bad: tuple[dict[str, Any], ...] = ({"arguments": {}}, {"name": 7, "arguments": {}})
    for params in bad:
        call = await peer.ask("tools/call", params, seconds)
        if call.answer is None:
            bench.no_answer(peer, rule, f"tools/call with the params {params}", seconds)
            return
        what = f"tools/call with the params {params} was answered with {call.answer}"
        bench.findings.judge(rule, not _worked(call), what)


async def _at_once(bench: McpBench, peer: McpPeer) -> None:
    if not peer.blamed:
        params = {"name": NO_SUCH_TOOL, "arguments": {}}
        await bench.judge_together(peer, "odek.transport.out-of-order", 4, "tools/call", params)


async def _cancels(bench: McpBench, peer: McpPeer) -> None:
    rule, seconds = "odek.server.cancel-harmless", bench.settings.answer_seconds
    if peer.blamed:
        return
    for request_id in (1, 9_000_001):
        await peer.notify("notifications/cancelled", {"requestId": request_id, "reason": "user"})
    if (await peer.ask("tools/list", None, seconds)).answer is None:
        bench.no_answer(peer, rule, "tools/list after two cancels", seconds)
        return
    bench.findings.passed(rule)


async def _long_line(bench: McpBench, peer: McpPeer) -> None:
    rule, seconds = "odek.server.long-line", bench.settings.answer_seconds
    if peer.blamed:
        return
    params = {"name": NO_SUCH_TOOL, "arguments": {"padding": "x" * CONFORM_LONG_ARGUMENT_BYTES}}
    call = await peer.ask("tools/call", params, seconds)
    if call.answer is None:
        bench.no_answer(peer, rule, f"a line of {CONFORM_LONG_ARGUMENT_BYTES} bytes", seconds)
        return
    bench.findings.passed(rule)
