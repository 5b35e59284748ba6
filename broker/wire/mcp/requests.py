"""The client's requests to an MCP server: what they carry, and how their parameters become bytes."""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Mapping
from typing import Any, Final

import orjson
from attrs import define, field, frozen

from broker.errors import InvalidParamsError
from broker.limits import MAX_MESSAGE_DEPTH
from broker.wire.jsonrpc import VERSION
from broker.wire.requests import HostRequest

__all__ = ["HostRequest", "McpRequest", "Progress", "encode"]

_SCALARS: Final = frozenset((str, int, bool, type(None)))
_CONTAINERS: Final = frozenset((dict, list, tuple))
_STRING: Final = frozenset((str,))


@frozen
class Progress:
    """How far a call has come, as the server says: ``progress`` of ``total``, if it is known, and a text made safe."""

    progress: float
    total: float | None = None
    message: str | None = None


@define(eq=False)
class McpRequest(HostRequest):
    """One request to an MCP server; ``tool`` is the raw name of the tool that it calls, if it calls one.

    ``result``, once settled without an error, is the result object as sent; ``{}`` for a result that was ``null``.
    """

    tool: str | None = None
    on_progress: Callable[[Progress], None] | None = field(default=None, repr=False)
    progress_token: int | None = None
    progress_extends: bool = False


def encode(method: str, params: Any = None) -> bytes:
    """The JSON of a request or notification without ``id``; ``params`` is left out when ``None``.

    Raises :class:`~broker.errors.InvalidParamsError` for parameters that JSON cannot hold: another type than JSON's
    own, ``NaN`` or an infinity, a lone surrogate, an integer of more than 64 bits, or containers nested too deeply.
    """
    message = {"jsonrpc": VERSION, "method": method}
    if params is None:
        return orjson.dumps(message)
    message["params"] = params
    return _dump(message, _problem(params, MAX_MESSAGE_DEPTH - 1))


def encode_call(tool: str, arguments: Any, token: int | None = None, meta: Mapping[str, str] | None = None) -> bytes:
    """The JSON of ``tools/call`` without ``id``; raises like :func:`encode`. ``token`` asks for progress under it.

    ``meta`` are further members of ``_meta``.
    """
    params: dict[str, Any] = {"name": tool, "arguments": arguments}
    if meta:
        params["_meta"] = {**meta}
    if token is not None:
        params.setdefault("_meta", {})["progressToken"] = token
    message = {"jsonrpc": VERSION, "method": "tools/call", "params": params}
    return _dump(message, _problem(arguments, MAX_MESSAGE_DEPTH - 2), tool)


def _dump(message: dict[str, Any], problem: str | None, tool: str | None = None) -> bytes:
    if problem is None:
        try:
            return orjson.dumps(message)
        except orjson.JSONEncodeError as error:
            problem = str(error)
    method = message["method"]
    raise InvalidParamsError(f"params of {method}: {problem}", method=method, tool=tool, path="params")


def _problem(value: Any, depth: int) -> str | None:
    """Why JSON cannot hold ``value``, in at most ``depth`` nested containers.

    Level by level, each container once a level, so that no value takes it long.
    """
    if type(value) is dict and _STRING.issuperset(map(type, value)) and _SCALARS.issuperset(map(type, value.values())):
        return None  # as most arguments are
    level: Collection[Any] = (value,)
    for _ in range(depth + 1):
        if _SCALARS.issuperset(map(type, level)):
            return None
        below: dict[int, Any] = {}
        for item in level:
            kind = type(item)
            if kind in _CONTAINERS:
                below[id(item)] = item
            elif kind is float:
                if not math.isfinite(item):
                    return f"JSON has no {item}"
            elif kind not in _SCALARS:
                return f"JSON has no {kind.__name__}"
        if not below:
            return None
        level = []
        for container in below.values():
            if type(container) is dict:
                if not _STRING.issuperset(map(type, container)):
                    wrong = next(key for key in container if type(key) is not str)
                    return f"a key must be a string, not {type(wrong).__name__}"
                level.extend(container.values())
            else:
                level.extend(container)
    return f"more than {MAX_MESSAGE_DEPTH} nested containers"
