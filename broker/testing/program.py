"""Objects as programs on disk, so that what runs in memory can also be run as a real process, with real pipes."""

from __future__ import annotations

import json
import os
import stat
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from attrs import evolve

import broker
from broker.adapters.discovery import MANIFEST_NAME, load_manifest
from broker.errors import UsageError
from broker.testing.plan import make_manifest, manifest_text, process_of, takes_number
from broker.testing.scripted import ScriptedServer
from broker.wire.octet.manifest_model import Manifest
from broker.wire.odek.config import ServerConfig

# A text of its own needs nothing installed, and starts the sooner without looking for it.
_SHEBANG = f"#!{sys.executable} -IS\n"
_PROGRAM = """\
import sys
sys.path[:0] = {paths}
from broker.testing.serving import serve
serve({file}, {factory}, {name})
"""


def write_extension(
    directory: str | os.PathLike[str], factory: Callable[[], Any] | str, *, name: str | None = None, **fields: Any
) -> Path:
    """Write an extension to ``directory`` whose program runs what ``factory`` makes; gives the directory.

    ``factory`` is a class or function at the top of a module, and ``name`` and ``fields`` are as for
    :meth:`broker.testing.MemorySession.add`. Or it is the text of a program in Python, which may do to its pipes
    whatever a process can; it needs a ``name``. Raises :class:`~broker.errors.UsageError` for any other factory.
    """
    member = _member(factory, name, fields)
    if not isinstance(member, Manifest):
        raise UsageError(f"{member.name} is an MCP server; write it with write_server()")
    root = Path(directory)
    _write_program(root, factory, member.name)
    given = {"api_version": member.api_version, "tools": member.contributes.tools, **fields}
    given.update({key: value for key in ("commands", "hooks") if (value := getattr(member.contributes, key))})
    text = manifest_text(member.name, **{"entrypoint": {"command": "main.py"}, **given})
    (root / MANIFEST_NAME).write_text(text, encoding="utf-8")
    return root


def write_server(
    directory: str | os.PathLike[str], factory: Callable[[], Any] | str, *, name: str | None = None, **fields: Any
) -> ServerConfig:
    """Write an MCP server to ``directory``, as :func:`write_extension` does an extension; gives its configuration."""
    text = ScriptedServer if isinstance(factory, str) else factory
    member = _member(text, name, fields)
    if not isinstance(member, ServerConfig):
        raise UsageError(f"{member.name} is an extension; write it with write_extension()")
    return evolve(member, command=str(_write_program(Path(directory), factory, member.name).absolute()))


def write_member(
    directory: str | os.PathLike[str],
    factory: Callable[[], Any],
    *,
    name: str | None = None,
    only_program: bool = False,
    **fields: Any,
) -> Manifest | ServerConfig:
    """Write what ``factory`` makes, whichever it is, to ``directory``; what a session is given of it.

    With ``only_program`` the manifest that is there stays as it is.
    """
    member = _member(factory, name, fields)
    if isinstance(member, ServerConfig):
        return write_server(directory, factory, name=name, **fields)
    if only_program:
        _write_program(Path(directory), factory, member.name)
        return member
    return load_manifest(write_extension(directory, factory, name=name, **fields) / MANIFEST_NAME)


def _member(factory: Callable[[], Any] | str, name: str | None, fields: dict[str, Any]) -> Manifest | ServerConfig:
    if isinstance(factory, str):
        if name is None:
            raise UsageError("a program's text has no name of its own; give one: name='...'", path="name")
        return make_manifest(name, **fields)
    where = getattr(factory, "__qualname__", "<")
    if "<" in where or takes_number(factory) or not getattr(sys.modules.get(factory.__module__), "__file__", None):
        raise UsageError(
            f"{factory!a:.80} cannot be found by another process; give a class, or a function without parameters, "
            "that stands at the top of a module with a file"
        )
    return process_of(factory, name=name, **fields).member


def _write_program(root: Path, factory: Callable[[], Any] | str, name: str) -> Path:
    text = _SHEBANG + factory if isinstance(factory, str) else _text_of(factory, name)
    root.mkdir(parents=True, exist_ok=True)
    program = root / "main.py"
    program.write_text(text, encoding="utf-8")
    program.chmod(program.stat().st_mode | stat.S_IXUSR)
    return program


def _text_of(factory: Callable[[], Any], name: str) -> str:
    file = os.path.abspath(str(sys.modules[factory.__module__].__file__))
    package = os.path.dirname(os.path.dirname(os.path.abspath(broker.__file__)))
    parts = {"paths": [package, os.path.dirname(file)], "file": file, "factory": factory.__qualname__, "name": name}
    return f"#!{sys.executable}\n" + _PROGRAM.format(**{key: json.dumps(part) for key, part in parts.items()})
