"""Tool calls: results, arguments of all kinds, several at once, cancelled ones, and what no extension expects."""

from __future__ import annotations

from typing import Any, Final

from broker import canonical
from broker.conform.endings import shut_down_after_work
from broker.conform.octet.bench import OctetBench
from broker.conform.octet.peer import OctetPeer
from broker.conform.peer import Call
from broker.limits import CANCEL_GRACE_MS, MAX_PORTABLE_INTEGER
from broker.wire.jsonrpc import notification
from broker.wire.octet.models import ToolCallResult, ToolDefinition
from broker.wire.octet.schema import check
from broker.wire.quoting import quote

_GRACE_SECONDS: Final = CANCEL_GRACE_MS / 1000
_RESULT: Final = ("octet.tool-call.result-parts", "octet.tool-call.metadata-required", "octet.tool-call.bad-result")
_CALLS: Final = (
    "octet.method.tool-call",
    *_RESULT,
    "octet.tool-call.arguments-any-json",
    "octet.tool-call.concurrency",
    "octet.cancel.grace",
    "octet.cancel.terminal-result",
)
_REQUEST_CANCELLED: Final = -32800
_UNKNOWN_METHOD: Final = -32601


def why_no_calls(bench: OctetBench) -> str | None:
    """Why no tool is called, and the rules about calls marked so; ``None`` when some are."""
    reason = None if bench.settings.allow_calls else "no tool is to be called"
    if not bench.tools:
        reason = "it has no tools"
    if reason is not None:
        bench.findings.skipped(reason, *_CALLS)
    return reason


async def call_tools(bench: OctetBench) -> None:
    """Call each tool, then the first one with odd arguments and several times at once."""
    if why_no_calls(bench) is not None:
        return
    async with bench.process() as peer:
        if not await bench.start(peer):
            return
        for tool in bench.callable_tools:
            for arguments in bench.arguments_of(tool):
                if not await _call(bench, peer, tool, arguments):
                    return
        first = bench.callable_tools[0]
        await _at_once(bench, peer, first)
        await bench.judge_odd_arguments(peer, first, judge_result)
        await peer.settle(bench.settings.quiet_seconds / 2, most=bench.settings.quiet_seconds)
        await shut_down_after_work(bench, peer, "octet.method.shutdown")


async def _call(bench: OctetBench, peer: OctetPeer, tool: ToolDefinition, arguments: Any) -> bool:
    """One call, judged; false when the process can no longer be used."""
    findings, seconds = bench.findings, bench.settings.answer_seconds
    call = await peer.ask("tool/call", bench.tool_params(peer, tool.name, arguments), seconds)
    if call.answer is None and peer.probe.output_ended:
        bench.no_answer(peer, "octet.method.tool-call", f"tool {quote(tool.name)}", seconds)
        bench.calls_end_it = True
        return False
    if call.answer is None:
        await peer.notify("$/cancelRequest", {"id": call.id, "reason": "timeout"})
        if not await peer.answered(call, _GRACE_SECONDS):
            what = f"tool {quote(tool.name)} was called {seconds:g} s before it was cancelled"
            bench.no_answer(peer, "octet.cancel.grace", what, _GRACE_SECONDS)
            bench.calls_end_it = True
            return False
        findings.passed("octet.cancel.grace")
        findings.skipped(f"tool {quote(tool.name)} takes longer than {seconds:g} s", *_RESULT)
        return True
    if call.failed:
        findings.judge(
            "octet.method.tool-call",
            call.error_code != _UNKNOWN_METHOD,
            f"tool {quote(tool.name)} of the catalogue is answered with {call.answer.get('error')}",
        )
        return True
    findings.passed("octet.method.tool-call")
    judge_result(bench, tool.name, call.result)
    return True


def judge_result(bench: OctetBench, tool: str, result: Any) -> None:
    """A result of ``tool/call``, fault by fault."""
    if result is None:
        return  # which was said of its frame
    faults = check(ToolCallResult, result)
    broken: set[str] = set()
    for fault in faults:
        if fault.path in ("structured_content", "metadata") and " at " in fault.problem:
            continue  # it has no canonical form, which was said of its frame
        rule = _RESULT[2]
        if fault.path.startswith("content"):
            rule = _RESULT[0]
        elif fault.path == "metadata" and fault.problem == "is missing":
            rule = _RESULT[1]
        broken.add(rule)
        bench.findings.failed(rule, f"result of tool {quote(tool)}: {fault}")
    for rule in _RESULT:
        if rule not in broken:
            bench.findings.passed(rule)


