"""The clients that call an MCP tool: this package's, the official SDK's, a bare one of asyncio streams, and a raw loop.

Each is made by an async context manager that starts a child of its own and gives ``call(text)``. The last two check
nothing: no id, no bound, no schema, no error; they tell how much there is to be won at all.
"""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import sys
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from pathlib import Path
from typing import Any, TypeAlias

import orjson
from mcp.client.session import ClientSession
from mcp.client.stdio import StdioServerParameters, stdio_client

from broker.adapters.aio import AsyncHost
from broker.wire.odek.config import ServerConfig

Call: TypeAlias = Callable[[str], Awaitable[str]]
Ask: TypeAlias = Callable[[str, dict[str, Any]], Awaitable[Any]]
Client: TypeAlias = Callable[[str], AbstractAsyncContextManager[Call]]

CHILDREN = Path(__file__).with_name("children")
SERVERS = {
    "standard library": "stdlib_server.py",
    "SDK, low-level API": "sdk_low_level.py",
    "SDK, usual server": "sdk_server.py",
}
_INFO = {"protocolVersion": "2025-03-26", "capabilities": {}, "clientInfo": {"name": "bare", "version": "0"}}


@asynccontextmanager
async def broker_client(script: str) -> AsyncIterator[Call]:
    """This package's; everything is on."""
    async with AsyncHost() as host:
        session = await host.open_session()
        await session.start_server(server_config(script))

        async def call(text: str) -> str:
            return (await session.call_server("child", "echo", {"text": text})).text

        yield call


def server_config(script: str) -> ServerConfig:
    """What starts a child in a session."""
    return ServerConfig(name="child", source="operator", command=sys.executable, args=(str(CHILDREN / script),))


@asynccontextmanager
async def sdk_client(script: str) -> AsyncIterator[Call]:
    """That of the official Python SDK."""
    parameters = StdioServerParameters(command=sys.executable, args=[str(CHILDREN / script)])
    async with stdio_client(parameters) as (reader, writer), ClientSession(reader, writer) as session:
        await session.initialize()
        await session.list_tools()

        async def call(text: str) -> str:
            result: Any = await session.call_tool("echo", {"text": text})
            return str(result.content[0].text)

        yield call


@asynccontextmanager
async def bare_client(script: str) -> AsyncIterator[Call]:
    """A line written to and a line read from the streams of asyncio."""
    process = await asyncio.create_subprocess_exec(
        sys.executable, str(CHILDREN / script), stdin=asyncio.subprocess.PIPE, stdout=asyncio.subprocess.PIPE
    )
    stdin, stdout = process.stdin, process.stdout
    assert stdin is not None and stdout is not None
    number = 0

    async def ask(method: str, params: dict[str, Any]) -> Any:
        nonlocal number
        number += 1
        message = {"jsonrpc": "2.0", "id": number, "method": method, "params": params}
        stdin.write(json.dumps(message).encode() + b"\n")
        return json.loads(await stdout.readline())["result"]

    async def call(text: str) -> str:
        result = await ask("tools/call", {"name": "echo", "arguments": {"text": text}})
        return str(result["content"][0]["text"])

    await ask("initialize", _INFO)
    await ask("tools/list", {})
    yield call
    stdin.close()
    await process.wait()


@asynccontextmanager
async def raw_pipe(arguments: Sequence[str]) -> AsyncIterator[Ask]:
    """A Python child behind ``loop.add_reader``, ``os.write`` and a future: as near to the pipe as a loop gets."""
    loop = asyncio.get_running_loop()
    process = subprocess.Popen(  # noqa: ASYNC220 - it is started once and not measured
        [sys.executable, *arguments], stdin=subprocess.PIPE, stdout=subprocess.PIPE, bufsize=0
    )
    assert process.stdin is not None and process.stdout is not None
    stdin, stdout = process.stdin.fileno(), process.stdout.fileno()
    waiting: asyncio.Future[Any] = loop.create_future()
    pending = b""
    number = 0

    def readable() -> None:
        nonlocal pending
        pending += os.read(stdout, 65536)
        if pending.endswith(b"\n"):
            line, pending = pending, b""
            waiting.set_result(orjson.loads(line)["result"])

    async def ask(method: str, params: dict[str, Any]) -> Any:
        nonlocal number, waiting
        number += 1
        waiting = loop.create_future()
        os.write(stdin, orjson.dumps({"jsonrpc": "2.0", "id": number, "method": method, "params": params}) + b"\n")
        return await waiting

    loop.add_reader(stdout, readable)
    yield ask
    loop.remove_reader(stdout)
    process.stdin.close()
    process.stdout.close()
    await asyncio.to_thread(process.wait)


@asynccontextmanager
async def raw_client(script: str) -> AsyncIterator[Call]:
    """A raw pipe, with no more of MCP than a server needs to answer."""
    async with raw_pipe([str(CHILDREN / script)]) as ask:

        async def call(text: str) -> str:
            result = await ask("tools/call", {"name": "echo", "arguments": {"text": text}})
            return str(result["content"][0]["text"])

        await ask("initialize", _INFO)
        await ask("tools/list", {})
        yield call


OURS, SDK, BARE, RAW = "broker", "SDK", "bare", "raw loop"
CLIENTS: dict[str, Client] = {OURS: broker_client, SDK: sdk_client, BARE: bare_client, RAW: raw_client}
