"""One process of an extension of API 0.3 under test, spoken to as a strict host would, frame by frame."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, ClassVar, TypeAlias

from attrs import define, field

from broker import canonical
from broker.conform.octet.lines import read_line
from broker.conform.peer import Id, Peer, WireRules
from broker.errors import ERROR_TABLE, BrokerError
from broker.limits import MAX_EXTENSION_REQUESTS_OUTSTANDING, MAX_FRAME_BYTES, MAX_METHOD_NAME_BYTES
from broker.wire.jsonrpc import ABSENT, failure, success
from broker.wire.octet.contract import METHODS
from broker.wire.octet.model_table import METHOD_MODELS, params_model
from broker.wire.octet.negotiation import Selection
from broker.wire.octet.schema import check
from broker.wire.quoting import quote


@define
class Incoming:
    """A request or notification of the extension's, its parameters checked; ``id`` is ``None`` for a notification."""

    method: str
    params: Any
    id: Id | None = None
    at: float = 0.0


Handler: TypeAlias = Callable[[Incoming], dict[str, Any] | None]
"""Gives the result; ``None`` answers nothing for now. A :class:`BrokerError` is answered with its row."""


@define(eq=False, kw_only=True)
class OctetPeer(Peer):
    """The process and everything said so far. ``handlers`` answer the extension's requests by method."""

    rules: ClassVar[WireRules] = WireRules(one_line="octet.canonical.no-whitespace")

    handlers: dict[str, Handler] = field(factory=dict)
    notices: list[Incoming] = field(factory=list)
    selection: Selection | None = None
    bound: int = MAX_FRAME_BYTES
    _outstanding: int = 0
    _early: list[dict[str, Any]] = field(factory=list)

    # -- what the host says --------------------------------------------------------------------------------------------

    def encode(self, message: dict[str, Any]) -> bytes:
        """The frame of a message, LF included."""
        return canonical.encode(message) + b"\n"

    def select(self, selection: Selection) -> None:
        """From here on ``selection`` is the contract; what came behind the answer to ``initialize`` is looked at."""
        self.selection = selection
        self.ready = True
        self.bound = selection.limits.max_frame_bytes
        early, self._early = self._early, []
        for message in early:
            self._on_method(message)

    async def settle(self, seconds: float, most: float) -> None:
        """Let the extension say what it has to say: wait until it has been silent for ``seconds``."""
        end = self.probe.now + most
        while self.probe.now < end:
            await self.flush()
            before = self.probe.last_output_at
            await self.probe.quiet(seconds, most=max(0.0, end - self.probe.now))
            if self.probe.last_output_at == before and not self._outgoing:
                return

    def answer_incoming(self, incoming: Incoming, result: dict[str, Any]) -> None:
        """Answer a request of the extension's that its handler left open."""
        if incoming.id is not None:
            self._outstanding -= 1
            self.send_soon(self.encode(success(incoming.id, result)))

    def refuse_incoming(self, incoming: Incoming, name: str, data: Any = ABSENT) -> None:
        """Answer a request of the extension's with a row of the error table."""
        if incoming.id is not None:
            self._outstanding -= 1
            self.send_soon(self.encode(failure(incoming.id, name, data)))

    # -- what the extension says ---------------------------------------------------------------------------------------

    def _receive_line(self, line: bytes) -> None:
        found = read_line(line, self.bound)
        for rule, evidence in found.faults:
            self.findings.failed(rule, evidence)
        if found.understood and isinstance(found.value, dict):
            self._receive(found.value)

    def _receive(self, message: dict[str, Any]) -> None:
        if isinstance(message.get("method"), str):
            self._on_method(message)
        elif "result" in message or "error" in message:
            self._on_answer(message)

    def _on_method(self, message: dict[str, Any]) -> None:
        if self._initialized and self.selection is None:
            self._early.append(message)
            return
        method, params, request_id = message["method"], message.get("params"), message.get("id")
        shown = quote(method)
        if not self._initialized:
            self.findings.failed(
                "octet.method.before-contract", f"{shown} came before initialize was answered: {quote(repr(message))}"
            )
        incoming = Incoming(method, params, request_id if isinstance(request_id, (int, str)) else None, self.probe.now)
        if incoming.id is not None:
            self._note_id(incoming.id, shown)
            self._count(incoming)
        if not self._initialized:
            self.refuse_incoming(incoming, "unknown_method", {"method": method[:MAX_METHOD_NAME_BYTES]})
            return
        if not self._may_send(method):
            self.findings.failed("octet.method.unselected", f"{shown} was sent, which was not selected")
            self.refuse_incoming(incoming, "unknown_method", {"method": method[:MAX_METHOD_NAME_BYTES]})
            return
        if METHOD_MODELS[method].params is not None:
            faults = check(params_model(method), params)
            if faults:
                self.findings.failed(_params_rule(method), f"params of {shown}: {'; '.join(map(str, faults[:3]))}")
                if _is_event(incoming):
                    self.notices.append(incoming)  # its number and its kind count all the same
                self.refuse_incoming(incoming, "invalid_params")
                return
        self._handle(incoming)

    def _handle(self, incoming: Incoming) -> None:
        self.notices.append(incoming)
        handler = self.handlers.get(incoming.method)
        if handler is None:
            if incoming.method.startswith("bus/"):
                what = f"{incoming.method} came, and no binding was ever told"
                self.findings.failed("octet.bus.binding-first", what)
            self.refuse_incoming(incoming, "capability_mismatch")
            return
        try:
            result = handler(incoming)
        except BrokerError as error:
            self.refuse_incoming(incoming, error.name if error.name in ERROR_TABLE else "internal_error")
            return
        if result is not None:
            self.answer_incoming(incoming, result)

    def _may_send(self, method: str) -> bool:
        row = METHODS.get(method)
        if row is None or not row.from_extension:
            return False
        return self.selection is None or method in self.selection.methods

    def _count(self, incoming: Incoming) -> None:
        self._outstanding += 1
        if self._outstanding > MAX_EXTENSION_REQUESTS_OUTSTANDING:
            self.findings.failed(
                "octet.method.outstanding-bound",
                f"{self._outstanding} requests wait for an answer, {MAX_EXTENSION_REQUESTS_OUTSTANDING} may",
            )


def _is_event(incoming: Incoming) -> bool:
    """Whether this is an event of a stream as far as the accounts of streams go."""
    params = incoming.params
    types = {"stream_id": str, "sequence": int, "kind": str}
    is_right = isinstance(params, dict) and all(type(params.get(key)) is kind for key, kind in types.items())
    return incoming.method == "provider/event" and is_right


def _params_rule(method: str) -> str:
    return "octet.provider.stream-kinds" if method == "provider/event" else "octet.method.bad-params"
