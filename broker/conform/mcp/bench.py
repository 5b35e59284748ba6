"""Starting processes of one MCP server, and getting each through the handshake."""

from __future__ import annotations

import os
import shutil
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from attrs import define

from broker.adapters.artifacts import ArtifactRoots
from broker.conform.bench import Bench
from broker.conform.mcp.peer import McpPeer
from broker.conform.schema_arguments import make_arguments
from broker.conform.settings import ConformSettings
from broker.errors import BrokerError, NegotiationError, SetupError
from broker.limits import CONFORM_DRIBBLED_BYTES, CONFORM_LOAD_MS, MAX_CONFORM_TOOLS
from broker.wire.mcp.handshake import initialize_params, judge_initialize
from broker.wire.mcp.settings import McpSettings
from broker.wire.odek.config import ServerConfig
from broker.wire.odek.environment import child_environment


def directory_of(settings: ConformSettings) -> str:
    """The directory that a server runs in, which its relative paths are about: the given one, or the current one."""
    return settings.workspace or os.getcwd()


def resolve_command(config: ServerConfig, directory: str) -> list[str]:
    """The argument vector that starts a server in ``directory``.

    Raises :class:`~broker.errors.SetupError` when there is no such program.
    """
    program = config.command
    if os.sep not in program:
        found = shutil.which(program)
        if found is None:
            raise SetupError(f"server {config.name}: {program!a:.200} is not on PATH", path=program)
        program = found
    else:
        program = os.path.join(directory, program)
    if not os.path.isfile(program) or not os.access(program, os.X_OK):
        raise SetupError(f"server {config.name}: {program!a:.200} is not an executable file", path=program)
    return [program, *config.args]


@define(eq=False, kw_only=True)
class McpBench(Bench[McpPeer]):
    """What all scenarios of one server share. ``tools`` are the listed entries that are objects with a name."""

    config: ServerConfig
    tools: tuple[dict[str, Any], ...] = ()
    has_tools_capability: bool = False
    lists_tools: bool = True

    @property
    def workspace(self) -> str:
        """The directory the server runs in."""
        return directory_of(self.settings)

    @property
    def roots(self) -> ArtifactRoots:
        """The configured artifact roots."""
        return ArtifactRoots(self.config.artifact_roots, base=self.workspace)

    @asynccontextmanager
    async def process(self) -> AsyncIterator[McpPeer]:
        """A new process; ended when this is left."""
        peer = McpPeer(findings=self.findings, bound=self.config.max_response_bytes)
        argv = resolve_command(self.config, self.workspace)
        env = child_environment(self.config, os.environ).variables
        async with self.run(peer, argv, self.workspace, env):
            yield peer

    async def start(self, peer: McpPeer, *, announce: bool = True, dribble: bool = False) -> bool:
        """The handshake, judged; whether the server may be used."""
        # A server may have a runtime to load first, which is not what its answers are timed for.
        seconds = max(self.settings.answer_seconds, min(CONFORM_LOAD_MS / 1000, float(self.config.timeout_seconds)))
        call, data = peer.prepare("initialize", initialize_params(McpSettings()))
        if dribble:
            await peer.probe.dribble(data, CONFORM_DRIBBLED_BYTES, seconds)
        else:
            await peer.probe.write(data)
        if not await peer.answered(call, seconds):
            rule = "odek.transport.chunks" if dribble else "odek.server.initialize-answered"
            self.no_answer(peer, rule, "initialize", seconds)
            return False
        if not self._judge(peer, call.answer or {}):
            return False
        peer.ready = True
        if announce:
            peer.announced = True
            await peer.notify("notifications/initialized")
        return True

    def _judge(self, peer: McpPeer, answer: dict[str, Any]) -> bool:
        findings, result = self.findings, answer.get("result")
        if not isinstance(result, dict):
            findings.failed("odek.server.initialize-answered", f"initialize was answered with {answer}")
            return False
        findings.passed("odek.server.initialize-answered")
        try:
            handshake = judge_initialize(self.config.name, result, None)
        except NegotiationError as error:
            version = error.path == "protocolVersion"
            rule = "odek.transport.compatible-version" if version else "odek.server.initialize-shape"
            findings.failed(rule, str(error))
            return False
        except BrokerError as error:
            findings.failed("odek.server.initialize-shape", str(error))
            return False
        findings.passed("odek.transport.compatible-version", f"{handshake.protocol_version}")
        self.has_tools_capability = handshake.has_tools
        info = result.get("serverInfo")
        named = isinstance(info, dict) and all(isinstance(info.get(key), str) for key in ("name", "version"))
        right = named and isinstance(result.get("capabilities"), dict)
        findings.judge("odek.server.initialize-shape", right, f"initialize was answered with {result}")
        return True

    def arguments_of(self, tool: dict[str, Any]) -> tuple[Any, ...]:
        """What ``tool`` is called with; nothing unless it only reads or its caller was named."""
        if not self.settings.allow_calls:
            return ()
        self.findings.has_use("--call", tool["name"])
        given = self.settings.calls.get(tool["name"])
        if given:
            return given
        annotations = tool.get("annotations")
        reads = isinstance(annotations, dict) and annotations.get("readOnlyHint") is True
        return (make_arguments(tool.get("inputSchema")),) if reads or self.settings.call_all else ()

    @property
    def callable_tools(self) -> tuple[dict[str, Any], ...]:
        """The tools that may be called, a bounded number of them."""
        return tuple(tool for tool in self.tools if self.arguments_of(tool))[:MAX_CONFORM_TOOLS]
