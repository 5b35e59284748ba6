"""Every wire model of the octet 0.3 contract by its name, and which of them each method carries.

Checking, JSON Schema, TypeScript, fixtures and documentation are all made from this table and the records in it.
Source: octet reference, sections "Generated wire models" and "Methods and terminal semantics".
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Final, TypeAlias

from attrs import frozen

from broker.wire.octet import bus_models as bus
from broker.wire.octet import envelope_models as envelopes
from broker.wire.octet import migration_models as migration
from broker.wire.octet import models
from broker.wire.octet import provider_models as provider
from broker.wire.octet import session_models as session
from broker.wire.octet import stream_models as stream
from broker.wire.octet.schema import Union

Model: TypeAlias = type | Union
"""A record, or a union of records that a member tells apart."""

# fmt: off
MODELS: Final[Mapping[str, Model]] = MappingProxyType({
    "ProtocolLimits": models.ProtocolLimits,
    "ContractOffer": models.ContractOffer,
    "ContractSelection": models.ContractSelection,
    "ToolDefinition": models.ToolDefinition,
    "ContentPart": models.CONTENT_PART,
    "ToolCallParams": models.ToolCallParams,
    "ToolCallResult": models.ToolCallResult,
    "SessionBinding": models.SessionBinding,
    "SessionStart": models.SessionStart,
    "SessionEnd": models.SessionEnd,
    "SessionHookParams": models.SESSION_HOOK_PARAMS,
    "SessionHookResult": models.SessionHookResult,
    "CancelRequestParams": models.CancelRequestParams,
    "CancelRequestResult": models.CancelRequestResult,
    "SessionCreateParams": session.SessionCreateParams,
    "SessionForkParams": session.SessionForkParams,
    "SessionSwitchParams": session.SessionSwitchParams,
    "SessionReloadParams": session.SessionReloadParams,
    "SessionLifecycleResult": session.SessionLifecycleResult,
    "ShutdownParams": models.ShutdownParams,
    "ShutdownResult": models.ShutdownResult,
    "InitializeFlagValue": models.InitializeFlagValue,
    "InitializeRequest": models.InitializeRequest,
    "InitializeResponse": models.InitializeResponse,
    "MigrationDiagnostic": migration.MigrationDiagnostic,
    "MigrationDetectParams": migration.MigrationDetectParams,
    "MigrationDetectResult": migration.MigrationDetectResult,
    "MigrationImportParams": migration.MigrationImportParams,
    "MigrationModel": migration.MigrationModel,
    "MigrationSkill": migration.MigrationSkill,
    "MigrationMcpServer": migration.MigrationMcpServer,
    "MigrationImportResult": migration.MigrationImportResult,
    "ErrorObject": envelopes.ErrorObject,
    "Disposition": models.DISPOSITION,
    "JsonRpcRequest": envelopes.JsonRpcRequest,
    "JsonRpcNotification": envelopes.JsonRpcNotification,
    "JsonRpcSuccessResponse": envelopes.JsonRpcSuccessResponse,
    "JsonRpcErrorResponse": envelopes.JsonRpcErrorResponse,
    "ProviderAuthRequirement": provider.ProviderAuthRequirement,
    "ProviderDefinition": provider.ProviderDefinition,
    "ProviderModelCapabilities": provider.ProviderModelCapabilities,
    "ProviderModelDefinition": provider.ProviderModelDefinition,
    "ProviderRegisterParams": provider.ProviderRegisterParams,
    "ProviderUpdateParams": provider.ProviderUpdateParams,
    "ProviderUnregisterParams": provider.ProviderUnregisterParams,
    "ProviderCatalogCompleteParams": provider.ProviderCatalogCompleteParams,
    "ProviderCatalogResult": provider.ProviderCatalogResult,
    "ProviderStreamRequest": stream.ProviderStreamRequest,
    "ProviderStreamAccepted": stream.ProviderStreamAccepted,
    "ProviderStreamEvent": stream.ProviderStreamEvent,
    "ProviderStreamCancelParams": stream.ProviderStreamCancelParams,
    "ProviderAuthorizationRequest": provider.ProviderAuthorizationRequest,
    "ProviderAuthorizationResult": provider.ProviderAuthorizationResult,
    "ThemeSelectParams": session.ThemeSelectParams,
    "ThemeSelectResult": session.ThemeSelectResult,
    "BusFieldSpec": bus.BusFieldSpec,
    "BusDeclareParams": bus.BusDeclareParams,
    "BusTopicParams": bus.BusTopicParams,
    "BusAck": bus.BusAck,
    "BusPublishParams": bus.BusPublishParams,
    "BusPublishResult": bus.BusPublishResult,
    "BusEventParams": bus.BusEventParams,
    "BusSubscribeResult": bus.BUS_SUBSCRIBE_RESULT,
    "BusLifecycleParams": bus.BUS_LIFECYCLE_PARAMS,
})
"""The models of the reference, in its order, under its names."""

STREAM_PAYLOADS: Final[Mapping[str, type]] = MappingProxyType({
    payload.__name__: payload for payload in stream.PAYLOADS.values()
})
"""The payloads of ``provider/event`` by their names; the reference leaves them to the kind."""


@frozen
class MethodModels:
    """The models of a method's parameters and result (``None`` where it has none), and how an exchange of it ends."""

    params: str | None
    result: str | None
    terminal: str


