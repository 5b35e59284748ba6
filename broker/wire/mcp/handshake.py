"""Judging a server's answer to ``initialize``: go on with a version known here, refuse any other.

Source: odek contract, "Transport and protocol"; design, "Decisions on odek-extension/v1", D17.
"""

from __future__ import annotations

from typing import Any

import orjson
from attrs import field, frozen

from broker.errors import BrokerError, NegotiationError
from broker.wire.jsonrpc import json_type
from broker.wire.mcp.settings import PROTOCOL_VERSION, PROTOCOL_VERSIONS, McpSettings
from broker.wire.quoting import quote


@frozen
class Handshake:
    """What a server said of itself. ``server_info`` is as it was sent; without ``has_tools`` it is asked for none."""

    protocol_version: str
    has_tools: bool
    server_info: Any = field(default=None, repr=False)


def initialize_params(settings: McpSettings) -> dict[str, Any]:
    """The parameters of ``initialize``. Roots are announced only where the host has an answer to ``roots/list``."""
    return {
        "protocolVersion": PROTOCOL_VERSION,
        "capabilities": {} if settings.roots is None else {"roots": {}},
        "clientInfo": {"name": settings.client_name, "version": settings.client_version},
    }


def judge_initialize(server: str, result: dict[str, Any] | None, error: BrokerError | None) -> Handshake:
    """The handshake that ``result`` completes; unknown members are ignored.

    Raises :class:`~broker.errors.NegotiationError` for an ``error``, for a ``protocolVersion`` that is missing, no
    string or unknown (the text has the version asked for and the one answered), and for malformed capabilities.
    """
    asked = f"asked for protocol version {PROTOCOL_VERSION}"
    if error is not None or result is None:
        data = None if error is None else error.data
        raise NegotiationError(f"{error} ({asked})", extension=server, method="initialize", data=data) from error
    version = result.get("protocolVersion")
    if type(version) is not str or version not in PROTOCOL_VERSIONS:
        answered = quote(orjson.dumps(version)) if "protocolVersion" in result else "no protocolVersion"
        raise NegotiationError(
            f"{server}: {asked}, it answered with {answered}; accepted are {', '.join(PROTOCOL_VERSIONS)}",
            name="version_mismatch",
            extension=server,
            method="initialize",
            path="protocolVersion",
        )
    capabilities = result.get("capabilities")
    if capabilities is None:
        capabilities = {}
    if type(capabilities) is not dict:
        raise NegotiationError(
            f"{server}: its capabilities must be an object, not {json_type(capabilities)}",
            extension=server,
            method="initialize",
            path="capabilities",
        )
    return Handshake(version, capabilities.get("tools") is not None, result.get("serverInfo"))
