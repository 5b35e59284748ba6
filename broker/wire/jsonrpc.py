"""JSON-RPC 2.0 envelopes of the canonical wire: strict classification of a decoded frame, and the builders.

A frame is exactly one of four shapes, told apart by which of the keys ``id``, ``method``, ``result`` and ``error`` are
present: a :class:`Request`, a :class:`Notification`, a :class:`Success` or a :class:`Failure`. Anything else, an
unknown member, or an error whose code and message are not one row of the error table, is a
:class:`~broker.errors.ProtocolError` with the name ``invalid_request``: such a frame has no trustworthy id, so that it
cannot be answered and ends the stream.

Source: octet reference, sections "Canonical framing and JSON-RPC envelopes", "Errors" and the models ``JsonRpc*`` and
``ErrorObject``.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from enum import Enum
from typing import Any, Final, TypeAlias

from attrs import frozen

from broker.errors import ERROR_TABLE, ErrorRow, ProtocolError
from broker.limits import MAX_JSON_RPC_ID_BYTES, MAX_METHOD_NAME_BYTES, MAX_PORTABLE_INTEGER
from broker.wire.quoting import quote, utf8_length

VERSION: Final = "2.0"

RequestId: TypeAlias = int | str
"""A string of 1 to 256 UTF-8 bytes, or an integer from 0 to 2**53 - 1. Compare by exact type and value."""


class Absent(Enum):
    """The type of :data:`ABSENT`."""

    ABSENT = "absent"

    def __bool__(self) -> bool:
        return False

    def __repr__(self) -> str:
        return "ABSENT"


ABSENT: Final = Absent.ABSENT
"""A member that was not sent; distinct from ``None``, which is an explicit ``null``."""


@frozen
class Request:
    """A call that must be answered under ``id``."""

    id: RequestId
    method: str
    params: Any


@frozen
class Notification:
    """A message that is never answered."""

    method: str
    params: Any


@frozen
class Success:
    """The terminal answer to the request ``id``; ``result`` is never ``None``."""

    id: RequestId
    result: Any


@frozen
class ErrorObject:
    """One row of the error table; ``data`` keeps :data:`ABSENT` and ``None`` apart."""

    row: ErrorRow
    data: Any = ABSENT

    @property
    def name(self) -> str:
        """The row's name, such as ``invalid_params``."""
        return self.row.name

    @property
    def code(self) -> int:
        """The row's code, such as -32602."""
        return self.row.code

    @property
    def message(self) -> str:
        """The row's fixed text."""
        return self.row.message


@frozen
class Failure:
    """The terminal error answer to the request ``id``."""

    id: RequestId
    error: ErrorObject


Envelope: TypeAlias = Request | Notification | Success | Failure

_ROW_BY_CODE: Final[Mapping[int, ErrorRow]] = {row.code: row for row in ERROR_TABLE.values()}
_SHAPE_KEYS: Final = ("id", "method", "result", "error")
_MEMBERS: Final[Mapping[tuple[str, ...], frozenset[str]]] = {
    ("id", "method"): frozenset(("jsonrpc", "id", "method", "params")),
    ("method",): frozenset(("jsonrpc", "method", "params")),
    ("id", "result"): frozenset(("jsonrpc", "id", "result")),
    ("id", "error"): frozenset(("jsonrpc", "id", "error")),
}


def classify(value: Any, *, is_notification: Callable[[str], bool | None] = lambda method: None) -> Envelope:
    """Tell which envelope a decoded frame is; all is checked but what is in ``params``, ``result`` and ``data``.

    ``is_notification`` says of a method name whether the contract defines it as a notification, ``None`` for a name it
    does not know; a frame that disagrees (a notification with an id, a request without one) is refused.

    Raises :class:`~broker.errors.ProtocolError` (``invalid_request``) with ``path``, for the first fault in this order:
    object, shape, notification flag, unknown members, then each member's presence, null, type and bound, then the pair.
    """
    if type(value) is not dict:
        raise _fault("", f"a frame must be an object, not {json_type(value)}")
    shape = tuple(key for key in _SHAPE_KEYS if key in value)
    members = _MEMBERS.get(shape)
    if members is None:
        present = ", ".join(shape) or "none"
        raise _fault(
            "", f"of id, method, result and error a frame has exactly one known combination; present: {present}"
        )
    if "method" in value and type(value["method"]) is str:
        flag = is_notification(value["method"])
        if flag is not None and flag is ("id" in value):
            rule = "is a notification and takes no id" if flag else "is a request and needs an id"
            raise _fault("id", f"{quote(value['method'])} {rule}")
    _check_unknown(value, members, "")
    if "jsonrpc" not in value:
        raise _fault("jsonrpc", "is missing")
    if value["jsonrpc"] != VERSION or type(value["jsonrpc"]) is not str:
        raise _fault("jsonrpc", f'must be "{VERSION}"')
    if "id" in value:
        check_id(value["id"])
    if "method" in value:
        method = _check_method(value["method"])
        params = _check_not_null(value, "params")
        return Request(value["id"], method, params) if "id" in value else Notification(method, params)
    if "result" in value:
        return Success(value["id"], _check_not_null(value, "result"))
    return Failure(value["id"], _error_object(value["error"]))


