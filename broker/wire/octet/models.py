"""The records of the octet 0.3 contract, and of its tool, session-hook, cancellation and shutdown methods.

Each class is one wire model of the octet reference (section "Generated wire models"); the attribute's metadata is its
wire type, see :mod:`broker.wire.octet.schema`. The bus's records are in :mod:`broker.wire.octet.bus_models`.

Records of the initialize *answer* (:class:`InitializeResponse` and what is in it) declare shape only: their bounds are
judged by :mod:`broker.wire.octet.negotiation`, which has an order of its own.
"""

from __future__ import annotations

from typing import Any, Final, TypeAlias

from attrs import field, frozen

from broker.errors import ResultError
from broker.limits import MAX_CONCURRENT_REQUESTS, MAX_FRAME_BYTES, MAX_TOOLS
from broker.wire.jsonrpc import ABSENT, Absent, RequestId
from broker.wire.octet.schema import (
    Boolean,
    Integer,
    Items,
    Json,
    Nested,
    RpcId,
    Text,
    Union,
    decode,
    decode_union,
    wire,
)

SCHEMA: Final = "octet.extension.api/0.3"
ENCODING: Final = "octet-canonical-json-v1"
API_VERSION: Final = "0.3"

# -- contract ----------------------------------------------------------------------------------------------------------


@frozen(kw_only=True)
class ProtocolLimits:
    """The negotiated bounds: offered by the host, selected at or below the offer by the extension."""

    max_frame_bytes: int = field(default=MAX_FRAME_BYTES, metadata=wire(Integer()))
    max_concurrent_requests: int = field(default=MAX_CONCURRENT_REQUESTS, metadata=wire(Integer()))
    max_tools: int = field(default=MAX_TOOLS, metadata=wire(Integer()))


@frozen(kw_only=True)
class ContractOffer:
    """What the host offers; made by :func:`broker.wire.octet.contract.build_offer`."""

    schema: str = field(default=SCHEMA, metadata=wire(Text(choices=(SCHEMA,))))
    encoding: str = field(default=ENCODING, metadata=wire(Text(choices=(ENCODING,))))
    required_capabilities: tuple[str, ...] = field(
        metadata=wire(Items(Text("MAX_CAPABILITY_NAME_BYTES", min_bytes=1), "MAX_CAPABILITIES"))
    )
    optional_capabilities: tuple[str, ...] = field(
        metadata=wire(Items(Text("MAX_CAPABILITY_NAME_BYTES", min_bytes=1), "MAX_CAPABILITIES"))
    )
    required_methods: tuple[str, ...] = field(
        metadata=wire(Items(Text("MAX_METHOD_NAME_BYTES", min_bytes=1), "MAX_METHODS"))
    )
    optional_methods: tuple[str, ...] = field(
        metadata=wire(Items(Text("MAX_METHOD_NAME_BYTES", min_bytes=1), "MAX_METHODS"))
    )
    limits: ProtocolLimits = field(metadata=wire(Nested(ProtocolLimits)))


@frozen(kw_only=True)
class ContractSelection:
    """What the extension selected from the offer. Shape only."""

    schema: str = field(metadata=wire(Text()))
    encoding: str = field(metadata=wire(Text()))
    capabilities: tuple[str, ...] = field(metadata=wire(Items(Text())))
    methods: tuple[str, ...] = field(metadata=wire(Items(Text())))
    limits: ProtocolLimits = field(metadata=wire(Nested(ProtocolLimits)))


@frozen(kw_only=True)
class ToolDefinition:
    """One tool of an extension's catalogue. ``output_schema`` is absent or a JSON Schema object, never null."""

    name: str = field(metadata=wire(Text()))
    description: str = field(metadata=wire(Text()))
    parameters: dict[str, Any] = field(metadata=wire(Json()))
    output_schema: dict[str, Any] | Absent = field(default=ABSENT, metadata=wire(Json()))


@frozen(kw_only=True)
class InitializeFlagValue:
    """The parsed value of one flag the manifest declares."""

    name: str = field(metadata=wire(Text("MAX_MANIFEST_IDENTIFIER_BYTES", min_bytes=1)))
    value: bool | int | str = field(metadata=wire(Json()))


