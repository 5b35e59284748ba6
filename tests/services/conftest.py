"""Sessions whose host has services bound, and extensions that are told what to say."""

from __future__ import annotations

import importlib.util
import sys
from collections.abc import Callable, Iterator
from itertools import count
from pathlib import Path
from typing import Any

import pytest

from broker.host import HostServices, HostSettings
from broker.testing import ScriptedExtension


def _load(name: str, directory: Path) -> Any:
    if name not in sys.modules:
        spec = importlib.util.spec_from_file_location(name, directory / f"{name}.py")
        assert spec is not None and spec.loader is not None
        module = importlib.util.module_from_spec(spec)
        sys.modules[name] = module
        spec.loader.exec_module(module)
    return sys.modules[name]


worlds = _load("worlds", Path(__file__).parent.parent / "host")
service_scripts = _load("service_scripts", Path(__file__).parent)


class Told:
    """A session in memory whose extensions say what the test tells them to."""

    def __init__(self, world: Any) -> None:
        self.world = world
        self._ids = count(1)

    def start(self, *capabilities: str, name: str = "ext", extra: str = "", **options: Any) -> Any:
        """A started extension that selected ``capabilities``; its object is ``.far``."""

        def make(number: int) -> ScriptedExtension:
            extension.far = service_scripts.Told(capabilities=capabilities)
            return extension.far

        extension = self.world.add_made(name, make, extra=extra, **options)
        self.world.settle(extension.start())
        return extension

    def send(self, extension: Any, method: str, params: Any, request_id: Any = None) -> Any:
        """The extension asks; gives the id under which it did."""
        request_id = f"r{next(self._ids)}" if request_id is None else request_id
        extension.far.request(request_id, method, params)
        self.world.driver.run()
        return request_id

    def notify(self, extension: Any, method: str, params: Any) -> None:
        """The extension notifies."""
        extension.far.send({"jsonrpc": "2.0", "method": method, "params": params})
        self.world.driver.run()

    def answer(self, extension: Any, request_id: Any) -> Any:
        """What that request was answered with: the result, ``(code, data)``, or None as long as it was not."""
        found = [m for m in extension.far.received if m.get("id") == request_id and "method" not in m]
        assert len(found) <= 1, "answered twice"
        if not found:
            return None
        if "result" in found[0]:
            return found[0]["result"]
        return found[0]["error"]["code"], found[0]["error"].get("data")

    def ask(self, extension: Any, method: str, params: Any) -> Any:
        """The extension asks; gives the answer as :meth:`answer`."""
        return self.answer(extension, self.send(extension, method, params))

    def heard(self, extension: Any, method: str) -> list[Any]:
        """The parameters of every frame of ``method`` the host sent."""
        return [m["params"] for m in extension.far.received if m.get("method") == method]


@pytest.fixture
def told(tmp_path: Path) -> Iterator[Callable[..., Told]]:
    """Makes sessions in memory: ``told(services, **settings)``."""
    made: list[Told] = []

    def make(services: HostServices | None = None, **settings: Any) -> Told:
        made.append(Told(worlds.MemoryWorld(tmp_path, HostSettings(**settings), services)))
        return made[-1]

    yield make
    for each in made:
        each.world.close()


@pytest.fixture
def processes(tmp_path: Path) -> Iterator[Callable[..., Any]]:
    """Makes sessions over real processes: ``processes(services, **settings)``."""
    made: list[Any] = []

    def make(services: HostServices | None = None, **settings: Any) -> Any:
        made.append(worlds.ProcessWorld(tmp_path, HostSettings(**settings), services=services))
        return made[-1]

    yield make
    for each in made:
        each.close()
