"""The extension's requests of one process generation: which ids were used, and which still lack an answer."""

from __future__ import annotations

from typing import Any

from attrs import define

from broker.errors import ProtocolError
from broker.limits import MAX_EXTENSION_REQUEST_IDS, MAX_EXTENSION_REQUESTS_OUTSTANDING
from broker.wire.jsonrpc import RequestId
from broker.wire.quoting import quote


@define(eq=False)
class IncomingRequest:
    """One request of the extension that the host must answer once.

    ``params`` is the decoded JSON as sent; ``model`` is the same as a record of :mod:`broker.wire.octet.models` or
    ``bus_models``, its shape already checked. ``cancelled`` says that the extension took the request back (and has been
    told so), ``answered`` that its one terminal answer is on its way.
    """

    id: RequestId
    method: str
    params: Any
    model: Any = None
    answered: bool = False
    cancelled: bool = False


class IncomingTable:
    """Ids are unique for the whole generation, even after an answer (design, decision 13)."""

    __slots__ = ("_open", "_used")

    def __init__(self) -> None:
        self._used: set[RequestId] = set()
        self._open: dict[RequestId, IncomingRequest] = {}

    def __len__(self) -> int:
        return len(self._open)

    def add(self, request: IncomingRequest) -> None:
        """Record a request. Raises :class:`~broker.errors.ProtocolError` for a used id and for a passed bound."""
        if request.id in self._used:
            shown = quote(request.id) if isinstance(request.id, str) else str(request.id)
            raise ProtocolError(f"request id {shown} was used before", method=request.method, path="id")
        for limit, observed, maximum in (
            ("MAX_EXTENSION_REQUESTS_OUTSTANDING", len(self._open) + 1, MAX_EXTENSION_REQUESTS_OUTSTANDING),
            ("MAX_EXTENSION_REQUEST_IDS", len(self._used) + 1, MAX_EXTENSION_REQUEST_IDS),
        ):
            if observed > maximum:
                raise ProtocolError(
                    f"too many requests ({limit}: observed {observed}, maximum {maximum})",
                    name="resource_exhausted",
                    method=request.method,
                    limit=limit,
                    observed=observed,
                    maximum=maximum,
                )
        self._used.add(request.id)
        self._open[request.id] = request

    def get(self, request_id: RequestId) -> IncomingRequest | None:
        """The unanswered request under this id."""
        return self._open.get(request_id)

    def close(self, request: IncomingRequest) -> None:
        """Say that ``request`` has its terminal answer."""
        request.answered = True
        del self._open[request.id]

    def clear(self) -> None:
        """Forget everything; nothing will be answered any more."""
        self._open.clear()
        self._used.clear()