@frozen(kw_only=True)
class InitializeRequest:
    """The parameters of ``initialize``. The four JSON members are the host's own and opaque here."""

    api_version: str = field(default=API_VERSION, metadata=wire(Text(choices=(API_VERSION,))))
    octet_version: str = field(metadata=wire(Text()))
    extension: dict[str, Any] = field(metadata=wire(Json()))
    workspace: str = field(metadata=wire(Text()))
    capabilities: dict[str, Any] = field(metadata=wire(Json()))
    contributes: dict[str, Any] = field(metadata=wire(Json()))
    flag_values: tuple[InitializeFlagValue, ...] = field(
        metadata=wire(Items(Nested(InitializeFlagValue), "MAX_EXTENSION_FLAGS"))
    )
    host: dict[str, Any] = field(metadata=wire(Json()))
    contract: ContractOffer = field(metadata=wire(Nested(ContractOffer)))


@frozen(kw_only=True)
class InitializeResponse:
    """The result of ``initialize``: the complete catalogue and the selection. Shape only."""

    api_version: str = field(metadata=wire(Text()))
    tools: tuple[ToolDefinition, ...] = field(metadata=wire(Items(Nested(ToolDefinition))))
    contract: ContractSelection = field(metadata=wire(Nested(ContractSelection)))


# -- tool/call ---------------------------------------------------------------------------------------------------------


@frozen(kw_only=True)
class TextPart:
    """A content part of type ``text``, the only one that is not deferred."""

    text: str = field(metadata=wire(Text()))


ContentPart: TypeAlias = TextPart

CONTENT_PART: Final = Union("type", {"text": TextPart}, deferred=("image", "audio"))


@frozen(kw_only=True)
class ToolCallParams:
    """The parameters of ``tool/call``. ``arguments`` and ``context`` are any JSON but null."""

    name: str = field(metadata=wire(Text("MAX_TOOL_NAME_BYTES", min_bytes=1)))
    arguments: Any = field(metadata=wire(Json()))
    context: Any = field(metadata=wire(Json()))


@frozen(kw_only=True)
class ToolCallResult:
    """A tool's own result, failed (``is_error``) or not. ``structured_content`` keeps absent and null apart.

    ``content`` may be empty. The key bound of ``metadata`` holds at every depth.
    """

    content: tuple[ContentPart, ...] = field(metadata=wire(Items(CONTENT_PART, "MAX_CONTENT_PARTS")))
    is_error: bool = field(metadata=wire(Boolean()))
    metadata: Any = field(
        metadata=wire(
            Json(
                max_bytes="MAX_RESULT_METADATA_BYTES",
                max_nodes="MAX_RESULT_NODES",
                max_key_bytes="MAX_RESULT_METADATA_KEY_BYTES",
            ),
            nullable=True,
        )
    )
    structured_content: Any = field(
        default=ABSENT,
        metadata=wire(Json(max_bytes="MAX_STRUCTURED_CONTENT_BYTES", max_nodes="MAX_RESULT_NODES"), nullable=True),
    )


# -- hook/run ----------------------------------------------------------------------------------------------------------

SESSION_OUTCOMES: Final = (
    "completed",
    "failed",
    "cancelled",
    "interrupted",
    "frontend_disconnected",
    "shutdown",
    "limit_reached",
)
SESSION_END_REASONS: Final = ("shutdown", "reload", "crash", "cancelled")

_HOOK_ID: Final = Text("MAX_SESSION_HOOK_ID_BYTES", min_bytes=1, pattern="[A-Za-z0-9_-]+")


@frozen(kw_only=True)
class SessionBinding:
    """Who a session hook is about: the host's session and one generation of one extension process."""

    session_id: str = field(metadata=wire(_HOOK_ID))
    extension_instance_id: str = field(metadata=wire(_HOOK_ID))
    process_generation: int = field(metadata=wire(Integer(minimum=1)))


@frozen(kw_only=True)
class SessionStart:
    """The payload of ``session_start``."""

    binding: SessionBinding = field(metadata=wire(Nested(SessionBinding)))


