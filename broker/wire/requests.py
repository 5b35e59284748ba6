"""The host's requests to one process generation: their states, slots, timers, and the memory of cancelled ones.

A request has two independent sides. Towards its *caller* it is open until it settles, exactly once, with a result or an
error. On the *wire* it is waiting, queued, being written, or sent, until a terminal answer arrives. A cancel or a
timeout settles the caller's side at once; if the frame has left by then, the wire side lives on as a *tombstone* that
still recognises the late answer and still occupies its slot.
"""

from __future__ import annotations

import heapq
from collections import deque
from collections.abc import Callable, Iterator
from enum import Enum
from itertools import count
from typing import Any, Final

from attrs import define, field

from broker.errors import BrokerError, ResourceExhaustedError
from broker.limits import MAX_TOMBSTONES, MAX_WAITING_REQUESTS
from broker.wire.outbox import OutFrame


class WireState(Enum):
    """How far a request has come on its way to the extension."""

    WAITING = "waiting"
    QUEUED = "queued"
    WRITING = "writing"
    SENT = "sent"
    NEVER_SENT = "never sent"


# Looking a member up in its class takes several times as long, and every frame does that several times.
QUEUED: Final = WireState.QUEUED
WRITING: Final = WireState.WRITING
SENT: Final = WireState.SENT


@define(eq=False)
class HostRequest:
    """One request of the host. Read-only for callers; the connection owns every change.

    Attributes:
        method: the method's name.
        id: its JSON-RPC id, ``None`` until its frame is queued.
        state: where it is on the wire.
        settled: whether the caller has its answer; then one of ``result`` and ``error`` holds it.
        timeout_ms: milliseconds it may take, waiting included.
    """

    method: str
    body: bytes = field(repr=False)
    timeout_ms: int
    started_ms: int
    bypass_slots: bool = False
    decode: Callable[[Any], Any] | None = field(default=None, repr=False)
    on_settled: Callable[[HostRequest], None] | None = field(default=None, repr=False)
    id: int | None = None
    state: WireState = WireState.WAITING
    settled: bool = False
    result: Any = None
    error: BrokerError | None = None
    frame: OutFrame | None = field(default=None, repr=False)
    cancel_reason: str | None = None
    cancelled_ms: int | None = None
    due_ms: int | None = None

    @property
    def dispatched(self) -> bool:
        """Whether any of its bytes may have reached the extension."""
        return self.state is WRITING or self.state is SENT

    @property
    def settles_at_ms(self) -> int:
        """The monotonic millisecond of its timeout."""
        return self.started_ms + self.timeout_ms

    def payload(self, request_id: int) -> bytes:
        """The canonical frame of this request under ``request_id``: ``id`` is the first key, the rest is prepared."""
        return b'{"id":%d,%b' % (request_id, self.body)

    def size(self, request_id: int) -> int:
        """Bytes of :meth:`payload`."""
        return len(b'{"id":,') + len(str(request_id)) + len(self.body)


class Timers:
    """One due time for each request; setting another replaces it, ``None`` removes it."""

    __slots__ = ("_armed", "_heap", "_order")

    def __init__(self) -> None:
        self._heap: list[tuple[int, int, HostRequest]] = []
        self._order = count()
        self._armed = 0

    def set(self, request: HostRequest, due_ms: int | None) -> None:
        """Arm, move or remove the timer of ``request``."""
        if due_ms is None:
            self._armed -= request.due_ms is not None
            request.due_ms = None
            return
        self._armed += request.due_ms is None
        request.due_ms = due_ms
        heapq.heappush(self._heap, (due_ms, next(self._order), request))
        if len(self._heap) > 2 * self._armed + 64:
            # Replaced and removed entries stay behind in a heap; without this a busy connection would keep each of its
            # requests until that request's own timeout.
            live = {id(entry[2]): entry for entry in self._heap if entry[2].due_ms == entry[0]}
            self._heap = list(live.values())
            heapq.heapify(self._heap)

    def next_due_ms(self) -> int | None:
        """The earliest due time, or ``None``."""
        heap = self._heap
        while heap:
            due_ms, _, request = heap[0]
            if request.due_ms == due_ms:
                return due_ms
            heapq.heappop(heap)
        return None

    def pop_due(self, now_ms: int) -> HostRequest | None:
        """The request whose time has come, its timer removed; ``None`` when there is none."""
        due_ms = self.next_due_ms()
        if due_ms is None or due_ms > now_ms:
            return None
        request = heapq.heappop(self._heap)[2]
        request.due_ms = None
        self._armed -= 1
        return request

    def clear(self) -> None:
        """Remove every timer."""
        for _, _, request in self._heap:
            request.due_ms = None
        self._heap.clear()
        self._armed = 0


