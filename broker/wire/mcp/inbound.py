"""What one received line means: a message or a batch of them, an answer, a request, a notification, or junk.

Junk is dropped, counted and quoted in a diagnostic, up to a bound that ends the connection (design, D13). A server's
requests are answered here and at once, in every phase: a server may ask before it answers ``initialize``.

Source: odek notes, section 2.5; design, "Decisions on odek-extension/v1".
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any, Final

import orjson

from broker.errors import BrokerError, McpError, ProtocolError, ResultError
from broker.limits import (
    MAX_BATCH_MESSAGES,
    MAX_JSON_RPC_ID_BYTES,
    MAX_JUNK_BYTES,
    MAX_JUNK_LINES,
    MAX_METHOD_NAME_BYTES,
    MAX_PROGRESS_EXTENSION_MS,
)
from broker.wire.jsonrpc import VERSION, json_type
from broker.wire.mcp.decoding import WHITE_SPACE, Junk, decode_line
from broker.wire.mcp.events import NotificationReceived, ServerRequest
from broker.wire.mcp.outbound import shown
from broker.wire.mcp.requests import HostRequest, Progress
from broker.wire.mcp.settings import Phase
from broker.wire.quoting import escape, plain, quote, utf8_length

if TYPE_CHECKING:
    from broker.wire.mcp.peer import McpPeer

_BOM: Final = b"\xef\xbb\xbf"
_METHOD_NOT_FOUND: Final = {"code": -32601, "message": "Method not found"}


class Inbound:
    """The reading half of a :class:`~broker.wire.mcp.peer.McpPeer`."""

    __slots__ = ("_answers", "_peer", "_started", "ignored_answers", "junk_bytes", "junk_lines")

    def __init__(self, peer: McpPeer) -> None:
        self._peer = peer
        self._started = False
        self._answers: list[bytes] = []
        self.junk_lines: int = 0
        self.junk_bytes: int = 0
        self.ignored_answers: int = 0

    def receive(self, line: bytes) -> None:
        """Handle one line without its LF."""
        if not self._started:
            self._started = True
            line = line.removeprefix(_BOM)
        line = line.strip(WHITE_SPACE)
        if not line:
            return
        value = decode_line(line)
        if type(value) is dict:
            self._receive_message(value, line)
            if self._answers:
                self._send_answers(is_batch=False)
        elif type(value) is list:
            self._receive_batch(value, line)
        elif isinstance(value, Junk):
            self._receive_unreadable(value, line)
        else:
            self._drop(f"{json_type(value)} is no message", line)

    # -- messages ------------------------------------------------------------------------------------------------------

    def _receive_batch(self, messages: list[Any], line: bytes) -> None:
        if not messages:
            self._drop("an empty batch", line)
            return
        if len(messages) > MAX_BATCH_MESSAGES:
            self._drop(f"a batch of {len(messages)} messages, more than {MAX_BATCH_MESSAGES}", line)
            return
        for message in messages:
            if type(message) is dict:
                self._receive_message(message, None)
            else:
                self._drop(f"{json_type(message)} in a batch is no message", orjson.dumps(message))
        if self._answers:
            self._send_answers(is_batch=True)

    def _receive_message(self, message: dict[str, Any], line: bytes | None) -> None:
        # Some libraries write every member of a message: an empty one asks for nothing.
        if message.get("method") not in (None, ""):
            problem = self._receive_call(message)
        elif "id" in message and ("result" in message or "error" in message or self._is_ours(message["id"])):
            self._receive_answer(message)
            return
        else:
            problem = "neither a request, a notification nor an answer"
        if problem is not None:
            self._drop(problem, orjson.dumps(message) if line is None else line)

    def _receive_call(self, message: dict[str, Any]) -> str | None:
        """Handle a request or a notification of the server; what is wrong with it, if something is."""
        method = message["method"]
        if type(method) is not str:
            return f"its method is {json_type(method)}"
        if utf8_length(method) > MAX_METHOD_NAME_BYTES:
            return f"its method has more than {MAX_METHOD_NAME_BYTES} bytes"
        if "id" not in message:
            self._receive_notification(method, message.get("params"))
            return None
        request_id = message["id"]
        if type(request_id) is not int and type(request_id) is not str:
            return f"the id of its request is {json_type(request_id)}"
        if type(request_id) is str and utf8_length(request_id) > MAX_JSON_RPC_ID_BYTES:
            return f"the id of its request has more than {MAX_JSON_RPC_ID_BYTES} bytes"
        answer: dict[str, Any] = {"jsonrpc": VERSION, "id": request_id}
        roots = self._peer.settings.roots
        if method == "ping":
            answer["result"] = {}
        elif method == "roots/list" and roots is not None:
            answer["result"] = {
                "roots": [
                    {"uri": root.uri} if root.name is None else {"uri": root.uri, "name": root.name} for root in roots
                ]
            }
        else:
            answer["error"] = _METHOD_NOT_FOUND
        self._answers.append(orjson.dumps(answer))
        self._peer.emit(ServerRequest(method, refused="error" in answer))
        return None

    def _receive_notification(self, method: str, params: Any) -> None:
        if method == "notifications/tools/list_changed":
            self._peer.tools_changed()
        elif method == "notifications/progress":
            self._receive_progress(params)
        else:
            self._peer.emit(NotificationReceived(method, params))

    def _receive_progress(self, params: Any) -> None:
        peer = self._peer
        token = params.get("progressToken") if type(params) is dict else None
        request = peer.outbound.awaiting_progress(token)
        if request is None:
            return  # it may have been on its way when the call ended
        done, total, message = (params.get(key) for key in ("progress", "total", "message"))
        if not _is_number(done) or not (total is None or _is_number(total)):
            peer.diagnose(f"ignored a progress of {shown(request)} that is no number")
            return
        now_ms = peer.now_ms()
        if request.progress_extends and request.due_ms is not None:
            latest_ms = request.started_ms + MAX_PROGRESS_EXTENSION_MS
            due_ms = max(request.due_ms, min(now_ms + request.timeout_ms, latest_ms))
            peer.outbound.requests.timers.set(request, due_ms)
        if request.on_progress is not None:
            try:
                request.on_progress(Progress(done, total, plain(message) if type(message) is str else None))
            except KeyboardInterrupt:
                raise
            except BaseException as cause:  # one caller's bug must not end the connection of all
                peer.diagnose(f"on_progress of {shown(request)} raised {type(cause).__name__}: {cause}")

    # -- answers -------------------------------------------------------------------------------------------------------

    def _is_ours(self, request_id: Any) -> bool:
        return type(request_id) is int and self._peer.outbound.requests.is_known(request_id)

    def _receive_answer(self, message: dict[str, Any]) -> None:
        request = self._take_request(message["id"], message.get("error"))
        if request is None:
            return
        error, result = message.get("error"), message.get("result")
        failure: BrokerError | None = None
        if error is not None:
            failure = self._remote_error(request, error)
        elif "result" not in message:
            failure = self._unreadable(request, "it has neither a result nor an error")
        elif result is None:
            result = {}
        elif type(result) is not dict:
            failure = self._unreadable(request, f"its result must be an object, not {json_type(result)}")
        self._peer.settle_answered(request, result, failure)

    def _receive_unreadable(self, junk: Junk, line: bytes) -> None:
        """A line that cannot be read fails the calls it was meant for; if there are none, it is junk."""
        requests = [request for request_id in junk.answers if (request := self._open_request(request_id)) is not None]
        if not requests:
            self._drop(junk.reason, line)
        for request in requests:
            self._peer.settle_answered(request, None, self._unreadable(request, junk.reason))

    def _open_request(self, request_id: int) -> HostRequest | None:
        return self._take_request(request_id, None) if self._is_ours(request_id) else None

    def _take_request(self, request_id: Any, error: Any) -> HostRequest | None:
        """The open request that an answer is for; an answer for none is counted and told, but harms nobody."""
        request = self._peer.outbound.requests.answered(request_id) if type(request_id) is int else None
        if request is not None and not request.settled:
            return request
        self.ignored_answers += 1
        if request is not None:
            self._peer.diagnose(f"ignored a late answer to {shown(request)} (id {request.id})")
        else:
            note = f" with error {quote(orjson.dumps(error))}" if error is not None else ""
            shown_id = quote(orjson.dumps(request_id))
            self._peer.diagnose(f"ignored an answer{note} to id {shown_id}, which no open request has")
        return None

    def _remote_error(self, request: HostRequest, error: Any) -> BrokerError:
        if type(error) is not dict:
            return self._unreadable(request, f"its error must be an object, not {json_type(error)}")
        code, message = error.get("code"), error.get("message")
        if type(code) is not int:
            code = None
        if type(message) is not str:
            message = ""
        failure = McpError(
            f"{self._peer.server}: {shown(request)}: error {code}: {escape(message)}",
            rpc_code=code,
            rpc_message=message,
            data=error.get("data"),
        )
        self._peer.outbound.attribute(request, failure)
        return failure

    def _unreadable(self, request: HostRequest, reason: str) -> ResultError:
        failure = ResultError(f"{self._peer.server}: {shown(request)}: its answer cannot be read: {reason}")
        self._peer.outbound.attribute(request, failure)
        return failure

    def _send_answers(self, *, is_batch: bool) -> None:
        phase, outbound = self._peer.phase, self._peer.outbound
        # A host that is stopping the server has closed its input, perhaps: who cannot read is not to blame.
        if phase is Phase.DRAINING and not outbound.outbox.has_room:
            self._answers.clear()
        elif phase is not Phase.CLOSED:
            payload = b",".join(self._answers)
            self._answers.clear()
            outbound.push_answer(b"[%b]" % payload if is_batch else payload)

    # -- junk ----------------------------------------------------------------------------------------------------------

    def _drop(self, reason: str, line: bytes) -> None:
        self.junk_lines += 1
        self.junk_bytes += len(line)
        self._peer.diagnose(f"dropped a line of {len(line)} bytes, {reason}: {quote(line)}")
        for limit, observed, maximum in (
            ("MAX_JUNK_LINES", self.junk_lines, MAX_JUNK_LINES),
            ("MAX_JUNK_BYTES", self.junk_bytes, MAX_JUNK_BYTES),
        ):
            if observed >= maximum:
                raise ProtocolError(
                    f"{self._peer.server}: too much output that is no protocol, the last: {quote(line)} "
                    f"({limit}: observed {observed}, maximum {maximum})",
                    limit=limit,
                    observed=observed,
                    maximum=maximum,
                )


def _is_number(value: Any) -> bool:
    return (type(value) is int or type(value) is float) and math.isfinite(value)
