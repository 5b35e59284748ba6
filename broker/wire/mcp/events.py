"""What a connection to an MCP server tells its driver, one event at a time."""

from __future__ import annotations

from typing import Any, TypeAlias

from attrs import frozen

from broker.wire.events import Closed, Diagnostic
from broker.wire.mcp.catalogue import Catalogue

__all__ = ["CatalogueChanged", "Closed", "Diagnostic", "McpEvent", "NotificationReceived", "Ready", "ServerRequest"]


@frozen
class Ready:
    """The server is initialised and its tools are known. ``server_info`` is as it was sent: not to be shown raw."""

    catalogue: Catalogue
    protocol_version: str
    server_info: Any = None


@frozen
class CatalogueChanged:
    """The server announced a change, was asked again, and this is its new list."""

    catalogue: Catalogue


@frozen
class ServerRequest:
    """The server asked for something and has been answered; ``refused`` with -32601.

    The answer is in the writer queue: a driver that drains many events writes in between.
    """

    method: str
    refused: bool


@frozen
class NotificationReceived:
    """The server told something that the connection does not deal with itself, such as a log message."""

    method: str
    params: Any


McpEvent: TypeAlias = Ready | CatalogueChanged | ServerRequest | NotificationReceived | Diagnostic | Closed
