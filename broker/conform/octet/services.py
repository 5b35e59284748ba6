"""The optional services of an extension: session hooks, migration, providers of models."""

from __future__ import annotations

import hashlib
import secrets
import tempfile
from pathlib import Path
from typing import Any, Final

from attrs import define, field

from broker.conform.octet.bench import OctetBench
from broker.conform.octet.peer import Incoming, OctetPeer
from broker.conform.rules_octet import OCTET_RULES
from broker.errors import BrokerError
from broker.host import Principal
from broker.host.services import ProviderRegistry
from broker.limits import CANCEL_GRACE_MS
from broker.wire.octet.migration_models import MigrationDetectResult, MigrationImportResult
from broker.wire.octet.models import SessionHookResult
from broker.wire.octet.provider_models import ProviderRegisterParams, ProviderUpdateParams
from broker.wire.octet.schema import check, decode, encode
from broker.wire.octet.stream_models import PAYLOADS, ProviderStreamAccepted

_HOOK: Final = ("octet.hook.answered", "octet.hook.bad-result")
_MIGRATION: Final = tuple(rule for rule in OCTET_RULES if rule.startswith("octet.migration."))
_PROVIDER: Final = tuple(rule for rule in OCTET_RULES if rule.startswith("octet.provider."))
_STREAM: Final = tuple(rule for rule in _PROVIDER if ".stream-" in rule)
_GRACE_SECONDS: Final = CANCEL_GRACE_MS / 1000
_QUESTION: Final = {"messages": [{"role": "user", "content": "Say hello."}]}


async def session_hooks(bench: OctetBench) -> None:
    """Tell of the start and the end of a session."""
    if "lifecycle_events" not in bench.capabilities:
        bench.findings.skipped("it declares no session hooks", *_HOOK)
        return
    async with bench.process() as peer:
        if not await bench.start(peer):
            return
        binding = {
            "session_id": secrets.token_hex(16),
            "extension_instance_id": secrets.token_hex(16),
            "process_generation": 1,
        }
        ended = {"binding": binding, "outcome": "completed", "reason": "shutdown", "duration_ms": 1}
        for hook, payload in (("session_start", {"binding": binding}), ("session_end", ended)):
            call = await peer.ask("hook/run", {"hook": hook, "payload": payload}, _GRACE_SECONDS)
            if call.answer is None:
                bench.no_answer(peer, _HOOK[0], f"hook {hook}", _GRACE_SECONDS)
                return
            bench.findings.passed(_HOOK[0], f"{hook} after {call.answered_at - call.sent_at:.3f} s")
            faults = check(SessionHookResult, call.result)
            bench.findings.judge(_HOOK[1], not faults, f"hook {hook} was answered with {call.answer}")


async def migrate(bench: OctetBench) -> None:
    """Have a migration adapter detect and import."""
    if "migration.adapter.v1" not in bench.capabilities:
        bench.findings.skipped("it is no migration adapter", *_MIGRATION)
        return
    with tempfile.TemporaryDirectory(prefix="broker-conform-source-") as empty:
        root = _resolved(bench.settings.source_root or empty)
        before = _tree(root)
        async with bench.process() as peer:
            if await bench.start(peer):
                await _migrate(bench, peer, str(root))
        bench.findings.judge("octet.migration.read-only", _tree(root) == before, f"something below {root} has changed")


async def _migrate(bench: OctetBench, peer: OctetPeer, root: str) -> None:
    paths: list[str] = []
    for method, model in (("detect", MigrationDetectResult), ("import", MigrationImportResult)):
        rule, seconds = f"octet.migration.{method}", bench.settings.answer_seconds
        params: dict[str, Any] = {"source_root": root}
        if method == "import":
            params["config_paths"] = paths
        call = await peer.ask(f"migration/{method}", params, seconds)
        if call.answer is None:
            bench.no_answer(peer, rule, f"migration/{method}", seconds)
            return
        faults = check(model, call.result)
        bench.findings.judge(rule, not faults, f"answered with {call.answer}: {'; '.join(map(str, faults[:3]))}")
        if faults:
            return
        paths = list(dict.fromkeys(call.result.get("config_paths", paths)))


def _resolved(path: str) -> Path:
    return Path(path).resolve()


def _tree(root: Path) -> dict[str, str]:
    """What is below ``root``, each file with a digest of its content."""
    return {
        str(path.relative_to(root)): hashlib.sha256(path.read_bytes()).hexdigest() if path.is_file() else ""
        for path in sorted(root.rglob("*"))
    }


# -- providers ---------------------------------------------------------------------------------------------------------


@define(eq=False)
class _Catalogue:
    """A registry that only this extension declares providers in."""

    bench: OctetBench
    registry: ProviderRegistry = field(factory=ProviderRegistry)
    owner: Principal = field(factory=lambda: Principal("conformance", "conformance", secrets.token_hex(16), 1))
    complete: bool = False

    def declare(self, incoming: Incoming) -> dict[str, Any]:
        method = incoming.method
        try:
            if method == "providers/unregister":
                return encode(self.registry.unregister(self.owner, incoming.params["provider_id"]))
            if method == "providers/register":
                new = decode(ProviderRegisterParams, incoming.params)
                result = encode(self.registry.register(self.owner, new.provider, new.models))
            else:
                changed = decode(ProviderUpdateParams, incoming.params)
                result = encode(self.registry.update(self.owner, changed.provider, changed.models))
        except BrokerError as error:
            self.bench.findings.failed("octet.provider.register", f"{method} refused: {error}")
            raise
        self.bench.findings.passed("octet.provider.register")
        return result

    def completed(self, incoming: Incoming) -> None:
        self.complete = True

    @property
    def models(self) -> list[tuple[str, str]]:
        """Provider and model of everything that can be asked."""
        return [
            (provider.definition.id, model.id)
            for provider in self.registry.providers
            for model in provider.models
            if provider.definition.auth.kind == "none"
        ]


