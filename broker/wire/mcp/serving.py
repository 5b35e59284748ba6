"""The server's end of MCP over stdio, without IO: bytes in, tool calls out; results in, lines out.

What a compatible server must do and may count on is in the odek notes, section 11: only protocol lines on stdout, ids
echoed unchanged, every answer one bounded line, notifications never answered, ``tools/list`` answered whenever asked.
Lone surrogates of any text become U+FFFD.
"""

from __future__ import annotations

import json
import math
import re
from collections import deque
from collections.abc import Mapping, Sequence
from typing import Any, Final, NoReturn

from attrs import define, frozen

from broker.errors import ResourceExhaustedError, UsageError
from broker.limits import MAX_INPUT_SCHEMA_BYTES, MAX_METHOD_NAME_BYTES, MAX_REQUEST_BYTES, RESPONSE_BYTES
from broker.wire.framing import LineFramer
from broker.wire.mcp.names import name_problem
from broker.wire.mcp.settings import PROTOCOL_VERSION, PROTOCOL_VERSIONS
from broker.wire.quoting import scalar

_PARSE_ERROR: Final = -32700
_INVALID_REQUEST: Final = -32600
_METHOD_NOT_FOUND: Final = -32601
_INVALID_PARAMS: Final = -32602
_INTERNAL_ERROR: Final = -32603
_NOT_ASCII: Final = re.compile("[^\x00-\x7f]+")


@frozen
class ServedTool:
    """A tool as ``tools/list`` shows it."""

    name: str
    description: str
    input_schema: Mapping[str, Any]


@define(eq=False)
class ServedCall:
    """A ``tools/call`` to carry out; answer it once with :meth:`ServerPeer.answer` or :meth:`ServerPeer.refuse`.

    ``arguments`` is whatever the client sent: an object, as a rule, but null and strings have been seen.
    """

    id: Any
    tool: str
    arguments: Any
    progress_token: Any = None
    cancelled: bool = False
    answered: bool = False


