"""One line of the feature-negotiated wire: a request, a notification or an answer.

Lines are JSON objects in any order of keys; members of an envelope that nobody knows are passed over, white space
around an object (and so a CR before the LF) is removed, and blank lines are nothing. Anything that cannot be told apart
ends the stream. Source: octet notes, section 5.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final, TypeAlias

from attrs import frozen

from broker.errors import ERROR_TABLE, ProtocolError
from broker.limits import MAX_JSON_RPC_ID_BYTES
from broker.wire.feature.values import MAX_CHILD_ID
from broker.wire.jsonrpc import ABSENT, VERSION, RequestId, json_type
from broker.wire.mcp.decoding import WHITE_SPACE, Junk, decode_line
from broker.wire.quoting import quote, utf8_length

_NAME_BY_CODE: Final[Mapping[int, str]] = {row.code: row.name for row in ERROR_TABLE.values()}


@frozen
class Call:
    """A request or a notification; ``params`` are as sent, ``{}`` when left out. ``id`` means nothing on the latter."""

    method: str
    params: Any
    is_request: bool
    id: RequestId = 0


@frozen
class ErrorAnswer:
    """What is in an answer's ``error``; code and message are the extension's own."""

    code: int
    message: str
    data: Any

    @property
    def row_name(self) -> str:
        """The row of the error table with this code; ``internal_error`` for a code it does not have."""
        return _NAME_BY_CODE.get(self.code, "internal_error")


@frozen
class Answer:
    """An answer to a request of the host: ``result``, or ``error`` if that is not ``None``."""

    id: int
    result: Any
    error: ErrorAnswer | None


Message: TypeAlias = Call | Answer


def read_line(line: bytes) -> Message | None:
    """What a line without its LF says; ``None`` for a blank one.

    Raises :class:`~broker.errors.ProtocolError`: ``parse_error`` for what is no JSON, ``invalid_request`` for any other
    line that is no message.
    """
    line = line.strip(WHITE_SPACE)
    if not line:
        return None
    value = decode_line(line)
    if isinstance(value, Junk):
        raise ProtocolError(f"a line that is {value.reason}; it begins {quote(line)}", name="parse_error")
    if type(value) is not dict:
        raise ProtocolError(f"a line must be an object, not {json_type(value)}; it begins {quote(line)}")
    if value.get("jsonrpc") != VERSION:
        raise _fault("jsonrpc", f'must be "{VERSION}"')
    return _read_call(value) if "method" in value else _read_answer(value)


def _read_call(value: dict[str, Any]) -> Call:
    method = value["method"]
    if type(method) is not str:
        raise _fault("method", f"must be a string, not {json_type(method)}")
    params = value.get("params")
    params = {} if params is None else params
    if "id" not in value:
        return Call(method, params, is_request=False)
    return Call(method, params, is_request=True, id=_read_child_id(value["id"]))


def _read_child_id(value: Any) -> RequestId:
    if type(value) is str:
        size = utf8_length(value)
        if size > MAX_JSON_RPC_ID_BYTES:
            raise ProtocolError(
                f"id: is too long (MAX_JSON_RPC_ID_BYTES: observed {size}, maximum {MAX_JSON_RPC_ID_BYTES})",
                path="id",
                limit="MAX_JSON_RPC_ID_BYTES",
                observed=size,
                maximum=MAX_JSON_RPC_ID_BYTES,
            )
        return value
    if type(value) is not int or not 0 <= value <= MAX_CHILD_ID:
        raise _fault("id", f"must be a string or an integer from 0 to {MAX_CHILD_ID}, not {quote(str(value))}")
    return value


def _read_answer(value: dict[str, Any]) -> Answer:
    answer_id = value.get("id")
    if type(answer_id) is not int:
        raise _fault("id", f"an answer's id must be an integer, not {json_type(answer_id)}")
    # Some encoders write both members, the one that does not apply as null.
    error = value.get("error")
    if error is None:
        if "result" not in value:
            raise _fault("", "neither a method, a result nor an error")
        return Answer(answer_id, value["result"], None)
    if value.get("result") is not None:
        raise _fault("", "an answer has a result or an error, not both")
    if type(error) is not dict:
        raise _fault("error", f"must be an object, not {json_type(error)}")
    code, message = error.get("code"), error.get("message")
    if type(code) is not int:
        raise _fault("error.code", f"must be an integer, not {json_type(code)}")
    if type(message) is not str:
        raise _fault("error.message", f"must be a string, not {json_type(message)}")
    return Answer(answer_id, None, ErrorAnswer(code, message, error.get("data", ABSENT)))


def _fault(path: str, problem: str) -> ProtocolError:
    return ProtocolError(f"invalid message: {path}: {problem}" if path else f"invalid message: {problem}", path=path)
