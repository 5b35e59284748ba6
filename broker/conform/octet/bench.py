"""Starting processes of one extension of API 0.3, and getting each through ``initialize``."""

from __future__ import annotations

from typing import Any

from attrs import define

from broker.conform.bench import ExtensionBench
from broker.conform.octet.peer import OctetPeer
from broker.conform.octet.selection import judge_selection
from broker.limits import MAX_CONFORM_TOOLS
from broker.wire.octet.contract import build_offer
from broker.wire.octet.models import ContractOffer, ProtocolLimits, ToolDefinition
from broker.wire.octet.schema import encode


@define(eq=False, kw_only=True)
class OctetBench(ExtensionBench[OctetPeer]):
    """What all scenarios of one extension share. ``tools`` are known once the first process has answered."""

    tools: tuple[ToolDefinition, ...] = ()
    capabilities: frozenset[str] = frozenset()
    calls_end_it: bool = False

    def new_peer(self, workspace: str) -> OctetPeer:
        """What speaks to a new process."""
        return OctetPeer(findings=self.findings, workspace=workspace)

    def offer(self, *, limits: ProtocolLimits | None = None, bare: bool = False) -> ContractOffer:
        """A complete offer of what this extension may select, or with ``bare`` of the required set alone."""
        bound = ["lifecycle_events"] if self.manifest.session_hooks else []
        if not bare:
            bound += ["migration.adapter.v1", "session_lifecycle"]
            if self.manifest.runtime.sharing == "isolated":
                bound.append("event_bus")
            if self.manifest.contributes.providers:
                bound += ["provider_auth", "provider_catalog", "provider_stream"]
        return build_offer(bound, limits=limits)

    def initialize_params(self, offer: ContractOffer, workspace: str) -> dict[str, Any]:
        """The parameters of ``initialize``."""
        return {**self.common_params(workspace), "contract": encode(offer)}

    async def start(self, peer: OctetPeer, offer: ContractOffer | None = None, *, what: str = "a full offer") -> bool:
        """Initialize ``peer`` and judge its selection; whether it may be used. Faults are findings."""
        offer = offer or self.offer()
        peer.bound = offer.limits.max_frame_bytes
        call, data = peer.prepare("initialize", self.initialize_params(offer, peer.workspace))
        await peer.probe.write(data, self.settings.answer_seconds)
        if not await peer.answered(call, self.settings.answer_seconds):
            self.no_answer(peer, "octet.initialize.answered", f"initialize with {what}", self.settings.answer_seconds)
            return False
        return self.accept(peer, offer, what=what)

    def accept(self, peer: OctetPeer, offer: ContractOffer, *, what: str) -> bool:
        """Judge the answer to ``initialize`` that has come; whether the process may be used."""
        call = peer.calls[int, 1]
        self.findings.passed("octet.initialize.answered", f"after {call.answered_at - call.sent_at:.3f} s")
        if call.failed:
            self.findings.failed("octet.initialize.no-error", f"{what}: answered with {call.answer}")
            return False
        self.findings.passed("octet.initialize.no-error")
        selection = judge_selection(call.result, offer=offer, manifest=self.manifest, findings=self.findings, what=what)
        if selection is None:
            return False
        peer.select(selection)
        self.tools, self.capabilities = selection.tools, selection.capabilities
        return True

    def tool_params(self, peer: OctetPeer, name: str, arguments: Any) -> dict[str, Any]:
        """The parameters of ``tool/call``."""
        context: dict[str, Any] = {
            "workspace": peer.workspace,
            "execution_scope": "session",
            "resource_owner": None,
            "host": {},
        }
        return {"name": name, "arguments": arguments, "context": context}

    @property
    def callable_tools(self) -> tuple[ToolDefinition, ...]:
        """The tools that may be called, a bounded number of them."""
        return self.tools[:MAX_CONFORM_TOOLS] if self.settings.allow_calls and not self.calls_end_it else ()

    @property
    def reads_several(self) -> bool:
        """Whether frames that arrive together, or in pieces, have been read so far."""
        rules = ("octet.framing.chunk-independent", "octet.framing.several-in-one-chunk")
        return not any(self.findings.is_failed(rule) for rule in rules)

    @property
    def errors_are_right(self) -> bool:
        """Whether the errors seen so far had a code at all that could be judged."""
        rules = ("octet.envelope.error-pair", "octet.envelope.error-shape")
        return not any(self.findings.is_failed(rule) for rule in rules)
