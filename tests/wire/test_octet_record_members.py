"""Each record of the octet 0.3 contract: exactly its members, which of them may be absent, which may be null."""

from __future__ import annotations

from typing import Any

import pytest

from broker.wire.jsonrpc import ABSENT
from broker.wire.octet import bus_models as bus
from broker.wire.octet import models
from broker.wire.octet.schema import check

JSON = {"any": [1]}
LIMITS = {"max_frame_bytes": 4_096, "max_concurrent_requests": 1, "max_tools": 1}
OFFER = {
    "schema": "octet.extension.api/0.3",
    "encoding": "octet-canonical-json-v1",
    "required_capabilities": ["core"],
    "optional_capabilities": [],
    "required_methods": ["initialize"],
    "optional_methods": [],
    "limits": LIMITS,
}
SELECTION = {
    "schema": "octet.extension.api/0.3",
    "encoding": "octet-canonical-json-v1",
    "capabilities": ["core"],
    "methods": ["initialize"],
    "limits": LIMITS,
}
TOOL = {"name": "tide", "description": "High water.", "parameters": JSON, "output_schema": JSON}
BINDING = {"session_id": "s", "extension_instance_id": "ab", "process_generation": 1}
FIELD = {
    "name": "n",
    "kind": "integer",
    "required": True,
    "max_bytes": 16,
    "values": [],
    "minimum": -1,
    "maximum": 1,
}
SOURCE = {"publisher_instance_id": "ab", "process_generation": 1}
TOPIC = {"binding_id": "b", "topic": "bus.tide.level", "topic_revision": 1, **SOURCE}
INITIALIZE = {
    "api_version": "0.3",
    "octet_version": "0.8.0",
    "extension": JSON,
    "workspace": "/srv/work",
    "capabilities": JSON,
    "contributes": JSON,
    "flag_values": [],
    "host": JSON,
    "contract": OFFER,
}
RESULT = {"content": [], "is_error": False, "metadata": JSON, "structured_content": JSON}
END = {"binding": BINDING, "outcome": "completed", "reason": "shutdown", "duration_ms": 0}
EVENT = {
    "binding_id": "b",
    "topic": "bus.tide.level",
    "publisher": "tide",
    "publisher_instance_id": "ab",
    "process_generation": 1,
    "sequence": 1,
    "published_at_ms": 0,
    "payload": JSON,
}