async def provide(bench: OctetBench) -> None:
    """Take the declarations of a provider, and open streams of its models."""
    if "provider_catalog" not in bench.capabilities:
        bench.findings.skipped("it provides no models", *_PROVIDER)
        return
    async with bench.process() as peer:
        catalogue = _Catalogue(bench)
        for method in ("register", "update", "unregister"):
            peer.handlers[f"providers/{method}"] = catalogue.declare
        peer.handlers["providers/complete"] = catalogue.completed
        peer.handlers["provider/event"] = lambda incoming: None
        if not await bench.start(peer) or peer.selection is None:
            return
        seconds = bench.settings.answer_seconds
        complete = await peer.probe.until(lambda: catalogue.complete, seconds)
        await peer.flush()
        bench.findings.judge("octet.provider.complete", complete, f"no providers/complete within {seconds:g} s")
        if "provider/stream" not in peer.selection.methods or not bench.settings.allow_calls:
            reason = "no stream is to be opened" if not bench.settings.allow_calls else "it does not select streams"
            bench.findings.skipped(reason, *_STREAM)
            return
        if not catalogue.models:
            bench.findings.skipped("no model can be asked without authorisation", *_STREAM)
        for provider, model in catalogue.models[:2]:
            if not await _stream(bench, peer, provider, model):
                return
            await _cancelled_stream(bench, peer, provider, model)


def _events(peer: OctetPeer, stream_id: str) -> list[dict[str, Any]]:
    return [
        notice.params
        for notice in peer.notices
        if notice.method == "provider/event" and notice.params["stream_id"] == stream_id
    ]


def _ended(peer: OctetPeer, stream_id: str) -> bool:
    return any(event["kind"] in ("finished", "error") for event in _events(peer, stream_id))


async def _stream(bench: OctetBench, peer: OctetPeer, provider: str, model: str) -> bool:
    findings, seconds, stream_id = bench.findings, bench.settings.answer_seconds, f"conformance-{secrets.token_hex(4)}"
    request = bench.settings.calls.get(f"{provider}/{model}", (_QUESTION,))[0]
    findings.has_use("--call", f"{provider}/{model}")
    params = {"stream_id": stream_id, "provider_id": provider, "model_id": model, "request": request}
    call = await peer.ask("provider/stream", params, seconds)
    if call.answer is None:
        bench.no_answer(peer, "octet.provider.stream-accepted", f"a stream of {provider}/{model}", seconds)
        return False
    faults = check(ProviderStreamAccepted, call.result)
    right = not faults and call.result["stream_id"] == stream_id
    findings.judge("octet.provider.stream-accepted", right, f"stream {stream_id} was answered with {call.answer}")
    if not right or not call.result["accepted"]:
        findings.skipped("the stream was not accepted", *_STREAM)
        return True
    await peer.probe.until(lambda: _ended(peer, stream_id), seconds)
    await peer.settle(bench.settings.quiet_seconds, most=2 * bench.settings.quiet_seconds)
    events = _events(peer, stream_id)
    numbers = [event["sequence"] for event in events]
    findings.judge("octet.provider.stream-sequence", numbers == [*range(len(numbers))], f"sequences {numbers[:40]}")
    for event in events:
        payload = PAYLOADS.get(event["kind"])
        faults = [] if payload is None else check(payload, event.get("payload"))
        findings.judge("octet.provider.stream-kinds", not faults, f"{event['kind']}: {'; '.join(map(str, faults))}")
    kinds = [event["kind"] for event in events]
    terminal = [index for index, kind in enumerate(kinds) if kind in ("finished", "error")]
    findings.judge(
        "octet.provider.stream-terminal", terminal == [len(kinds) - 1], f"the kinds of its events: {kinds[-12:]}"
    )
    return True


async def _cancelled_stream(bench: OctetBench, peer: OctetPeer, provider: str, model: str) -> None:
    rule, stream_id = "octet.provider.stream-cancel", f"conformance-{secrets.token_hex(4)}"
    params = {"stream_id": stream_id, "provider_id": provider, "model_id": model, "request": _QUESTION}
    call = await peer.ask("provider/stream", params, bench.settings.answer_seconds)
    await peer.notify("provider/cancel", {"stream_id": stream_id, "reason": "user"})
    if call.answer is None:
        return
    await peer.settle(bench.settings.quiet_seconds, most=_GRACE_SECONDS)
    silent = peer.probe.now - peer.probe.last_output_at >= bench.settings.quiet_seconds / 2
    ended = _ended(peer, stream_id) or silent
    alive = await bench.still_answers(peer)
    peer.blamed = peer.blamed or not alive
    bench.findings.judge(rule, ended and alive, f"after provider/cancel: {peer.probe.ending()}")
