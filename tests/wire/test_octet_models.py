"""Records: presence, null, types, bounds and variants, and the order in which their faults count."""

from __future__ import annotations

from typing import Any

import pytest

from broker.errors import InvalidParamsError, ResultError
from broker.limits import MAX_REPORTED_FAULTS
from broker.wire.jsonrpc import ABSENT
from broker.wire.octet import bus_models as bus
from broker.wire.octet import models
from broker.wire.octet.schema import check, decode, decode_union, encode

RESULT = {"content": [{"type": "text", "text": "04:12"}], "is_error": False, "metadata": None}
FIELD = {"name": "n", "kind": "integer", "required": True, "max_bytes": 16, "values": []}
BINDING = {"session_id": "s-1", "extension_instance_id": "ab", "process_generation": 1}


def first(kind: Any, value: Any) -> tuple[str, str]:
    fault = check(kind, value)[0]
    return fault.path, fault.name


@pytest.mark.spec("octet.tool-call.empty-content", "octet.tool-call.result-parts")
def test_a_tool_result_is_read() -> None:
    assert models.decode_tool_result(RESULT) == models.ToolCallResult(
        content=(models.TextPart(text="04:12"),), is_error=False, metadata=None
    )
    assert models.decode_tool_result({**RESULT, "content": []}).content == ()
    parts = [{"type": "text", "text": text} for text in ("b", "a", "b", "")]
    assert [part.text for part in models.decode_tool_result({**RESULT, "content": parts}).content] == [
        "b",
        "a",
        "b",
        "",
    ]


@pytest.mark.spec("octet.model.absent-or-null", "octet.tool-call.structured-content-null")
def test_absent_and_null_structured_content_are_told_apart_both_ways() -> None:
    absent, null = models.decode_tool_result(RESULT), models.decode_tool_result({**RESULT, "structured_content": None})
    assert absent.structured_content is ABSENT and null.structured_content is None
    assert encode(absent) == {"content": [{"type": "text", "text": "04:12"}], "is_error": False, "metadata": None}
    assert encode(null) == {**encode(absent), "structured_content": None}


@pytest.mark.spec(
    "octet.error.bound-class",
    "octet.error.value-class",
    "octet.model.deferred-variant",
    "octet.model.unknown-variant",
    "octet.model.content-part-image",
    "octet.model.content-part-audio",
    "octet.model.field-type",
    "octet.tool-call.metadata-required",
    "octet.tool-call.extra-part-field",
    "octet.bound.max-content-parts",
)
@pytest.mark.parametrize(
    ("change", "path", "name"),
    [
        ({"metadata": ABSENT}, "metadata", "invalid_params"),
        ({"is_error": ABSENT}, "is_error", "invalid_params"),
        ({"is_error": None}, "is_error", "invalid_params"),
        ({"is_error": 1}, "is_error", "invalid_params"),
        ({"content": {}}, "content", "invalid_params"),
        ({"content": None}, "content", "invalid_params"),
        ({"content": ["x"]}, "content[0]", "invalid_params"),
        ({"content": [{"text": "x"}]}, "content[0].type", "invalid_params"),
        ({"content": [{"type": None, "text": "x"}]}, "content[0].type", "invalid_params"),
        ({"content": [{"type": "video", "text": "x"}]}, "content[0].type", "invalid_params"),
        ({"content": [{"type": "image", "artifact_id": "a"}]}, "content[0].type", "capability_mismatch"),
        ({"content": [{"type": "audio"}]}, "content[0].type", "capability_mismatch"),
        ({"content": [{"type": "text", "text": "x", "alt": "y"}]}, "content[0].'alt'", "invalid_params"),
        ({"content": [{"type": "text"}]}, "content[0].text", "invalid_params"),
        ({"content": [{"type": "text", "text": None}]}, "content[0].text", "invalid_params"),
        ({"content": RESULT["content"] * 257}, "content", "resource_exhausted"),
        ({"extra": 1}, "'extra'", "invalid_params"),
    ],
)
def test_faults_of_a_tool_result(change: dict[str, Any], path: str, name: str) -> None:
    value = {key: item for key, item in {**RESULT, **change}.items() if item is not ABSENT}
    assert first(models.ToolCallResult, value) == (path, name)
    with pytest.raises(ResultError) as caught:
        models.decode_tool_result(value)
    assert (caught.value.path, caught.value.name) == (path, name)


