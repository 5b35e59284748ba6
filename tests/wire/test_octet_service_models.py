"""Each record of the octet 0.3 services, against what the reference says: members, presence, null, words and bounds."""

from __future__ import annotations

from typing import Any

import pytest

from broker.errors import ResultError
from broker.wire.jsonrpc import ABSENT
from broker.wire.octet import migration_models, stream_models
from broker.wire.octet.contract import METHODS
from broker.wire.octet.model_table import METHOD_MODELS, MODELS
from broker.wire.octet.provider_models import ProviderAuthorizationResult, declaration_faults
from broker.wire.octet.schema import Union, check, decode, encode
from broker.wire.octet.stream_models import PAYLOADS, ProviderStreamRequest

JSON = {"any": [1]}
DIAGNOSTIC = {"path": "a/b.toml", "severity": "warning", "reason": "r"}
AUTH = {"kind": "oauth", "subject": "acme", "scopes": ["read"]}
PROVIDER = {"id": "acme", "label": "Acme", "auth": AUTH}
ABLE = {"tools": True, "parallel_tool_calls": False, "structured_output": False, "reasoning": True}
MODEL = {
    "id": "small",
    "api_name": "acme-small-2",
    "protocol": "openai_chat",
    "context_window": 4_096,
    "max_output_tokens": 512,
    "capabilities": ABLE,
    "display_name": "Acme Small",
}
THEME = {"namespace": "tide", "theme_id": "dusk", "role": "accent", "scope": "extension"}
STREAM = {
    "stream_id": "s",
    "provider_id": "acme",
    "model_id": "small",
    "request": JSON,
    "authorization_lease": "lease-1",
}
EVENT = {"stream_id": "s", "sequence": 0, "kind": "started", "payload": {}}
DETECTED = {"detected": True, "config_paths": ["a.toml"], "diagnostics": [DIAGNOSTIC]}
ASK = {"provider_id": "acme", "action": "authorize", "interactive": True, "scopes": ["read"]}
USAGE = (
    "input_tokens",
    "cache_read_tokens",
    "cache_write_tokens",
    "cache_write_1h_tokens",
    "output_tokens",
    "reasoning_tokens",
    "total_tokens",
)
SERVER = {"path": "a", "name": "n", "command": "c", "args": ["x"]}

