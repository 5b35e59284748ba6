"""The example of the guide, as a reader runs it."""

from __future__ import annotations

import asyncio
import importlib.util
import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import broker
from broker.adapters.blocking import BlockingHost
from broker.extension import Event, Extension
from broker.testing import MemoryHost, MixedHost
from broker.wire.octet.models import TextPart

EXAMPLE = Path(__file__).parents[2] / "docs" / "examples" / "greeter"
SOURCES = str(Path(broker.__file__).parents[1])


@pytest.fixture
def greeter() -> Any:
    """The program as a module."""
    spec = importlib.util.spec_from_file_location("greeter_example", EXAMPLE / "main.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    yield module
    del sys.modules[spec.name]


@pytest.fixture
def installed(tmp_path: Path) -> Path:
    """The example where its process is of the Python that runs the tests, and finds the broker that they test."""
    directory = tmp_path / "greeter"
    shutil.copytree(EXAMPLE, directory)
    program = directory / "main.py"
    program.write_text(program.read_text().replace("#!/usr/bin/env python3", f"#!{sys.executable}"))
    manifest = directory / "extension.toml"
    manifest.write_text(f"{manifest.read_text()}\n[entrypoint.env]\nPYTHONPATH = {json.dumps(SOURCES)}\n")
    return directory


def test_it_is_ten_lines() -> None:
    lines = (EXAMPLE / "main.py").read_text().splitlines()
    code = [line for line in lines if line and not line.startswith(("#", '"""', "from ", "if ", "    app.run"))]
    assert len(code) <= 10


def test_in_memory(greeter: Any) -> None:
    board = Extension("board", "1.0.0")
    seen: list[str] = []

    @board.on("bus.greeter.greeted", greeter.Greeted)
    def greeted(event: Event[Any]) -> None:
        seen.append(event.value.who)

    with MemoryHost() as host, host.open_session() as session:
        session.start(greeter.app)
        session.start(board)
        assert session.call("greeter", "greet", {"who": "Ada"}).content == (TextPart(text="hello, Ada"),)
        session.until(lambda: seen == ["Ada"])
    greeter.app.check_manifest(EXAMPLE)


def test_as_a_process(installed: Path) -> None:
    with BlockingHost() as host:
        session = host.open_session()
        session.start(installed)
        for who in ("Ada", "Grace"):
            assert session.call("greeter", "greet", {"who": who}).content == (TextPart(text=f"hello, {who}"),)


def test_an_object_beside_the_process(installed: Path, tmp_path: Path) -> None:
    board = Extension("board", "1.0.0")
    seen: list[str] = []
    pause_s = 0.02

    @board.on("bus.greeter.greeted")
    async def greeted(event: Event[dict[str, Any]]) -> None:
        await asyncio.sleep(pause_s)
        seen.append(event.payload["who"])
        if len(seen) == 2:
            both.set()

    both = asyncio.Event()

    async def run() -> None:
        async with MixedHost() as host:
            session = await host.open_session(tmp_path)
            await session.start(board)
            await session.start(installed)
            for who in ("Ada", "Grace"):
                await session.call("greeter", "greet", {"who": who})
            await asyncio.wait_for(both.wait(), 20)
            assert seen == ["Ada", "Grace"]

    asyncio.run(run())


def test_on_the_command_line(installed: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "broker.cli", "call", installed, "greet", '{"who": "Ada"}'],
        env={**os.environ, "PYTHONPATH": SOURCES},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, "hello, Ada\n", "")
