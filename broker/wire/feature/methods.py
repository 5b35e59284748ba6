"""Every method of the feature-negotiated wire: who sends it, since which version, and what has to be so before it may.

``feature`` must have been negotiated; 0.1 has no features, there a method of 0.1 needs none. ``declares`` is the
manifest's ``contributes`` member without which an extension may not send the method. ``scope`` says which of parent and
owner a request carries from 0.2 on (0.1 has neither). ``params`` and ``result`` are records with their bounds; where
they are ``None`` they are one bounded object whose members are between the extension and the host. A name that ends in
``*`` is a family: any member of it is the same method.

Source: octet notes, section 5.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum
from types import MappingProxyType
from typing import Final

from attrs import frozen

from broker.limits import MAX_METHOD_NAME_BYTES
from broker.wire.feature import models, results
from broker.wire.feature.features import LIFECYCLE_EVENTS, Version, is_since
from broker.wire.feature.refusals import UNAVAILABLE, UNSUPPORTED, RefusalKind


class Scope(Enum):
    """What a request of the extension says about what it is made for."""

    FREE = "free"
    """Nothing."""
    PARENT = "parent"
    """The host request it serves; it may name its owner as well."""
    PARENT_AND_OWNER = "parent and owner"
    """Both."""
    PARENT_OR_OWNER = "parent or owner"
    """Exactly one of them."""


@frozen
class Method:
    """One row of the method table. ``absent`` is how a request is refused whose feature was not negotiated."""

    name: str
    since: Version
    from_extension: bool = False
    from_host: bool = False
    notification: bool = False
    feature: str | None = None
    service: str | None = None
    declares: str | None = None
    scope: Scope = Scope.FREE
    params: type | None = None
    result: type | None = None
    absent: RefusalKind = UNSUPPORTED


def _request(
    name: str,
    since: Version,
    feature: str | None,
    service: str,
    params: type | None = None,
    result: type | None = None,
    scope: Scope = Scope.PARENT,
    **more: RefusalKind | str,
) -> Method:
    return Method(
        name,
        since,
        from_extension=True,
        feature=feature,
        service=service,
        params=params,
        result=result,
        scope=scope,
        **more,  # type: ignore[arg-type]
    )


def _notice(name: str, since: Version, service: str, params: type, declares: str) -> Method:
    scope = Scope.PARENT_OR_OWNER if params is models.PresentationUpdate else Scope.FREE
    return Method(
        name,
        since,
        from_extension=True,
        notification=True,
        service=service,
        params=params,
        declares=declares,
        scope=scope,
    )


_AGENT_OPERATIONS: Final[tuple[tuple[str, Version, str], ...]] = (
    ("spawn", "0.2", "agent_sessions"),
    ("message", "0.2", "agent_sessions"),
    ("follow_up", "0.2", "agent_sessions"),
    ("list", "0.2", "agent_sessions"),
    ("wait", "0.2", "agent_sessions"),
    ("interrupt", "0.2", "agent_sessions"),
    ("models", "0.2", "agent_model_selection_v1"),
    ("events", "0.4", "agent_session_events_v1"),
    ("stop", "0.4", "agent_session_lifetime_v1"),
)
_BOTH: Final = Scope.PARENT_AND_OWNER
_NONE: Final = models.NoFields
_SESSION: Final = models.SessionAnswer
_CATALOGUE: Final = models.CatalogueAnswer

_ROWS: Final = (
    # From the host.
    Method("initialize", "0.1", from_host=True),
    Method("tool/call", "0.1", from_host=True, result=results.FeatureToolResult),
    Method("command/execute", "0.1", from_host=True, result=results.CommandResult),
    Method("hook/run", "0.1", from_host=True, result=results.HookResult),
    Method("context/collect", "0.1", from_host=True, result=models.ContextItem),
    Method("status/collect", "0.1", from_host=True, result=models.StatusItem),
    Method("tool/render", "0.1", from_host=True, result=results.Rendering),
    Method("menu/collect", "0.2", from_host=True, result=results.Menu),
    Method("shutdown", "0.1", from_host=True, result=results.EmptyResult),
    Method("resource/dispose", "0.4", from_host=True, feature="resource_refs_v1", result=results.EmptyResult),
    *(Method(name, "0.2", from_host=True, notification=True, feature="lifecycle_events") for name in LIFECYCLE_EVENTS),
    *(
        Method(name, "0.2", from_host=True, notification=True, feature="lifecycle_events_v2")
        for name in ("message/*", "compaction/*", "dialog/*", "model/selected")
    ),
    # From both.
    Method(
        "$/cancelRequest",
        "0.2",
        from_host=True,
        from_extension=True,
        notification=True,
        feature="request_cancellation",
        params=models.CancelNotice,
    ),
    # Notifications from the extension.
    _notice("notification", "0.1", "notifications", models.ExtensionNotification, "notifications"),
    _notice("context/contribution", "0.1", "context", models.ContextContribution, "context"),
    _notice("status/contribution", "0.1", "status", models.StatusContribution, "ui"),
    _notice("presentation/update", "0.2", "presentation", models.PresentationUpdate, "presentation"),
    Method(
        "$/progress",
        "0.2",
        from_extension=True,
        notification=True,
        feature="request_progress",
        service="progress",
        params=models.ProgressReport,
    ),
    # Requests from the extension.
    _request(
        "confirmation/request",
        "0.1",
        None,
        "confirmations",
        models.Confirmation,
        models.ConfirmationAnswer,
        declares="confirmations",
    ),
    _request("input/request", "0.2", None, "inputs", models.InputRequest, models.InputAnswer),
    _request("artifact/publish", "0.2", "artifacts", "artifacts", models.ArtifactPublication, models.ArtifactAnswer),
    _request("policy/evaluate", "0.2", "policy_intents", "policy", models.PolicyRequest, models.PolicyAnswer),
    _request("secret/get", "0.1", "secrets", "secrets", models.SecretRequest, models.SecretAnswer, absent=UNAVAILABLE),
    _request(
        "tools/register",
        "0.2",
        "dynamic_tools",
        "dynamic_tools",
        models.ToolsRegistration,
        models.CatalogueAnswer,
        Scope.FREE,
    ),
    _request(
        "tools/unregister",
        "0.2",
        "dynamic_tools",
        "dynamic_tools",
        models.ToolsRemoval,
        models.CatalogueAnswer,
        Scope.FREE,
    ),
    *(
        _request(f"agent/{operation}", since, feature, "agents", absent=UNAVAILABLE)
        for operation, since, feature in _AGENT_OPERATIONS
    ),
    *(_request(f"composer/{operation}", "0.2", "composer", "composer") for operation in ("get", "set", "insert")),
    _request("shortcut/register", "0.2", "shortcuts", "shortcuts"),
    *(
        _request(f"session/{operation}", "0.2", "session_entries", "session_entries")
        for operation in ("append_entry", "set_name", "set_label")
    ),
    *(
        _request(f"session/{operation}", "0.2", "message_injection", "messages")
        for operation in ("send_message", "send_user_message")
    ),
    _request("tools/set_active", "0.2", "active_tools", "active_tools"),
    *(_request(f"terminal/{operation}", "0.2", "terminal_handoff", "terminal") for operation in ("acquire", "release")),
    *(
        _request(
            f"session/{operation}",
            "0.4",
            "session_control_v1",
            "session_control",
            models.NoFields,
            models.SessionAnswer,
            _BOTH,
        )
        for operation in ("wait_for_idle", "create", "fork", "reload")
    ),
    _request(
        "session/switch",
        "0.4",
        "session_control_v1",
        "session_control",
        models.SessionTarget,
        models.SessionAnswer,
        _BOTH,
    ),
    _request(
        "session/compact",
        "0.4",
        "session_compaction_v1",
        "session_control",
        models.NoFields,
        models.SessionAnswer,
        _BOTH,
    ),
    _request("composition/*", "0.4", "tool_composition_v1", "composition"),
    _request("resource/*", "0.4", "resource_refs_v1", "resources"),
    _request("bulk/*", "0.4", "bulk_objects_v1", "bulk"),
    _request("remote_ui/*", "0.4", "remote_ui", "remote_ui"),
)

METHODS: Final[Mapping[str, Method]] = MappingProxyType({row.name: row for row in _ROWS})

_FAMILIES: Final[Mapping[str, Method]] = MappingProxyType(
    {row.name.removesuffix("*"): row for row in _ROWS if row.name.endswith("*")}
)


def find_method(version: str, name: str) -> Method | None:
    """The row of ``name`` in ``version``, or ``None`` for a name that version does not have."""
    row = METHODS.get(name) if not name.endswith("*") else None
    if row is None and len(name) <= MAX_METHOD_NAME_BYTES and name.isascii() and name.isprintable():
        family, slash, member = name.partition("/")
        row = _FAMILIES.get(family + slash) if member and not member.endswith("*") else None
    return row if row is not None and is_since(version, row.since) else None
