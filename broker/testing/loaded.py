"""Extensions of the author's kit loaded from their files, anew for each generation, as a process would load them.

Each generation has module objects of its own: of the program, and of the modules in the program's directory that it
imports. Those are in ``sys.modules`` only while its code runs, so that two programs which are both called ``main.py``,
or both have a ``helpers.py``, do not get into each other's way, and a crash loses what they held. Modules from anywhere
else are those of the test's process. The program is not ``__main__``, and the environment and the working directory
are the test's.
"""

from __future__ import annotations

import ast
import itertools
import os
import re
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import ModuleType
from typing import Any, Final
from weakref import finalize

from broker.errors import BrokerError, SetupError, UsageError
from broker.extension import Extension
from broker.extension.manifest_check import check_manifest
from broker.extension.scope import LOADING
from broker.host import ProcessLink
from broker.limits import MAX_MANIFEST_BYTES
from broker.testing.hosted import HostedExtension
from broker.testing.plan import ProcessPlan, process_of
from broker.testing.scripted import ScriptedProcess
from broker.wire.octet.manifest import parse_manifest
from broker.wire.octet.manifest_model import Manifest

MANIFEST: Final = "extension.toml"

_INTERPRETER: Final = re.compile(r"python(3(\.\d+)?)?", re.ASCII)
_TEST: Final = re.compile(r"test_|conftest$|tests$|\w+_test$", re.ASCII)
_SHARED: Final = frozenset({*sys.stdlib_module_names, "broker"})
_NUMBERS: Final = itertools.count(1)


class LoadedExtension(HostedExtension):
    """One process of an extension that was loaded from its file. ``module`` is its program, with its globals."""

    def __init__(self, program: Program, app: Extension) -> None:
        self._program = program
        super().__init__(app)
        self.module: ModuleType = program.module

    def _run(self, first: Callable[[], None] | None) -> None:
        with self._program.present():
            super()._run(first)


class Program:
    """One generation's modules: the program at ``file``, executed, and what it imported from its own directory."""

    def __init__(self, file: Path, name: str) -> None:
        self.file: Path = file
        self._directory = str(file.parent)
        self._own = _importable(file.parent)
        self._modules: dict[str, ModuleType] = {}
        self.module: ModuleType = ModuleType(f"_broker_{name.replace('-', '_')}_{next(_NUMBERS)}")
        self.module.__file__ = str(file)
        # Decorators of classes look their module up by its name, even after it was executed.
        sys.modules[self.module.__name__] = self.module
        finalize(self, sys.modules.pop, self.module.__name__, None).atexit = False
        self._execute()

    @contextmanager
    def present(self) -> Iterator[None]:
        """Have ``import`` find this generation's modules, as it does where the program is a process of its own."""
        others = self._take_out()
        sys.modules.update(self._modules)
        sys.path.insert(0, self._directory)
        try:
            yield
        finally:
            if self._directory in sys.path:
                sys.path.remove(self._directory)
            self._modules = self._take_out()
            sys.modules.update(others)

    def _execute(self) -> None:
        # The cached listing of a directory whose files a test has just written may be out of date.
        sys.path_importer_cache.pop(self._directory, None)
        code = compile(self.file.read_bytes(), self.file, "exec")
        token = LOADING.set(str(self.file))
        try:
            with self.present():
                exec(code, self.module.__dict__)  # noqa: S102 - the program is the test's own
        except SystemExit as error:
            raise SetupError(f"{self.file} exits with {error.code!r} while it is loaded", path=str(self.file)) from None
        finally:
            LOADING.reset(token)

    def _take_out(self) -> dict[str, ModuleType]:
        there = {name for name in self._own if name in sys.modules}
        if not there:
            return {}
        return {name: sys.modules.pop(name) for name in list(sys.modules) if name.partition(".")[0] in there}


def plan_of(file: Path, manifest: Path | None, name: str | None, fields: dict[str, Any]) -> ProcessPlan:
    """How the program at ``file`` is run; its manifest is read from ``manifest``, or else made from the code."""
    found = file.parent.name if manifest is None else _read_manifest(manifest).name
    if manifest is not None and name not in (None, found):
        fields = {"name": name, **fields}
    if manifest is not None and fields:
        raise UsageError(f"{manifest} says the {' and the '.join(sorted(fields))}; change it there", path=str(manifest))
    _check_program(file)
    name = name or found

    def load() -> tuple[Program, Extension]:
        program = Program(file, name)
        return program, _app_of(program, name)

    # What is loaded first says what it is, and is the first generation.
    program, app = load()
    app.check()
    member = process_of(app, **fields).member if manifest is None else check_manifest(app.declaration, manifest)
    first = [(program, app)]

    def make(link: ProcessLink) -> ScriptedProcess:
        if first:
            return LoadedExtension(*first.pop())
        try:
            program, app = load()
        except BrokerError:
            raise
        except Exception as error:
            raise SetupError(
                f"{file.name} could not be loaded again: {type(error).__name__}: {error}", extension=link.name
            ) from error
        return LoadedExtension(program, app)

    return ProcessPlan(make, member)


