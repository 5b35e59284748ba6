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
import queue
import secrets
import sys
import threading
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, TypeVar

from attrs import field, frozen

from broker.adapters.files import write_whole
from broker.errors import BrokerError, ResourceExhaustedError, UsageError
from broker.limits import (
    MAX_ARTIFACT_BYTES,
    MAX_ARTIFACT_FIELD_CHARS,
    MAX_ARTIFACTS,
    MAX_READ_CHUNK_BYTES,
    MAX_SERVER_WORKERS,
    RESPONSE_BYTES,
    SERVER_FINISH_MS,
)
from broker.wire.mcp.serving import ServedCall, ServedTool, ServerPeer
from broker.wire.odek.artifact_ref import file_uri
from broker.wire.odek.envelope import RESULT_SCHEMA
from broker.wire.quoting import scalar
from broker.wire.signature import ArgumentError, Signature

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
        ids = [ref.get("id") for ref in self.artifacts]
        if len(ids) > MAX_ARTIFACTS:
            raise ResourceExhaustedError(
                f"{len(ids)} artifacts in one result, at most {MAX_ARTIFACTS} are accepted",
                limit="MAX_ARTIFACTS",
                observed=len(ids),
                maximum=MAX_ARTIFACTS,
            )
        if len(set(ids)) != len(ids):
            raise UsageError("two artifacts of one result have the same id", path="artifacts")
        whole = {"schema": RESULT_SCHEMA, "text": self.text, "artifacts": list(self.artifacts)}
        # A host reads the envelope as JSON of its own, which cannot hold half a surrogate pair.
        return scalar(json.dumps(whole, ensure_ascii=False))


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
        # Resolved: a ref's path has to be a clean one.
        self._root = None if artifact_root is None else Path(artifact_root).resolve()
        self._max_line_bytes = max_response_bytes - 1
        self._functions: dict[str, tuple[Callable[..., Any], Signature]] = {}
        self._tools: list[ServedTool] = []
        self._peer: ServerPeer = self._make_peer(())
        self._out: int | None = None
        self._lock = threading.Lock()
        self._settled = threading.Condition(self._lock)
        self._waiting: queue.SimpleQueue[ServedCall] = queue.SimpleQueue()
        self._workers = 0

    def tool(self, function: F) -> F:
        """Make a function a tool of its own name; its docstring is the description. Wrong use raises at once."""
        name = function.__name__
        description = inspect.cleandoc(function.__doc__ or "")
        if not description:
            raise UsageError(f"tool {name} needs a docstring: it is what the model reads", path=name)
        signature = Signature.of(function, Context)
        tools = [*self._tools, ServedTool(name, description, signature.schema())]
        self._peer = self._make_peer(tools)  # checks name, duplicates and sizes
        self._tools = tools
        self._functions[name] = (function, signature)
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
            if not text or not text.isprintable() or len(text) > MAX_ARTIFACT_FIELD_CHARS:
                raise UsageError(
                    f"{name} is one line of 1 to {MAX_ARTIFACT_FIELD_CHARS} printable characters, not {text!a:.80}",
                    path=name,
                )
        if "/" in suffix or "\0" in suffix:
            raise UsageError(f"suffix is the end of a file's name, not {suffix!a:.80}", path="suffix")
        content = data.encode() if isinstance(data, str) else bytes(data)
        if len(content) > MAX_ARTIFACT_BYTES:
            raise ResourceExhaustedError(
                f"artifact {artifact_id!a:.80} has {len(content)} bytes, at most {MAX_ARTIFACT_BYTES} are accepted",
                limit="MAX_ARTIFACT_BYTES",
                observed=len(content),
                maximum=MAX_ARTIFACT_BYTES,
            )
        path = self._root / f"artifact-{secrets.token_hex(8)}{suffix}"
        write_whole(path, content)
        ref = {
            "schema": "odek.artifact-ref/v1",
            "id": artifact_id,
            "uri": file_uri(os.fspath(path)),
            "media_type": media_type,
            "sha256": hashlib.sha256(content).hexdigest(),
            "size_bytes": len(content),
        }
        return ref if summary is None else {**ref, "summary": summary}

    def run(self, *, input_fd: int = 0, output_fd: int = 1) -> None:
        """Serve until the input ends. Tools run in threads, so that one that is slow does not silence the server.

        The standard streams are the protocol's alone: what a tool prints goes to stderr, and what it reads is empty.
        At the end of the input, calls that are open get 2 seconds to notice that they are cancelled; a tool that goes
        on after that ends with the process.
        """
        peer = self._peer = self._make_peer(self._tools)
        source, self._out = os.dup(input_fd), os.dup(output_fd)
        if input_fd == 0:
            nothing = os.open(os.devnull, os.O_RDONLY)
            os.dup2(nothing, 0)
            os.close(nothing)
        if output_fd == 1:
            sys.stdout.flush()
            os.dup2(2, 1)
        try:
            while data := os.read(source, MAX_READ_CHUNK_BYTES):
                with self._lock:
                    peer.receive_data(data)
                    self._write()
                    self._start_calls()
        except BrokenPipeError:
            pass  # the client is gone
        finally:
            os.close(source)
            with self._lock:
                for call in peer.open_calls:
                    call.cancelled = True
                self._settled.wait_for(lambda: not peer.open_calls, SERVER_FINISH_MS / 1000)
                os.close(self._out)
                self._out = None

    # -- inside --------------------------------------------------------------------------------------------------------

    def _make_peer(self, tools: Sequence[ServedTool]) -> ServerPeer:
        return ServerPeer(self.name, self.version, tools, max_line_bytes=self._max_line_bytes)

    def _start_calls(self) -> None:
        while (call := self._peer.next_call()) is not None:
            self._waiting.put(call)
        while self._workers < min(len(self._peer.open_calls), MAX_SERVER_WORKERS):
            self._workers += 1
            # Daemons: a tool that never returns must not keep the process from ending.
            threading.Thread(target=self._work, name=f"tool-{self._workers}", daemon=True).start()

    def _work(self) -> None:
        while True:
            call = self._waiting.get()
            texts, is_error = self._outcome(call)
            with self._lock:
                try:
                    self._peer.answer(call, texts, is_error=is_error)
                except ResourceExhaustedError as error:
                    self._peer.answer(call, [str(error)], is_error=True)
                self._write()
                self._settled.notify()

    def _outcome(self, call: ServedCall) -> tuple[list[str], bool]:
        """The texts of a call, and whether they tell of a failure."""
        try:
            return self._texts(call), False
        except (ToolFailureError, ArgumentError, BrokerError) as error:
            return [str(error)], True
        except BaseException as error:
            # The text of a foreign error may hold anything; its type is what the client gets. SystemExit is no
            # exception: a tool does not end the server, and its caller must not wait for ever.
            sys.stderr.write(f"{call.tool} failed: {error!r}\n")
            return [f"{call.tool} failed: {type(error).__name__}"], True

    def _texts(self, call: ServedCall) -> list[str]:
        function, signature = self._functions[call.tool]
        arguments = signature.bind(call.arguments)
        context = Context(self, call)
        result = function(**arguments, **dict.fromkeys(signature.context, context))
        if isinstance(result, Envelope):
            return [result.to_json()]
        if isinstance(result, str):
            return [result]
        if isinstance(result, list) and all(isinstance(item, str) for item in result):
            return result
        return [json.dumps(result, ensure_ascii=False)]

    def _report(self, call: ServedCall, progress: float, total: float | None, message: str) -> None:
        with self._lock:
            self._peer.progress(call, progress, total, message)
            self._write()

    def _write(self) -> None:
        """Write what there is to write, with the lock held; what nobody can read any more is dropped."""
        while (line := self._peer.next_line()) is not None:
            view = memoryview(line)
            while view and self._out is not None:
                try:
                    view = view[os.write(self._out, view) :]
                except BrokenPipeError:
                    break
