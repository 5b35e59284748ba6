"""Write an MCP server that keeps to ``odek-extension/v1``: tools from typed functions, envelopes, artifacts, bounds.

::

    server = Server("log-analyzer", artifact_root="/var/ci-artifacts")

    @server.tool
    def summarize(file: str, limit: int = 10) -> Envelope:
        '''Summarize a log file.'''
        report = server.artifact("report-1", text, media_type="text/plain", summary="The whole report")
        return Envelope("4 of 1284 failed; the report is attached.", [report])

    server.run()

A function's parameters become the input schema: ``str``, ``int``, ``float``, ``bool``, ``list[...]``,
``dict[str, ...]``, ``Literal[...]`` and ``X | None``; a parameter annotated with :class:`Context` gets the call's
context and is not part of the schema. Arguments a function does not know are ignored, as the contract asks.
"""

from __future__ import annotations

import hashlib
import inspect
import json
import os
import sys
import tempfile
import threading
import types
import typing
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, Literal, TypeVar, Union, get_args, get_origin
from urllib.parse import quote

from attrs import field, frozen

from broker.errors import BrokerError, ResourceExhaustedError, UsageError
from broker.limits import (
    MAX_ARTIFACT_BYTES,
    MAX_ARTIFACTS,
    MAX_READ_CHUNK_BYTES,
    MAX_SERVER_WORKERS,
    RESPONSE_BYTES,
)
from broker.wire.mcp.serving import ServedCall, ServedTool, ServerPeer

F = TypeVar("F", bound=Callable[..., Any])


class ToolFailureError(Exception):
    """Raise it in a tool: the call fails, with this text, and the server goes on."""


@frozen
class Envelope:
    """A compact text with artifacts beside it; becomes an ``odek.tool-result/v1`` envelope."""

    text: str
    artifacts: Sequence[dict[str, Any]] = field(factory=tuple)

    def to_json(self) -> str:
        """The envelope as the text of the one content item it travels in. Raises :class:`UsageError` for bad refs."""
        ids = [ref["id"] for ref in self.artifacts]
        if len(ids) > MAX_ARTIFACTS:
            raise ResourceExhaustedError(
                f"{len(ids)} artifacts in one result, at most {MAX_ARTIFACTS} are accepted",
                limit="MAX_ARTIFACTS",
                observed=len(ids),
                maximum=MAX_ARTIFACTS,
            )
        if len(set(ids)) != len(ids):
            raise UsageError("two artifacts of one result have the same id", path="artifacts")
        return json.dumps({"schema": "odek.tool-result/v1", "text": self.text, "artifacts": list(self.artifacts)})


class Context:
    """What a tool may know about its call."""

    def __init__(self, server: Server, call: ServedCall) -> None:
        self._server = server
        self._call = call

    @property
    def cancelled(self) -> bool:
        """Whether the client gave the call up; a long tool looks now and then."""
        return self._call.cancelled

    def progress(self, progress: float, total: float | None = None, message: str = "") -> None:
        """Tell the client how far the call has come, if it asked."""
        self._server._report(self._call, progress, total, message)


