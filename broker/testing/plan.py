"""What can be added to a session as an object, and how it becomes an extension's process.

:func:`process_of` is the one place where that is decided. It takes the scripted classes of this package, their
instances, functions that make one, extensions of :mod:`broker.extension`, and whatever says how it is run:

* a directory with an extension of the author's kit, its ``extension.toml``, or its imported module
  (:mod:`broker.testing.loaded`),
* an object with a method ``__broker_process__(self, *, name, **fields)`` that gives a :class:`ProcessPlan`, or
* a class registered with ``process_of.register(Class)``, a function of the same shape: ``(thing, *, name, **fields)``.
"""

from __future__ import annotations

import importlib
import inspect
import json
import os
import re
from collections.abc import Callable, Mapping
from functools import singledispatch
from types import ModuleType
from typing import Any, Final, Protocol, TypeAlias, runtime_checkable

from attrs import fields as fields_of
from attrs import frozen

from broker.errors import SetupError, UsageError
from broker.host import ProcessLink
from broker.testing.scripted import ScriptedExtension, ScriptedFeatureExtension, ScriptedProcess, ScriptedServer
from broker.wire.octet.manifest import parse_manifest
from broker.wire.octet.manifest_model import Contributes, Manifest
from broker.wire.odek.config import ServerConfig

Make: TypeAlias = Callable[[ProcessLink], ScriptedProcess]

_CONTRIBUTES: Final = frozenset(member.name for member in fields_of(Contributes))
# Where it is said how objects of a module or package are run; loaded when one of them comes.
_HOSTED: Final[Mapping[str, str]] = {
    "broker.extension": "broker.testing.hosted",
    "broker.testing.script": "broker.testing.script_run",
}


@frozen
class ProcessPlan:
    """How an object is run: ``make(link)`` gives the process of one generation, called once for each.

    ``member`` is what it is to the session: a manifest for an extension, a configuration for an MCP server.
    """

    make: Make
    member: Manifest | ServerConfig


@runtime_checkable
class HasProcess(Protocol):
    """An object that says itself how it is run as an extension's process."""

    def __broker_process__(self, *, name: str | None, **fields: Any) -> ProcessPlan:
        """The plan of it under ``name`` (its own when None); ``fields`` are for :func:`make_manifest`."""
        ...


@singledispatch
def process_of(thing: Any, *, name: str | None = None, **fields: Any) -> ProcessPlan:
    """How ``thing`` is run as the extension or server called ``name``.

    ``fields`` go into its manifest (:func:`make_manifest`) or configuration
    (:class:`~broker.wire.odek.config.ServerConfig`). Raises :class:`~broker.errors.UsageError` for what cannot be run.
    """
    packages = [base.__module__ for base in type(thing).__mro__]
    for package, module in _HOSTED.items():
        if any(f"{other}.".startswith(f"{package}.") for other in packages):
            importlib.import_module(module)
    if isinstance(thing, str | os.PathLike | ModuleType):
        importlib.import_module("broker.testing.loaded")
    if (registered := process_of.dispatch(type(thing))) is not process_of.dispatch(object):
        return registered(thing, name=name, **fields)
    if not isinstance(thing, type) and isinstance(thing, HasProcess):
        return thing.__broker_process__(name=name, **fields)
    if callable(thing):
        return _made_by(thing, name, fields)
    raise UsageError(
        f"{thing!a:.80} cannot be run as an extension: give a broker.extension.Extension, the directory of one "
        "(a path), a ScriptedExtension, ScriptedFeatureExtension or ScriptedServer, its class, a function that makes "
        "one, a Script, or an object with __broker_process__"
    )


@process_of.register
def _(thing: ScriptedProcess, *, name: str | None = None, **fields: Any) -> ProcessPlan:
    name = name or default_name(type(thing))
    return ProcessPlan(_once(thing, name), _member(thing, name, fields))


def maker_of(thing: Any, name: str) -> Make:
    """What makes the processes of ``name``, whose manifest is known: a factory is not asked before they start."""
    found = process_of.dispatch(type(thing)) is not process_of.dispatch(object)
    if found or not callable(thing) or (isinstance(thing, HasProcess) and not isinstance(thing, type)):
        return process_of(thing, name=name).make
    return _maker(_asking(thing, name), {})


def make_manifest(name: str, *, api_version: str = "0.3", path: str | None = None, **fields: Any) -> Manifest:
    """The manifest of an extension that exists as an object only; checked like one that was read from a file.

    ``fields`` are keys of ``extension.toml``: those of its ``contributes`` section (``tools``, ``hooks``, ``flags``,
    ...) by their own names, others as they are (``version``, ``requires_octet``), whole sections as mappings
    (``runtime={"sharing": "workspace"}``). ``path`` is where the file would be. Raises
    :class:`~broker.errors.SetupError` or :class:`~broker.errors.InvalidParamsError` as for a file.
    """
    text = manifest_text(name, api_version=api_version, **fields)
    return parse_manifest(text.encode(), path=path or f"/extensions/{name}/extension.toml")


