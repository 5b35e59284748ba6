"""What each service's requests are held to: bounds, tokens, catalogues, artifacts, workers, cancellation, faults."""

from __future__ import annotations

import base64
import hashlib
import inspect
import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import feature_scripts as play
import pytest
from feature_kit import ask_host, start_feature

from broker.errors import (
    CancelledError,
    ExtensionError,
    InvalidParamsError,
    ResourceExhaustedError,
    UnavailableError,
    UsageError,
)
from broker.host import FeatureServices, Outcome
from broker.testing import MemorySession
from broker.wire.feature.features import SERVICES

Open = Callable[..., Any]


def inline(data: bytes, /, **changes: Any) -> dict[str, Any]:
    return {
        "mime_type": "text/plain",
        "size": len(data),
        "sha256": hashlib.sha256(data).hexdigest(),
        "data": base64.b64encode(data).decode(),
        **changes,
    }


def refused(got: dict[str, Any]) -> tuple[int, str]:
    return got["code"], got["data"]["reason"]


def test_what_cannot_be_bound_is_said_at_once() -> None:
    for wrong in ({"honoured": ["nowhere"]}, {"honoured": ["composer"]}, {"withheld": ["content_parts"]}):
        with pytest.raises(UsageError):
            FeatureServices(**wrong)  # type: ignore[arg-type]


@pytest.mark.parametrize("name", sorted(SERVICES))
def test_a_service_needs_the_methods_of_its_protocol(name: str) -> None:
    with pytest.raises(UsageError, match=f"{name}: a service bound there needs a method") as caught:
        FeatureServices(**{name: object()})  # type: ignore[arg-type]
    assert caught.value.path == name


def answers(world: Any, call: Any) -> Any:
    return json.loads(world.settle(call).content[0].text)


# -- replies -----------------------------------------------------------------------------------------------------------


@pytest.mark.spec("octet.legacy.refusals")
@pytest.mark.parametrize(
    ("error", "expected"),
    [
        (InvalidParamsError("no"), (-32602, "invalid_request")),
        (ResourceExhaustedError("no"), (-32602, "bounds_exceeded")),
        (UnavailableError("no"), (-32002, "unavailable")),
        (UnavailableError("no", path="resource_owner"), (-32002, "not_foreground_owner")),
        (CancelledError("no"), (-32800, "request_cancelled")),
        (ValueError("secret detail"), (-32603, "internal_error")),
    ],
)
@pytest.mark.parametrize("later", [False, True])
def test_a_service_refuses_by_raising_and_its_own_faults_stay_inside(
    open_memory: Open, service: Any, error: Exception, expected: Any, later: bool
) -> None:
    async def raising() -> bool:
        raise error

    service.answers["confirm"] = raising if later and not isinstance(error, ValueError) else error
    world = open_memory(service.bind("confirmations"))
    asker = start_feature(world, play.Asker, "0.2")
    (got,) = ask_host(world, asker, ["confirmation/request", {"prompt": "?", "destructive": True, "default": False}])
    assert refused(got) == expected
    assert "secret detail" not in str(got)
    assert world.settle(asker.call("work", {})).is_error is False


@pytest.mark.parametrize(
    ("name", "answer", "method", "fields"),
    [
        ("confirm", "yes", "confirmation/request", {"prompt": "?", "destructive": True, "default": False}),
        ("confirm", None, "confirmation/request", {"prompt": "?", "destructive": True, "default": False}),
        ("ask", 7, "input/request", {"prompt": "?", "secret": False}),
        ("evaluate", "maybe", "policy/evaluate", {"intent": {}}),
        ("store", None, "artifact/publish", inline(b"x")),
        ("control", None, "session/create", {}),
        ("run", "text", "composer/get", {}),
        ("run", {"x": object()}, "composer/get", {}),
    ],
)
def test_a_wrong_answer_of_a_service_is_the_hosts_fault(
    open_memory: Open, service: Any, name: str, answer: Any, method: str, fields: Any
) -> None:
    service.answers[name] = lambda: answer
    world = open_memory(service.bind("confirmations", "inputs", "policy", "artifacts", "session_control", "composer"))
    (got,) = ask_host(world, start_feature(world, play.Asker, "0.4"), [method, fields])
    assert refused(got) == (-32603, "internal_error")
    assert got["message"] == "internal error"
    assert any("failed inside the host" in text for text in world.diagnostics())