RECORDS = [
    # model, all its members, those that may be absent, those that may be null
    pytest.param("SessionCreateParams", {}, "", "", marks=pytest.mark.spec("octet.model.session-create-params")),
    pytest.param("SessionForkParams", {}, "", "", marks=pytest.mark.spec("octet.model.session-fork-params")),
    pytest.param(
        "SessionSwitchParams", {"session_id": "s"}, "", "", marks=pytest.mark.spec("octet.model.session-switch-params")
    ),
    pytest.param("SessionReloadParams", {}, "", "", marks=pytest.mark.spec("octet.model.session-reload-params")),
    pytest.param(
        "SessionLifecycleResult",
        {"session_id": "s"},
        "",
        "",
        marks=pytest.mark.spec("octet.model.session-lifecycle-result"),
    ),
    pytest.param("MigrationDiagnostic", DIAGNOSTIC, "", "", marks=pytest.mark.spec("octet.model.migration-diagnostic")),
    pytest.param(
        "MigrationDetectParams",
        {"source_root": "/home/ada"},
        "",
        "",
        marks=pytest.mark.spec("octet.model.migration-detect-params"),
    ),
    pytest.param(
        "MigrationDetectResult", DETECTED, "", "", marks=pytest.mark.spec("octet.model.migration-detect-result")
    ),
    pytest.param(
        "MigrationImportParams",
        {"source_root": "/home/ada", "config_paths": []},
        "",
        "",
        marks=pytest.mark.spec("octet.model.migration-import-params"),
    ),
    pytest.param(
        "MigrationModel",
        {"path": "a", "provider": "p", "model": "m"},
        "",
        "",
        marks=pytest.mark.spec("octet.model.migration-model"),
    ),
    pytest.param(
        "MigrationSkill",
        {"path": "a", "name": "n", "content": ""},
        "",
        "",
        marks=pytest.mark.spec("octet.model.migration-skill"),
    ),
    pytest.param("MigrationMcpServer", SERVER, "", "", marks=pytest.mark.spec("octet.model.migration-mcp-server")),
    pytest.param(
        "MigrationImportResult",
        {"models": [], "skills": [], "mcp_servers": [], "diagnostics": []},
        "",
        "",
        marks=pytest.mark.spec("octet.model.migration-import-result"),
    ),
    pytest.param(
        "ErrorObject",
        {"code": -32602, "message": "invalid params", "data": None},
        "data",
        "data",
        marks=pytest.mark.spec("octet.model.error-object"),
    ),
    pytest.param(
        "JsonRpcRequest",
        {"jsonrpc": "2.0", "id": 1, "method": "m", "params": JSON},
        "",
        "",
        marks=pytest.mark.spec("octet.model.json-rpc-request"),
    ),
    pytest.param(
        "JsonRpcNotification",
        {"jsonrpc": "2.0", "method": "m", "params": JSON},
        "",
        "",
        marks=pytest.mark.spec("octet.model.json-rpc-notification"),
    ),
    pytest.param(
        "JsonRpcSuccessResponse",
        {"jsonrpc": "2.0", "id": "x", "result": JSON},
        "",
        "",
        marks=pytest.mark.spec("octet.model.json-rpc-success-response"),
    ),
    pytest.param(
        "JsonRpcErrorResponse",
        {"jsonrpc": "2.0", "id": 1, "error": {"code": -32603, "message": "internal error"}},
        "",
        "",
        marks=pytest.mark.spec("octet.model.json-rpc-error-response"),
    ),
    pytest.param(
        "ProviderAuthRequirement",
        AUTH,
        "subject scopes",
        "",
        marks=pytest.mark.spec("octet.model.provider-auth-requirement"),
    ),
    pytest.param(
        "ProviderDefinition",
        PROVIDER,
        "",
        "",
        marks=pytest.mark.spec("octet.model.provider-definition", "octet.provider.no-secrets"),
    ),
    pytest.param(
        "ProviderModelCapabilities", ABLE, "", "", marks=pytest.mark.spec("octet.model.provider-model-capabilities")
    ),
    pytest.param(
        "ProviderModelDefinition",
        MODEL,
        "display_name",
        "",
        marks=pytest.mark.spec("octet.model.provider-model-definition", "octet.provider.no-secrets"),
    ),
    pytest.param(
        "ProviderRegisterParams",
        {"provider": PROVIDER, "models": [MODEL]},
        "",
        "",
        marks=pytest.mark.spec("octet.model.provider-register-params"),
    ),
    pytest.param(
        "ProviderUpdateParams",
        {"provider": PROVIDER, "models": [MODEL]},
        "",
        "",
        marks=pytest.mark.spec("octet.model.provider-update-params"),
    ),
    pytest.param(
        "ProviderUnregisterParams",
        {"provider_id": "acme"},
        "",
        "",
        marks=pytest.mark.spec("octet.model.provider-unregister-params"),
    ),
    pytest.param(
        "ProviderCatalogCompleteParams",
        {},
        "",
        "",
        marks=pytest.mark.spec("octet.model.provider-catalog-complete-params"),
    ),
    pytest.param(
        "ProviderCatalogResult",
        {"revision": 1, "provider_ids": ["acme"], "model_ids": ["acme/small"]},
        "",
        "",
        marks=pytest.mark.spec("octet.model.provider-catalog-result"),
    ),
    pytest.param(
        "ProviderStreamRequest",
        STREAM,
        "authorization_lease",
        "",
        marks=pytest.mark.spec("octet.model.provider-stream-request"),
    ),
    pytest.param(
        "ProviderStreamAccepted",
        {"stream_id": "s", "accepted": False, "reason": "busy"},
        "reason",
        "",
        marks=pytest.mark.spec("octet.model.provider-stream-accepted"),
    ),
    pytest.param("ProviderStreamEvent", EVENT, "", "", marks=pytest.mark.spec("octet.model.provider-stream-event")),
    pytest.param(
        "ProviderStreamCancelParams",
        {"stream_id": "s", "reason": ""},
        "reason",
        "",
        marks=pytest.mark.spec("octet.model.provider-stream-cancel-params"),
    ),
    pytest.param(
        "ProviderAuthorizationRequest",
        ASK,
        "scopes",
        "",
        marks=pytest.mark.spec("octet.model.provider-authorization-request"),
    ),
    pytest.param(
        "ProviderAuthorizationResult",
        {"status": "ready", "lease": "l"},
        "lease",
        "",
        marks=pytest.mark.spec("octet.model.provider-authorization-result"),
    ),
    pytest.param("ThemeSelectParams", THEME, "", "", marks=pytest.mark.spec("octet.model.theme-select-params")),
    pytest.param(
        "ThemeSelectResult",
        {"status": "selected", "theme_id": "dusk", "reason": ""},
        "theme_id reason",
        "",
        marks=pytest.mark.spec("octet.model.theme-select-result"),
    ),
]


