"""Servers and clients nobody here wrote. Where they are not installed, these tests are skipped and say so.

``tox -e mcp`` installs them and sets ``BROKER_REQUIRE_REAL_SERVERS=1``: what is missing then is a failure.
"""

from __future__ import annotations

import asyncio
import importlib.util
import os
import shutil
import sys
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any, NoReturn

import psutil
import pytest

from broker.adapters.aio import AsyncHost, AsyncSession
from broker.host import HostSettings
from broker.wire.odek.config import ServerConfig

NPM = os.environ.get("BROKER_NPM_MODULES", "node_modules")
SETTINGS = HostSettings(server_eof_grace_ms=1_000, server_term_grace_ms=1_000)


def _missing(what: str) -> NoReturn:
    reason = f"{what} is not installed; tox -e mcp installs it"
    if os.environ.get("BROKER_REQUIRE_REAL_SERVERS") == "1":
        pytest.fail(reason, pytrace=False)
    pytest.skip(reason)


@pytest.fixture(scope="session")
def sdk() -> None:
    """The official Python SDK, server and client."""
    if importlib.util.find_spec("mcp") is None:
        _missing("the official Python SDK (mcp)")


@pytest.fixture(scope="session")
def npm_server() -> Callable[..., tuple[str, tuple[str, ...]]]:
    """The command and arguments of a server published on npm."""

    def find(name: str, *args: str) -> tuple[str, tuple[str, ...]]:
        node, script = shutil.which("node"), Path(NPM, "@modelcontextprotocol", name, "dist", "index.js")
        if node is None:
            _missing("node")
        if not script.exists():
            _missing(f"@modelcontextprotocol/{name}")
        return node, (os.fspath(script.absolute()), *args)

    return find


@pytest.fixture
def config() -> Callable[..., ServerConfig]:
    def make(name: str, command: str, args: tuple[str, ...], **fields: Any) -> ServerConfig:
        given: dict[str, Any] = {"source": "operator", "timeout_seconds": 30, **fields}
        return ServerConfig(name=name, command=command, args=args, **given)

    return make


@pytest.fixture
def fixture_args(tmp_path: Path) -> tuple[str, tuple[str, ...], dict[str, str]]:
    """Command, arguments and environment of this project's fixture server, writing under ``tmp_path``."""
    env = {"PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
    return sys.executable, ("-m", "broker.testing.odek_server", "--root", str(tmp_path)), env


@pytest.fixture
def play() -> Callable[[Callable[[AsyncSession], Awaitable[Any]]], Any]:
    """Runs a coroutine function with an open session; afterwards no process of it may be left."""

    def run(part: Callable[[AsyncSession], Awaitable[Any]]) -> Any:
        async def main() -> Any:
            async with AsyncHost(settings=SETTINGS) as host:
                return await part(await host.open_session())

        before = set(psutil.Process().children(recursive=True))
        result = asyncio.run(asyncio.wait_for(main(), 60))
        left = set(psutil.Process().children(recursive=True)) - before
        assert not left, f"left behind: {left}"
        return result

    return run