class UnspeakableError(Exception):
    def __str__(self) -> str:
        raise RuntimeError("no text")


class Unawaitable:
    def __await__(self) -> Any:
        raise AssertionError("nobody waits for it")


def test_a_service_whose_fault_cannot_even_be_told_harms_nobody(
    open_memory: Open, service: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    world = open_memory(service.bind("confirmations", "inputs"))
    asker = start_feature(world, play.Asker, "0.4")

    def refuse(awaitable: Any) -> Any:
        raise ValueError("it belongs to another loop")

    monkeypatch.setattr(world.host.driver, "adopt", refuse)
    service.answers.update(confirm=UnspeakableError(), ask=lambda: Unawaitable())
    got = ask_host(
        world,
        asker,
        ["confirmation/request", {"prompt": "?", "destructive": True, "default": False}],
        ["input/request", {"prompt": "?", "secret": False}],
    )
    assert [refused(one) for one in got] == [(-32603, "internal_error")] * 2
    assert "confirmation/request failed inside the host: UnspeakableError" in world.diagnostics()
    assert "input/request failed inside the host: ValueError: it belongs to another loop" in world.diagnostics()
    assert world.settle(asker.call("work", {})).is_error is False


def test_services_answer_later_by_outcome_and_by_awaitable(open_world: Open, service: Any) -> None:
    async def later() -> str:
        return "from a coroutine"

    outcome: Outcome[str] = Outcome()
    service.answers["ask"] = lambda: outcome
    world = open_world(service.bind("inputs"))
    asker = start_feature(world, play.Asker, "0.2")
    call = asker.call("work", {"ask": [["input/request", {"prompt": "?", "secret": False}]]})
    world.until(lambda: len(service.log) == 1)
    assert not call.done
    outcome.succeed("from an outcome")
    assert answers(world, call) == [{"value": "from an outcome"}]
    service.answers["ask"] = later
    assert ask_host(world, asker, ["input/request", {"prompt": "?", "secret": False}]) == [
        {"value": "from a coroutine"}
    ]


# -- bounds of answers -------------------------------------------------------------------------------------------------


@pytest.mark.spec("octet.legacy.input", "octet.legacy.secrets")
@pytest.mark.parametrize(
    ("service_name", "method", "fields", "maximum"),
    [
        ("inputs", "input/request", {"prompt": "?", "secret": True}, 262_144),
        ("secrets", "secret/get", {"name": "KEY"}, 65_536),
    ],
)
def test_a_value_at_its_bound_passes_and_one_byte_more_does_not(
    open_memory: Open, service: Any, service_name: str, method: str, fields: Any, maximum: int
) -> None:
    world = open_memory(service.bind(service_name))
    asker = start_feature(world, play.Asker, "0.2")
    for size, good in ((maximum, True), (maximum + 1, False)):
        service.answers["ask"] = service.answers["get"] = "x" * size
        (got,) = ask_host(world, asker, [method, fields])
        assert got == {"value": "x" * size} if good else refused(got) == (-32602, "bounds_exceeded")


@pytest.mark.spec("octet.legacy.input")
def test_a_person_may_decline(open_memory: Open, service: Any) -> None:
    service.answers["ask"] = lambda: None
    world = open_memory(service.bind("inputs"))
    asker = start_feature(world, play.Asker, "0.4")
    assert ask_host(world, asker, ["input/request", {"prompt": "?", "secret": False}]) == [{"value": None}]


@pytest.mark.spec("octet.legacy.secrets")
@pytest.mark.parametrize("version", ["0.1", "0.2", "0.4"])
def test_a_secret_is_declared_and_given_or_not(open_world: Open, service: Any, version: str) -> None:
    world = open_world(service.bind("secrets"))
    asker = start_feature(world, play.Asker, version)
    assert ask_host(world, asker, ["secret/get", {"name": "KEY"}]) == [{"value": "hunter2"}]
    (got,) = ask_host(world, asker, ["secret/get", {"name": "OTHER"}])
    assert refused(got) == (-32602, "invalid_request")
    service.answers["get"] = lambda: None
    (got,) = ask_host(world, asker, ["secret/get", {"name": "KEY"}])
    assert refused(got) == (-32004, "secret_unavailable")
    assert service.log == [("get", "KEY")] * 2
    assert not any("hunter2" in text for text in world.diagnostics())


@pytest.mark.spec("octet.legacy.operations")
def test_an_operations_result_keeps_its_bound_and_may_be_nothing(open_memory: Open, service: Any) -> None:
    world = open_memory(service.bind("composer"))
    asker = start_feature(world, play.Asker, "0.2")
    service.answers["run"] = lambda: None
    assert ask_host(world, asker, ["composer/set", {"text": "x"}]) == [{}]
    service.answers["run"] = {"t": "x" * 262_136}
    assert ask_host(world, asker, ["composer/get", {}])[0]["t"] == "x" * 262_136
    service.answers["run"] = {"t": "x" * 262_137}
    assert refused(ask_host(world, asker, ["composer/get", {}])[0]) == (-32602, "bounds_exceeded")


# -- approvals ---------------------------------------------------------------------------------------------------------


@pytest.mark.spec("octet.legacy.approvals")
def test_an_approval_token_is_good_once_for_its_intent_and_five_minutes(open_memory: Open, service: Any) -> None:
    world = open_memory(service.bind("policy"))
    asker = start_feature(world, play.Asker, "0.2")
    intent = {"act": "write", "path": "a.txt"}

    def ask(**more: Any) -> Any:
        return ask_host(world, asker, ["policy/evaluate", {"intent": intent, **more}])[0]

    first, second, third = (ask()["approval_token"] for _ in range(3))
    assert len({first, second, third}) == 3
    service.answers["evaluate"] = "deny"
    assert ask(approval_token=first) == {"decision": "allow"}
    assert refused(ask(approval_token=first)) == (-32602, "invalid_request")
    assert refused(ask(approval_token="0" * 64)) == (-32602, "invalid_request")
    other = {"intent": {**intent, "path": "b.txt"}, "approval_token": second}
    assert refused(ask_host(world, asker, ["policy/evaluate", other])[0]) == (-32602, "invalid_request")
    assert refused(ask(approval_token=second)) == (-32602, "invalid_request")
    reordered = {"intent": dict(reversed(intent.items())), "approval_token": third}
    world.clock.advance_ms(300_000)
    assert ask_host(world, asker, ["policy/evaluate", reordered]) == [{"decision": "allow"}]
    service.answers["evaluate"] = "allow"
    late = ask()["approval_token"]
    world.clock.advance_ms(300_001)
    assert refused(ask(approval_token=late)) == (-32602, "invalid_request")


@pytest.mark.spec("octet.legacy.approvals")
@pytest.mark.parametrize("decision", ["ask", "deny"])
def test_only_an_approval_has_a_token(open_memory: Open, service: Any, decision: str) -> None:
    service.answers["evaluate"] = decision
    world = open_memory(service.bind("policy"))
    asker = start_feature(world, play.Asker, "0.4")
    assert ask_host(world, asker, ["policy/evaluate", {"intent": {}}]) == [{"decision": decision}]


@pytest.mark.spec("octet.legacy.approvals")
def test_without_approvals_there_are_no_tokens(open_memory: Open, service: Any) -> None:
    world = open_memory(service.bind("policy", withheld={"approvals"}))
    asker = start_feature(world, play.Asker, "0.4")
    assert ask_host(world, asker, ["policy/evaluate", {"intent": {}}]) == [{"decision": "allow"}]
    (got,) = ask_host(world, asker, ["policy/evaluate", {"intent": {}, "approval_token": "0" * 64}])
    assert refused(got) == (-32602, "invalid_request")


# -- dynamic tools -----------------------------------------------------------------------------------------------------


def tool(name: str, **more: Any) -> dict[str, Any]:
    return {"name": name, "description": name, "parameters": {"minimum": 0.5}, **more}


@pytest.mark.spec("octet.legacy.dynamic-tools")
def test_a_catalogue_changes_whole_or_not_at_all(open_memory: Open, service: Any) -> None:
    world = open_memory(service.bind("dynamic_tools"))
    asker = start_feature(world, play.Asker, "0.2")

    def ask(method: str, **fields: Any) -> Any:
        return ask_host(world, asker, [method, fields])[0]

    got = ask("tools/register", tools=[tool("a"), tool("b")])
    assert (got["revision"], [t["name"] for t in got["tools"]]) == (1, ["work", "a", "b"])
    got = ask("tools/register", tools=[tool("a", description="anew")])
    assert (got["revision"], [t["description"] for t in got["tools"]]) == (2, ["work", "anew", "b"])
    for method, fields, reason in (
        ("tools/register", {"tools": [tool("c"), tool("c")]}, "invalid_request"),
        ("tools/register", {"tools": [tool("c"), tool("d", description=" ")]}, "invalid_request"),
        ("tools/register", {"tools": [tool(f"t{n}") for n in range(254)]}, "bounds_exceeded"),
        ("tools/unregister", {"names": ["a", "nowhere"]}, "invalid_request"),
        ("tools/unregister", {"names": ["a", "a"]}, "invalid_request"),
    ):
        assert refused(ask(method, **fields)) == (-32602, reason)
        assert [t.name for t in asker.tools] == ["work", "a", "b"]
    service.answers["change"] = InvalidParamsError("not these")
    assert refused(ask("tools/unregister", names=["a"])) == (-32602, "invalid_request")
    del service.answers["change"]
    got = ask("tools/unregister", names=["b", "a"])
    assert (got["revision"], [t["name"] for t in got["tools"]]) == (3, ["work"])
    got = ask("tools/register", tools=[tool(f"t{n}") for n in range(255)])
    assert (got["revision"], len(got["tools"])) == (4, 256)


@pytest.mark.spec("octet.legacy.dynamic-tools")
def test_a_catalogue_that_no_answer_could_hold_is_not_made(open_memory: Open, service: Any) -> None:
    world = open_memory(service.bind("dynamic_tools"))
    asker = start_feature(world, play.Asker, "0.2")
    large = {"type": "object", "description": "x" * 400_000}
    for name in ("a", "b"):
        (got,) = ask_host(world, asker, ["tools/register", {"tools": [tool(name, parameters=large)]}])
    assert got["revision"] == 2
    (got,) = ask_host(world, asker, ["tools/register", {"tools": [tool("c", parameters=large)]}])
    assert refused(got) == (-32602, "bounds_exceeded")
    assert [t.name for t in asker.tools] == ["work", "a", "b"]
    (got,) = ask_host(world, asker, ["tools/unregister", {"names": ["a"]}])
    assert (got["revision"], [t["name"] for t in got["tools"]]) == (3, ["work", "b"])


@pytest.mark.spec("octet.legacy.dynamic-tools")
def test_a_call_carries_the_revision_it_was_made_at(open_memory: Open, service: Any) -> None:
    world = open_memory(service.bind("dynamic_tools"))
    asker = start_feature(world, play.Asker, "0.4")
    ask_host(world, asker, ["tools/register", {"tools": [tool("new")]}])
    world.settle(asker.call("new", {}))
    calls = world.processes[-1].params_of("tool/call")
    assert [call["catalog_revision"] for call in calls] == [0, 1]
    ask_host(world, asker, ["tools/unregister", {"names": ["new"]}])
    with pytest.raises(InvalidParamsError, match="has no tool 'new'"):
        asker.call("new", {})
    bare = open_memory()
    bare.settle(start_feature(bare, play.Asker, "0.4").call("work", {}))
    assert "catalog_revision" not in bare.processes[-1].received[-1]["params"]


@pytest.mark.spec("octet.legacy.dynamic-tools")
def test_two_changes_decided_at_once_do_not_undo_each_other(open_memory: Open, service: Any) -> None:
    held: list[Outcome[None]] = []

    def hold() -> Outcome[None]:
        held.append(Outcome())
        return held[-1]

    service.answers["change"] = hold
    world = open_memory(service.bind("dynamic_tools"))
    asker = start_feature(world, play.Asker, "0.4")
    call = asker.call(
        "work", {"ask": [["tools/register", {"tools": [tool("a")]}], ["tools/register", {"tools": [tool("b")]}]]}
    )
    world.run()
    held[1].succeed(None)
    held[0].succeed(None)
    first, second = answers(world, call)
    assert refused(first) == (-32602, "invalid_request")
    assert (second["revision"], [t.name for t in asker.tools]) == (1, ["work", "b"])


# -- artifacts ---------------------------------------------------------------------------------------------------------


@pytest.mark.spec("octet.legacy.artifacts")
@pytest.mark.parametrize(
    ("fields", "reason"),
    [
        (inline(b"hi", size=3), "invalid_request"),
        (inline(b"hi", sha256="0" * 64), "invalid_request"),
        (inline(b"hi", data="aGk"), "invalid_request"),
        (inline(b"hi", data="a\nGk="), "invalid_request"),
        (inline(b"hi", path="x"), "invalid_request"),
        ({key: value for key, value in inline(b"hi").items() if key != "data"}, "invalid_request"),
        (inline(b"x" * 262_145), "bounds_exceeded"),
        ({**inline(b"hi", size=20_971_521), "path": "x"}, "invalid_request"),
        ({"mime_type": "a", "sha256": "0" * 64, "size": 20_971_521, "path": "x"}, "bounds_exceeded"),
        ({"mime_type": "a", "sha256": "0" * 64, "size": 1, "path": "nowhere"}, "invalid_request"),
        ({"mime_type": "a", "sha256": "0" * 64, "size": 1, "path": "/etc/hostname"}, "invalid_request"),
        ({"mime_type": "a", "sha256": "0" * 64, "size": 1, "path": "../up"}, "invalid_request"),
    ],
)
def test_an_artifact_is_what_it_says_and_within_bounds(
    open_memory: Open, service: Any, fields: Any, reason: str
) -> None:
    world = open_memory(service.bind("artifacts"))
    asker = start_feature(world, play.Asker, "0.2")
    (got,) = ask_host(world, asker, ["artifact/publish", fields])
    assert refused(got) == (-32602, reason)
    assert service.log == []
    assert ask_host(world, asker, ["artifact/publish", inline(b"x" * 262_144)]) == [{"artifact_id": "artifact-1"}]


@pytest.mark.spec("octet.legacy.artifacts")
def test_a_file_of_the_workspace_or_of_its_own_scratch_directory_is_read_and_verified(
    open_world: Open, service: Any, tmp_path: Path
) -> None:
    data = b"report\n" * 50_000
    (tmp_path / "report.txt").write_bytes(data)
    (tmp_path / "link.txt").symlink_to("/etc/hostname")
    world = open_world(service.bind("artifacts"))
    asker = start_feature(world, play.Asker, "0.4")
    fields = {"mime_type": "text/plain", "sha256": hashlib.sha256(data).hexdigest(), "size": len(data)}
    for path in ("report.txt", str(tmp_path / "report.txt")):
        (got,) = ask_host(world, asker, ["artifact/publish", {**fields, "path": path}])
        assert got["artifact_id"].startswith("artifact-")
    assert service.log == [("store", data, "text/plain")] * 2
    for wrong in ({"path": "link.txt"}, {"size": len(data) - 1, "path": "report.txt"}):
        assert refused(ask_host(world, asker, ["artifact/publish", {**fields, **wrong}])[0]) == (
            -32602,
            "invalid_request",
        )
    scratch = asker.generation.scratch
    if scratch is not None:
        Path(scratch, "own.txt").write_bytes(data)
        (got,) = ask_host(world, asker, ["artifact/publish", {**fields, "path": f"{scratch}/own.txt"}])
        assert "artifact_id" in got


@pytest.mark.spec("octet.legacy.artifacts")
def test_a_generation_publishes_64_artifacts_and_64_mebibytes(open_memory: Open, service: Any) -> None:
    world = open_memory(service.bind("artifacts"))
    asker = start_feature(world, play.Asker, "0.2")
    service.answers["store"] = ResourceExhaustedError("full")
    for _ in range(70):
        assert refused(ask_host(world, asker, ["artifact/publish", inline(b"")])[0]) == (-32602, "bounds_exceeded")
    del service.answers["store"]
    for _ in range(64):
        assert "artifact_id" in ask_host(world, asker, ["artifact/publish", inline(b"")])[0]
    assert refused(ask_host(world, asker, ["artifact/publish", inline(b"")])[0]) == (-32602, "bounds_exceeded")


@pytest.mark.spec("octet.legacy.artifacts")
def test_64_mebibytes_may_be_published_in_all(open_memory: Open, service: Any, tmp_path: Path) -> None:
    data = bytes(16 * 1_048_576)
    (tmp_path / "big").write_bytes(data)
    fields = {"mime_type": "x", "sha256": hashlib.sha256(data).hexdigest(), "size": len(data), "path": "big"}
    world = open_memory(service.bind("artifacts"))
    asker = start_feature(world, play.Asker, "0.2")
    for _ in range(4):
        assert "artifact_id" in ask_host(world, asker, ["artifact/publish", fields])[0]
    assert refused(ask_host(world, asker, ["artifact/publish", inline(b"x")])[0]) == (-32602, "bounds_exceeded")


@pytest.mark.spec("octet.legacy.artifacts")
@pytest.mark.parametrize("how", ["refused", "cancelled"])
def test_what_is_not_kept_takes_no_room(open_memory: Open, service: Any, tmp_path: Path, how: str) -> None:
    data = bytes(16 * 1_048_576)
    (tmp_path / "big").write_bytes(data)
    fields = {"mime_type": "x", "sha256": hashlib.sha256(data).hexdigest(), "size": len(data), "path": "big"}
    held: list[Outcome[str]] = []

    def hold() -> Outcome[str]:
        held.append(Outcome())
        return held[-1]

    service.answers["store"] = ResourceExhaustedError("full") if how == "refused" else hold
    world = open_memory(service.bind("artifacts"))
    asker = start_feature(world, play.Asker, "0.2")
    for _ in range(6):
        call = asker.call("work", {"ask": [["artifact/publish", fields]]})
        world.run()
        if how == "cancelled":
            call.cancel("user")
            world.run()
        assert call.done
    del service.answers["store"]
    for _ in range(4):
        assert "artifact_id" in ask_host(world, asker, ["artifact/publish", fields])[0]


# -- workers and cancellation ------------------------------------------------------------------------------------------


@pytest.mark.spec("octet.legacy.workers")
def test_eight_requests_are_worked_on_at_once_and_the_rest_in_order(open_memory: Open, service: Any) -> None:
    held: list[Outcome[str]] = []

    def hold() -> Outcome[str]:
        held.append(Outcome())
        return held[-1]

    service.answers["ask"] = hold
    world = open_memory(service.bind("inputs"))
    asker = start_feature(world, play.Asker, "0.2")
    questions = [["input/request", {"prompt": str(n), "secret": False}] for n in range(20)]
    call = asker.call("work", {"ask": questions})
    world.run()
    for settled in range(20):
        assert len(held) == min(20, settled + 8)
        held[settled].succeed(str(settled))
        world.run()
    assert [entry[2].prompt for entry in service.log] == [str(n) for n in range(20)]
    assert answers(world, call) == [{"value": str(n)} for n in range(20)]


@pytest.mark.spec("octet.legacy.workers")
def test_a_full_queue_that_is_answered_at_once_takes_no_deep_stack(open_memory: Open, service: Any) -> None:
    held: list[Outcome[str]] = []

    def hold() -> Any:
        held.append(Outcome())
        return held[-1] if len(held) <= 8 else "now"

    service.answers["ask"] = hold
    world = open_memory(service.bind("inputs"))
    asker = start_feature(world, play.Asker, "0.2")
    call = asker.call("work", {"ask": [["input/request", {"prompt": "?", "secret": False}]] * 128})
    world.run()
    limit = sys.getrecursionlimit()
    sys.setrecursionlimit(len(inspect.stack()) + 100)
    try:
        held[0].succeed("then")
    finally:
        sys.setrecursionlimit(limit)
    for outcome in held[1:8]:
        outcome.succeed("then")
    values = [answer["value"] for answer in answers(world, call)]
    assert (values[:8], set(values[8:])) == (["then"] * 8, {"now"})


@pytest.mark.spec("octet.legacy.workers", "octet.legacy.writer-full")
def test_a_burst_of_answers_does_not_count_as_not_reading(open_world: Open, service: Any) -> None:
    held: list[Outcome[str]] = []

    def hold() -> Any:
        held.append(Outcome())
        return held[-1] if len(held) <= 8 else "now"

    service.answers["ask"] = hold
    world = open_world(service.bind("inputs"))
    asker = start_feature(world, play.Asker, "0.4")
    question = ["input/request", {"prompt": "?", "secret": False}]
    call = asker.call("work", {"ask": [question] * 127})
    world.until(lambda: len(held) == 8)
    waiting = [asker.call("work", {}) for _ in range(30)]
    held[0].succeed("then")
    for outcome in held[1:8]:
        outcome.succeed("then")
    assert len(answers(world, call)) == 127
    assert all(world.settle(one).is_error is False for one in waiting)


@pytest.mark.spec("octet.legacy.children-cancelled", "octet.legacy.workers")
@pytest.mark.parametrize("how", ["cancel", "timeout", "stop", "crash"])
def test_services_are_told_when_nobody_waits_any_more(open_memory: Open, service: Any, how: str) -> None:
    service.answers["ask"] = Outcome
    world = open_memory(service.bind("inputs"))
    asker = start_feature(world, play.Asker, "0.4")
    questions = [["input/request", {"prompt": str(n), "secret": False}] for n in range(10)]
    call = asker.call("work", {"ask": questions}, timeout_ms=1_000)
    world.run()
    told: list[int] = []
    calls = [entry[1] for entry in service.log]
    for number, one in enumerate(calls):
        one.on_cancel(lambda number=number: told.append(number))
    calls[0].on_cancel(lambda: 1 / 0)
    if how == "cancel":
        call.cancel("user")
    elif how == "timeout":
        world.advance(1_000)
    elif how == "stop":
        asker.stop()
    else:
        world.processes[-1].exit(3)
    world.run()
    assert sorted(told) == list(range(8))
    assert all(one.cancelled for one in calls)
    assert len(service.log) == 8
    assert call.done
    late: list[str] = []
    calls[0].on_cancel(lambda: late.append("at once"))
    assert late == ["at once"]


@pytest.mark.spec("octet.legacy.children-cancelled")
def test_a_coroutine_is_cancelled_with_its_request(open_world: Open, service: Any) -> None:
    import asyncio

    seen: list[str] = []

    async def waiting() -> str:
        seen.append("begun")
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            seen.append("cancelled")
            raise
        return ""

    service.answers["ask"] = waiting
    world = open_world(service.bind("inputs"))
    asker = start_feature(world, play.Asker, "0.2")
    if isinstance(world, MemorySession):
        (got,) = ask_host(world, asker, ["input/request", {"prompt": "?", "secret": False}])
        assert refused(got) == (-32603, "internal_error")  # in memory nothing could wake it
        return
    call = asker.call("work", {"ask": [["input/request", {"prompt": "?", "secret": False}]]})
    world.until(lambda: seen == ["begun"])
    call.cancel("user")
    world.until(lambda: seen == ["begun", "cancelled"])
    with pytest.raises(CancelledError):
        call.result()


@pytest.mark.spec("octet.legacy.children-cancelled")
@pytest.mark.parametrize("how", ["cancel", "raise after", "fail"])
def test_a_service_that_ends_its_own_caller_harms_nobody(open_memory: Open, service: Any, how: str) -> None:
    world = open_memory(service.bind("inputs"))
    asker = start_feature(world, play.Asker, "0.4")

    def end_it() -> str:
        if how == "fail":
            asker.generation.fail(ExtensionError("the host has had enough"))
        else:
            call.cancel("user")
        if how == "raise after":
            raise ValueError("too late to matter")
        return "too late"

    service.answers["ask"] = end_it
    call = asker.call("work", {"ask": [["input/request", {"prompt": "?", "secret": False}]]})
    world.run()
    assert (call.done, len(service.log)) == (True, 1)
    if how == "fail":
        assert service.log[0][1].cancelled
    else:
        refusals = [m["error"]["code"] for m in world.processes[-1].received if "error" in m]
        assert refusals == [-32800]
        del service.answers["ask"]
        assert ask_host(world, asker, ["input/request", {"prompt": "?", "secret": False}]) == [{"value": "north"}]


@pytest.mark.spec("octet.legacy.refusals")
def test_an_answer_that_json_cannot_hold_is_the_hosts_fault(open_memory: Open, service: Any) -> None:
    service.answers["ask"] = "\ud800"
    world = open_memory(service.bind("inputs"))
    (got,) = ask_host(
        world, start_feature(world, play.Asker, "0.4"), ["input/request", {"prompt": "?", "secret": False}]
    )
    assert refused(got) == (-32603, "internal_error")


@pytest.mark.spec("octet.legacy.child-ids")
def test_129_open_requests_end_the_process_and_every_waiter(open_memory: Open, service: Any) -> None:
    service.answers["ask"] = Outcome
    world = open_memory(service.bind("inputs"))
    asker = start_feature(world, play.Asker, "0.2")
    questions = [["input/request", {"prompt": "?", "secret": False}]] * 129
    call = asker.call("work", {"ask": questions})
    world.run()
    assert call.done
    assert call.error is not None
    assert call.error.limit == "MAX_EXTENSION_REQUESTS_OUTSTANDING"
    assert all(entry[1].cancelled for entry in service.log)
