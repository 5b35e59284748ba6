"""How an extension starts and how it ends: the first process of all, and those that end in another way."""

from __future__ import annotations

import signal
from collections.abc import Awaitable, Callable
from typing import Final

from broker.conform.octet.bench import OctetBench
from broker.conform.octet.calls import unknown_tool
from broker.conform.octet.peer import OctetPeer
from broker.limits import EXIT_GRACE_MS, SHUTDOWN_TIMEOUT_MS

_EXIT_SECONDS: Final = EXIT_GRACE_MS / 1000
_SHUTDOWN_SECONDS: Final = SHUTDOWN_TIMEOUT_MS / 1000


async def start_and_shutdown(bench: OctetBench) -> bool:
    """Start, call a tool that does not exist, and end in order. False when nothing else can be looked at."""
    async with bench.process() as peer:
        await peer.probe.quiet(bench.settings.quiet_seconds / 3)
        if not await bench.start(peer):
            return False
        await peer.settle(bench.settings.quiet_seconds / 2, most=bench.settings.quiet_seconds)
        if peer.probe.output_ended:
            return False
        await unknown_tool(bench, peer)
        if not peer.probe.output_ended:
            await _shutdown(bench, peer)
            return True
    async with bench.process() as peer:
        if await bench.start(peer):
            await _shutdown(bench, peer)
    return True


async def _shutdown(bench: OctetBench, peer: OctetPeer) -> None:
    findings = bench.findings
    peer.may_end = True
    call = await peer.ask("shutdown", {}, _SHUTDOWN_SECONDS)
    if call.answer is None:
        bench.no_answer(peer, "octet.method.shutdown", "shutdown", _SHUTDOWN_SECONDS)
        findings.skipped("shutdown was not answered", "octet.shutdown.terminal", "octet.shutdown.graceful")
        findings.skipped("shutdown was not answered", "octet.shutdown.exit-status", "octet.process.nothing-left")
        return
    findings.passed("octet.method.shutdown", f"after {call.answered_at - call.sent_at:.3f} s")
    if not findings.is_failed("octet.envelope.result-null"):
        kept = call.result == {"terminal": "shutdown"}
        findings.judge("octet.shutdown.terminal", kept, f"the answer is {call.answer}")
    status = await peer.probe.wait_exit(_EXIT_SECONDS)
    if status is None:
        findings.failed("octet.shutdown.graceful", f"{_EXIT_SECONDS:g} s after its answer the process still runs")
        findings.skipped("the process did not end", "octet.shutdown.exit-status", "octet.process.nothing-left")
        return
    findings.passed("octet.shutdown.graceful", f"after {peer.probe.now - call.answered_at:.3f} s")
    findings.judge("octet.shutdown.exit-status", status == 0, f"after shutdown {peer.probe.ending()}")
    left = await peer.probe.survivors()
    shown = ", ".join(f"{one.command} (pid {one.pid})" for one in left)
    findings.judge("octet.process.nothing-left", not left, f"after shutdown there still was: {shown}")


async def end_of_input(bench: OctetBench, peer: OctetPeer) -> None:
    """Close the stdin of a process that has done its work; of another if that one is gone."""
    if peer.probe.output_ended:
        await in_another(bench, end_of_input)
        return
    peer.may_end = True
    peer.probe.close_stdin()
    ended = await peer.probe.wait_exit(_EXIT_SECONDS) is not None
    what = f"{_EXIT_SECONDS:g} s after the end of its input the process still runs"
    bench.findings.judge("octet.process.exit-on-eof", ended, what)


async def sigterm(bench: OctetBench, peer: OctetPeer) -> None:
    """Send SIGTERM to a process that has done its work; to another if that one is gone."""
    if peer.probe.output_ended:
        await in_another(bench, sigterm)
        return
    peer.may_end = True
    peer.probe.signal(signal.SIGTERM)
    ended = await peer.probe.wait_exit(_EXIT_SECONDS) is not None
    what = f"{_EXIT_SECONDS:g} s after SIGTERM the process still runs"
    bench.findings.judge("octet.process.exit-on-sigterm", ended, what)


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
                params = bench.tool_params(tool.name, bench.arguments_of(tool)[0], peer.workspace)
                await peer.ask("tool/call", params, bench.settings.answer_seconds)
            await peer.settle(bench.settings.quiet_seconds / 2, most=bench.settings.quiet_seconds)
