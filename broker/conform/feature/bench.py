"""Starting processes of one extension of API 0.1, 0.2 or 0.4, and getting each through ``initialize``."""

from __future__ import annotations

import os
import secrets
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any, Final

from attrs import define, field

from broker.adapters.discovery import resolve_entrypoint
from broker.adapters.guard import OrphanGuard
from broker.adapters.process import build_environment
from broker.conform.feature.peer import FeaturePeer
from broker.conform.findings import Findings
from broker.conform.probe import Probe
from broker.conform.schema_arguments import make_arguments
from broker.conform.settings import ConformSettings
from broker.conform.workspace import make_workspace
from broker.errors import Fault, NegotiationError
from broker.limits import MAX_CONFORM_STDERR_BYTES, MAX_CONFORM_TOOLS
from broker.wire.feature.features import Version, offered_features, version_of
from broker.wire.feature.negotiation import Agreement, Declared, Offer, judge_answer
from broker.wire.octet.manifest_model import HOST_VERSION, Manifest
from broker.wire.octet.models import ToolDefinition
from broker.wire.quoting import quote

NO_SUCH_TOOL: Final = "conformance-no-such-tool"
_SERVICES: Final = ("progress", "dynamic_tools", "artifacts", "policy")
_HONOURED: Final = ("lifecycle_events",)
_JUDGED: Final = (
    *("octet.version.reply-mismatch", "octet.legacy.unknown-answer-member", "octet.legacy.tools-and-commands"),
    "octet.legacy.tool-definition",
)


@define(eq=False)
class FeatureBench:
    """What all scenarios of one extension share. ``agreement`` is known once the first process has answered."""

    manifest: Manifest
    settings: ConformSettings
    findings: Findings
    guard: OrphanGuard
    agreement: Agreement | None = None
    answers_unknown_tool: bool = True
    instance_id: str = field(factory=lambda: secrets.token_hex(16))

    @property
    def version(self) -> Version:
        """The version of its wire."""
        return version_of(self.manifest.api_version)

    @asynccontextmanager
    async def process(self) -> AsyncIterator[FeaturePeer]:
        """A new process; ended when this is left. Raises :class:`~broker.errors.SetupError` when there can be none."""
        given = self.manifest.contributes
        names = ("notifications", "confirmations", "context", "presentation", "ui")
        declares = frozenset(name for name in names if getattr(given, name))
        declares |= frozenset(f"ui.{surface}" for surface in given.ui)
        with make_workspace(self.settings.workspace) as (workspace, scratch):
            env = build_environment(
                self.manifest,
                host_environ=os.environ,
                workspace=workspace,
                scratch=scratch,
                manifest_path=self.manifest.path,
            )
            peer = FeaturePeer(self.findings, self.version, declares, workspace)
            peer.probe = Probe(
                resolve_entrypoint(self.manifest, workspace),
                cwd=workspace,
                env=env,
                guard=self.guard,
                on_line=peer.receive_line,
                on_rest=peer.receive_rest,
            )
            async with peer.probe as probe:
                yield peer
                flood = f"{probe.stderr_bytes} bytes on stderr: {probe.stderr_tail[-100:]}"
                kept = probe.stderr_bytes <= MAX_CONFORM_STDERR_BYTES
                self.findings.judge("octet.process.stderr-bounded", kept, flood)
                if peer.agreement is not None and not peer.may_end and not peer.blamed:
                    alive = probe.exit_status is None and not probe.output_ended
                    self.findings.judge("octet.process.stays-alive", alive, probe.ending())

    def offer(self, *, bare: bool = False) -> Offer:
        """An offer of several features, or with ``bare`` of the required ones alone."""
        granted = [f"capabilities.{name}" for name in ("secrets",) if getattr(self.manifest.capabilities, name)]
        features = offered_features(
            self.version, services=_SERVICES, honoured=_HONOURED, withheld=("approvals",), grants=granted
        )
        return Offer(version=self.version, optional_features=() if bare else features, max_concurrent_requests=8)

    def initialize_params(self, offer: Offer, workspace: str) -> dict[str, Any]:
        """The parameters of ``initialize``."""
        manifest = self.manifest
        contributes = manifest.contributes_json()
        params: dict[str, Any] = {
            "api_version": manifest.api_version,
            "octet_version": HOST_VERSION,
            "extension": manifest.extension_json("explicit"),
            "workspace": workspace,
            "capabilities": manifest.capabilities_json(),
            "contributes": contributes,
            "host": {
                "session_id": None,
                "session_name": None,
                "model": None,
                "reasoning": None,
                "active_skills": [],
            },
        }
        if self.version == "0.1":
            del contributes["shortcuts"]
        else:
            params["flag_values"] = manifest.flag_values({})
            params["protocol"] = offer.protocol_json()
        return params

    async def start(
        self, peer: FeaturePeer, *, offer: Offer | None = None, what: str = "an offer", dribble: bool = False
    ) -> bool:
        """Initialize ``peer`` and judge its answer; whether it may be used. Faults are findings."""
        offer, seconds = offer or self.offer(), self.settings.answer_seconds
        call, data = peer.prepare("initialize", self.initialize_params(offer, peer.workspace))
        if dribble:
            await peer.probe.dribble(data, 64, seconds + 10.0)
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
    def tools(self) -> tuple[ToolDefinition, ...]:
        """The tools of the catalogue that may be called, a bounded number of them."""
        if self.agreement is None or not self.settings.allow_calls:
            return ()
        return self.agreement.tools[:MAX_CONFORM_TOOLS]

    def arguments_of(self, tool: ToolDefinition) -> tuple[Any, ...]:
        """What ``tool`` is called with."""
        return self.settings.calls.get(tool.name) or (make_arguments(tool.parameters),)

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

    def sync_params(self, peer: FeaturePeer) -> dict[str, Any] | None:
        """Parameters of a ``tool/call`` that is answered and does as little as may be; ``None`` if there are none."""
        if self.answers_unknown_tool:
            return self.tool_params(peer, NO_SUCH_TOOL, {})
        for tool in self.tools[:1]:
            return self.tool_params(peer, tool.name, self.arguments_of(tool)[0])
        return None

    async def still_answers(self, peer: FeaturePeer) -> bool:
        """Whether the process is there and, where that can be told, answers."""
        params = self.sync_params(peer)
        if params is None:
            await peer.probe.quiet(self.settings.quiet_seconds)
            return peer.probe.exit_status is None and not peer.probe.output_ended
        return (await peer.ask("tool/call", params, self.settings.answer_seconds)).answer is not None

    def no_answer(self, peer: FeaturePeer, rule: str, what: str, seconds: float) -> None:
        """The failure of ``rule``: no answer came, or none that ended with LF."""
        peer.blamed = True
        rest = peer.probe.take_unterminated()
        if rest is not None:
            what = f"{what}: the answer has no LF: {quote(rest)}"
            self.findings.failed("octet.framing.lf-terminated", what)
            return
        self.findings.failed(rule, f"{what}: no answer within {seconds:g} s; {peer.probe.ending()}")


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
