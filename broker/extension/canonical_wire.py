"""The extension's side of the canonical wire (octet 0.3): strict frames, the contract, and the bus.

What the host offers is checked as strictly as a host checks an extension; a frame that is not canonical ends the
connection. Source: octet reference, sections "Canonical framing and JSON-RPC envelopes", "Capabilities", "Methods and
terminal semantics"; octet notes, sections 2 and 3.
"""

from __future__ import annotations

from typing import Any, Final, Literal

from broker import canonical
from broker.errors import BrokerError, CapabilityMismatchError, InvalidParamsError, ProtocolError, ResultError
from broker.extension.bus_client import BusClient
from broker.extension.connection import HostConnection, member, refusal_of_host
from broker.extension.declaration import Declaration
from broker.extension.events import HostCall, HostInfo, Log
from broker.limits import MAX_FRAME_BYTES, MAX_REFUSAL_CHARS
from broker.wire.jsonrpc import ABSENT, Absent, Failure, Notification, Request, RequestId, Success, classify, failure
from broker.wire.octet.contract import CAPABILITIES, METHODS, is_notification
from broker.wire.octet.models import (
    API_VERSION,
    ENCODING,
    SCHEMA,
    CancelRequestParams,
    InitializeRequest,
    ShutdownParams,
    ToolCallParams,
    decode_hook_params,
)
from broker.wire.octet.schema import decode

_HOOKS: Final = "lifecycle_events"
_BUS: Final = "event_bus"
_CORE_PARAMS: Final[dict[str, type]] = {"tool/call": ToolCallParams, "shutdown": ShutdownParams}


