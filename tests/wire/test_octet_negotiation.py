"""The selection is right in every point, or refused under the name of its first fault."""

from __future__ import annotations

from collections.abc import Callable
from copy import deepcopy
from typing import Any

import pytest

from broker.errors import NegotiationError
from broker.wire.octet.contract import build_offer
from broker.wire.octet.models import ProtocolLimits
from broker.wire.octet.negotiation import Expectation, Selection, check_selection

GoodResult = Callable[..., dict[str, Any]]

OFFER = build_offer(["event_bus", "lifecycle_events"])
TIDE = Expectation(tools=("tide",))


def refusal(result: Any, expectation: Expectation = TIDE, offer: Any = OFFER) -> NegotiationError:
    with pytest.raises(NegotiationError) as caught:
        check_selection(result, offer=offer, expectation=expectation)
    assert caught.value.faults, "a refusal lists its faults"
    assert caught.value.faults[0].name == caught.value.name
    return caught.value


def changed(result: dict[str, Any], path: str, value: Any) -> dict[str, Any]:
    """A copy with ``value`` at ``path``; a callable makes the value from the old one, ``...`` removes it."""
    result = deepcopy(result)
    *parents, last = path.split("/")
    place: Any = result
    for key in parents:
        place = place[int(key) if key.isdigit() else key]
    if value is ...:
        del place[last]
    else:
        place[last] = value(place[last]) if callable(value) else value
    return result


def test_a_right_selection_is_the_contract(good_result: GoodResult) -> None:
    selection = check_selection(
        good_result(hooks=True), offer=OFFER, expectation=Expectation(tools=("tide",), session_hooks=True)
    )
    assert isinstance(selection, Selection)
    assert selection.capabilities == frozenset(
        ("content_parts", "core", "event_bus", "lifecycle_events", "request_cancellation", "tool_call")
    )
    assert {"bus/lifecycle", "hook/run", "tool/call"} <= selection.methods
    assert selection.limits == ProtocolLimits(max_frame_bytes=1_048_576, max_concurrent_requests=2, max_tools=16)
    assert [tool.name for tool in selection.tools] == ["tide"]


@pytest.mark.spec("octet.selection.list-order")
def test_list_order_carries_no_meaning(good_result: GoodResult) -> None:
    result = good_result(tools=("a", "b"))
    for path in ("contract/capabilities", "contract/methods", "tools"):
        result = changed(result, path, lambda names: names[::-1])
    selection = check_selection(result, offer=OFFER, expectation=Expectation(tools=("a", "b")))
    assert [tool.name for tool in selection.tools] == ["b", "a"]