@pytest.mark.parametrize(("name", "record", "may_be_absent", "may_be_null"), RECORDS)
def test_members(name: str, record: dict[str, Any], may_be_absent: str, may_be_null: str) -> None:
    model = MODELS[name]
    assert not isinstance(model, Union)

    def faulty(value: Any) -> list[str]:
        return [fault.path for fault in check(model, value)]

    assert faulty(record) == []
    assert encode(decode(model, record)) == record
    for member in record:
        without = {other: value for other, value in record.items() if other != member}
        assert faulty(without) == ([] if member in may_be_absent.split() else [member])
        assert faulty({**record, member: None}) == ([] if member in may_be_null.split() else [member])
        if record[member] is not None and not isinstance(record[member], dict):
            assert [path.split(".")[0] for path in faulty({**record, member: {}})] == (
                [] if member == "data" else [member]
            )
        if type(record[member]) is int:
            assert faulty({**record, member: True}) == faulty({**record, member: 1.0}) == [member]
    for stranger in ("other", "url", "headers", "api_key", "env"):
        assert faulty({**record, stranger: 1}) == [f"'{stranger}'"]
    for value in ([], "x", 0, True, None, ABSENT):
        assert faulty(value) != []


def first(name: str, value: Any) -> tuple[str, str, str | None]:
    fault = check(MODELS[name], value)[0]
    return fault.path, fault.name, fault.limit