@pytest.mark.spec(
    "octet.bound.max-content-parts", "octet.tool-call.structured-content-bounds", "octet.tool-call.metadata-bounds"
)
def test_bounds_of_a_tool_result_are_exact() -> None:
    assert check(models.ToolCallResult, {**RESULT, "content": RESULT["content"] * 256}) == []
    assert check(models.ToolCallResult, {**RESULT, "structured_content": "x" * (262_144 - 2)}) == []
    assert check(models.ToolCallResult, {**RESULT, "metadata": "x" * (65_536 - 2)}) == []
    assert check(models.ToolCallResult, {**RESULT, "metadata": [0] * 16_383}) == []
    assert check(models.ToolCallResult, {**RESULT, "metadata": {"k" * 256: 0}}) == []
    for member, value, limit, observed in [
        ("structured_content", "x" * (262_144 - 1), "MAX_STRUCTURED_CONTENT_BYTES", 262_145),
        ("metadata", "x" * (65_536 - 1), "MAX_RESULT_METADATA_BYTES", 65_537),
        ("metadata", [0] * 16_384, "MAX_RESULT_NODES", 16_385),
        ("structured_content", {"a": [0] * 16_383}, "MAX_RESULT_NODES", 16_385),
        ("metadata", {"a": {"k" * 257: 0}}, "MAX_RESULT_METADATA_KEY_BYTES", 257),
    ]:
        (fault,) = check(models.ToolCallResult, {**RESULT, member: value})
        assert (fault.path, fault.name, fault.limit, fault.observed) == (member, "resource_exhausted", limit, observed)


@pytest.mark.spec("octet.model.check-order")
def test_unknown_members_come_before_declared_ones_and_all_faults_are_reported() -> None:
    value = {"topic": None, "payload": 1, "zz": 1, "aa": 2}
    faults = check(bus.BusPublishParams, value)
    assert [(fault.path, fault.problem) for fault in faults] == [
        ("'aa'", "is not a known member"),
        ("'zz'", "is not a known member"),
        ("binding_id", "is missing"),
        ("topic", "must not be null"),
    ]
    with pytest.raises(InvalidParamsError) as caught:
        decode(bus.BusPublishParams, value, what="params of bus/publish")
    assert str(caught.value) == "params of bus/publish: 'aa': is not a known member, and 3 more"
    assert caught.value.faults == tuple(faults)


@pytest.mark.spec("octet.model.check-order")
def test_the_first_fault_decides_the_row() -> None:
    params = {"name": "x" * 129, "arguments": None, "context": 0}
    with pytest.raises(InvalidParamsError) as caught:
        decode(models.ToolCallParams, params)
    assert (caught.value.name, caught.value.code, caught.value.limit) == (
        "resource_exhausted",
        -32012,
        "MAX_TOOL_NAME_BYTES",
    )
    assert [fault.name for fault in caught.value.faults] == ["resource_exhausted", "invalid_params"]
    assert first(models.ToolCallParams, {**params, "other": 1}) == ("'other'", "invalid_params")


def test_hostile_values_yield_a_bounded_list_of_safe_faults() -> None:
    many = {f"\x1b{index}": index for index in range(1_000)}
    faults = check(models.ToolCallResult, {**many, **RESULT})
    assert len(faults) == MAX_REPORTED_FAULTS
    assert all(fault.path.isprintable() for fault in faults)
    parts = check(models.ToolCallResult, {**RESULT, "content": [{}] * 256})
    assert len(parts) == MAX_REPORTED_FAULTS


@pytest.mark.spec("octet.model.null-field", "octet.disposition.reason-null")
@pytest.mark.parametrize(
    ("kind", "value", "path"),
    [
        (models.CancelRequestParams, {"id": 1, "reason": None}, "reason"),
        (models.SessionHookResult, {"disposition": {"kind": "continue", "reason": None}}, "disposition.reason"),
        (bus.BusFieldSpec, {**FIELD, "minimum": None}, "minimum"),
    ],
)
def test_an_optional_member_that_is_not_nullable_refuses_null(kind: type, value: Any, path: str) -> None:
    assert [fault.path for fault in check(kind, value)] == [path]


