"""How an extension reads: bytes in any pieces, frames in any number, and frames as long as they may be."""

from __future__ import annotations

from broker import canonical
from broker.conform.bench import LINE_SEPARATORS
from broker.conform.octet.bench import OctetBench
from broker.conform.octet.endings import end_of_input, in_another
from broker.conform.octet.peer import OctetPeer
from broker.limits import (
    CONFORM_DRIBBLE_MS,
    CONFORM_DRIBBLED_BYTES,
    CONFORM_LONG_MS,
    CONFORM_LOWER_FRAME_BYTES,
    MAX_CONCURRENT_REQUESTS,
    MAX_TOOLS,
)
from broker.wire.jsonrpc import request
from broker.wire.octet.models import ProtocolLimits


async def in_pieces(bench: OctetBench) -> None:
    """Initialize byte by byte, then several requests at once, one as long as may be, and one with line separators."""
    rule, seconds = "octet.framing.chunk-independent", bench.settings.answer_seconds
    async with bench.process() as peer:
        offer = bench.offer()
        peer.bound = offer.limits.max_frame_bytes
        call, data = peer.prepare("initialize", bench.initialize_params(offer, peer.workspace))
        await peer.probe.dribble(data, CONFORM_DRIBBLED_BYTES, seconds + CONFORM_DRIBBLE_MS / 1000)
        if not await peer.answered(call, seconds):
            bench.no_answer(peer, rule, "initialize was written byte by byte", seconds)
            return
        bench.findings.passed(rule)
        if bench.accept(peer, offer, what="a full offer, byte by byte"):
            await _several_at_once(bench, peer)
            await _longest_frame(bench, peer)
            await _line_separators(bench, peer)


async def lower_limits(bench: OctetBench) -> None:
    """An offer with limits below those of the API, and a frame as long as they allow."""
    offered = ProtocolLimits(
        max_frame_bytes=CONFORM_LOWER_FRAME_BYTES,
        max_concurrent_requests=min(3, MAX_CONCURRENT_REQUESTS),
        max_tools=min(MAX_TOOLS, max(1, len(bench.tools))),
    )
    async with bench.process() as peer:
        if not await bench.start(peer, bench.offer(limits=offered), what="an offer with lower limits"):
            peer.blamed = True
            await in_another(bench, end_of_input)
            return
        bench.findings.passed("octet.selection.limit-over-offer")
        await _longest_frame(bench, peer)
        await end_of_input(bench, peer)


async def _several_at_once(bench: OctetBench, peer: OctetPeer) -> None:
    rule = "octet.framing.several-in-one-chunk"
    assert peer.selection is not None
    params = bench.sync_params(peer)
    if params is None:
        bench.findings.skipped("it answers no call of a tool", rule)
        return
    count = min(4, peer.selection.limits.max_concurrent_requests)
    await bench.judge_together(peer, rule, count, "tool/call", params)


async def _line_separators(bench: OctetBench, peer: OctetPeer) -> None:
    rule = "octet.framing.split-on-lf"
    params = bench.sync_params(peer)
    if params is None:
        bench.findings.skipped("it answers no call of a tool", rule)
        return
    params["context"]["padding"] = LINE_SEPARATORS
    await bench.judge_separators(peer, rule, "tool/call", params)


async def _longest_frame(bench: OctetBench, peer: OctetPeer) -> None:
    rule, seconds = "octet.framing.at-bound", bench.settings.answer_seconds + CONFORM_LONG_MS / 1000
    params = bench.sync_params(peer)
    if params is None:
        bench.findings.skipped("it answers no call of a tool", rule)
        return
    if bench.findings.is_failed("octet.framing.chunk-independent"):
        bench.findings.skipped("frames that arrive in pieces are not read", rule)
        return
    params["context"]["padding"] = ""
    call_id = 1 + max(one.id for one in peer.calls.values() if isinstance(one.id, int))
    missing = peer.bound - len(canonical.encode(request(call_id, "tool/call", params)))
    if missing < 0 or peer.blamed:
        bench.findings.skipped(f"the selected bound is {peer.bound} bytes", rule)
        return
    params["context"]["padding"] = "x" * missing
    call, data = peer.prepare("tool/call", params, call_id)
    assert len(data) == peer.bound + 1
    await peer.probe.write(data, seconds)
    if not await peer.answered(call, seconds):
        bench.no_answer(peer, rule, f"a frame of {peer.bound} bytes, which is the selected bound", seconds)
        return
    bench.findings.passed(rule)