class Server:
    """An MCP server over stdio. ``artifact_root`` is the directory artifacts are written to; it must exist."""

    def __init__(
        self,
        name: str,
        version: str = "0",
        *,
        artifact_root: str | os.PathLike[str] | None = None,
        max_response_bytes: int = RESPONSE_BYTES,
    ) -> None:
        self.name = name
        self.version = version
        self._root = None if artifact_root is None else Path(artifact_root).absolute()
        self._max_line_bytes = max_response_bytes - 1
        self._functions: dict[str, Callable[..., Any]] = {}
        self._tools: list[ServedTool] = []
        self._peer: ServerPeer | None = None
        self._lock = threading.Lock()

    def tool(self, function: F) -> F:
        """Make a function a tool of its own name; its docstring is the description. Wrong use raises at once."""
        name = function.__name__
        description = inspect.cleandoc(function.__doc__ or "")
        if not description:
            raise UsageError(f"tool {name} needs a docstring: it is what the model reads", path=name)
        served = ServedTool(name, description, _schema(function))
        ServerPeer(self.name, self.version, [*self._tools, served])  # checks name, duplicates and sizes
        self._tools.append(served)
        self._functions[name] = function
        return function

    def artifact(
        self, artifact_id: str, data: bytes | str, *, media_type: str, summary: str | None = None, suffix: str = ""
    ) -> dict[str, Any]:
        """Write an artifact whole (temporary name, fsync, rename) and give the ref to it.

        Raises :class:`UsageError` without an artifact root, :class:`ResourceExhaustedError` over 64 MiB, ``OSError``
        when the file cannot be written; nothing is left behind then.
        """
        if self._root is None:
            raise UsageError("this server has no artifact_root", path="artifact_root")
        for name, text in (("artifact_id", artifact_id), ("media_type", media_type), ("summary", summary or "-")):
            if not text or not text.isprintable():
                raise UsageError(f"{name} is one line of printable text, not {text!a:.80}", path=name)
        content = data.encode() if isinstance(data, str) else bytes(data)
        if len(content) > MAX_ARTIFACT_BYTES:
            raise ResourceExhaustedError(
                f"artifact {artifact_id!a:.80} has {len(content)} bytes, at most {MAX_ARTIFACT_BYTES} are accepted",
                limit="MAX_ARTIFACT_BYTES",
                observed=len(content),
                maximum=MAX_ARTIFACT_BYTES,
            )
        path = _write_whole(self._root, content, suffix)
        ref = {
            "schema": "odek.artifact-ref/v1",
            "id": artifact_id,
            "uri": "file://" + quote(os.fsencode(path), safe="/-._~"),
            "media_type": media_type,
            "sha256": hashlib.sha256(content).hexdigest(),
            "size_bytes": len(content),
        }
        return ref if summary is None else {**ref, "summary": summary}

    def run(self, *, input_fd: int = 0, output_fd: int = 1) -> None:
        """Serve until the input ends. Tools run in threads, so that one that is slow does not silence the server.

        Anything a tool prints goes to stderr: stdout carries the protocol alone.
        """
        peer = self._peer = ServerPeer(self.name, self.version, self._tools, max_line_bytes=self._max_line_bytes)
        out = os.dup(output_fd)
        if output_fd == 1:
            sys.stdout.flush()
            os.dup2(2, 1)
        workers = ThreadPoolExecutor(MAX_SERVER_WORKERS, thread_name_prefix="tool")
        try:
            while data := os.read(input_fd, MAX_READ_CHUNK_BYTES):
                with self._lock:
                    peer.receive_data(data)
                    calls = list(iter(peer.next_call, None))
                    self._write(out)
                for call in calls:
                    workers.submit(self._carry_out, call, out)
        except BrokenPipeError:
            pass  # the client is gone
        finally:
            with self._lock:
                for call in peer.open_calls:
                    call.cancelled = True
            workers.shutdown(wait=False, cancel_futures=True)

    # -- inside --------------------------------------------------------------------------------------------------------

    def _carry_out(self, call: ServedCall, out: int) -> None:
        peer = self._peer
        assert peer is not None
        try:
            texts, is_error = self._texts(call), False
        except ToolFailureError as error:
            texts, is_error = [str(error)], True
        except BrokerError as error:
            texts, is_error = [str(error)], True
        except Exception as error:
            # The text of a foreign error may hold anything; its type is what the client gets.
            sys.stderr.write(f"{call.tool} failed: {error!r}\n")
            texts, is_error = [f"{call.tool} failed: {type(error).__name__}"], True
        with self._lock:
            try:
                try:
                    peer.answer(call, texts, is_error=is_error)
                except ResourceExhaustedError as error:
                    peer.answer(call, [str(error)], is_error=True)
                self._write(out)
            except BrokenPipeError:
                pass  # the client is gone

    def _texts(self, call: ServedCall) -> list[str]:
        function = self._functions[call.tool]
        given = call.arguments if isinstance(call.arguments, dict) else {}
        arguments: dict[str, Any] = {}
        for name, parameter in inspect.signature(function).parameters.items():
            hint = _hints(function)[name]
            if hint is Context:
                arguments[name] = Context(self, call)
            elif name in given:
                if not _fits(given[name], hint):
                    raise ToolFailureError(f"argument {name}: expected {_described(hint)}, got {given[name]!a:.80}")
                arguments[name] = given[name]
            elif parameter.default is inspect.Parameter.empty:
                raise ToolFailureError(f"argument {name} is missing")
        result = function(**arguments)
        if isinstance(result, Envelope):
            return [result.to_json()]
        if isinstance(result, str):
            return [result]
        if isinstance(result, list) and all(isinstance(item, str) for item in result):
            return result
        return [json.dumps(result, ensure_ascii=False)]

    def _report(self, call: ServedCall, progress: float, total: float | None, message: str) -> None:
        if self._peer is not None:
            with self._lock:
                self._peer.progress(call, progress, total, message)

    def _write(self, out: int) -> None:
        assert self._peer is not None
        while (line := self._peer.next_line()) is not None:
            view = memoryview(line)
            while view:
                view = view[os.write(out, view) :]