class CanonicalHostConnection(HostConnection):
    """A connection to a host that speaks octet 0.3."""

    def __init__(self, declaration: Declaration) -> None:
        super().__init__(declaration, bound=MAX_FRAME_BYTES)

    # -- frames --------------------------------------------------------------------------------------------------------

    def _encode(self, message: dict[str, Any]) -> bytes:
        return canonical.encode(message)

    def _failure(self, request_id: RequestId, name: str, data: Any) -> dict[str, Any]:
        return failure(request_id, name, ABSENT if data is None else data)

    def _receive(self, frame: bytes) -> None:
        message = classify(canonical.decode(frame), is_notification=is_notification)
        if isinstance(message, Success):
            self._on_result(message)
        elif isinstance(message, Failure):
            error = refusal_of_host(self._method_of(message.id), message.error.name, message.error.data)
            self._on_answer(message.id, None, error)
        elif self.info is None:
            self._on_first(message)
        elif isinstance(message, Request):
            if message.method not in self.info.methods or not METHODS[message.method].from_host:
                self._refuse_unknown(message.id, message.method)
                return
            call = HostCall(message.id, message.method, message.params)
            self._on_call(call, bypasses_slots=message.method in ("hook/run", "shutdown"))
        else:
            self._on_notification(message)

    def _on_result(self, message: Success) -> None:
        method = self._method_of(message.id)
        result, error = message.result, None
        # The bus reads its own answers: what they mean depends on the binding.
        if method in METHODS and not method.startswith("bus/"):
            try:
                result = decode(_record(method, "result"), result, what=f"result of {method}", error=ResultError)
            except BrokerError as caught:
                result, error = None, caught
        self._on_answer(message.id, result, error)

    def _on_notification(self, message: Notification) -> None:
        assert self.info is not None
        if message.method not in self.info.methods or not METHODS[message.method].from_host:
            self.emit(Log(f"dropped {message.method!a:.80} of the host: unknown or not agreed on"))
        elif message.method == "$/cancelRequest":
            notice = decode(CancelRequestParams, message.params, what="params of $/cancelRequest")
            self._on_cancel(notice.id, "" if isinstance(notice.reason, Absent) else notice.reason)
        elif self.bus is not None and message.method == "bus/lifecycle":
            self.bus.on_lifecycle(message.params)
        elif self.bus is not None and message.method == "bus/event":
            self.bus.on_event(message.params)
        else:
            what = f"params of {message.method}"
            model: Any = decode(_record(message.method, "params"), message.params, what=what)
            self._on_notice(message.method, message.params, model)

    # -- what is wire-specific about requests --------------------------------------------------------------------------

    def _model_of(self, call: HostCall) -> Any:
        if call.method == "hook/run":
            return decode_hook_params(call.params)
        return decode(_record(call.method, "params"), call.params, what=f"params of {call.method}")

    def _check_may_send(self, method: str) -> None:
        if self.closed or self.info is None:
            state = "is over" if self.closed else "has not begun"
            raise CapabilityMismatchError(f"{method}: the connection to the host {state}", method=method)
        row = METHODS.get(method)
        if row is None or not row.from_extension:
            raise InvalidParamsError(f"{method} is no method an extension of API 0.3 may send", method=method)
        if method in self.info.methods:
            return
        if row.capability in self.declaration.uses or row.capability == _BUS:
            raise CapabilityMismatchError(f"{method}: this host does not offer {row.capability}", method=method)
        raise CapabilityMismatchError(
            f'{method} needs the service {row.capability}: name it, Extension(..., uses=["{row.capability}"])',
            method=method,
        )

    # -- initialize ----------------------------------------------------------------------------------------------------

    def _on_first(self, message: Request | Notification) -> None:
        if not isinstance(message, Request) or message.method != "initialize":
            raise ProtocolError(f"the host sent {message.method!a:.80} before initialize", path="method")
        call = self._calls[message.id] = HostCall(message.id, message.method, message.params)
        try:
            self._agree(call)
        except BrokerError as error:
            self.refuse(call, error.name, {"reason": str(error)[:MAX_REFUSAL_CHARS]})
            raise

    def _agree(self, call: HostCall) -> None:
        params = call.params
        for path, value, expected in (
            ("api_version", member(params, "api_version"), API_VERSION),
            ("contract.schema", member(params, "contract", "schema"), SCHEMA),
        ):
            if value != expected:
                raise ProtocolError(
                    f"initialize: {path} is {value!a:.80}, and this extension speaks {expected!a}",
                    name="version_mismatch",
                    path=path,
                )
        asked = decode(InitializeRequest, params, what="params of initialize")
        self._check_manifest(asked)
        capabilities, methods = self._select(asked)
        offered = asked.contract.limits
        limits = {
            "max_frame_bytes": min(offered.max_frame_bytes, MAX_FRAME_BYTES),
            "max_concurrent_requests": min(offered.max_concurrent_requests, self.declaration.concurrency),
            "max_tools": offered.max_tools,
        }
        self._bound = offered.max_frame_bytes
        tools = self.declaration.tools_json()
        if len(tools) > offered.max_tools:
            raise ProtocolError(
                f"initialize: {len(tools)} tools, at most {offered.max_tools} are taken by the host",
                name="resource_exhausted",
                limit="max_tools",
                observed=len(tools),
                maximum=offered.max_tools,
            )
        contract = {
            "schema": SCHEMA,
            "encoding": ENCODING,
            "capabilities": capabilities,
            "methods": methods,
            "limits": limits,
        }
        self.answer(call, {"api_version": API_VERSION, "tools": tools, "contract": contract})
        # The answer itself still goes out under the offer; everything after it, both ways, is under the selection.
        self._bound = limits["max_frame_bytes"]
        self._framer.set_bound(self._bound)
        if _BUS in capabilities:
            self._attach(BusClient(self, self.declaration.topics, self.declaration.subscriptions))
        info = HostInfo(
            api_version=API_VERSION,
            octet_version=asked.octet_version,
            workspace=asked.workspace,
            extension=asked.extension,
            host=asked.host,
            flags={flag.name: flag.value for flag in asked.flag_values},
            selected=frozenset(capabilities),
            methods=frozenset(methods),
            max_frame_bytes=self._bound,
            max_concurrent_requests=limits["max_concurrent_requests"],
        )
        self._begin(info)

    def _check_manifest(self, asked: InitializeRequest) -> None:
        name = member(asked.extension, "name")
        if name != self.declaration.name:
            raise CapabilityMismatchError(
                f"the manifest names this extension {name!a:.80}, its code says Extension({self.declaration.name!r}); "
                "make them the same"
            )
        for key, mine in (("tools", tuple(self.declaration.tools)), ("hooks", self.declaration.hook_names)):
            theirs = asked.contributes.get(key)
            if isinstance(theirs, list) and set(map(str, theirs)) != set(mine):
                raise CapabilityMismatchError(
                    f"the manifest's contributes.{key} are {sorted(map(str, theirs))}, the code has {sorted(mine)}; "
                    "make them the same"
                )

    def _select(self, asked: InitializeRequest) -> tuple[list[str], list[str]]:
        offer = asked.contract
        unknown = [name for name in offer.required_capabilities if name not in CAPABILITIES]
        if unknown:
            raise CapabilityMismatchError(f"initialize: the host requires the unknown capability {unknown[0]!a:.80}")
        wanted = set(self.declaration.uses)
        if self.declaration.uses_bus:
            wanted.add(_BUS)
        if self.declaration.hooks:
            wanted.add(_HOOKS)
            if _HOOKS not in offer.optional_capabilities:
                raise CapabilityMismatchError(f"initialize: this host does not offer {_HOOKS}, which the hooks need")
        wanted |= {METHODS[method].capability for method in self.declaration.serves}
        chosen = [name for name in offer.optional_capabilities if name in wanted]
        methods = [name for name in offer.optional_methods if name in METHODS and METHODS[name].capability in chosen]
        return sorted((*offer.required_capabilities, *chosen)), sorted((*offer.required_methods, *methods))


def _record(method: str, which: Literal["params", "result"]) -> type:
    """The record of what a method carries."""
    if which == "params" and method in _CORE_PARAMS:
        return _CORE_PARAMS[method]
    # The table brings the records of every service along, which most extensions never need.
    from broker.wire.octet.model_table import METHOD_MODELS, MODELS

    name = getattr(METHOD_MODELS[method], which)
    model = MODELS[name]
    assert isinstance(model, type), f"{name} is no single record"
    return model
