"""Everything that is tried with one extension of API 0.1, 0.2 or 0.4, and in which order."""

from __future__ import annotations

from typing import Final

from broker.conform.bench import LINE_SEPARATORS, Scenario, run_scenarios
from broker.conform.endings import end_input, send_sigterm, shut_down
from broker.conform.feature import calls, contributions
from broker.conform.feature.bench import FeatureBench
from broker.conform.rules import seen
from broker.conform.rules_feature import FEATURE_RULES
from broker.limits import MAX_FEATURE_LINE_BYTES


async def conduct(bench: FeatureBench) -> None:
    """Try everything. An extension that does not start is not looked at further."""
    if not await _start_and_shutdown(bench):
        bench.findings.skipped("the extension did not start", *FEATURE_RULES)
        return
    await run_scenarios(bench, (calls.unknown_tool,))
    await run_scenarios(bench, SCENARIOS)
    for rule in seen(FEATURE_RULES):
        bench.findings.passed(rule)
    reason = f"not part of API {bench.version}" if bench.version == "0.1" else "only part of API 0.1"
    bench.findings.skipped(reason, *FEATURE_RULES)


async def _start_and_shutdown(bench: FeatureBench) -> bool:
    async with bench.process() as peer:
        await peer.probe.quiet(bench.settings.quiet_seconds / 3)
        if not await bench.start(peer):
            return False
        await peer.probe.quiet(bench.settings.quiet_seconds / 3)
        if peer.probe.output_ended:
            return False
        rule = "octet.legacy.shutdown"
        call = await shut_down(bench, peer, rule)
        if call is not None:
            bench.findings.judge(rule, call.result == {}, f"the answer is {call.answer}")
    return True


async def bare_offer(bench: FeatureBench) -> None:
    """Offer the required features alone."""
    if bench.version == "0.1":
        return
    async with bench.process() as peer:
        if await bench.start(peer, offer=bench.offer(bare=True), what="an offer of the required features alone"):
            for tool in bench.callable_tools[:2]:
                params = bench.tool_params(peer, tool.name, bench.arguments_of(tool)[0])
                peer.blamed = (await peer.ask("tool/call", params, bench.settings.answer_seconds)).answer is None
            await peer.probe.quiet(bench.settings.quiet_seconds / 2)


async def end_of_input(bench: FeatureBench) -> None:
    """Close the stdin of a process."""
    async with bench.process() as peer:
        if await bench.start(peer):
            await end_input(bench, peer)


async def sigterm(bench: FeatureBench) -> None:
    """Send SIGTERM to a process."""
    async with bench.process() as peer:
        if await bench.start(peer):
            await send_sigterm(bench, peer)


async def in_pieces(bench: FeatureBench) -> None:
    """Initialize byte by byte, then several requests at once, one as long as may be, and one with line separators."""
    findings, seconds = bench.findings, bench.settings.answer_seconds
    async with bench.process() as peer:
        if not await bench.start(peer, what="an offer, byte by byte", dribble=True):
            return
        findings.passed("octet.framing.chunk-independent")
        params = bench.sync_params(peer)
        if params is None:
            reason = "it answers no call of a tool"
            rules = ("octet.framing.several-in-one-chunk", "octet.framing.at-bound", "octet.framing.split-on-lf")
            findings.skipped(reason, *rules)
            return
        count = 4 if bench.version != "0.1" else 1
        if not await bench.judge_together(peer, "octet.framing.several-in-one-chunk", count, "tool/call", params):
            return
        _, data = peer.prepare("tool/call", params)
        params["context"]["padding"] = "x" * (MAX_FEATURE_LINE_BYTES - len(data) - len(',"padding":""') - 4)
        call, data = peer.prepare("tool/call", params)
        await peer.probe.write(data, seconds)
        rule = "octet.framing.at-bound"
        if not await peer.answered(call, seconds):
            bench.no_answer(peer, rule, f"a line of {len(data)} bytes", seconds)
            return
        findings.passed(rule, f"{len(data)} bytes")
        params["context"]["padding"] = LINE_SEPARATORS
        await bench.judge_separators(peer, "octet.framing.split-on-lf", "tool/call", params)


SCENARIOS: Final[tuple[Scenario[FeatureBench], ...]] = (
    calls.call_tools,
    calls.cancel_calls,
    contributions.contribute,
    in_pieces,
    calls.unknown_method,
    bare_offer,
    end_of_input,
    sigterm,
)
