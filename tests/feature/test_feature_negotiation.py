"""initialize on the feature-negotiated wire: what is offered, and which answers are right."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from broker.errors import NegotiationError, UsageError
from broker.wire.events import Closed
from broker.wire.feature.features import (
    FEATURES,
    LIFECYCLE_EVENTS,
    REQUIRED_FEATURES,
    SERVICES,
    offered_features,
)
from broker.wire.feature.negotiation import Declared, Offer, judge_answer

Make = Callable[..., Any]
GRANTS = ("capabilities.secrets", "capabilities.system_prompt")
WITHOUT_SERVICE = tuple(row.name for row in FEATURES.values() if row.service is None and not row.required)
BASE = ("request_cancellation", "content_parts")
ALWAYS = """
request_progress progress_decoration artifacts lifecycle_events policy_intents dynamic_tools runtime_commands
semantic_ui editor_handoff terminal_input autocomplete dynamic_tool_renderers composer shortcuts session_entries
message_injection lifecycle_events_v2 active_tools terminal_handoff session_context model_catalog
""".split()
CONDITIONAL = """
agent_sessions agent_model_selection_v1 approvals secrets system_prompt_read delegation_telemetry_v1
""".split()
ONLY_0_4 = """
resource_refs_v1 operation_descriptors_v1 tool_prompt_metadata_v1 autocomplete_edit_v1 tool_composition_v1
bulk_objects_v1 remote_ui session_control_v1 session_compaction_v1 resource_paths_v1 before_prompt_state_v1
pipeline_hooks_v1 compaction_strategy cache_warming_decision agent_session_events_v1 agent_session_lifetime_v1
""".split()


def offered(version: str, **changes: Any) -> set[str]:
    given = {"services": SERVICES, "honoured": WITHOUT_SERVICE, "withheld": (), "grants": GRANTS, **changes}
    return set(offered_features(version, **given))


def judged(version: str, answer: dict[str, Any], features: tuple[str, ...] = (), **declared: Any) -> Any:
    declared = {"tools": ("tide",), **declared}
    offer = Offer(version=version, optional_features=features, max_concurrent_requests=8)  # type: ignore[arg-type]
    return judge_answer(answer, offer=offer, declared=Declared(**declared))


def refused(version: str, answer: dict[str, Any], features: tuple[str, ...] = (), **declared: Any) -> Any:
    with pytest.raises(NegotiationError) as caught:
        judged(version, answer, features, **declared)
    return caught.value


@pytest.mark.spec("octet.legacy.feature-names")
def test_every_feature_name_is_known() -> None:
    assert set(REQUIRED_FEATURES) == set(BASE)
    assert set(FEATURES) == {*BASE, *ALWAYS, *CONDITIONAL, *ONLY_0_4}


@pytest.mark.spec("octet.legacy.v04-features", "octet.legacy.feature-names")
def test_a_host_with_everything_offers_everything_a_version_has() -> None:
    assert offered("0.1") == set()
    assert offered("0.2") == {*ALWAYS, *CONDITIONAL}
    assert offered("0.4") == {*ALWAYS, *CONDITIONAL, *ONLY_0_4}


@pytest.mark.spec("octet.legacy.offered-when-bound")
@pytest.mark.parametrize("row", [row for row in FEATURES.values() if not row.required], ids=lambda row: row.name)
def test_a_feature_is_offered_only_when_the_host_stands_for_it(row: Any) -> None:
    assert row.name in offered("0.4")
    assert row.name not in offered("0.4", withheld=(row.name,))
    if row.service is None:
        assert row.name not in offered("0.4", honoured=set(WITHOUT_SERVICE) - {row.name})
    else:
        assert row.name not in offered("0.4", services=SERVICES - {row.service})
    assert (row.name in offered("0.4", grants=())) is (row.grant is None)
    if row.needs is not None:
        assert row.name not in offered("0.4", withheld=(row.needs,))


@pytest.mark.spec("octet.legacy.initialize")
@pytest.mark.parametrize("version", ["0.1", "0.2", "0.4"])
def test_the_protocol_object_belongs_to_0_2_and_0_4(new_wire: Make, version: str) -> None:
    wire = new_wire(version)
    wire.initialize(("artifacts",))
    (line,) = wire.written()
    assert (line["id"], line["method"]) == (1, "initialize")
    expected = {
        "version": version,
        "required_features": list(BASE),
        "optional_features": ["artifacts"],
        "limits": {"max_concurrent_requests": 8},
    }
    assert line["params"].get("protocol") == (None if version == "0.1" else expected)


@pytest.mark.spec("octet.legacy.initialize", "octet.legacy.v01-frozen")
def test_a_0_1_answer_has_no_protocol_and_no_shortcuts(good_answer: Make) -> None:
    agreement = judged("0.1", good_answer("0.1"))
    assert (agreement.features, agreement.max_concurrent_requests) == (frozenset(), 1)
    for extra in ({"protocol": good_answer("0.2")["protocol"]}, {"shortcuts": []}):
        error = refused("0.1", good_answer("0.1", **extra))
        assert (error.name, error.path) == ("invalid_params", next(iter(extra)))
    error = refused("0.2", good_answer("0.2", protocol=None))
    assert (error.name, error.path) == ("invalid_params", "protocol")


@pytest.mark.spec("octet.version.exact-selection", "octet.legacy.initialize")
@pytest.mark.parametrize("version", ["0.1", "0.2", "0.4"])
@pytest.mark.parametrize("other", ["0.1", "0.2", "0.3", "0.4", "0.5", ""])
def test_another_version_in_the_answer_is_a_mismatch(good_answer: Make, version: str, other: str) -> None:
    if other == version:
        assert judged(version, good_answer(version)).version == version
        return
    error = refused(version, good_answer(version, api_version=other))
    assert (error.name, error.path) == ("version_mismatch", "api_version")
    if version != "0.1":
        answer = good_answer(version)
        answer["protocol"]["version"] = other
        error = refused(version, answer)
        assert (error.name, error.path) == ("version_mismatch", "protocol.version")


@pytest.mark.spec("octet.legacy.features")
@pytest.mark.parametrize(
    ("features", "path", "text"),
    [
        (["request_cancellation"], "protocol.features", "'content_parts' is required"),
        (["content_parts"], "protocol.features", "'request_cancellation' is required"),
        ([*BASE, "event_bus"], "protocol.features[2]", "'event_bus' is unknown"),
        ([*BASE, "composer"], "protocol.features[2]", "'composer' was not offered"),
        ([*BASE, "artifacts", "artifacts"], "protocol.features[3]", "'artifacts' is selected twice"),
        ([*BASE, "content_parts"], "protocol.features[2]", "'content_parts' is selected twice"),
        ([*BASE, "bulk_objects_v1"], "protocol.features[2]", "'bulk_objects_v1' is not part of API 0.2"),
    ],
)
def test_a_wrong_selection_of_features_fails_the_start(
    good_answer: Make, features: list[str], path: str, text: str
) -> None:
    answer = good_answer("0.2")
    answer["protocol"]["features"] = features
    error = refused("0.2", answer, ("artifacts",))
    assert (error.name, error.path) == ("capability_mismatch", path)
    assert text in str(error)


@pytest.mark.spec("octet.legacy.feature-dependencies")
@pytest.mark.parametrize("row", [row for row in FEATURES.values() if row.needs], ids=lambda row: row.name)
def test_a_feature_is_selected_with_what_it_needs(good_answer: Make, every_feature: Make, row: Any) -> None:
    assert row.name in judged("0.4", good_answer("0.4", (row.needs, row.name)), every_feature("0.4")).features
    error = refused("0.4", good_answer("0.4", (row.name,)), every_feature("0.4"))
    assert (error.name, error.path) == ("capability_mismatch", "protocol.features[2]")


@pytest.mark.spec("octet.legacy.concurrency")
def test_concurrency_is_capped_at_the_offer_and_never_zero(good_answer: Make) -> None:
    for asked, given in ((1, 1), (8, 8), (9, 8), (2**53 - 1, 8)):
        answer = good_answer("0.4")
        answer["protocol"]["limits"]["max_concurrent_requests"] = asked
        assert judged("0.4", answer).max_concurrent_requests == given
    answer["protocol"]["limits"]["max_concurrent_requests"] = 0
    error = refused("0.4", answer)
    assert (error.name, error.path) == ("invalid_params", "protocol.limits.max_concurrent_requests")


@pytest.mark.spec("octet.legacy.lifecycle-events")
def test_an_empty_list_of_lifecycle_events_means_all_six(good_answer: Make) -> None:
    features = ("lifecycle_events",)
    for events, expected in (
        (None, LIFECYCLE_EVENTS),
        ([], LIFECYCLE_EVENTS),
        (["turn/settled"], ("turn/settled",)),
    ):
        answer = good_answer("0.2", features)
        if events is not None:
            answer["protocol"]["lifecycle_events"] = events
        assert judged("0.2", answer, features).lifecycle_events == expected
    assert judged("0.2", good_answer("0.2"), features).lifecycle_events == ()
    for wrong in (["turn/started", "turn/started"], ["turn/begun"]):
        answer = good_answer("0.2", features)
        answer["protocol"]["lifecycle_events"] = wrong
        assert refused("0.2", answer, features).name == "capability_mismatch"
    answer = good_answer("0.2")
    answer["protocol"]["lifecycle_events"] = ["turn/started"]
    assert refused("0.2", answer, features).name == "capability_mismatch"


@pytest.mark.spec("octet.legacy.tools-and-commands")
@pytest.mark.parametrize("version", ["0.1", "0.2", "0.4"])
def test_tools_and_commands_are_those_of_the_manifest(good_answer: Make, version: str) -> None:
    tool = {"name": "other", "description": "x", "parameters": {}}
    agreement = judged(
        version, good_answer(version, commands=["go", {"name": "stop", "hint": 1.5}]), commands=("stop", "go")
    )
    assert [(command.name, command.extra) for command in agreement.commands] == [("go", {}), ("stop", {"hint": 1.5})]
    for changes, declared in (
        ({"tools": []}, {}),
        ({"tools": [tool]}, {}),
        ({"tools": [*good_answer(version)["tools"] * 2]}, {}),
        ({"commands": ["go"]}, {}),
        ({"commands": []}, {"commands": ("go",)}),
        ({"commands": ["go", {"name": "go"}]}, {"commands": ("go",)}),
        ({"tool_renderers": ["tide"]}, {}),
    ):
        assert refused(version, good_answer(version, **changes), **declared).name == "capability_mismatch"


@pytest.mark.spec("octet.legacy.tools-and-commands")
@pytest.mark.parametrize(
    ("feature", "changes"),
    [
        ("dynamic_tools", {"tools": []}),
        ("dynamic_tools", {"tools": [{"name": "new", "description": "x", "parameters": {}}]}),
        ("runtime_commands", {"commands": ["new"]}),
        ("dynamic_tool_renderers", {"tool_renderers": ["new"]}),
    ],
)
def test_with_the_dynamic_feature_they_may_differ(good_answer: Make, feature: str, changes: dict[str, Any]) -> None:
    assert judged("0.2", good_answer("0.2", (feature,), **changes), (feature,)).features >= {feature}
    assert refused("0.2", good_answer("0.2", **changes), (feature,)).name == "capability_mismatch"


@pytest.mark.spec("octet.legacy.tools-and-commands")
@pytest.mark.parametrize("name", ["", "two words", "x\x1b[31m", "x" * 65])
def test_names_made_up_at_run_time_are_identifiers(good_answer: Make, name: str) -> None:
    features = ("runtime_commands", "dynamic_tool_renderers")
    for changes in ({"commands": [name]}, {"tool_renderers": [name]}):
        error = refused("0.2", good_answer("0.2", features, **changes), features)
        assert error.name == ("resource_exhausted" if len(name) > 64 else "invalid_params")


@pytest.mark.spec("octet.legacy.tools-and-commands")
def test_256_tools_and_commands_pass_and_one_more_of_either_does_not(good_answer: Make) -> None:
    features = ("dynamic_tools", "runtime_commands")
    tools = [{"name": f"t{number}", "description": "x", "parameters": {}} for number in range(257)]
    commands = [f"c{number}" for number in range(257)]
    good = judged("0.2", good_answer("0.2", features, tools=tools[1:], commands=commands[1:]), features)
    assert (len(good.tools), len(good.commands)) == (256, 256)
    for key, value, limit in (("tools", tools, "MAX_TOOLS"), ("commands", commands, "MAX_COMMANDS")):
        error = refused("0.2", good_answer("0.2", features, **{key: value}), features)
        assert (error.name, error.limit, error.observed, error.maximum) == ("resource_exhausted", limit, 257, 256)


@pytest.mark.spec("octet.legacy.tools-and-commands")
@pytest.mark.parametrize(
    ("command", "path"),
    [
        (7, "commands[0]"),
        ({}, "commands[0].name"),
        ({"name": 1}, "commands[0].name"),
        ({"name": "go", "description": 1}, "commands[0].description"),
        ({"name": "go", "description": "x" * 4_097}, "commands[0].description"),
    ],
)
def test_a_command_is_a_name_or_an_object_with_one(good_answer: Make, command: Any, path: str) -> None:
    assert refused("0.1", good_answer("0.1", commands=[command]), commands=("go",)).path == path


@pytest.mark.spec("octet.legacy.tools-and-commands")
def test_shortcuts_of_the_answer_are_those_of_the_manifest(good_answer: Make) -> None:
    shortcut = {"name": "go", "key": "ctrl+g", "description": "Goes."}
    agreement = judged("0.2", good_answer("0.2", shortcuts=[shortcut]), shortcuts=("go",))
    assert [(found.name, found.key) for found in agreement.shortcuts] == [("go", "ctrl+g")]
    assert judged("0.2", good_answer("0.2"), shortcuts=("go",)).shortcuts == ()
    for wrong in ([], [shortcut, shortcut], [{**shortcut, "name": "stop"}]):
        assert refused("0.2", good_answer("0.2", shortcuts=wrong), shortcuts=("go",)).name == "capability_mismatch"
    assert refused("0.2", good_answer("0.2", shortcuts=[{**shortcut, "key": ""}])).name == "invalid_params"


@pytest.mark.spec("octet.legacy.unknown-answer-member")
@pytest.mark.parametrize("version", ["0.1", "0.2", "0.4"])
def test_an_unknown_member_of_the_answer_is_refused(good_answer: Make, version: str) -> None:
    error = refused(version, good_answer(version, contract={}))
    assert (error.name, error.path) == ("invalid_params", "'contract'")
    if version != "0.1":
        answer = good_answer(version)
        answer["protocol"]["capabilities"] = []
        assert refused(version, answer).path == "protocol.'capabilities'"


@pytest.mark.spec("octet.legacy.tool-definition")
def test_a_tool_may_say_more_only_with_a_feature_that_adds_it(good_answer: Make) -> None:
    tool = {**good_answer("0.4")["tools"][0], "prompt": {"when": "tides"}}
    for feature in ("tool_prompt_metadata_v1", "operation_descriptors_v1"):
        agreement = judged("0.4", good_answer("0.4", (feature,), tools=[tool]), (feature,))
        assert agreement.tool_extras == {"tide": {"prompt": {"when": "tides"}}}
        assert refused("0.4", good_answer("0.4", tools=[tool]), (feature,)).path == "tools[0].'prompt'"


@pytest.mark.spec("octet.legacy.tool-definition")
def test_a_schema_may_hold_fractions_and_keeps_its_bounds(good_answer: Make) -> None:
    tool = {"name": "tide", "description": "x", "parameters": {"properties": {"m": {"minimum": 0.5}}}}
    assert judged("0.2", good_answer("0.2", tools=[tool])).tools[0].parameters == tool["parameters"]
    for bad in ({"parameters": 0.5}, {"description": " "}, {"parameters": {"x": "y" * 4_194_304}}):
        assert refused("0.2", good_answer("0.2", tools=[{**tool, **bad}])).path.startswith("tools")


def test_a_refused_start_closes_the_connection_and_an_error_answer_does_too(new_wire: Make, good_answer: Make) -> None:
    for line in (
        {"jsonrpc": "2.0", "id": 1, "result": good_answer("0.2")},
        {"jsonrpc": "2.0", "id": 1, "error": {"code": -32010, "message": "too new"}},
    ):
        wire = new_wire("0.4")
        request = wire.initialize()
        wire.written()
        wire.receive(line)
        (event,) = wire.events()
        assert isinstance(event, Closed)
        assert isinstance(event.error, NegotiationError)
        assert event.error.name == "version_mismatch"
        assert (request.settled, wire.settled) == (True, [request])
        assert wire.connection.agreement is None


def test_initialize_is_made_once_and_for_its_own_version(new_wire: Make) -> None:
    wire = new_wire("0.2")
    with pytest.raises(UsageError, match=r"speaks API 0\.2 and nothing else"):
        wire.connection.initialize({"api_version": "0.4"}, Offer(version="0.4"), Declared())
    wire.initialize()
    with pytest.raises(UsageError, match="initialize was called in phase initializing"):
        wire.initialize()