class ServerPeer:
    """One client's conversation. ``max_line_bytes`` bounds each line this side writes, its LF not counted."""

    def __init__(
        self,
        name: str,
        version: str,
        tools: Sequence[ServedTool],
        *,
        max_line_bytes: int = RESPONSE_BYTES - 1,
    ) -> None:
        self._name = name
        self._version = version
        self._max_line_bytes = max_line_bytes
        self._tools: dict[str, ServedTool] = {}
        self._open: list[ServedCall] = []
        self._lines: deque[bytes] = deque()
        self._calls: deque[ServedCall] = deque()
        self._framer = LineFramer(MAX_REQUEST_BYTES)
        for tool in tools:
            self._add(tool)

    @property
    def open_calls(self) -> tuple[ServedCall, ...]:
        """The calls that wait for their answer."""
        return tuple(self._open)

    # -- bytes ---------------------------------------------------------------------------------------------------------

    def receive_data(self, data: bytes) -> None:
        """Take bytes of stdin, in any chunks.

        Raises :class:`~broker.errors.ProtocolError` for a line over 64 MiB, after which nothing can be read any more.
        """
        self._framer.feed(data)
        while (line := self._framer.next_frame()) is not None:
            if line.strip():
                self._receive_line(line)

    def next_call(self) -> ServedCall | None:
        """The next tool call to carry out, if there is one."""
        return self._calls.popleft() if self._calls else None

    def next_line(self) -> bytes | None:
        """The next line to write, LF included, if there is one."""
        return self._lines.popleft() if self._lines else None

    # -- answers -------------------------------------------------------------------------------------------------------

    def answer(self, call: ServedCall, texts: Sequence[str], *, is_error: bool = False) -> None:
        """Answer with text items. Raises :class:`ResourceExhaustedError` for too long a line; nothing is sent."""
        result: dict[str, Any] = {"content": [{"type": "text", "text": text} for text in texts], "isError": is_error}
        self._settle(call, {"jsonrpc": "2.0", "id": call.id, "result": result})

    def refuse(self, call: ServedCall, code: int, message: str) -> None:
        """Answer with a JSON-RPC error."""
        self._settle(call, {"jsonrpc": "2.0", "id": call.id, "error": {"code": code, "message": message}})

    def progress(self, call: ServedCall, progress: float, total: float | None = None, message: str = "") -> None:
        """Tell how far a call has come, if its client asked to be told."""
        if call.progress_token is None or call.answered:
            return
        params: dict[str, Any] = {"progressToken": call.progress_token, "progress": progress}
        if total is not None:
            params["total"] = total
        if message:
            params["message"] = message
        self._send({"jsonrpc": "2.0", "method": "notifications/progress", "params": params})

    # -- inside --------------------------------------------------------------------------------------------------------

    def _add(self, tool: ServedTool) -> None:
        if problem := name_problem(tool.name):
            raise UsageError(f"tool name: {problem}", path="name")
        if tool.name in self._tools:
            raise UsageError(f"tool {tool.name} is there already", path="name")
        size = len(json.dumps(tool.input_schema, separators=(",", ":")).encode())
        if size > MAX_INPUT_SCHEMA_BYTES:
            raise ResourceExhaustedError(
                f"tool {tool.name}: its input schema has {size} bytes, at most {MAX_INPUT_SCHEMA_BYTES} are accepted",
                tool=tool.name,
                limit="MAX_INPUT_SCHEMA_BYTES",
                observed=size,
                maximum=MAX_INPUT_SCHEMA_BYTES,
            )
        self._tools[tool.name] = tool

    def _receive_line(self, line: bytes) -> None:
        try:
            value = json.loads(line, parse_constant=_refuse_constant)
        except (ValueError, RecursionError):
            self._fail(None, _PARSE_ERROR, "Parse error")
            return
        for message in value if isinstance(value, list) and value else [value]:
            self._receive_message(message)

    def _receive_message(self, message: Any) -> None:
        if not isinstance(message, dict):
            self._fail(None, _INVALID_REQUEST, "Invalid Request")
            return
        method, params = message.get("method"), message.get("params")
        if not _can_be_echoed(message.get("id")):
            self._fail(None, _INVALID_REQUEST, "Invalid Request")
        elif not isinstance(method, str):
            if "result" not in message and "error" not in message:
                self._fail(message.get("id"), _INVALID_REQUEST, "Invalid Request")
        elif "id" not in message:
            self._on_notification(method, params)
        else:
            try:
                self._on_request(message["id"], method, params)
            except ResourceExhaustedError as error:
                self._fail(message["id"], _INTERNAL_ERROR, str(error))

    def _on_notification(self, method: str, params: Any) -> None:
        if method != "notifications/cancelled" or not isinstance(params, dict):
            return
        for call in self._open:
            if type(call.id) is type(params.get("requestId")) and call.id == params["requestId"]:
                call.cancelled = True

    def _on_request(self, request_id: Any, method: str, params: Any) -> None:
        if method == "initialize":
            asked = params.get("protocolVersion") if isinstance(params, dict) else None
            result: dict[str, Any] = {
                "protocolVersion": asked if asked in PROTOCOL_VERSIONS else PROTOCOL_VERSION,
                "capabilities": {"tools": {}},
                "serverInfo": {"name": self._name, "version": self._version},
            }
            self._send({"jsonrpc": "2.0", "id": request_id, "result": result})
        elif method == "ping":
            self._send({"jsonrpc": "2.0", "id": request_id, "result": {}})
        elif method == "tools/list":
            tools = [
                {"name": tool.name, "description": tool.description, "inputSchema": tool.input_schema}
                for tool in self._tools.values()
            ]
            self._send({"jsonrpc": "2.0", "id": request_id, "result": {"tools": tools}})
        elif method == "tools/call":
            self._on_call(request_id, params)
        else:
            self._fail(request_id, _METHOD_NOT_FOUND, f"Method not found: {method[:MAX_METHOD_NAME_BYTES]}")

    def _on_call(self, request_id: Any, params: Any) -> None:
        name = params.get("name") if isinstance(params, dict) else None
        if not isinstance(name, str) or name not in self._tools:
            self._fail(request_id, _INVALID_PARAMS, f"Unknown tool: {name!a:.140}")
            return
        meta = params.get("_meta")
        token = meta.get("progressToken") if isinstance(meta, dict) else None
        call = ServedCall(request_id, name, params.get("arguments"), token if _can_be_echoed(token) else None)
        self._open.append(call)
        self._calls.append(call)

    def _settle(self, call: ServedCall, message: dict[str, Any]) -> None:
        if call.answered:
            raise UsageError(f"the call of {call.tool} was answered already", tool=call.tool)
        self._send(message, call.tool)
        call.answered = True
        self._open.remove(call)

    def _fail(self, request_id: Any, code: int, message: str) -> None:
        self._send({"jsonrpc": "2.0", "id": request_id, "error": {"code": code, "message": message}})

    def _send(self, message: dict[str, Any], tool: str | None = None) -> None:
        # Strings stand in it as they are, so that one look makes all of them whole: strict clients refuse half a pair.
        text = scalar(json.dumps(message, ensure_ascii=False, separators=(",", ":"), allow_nan=False))
        # ASCII only: no encoding, and no other character that ends a line somewhere, can break the line.
        line = _NOT_ASCII.sub(lambda found: json.dumps(found[0])[1:-1], text).encode()
        if len(line) > self._max_line_bytes:
            raise ResourceExhaustedError(
                f"the answer of {tool or 'the server'} is a line of {len(line)} bytes, over {self._max_line_bytes}",
                tool=tool,
                limit="max_response_bytes",
                observed=len(line),
                maximum=self._max_line_bytes,
            )
        self._lines.append(line + b"\n")


def _can_be_echoed(value: Any) -> bool:
    """Whether an id or a token can be written again: containers may be nested too deeply, and ``1e999`` is infinite."""
    return not isinstance(value, dict | list | float) or (isinstance(value, float) and math.isfinite(value))


def _refuse_constant(name: str) -> NoReturn:
    raise ValueError(f"JSON has no {name}")