@pytest.mark.spec(
    "octet.model.cancel-request-params",
    "octet.bound.max-reason-bytes",
    "octet.bound.max-json-rpc-id-bytes",
    "octet.error.bound-class",
    "octet.model.cancel-request-result",
)
def test_cancel_params() -> None:
    assert decode(models.CancelRequestParams, {"id": "a"}) == models.CancelRequestParams(id="a")
    assert first(models.CancelRequestParams, {"id": True}) == ("id", "invalid_params")
    assert first(models.CancelRequestParams, {"id": ""}) == ("id", "invalid_params")
    assert first(models.CancelRequestParams, {"id": "x" * 257}) == ("id", "resource_exhausted")
    assert check(models.CancelRequestParams, {"id": 0, "reason": "x" * 4_096}) == []
    assert first(models.CancelRequestParams, {"id": 0, "reason": "x" * 4_097}) == ("reason", "resource_exhausted")
    assert encode(models.CancelRequestResult()) == {"terminal": "cancelled"}


@pytest.mark.spec("octet.model.shutdown-result", "octet.model.shutdown-params", "octet.shutdown.terminal")
def test_shutdown_records_are_exact() -> None:
    assert models.decode_shutdown_result({"terminal": "shutdown"}) == models.ShutdownResult()
    assert encode(models.ShutdownParams()) == {}
    for value in ({}, {"terminal": "Shutdown"}, {"terminal": "shutdown", "x": 1}, {"terminal": None}, "shutdown"):
        with pytest.raises(ResultError):
            models.decode_shutdown_result(value)
    assert first(models.ShutdownParams, {"force": True}) == ("'force'", "invalid_params")


@pytest.mark.spec(
    "octet.model.disposition",
    "octet.disposition.continue",
    "octet.disposition.deny",
    "octet.disposition.defer",
    "octet.disposition.reason-bytes",
    "octet.disposition.unknown-kind",
    "octet.bound.max-reason-bytes",
)
def test_dispositions() -> None:
    def decide(**members: Any) -> Any:
        return models.decode_hook_result({"disposition": members}).disposition

    assert decide(kind="continue") == models.Continue()
    assert decide(kind="continue", reason="fine") == models.Continue(reason="fine")
    assert decide(kind="deny", reason="no") == models.Deny(reason="no")
    assert decide(kind="defer", reason="x" * 4_096) == models.Defer(reason="x" * 4_096)
    for members, name in [
        ({"kind": "deny"}, "invalid_params"),
        ({"kind": "defer"}, "invalid_params"),
        ({"kind": "allow"}, "invalid_params"),
        ({"kind": "deny", "reason": ""}, "invalid_params"),
        ({"kind": "deny", "reason": "x" * 4_097}, "resource_exhausted"),
        ({"reason": "x"}, "invalid_params"),
    ]:
        with pytest.raises(ResultError) as caught:
            decide(**members)
        assert caught.value.name == name, members


@pytest.mark.spec(
    "octet.model.session-hook-params", "octet.bound.max-session-hook-id-bytes", "octet.hook.outcome-words"
)
def test_session_hook_params_both_ways() -> None:
    end = {
        "hook": "session_end",
        "payload": {"binding": BINDING, "outcome": "completed", "reason": "shutdown", "duration_ms": 0},
    }
    widest = {**BINDING, "session_id": "s" * 256, "extension_instance_id": "i" * 256}
    starts = [{"hook": "session_start", "payload": {"binding": binding}} for binding in (BINDING, widest)]
    for wire in (*starts, end):
        assert models.SESSION_HOOK_PARAMS.encode(models.decode_hook_params(wire)) == wire
    faults = [
        ({"hook": "turn_start", "payload": {}}, ("hook", "invalid_params")),
        (
            {"hook": "session_start", "payload": {"binding": {**BINDING, "session_id": ""}}},
            ("payload.binding.session_id", "invalid_params"),
        ),
        (
            {"hook": "session_start", "payload": {"binding": {**BINDING, "session_id": "a b"}}},
            ("payload.binding.session_id", "invalid_params"),
        ),
        (
            {"hook": "session_start", "payload": {"binding": {**BINDING, "session_id": "a" * 257}}},
            ("payload.binding.session_id", "resource_exhausted"),
        ),
        (
            {"hook": "session_start", "payload": {"binding": {**BINDING, "process_generation": 0}}},
            ("payload.binding.process_generation", "invalid_params"),
        ),
        (
            {"hook": "session_end", "payload": {**end["payload"], "outcome": "fine"}},
            ("payload.outcome", "invalid_params"),
        ),
    ]
    for value, expected in faults:
        assert first(models.SESSION_HOOK_PARAMS, value) == expected


