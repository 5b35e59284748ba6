"""The tables of the octet 0.3 contract, row by row, against what the reference says and not against the code's own."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from broker import canonical
from broker.errors import ERROR_TABLE, BrokerError, CapabilityMismatchError, NegotiationError
from broker.wire.jsonrpc import Failure, classify, failure
from broker.wire.octet.contract import BINDABLE, CAPABILITIES, METHODS, build_offer
from broker.wire.octet.negotiation import Expectation, check_selection

NewWire = Callable[..., Any]


ERRORS = [
    pytest.param("parse_error", -32700, "parse error", marks=pytest.mark.spec("octet.error.parse-error")),
    pytest.param("invalid_request", -32600, "invalid request", marks=pytest.mark.spec("octet.error.invalid-request")),
    pytest.param(
        "unknown_method", -32601, "unknown or unnegotiated method", marks=pytest.mark.spec("octet.error.unknown-method")
    ),
    pytest.param("invalid_params", -32602, "invalid params", marks=pytest.mark.spec("octet.error.invalid-params")),
    pytest.param("internal_error", -32603, "internal error", marks=pytest.mark.spec("octet.error.internal-error")),
    pytest.param(
        "version_mismatch",
        -32010,
        "extension API version mismatch",
        marks=pytest.mark.spec("octet.error.version-mismatch"),
    ),
    pytest.param(
        "capability_mismatch",
        -32011,
        "extension capability mismatch",
        marks=pytest.mark.spec("octet.error.capability-mismatch"),
    ),
    pytest.param(
        "resource_exhausted",
        -32012,
        "extension resource exhausted",
        marks=pytest.mark.spec("octet.error.resource-exhausted"),
    ),
    pytest.param(
        "request_cancelled", -32800, "request cancelled", marks=pytest.mark.spec("octet.error.request-cancelled")
    ),
]


@pytest.mark.parametrize(("name", "code", "message"), ERRORS)
def test_error_rows(name: str, code: int, message: str) -> None:
    error = BrokerError("the detail", name=name)
    assert (error.code, error.message, str(error)) == (code, message, "the detail")
    assert canonical.encode(failure(1, name)) == (
        b'{"error":{"code":%d,"message":"%b"},"id":1,"jsonrpc":"2.0"}' % (code, message.encode())
    )
    found = classify({"jsonrpc": "2.0", "id": 1, "error": {"code": code, "message": message}})
    assert isinstance(found, Failure)
    assert found.error.name == name


@pytest.mark.spec("octet.error.closed-table")
def test_there_is_no_other_error() -> None:
    assert list(ERROR_TABLE) == [row.values[0] for row in ERRORS]
    with pytest.raises(ValueError, match="'server_error' is not a row of the error table"):
        BrokerError("x", name="server_error")
    with pytest.raises(KeyError):
        failure(1, "server_error")


@pytest.mark.parametrize(
    ("capability", "offer", "methods"),
    [
        pytest.param("core", "required", ["initialize", "shutdown"], marks=pytest.mark.spec("octet.capability.core")),
        pytest.param("tool_call", "required", ["tool/call"], marks=pytest.mark.spec("octet.capability.tool-call")),
        pytest.param("content_parts", "required", [], marks=pytest.mark.spec("octet.capability.content-parts")),
        pytest.param(
            "request_cancellation",
            "required",
            ["$/cancelRequest"],
            marks=pytest.mark.spec("octet.capability.request-cancellation"),
        ),
        pytest.param(
            "lifecycle_events", "optional", ["hook/run"], marks=pytest.mark.spec("octet.capability.lifecycle-events")
        ),
        pytest.param(
            "event_bus",
            "optional",
            ["bus/declare", "bus/event", "bus/lifecycle", "bus/publish", "bus/subscribe", "bus/unsubscribe"],
            marks=pytest.mark.spec("octet.capability.event-bus"),
        ),
        pytest.param(
            "migration.adapter.v1",
            "optional",
            ["migration/detect", "migration/import"],
            marks=pytest.mark.spec("octet.capability.migration"),
        ),
        pytest.param(
            "provider_auth",
            "optional",
            ["provider/auth/request", "provider/auth/revoke"],
            marks=pytest.mark.spec("octet.capability.provider-auth"),
        ),
        pytest.param(
            "provider_catalog",
            "optional",
            ["providers/complete", "providers/register", "providers/unregister", "providers/update"],
            marks=pytest.mark.spec("octet.capability.provider-catalog"),
        ),
        pytest.param(
            "provider_stream",
            "optional",
            ["provider/cancel", "provider/event", "provider/stream"],
            marks=pytest.mark.spec("octet.capability.provider-stream"),
        ),
        pytest.param(
            "session_lifecycle",
            "optional",
            ["session/create", "session/fork", "session/reload", "session/switch"],
            marks=pytest.mark.spec("octet.capability.session-lifecycle"),
        ),
        pytest.param(
            "theme_selection", "optional", ["theme/select"], marks=pytest.mark.spec("octet.capability.theme-selection")
        ),
    ],
)
def test_capability_rows(capability: str, offer: str, methods: list[str]) -> None:
    assert CAPABILITIES[capability].offer.value == offer
    offered = build_offer([capability] if offer == "optional" else [])
    assert (capability in offered.required_capabilities) is (offer == "required")
    assert (capability in offered.optional_capabilities) is (offer == "optional")
    of_it = [name for name, method in METHODS.items() if method.capability == capability]
    assert [name for name in (*offered.required_methods, *offered.optional_methods) if name in of_it] == methods


@pytest.mark.spec("octet.capability.dynamic-tools")
def test_dynamic_tools_are_neither_offered_nor_selectable(good_result: Any) -> None:
    offer = build_offer(sorted(BINDABLE))
    assert "dynamic_tools" not in (*offer.required_capabilities, *offer.optional_capabilities)
    assert not {"tools/register", "tools/unregister"} & {*offer.required_methods, *offer.optional_methods}
    result = good_result()
    result["contract"]["capabilities"].append("dynamic_tools")
    with pytest.raises(NegotiationError) as caught:
        check_selection(result, offer=offer, expectation=Expectation(tools=("tide",)))
    assert (caught.value.name, caught.value.path) == ("capability_mismatch", "contract.capabilities[5]")


HOST, EXTENSION, BOTH = "host_to_extension", "extension_to_host", "bidirectional"


@pytest.mark.parametrize(
    ("method", "direction", "notification"),
    [
        ("$/cancelRequest", BOTH, True),
        ("bus/declare", EXTENSION, False),
        ("bus/event", HOST, True),
        ("bus/lifecycle", HOST, True),
        ("bus/publish", EXTENSION, False),
        ("bus/subscribe", EXTENSION, False),
        ("bus/unsubscribe", EXTENSION, False),
        ("context/collect", HOST, False),
        ("hook/run", HOST, False),
        ("initialize", HOST, False),
        ("migration/detect", HOST, False),
        ("migration/import", HOST, False),
        ("provider/auth/request", EXTENSION, False),
        ("provider/auth/revoke", EXTENSION, False),
        ("provider/cancel", HOST, True),
        ("provider/event", EXTENSION, True),
        ("provider/stream", HOST, False),
        ("providers/complete", EXTENSION, True),
        ("providers/register", EXTENSION, False),
        ("providers/unregister", EXTENSION, False),
        ("providers/update", EXTENSION, False),
        ("session/create", EXTENSION, False),
        ("session/fork", EXTENSION, False),
        ("session/reload", EXTENSION, False),
        ("session/switch", EXTENSION, False),
        ("shutdown", HOST, False),
        ("theme/select", EXTENSION, False),
        ("tool/call", HOST, False),
        ("tools/register", EXTENSION, False),
        ("tools/unregister", EXTENSION, False),
    ],
)
def test_method_rows(method: str, direction: str, notification: bool) -> None:
    assert len(METHODS) == 30
    assert (METHODS[method].direction.value, METHODS[method].notification) == (direction, notification)


@pytest.mark.parametrize(
    ("method", "from_extension"),
    [
        pytest.param("context/collect", False, marks=pytest.mark.spec("octet.method.context-collect")),
        pytest.param("tools/register", True, marks=pytest.mark.spec("octet.method.tools-register")),
        pytest.param("tools/unregister", True, marks=pytest.mark.spec("octet.method.tools-unregister")),
    ],
)
def test_deferred_methods_are_neither_selected_nor_called(
    new_wire: NewWire, good_result: Any, method: str, from_extension: bool
) -> None:
    result = good_result()
    result["contract"]["methods"].append(method)
    with pytest.raises(NegotiationError) as caught:
        check_selection(
            result, offer=build_offer(["event_bus", "lifecycle_events"]), expectation=Expectation(tools=("tide",))
        )
    assert (caught.value.name, caught.value.path) == ("capability_mismatch", "contract.methods[10]")
    wire = new_wire().ready()
    with pytest.raises(CapabilityMismatchError):
        wire.connection.request(method, {})
    wire.receive({"jsonrpc": "2.0", "id": 1, "method": method, "params": {}})
    wire.events()
    (answer,) = wire.written()
    assert b'"code":-32601' in answer
    assert METHODS[method].from_extension is from_extension
