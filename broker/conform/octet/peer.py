"""One process of an extension of API 0.3 under test, spoken to as a strict host would, frame by frame."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final, TypeAlias

from attrs import define, field

from broker import canonical
from broker.conform.call import Call
from broker.conform.findings import Findings
from broker.conform.joining import Joiner
from broker.conform.octet.lines import read_line
from broker.conform.probe import Probe
from broker.errors import ERROR_TABLE, BrokerError
from broker.limits import MAX_EXTENSION_REQUESTS_OUTSTANDING, MAX_FRAME_BYTES
from broker.wire.jsonrpc import ABSENT, failure, notification, request, success
from broker.wire.octet.contract import METHODS
from broker.wire.octet.model_table import METHOD_MODELS, params_model
from broker.wire.octet.negotiation import Selection
from broker.wire.octet.schema import check
from broker.wire.quoting import quote

Id: TypeAlias = int | str
NO_SUCH_TOOL: Final = "conformance-no-such-tool"


@define
class Incoming:
    """A request or notification of the extension's, its parameters checked; ``id`` is ``None`` for a notification."""

    method: str
    params: Any
    id: Id | None = None
    at: float = 0.0


Handler: TypeAlias = Callable[[Incoming], dict[str, Any] | None]
"""Gives the result; ``None`` answers nothing for now. A :class:`BrokerError` is answered with its row."""


