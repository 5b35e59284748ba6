"""Starting the processes of one program under test, and what all scenarios of any family share."""

from __future__ import annotations

import asyncio
import json
import os
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, Final, Generic, Protocol, TypeVar

from attrs import define

from broker.adapters.discovery import resolve_entrypoint
from broker.adapters.guard import OrphanGuard
from broker.adapters.process import build_environment
from broker.conform.findings import Findings
from broker.conform.peer import Peer
from broker.conform.probe import Probe
from broker.conform.schema_arguments import make_arguments
from broker.conform.settings import ConformSettings
from broker.conform.workspace import make_workspace
from broker.limits import CONFORM_UNKNOWN_MS, MAX_CONFORM_PROCESSES, MAX_CONFORM_STDERR_BYTES
from broker.wire.octet.manifest_model import HOST_VERSION, Manifest
from broker.wire.octet.models import ToolDefinition
from broker.wire.quoting import quote

LINE_SEPARATORS: Final = "one\u2028two\u2029three\u0085four"
"""What Unicode takes for the end of a line, and no wire does: it stands in a string like any other character."""
NO_SUCH_TOOL: Final = "conformance-no-such-tool"
_ODD_ARGUMENTS: Final[tuple[Any, ...]] = ([], "text", 7, {"conformance-unknown": None})

P = TypeVar("P", bound=Peer)
B = TypeVar("B", bound="Bench[Any]")
B_contra = TypeVar("B_contra", bound="Bench[Any]", contravariant=True)


class Scenario(Protocol[B_contra]):
    """A function that tries one thing after another."""

    __name__: str

    def __call__(self, bench: B_contra, /) -> Awaitable[None]: ...


@define(eq=False, kw_only=True)
class Bench(Generic[P]):
    """What all scenarios of one program share."""

    settings: ConformSettings
    findings: Findings
    guard: OrphanGuard

    @asynccontextmanager
    async def run(self, peer: P, argv: Sequence[str], cwd: str, env: Mapping[str, str]) -> AsyncIterator[P]:
        """A process for ``peer``; when this is left it is ended, and judged by how it has been."""
        peer.probe = Probe(
            argv, cwd=cwd, env=env, guard=self.guard, on_line=peer.receive_line, on_rest=peer.receive_rest
        )
        async with peer.probe as probe:
            yield peer
            peer.judge_nameless()
            flood = f"{probe.stderr_bytes} bytes on stderr: {probe.stderr_tail[-100:]}"
            self.findings.judge(peer.rules.stderr, probe.stderr_bytes <= MAX_CONFORM_STDERR_BYTES, flood)
            if peer.ready and not peer.may_end and not peer.blamed:
                alive = probe.exit_status is None and not probe.output_ended
                self.findings.judge(peer.rules.stays_alive, alive, probe.ending())

    def no_answer(self, peer: P, rule: str, what: str, seconds: float) -> None:
        """The failure of ``rule``: no answer came, or none that ended with LF."""
        peer.blamed = True
        rest = peer.probe.take_unterminated()
        if rest is not None:
            self.findings.failed(peer.rules.last_line, f"{what}: the answer has no LF: {quote(rest)}")
            return
        self.findings.failed(rule, f"{what}: no answer {peer.probe.waited(seconds)}")

    async def judge_together(self, peer: P, rule: str, count: int, method: str, params: dict[str, Any]) -> bool:
        """Whether ``count`` requests in one write are all answered."""
        seconds = self.settings.answer_seconds
        prepared = [peer.prepare(method, params) for _ in range(count)]
        await peer.probe.write(b"".join(data for _, data in prepared), seconds)
        await peer.probe.until(lambda: all(call.answer is not None for call, _ in prepared), seconds)
        answered = sum(call.answer is not None for call, _ in prepared)
        if answered < count:
            self.no_answer(peer, rule, f"{count} requests in one write, {answered} answered", seconds)
            return False
        self.findings.passed(rule)
        return True

    async def judge_separators(self, peer: P, rule: str, method: str, params: dict[str, Any]) -> None:
        """Whether a request with :data:`LINE_SEPARATORS` in it is answered."""
        if peer.blamed or peer.probe.output_ended:
            return
        if (await peer.ask(method, params, self.settings.answer_seconds)).answer is None:
            what = "a request with U+2028, U+2029 and U+0085 in a string"
            self.no_answer(peer, rule, what, self.settings.answer_seconds)
            return
        self.findings.passed(rule)

    async def judge_exit(self, peer: P, rule: str, seconds: float, after: str) -> bool:
        """Whether the process, which was told to end by ``after``, does."""
        peer.may_end = True
        ended = await peer.probe.wait_exit(seconds) is not None
        self.findings.judge(rule, ended, f"{seconds:g} s after {after} the process still runs")
        return ended

    async def judge_left(self, peer: P, rule: str, after: str) -> None:
        """Whether the process, which has ended, has left others behind."""
        left = await peer.probe.survivors()
        shown = ", ".join(f"{one.command} (pid {one.pid})" for one in left)
        self.findings.judge(rule, not left, f"after {after} there still was: {shown}")


