"""Which process a stream is asked of: the generation that declared the provider, of this very session."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from broker.errors import CapabilityMismatchError, ExtensionError, InvalidParamsError
from broker.host.generation import Generation
from broker.host.services.provider_stream import ProviderStream
from broker.host.services.registry import READY

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