@define(eq=False)
class OctetPeer:
    """The process and everything said so far. ``handlers`` answer the extension's requests by method.

    ``may_end`` says that the process has been asked to end, ``blamed`` that its silence is a finding already.
    """

    probe: Probe = field(init=False)
    findings: Findings
    handlers: dict[str, Handler] = field(factory=dict)
    notices: list[Incoming] = field(factory=list)
    selection: Selection | None = None
    bound: int = MAX_FRAME_BYTES
    workspace: str = ""
    may_end: bool = False
    blamed: bool = False
    calls: dict[tuple[type, Id], Call] = field(factory=dict)
    _next_id: int = 1
    _seen_ids: set[tuple[type, Id]] = field(factory=set)
    _outstanding: int = 0
    _initialized: bool = False
    _outgoing: list[bytes] = field(factory=list)
    _early: list[dict[str, Any]] = field(factory=list)
    _joiner: Joiner = field(factory=Joiner)

    # -- what the host says --------------------------------------------------------------------------------------------

    def prepare(self, method: str, params: Any, request_id: Id | None = None) -> tuple[Call, bytes]:
        """A request with its frame, LF included, that is not written yet."""
        if request_id is None:
            request_id = self._next_id
            self._next_id += 1
        call = Call(request_id, method, self.probe.now)
        self.calls[type(request_id), request_id] = call
        return call, canonical.encode(request(request_id, method, params)) + b"\n"

    async def request(self, method: str, params: Any, request_id: Id | None = None) -> Call:
        """Send a request."""
        call, data = self.prepare(method, params, request_id)
        await self.probe.write(data)
        return call

    def select(self, selection: Selection) -> None:
        """From here on ``selection`` is the contract; what came behind the answer to ``initialize`` is looked at."""
        self.selection = selection
        self.bound = selection.limits.max_frame_bytes
        early, self._early = self._early, []
        for message in early:
            self._on_method(message)

    async def notify(self, method: str, params: Any) -> bool:
        """Send a notification."""
        return await self.probe.write(canonical.encode(notification(method, params)) + b"\n")

    async def answered(self, call: Call, seconds: float) -> bool:
        """Wait for the answer to ``call``."""
        await self.flush()
        return await self.probe.until(lambda: call.answer is not None, seconds)

    async def ask(self, method: str, params: Any, seconds: float, request_id: Id | None = None) -> Call:
        """Send a request and wait for its answer."""
        call = await self.request(method, params, request_id)
        await self.answered(call, seconds)
        return call

    async def settle(self, seconds: float, most: float) -> None:
        """Let the extension say what it has to say: wait until it has been silent for ``seconds``."""
        end = self.probe.now + most
        while self.probe.now < end:
            await self.flush()
            before = self.probe.last_output_at
            await self.probe.quiet(seconds, most=max(0.0, end - self.probe.now))
            if self.probe.last_output_at == before and not self._outgoing:
                return

    async def flush(self) -> None:
        """Write the answers that are due."""
        while self._outgoing:
            data = b"".join(self._outgoing)
            self._outgoing.clear()
            await self.probe.write(data)

    def send_soon(self, frame: bytes) -> None:
        """Have a frame (without LF) written as soon as may be, in the order of these calls."""
        self._outgoing.append(frame + b"\n")
        if len(self._outgoing) == 1:
            self.probe.run_soon(self.flush())

    def answer_incoming(self, incoming: Incoming, result: dict[str, Any]) -> None:
        """Answer a request of the extension's that its handler left open."""
        if incoming.id is not None:
            self._outstanding -= 1
            self.send_soon(canonical.encode(success(incoming.id, result)))

    def refuse_incoming(self, incoming: Incoming, name: str, data: Any = ABSENT) -> None:
        """Answer a request of the extension's with a row of the error table."""
        if incoming.id is not None:
            self._outstanding -= 1
            self.send_soon(canonical.encode(failure(incoming.id, name, data)))

    # -- what the extension says ---------------------------------------------------------------------------------------

    def receive_line(self, line: bytes) -> None:
        """One line of its output, without LF."""
        for whole, joined in self._joiner.feed(line):
            if joined:
                what = f"one value over several lines: {quote(whole)}"
                self.findings.failed("octet.canonical.no-whitespace", what)
            self._receive_line(whole)

    def _receive_line(self, line: bytes) -> None:
        found = read_line(line, self.bound)
        for rule, evidence in found.faults:
            self.findings.failed(rule, evidence)
        if found.understood and isinstance(found.value, dict):
            self._receive(found.value)

    def receive_rest(self, rest: bytes) -> None:
        """What its output ended with, without LF."""
        self.findings.failed("octet.framing.lf-terminated", f"the output ends without LF: {quote(rest)}")
        self.receive_line(rest)

    def _receive(self, message: dict[str, Any]) -> None:
        if isinstance(message.get("method"), str):
            self._on_method(message)
        elif "result" in message or "error" in message:
            self._on_answer(message)

    def _on_answer(self, message: dict[str, Any]) -> None:
        found = message.get("id")
        shown = quote(repr(found))
        call = self.calls.get((type(found), found)) if isinstance(found, (int, str)) else None
        if call is None:
            alike = [one for one in self.calls.values() if str(one.id) == str(found)]
            alike = alike or [one for one in self.calls.values() if one.answer is None and found is None]
            if not alike:
                self.findings.failed("octet.envelope.response-unknown-id", f"an answer to id {shown}, nothing has it")
                return
            call = alike[0]
            self.findings.failed(
                "octet.envelope.id-exact", f"{call.method} with id {call.id!r} was answered as {shown}"
            )
        if call.answer is not None:
            late = self.probe.now - call.answered_at
            self.findings.failed(
                "octet.method.answered-once", f"{call.method} (id {call.id!r}) was answered again {late:.3f} s later"
            )
            return
        call.answer, call.answered_at = message, self.probe.now
        if call.method == "initialize":
            self._initialized = True

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
            self._note_id(incoming)
        if not self._initialized:
            self.refuse_incoming(incoming, "unknown_method", {"method": method[:128]})
            return
        if not self._may_send(method):
            self.findings.failed("octet.method.unselected", f"{shown} was sent, which was not selected")
            self.refuse_incoming(incoming, "unknown_method", {"method": method[:128]})
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

    def _note_id(self, incoming: Incoming) -> None:
        assert incoming.id is not None
        key = (type(incoming.id), incoming.id)
        if key in self._seen_ids:
            self.findings.failed(
                "octet.method.id-reuse", f"{quote(incoming.method)} has the id {incoming.id!r}, which was used before"
            )
        self._seen_ids.add(key)
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
