"""The contract's tables and the offer made from them."""

from __future__ import annotations

from typing import Any

import pytest

from broker import canonical
from broker.errors import InvalidParamsError, UsageError
from broker.wire.octet.contract import (
    BINDABLE,
    CAPABILITIES,
    METHODS,
    DefaultOffer,
    Direction,
    Status,
    build_offer,
    is_notification,
)
from broker.wire.octet.models import ProtocolLimits
from broker.wire.octet.schema import encode


def test_capability_table() -> None:
    by_offer = {offer: {row.name for row in CAPABILITIES.values() if row.offer is offer} for offer in DefaultOffer}
    assert by_offer == {
        DefaultOffer.REQUIRED: {"content_parts", "core", "request_cancellation", "tool_call"},
        DefaultOffer.OPTIONAL: {
            "event_bus",
            "lifecycle_events",
            "migration.adapter.v1",
            "provider_auth",
            "provider_catalog",
            "provider_stream",
            "session_lifecycle",
            "theme_selection",
        },
        DefaultOffer.UNAVAILABLE: {"dynamic_tools"},
    }
    assert [row.name for row in CAPABILITIES.values() if row.status is Status.DEFERRED] == ["dynamic_tools"]


def test_method_table() -> None:
    rows = METHODS.values()
    assert len(rows) == 30
    assert all(row.capability in CAPABILITIES for row in rows)
    assert {row.name for row in rows if row.status is Status.DEFERRED} == {
        "context/collect",
        "tools/register",
        "tools/unregister",
    }
    assert {row.name for row in rows if row.notification} == {
        "$/cancelRequest",
        "provider/cancel",
        "provider/event",
        "providers/complete",
        "bus/event",
        "bus/lifecycle",
    }
    assert {row.name for row in rows if row.direction is Direction.HOST_TO_EXTENSION} == {
        "context/collect",
        "hook/run",
        "initialize",
        "migration/detect",
        "migration/import",
        "provider/cancel",
        "provider/stream",
        "shutdown",
        "tool/call",
        "bus/event",
        "bus/lifecycle",
    }
    assert [row.name for row in rows if row.direction is Direction.BIDIRECTIONAL] == ["$/cancelRequest"]
    assert METHODS["$/cancelRequest"].from_host and METHODS["$/cancelRequest"].from_extension
    assert not METHODS["tool/call"].from_extension and not METHODS["bus/publish"].from_host
    assert (is_notification("bus/event"), is_notification("tool/call"), is_notification("x")) == (True, False, None)


@pytest.mark.spec(
    "octet.capability.required-set-fixed",
    "octet.capability.offered-when-bound",
    "octet.initialize.schema-literals",
    "octet.initialize.offered-bound",
)
def test_an_offer_with_nothing_bound_is_the_required_set() -> None:
    assert canonical.encode(encode(build_offer())) == (
        b'{"encoding":"octet-canonical-json-v1",'
        b'"limits":{"max_concurrent_requests":64,"max_frame_bytes":1048576,"max_tools":256},'
        b'"optional_capabilities":[],"optional_methods":[],'
        b'"required_capabilities":["content_parts","core","request_cancellation","tool_call"],'
        b'"required_methods":["$/cancelRequest","initialize","shutdown","tool/call"],'
        b'"schema":"octet.extension.api/0.3"}'
    )


@pytest.mark.spec("octet.capability.offered-when-bound", "octet.capability.method-with-capability")
@pytest.mark.parametrize(
    ("bound", "methods"),
    [
        (["lifecycle_events"], ("hook/run",)),
        (
            ["event_bus"],
            ("bus/declare", "bus/event", "bus/lifecycle", "bus/publish", "bus/subscribe", "bus/unsubscribe"),
        ),
    ],
)
def test_a_bound_capability_is_offered_with_its_foundation_methods(bound: list[str], methods: tuple[str, ...]) -> None:
    offer = build_offer(bound)
    assert offer.optional_capabilities == tuple(bound)
    assert offer.optional_methods == methods
    assert offer.required_methods == build_offer().required_methods


@pytest.mark.spec("octet.capability.offered-when-bound", "octet.capability.dynamic-tools")
@pytest.mark.parametrize("name", sorted((CAPABILITIES.keys() - BINDABLE) | {"telepathy"}))
def test_nothing_else_can_be_offered(name: str) -> None:
    with pytest.raises(UsageError, match=name):
        build_offer(["event_bus", name])


@pytest.mark.spec("octet.bound.max-frame-bytes", "octet.bound.max-concurrent-requests", "octet.bound.max-tools")
@pytest.mark.parametrize(
    ("limits", "name", "path"),
    [
        ({"max_frame_bytes": 0}, "invalid_params", "limits.max_frame_bytes"),
        ({"max_frame_bytes": 1_048_577}, "resource_exhausted", "limits.max_frame_bytes"),
        ({"max_concurrent_requests": 65}, "resource_exhausted", "limits.max_concurrent_requests"),
        ({"max_tools": 257, "max_concurrent_requests": 0}, "invalid_params", "limits.max_concurrent_requests"),
    ],
)
def test_an_offer_stays_within_the_maxima(limits: dict[str, Any], name: str, path: str) -> None:
    widest = ProtocolLimits(max_frame_bytes=1_048_576, max_concurrent_requests=64, max_tools=256)
    assert build_offer(limits=widest).limits == widest
    with pytest.raises(InvalidParamsError) as caught:
        build_offer(limits=ProtocolLimits(**limits))
    assert (caught.value.name, caught.value.path) == (name, path)
