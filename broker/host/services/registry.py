"""The providers and models that extensions have declared to one host.

A provider id is unique in the registry and belongs to the process generation that declared it. Every change is made
whole or not at all, and raises the revision by one. Source: octet reference, models ``Provider*``, bounds
``max_providers`` and ``max_provider_models``; octet notes, section 4.4.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from typing import Final

from attrs import evolve, frozen

from broker.errors import ExtensionError, InvalidParamsError, ResourceExhaustedError
from broker.host.outcome import Outcome
from broker.host.services.asking import Principal
from broker.limits import MAX_PROVIDER_MODELS, MAX_PROVIDERS
from broker.wire.octet.provider_models import (
    ProviderAuthRequirement,
    ProviderCatalogResult,
    ProviderDefinition,
    ProviderModelDefinition,
    declaration_faults,
)
from broker.wire.octet.schema import refuse
from broker.wire.quoting import quote

_LOG = logging.getLogger("broker.host")

READY: Final = "ready"


@frozen
class RegisteredProvider:
    """A live declaration: what was declared, by whom, and whether it may be called (``status`` is ``ready``)."""

    definition: ProviderDefinition
    models: tuple[ProviderModelDefinition, ...]
    owner: Principal
    status: str

    @property
    def id(self) -> str:
        """The provider's id."""
        return self.definition.id

    def model(self, model_id: str) -> ProviderModelDefinition | None:
        """The model of this id."""
        return next((model for model in self.models if model.id == model_id), None)