@pytest.mark.spec("octet.provider.bound-faults", "octet.error.bound-class")
@pytest.mark.parametrize(
    ("name", "record", "member", "fits", "passes", "limit"),
    [
        pytest.param(
            "ThemeSelectParams",
            THEME,
            "theme_id",
            "é" * 64,
            "é" * 64 + "x",
            "MAX_THEME_ID_BYTES",
            marks=pytest.mark.spec("octet.bound.max-theme-id-bytes"),
        ),
        ("ThemeSelectParams", THEME, "namespace", "x" * 64, "x" * 65, "MAX_THEME_NAMESPACE_BYTES"),
        ("SessionSwitchParams", {}, "session_id", "x" * 256, "x" * 257, "MAX_SESSION_ID_BYTES"),
        ("SessionLifecycleResult", {}, "session_id", "x" * 256, "x" * 257, "MAX_SESSION_ID_BYTES"),
        pytest.param(
            "ProviderUnregisterParams",
            {},
            "provider_id",
            "x" * 64,
            "x" * 65,
            "MAX_PROVIDER_ID_BYTES",
            marks=pytest.mark.spec("octet.bound.max-provider-id-bytes"),
        ),
        pytest.param(
            "ProviderModelDefinition",
            MODEL,
            "id",
            "x" * 64,
            "x" * 65,
            "MAX_PROVIDER_ID_BYTES",
            marks=pytest.mark.spec("octet.bound.max-provider-id-bytes"),
        ),
        ("ProviderModelDefinition", MODEL, "api_name", "x" * 64, "x" * 65, "MAX_PROVIDER_ID_BYTES"),
        pytest.param(
            "ProviderDefinition",
            PROVIDER,
            "label",
            "ü" * 64,
            "ü" * 64 + "u",
            "MAX_PROVIDER_LABEL_BYTES",
            marks=pytest.mark.spec("octet.bound.max-provider-label-bytes", "octet.provider.labels"),
        ),
        pytest.param(
            "ProviderModelDefinition",
            MODEL,
            "display_name",
            "x" * 128,
            "x" * 129,
            "MAX_PROVIDER_LABEL_BYTES",
            marks=pytest.mark.spec("octet.bound.max-provider-label-bytes", "octet.provider.labels"),
        ),
        pytest.param(
            "ProviderAuthorizationRequest",
            ASK,
            "scopes",
            [f"s{n}" for n in range(32)],
            [f"s{n}" for n in range(33)],
            "MAX_PROVIDER_AUTH_SCOPES",
            marks=pytest.mark.spec("octet.bound.max-provider-auth-scopes", "octet.provider.scopes"),
        ),
        ("ProviderAuthorizationRequest", ASK, "scopes", ["x" * 64], ["x" * 65], "MAX_PROVIDER_AUTH_SCOPE_BYTES"),
        pytest.param(
            "ProviderAuthorizationResult",
            {"status": "ready"},
            "lease",
            "x" * 256,
            "x" * 257,
            "MAX_PROVIDER_AUTH_LEASE_BYTES",
            marks=pytest.mark.spec("octet.bound.max-provider-auth-lease-bytes", "octet.provider.auth-lease"),
        ),
        pytest.param(
            "ProviderRegisterParams",
            {"provider": PROVIDER},
            "models",
            [{**MODEL, "id": f"m{n}"} for n in range(256)],
            [{**MODEL, "id": f"m{n}"} for n in range(257)],
            "MAX_PROVIDER_MODELS",
            marks=pytest.mark.spec("octet.bound.max-provider-models"),
        ),
        pytest.param(
            "ProviderStreamEvent",
            EVENT,
            "payload",
            "x" * (65_536 - 2),
            "x" * (65_536 - 1),
            "MAX_PROVIDER_STREAM_EVENT_BYTES",
            marks=pytest.mark.spec("octet.bound.max-provider-stream-event-bytes"),
        ),
        ("ProviderStreamEvent", EVENT, "stream_id", "x" * 256, "x" * 257, "MAX_PROVIDER_STREAM_ID_BYTES"),
        (
            "ProviderStreamAccepted",
            {"stream_id": "s", "accepted": False},
            "reason",
            "x" * 4_096,
            "x" * 4_097,
            "MAX_REASON_BYTES",
        ),
        ("ProviderStreamCancelParams", {"stream_id": "s"}, "reason", "x" * 4_096, "x" * 4_097, "MAX_REASON_BYTES"),
        ("ThemeSelectResult", {"status": "denied"}, "reason", "x" * 4_096, "x" * 4_097, "MAX_REASON_BYTES"),
        pytest.param(
            "MigrationDetectResult",
            DETECTED,
            "config_paths",
            [f"p{n}" for n in range(128)],
            [f"p{n}" for n in range(129)],
            "MAX_MIGRATION_ITEMS",
            marks=pytest.mark.spec("octet.bound.max-migration-items"),
        ),
        pytest.param(
            "MigrationDetectResult",
            DETECTED,
            "diagnostics",
            [DIAGNOSTIC] * 128,
            [DIAGNOSTIC] * 129,
            "MAX_MIGRATION_ITEMS",
            marks=pytest.mark.spec("octet.bound.max-migration-items"),
        ),
        ("MigrationMcpServer", SERVER, "args", ["x"] * 128, ["x"] * 129, "MAX_MIGRATION_ITEMS"),
        pytest.param(
            "MigrationDetectResult",
            DETECTED,
            "config_paths",
            ["é" * 2_048],
            ["é" * 2_048 + "x"],
            "MAX_MIGRATION_PATH_BYTES",
            marks=pytest.mark.spec("octet.bound.max-migration-path-bytes"),
        ),
        ("MigrationDetectParams", {}, "source_root", "/" * 4_096, "/" * 4_097, "MAX_MIGRATION_PATH_BYTES"),
        pytest.param(
            "MigrationMcpServer",
            SERVER,
            "name",
            "x" * 128,
            "x" * 129,
            "MAX_MIGRATION_NAME_BYTES",
            marks=pytest.mark.spec("octet.bound.max-migration-name-bytes"),
        ),
        pytest.param(
            "MigrationModel",
            {"path": "a", "provider": "p"},
            "model",
            "x" * 128,
            "x" * 129,
            "MAX_MIGRATION_NAME_BYTES",
            marks=pytest.mark.spec("octet.bound.max-migration-name-bytes"),
        ),
        pytest.param(
            "MigrationSkill",
            {"path": "a", "name": "n"},
            "content",
            "x" * 131_072,
            "x" * 131_073,
            "MAX_MIGRATION_SKILL_BYTES",
            marks=pytest.mark.spec("octet.bound.max-migration-skill-bytes"),
        ),
        pytest.param(
            "MigrationMcpServer",
            SERVER,
            "command",
            "x" * 4_096,
            "x" * 4_097,
            "MAX_MIGRATION_COMMAND_BYTES",
            marks=pytest.mark.spec("octet.bound.max-migration-command-bytes"),
        ),
        pytest.param(
            "MigrationMcpServer",
            SERVER,
            "args",
            ["x" * 16_384],
            ["x" * 16_385],
            "MAX_MIGRATION_ARGUMENT_BYTES",
            marks=pytest.mark.spec("octet.bound.max-migration-argument-bytes"),
        ),
        pytest.param(
            "MigrationDiagnostic",
            DIAGNOSTIC,
            "reason",
            "x" * 4_096,
            "x" * 4_097,
            "MAX_MIGRATION_DIAGNOSTIC_BYTES",
            marks=pytest.mark.spec("octet.bound.max-migration-diagnostic-bytes"),
        ),
    ],
)
def test_bounds_are_exact(name: str, record: dict[str, Any], member: str, fits: Any, passes: Any, limit: str) -> None:
    assert check(MODELS[name], {**record, member: fits}) == []
    path, row, passed = first(name, {**record, member: passes})
    assert (path.split("[")[0], row, passed) == (member, "resource_exhausted", limit)