@pytest.mark.spec(
    "octet.selection.response-shape",
    "octet.selection.version",
    "octet.selection.schema",
    "octet.selection.encoding",
    "octet.selection.name-count",
    "octet.selection.name-bytes",
    "octet.selection.unknown-name",
    "octet.selection.duplicate-name",
    "octet.selection.deferred-name",
    "octet.selection.method-without-capability",
    "octet.selection.missing-required",
    "octet.selection.limit-zero",
    "octet.selection.limit-over-maximum",
    "octet.selection.limit-fraction",
    "octet.selection.bus-needs-lifecycle",
    "octet.selection.subscribe-needs-event",
    "octet.selection.hooks-need-pair",
    "octet.bound.max-capabilities",
    "octet.bound.max-methods",
    "octet.bound.max-capability-name-bytes",
    "octet.bound.max-method-name-bytes",
    "octet.bound.max-tools",
    "octet.bound.max-frame-bytes",
)
@pytest.mark.parametrize(
    ("path", "value", "name", "fault"),
    [
        ("api_version", "0.4", "version_mismatch", "api_version"),
        ("api_version", 3, "invalid_params", "api_version"),
        ("commands", [], "invalid_params", "'commands'"),
        ("contract", ..., "invalid_params", "contract"),
        ("tools", ..., "invalid_params", "tools"),
        ("contract/schema", "octet.extension.api/0.4", "version_mismatch", "contract.schema"),
        ("contract/encoding", "json", "invalid_params", "contract.encoding"),
        ("contract/capabilities", ["core"] * 33, "resource_exhausted", "contract.capabilities"),
        ("contract/capabilities", ["core"] * 32, "capability_mismatch", "contract.capabilities[1]"),
        ("contract/methods", ["initialize"] * 64, "capability_mismatch", "contract.methods[1]"),
        ("contract/methods", ["initialize"] * 65, "resource_exhausted", "contract.methods"),
        ("contract/capabilities", lambda n: [*n, ""], "invalid_params", "contract.capabilities[5]"),
        ("contract/capabilities", lambda n: [*n, "x" * 65], "resource_exhausted", "contract.capabilities[5]"),
        ("contract/capabilities", lambda n: [*n, "x" * 64], "capability_mismatch", "contract.capabilities[5]"),
        ("contract/methods", lambda n: [*n, "x" * 129], "resource_exhausted", "contract.methods[10]"),
        ("contract/methods", lambda n: [*n, "x" * 128], "capability_mismatch", "contract.methods[10]"),
        ("contract/capabilities", lambda n: [*n, "telepathy"], "capability_mismatch", "contract.capabilities[5]"),
        ("contract/capabilities", lambda n: [*n, n[0]], "capability_mismatch", "contract.capabilities[5]"),
        ("contract/methods", lambda n: [*n, n[0]], "capability_mismatch", "contract.methods[10]"),
        ("contract/capabilities", lambda n: [*n, "dynamic_tools"], "capability_mismatch", "contract.capabilities[5]"),
        ("contract/methods", lambda n: [*n, "tools/register"], "capability_mismatch", "contract.methods[10]"),
        ("contract/methods", lambda n: [*n, "hook/run"], "capability_mismatch", "contract.methods[10]"),
        ("contract/limits/max_tools", 0, "invalid_params", "contract.limits.max_tools"),
        ("contract/limits/max_tools", -1, "invalid_params", "contract.limits.max_tools"),
        ("contract/limits/max_tools", True, "invalid_params", "contract.limits.max_tools"),
        ("contract/limits/max_tools", 1.5, "invalid_params", "contract.limits.max_tools"),
        ("contract/limits/max_tools", None, "invalid_params", "contract.limits.max_tools"),
        ("contract/limits/max_tools", 257, "resource_exhausted", "contract.limits.max_tools"),
        ("contract/limits/max_frame_bytes", 1_048_577, "resource_exhausted", "contract.limits.max_frame_bytes"),
        ("contract/limits/max_jokes", 1, "invalid_params", "contract.limits.'max_jokes'"),
        ("contract/capabilities", lambda n: n[1:], "capability_mismatch", "contract.capabilities"),
        ("contract/methods", lambda n: [m for m in n if m != "shutdown"], "capability_mismatch", "contract.methods"),
        (
            "contract/methods",
            lambda n: [m for m in n if m != "bus/lifecycle"],
            "capability_mismatch",
            "contract.methods",
        ),
        ("contract/methods", lambda n: [m for m in n if m != "bus/event"], "capability_mismatch", "contract.methods"),
        ("contract/capabilities", lambda n: [*n, "lifecycle_events"], "capability_mismatch", "contract.capabilities"),
    ],
)
def test_each_fault(good_result: GoodResult, path: str, value: Any, name: str, fault: str) -> None:
    error = refusal(changed(good_result(), path, value))
    assert (error.name, error.path) == (name, fault)


@pytest.mark.spec("octet.selection.not-offered", "octet.capability.offered-when-bound")
@pytest.mark.parametrize("names", ["session_lifecycle session/create", "theme_selection theme/select"])
def test_a_known_but_unoffered_service_is_refused(good_result: GoodResult, names: str) -> None:
    capability, method = names.split()
    result = changed(good_result(), "contract/capabilities", lambda old: [*old, capability])
    error = refusal(changed(result, "contract/methods", lambda old: [*old, method]))
    assert (error.name, error.path) == ("capability_mismatch", "contract.capabilities[5]")
    error = refusal(good_result(), offer=build_offer())
    assert (error.name, error.path) == ("capability_mismatch", "contract.capabilities[4]")
    assert "'event_bus' was not offered" in str(error)


