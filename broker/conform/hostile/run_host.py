"""Runs a host's command beside one hostile program, and watches both until they have ended."""

from __future__ import annotations

import asyncio
import os
import shlex
import shutil
import signal
import sys
import tempfile
from pathlib import Path
from typing import Final

from attrs import frozen

from broker.adapters.guard import OrphanGuard
from broker.conform.hostile import start
from broker.conform.hostile.feature_program import VERSIONS
from broker.conform.hostile.log import Log
from broker.conform.probe import Probe
from broker.errors import SetupError, UsageError
from broker.limits import CONFORM_HOST_AFTER_MS, CONFORM_HOST_INTERRUPT_MS, CONFORM_HOST_LOOK_MS

_POLL_SECONDS: Final = CONFORM_HOST_LOOK_MS / 1000
_INTERRUPT_SECONDS: Final = CONFORM_HOST_INTERRUPT_MS / 1000
_AFTER_SECONDS: Final = CONFORM_HOST_AFTER_MS / 1000
_TEMPORARY: Final = os.path.realpath(tempfile.gettempdir())
_HOST_ONLY: Final = "CONFORMANCE_HOST_ONLY"


@frozen
class Run:
    """One run: the log, how the host ended (``None``: it had to be killed), and what it said on stderr.

    ``asked`` says that it did not end by itself and was interrupted.
    """

    scenario: str
    log: Log
    status: int | None
    ending: str
    asked: bool
    ended_at: float


def split_command(command: str) -> list[str]:
    """The words of a host's command; one without a place for the extension gets ``{path}`` at its end.

    Raises :class:`~broker.errors.UsageError` for quotes that do not match, and :class:`~broker.errors.SetupError` when
    there is no such program.
    """
    try:
        words = shlex.split(command)
    except ValueError as error:
        raise UsageError(f"--host: {error}") from None
    if not words:
        raise UsageError("--host: there is no command")
    if not any("{path}" in word or "{config}" in word for word in words):
        words.append("{path}")
    if shutil.which(words[0]) is None:
        raise SetupError(f"the host {words[0]!a:.200} is not an executable program", path=words[0])
    return words


async def run_host(words: list[str], scenario: str, *, guard: OrphanGuard, seconds: float) -> Run:
    """Run the host with the hostile program of ``scenario``; nothing of it is left when this returns."""
    with tempfile.TemporaryDirectory(prefix="broker-hostile-", dir=_TEMPORARY, ignore_cleanup_errors=True) as directory:
        root = Path(directory)
        log = Log(root / "log.jsonl")
        places = _write_subject(root, scenario, log.path)
        argv = [_filled(word, places) for word in words]
        program_path = shutil.which(argv[0])
        env = {**os.environ, _HOST_ONLY: "1"}
        probe = Probe(
            [program_path or argv[0], *argv[1:]], cwd=os.getcwd(), env=env, guard=guard, on_line=lambda line: None
        )
        try:
            async with probe:
                return await _watch(probe, log, scenario, seconds)
        except BaseException:
            # Cancelled, and the host has been killed: what it had started may be known by nothing but the log.
            log.update(probe.now)
            log.end_all()
            raise


def _write_subject(root: Path, scenario: str, log: Path) -> dict[str, str]:
    extension = root / "hostile"
    extension.mkdir()
    program = "feature_program" if scenario.partition("-")[0] in VERSIONS else "program"
    program = "server_program" if scenario.startswith("mcp-") else program
    args = ", ".join(map(_quoted, ("-I", "-S", str(start.__file__), program, scenario, str(log))))
    lines = [
        'name = "hostile"',
        'version = "1.0.0"',
        f'api_version = "{VERSIONS.get(scenario.partition("-")[0], "0.3")}"',
        "[entrypoint]",
        f"command = {_quoted(sys.executable)}",
        f"args = [{args}]",
        "[contributes]",
        'tools = ["poke"]',
    ]
    (extension / "extension.toml").write_text("\n".join(lines) + "\n", encoding="utf-8")
    config = root / "hostile.json"
    server = f'{{"command": {_quoted(sys.executable)}, "args": [{args}], "max_response_bytes": 65536}}'
    config.write_text(f'{{"mcp_servers": {{"hostile": {server}}}}}', encoding="utf-8")
    return {"{path}": str(extension), "{config}": str(config)}


def _quoted(text: str | None) -> str:
    return '"' + (text or "").replace("\\", "\\\\").replace('"', '\\"') + '"'


def _filled(word: str, places: dict[str, str]) -> str:
    for place, value in places.items():
        word = word.replace(place, value)
    return word


async def _watch(probe: Probe, log: Log, scenario: str, seconds: float) -> Run:
    asked = False
    for limit, number in ((seconds, signal.SIGINT), (_INTERRUPT_SECONDS, signal.SIGTERM), (_INTERRUPT_SECONDS, None)):
        if await _ended(probe, log, limit):
            break
        asked = True
        if number is not None:
            probe.signal(number)
    status, ended_at = probe.exit_status, probe.now
    ending = probe.ending()
    # A moment for what the host left to its guard, or to the system.
    until = ended_at + _AFTER_SECONDS
    while log.living and probe.now < until:
        await asyncio.sleep(_POLL_SECONDS)
        log.update(probe.now)
    run = Run(scenario, log, status, ending, asked, ended_at)
    log.end_all()
    return run


async def _ended(probe: Probe, log: Log, seconds: float) -> bool:
    deadline = probe.now + seconds
    while probe.now < deadline:
        log.update(probe.now)
        if probe.exit_status is not None:
            return True
        await asyncio.sleep(_POLL_SECONDS)
    return False
