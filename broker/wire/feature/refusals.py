"""How the host refuses an extension's request on the feature-negotiated wire.

Messages are free text here, so that a refusal says what is wrong in words; its kind stands in ``data.reason``. Source:
octet notes, section 5.
"""

from __future__ import annotations

from typing import Any, Final

from attrs import frozen

from broker.errors import (
    BrokerError,
    CancelledError,
    CapacityError,
    InternalError,
    InvalidParamsError,
    UnavailableError,
)
from broker.wire.jsonrpc import VERSION, RequestId
from broker.wire.quoting import escape


@frozen
class RefusalKind:
    """A documented kind of refusal: its word and its code."""

    reason: str
    code: int


UNSUPPORTED: Final = RefusalKind("unsupported_feature", -32601)
INVALID: Final = RefusalKind("invalid_request", -32602)
BOUNDS_EXCEEDED: Final = RefusalKind("bounds_exceeded", -32602)
NOT_OWNER: Final = RefusalKind("not_foreground_owner", -32002)
UNAVAILABLE: Final = RefusalKind("unavailable", -32002)
NO_SECRET: Final = RefusalKind("secret_unavailable", -32004)
CANCELLED: Final = RefusalKind("request_cancelled", -32800)
INTERNAL: Final = RefusalKind("internal_error", -32603)


def refusal(request_id: RequestId, kind: RefusalKind, message: str, **data: Any) -> dict[str, Any]:
    """The envelope of a refusal."""
    error = {"code": kind.code, "message": escape(message), "data": {"reason": kind.reason, **data}}
    return {"jsonrpc": VERSION, "id": request_id, "error": error}


def kind_of(error: BrokerError) -> RefusalKind:
    """The kind of refusal that stands for an error of the host's side."""
    if isinstance(error, CancelledError):
        return CANCELLED
    if isinstance(error, CapacityError) or error.name == "resource_exhausted":
        return BOUNDS_EXCEEDED
    if isinstance(error, InvalidParamsError):
        return INVALID
    if isinstance(error, UnavailableError) and error.path == "resource_owner":
        return NOT_OWNER
    if isinstance(error, UnavailableError) or error.name == "capability_mismatch":
        return UNAVAILABLE
    return INTERNAL


def detail_of(error: BrokerError) -> str:
    """What an extension is told of ``error``; nothing of what went wrong inside the host."""
    return InternalError.name.replace("_", " ") if kind_of(error) is INTERNAL else str(error)