RECORDS = [
    # kind, all its members, those that may be absent, those that may be null
    pytest.param(models.ProtocolLimits, LIMITS, "", "", marks=pytest.mark.spec("octet.model.protocol-limits")),
    pytest.param(models.ContractOffer, OFFER, "", "", marks=pytest.mark.spec("octet.model.contract-offer")),
    pytest.param(models.ContractSelection, SELECTION, "", "", marks=pytest.mark.spec("octet.model.contract-selection")),
    pytest.param(
        models.ToolDefinition, TOOL, "output_schema", "", marks=pytest.mark.spec("octet.model.tool-definition")
    ),
    pytest.param(
        models.InitializeFlagValue,
        {"name": "n", "value": JSON},
        "",
        "",
        marks=pytest.mark.spec("octet.model.initialize-flag-value"),
    ),
    pytest.param(
        models.InitializeRequest, INITIALIZE, "", "", marks=pytest.mark.spec("octet.model.initialize-request")
    ),
    pytest.param(
        models.InitializeResponse,
        {"api_version": "0.3", "tools": [], "contract": SELECTION},
        "",
        "",
        marks=pytest.mark.spec("octet.model.initialize-response"),
    ),
    pytest.param(
        models.CONTENT_PART,
        {"type": "text", "text": ""},
        "",
        "",
        marks=pytest.mark.spec("octet.model.content-part-text"),
    ),
    pytest.param(
        models.ToolCallParams,
        {"name": "tide", "arguments": JSON, "context": JSON},
        "",
        "",
        marks=pytest.mark.spec("octet.model.tool-call-params"),
    ),
    pytest.param(
        models.ToolCallResult,
        RESULT,
        "structured_content",
        "metadata structured_content",
        marks=pytest.mark.spec("octet.model.tool-call-result"),
    ),
    pytest.param(models.SessionBinding, BINDING, "", "", marks=pytest.mark.spec("octet.model.session-binding")),
    pytest.param(
        models.SessionStart, {"binding": BINDING}, "", "", marks=pytest.mark.spec("octet.model.session-start")
    ),
    pytest.param(models.SessionEnd, END, "", "", marks=pytest.mark.spec("octet.model.session-end")),
    pytest.param(
        models.SESSION_HOOK_PARAMS,
        {"hook": "session_start", "payload": {"binding": BINDING}},
        "",
        "",
        marks=pytest.mark.spec("octet.model.session-hook-params"),
    ),
    pytest.param(
        models.SESSION_HOOK_PARAMS,
        {"hook": "session_end", "payload": END},
        "",
        "",
        marks=pytest.mark.spec("octet.model.session-hook-params"),
    ),
    pytest.param(
        models.SessionHookResult,
        {"disposition": {"kind": "continue"}},
        "",
        "",
        marks=pytest.mark.spec("octet.model.session-hook-result"),
    ),
    pytest.param(
        models.DISPOSITION,
        {"kind": "continue", "reason": "r"},
        "reason",
        "",
        marks=pytest.mark.spec(
            "octet.model.disposition", "octet.disposition.continue", "octet.disposition.reason-null"
        ),
    ),
    pytest.param(
        models.DISPOSITION,
        {"kind": "deny", "reason": "r"},
        "",
        "",
        marks=pytest.mark.spec("octet.model.disposition", "octet.disposition.deny", "octet.disposition.reason-null"),
    ),
    pytest.param(
        models.DISPOSITION,
        {"kind": "defer", "reason": "r"},
        "",
        "",
        marks=pytest.mark.spec("octet.model.disposition", "octet.disposition.defer", "octet.disposition.reason-null"),
    ),
    pytest.param(
        models.CancelRequestParams,
        {"id": 0, "reason": ""},
        "reason",
        "",
        marks=pytest.mark.spec("octet.model.cancel-request-params"),
    ),
    pytest.param(
        models.CancelRequestResult,
        {"terminal": "cancelled", "reason": ""},
        "reason",
        "",
        marks=pytest.mark.spec("octet.model.cancel-request-result"),
    ),
    pytest.param(models.ShutdownParams, {}, "", "", marks=pytest.mark.spec("octet.model.shutdown-params")),
    pytest.param(
        models.ShutdownResult, {"terminal": "shutdown"}, "", "", marks=pytest.mark.spec("octet.model.shutdown-result")
    ),
    pytest.param(bus.BusFieldSpec, FIELD, "minimum maximum", "", marks=pytest.mark.spec("octet.model.bus-field-spec")),
    pytest.param(
        bus.BusDeclareParams,
        {"binding_id": "b", "topic": "t", "fields": []},
        "",
        "",
        marks=pytest.mark.spec("octet.model.bus-declare-params"),
    ),
    pytest.param(
        bus.BusTopicParams,
        {"binding_id": "b", "topic": "t"},
        "",
        "",
        marks=pytest.mark.spec("octet.model.bus-topic-params"),
    ),
    pytest.param(bus.BusAck, {"binding_id": "b"}, "", "", marks=pytest.mark.spec("octet.model.bus-ack")),
    pytest.param(
        bus.BusPublishParams,
        {"binding_id": "b", "topic": "t", "payload": JSON},
        "",
        "",
        marks=pytest.mark.spec("octet.model.bus-publish-params"),
    ),
    pytest.param(
        bus.BusPublishResult,
        {"binding_id": "b", "sequence": 1, "published_at_ms": 0},
        "",
        "",
        marks=pytest.mark.spec("octet.model.bus-publish-result"),
    ),
    pytest.param(bus.BusEventParams, EVENT, "", "", marks=pytest.mark.spec("octet.model.bus-event-params")),
    pytest.param(
        bus.BUS_SUBSCRIBE_RESULT,
        {"state": "pending", "binding_id": "b", "topic_revision": 0},
        "",
        "",
        marks=pytest.mark.spec("octet.model.bus-subscribe-result"),
    ),
    pytest.param(
        bus.BUS_SUBSCRIBE_RESULT,
        {"state": "active", "binding_id": "b", "topic_revision": 1, **SOURCE},
        "",
        "",
        marks=pytest.mark.spec("octet.model.bus-subscribe-result"),
    ),
    pytest.param(
        bus.BUS_LIFECYCLE_PARAMS,
        {"kind": "binding", "binding_id": "b", "binding_revision": 1},
        "",
        "",
        marks=pytest.mark.spec("octet.model.bus-lifecycle-params"),
    ),
    pytest.param(
        bus.BUS_LIFECYCLE_PARAMS,
        {"kind": "topic_available", **TOPIC},
        "",
        "",
        marks=pytest.mark.spec("octet.model.bus-lifecycle-params"),
    ),
    pytest.param(
        bus.BUS_LIFECYCLE_PARAMS,
        {"kind": "topic_unavailable", **TOPIC},
        "",
        "",
        marks=pytest.mark.spec("octet.model.bus-lifecycle-params"),
    ),
]


@pytest.mark.spec("octet.model.unknown-field", "octet.model.missing-field", "octet.model.null-field")
@pytest.mark.spec("octet.model.not-an-object", "octet.model.field-type")
@pytest.mark.parametrize(("kind", "record", "may_be_absent", "may_be_null"), RECORDS)
def test_a_record_has_exactly_its_members(
    kind: Any, record: dict[str, Any], may_be_absent: str, may_be_null: str
) -> None:
    def faulty(value: Any) -> list[str]:
        return [fault.path for fault in check(kind, value)]

    assert faulty(record) == []
    for member in record:
        without = {name: value for name, value in record.items() if name != member}
        assert faulty(without) == ([] if member in may_be_absent.split() else [member])
        assert faulty({**record, member: None}) == ([] if member in may_be_null.split() else [member])
        if not isinstance(record[member], dict):
            assert faulty({**record, member: {}}) == [member]
        if type(record[member]) is int:
            assert faulty({**record, member: True}) == faulty({**record, member: 1.0}) == [member]
    assert faulty({**record, "other": 1}) == ["'other'"]
    for value in ([], "x", 0, True, None, ABSENT):
        assert faulty(value) != []
