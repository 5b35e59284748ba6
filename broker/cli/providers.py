"""Providers in ``broker run``: which are declared, and streams asked of them.

Their records have the ``kind`` provided, withdrawn or answer.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from broker.adapters.aio import AsyncSession
from broker.cli.views import View
from broker.errors import BrokerError, ResourceExhaustedError
from broker.host import ProviderRegistry, RegisteredProvider
from broker.limits import MAX_SHOWN_ANSWER_CHARS
from broker.wire.octet.stream_models import TextDelta


def watch(registry: ProviderRegistry, show: Callable[[dict[str, Any]], None]) -> None:
    """Show every declaration that is new, changed or gone, as it happens."""
    known: dict[str, RegisteredProvider] = {}

    def changed() -> None:
        now = {provider.id: provider for provider in registry.providers}
        for provider_id in sorted(known.keys() - now.keys()):
            show(withdrawn(known[provider_id]))
        for provider_id, provider in now.items():
            if known.get(provider_id) != provider:
                show(provided(provider))
        known.clear()
        known.update(now)

    registry.add_listener(changed)


async def ask(session: AsyncSession, view: View, provider: str, model: str, request: Any) -> bool:
    """Ask a model and show what it says, once it has said all; whether it succeeded.

    An answer of more than 1048576 characters fails, and is cancelled.
    """
    text = ""
    try:
        async with session.stream(provider, model, request) as stream:
            async for event in stream:
                if isinstance(event, TextDelta):
                    text += event.delta
                if len(text) > MAX_SHOWN_ANSWER_CHARS:
                    raise ResourceExhaustedError(
                        f"the answer of {provider}/{model} is too long to show",
                        limit="MAX_SHOWN_ANSWER_CHARS",
                        observed=len(text),
                        maximum=MAX_SHOWN_ANSWER_CHARS,
                    )
    except BrokerError as error:
        view.show(stream_failed(provider, model, text[:MAX_SHOWN_ANSWER_CHARS], error))
        return False
    view.show(streamed(provider, model, text))
    return True


def provided(provider: RegisteredProvider) -> dict[str, Any]:
    """The record of a provider that was declared or has changed."""
    return {
        "kind": "provided",
        "provider": provider.id,
        "extension": provider.owner.extension,
        "generation": provider.owner.generation,
        "status": provider.status,
        "models": [model.id for model in provider.models],
    }


def withdrawn(provider: RegisteredProvider) -> dict[str, Any]:
    """The record of a provider that is gone."""
    return {"kind": "withdrawn", "provider": provider.id, "extension": provider.owner.extension}


def streamed(provider: str, model: str, text: str) -> dict[str, Any]:
    """The record of a stream that went well."""
    return {"kind": "answer", "provider": provider, "model": model, "ok": True, "text": text}


def stream_failed(provider: str, model: str, text: str, error: BrokerError) -> dict[str, Any]:
    """The record of a stream that failed; ``text`` came before."""
    shown = {"name": error.name, "code": error.code, "message": error.message, "detail": str(error)}
    return {"kind": "answer", "provider": provider, "model": model, "ok": False, "text": text, "error": shown}
