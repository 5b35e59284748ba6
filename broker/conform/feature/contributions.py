"""What an extension of API 0.1, 0.2 or 0.4 contributes beside tools: commands, collections, renderers, hooks."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from broker.conform.feature.bench import FeatureBench
from broker.conform.feature.peer import FeaturePeer
from broker.errors import BrokerError
from broker.wire.feature.results import (
    decode_command_result,
    decode_context,
    decode_hook_result,
    decode_menu,
    decode_rendering,
    decode_status,
)

_SESSION_HOOKS = ("session_start", "session_end")


async def contribute(bench: FeatureBench) -> None:
    """Ask for everything the manifest contributes."""
    given, findings = bench.manifest.contributes, bench.findings
    hooks = [hook for hook in _SESSION_HOOKS if hook in given.hooks and bench.version != "0.1"]
    if not given.commands:
        findings.skipped("it contributes no commands", "octet.legacy.command")
    if not (given.context or given.ui or given.menu):
        findings.skipped("it contributes no context, status or menu", "octet.legacy.collect")
    if not given.tool_renderers:
        findings.skipped("it contributes no renderers", "octet.legacy.render")
    if not hooks:
        findings.skipped("it declares no session hooks", "octet.legacy.session-hooks")
    async with bench.process() as peer:
        if not await bench.start(peer):
            return
        context = bench.context(peer)
        ask = _Asker(bench, peer)
        for hook in hooks[:1]:
            await ask("octet.legacy.session-hooks", "hook/run", _hook(bench, hook, context), decode_hook_result(hook))
        for name in given.commands if bench.settings.allow_calls else ():
            params = {"name": name, "arguments": [], "context": context}
            await ask("octet.legacy.command", "command/execute", params, decode_command_result)
        if given.context:
            params = {"prompt": "conformance", "context": context}
            await ask("octet.legacy.collect", "context/collect", params, decode_context)
        for surface in given.ui:
            params = {"surface": surface, "context": context}
            await ask("octet.legacy.collect", "status/collect", params, decode_status(surface))
        if given.menu:
            await ask("octet.legacy.collect", "menu/collect", {"context": context}, decode_menu)
        for name in given.tool_renderers:
            shown = {"name": name, "arguments": {}, "output": "", "is_error": False, "context": context}
            await ask("octet.legacy.render", "tool/render", shown, decode_rendering)
        for hook in hooks[1:]:
            await ask("octet.legacy.session-hooks", "hook/run", _hook(bench, hook, context), decode_hook_result(hook))
        await peer.probe.quiet(bench.settings.quiet_seconds / 2)


def _hook(bench: FeatureBench, hook: str, context: dict[str, Any]) -> dict[str, Any]:
    binding = {
        "session_id": "conformance",
        "extension_instance_id": bench.instance_id,
        "process_generation": 1,
    }
    payload: dict[str, Any] = {"binding": binding}
    if hook == "session_end":
        payload |= {"outcome": "completed", "reason": "shutdown", "duration_ms": 1}
    return {"hook": hook, "payload": payload, "context": context}


class _Asker:
    """Asks one process, and judges each answer with the decoder a host uses; silent once an answer did not come."""

    def __init__(self, bench: FeatureBench, peer: FeaturePeer) -> None:
        self._bench = bench
        self._peer = peer

    async def __call__(self, rule: str, method: str, params: dict[str, Any], decoder: Callable[[Any], Any]) -> None:
        bench, peer, seconds = self._bench, self._peer, self._bench.settings.answer_seconds
        if peer.blamed:
            return
        call = await peer.ask(method, params, seconds)
        if call.answer is None:
            bench.no_answer(peer, rule, method, seconds)
            return
        if call.failed:
            bench.findings.failed(rule, f"{method} was answered with {call.answer}")
            return
        try:
            decoder(call.result)
        except BrokerError as error:
            bench.findings.failed(rule, f"{error}; the result is {call.result!r}")
        else:
            bench.findings.passed(rule)