@frozen(kw_only=True)
class SessionEnd:
    """The payload of ``session_end``; ``duration_ms`` is the binding's age in milliseconds."""

    binding: SessionBinding = field(metadata=wire(Nested(SessionBinding)))
    outcome: str = field(metadata=wire(Text(choices=SESSION_OUTCOMES)))
    reason: str = field(metadata=wire(Text(choices=SESSION_END_REASONS)))
    duration_ms: int = field(metadata=wire(Integer()))


@frozen(kw_only=True)
class SessionStartHook:
    """The parameters of ``hook/run`` for ``session_start``."""

    payload: SessionStart = field(metadata=wire(Nested(SessionStart)))


@frozen(kw_only=True)
class SessionEndHook:
    """The parameters of ``hook/run`` for ``session_end``."""

    payload: SessionEnd = field(metadata=wire(Nested(SessionEnd)))


SessionHookParams: TypeAlias = SessionStartHook | SessionEndHook

SESSION_HOOK_PARAMS: Final = Union("hook", {"session_start": SessionStartHook, "session_end": SessionEndHook})

_REASON: Final = Text("MAX_REASON_BYTES", min_bytes=1)


@frozen(kw_only=True)
class Continue:
    """A disposition without a veto."""

    reason: str | Absent = field(default=ABSENT, metadata=wire(_REASON))


@frozen(kw_only=True)
class Deny:
    """A disposition that would deny an interceptable operation. A session hook's is recorded, never obeyed."""

    reason: str = field(metadata=wire(_REASON))


@frozen(kw_only=True)
class Defer:
    """A disposition that would defer a supported operation. A session hook's is recorded, never obeyed."""

    reason: str = field(metadata=wire(_REASON))


Disposition: TypeAlias = Continue | Deny | Defer

DISPOSITION: Final = Union("kind", {"continue": Continue, "deny": Deny, "defer": Defer})


@frozen(kw_only=True)
class SessionHookResult:
    """The result of ``hook/run``."""

    disposition: Disposition = field(metadata=wire(DISPOSITION))


# -- cancellation and shutdown -----------------------------------------------------------------------------------------


@frozen(kw_only=True)
class CancelRequestParams:
    """The parameters of ``$/cancelRequest``: which request, and why."""

    id: RequestId = field(metadata=wire(RpcId()))
    reason: str | Absent = field(default=ABSENT, metadata=wire(Text("MAX_REASON_BYTES")))


@frozen(kw_only=True)
class CancelRequestResult:
    """The terminal fact of a cancelled request. A model of the contract that no frame of it carries by itself."""

    terminal: str = field(default="cancelled", metadata=wire(Text(choices=("cancelled",))))
    reason: str | Absent = field(default=ABSENT, metadata=wire(Text("MAX_REASON_BYTES")))


@frozen(kw_only=True)
class ShutdownParams:
    """The parameters of ``shutdown``: none."""


@frozen(kw_only=True)
class ShutdownResult:
    """The result of ``shutdown``, exactly ``{"terminal":"shutdown"}``."""

    terminal: str = field(default="shutdown", metadata=wire(Text(choices=("shutdown",))))


# -- decoders of results, for Connection.request(decode=...) -----------------------------------------------------------


def decode_tool_result(value: Any) -> ToolCallResult:
    """A ``tool/call`` result, or :class:`~broker.errors.ResultError` with its faults."""
    return decode(ToolCallResult, value, what="result of tool/call", error=ResultError)


def decode_hook_result(value: Any) -> SessionHookResult:
    """A ``hook/run`` result, or :class:`~broker.errors.ResultError` with its faults."""
    return decode(SessionHookResult, value, what="result of hook/run", error=ResultError)


def decode_shutdown_result(value: Any) -> ShutdownResult:
    """A ``shutdown`` result, or :class:`~broker.errors.ResultError` with its faults."""
    return decode(ShutdownResult, value, what="result of shutdown", error=ResultError)


def decode_hook_params(value: Any) -> SessionHookParams:
    """``hook/run`` parameters as the variant they are, or :class:`~broker.errors.InvalidParamsError`."""
    params: SessionHookParams = decode_union(SESSION_HOOK_PARAMS, value, what="params of hook/run")
    return params
