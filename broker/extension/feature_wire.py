"""The extension's side of the feature-negotiated wire (octet 0.4): JSON lines, features, and no bus.

Source: octet notes, section 5; octet reference, "Version policy".
"""

from __future__ import annotations

from typing import Any, Final

import orjson

from broker.errors import (
    BrokerError,
    CapabilityMismatchError,
    InvalidParamsError,
    ProtocolError,
    ResultError,
    UnavailableError,
)
from broker.extension.connection import HostConnection, member, refusal_of_host
from broker.extension.declaration import Declaration
from broker.extension.events import HostCall, HostInfo
from broker.limits import MAX_FEATURE_LINE_BYTES, MAX_REFUSAL_CHARS
from broker.wire.feature.envelope import Answer, Call, read_line
from broker.wire.feature.features import FEATURES, HOOK_FEATURES, LIFECYCLE_EVENTS, REQUIRED_FEATURES
from broker.wire.feature.methods import find_method
from broker.wire.jsonrpc import RequestId
from broker.wire.octet.manifest import SESSION_HOOKS
from broker.wire.octet.models import ToolCallParams, decode_hook_params
from broker.wire.octet.schema import decode

API_VERSION: Final = "0.4"
_UNAVAILABLE_CODE: Final = -32002
_CODES: Final = {
    "unknown_method": (-32601, "method not found"),
    "invalid_params": (-32602, "invalid params"),
    "internal_error": (-32603, "internal error"),
    "resource_exhausted": (-32602, "bounds exceeded"),
    "capability_mismatch": (-32602, "invalid request"),
    "version_mismatch": (-32602, "extension API version mismatch"),
    "request_cancelled": (-32800, "request cancelled"),
}
_REQUIRED_MEMBERS: Final[dict[str, dict[str, type]]] = {
    "command/execute": {"name": str, "arguments": list},
    "status/collect": {"surface": str},
    "tool/render": {"name": str},
    "hook/run": {"hook": str},
}


def implied_features(declaration: Declaration) -> frozenset[str]:
    """The features that what the author wrote makes sense with, beside those that were named."""
    names = {HOOK_FEATURES[hook] for hook in declaration.hooks if hook in HOOK_FEATURES}
    for notice in declaration.notices:
        names.add("lifecycle_events" if notice in LIFECYCLE_EVENTS else "lifecycle_events_v2")
    return frozenset(names)


