"""The writing half of a connection: requests on their way out, their timers, cancels, and answers to the extension.

Everything that leaves goes through one bounded queue. What happens when it is full depends on what wants to leave:
requests and cancel notices wait, notifications are dropped, and an answer without room ends the connection. How a
cancel notice looks is the one thing a wire must add.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from typing import Any, Final, Protocol

from broker.errors import (
    BrokerError,
    CancelledError,
    ExitedError,
    ProtocolError,
    ResourceExhaustedError,
    ResultError,
    TimedOutError,
)
from broker.limits import MAX_WRITER_FRAMES, TOMBSTONE_MS
from broker.wire.outbox import Outbox, OutFrame
from broker.wire.quoting import describe
from broker.wire.requests import SENT, WRITING, HostRequest, RequestTable

TIMEOUT_REASON: Final = "timeout"


class Owner(Protocol):
    """The connection that a writing half belongs to; it is told of failures and diagnostics."""

    @property
    def extension(self) -> str:
        """The name of the extension, for texts."""
        ...

    def diagnose(self, text: str) -> None:
        """Queue a diagnostic."""
        ...

    def fail(self, error: BrokerError) -> None:
        """Close with ``error``."""
        ...

    def abandon(self, request: HostRequest, reason: str, error: BrokerError) -> None:
        """Settle an open request with ``error``."""
        ...


class Outbound:
    """The writing half of a connection.

    ``bound`` is the largest frame in bytes. ``cancel_grace_ms`` is the time a dispatched request that was cancelled has
    for its answer before the connection fails; ``None`` lets it go unanswered. While ``unread`` is set the host itself
    leaves alone what the process says, and no process is to blame for an answer that may be among it. ``own_frames`` is
    how full the queue may be for a request or a cancel notice to join it; what is left is for answers.
    """

    __slots__ = ("_cancel_grace_ms", "_connection", "_held_cancels", "_own_frames", "outbox", "requests", "unread")

    def __init__(
        self, connection: Owner, *, bound: int, cancel_grace_ms: int | None, own_frames: int = MAX_WRITER_FRAMES
    ) -> None:
        self._connection = connection
        self._own_frames = own_frames
        self._cancel_grace_ms = cancel_grace_ms
        self._held_cancels: deque[HostRequest] = deque()
        self.outbox: Outbox = Outbox(bound)
        self.requests: RequestTable = RequestTable()
        self.unread: bool = False

    # -- requests ------------------------------------------------------------------------------------------------------

    def check_size(self, method: str, size: int, bound: int | None = None) -> None:
        """Raise :class:`~broker.errors.ResourceExhaustedError` if a frame of ``size`` bytes may not be sent."""
        bound = self.outbox.bound if bound is None else bound
        if size > bound:
            raise ResourceExhaustedError(
                f"{method} takes a frame of {size} bytes, over the bound of {bound}",
                extension=self._connection.extension,
                method=method,
                limit="MAX_FRAME_BYTES",
                observed=size,
                maximum=bound,
            )

    def add(self, request: HostRequest) -> None:
        """Let a request wait for its turn, which may be now."""
        self.requests.add(request)
        self.pump()

    @property
    def waits(self) -> bool:
        """Whether anything waits for room in the queue, or for its turn."""
        return bool(self._held_cancels) or self.requests.waits

    def pump(self) -> None:
        """Move what waits into the queue, as far as room and slots allow: cancel notices first."""
        requests, outbox = self.requests, self.outbox
        while len(outbox.frames) < self._own_frames:
            if self._held_cancels:
                held = self._held_cancels.popleft()
                if requests.is_tombstone(held):
                    self._send_cancel(held)
                continue
            request = requests.take_ready()
            if request is None:
                return
            payload = request.payload(requests.next_id)
            if len(payload) <= outbox.bound:
                requests.number(request, outbox.push(payload, request))
                continue
            # It fitted when it was made; ids have grown by a digit since.
            requests.discard(request)
            try:
                self.check_size(request.method, len(payload))
            except ResourceExhaustedError as error:
                self.settle(request, error=error)

    def abandon(self, request: HostRequest, reason: str, error: BrokerError, now_ms: int) -> None:
        """Settle an open request with ``error`` and see to its wire side: skip its frame, or cancel what has left."""
        self.attribute(request, error)
        if not request.dispatched:
            if request.frame is not None:
                self.outbox.discard(request.frame)
            self.requests.withdraw(request)
        else:
            request.cancel_reason, request.cancelled_ms = reason, now_ms
            grace_ms = TOMBSTONE_MS if self._cancel_grace_ms is None else self._cancel_grace_ms
            for forgotten in self.requests.bury(request, now_ms + grace_ms):
                self._connection.diagnose(f"too many cancelled requests: {_shown(forgotten)} is forgotten")
            if request.state is SENT:
                self._send_cancel(request)
        self.settle(request, error=error)
        self.pump()

    def expire(self, request: HostRequest, now_ms: int) -> None:
        """The timer of ``request`` has come: its timeout, or the end of the time it had to answer a cancel."""
        if not self.requests.is_tombstone(request):
            observed = now_ms - request.started_ms
            self._connection.abandon(request, TIMEOUT_REASON, self.timeout_error(request, observed))
            return
        if self.unread and self._cancel_grace_ms is not None:
            self.requests.timers.set(request, now_ms + max(1, self._cancel_grace_ms))
            return
        assert request.cancelled_ms is not None
        observed = now_ms - request.cancelled_ms
        if self._cancel_grace_ms is not None:
            self._connection.fail(
                TimedOutError(
                    f"no answer to the cancelled {_shown(request)} within {self._cancel_grace_ms} ms",
                    method=request.method,
                    observed=observed,
                    maximum=self._cancel_grace_ms,
                )
            )
            return
        self.requests.forget(request)
        self._connection.diagnose(f"the cancelled {_shown(request)} was not answered in {observed} ms: forgotten")
        self.pump()

    def settle(self, request: HostRequest, *, result: Any = None, error: BrokerError | None = None) -> None:
        """Release the caller, once. Everything else about the request has been done before."""
        request.settled, request.result, request.error = True, result, error
        on_settled, request.on_settled = request.on_settled, None  # it would keep its caller, and with it the result
        if on_settled is not None:
            try:
                on_settled(request)
            except KeyboardInterrupt:
                raise
            except BaseException as cause:  # one caller's bug must not keep the others from settling
                self._connection.diagnose(f"on_settled of {request.method} raised {describe(cause)}")

    def settle_result(self, request: HostRequest, result: Any) -> None:
        """Release the caller with the decoded result, or with :class:`~broker.errors.ResultError`."""
        try:
            value = result if request.decode is None else request.decode(result)
        except Exception as cause:
            self.settle(request, error=self._result_error(request, cause))
        else:
            self.settle(request, result=value)

    def copy_for(self, request: HostRequest, error: BrokerError) -> BrokerError:
        """``error`` for one caller: each raises its own object, which says whether that caller's request had left."""
        own = error.copied()
        self.attribute(request, own)
        if isinstance(own, CancelledError | TimedOutError | ExitedError):
            own.dispatched = request.dispatched
        return own

    def end(self, error: BrokerError) -> None:
        """Drop everything that has not left, and settle whoever still waits with a copy of ``error``."""
        self.outbox.clear()
        self._held_cancels.clear()
        for request in self.requests.clear():
            self.settle(request, error=self.copy_for(request, error))

    # -- answers -------------------------------------------------------------------------------------------------------

    def push_answer(self, payload: bytes) -> None:
        """Queue an answer to the extension; without room or over the bound, the connection fails."""
        if not self.outbox.has_room:
            self._connection.fail(
                ProtocolError(
                    "the extension does not read: there is no room to answer it",
                    name="resource_exhausted",
                    limit="MAX_WRITER_FRAMES",
                    observed=len(self.outbox) + 1,
                    maximum=MAX_WRITER_FRAMES,
                )
            )
        elif len(payload) > self.outbox.bound:
            self._connection.fail(
                ProtocolError(
                    "the extension selected a frame bound that leaves no room to answer it",
                    name="resource_exhausted",
                    limit="MAX_FRAME_BYTES",
                    observed=len(payload),
                    maximum=self.outbox.bound,
                )
            )
        else:
            self.outbox.push(payload)

    # -- frames --------------------------------------------------------------------------------------------------------

    def next_frame(self) -> OutFrame | None:
        """The next frame to write. Raises :class:`~broker.errors.ResourceExhaustedError` if it is over the bound."""
        if not self.outbox.frames:
            return None
        frame = self.outbox.pop()
        if frame is not None and (request := frame.request) is not None:
            request.state = WRITING
            request.frame = None
        if self.waits:
            self.pump()
        return frame

    def frame_written(self, frame: OutFrame) -> None:
        """All bytes of ``frame`` have left; if its request was cancelled meanwhile, the cancel notice follows."""
        request = frame.request
        if request is None or request.state is not WRITING:
            return
        request.state = SENT
        if self.requests.is_tombstone(request):
            self._send_cancel(request)

    # -- what a wire may say in its own way ----------------------------------------------------------------------------

    def cancel_payloads(self, request: HostRequest) -> Iterable[bytes]:
        """The cancel notice for ``request`` without LF: forms of it, the first that keeps the frame bound is sent."""
        raise NotImplementedError

    def attribute(self, request: HostRequest, error: BrokerError) -> None:
        """Say in ``error`` whose request it is about."""
        error.extension, error.method = self._connection.extension, request.method

    def timeout_error(self, request: HostRequest, observed_ms: int) -> TimedOutError:
        """The error of a request whose time is up after ``observed_ms``."""
        return TimedOutError(
            f"no answer to {request.method} within {request.timeout_ms} ms",
            dispatched=request.dispatched,
            observed=observed_ms,
            maximum=request.timeout_ms,
        )

    # -- inside --------------------------------------------------------------------------------------------------------

    def _send_cancel(self, request: HostRequest) -> None:
        if len(self.outbox.frames) >= self._own_frames:
            self._held_cancels.append(request)
            return
        for payload in self.cancel_payloads(request):
            if len(payload) <= self.outbox.bound:
                self.outbox.push(payload)
                return
        self._connection.diagnose(f"no room to cancel {_shown(request)} in a frame of {self.outbox.bound} bytes")

    def _result_error(self, request: HostRequest, cause: Exception) -> ResultError:
        if isinstance(cause, ResultError):
            error = cause
        elif isinstance(cause, BrokerError):
            error = ResultError(
                f"result of {request.method}: {cause}",
                name=cause.name,
                limit=cause.limit,
                observed=cause.observed,
                maximum=cause.maximum,
                path=cause.path,
                faults=cause.faults,
            )
            error.__cause__ = cause
        else:
            error = ResultError(f"result of {request.method} could not be read: {describe(cause)}")
            error.__cause__ = cause
        self.attribute(request, error)
        return error


def _shown(request: HostRequest) -> str:
    return f"{request.method} (id {request.id})"
