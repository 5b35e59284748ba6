"""Frames of the services on a connection without a host: exact bytes out, exact events in, what each fault does."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from broker.errors import CapabilityMismatchError, ProtocolError
from broker.testing import ManualClock
from broker.wire.octet.connection import Connection, Phase
from broker.wire.octet.contract import BINDABLE, build_offer
from broker.wire.octet.events import Closed, Diagnostic, NotificationReceived, RequestReceived, StreamFaulted
from broker.wire.octet.negotiation import Expectation
from broker.wire.octet.provider_models import ProviderCatalogCompleteParams
from broker.wire.octet.session_models import SessionCreateParams, SessionSwitchParams
from broker.wire.octet.stream_models import ProviderStreamEvent

NewWire = Callable[..., Any]
EVENT = {"stream_id": "s", "sequence": 0, "kind": "started", "payload": {}}


@pytest.fixture
def wire(new_wire: NewWire, good_params: Any, good_result: Any) -> Any:
    """A connection whose extension selected every service."""
    made = new_wire()
    made.connection.initialize(good_params(sorted(BINDABLE)), Expectation(tools=("tide",), session_hooks=True))
    made.written()
    result = good_result(hooks=True)
    offer = build_offer(sorted(BINDABLE))
    result["contract"]["capabilities"] = [*offer.required_capabilities, *offer.optional_capabilities]
    result["contract"]["methods"] = [*offer.required_methods, *offer.optional_methods]
    made.receive({"jsonrpc": "2.0", "id": 1, "result": result})
    assert [type(event).__name__ for event in made.events()] == ["Initialized"]
    return made


def notify(wire: Any, method: str, params: Any) -> list[Any]:
    wire.receive({"jsonrpc": "2.0", "method": method, "params": params})
    return list(wire.events())


def test_requests_arrive_as_the_record_of_their_method(wire: Any) -> None:
    for number, (method, params, model) in enumerate(
        [
            ("session/create", {}, SessionCreateParams()),
            ("session/switch", {"session_id": "x"}, SessionSwitchParams(session_id="x")),
        ]
    ):
        wire.receive({"jsonrpc": "2.0", "id": number, "method": method, "params": params})
        (event,) = wire.events()
        assert isinstance(event, RequestReceived)
        assert (event.incoming.method, event.incoming.model) == (method, model)
        wire.connection.answer(event.incoming, {"session_id": "y"})
        assert wire.written() == [b'{"id":%d,"jsonrpc":"2.0","result":{"session_id":"y"}}\n' % number]


def test_notifications_arrive_as_the_record_of_their_method(wire: Any) -> None:
    assert notify(wire, "providers/complete", {}) == [
        NotificationReceived("providers/complete", ProviderCatalogCompleteParams())
    ]
    assert notify(wire, "provider/event", EVENT) == [
        NotificationReceived(
            "provider/event", ProviderStreamEvent(stream_id="s", sequence=0, kind="started", payload={})
        )
    ]


@pytest.mark.spec("octet.provider.stream-fault")
@pytest.mark.parametrize(
    ("params", "path", "row"),
    [
        ({**EVENT, "payload": "x" * 65_535}, "payload", "resource_exhausted"),
        ({**EVENT, "payload": None}, "payload", "invalid_params"),
        ({**EVENT, "kind": "other"}, "kind", "invalid_params"),
        ({**EVENT, "sequence": "0"}, "sequence", "invalid_params"),
        ({**EVENT, "more": 1}, "'more'", "invalid_params"),
        ({"stream_id": "s"}, "sequence", "invalid_params"),
    ],
)
def test_a_wrong_event_of_a_stream_that_can_be_told_is_that_streams_fault(
    wire: Any, params: Any, path: str, row: str
) -> None:
    (event,) = notify(wire, "provider/event", params)
    assert isinstance(event, StreamFaulted)
    assert (event.stream_id, event.error.path, event.error.name) == ("s", path, row)
    assert wire.connection.phase is Phase.READY


@pytest.mark.spec("octet.method.notification-dropped", "octet.method.notification-flood")
@pytest.mark.parametrize(
    ("method", "params"),
    [
        ("provider/event", {**EVENT, "stream_id": ""}),
        ("provider/event", {**EVENT, "stream_id": "x" * 257}),
        ("provider/event", {**EVENT, "stream_id": 1}),
        ("provider/event", [EVENT]),
        ("providers/complete", {"all": 1}),
        ("$/cancelRequest", {}),
        ("provider/cancel", {"stream_id": "s"}),
    ],
)
def test_any_other_wrong_notification_is_dropped_and_counted(wire: Any, method: str, params: Any) -> None:
    for _ in range(64):
        (event,) = notify(wire, method, params)
        assert isinstance(event, Diagnostic) and "dropped notification" in event.text
    assert wire.connection.phase is Phase.READY
    (closed,) = notify(wire, method, params)
    assert isinstance(closed, Closed) and isinstance(closed.error, ProtocolError)
    assert (closed.error.limit, closed.error.observed) == ("MAX_UNNEGOTIATED_NOTIFICATIONS", 65)


def test_what_the_host_finds_useless_counts_as_well(wire: Any) -> None:
    for _ in range(64):
        wire.connection.drop_notification("provider/event of no stream")
    assert len(wire.events()) == 64
    wire.connection.drop_notification("provider/event of no stream")
    assert wire.connection.phase is Phase.CLOSED


@pytest.mark.spec("octet.method.provider-stream", "octet.method.provider-cancel", "octet.method.migration-detect")
def test_what_the_host_sends_is_canonical(wire: Any) -> None:
    stream = {"stream_id": "s", "provider_id": "acme", "model_id": "small", "request": {"b": 1, "a": [True]}}
    wire.connection.request("provider/stream", stream)
    assert wire.connection.notify("provider/cancel", {"stream_id": "s", "reason": "user"})
    wire.connection.request("migration/detect", {"source_root": "/home/ada"})
    assert wire.written() == [
        (
            b'{"id":2,"jsonrpc":"2.0","method":"provider/stream","params":{"model_id":"small","provider_id":"acme",'
            b'"request":{"a":[true],"b":1},"stream_id":"s"}}\n'
        ),
        b'{"jsonrpc":"2.0","method":"provider/cancel","params":{"reason":"user","stream_id":"s"}}\n',
        b'{"id":3,"jsonrpc":"2.0","method":"migration/detect","params":{"source_root":"/home/ada"}}\n',
    ]


@pytest.mark.spec("octet.method.wrong-direction")
@pytest.mark.parametrize("method", ["provider/stream", "migration/detect", "migration/import", "hook/run"])
def test_the_extension_may_not_ask_what_only_the_host_asks(wire: Any, method: str) -> None:
    wire.receive({"jsonrpc": "2.0", "id": 7, "method": method, "params": {}})
    wire.events()
    assert wire.written() == [
        b'{"error":{"code":-32601,"data":{"method":"%b"},"message":"unknown or unnegotiated method"},"id":7,'
        b'"jsonrpc":"2.0"}\n' % method.encode()
    ]


@pytest.mark.parametrize("method", ["session/create", "theme/select", "providers/register", "provider/event"])
def test_the_host_may_not_send_what_only_the_extension_sends(wire: Any, method: str) -> None:
    with pytest.raises(CapabilityMismatchError):
        wire.connection.request(method, {})
    with pytest.raises(CapabilityMismatchError):
        wire.connection.notify(method, {})


def test_frames_that_wait_can_be_counted() -> None:
    connection = Connection(clock=ManualClock(), extension="tide")
    connection.receive_data(b"12345")
    assert connection.unread_bytes == 5
