"""Starting processes of one extension of API 0.1, 0.2 or 0.4, and getting each through ``initialize``."""

from __future__ import annotations

import secrets
from typing import Any, Final

from attrs import define, field

from broker.conform.bench import ExtensionBench
from broker.conform.feature.peer import FeaturePeer
from broker.errors import Fault, NegotiationError
from broker.limits import CONFORM_DRIBBLE_MS, CONFORM_DRIBBLED_BYTES, MAX_CONFORM_TOOLS
from broker.wire.feature.features import Version, offered_features, version_of
from broker.wire.feature.negotiation import Agreement, Declared, Offer, judge_answer
from broker.wire.octet.models import ToolDefinition

_SERVICES: Final = ("progress", "dynamic_tools", "artifacts", "policy")
_HONOURED: Final = ("lifecycle_events",)
_JUDGED: Final = (
    *("octet.version.reply-mismatch", "octet.legacy.unknown-answer-member", "octet.legacy.tools-and-commands"),
    "octet.legacy.tool-definition",
)


@define(eq=False, kw_only=True)
class FeatureBench(ExtensionBench[FeaturePeer]):
    """What all scenarios of one extension share. ``agreement`` is known once the first process has answered."""

    agreement: Agreement | None = None
    instance_id: str = field(factory=lambda: secrets.token_hex(16))

    @property
    def version(self) -> Version:
        """The version of its wire."""
        return version_of(self.manifest.api_version)

    def new_peer(self, workspace: str) -> FeaturePeer:
        """What speaks to a new process."""
        given = self.manifest.contributes
        names = ("notifications", "confirmations", "context", "presentation", "ui")
        declares = {name for name in names if getattr(given, name)} | {f"ui.{surface}" for surface in given.ui}
        return FeaturePeer(
            findings=self.findings, workspace=workspace, version=self.version, declares=frozenset(declares)
        )

    def offer(self, *, bare: bool = False) -> Offer:
        """An offer of several features, or with ``bare`` of the required ones alone."""
        granted = [f"capabilities.{name}" for name in ("secrets",) if getattr(self.manifest.capabilities, name)]
        features = offered_features(
            self.version, services=_SERVICES, honoured=_HONOURED, withheld=("approvals",), grants=granted
        )
        return Offer(version=self.version, optional_features=() if bare else features, max_concurrent_requests=8)

    def initialize_params(self, offer: Offer, workspace: str) -> dict[str, Any]:
        """The parameters of ``initialize``."""
        params = self.common_params(workspace)
        if self.version == "0.1":
            del params["contributes"]["shortcuts"], params["flag_values"]
        else:
            params["protocol"] = offer.protocol_json()
        return params

    async def start(
        self, peer: FeaturePeer, *, offer: Offer | None = None, what: str = "an offer", dribble: bool = False
    ) -> bool:
        """Initialize ``peer`` and judge its answer; whether it may be used. Faults are findings."""
        offer, seconds = offer or self.offer(), self.settings.answer_seconds
        call, data = peer.prepare("initialize", self.initialize_params(offer, peer.workspace))
        if dribble:
            await peer.probe.dribble(data, CONFORM_DRIBBLED_BYTES, seconds + CONFORM_DRIBBLE_MS / 1000)
        else:
            await peer.probe.write(data)
        if not await peer.answered(call, seconds):
            rule = "octet.framing.chunk-independent" if dribble else "octet.initialize.answered"
            self.no_answer(peer, rule, f"initialize with {what}", seconds)
            return False
        self.findings.passed("octet.initialize.answered")
        if call.failed:
            self.findings.failed("octet.initialize.no-error", f"{what}: answered with {call.answer}")
            return False
        self.findings.passed("octet.initialize.no-error")
        given = self.manifest.contributes
        declared = Declared(
            tools=given.tools,
            commands=given.commands,
            tool_renderers=given.tool_renderers,
            shortcuts=tuple(shortcut.name for shortcut in given.shortcuts),
        )
        try:
            agreement = judge_answer(call.result, offer=offer, declared=declared)
        except NegotiationError as error:
            for fault in error.faults:
                self.findings.failed(answer_rule(fault), f"{what}: {fault}")
            if not error.faults:
                self.findings.failed("octet.legacy.unknown-answer-member", f"{what}: {error}")
            return False
        self.agreement = agreement
        peer.agree(agreement)
        of_version = ("octet.legacy.v01-frozen",) if self.version == "0.1" else ("octet.legacy.features",)
        more = () if self.version == "0.1" else ("octet.legacy.concurrency", "octet.legacy.lifecycle-events")
        for rule in (*_JUDGED, *of_version, *more):
            self.findings.passed(rule)
        return True

    @property
    def callable_tools(self) -> tuple[ToolDefinition, ...]:
        """The tools of the catalogue that may be called, a bounded number of them."""
        if self.agreement is None or not self.settings.allow_calls:
            return ()
        return self.agreement.tools[:MAX_CONFORM_TOOLS]

    def context(self, peer: FeaturePeer) -> dict[str, Any]:
        """The ``context`` of a request."""
        context: dict[str, Any] = {"workspace": peer.workspace, "execution_scope": "session", "host": {}}
        if self.version != "0.1":
            context["resource_owner"] = {
                "session_id": "conformance",
                "extension_instance_id": self.instance_id,
                "process_generation": 1,
            }
        return context

    def tool_params(self, peer: FeaturePeer, name: str, arguments: Any) -> dict[str, Any]:
        """The parameters of ``tool/call``."""
        return {"name": name, "arguments": arguments, "context": self.context(peer)}


def answer_rule(fault: Fault) -> str:
    """The id of the rule that a fault of an answer to ``initialize`` breaks."""
    path = fault.path
    if fault.name == "version_mismatch":
        return "octet.version.reply-mismatch"
    if "is not part of API 0.1" in fault.problem and path in ("protocol", "shortcuts"):
        return "octet.legacy.v01-frozen"
    if "known member" in fault.problem or ("is missing" in fault.problem and "of the manifest" not in fault.problem):
        return "octet.legacy.tool-definition" if path.startswith("tools[") else "octet.legacy.unknown-answer-member"
    if path.startswith("protocol.features"):
        return "octet.legacy.features"
    if path.startswith("protocol.limits"):
        return "octet.legacy.concurrency"
    if path.startswith("protocol.lifecycle_events"):
        return "octet.legacy.lifecycle-events"
    if fault.name == "capability_mismatch":
        return "octet.legacy.tools-and-commands"
    return "octet.legacy.tool-definition" if path.startswith("tools[") else "octet.legacy.unknown-answer-member"
