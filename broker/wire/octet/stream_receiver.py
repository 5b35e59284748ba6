"""The order of one provider stream's events, judged as they come. Sans-IO, and without a clock.

Source: octet reference, model ``ProviderStreamEvent`` and bound ``max_provider_stream_events``; octet notes, section
4.6; design, decision 7.
"""

from __future__ import annotations

from broker.errors import StreamError
from broker.limits import MAX_PROVIDER_STREAM_EVENTS
from broker.wire.octet.schema import check, decode
from broker.wire.octet.stream_models import PAYLOADS, TERMINAL_KINDS, ProviderStreamEvent, StreamPayload


class StreamReceiver:
    """Takes the events of one stream: contiguous from 0, the last one terminal, each with the payload of its kind.

    The first fault ends it: :meth:`receive` raises and must not be called again.
    """

    __slots__ = ("_next", "finished", "stream_id")

    def __init__(self, stream_id: str) -> None:
        self.stream_id: str = stream_id
        self._next = 0
        self.finished: bool = False

    @property
    def received(self) -> int:
        """Events taken so far."""
        return self._next

    def receive(self, event: ProviderStreamEvent) -> StreamPayload | None:
        """The payload for the reader; ``None`` for a heartbeat.

        Raises :class:`~broker.errors.StreamError`: with the reason ``failed`` for the terminal event ``error``, whose
        payload is not looked at, and ``fault`` for an event that is out of order, one too many, after the terminal one,
        or whose payload has another shape than its kind's.
        """
        if self.finished:
            raise self._fault(f"event {event.sequence} after the terminal one")
        if event.sequence != self._next:
            how = "a gap" if event.sequence > self._next else "a duplicate"
            raise self._fault(f"{how} in its events: {event.sequence} instead of {self._next}")
        if self._next >= MAX_PROVIDER_STREAM_EVENTS:
            raise StreamError(
                f"provider stream {self.stream_id}: too many events",
                reason="fault",
                stream_id=self.stream_id,
                name="resource_exhausted",
                limit="MAX_PROVIDER_STREAM_EVENTS",
                observed=self._next + 1,
                maximum=MAX_PROVIDER_STREAM_EVENTS,
            )
        self._next += 1
        self.finished = event.kind in TERMINAL_KINDS
        if event.kind == "error":
            raise StreamError(
                f"provider stream {self.stream_id}: the provider reported an error",
                name="internal_error",
                reason="failed",
                stream_id=self.stream_id,
            )
        model = PAYLOADS.get(event.kind)
        if model is None:
            return None
        faults = check(model, event.payload, "payload")
        if faults:
            raise self._fault(f"event {event.sequence} ({event.kind}): {faults[0]}")
        payload: StreamPayload = decode(model, event.payload)
        return payload

    def _fault(self, problem: str) -> StreamError:
        return StreamError(f"provider stream {self.stream_id}: {problem}", reason="fault", stream_id=self.stream_id)
