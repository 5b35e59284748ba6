"""Models that an extension provides (0.3): an async generator becomes the events of a provider stream.

The first payload is awaited before the stream is accepted, so that a generator can refuse by raising. Source: octet
reference, models ``ProviderStream*``; octet notes, section 4.6.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Callable
from typing import TYPE_CHECKING, Any, Final

from broker.errors import BrokerError, ResourceExhaustedError
from broker.extension.handlers import Handler
from broker.extension.logs import describe_failure
from broker.extension.results import ToolFailureError
from broker.extension.scope import CURRENT, Scope
from broker.limits import MAX_PROVIDER_STREAM_EVENTS, MAX_REFUSAL_CHARS
from broker.wire.octet.schema import decode, encode
from broker.wire.octet.stream_models import (
    PAYLOADS,
    TERMINAL_KINDS,
    ProviderStreamEvent,
    ProviderStreamRequest,
    StreamPayload,
)

if TYPE_CHECKING:
    from broker.extension.calls import CallTable
    from broker.extension.runtime import Runtime

_KINDS: Final = {payload: kind for kind, payload in PAYLOADS.items()}


async def accept(
    runtime: Runtime, calls: CallTable, handler: Handler, request: ProviderStreamRequest
) -> dict[str, Any]:
    """Start the stream; the result of ``provider/stream``."""
    CURRENT.set(Scope(runtime))
    payloads = _sent(handler.function, request)
    try:
        first = await anext(payloads, None)
    except (BrokerError, ToolFailureError) as error:
        return {"stream_id": request.stream_id, "accepted": False, "reason": str(error)[:MAX_REFUSAL_CHARS]}
    calls.add_stream(request.stream_id, runtime.spawn(_feed(runtime, handler.name, request, first, payloads)))
    return {"stream_id": request.stream_id, "accepted": True}


async def _feed(
    runtime: Runtime,
    name: str,
    request: ProviderStreamRequest,
    first: StreamPayload | None,
    payloads: AsyncGenerator[StreamPayload, None],
) -> None:
    sequence, kind = 0, ""

    def send(kind: str, payload: dict[str, Any]) -> None:
        nonlocal sequence
        event = {"stream_id": request.stream_id, "sequence": sequence, "kind": kind, "payload": payload}
        decode(ProviderStreamEvent, event, what=f"event {kind} of {name}")
        runtime.notify("provider/event", event)
        sequence += 1

    try:
        # The acceptance is written before the first event.
        await asyncio.sleep(0)
        payload = first
        while payload is not None:
            if sequence >= MAX_PROVIDER_STREAM_EVENTS - 1:
                raise ResourceExhaustedError(f"{name} gave more than {MAX_PROVIDER_STREAM_EVENTS} events")
            kind = _KINDS.get(type(payload), "")
            if not kind:
                raise TypeError(f"a stream yields payloads of broker.wire.octet.stream_models, not {type(payload)}")
            send(kind, encode(payload))
            # A host that is slow slows the model down, instead of having all of it wait here.
            await runtime.drained()
            if kind in TERMINAL_KINDS:
                break
            payload = await anext(payloads, None)
        if kind not in TERMINAL_KINDS:
            runtime.log(f"{name} ended without Finished")
            send("error", {"message": "the stream ended early"})
    except asyncio.CancelledError:
        raise
    except BaseException as error:
        runtime.log(describe_failure(name, error))
        if kind not in TERMINAL_KINDS and not runtime.connection.closed:
            send("error", {"message": type(error).__name__})
    finally:
        await payloads.aclose()


async def _sent(
    function: Callable[[ProviderStreamRequest], AsyncGenerator[StreamPayload, None]], request: ProviderStreamRequest
) -> AsyncGenerator[StreamPayload, None]:
    async for payload in function(request):
        yield payload
