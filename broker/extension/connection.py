"""The extension's end of its pipes, sans-IO: bytes in, bytes out, typed events between.

What both wires have in common is here: the queue of what leaves, the extension's own requests, and the host's. A wire
adds how a frame is read and written, how ``initialize`` is answered, and which methods there are.

::

    connection.receive_data(data)
    while (event := connection.next_event()) is not None:
        ...
    write(connection.data_to_send())
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Callable
from typing import Any, Final

from broker.errors import (
    BrokerError,
    CancelledError,
    CapabilityMismatchError,
    ExitedError,
    InvalidParamsError,
    ProtocolError,
    ResourceExhaustedError,
    UsageError,
)
from broker.extension.bus_client import BusClient
from broker.extension.declaration import Declaration
from broker.extension.events import (
    CallCancelled,
    CallReceived,
    Closed,
    ConnectionEvent,
    HostCall,
    HostInfo,
    Initialized,
    Log,
    NoticeReceived,
    OwnRequest,
    ShutdownReceived,
)
from broker.limits import (
    MAX_EXTENSION_REQUEST_IDS,
    MAX_EXTENSION_REQUESTS_OUTSTANDING,
    MAX_METHOD_NAME_BYTES,
    MAX_OWN_REQUESTS_QUEUED,
)
from broker.wire.framing import LineFramer
from broker.wire.jsonrpc import RequestId
from broker.wire.quoting import quote, scalar

_REFUSALS: Final[dict[str, type[BrokerError]]] = {
    "invalid_params": InvalidParamsError,
    "capability_mismatch": CapabilityMismatchError,
    "unknown_method": CapabilityMismatchError,
    "resource_exhausted": ResourceExhaustedError,
    "request_cancelled": CancelledError,
}


def refusal_of_host(method: str, name: str, data: Any, text: str = "") -> BrokerError:
    """The error an author gets for a request that the host refused with the row ``name`` of the error table."""
    detail = f"the host refused {method}: {text or name.replace('_', ' ')}"
    if isinstance(data, dict) and isinstance(data.get("reason"), str):
        detail += f" ({data['reason']})"
    return _REFUSALS.get(name, BrokerError)(detail, name=name, method=method, data=data)


class HostConnection(ABC):
    """One connection to a host: the driver feeds it, takes its events until there are none, writes what it gives."""

    def __init__(self, declaration: Declaration, *, bound: int) -> None:
        self.declaration = declaration
        self.info: HostInfo | None = None
        self.bus: BusClient | None = None
        self.closed: bool = False
        self.draining: bool = False
        self._framer = LineFramer(bound)
        self._bound = bound
        self._events: deque[ConnectionEvent] = deque()
        self._out = bytearray()
        self._calls: dict[RequestId, HostCall] = {}
        self._own: dict[int, OwnRequest] = {}
        self._queued: deque[OwnRequest] = deque()
        self._last_id = 0
        self._eof = False

    # -- the driver's side ---------------------------------------------------------------------------------------------

    def receive_data(self, data: bytes) -> None:
        """Take bytes the host wrote. Nothing happens until :meth:`next_event`."""
        if not self.closed:
            self._framer.feed(data)

    def receive_eof(self) -> None:
        """Take the end of the host's output; judged when everything before it has been."""
        self._eof = True

    def next_event(self) -> ConnectionEvent | None:
        """The next event; frames are read one at a time until there is one. ``None``: no more for now."""
        while not self._events and not self.closed:
            try:
                frame = self._framer.next_frame()
                if frame is not None:
                    self._receive(frame)
                elif self._eof:
                    self._framer.finish()
                    self.close()
                else:
                    break
            except BrokerError as error:
                self.close(error)
        return self._events.popleft() if self._events else None

    def data_to_send(self) -> bytes:
        """Everything that is to be written now, taken out of the connection."""
        data = bytes(self._out)
        self._out.clear()
        return data

    def close(self, error: BrokerError | None = None) -> None:
        """End the connection: own requests fail, open calls stay unanswered."""
        if self.closed:
            return
        self.closed = True
        left = [*self._own.values(), *self._queued]
        self._own.clear()
        self._queued.clear()
        self._calls.clear()
        for request in left:
            self._settle(request, error=ExitedError(f"the host went away before it answered {request.method}"))
        self.emit(Closed(error))

    # -- the host's requests -------------------------------------------------------------------------------------------

    @property
    def open_calls(self) -> list[HostCall]:
        """The host's requests that have no answer yet."""
        return list(self._calls.values())

    def answer(self, call: HostCall, result: Any) -> None:
        """Answer with ``result``, plain JSON.

        Raises :class:`~broker.errors.ResourceExhaustedError` for a frame over the bound and
        :class:`~broker.errors.CanonicalError` or :class:`~broker.errors.InvalidParamsError` for what the wire cannot
        hold; the call is still open then.
        """
        self._check_open(call)
        frame = self._encode({"jsonrpc": "2.0", "id": call.id, "result": result})
        if len(frame) > self._bound:
            raise ResourceExhaustedError(
                f"the answer to {call.method} takes {len(frame)} bytes, at most {self._bound} are taken by the host",
                method=call.method,
                limit="max_frame_bytes",
                observed=len(frame),
                maximum=self._bound,
            )
        self._finish(call, frame)

    def refuse(self, call: HostCall, name: str, data: Any = None) -> None:
        """Answer with the row ``name`` of the error table; ``data`` is left out when it is ``None`` or does not fit."""
        self._check_open(call)
        if isinstance(data, dict) and isinstance(data.get("reason"), str):
            # It may quote a file's name, half of a surrogate pair in it: a reason is no reason not to answer.
            data = {**data, "reason": scalar(data["reason"])}
        frame = self._encode(self._failure(call.id, name, data))
        if len(frame) > self._bound:
            frame = self._encode(self._failure(call.id, name, None))
        self._finish(call, frame)

    def answer_cancelled(self, call: HostCall) -> None:
        """Say that ``call`` ended early, with the reason it was cancelled for."""
        self.refuse(call, "request_cancelled", {"reason": call.reason} if call.reason else None)

    # -- the extension's own requests ----------------------------------------------------------------------------------

    def request(self, method: str, params: Any, on_settled: Callable[[OwnRequest], None]) -> OwnRequest:
        """Ask the host. ``on_settled`` is called once.

        Raises :class:`~broker.errors.CapabilityMismatchError` for a method that was not agreed on or a connection that
        is over, :class:`~broker.errors.ResourceExhaustedError` for a frame over the bound, for too many waiting
        requests, and for a process that has used up its ids. Nothing is sent then.
        """
        self._check_may_send(method)
        if self._last_id + len(self._queued) >= MAX_EXTENSION_REQUEST_IDS:
            raise ResourceExhaustedError(
                f"{method}: this process has made all of its {MAX_EXTENSION_REQUEST_IDS} requests; restart it",
                method=method,
                limit="MAX_EXTENSION_REQUEST_IDS",
                observed=MAX_EXTENSION_REQUEST_IDS + 1,
                maximum=MAX_EXTENSION_REQUEST_IDS,
            )
        request = OwnRequest(method, params, on_settled)
        if len(self._own) < MAX_EXTENSION_REQUESTS_OUTSTANDING:
            self._send_request(request)
        elif len(self._queued) < MAX_OWN_REQUESTS_QUEUED:
            # Under the longest id it can get, so that it still fits when its turn comes.
            self._check_size(method, self._encode(_request(MAX_EXTENSION_REQUEST_IDS, method, params)))
            self._queued.append(request)
        else:
            raise ResourceExhaustedError(
                f"{method}: {MAX_OWN_REQUESTS_QUEUED} requests wait for the host already; await their answers",
                method=method,
                limit="MAX_OWN_REQUESTS_QUEUED",
                observed=MAX_OWN_REQUESTS_QUEUED + 1,
                maximum=MAX_OWN_REQUESTS_QUEUED,
            )
        return request

    def notify(self, method: str, params: Any) -> None:
        """Tell the host something. Raises as :meth:`request` does."""
        self._check_may_send(method)
        frame = self._encode({"jsonrpc": "2.0", "method": method, "params": params})
        self._check_size(method, frame)
        self._send(frame)

    def cancel(self, request: OwnRequest, reason: str = "") -> None:
        """Nobody waits for the answer any more; the host is told if the request has left."""
        if request.settled:
            return
        if request in self._queued:
            self._queued.remove(request)
        elif request.id in self._own:
            params = {"id": request.id, "reason": reason} if reason else {"id": request.id}
            self._send(self._encode({"jsonrpc": "2.0", "method": "$/cancelRequest", "params": params}))
        self._settle(request, error=CancelledError(f"{request.method} was cancelled", reason=reason))

    # -- for the wires -------------------------------------------------------------------------------------------------

    def emit(self, event: ConnectionEvent) -> None:
        """Queue an event for the driver."""
        self._events.append(event)

    @abstractmethod
    def _receive(self, frame: bytes) -> None:
        """Handle one frame. Raising a :class:`~broker.errors.BrokerError` ends the connection."""

    @abstractmethod
    def _encode(self, message: dict[str, Any]) -> bytes:
        """The bytes of a message, without LF."""

    @abstractmethod
    def _failure(self, request_id: RequestId, name: str, data: Any) -> dict[str, Any]:
        """The envelope of an error answer."""

    @abstractmethod
    def _check_may_send(self, method: str) -> None:
        """Raise unless the extension may send ``method`` now."""

    @abstractmethod
    def _model_of(self, call: HostCall) -> Any:
        """The record of a call's parameters, or :class:`~broker.errors.InvalidParamsError`; ``None`` without one."""

    def _attach(self, bus: BusClient) -> None:
        """There is a bus."""
        self.bus = bus

    def _begin(self, info: HostInfo) -> None:
        """The contract stands."""
        self.info = info
        self.emit(Initialized(info))

    def _on_call(self, call: HostCall, *, bypasses_slots: bool) -> None:
        """A request of the host whose method is fine."""
        assert self.info is not None
        if call.id in self._calls:
            raise ProtocolError(f"the host used the id of an open request again: {call.id!r:.80}", path="id")
        self._calls[call.id] = call
        try:
            call.model = self._model_of(call)
        except BrokerError as error:
            self.refuse(call, error.name, {"reason": str(error)})
            return
        if self.draining:
            self.refuse(call, "capability_mismatch", {"reason": "the extension is shutting down"})
        elif call.method == "shutdown":
            self.draining = True
            self.emit(ShutdownReceived(call))
        elif not bypasses_slots and len(self._calls) > self.info.max_concurrent_requests + self._bypassing():
            maximum = self.info.max_concurrent_requests
            self.refuse(call, "resource_exhausted", {"reason": f"more than {maximum} requests at once"})
        else:
            self.emit(CallReceived(call))

    def _bypassing(self) -> int:
        return sum(call.method == "hook/run" for call in self._calls.values())

    def _on_cancel(self, request_id: RequestId, reason: str) -> None:
        call = self._calls.get(request_id)
        if call is not None and not call.cancelled:
            call.cancelled = True
            call.reason = reason
            self.emit(CallCancelled(call))

    def _on_notice(self, method: str, params: Any, model: Any = None) -> None:
        self.emit(NoticeReceived(method, params, model))

    def _on_answer(self, request_id: RequestId, result: Any, error: BrokerError | None) -> None:
        request = self._own.pop(request_id, None) if type(request_id) is int else None
        if request is None:
            self.emit(Log(f"the host answered a request that is not open: {request_id!r:.80}"))
            return
        while self._queued and len(self._own) < MAX_EXTENSION_REQUESTS_OUTSTANDING:
            self._send_request(self._queued.popleft())
        if not request.settled:
            self._settle(request, result=result, error=error)

    def _method_of(self, request_id: RequestId) -> str:
        request = self._own.get(request_id) if type(request_id) is int else None
        return "a request" if request is None else request.method

    def _refuse_unknown(self, request_id: RequestId, method: str) -> None:
        self._send(
            self._encode(self._failure(request_id, "unknown_method", {"method": method[:MAX_METHOD_NAME_BYTES]}))
        )
        self.emit(Log(f"refused {quote(method)} of the host: unknown or not agreed on"))

    def _send(self, frame: bytes) -> None:
        self._out += frame
        self._out += b"\n"

    # -- inside --------------------------------------------------------------------------------------------------------

    def _check_open(self, call: HostCall) -> None:
        if call.answered:
            raise UsageError(f"{call.method} was answered already", method=call.method)

    def _finish(self, call: HostCall, frame: bytes) -> None:
        call.answered = True
        if self._calls.pop(call.id, None) is not None:
            self._send(frame)

    def _check_size(self, method: str, frame: bytes) -> None:
        if len(frame) > self._bound:
            raise ResourceExhaustedError(
                f"{method} takes a frame of {len(frame)} bytes, at most {self._bound} are taken by the host",
                method=method,
                limit="max_frame_bytes",
                observed=len(frame),
                maximum=self._bound,
            )

    def _send_request(self, request: OwnRequest) -> None:
        frame = self._encode(_request(self._last_id + 1, request.method, request.params))
        self._check_size(request.method, frame)
        self._last_id += 1
        request.id = self._last_id
        self._own[request.id] = request
        self._send(frame)

    def _settle(self, request: OwnRequest, *, result: Any = None, error: BrokerError | None = None) -> None:
        request.settled = True
        request.result = result
        request.error = error
        request.on_settled(request)


def connect(declaration: Declaration) -> HostConnection:
    """The connection of an extension over the wire of its version; the other wire is not even loaded."""
    if declaration.api == "0.3":
        from broker.extension.canonical_wire import CanonicalHostConnection

        return CanonicalHostConnection(declaration)
    from broker.extension.feature_wire import FeatureHostConnection

    return FeatureHostConnection(declaration)


def _request(request_id: int, method: str, params: Any) -> dict[str, Any]:
    return {"jsonrpc": "2.0", "id": request_id, "method": method, "params": params}


def member(value: Any, *path: str) -> Any:
    """What stands at ``path`` in a message's value; ``None`` where there is nothing."""
    for key in path:
        value = value.get(key) if isinstance(value, dict) else None
    return value
