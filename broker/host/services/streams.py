"""The provider streams of one process generation: their requests, deadlines, buffers, and what ends each of them once.

A stream is *live* from its request until it is over on the wire and its reader has come to the end; then it is
remembered for a while, so that late events of it are known for what they are. Source: octet reference, models
``ProviderStream*``; octet notes, section 4.6; design, decision 7.
"""

from __future__ import annotations

from collections import OrderedDict
from typing import TYPE_CHECKING, Any

from broker.errors import (
    BrokerError,
    CancelledError,
    CanonicalError,
    InvalidParamsError,
    ResourceExhaustedError,
    ResultError,
    StreamError,
    TimedOutError,
)
from broker.host.services.provider_stream import LiveStream, PastStream, ProviderStream
from broker.host.services.registry import READY
from broker.limits import (
    MAX_PROVIDER_STREAM_BUFFER,
    MAX_PROVIDER_STREAM_MEMORY,
    PROVIDER_STREAM_MEMORY_MS,
)
from broker.wire.jsonrpc import ABSENT
from broker.wire.octet.schema import Text, check, decode, refuse
from broker.wire.octet.settings import check_duration
from broker.wire.octet.stream_models import (
    ProviderStreamAccepted,
    ProviderStreamEvent,
    ProviderStreamRequest,
    decode_stream_accepted,
)
from broker.wire.octet.stream_receiver import StreamReceiver
from broker.wire.quoting import escape, quote
from broker.wire.requests import HostRequest

if TYPE_CHECKING:
    from broker.host.generation import Generation


