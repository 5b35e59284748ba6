"""The records of the provider catalogue and of provider authorisation (octet 0.3), and the rules between their members.

A declaration has no place for an address, a header or a secret, and a lease is text that only the host understands.
Source: octet reference, models ``Provider*`` and ``ProviderAuthorization*``; octet notes, sections 4.4 and 4.5.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final

from attrs import field, frozen

from broker.errors import Fault
from broker.wire.jsonrpc import ABSENT, Absent
from broker.wire.octet.schema import Boolean, Integer, Items, Nested, Text, wire
from broker.wire.quoting import quote

AUTH_KINDS: Final = ("none", "oauth", "host_credential")
PROTOCOLS: Final = ("openai_chat", "openai_responses", "anthropic_messages")
AUTH_ACTIONS: Final = ("authorize", "refresh", "revoke")
AUTH_STATUSES: Final = ("pending", "ready", "unavailable", "revoked")

PROVIDER_ID: Final = Text("MAX_PROVIDER_ID_BYTES", pattern="[a-z][a-z0-9_-]*")
_LABEL: Final = Text("MAX_PROVIDER_LABEL_BYTES", label=True, empty=False)
_SCOPES: Final = Items(Text("MAX_PROVIDER_AUTH_SCOPE_BYTES", pattern="[A-Za-z0-9._-]+"), "MAX_PROVIDER_AUTH_SCOPES")
LEASE: Final = Text("MAX_PROVIDER_AUTH_LEASE_BYTES", pattern="[A-Za-z0-9._-]+", secret=True)


@frozen(kw_only=True)
class ProviderAuthRequirement:
    """The class of authorisation a provider needs. ``none`` takes neither subject nor scopes, ``oauth`` a subject and
    perhaps scopes, ``host_credential`` a subject alone.
    """

    kind: str = field(metadata=wire(Text(choices=AUTH_KINDS)))
    subject: str | Absent = field(default=ABSENT, metadata=wire(PROVIDER_ID))
    scopes: tuple[str, ...] | Absent = field(default=ABSENT, metadata=wire(_SCOPES))


@frozen(kw_only=True)
class ProviderDefinition:
    """A provider as its extension declares it; ``id`` is unique in the host."""

    id: str = field(metadata=wire(PROVIDER_ID))
    label: str = field(metadata=wire(_LABEL))
    auth: ProviderAuthRequirement = field(metadata=wire(Nested(ProviderAuthRequirement)))


@frozen(kw_only=True)
class ProviderModelCapabilities:
    """What a model can do. Parallel tool calls need tools."""

    tools: bool = field(metadata=wire(Boolean()))
    parallel_tool_calls: bool = field(metadata=wire(Boolean()))
    structured_output: bool = field(metadata=wire(Boolean()))
    reasoning: bool = field(metadata=wire(Boolean()))


@frozen(kw_only=True)
class ProviderModelDefinition:
    """A model of a provider; its two sizes are in tokens, and ``max_output_tokens`` is at most ``context_window``."""

    id: str = field(metadata=wire(PROVIDER_ID))
    api_name: str = field(metadata=wire(Text("MAX_PROVIDER_ID_BYTES", label=True, empty=False)))
    protocol: str = field(metadata=wire(Text(choices=PROTOCOLS)))
    context_window: int = field(metadata=wire(Integer(minimum=1)))
    max_output_tokens: int = field(metadata=wire(Integer(minimum=1)))
    capabilities: ProviderModelCapabilities = field(metadata=wire(Nested(ProviderModelCapabilities)))
    display_name: str | Absent = field(default=ABSENT, metadata=wire(_LABEL))


_MODELS: Final = Items(Nested(ProviderModelDefinition), "MAX_PROVIDER_MODELS")


@frozen(kw_only=True)
class ProviderRegisterParams:
    """The parameters of ``providers/register``: a provider that is new, and all its models."""

    provider: ProviderDefinition = field(metadata=wire(Nested(ProviderDefinition)))
    models: tuple[ProviderModelDefinition, ...] = field(metadata=wire(_MODELS))


@frozen(kw_only=True)
class ProviderUpdateParams:
    """The parameters of ``providers/update``: a provider one has, and all its models, anew."""

    provider: ProviderDefinition = field(metadata=wire(Nested(ProviderDefinition)))
    models: tuple[ProviderModelDefinition, ...] = field(metadata=wire(_MODELS))


@frozen(kw_only=True)
class ProviderUnregisterParams:
    """The parameters of ``providers/unregister``: which provider goes."""

    provider_id: str = field(metadata=wire(PROVIDER_ID))


@frozen(kw_only=True)
class ProviderCatalogCompleteParams:
    """The parameters of the notification ``providers/complete``: none."""


@frozen(kw_only=True)
class ProviderCatalogResult:
    """The result of a change: the registry's revision after it, and the ids now declared, models as ``provider/model``.

    Both lists are empty after ``providers/unregister``.
    """

    revision: int = field(metadata=wire(Integer()))
    provider_ids: tuple[str, ...] = field(metadata=wire(Items(Text())))
    model_ids: tuple[str, ...] = field(metadata=wire(Items(Text())))


@frozen(kw_only=True)
class ProviderAuthorizationRequest:
    """The parameters of ``provider/auth/request`` and ``/revoke``; ``interactive`` allows to ask a person."""

    provider_id: str = field(metadata=wire(PROVIDER_ID))
    action: str = field(metadata=wire(Text(choices=AUTH_ACTIONS)))
    interactive: bool = field(metadata=wire(Boolean()))
    scopes: tuple[str, ...] | Absent = field(default=ABSENT, metadata=wire(_SCOPES))


@frozen(kw_only=True)
class ProviderAuthorizationResult:
    """The host's decision. ``lease`` is opaque to all but the host, comes with ``ready`` only, and is not shown."""

    status: str = field(metadata=wire(Text(choices=AUTH_STATUSES)))
    lease: str | Absent = field(default=ABSENT, repr=False, metadata=wire(LEASE))


