"""How an extension starts and how it ends: the first process of all, and those that end in another way."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

from broker.conform.endings import end_input, send_sigterm, shut_down
from broker.conform.octet.bench import OctetBench
from broker.conform.octet.peer import OctetPeer


async def start_and_shutdown(bench: OctetBench) -> bool:
    """Start, call a tool that does not exist, and end in order. False when nothing else can be looked at."""
    async with bench.process() as peer:
        await peer.probe.quiet(bench.settings.quiet_seconds / 3)
        if not await bench.start(peer):
            return False
        await peer.settle(bench.settings.quiet_seconds / 2, most=bench.settings.quiet_seconds)
        if peer.probe.output_ended:
            return False
        await bench.judge_unknown_tool(peer)
        if not peer.probe.output_ended:
            await _shutdown(bench, peer)
            return True
    async with bench.process() as peer:
        if await bench.start(peer):
            await _shutdown(bench, peer)
    return True


async def _shutdown(bench: OctetBench, peer: OctetPeer) -> None:
    findings = bench.findings
    call = await shut_down(bench, peer, "octet.method.shutdown")
    if call is None:
        findings.skipped("shutdown was not answered", "octet.shutdown.terminal")
        return
    findings.passed("octet.method.shutdown", f"after {call.answered_at - call.sent_at:.3f} s")
    if not findings.is_failed("octet.envelope.result-null"):
        kept = call.result == {"terminal": "shutdown"}
        findings.judge("octet.shutdown.terminal", kept, f"the answer is {call.answer}")


async def end_of_input(bench: OctetBench, peer: OctetPeer) -> None:
    """Close the stdin of a process that has done its work; of another if that one is gone."""
    await (in_another(bench, end_input) if peer.probe.output_ended else end_input(bench, peer))


async def sigterm(bench: OctetBench, peer: OctetPeer) -> None:
    """Send SIGTERM to a process that has done its work; to another if that one is gone."""
    await (in_another(bench, send_sigterm) if peer.probe.output_ended else send_sigterm(bench, peer))


async def in_another(bench: OctetBench, end: Callable[[OctetBench, OctetPeer], Awaitable[None]]) -> None:
    """Start a process for nothing but to be ended."""
    async with bench.process() as peer:
        if await bench.start(peer) and not peer.probe.output_ended:
            await end(bench, peer)


async def bare_offer(bench: OctetBench) -> None:
    """Offer nothing but what is required: an extension may refuse that, but not select what is not there."""
    async with bench.process() as peer:
        peer.may_end = True
        offer = bench.offer(bare=True)
        peer.bound = offer.limits.max_frame_bytes
        call, data = peer.prepare("initialize", bench.initialize_params(offer, peer.workspace))
        await peer.probe.write(data)
        if not await peer.answered(call, bench.settings.answer_seconds) or call.failed:
            bench.findings.passed("octet.selection.not-offered", "it does not start with the required set alone")
            return
        if bench.accept(peer, offer, what="an offer of the required set alone"):
            bench.findings.passed("octet.selection.not-offered")
            for tool in bench.callable_tools[:2]:
                params = bench.tool_params(peer, tool.name, bench.arguments_of(tool)[0])
                await peer.ask("tool/call", params, bench.settings.answer_seconds)
            await peer.settle(bench.settings.quiet_seconds / 2, most=bench.settings.quiet_seconds)
