"""Extensions that a test loads from their directories: anew for each generation, and each apart from the others."""

from __future__ import annotations

import importlib.util
import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from broker.errors import ExitedError, ManifestError, SetupError, UsageError
from broker.extension import Extension
from broker.testing import Faults, MemoryHost, MemorySession, ScriptedExtension, heard

COUNTER = """
from broker.extension import Extension

app = Extension("{name}", "1.0.0")
count = 0


@app.tool
def add() -> int:
    '''Counts.'''
    global count
    count += 1
    return count


if __name__ == "__main__":
    raise SystemExit("not as a program")
"""

MANIFEST = """name = "{name}"
version = "1.0.0"
api_version = "0.3"
[entrypoint]
command = "main.py"
[contributes]
tools = ["{tool}"]
"""

Write = Callable[..., Path]


@pytest.fixture
def write(tmp_path: Path) -> Write:
    """Writes an extension: its program, its manifest, and other files by their names."""

    def write(name: str = "counter", program: str = COUNTER, *, tool: str = "add", **others: str) -> Path:
        directory = tmp_path / name
        directory.mkdir()
        (directory / "main.py").write_text(program.replace("{name}", name))
        (directory / "extension.toml").write_text(MANIFEST.format(name=name, tool=tool))
        for module, text in others.items():
            (directory / f"{module}.py").write_text(text)
        return directory

    return write


def text(session: MemorySession, name: str, tool: str = "add") -> str:
    return "|".join(part.text for part in session.call(name, tool).content)


def test_a_crash_loses_what_the_program_held(write: Write) -> None:
    plan = Faults().kill("counter", when=heard("tool/call", 3))
    with MemoryHost(faults=plan) as host, host.open_session() as session:
        counter = session.start(write())
        assert [text(session, "counter"), text(session, "counter")] == ["1", "2"]
        first = session.process("counter").module
        with pytest.raises(ExitedError):
            session.call("counter", "add")
        session.until(lambda: counter.health.value == "ready")
        assert text(session, "counter") == "1"
        assert (first.count, session.process("counter").module.count) == (2, 1)


def test_an_object_keeps_what_its_module_holds(write: Write) -> None:
    module = imported(write() / "main.py")
    plan = Faults().kill("counter", when=heard("tool/call", 2))
    with MemoryHost(faults=plan) as host, host.open_session() as session:
        counter = session.start(module.app)
        assert text(session, "counter") == "1"
        with pytest.raises(ExitedError):
            session.call("counter", "add")
        session.until(lambda: counter.health.value == "ready")
        assert text(session, "counter") == "2"


def test_what_stands_for_an_extension_on_disk(write: Write, monkeypatch: pytest.MonkeyPatch) -> None:
    directory = write()
    module = imported(directory / "main.py")
    monkeypatch.chdir(directory.parent)
    for thing in (directory, str(directory), "counter/", directory / "extension.toml", directory / "main.py", module):
        with MemoryHost() as host, host.open_session() as session:
            assert session.start(thing).manifest.path == str(directory / "extension.toml")
            assert text(session, "counter") == "1"
    assert module.count == 0


def test_a_module_without_a_manifest_is_what_its_code_says(write: Write) -> None:
    directory = write()
    (directory / "extension.toml").unlink()
    with MemoryHost() as host, host.open_session() as session:
        assert session.start(imported(directory / "main.py"), description="counts").manifest.description == "counts"
        assert text(session, "counter") == "1"


def test_programs_of_one_name_and_modules_of_one_name(write: Write) -> None:
    program = """
from broker.extension import Extension
import shared

app = Extension("{name}", "1.0.0")


@app.tool
async def add() -> str:
    '''Says whose module it is.'''
    import late

    return f"{shared.WHOSE} {late.WHOSE}"
"""
    alpha = write("alpha", program, shared="WHOSE = 'of alpha'", late="WHOSE = 'late of alpha'")
    beta = write("beta", program, shared="WHOSE = 'of beta'", late="WHOSE = 'late of beta'")
    path, modules = list(sys.path), set(sys.modules)
    with MemoryHost() as host, host.open_session() as session:
        session.add(alpha)
        session.add(beta)
        session.start()
        for _ in range(2):
            assert text(session, "alpha") == "of alpha late of alpha"
            assert text(session, "beta") == "of beta late of beta"
        assert session.process("alpha").module.shared is not session.process("beta").module.shared
        assert sys.path == path
        assert {"shared", "late", "main"}.isdisjoint(sys.modules)
        added = {name.rpartition("_")[0] for name in set(sys.modules) - modules if name.startswith("_broker_")}
        assert added == {"_broker_alpha", "_broker_beta"}


