"""What the feature-negotiated wire adds to the writing half of a connection."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import orjson

from broker.errors import BrokerError
from broker.limits import LIFECYCLE_NOTICE_MS
from broker.wire.feature.refusals import CANCELLED, RefusalKind, refusal
from broker.wire.jsonrpc import RequestId, notification
from broker.wire.outbound import Outbound
from broker.wire.outbox import OutFrame
from broker.wire.requests import HostRequest

if TYPE_CHECKING:
    from broker.wire.feature.connection import FeatureConnection


class FeatureOutbound(Outbound):
    """The writing half of a :class:`~broker.wire.feature.connection.FeatureConnection`.

    ``sends_cancels`` is false on 0.1: a cancelled request is given up without a notice, and still has its grace.
    """

    __slots__ = ("_held_refusals", "_owner", "_perishable", "sends_cancels")

    def __init__(
        self, connection: FeatureConnection, *, bound: int, cancel_grace_ms: int | None, sends_cancels: bool
    ) -> None:
        super().__init__(connection, bound=bound, cancel_grace_ms=cancel_grace_ms)
        self._owner = connection
        self._perishable: deque[tuple[int, OutFrame]] = deque()
        self._held_refusals: deque[bytes] = deque()
        self.sends_cancels: bool = sends_cancels

    def push_refusal(self, request_id: RequestId, kind: RefusalKind, message: str, **data: Any) -> None:
        """Queue an error answer."""
        self.push_answer(orjson.dumps(refusal(request_id, kind, message, **data)))

    def push_cancelled(self, request_id: RequestId, message: str, **data: Any) -> None:
        """Queue the answer to a request the host takes no further; it waits for room if there is none.

        A parent may settle with as many open requests as the queue has places, which is no fault of the extension's.
        """
        self._held_refusals.append(orjson.dumps(refusal(request_id, CANCELLED, message, **data)))
        self._push_refusals()

    @property
    def waits(self) -> bool:
        return bool(self._held_refusals) or super().waits

    def pump(self) -> None:
        self._push_refusals()
        super().pump()

    def _push_refusals(self) -> None:
        # All that a parent's end takes along go before the next request, whichever of them comes first.
        while self._held_refusals and self.outbox.has_room:
            self.outbox.push(self._held_refusals.popleft())

    def push_perishable(self, payload: bytes, now_ms: int) -> bool:
        """Queue a frame that is dropped if it has not begun to leave in time; ``False`` when there is no room."""
        if not self.outbox.has_room:
            return False
        self._perishable.append((now_ms + LIFECYCLE_NOTICE_MS, self.outbox.push(payload)))
        return True

    def drop_perished(self, now_ms: int) -> int:
        """Take frames out of the queue whose time has passed unwritten; gives how many."""
        dropped = 0
        while self._perishable and self._perishable[0][0] <= now_ms:
            self.outbox.discard(self._perishable.popleft()[1])
            dropped += 1
        if dropped:
            self.pump()
        return dropped

    def perishes_at_ms(self) -> int | None:
        """When the oldest perishable frame is dropped, or ``None``."""
        return self._perishable[0][0] if self._perishable else None

    def next_frame(self) -> OutFrame | None:
        frame = super().next_frame()
        if frame is not None and self._perishable and self._perishable[0][1] is frame:
            # The queue keeps its order, so that the oldest perishable frame is the first to leave.
            self._perishable.popleft()
        return frame

    def settle(self, request: HostRequest, *, result: Any = None, error: BrokerError | None = None) -> None:
        """Release the caller, once; before that, everything the extension still asked on behalf of this request."""
        self._owner.release_children(request)
        super().settle(request, result=result, error=error)

    def end(self, error: BrokerError) -> None:
        self._perishable.clear()
        self._held_refusals.clear()
        super().end(error)

    def cancel_payloads(self, request: HostRequest) -> Iterator[bytes]:
        params = {"id": request.id, "reason": request.cancel_reason}
        yield orjson.dumps(notification("$/cancelRequest", params))

    def _send_cancel(self, request: HostRequest) -> None:
        if self.sends_cancels:
            super()._send_cancel(request)
