"""What the octet wire adds to the writing half of a connection: cancel notices, and refusals from the error table."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from broker import canonical
from broker.wire.jsonrpc import ABSENT, RequestId, failure, notification
from broker.wire.outbound import Outbound
from broker.wire.requests import HostRequest


class OctetOutbound(Outbound):
    """The writing half of a :class:`~broker.wire.octet.connection.Connection`."""

    __slots__ = ()

    def push_refusal(self, request_id: RequestId, name: str, data: Any = ABSENT) -> None:
        """Queue an error answer, without ``data`` if the frame bound leaves no room for it."""
        payload = canonical.encode(failure(request_id, name, data))
        if len(payload) > self.outbox.bound:
            payload = canonical.encode(failure(request_id, name))
        self.push_answer(payload)

    def cancel_payloads(self, request: HostRequest) -> Iterator[bytes]:
        for params in ({"id": request.id, "reason": request.cancel_reason}, {"id": request.id}):
            yield canonical.encode(notification("$/cancelRequest", params))
