"""Everything that is tried with one MCP server, and in which order."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import Awaitable, Callable
from typing import Final

from broker.conform.mcp import tools
from broker.conform.mcp.bench import McpBench
from broker.conform.rules_mcp import MCP_RULES
from broker.limits import MAX_CONFORM_PROCESSES, SERVER_EOF_GRACE_MS, SERVER_TERM_GRACE_MS

_EOF_SECONDS: Final = SERVER_EOF_GRACE_MS / 1000
_TERM_SECONDS: Final = SERVER_TERM_GRACE_MS / 1000
_METHOD_NOT_FOUND: Final = -32601
_SEEN: Final = tuple(rule.id for rule in MCP_RULES.values() if rule.how == "every line of every process is looked at")
_RESULTS: Final = tuple(
    rule.id for rule in MCP_RULES.values() if rule.how.startswith(("each tool that says", "each reference"))
)


async def conduct(bench: McpBench) -> None:
    """Try everything. A server that does not start is not looked at further."""
    if not await _start_and_list(bench):
        bench.findings.skipped("the server did not start, or does not list its tools", *MCP_RULES)
        return
    # What this finds out decides how the others go about it.
    await _in_pieces(bench)
    scenarios = _SCENARIOS if bench.lists_tools else (_sigterm,)
    room = asyncio.Semaphore(MAX_CONFORM_PROCESSES)

    async def run(scenario: Callable[[McpBench], Awaitable[None]]) -> None:
        async with room:
            await scenario(bench)

    async with asyncio.TaskGroup() as group:
        for scenario in scenarios:
            group.create_task(run(scenario))
    for rule in _SEEN:
        bench.findings.passed(rule)
    if not bench.lists_tools:
        bench.findings.skipped("it has no tools", *MCP_RULES)
    called = "no called tool answered with such a thing" if bench.callable_tools else "no tool was called"
    bench.findings.skipped(called, *_RESULTS)


async def _start_and_list(bench: McpBench) -> bool:
    async with bench.process() as peer:
        await peer.probe.quiet(bench.settings.quiet_seconds / 3)
        if not await bench.start(peer) or not await tools.list_tools(bench, peer):
            return False
        peer.may_end = True
        peer.probe.close_stdin()
        if await peer.probe.wait_exit(_EOF_SECONDS) is None:
            what = f"{_EOF_SECONDS:g} s after the end of its input the server still runs"
            bench.findings.failed("odek.server.exit-on-eof", what)
            bench.findings.skipped("the server did not end", "odek.server.nothing-left")
            return True
        bench.findings.passed("odek.server.exit-on-eof")
        left = await peer.probe.survivors()
        shown = ", ".join(f"{one.command} (pid {one.pid})" for one in left)
        bench.findings.judge("odek.server.nothing-left", not left, f"after the server ended there still was: {shown}")
    return True


async def _call(bench: McpBench) -> None:
    async with bench.process() as peer:
        if await bench.start(peer):
            await tools.call_tools(bench, peer)
            await peer.probe.quiet(bench.settings.quiet_seconds / 2)


async def _edges(bench: McpBench) -> None:
    async with bench.process() as peer:
        if await bench.start(peer):
            await tools.edges(bench, peer)
            await peer.probe.quiet(bench.settings.quiet_seconds / 2)


async def _in_pieces(bench: McpBench) -> None:
    rule, seconds = "odek.transport.chunks", bench.settings.answer_seconds
    async with bench.process() as peer:
        if not await bench.start(peer, dribble=True):
            return
        first, one = peer.prepare("ping")
        second, two = peer.prepare("ping")
        await peer.probe.write(one + two)
        await peer.answered(first, seconds)
        if not await peer.answered(second, bench.settings.quiet_seconds):
            both = "one" if first.answer is not None else "none"
            if both == "one":
                bench.no_answer(peer, rule, "two requests in one write, one answered", bench.settings.quiet_seconds)
            return
        bench.findings.passed(rule)


async def _without_initialized(bench: McpBench) -> None:
    rule, seconds = "odek.server.without-initialized", bench.settings.answer_seconds
    async with bench.process() as peer:
        if not await bench.start(peer, announce=False):
            return
        call = await peer.ask("tools/list", None, seconds)
        if call.answer is None:
            bench.no_answer(peer, rule, "tools/list, without notifications/initialized before it", seconds)
            return
        what = f"tools/list, without notifications/initialized before it, was answered with {call.answer}"
        bench.findings.judge(rule, isinstance(call.result, dict), what)


async def _unknown_things(bench: McpBench) -> None:
    findings, seconds = bench.findings, bench.settings.answer_seconds
    async with bench.process() as peer:
        if not await bench.start(peer):
            return
        call = await peer.ask("ping", None, seconds)
        if call.answer is None:
            bench.no_answer(peer, "odek.server.ping", "ping", seconds)
        else:
            findings.judge("odek.server.ping", call.result == {}, f"ping was answered with {call.answer}")
        if peer.blamed and peer.probe.output_ended:
            return
        rule = "odek.server.unknown-method"
        call = await peer.ask("conformance/no-such-method", {}, min(seconds, 1.0))
        if call.answer is None:
            bench.no_answer(peer, rule, "conformance/no-such-method", min(seconds, 1.0))
        else:
            unclear = call.failed and findings.is_failed("odek.server.error-shape")
            right = call.error_code == _METHOD_NOT_FOUND or unclear
            findings.judge(rule, right, f"conformance/no-such-method was answered with {call.answer}")
        rule = "odek.server.notifications-unanswered"
        for method in ("notifications/conformance", "conformance/event", "notifications/roots/list_changed"):
            await peer.notify(method)
        if (await peer.ask("tools/list", None, seconds)).answer is None:
            if not peer.blamed:
                bench.no_answer(peer, rule, "tools/list after three notifications", seconds)
            return
        await peer.probe.quiet(bench.settings.quiet_seconds / 2)
        findings.passed(rule)


async def _sigterm(bench: McpBench) -> None:
    async with bench.process() as peer:
        if not await bench.start(peer):
            return
        peer.may_end = True
        peer.probe.signal(signal.SIGTERM)
        ended = await peer.probe.wait_exit(_TERM_SECONDS + _TERM_SECONDS) is not None
        what = f"{2 * _TERM_SECONDS:g} s after SIGTERM the server still runs"
        bench.findings.judge("odek.server.exit-on-sigterm", ended, what)


_SCENARIOS: Final[tuple[Callable[[McpBench], Awaitable[None]], ...]] = (
    _call,
    _edges,
    _without_initialized,
    _unknown_things,
    _sigterm,
)
