"""MCP servers as real processes: their arguments, environment and group, and what they write to stderr."""

from __future__ import annotations

import asyncio
import json
import os
import sys
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

from broker.adapters.aio import AsyncHost, AsyncSession
from broker.host import Diagnostic, HostSettings
from broker.wire.odek.config import ServerConfig

pytestmark = pytest.mark.timeout(60)
BOUND_SECONDS = 20.0

SERVER = """\
import json, os, subprocess, sys
def say(id, **members):
    sys.stdout.write(json.dumps({"jsonrpc": "2.0", "id": id, **members}) + "\\n")
    sys.stdout.flush()
def text(value):
    return {"content": [{"type": "text", "text": value}]}
def tool():
    return ""
exec(sys.argv[1])
for line in sys.stdin:
    message = json.loads(line)
    if "id" not in message:
        continue
    if message["method"] == "initialize":
        say(message["id"], result={"protocolVersion": "2025-03-26", "capabilities": {"tools": {}}})
    elif message["method"] == "tools/list":
        say(message["id"], result={"tools": [{"name": "tool"}]})
    else:
        say(message["id"], result=text(tool()))
"""


@pytest.fixture
def play(tmp_path: Path) -> Callable[..., Any]:
    """Runs a scene with a server whose tool is what ``body`` defines."""

    def run(body: str, scene: Callable[[AsyncSession, Any, list[Any]], Awaitable[Any]], **members: Any) -> Any:
        program = tmp_path / "server.py"
        program.write_text(SERVER)
        args = (str(program), body, *members.pop("args", ()))
        config = ServerConfig(name="srv", source="operator", command=sys.executable, args=args, **members)

        async def main() -> Any:
            settings = HostSettings(server_eof_grace_ms=300, server_term_grace_ms=300)
            async with AsyncHost(settings=settings) as host:
                session = await host.open_session(tmp_path)
                notices: list[Any] = []
                session.add_observer(notices.append)
                server = await session.start_server(config)
                return await scene(session, server, notices)

        return asyncio.run(asyncio.wait_for(main(), BOUND_SECONDS))

    return run


async def answer(session: AsyncSession) -> str:
    text: str = (await session.call_server("srv", "tool")).text
    return text


@pytest.mark.spec("odek.config.args", "odek.config.command")
def test_arguments_reach_the_server_as_they_stand(play: Any) -> None:
    async def scene(session: AsyncSession, server: Any, notices: list[Any]) -> str:
        return await answer(session)

    given = ["--serve", "", "a b", "$HOME;*", "-ä"]
    assert json.loads(play("tool = lambda: json.dumps(sys.argv[2:])", scene, args=given)) == given


@pytest.mark.spec(
    "odek.config.env", "odek.config.env-allowed", "odek.config.env-secrets", "odek.config.env-empty-value"
)
def test_a_server_gets_the_listed_variables_and_its_overrides(play: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FOO_API_KEY", "secret")
    monkeypatch.setenv("PYTHONPATH_EXTRA", "x")
    monkeypatch.setenv("TERM", "xterm")

    async def scene(session: AsyncSession, server: Any, notices: list[Any]) -> tuple[dict[str, str], list[str]]:
        texts = [notice.text for notice in notices if isinstance(notice, Diagnostic)]
        return json.loads(await answer(session)), texts

    environment, texts = play(
        "tool = lambda: json.dumps(dict(os.environ))",
        scene,
        env={"LOG_LEVEL": "info", "TERM": "", "MY_TOKEN": "secret"},
    )
    assert environment["LOG_LEVEL"] == "info"
    assert environment["PATH"] == os.environ["PATH"]
    assert not {"TERM", "MY_TOKEN", "FOO_API_KEY", "PYTHONPATH_EXTRA"} & set(environment)
    assert texts == ["server srv: env 'MY_TOKEN' is left out, it looks like a secret"]


@pytest.mark.spec("odek.transport.own-group", "odek.transport.shutdown")
def test_a_server_leads_a_group_that_is_gone_with_it(play: Any, gone: Any) -> None:
    async def scene(session: AsyncSession, server: Any, notices: list[Any]) -> list[int]:
        leader, group, child = map(int, (await answer(session)).split())
        assert leader == group != os.getpgrp()
        return [leader, child]

    body = (
        "child = subprocess.Popen(['/bin/sleep', '1000'])\ntool = lambda: f'{os.getpid()} {os.getpgrp()} {child.pid}'"
    )
    gone(*play(body, scene))


@pytest.mark.spec("odek.transport.stderr-drained", "odek.transport.stdout-only-protocol")
def test_what_a_server_logs_is_drained_and_told(play: Any) -> None:
    body = (
        "sys.stderr.buffer.write(b'noise ' * 350_000 + b'\\n'); sys.stderr.flush()\n"
        "def tool():\n"
        '    sys.stderr.buffer.write(b\'{"jsonrpc":"2.0","id":3,"result":{}}\\n\\xff\\x1b[31mlast\\n\')\n'
        "    sys.stderr.flush()\n"
        "    return 'REAL'"
    )

    async def scene(session: AsyncSession, server: Any, notices: list[Any]) -> list[str]:
        assert await answer(session) == "REAL"
        told = asyncio.Event()
        session.add_observer(lambda notice: told.set() if "last" in getattr(notice, "text", "") else None)
        if not any("last" in getattr(notice, "text", "") for notice in notices):
            await told.wait()
        return [notice.text for notice in notices if isinstance(notice, Diagnostic) and notice.source == "stderr"]

    texts = play(body, scene)
    assert texts[-2:] == ['{"jsonrpc":"2.0","id":3,"result":{}}', "\ufffd\\x1b[31mlast"]
    assert all(len(text) <= 1_024 and text.isprintable() for text in texts)