@pytest.mark.spec("octet.selection.limit-over-offer", "octet.selection.limit-lower")
def test_a_limit_above_the_offer_is_refused(good_result: GoodResult) -> None:
    offer = build_offer(
        ["event_bus"], limits=ProtocolLimits(max_frame_bytes=4_096, max_concurrent_requests=1, max_tools=1)
    )
    at_offer = good_result(max_frame_bytes=4_096, max_concurrent_requests=1, max_tools=1)
    assert check_selection(at_offer, offer=offer, expectation=TIDE).limits == offer.limits
    for limit, value in (("max_frame_bytes", 4_097), ("max_concurrent_requests", 2), ("max_tools", 2)):
        error = refusal(changed(at_offer, f"contract/limits/{limit}", value), offer=offer)
        assert (error.name, error.path, error.observed) == ("capability_mismatch", f"contract.limits.{limit}", value)


@pytest.mark.spec("octet.selection.subscribe-needs-event")
def test_a_bus_without_subscriptions_needs_no_event(good_result: GoodResult) -> None:
    drop = {"bus/event", "bus/subscribe", "bus/declare", "bus/unsubscribe", "bus/publish"}
    result = changed(good_result(), "contract/methods", lambda names: [name for name in names if name not in drop])
    assert "bus/lifecycle" in check_selection(result, offer=OFFER, expectation=TIDE).methods


@pytest.mark.spec("octet.selection.hooks-need-pair")
def test_declared_session_hooks_capability_and_method_go_together(good_result: GoodResult) -> None:
    hooks = Expectation(tools=("tide",), session_hooks=True)
    assert "hook/run" in check_selection(good_result(hooks=True), offer=OFFER, expectation=hooks).methods
    both_missing = refusal(good_result(hooks=False), hooks)
    assert [fault.path for fault in both_missing.faults] == ["contract.capabilities", "contract.methods"]
    undeclared = refusal(good_result(hooks=True))
    assert undeclared.name == "capability_mismatch"
    without_method = changed(good_result(hooks=True), "contract/methods", lambda n: [m for m in n if m != "hook/run"])
    assert [fault.path for fault in refusal(without_method, hooks).faults] == ["contract.methods"]


@pytest.mark.spec("octet.selection.deferred-contribution")
def test_deferred_contributions_fail_the_start(good_result: GoodResult) -> None:
    error = refusal(good_result(), Expectation(tools=("tide",), deferred=("commands", "menu")))
    assert error.name == "capability_mismatch"
    assert [fault.problem for fault in error.faults] == [
        "commands is not available on this wire",
        "menu is not available on this wire",
    ]


@pytest.mark.spec("octet.selection.tools-match-manifest")
def test_the_tool_set_is_that_of_the_manifest(good_result: GoodResult) -> None:
    for names, problem in [
        (("tide", "tide"), "'tide' appears twice"),
        (("tide", "moon"), "'moon' is not in the manifest"),
        ((), "'tide' of the manifest is missing"),
    ]:
        error = refusal(good_result(tools=names))
        assert (error.name, error.faults[0].problem) == ("capability_mismatch", problem)


@pytest.mark.spec("octet.selection.too-many-tools", "octet.bound.max-tools")
def test_tools_above_the_selected_count(good_result: GoodResult) -> None:
    names = tuple(f"t{index}" for index in range(3))
    expectation = Expectation(tools=names)
    assert len(check_selection(good_result(tools=names, max_tools=3), offer=OFFER, expectation=expectation).tools) == 3
    error = refusal(good_result(tools=names, max_tools=2), expectation)
    assert (error.name, error.path, error.observed, error.maximum) == ("resource_exhausted", "tools", 3, 2)


SCHEMA = {"type": "object", "properties": {"a": {"items": {"anyOf": [{"const": 1}]}}}, "additionalProperties": False}


