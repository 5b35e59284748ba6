"""Sessions with extensions of API 0.1, 0.2 and 0.4, over in-memory pairs and over real processes."""

from __future__ import annotations

import importlib.util
import json
import stat
import sys
import textwrap
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

from broker.errors import BrokerError, UnavailableError
from broker.host import Extension, FeatureServices, Host
from broker.host.feature import CatalogueChange, Origin, PublishedArtifact, ServiceCall
from broker.wire.octet.manifest import Manifest, parse_manifest

HERE = Path(__file__).parent


def _load(name: str, path: Path) -> Any:
    if name not in sys.modules:
        spec = importlib.util.spec_from_file_location(name, path)
        assert spec is not None and spec.loader is not None
        module = importlib.util.module_from_spec(spec)
        sys.modules[name] = module
        spec.loader.exec_module(module)
    return sys.modules[name]


worlds = _load("worlds", HERE.parent / "host" / "worlds.py")
scripts = _load("feature_scripts", HERE / "feature_scripts.py")

CONTRIBUTES = """
commands = []
context = true
notifications = true
confirmations = true
ui = ["status"]
"""
LATER = "presentation = true\n"


def manifest(version: str, path: str, name: str, *, tools: Any = ("work",), args: Any = (), more: str = "") -> Manifest:
    contributes = CONTRIBUTES + (LATER if version != "0.1" else "")
    text = f'''name = "{name}"
version = "1.0.0"
api_version = "{version}"
[entrypoint]
command = "main.py"
args = {list(args)!r}
[capabilities]
secrets = ["KEY"]
[contributes]
tools = {list(tools)!r}
{more or contributes}
'''
    return parse_manifest(text.encode(), path=path)


class FeatureMixin:
    """How an extension of this wire is added to a world."""

    session: Any
    services: FeatureServices

    def _open(self, host: Host, workspace: str) -> None:
        host.feature_services = self.services
        super()._open(host, workspace)  # type: ignore[misc]

    def add_feature(self, script: Any, version: str, name: str = "tide", **options: Any) -> Extension:
        raise NotImplementedError

    def start_feature(self, script: Any, version: str, name: str = "tide", **options: Any) -> Extension:
        extension = self.add_feature(script, version, name, **options)
        return self.settle(extension.start())  # type: ignore[attr-defined,no-any-return]

    def ask(self, extension: Extension, *questions: Any) -> Any:
        """Have an :class:`Asker` ask the host; what the host answered."""
        result = self.settle(extension.call("work", {"ask": list(questions)}))  # type: ignore[attr-defined]
        return json.loads(result.content[0].text)


class FeatureMemory(FeatureMixin, worlds.MemoryWorld):
    def __init__(self, workspace: Path, services: FeatureServices, settings: Any = None) -> None:
        self.services = services
        super().__init__(workspace, settings)

    def add_feature(self, script: Any, version: str, name: str = "tide", **options: Any) -> Extension:
        def make(link: Any) -> Any:
            made = type(script.__name__, (script,), {"api": version})
            return made()

        self._factories[name] = make
        return self.session.add(manifest(version, f"/ext/{name}/extension.toml", name, **options))

    @property
    def script(self) -> Any:
        """The extension that was started last."""
        return self.driver.spawned[-1]


class FeatureProcesses(FeatureMixin, worlds.ProcessWorld):
    def __init__(self, workspace: Path, services: FeatureServices, settings: Any = None) -> None:
        self.services = services
        super().__init__(workspace, settings)

    def add_feature(self, script: Any, version: str, name: str = "tide", **options: Any) -> Extension:
        directory = self.root / name
        directory.mkdir(exist_ok=True)
        main = directory / "main.py"
        main.write_text(
            textwrap.dedent(f"""\
                #!{sys.executable}
                import importlib.util, sys
                sys.path[:0] = {[str(HERE.parents[1])]!r}
                spec = importlib.util.spec_from_file_location("feature_scripts", {str(HERE / "feature_scripts.py")!r})
                module = importlib.util.module_from_spec(spec)
                sys.modules["feature_scripts"] = module
                spec.loader.exec_module(module)
                from broker.testing import serve_stdio
                serve_stdio(getattr(module, sys.argv[1])())
                """)
        )
        main.chmod(main.stat().st_mode | stat.S_IXUSR)
        path = str(directory / "extension.toml")
        return self.session.add(manifest(version, path, name, args=[script.__name__], **options))


