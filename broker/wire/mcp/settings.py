"""The phases of a connection to an MCP server, and what the host decides about it."""

from __future__ import annotations

from enum import Enum
from typing import Final

from attrs import field, frozen

from broker.errors import UsageError
from broker.limits import MAX_RESPONSE_BYTES, MAX_SERVER_TIMEOUT_SECONDS, RESPONSE_BYTES, SERVER_TIMEOUT_SECONDS

PROTOCOL_VERSION: Final = "2025-03-26"
"""The version that is asked for."""

PROTOCOL_VERSIONS: Final = ("2024-11-05", "2025-03-26", "2025-06-18", "2025-11-25")
"""The versions that are accepted (design, D17)."""


class Phase(Enum):
    """How far a connection has come; it only moves forward."""

    NEW = "new"
    INITIALIZING = "initializing"
    LISTING = "listing"
    READY = "ready"
    DRAINING = "draining"
    CLOSED = "closed"


@frozen
class Root:
    """A directory that the host names to a server that asks for its roots: a ``file://`` URI, and a name to show."""

    uri: str
    name: str | None = None


@frozen(kw_only=True)
class McpSettings:
    """What the host decides about one server.

    ``timeout_ms`` is the time of each request, queueing and writing included; ``max_response_bytes`` the longest line
    the server may write, its LF not counted; ``roots`` is what ``roots/list`` is answered with, ``None`` meaning that
    the host offers none; ``client_name`` and ``client_version`` are told to the server.
    """

    timeout_ms: int = SERVER_TIMEOUT_SECONDS * 1_000
    max_response_bytes: int = RESPONSE_BYTES
    roots: tuple[Root, ...] | None = None
    client_name: str = "broker"
    client_version: str = field(default="0.1.0")

    def __attrs_post_init__(self) -> None:
        for name, value, maximum in (
            ("timeout_ms", self.timeout_ms, MAX_SERVER_TIMEOUT_SECONDS * 1_000),
            ("max_response_bytes", self.max_response_bytes, MAX_RESPONSE_BYTES),
        ):
            if not 1 <= value <= maximum:
                raise UsageError(f"{name} must be 1 to {maximum}, not {value}", observed=value, maximum=maximum)
