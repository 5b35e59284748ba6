"""What a typed function takes, as an input schema and as a check of the arguments that come for it.

Both kits for authors, that of octet extensions and that of MCP servers, make tools from functions with it.
"""

from __future__ import annotations

import inspect
import types
import typing
from collections.abc import Callable, Iterator, Sequence
from itertools import islice
from typing import Any, Literal, Union, get_args, get_origin

from attrs import frozen

from broker.errors import Fault, UsageError
from broker.limits import MAX_REPORTED_FAULTS
from broker.wire.quoting import escape

_SCALARS: dict[Any, str] = {str: "string", int: "integer", float: "number", bool: "boolean"}
_MISSING = "is missing"
_LITERALS = (str, int, bool, type(None))


class ArgumentError(ValueError):
    """Arguments are missing or of another type. The text names all of them, ``faults`` are they with their paths."""

    def __init__(self, faults: Sequence[Fault]) -> None:
        self.faults: tuple[Fault, ...] = tuple(faults)
        texts = [
            f"argument {fault.path}{' ' if fault.problem == _MISSING else ': '}{fault.problem}" for fault in self.faults
        ]
        more = ["..."] if len(texts) > MAX_REPORTED_FAULTS else []
        super().__init__("; ".join(texts[:MAX_REPORTED_FAULTS] + more))


@frozen
class Signature:
    """The parameters of one tool by name: the type each is annotated with, and whether it may be left out.

    ``context`` names the parameters that get the call's context instead of an argument.
    """

    hints: dict[str, Any]
    optional: frozenset[str]
    context: tuple[str, ...]

    @classmethod
    def of(cls, function: Callable[..., Any], context: type) -> Signature:
        """The signature of ``function``; raises :class:`UsageError` for one that has no schema."""
        tool = getattr(function, "__name__", type(function).__name__)
        try:
            known = typing.get_type_hints(function)
        except (NameError, TypeError) as error:
            raise UsageError(f"tool {tool}: its annotations cannot be read: {error}", path=tool) from error
        hints: dict[str, Any] = {}
        optional, contexts = [], []
        for name, parameter in inspect.signature(function).parameters.items():
            if parameter.kind in (parameter.VAR_POSITIONAL, parameter.VAR_KEYWORD, parameter.POSITIONAL_ONLY):
                raise UsageError(f"tool {tool}: parameter {name} must be callable by name", path=name)
            if name not in known:
                raise UsageError(f"tool {tool}: parameter {name} needs a type annotation", path=name)
            if known[name] is context:
                contexts.append(name)
                continue
            hints[name] = known[name]
            if parameter.default is not parameter.empty:
                optional.append(name)
        for name, hint in hints.items():
            if _schema_of(hint) is None:
                raise UsageError(
                    f"tool {tool}: parameter {name} has the type {hint!r}, which has no JSON schema here", path=name
                )
        return cls(hints, frozenset(optional), tuple(contexts))

    def schema(self) -> dict[str, Any]:
        """The input schema. It allows further arguments, as the contract asks."""
        properties = {name: _schema_of(hint) for name, hint in self.hints.items()}
        schema: dict[str, Any] = {"type": "object", "properties": properties}
        required = [name for name in self.hints if name not in self.optional]
        return {**schema, "required": required} if required else schema

    def bind(self, given: Any) -> dict[str, Any]:
        """The arguments that the function knows among ``given``; anything but an object counts as an empty one.

        Raises :class:`ArgumentError` with every one that is missing or does not fit.
        """
        values = given if isinstance(given, dict) else {}
        arguments = {}
        faults: list[Fault] = []
        for name, hint in self.hints.items():
            if name in values:
                faults += islice(_faults(values[name], hint, name), MAX_REPORTED_FAULTS + 1)
                arguments[name] = values[name]
            elif name not in self.optional:
                faults.append(Fault(name, _MISSING))
        if faults:
            raise ArgumentError(faults)
        return arguments

    def example(self) -> dict[str, Any]:
        """Arguments that fit, to show how it is called: those that may not be left out."""
        return {name: _example(hint, name) for name, hint in self.hints.items() if name not in self.optional}


def _schema_of(hint: Any) -> dict[str, Any] | None:
    if hint is Any:
        return {}
    if hint is type(None):
        return {"type": "null"}
    if isinstance(hint, type) and hint in _SCALARS:
        return {"type": _SCALARS[hint]}
    origin, arguments = get_origin(hint), get_args(hint)
    if origin is Literal:
        return {"enum": list(arguments)} if all(type(item) in _LITERALS for item in arguments) else None
    if origin is list and arguments:
        items = _schema_of(arguments[0])
        return None if items is None else {"type": "array", "items": items}
    if origin is dict and arguments and arguments[0] is str:
        values = _schema_of(arguments[1])
        return None if values is None else {"type": "object", "additionalProperties": values}
    if origin in (Union, types.UnionType):
        options = [_schema_of(item) for item in arguments]
        return None if None in options else {"anyOf": options}
    return None


def _faults(value: Any, hint: Any, path: str) -> Iterator[Fault]:
    """What is wrong with a value, as deep inside as that can be told."""
    if _fits(value, hint):
        return
    origin, arguments = get_origin(hint), get_args(hint)
    if origin is list and isinstance(value, list):
        for index, item in enumerate(value):
            yield from _faults(item, arguments[0], f"{path}[{index}]")
    elif origin is dict and isinstance(value, dict):
        for key, item in value.items():
            yield from _faults(item, arguments[1], f"{path}.{escape(str(key), max_chars=80)}")
    else:
        yield Fault(path, f"expected {_described(hint)}, got {value!a:.80}")


def _example(hint: Any, name: str) -> Any:
    origin, arguments = get_origin(hint), get_args(hint)
    if origin in (Union, types.UnionType):
        return _example(next(item for item in arguments if item is not type(None)), name)
    if origin is Literal:
        return arguments[0]
    if origin is list:
        return [_example(arguments[0], name)]
    if origin is dict:
        return {"key": _example(arguments[1], name)}
    return {int: 1, float: 1.5, bool: True, type(None): None}.get(hint, name)


def _fits(value: Any, hint: Any) -> bool:
    if hint is Any:
        return True
    if hint is float:
        return type(value) in (int, float)
    if hint is type(None):
        return value is None
    if isinstance(hint, type) and hint in _SCALARS:
        return type(value) is hint
    origin, arguments = get_origin(hint), get_args(hint)
    if origin is Literal:
        return any(type(value) is type(item) and value == item for item in arguments)
    if origin is list:
        return isinstance(value, list) and all(_fits(item, arguments[0]) for item in value)
    if origin is dict:
        return isinstance(value, dict) and all(_fits(item, arguments[1]) for item in value.values())
    return any(_fits(value, item) for item in arguments)


def _described(hint: Any) -> str:
    return hint.__name__ if isinstance(hint, type) and not get_args(hint) else str(hint).replace("typing.", "")
