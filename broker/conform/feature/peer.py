"""One process of an extension of API 0.1, 0.2 or 0.4 under test, spoken to line by line."""

from __future__ import annotations

import json
from typing import Any, ClassVar, Final

from attrs import define, field

from broker.conform.peer import Peer, WireRules
from broker.errors import BrokerError, ProtocolError
from broker.limits import MAX_FEATURE_LINE_BYTES
from broker.wire.feature.envelope import read_line
from broker.wire.feature.features import Version
from broker.wire.feature.methods import Method, Scope, find_method
from broker.wire.feature.models import CancelNotice, ProgressReport, StatusContribution
from broker.wire.feature.negotiation import Agreement
from broker.wire.feature.refusals import INVALID, UNAVAILABLE, UNSUPPORTED, RefusalKind, refusal
from broker.wire.feature.scope import read_scope
from broker.wire.jsonrpc import json_type, success
from broker.wire.octet.schema import decode
from broker.wire.quoting import quote

_ANSWERS: Final[dict[str, dict[str, Any]]] = {
    "confirmation/request": {"confirmed": False},
    "input/request": {"value": None},
    "artifact/publish": {"artifact_id": "conformance"},
    "policy/evaluate": {"decision": "deny"},
}


@define(eq=False, kw_only=True)
class FeaturePeer(Peer):
    """The process and everything said so far. ``declares`` are the manifest's contributions."""

    rules: ClassVar[WireRules] = WireRules(one_line="octet.legacy.framing")

    version: Version
    declares: frozenset[str]
    agreement: Agreement | None = None
    _early: list[tuple[dict[str, Any], str]] = field(factory=list)

    def agree(self, agreement: Agreement) -> None:
        """From here on ``agreement`` holds; what came behind the answer to ``initialize`` is looked at."""
        self.agreement = agreement
        self.ready = True
        early, self._early = self._early, []
        for message, shown in early:
            self._on_method(message, shown)

    def _receive_line(self, line: bytes) -> None:
        shown = quote(line)
        if len(line) + 1 > MAX_FEATURE_LINE_BYTES:
            self.findings.failed("octet.legacy.line-bound", f"a line of {len(line) + 1} bytes: {shown}")
        try:
            read_line(line)
        except ProtocolError as error:
            self.findings.failed(_line_rule(line, error), f"{error}")
        message = _guess(line)
        if not isinstance(message, dict):
            return
        if isinstance(message.get("method"), str):
            self._on_method(message, shown)
        elif "result" in message or "error" in message:
            self._on_answer(message)

    def _on_method(self, message: dict[str, Any], shown: str) -> None:
        if self._initialized and self.agreement is None:
            self._early.append((message, shown))
            return
        method, request_id = message["method"], message.get("id")
        if not self._initialized:
            self.findings.failed("octet.method.before-contract", f"before initialize was answered: {shown}")
        if "id" in message and isinstance(request_id, (int, str)):
            self._note_id(request_id, shown)
        row = find_method(self.version, method)
        if row is None or not row.from_extension or row.notification is ("id" in message):
            self.findings.failed("octet.version.no-retag", f"not a message of API {self.version}: {shown}")
            self._refuse(message, UNSUPPORTED)
            return
        self._judge(message, row, shown)

    def _judge(self, message: dict[str, Any], row: Method, shown: str) -> None:
        method = message["method"]
        if row.declares is not None and row.declares not in self.declares:
            what = f"the manifest does not declare {row.declares}: {shown}"
            self.findings.failed("octet.legacy.undeclared-contribution", what)
            self._refuse(message, UNSUPPORTED)
            return
        features = frozenset() if self.agreement is None else self.agreement.features
        if row.feature is not None and self.version != "0.1" and self._initialized and row.feature not in features:
            self.findings.failed("octet.legacy.unnegotiated", f"{row.feature} was not negotiated: {shown}")
            self._refuse(message, row.absent)
            return
        params = message.get("params", {})
        try:
            if not isinstance(params, dict):
                raise ProtocolError(f"params must be an object, not {json_type(params)}", path="params")
            claim = read_scope(params, Scope.FREE if self.version == "0.1" else row.scope, method=method)
            model = None if row.params is None else decode(row.params, claim.fields, what=f"params of {method}")
        except BrokerError as error:
            rule = "octet.legacy.parent" if error.path == "parent_request_id" else "octet.legacy.bad-params"
            self.findings.failed(rule, f"{error}: {shown}")
            self._refuse(message, INVALID)
            return
        if claim.parent is not None and (int, claim.parent) not in self.calls:
            self.findings.failed("octet.legacy.parent", f"the host has sent no request {claim.parent}: {shown}")
        if isinstance(model, StatusContribution) and f"ui.{model.contribution.surface}" not in self.declares:
            self.findings.failed("octet.legacy.undeclared-contribution", f"the manifest has no such surface: {shown}")
        if isinstance(model, ProgressReport):
            self._judge_progress(model, shown)
        if "id" in message and not isinstance(model, CancelNotice):
            self._serve(message)

    def _judge_progress(self, report: ProgressReport, shown: str) -> None:
        call = self.calls.get((int, report.request_id))
        if call is None or report.sequence <= call.progress:
            before = "no such request" if call is None else f"the sequence before was {call.progress}"
            self.findings.failed("octet.legacy.progress", f"{before}: {shown}")
            return
        call.progress = report.sequence

    def _serve(self, message: dict[str, Any]) -> None:
        method = message["method"]
        result = _ANSWERS.get(method)
        if method in ("tools/register", "tools/unregister"):
            result = {"revision": 1, "tools": message.get("params", {}).get("tools", [])}
        if result is None:
            self._refuse(message, UNAVAILABLE)
            return
        self.send_soon(self.encode(success(message["id"], result)))

    def _refuse(self, message: dict[str, Any], kind: RefusalKind) -> None:
        if "id" in message:
            self.send_soon(self.encode(refusal(message["id"], kind, f"{message['method']}: {kind.reason}")))


def _line_rule(line: bytes, error: ProtocolError) -> str:
    if not line.lstrip(b"\xef\xbb\xbf \t\r").startswith((b"{", b"[")):
        return "octet.framing.frames-only"
    if error.name == "parse_error" or line.lstrip().startswith(b"["):
        return "octet.legacy.framing"
    return "octet.envelope.id-exact" if error.path == "id" and b'"method"' not in line else "octet.legacy.envelope"


def _guess(line: bytes) -> Any:
    text = line.decode("utf-8-sig", "replace").strip()
    try:
        return json.JSONDecoder(strict=False).raw_decode(text)[0] if text else None
    except (ValueError, RecursionError):
        return None