@pytest.mark.parametrize(
    ("name", "record", "member", "right", "wrong"),
    [
        pytest.param(
            "ThemeSelectParams",
            THEME,
            "role",
            ["accent", "syntax_variable", "warning", "md_code_block", "diff_hunk"],
            ["", "Accent", "syntax", "background"],
            marks=pytest.mark.spec("octet.theme.role"),
        ),
        pytest.param(
            "ThemeSelectParams",
            THEME,
            "scope",
            ["extension"],
            ["", "global", "project", "user"],
            marks=pytest.mark.spec("octet.theme.scope"),
        ),
        pytest.param(
            "ThemeSelectResult",
            {},
            "status",
            ["selected", "denied", "unavailable"],
            ["", "ok", "Selected"],
            marks=pytest.mark.spec("octet.theme.status-words"),
        ),
        pytest.param(
            "MigrationDiagnostic",
            DIAGNOSTIC,
            "severity",
            ["warning", "error"],
            ["info", "", "Warning"],
            marks=pytest.mark.spec("octet.migration.severity"),
        ),
        pytest.param(
            "MigrationDiagnostic",
            DIAGNOSTIC,
            "path",
            ["$", "a", "a/b", ".hidden/x", "a b", "ü", "$x", "..a"],
            ["", "/a", "a//b", "a/", "./a", "../a", "a/../b", "a\\b", "a\0", "a\n", "\u202ea", "a\u200bb", "\ufeffa"],
            marks=pytest.mark.spec("octet.migration.root-path", "octet.migration.relative-paths"),
        ),
        pytest.param(
            "MigrationSkill",
            {"name": "n", "content": ""},
            "path",
            ["a/b.md"],
            ["", "/etc/passwd", "..", "a/..", "\u2066a", "a\u2060", "a\x7f", "C:\\x"],
            marks=pytest.mark.spec("octet.migration.relative-paths"),
        ),
        pytest.param(
            "ProviderUnregisterParams",
            {},
            "provider_id",
            ["a", "a0_-", "z-9"],
            ["", "A", "0a", "_a", "a.b", "a/b", "ä"],
            marks=pytest.mark.spec("octet.provider.ids"),
        ),
        pytest.param(
            "ProviderAuthRequirement",
            AUTH,
            "subject",
            ["acme"],
            ["", "Acme", "a b", "https://acme"],
            marks=pytest.mark.spec("octet.provider.ids"),
        ),
        pytest.param(
            "ProviderAuthRequirement",
            AUTH,
            "scopes",
            [[], ["a.B_c-1"]],
            [[""], ["a b"], ["https://x"], [1]],
            marks=pytest.mark.spec("octet.provider.scopes"),
        ),
        pytest.param(
            "ProviderAuthRequirement",
            {},
            "kind",
            ["none", "oauth", "host_credential"],
            ["", "api_key", "OAuth"],
            marks=pytest.mark.spec("octet.provider.auth-kinds"),
        ),
        pytest.param(
            "ProviderDefinition",
            PROVIDER,
            "label",
            ["Acme", " Acme "],
            ["", " ", "\u00a0", "a\nb", "a\x1b[0m", "a\x85"],
            marks=pytest.mark.spec("octet.provider.labels"),
        ),
        pytest.param(
            "ProviderModelDefinition",
            MODEL,
            "protocol",
            ["openai_chat", "openai_responses", "anthropic_messages"],
            ["", "openai", "gemini"],
            marks=pytest.mark.spec("octet.provider.protocol-words"),
        ),
        pytest.param(
            "ProviderModelDefinition",
            MODEL,
            "context_window",
            [1, 2**53 - 1],
            [0, -1, 2**53],
            marks=pytest.mark.spec("octet.provider.token-counts"),
        ),
        pytest.param(
            "ProviderModelDefinition",
            MODEL,
            "max_output_tokens",
            [1],
            [0, -1],
            marks=pytest.mark.spec("octet.provider.token-counts"),
        ),
        pytest.param(
            "ProviderAuthorizationRequest",
            ASK,
            "action",
            ["authorize", "refresh", "revoke"],
            ["", "login"],
            marks=pytest.mark.spec("octet.provider.auth-actions"),
        ),
        pytest.param(
            "ProviderAuthorizationResult",
            {"status": "ready"},
            "lease",
            ["A", "a.b_c-9"],
            ["", "a b", "Bearer x", "a/b", "ä"],
            marks=pytest.mark.spec("octet.provider.auth-lease"),
        ),
        pytest.param(
            "ProviderStreamEvent",
            EVENT,
            "kind",
            [*PAYLOADS, "error", "heartbeat"],
            ["", "done", "Started"],
            marks=pytest.mark.spec("octet.provider.stream-kinds"),
        ),
    ],
)
def test_words_and_alphabets(
    name: str, record: dict[str, Any], member: str, right: list[Any], wrong: list[Any]
) -> None:
    for value in right:
        assert check(MODELS[name], {**record, member: value}) == []
    for value in wrong:
        path, row, _ = first(name, {**record, member: value})
        assert (path.split("[")[0], row) == (member, "invalid_params"), value


