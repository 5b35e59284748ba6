"""What one received line means on the feature-negotiated wire.

The order of checks is fixed: JSON object, envelope; for a request: initialised, a method of this version, its feature,
its id is new, its scope, its parent, its parameters. What makes the stream unreadable, and a contribution the manifest
does not declare, ends the stream: raising :class:`~broker.errors.ProtocolError` from here does that.

Source: octet notes, section 5.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from broker.errors import InvalidParamsError, ProtocolError, RemoteError, UnavailableError
from broker.limits import MAX_UNNEGOTIATED_NOTIFICATIONS
from broker.wire.feature.envelope import Answer, Call, read_line
from broker.wire.feature.events import (
    CancelReceived,
    FeatureRequest,
    NoticeReceived,
    ParentSettled,
    ProgressReceived,
    RequestReceived,
)
from broker.wire.feature.methods import Method, Scope, find_method
from broker.wire.feature.models import OPEN, CancelNotice, DecorationProgress, ProgressReport, StatusContribution
from broker.wire.feature.refusals import UNSUPPORTED
from broker.wire.feature.scope import OWNER, PARENT, Claim, ResourceOwner, read_scope
from broker.wire.jsonrpc import ABSENT
from broker.wire.octet.incoming import IncomingTable
from broker.wire.octet.schema import check, decode, refuse
from broker.wire.quoting import escape, quote
from broker.wire.requests import HostRequest

if TYPE_CHECKING:
    from broker.wire.feature.connection import FeatureConnection


class Inbound:
    """The reading half of a :class:`~broker.wire.feature.connection.FeatureConnection`."""

    __slots__ = ("_children", "_connection", "_dropped", "_noticed", "_progress", "table")

    def __init__(self, connection: FeatureConnection) -> None:
        self._connection = connection
        self._dropped = 0
        self._children: dict[HostRequest, list[FeatureRequest]] = {}
        self._noticed: set[HostRequest] = set()
        self._progress: dict[HostRequest, int] = {}
        self.table: IncomingTable = IncomingTable()

    def receive(self, line: bytes) -> None:
        """Handle one line without its LF."""
        message = read_line(line)
        if message is None:
            return
        if isinstance(message, Answer):
            self._on_answer(message)
            return
        if self._connection.agreement is None:
            raise ProtocolError(f"{quote(message.method)} was sent before initialize was answered", path="method")
        if message.is_request:
            self._on_request(message)
        else:
            self._on_notification(message)

    def forget(self, incoming: FeatureRequest) -> None:
        """An answer to ``incoming`` is on its way."""
        self.table.close(incoming)
        if incoming.parent is not None:
            siblings = self._children[incoming.parent]
            siblings.remove(incoming)
            if not siblings:
                del self._children[incoming.parent]

    def release_children(self, parent: HostRequest) -> None:
        """``parent`` settles: whatever was asked for on its behalf and is still open is cancelled."""
        self._progress.pop(parent, None)
        for child in list(self._children.get(parent, ())):
            self._cancel(child, f"{parent.method} has settled", parent_request_id=parent.id)
        if parent in self._noticed:
            self._noticed.discard(parent)
            self._connection.emit(ParentSettled(parent))

    def clear(self) -> None:
        """The connection has closed: nothing is answered any more."""
        self.table.clear()
        self._children.clear()
        self._noticed.clear()
        self._progress.clear()

    # -- requests ------------------------------------------------------------------------------------------------------

    def _on_request(self, message: Call) -> None:
        row = self._row(message)
        if row is None:
            self._refuse_unknown(message)
            return
        if not self._is_negotiated(row):
            self._connection.outbound.push_refusal(
                message.id, row.absent, f"{message.method} was not negotiated", method=message.method
            )
            self._connection.diagnose(f"refused request {quote(message.method)}: not negotiated")
            return
        incoming = FeatureRequest(message.id, message.method, message.params, row=row)
        self.table.add(incoming)
        try:
            claim = self._read_claim(message, row)
            incoming.owner = self._judge_owner(claim, message.method)
            parent = self._find_parent(message.method, claim)
            incoming.model = _read_params(message.method, row, claim)
        except (InvalidParamsError, UnavailableError) as error:
            self._connection.refuse(incoming, error)
            self._connection.diagnose(f"refused request: {error}")
            return
        if claim.parent is not None and parent is None:
            self._cancel(incoming, "its parent has settled", quietly=True, parent_request_id=claim.parent)
            return
        if parent is not None:
            incoming.parent = parent
            self._children.setdefault(parent, []).append(incoming)
        self._connection.emit(RequestReceived(incoming))

    def _row(self, message: Call) -> Method | None:
        row = find_method(self._connection.version, message.method)
        if row is None or not row.from_extension or row.notification is message.is_request:
            return None
        return row

    def _is_negotiated(self, row: Method) -> bool:
        version = self._connection.version
        if row.declares == "confirmations" and not self._connection.declares(row.declares):
            return False
        if row.feature is None or version == "0.1":
            return True
        agreement = self._connection.agreement
        return agreement is not None and row.feature in agreement.features

    def _refuse_unknown(self, message: Call) -> None:
        shown = quote(message.method)
        self._connection.outbound.push_refusal(
            message.id, UNSUPPORTED, f"{shown} is not a method of API {self._connection.version}", method=message.method
        )
        self._connection.diagnose(f"refused request {shown}: unknown method")

    def _read_claim(self, message: Call, row: Method) -> Claim:
        if type(message.params) is not dict:
            raise InvalidParamsError(f"params of {message.method}: must be an object", path="")
        scope = Scope.FREE if self._connection.version == "0.1" else row.scope
        return read_scope(message.params, scope, method=message.method)

    def _judge_owner(self, claim: Claim, method: str) -> ResourceOwner | None:
        if claim.owner is not None and claim.owner != self._connection.owner:
            raise UnavailableError(f"params of {method}: resource_owner is not this process generation", path=OWNER)
        return claim.owner

    def _find_parent(self, method: str, claim: Claim) -> HostRequest | None:
        """The open parent; ``None`` when none is claimed, and for one that has settled."""
        if claim.parent is None:
            return None
        requests = self._connection.outbound.requests
        parent = requests.open_request(claim.parent)
        never_sent = not 1 <= claim.parent < requests.next_id
        if never_sent or (parent is not None and not parent.dispatched):
            raise InvalidParamsError(f"params of {method}: the host has sent no request {claim.parent}", path=PARENT)
        return parent

    def _cancel(self, incoming: FeatureRequest, reason: str, *, quietly: bool = False, **data: Any) -> None:
        self.forget(incoming)
        incoming.cancelled = True
        self._connection.outbound.push_cancelled(incoming.id, f"request cancelled: {reason}", **data)
        if not quietly:
            self._connection.emit(CancelReceived(incoming, reason))

    # -- notifications -------------------------------------------------------------------------------------------------

    def _on_notification(self, message: Call) -> None:
        row = self._row(message)
        if row is None:
            self._drop(f"{quote(message.method)}: unknown")
            return
        if row.declares is not None and not self._connection.declares(row.declares):
            raise ProtocolError(
                f"{message.method} was sent, and the manifest does not declare {row.declares}",
                name="capability_mismatch",
                method=message.method,
            )
        if not self._is_negotiated(row):
            self._drop(f"{quote(message.method)}: not negotiated")
            return
        try:
            claim = self._read_claim(message, row)
            owner = self._judge_owner(claim, message.method)
            parent = self._find_parent(message.method, claim)
            model = _read_params(message.method, row, claim)
        except (InvalidParamsError, UnavailableError) as error:
            self._drop(str(error))
            return
        if claim.parent is not None and parent is None:
            return  # it was on its way when its parent settled
        if isinstance(model, CancelNotice):
            self._on_cancel(model)
        elif isinstance(model, ProgressReport):
            self._on_progress(model)
        else:
            self._on_notice(NoticeReceived(message.method, model, parent, owner))

    def _on_notice(self, notice: NoticeReceived) -> None:
        model = notice.model
        if isinstance(model, StatusContribution) and not self._connection.declares(f"ui.{model.contribution.surface}"):
            raise ProtocolError(
                f"{notice.method} was sent for {model.contribution.surface}, which the manifest does not declare",
                name="capability_mismatch",
                method=notice.method,
            )
        if notice.parent is not None:
            self._noticed.add(notice.parent)
        self._connection.emit(notice)

    def _on_cancel(self, notice: CancelNotice) -> None:
        incoming = self.table.get(notice.id)
        if isinstance(incoming, FeatureRequest):
            reason = None if notice.reason is ABSENT else notice.reason
            self._cancel(incoming, "by the extension", quietly=True)
            self._connection.emit(CancelReceived(incoming, reason if isinstance(reason, str) else None))

    def _on_progress(self, report: ProgressReport) -> None:
        request = self._connection.outbound.requests.open_request(report.request_id)
        if request is None or report.sequence <= self._progress.get(request, -1):
            return  # stale
        agreement = self._connection.agreement
        assert agreement is not None
        if isinstance(report.event, DecorationProgress) and "progress_decoration" not in agreement.features:
            self._drop("'$/progress': decoration was not negotiated")
            return
        self._progress[request] = report.sequence
        self._connection.emit(ProgressReceived(request, report))

    def _drop(self, what: str) -> None:
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

    # -- answers -------------------------------------------------------------------------------------------------------

    def _on_answer(self, answer: Answer) -> None:
        connection, outbound = self._connection, self._connection.outbound
        request = outbound.requests.answered(answer.id)
        if request is None:
            connection.diagnose(f"ignored an answer to id {answer.id}, which is unknown or already answered")
            return
        error = None if answer.error is None else self._remote_error(request, answer)
        if request.settled:
            connection.diagnose(f"ignored a late answer to the cancelled {request.method} (id {request.id})")
        elif request.method == "initialize":
            connection.settle_initialize(request, answer.result, error)
        elif error is not None:
            outbound.settle(request, error=error)
        else:
            outbound.settle_result(request, answer.result)
        outbound.pump()

    def _remote_error(self, request: HostRequest, answer: Answer) -> RemoteError:
        assert answer.error is not None
        found = answer.error
        return RemoteError(
            f"{self._connection.extension} answered {request.method} with {found.code} {escape(found.message)}",
            name=found.row_name,
            extension=self._connection.extension,
            method=request.method,
            data=found.data,
            rpc_code=found.code,
            rpc_message=found.message,
        )


def _read_params(method: str, row: Method, claim: Claim) -> Any:
    if row.params is not None:
        return decode(row.params, claim.fields, what=f"params of {method}")
    faults = check(OPEN, claim.fields)
    if faults:
        refuse(faults, what=f"params of {method}", error=InvalidParamsError)
    return claim.fields
