"""An extension of API 0.1, 0.2 or 0.4 in a session: start, calls, contributions, hooks, presentation, stop."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import Any

import feature_scripts as play
import pytest
from feature_kit import add_feature, ask_host, start_feature

from broker.adapters.aio import AsyncHost
from broker.errors import (
    CancelledError,
    CapabilityMismatchError,
    ExtensionError,
    InvalidParamsError,
    NegotiationError,
    RemoteError,
    ResultError,
    SetupError,
    TimedOutError,
)
from broker.host import Diagnostic, FeatureGeneration, Health
from broker.host.feature.presenting import check_snapshot
from broker.wire.feature.features import LIFECYCLE_EVENTS
from broker.wire.feature.results import (
    Menu,
    decode_command_result,
    decode_context,
    decode_hook_result,
    decode_menu,
    decode_parts_result,
    decode_status,
    decode_text_result,
)
from broker.wire.octet.models import TextPart

Open = Callable[..., Any]
VERSIONS = ("0.1", "0.2", "0.4")
EVERYTHING: dict[str, Any] = {
    "commands": ["go"],
    "tool_renderers": ["work"],
    "hooks": ["before_prompt"],
    "context": True,
    "ui": ["status", "footer"],
}


# -- start -------------------------------------------------------------------------------------------------------------


@pytest.mark.spec("octet.version.exact-selection", "octet.legacy.initialize", "octet.legacy.v01-frozen")
@pytest.mark.parametrize("version", VERSIONS)
def test_initialize_says_what_its_version_has(open_memory: Open, version: str) -> None:
    world = open_memory()
    extension = start_feature(world, play.Plain, version)
    request = world.processes[-1].received[0]
    assert (request["id"], request["method"], request["jsonrpc"]) == (1, "initialize", "2.0")
    params = request["params"]
    members = {"api_version", "octet_version", "extension", "workspace", "capabilities", "contributes", "host"}
    assert set(params) == (members if version == "0.1" else members | {"flag_values", "protocol"})
    assert params["api_version"] == version
    assert ("shortcuts" in params["contributes"]) is (version != "0.1")
    assert params["extension"] == {
        "name": "tide",
        "version": "1.0.0",
        "manifest_path": "/extensions/tide/extension.toml",
        "source": "explicit",
    }
    if version != "0.1":
        assert params["protocol"] == {
            "version": version,
            "required_features": ["request_cancellation", "content_parts"],
            "optional_features": [],
            "limits": {"max_concurrent_requests": 64},
        }
    assert isinstance(extension.generation, FeatureGeneration)
    assert world.bus.statistics().peers == ()


@pytest.mark.spec("octet.version.no-retag", "octet.version.exact-selection")
@pytest.mark.parametrize("version", VERSIONS)
def test_a_canonical_answer_on_this_wire_fails_the_start_and_the_bus_is_out_of_reach(
    open_memory: Open, version: str
) -> None:
    contract = {"schema": "octet.extension.api/0.3", "encoding": "octet-canonical-json-v1"}

    class Canonical(play.Plain):  # type: ignore[misc,name-defined]
        def agreement(self, params: Any) -> Any:
            assert "contract" not in params
            return {"api_version": "0.3", "tools": [], "contract": contract}

    world = open_memory()
    with pytest.raises(NegotiationError):
        start_feature(world, Canonical, version)
    assert world.session.extension("tide").health is Health.PARKED
    asker = start_feature(world, play.Asker, version, name="asker")
    world.attach("plugin").declare("bus.plugin.topic", [])
    for method in ("bus/subscribe", "bus/publish", "theme/select", "providers/register"):
        (got,) = ask_host(world, asker, [method, {"binding_id": "x", "topic": "bus.plugin.topic"}])
        assert got["code"] == -32601


@pytest.mark.spec("octet.version.v01", "octet.version.v02", "octet.version.v04", "octet.version.reply-mismatch")
@pytest.mark.parametrize("version", VERSIONS)
def test_each_version_runs_and_an_answer_with_another_fails_the_start(open_world: Open, version: str) -> None:
    world = open_world()
    extension = start_feature(world, play.Plain, version)
    result = world.settle(extension.call("work", {}))
    assert (result.content, result.is_error) == ((TextPart(text="done"),), False)
    world.settle(extension.stop())
    assert world.exits() == [(1, 0, "stopped")]


@pytest.mark.spec("octet.version.reply-mismatch")
@pytest.mark.parametrize("version", VERSIONS)
def test_an_answer_with_another_version_ends_the_process(open_memory: Open, version: str) -> None:
    class Other(play.Plain):  # type: ignore[misc,name-defined]
        def agreement(self, params: Any) -> Any:
            return {**super().agreement(params), "api_version": "0.2" if version != "0.2" else "0.4"}

    world = open_memory()
    with pytest.raises(NegotiationError) as caught:
        start_feature(world, Other, version)
    assert caught.value.name == "version_mismatch"
    assert [status for _, status, _ in world.exits()] == [-9]


# -- calls -------------------------------------------------------------------------------------------------------------


@pytest.mark.spec("octet.legacy.tool-result", "octet.legacy.v01-frozen")
def test_0_1_answers_with_one_text_and_nothing_else() -> None:
    assert decode_text_result({"content": "", "is_error": True}).is_error
    for wrong in (
        {"content": [{"type": "text", "text": "x"}], "is_error": False},
        {"content": "x", "is_error": False, "structured_content": {}},
        {"content": "x", "is_error": False, "metadata": None},
        {"content": "x"},
        "x",
        None,
    ):
        with pytest.raises(ResultError):
            decode_text_result(wrong)


@pytest.mark.spec("octet.legacy.tool-result")
def test_0_2_answers_with_parts_structured_content_and_metadata() -> None:
    decode = decode_parts_result(lambda artifact_id: artifact_id == "a1")
    image = {"type": "image", "artifact_id": "a1", "mime_type": "image/png", "alt": "a wave"}
    audio = {"type": "audio", "artifact_id": "a1", "mime_type": "audio/ogg", "transcript": "splash"}
    result = decode(
        {"content": [{"type": "text", "text": ""}, image, audio], "is_error": False, "metadata": {"x": 0.5}}
    )
    assert [type(part).__name__ for part in result.content] == ["TextPart", "ImagePart", "AudioPart"]
    assert decode({"content": [], "is_error": True}).content == ()
    assert decode({"content": [], "is_error": True, "structured_content": None}).structured_content is None
    part = {"type": "text", "text": "x"}
    assert len(decode({"content": [part] * 256, "is_error": False}).content) == 256
    for wrong in (
        {"content": [part] * 257, "is_error": False},
        {"content": "x", "is_error": False},
        {"content": [{**image, "artifact_id": "a2"}], "is_error": False},
        {"content": [{**part, "more": 1}], "is_error": False},
        {"content": [{"type": "video"}], "is_error": False},
        {"content": [], "is_error": 0},
        {"content": [], "is_error": False, "metadata": {"x": "y" * 65_536}},
        {"content": [], "is_error": False, "structured_content": ["y" * 262_144]},
        {"content": [], "is_error": False, "more": 1},
    ):
        with pytest.raises(ResultError):
            decode(wrong)


@pytest.mark.spec("octet.legacy.tool-result", "octet.legacy.context")
@pytest.mark.parametrize("version", VERSIONS)
def test_a_bad_result_fails_its_call_and_the_context_says_who_owns_what(open_memory: Open, version: str) -> None:
    class Bad(play.Plain):  # type: ignore[misc,name-defined]
        def default_result(self, method: str) -> Any:
            return {"content": 7, "is_error": False}

    world = open_memory()
    extension = start_feature(world, Bad, version)
    with pytest.raises(ResultError):
        world.settle(extension.call("work", {"depth": 0.5}))
    params = world.processes[-1].received[-1]["params"]
    assert (params["name"], params["arguments"]) == ("work", {"depth": 0.5})
    assert params["context"].get("resource_owner") == (
        None
        if version == "0.1"
        else {
            "session_id": world.session.session_id,
            "extension_instance_id": extension.instance_id,
            "process_generation": 1,
        }
    )
    assert extension.health is Health.READY


@pytest.mark.spec("octet.legacy.cancel", "octet.legacy.no-cancel-v01")
@pytest.mark.parametrize("version", VERSIONS)
def test_a_call_that_times_out_is_cancelled_and_no_answer_in_two_seconds_ends_the_process(
    open_memory: Open, version: str
) -> None:
    world = open_memory()
    extension = start_feature(world, play.Mute, version)
    call = extension.call("work", {}, timeout_ms=500)
    world.advance(500)
    with pytest.raises(TimedOutError):
        call.result()
    cancels = [m for m in world.processes[-1].received if m.get("method") == "$/cancelRequest"]
    assert [m["params"] for m in cancels] == ([] if version == "0.1" else [{"id": 2, "reason": "timeout"}])
    world.advance(1_999)
    assert extension.health is Health.READY
    world.advance(1)
    assert world.exits()[0][:2] == (1, -9)
    world.advance(500)
    assert extension.generation.number == 2


def test_a_host_may_add_to_the_context(open_memory: Open, service: Any) -> None:
    services = service.bind(host_context=lambda origin: {"model": "m1", "models": [origin.extension]})
    world = open_memory(services)
    world.settle(start_feature(world, play.Plain, "0.4").call("work", {}))
    host = world.processes[-1].received[-1]["params"]["context"]["host"]
    assert (host["model"], host["models"]) == ("m1", ["tide"])


def test_a_host_that_fails_to_add_to_the_context_fails_no_call(open_memory: Open, service: Any) -> None:
    world = open_memory(service.bind(host_context=lambda origin: 1 / 0))  # type: ignore[arg-type,return-value]
    assert world.settle(start_feature(world, play.Plain, "0.4").call("work", {})).is_error is False
    assert any("ZeroDivisionError" in text for text in world.diagnostics())


# -- contributions -----------------------------------------------------------------------------------------------------


@pytest.mark.spec("octet.legacy.command", "octet.legacy.hooks", "octet.legacy.collect", "octet.legacy.render")
@pytest.mark.parametrize("version", VERSIONS)
def test_commands_hooks_collections_and_rendering(open_world: Open, version: str) -> None:
    world = open_world()
    more = EVERYTHING if version == "0.1" else {**EVERYTHING, "menu": True}
    extension = start_feature(world, play.Contributor, version, **more)
    of = extension.contributions
    assert [command.name for command in of.commands] == ["go"]
    went = world.settle(of.execute("go", ["north"]))
    assert (went.text, went.notifications[0].message, went.context[0].label) == ("went", "gone", "tides")
    hook = world.settle(of.run_hook("before_prompt", {"prompt": "x"}))
    assert (hook.denied, hook.disposition.reason, len(hook.context), hook.notifications) == (True, "no", 1, ())
    assert [item.content for item in world.settle(of.collect_context("x"))] == ["14:05"]
    status = world.settle(of.collect_status("status"))
    assert (status.text, status.style_role, status.priority) == ("high", "dim", 3)
    with pytest.raises(ResultError):
        world.settle(of.collect_status("footer"))
    rendering = world.settle(of.render_tool("work", {}, "out"))
    assert [(segment.text, segment.style_role) for segment in rendering.segments] == [("tide", "strong")]
    if version == "0.1":
        with pytest.raises(CapabilityMismatchError):
            of.collect_menu()
    else:
        assert world.settle(of.collect_menu()).tree == {"items": [{"label": "Go", "command": "go"}]}


@pytest.mark.spec("octet.legacy.command", "octet.legacy.hooks", "octet.legacy.collect", "octet.legacy.render")
def test_what_was_not_declared_is_not_asked_for(open_memory: Open) -> None:
    world = open_memory()
    of = start_feature(world, play.Plain, "0.4", ui=[]).contributions
    for ask, error in (
        (lambda: of.execute("go"), InvalidParamsError),
        (lambda: of.run_hook("before_prompt", {}), InvalidParamsError),
        (lambda: of.collect_context("x"), CapabilityMismatchError),
        (lambda: of.collect_status("status"), InvalidParamsError),
        (lambda: of.collect_menu(), CapabilityMismatchError),
        (lambda: of.render_tool("work", {}, ""), InvalidParamsError),
        (lambda: of.dispose_resource({"id": "r"}), CapabilityMismatchError),
        (lambda: of.tell("turn/started", {}), CapabilityMismatchError),
    ):
        with pytest.raises(error):
            ask()
    assert [m["method"] for m in world.processes[-1].received] == ["initialize"]
    stopped = world.session.extension("tide")
    world.settle(stopped.stop())
    with pytest.raises(ExtensionError, match="does not serve"):
        of.execute("go")


def test_arguments_of_a_command_are_strings(open_memory: Open) -> None:
    world = open_memory()
    of = start_feature(world, play.Contributor, "0.2", **EVERYTHING).contributions
    wrong: Any
    for wrong in ("north", [1], [None], None, 5, iter(["north"])):
        with pytest.raises(InvalidParamsError, match="a list or tuple of strings"):
            of.execute("go", wrong)


@pytest.mark.parametrize("wrong", [[1], 5, None])
@pytest.mark.parametrize(
    "ask",
    [
        lambda of, wrong: of.execute(wrong),
        lambda of, wrong: of.run_hook("before_prompt", wrong),
        lambda of, wrong: of.collect_context(wrong),
        lambda of, wrong: of.dispose_resource(wrong),
        lambda of, wrong: of.tell(wrong, {}),
        lambda of, wrong: of.tell("turn/started", wrong),
    ],
)
def test_what_is_asked_has_its_types(open_memory: Open, ask: Any, wrong: Any) -> None:
    world = open_memory()
    of = start_feature(world, play.Contributor, "0.2", **EVERYTHING).contributions
    with pytest.raises(InvalidParamsError) as caught:
        ask(of, wrong)
    assert caught.value.extension == "tide"
    assert {m["method"] for m in world.processes[-1].received if "method" in m} == {"initialize"}


@pytest.mark.spec("octet.legacy.collect", "octet.legacy.hooks", "octet.legacy.command")
def test_results_of_the_wrong_shape_are_refused() -> None:
    assert decode_status("status")(None) is None
    item = {"label": "a", "content": "b", "placement": "c"}
    assert [found.label for found in decode_context([item] * 1_024)] == ["a"] * 1_024
    going_on = {"disposition": {"action": "continue"}}
    assert decode_hook_result("before_prompt")(going_on).denied is False
    for decode, wrong in (
        (decode_context, [item] * 1_025),
        (decode_context, [{**item, "content": "x" * 262_145}]),
        (decode_context, item),
        (decode_status("status"), {"surface": "status"}),
        (decode_hook_result("before_prompt"), {**going_on, "extra": {}}),
        (decode_hook_result("before_prompt"), {"disposition": {"kind": "continue"}}),
        (decode_hook_result("before_prompt"), {"disposition": {"action": "defer"}}),
        (decode_hook_result("compaction_strategy"), {**going_on, "strategy": "x" * 262_144}),
        (decode_hook_result("compaction_strategy"), None),
        (decode_command_result, {"notifications": []}),
        (decode_command_result, {"text": "", "notifications": [{"level": "", "message": ""}]}),
    ):
        with pytest.raises(ResultError):
            decode(wrong)


@pytest.mark.spec("octet.legacy.menu")
def test_a_menu_has_256_items_four_levels_and_256_kib() -> None:
    def nested(levels: int) -> Any:
        items: list[Any] = [{"label": "leaf"}]
        for _ in range(levels - 1):
            items = [{"label": "branch", "items": items}]
        return {"items": items}

    assert decode_menu(nested(4)) == Menu(nested(4))
    assert decode_menu([{"label": "x"}] * 256).tree
    assert decode_menu({"x": "y" * (262_144 - 8)})
    for wrong, limit in (
        (nested(5), "MAX_MENU_LEVELS"),
        ([{"label": "x"}] * 257, "MAX_MENU_ITEMS"),
        ([{"items": [{}] * 200}, {"items": [{}] * 55}], "MAX_MENU_ITEMS"),
        ({"menu": {"items": [{}] * 257}}, "MAX_MENU_ITEMS"),
        ([[[{}] * 257]], "MAX_MENU_ITEMS"),
        ([{"below": {"items": [{}] * 256}}], "MAX_MENU_ITEMS"),
        ({"menu": nested(5)}, "MAX_MENU_LEVELS"),
        ({"x": "y" * (262_144 - 7)}, "MAX_MENU_BYTES"),
        ("menu", None),
        (None, None),
    ):
        with pytest.raises(ResultError) as caught:
            decode_menu(wrong)
        assert caught.value.limit == limit


@pytest.mark.spec("octet.legacy.menu")
def test_a_menu_has_five_seconds(open_memory: Open) -> None:
    world = open_memory()
    of = start_feature(world, play.Mute, "0.4", commands=[], tool_renderers=["work"], hooks=[]).contributions
    with pytest.raises(CapabilityMismatchError):
        of.collect_menu()
    extension = start_feature(world, play.Menus, "0.4", name="menus", commands=["go"], menu=True)
    request = extension.contributions.collect_menu()
    world.advance(4_999)
    assert not request.done
    world.advance(1)
    with pytest.raises(TimedOutError):
        request.result()


def test_a_request_can_be_cancelled(open_memory: Open) -> None:
    world = open_memory()
    of = start_feature(world, play.Menus, "0.2", commands=["go"], menu=True).contributions
    request = of.execute("go")
    world.run()
    request.cancel()
    request.cancel()
    world.run()
    with pytest.raises(CancelledError):
        request.result()
    assert world.processes[-1].params_of("$/cancelRequest") == [{"id": 2, "reason": "user"}]


@pytest.mark.spec("octet.legacy.hooks", "octet.legacy.v04-features")
def test_hooks_of_0_4_need_their_features_and_may_say_more(open_memory: Open, service: Any) -> None:
    hooks = ["compaction_strategy", "before_provider_request", "model_turn_start"]
    world = open_memory(service.bind(honoured={"compaction_strategy"}))
    of = start_feature(world, play.Hooked, "0.4", hooks=hooks).contributions
    result = world.settle(of.run_hook("compaction_strategy", {}))
    assert result.extra == {"strategy": "keep", "ratio": 0.5}
    with pytest.raises(CapabilityMismatchError, match="needs pipeline_hooks_v1"):
        of.run_hook("before_provider_request", {})
    with pytest.raises(ResultError):
        world.settle(of.run_hook("model_turn_start", {}))
    with pytest.raises(InvalidParamsError):
        of.run_hook("session_start", {})


@pytest.mark.spec("octet.legacy.lifecycle-events")
def test_lifecycle_events_are_told_best_effort(open_memory: Open, service: Any) -> None:
    world = open_memory(service.bind(honoured={"lifecycle_events", "lifecycle_events_v2"}))
    of = start_feature(world, play.Plain, "0.2").contributions
    assert [of.tell(event, {"n": 1}) for event in (*LIFECYCLE_EVENTS, "dialog/opened")] == [True] * 7
    world.run()
    assert [m["method"] for m in world.processes[-1].received[1:]] == [*LIFECYCLE_EVENTS, "dialog/opened"]


def test_a_resource_is_disposed_of(open_memory: Open, service: Any) -> None:
    world = open_memory(service.bind("resources"))
    of = start_feature(world, play.Plain, "0.4").contributions
    world.settle(of.dispose_resource({"resource_id": "r1"}))
    assert world.processes[-1].received[-1]["params"] == {"resource_id": "r1"}


@pytest.mark.spec("octet.legacy.free-text-errors")
def test_an_error_of_the_extension_keeps_its_code_and_text(open_memory: Open) -> None:
    class Failing(play.Plain):  # type: ignore[misc,name-defined]
        def on_message(self, message: Any) -> None:
            if message.get("method") == "tool/call":
                self.send({"jsonrpc": "2.0", "id": message["id"], "error": {"code": 42, "message": "too deep"}})
            else:
                super().on_message(message)

    world = open_memory()
    call = start_feature(world, Failing, "0.1").call("work", {})
    with pytest.raises(RemoteError) as caught:
        world.settle(call)
    assert (caught.value.rpc_code, caught.value.rpc_message) == (42, "too deep")


# -- session hooks, reload, stop ---------------------------------------------------------------------------------------


@pytest.mark.spec("octet.legacy.session-hooks")
@pytest.mark.parametrize("version", ["0.2", "0.4"])
@pytest.mark.parametrize("declared", [["session_start"], ["session_end"], ["session_start", "session_end"]])
def test_either_session_hook_is_run_alone(open_memory: Open, version: str, declared: list[str]) -> None:
    world = open_memory()
    extension = start_feature(world, play.Plain, version, hooks=declared)
    world.run()
    world.settle(extension.stop())
    hooks = world.processes[-1].params_of("hook/run")
    assert [hook["hook"] for hook in hooks] == declared
    binding = {
        "session_id": world.session.session_id,
        "extension_instance_id": extension.instance_id,
        "process_generation": 1,
    }
    assert all(hook["payload"]["binding"] == binding and "context" in hook for hook in hooks)
    assert [m.get("method") for m in world.processes[-1].received][-1] == "shutdown"


@pytest.mark.spec("octet.legacy.session-hooks")
def test_a_denied_session_hook_is_recorded_and_not_obeyed(open_memory: Open) -> None:
    world = open_memory()
    extension = start_feature(world, play.Contributor, "0.2", commands=["go"], hooks=["session_start"])
    world.run()
    assert "session_start: deny is recorded, not obeyed: no" in world.diagnostics()
    assert extension.health is Health.READY


@pytest.mark.spec("octet.legacy.shutdown")
@pytest.mark.parametrize(("answer", "how"), [({}, "stopped"), ({"terminal": "shutdown"}, "without acknowledging")])
def test_shutdown_is_answered_with_an_empty_object(open_memory: Open, answer: Any, how: str) -> None:
    class Ending(play.Plain):  # type: ignore[misc,name-defined]
        def on_message(self, message: Any) -> None:
            if message.get("method") == "shutdown":
                assert message["params"] == {}
                self.answer(message["id"], answer)
            else:
                super().on_message(message)

    world = open_memory()
    extension = start_feature(world, Ending, "0.4")
    world.settle(extension.stop(), within_ms=60_000)
    assert how in world.exits()[0][2]


@pytest.mark.spec("octet.legacy.reload", "octet.legacy.owner")
@pytest.mark.parametrize("version", VERSIONS)
def test_a_reload_starts_the_next_generation_of_the_same_version(open_world: Open, version: str) -> None:
    world = open_world()
    extension = start_feature(world, play.Plain, version)
    instance = extension.instance_id
    world.settle(extension.reload())
    world.until(lambda: len(world.exits()) == 1)
    assert (extension.generation.number, extension.instance_id) == (2, instance)
    assert world.settle(extension.call("work", {})).content[0].text == "done"


@pytest.mark.spec("octet.version.exact-selection")
def test_a_reload_never_changes_the_version(open_memory: Open) -> None:
    from attrs import evolve

    world = open_memory()
    extension = start_feature(world, play.Plain, "0.2")
    for other in ("0.1", "0.3", "0.4"):
        with pytest.raises(SetupError, match="must keep"):
            extension.reload(evolve(extension.manifest, api_version=other))


# -- presentation and progress -----------------------------------------------------------------------------------------


@pytest.mark.spec("octet.legacy.presentation")
def test_snapshots_are_slowed_down_and_the_last_one_wins(open_memory: Open, service: Any) -> None:
    world = open_memory(service.bind("presentation"))
    teller = start_feature(world, play.Teller, "0.2")
    updates = [["presentation/update", {"snapshot": {"n": n}, "resource_owner": "own"}] for n in range(40)]
    world.settle(teller.call("work", {"tell": updates}))
    shown = [entry[2]["n"] for entry in service.log]
    assert shown == list(range(32))
    world.advance(999)
    assert len(service.log) == 32
    world.advance(1)
    assert [entry[2]["n"] for entry in service.log][32:] == [39]
    world.settle(teller.stop())
    assert service.log[-1] == ("withdraw", False)


@pytest.mark.spec("octet.legacy.presentation")
def test_what_was_shown_for_a_request_goes_with_it(open_memory: Open, service: Any) -> None:
    world = open_memory(service.bind("presentation"))
    teller = start_feature(world, play.Teller, "0.4")
    tell = [["presentation/update", {"snapshot": {"a": 1}, "parent_request_id": "call"}]]
    call = teller.call("work", {"tell": tell, "stay": True})
    world.run()
    assert service.log == [("show", True, {"a": 1})]
    call.cancel("user")
    world.run()
    assert service.log[-1] == ("withdraw", True)


@pytest.mark.spec("octet.legacy.presentation")
def test_what_still_waits_to_be_shown_for_a_request_goes_with_it(open_memory: Open, service: Any) -> None:
    world = open_memory(service.bind("presentation"))
    teller = start_feature(world, play.Teller, "0.4")
    owned = [["presentation/update", {"snapshot": {"n": n}, "resource_owner": "own"}] for n in range(32)]
    late = [["presentation/update", {"snapshot": {"late": 1}, "parent_request_id": "call"}]]
    world.settle(teller.call("work", {"tell": owned + late}))
    world.advance(5_000)
    assert [entry[2] for entry in service.log] == [{"n": n} for n in range(32)]


@pytest.mark.spec("octet.legacy.presentation")
@pytest.mark.parametrize(
    ("name", "maximum", "limit"),
    [
        ("activities", 128, "MAX_PRESENTATION_ACTIVITIES"),
        ("nodes", 256, "MAX_PRESENTATION_NODES"),
        ("actions", 64, "MAX_PRESENTATION_ACTIONS"),
    ],
)
def test_a_snapshot_keeps_its_counts_at_any_depth(name: str, maximum: int, limit: str) -> None:
    check_snapshot({name: [1] * maximum})
    check_snapshot({"x": [{name: [1] * (maximum - 1)}, {name: [1]}], "y": {name: "text"}})
    for wrong in ({name: [1] * (maximum + 1)}, {"x": [{name: [1] * maximum}, [{name: [1]}]]}):
        with pytest.raises(Exception, match=limit) as caught:
            check_snapshot(wrong)
        assert caught.value.observed == maximum + 1  # type: ignore[attr-defined]


@pytest.mark.spec("octet.legacy.presentation")
def test_a_snapshot_over_a_bound_is_dropped_and_a_failing_sink_harms_nobody(open_memory: Open, service: Any) -> None:
    world = open_memory(service.bind("presentation", "context", "progress"))
    teller = start_feature(world, play.Teller, "0.2")
    item = {"contribution": {"label": "a", "content": "b", "placement": "c"}}
    service.answers["contribute"] = RuntimeError("sink")
    tell = [
        ["presentation/update", {"snapshot": {"nodes": [1] * 257}, "resource_owner": "own"}],
        ["context/contribution", item],
    ]
    world.settle(teller.call("work", {"tell": tell}))
    assert any("MAX_PRESENTATION_NODES" in text for text in world.diagnostics())
    assert any("RuntimeError: sink" in text for text in world.diagnostics())
    assert teller.health is Health.READY
    assert [entry[0] for entry in service.log] == ["contribute"]


@pytest.mark.spec("octet.legacy.undeclared-contribution")
@pytest.mark.parametrize("version", VERSIONS)
def test_an_undeclared_contribution_ends_the_process_and_the_call(open_world: Open, version: str) -> None:
    world = open_world()
    teller = start_feature(world, play.Teller, version, ui=[])
    with pytest.raises(ExtensionError, match="does not declare notifications"):
        world.settle(teller.call("work", {"tell": [["notification", {"level": "x", "message": "y"}]], "stay": True}))
    world.until(lambda: len(world.exits()) == 1)


# -- flags -------------------------------------------------------------------------------------------------------------


@pytest.mark.spec("octet.legacy.initialize")
@pytest.mark.parametrize("version", ["0.2", "0.4"])
def test_flags_are_given_with_their_defaults_and_what_the_host_set(open_memory: Open, version: str) -> None:
    world = open_memory()
    station = {"name": "station", "type": "string", "default": "north"}
    flags = [station, {"name": "deep", "type": "boolean", "default": False}]
    extension = add_feature(world, play.Plain, version, contributes={"flags": flags})
    assert extension.flags == {}
    world.session.remove("tide")
    extension = world.session.add(extension.manifest, flags={"deep": True})
    world.settle(extension.start())
    assert world.processes[-1].received[0]["params"]["flag_values"] == [
        {"name": "deep", "value": True},
        {"name": "station", "value": "north"},
    ]


# -- linked into a host ------------------------------------------------------------------------------------------------


@pytest.mark.spec("octet.legacy.cancel")
def test_a_task_that_waits_for_a_contribution_can_be_cancelled(tmp_path: Path, rogue: Any, service: Any) -> None:
    body = (
        "message = receive()\n"
        "version = message['params']['protocol']\n"
        "send(id=message['id'], result={'api_version': '0.4', 'tools': [], 'commands': ['go'], 'protocol': {"
        "'version': '0.4', 'features': version['required_features'], 'limits': {'max_concurrent_requests': 1}}})\n"
        "command = receive()\n"
        "cancel = receive()\n"
        "assert cancel['params'] == {'id': command['id'], 'reason': 'user'}, cancel\n"
        "send(id=command['id'], error={'code': -32800, 'message': 'gone'})\n"
        "print('told', file=sys.stderr, flush=True)\n"
        "send(id=receive()['id'], result={})\n"
    )
    path = rogue(body, api_version="0.4", tools=(), commands=["go"])

    async def main() -> None:
        async with AsyncHost() as host:
            session = await host.open_session(tmp_path)
            told = asyncio.Event()
            session.add_observer(lambda n: told.set() if isinstance(n, Diagnostic) and n.text == "told" else None)
            extension = await session.start(path)
            waiting = asyncio.ensure_future(session.wait(extension.contributions.execute("go")))
            await asyncio.sleep(0)
            while extension.generation is not None and not _left(extension.generation):  # noqa: ASYNC110
                await asyncio.sleep(0)
            waiting.cancel()
            with pytest.raises(asyncio.CancelledError):
                await waiting
            await asyncio.wait_for(told.wait(), 30)

    asyncio.run(main())


def _left(generation: Any) -> bool:
    """Whether the command's bytes are with the process."""
    request = generation.connection.outbound.requests.open_request(2)
    return request is not None and request.state.value == "sent"
