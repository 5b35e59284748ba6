"""Models that an extension provides (0.3): an async generator becomes the events of a provider stream.

The first payload is awaited before the stream is accepted, so that a generator can refuse by raising. Source: octet
reference, models ``ProviderStream*``; octet notes, section 4.6.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from typing import TYPE_CHECKING, Any, Final

from broker.errors import BrokerError, ResourceExhaustedError
from broker.extension.handlers import Handler
from broker.extension.logs import describe_failure
from broker.extension.results import ToolFailureError
from broker.extension.scope import CURRENT, Scope
from broker.extension.workers import is_closed, was_cancelled
from broker.limits import MAX_PROVIDER_STREAM_EVENTS, MAX_REFUSAL_CHARS
from broker.wire.octet.schema import decode, encode
from broker.wire.octet.stream_models import (
    PAYLOADS,
    TERMINAL_KINDS,
    ProviderStreamEvent,
    ProviderStreamRequest,
    StreamPayload,
)
from broker.wire.quoting import scalar

if TYPE_CHECKING:
    from broker.extension.calls import CallTable
    from broker.extension.runtime import Runtime

_KINDS: Final = {payload: kind for kind, payload in PAYLOADS.items()}


async def accept(
    runtime: Runtime, calls: CallTable, handler: Handler, request: ProviderStreamRequest
) -> dict[str, Any]:
    """Start the stream; the result of ``provider/stream``."""
    CURRENT.set(Scope(runtime))
    payloads = handler.function(request)
    try:
        first = await anext(payloads, None)
    except (BrokerError, ToolFailureError) as error:
        reason = scalar(str(error)[:MAX_REFUSAL_CHARS])
        return {"stream_id": request.stream_id, "accepted": False, "reason": reason}
    begun = asyncio.Event()
    feeding = runtime.spawn(_feed(runtime, handler.name, request, first, payloads, begun))
    try:
        # A task that is cancelled before its first step would leave the generator open.
        await begun.wait()
    except asyncio.CancelledError:
        feeding.cancel()
        if not begun.is_set():
            await payloads.aclose()
        raise
    calls.add_stream(request.stream_id, feeding)
    return {"stream_id": request.stream_id, "accepted": True}


async def _feed(
    runtime: Runtime,
    name: str,
    request: ProviderStreamRequest,
    first: StreamPayload | None,
    payloads: AsyncGenerator[StreamPayload, None],
    begun: asyncio.Event,
) -> None:
    sequence = 0
    ended = False

    def send(kind: str, payload: dict[str, Any]) -> None:
        nonlocal sequence, ended
        event = {"stream_id": request.stream_id, "sequence": sequence, "kind": kind, "payload": payload}
        decode(ProviderStreamEvent, event, what=f"event {kind} of {name}")
        runtime.notify("provider/event", event)
        sequence += 1
        ended = kind in TERMINAL_KINDS

    task = asyncio.current_task()
    begun.set()
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
            if ended:
                break
            payload = await anext(payloads, None)
        if not ended:
            runtime.log(f"{name} ended without Finished")
            send("error", {"message": "the stream ended early"})
    except KeyboardInterrupt:
        raise
    except BaseException as error:
        if isinstance(error, GeneratorExit) and is_closed(task):
            raise
        if isinstance(error, asyncio.CancelledError) and was_cancelled():
            raise
        runtime.log(describe_failure(name, error))
        if not ended and not runtime.connection.closed:
            send("error", {"message": type(error).__name__})
    finally:
        await payloads.aclose()
