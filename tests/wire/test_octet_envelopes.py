"""Envelopes: four shapes and nothing else."""

from __future__ import annotations

from typing import Any

import pytest

from broker import canonical
from broker.errors import ERROR_TABLE, ProtocolError
from broker.wire.jsonrpc import (
    ABSENT,
    ErrorObject,
    Failure,
    Notification,
    Request,
    Success,
    classify,
    failure,
    notification,
    request,
    success,
)
from broker.wire.octet.contract import is_notification

TOP = 2**53 - 1
ERROR = {"code": -32603, "message": "internal error"}


@pytest.mark.spec(
    "octet.envelope.request-shape",
    "octet.envelope.notification-shape",
    "octet.envelope.success-shape",
    "octet.envelope.error-shape",
    "octet.envelope.id-zero",
    "octet.envelope.id-integer",
)
@pytest.mark.parametrize(
    ("frame", "envelope"),
    [
        ({"jsonrpc": "2.0", "id": 0, "method": "m", "params": {}}, Request(0, "m", {})),
        ({"jsonrpc": "2.0", "id": "a", "method": "m", "params": 0}, Request("a", "m", 0)),
        ({"jsonrpc": "2.0", "method": "m", "params": False}, Notification("m", False)),
        ({"jsonrpc": "2.0", "id": TOP, "result": []}, Success(TOP, [])),
        ({"jsonrpc": "2.0", "id": 7, "error": ERROR}, Failure(7, ErrorObject(ERROR_TABLE["internal_error"], ABSENT))),
    ],
)
def test_each_shape(frame: dict[str, Any], envelope: object) -> None:
    found = classify(frame)
    assert found == envelope
    assert type(found) is type(envelope)


@pytest.mark.parametrize(
    ("frame", "needed"),
    [
        pytest.param(
            {"jsonrpc": "2.0", "id": 1, "method": "m", "params": {}},
            ["jsonrpc", "method", "params"],
            marks=pytest.mark.spec("octet.envelope.request-shape", "octet.model.json-rpc-request"),
        ),
        pytest.param(
            {"jsonrpc": "2.0", "method": "m", "params": {}},
            ["jsonrpc", "method", "params"],
            marks=pytest.mark.spec("octet.envelope.notification-shape", "octet.model.json-rpc-notification"),
        ),
        pytest.param(
            {"jsonrpc": "2.0", "id": 1, "result": {}},
            ["jsonrpc", "id", "result"],
            marks=pytest.mark.spec("octet.envelope.success-shape", "octet.model.json-rpc-success-response"),
        ),
        pytest.param(
            {"jsonrpc": "2.0", "id": 1, "error": ERROR},
            ["jsonrpc", "id", "error"],
            marks=pytest.mark.spec("octet.envelope.error-shape", "octet.model.json-rpc-error-response"),
        ),
    ],
)
def test_each_shape_has_exactly_its_members(frame: dict[str, Any], needed: list[str]) -> None:
    classify(frame)
    broken = [{name: value for name, value in frame.items() if name != member} for member in needed]
    broken += [{**frame, member: None} for member in frame]
    broken += [{**frame, "meta": 1}]
    for value in broken:
        with pytest.raises(ProtocolError) as caught:
            classify(value)
        assert caught.value.name == "invalid_request"


@pytest.mark.spec("octet.envelope.error-data", "octet.model.error-object")
def test_error_data_keeps_absent_and_null_apart() -> None:
    absent = classify({"jsonrpc": "2.0", "id": 1, "error": ERROR})
    null = classify({"jsonrpc": "2.0", "id": 1, "error": {**ERROR, "data": None}})
    assert isinstance(absent, Failure) and absent.error.data is ABSENT
    assert isinstance(null, Failure) and null.error.data is None
    assert not ABSENT and repr(ABSENT) == "ABSENT"


@pytest.mark.spec("octet.envelope.error-pair")
@pytest.mark.parametrize("row", ERROR_TABLE.values(), ids=lambda row: row.name)
def test_every_row_of_the_error_table_is_read(row: Any) -> None:
    found = classify({"jsonrpc": "2.0", "id": 1, "error": {"code": row.code, "message": row.message}})
    assert isinstance(found, Failure)
    assert (found.error.name, found.error.code, found.error.message) == (row.name, row.code, row.message)


