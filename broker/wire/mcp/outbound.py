"""What is MCP's own in the writing half of a connection: cancel notices, and errors that name server and tool."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from broker.errors import BrokerError, ResourceExhaustedError, TimedOutError
from broker.limits import MAX_OPEN_CALLS, MAX_WRITER_FRAMES
from broker.wire.mcp.requests import HostRequest, McpRequest, encode
from broker.wire.outbound import Outbound, Owner
from broker.wire.quoting import escape


class McpOutbound(Outbound):
    """The writing half of a :class:`~broker.wire.mcp.peer.McpPeer`.

    A cancelled or timed-out request may stay unanswered for ever: MCP allows it, and the server goes on serving others.
    Nothing in MCP bounds how many calls wait at once, so they leave room in the queue: a busy server that asks for
    something must not be taken for one that does not read.
    """

    __slots__ = ("_tokens",)

    def __init__(self, connection: Owner, *, bound: int) -> None:
        super().__init__(connection, bound=bound, cancel_grace_ms=None, own_frames=MAX_WRITER_FRAMES // 2)
        self._tokens: dict[int, McpRequest] = {}

    def check_room(self, request: McpRequest) -> None:
        """Raise :class:`~broker.errors.ResourceExhaustedError` if ``request`` is too long, or one too many."""
        size, count = request.size(self.requests.next_id), self.requests.open_count + 1
        if size <= self.outbox.bound and count <= MAX_OPEN_CALLS:
            return
        for limit, observed, maximum in (
            ("MAX_REQUEST_BYTES", size, self.outbox.bound),
            ("MAX_OPEN_CALLS", count, MAX_OPEN_CALLS),
        ):
            if observed > maximum:
                error = ResourceExhaustedError(
                    f"{self._connection.extension}: {shown(request)} cannot be called "
                    f"({limit}: observed {observed}, maximum {maximum})",
                    limit=limit,
                    observed=observed,
                    maximum=maximum,
                )
                self.attribute(request, error)
                raise error

    def expect_progress(self, request: McpRequest, token: int) -> None:
        """Remember which request the progress under ``token`` is about, until it settles."""
        request.progress_token = token
        self._tokens[token] = request

    def awaiting_progress(self, token: Any) -> McpRequest | None:
        """The open request that was given ``token``; a token of another type or value is nobody's."""
        return self._tokens.get(token) if type(token) is int else None

    def settle(self, request: HostRequest, *, result: Any = None, error: BrokerError | None = None) -> None:
        if isinstance(request, McpRequest) and request.progress_token is not None:
            self._tokens.pop(request.progress_token, None)
        super().settle(request, result=result, error=error)

    def expire(self, request: HostRequest, now_ms: int) -> None:
        if self.requests.is_tombstone(request):
            self.requests.forget(request)
        else:
            super().expire(request, now_ms)

    def cancel_payloads(self, request: HostRequest) -> Iterator[bytes]:
        reason = escape(request.cancel_reason or "")
        yield encode("notifications/cancelled", {"requestId": request.id, "reason": reason})

    def attribute(self, request: HostRequest, error: BrokerError) -> None:
        super().attribute(request, error)
        error.tool = request.tool if isinstance(request, McpRequest) else None

    def copy_for(self, request: HostRequest, error: BrokerError) -> BrokerError:
        own = super().copy_for(request, error)
        if own.tool is not None:
            own.args = (f"{error}; this ended the call of tool {own.tool}",)
        return own

    def timeout_error(self, request: HostRequest, observed_ms: int) -> TimedOutError:
        outcome = "its outcome is unknown" if request.dispatched else "it was not dispatched"
        return TimedOutError(
            f"{self._connection.extension}: {shown(request)}: no answer within {request.timeout_ms} ms, {outcome}",
            dispatched=request.dispatched,
            limit="timeout_seconds",
            observed=observed_ms,
            maximum=request.timeout_ms,
        )


def shown(request: HostRequest) -> str:
    """How a request is named in texts: by its tool where it calls one."""
    tool = request.tool if isinstance(request, McpRequest) else None
    return request.method if tool is None else f"tool {tool}"