class StreamTable:
    """See the module's text. Used by :class:`~broker.host.generation.Generation`."""

    def __init__(self, generation: Generation) -> None:
        self._generation = generation
        self._live: dict[str, LiveStream] = {}
        self._past: OrderedDict[str, PastStream] = OrderedDict()
        self._count = 0
        self.unbounded: bool = False  # the process is gone: what it wrote is read to its end, whoever takes it

    # -- the host's side -----------------------------------------------------------------------------------------------

    @property
    def busy(self) -> bool:
        """Whether any stream is not over on the wire."""
        return any(not live.over for live in self._live.values())

    def open(
        self,
        provider_id: str,
        model_id: str,
        request: Any,
        *,
        lease: str | None,
        idle_ms: int,
        total_ms: int,
    ) -> ProviderStream:
        """Ask for a stream; see :meth:`broker.Session.stream`."""
        check_duration("idle_timeout_ms", idle_ms, method="provider/stream")
        check_duration("timeout_ms", total_ms, method="provider/stream")
        if request is None:
            raise InvalidParamsError("request: null is not allowed", path="request")
        self._count += 1
        stream_id = f"provider-{self._generation.number}-{self._count}"
        params = {
            "stream_id": stream_id,
            "provider_id": provider_id,
            "model_id": model_id,
            "request": request,
            **({} if lease is None else {"authorization_lease": lease}),
        }
        decode(ProviderStreamRequest, params, what="params of provider/stream")
        stream = ProviderStream(self, stream_id, provider_id, model_id)
        now = self._now()
        live = LiveStream(stream, StreamReceiver(stream_id), idle_ms, total_ms, now, now)
        self._live[stream_id] = live
        try:
            live.request = self._generation.connection.request(
                "provider/stream",
                params,
                timeout_ms=min(idle_ms, total_ms),
                decode=decode_stream_accepted,
                on_settled=lambda settled: self._answered(live, settled),
            )
        except CanonicalError as error:
            del self._live[stream_id]
            raise InvalidParamsError(
                f"request has no canonical form: {error}", path=error.path, limit=error.limit
            ) from error
        except BrokerError:
            del self._live[stream_id]
            raise
        self._generation.session.changed()
        return stream

    def cancel(self, stream: ProviderStream, reason: str) -> None:
        """The reader wants no more of it."""
        faults = check(Text("MAX_REASON_BYTES"), reason, "reason")
        if faults:
            refuse(faults, what="cancel", error=InvalidParamsError)
        live = self._live.get(stream.id)
        if live is not None:
            self._end(live, CancelledError(f"provider stream {stream.id} was cancelled", reason=reason), tell=reason)
            self._forget(live)

    def taken(self, stream: ProviderStream, *, was_full: bool) -> None:
        """The reader took an event."""
        live = self._live.get(stream.id)
        if live is None:
            return
        if was_full:
            if live.full_since_ms is not None:
                live.stalled_ms += self._now() - live.full_since_ms
                live.full_since_ms = None
            self._generation.session.changed()
        if not stream.buffered:
            live.stalled_ms = 0
            if live.over:
                self._forget(live)

    def cancel_all(self, reason: str) -> None:
        """End every stream; the generation is being stopped, or its time to drain is over."""
        for live in list(self._live.values()):
            self._end(live, CancelledError(f"provider stream {live.stream.id}: {reason}", reason=reason), tell=reason)

    def fail_all(self, error: BrokerError) -> None:
        """The process is broken or gone: every stream ends with a copy of ``error``."""
        for live in list(self._live.values()):
            self._end(live, error.copied(), tell=None)
        self._live.clear()
        self._past.clear()

    # -- what the wire brings ------------------------------------------------------------------------------------------

    @property
    def blocked(self) -> bool:
        """Whether the process's output must stay unread for now, as a stream has no room for what may come next."""
        if not self._live or self.unbounded:
            return False
        return any(live.full_since_ms is not None for live in self._live.values())

    def overflow(self) -> None:
        """More has come than may be kept unread: the readers of full streams had their time."""
        for live in list(self._live.values()):
            if live.full_since_ms is not None:
                self._overrun(live)

    def receive(self, event: ProviderStreamEvent) -> None:
        """One event, its shape checked."""
        live = self._live.get(event.stream_id)
        if live is None:
            self._stray(event.stream_id, f"event {event.sequence}")
            return
        if live.over:
            self._after_the_end(live, event)
            return
        live.heard_ms = self._now()
        if event.kind != "heartbeat" and live.stream.full and not self.unbounded:
            self._overrun(live)
            return
        try:
            payload = live.receiver.receive(event)
        except StreamError as error:
            self._end(live, error, tell=None if error.reason == "failed" else "fault")
            return
        if payload is not None:
            live.stream.put(payload)
        if live.receiver.finished:
            live.full_since_ms = None
            if live.stream.accepted.done:
                live.stream.close()
        else:
            self._note_full(live)

    def faulted(self, stream_id: str, cause: BrokerError) -> None:
        """An event of this stream with parameters that are wrong."""
        live = self._live.get(stream_id)
        if live is None or live.over:
            self._stray(stream_id, str(cause))
            return
        error = StreamError(
            f"provider stream {stream_id}: {cause}",
            reason="fault",
            stream_id=stream_id,
            name=cause.name,
            path=cause.path,
            limit=cause.limit,
            observed=cause.observed,
            maximum=cause.maximum,
            faults=cause.faults,
        )
        self._end(live, error, tell="fault")

    # -- time ----------------------------------------------------------------------------------------------------------

    def tick(self) -> None:
        """Let every deadline that has passed act."""
        now = self._now()
        for live in list(self._live.values()):
            if live.over:
                if now >= live.started_ms + live.total_ms:
                    self._forget(live)
            elif (due := self._full_due(live)) is not None and now >= due:
                self._overrun(live)
            elif now >= live.started_ms + live.total_ms:
                self._expire(live, "is too old", now - live.started_ms, live.total_ms, "deadline")
            elif live.stream.accepted.done and now >= live.heard_ms + live.idle_ms:
                self._expire(live, "had no event in time", now - live.heard_ms, live.idle_ms, "idle")
        while self._past:
            stream_id, past = next(iter(self._past.items()))
            if now <= past.ended_ms + PROVIDER_STREAM_MEMORY_MS:
                break
            del self._past[stream_id]

    def next_deadline(self) -> int | None:
        """The earliest monotonic millisecond at which :meth:`tick` has something to do."""
        due: list[int] = []
        for live in self._live.values():
            due.append(live.started_ms + live.total_ms)
            if not live.over:
                full = self._full_due(live)
                due += [] if full is None else [full]
                due += [live.heard_ms + live.idle_ms] if live.stream.accepted.done else []
        return min(due, default=None)

    # -- inside --------------------------------------------------------------------------------------------------------

    def _now(self) -> int:
        return self._generation.session.clock.monotonic_ms()

    def _full_due(self, live: LiveStream) -> int | None:
        if live.full_since_ms is None:
            return None
        return live.full_since_ms + max(0, self._generation.session.settings.stream_full_ms - live.stalled_ms)

    def _note_full(self, live: LiveStream) -> None:
        if live.stream.full and live.stream.accepted.done and live.full_since_ms is None:
            live.full_since_ms = self._now()

    def _answered(self, live: LiveStream, request: HostRequest) -> None:
        """The request settled; unless the stream ended before, that decides whether it is accepted."""
        if live.over:
            return
        if request.error is not None:
            self._end(live, request.error, tell="timeout" if isinstance(request.error, TimedOutError) else None)
            return
        answer: ProviderStreamAccepted = request.result
        stream = live.stream
        if answer.stream_id != stream.id:
            detail = f"provider stream {stream.id}: the answer is about {quote(answer.stream_id)}"
            self._end(live, ResultError(detail, path="stream_id"), tell="fault")
        elif not answer.accepted:
            why = "" if answer.reason is ABSENT else f": {escape(answer.reason)}"
            error = StreamError(
                f"provider stream {stream.id} was refused{why}",
                reason="refused",
                stream_id=stream.id,
                name="capability_mismatch",
            )
            self._end(live, error, tell=None)
        elif not self._still_routed(stream):
            error = StreamError(
                f"provider stream {stream.id}: {stream.provider_id}/{stream.model_id} changed hands meanwhile",
                reason="withdrawn",
                stream_id=stream.id,
                name="capability_mismatch",
            )
            self._end(live, error, tell="withdrawn")
        else:
            live.heard_ms = self._now()
            stream.accepted.succeed(None)
            if live.receiver.finished:
                stream.close()
            else:
                self._note_full(live)
                stream.tell()

    def _still_routed(self, stream: ProviderStream) -> bool:
        registry = self._generation.session.services.providers
        found = None if registry is None else registry.get(stream.provider_id)
        return (
            found is not None
            and found.owner == self._generation.principal
            and found.status == READY
            and found.model(stream.model_id) is not None
        )

    def _end(self, live: LiveStream, error: BrokerError, *, tell: str | None) -> None:
        """The stream is over on the wire, unless it was already; ``tell`` is the reason its provider is given."""
        if live.over:
            return
        error.extension = error.extension or self._generation.name
        live.full_since_ms = None
        request = live.request
        open_request = request is not None and not request.settled
        live.stream.close(error)
        # A request whose frame never left needs no cancel of the stream it did not open.
        if tell is not None and request is not None and request.dispatched:
            self._tell(live.stream.id, tell)
        if open_request and request is not None:
            self._generation.connection.cancel(request, tell or "stream ended")
        if not live.stream.buffered:
            self._forget(live, told=True)
        else:
            self._remember(live.stream.id, told=True)
        self._generation.session.changed()

    def _forget(self, live: LiveStream, *, told: bool = False) -> None:
        if self._live.pop(live.stream.id, None) is not None and live.stream.id not in self._past:
            self._remember(live.stream.id, told=told)

    def _remember(self, stream_id: str, *, told: bool) -> PastStream:
        past = self._past[stream_id] = PastStream(self._now(), told)
        if len(self._past) > MAX_PROVIDER_STREAM_MEMORY:
            self._past.popitem(last=False)
        return past

    def _overrun(self, live: LiveStream) -> None:
        error = ResourceExhaustedError(
            f"provider stream {live.stream.id}: its reader left {live.stream.buffered} events untaken",
            limit="MAX_PROVIDER_STREAM_BUFFER",
            observed=live.stream.buffered + 1,
            maximum=MAX_PROVIDER_STREAM_BUFFER,
        )
        self._end(live, error, tell="backpressure")

    def _expire(self, live: LiveStream, problem: str, observed: int, maximum: int, reason: str) -> None:
        error = TimedOutError(
            f"provider stream {live.stream.id} {problem}", dispatched=True, observed=observed, maximum=maximum
        )
        self._end(live, error, tell=reason)

    def _after_the_end(self, live: LiveStream, event: ProviderStreamEvent) -> None:
        """An event of a stream that is over, while its reader is still busy with it."""
        if live.receiver.finished:
            try:
                live.receiver.receive(event)
            except StreamError as error:
                live.stream.spoil(error)
        self._stray(live.stream.id, f"event {event.sequence}")

    def _stray(self, stream_id: str, what: str) -> None:
        """Something about a stream that is not live: ignored if the host ended it, else the provider's fault."""
        past = self._past.get(stream_id)
        live = self._live.get(stream_id)
        if past is None and live is not None:
            past = self._remember(stream_id, told=False)
        if past is None:
            self._generation.connection.drop_notification(f"provider/event of no stream {quote(stream_id)}: {what}")
        elif not past.told:
            past.told = True
            self._tell(stream_id, "fault")
            self._generation.diagnose(f"provider stream {stream_id} went on after its end: {what}")

    def _tell(self, stream_id: str, reason: str) -> None:
        params = {"stream_id": stream_id, "reason": reason}
        try:
            sent = self._generation.connection.notify("provider/cancel", params)
        except BrokerError as error:
            self._generation.diagnose(f"provider/cancel of {stream_id} could not be sent: {error}")
        else:
            if not sent:
                self._generation.diagnose(f"provider/cancel of {stream_id} was dropped: the extension does not read")