def test_modules_of_a_generation_go_with_it(write: Write) -> None:
    directory = write("alpha", COUNTER.replace("count = 0", "import shared\ncount = shared.FIRST"), shared="FIRST = 1")
    with MemoryHost() as host, host.open_session() as session:
        session.start(directory)
        assert text(session, "alpha") == "2"
        (directory / "shared.py").write_text("FIRST = 1_000")
        session.reload("alpha")
        assert text(session, "alpha") == "1001"


def test_the_interpreter_may_be_the_command(write: Write) -> None:
    directory = write()
    manifest = directory / "extension.toml"
    given = 'command = "python3"\nargs = ["-u", "main.py"]'
    manifest.write_text(manifest.read_text().replace('command = "main.py"', given))
    with MemoryHost() as host, host.open_session() as session:
        session.start(directory)
        assert text(session, "counter") == "1"


def refused(thing: Any, kind: type[Exception] = UsageError, **options: Any) -> str:
    with MemoryHost() as host, host.open_session() as session, pytest.raises(kind) as caught:
        session.start(thing, **options)
    return str(caught.value)


ONLY = "; only extensions of the author's kit are loaded into a test: run others as real processes, with MixedHost"


def test_programs_that_are_not_of_the_kit(write: Write, tmp_path: Path) -> None:
    # It is refused before it runs: it would read the test's stdin.
    bare = write("bare", "import sys\nsys.stdin.read()\nraise SystemExit(3)\n")
    assert refused(bare) == f"{bare}/main.py does not use broker.extension{ONLY}"
    empty = write("empty", "import broker.extension\n")
    assert refused(empty) == f"{empty}/main.py has no broker.extension.Extension among its globals{ONLY}"
    other = write("other")
    manifest = other / "extension.toml"
    manifest.write_text(manifest.read_text().replace("main.py", "/bin/sh"))
    assert refused(other) == f"{manifest}: its program /bin/sh is no file of Python{ONLY}"
    assert refused(tmp_path) == f"{tmp_path} has no extension.toml; give the directory of an extension"
    assert refused(sys) == "sys has no file that could be loaded anew"


def test_programs_that_do_not_let_themselves_be_loaded(write: Write) -> None:
    unguarded = write("unguarded", COUNTER.partition("if __name__")[0] + "app.run()\n")
    assert refused(unguarded) == (
        f"{unguarded}/main.py: run() is reached when the program is only loaded; "
        'put it below if __name__ == "__main__":'
    )
    leaving = write("leaving", "from broker.extension import Extension\nraise SystemExit(3)\n")
    assert refused(leaving, SetupError) == f"{leaving}/main.py exits with 3 while it is loaded"
    broken = write("broken", "from broker.extension import Extension\n1 / 0\n")
    assert refused(broken, ZeroDivisionError) == "division by zero"


def test_the_manifest_is_held_against_the_code(write: Write) -> None:
    directory = write(tool="subtract")
    assert refused(directory, ManifestError) == (
        f"{directory}/extension.toml and the code disagree:\n"
        '  contributes.tools: has "subtract", the code does not\n'
        '  contributes.tools: lacks "add", which the code has'
    )
    right = write("right")
    assert refused(right, name="left", version="2.0.0") == (
        f"{right}/extension.toml says the name and the version; change it there"
    )


def test_several_extensions_in_one_program(write: Write) -> None:
    directory = write("alpha", COUNTER + "\nother = Extension('other', '1.0.0')\n")
    with MemoryHost() as host, host.open_session() as session:
        session.start(directory)
        assert text(session, "alpha") == "1"
    strange = write("strange", (COUNTER + "\nother = Extension('other', '1.0.0')\n").replace("{name}", "mine"))
    assert refused(strange) == f"{strange}/main.py has several extensions (mine, other), and strange is not one of them"


def test_a_program_that_cannot_be_loaded_again(write: Write) -> None:
    directory = write()
    with MemoryHost() as host, host.open_session() as session:
        session.start(directory)
        (directory / "main.py").write_text("from broker.extension import Extension\n1 / 0\n")
        with pytest.raises(
            SetupError, match=r"^main.py could not be loaded again: ZeroDivisionError: division by zero$"
        ):
            session.reload("counter")


def test_a_function_without_a_name_takes_that_of_the_extension() -> None:
    app = Extension("tide", "1.0.0")
    with MemoryHost() as host, host.open_session() as session:
        assert session.start(lambda: app).name == "tide"
    assert refused(lambda: ScriptedExtension()) == "it has no name of its own; give one: name='...'"


def imported(file: Path) -> Any:
    """A module as a test imports one."""
    spec = importlib.util.spec_from_file_location("imported_by_test", file)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    assert os.path.samefile(str(module.__file__), file)
    return module