@pytest.mark.spec(
    "octet.envelope.unknown-member",
    "octet.envelope.error-pair",
    "octet.envelope.jsonrpc-version",
    "octet.envelope.not-an-object",
    "octet.envelope.result-xor-error",
    "octet.envelope.mixed-shapes",
    "octet.envelope.params-null",
    "octet.envelope.result-null",
    "octet.envelope.request-needs-id",
    "octet.envelope.notification-forbids-id",
    "octet.envelope.id-string",
    "octet.envelope.id-integer",
    "octet.envelope.id-other-type",
    "octet.model.error-object",
)
@pytest.mark.parametrize(
    ("frame", "path", "text"),
    [
        ([], "", "must be an object, not an array"),
        (None, "", "not null"),
        ("x", "", "not a string"),
        (5, "", "not an integer"),
        ({"jsonrpc": "2.0"}, "", "present: none"),
        ({"jsonrpc": "2.0", "id": 1}, "", "present: id"),
        ({"jsonrpc": "2.0", "result": 1}, "", "present: result"),
        ({"jsonrpc": "2.0", "id": 1, "result": 1, "error": ERROR}, "", "present: id, result, error"),
        ({"jsonrpc": "2.0", "id": 1, "method": "m", "result": 1}, "", "present: id, method, result"),
        ({"jsonrpc": "2.0", "id": 1, "method": "$/cancelRequest", "params": {}}, "id", "takes no id"),
        ({"jsonrpc": "2.0", "method": "tool/call", "params": {}}, "id", "needs an id"),
        ({"jsonrpc": "2.0", "method": "tools/register", "params": {}}, "id", "needs an id"),
        ({"jsonrpc": "2.0", "id": 1, "method": "m", "params": {}, "meta": 1}, "'meta'", "not a member"),
        ({"id": 1, "result": 1}, "jsonrpc", "is missing"),
        ({"jsonrpc": "1.0", "id": 1, "result": 1}, "jsonrpc", 'must be "2.0"'),
        ({"jsonrpc": 2, "id": 1, "result": 1}, "jsonrpc", 'must be "2.0"'),
        ({"jsonrpc": "2.0", "id": None, "result": 1}, "id", "not null"),
        ({"jsonrpc": "2.0", "id": True, "result": 1}, "id", "not a boolean"),
        ({"jsonrpc": "2.0", "id": 1.0, "result": 1}, "id", "not a fraction"),
        ({"jsonrpc": "2.0", "id": -1, "result": 1}, "id", "0 to 9007199254740991"),
        ({"jsonrpc": "2.0", "id": TOP + 1, "result": 1}, "id", "0 to 9007199254740991"),
        ({"jsonrpc": "2.0", "id": "", "result": 1}, "id", "not be empty"),
        ({"jsonrpc": "2.0", "id": 1, "method": "m"}, "params", "is missing"),
        ({"jsonrpc": "2.0", "id": 1, "method": "m", "params": None}, "params", "not be null"),
        ({"jsonrpc": "2.0", "id": 1, "method": 5, "params": {}}, "method", "must be a string, not an integer"),
        ({"jsonrpc": "2.0", "id": 1, "result": None}, "result", "not be null"),
        ({"jsonrpc": "2.0", "id": 1, "error": None}, "error", "must be an object, not null"),
        ({"jsonrpc": "2.0", "id": 1, "error": {**ERROR, "stack": "x"}}, "error.'stack'", "not a member"),
        ({"jsonrpc": "2.0", "id": 1, "error": {"message": "x"}}, "error.code", "is missing"),
        ({"jsonrpc": "2.0", "id": 1, "error": {"code": -32603}}, "error.message", "is missing"),
        ({"jsonrpc": "2.0", "id": 1, "error": {**ERROR, "code": "-32603"}}, "error.code", "must be an integer"),
        ({"jsonrpc": "2.0", "id": 1, "error": {**ERROR, "code": True}}, "error.code", "not a boolean"),
        ({"jsonrpc": "2.0", "id": 1, "error": {**ERROR, "message": None}}, "error.message", "not null"),
        ({"jsonrpc": "2.0", "id": 1, "error": {**ERROR, "message": "Internal error"}}, "error", "'Internal error'"),
        ({"jsonrpc": "2.0", "id": 1, "error": {**ERROR, "code": -32602}}, "error", "not in the error table"),
        ({"jsonrpc": "2.0", "id": 1, "error": {"code": -32000, "message": "\x1b[1m"}}, "error", "'\\x1b[1m'"),
    ],
)
def test_anything_else_is_an_invalid_request(frame: Any, path: str, text: str) -> None:
    with pytest.raises(ProtocolError) as caught:
        classify(frame, is_notification=is_notification)
    assert caught.value.name == "invalid_request"
    assert caught.value.path == path
    assert text in str(caught.value)


