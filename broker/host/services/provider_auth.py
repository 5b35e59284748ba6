"""``provider/auth/request`` and ``/revoke``: the host's policy decides whether a provider may be used.

No credential, address or callback crosses the wire. What may is a lease, text that means something to the host alone:
it goes into the one answer it was made for, and is not kept, logged or shown. Source: octet reference, models
``ProviderAuthorization*``; octet notes, section 4.5.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeAlias

from attrs import frozen

from broker.errors import Fault, InternalError, InvalidParamsError
from broker.host.outcome import Outcome
from broker.host.services.asking import Answer, Awaiting, Principal, ask
from broker.host.services.registry import READY, ProviderRegistry
from broker.wire.jsonrpc import ABSENT
from broker.wire.octet.provider_models import (
    ProviderAuthorizationRequest,
    ProviderAuthorizationResult,
    ProviderAuthRequirement,
    scope_faults,
)
from broker.wire.octet.schema import check, encode, refuse
from broker.wire.quoting import quote

REVOKE: str = "provider/auth/revoke"


@frozen(kw_only=True)
class AuthRequest:
    """What a policy decides about. ``scopes`` are those asked for, or all that are declared when none are named."""

    asked_by: Principal
    provider_id: str
    required: ProviderAuthRequirement
    action: str
    interactive: bool
    scopes: tuple[str, ...]


AuthPolicy: TypeAlias = Callable[[AuthRequest], Answer[ProviderAuthorizationResult]]
"""Decides, at once or later: ``ready`` (perhaps with a lease), ``pending``, ``unavailable`` or ``revoked``."""


def authorize(
    registry: ProviderRegistry,
    policy: AuthPolicy | None,
    asked_by: Principal,
    method: str,
    params: ProviderAuthorizationRequest,
    *,
    awaiting: Awaiting | None = None,
) -> Outcome[ProviderAuthorizationResult]:
    """The decision about a request, which becomes the provider's state when it is made.

    Raises ``invalid_params`` for an action the method does not have, a provider of another, and scopes that were not
    declared. Without a policy a provider that needs no authorisation is ``ready``, any other ``unavailable``, and a
    revocation ``revoked``.
    """
    allowed = ("revoke",) if method == REVOKE else ("authorize", "refresh")
    if params.action not in allowed:
        words = " or ".join(allowed)
        raise InvalidParamsError(f"{method} takes the action {words}, not {params.action}", path="action")
    required = registry.owned(asked_by, params.provider_id).definition.auth
    faults = _scope_faults(required, params)
    if faults:
        refuse(faults, what=f"params of {method}", error=InvalidParamsError)
    outcome: Outcome[ProviderAuthorizationResult] = Outcome()

    def decide(result: ProviderAuthorizationResult) -> ProviderAuthorizationResult:
        _check_decision(result, params.action)
        registry.set_status(asked_by, params.provider_id, required, result.status)
        return result

    if policy is None:
        status = "revoked" if method == REVOKE else READY if required.kind == "none" else "unavailable"
        outcome.settle_with(lambda: decide(ProviderAuthorizationResult(status=status)))
        return outcome

    def settled(done: Outcome[ProviderAuthorizationResult]) -> None:
        if done.error is not None:
            outcome.fail(done.error)
        elif not outcome.done:
            outcome.settle_with(lambda: decide(done.result()))

    declared = () if required.scopes is ABSENT else required.scopes
    request = AuthRequest(
        asked_by=asked_by,
        provider_id=params.provider_id,
        required=required,
        action=params.action,
        interactive=params.interactive,
        scopes=declared if params.scopes is ABSENT else params.scopes,
    )
    ask(policy, request, awaiting=awaiting).add_callback(settled)
    return outcome


def _scope_faults(required: ProviderAuthRequirement, params: ProviderAuthorizationRequest) -> list[Fault]:
    if params.scopes is ABSENT:
        return []
    if required.kind != "oauth":
        return [Fault("scopes", f"is not allowed with kind {required.kind}")]
    declared = () if required.scopes is ABSENT else required.scopes
    faults = list(scope_faults(params.scopes, "scopes"))
    return faults + [
        Fault(f"scopes[{index}]", f"{quote(scope)} was not declared")
        for index, scope in enumerate(params.scopes)
        if scope not in declared
    ]


def _check_decision(result: ProviderAuthorizationResult, action: str) -> None:
    """Refuse what a policy may not answer; the text has no lease in it."""
    if not isinstance(result, ProviderAuthorizationResult):
        raise InternalError("the authorisation policy answered with no ProviderAuthorizationResult")
    faults = check(ProviderAuthorizationResult, encode(result))
    if faults:
        raise InternalError(f"the authorisation policy's answer: {faults[0]}")
    if result.lease is not ABSENT and result.status != READY:
        raise InternalError(f"the authorisation policy gave a lease with the status {result.status}")
    if action == "revoke" and result.status == READY:
        raise InternalError("the authorisation policy answered a revocation with ready")