METHOD_MODELS: Final[Mapping[str, MethodModels]] = MappingProxyType({
    "$/cancelRequest": MethodModels("CancelRequestParams", "CancelRequestResult", "original_request_cancelled"),
    "bus/declare": MethodModels("BusDeclareParams", "BusAck", "result_or_error"),
    "bus/event": MethodModels("BusEventParams", None, "stream_event"),
    "bus/lifecycle": MethodModels("BusLifecycleParams", None, "stream_event"),
    "bus/publish": MethodModels("BusPublishParams", "BusPublishResult", "result_or_error"),
    "bus/subscribe": MethodModels("BusTopicParams", "BusSubscribeResult", "result_or_error"),
    "bus/unsubscribe": MethodModels("BusTopicParams", "BusAck", "result_or_error"),
    "context/collect": MethodModels(None, None, "deferred"),
    "hook/run": MethodModels("SessionHookParams", "SessionHookResult", "result_or_error"),
    "initialize": MethodModels("InitializeRequest", "InitializeResponse", "initialized"),
    "migration/detect": MethodModels("MigrationDetectParams", "MigrationDetectResult", "result_or_error"),
    "migration/import": MethodModels("MigrationImportParams", "MigrationImportResult", "result_or_error"),
    "provider/auth/request": MethodModels(
        "ProviderAuthorizationRequest", "ProviderAuthorizationResult", "result_or_error"
    ),
    "provider/auth/revoke": MethodModels(
        "ProviderAuthorizationRequest", "ProviderAuthorizationResult", "result_or_error"
    ),
    "provider/cancel": MethodModels("ProviderStreamCancelParams", None, "stream_event"),
    "provider/event": MethodModels("ProviderStreamEvent", None, "stream_event"),
    "provider/stream": MethodModels("ProviderStreamRequest", "ProviderStreamAccepted", "result_or_error"),
    "providers/complete": MethodModels("ProviderCatalogCompleteParams", None, "catalog_complete"),
    "providers/register": MethodModels("ProviderRegisterParams", "ProviderCatalogResult", "result_or_error"),
    "providers/unregister": MethodModels("ProviderUnregisterParams", "ProviderCatalogResult", "result_or_error"),
    "providers/update": MethodModels("ProviderUpdateParams", "ProviderCatalogResult", "result_or_error"),
    "session/create": MethodModels("SessionCreateParams", "SessionLifecycleResult", "result_or_error"),
    "session/fork": MethodModels("SessionForkParams", "SessionLifecycleResult", "result_or_error"),
    "session/reload": MethodModels("SessionReloadParams", "SessionLifecycleResult", "result_or_error"),
    "session/switch": MethodModels("SessionSwitchParams", "SessionLifecycleResult", "result_or_error"),
    "shutdown": MethodModels("ShutdownParams", "ShutdownResult", "shutdown"),
    "theme/select": MethodModels("ThemeSelectParams", "ThemeSelectResult", "result_or_error"),
    "tool/call": MethodModels("ToolCallParams", "ToolCallResult", "result_or_error"),
    "tools/register": MethodModels(None, None, "deferred"),
    "tools/unregister": MethodModels(None, None, "deferred"),
})
# fmt: on
"""What each method of :data:`broker.wire.octet.contract.METHODS` carries."""


def params_model(method: str) -> type:
    """The record of what an extension sends with ``method``."""
    name = METHOD_MODELS[method].params
    model = MODELS[name] if name is not None else None
    assert isinstance(model, type), f"{method} is not sent by extensions"
    return model
