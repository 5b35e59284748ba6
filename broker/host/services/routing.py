"""From a session to the processes that provide models: what they declare, and which of them a stream is asked of."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from broker.errors import CapabilityMismatchError, ExtensionError, InvalidParamsError
from broker.host.generation import Generation
from broker.host.outcome import Outcome
from broker.host.services.provider_stream import ProviderStream
from broker.host.services.registry import READY, RegisteredProvider

if TYPE_CHECKING:
    from broker.host.session import Session


def open_stream(
    session: Session,
    provider_id: str,
    model_id: str,
    request: Any,
    *,
    lease: str | None,
    idle_timeout_ms: int | None,
    timeout_ms: int | None,
) -> ProviderStream:
    """Ask a model of an extension; see :meth:`broker.Session.stream` for what is raised."""
    registry = session.services.providers
    found = None if registry is None or type(provider_id) is not str else registry.get(provider_id)
    if found is None or found.model(model_id) is None:
        path = "provider_id" if found is None else "model_id"
        raise InvalidParamsError(f"no model {provider_id!a:.80}/{model_id!a:.80} is provided", path=path)
    extension = session.extensions.get(found.owner.extension)
    if found.owner.session_id != session.session_id or extension is None:
        raise CapabilityMismatchError(f"provider {provider_id} belongs to another session", path="provider_id")
    if found.status != READY:
        raise CapabilityMismatchError(f"provider {provider_id} is {found.status}, not ready", path="provider_id")
    for generation in extension.generations:
        if isinstance(generation, Generation) and generation.number == found.owner.generation and generation.alive:
            return generation.desk.streams.open(
                provider_id,
                model_id,
                request,
                lease=lease,
                idle_ms=session.settings.stream_idle_ms if idle_timeout_ms is None else idle_timeout_ms,
                total_ms=session.settings.stream_total_ms if timeout_ms is None else timeout_ms,
            )
    raise ExtensionError(f"{extension.name} does not serve: it is {extension.health.value}", extension=extension.name)


def declared_providers(session: Session, name: str) -> Outcome[tuple[RegisteredProvider, ...]]:
    """What an extension provides, once it has said that it is all; see :meth:`broker.Session.providers`."""
    extension, registry = session.extension(name), session.services.providers
    generation = extension.generation
    if generation is None or not generation.alive:
        raise ExtensionError(f"{name} does not serve: it is {extension.health.value}", extension=name)
    selection = generation.connection.selection if isinstance(generation, Generation) else None
    if (
        registry is None
        or not isinstance(generation, Generation)
        or selection is None
        or "providers/complete" not in selection.methods
    ):
        raise CapabilityMismatchError(f"{name} does not say when its providers are complete", extension=name)
    return registry.completion(generation.principal)