@pytest.mark.spec(
    "octet.model.bus-declare-params",
    "octet.model.bus-field-spec",
    "octet.model.integer-unsigned",
    "octet.model.field-type",
)
def test_bus_declare_params() -> None:
    wire = {"binding_id": "b", "topic": "bus.tide.level", "fields": [{**FIELD, "minimum": -5, "maximum": 9}]}
    declared = decode(bus.BusDeclareParams, wire)
    assert declared.fields[0].minimum == -5
    assert encode(declared) == wire
    assert encode(decode(bus.BusFieldSpec, FIELD)) == FIELD
    for change, expected in [
        ({"fields": [FIELD] * 25}, ("fields", "resource_exhausted")),
        ({"fields": [{**FIELD, "values": ["v"] * 33}]}, ("fields[0].values", "resource_exhausted")),
        ({"fields": [{**FIELD, "max_bytes": True}]}, ("fields[0].max_bytes", "invalid_params")),
        ({"fields": [{**FIELD, "max_bytes": -1}]}, ("fields[0].max_bytes", "invalid_params")),
        ({"fields": [{**FIELD, "kind": "float"}]}, ("fields[0].kind", "invalid_params")),
        ({"fields": [{**FIELD, "minimum": "0"}]}, ("fields[0].minimum", "invalid_params")),
        ({"publisher": "tide"}, ("'publisher'", "invalid_params")),
        ({"binding_id": 5}, ("binding_id", "invalid_params")),
    ]:
        assert first(bus.BusDeclareParams, {**wire, **change}) == expected
    assert check(bus.BusDeclareParams, {**wire, "fields": [{**FIELD, "values": ["v"] * 32}] * 24}) == []


@pytest.mark.spec("octet.model.bus-topic-params", "octet.model.bus-publish-params")
def test_bus_contents_are_left_to_the_bus() -> None:
    assert check(bus.BusTopicParams, {"binding_id": "", "topic": "no topic at all"}) == []
    assert check(bus.BusPublishParams, {"binding_id": "b" * 999, "topic": "", "payload": [1]}) == []
    assert first(bus.BusPublishParams, {"binding_id": "b", "topic": "t", "payload": None}) == (
        "payload",
        "invalid_params",
    )
    forged = {"binding_id": "b", "topic": "t", "payload": {}, "sequence": 1, "publisher": "host"}
    assert [fault.path for fault in check(bus.BusPublishParams, forged)] == ["'publisher'", "'sequence'"]


@pytest.mark.spec("octet.model.bus-subscribe-result", "octet.model.bus-lifecycle-params")
def test_bus_unions_both_ways() -> None:
    source = {"publisher_instance_id": "ab", "process_generation": 2}
    topic = {"binding_id": "b", "topic": "bus.tide.level", "topic_revision": 4, **source}
    for union, wire in [
        (bus.BUS_SUBSCRIBE_RESULT, {"state": "pending", "binding_id": "b", "topic_revision": 0}),
        (bus.BUS_SUBSCRIBE_RESULT, {"state": "active", "binding_id": "b", "topic_revision": 3, **source}),
        (bus.BUS_LIFECYCLE_PARAMS, {"kind": "binding", "binding_id": "b", "binding_revision": 1}),
        (bus.BUS_LIFECYCLE_PARAMS, {"kind": "topic_available", **topic}),
        (bus.BUS_LIFECYCLE_PARAMS, {"kind": "topic_unavailable", **topic}),
    ]:
        assert union.encode(decode_union(union, wire, what="test")) == wire
    assert first(bus.BUS_SUBSCRIBE_RESULT, {"state": "pending", "binding_id": "b", "topic_revision": 0, **source}) == (
        "'process_generation'",
        "invalid_params",
    )
    with pytest.raises(TypeError):
        bus.BUS_SUBSCRIBE_RESULT.encode(bus.BusAck(binding_id="b"))