async def _at_once(bench: OctetBench, peer: OctetPeer, tool: ToolDefinition) -> None:
    assert peer.selection is not None
    rule, seconds = "octet.tool-call.concurrency", bench.settings.answer_seconds
    if not bench.reads_several:
        bench.findings.skipped("frames that arrive together are not read", rule)
        return
    count = min(4, peer.selection.limits.max_concurrent_requests)
    params = bench.tool_params(peer, tool.name, bench.arguments_of(tool)[0])
    ids: list[Any] = [None, MAX_PORTABLE_INTEGER, "string-id-\u00e9", None]
    prepared = [peer.prepare("tool/call", params, ids[index]) for index in range(count)]
    await peer.probe.write(b"".join(data for _, data in prepared), seconds)
    calls = [call for call, _ in prepared]
    await peer.probe.until(lambda: all(call.answer is not None for call in calls), seconds)
    silent = [call for call in calls if call.answer is None]
    if silent:
        for call in silent:
            await peer.notify("$/cancelRequest", {"id": call.id})
        if await peer.probe.until(lambda: all(call.answer is not None for call in silent), _GRACE_SECONDS):
            bench.findings.skipped(f"tool {quote(tool.name)} takes longer than {seconds:g} s", rule)
            return
        what = f"{count} calls of tool {quote(tool.name)} at once, of which {len(silent)} were not answered"
        bench.no_answer(peer, rule, what, seconds)
        return
    bench.findings.passed(rule, f"{count} at once")


async def cancel_calls(bench: OctetBench) -> None:
    """Call and cancel in one write; then cancel what has ended or never was."""
    if not bench.reads_several:
        reason = "frames that arrive together are not read"
        bench.findings.skipped(reason, "octet.cancel.grace", "octet.cancel.terminal-result", "octet.cancel.settled")
        return
    async with bench.process() as peer:
        if not await bench.start(peer):
            return
        for tool in bench.callable_tools[:4]:
            for arguments in bench.arguments_of(tool)[:1]:
                if not await _cancelled(bench, peer, tool, arguments):
                    return
        rule, seconds = "octet.cancel.settled", bench.settings.answer_seconds
        for request_id in (1, 9_000_002, "never-sent"):
            await peer.notify("$/cancelRequest", {"id": request_id, "reason": "user"})
        if not await bench.still_answers(peer):
            bench.no_answer(peer, rule, "a request after cancels of settled and unknown ids", seconds)
            return
        await peer.settle(bench.settings.quiet_seconds / 2, most=bench.settings.quiet_seconds)
        bench.findings.passed(rule)


async def _cancelled(bench: OctetBench, peer: OctetPeer, tool: ToolDefinition, arguments: Any) -> bool:
    params = bench.tool_params(peer, tool.name, arguments)
    call, data = peer.prepare("tool/call", params)
    cancel = canonical.encode(notification("$/cancelRequest", {"id": call.id, "reason": "user"})) + b"\n"
    await peer.probe.write(data + cancel)
    if not await peer.answered(call, _GRACE_SECONDS):
        what = f"tool {quote(tool.name)}, cancelled in the write that called it"
        bench.no_answer(peer, "octet.cancel.grace", what, _GRACE_SECONDS)
        return False
    bench.findings.passed("octet.cancel.grace")
    if not await bench.still_answers(peer):
        what = f"a request after tool {quote(tool.name)} was cancelled, perhaps when it had answered"
        bench.no_answer(peer, "octet.cancel.settled", what, bench.settings.answer_seconds)
        return False
    if not call.failed or call.error_code == _REQUEST_CANCELLED or not bench.errors_are_right:
        bench.findings.passed("octet.cancel.terminal-result")
        return True
    again = await peer.ask("tool/call", params, bench.settings.answer_seconds)
    if again.answer is None:
        await peer.notify("$/cancelRequest", {"id": again.id})
    bench.findings.judge(
        "octet.cancel.terminal-result",
        again.failed,
        f"tool {quote(tool.name)} answered the cancelled call with {_error(call)}, and an ordinary one with no error",
    )
    return True


def _error(call: Call) -> Any:
    return None if call.answer is None else call.answer.get("error")


async def unknown_method(bench: OctetBench, peer: OctetPeer) -> None:
    """A method that does not exist."""
    rule, method = "octet.method.unknown", "conformance/no-such-method"
    call = await peer.request(method, {})
    # Whoever answers the request behind it has read this one; the rest is a moment for slower threads.
    if bench.reads_several:
        await bench.still_answers(peer)
    await peer.answered(call, bench.settings.quiet_seconds)
    if call.answer is None:
        bench.no_answer(peer, rule, f"{method}, which was not selected", bench.settings.quiet_seconds)
        return
    right = call.error_code == _UNKNOWN_METHOD or (call.failed and not bench.errors_are_right)
    bench.findings.judge(rule, right, f"{method} was answered with {call.answer}")
