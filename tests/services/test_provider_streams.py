"""Provider streams: acceptance, order, deadlines, back-pressure, cancel, and one end for each."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from service_scripts import declaration
from telling import ask, start

from broker import canonical
from broker.errors import (
    BrokerError,
    CancelledError,
    CapabilityMismatchError,
    ExitedError,
    ExtensionError,
    InvalidParamsError,
    RemoteError,
    ResourceExhaustedError,
    ResultError,
    StreamError,
    TimedOutError,
    UsageError,
)
from broker.host import Health, HostServices, ProviderRegistry, ProviderStream
from broker.wire.jsonrpc import ABSENT
from broker.wire.octet.stream_models import Finished, StreamStarted, TextDelta, TextStart, Usage

CAPABILITIES = ("provider_catalog", "provider_stream")
ASK = {"messages": [{"role": "user", "content": "hello"}]}


class Streams:
    """A session with one provider that is told what to say."""

    def __init__(self, told: Any, **settings: Any) -> None:
        self.registry = ProviderRegistry()
        self.world = told(HostServices(providers=self.registry), restart=False, **settings)
        self.session = self.world.session
        self.extension = start(self.world, *CAPABILITIES, providers=True)
        ask(self.world, self.extension, "providers/register", declaration("acme", "small", "large"))

    def ask(self, **options: Any) -> ProviderStream:
        """Ask for a stream and let the provider hear of it."""
        stream: ProviderStream = self.session.stream("acme", "small", ASK, **options)
        self.world.run()
        return stream

    def accepted(self, **options: Any) -> ProviderStream:
        """A stream that is accepted."""
        stream = self.ask(**options)
        self.answer(stream_id=stream.id, accepted=True)
        assert stream.accepted.done
        return stream

    def answer(self, **result: Any) -> None:
        """The provider answers the last request."""
        (*_, request) = (m for m in self.extension.far.received if m.get("method") == "provider/stream")
        self.extension.far.answer(request["id"], result)
        self.world.run()

    def say(self, stream: ProviderStream, *events: tuple[int, str, Any]) -> None:
        """The provider says all of these at once."""
        for sequence, kind, payload in events:
            params = {"stream_id": stream.id, "sequence": sequence, "kind": kind, "payload": payload}
            self.extension.far.send({"jsonrpc": "2.0", "method": "provider/event", "params": params})
        self.world.run()

    def cancels(self) -> list[Any]:
        """What the provider was told to stop."""
        self.world.run()
        return self.extension.far.params_of("provider/cancel")  # type: ignore[no-any-return]


@pytest.fixture
def make(told: Any) -> Callable[..., Streams]:
    return lambda **settings: Streams(told, **settings)


@pytest.fixture
def streams(told: Any) -> Streams:
    return Streams(told)


def taken(stream: ProviderStream) -> list[Any]:
    """All there is now; the error it ended with comes last."""
    found: list[Any] = []
    try:
        while (event := stream.take()) is not None:
            found.append(event)
    except BrokerError as error:
        found.append(error)
    return found


def deltas(first: int, count: int) -> list[tuple[int, str, Any]]:
    return [(n, "text_delta", {"index": 0, "delta": str(n)}) for n in range(first, first + count)]


@pytest.mark.spec(
    "octet.capability.provider-stream",
    "octet.method.provider-stream",
    "octet.method.provider-event",
    "octet.provider.stream-terminal",
    "octet.provider.stream-sequence",
    "octet.provider.stream-id",
)
def test_a_stream_from_its_request_to_its_end(streams: Streams) -> None:
    stream = streams.ask(lease="lease-1")
    assert streams.extension.far.params_of("provider/stream") == [
        {
            "stream_id": "provider-1-1",
            "provider_id": "acme",
            "model_id": "small",
            "request": ASK,
            "authorization_lease": "lease-1",
        }
    ]
    assert (taken(stream), stream.accepted.done, stream.ended) == ([], False, False)
    streams.answer(stream_id=stream.id, accepted=True)
    streams.say(stream, (0, "started", {"response_id": "r"}), (1, "text_start", {"index": 0}))
    streams.say(stream, (2, "heartbeat", {"anything": None}), (3, "text_delta", {"index": 0, "delta": "hi"}))
    assert taken(stream) == [StreamStarted(response_id="r"), TextStart(index=0), TextDelta(index=0, delta="hi")]
    streams.say(stream, (4, "usage", {"output_tokens": 1}), (5, "finished", {"stop_reason": "stop"}))
    assert (stream.closed, stream.ended) == (True, False)
    usage, finished = taken(stream)
    assert (usage.output_tokens, usage.input_tokens, finished) == (1, ABSENT, Finished(stop_reason="stop"))
    assert isinstance(usage, Usage)
    assert (stream.ended, taken(stream), streams.cancels()) == (True, [], [])
    assert not streams.extension.generation.busy
    stream.cancel()
    assert streams.cancels() == []


@pytest.mark.spec("octet.provider.auth-status")
def test_what_cannot_be_asked_is_refused_before_anything_is_sent(streams: Streams) -> None:
    far = streams.extension
    ask(streams.world, far, "providers/register", declaration("closed", kind="oauth", subject="acme"))
    for provider, model, request, error, path in [
        ("other", "small", ASK, InvalidParamsError, "provider_id"),
        ("acme", "huge", ASK, InvalidParamsError, "model_id"),
        (None, "small", ASK, InvalidParamsError, "provider_id"),
        ("closed", "small", ASK, CapabilityMismatchError, "provider_id"),
        ("acme", "small", None, InvalidParamsError, "request"),
        ("acme", "small", 1.5, InvalidParamsError, None),
        ("acme", "small", {"x": "y" * 1_048_576}, ResourceExhaustedError, None),
    ]:
        with pytest.raises(error) as caught:
            streams.session.stream(provider, model, request)
        if path is not None:
            assert caught.value.path == path
    with pytest.raises(InvalidParamsError) as caught:
        streams.session.stream("acme", "small", ASK, lease="secret with spaces")
    assert "secret" not in str(caught.value)
    elsewhere = streams.world.host.open_session()
    with pytest.raises(CapabilityMismatchError, match="another session"):
        elsewhere.session.stream("acme", "small", ASK)
    streams.world.run()
    assert far.far.params_of("provider/stream") == []
    assert streams.extension.generation.desk.streams.next_deadline() is None


@pytest.mark.parametrize("time", [0, -1, 1.5, "1000", True, float("nan"), 2**53])
@pytest.mark.parametrize("name", ["idle_timeout_ms", "timeout_ms"])
def test_a_time_that_is_none_is_refused_and_leaves_nothing_behind(streams: Streams, name: str, time: Any) -> None:
    with pytest.raises(UsageError, match="must be a whole number") as caught:
        streams.session.stream("acme", "small", ASK, **{name: time})
    assert caught.value.path == name
    assert streams.extension.generation.desk.streams.next_deadline() is None
    with pytest.raises(UsageError, match="must be a whole number"):
        streams.extension.generation.connection.request("provider/stream", {}, timeout_ms=time)
    streams.world.advance(1_000)
    assert not streams.accepted().closed


@pytest.mark.spec("octet.provider.stream-refused")
@pytest.mark.parametrize("reason", [None, "overloaded \x1b[31m"])
def test_a_refusal_is_final(streams: Streams, reason: str | None) -> None:
    stream = streams.ask()
    streams.say(stream, (0, "started", {}))
    streams.answer(stream_id=stream.id, accepted=False, **({} if reason is None else {"reason": reason}))
    (error,) = taken(stream)
    assert isinstance(error, StreamError)
    assert (error.reason, error.name, error.stream_id, error.extension) == (
        "refused",
        "capability_mismatch",
        "provider-1-1",
        "ext",
    )
    assert str(error).isprintable() and ("overloaded" in str(error)) is (reason is not None)
    assert stream.accepted.error is error
    assert len(streams.extension.far.params_of("provider/stream")) == 1
    assert streams.cancels() == []


@pytest.mark.spec("octet.provider.stream-id")
def test_an_acceptance_of_another_stream_is_none(streams: Streams) -> None:
    stream = streams.ask()
    streams.answer(stream_id="provider-1-2", accepted=True)
    (error,) = taken(stream)
    assert isinstance(error, ResultError) and error.path == "stream_id"
    assert streams.cancels() == [{"stream_id": "provider-1-1", "reason": "fault"}]


def test_an_error_answer_and_a_malformed_one_end_the_stream(streams: Streams) -> None:
    first = streams.ask()
    (request,) = (m for m in streams.extension.far.received if m.get("method") == "provider/stream")
    error = {"code": -32603, "message": "internal error"}
    streams.extension.far.send({"jsonrpc": "2.0", "id": request["id"], "error": error})
    streams.world.run()
    second = streams.ask()
    streams.answer(stream_id=second.id, accepted=1)
    assert [type(each) for each in taken(first) + taken(second)] == [RemoteError, ResultError]
    assert streams.extension.health is Health.READY


@pytest.mark.spec("octet.provider.stream-early-events")
def test_events_before_the_acceptance_are_kept_and_not_shown(streams: Streams) -> None:
    stream = streams.ask()
    told: list[int] = []
    stream.set_listener(lambda: told.append(stream.buffered))
    streams.say(stream, (0, "started", {}), *deltas(1, 2), (3, "finished", {"stop_reason": "stop"}))
    assert (taken(stream), stream.closed, told) == ([], False, [])
    streams.answer(stream_id=stream.id, accepted=True)
    assert told == [4]
    assert [type(event) for event in taken(stream)] == [StreamStarted, TextDelta, TextDelta, Finished]
    assert stream.ended


@pytest.mark.spec("octet.provider.stream-buffer")
def test_early_events_have_the_same_bound(streams: Streams) -> None:
    stream = streams.ask()
    streams.say(stream, (0, "started", {}), *deltas(1, 31))
    assert not stream.closed
    streams.say(stream, *deltas(32, 1))
    (error,) = taken(stream)
    assert isinstance(error, ResourceExhaustedError)
    assert streams.cancels() == [{"stream_id": stream.id, "reason": "backpressure"}]


@pytest.mark.spec("octet.provider.stream-sequence", "octet.provider.stream-fault")
@pytest.mark.parametrize(
    ("events", "problem", "kept"),
    [
        ([(1, "started", {})], "a gap in its events: 1 instead of 0", 0),
        ([(0, "started", {}), (2, "text_start", {"index": 0})], "a gap in its events: 2 instead of 1", 1),
        ([(0, "started", {}), (0, "started", {})], "a duplicate in its events: 0 instead of 1", 1),
        ([(0, "started", {"id": 1})], "event 0 (started): payload.'id': is not a known member", 0),
        ([(0, "started", {}), (1, "text_delta", {"index": 0})], "event 1 (text_delta): payload.delta: is missing", 1),
        ([(0, "usage", {"output_tokens": -1})], "event 0 (usage): payload.output_tokens: must be 0 to", 0),
        ([(0, "thinking", {})], "kind: must be one of", 0),
        ([(0, "started", None)], "payload: must not be null", 0),
        ([(0, "started", "x" * 65_535)], "MAX_PROVIDER_STREAM_EVENT_BYTES: observed 65537, maximum 65536", 0),
        ([(-1, "started", {})], "sequence: must be 0 to", 0),
    ],
)
def test_a_fault_fails_that_stream_and_cancels_it_and_the_process_lives(
    streams: Streams, events: list[Any], problem: str, kept: int
) -> None:
    other = streams.accepted()
    stream = streams.accepted()
    streams.say(stream, *events, (9, "finished", {"stop_reason": "stop"}))
    *before, error = taken(stream)
    assert len(before) == kept
    assert isinstance(error, StreamError)
    assert (error.reason, error.extension) == ("fault", "ext")
    assert problem in str(error)
    assert error.name == ("resource_exhausted" if "MAX_" in problem else "invalid_params")
    assert streams.cancels() == [{"stream_id": stream.id, "reason": "fault"}]
    streams.say(other, (0, "finished", {"stop_reason": "stop"}))
    assert taken(other) == [Finished(stop_reason="stop")]
    assert streams.extension.health is Health.READY


@pytest.mark.spec("octet.provider.stream-terminal")
def test_a_reported_error_is_terminal_and_its_text_is_not_shown(streams: Streams) -> None:
    stream = streams.accepted()
    streams.say(stream, (0, "started", {}), (1, "error", {"message": "key sk-123 is wrong"}))
    started, error = taken(stream)
    assert isinstance(error, StreamError) and (error.reason, started) == ("failed", StreamStarted())
    assert "sk-123" not in str(error) + repr(streams.world.notices)
    assert streams.cancels() == []
    with pytest.raises(StreamError):
        stream.take()


@pytest.mark.spec("octet.provider.stream-terminal", "octet.provider.stream-fault")
@pytest.mark.parametrize("read", [True, False])
def test_nothing_follows_the_terminal_event(streams: Streams, read: bool) -> None:
    """While its reader has not come to the end, the stream fails; in any case it is cancelled, once."""
    stream = streams.accepted()
    streams.say(stream, (0, "started", {}), (1, "finished", {"stop_reason": "stop"}))
    before = taken(stream) if read else []
    streams.say(stream, (2, "heartbeat", {}), (3, "finished", {"stop_reason": "stop"}))
    after = taken(stream)
    if read:
        assert ([type(event) for event in before], after) == ([StreamStarted, Finished], [])
    else:
        assert [type(event) for event in after] == [StreamStarted, StreamError]
        assert "after the terminal one" in str(after[-1])
    assert streams.cancels() == [{"stream_id": stream.id, "reason": "fault"}]
    assert streams.extension.health is Health.READY


@pytest.mark.spec("octet.method.provider-cancel", "octet.provider.stream-cancel", "octet.provider.stream-cancelled")
def test_a_cancelled_stream_is_told_once_and_its_late_events_are_ignored(streams: Streams) -> None:
    stream = streams.accepted()
    streams.say(stream, (0, "started", {}), *deltas(1, 3))
    stream.cancel("enough")
    stream.cancel("again")
    assert stream.ended
    (error,) = taken(stream)
    assert isinstance(error, CancelledError) and error.reason == "enough"
    for round_ in range(40):
        streams.say(stream, *deltas(4 + 3 * round_, 3))
    assert streams.cancels() == [{"stream_id": stream.id, "reason": "enough"}]
    assert streams.extension.health is Health.READY
    streams.world.advance(30_000)
    streams.say(stream, *deltas(4, 64))
    assert streams.extension.health is Health.READY
    streams.world.advance(1)
    streams.say(stream, *deltas(4, 64))
    assert streams.extension.health is Health.READY
    streams.say(stream, *deltas(4, 1))
    assert streams.extension.health is not Health.READY
    with pytest.raises(InvalidParamsError):
        streams.session.stream("acme", "small", ASK)


def test_the_reason_of_a_cancel_has_its_bound(streams: Streams) -> None:
    stream = streams.accepted()
    with pytest.raises(InvalidParamsError) as caught:
        stream.cancel("x" * 4_097)
    assert (caught.value.limit, stream.closed) == ("MAX_REASON_BYTES", False)
    stream.cancel("x" * 4_096)
    assert streams.cancels()[0]["reason"] == "x" * 4_096


@pytest.mark.spec("octet.provider.stream-cancel")
def test_a_cancel_while_the_request_is_open_releases_both(streams: Streams) -> None:
    stream = streams.ask()
    stream.cancel("user")
    streams.world.run()
    assert isinstance(stream.accepted.error, CancelledError)
    assert streams.cancels() == [{"stream_id": stream.id, "reason": "user"}]
    (cancel,) = streams.extension.far.params_of("$/cancelRequest")
    assert cancel["reason"] == "user"
    streams.answer(stream_id=stream.id, accepted=True)
    streams.say(stream, (0, "started", {}))
    assert streams.extension.health is Health.READY
    assert [type(event) for event in taken(stream)] == [CancelledError]


def test_a_request_that_never_left_needs_no_cancel(streams: Streams) -> None:
    stream = streams.session.stream("acme", "small", ASK)
    stream.cancel("user")
    streams.world.run()
    for method in ("provider/stream", "provider/cancel", "$/cancelRequest"):
        assert streams.extension.far.params_of(method) == []


@pytest.mark.spec("octet.provider.stream-idle")
def test_a_stream_without_events_is_cancelled_after_its_idle_time(streams: Streams) -> None:
    stream = streams.accepted()
    streams.world.advance(29_999)
    streams.say(stream, (0, "heartbeat", None or {}))
    streams.world.advance(29_999)
    assert not stream.closed
    streams.world.advance(1)
    (error,) = taken(stream)
    assert isinstance(error, TimedOutError)
    assert (error.observed, error.maximum, error.dispatched) == (30_000, 30_000, True)
    assert streams.cancels() == [{"stream_id": stream.id, "reason": "idle"}]


@pytest.mark.spec("octet.provider.stream-idle")
def test_a_stream_is_cancelled_when_it_is_too_old_however_busy(streams: Streams) -> None:
    stream = streams.accepted()
    for number in range(29):
        streams.world.advance(10_000)
        streams.say(stream, (number, "heartbeat", {}))
    assert not stream.closed
    streams.world.advance(9_999)
    assert not stream.closed
    streams.world.advance(1)
    (error,) = taken(stream)
    assert isinstance(error, TimedOutError) and (error.observed, error.maximum) == (300_000, 300_000)
    assert streams.cancels() == [{"stream_id": stream.id, "reason": "deadline"}]


def test_the_deadlines_can_be_chosen_for_one_stream(streams: Streams) -> None:
    idle, total = streams.accepted(idle_timeout_ms=50), streams.accepted(timeout_ms=80)
    streams.world.advance(50)
    assert (idle.closed, total.closed) == (True, False)
    streams.world.advance(30)
    assert total.closed


@pytest.mark.spec("octet.provider.stream-idle", "octet.provider.stream-refused")
def test_an_acceptance_that_does_not_come_ends_the_stream_and_is_not_repeated(streams: Streams) -> None:
    stream = streams.ask(idle_timeout_ms=1_000)
    streams.world.advance(999)
    assert not stream.closed
    streams.world.advance(1)
    (error,) = taken(stream)
    assert isinstance(error, TimedOutError) and error.dispatched
    assert len(streams.extension.far.params_of("provider/stream")) == 1
    assert streams.cancels() == [{"stream_id": stream.id, "reason": "timeout"}]
    assert len(streams.extension.far.params_of("$/cancelRequest")) == 1


@pytest.mark.spec("octet.provider.stream-buffer")
def test_a_reader_that_takes_nothing_loses_the_stream(make: Callable[..., Streams]) -> None:
    """The 33rd event waits a moment for room; then the stream is over, and what was received can still be read."""
    streams = make()
    stream = streams.accepted()
    streams.say(stream, (0, "started", {}), *deltas(1, 40))
    assert (stream.buffered, stream.closed) == (32, False)
    streams.world.advance(999)
    assert not stream.closed
    streams.world.advance(1)
    assert streams.cancels() == [{"stream_id": stream.id, "reason": "backpressure"}]
    *events, error = taken(stream)
    assert len(events) == 32
    assert isinstance(error, ResourceExhaustedError)
    assert (error.limit, error.observed, error.maximum) == ("MAX_PROVIDER_STREAM_BUFFER", 33, 32)
    assert streams.extension.health is Health.READY


@pytest.mark.spec("octet.provider.stream-buffer")
def test_without_a_moment_the_stream_is_cancelled_at_once(make: Callable[..., Streams]) -> None:
    streams = make(stream_full_ms=0)
    stream = streams.accepted()
    streams.say(stream, (0, "started", {}), *deltas(1, 30))
    assert not stream.closed
    streams.say(stream, *deltas(31, 1))
    assert stream.closed
    assert streams.cancels() == [{"stream_id": stream.id, "reason": "backpressure"}]


def test_a_burst_is_no_fault_of_a_reader_that_keeps_up(streams: Streams) -> None:
    stream = streams.accepted()
    found: list[Any] = []
    stream.set_listener(lambda: found.extend(taken(stream)) if stream.buffered >= 32 or stream.closed else None)
    streams.say(stream, *deltas(0, 500), (500, "finished", {"stop_reason": "stop"}))
    assert [event.delta for event in found[:-1]] == [str(n) for n in range(500)]
    assert found[-1] == Finished(stop_reason="stop")
    assert streams.cancels() == []


def test_a_slow_reader_has_one_moment_in_all_until_it_has_caught_up(make: Callable[..., Streams]) -> None:
    streams = make(stream_full_ms=250)
    stream = streams.accepted()
    streams.say(stream, *deltas(0, 400))
    for _ in range(2):
        streams.world.advance(100)
        stream.take()
        streams.world.run()
        assert (stream.buffered, stream.closed) == (32, False)
    taken(stream)
    streams.world.run()
    streams.world.advance(249)
    assert not stream.closed
    taken(stream)
    streams.world.run()
    for _ in range(2):
        streams.world.advance(100)
        stream.take()
        streams.world.run()
    streams.world.advance(49)
    assert not stream.closed
    streams.world.advance(1)
    assert stream.closed


def test_what_comes_while_a_stream_is_full_stays_with_the_process(make: Callable[..., Streams]) -> None:
    streams = make(stream_full_ms=250)
    stream = streams.accepted()
    streams.say(stream, *deltas(0, 32))
    assert not streams.extension.generation.reading
    streams.say(stream, *deltas(32, 100))
    assert (len(streams.extension.far.sent), streams.extension.generation.connection.unread_bytes) == (100, 0)
    stream.take()
    streams.world.run()
    assert (len(streams.extension.far.sent), stream.buffered) == (99, 32)
    streams.world.advance(250)
    assert (len(streams.extension.far.sent), stream.closed) == (0, True)
    assert streams.extension.generation.reading


def test_no_more_is_read_before_what_was_received_has_been(streams: Streams) -> None:
    """Room for one event is no reason to take another chunk: chunks come faster than a reader takes events."""
    stream = streams.accepted()
    generation = streams.extension.generation
    frames = b"".join(
        canonical.encode({
            "jsonrpc": "2.0",
            "method": "provider/event",
            "params": {"stream_id": stream.id, "sequence": n, "kind": kind, "payload": payload},
        })
        + b"\n"
        for n, kind, payload in deltas(0, 40)
    )  # fmt: skip
    generation.receive(frames)
    assert (stream.buffered, generation.reading) == (32, False)
    for taken_so_far in range(1, 9):
        stream.take()
        assert not generation.reading
        streams.world.run()
        assert (stream.buffered, generation.reading) == (32, False)
        assert (generation.connection.unread_bytes == 0) is (taken_so_far == 8)
    stream.take()
    streams.world.run()
    assert (stream.buffered, generation.reading) == (31, True)


def test_a_driver_that_reads_on_all_the_same_fills_no_memory(streams: Streams) -> None:
    stream = streams.accepted()
    streams.say(stream, *deltas(0, 32))
    generation = streams.extension.generation
    params = {"stream_id": stream.id, "sequence": 32, "kind": "heartbeat", "payload": "x" * 60_000}
    frame = canonical.encode({"jsonrpc": "2.0", "method": "provider/event", "params": params}) + b"\n"
    for _ in range(17):
        generation.receive(frame)
    assert not stream.closed
    generation.receive(frame)
    assert stream.closed
    assert generation.connection.unread_bytes == 0
    assert streams.extension.health is Health.READY


@pytest.mark.spec("octet.bound.max-provider-stream-events")
def test_a_stream_has_at_most_100000_events(streams: Streams) -> None:
    stream = streams.accepted()
    table = streams.extension.generation.desk.streams
    live = table._live[stream.id]
    live.receiver._next = 99_999
    streams.say(stream, (99_999, "heartbeat", {}))
    assert not stream.closed
    streams.say(stream, (100_000, "finished", {"stop_reason": "stop"}))
    (error,) = taken(stream)
    assert isinstance(error, StreamError)
    assert (error.name, error.limit, error.observed, error.maximum) == (
        "resource_exhausted",
        "MAX_PROVIDER_STREAM_EVENTS",
        100_001,
        100_000,
    )


def test_events_of_streams_that_never_were_are_dropped_and_counted(streams: Streams) -> None:
    stream = streams.accepted()
    stranger = ProviderStream(None, "provider-9-9", "acme", "small")  # type: ignore[arg-type]
    streams.say(stranger, *deltas(0, 64))
    assert streams.extension.health is Health.READY
    streams.say(stranger, *deltas(0, 1))
    assert streams.extension.health is Health.PARKED
    (error,) = taken(stream)
    assert isinstance(error, BrokerError) and error.limit == "MAX_UNNEGOTIATED_NOTIFICATIONS"


@pytest.mark.parametrize("change", ["unregister", "update", "revoke"])
def test_a_provider_that_changes_before_it_accepts_is_not_read(streams: Streams, change: str) -> None:
    stream = streams.ask()
    if change == "unregister":
        ask(streams.world, streams.extension, "providers/unregister", {"provider_id": "acme"})
    elif change == "update":
        ask(streams.world, streams.extension, "providers/update", declaration("acme", "large"))
    else:
        required = streams.registry.owned(streams.extension.generation.principal, "acme").definition.auth
        streams.registry.set_status(streams.extension.generation.principal, "acme", required, "revoked")
    streams.answer(stream_id=stream.id, accepted=True)
    (error,) = taken(stream)
    assert isinstance(error, StreamError) and error.reason == "withdrawn"
    assert streams.cancels() == [{"stream_id": stream.id, "reason": "withdrawn"}]


def test_a_change_of_the_catalogue_does_not_touch_a_stream_under_way(streams: Streams) -> None:
    stream = streams.accepted()
    ask(streams.world, streams.extension, "providers/unregister", {"provider_id": "acme"})
    streams.say(stream, (0, "finished", {"stop_reason": "stop"}))
    assert taken(stream) == [Finished(stop_reason="stop")]
    with pytest.raises(InvalidParamsError):
        streams.session.stream("acme", "small", ASK)


# -- the end of a process ----------------------------------------------------------------------------------------------


def test_a_crash_ends_every_stream_once_with_an_error_of_its_own(streams: Streams) -> None:
    asked, open_ = streams.ask(), streams.accepted()
    streams.say(open_, (0, "started", {}))
    told: list[str] = []
    for stream in (asked, open_):
        stream.set_listener(lambda stream=stream: told.append(stream.id))  # type: ignore[misc]
    streams.extension.far.exit(-9)
    streams.world.run()
    assert told == [asked.id, open_.id]
    (first,), (started, second) = taken(asked), taken(open_)
    assert isinstance(first, ExitedError) and isinstance(second, ExitedError) and started == StreamStarted()
    assert first is not second and (first.status, second.status) == (-9, -9)
    assert asked.ended and open_.ended
    with pytest.raises(InvalidParamsError):
        streams.session.stream("acme", "small", ASK)


def test_what_a_process_wrote_before_its_end_is_read(streams: Streams) -> None:
    stream = streams.accepted()
    streams.extension.far.exit(0)
    streams.say(stream, *deltas(0, 100), (100, "finished", {"stop_reason": "stop"}))
    events = taken(stream)
    assert (len(events), events[-1]) == (101, Finished(stop_reason="stop"))


def test_a_stop_cancels_the_streams_and_then_shuts_down(streams: Streams) -> None:
    asked, open_ = streams.ask(), streams.accepted()
    streams.world.settle(streams.extension.stop())
    for stream in (asked, open_):
        (error,) = taken(stream)
        assert isinstance(error, CancelledError) and error.reason == "shutdown"
    methods = [m.get("method") for m in streams.extension.far.received][-4:]
    assert methods == ["provider/cancel", "$/cancelRequest", "provider/cancel", "shutdown"]
    assert streams.registry.providers == ()


def test_a_reload_lets_a_stream_finish_on_the_old_generation(streams: Streams) -> None:
    stream = streams.accepted()
    older = streams.extension.far
    streams.world.settle(streams.extension.reload())
    newer, streams.extension.far = streams.extension.far, older
    assert (len(streams.extension.generations), stream.closed) == (2, False)
    streams.say(stream, (0, "started", {}), (1, "finished", {"stop_reason": "stop"}))
    assert [type(event) for event in taken(stream)] == [StreamStarted, Finished]
    assert older.exit_status == 0
    assert len(streams.extension.generations) == 1
    streams.extension.far = newer
    with pytest.raises(InvalidParamsError):
        streams.session.stream("acme", "small", ASK)
    ask(streams.world, streams.extension, "providers/register", declaration())
    assert streams.accepted().id == "provider-2-1"


def test_a_reload_ends_a_stream_that_takes_too_long(streams: Streams) -> None:
    stream = streams.accepted()
    older = streams.extension.far
    streams.world.settle(streams.extension.reload())
    streams.world.advance(4_999)
    assert not stream.closed
    streams.world.advance(1)
    (error,) = taken(stream)
    assert isinstance(error, CancelledError) and error.reason == "reload drain deadline"
    cancels = older.params_of("provider/cancel")
    assert cancels == [{"stream_id": stream.id, "reason": "reload drain deadline"}]
    assert older.exit_status == 0


def test_a_draining_generation_takes_no_new_streams(streams: Streams) -> None:
    streams.accepted()
    streams.world.settle(streams.extension.reload())
    assert [one.owner.generation for one in streams.registry.providers] == [1]
    with pytest.raises((ExtensionError, CapabilityMismatchError)):
        streams.session.stream("acme", "small", ASK)


def test_closing_the_session_ends_everything(streams: Streams) -> None:
    stream = streams.accepted()
    streams.world.settle(streams.session.close())
    assert [type(each) for each in taken(stream)] == [CancelledError]
    with pytest.raises(UsageError, match="closed"):
        streams.session.stream("acme", "small", ASK)


def test_readers_that_stop_in_turn_keep_no_answer_out(streams: Streams) -> None:
    """What counts is how long the output was left unread, not which of the streams it was left for."""
    ones = [streams.accepted() for _ in range(3)]
    waiting = streams.ask()
    waiting.cancel()
    streams.world.run()
    (*_, request) = (m for m in streams.extension.far.received if m.get("method") == "provider/stream")
    for stream in ones:
        for sequence, kind, payload in deltas(0, 33):
            params = {"stream_id": stream.id, "sequence": sequence, "kind": kind, "payload": payload}
            streams.extension.far.send({"jsonrpc": "2.0", "method": "provider/event", "params": params})
    streams.extension.far.answer(request["id"], {"stream_id": waiting.id, "accepted": False})
    streams.world.run()
    for _ in range(50):
        streams.world.advance(100)
    assert streams.extension.health is Health.READY
    assert [type(taken(stream)[-1]) for stream in ones] == [ResourceExhaustedError] * 3