class EverythingService:
    """A host service for everything: it remembers what it was asked, and answers what it was told to."""

    def __init__(self) -> None:
        self.log: list[tuple[Any, ...]] = []
        self.answers: dict[str, Any] = {}

    def _answer(self, name: str, default: Any) -> Any:
        answer = self.answers.get(name, default)
        if isinstance(answer, Exception):
            raise answer
        return answer() if callable(answer) else answer

    def confirm(self, call: ServiceCall, question: Any) -> Any:
        self.log.append(("confirm", call.origin, question))
        return self._answer("confirm", True)

    def ask(self, call: ServiceCall, question: Any) -> Any:
        self.log.append(("ask", call, question))
        return self._answer("ask", "north")

    def store(self, call: ServiceCall, artifact: PublishedArtifact) -> Any:
        self.log.append(("store", artifact.data, artifact.mime_type))
        return self._answer("store", f"artifact-{len(self.log)}")

    def evaluate(self, call: ServiceCall, intent: Mapping[str, Any]) -> Any:
        self.log.append(("evaluate", dict(intent)))
        return self._answer("evaluate", "allow")

    def get(self, call: ServiceCall, name: str) -> Any:
        self.log.append(("get", name))
        return self._answer("get", "hunter2")

    def change(self, call: ServiceCall, change: CatalogueChange) -> Any:
        self.log.append(("change", change.revision, change.put, change.removed))
        return self._answer("change", None)

    def run(self, call: ServiceCall, fields: Mapping[str, Any]) -> Any:
        self.log.append(("run", call.method, dict(fields)))
        return self._answer("run", {"ran": call.method})

    def _control(self, call: ServiceCall, *arguments: str) -> Any:
        self.log.append((call.operation, *arguments))
        return self._answer("control", "session-2")

    wait_for_idle = create = fork = switch = reload = compact = _control

    def notify(self, origin: Origin, notification: Any) -> None:
        self.log.append(("notify", origin.extension, notification.level, notification.message))

    def contribute(self, origin: Origin, item: Any) -> None:
        self.log.append(("contribute", type(item).__name__))
        self._answer("contribute", None)

    def show(self, origin: Origin, snapshot: Mapping[str, Any]) -> None:
        self.log.append(("show", origin.parent_id is not None, dict(snapshot)))

    def withdraw(self, origin: Origin) -> None:
        self.log.append(("withdraw", origin.parent_id is not None))

    def report(self, origin: Origin, report: Any) -> None:
        self.log.append(("report", origin.parent_method, report.sequence))

    def bind(self, *names: str, **options: Any) -> FeatureServices:
        """Bind this service to these names."""
        return FeatureServices(**{**dict.fromkeys(names, self), **options})


@pytest.fixture
def service() -> EverythingService:
    return EverythingService()


@pytest.fixture(params=["memory", "process"])
def open_world(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Callable[..., Any]]:
    """Opens sessions over in-memory pairs, then the same test's over real processes."""
    made: list[Any] = []

    def make(services: FeatureServices | None = None, settings: Any = None) -> Any:
        kind = FeatureMemory if request.param == "memory" else FeatureProcesses
        made.append(kind(tmp_path, services or FeatureServices(), settings))
        return made[-1]

    yield make
    for world in made:
        world.close()


@pytest.fixture
def open_memory(tmp_path: Path) -> Iterator[Callable[..., Any]]:
    """Opens sessions over in-memory pairs, whose clock the test moves."""
    made: list[Any] = []

    def make(services: FeatureServices | None = None, settings: Any = None) -> Any:
        made.append(FeatureMemory(tmp_path, services or FeatureServices(), settings))
        return made[-1]

    yield make
    for world in made:
        world.close()


@pytest.fixture
def play() -> Any:
    """The scripts of the extensions."""
    return scripts


@pytest.fixture
def refusing() -> Callable[[str], BrokerError]:
    return UnavailableError