@pytest.mark.spec(
    "octet.selection.tool-description",
    "octet.selection.tool-parameters",
    "octet.selection.tool-output-schema",
    "octet.bound.max-tool-description-bytes",
)
@pytest.mark.parametrize(
    ("member", "value", "name", "path"),
    [
        ("description", "", "invalid_params", "description"),
        ("description", " \t\n", "invalid_params", "description"),
        ("description", "x" * 4_097, "resource_exhausted", "description"),
        ("description", None, "invalid_params", "description"),
        ("parameters", [], "invalid_params", "parameters"),
        ("parameters", None, "invalid_params", "parameters"),
        ("parameters", True, "invalid_params", "parameters"),
        ("output_schema", None, "invalid_params", "output_schema"),
        ("output_schema", True, "invalid_params", "output_schema"),
        ("output_schema", {"$ref": "#"}, "invalid_params", "output_schema.'$ref'"),
        (
            "output_schema",
            {"properties": {"a": {"pattern": "x"}}},
            "invalid_params",
            "output_schema.properties.'a'.'pattern'",
        ),
        ("output_schema", {"properties": []}, "invalid_params", "output_schema.properties"),
        ("output_schema", {"properties": {"a": True}}, "invalid_params", "output_schema.properties.'a'"),
        (
            "output_schema",
            {"properties": {"p" * 257: {}}},
            "resource_exhausted",
            "output_schema.properties.'" + "p" * 125 + "...'",
        ),
        ("output_schema", {"items": {"if": {}}}, "invalid_params", "output_schema.items.'if'"),
        (
            "output_schema",
            {"additionalProperties": {"not": {}}},
            "invalid_params",
            "output_schema.additionalProperties.'not'",
        ),
        ("output_schema", {"oneOf": [{}, {"format": "x"}]}, "invalid_params", "output_schema.oneOf[1].'format'"),
        ("output_schema", {"allOf": {}}, "invalid_params", "output_schema.allOf"),
        ("title", "x", "invalid_params", "'title'"),
    ],
)
def test_faults_of_a_tool_definition(good_result: GoodResult, member: str, value: Any, name: str, path: str) -> None:
    error = refusal(
        changed(good_result(), f"tools/0/{member}", (lambda _: value) if member == "description" else value)
    )
    assert (error.name, error.path) == (name, f"tools[0].{path}")


@pytest.mark.spec(
    "octet.selection.tool-name",
    "octet.selection.tool-output-schema",
    "octet.bound.max-tool-name-bytes",
    "octet.bound.max-tool-description-bytes",
    "octet.model.byte-length",
)
def test_tool_definitions_at_their_bounds(good_result: GoodResult) -> None:
    for name in ("n" * 128, "é" * 64, "with space.and-dash"):
        result = changed(good_result(tools=(name,)), "tools/0/description", "é" * 2_048)
        result = changed(result, "tools/0/output_schema", {**SCHEMA, "properties": {"p" * 256: {}}})
        assert check_selection(result, offer=OFFER, expectation=Expectation(tools=(name,))).tools[0].name == name
    for name, row in [
        ("n" * 129, "resource_exhausted"),
        ("", "invalid_params"),
        ("a\n", "invalid_params"),
        ("a\x85", "invalid_params"),
    ]:
        error = refusal(good_result(tools=(name,)), Expectation(tools=(name,)))
        assert (error.name, error.path) == (row, "tools[0].name")
        assert str(error).isprintable()


@pytest.mark.spec("octet.selection.tool-output-schema")
def test_the_depth_of_an_output_schema_is_bounded(good_result: GoodResult) -> None:
    def nested(levels: int) -> dict[str, Any]:
        schema: dict[str, Any] = {}
        for _ in range(levels - 1):
            schema = {"items": schema}
        return schema

    result = changed(good_result(), "tools/0/output_schema", nested(32))
    assert check_selection(result, offer=OFFER, expectation=TIDE).tools[0].output_schema == nested(32)
    error = refusal(changed(good_result(), "tools/0/output_schema", nested(33)))
    assert (error.name, error.limit, error.observed) == ("invalid_params", "MAX_JSON_DEPTH", 33)


@pytest.mark.spec("octet.selection.tool-schemas-total")
def test_all_schemas_of_a_catalogue_together_are_bounded(good_result: GoodResult) -> None:
    names = ("a", "b")
    expectation = Expectation(tools=names)
    # {"description":"..."} costs 18 bytes around its text; the other three schemas are {"type":"object"} and {}.
    room = 4_194_304 - 18 - len('{"type":"object"}')
    result = changed(good_result(tools=names), "tools/0/parameters", {"description": "x" * room})
    assert check_selection(result, offer=OFFER, expectation=expectation)
    error = refusal(changed(result, "tools/0/parameters", {"description": "x" * (room + 1)}), expectation)
    assert (error.limit, error.observed, error.maximum) == ("MAX_CATALOGUE_SCHEMA_BYTES", 4_194_305, 4_194_304)
    error = refusal(changed(result, "tools/1/output_schema", {}), expectation)
    assert (error.name, error.limit, error.observed) == ("resource_exhausted", "MAX_CATALOGUE_SCHEMA_BYTES", 4_194_306)