class ProviderRegistry:
    """One host's providers. Changed in the host's thread; :attr:`providers` is a snapshot that any thread may read."""

    def __init__(self) -> None:
        self._revision = 0
        self._providers: dict[str, RegisteredProvider] = {}
        self._complete: set[Principal] = set()
        self._waiting: dict[Principal, Outcome[tuple[RegisteredProvider, ...]]] = {}
        self._listeners: tuple[Callable[[], object], ...] = ()

    @property
    def revision(self) -> int:
        """Changes so far: declarations, withdrawals, and states of authorisation."""
        return self._revision

    @property
    def providers(self) -> tuple[RegisteredProvider, ...]:
        """The live declarations by id."""
        found = self._providers
        return tuple(found[provider_id] for provider_id in sorted(found))

    def get(self, provider_id: str) -> RegisteredProvider | None:
        """The live declaration of this id."""
        return self._providers.get(provider_id)

    def is_complete(self, owner: Principal) -> bool:
        """Whether this generation has said that its first declarations are all made."""
        return owner in self._complete

    def completion(self, owner: Principal) -> Outcome[tuple[RegisteredProvider, ...]]:
        """Settles with this generation's providers once its first declarations are all made.

        Fails with :class:`~broker.errors.ExtensionError` when the generation ends before that.
        """
        outcome = self._waiting.get(owner)
        if outcome is None:
            outcome = Outcome()
            if owner in self._complete:
                outcome.succeed(self._of(owner))
            else:
                self._waiting[owner] = outcome
        return outcome

    def add_listener(self, listener: Callable[[], object]) -> Callable[[], None]:
        """Call ``listener()`` after every change, in the host's thread; gives what ends it."""
        self._listeners = (*self._listeners, listener)

        def remove() -> None:
            self._listeners = tuple(other for other in self._listeners if other is not listener)

        return remove

    # -- changes -------------------------------------------------------------------------------------------------------

    def register(
        self, owner: Principal, provider: ProviderDefinition, models: Sequence[ProviderModelDefinition]
    ) -> ProviderCatalogResult:
        """Declare a provider that is new, or that an older generation of the same instance has.

        Raises ``invalid_params`` for faults of the declaration and for an id that is taken, ``resource_exhausted`` for
        a bound of the whole registry.
        """
        self._check(provider, models)
        held = self._providers.get(provider.id)
        if held is not None and (
            held.owner.instance_id != owner.instance_id or held.owner.generation >= owner.generation
        ):
            who = "the caller" if held.owner == owner else "another"
            raise InvalidParamsError(f"provider {quote(provider.id)} is {who}'s already", path="provider.id")
        return self._put(owner, provider, models, held)

    def update(
        self, owner: Principal, provider: ProviderDefinition, models: Sequence[ProviderModelDefinition]
    ) -> ProviderCatalogResult:
        """Replace a declaration and all its models; it must be of the same instance and of no newer generation.

        The state of authorisation stays when what is required stays. Raises as :meth:`register`.
        """
        self._check(provider, models)
        held = self._providers.get(provider.id)
        if held is None or held.owner.instance_id != owner.instance_id or held.owner.generation > owner.generation:
            raise InvalidParamsError(f"provider {quote(provider.id)} is not the caller's", path="provider.id")
        return self._put(owner, provider, models, held)

    def unregister(self, owner: Principal, provider_id: str) -> ProviderCatalogResult:
        """Withdraw a declaration; raises ``invalid_params`` unless this very generation made it."""
        self.owned(owner, provider_id)
        self._providers = {key: value for key, value in self._providers.items() if key != provider_id}
        self._changed()
        return ProviderCatalogResult(revision=self._revision, provider_ids=(), model_ids=())

    def complete(self, owner: Principal) -> None:
        """Note that this generation's first declarations are all made. Idempotent; later changes are still made."""
        if owner not in self._complete:
            self._complete.add(owner)
            self._tell()
            waiting = self._waiting.pop(owner, None)
            if waiting is not None:
                waiting.succeed(self._of(owner))

    def withdraw(self, owner: Principal) -> tuple[str, ...]:
        """Remove what exactly this generation declared; gives the ids. Its process is on its way out."""
        self._complete.discard(owner)
        gone = tuple(key for key, value in self._providers.items() if value.owner == owner)
        if gone:
            self._providers = {key: value for key, value in self._providers.items() if value.owner != owner}
            self._changed()
        waiting = self._waiting.pop(owner, None)
        if waiting is not None:
            text = f"{owner.extension} ended before its providers were complete"
            waiting.fail(ExtensionError(text, extension=owner.extension))
        return gone

    def owned(self, owner: Principal, provider_id: str) -> RegisteredProvider:
        """The declaration, if this very generation made it; else raises ``invalid_params``."""
        held = self._providers.get(provider_id)
        if held is None or held.owner != owner:
            raise InvalidParamsError(f"provider {quote(provider_id)} is not the caller's", path="provider_id")
        return held

    def set_status(self, owner: Principal, provider_id: str, required: ProviderAuthRequirement, status: str) -> None:
        """Note a decision about authorisation; raises ``invalid_params`` if what it was about is no longer declared."""
        held = self.owned(owner, provider_id)
        if held.definition.auth != required:
            raise InvalidParamsError(f"provider {quote(provider_id)} was changed meanwhile", path="provider_id")
        if held.status != status:
            self._providers = {**self._providers, provider_id: evolve(held, status=status)}
            self._changed()

    # -- inside --------------------------------------------------------------------------------------------------------

    def _of(self, owner: Principal) -> tuple[RegisteredProvider, ...]:
        return tuple(provider for provider in self.providers if provider.owner == owner)

    def _check(self, provider: ProviderDefinition, models: Sequence[ProviderModelDefinition]) -> None:
        faults = declaration_faults(provider, models)
        if faults:
            refuse(faults, what="provider declaration", error=InvalidParamsError)

    def _put(
        self,
        owner: Principal,
        provider: ProviderDefinition,
        models: Sequence[ProviderModelDefinition],
        held: RegisteredProvider | None,
    ) -> ProviderCatalogResult:
        others = [value for key, value in self._providers.items() if key != provider.id]
        for limit, observed, maximum in (
            ("MAX_PROVIDERS", len(others) + 1, MAX_PROVIDERS),
            ("MAX_PROVIDER_MODELS", sum(len(other.models) for other in others) + len(models), MAX_PROVIDER_MODELS),
        ):
            if observed > maximum:
                raise ResourceExhaustedError(
                    f"provider {quote(provider.id)} does not fit the registry ({limit}: {observed} of {maximum})",
                    limit=limit,
                    observed=observed,
                    maximum=maximum,
                )
        status = READY if provider.auth.kind == "none" else "pending"
        if held is not None and held.owner == owner and held.definition.auth == provider.auth:
            status = held.status
        self._providers = {
            **self._providers,
            provider.id: RegisteredProvider(provider, tuple(models), owner, status),
        }
        self._changed()
        return ProviderCatalogResult(
            revision=self._revision,
            provider_ids=(provider.id,),
            model_ids=tuple(f"{provider.id}/{model.id}" for model in models),
        )

    def _changed(self) -> None:
        self._revision += 1
        self._tell()

    def _tell(self) -> None:
        for listener in self._listeners:
            try:
                listener()
            except KeyboardInterrupt:
                raise
            except BaseException:
                # A watcher's fault must not undo a change or keep the others from hearing of it.
                _LOG.exception("a listener of the provider registry failed")
