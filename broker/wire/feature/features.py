"""Every feature name of the feature-negotiated wire: where it exists, what it needs, and what the host must have.

0.1 has no features at all. ``service`` is the host service that has to be bound before the feature is offered; a
feature without one only changes what is inside members that exist anyway, and is offered when the host says that it
honours it. ``grant`` is the manifest's entry without which the feature is never offered to that extension.

Source: octet notes, section 5; octet reference, "Version policy".
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from types import MappingProxyType
from typing import Final, Literal, TypeAlias

from attrs import frozen

from broker.errors import UsageError

Version: TypeAlias = Literal["0.1", "0.2", "0.4"]
VERSIONS: Final[tuple[Version, ...]] = ("0.1", "0.2", "0.4")


def version_of(api_version: str) -> Version:
    """``api_version`` as a version of this wire; raises :class:`~broker.errors.UsageError` for any other."""
    for version in VERSIONS:
        if version == api_version:
            return version
    raise UsageError(f"API {api_version!a:.20} does not speak the feature-negotiated wire", path="api_version")


def is_since(version: str, first: str) -> bool:
    """Whether something that exists from ``first`` on exists in ``version``; both are versions of this wire."""
    return VERSIONS.index(version) >= VERSIONS.index(first)


@frozen
class Feature:
    """One row of the feature table."""

    name: str
    since: Version
    service: str | None = None
    needs: str | None = None
    grant: str | None = None
    required: bool = False


_ROWS: Final = (
    Feature("request_cancellation", "0.2", required=True),
    Feature("content_parts", "0.2", required=True),
    # Optional on 0.2 and 0.4.
    Feature("request_progress", "0.2", "progress"),
    Feature("progress_decoration", "0.2", "progress"),
    Feature("artifacts", "0.2", "artifacts"),
    Feature("lifecycle_events", "0.2"),
    Feature("lifecycle_events_v2", "0.2"),
    Feature("policy_intents", "0.2", "policy"),
    Feature("dynamic_tools", "0.2", "dynamic_tools"),
    Feature("runtime_commands", "0.2"),
    Feature("semantic_ui", "0.2"),
    Feature("editor_handoff", "0.2"),
    Feature("terminal_input", "0.2"),
    Feature("autocomplete", "0.2"),
    Feature("dynamic_tool_renderers", "0.2"),
    Feature("composer", "0.2", "composer"),
    Feature("shortcuts", "0.2", "shortcuts"),
    Feature("session_entries", "0.2", "session_entries"),
    Feature("message_injection", "0.2", "messages"),
    Feature("active_tools", "0.2", "active_tools"),
    Feature("terminal_handoff", "0.2", "terminal"),
    Feature("session_context", "0.2"),
    Feature("model_catalog", "0.2"),
    # Conditional: more than a bound service decides.
    Feature("agent_sessions", "0.2", "agents"),
    Feature("agent_model_selection_v1", "0.2", "agents", needs="agent_sessions"),
    Feature("approvals", "0.2", "policy", needs="policy_intents"),
    Feature("secrets", "0.2", "secrets", grant="capabilities.secrets"),
    Feature("system_prompt_read", "0.2", grant="capabilities.system_prompt"),
    Feature("delegation_telemetry_v1", "0.2"),
    # 0.4 only.
    Feature("resource_refs_v1", "0.4", "resources"),
    Feature("operation_descriptors_v1", "0.4"),
    Feature("tool_prompt_metadata_v1", "0.4"),
    Feature("autocomplete_edit_v1", "0.4", needs="autocomplete"),
    Feature("tool_composition_v1", "0.4", "composition"),
    Feature("bulk_objects_v1", "0.4", "bulk"),
    Feature("remote_ui", "0.4", "remote_ui"),
    Feature("session_control_v1", "0.4", "session_control"),
    Feature("session_compaction_v1", "0.4", "session_control", needs="session_control_v1"),
    Feature("resource_paths_v1", "0.4"),
    Feature("before_prompt_state_v1", "0.4"),
    Feature("pipeline_hooks_v1", "0.4"),
    Feature("compaction_strategy", "0.4"),
    Feature("cache_warming_decision", "0.4"),
    Feature("agent_session_events_v1", "0.4", "agents", needs="agent_sessions"),
    Feature("agent_session_lifetime_v1", "0.4", "agents", needs="agent_sessions"),
)

FEATURES: Final[Mapping[str, Feature]] = MappingProxyType({row.name: row for row in _ROWS})

SERVICES: Final = frozenset(row.service for row in _ROWS if row.service is not None) | {
    "confirmations",
    "inputs",
    "context",
    "status",
    "notifications",
    "presentation",
}
"""Every service a host may bind. The last six stand behind methods that need no feature."""

REQUIRED_FEATURES: Final = tuple(row.name for row in _ROWS if row.required)

LIFECYCLE_EVENTS: Final = (
    "session/started",
    "session/settled",
    "turn/started",
    "turn/settled",
    "tool/started",
    "tool/settled",
)
"""The notifications of ``lifecycle_events``; an extension may ask for some of them, an empty list means all."""

HOOK_FEATURES: Final[Mapping[str, str]] = MappingProxyType(
    {
        "before_provider_request": "pipeline_hooks_v1",
        "before_provider_headers": "pipeline_hooks_v1",
        "after_provider_response": "pipeline_hooks_v1",
        "provider_context": "pipeline_hooks_v1",
        "compaction_strategy": "compaction_strategy",
        "cache_warming_decision": "cache_warming_decision",
    }
)
"""Hooks of 0.4 that are only run when their feature was negotiated."""


def offered_features(
    version: str, *, services: Iterable[str], honoured: Iterable[str], withheld: Iterable[str], grants: Iterable[str]
) -> tuple[str, ...]:
    """The optional features a host offers, in the order of the table.

    ``services`` are the bound ones, ``honoured`` the features without a service that the host stands for, ``withheld``
    those it keeps back in any case, and ``grants`` what the manifest declares. A feature whose need is not offered is
    not offered either.
    """
    if version == "0.1":
        return ()
    bound, named, kept, granted = frozenset(services), frozenset(honoured), frozenset(withheld), frozenset(grants)
    offered: list[str] = []
    for row in _ROWS:
        if row.required or not is_since(version, row.since) or row.name in kept:
            continue
        has = row.name in named if row.service is None else row.service in bound
        if has and (row.needs is None or row.needs in offered) and (row.grant is None or row.grant in granted):
            offered.append(row.name)
    return tuple(offered)