def declared(auth: dict[str, Any] | None = None, *models: dict[str, Any]) -> list[tuple[str, str]]:
    provider = {**PROVIDER, "auth": auth or {"kind": "none"}}
    params = decode(MODELS["ProviderRegisterParams"], {"provider": provider, "models": [*models]})  # type: ignore[arg-type]
    return [(fault.path, fault.problem) for fault in declaration_faults(params.provider, params.models)]


@pytest.mark.spec("octet.provider.auth-kinds", "octet.provider.scopes")
def test_each_kind_of_authorisation_has_its_own_members() -> None:
    assert declared({"kind": "none"}) == []
    assert declared({"kind": "oauth", "subject": "acme"}) == []
    assert declared({"kind": "oauth", "subject": "acme", "scopes": ["a", "b"]}) == []
    assert declared({"kind": "host_credential", "subject": "acme"}) == []
    assert declared({"kind": "none", "subject": "acme", "scopes": []}) == [
        ("provider.auth.subject", "is not allowed with kind none"),
        ("provider.auth.scopes", "is not allowed with kind none"),
    ]
    assert declared({"kind": "oauth"}) == [("provider.auth.subject", "is missing; kind oauth needs it")]
    assert declared({"kind": "host_credential", "scopes": ["a"]}) == [
        ("provider.auth.subject", "is missing; kind host_credential needs it"),
        ("provider.auth.scopes", "is not allowed with kind host_credential"),
    ]
    assert declared({"kind": "oauth", "subject": "acme", "scopes": ["a", "b", "a"]}) == [
        ("provider.auth.scopes[2]", "'a' appears twice")
    ]


@pytest.mark.spec(
    "octet.provider.token-counts", "octet.provider.parallel-needs-tools", "octet.provider.model-ids-unique"
)
def test_the_members_of_models_fit_each_other() -> None:
    assert declared(None, {**MODEL, "context_window": 512}) == []
    parallel = {**ABLE, "parallel_tool_calls": True}
    assert declared(None, {**MODEL, "capabilities": parallel}) == []
    assert declared(
        None,
        {**MODEL, "context_window": 511},
        MODEL,
        {**MODEL, "id": "other", "capabilities": {**parallel, "tools": False}},
    ) == [
        ("models[0].max_output_tokens", "must be at most context_window 511, not 512"),
        ("models[1].id", "'small' appears twice"),
        ("models[2].capabilities.parallel_tool_calls", "needs tools"),
    ]


