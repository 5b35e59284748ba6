"""``broker new``: write an extension that works, with tests that pass."""

from __future__ import annotations

import argparse
import json
import os
import re
import secrets
import shlex
import shutil
import sys
from importlib import resources
from importlib.resources.abc import Traversable
from pathlib import Path
from string import Template
from typing import Final

from broker.cli.exit_codes import OK
from broker.errors import SetupError, UsageError
from broker.limits import MAX_EXTENSION_NAME_BYTES, MAX_INTERPRETER_BYTES
from broker.wire.quoting import escape, quote

FAMILIES: Final = ("octet", "mcp")
API_VERSIONS: Final = ("0.3", "0.4")

_NAME: Final = re.compile(r"[a-z][a-z0-9-]*", re.ASCII)
_SUFFIX: Final = ".template"


def new(given: argparse.Namespace) -> int:
    """Carry out ``broker new``; gives the exit status."""
    if given.family == "mcp" and given.api is not None:
        raise UsageError("--api is for --family octet; MCP has versions of its own")
    directory = create(given.name, family=given.family, api=given.api or API_VERSIONS[0], parent=given.directory)
    shown = _shown(directory)
    for path in sorted(directory.iterdir()):
        print(f"wrote {escape(str(shown / path.name))}")
    where = shlex.quote(str(shown))
    if given.family == "mcp":
        where = f"{shlex.quote(str(shown / 'server.json'))} {given.name}"
    print(f'\nTry it:   broker call {escape(where)} greet \'{{"who": "Ada"}}\'')
    print(f"Test it:  pytest {escape(shlex.quote(str(shown)))}")
    return OK


def create(name: str, *, family: str, api: str, parent: Path) -> Path:
    """Write the extension ``name`` into a directory of that name below ``parent``, all of it or nothing.

    Raises :class:`~broker.errors.UsageError` for a name that no manifest may have, and
    :class:`~broker.errors.SetupError` when there is something of that name already or nothing can be written there.
    """
    if not _NAME.fullmatch(name) or len(name) > MAX_EXTENSION_NAME_BYTES:
        raise UsageError(
            f"NAME is [a-z][a-z0-9-]*, at most {MAX_EXTENSION_NAME_BYTES} characters, not {quote(name)}", path="NAME"
        )
    target = parent / name
    if os.path.lexists(target):
        raise SetupError(f"{target} exists already; nothing was written", path=str(target))
    if not parent.is_dir():
        raise SetupError(f"{parent} is no directory; nothing was written", path=str(parent))
    words = _words(name, target.resolve())
    half = parent / f".{name}.{secrets.token_hex(4)}"
    try:
        half.mkdir()
        for template in _templates(family, api):
            path = half / template.name.removesuffix(_SUFFIX).replace("test_NAME.py", words["test"])
            path.write_text(Template(template.read_text(encoding="utf-8")).substitute(words), encoding="utf-8")
            if path.name == "main.py":
                path.chmod(0o755)
        half.rename(target)
    except OSError as error:
        raise SetupError(f"{target} was not written: {error.strerror or error}", path=str(target)) from None
    finally:
        shutil.rmtree(half, ignore_errors=True)
    return target


def _templates(family: str, api: str) -> list[Traversable]:
    folder = resources.files("broker.cli") / "templates" / (f"octet-{api}" if family == "octet" else family)
    return [entry for entry in folder.iterdir() if entry.name.endswith(_SUFFIX)]


def _words(name: str, target: Path) -> dict[str, str]:
    return {
        "name": name,
        "underline": "=" * len(name),
        # pytest tells tests of several directories apart by the names of their files.
        "test": f"test_{name.replace('-', '_')}.py",
        "shebang": _shebang(),
        "python_json": json.dumps(sys.executable),
        "main_json": json.dumps(str(target / "main.py")),
    }


def _shebang() -> str:
    """What starts the Python that runs now: the portable form where that finds it, else its full path.

    A program of a virtual environment that is not activated is found by its path alone, which no first line can have if
    it has white space or is long; then it is left to the ``broker`` command, which puts its own programs on ``PATH``.
    """
    found = shutil.which("python3")
    at_hand = found is not None and os.path.dirname(found) == os.path.dirname(sys.executable)
    unfit = re.search(r"\s", sys.executable) or len(os.fsencode(sys.executable)) > MAX_INTERPRETER_BYTES
    return "/usr/bin/env python3" if at_hand or unfit else sys.executable


def _shown(directory: Path) -> Path:
    """The directory as it is shortest to type from here."""
    try:
        return directory.resolve().relative_to(Path.cwd())
    except ValueError:
        return directory