def find_program(directory: Path) -> tuple[Path, Path]:
    """The program's file and the manifest of the extension in ``directory``, or of a manifest.

    Raises :class:`~broker.errors.UsageError` when there is none, or it is not a file of Python.
    """
    path = directory if directory.name == MANIFEST else directory / MANIFEST
    if not path.is_file():
        raise UsageError(f"{directory} has no {MANIFEST}; give the directory of an extension", path=str(directory))
    path = path.resolve()
    manifest = _read_manifest(path)
    command, rest = manifest.entrypoint.command, manifest.entrypoint.args
    if _INTERPRETER.fullmatch(os.path.basename(command)):
        command = next((word for word in rest if not word.startswith("-")), command)
    file = path.parent / command
    if not file.is_file() or not _is_python(file):
        raise _no_kit(f"{path}: its program {command} is no file of Python", path)
    return file, path


def _read_manifest(path: Path) -> Manifest:
    with path.open("rb") as stream:
        return parse_manifest(stream.read(MAX_MANIFEST_BYTES + 1), path=str(path))


def _is_python(file: Path) -> bool:
    if file.suffix == ".py":
        return True
    with file.open("rb") as stream:
        line = stream.readline(256)
    return line.startswith(b"#!") and b"python" in line


def _check_program(file: Path) -> None:
    """Refuse a program that cannot be one of the kit before any of it runs: it may read stdin, or never end."""
    tree = ast.parse(file.read_bytes(), str(file))
    own = _importable(file.parent)
    for node in ast.walk(tree):
        names: list[str] = []
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            names = [node.module or ""]
            if node.module == "broker":
                names += [f"broker.{alias.name}" for alias in node.names]
        for name in names:
            if f"{name}.".startswith("broker.extension.") or name.partition(".")[0] in own:
                return
    raise _no_kit(f"{file} does not use broker.extension", file)


def _app_of(program: Program, name: str) -> Extension:
    apps = list({id(value): value for value in vars(program.module).values() if isinstance(value, Extension)}.values())
    named = [app for app in apps if app.name == name]
    if len(named) == 1 or len(apps) == 1:
        return (named or apps)[0]
    if apps:
        names = ", ".join(app.name for app in apps)
        raise UsageError(f"{program.file} has several extensions ({names}), and {name} is not one of them")
    raise _no_kit(f"{program.file} has no broker.extension.Extension among its globals", program.file)


def _no_kit(problem: str, path: Path) -> UsageError:
    return UsageError(
        f"{problem}; only extensions of the author's kit are loaded into a test: "
        "run others as real processes, with MixedHost",
        path=str(path),
    )


def _importable(directory: Path) -> frozenset[str]:
    """The names of modules and packages that a program in ``directory`` finds there, but for tests.

    Names of the standard library and of this package stay what they are to the test.
    """
    found = {
        entry.stem
        for entry in directory.iterdir()
        if entry.suffix == ".py" or (entry.is_dir() and entry.name.isidentifier() and any(entry.glob("*.py")))
    }
    return frozenset(name for name in found - _SHARED if not _TEST.match(name))


@process_of.register(str)
@process_of.register(os.PathLike)
def _(thing: str | os.PathLike[str], *, name: str | None = None, **fields: Any) -> ProcessPlan:
    path = Path(thing)
    if path.suffix == ".py" and path.is_file():
        return _plan_beside(path, name, fields)
    return plan_of(*find_program(path), name, fields)


@process_of.register(ModuleType)
def _(thing: ModuleType, *, name: str | None = None, **fields: Any) -> ProcessPlan:
    if not getattr(thing, "__file__", None):
        raise UsageError(f"{thing.__name__} has no file that could be loaded anew", path=thing.__name__)
    return _plan_beside(Path(str(thing.__file__)), name, fields)


def _plan_beside(file: Path, name: str | None, fields: dict[str, Any]) -> ProcessPlan:
    file = file.resolve()
    manifest = file.with_name(MANIFEST)
    return plan_of(file, manifest if manifest.is_file() else None, name, fields)