def check_id(value: Any) -> RequestId:
    """``value`` if it is a request id, else :class:`~broker.errors.ProtocolError` with the path ``id``."""
    if type(value) is int:
        if not 0 <= value <= MAX_PORTABLE_INTEGER:
            raise _fault("id", f"an integer id is 0 to {MAX_PORTABLE_INTEGER}")
        return value
    if type(value) is not str:
        raise _fault("id", f"must be a string or an integer, not {json_type(value)}")
    if not value:
        raise _fault("id", "must not be empty")
    size = utf8_length(value)
    if size > MAX_JSON_RPC_ID_BYTES:
        raise _fault("id", "is too long", "MAX_JSON_RPC_ID_BYTES", size, MAX_JSON_RPC_ID_BYTES)
    return value


def request(request_id: RequestId, method: str, params: Any) -> dict[str, Any]:
    """The envelope of a request."""
    return {"jsonrpc": VERSION, "id": request_id, "method": method, "params": params}


def notification(method: str, params: Any) -> dict[str, Any]:
    """The envelope of a notification."""
    return {"jsonrpc": VERSION, "method": method, "params": params}


def success(request_id: RequestId, result: Any) -> dict[str, Any]:
    """The envelope of a successful answer."""
    return {"jsonrpc": VERSION, "id": request_id, "result": result}


def failure(request_id: RequestId, name: str, data: Any = ABSENT) -> dict[str, Any]:
    """The envelope of an error answer: the table's code and message of ``name``, and ``data`` unless absent."""
    row = ERROR_TABLE[name]
    error: dict[str, Any] = {"code": row.code, "message": row.message}
    if data is not ABSENT:
        error["data"] = data
    return {"jsonrpc": VERSION, "id": request_id, "error": error}


def json_type(value: Any) -> str:
    """The JSON name of a decoded value's type, for error texts."""
    if isinstance(value, dict):
        return "an object"
    return _JSON_TYPES.get(type(value), type(value).__name__)


_JSON_TYPES: Final[Mapping[type, str]] = {
    list: "an array",
    str: "a string",
    bool: "a boolean",
    int: "an integer",
    float: "a fraction",
    type(None): "null",
}


def _error_object(value: Any) -> ErrorObject:
    if type(value) is not dict:
        raise _fault("error", f"must be an object, not {json_type(value)}")
    _check_unknown(value, frozenset(("code", "message", "data")), "error.")
    for key, kind in (("code", int), ("message", str)):
        if key not in value:
            raise _fault(f"error.{key}", "is missing")
        if type(value[key]) is not kind:
            raise _fault(f"error.{key}", f"must be {_JSON_TYPES[kind]}, not {json_type(value[key])}")
    row = _ROW_BY_CODE.get(value["code"])
    if row is None or row.message != value["message"]:
        raise _fault("error", f"code {value['code']} with message {quote(value['message'])} is not in the error table")
    return ErrorObject(row, value.get("data", ABSENT))


def _check_unknown(value: Mapping[str, Any], members: frozenset[str], prefix: str) -> None:
    if not value.keys() <= members:
        raise _fault(prefix + quote(min(value.keys() - members)), "is not a member of this envelope")


def _check_method(value: Any) -> str:
    if type(value) is not str:
        raise _fault("method", f"must be a string, not {json_type(value)}")
    size = utf8_length(value)
    if size > MAX_METHOD_NAME_BYTES:
        raise _fault("method", "is too long", "MAX_METHOD_NAME_BYTES", size, MAX_METHOD_NAME_BYTES)
    return value


def _check_not_null(value: Mapping[str, Any], key: str) -> Any:
    if key not in value:
        raise _fault(key, "is missing")
    if value[key] is None:
        raise _fault(key, "must not be null")
    return value[key]


def _fault(
    path: str, problem: str, limit: str | None = None, observed: int | None = None, maximum: int | None = None
) -> ProtocolError:
    where = f"{path}: " if path else ""
    bound = f" ({limit}: observed {observed}, maximum {maximum})" if limit else ""
    return ProtocolError(
        f"invalid envelope: {where}{problem}{bound}", path=path, limit=limit, observed=observed, maximum=maximum
    )
