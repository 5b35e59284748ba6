"""Starting processes of one extension of API 0.3, and getting each through ``initialize``."""

from __future__ import annotations

import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from attrs import define

from broker.adapters.discovery import resolve_entrypoint
from broker.adapters.guard import OrphanGuard
from broker.adapters.process import build_environment
from broker.conform.findings import Findings
from broker.conform.octet.peer import NO_SUCH_TOOL, OctetPeer
from broker.conform.octet.selection import judge_selection
from broker.conform.probe import Probe
from broker.conform.schema_arguments import make_arguments
from broker.conform.settings import ConformSettings
from broker.conform.workspace import make_workspace
from broker.limits import MAX_CONFORM_STDERR_BYTES, MAX_CONFORM_TOOLS
from broker.wire.octet.contract import build_offer
from broker.wire.octet.manifest_model import HOST_VERSION, Manifest
from broker.wire.octet.models import ContractOffer, ProtocolLimits, ToolDefinition
from broker.wire.octet.schema import encode
from broker.wire.quoting import quote


@define(eq=False)
class OctetBench:
    """What all scenarios of one extension share. ``tools`` are known once the first process has answered."""

    manifest: Manifest
    settings: ConformSettings
    findings: Findings
    guard: OrphanGuard
    tools: tuple[ToolDefinition, ...] = ()
    capabilities: frozenset[str] = frozenset()
    answers_unknown_tool: bool = True
    calls_end_it: bool = False

    @asynccontextmanager
    async def process(self) -> AsyncIterator[OctetPeer]:
        """A new process; ended when this is left. Raises :class:`~broker.errors.SetupError` when there can be none."""
        with make_workspace(self.settings.workspace) as (workspace, scratch):
            argv = resolve_entrypoint(self.manifest, workspace)
            env = build_environment(
                self.manifest,
                host_environ=os.environ,
                workspace=workspace,
                scratch=scratch,
                manifest_path=self.manifest.path,
            )
            peer = OctetPeer(self.findings)
            peer.probe = Probe(
                argv,
                cwd=workspace,
                env=env,
                guard=self.guard,
                on_line=peer.receive_line,
                on_rest=peer.receive_rest,
            )
            async with peer.probe as probe:
                peer.workspace = workspace
                yield peer
                self._judge_stderr(probe)
                if peer.selection is not None and not peer.may_end and not peer.blamed:
                    alive = probe.exit_status is None and not probe.output_ended
                    self.findings.judge("octet.process.stays-alive", alive, probe.ending())

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
        manifest = self.manifest
        return {
            "api_version": manifest.api_version,
            "octet_version": HOST_VERSION,
            "extension": manifest.extension_json("explicit"),
            "workspace": workspace,
            "capabilities": manifest.capabilities_json(),
            "contributes": manifest.contributes_json(),
            "flag_values": manifest.flag_values({}),
            "host": {
                "session_id": None,
                "session_name": None,
                "model": None,
                "reasoning": None,
                "active_skills": [],
            },
            "contract": encode(offer),
        }

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

    def tool_params(self, name: str, arguments: Any, workspace: str) -> dict[str, Any]:
        """The parameters of ``tool/call``."""
        context: dict[str, Any] = {
            "workspace": workspace,
            "execution_scope": "session",
            "resource_owner": None,
            "host": {},
        }
        return {"name": name, "arguments": arguments, "context": context}

    def arguments_of(self, tool: ToolDefinition) -> tuple[Any, ...]:
        """What ``tool`` is called with; nothing if it is not to be called."""
        if not self.settings.allow_calls:
            return ()
        return self.settings.calls.get(tool.name) or (make_arguments(tool.parameters),)

    @property
    def callable_tools(self) -> tuple[ToolDefinition, ...]:
        """The tools that may be called, a bounded number of them."""
        return self.tools[:MAX_CONFORM_TOOLS] if self.settings.allow_calls and not self.calls_end_it else ()

    def sync_params(self, peer: OctetPeer) -> dict[str, Any] | None:
        """Parameters of a ``tool/call`` that is answered and does as little as may be; ``None`` if there are none.

        That is a tool that does not exist, or where nothing is said to that, the first that does.
        """
        if self.answers_unknown_tool:
            return self.tool_params(NO_SUCH_TOOL, {}, peer.workspace)
        for tool in self.callable_tools[:1]:
            return self.tool_params(tool.name, self.arguments_of(tool)[0], peer.workspace)
        return None

    async def still_answers(self, peer: OctetPeer) -> bool:
        """Whether the process is there and, where that can be told, answers."""
        params = self.sync_params(peer)
        if params is None:
            await peer.probe.quiet(self.settings.quiet_seconds)
            return peer.probe.exit_status is None and not peer.probe.output_ended
        return (await peer.ask("tool/call", params, self.settings.answer_seconds)).answer is not None

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

    def no_answer(self, peer: OctetPeer, rule: str, what: str, seconds: float) -> None:
        """The failure of ``rule``: no answer came, or none that ended with LF."""
        peer.blamed = True
        rest = peer.probe.take_unterminated()
        if rest is not None:
            what = f"{what}: the answer has no LF: {quote(rest)}"
            self.findings.failed("octet.framing.lf-terminated", what)
            return
        self.findings.failed(rule, f"{what}: no answer within {seconds:g} s; {peer.probe.ending()}")

    def _judge_stderr(self, probe: Probe) -> None:
        self.findings.judge(
            "octet.process.stderr-bounded",
            probe.stderr_bytes <= MAX_CONFORM_STDERR_BYTES,
            f"{probe.stderr_bytes} bytes on stderr: {probe.stderr_tail[-100:]}",
        )
