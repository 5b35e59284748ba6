"""Everything that is tried with one MCP server, and in which order."""

from __future__ import annotations

import signal
from typing import Final

from broker.conform.bench import Scenario, run_scenarios
from broker.conform.mcp import tools
from broker.conform.mcp.bench import McpBench
from broker.conform.mcp.peer import McpPeer
from broker.conform.rules import seen
from broker.conform.rules_mcp import MCP_RULES
from broker.limits import CONFORM_UNKNOWN_MS, SERVER_EOF_GRACE_MS, SERVER_TERM_GRACE_MS

_EOF_SECONDS: Final = SERVER_EOF_GRACE_MS / 1000
_TERM_SECONDS: Final = SERVER_TERM_GRACE_MS / 1000
_METHOD_NOT_FOUND: Final = -32601
_RESULTS: Final = tuple(
    rule.id for rule in MCP_RULES.values() if rule.how.startswith(("each tool that says", "each reference"))
)


async def conduct(bench: McpBench) -> None:
    """Try everything. A server that does not start is not looked at further."""
    if not await _start_and_list(bench):
        bench.findings.skipped("the server did not start, or does not list its tools", *MCP_RULES)
        return
    # What this finds out decides how the others go about it.
    await run_scenarios(bench, (in_pieces,))
    await run_scenarios(bench, SCENARIOS if bench.lists_tools else (sigterm,))
    for rule in seen(MCP_RULES):
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
        await _end_of_input(bench, peer, "the end of its input")
    return True


async def _end_of_input(bench: McpBench, peer: McpPeer, what: str) -> None:
    peer.probe.close_stdin()
    left = "odek.server.nothing-left"
    if await bench.judge_exit(peer, "odek.server.exit-on-eof", _EOF_SECONDS, what):
        await bench.judge_left(peer, left, what)
    else:
        bench.findings.skipped("the server did not end", left)


async def call_tools(bench: McpBench) -> None:
    """Call every tool that may be; what they started has to end with the server."""
    async with bench.process() as peer:
        if await bench.start(peer):
            await tools.call_tools(bench, peer)
            await peer.probe.quiet(bench.settings.quiet_seconds / 2)
            if bench.callable_tools and peer.idle and not peer.blamed and not peer.probe.output_ended:
                await _end_of_input(bench, peer, "the end of its input, with its tools called before it,")


async def edges(bench: McpBench) -> None:
    """Call what does not exist, with what no tool expects."""
    async with bench.process() as peer:
        if await bench.start(peer):
            await tools.edges(bench, peer)
            await peer.probe.quiet(bench.settings.quiet_seconds / 2)


async def in_pieces(bench: McpBench) -> None:
    """Initialize byte by byte, then two requests at once."""
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


async def without_initialized(bench: McpBench) -> None:
    """Leave ``notifications/initialized`` out."""
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


async def unknown_things(bench: McpBench) -> None:
    """A ping, then a method and notifications that do not exist."""
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
        unknown_seconds = min(seconds, CONFORM_UNKNOWN_MS / 1000)
        call = await peer.ask("conformance/no-such-method", {}, unknown_seconds)
        if call.answer is None:
            bench.no_answer(peer, rule, "conformance/no-such-method", unknown_seconds)
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


async def sigterm(bench: McpBench) -> None:
    """Send SIGTERM to a process."""
    async with bench.process() as peer:
        if await bench.start(peer):
            peer.probe.signal(signal.SIGTERM)
            await bench.judge_exit(peer, "odek.server.exit-on-sigterm", 2 * _TERM_SECONDS, "SIGTERM")


SCENARIOS: Final[tuple[Scenario[McpBench], ...]] = (
    call_tools,
    edges,
    without_initialized,
    unknown_things,
    sigterm,
)
