"""A server made with the official Python SDK. Run as a process."""

from __future__ import annotations

import asyncio
import sys

from mcp.server.mcpserver import Context, MCPServer

server = MCPServer("sdk")


@server.tool()
def echo(text: str) -> str:
    """Answer with the text."""
    return text


@server.tool()
def large(chars: int) -> str:
    """A long answer."""
    return "é" * chars


@server.tool()
def fail() -> str:
    """Fail."""
    raise ValueError("it did not work")


@server.tool()
async def slow(seconds: float) -> str:
    """Take a while, and tell on stderr when given up."""
    try:
        await asyncio.sleep(seconds)
    except asyncio.CancelledError:
        sys.stderr.write("gave up\n")
        sys.stderr.flush()
        raise
    return "done"


@server.tool()
async def steps(count: int, context: Context) -> str:
    """Report progress."""
    for number in range(count):
        await context.report_progress(number + 1, count, f"step {number + 1}")
    return "done"


if __name__ == "__main__":
    server.run()