@pytest.mark.spec("octet.provider.stream-kinds")
@pytest.mark.parametrize(
    ("kind", "record", "may_be_absent"),
    [
        ("started", {"response_id": "r"}, "response_id"),
        ("text_start", {"index": 0}, ""),
        ("text_delta", {"index": 0, "delta": ""}, ""),
        ("text_end", {"index": 0}, ""),
        ("reasoning_start", {"index": 0}, ""),
        ("reasoning_delta", {"index": 0, "delta": ""}, ""),
        ("reasoning_end", {"index": 0}, ""),
        ("tool_call_start", {"index": 0, "id": "c", "name": "n"}, ""),
        ("tool_call_args_delta", {"index": 0, "delta": "{"}, ""),
        ("tool_call_end", {"index": 0}, ""),
        (
            "usage",
            dict.fromkeys(USAGE, 0),
            " ".join(USAGE),
        ),
        ("finished", {"stop_reason": "stop"}, ""),
    ],
)
def test_payloads_of_stream_events(kind: str, record: dict[str, Any], may_be_absent: str) -> None:
    model = PAYLOADS[kind]
    assert encode(decode(model, record)) == record
    for member in record:
        rest = {other: value for other, value in record.items() if other != member}
        assert [fault.path for fault in check(model, rest)] == ([] if member in may_be_absent.split() else [member])
        assert [fault.path for fault in check(model, {**record, member: None})] == [member]
    assert [fault.path for fault in check(model, {**record, "extra": 0})] == ["'extra'"]
    for member, value in record.items():
        if type(value) is int:
            assert [fault.path for fault in check(model, {**record, member: -1})] == [member]
    assert len(PAYLOADS) == 12


def test_empty_names_in_payloads_are_refused() -> None:
    assert [f.path for f in check(PAYLOADS["tool_call_start"], {"index": 0, "id": "", "name": ""})] == ["id", "name"]
    assert [f.path for f in check(PAYLOADS["finished"], {"stop_reason": ""})] == ["stop_reason"]


@pytest.mark.spec("octet.provider.auth-lease")
def test_a_lease_is_never_shown() -> None:
    lease = "l3ase-9f8a7b6c"
    result = ProviderAuthorizationResult(status="ready", lease=lease)
    request = ProviderStreamRequest(
        stream_id="s", provider_id="acme", model_id="small", request={}, authorization_lease=lease
    )
    assert lease not in repr(result) and lease not in repr(request)
    assert encode(result)["lease"] == encode(request)["authorization_lease"] == lease
    (fault,) = check(ProviderAuthorizationResult, {"status": "ready", "lease": lease + " "})
    assert (fault.path, fault.problem) == ("lease", "must match [A-Za-z0-9._-]+")


def test_results_of_adapters_and_providers_are_the_extensions_fault() -> None:
    for decoder in (
        migration_models.decode_detect_result,
        migration_models.decode_import_result,
        stream_models.decode_stream_accepted,
    ):
        with pytest.raises(ResultError, match="result of "):
            decoder({})


@pytest.mark.spec("octet.migration.no-secrets")
def test_an_import_has_no_place_for_secrets() -> None:
    for secret in ("env", "headers", "credentials", "cwd", "permissions", "token"):
        assert first("MigrationMcpServer", {**SERVER, secret: {}}) == (f"'{secret}'", "invalid_params", None)
        result = {"models": [], "skills": [], "mcp_servers": [{**SERVER, secret: {}}], "diagnostics": []}
        assert first("MigrationImportResult", result)[0] == f"mcp_servers[0].'{secret}'"


def test_the_table_has_every_model_of_the_reference_and_every_method_its_models() -> None:
    assert len(MODELS) == 64
    assert METHOD_MODELS.keys() == METHODS.keys()
    for method, row in METHOD_MODELS.items():
        assert {row.params, row.result} - {None} <= MODELS.keys()
        if row.terminal != "deferred":
            assert (row.result is None) == (METHODS[method].notification and method != "$/cancelRequest")
