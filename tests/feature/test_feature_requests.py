"""Requests of both sides on the feature-negotiated wire: gates, scopes, parents, cancellation, progress, notices."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from broker.errors import (
    CancelledError,
    CapabilityMismatchError,
    InternalError,
    InvalidParamsError,
    ProtocolError,
    TimedOutError,
    UnavailableError,
    UsageError,
)
from broker.wire.events import Closed
from broker.wire.feature.events import CancelReceived, NoticeReceived, ParentSettled, RequestReceived
from broker.wire.feature.features import FEATURES, LIFECYCLE_EVENTS, is_since
from broker.wire.feature.methods import METHODS, Scope, find_method
from broker.wire.octet.settings import Phase

Make = Callable[..., Any]
OWNER = {"session_id": "s1", "extension_instance_id": "i1", "process_generation": 1}
FIELDS: dict[str, dict[str, Any]] = {
    "confirmation/request": {"prompt": "Sure?", "destructive": True, "default": False},
    "input/request": {"prompt": "Name?", "secret": False},
    "artifact/publish": {"mime_type": "text/plain", "size": 1, "sha256": "0" * 64, "data": "eA=="},
    "policy/evaluate": {"intent": {"act": "write"}},
    "secret/get": {"name": "KEY"},
    "tools/register": {"tools": []},
    "tools/unregister": {"names": []},
    "session/switch": {"session_id": "s2"},
    "notification": {"level": "info", "message": "hello"},
    "context/contribution": {"contribution": {"label": "a", "content": "b", "placement": "end"}},
    "status/contribution": {"contribution": {"surface": "status", "text": "x", "style_role": "dim", "priority": -1}},
    "presentation/update": {"snapshot": {"activities": []}},
    "$/progress": {"request_id": 2, "sequence": 0, "event": {"type": "status", "text": "half"}},
    "$/cancelRequest": {"id": 9},
}
SESSION = {"session_id": "s2"}
CATALOGUE = {"revision": 1, "tools": [{"name": "t", "description": "x", "parameters": {"minimum": 0.5}}]}
RESULTS: dict[str, dict[str, Any]] = {
    "confirmation/request": {"confirmed": True},
    "input/request": {"value": "north"},
    "artifact/publish": {"artifact_id": "a1"},
    "policy/evaluate": {"decision": "ask"},
    "secret/get": {"value": "hunter2"},
    "tools/register": CATALOGUE,
    "tools/unregister": CATALOGUE,
    **{f"session/{name}": SESSION for name in ("wait_for_idle", "create", "fork", "switch", "reload", "compact")},
}
REQUESTS = [row for row in METHODS.values() if row.from_extension and not row.notification]
SCOPED = [row for row in REQUESTS if row.scope is not Scope.FREE]


def example(row: Any) -> tuple[str, dict[str, Any]]:
    """A method of this row and parameters it takes under parent 2."""
    name = row.name.replace("*", "read")
    params = dict(FIELDS.get(name, {}))
    if row.scope in (Scope.PARENT, Scope.PARENT_AND_OWNER):
        params["parent_request_id"] = 2
    if row.scope in (Scope.PARENT_AND_OWNER, Scope.PARENT_OR_OWNER):
        params["resource_owner"] = OWNER
    return name, params


def requested(wire: Any) -> Any:
    (event,) = wire.events()
    assert isinstance(event, RequestReceived)
    return event.incoming


def closed_with(wire: Any) -> Any:
    events = wire.events()
    assert isinstance(events[-1], Closed)
    return events[-1].error


# -- which methods there are -------------------------------------------------------------------------------------------


@pytest.mark.spec("octet.legacy.methods")
@pytest.mark.parametrize("row", REQUESTS, ids=lambda row: row.name)
@pytest.mark.parametrize("version", ["0.1", "0.2", "0.4"])
def test_a_request_is_served_from_its_version_on_and_unknown_before(new_wire: Make, row: Any, version: str) -> None:
    wire = new_wire(version).ready()
    wire.call()
    name, params = example(row)
    if version == "0.1":
        params.pop("parent_request_id", None)
    wire.ask("a", name, **params)
    if is_since(version, row.since):
        incoming = requested(wire)
        assert (incoming.id, incoming.method, incoming.row) == ("a", name, row)
        result = RESULTS.get(name, {"fine": 0.5})
        for wrong in ({**result, "value": 7}, {"other": 1}, [], None) if row.result else ([], None, {"x": object()}):
            with pytest.raises(InternalError):
                wire.connection.answer(incoming, wrong)
        assert wire.written() == []
        wire.connection.answer(incoming, result)
        assert wire.written() == [{"jsonrpc": "2.0", "id": "a", "result": result}]
    else:
        assert wire.refusals() == [("a", -32601, "unsupported_feature")]
        assert wire.names() == ["Diagnostic"]


@pytest.mark.spec("octet.legacy.unnegotiated")
@pytest.mark.parametrize("row", [row for row in REQUESTS if row.feature], ids=lambda row: row.name)
def test_a_request_whose_feature_was_not_negotiated_is_refused_as_documented(
    new_wire: Make, every_feature: Make, row: Any
) -> None:
    without = {row.feature} | {other.name for other in FEATURES.values() if other.needs == row.feature}
    wire = new_wire("0.4").ready([name for name in every_feature("0.4") if name not in without])
    wire.call()
    name, params = example(row)
    wire.ask(7, name, **params)
    family = name.partition("/")[0]
    expected = (-32002, "unavailable") if family in ("agent", "secret") else (-32601, "unsupported_feature")
    assert wire.refusals() == [(7, *expected)]
    assert wire.names() == ["Diagnostic"]


@pytest.mark.spec("octet.legacy.unknown-method")
def test_an_unknown_method_is_refused_and_an_unknown_notification_dropped(new_wire: Make) -> None:
    wire = new_wire("0.4").ready()
    for name in ("nowhere", "bus/publish", "theme/select", "providers/register", "migration/detect", "tool/call"):
        wire.ask(name, name)
        wire.tell(name)
    assert wire.names() == ["Diagnostic"] * 12
    refusals = wire.refusals()
    assert {refusal[1:] for refusal in refusals} == {(-32601, "unsupported_feature")}
    assert len(refusals) == 6
    assert wire.connection.phase is Phase.READY


@pytest.mark.spec("octet.legacy.no-canonical-services", "octet.version.no-retag")
def test_no_canonical_method_is_a_method_of_this_wire() -> None:
    for version in ("0.1", "0.2", "0.4"):
        for name in (
            *("bus/declare", "bus/subscribe", "bus/unsubscribe", "bus/publish", "bus/event", "bus/lifecycle"),
            *("theme/select", "providers/register", "providers/update", "providers/unregister", "providers/complete"),
            *("provider/stream", "provider/event", "provider/cancel", "provider/auth/request", "provider/auth/revoke"),
            *("migration/detect", "migration/import"),
        ):
            assert find_method(version, name) is None


@pytest.mark.spec("octet.legacy.methods")
@pytest.mark.parametrize("name", ["bulk/", "bulk/*", "bulk", "bulk/" + "x" * 128, "bulk/\n", "bulk/ü", "*", "", "/"])
def test_a_family_has_members_with_plain_names(name: str) -> None:
    assert find_method("0.4", name) is None


@pytest.mark.spec("octet.legacy.dropped-notifications")
def test_64_notifications_are_dropped_and_the_65th_ends_the_stream(new_wire: Make) -> None:
    wire = new_wire("0.2").ready(())
    for _ in range(64):
        wire.tell("$/progress", **FIELDS["$/progress"])
    assert wire.names() == ["Diagnostic"] * 64
    wire.tell("nowhere")
    error = closed_with(wire)
    assert (error.name, error.limit, error.observed) == ("resource_exhausted", "MAX_UNNEGOTIATED_NOTIFICATIONS", 65)


@pytest.mark.spec("octet.legacy.methods")
def test_the_host_sends_only_what_was_negotiated(new_wire: Make) -> None:
    wire = new_wire("0.1").ready()
    for method in ("menu/collect", "resource/dispose", "bus/event", "input/request", "nowhere"):
        with pytest.raises(CapabilityMismatchError, match="has not negotiated"):
            wire.connection.request(method, {})
    with pytest.raises(CapabilityMismatchError, match="has not negotiated session/started"):
        wire.connection.notify("session/started", {})
    with pytest.raises(UsageError, match="sent by the connection itself"):
        wire.connection.request("initialize", {})
    wire = new_wire("0.4").ready(())
    with pytest.raises(CapabilityMismatchError, match="has not negotiated resource/dispose"):
        wire.connection.request("resource/dispose", {})
    wire.connection.request("menu/collect", {})
    assert [line["method"] for line in wire.written()] == ["menu/collect"]


# -- scope -------------------------------------------------------------------------------------------------------------


@pytest.mark.spec("octet.legacy.parent")
@pytest.mark.parametrize("row", SCOPED, ids=lambda row: row.name)
def test_a_scoped_request_names_an_open_host_request(new_wire: Make, row: Any) -> None:
    name, params = example(row)
    wire = new_wire("0.4").ready()
    wire.call()
    for number, bad in enumerate((None, "2", True, 2.0, -1, 0, 3, 2**53 - 1)):
        wire.ask(number, name, **{**params, "parent_request_id": bad})
    wire.ask(8, name, **{key: value for key, value in params.items() if key != "parent_request_id"})
    assert wire.refusals() == [(number, -32602, "invalid_request") for number in range(9)]
    assert wire.names() == ["Diagnostic"] * 9


@pytest.mark.spec("octet.legacy.parent")
def test_a_request_for_a_settled_parent_is_cancelled_and_its_id_is_used(new_wire: Make) -> None:
    wire = new_wire("0.2").ready()
    wire.call()
    wire.receive({"jsonrpc": "2.0", "id": 2, "result": {}})
    wire.ask("late", "input/request", prompt="?", secret=False, parent_request_id=2)
    assert wire.names() == []
    (line,) = wire.written()
    assert (line["id"], line["error"]["code"]) == ("late", -32800)
    assert line["error"]["data"] == {"reason": "request_cancelled", "parent_request_id": 2}
    wire.call()
    wire.ask("late", "input/request", prompt="?", secret=False, parent_request_id=3)
    assert "was used before" in str(closed_with(wire))


@pytest.mark.spec("octet.legacy.parent")
def test_a_request_that_has_not_left_and_initialize_are_no_parents(new_wire: Make) -> None:
    wire = new_wire("0.2").ready()
    wire.call(write=False)
    wire.ask(1, "input/request", prompt="?", secret=False, parent_request_id=2)
    wire.ask(2, "input/request", prompt="?", secret=False, parent_request_id=1)
    assert [refusal[1] for refusal in wire.refusals()] == [-32602, -32800]


@pytest.mark.spec("octet.legacy.children-cancelled")
@pytest.mark.parametrize("how", ["answer", "error", "cancel", "timeout"])
def test_when_the_parent_settles_its_open_children_are_cancelled(new_wire: Make, how: str) -> None:
    wire = new_wire("0.4").ready()
    parent, other = wire.call(timeout_ms=1_000), wire.call()
    for child, under in (("a", 2), ("b", 2), ("c", 3), ("d", 2)):
        wire.ask(child, "input/request", prompt="?", secret=False, parent_request_id=under)
    incoming = {event.incoming.id: event.incoming for event in wire.events()}
    wire.connection.answer(incoming["b"], {"value": None})
    wire.written()
    if how == "answer":
        wire.receive({"jsonrpc": "2.0", "id": 2, "result": {}})
    elif how == "error":
        wire.receive({"jsonrpc": "2.0", "id": 2, "error": {"code": 1, "message": "no"}})
    elif how == "cancel":
        wire.connection.cancel(parent, "user")
    else:
        wire.pass_ms(1_000)
    events = wire.events()
    assert [(type(event), event.incoming.id) for event in events] == [(CancelReceived, "a"), (CancelReceived, "d")]
    assert wire.refusals() == [("a", -32800, "request_cancelled"), ("d", -32800, "request_cancelled")]
    assert (parent.settled, other.settled) == (True, False)
    for settled in ("a", "b", "d"):
        if settled == "b":
            with pytest.raises(UsageError, match="answered already"):
                wire.connection.answer(incoming[settled], {})
        else:
            wire.connection.answer(incoming[settled], {"too": "late"})
    wire.connection.answer(incoming["c"], {"value": "x"})
    assert [line["id"] for line in wire.written()] == ["c"]


@pytest.mark.spec("octet.legacy.children-cancelled")
@pytest.mark.parametrize("how", ["answer", "cancel"])
def test_a_parent_with_128_open_children_may_settle(new_wire: Make, how: str) -> None:
    wire = new_wire("0.2").ready()
    parent, other = wire.call(), wire.call()
    for number in range(128):
        wire.ask(number, "input/request", prompt="?", secret=False, parent_request_id=2)
    for _ in range(3):
        wire.call(write=False)
    if how == "cancel":
        wire.connection.cancel(parent, "user")
    else:
        wire.receive({"jsonrpc": "2.0", "id": 2, "result": {}})
    assert wire.connection.phase is Phase.READY
    assert wire.connection.queued_frames == 128
    assert sorted(number for number, _, _ in wire.refusals()) == list(range(128))
    assert (parent.settled, other.settled) == (True, False)


@pytest.mark.spec("octet.legacy.owner")
@pytest.mark.parametrize("member", ["session_id", "extension_instance_id", "process_generation"])
def test_an_owner_is_exactly_this_generation(new_wire: Make, member: str) -> None:
    wire = new_wire("0.4").ready()
    wire.call()
    wire.ask(1, "session/create", parent_request_id=2, resource_owner=OWNER)
    incoming = requested(wire)
    assert incoming.owner.process_generation == 1
    wrong = {**OWNER, member: 2 if member == "process_generation" else "other"}
    wire.ask(2, "session/create", parent_request_id=2, resource_owner=wrong)
    wire.ask(3, "composer/get", parent_request_id=2, resource_owner=wrong)
    wire.ask(4, "composer/get", parent_request_id=2, resource_owner=OWNER)
    assert wire.refusals() == [(2, -32002, "not_foreground_owner"), (3, -32002, "not_foreground_owner")]
    wire.ask(5, "session/create", parent_request_id=2)
    wire.ask(6, "composer/get", parent_request_id=2, resource_owner={**OWNER, member: None})
    wire.ask(7, "composer/get", parent_request_id=2, resource_owner={**OWNER, "more": 1})
    wire.events()
    assert wire.refusals() == [(number, -32602, "invalid_request") for number in (5, 6, 7)]


@pytest.mark.spec("octet.legacy.v01-frozen")
def test_0_1_has_no_parents(new_wire: Make) -> None:
    wire = new_wire("0.1").ready()
    wire.call()
    wire.ask(1, "confirmation/request", **FIELDS["confirmation/request"], parent_request_id=2)
    wire.ask(2, "confirmation/request", **FIELDS["confirmation/request"])
    assert wire.names() == ["Diagnostic", "RequestReceived"]
    assert wire.refusals() == [(1, -32602, "invalid_request")]


# -- ids and bounds ----------------------------------------------------------------------------------------------------


@pytest.mark.spec("octet.legacy.child-ids")
@pytest.mark.parametrize("child", [0, 2**64 - 1, "", "x" * 256, "0"])
def test_child_ids_are_unsigned_64_bit_integers_or_short_strings(new_wire: Make, child: int | str) -> None:
    wire = new_wire("0.2").ready()
    wire.call()
    wire.ask(child, "input/request", prompt="?", secret=False, parent_request_id=2)
    wire.connection.answer(requested(wire), {"value": "x"})
    (line,) = wire.written()
    assert (line["id"], type(line["id"])) == (child, type(child))


@pytest.mark.spec("octet.legacy.child-ids")
def test_128_requests_may_be_open_and_one_more_ends_the_stream(new_wire: Make) -> None:
    wire = new_wire("0.2").ready()
    wire.call()
    for number in range(128):
        wire.ask(number, "input/request", prompt="?", secret=False, parent_request_id=2)
    assert wire.names() == ["RequestReceived"] * 128
    wire.ask(128, "input/request", prompt="?", secret=False, parent_request_id=2)
    assert closed_with(wire).limit == "MAX_EXTENSION_REQUESTS_OUTSTANDING"


@pytest.mark.spec("octet.legacy.refusals")
def test_a_refusal_has_its_code_its_reason_and_a_text_that_is_safe(new_wire: Make) -> None:
    wire = new_wire("0.2").ready()
    wire.call()
    errors = [
        InvalidParamsError("no \x1b[31mred"),
        InvalidParamsError("too long", name="resource_exhausted"),
        UnavailableError("nobody is there"),
        UnavailableError("in the background", path="resource_owner"),
        CapabilityMismatchError("not served"),
        CancelledError("gone"),
        ProtocolError("something of the host's own"),
    ]
    for number, error in enumerate(errors):
        wire.ask(number, "input/request", prompt="?", secret=False, parent_request_id=2)
        wire.connection.refuse(requested(wire), error)
    lines = [line["error"] for line in wire.written()]
    assert [(line["code"], line["data"]["reason"]) for line in lines] == [
        (-32602, "invalid_request"),
        (-32602, "bounds_exceeded"),
        (-32002, "unavailable"),
        (-32002, "not_foreground_owner"),
        (-32002, "unavailable"),
        (-32800, "request_cancelled"),
        (-32603, "internal_error"),
    ]
    assert lines[0]["message"] == r"no \x1b[31mred"
    assert lines[-1]["message"] == "internal error"


@pytest.mark.spec("octet.legacy.refusals")
def test_an_answer_over_the_bound_of_a_line_becomes_a_refusal(new_wire: Make) -> None:
    wire = new_wire("0.2").ready()
    wire.call()
    wire.ask(1, "tools/register", tools=[])
    large = {"name": "t", "description": "x", "parameters": {"x": "y" * 1_048_576}}
    wire.connection.answer(requested(wire), {"revision": 1, "tools": [large]})
    assert wire.refusals() == [(1, -32602, "bounds_exceeded")]
    assert wire.connection.phase is Phase.READY


@pytest.mark.spec("octet.legacy.bad-params")
@pytest.mark.parametrize("version", ["0.1", "0.2", "0.4"])
@pytest.mark.parametrize(
    ("method", "change"),
    [
        ("confirmation/request", {"prompt": ""}),
        ("confirmation/request", {"prompt": "x" * 16_385}),
        ("confirmation/request", {"default": None}),
        ("confirmation/request", {"destructive": 1}),
        ("confirmation/request", {"more": 1}),
        ("input/request", {"prompt": "x" * 16_385}),
        ("input/request", {"secret": "no"}),
        ("artifact/publish", {"sha256": "F" * 64}),
        ("artifact/publish", {"size": True}),
        ("policy/evaluate", {"intent": []}),
        ("policy/evaluate", {"intent": {"x": "y" * 65_536}}),
        ("policy/evaluate", {"approval_token": "f" * 63}),
        ("secret/get", {"name": ""}),
        ("tools/register", {"tools": {}}),
        ("tools/unregister", {"names": [1]}),
        ("session/switch", {"session_id": "x" * 257}),
        ("session/create", {"more": 1}),
        ("bulk/write", {"data": "x" * 262_144}),
    ],
)
def test_bad_parameters_are_refused_and_the_stream_lives(
    new_wire: Make, version: str, method: str, change: dict[str, Any]
) -> None:
    row = find_method(version, method)
    if row is None:
        return
    wire = new_wire(version).ready()
    wire.call()
    params = {**example(row)[1], **change}
    if version == "0.1":
        params.pop("parent_request_id", None)
    wire.ask(1, method, **params)
    ((number, code, reason),) = wire.refusals()
    assert (number, code) == (1, -32602)
    assert reason in ("invalid_request", "bounds_exceeded")
    assert (reason == "bounds_exceeded") is any(
        len(str(value)) > 256 for value in (*change.values(), change.get("intent", {}) or "")
    )
    wire.receive({"jsonrpc": "2.0", "id": 2, "result": {}})
    assert wire.names() == ["Diagnostic"]
    assert wire.settled[0].result == {}


@pytest.mark.spec("octet.legacy.bad-params")
def test_params_that_are_no_object_are_refused(new_wire: Make) -> None:
    wire = new_wire("0.2").ready()
    for number, params in enumerate(([], "text", 1)):
        wire.receive({"jsonrpc": "2.0", "id": number, "method": "tools/register", "params": params})
    assert [code for _, code, _ in wire.refusals()] == [-32602] * 3


# -- cancellation ------------------------------------------------------------------------------------------------------


@pytest.mark.spec("octet.legacy.cancel")
def test_a_cancelled_request_is_told_once_and_has_its_grace(new_wire: Make) -> None:
    wire = new_wire("0.2").ready()
    request = wire.call()
    wire.connection.cancel(request, "user")
    wire.connection.cancel(request, "again")
    assert [(line["method"], line["params"]) for line in wire.written()] == [
        ("$/cancelRequest", {"id": 2, "reason": "user"})
    ]
    assert isinstance(request.error, CancelledError)
    wire.pass_ms(1_999)
    assert wire.names() == []
    wire.pass_ms(1)
    assert isinstance(closed_with(wire), TimedOutError)
    assert wire.settled == [request]


@pytest.mark.spec("octet.legacy.cancel")
def test_a_reason_is_4096_bytes_at_most(new_wire: Make) -> None:
    wire = new_wire("0.2").ready()
    request = wire.call()
    with pytest.raises(InvalidParamsError, match="MAX_REASON_BYTES"):
        wire.connection.cancel(request, "x" * 4_097)
    assert not request.settled
    wire.connection.cancel(request, "x" * 4_096)
    assert wire.written()[0]["params"]["reason"] == "x" * 4_096


@pytest.mark.spec("octet.legacy.no-cancel-v01")
def test_0_1_is_told_nothing_and_has_the_same_grace(new_wire: Make) -> None:
    wire = new_wire("0.1").ready()
    timed_out = wire.call(timeout_ms=100)
    wire.pass_ms(100)
    assert isinstance(timed_out.error, TimedOutError)
    assert (wire.written(), wire.names()) == ([], [])
    wire.pass_ms(1_000)
    wire.receive({"jsonrpc": "2.0", "id": 2, "result": {}})
    assert wire.names() == ["Diagnostic"]  # late, and in time
    cancelled = wire.call()
    wire.connection.cancel(cancelled, "user")
    assert wire.written() == []
    wire.pass_ms(2_000)
    assert isinstance(closed_with(wire), TimedOutError)
    assert wire.settled == [timed_out, cancelled]


@pytest.mark.spec("octet.legacy.cancel")
def test_a_queued_request_that_is_cancelled_never_leaves(new_wire: Make) -> None:
    wire = new_wire("0.4").ready()
    request = wire.call(write=False)
    wire.connection.cancel(request, "user")
    assert wire.written() == []
    wire.pass_ms(60_000)
    assert wire.connection.phase is Phase.READY


@pytest.mark.spec("octet.legacy.cancel")
def test_an_extension_cancels_its_own_request_and_is_told_so(new_wire: Make) -> None:
    wire = new_wire("0.2").ready()
    wire.call()
    wire.ask("a", "input/request", prompt="?", secret=False, parent_request_id=2)
    incoming = requested(wire)
    wire.tell("$/cancelRequest", id="a", reason="never mind")
    wire.tell("$/cancelRequest", id="a")
    wire.tell("$/cancelRequest", id="unknown")
    (event,) = wire.events()
    assert event == CancelReceived(incoming, "never mind")
    assert wire.refusals() == [("a", -32800, "request_cancelled")]
    wire.connection.answer(incoming, {"value": "late"})
    assert wire.written() == []
    wire = new_wire("0.1").ready()
    wire.tell("$/cancelRequest", id="a")
    assert wire.names() == ["Diagnostic"]


# -- notifications -----------------------------------------------------------------------------------------------------


@pytest.mark.spec("octet.legacy.undeclared-contribution")
@pytest.mark.parametrize("version", ["0.1", "0.2", "0.4"])
@pytest.mark.parametrize(
    "method", ["notification", "context/contribution", "status/contribution", "presentation/update"]
)
def test_a_contribution_that_was_not_declared_ends_the_stream(new_wire: Make, version: str, method: str) -> None:
    row = find_method(version, method)
    if row is None:
        return
    params = example(row)[1]
    wire = new_wire(version).ready()
    wire.tell(method, **params)
    (event,) = wire.events()
    assert isinstance(event, NoticeReceived)
    assert event.method == method
    declares = [
        name for name in ("notifications", "context", "presentation", "ui", "ui.status") if name != row.declares
    ]
    wire = new_wire(version, declares=declares).ready()
    waiting = wire.call()
    wire.tell(method, **params)
    error = closed_with(wire)
    assert (type(error), error.name, error.method) == (ProtocolError, "capability_mismatch", method)
    assert waiting.error is not None


@pytest.mark.spec("octet.legacy.undeclared-contribution")
def test_a_status_for_a_surface_that_was_not_declared_ends_the_stream(new_wire: Make) -> None:
    wire = new_wire("0.2").ready()
    item = {**FIELDS["status/contribution"]["contribution"], "surface": "footer"}
    wire.tell("status/contribution", contribution=item)
    assert "footer" in str(closed_with(wire))


@pytest.mark.spec("octet.legacy.undeclared-confirmation")
def test_a_confirmation_that_was_not_declared_is_refused(new_wire: Make) -> None:
    wire = new_wire("0.2", declares=()).ready()
    wire.call()
    wire.ask(1, "confirmation/request", **FIELDS["confirmation/request"], parent_request_id=2)
    assert wire.refusals() == [(1, -32601, "unsupported_feature")]


@pytest.mark.spec("octet.legacy.presentation")
def test_a_presentation_has_a_parent_or_an_owner_and_not_both(new_wire: Make) -> None:
    wire = new_wire("0.2").ready()
    parent = wire.call()
    snapshot = {"activities": [{"nodes": [{"x": 0.5}]}]}
    wire.tell("presentation/update", snapshot=snapshot, parent_request_id=2)
    wire.tell("presentation/update", snapshot=snapshot, resource_owner=OWNER)
    first, second = wire.events()
    assert (first.parent, first.owner, first.model.snapshot) == (parent, None, snapshot)
    assert (second.parent, second.owner.session_id) == (None, "s1")
    wire.tell("presentation/update", snapshot=snapshot)
    wire.tell("presentation/update", snapshot=snapshot, parent_request_id=2, resource_owner=OWNER)
    wire.tell("presentation/update", snapshot=snapshot, resource_owner={**OWNER, "process_generation": 2})
    wire.tell("presentation/update", snapshot={"x": "y" * 262_144}, resource_owner=OWNER)
    wire.tell("presentation/update", snapshot=snapshot, parent_request_id=9)
    assert wire.names() == ["Diagnostic"] * 5
    wire.receive({"jsonrpc": "2.0", "id": 2, "result": {}})
    assert wire.events() == [ParentSettled(parent)]
    wire.tell("presentation/update", snapshot=snapshot, parent_request_id=2)
    assert wire.names() == []


@pytest.mark.spec("octet.legacy.progress")
def test_progress_rises_and_stale_progress_is_ignored(new_wire: Make) -> None:
    wire = new_wire("0.4").ready()
    request = wire.call()
    for sequence in (0, 3, 3, 1, 4):
        wire.tell("$/progress", request_id=2, sequence=sequence, event={"type": "output", "text": str(sequence)})
    assert [(e.request, e.report.sequence, e.report.event.text) for e in wire.events()] == [
        (request, 0, "0"),
        (request, 3, "3"),
        (request, 4, "4"),
    ]
    wire.tell("$/progress", request_id=9, sequence=0, event={"type": "status", "text": ""})
    wire.receive({"jsonrpc": "2.0", "id": 2, "result": {}})
    wire.tell("$/progress", request_id=2, sequence=9, event={"type": "status", "text": ""})
    assert wire.names() == []
    assert wire.connection.phase is Phase.READY


@pytest.mark.spec("octet.legacy.progress")
def test_decoration_is_a_feature_of_its_own_and_bad_progress_is_dropped(new_wire: Make) -> None:
    decoration = {"type": "decoration", "decoration": {"icon": "wave"}}
    for features, expected in ((("request_progress",), "Diagnostic"), (None, "ProgressReceived")):
        wire = new_wire("0.2").ready(features)
        wire.call()
        wire.tell("$/progress", request_id=2, sequence=0, event=decoration)
        assert wire.names() == [expected]
    wire.tell("$/progress", request_id=2, sequence=1, event={"type": "other"})
    wire.tell("$/progress", request_id=2, sequence=-1, event=decoration)
    assert wire.names() == ["Diagnostic"] * 2


@pytest.mark.spec("octet.legacy.lifecycle-events")
def test_lifecycle_notifications_go_out_as_asked_for_or_not_at_all(new_wire: Make) -> None:
    wire = new_wire("0.2").ready(("lifecycle_events",))
    assert [wire.connection.notify(name, {"at": 1}) for name in LIFECYCLE_EVENTS] == [True] * 6
    assert [line["method"] for line in wire.written()] == list(LIFECYCLE_EVENTS)
    with pytest.raises(CapabilityMismatchError):
        wire.connection.notify("dialog/opened", {})
    wire = new_wire("0.4").ready(("lifecycle_events_v2",))
    for name in ("message/appended", "compaction/started", "dialog/opened", "model/selected"):
        assert wire.connection.notify(name, {})
    with pytest.raises(CapabilityMismatchError):
        wire.connection.notify("session/started", {})


@pytest.mark.spec("octet.legacy.lifecycle-best-effort")
def test_a_lifecycle_notification_that_waits_250_ms_is_dropped(new_wire: Make) -> None:
    wire = new_wire("0.2").ready(("lifecycle_events",))
    assert wire.connection.notify("turn/started", {"turn": 1})
    wire.pass_ms(249)
    assert wire.connection.notify("turn/started", {"turn": 2})
    assert wire.connection.next_deadline() == wire.clock.monotonic_ms() + 1
    wire.pass_ms(1)
    assert wire.names() == ["Diagnostic"]
    assert [line["params"] for line in wire.written()] == [{"turn": 2}]
    assert wire.connection.next_deadline() is None
    wire.pass_ms(1_000)
    assert wire.names() == []


@pytest.mark.spec("octet.legacy.lifecycle-best-effort")
def test_a_full_queue_takes_no_lifecycle_notification(new_wire: Make) -> None:
    wire = new_wire("0.2").ready(("lifecycle_events",))
    sent = [wire.connection.notify("turn/started", {}) for _ in range(130)]
    assert sent == [True] * 128 + [False] * 2


@pytest.mark.spec("octet.legacy.concurrency")
def test_as_many_requests_are_sent_at_once_as_were_agreed_and_one_on_0_1(new_wire: Make) -> None:
    for version, slots in (("0.1", 1), ("0.2", 4)):
        wire = new_wire(version).ready()
        for _ in range(6):
            wire.connection.request("tool/call", {})
        assert len(wire.written()) == slots
        wire.receive({"jsonrpc": "2.0", "id": 2, "result": {}})
        wire.events()
        assert [line["id"] for line in wire.written()] == [2 + slots]