def declaration_faults(provider: ProviderDefinition, models: Sequence[ProviderModelDefinition]) -> list[Fault]:
    """What is wrong between the members of a declaration whose shape is right."""
    faults = list(_auth_faults(provider.auth))
    seen: set[str] = set()
    for index, model in enumerate(models):
        at = f"models[{index}]"
        if model.id in seen:
            faults.append(Fault(f"{at}.id", f"{quote(model.id)} appears twice"))
        seen.add(model.id)
        if model.max_output_tokens > model.context_window:
            problem = f"must be at most context_window {model.context_window}, not {model.max_output_tokens}"
            faults.append(Fault(f"{at}.max_output_tokens", problem))
        if model.capabilities.parallel_tool_calls and not model.capabilities.tools:
            faults.append(Fault(f"{at}.capabilities.parallel_tool_calls", "needs tools"))
    return faults


def scope_faults(scopes: Sequence[str], path: str) -> Iterator[Fault]:
    """A fault for every scope that stands in ``scopes`` a second time."""
    for index, scope in enumerate(scopes):
        if scope in scopes[:index]:
            yield Fault(f"{path}[{index}]", f"{quote(scope)} appears twice")


def _auth_faults(auth: ProviderAuthRequirement) -> Iterator[Fault]:
    if auth.kind == "none" and auth.subject is not ABSENT:
        yield Fault("provider.auth.subject", "is not allowed with kind none")
    if auth.kind != "none" and auth.subject is ABSENT:
        yield Fault("provider.auth.subject", f"is missing; kind {auth.kind} needs it")
    if auth.scopes is not ABSENT:
        if auth.kind != "oauth":
            yield Fault("provider.auth.scopes", f"is not allowed with kind {auth.kind}")
        yield from scope_faults(auth.scopes, "provider.auth.scopes")
