"""The JSON-RPC envelopes of the canonical wire as described records, for schemas, fixtures and documentation.

Frames themselves are judged by :func:`broker.wire.jsonrpc.classify`, which also knows the pairs of the error table
and the methods; these records say the same of the members. Source: octet reference, models ``JsonRpc*`` and
``ErrorObject``.
"""

from __future__ import annotations

from typing import Any, Final

from attrs import field, frozen

from broker.errors import ERROR_TABLE
from broker.limits import MAX_PORTABLE_INTEGER
from broker.wire.jsonrpc import ABSENT, VERSION, RequestId
from broker.wire.octet.schema import Integer, Json, Nested, RpcId, Text, wire

_VERSION: Final = Text(choices=(VERSION,))
_METHOD: Final = Text("MAX_METHOD_NAME_BYTES")


@frozen(kw_only=True)
class ErrorObject:
    """An error: one code and message of the error table, and what else there is to say. Absent and null data differ."""

    code: int = field(metadata=wire(Integer(minimum=-MAX_PORTABLE_INTEGER)))
    message: str = field(metadata=wire(Text(choices=tuple(row.message for row in ERROR_TABLE.values()))))
    data: Any = field(default=ABSENT, metadata=wire(Json(), nullable=True))


@frozen(kw_only=True)
class JsonRpcRequest:
    """A call that is answered under ``id``."""

    jsonrpc: str = field(default=VERSION, metadata=wire(_VERSION))
    id: RequestId = field(metadata=wire(RpcId()))
    method: str = field(metadata=wire(_METHOD))
    params: Any = field(metadata=wire(Json()))


@frozen(kw_only=True)
class JsonRpcNotification:
    """A message that is never answered."""

    jsonrpc: str = field(default=VERSION, metadata=wire(_VERSION))
    method: str = field(metadata=wire(_METHOD))
    params: Any = field(metadata=wire(Json()))


@frozen(kw_only=True)
class JsonRpcSuccessResponse:
    """The answer to a request that succeeded."""

    jsonrpc: str = field(default=VERSION, metadata=wire(_VERSION))
    id: RequestId = field(metadata=wire(RpcId()))
    result: Any = field(metadata=wire(Json()))


@frozen(kw_only=True)
class JsonRpcErrorResponse:
    """The answer to a request that failed."""

    jsonrpc: str = field(default=VERSION, metadata=wire(_VERSION))
    id: RequestId = field(metadata=wire(RpcId()))
    error: ErrorObject = field(metadata=wire(Nested(ErrorObject)))
