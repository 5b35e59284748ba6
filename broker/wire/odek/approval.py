"""What a person is asked before a project's server may start or one of its tools may be used, and under which key.

The question is a value; asking it, and keeping the answer, is the host's. A key is a SHA-256 over everything that the
answer was about, so that an answer holds for exactly that. Each part is preceded by its length: no text in one part can
imitate a boundary to the next. Source: odek contract, "Server configuration"; odek notes, section 1.4; design, D10.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from typing import Final, Literal

import orjson
from attrs import frozen

from broker.wire.mcp.catalogue import ListedTool
from broker.wire.mcp.names import qualified_name
from broker.wire.odek.config import ServerConfig
from broker.wire.quoting import escape, plain

_DOMAIN: Final = "broker approval 1"


@frozen
class ApprovalRequest:
    """One question. Every text in it is one line, safe to print, and bounded.

    ``kind`` says what is asked: that the process may start, or that the model may use ``tool``. ``command`` is the
    program with its arguments, ``environment`` the names of the variables that are set, never their values.
    """

    kind: Literal["server", "tool"]
    key: str
    server: str
    source: str
    command: str
    environment: tuple[str, ...] = ()
    tool: str | None = None
    qualified: str | None = None
    description: str = ""


def needs_approval(config: ServerConfig) -> bool:
    """Whether a host must ask: for each server that a project brought along, and each of its tools."""
    return config.source == "project"


def server_approval(config: ServerConfig, *, project: str) -> ApprovalRequest:
    """The question whether ``config`` may be started in the directory ``project``."""
    return ApprovalRequest(
        kind="server",
        key=_digest("server", _server_parts(config, project)),
        server=config.name,
        source=config.source,
        command=_command_line(config),
        environment=tuple(escape(name) for name in sorted(config.env)),
    )


def tool_approval(config: ServerConfig, tool: ListedTool, *, project: str) -> ApprovalRequest:
    """The question whether the model may use ``tool`` as it is listed now."""
    schema = hashlib.sha256(orjson.dumps(tool.input_schema, option=orjson.OPT_SORT_KEYS)).hexdigest()
    return ApprovalRequest(
        kind="tool",
        key=_digest("tool", [*_server_parts(config, project), tool.name, schema, tool.raw_description]),
        server=config.name,
        source=config.source,
        command=_command_line(config),
        environment=tuple(escape(name) for name in sorted(config.env)),
        tool=tool.name,
        qualified=qualified_name(config.name, tool.name),
        description=plain(tool.raw_description),
    )


def _server_parts(config: ServerConfig, project: str) -> list[str]:
    parts = [project, config.name, config.command]
    pairs = [text for pair in sorted(config.env.items()) for text in pair]
    for group in (config.args, pairs, sorted(config.artifact_roots)):
        parts += [str(len(group)), *group]
    return [*parts, str(config.timeout_seconds), str(config.max_response_bytes), str(config.max_result_chars)]


def _digest(kind: str, parts: Iterable[str]) -> str:
    digest = hashlib.sha256()
    for part in (_DOMAIN, kind, *parts):
        data = part.encode("utf-8", "surrogatepass")
        digest.update(len(data).to_bytes(8, "big"))
        digest.update(data)
    return digest.hexdigest()


def _command_line(config: ServerConfig) -> str:
    return escape(" ".join((config.command, *config.args)))