def manifest_text(name: str, **fields: Any) -> str:
    """The text of that manifest, unchecked."""
    contributes = {**fields.pop("contributes", {})}
    contributes.update({key: fields.pop(key) for key in list(fields) if key in _CONTRIBUTES})
    top = {"name": name, "version": "1.0.0", "entrypoint": {"command": name}, **fields, "contributes": contributes}
    return "".join(f"{key} = {_toml(value)}\n" for key, value in top.items())


def default_name(made_by: Any) -> str:
    """The name of an extension whose class or function is ``made_by``: ``RateLimiter`` is ``rate-limiter``."""
    word = getattr(made_by, "__name__", "")
    if not word.isidentifier():
        raise UsageError("it has no name of its own; give one: name='...'", path="name")
    return re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "-", word).replace("_", "-").strip("-").lower()


# -- inside ------------------------------------------------------------------------------------------------------------


def _member(thing: ScriptedProcess, name: str, fields: dict[str, Any]) -> Manifest | ServerConfig:
    if isinstance(thing, ScriptedServer):
        known = {member.name for member in fields_of(ServerConfig)} - {"name"}
        if unknown := sorted(set(fields) - known):
            raise UsageError(f"{name}: a server has no {', '.join(unknown)}; there are {', '.join(sorted(known))}")
        return ServerConfig(name=name, **{"source": "operator", "command": name, **fields})
    if isinstance(thing, ScriptedFeatureExtension):
        given: dict[str, Any] = {"tools": thing.tools, "commands": thing.commands, "api_version": thing.version}
    elif isinstance(thing, ScriptedExtension):
        given = {"tools": thing.tools}
        if "lifecycle_events" in thing.capabilities:
            given["hooks"] = ("session_start", "session_end")
    else:
        raise UsageError(
            f"{name}: {type(thing).__name__} does not say which protocol it speaks; add it with a manifest: "
            f"add(make_manifest({name!r}), process={type(thing).__name__})",
            extension=name,
        )
    return make_manifest(name, **{**given, **fields})


def _once(thing: ScriptedProcess, name: str) -> Make:
    """The maker of an object that is there already: it can live one life only."""
    left = [thing]

    def make(link: ProcessLink) -> ScriptedProcess:
        if not left:
            raise SetupError(
                f"{name}: generation {link.number} needs another {type(thing).__name__}, as an object runs once; "
                "add its class, or a function that makes one",
                extension=name,
            )
        return left.pop()

    return make


def _made_by(factory: Callable[..., Any], name: str | None, fields: dict[str, Any]) -> ProcessPlan:
    """The plan of what ``factory()`` or ``factory(generation_number)`` makes."""
    made = _asking(factory, name)
    # What it makes first says what it is, and is the first generation.
    first = [made(1)]
    # Most things that are no scripted process have a name of their own, which a lambda has not.
    if name is None and (isinstance(first[0], ScriptedProcess) or getattr(factory, "__name__", "").isidentifier()):
        name = default_name(factory)
    make = _maker(lambda number: first.pop() if first else made(number), fields)
    return ProcessPlan(make, process_of(first[0], name=name, **fields).member)


def _asking(factory: Callable[..., Any], name: str | None) -> Callable[[int], Any]:
    """A function that asks ``factory`` for the thing of a generation."""
    numbered = takes_number(factory)

    def made(number: int) -> Any:
        thing = factory(number) if numbered else factory()
        if thing is None or isinstance(thing, type):
            raise UsageError(f"{factory!a:.80} made {thing!a:.80}, which is no extension", extension=name)
        return thing

    return made


def _maker(made: Callable[[int], Any], fields: dict[str, Any]) -> Make:
    def make(link: ProcessLink) -> ScriptedProcess:
        thing = made(link.number)
        if isinstance(thing, ScriptedProcess):
            return thing
        return process_of(thing, name=link.name, **fields).make(link)

    return make


def takes_number(factory: Callable[..., Any]) -> bool:
    """Whether a factory is to be given the number of the generation."""
    try:
        parameters = inspect.signature(factory).parameters.values()
    except ValueError:
        return False
    return any(
        parameter.default is parameter.empty
        and parameter.kind in (parameter.POSITIONAL_ONLY, parameter.POSITIONAL_OR_KEYWORD)
        for parameter in parameters
    )


def _toml(value: Any) -> str:
    if isinstance(value, Mapping):
        return "{" + ", ".join(f"{json.dumps(key)} = {_toml(item)}" for key, item in value.items()) + "}"
    if isinstance(value, list | tuple):
        return "[" + ", ".join(_toml(item) for item in value) + "]"
    return json.dumps(value)
