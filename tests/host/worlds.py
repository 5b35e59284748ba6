"""One session run two ways: over in-memory pairs on a manual clock, and over real processes in an asyncio loop."""

from __future__ import annotations

import asyncio
import stat
import sys
import textwrap
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any, TypeVar

from broker.adapters.aio import AsyncioDriver
from broker.adapters.aio.host import wait
from broker.clock import Clock
from broker.errors import ExtensionError
from broker.host import Diagnostic, Exited, Extension, Host, HostServices, HostSettings, Notice, Outcome, Session
from broker.testing import ManualClock, MemoryDriver, ScriptedExtension
from broker.wire.octet.manifest import Manifest, parse_manifest

T = TypeVar("T")
BOUND_S = 10.0


def manifest(
    path: str, name: str, *, tools: Iterable[str] = (), hooks: bool = False, args: Iterable[str] = (), extra: str = ""
) -> Manifest:
    text = f'''name = "{name}"
version = "1.0.0"
api_version = "0.3"
[entrypoint]
command = "main.py"
args = {list(args)!r}
[contributes]
tools = {list(tools)!r}
{'hooks = ["session_start", "session_end"]' if hooks else ""}
{extra}
'''
    return parse_manifest(text.encode(), path=path)


class World:
    """What a test does with a session, whatever carries it. ``scripts`` maps an extension's name to its class."""

    session: Session
    host: Host

    def __init__(self) -> None:
        self.notices: list[Notice] = []

    def add(self, script: type[ScriptedExtension], name: str, **options: Any) -> Extension:
        raise NotImplementedError

    def settle(self, outcome: Outcome[T]) -> T:
        """Let things happen until ``outcome`` settles; its result, or the error it failed with."""
        raise NotImplementedError

    def until(self, condition: Callable[[], bool]) -> None:
        """Let things happen until ``condition`` holds."""
        raise NotImplementedError

    def start(self, script: type[ScriptedExtension], name: str, **options: Any) -> Extension:
        extension = self.add(script, name, **options)
        return self.settle(extension.start())

    def diagnostics(self) -> list[str]:
        """The texts of all diagnostics so far."""
        return [notice.text for notice in self.notices if isinstance(notice, Diagnostic)]

    def exits(self) -> list[tuple[int, int | None, str]]:
        """Generation, status and reason of every process that has ended."""
        return [(n.generation, n.status, n.reason) for n in self.notices if isinstance(n, Exited)]

    def another_session(self) -> Session:
        """A second session of the same host, watched too."""
        session = self.host.open_session(self.session.workspace)
        session.add_observer(self.notices.append)
        return session

    def close(self) -> None:
        raise NotImplementedError

    def _open(self, host: Host, workspace: str) -> None:
        self.host = host
        self.session = host.open_session(workspace)
        self.session.add_observer(self.notices.append)


class MemoryWorld(World):
    def __init__(
        self, workspace: Path, settings: HostSettings | None = None, services: HostServices | None = None
    ) -> None:
        super().__init__()
        self.clock = ManualClock()
        self._factories: dict[str, Any] = {}
        self.driver = MemoryDriver(self.clock, self._factories)
        self._open(Host(self.driver, settings=settings, clock=self.clock, services=services), str(workspace))

    def add(self, script: type[ScriptedExtension], name: str, **options: Any) -> Extension:
        return self.add_made(name, lambda number: script(), **options)

    def add_made(self, name: str, make: Callable[[int], ScriptedExtension], **options: Any) -> Extension:
        """Add an extension whose generation ``number`` is ``make(number)``."""
        self._factories[name] = lambda generation: make(generation.number)
        return self.session.add(manifest(f"/ext/{name}/extension.toml", name, **options))

    def settle(self, outcome: Outcome[T]) -> T:
        self.driver.run()
        assert outcome.done, "nothing more happens without the clock moving, and the outcome is still open"
        return outcome.result()

    def until(self, condition: Callable[[], bool]) -> None:
        self.driver.run()
        assert condition(), "nothing more happens without the clock moving, and the condition does not hold"

    def close(self) -> None:
        self.settle_by_time(self.host.close())

    def settle_by_time(self, outcome: Outcome[T], limit_ms: int = 60_000) -> T:
        """As :meth:`settle`, moving the clock from deadline to deadline."""
        start = self.clock.monotonic_ms()
        self.driver.run()
        while not outcome.done and self.clock.monotonic_ms() - start < limit_ms:
            self.driver.advance(50)
        return outcome.result()


class ProcessWorld(World):
    def __init__(
        self,
        workspace: Path,
        settings: HostSettings | None = None,
        clock: Clock | None = None,
        services: HostServices | None = None,
    ) -> None:
        super().__init__()
        self.root = workspace
        self.clock = clock
        self.loop = asyncio.new_event_loop()
        self.driver = self.loop.run_until_complete(self._make_driver())
        self._open(Host(self.driver, settings=settings, clock=clock, services=services), str(workspace))

    @staticmethod
    async def _make_driver() -> AsyncioDriver:
        return AsyncioDriver()

    def add(self, script: type[ScriptedExtension], name: str, **options: Any) -> Extension:
        directory = self.root / name
        directory.mkdir(exist_ok=True)
        main = directory / "main.py"
        main.write_text(
            textwrap.dedent(f"""\
                #!{sys.executable}
                import importlib.util, sys
                sys.path[:0] = {[str(Path(__file__).parents[2])]!r}
                spec = importlib.util.spec_from_file_location("scripts", {sys.modules[script.__module__].__file__!r})
                module = importlib.util.module_from_spec(spec)
                sys.modules["scripts"] = module
                spec.loader.exec_module(module)
                from broker.testing import serve_stdio
                serve_stdio(getattr(module, sys.argv[1])())
                """)
        )
        main.chmod(main.stat().st_mode | stat.S_IXUSR)
        path = str(directory / "extension.toml")
        return self.session.add(manifest(path, name, args=[script.__name__], **options))

    def settle(self, outcome: Outcome[T]) -> T:
        return self.loop.run_until_complete(asyncio.wait_for(wait(outcome), BOUND_S))

    def until(self, condition: Callable[[], bool]) -> None:
        end = self.loop.time() + BOUND_S
        while not condition():
            assert self.loop.time() < end, f"the condition did not hold within {BOUND_S} s"
            self.loop.run_until_complete(asyncio.sleep(0.005))

    def turn(self) -> None:
        """Let the loop do what it can at this moment."""
        for _ in range(3):
            self.loop.run_until_complete(asyncio.sleep(0))

    def advance(self, milliseconds: int) -> None:
        """Move a manual clock and let everything happen that has become due."""
        assert isinstance(self.clock, ManualClock)
        self.clock.advance_ms(milliseconds)
        self.session.changed()
        self.turn()

    def partly_written(self, extension: Extension) -> bool:
        """Whether a frame has gone into the process's pipe in part."""
        assert extension.generation is not None
        pump = self.driver._pumps[extension.generation]
        return pump.stale_at_ms is not None and pump._offset > 0

    def close(self) -> None:
        try:
            if isinstance(self.clock, ManualClock):
                for link in self.session.links:
                    link.fail(ExtensionError("the test is over"))
            self.settle(self.host.close())
        finally:
            self.loop.run_until_complete(self.driver.aclose())
            self.loop.run_until_complete(self.loop.shutdown_default_executor())
            self.loop.close()
