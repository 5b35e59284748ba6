"""Tool calls on the feature-negotiated wire."""

from __future__ import annotations

import json
from typing import Any, Final

from broker.conform.endings import shut_down_after_work
from broker.conform.feature.bench import FeatureBench
from broker.conform.feature.peer import FeaturePeer
from broker.errors import BrokerError
from broker.limits import CANCEL_GRACE_MS
from broker.wire.feature.results import decode_parts_result, decode_text_result
from broker.wire.octet.models import ToolDefinition
from broker.wire.quoting import quote

_GRACE_SECONDS: Final = CANCEL_GRACE_MS / 1000
_UNKNOWN_METHOD: Final = -32601
_CALLS: Final = ("octet.method.tool-call", "octet.legacy.tool-result", "octet.tool-call.arguments-any-json")
_CANCELS: Final = ("octet.cancel.grace", "octet.cancel.settled")


async def call_tools(bench: FeatureBench) -> None:
    """Call each tool, then the first one with odd arguments."""
    if not bench.callable_tools:
        reason = "it has no tools" if bench.settings.allow_calls else "no tool is to be called"
        bench.findings.skipped(reason, *_CALLS)
        return
    async with bench.process() as peer:
        if not await bench.start(peer):
            return
        for tool in bench.callable_tools:
            for arguments in bench.arguments_of(tool):
                if not await _call(bench, peer, tool, arguments):
                    return
        await bench.judge_odd_arguments(peer, bench.callable_tools[0], _judge_result)
        await peer.probe.quiet(bench.settings.quiet_seconds / 2)
        await shut_down_after_work(bench, peer, "octet.legacy.shutdown")


async def _call(bench: FeatureBench, peer: FeaturePeer, tool: ToolDefinition, arguments: Any) -> bool:
    findings, seconds = bench.findings, bench.settings.answer_seconds
    call = await peer.ask("tool/call", bench.tool_params(peer, tool.name, arguments), seconds)
    if call.answer is None and bench.version != "0.1" and not peer.probe.output_ended:
        await peer.notify("$/cancelRequest", {"id": call.id, "reason": "timeout"})
        if await peer.answered(call, _GRACE_SECONDS):
            findings.passed("octet.cancel.grace")
            findings.skipped(f"tool {quote(tool.name)} takes longer than {seconds:g} s", *_CALLS[:2])
            return True
        what = f"tool {quote(tool.name)} was called {seconds:g} s before it was cancelled"
        bench.no_answer(peer, "octet.cancel.grace", what, _GRACE_SECONDS)
        return False
    if call.answer is None:
        bench.no_answer(peer, "octet.method.tool-call", f"tool {quote(tool.name)}", seconds)
        return False
    if call.failed:
        what = f"tool {quote(tool.name)} of the catalogue is answered with {call.answer}"
        findings.judge("octet.method.tool-call", call.error_code != _UNKNOWN_METHOD, what)
        return True
    findings.passed("octet.method.tool-call")
    _judge_result(bench, tool.name, call.result)
    return True


def _judge_result(bench: FeatureBench, tool: str, result: Any) -> None:
    decoder = decode_text_result if bench.version == "0.1" else decode_parts_result(lambda artifact_id: True)
    try:
        decoder(result)
    except BrokerError as error:
        bench.findings.failed("octet.legacy.tool-result", f"tool {quote(tool)}: {error}")
    else:
        bench.findings.passed("octet.legacy.tool-result")


async def cancel_calls(bench: FeatureBench) -> None:
    """Call and cancel in one write; then cancel what has ended or never was. 0.1 has no cancelling."""
    if bench.version == "0.1":
        bench.findings.skipped("API 0.1 has no cancelling", *_CANCELS)
        return
    async with bench.process() as peer:
        if not await bench.start(peer):
            return
        for tool in bench.callable_tools[:4]:
            call, data = peer.prepare("tool/call", bench.tool_params(peer, tool.name, bench.arguments_of(tool)[0]))
            cancel = {"jsonrpc": "2.0", "method": "$/cancelRequest", "params": {"id": call.id, "reason": "user"}}
            await peer.probe.write(data + json.dumps(cancel).encode() + b"\n")
            if not await peer.answered(call, _GRACE_SECONDS):
                what = f"tool {quote(tool.name)}, cancelled in the write that called it"
                bench.no_answer(peer, "octet.cancel.grace", what, _GRACE_SECONDS)
                return
            bench.findings.passed("octet.cancel.grace")
        for request_id in (1, 9_000_001):
            await peer.notify("$/cancelRequest", {"id": request_id, "reason": "user"})
        if not await bench.still_answers(peer):
            what = "a request after cancels of settled and unknown ids"
            bench.no_answer(peer, "octet.cancel.settled", what, bench.settings.answer_seconds)
            return
        await peer.probe.quiet(bench.settings.quiet_seconds / 2)
        bench.findings.passed("octet.cancel.settled")


async def unknown_tool(bench: FeatureBench) -> None:
    """A tool that does not exist. Where that is answered, it later serves to see whether the process still reads."""
    async with bench.process() as peer:
        if await bench.start(peer):
            await bench.judge_unknown_tool(peer)


async def unknown_method(bench: FeatureBench) -> None:
    """A method that does not exist."""
    rule, method = "octet.legacy.unknown-method", "conformance/no-such-method"
    async with bench.process() as peer:
        if not await bench.start(peer):
            return
        call = await peer.request(method, {})
        await bench.still_answers(peer)
        await peer.answered(call, bench.settings.quiet_seconds)
        if call.answer is None:
            bench.no_answer(peer, rule, method, bench.settings.quiet_seconds)
            return
        bench.findings.judge(rule, call.error_code == _UNKNOWN_METHOD, f"{method} was answered with {call.answer}")