@pytest.mark.spec("octet.selection.first-fault")
def test_checks_run_in_a_fixed_order(good_result: GoodResult) -> None:
    """A result with one fault of every step; each repair uncovers the next step's fault."""
    result = good_result(bus=True, tools=("tide", "moon"))
    for path, value in [
        ("api_version", "0.4"),
        ("extra", 1),
        ("contract/schema", "x"),
        ("contract/encoding", "x"),
        ("contract/capabilities", [*(["core"] * 30), "", "telepathy", "dynamic_tools"]),
        ("contract/methods", [*(["initialize"] * 62), "", "telepathy", "tools/register"]),
        ("contract/limits", {"max_frame_bytes": 0, "max_concurrent_requests": 65, "max_tools": 1}),
        ("tools/0/description", " "),
    ]:
        result = changed(result, path, value)
    expectation = Expectation(tools=("tide",), session_hooks=True, deferred=("menu",))
    offer = build_offer(["event_bus"], limits=ProtocolLimits(max_concurrent_requests=8))
    good = good_result(bus=False)["contract"]
    steps: list[tuple[str, str, str, Any]] = [
        ("invalid_params", "'extra'", "extra", ...),
        ("version_mismatch", "api_version", "api_version", "0.3"),
        ("version_mismatch", "contract.schema", "contract/schema", "octet.extension.api/0.3"),
        ("invalid_params", "contract.encoding", "contract/encoding", "octet-canonical-json-v1"),
        ("resource_exhausted", "contract.capabilities", "contract/capabilities", lambda n: n[29:]),
        ("invalid_params", "contract.capabilities[1]", "contract/capabilities", lambda n: [n[0], n[0], *n[2:]]),
        ("capability_mismatch", "contract.capabilities[1]", "contract/capabilities", ["core", "dynamic_tools"]),
        ("resource_exhausted", "contract.methods", "contract/methods", lambda n: n[61:]),
        ("invalid_params", "contract.methods[1]", "contract/methods", lambda n: [n[0], n[0], *n[2:]]),
        ("capability_mismatch", "contract.methods[1]", "contract/methods", ["tools/register", "bus/declare"]),
        ("capability_mismatch", "contract.capabilities[1]", "contract/capabilities", ["session_lifecycle"]),
        ("capability_mismatch", "contract.methods[0]", "contract/methods", ["bus/declare"]),
        ("capability_mismatch", "contract.methods[0]", "contract/capabilities", ["event_bus", "session_lifecycle"]),
        ("invalid_params", "contract.limits.max_frame_bytes", "contract/limits/max_frame_bytes", 1_048_576),
        (
            "resource_exhausted",
            "contract.limits.max_concurrent_requests",
            "contract/limits/max_concurrent_requests",
            64,
        ),
        ("resource_exhausted", "tools", "contract/limits/max_tools", 2),
        (
            "capability_mismatch",
            "contract.capabilities[1]",
            "contract/capabilities",
            [*good["capabilities"], "event_bus"],
        ),
        ("capability_mismatch", "contract.methods", "contract/methods", [*good["methods"], "bus/subscribe"]),
        (
            "capability_mismatch",
            "contract.limits.max_concurrent_requests",
            "contract/limits/max_concurrent_requests",
            8,
        ),
        ("capability_mismatch", "contract.methods", "contract/methods", [*good["methods"], "bus/lifecycle"]),
    ]
    for name, fault, path, repair in steps:
        error = refusal(result, expectation, offer)
        assert (error.name, error.path) == (name, fault)
        result = changed(result, path, repair)
    hooks = refusal(result, expectation, offer)
    assert [fault.problem for fault in hooks.faults] == [
        "'lifecycle_events' is not selected, the manifest declares the session hooks",
        "'hook/run' is not selected, the manifest declares the session hooks",
    ]
    deferred = refusal(result, Expectation(tools=("tide",), deferred=("menu",)), offer)
    assert deferred.path == "contributes"
    names = refusal(result, Expectation(tools=("tide",)), offer)
    assert names.path == "tools[1].name"
    definition = refusal(result, Expectation(tools=("tide", "moon")), offer)
    assert definition.path == "tools[0].description"
    result = changed(result, "tools/0/description", "fine")
    assert check_selection(result, offer=offer, expectation=Expectation(tools=("tide", "moon")))
