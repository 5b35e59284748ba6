"""An MCP server made with the official Python SDK: one tool, ``echo``."""

from __future__ import annotations

from mcp.server.mcpserver import MCPServer

server = MCPServer("echo", log_level="ERROR")


@server.tool()
def echo(text: str) -> str:
    """Answer with the text."""
    return text


server.run()