class RequestTable:
    """Every request of one generation that still matters, and who may go next.

    ``slots`` is how many requests may occupy the extension at once; requests that bypass the slots are not counted and
    go before those that wait for one.
    """

    __slots__ = ("_bypassing", "_next_id", "_open", "_slots_used", "_tombstones", "_waiting", "slots", "timers")

    def __init__(self, slots: int = 1) -> None:
        self.slots: int = slots
        self.timers: Timers = Timers()
        self._bypassing: deque[HostRequest] = deque()
        self._waiting: deque[HostRequest] = deque()
        self._open: dict[int, HostRequest] = {}
        self._tombstones: dict[int, HostRequest] = {}
        self._slots_used = 0
        self._next_id = 1

    @property
    def next_id(self) -> int:
        """The id the next request to be queued will get."""
        return self._next_id

    @property
    def slots_used(self) -> int:
        """Slots occupied: requests queued or without a terminal answer, cancelled ones included."""
        return self._slots_used

    @property
    def waits(self) -> bool:
        """Whether any request waits for its turn."""
        return bool(self._bypassing or self._waiting)

    @property
    def open_count(self) -> int:
        """Requests whose callers still wait."""
        return len(self._open) + len(self._bypassing) + len(self._waiting)

    def is_known(self, request_id: int) -> bool:
        """Whether an answer to this id would be that of an open request, or the late one of a cancelled request."""
        return request_id in self._open or request_id in self._tombstones

    def open_request(self, request_id: int) -> HostRequest | None:
        """The request under this id whose caller still waits; its frame may not have left yet."""
        return self._open.get(request_id)

    def check_room(self) -> None:
        """Raise :class:`~broker.errors.ResourceExhaustedError` when no further request may wait."""
        waiting = len(self._waiting) + len(self._bypassing)
        if waiting >= MAX_WAITING_REQUESTS:
            raise ResourceExhaustedError(
                "too many requests wait for this extension",
                limit="MAX_WAITING_REQUESTS",
                observed=waiting + 1,
                maximum=MAX_WAITING_REQUESTS,
            )

    def add(self, request: HostRequest) -> None:
        """Let ``request`` wait for its turn and start its timeout."""
        (self._bypassing if request.bypass_slots else self._waiting).append(request)
        self.timers.set(request, request.settles_at_ms)

    def take_ready(self) -> HostRequest | None:
        """The next request that may be queued now, taken out of the waiting ones but not yet numbered."""
        if self._bypassing:
            return self._bypassing.popleft()
        if self._waiting and self._slots_used < self.slots:
            return self._waiting.popleft()
        return None

    def number(self, request: HostRequest, frame: OutFrame) -> None:
        """Give a request taken by :meth:`take_ready` its id and slot: its ``frame`` is in the queue now."""
        request.id = self._next_id
        request.frame = frame
        request.state = QUEUED
        request.body = b""  # the frame holds it now
        self._next_id += 1
        self._open[request.id] = request
        self._slots_used += not request.bypass_slots

    def discard(self, request: HostRequest) -> None:
        """Forget a request taken by :meth:`take_ready` that is not going to be queued."""
        self.timers.set(request, None)
        request.state = WireState.NEVER_SENT

    def withdraw(self, request: HostRequest) -> None:
        """Forget a request whose frame will never leave."""
        self.timers.set(request, None)
        if request.state is WireState.WAITING:
            (self._bypassing if request.bypass_slots else self._waiting).remove(request)
        elif request.id is not None:
            del self._open[request.id]
            self._slots_used -= not request.bypass_slots
        request.state = WireState.NEVER_SENT

    def bury(self, request: HostRequest, due_ms: int) -> list[HostRequest]:
        """Make a dispatched request a tombstone whose next timer is ``due_ms``; returns tombstones forgotten for it."""
        assert request.id is not None
        del self._open[request.id]
        self._tombstones[request.id] = request
        self.timers.set(request, due_ms)
        forgotten = []
        while len(self._tombstones) > MAX_TOMBSTONES:
            oldest = next(iter(self._tombstones.values()))
            self.forget(oldest)
            forgotten.append(oldest)
        return forgotten

    def forget(self, request: HostRequest) -> None:
        """Remove a tombstone and free its slot."""
        assert request.id is not None
        self.timers.set(request, None)
        del self._tombstones[request.id]
        self._slots_used -= not request.bypass_slots

    def is_tombstone(self, request: HostRequest) -> bool:
        """Whether ``request`` is cancelled and still without its terminal answer."""
        return request.id is not None and request.id in self._tombstones

    def answered(self, request_id: int) -> HostRequest | None:
        """The request or tombstone the extension has just answered, taken out and its slot freed.

        ``None`` for an id that is unknown, already answered, or whose frame has not even begun to leave.
        """
        request = self._open.get(request_id)
        if request is not None:
            if not request.dispatched:
                return None
            self.timers.set(request, None)
            del self._open[request_id]
            self._slots_used -= not request.bypass_slots
            return request
        request = self._tombstones.get(request_id)
        if request is not None:
            self.forget(request)
        return request

    def unsettled(self) -> Iterator[HostRequest]:
        """Every request whose caller still waits, in the order they were made as far as the queues keep it."""
        yield from self._open.values()
        yield from self._bypassing
        yield from self._waiting

    def clear(self) -> list[HostRequest]:
        """Forget everything; returns the requests whose callers still wait."""
        left = list(self.unsettled())
        for request in left:
            if not request.dispatched:
                request.state = WireState.NEVER_SENT
        self.timers.clear()
        self._open.clear()
        self._tombstones.clear()
        self._bypassing.clear()
        self._waiting.clear()
        self._slots_used = 0
        return left
