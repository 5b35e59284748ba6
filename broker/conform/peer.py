"""What a process under test is asked and what it answers, on every wire: lines and calls."""

from __future__ import annotations

import json
from typing import Any, ClassVar, TypeAlias

from attrs import define, field, frozen

from broker.conform.findings import Findings
from broker.conform.joining import Joiner
from broker.conform.probe import Probe
from broker.wire.quoting import quote

Id: TypeAlias = int | str


@define(eq=False)
class Call:
    """One request: ``answer`` is the whole message, as far as it was understood; times are the event loop's.

    ``nameless`` says that it is one without an id, which is taken for the answer until another one comes.
    """

    id: Id
    method: str
    sent_at: float
    answer: dict[str, Any] | None = None
    answered_at: float = 0.0
    progress: int = -1
    nameless: bool = False

    @property
    def result(self) -> Any:
        """The result of an answered call that did not fail, else ``None``."""
        return None if self.answer is None else self.answer.get("result")

    @property
    def failed(self) -> bool:
        """Whether it was answered with an error."""
        return self.answer is not None and self.answer.get("error") is not None

    @property
    def error_code(self) -> Any:
        """The code of an answer that is an error, whatever that is; ``None`` for any other."""
        error = None if self.answer is None else self.answer.get("error")
        return error.get("code") if isinstance(error, dict) else None


@frozen(kw_only=True)
class WireRules:
    """What a family calls the rules that every wire has; those of both of octet's wires are the defaults."""

    one_line: str
    last_line: str = "octet.framing.lf-terminated"
    unasked: str = "octet.envelope.response-unknown-id"
    id_exact: str = "octet.envelope.id-exact"
    answered_once: str = "octet.method.answered-once"
    stderr: str = "octet.process.stderr-bounded"
    stays_alive: str = "octet.process.stays-alive"


@define(eq=False, kw_only=True)
class Peer:
    """The process and everything said so far.

    ``ready`` says that it may be used, ``may_end`` that it has been asked to end, ``blamed`` that its silence is a
    finding already.
    """

    rules: ClassVar[WireRules]

    probe: Probe = field(init=False)
    findings: Findings
    workspace: str = ""
    ready: bool = False
    may_end: bool = False
    blamed: bool = False
    calls: dict[tuple[type, Id], Call] = field(factory=dict)
    _initialized: bool = False
    _next_id: int = 1
    _seen_ids: set[tuple[type, Id]] = field(factory=set)
    _outgoing: list[bytes] = field(factory=list)
    _joiner: Joiner = field(factory=Joiner)

    @property
    def idle(self) -> bool:
        """Whether everything it was asked is answered."""
        return all(call.answer is not None for call in self.calls.values())

    # -- what the host says --------------------------------------------------------------------------------------------

    def encode(self, message: dict[str, Any]) -> bytes:
        """The line of a message, LF included."""
        return json.dumps(message, ensure_ascii=False, separators=(",", ":")).encode("utf-8", "surrogatepass") + b"\n"

    def prepare(self, method: str, params: Any = None, request_id: Id | None = None) -> tuple[Call, bytes]:
        """A request with its line that is not written yet. ``None`` leaves the parameters out."""
        if request_id is None:
            request_id = self._next_id
            self._next_id += 1
        call = Call(request_id, method, self.probe.now)
        self.calls[type(request_id), request_id] = call
        return call, self.encode({"jsonrpc": "2.0", "id": request_id, **_call_of(method, params)})

    async def request(self, method: str, params: Any = None) -> Call:
        """Send a request."""
        call, data = self.prepare(method, params)
        await self.probe.write(data)
        return call

    async def notify(self, method: str, params: Any = None) -> None:
        """Send a notification."""
        await self.probe.write(self.encode({"jsonrpc": "2.0", **_call_of(method, params)}))

    async def answered(self, call: Call, seconds: float) -> bool:
        """Wait for the answer to ``call``."""
        await self.flush()
        return await self.probe.until(lambda: call.answer is not None, seconds)

    async def ask(self, method: str, params: Any, seconds: float) -> Call:
        """Send a request and wait for its answer."""
        call = await self.request(method, params)
        await self.answered(call, seconds)
        return call

    async def flush(self) -> None:
        """Write the answers that are due."""
        while self._outgoing:
            data = b"".join(self._outgoing)
            self._outgoing.clear()
            await self.probe.write(data)

    def send_soon(self, line: bytes) -> None:
        """Have a line written as soon as may be, in the order of these calls."""
        self._outgoing.append(line)
        if len(self._outgoing) == 1:
            self.probe.run_soon(self.flush())

    # -- what the process says -----------------------------------------------------------------------------------------

    def receive_line(self, line: bytes) -> None:
        """One line of its output, without LF."""
        for whole, joined in self._joiner.feed(line):
            if joined:
                self.findings.failed(self.rules.one_line, f"one message over several lines: {quote(whole)}")
            self._receive_line(whole)

    def receive_rest(self, rest: bytes) -> None:
        """What its output ended with, without LF."""
        self.findings.failed(self.rules.last_line, f"the output ends without LF: {quote(rest)}")
        self.receive_line(rest)

    def _receive_line(self, line: bytes) -> None:
        raise NotImplementedError

    def _on_answer(self, message: dict[str, Any]) -> None:
        found = message.get("id")
        shown = quote(repr(found))
        call = self.calls.get((type(found), found)) if isinstance(found, (int, str)) else None
        if call is None:
            call = self._meant(found)
            if call is None:
                self.findings.failed(self.rules.unasked, f"an answer to id {shown}, which nothing has")
                return
            call.nameless = found is None
            if not call.nameless:
                self.findings.failed(self.rules.id_exact, f"{call.method} with id {call.id!r} was answered as {shown}")
        elif call.nameless:
            # What came without an id was no answer to this, but to something that wants none.
            call.nameless, call.answer = False, None
            self.findings.failed(self.rules.unasked, "an answer to id 'None', which nothing has")
        if call.answer is not None:
            late = self.probe.now - call.answered_at
            what = f"{call.method} (id {call.id!r}) was answered again {late:.3f} s later"
            self.findings.failed(self.rules.answered_once, what)
            return
        call.answer, call.answered_at = message, self.probe.now
        self._initialized = self._initialized or call.method == "initialize"

    def judge_nameless(self) -> None:
        """Say of each call whose only answer had no id that it was answered so; nothing more comes."""
        for call in self.calls.values():
            if call.nameless:
                self.findings.failed(self.rules.id_exact, f"{call.method} with id {call.id!r} was answered as 'None'")

    def _meant(self, found: Any) -> Call | None:
        """The call that an answer with the id ``found``, which none has, was probably meant for."""
        for call in self.calls.values():
            if call.answer is None if found is None else str(call.id) == str(found) or call.id == found:
                return call
        return None

    def _note_id(self, request_id: Id, shown: str) -> None:
        """Account for the id of a request of the process's."""
        key = (type(request_id), request_id)
        if key in self._seen_ids:
            self.findings.failed("octet.method.id-reuse", f"the id {request_id!r} again, it was used before: {shown}")
        self._seen_ids.add(key)


def _call_of(method: str, params: Any) -> dict[str, Any]:
    return {"method": method} if params is None else {"method": method, "params": params}