def _write_whole(root: Path, content: bytes, suffix: str) -> Path:
    descriptor, temporary = tempfile.mkstemp(prefix=".artifact-", dir=root)
    try:
        try:
            view = memoryview(content)
            while view:
                view = view[os.write(descriptor, view) :]
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
        path = root / f"{Path(temporary).name.lstrip('.')}{suffix}"
        os.rename(temporary, path)
    except BaseException:
        os.unlink(temporary)
        raise
    directory = os.open(root, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(directory)
    finally:
        os.close(directory)
    return path


def _hints(function: Callable[..., Any]) -> dict[str, Any]:
    return typing.get_type_hints(function)


_SCALARS: dict[Any, str] = {str: "string", int: "integer", float: "number", bool: "boolean"}


def _schema(function: Callable[..., Any]) -> dict[str, Any]:
    hints = _hints(function)
    properties: dict[str, Any] = {}
    required = []
    for name, parameter in inspect.signature(function).parameters.items():
        if parameter.kind in (parameter.VAR_POSITIONAL, parameter.VAR_KEYWORD, parameter.POSITIONAL_ONLY):
            raise UsageError(f"tool {function.__name__}: parameter {name} must be callable by name", path=name)
        if name not in hints:
            raise UsageError(f"tool {function.__name__}: parameter {name} needs a type annotation", path=name)
        if hints[name] is Context:
            continue
        properties[name] = _type_schema(function.__name__, name, hints[name])
        if parameter.default is inspect.Parameter.empty:
            required.append(name)
    schema: dict[str, Any] = {"type": "object", "properties": properties}
    return {**schema, "required": required} if required else schema


def _type_schema(tool: str, name: str, hint: Any) -> dict[str, Any]:
    if hint in _SCALARS:
        return {"type": _SCALARS[hint]}
    origin, arguments = get_origin(hint), get_args(hint)
    if origin is Literal:
        return {"enum": list(arguments)}
    if origin is list:
        return {"type": "array", "items": _type_schema(tool, name, arguments[0])}
    if origin is dict and arguments[0] is str:
        return {"type": "object", "additionalProperties": _type_schema(tool, name, arguments[1])}
    if origin in (Union, types.UnionType):
        options = [{"type": "null"} if item is type(None) else _type_schema(tool, name, item) for item in arguments]
        return {"anyOf": options}
    if hint is Any:
        return {}
    raise UsageError(f"tool {tool}: parameter {name} has the type {hint!r}, which has no JSON schema here", path=name)


def _fits(value: Any, hint: Any) -> bool:
    if hint is Any:
        return True
    if hint is float:
        return type(value) in (int, float)
    if hint in _SCALARS:
        return type(value) is hint
    origin, arguments = get_origin(hint), get_args(hint)
    if origin is Literal:
        return any(type(value) is type(item) and value == item for item in arguments)
    if origin is list:
        return isinstance(value, list) and all(_fits(item, arguments[0]) for item in value)
    if origin is dict:
        return isinstance(value, dict) and all(_fits(item, arguments[1]) for item in value.values())
    return any(value is None if item is type(None) else _fits(value, item) for item in arguments)


def _described(hint: Any) -> str:
    return getattr(hint, "__name__", None) or str(hint)
