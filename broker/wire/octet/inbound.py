"""What one received line means: decoded, classified, checked against the contract, and turned into an effect.

The order of checks is fixed: trailing CR, empty line, canonical JSON, envelope; then for a frame with a method: the
contract exists, the method may be sent by the extension, the id is new, the parameters have the right shape.

Raising :class:`~broker.errors.ProtocolError` from here ends the stream.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from broker import canonical
from broker.errors import (
    CanonicalError,
    InvalidParamsError,
    NegotiationError,
    NonportableNumberError,
    ProtocolError,
    RemoteError,
)
from broker.limits import MAX_UNNEGOTIATED_NOTIFICATIONS
from broker.wire.jsonrpc import ABSENT, Envelope, Failure, Notification, Request, Success, classify
from broker.wire.octet.contract import METHODS, is_notification
from broker.wire.octet.events import CancelReceived, NotificationReceived, RequestReceived, StreamFaulted
from broker.wire.octet.incoming import IncomingRequest, IncomingTable
from broker.wire.octet.model_table import params_model
from broker.wire.octet.models import CancelRequestParams
from broker.wire.octet.schema import check, decode
from broker.wire.octet.stream_models import STREAM_ID
from broker.wire.quoting import escape, quote

if TYPE_CHECKING:
    from broker.wire.octet.connection import Connection


class Inbound:
    """The reading half of a :class:`~broker.wire.octet.connection.Connection`."""

    __slots__ = ("_connection", "_dropped", "table")

    def __init__(self, connection: Connection) -> None:
        self._connection = connection
        self._dropped = 0
        self.table: IncomingTable = IncomingTable()

    def clear(self) -> None:
        """The connection has closed: nothing is answered any more."""
        self.table.clear()

    def receive(self, line: bytes) -> None:
        """Handle one line without its LF."""
        number_fault: NonportableNumberError | None = None
        try:
            value = _decode_line(line)
        except NonportableNumberError as error:
            value, number_fault = error.zeroed, error
        envelope = classify(value, is_notification=is_notification)
        if number_fault is not None:
            self._on_bad_number(envelope, number_fault, line)
        elif isinstance(envelope, Request):
            self._check_contract(envelope.method)
            self._on_request(envelope)
        elif isinstance(envelope, Notification):
            self._check_contract(envelope.method)
            self._on_notification(envelope)
        elif isinstance(envelope.id, str):
            raise ProtocolError(f"answer to the string id {quote(envelope.id)}: the host's ids are integers", path="id")
        else:
            self._on_answer(envelope.id, envelope)

    def _check_contract(self, method: str) -> None:
        if self._connection.selection is None:
            raise ProtocolError(f"{quote(method)} was sent before the contract exists", path="method")

    def _may_send(self, method: str) -> bool:
        selection = self._connection.selection
        assert selection is not None
        row = METHODS.get(method)
        return row is not None and row.from_extension and method in selection.methods

    def _on_bad_number(self, envelope: Envelope, fault: NonportableNumberError, line: bytes) -> None:
        """Numbers alone are wrong: a request is told so, a selection is refused; any other frame ends the stream."""
        connection = self._connection
        inside = all(path.startswith("$.params") for path in fault.paths)
        if isinstance(envelope, Request) and inside and connection.selection is not None:
            if self._may_send(envelope.method):
                incoming = IncomingRequest(envelope.id, envelope.method, envelope.params)
                self.table.add(incoming)
                connection.refuse(incoming, InvalidParamsError(str(fault), path=fault.path))
                connection.diagnose(f"refused request {quote(envelope.method)}: {fault}")
            else:
                self._on_request(envelope)
            return
        if isinstance(envelope, Success) and connection.answers_initialize(envelope.id):
            raise NegotiationError(f"result of initialize: {fault}", name="invalid_params", path=fault.path)
        raise _protocol_error(line, fault)

    def _on_request(self, envelope: Request) -> None:
        if not self._may_send(envelope.method):
            self._connection.outbound.push_refusal(envelope.id, "unknown_method", {"method": envelope.method})
            self._connection.diagnose(f"refused request {quote(envelope.method)}: unknown or not negotiated")
            return
        incoming = IncomingRequest(envelope.id, envelope.method, envelope.params)
        self.table.add(incoming)
        try:
            incoming.model = decode(params_model(envelope.method), envelope.params, what=f"params of {envelope.method}")
        except InvalidParamsError as error:
            self._connection.refuse(incoming, error)
            self._connection.diagnose(f"refused request: {error}")
        else:
            self._connection.emit(RequestReceived(incoming))

    def _on_notification(self, envelope: Notification) -> None:
        if not self._may_send(envelope.method):
            self.drop(f"{quote(envelope.method)}: unknown or not negotiated")
            return
        try:
            params: Any = decode(params_model(envelope.method), envelope.params, what=f"params of {envelope.method}")
        except InvalidParamsError as error:
            stream_id = _stream_of(envelope)
            if stream_id is None:
                self.drop(str(error))
            else:
                self._connection.emit(StreamFaulted(stream_id, error))
            return
        if isinstance(params, CancelRequestParams):
            self._on_cancel(params)
        else:
            self._connection.emit(NotificationReceived(envelope.method, params))

    def _on_cancel(self, params: CancelRequestParams) -> None:
        incoming = self.table.get(params.id)
        if incoming is None:
            return
        self.table.close(incoming)
        incoming.cancelled = True
        self._connection.outbound.push_refusal(incoming.id, "request_cancelled")
        self._connection.emit(CancelReceived(incoming, None if params.reason is ABSENT else params.reason))

    def _on_answer(self, request_id: int, envelope: Success | Failure) -> None:
        connection, outbound = self._connection, self._connection.outbound
        request = outbound.requests.answered(request_id)
        if request is None:
            connection.diagnose(f"ignored an answer to id {request_id}, which is unknown or already answered")
            return
        error = envelope.error if isinstance(envelope, Failure) else None
        result = envelope.result if isinstance(envelope, Success) else None
        if request.settled:
            connection.diagnose(f"ignored a late answer to the cancelled {request.method} (id {request_id})")
        elif request.method == "initialize":
            connection.settle_initialize(request, error, result)
        elif error is None:
            outbound.settle_result(request, result)
        else:
            remote = RemoteError(
                f"{connection.extension} answered {request.method} with {error.code} {error.message}",
                name=error.name,
                extension=connection.extension,
                method=request.method,
                data=error.data,
            )
            outbound.settle(request, error=remote)
        outbound.pump()

    def drop(self, what: str) -> None:
        """Count and report a notification nobody can use; one too many raises."""
        self._dropped += 1
        if self._dropped > MAX_UNNEGOTIATED_NOTIFICATIONS:
            raise ProtocolError(
                f"too many notifications that had to be dropped, the last: {escape(what)}",
                name="resource_exhausted",
                limit="MAX_UNNEGOTIATED_NOTIFICATIONS",
                observed=self._dropped,
                maximum=MAX_UNNEGOTIATED_NOTIFICATIONS,
            )
        self._connection.diagnose(f"dropped notification {what}")


def _stream_of(envelope: Notification) -> str | None:
    """The stream that a ``provider/event`` names, whatever else is wrong with it."""
    if envelope.method != "provider/event" or type(envelope.params) is not dict:
        return None
    stream_id = envelope.params.get("stream_id")
    return stream_id if not check(STREAM_ID, stream_id) else None


def _decode_line(line: bytes) -> Any:
    """The value of a line; a :class:`NonportableNumberError` is passed on, as the stream may survive it."""
    if line.endswith(b"\r"):
        problem, offset = "CR before LF", len(line) - 1
    elif not line:
        problem, offset = "empty line", 0
    else:
        try:
            return canonical.decode(line)
        except NonportableNumberError:
            raise
        except CanonicalError as error:
            raise _protocol_error(line, error) from error
    raise ProtocolError(f"{problem}; the line begins {quote(line)}", name="parse_error", offset=offset)


def _protocol_error(line: bytes, error: CanonicalError) -> ProtocolError:
    return ProtocolError(
        f"a frame that is not canonical JSON: {escape(str(error))}; it begins {quote(line)}",
        name="parse_error",
        offset=error.offset,
        path=error.path,
        limit=error.limit,
        observed=error.observed,
        maximum=error.maximum,
    )