async def run_scenarios(bench: B, scenarios: Sequence[Scenario[B]]) -> None:
    """Run those of ``scenarios`` that the settings want, as many at once as may be, in their order."""
    room = asyncio.Semaphore(MAX_CONFORM_PROCESSES)

    async def run(scenario: Scenario[B]) -> None:
        async with room:
            await scenario(bench)

    async with asyncio.TaskGroup() as group:
        for scenario in scenarios:
            if bench.settings.wants(scenario.__name__):
                group.create_task(run(scenario))


@define(eq=False, kw_only=True)
class ExtensionBench(Bench[P]):
    """What all scenarios of one extension share, whatever its wire."""

    manifest: Manifest
    answers_unknown_tool: bool = True

    def new_peer(self, workspace: str) -> P:
        """What speaks to a new process."""
        raise NotImplementedError

    @property
    def callable_tools(self) -> tuple[ToolDefinition, ...]:
        """The tools that may be called, a bounded number of them."""
        raise NotImplementedError

    def tool_params(self, peer: P, name: str, arguments: Any) -> dict[str, Any]:
        """The parameters of ``tool/call``."""
        raise NotImplementedError

    @asynccontextmanager
    async def process(self) -> AsyncIterator[P]:
        """A new process; ended when this is left. Raises :class:`~broker.errors.SetupError` when there can be none."""
        with make_workspace(self.settings.workspace) as (workspace, scratch):
            argv = resolve_entrypoint(self.manifest, workspace)
            env = self._environment(workspace, scratch)
            async with self.run(self.new_peer(workspace), argv, workspace, env) as peer:
                yield peer

    def _environment(self, workspace: str, scratch: Path) -> Mapping[str, str]:
        return build_environment(
            self.manifest,
            host_environ=os.environ,
            workspace=workspace,
            scratch=scratch,
            manifest_path=self.manifest.path,
        )

    def common_params(self, workspace: str) -> dict[str, Any]:
        """Those parameters of ``initialize`` that are the same on every wire."""
        manifest = self.manifest
        host: dict[str, Any] = {
            "session_id": None,
            "session_name": None,
            "model": None,
            "reasoning": None,
            "active_skills": [],
        }
        return {
            "api_version": manifest.api_version,
            "octet_version": HOST_VERSION,
            "extension": manifest.extension_json("explicit"),
            "workspace": workspace,
            "capabilities": manifest.capabilities_json(),
            "contributes": manifest.contributes_json(),
            "flag_values": manifest.flag_values({}),
            "host": host,
        }

    def arguments_of(self, tool: ToolDefinition) -> tuple[Any, ...]:
        """What ``tool`` is called with; nothing if it is not to be called."""
        if not self.settings.allow_calls:
            return ()
        self.findings.has_use("--call", tool.name)
        return self.settings.calls.get(tool.name) or (make_arguments(tool.parameters),)

    def sync_params(self, peer: P) -> dict[str, Any] | None:
        """Parameters of a ``tool/call`` that is answered and does as little as may be; ``None`` if there are none.

        That is a tool that does not exist, or where nothing is said to that, the first that does.
        """
        if self.answers_unknown_tool:
            return self.tool_params(peer, NO_SUCH_TOOL, {})
        for tool in self.callable_tools[:1]:
            return self.tool_params(peer, tool.name, self.arguments_of(tool)[0])
        return None

    async def still_answers(self, peer: P) -> bool:
        """Whether the process is there and, where that can be told, answers."""
        params = self.sync_params(peer)
        if params is None:
            await peer.probe.quiet(self.settings.quiet_seconds)
            return peer.probe.exit_status is None and not peer.probe.output_ended
        return (await peer.ask("tool/call", params, self.settings.answer_seconds)).answer is not None

    async def judge_odd_arguments(
        self, peer: P, tool: ToolDefinition, judge_result: Callable[[Any, str, Any], None]
    ) -> None:
        """Call ``tool`` with arguments that no schema of an object allows; results are judged like all others."""
        rule, seconds = "octet.tool-call.arguments-any-json", self.settings.answer_seconds
        if peer.blamed:
            return
        for arguments in _ODD_ARGUMENTS:
            call = await peer.ask("tool/call", self.tool_params(peer, tool.name, arguments), seconds)
            if call.answer is None:
                shown = quote(json.dumps(arguments))
                self.no_answer(peer, rule, f"tool {quote(tool.name)} with the arguments {shown}", seconds)
                return
            if not call.failed:
                judge_result(self, tool.name, call.result)
        self.findings.passed(rule)

    async def judge_unknown_tool(self, peer: P) -> None:
        """A tool that does not exist. Where that is answered, it later serves to see whether the process reads."""
        rule, seconds = "octet.tool-call.unknown-tool", min(CONFORM_UNKNOWN_MS / 1000, self.settings.answer_seconds)
        call = await peer.ask("tool/call", self.tool_params(peer, NO_SUCH_TOOL, {}), seconds)
        if call.answer is None:
            self.answers_unknown_tool = False
            self.no_answer(peer, rule, "a tool that does not exist", seconds)
            return
        refused = call.failed or (isinstance(call.result, dict) and call.result.get("is_error") is True)
        what = f"tool {NO_SUCH_TOOL!r}, which does not exist, was answered with {call.answer}"
        self.findings.judge(rule, refused, what)
