"""Everything that is tried with one extension of API 0.1, 0.2 or 0.4, and in which order."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import Awaitable, Callable
from typing import Final

from broker.conform.feature import calls, contributions
from broker.conform.feature.bench import FeatureBench
from broker.conform.feature.peer import FeaturePeer
from broker.conform.rules_feature import FEATURE_RULES
from broker.limits import EXIT_GRACE_MS, MAX_CONFORM_PROCESSES, MAX_FEATURE_LINE_BYTES, SHUTDOWN_TIMEOUT_MS

_EXIT_SECONDS: Final = EXIT_GRACE_MS / 1000
_SHUTDOWN_SECONDS: Final = SHUTDOWN_TIMEOUT_MS / 1000
_SEEN: Final = tuple(
    rule.id for rule in FEATURE_RULES.values() if rule.how == "every line of every process is looked at"
)
Scenario = Callable[[FeatureBench], Awaitable[None]]


async def conduct(bench: FeatureBench) -> None:
    """Try everything. An extension that does not start is not looked at further."""
    if not await _start_and_shutdown(bench):
        bench.findings.skipped("the extension did not start", *FEATURE_RULES)
        return
    await calls.unknown_tool(bench)
    room = asyncio.Semaphore(MAX_CONFORM_PROCESSES)

    async def run(scenario: Scenario) -> None:
        async with room:
            await scenario(bench)

    scenarios: tuple[Scenario, ...] = (calls.call_tools, calls.cancel_calls, contributions.contribute, _in_pieces)
    async with asyncio.TaskGroup() as group:
        for scenario in (*scenarios, calls.unknown_method, _bare, _end_of_input, _sigterm):
            group.create_task(run(scenario))
    for rule in _SEEN:
        bench.findings.passed(rule)
    reason = f"not part of API {bench.version}" if bench.version == "0.1" else "only part of API 0.1"
    bench.findings.skipped(reason, *FEATURE_RULES)


async def _start_and_shutdown(bench: FeatureBench) -> bool:
    async with bench.process() as peer:
        await peer.probe.quiet(bench.settings.quiet_seconds / 3)
        if not await bench.start(peer):
            return False
        await peer.probe.quiet(bench.settings.quiet_seconds / 3)
        await _shutdown(bench, peer)
    return True


async def _shutdown(bench: FeatureBench, peer: FeaturePeer) -> None:
    findings = bench.findings
    peer.may_end = True
    call = await peer.ask("shutdown", {}, _SHUTDOWN_SECONDS)
    if call.answer is None:
        bench.no_answer(peer, "octet.legacy.shutdown", "shutdown", _SHUTDOWN_SECONDS)
        findings.skipped("shutdown was not answered", "octet.shutdown.graceful", "octet.shutdown.exit-status")
        findings.skipped("shutdown was not answered", "octet.process.nothing-left")
        return
    findings.judge("octet.legacy.shutdown", call.result == {}, f"the answer is {call.answer}")
    status = await peer.probe.wait_exit(_EXIT_SECONDS)
    if status is None:
        findings.failed("octet.shutdown.graceful", f"{_EXIT_SECONDS:g} s after its answer the process still runs")
        findings.skipped("the process did not end", "octet.shutdown.exit-status", "octet.process.nothing-left")
        return
    findings.passed("octet.shutdown.graceful")
    findings.judge("octet.shutdown.exit-status", status == 0, f"after shutdown {peer.probe.ending()}")
    left = await peer.probe.survivors()
    shown = ", ".join(f"{one.command} (pid {one.pid})" for one in left)
    findings.judge("octet.process.nothing-left", not left, f"after shutdown there still was: {shown}")


async def _bare(bench: FeatureBench) -> None:
    """Offer the required features alone."""
    if bench.version == "0.1":
        return
    async with bench.process() as peer:
        if await bench.start(peer, offer=bench.offer(bare=True), what="an offer of the required features alone"):
            for tool in bench.tools[:2]:
                params = bench.tool_params(peer, tool.name, bench.arguments_of(tool)[0])
                peer.blamed = (await peer.ask("tool/call", params, bench.settings.answer_seconds)).answer is None
            await peer.probe.quiet(bench.settings.quiet_seconds / 2)


async def _end_of_input(bench: FeatureBench) -> None:
    async with bench.process() as peer:
        if not await bench.start(peer):
            return
        peer.may_end = True
        peer.probe.close_stdin()
        ended = await peer.probe.wait_exit(_EXIT_SECONDS) is not None
        what = f"{_EXIT_SECONDS:g} s after the end of its input the process still runs"
        bench.findings.judge("octet.process.exit-on-eof", ended, what)


async def _sigterm(bench: FeatureBench) -> None:
    async with bench.process() as peer:
        if not await bench.start(peer):
            return
        peer.may_end = True
        peer.probe.signal(signal.SIGTERM)
        ended = await peer.probe.wait_exit(_EXIT_SECONDS) is not None
        what = f"{_EXIT_SECONDS:g} s after SIGTERM the process still runs"
        bench.findings.judge("octet.process.exit-on-sigterm", ended, what)


async def _in_pieces(bench: FeatureBench) -> None:
    """Initialize byte by byte, then several requests at once, then one as long as may be."""
    findings, seconds = bench.findings, bench.settings.answer_seconds
    async with bench.process() as peer:
        if not await bench.start(peer, what="an offer, byte by byte", dribble=True):
            return
        findings.passed("octet.framing.chunk-independent")
        params = bench.sync_params(peer)
        if params is None:
            reason = "it answers no call of a tool"
            findings.skipped(reason, "octet.framing.several-in-one-chunk", "octet.framing.at-bound")
            return
        count = 4 if bench.version != "0.1" else 1
        prepared = [peer.prepare("tool/call", params) for _ in range(count)]
        await peer.probe.write(b"".join(data for _, data in prepared), seconds)
        await peer.probe.until(lambda: all(call.answer is not None for call, _ in prepared), seconds)
        answered = sum(call.answer is not None for call, _ in prepared)
        rule = "octet.framing.several-in-one-chunk"
        if answered < count:
            bench.no_answer(peer, rule, f"{count} requests in one write, {answered} answered", seconds)
            return
        findings.passed(rule)
        _, data = peer.prepare("tool/call", params)
        params["context"]["padding"] = "x" * (MAX_FEATURE_LINE_BYTES - len(data) - len(',"padding":""') - 4)
        call, data = peer.prepare("tool/call", params)
        await peer.probe.write(data, seconds)
        rule = "octet.framing.at-bound"
        if not await peer.answered(call, seconds):
            bench.no_answer(peer, rule, f"a line of {len(data)} bytes", seconds)
            return
        findings.passed(rule, f"{len(data)} bytes")