@pytest.mark.spec("octet.bound.max-json-rpc-id-bytes", "octet.envelope.id-string", "octet.model.byte-length")
def test_a_string_id_is_bounded_in_bytes() -> None:
    assert classify({"jsonrpc": "2.0", "id": "é" * 128, "result": 1}) == Success("é" * 128, 1)
    with pytest.raises(ProtocolError) as caught:
        classify({"jsonrpc": "2.0", "id": "é" * 128 + "x", "result": 1})
    assert (caught.value.limit, caught.value.observed, caught.value.maximum) == ("MAX_JSON_RPC_ID_BYTES", 257, 256)


@pytest.mark.spec("octet.envelope.method-name-bound")
def test_a_method_name_is_bounded_in_bytes() -> None:
    assert classify({"jsonrpc": "2.0", "method": "m" * 128, "params": 1}) == Notification("m" * 128, 1)
    with pytest.raises(ProtocolError) as caught:
        classify({"jsonrpc": "2.0", "method": "m" * 129, "params": 1})
    assert (caught.value.limit, caught.value.observed, caught.value.maximum) == ("MAX_METHOD_NAME_BYTES", 129, 128)


@pytest.mark.spec("octet.envelope.check-order")
@pytest.mark.parametrize(
    ("frame", "path"),
    [
        ({"id": 1, "method": "m", "result": 1, "x": 1}, ""),  # shape before unknown members
        ({"method": "tool/call", "x": 1}, "id"),  # notification flag before unknown members
        ({"id": None, "result": None, "x": 1}, "'x'"),  # unknown members before everything inside
        ({"id": None, "result": None}, "jsonrpc"),
        ({"jsonrpc": "2.0", "id": None, "result": None}, "id"),
        ({"jsonrpc": "2.0", "id": 1, "method": 1, "params": None}, "method"),
        ({"jsonrpc": "2.0", "id": 1, "error": {"code": 1, "message": 1}}, "error.message"),  # types before the pair
    ],
)
def test_the_first_fault_in_a_fixed_order_is_reported(frame: Any, path: str) -> None:
    with pytest.raises(ProtocolError) as caught:
        classify(frame, is_notification=is_notification)
    assert caught.value.path == path


def test_builders_give_exact_bytes() -> None:
    assert canonical.encode(request(1, "m", {"b": 1, "a": 2})) == (
        b'{"id":1,"jsonrpc":"2.0","method":"m","params":{"a":2,"b":1}}'
    )
    assert canonical.encode(notification("m", {})) == b'{"jsonrpc":"2.0","method":"m","params":{}}'
    assert canonical.encode(success("a", {"x": True})) == b'{"id":"a","jsonrpc":"2.0","result":{"x":true}}'
    assert canonical.encode(failure(3, "request_cancelled")) == (
        b'{"error":{"code":-32800,"message":"request cancelled"},"id":3,"jsonrpc":"2.0"}'
    )
    assert canonical.encode(failure(3, "invalid_params", None)) == (
        b'{"error":{"code":-32602,"data":null,"message":"invalid params"},"id":3,"jsonrpc":"2.0"}'
    )