class FeatureHostConnection(HostConnection):
    """A connection to a host that speaks octet 0.4."""

    def __init__(self, declaration: Declaration) -> None:
        super().__init__(declaration, bound=MAX_FEATURE_LINE_BYTES - 1)

    # -- lines ---------------------------------------------------------------------------------------------------------

    def _encode(self, message: dict[str, Any]) -> bytes:
        try:
            return orjson.dumps(message)
        except TypeError as error:
            raise InvalidParamsError(f"a value that JSON does not hold: {error}") from error

    def _failure(self, request_id: RequestId, name: str, data: Any) -> dict[str, Any]:
        code, message = _CODES.get(name, _CODES["internal_error"])
        if isinstance(data, dict) and isinstance(data.get("reason"), str) and name != "request_cancelled":
            message = f"{message}: {data['reason']}"
        error: dict[str, Any] = {"code": code, "message": message}
        if data is not None:
            error["data"] = data
        return {"jsonrpc": "2.0", "id": request_id, "error": error}

    def _receive(self, frame: bytes) -> None:
        message = read_line(frame)
        if message is None:
            return
        if isinstance(message, Answer):
            self._on_line_answer(message)
        elif self.info is None:
            self._on_first(message)
        elif message.is_request:
            row = find_method(API_VERSION, message.method)
            if row is None or not row.from_host or row.notification or message.method == "initialize":
                self._refuse_unknown(message.id, message.method)
                return
            call = HostCall(message.id, message.method, message.params)
            self._on_call(call, bypasses_slots=message.method in ("hook/run", "shutdown"))
        elif message.method == "$/cancelRequest":
            reason = member(message.params, "reason")
            self._on_cancel(member(message.params, "id"), reason if isinstance(reason, str) else "")
        else:
            self._on_notice(message.method, message.params)

    def _on_line_answer(self, message: Answer) -> None:
        method = self._method_of(message.id)
        if message.error is not None:
            name = message.error.row_name
            error = refusal_of_host(method, name, message.error.data, message.error.message)
            if message.error.code == _UNAVAILABLE_CODE:
                error = UnavailableError(str(error), method=method)
            self._on_answer(message.id, None, error)
            return
        row = find_method(API_VERSION, method)
        result: Any = message.result
        failed: BrokerError | None = None
        if row is not None and row.result is not None:
            try:
                result = decode(row.result, result, what=f"result of {method}", error=ResultError)
            except BrokerError as caught:
                result, failed = None, caught
        self._on_answer(message.id, result, failed)

    # -- what is wire-specific about requests --------------------------------------------------------------------------

    def _model_of(self, call: HostCall) -> Any:
        params = call.params
        if type(params) is not dict:
            raise InvalidParamsError(f"params of {call.method}: must be an object")
        if call.method == "tool/call":
            known = {key: params[key] for key in ("name", "arguments", "context") if key in params}
            return decode(ToolCallParams, known, what="params of tool/call")
        for key, kind in _REQUIRED_MEMBERS.get(call.method, {}).items():
            if type(params.get(key)) is not kind:
                raise InvalidParamsError(f"params of {call.method}: {key} must be of type {kind.__name__}", path=key)
        if call.method == "hook/run" and params["hook"] in SESSION_HOOKS:
            return decode_hook_params({"hook": params["hook"], "payload": params.get("payload")})
        return None

    def _check_may_send(self, method: str) -> None:
        if self.closed or self.info is None:
            state = "is over" if self.closed else "has not begun"
            raise CapabilityMismatchError(f"{method}: the connection to the host {state}", method=method)
        row = find_method(API_VERSION, method)
        if row is None or not row.from_extension:
            raise InvalidParamsError(f"{method} is no method an extension of API 0.4 may send", method=method)
        if row.feature is not None and row.feature not in self.info.selected:
            if row.feature in self.declaration.uses:
                raise CapabilityMismatchError(f"{method}: this host does not offer {row.feature}", method=method)
            raise CapabilityMismatchError(
                f'{method} needs the feature {row.feature}: name it, Extension(..., uses=["{row.feature}"])',
                method=method,
            )

    # -- initialize ----------------------------------------------------------------------------------------------------

    def _on_first(self, message: Call) -> None:
        if message.method != "initialize" or not message.is_request:
            raise ProtocolError(f"the host sent {message.method!a:.80} before initialize", path="method")
        call = self._calls[message.id] = HostCall(message.id, message.method, message.params)
        try:
            self._agree(call)
        except BrokerError as error:
            self.refuse(call, error.name, {"reason": str(error)[:MAX_REFUSAL_CHARS]})
            raise

    def _agree(self, call: HostCall) -> None:
        params = call.params
        for path, value in (
            ("api_version", member(params, "api_version")),
            ("protocol.version", member(params, "protocol", "version")),
        ):
            if value != API_VERSION:
                raise ProtocolError(
                    f"initialize: {path} is {value!a:.80}, and this extension speaks {API_VERSION!a}",
                    name="version_mismatch",
                    path=path,
                )
        protocol = params["protocol"]
        required, optional = protocol.get("required_features"), protocol.get("optional_features")
        concurrency = member(protocol, "limits", "max_concurrent_requests")
        if not _is_names(required) or not _is_names(optional) or type(concurrency) is not int or concurrency < 1:
            raise InvalidParamsError("params of initialize: protocol is not an offer of features and limits")
        unknown = sorted(set(required) - set(REQUIRED_FEATURES))
        if unknown:
            raise CapabilityMismatchError(f"initialize: the host requires the unknown feature {unknown[0]!a:.80}")
        wanted = implied_features(self.declaration) | set(self.declaration.uses)
        # In the order of the table, so that a feature never stands before the one that it needs.
        selected = [name for name in FEATURES if name in required or (name in optional and name in wanted)]
        selected = [name for name in selected if FEATURES[name].needs in (None, *selected)]
        self._check_manifest(params, dynamic="dynamic_tools" in selected)
        own = min(concurrency, self.declaration.concurrency)
        agreed: dict[str, Any] = {
            "version": API_VERSION,
            "features": selected,
            "limits": {"max_concurrent_requests": own},
        }
        if "lifecycle_events" in selected:
            agreed["lifecycle_events"] = [name for name in LIFECYCLE_EVENTS if name in self.declaration.notices]
        commands = [
            {"name": name, "description": description} for name, description in self.declaration.commands.items()
        ]
        self.answer(
            call,
            {
                "api_version": API_VERSION,
                "tools": self.declaration.tools_json(),
                "commands": commands,
                "protocol": agreed,
            },
        )
        flags = params.get("flag_values")
        info = HostInfo(
            api_version=API_VERSION,
            octet_version=str(params.get("octet_version", "")),
            workspace=str(params.get("workspace", "")),
            extension=_object(params.get("extension")),
            host=_object(params.get("host")),
            flags={
                flag["name"]: flag.get("value")
                for flag in (flags if isinstance(flags, list) else ())
                if isinstance(member(flag, "name"), str)
            },
            selected=frozenset(selected),
            methods=frozenset(),
            max_frame_bytes=self._bound,
            max_concurrent_requests=own,
        )
        self._begin(info)

    def _check_manifest(self, params: dict[str, Any], *, dynamic: bool) -> None:
        name, mine = member(params, "extension", "name"), self.declaration
        if name != mine.name:
            raise CapabilityMismatchError(
                f"the manifest names this extension {name!a:.80}, its code says Extension({mine.name!r}); "
                "make them the same"
            )
        for key, names in (
            ("tools", set(mine.tools)),
            ("commands", set(mine.commands)),
            ("hooks", set(mine.hooks)),
            ("ui", set(mine.ui)),
            ("tool_renderers", set(mine.renders)),
        ):
            theirs = member(params, "contributes", key)
            if isinstance(theirs, list) and set(map(str, theirs)) != names and not (dynamic and key == "tools"):
                raise CapabilityMismatchError(
                    f"the manifest's contributes.{key} are {sorted(map(str, theirs))}, the code has {sorted(names)}; "
                    "make them the same"
                )


def _is_names(value: Any) -> bool:
    return isinstance(value, list) and all(type(name) is str for name in value)


def _object(value: Any) -> dict[str, Any]:
    return value if isinstance(value, dict) else {}
