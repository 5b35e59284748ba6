"""An MCP server as users of the official Python SDK write one: a decorated function, ``echo``."""

from __future__ import annotations

try:
    from mcp.server import MCPServer as Server
except ImportError:  # the first major version
    from mcp.server.fastmcp import FastMCP as Server

server = Server("echo", log_level="ERROR")


@server.tool()
def echo(text: str) -> str:
    """Echo."""
    return text


server.run("stdio")
