"""An MCP server as users of the official Python SDK write one: a decorated function, ``echo``."""

from __future__ import annotations

from mcp.server import MCPServer

server = MCPServer("echo", log_level="ERROR")


@server.tool()
def echo(text: str) -> str:
    """Echo."""
    return text


server.run("stdio")
