"""Every service with and without a host that has it, on each version, in memory and over stdio."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import feature_scripts as play
import pytest
from feature_kit import ask_host, start_feature

from broker.host import CatalogueChanged, Diagnostic
from broker.wire.feature.features import FEATURES, SERVICES
from broker.wire.feature.methods import find_method

VERSIONS = ("0.1", "0.2", "0.4")
TOOL = {"name": "later", "description": "Later.", "parameters": {}}
HELLO = {
    "mime_type": "text/plain",
    "size": 2,
    "sha256": "8f434346648f6b96df89dda901c5176b10a6d83961dd3c1ac88b59b2dc327aa4",
    "data": "aGk=",
}
# service, method, fields, answer of the service that always says yes, what it was asked
ASKED: list[tuple[str, str, dict[str, Any], Any, tuple[Any, ...]]] = [
    ("confirmations", "confirmation/request", {"prompt": "Go?", "destructive": False, "default": True},
     {"confirmed": True}, ("confirm",)),
    ("inputs", "input/request", {"prompt": "Where?", "secret": True}, {"value": "north"}, ("ask",)),
    ("artifacts", "artifact/publish", HELLO, {"artifact_id": "artifact-1"}, ("store", b"hi", "text/plain")),
    ("policy", "policy/evaluate", {"intent": {"act": 0.5}}, None, ("evaluate", {"act": 0.5})),
    ("secrets", "secret/get", {"name": "KEY"}, {"value": "hunter2"}, ("get", "KEY")),
    ("dynamic_tools", "tools/register", {"tools": [TOOL]}, None, ("change", 1, ("later",), ())),
    ("session_control", "session/wait_for_idle", {}, {"session_id": "session-2"}, ("wait_for_idle",)),
    ("session_control", "session/create", {}, {"session_id": "session-2"}, ("create",)),
    ("session_control", "session/fork", {}, {"session_id": "session-2"}, ("fork",)),
    ("session_control", "session/switch", {"session_id": "s9"}, {"session_id": "session-2"}, ("switch", "s9")),
    ("session_control", "session/reload", {}, {"session_id": "session-2"}, ("reload",)),
    ("session_control", "session/compact", {}, {"session_id": "session-2"}, ("compact",)),
    *[
        (service, method, {"x": [1.5]}, {"ran": method}, ("run", method, {"x": [1.5]}))
        for service, methods in {
            "agents": [f"agent/{name}" for name in
                       ("spawn", "message", "follow_up", "list", "wait", "interrupt", "models", "events", "stop")],
            "composer": ["composer/get", "composer/set", "composer/insert"],
            "shortcuts": ["shortcut/register"],
            "session_entries": ["session/append_entry", "session/set_name", "session/set_label"],
            "messages": ["session/send_message", "session/send_user_message"],
            "active_tools": ["tools/set_active"],
            "terminal": ["terminal/acquire", "terminal/release"],
            "composition": ["composition/call"],
            "resources": ["resource/register"],
            "bulk": ["bulk/write"],
            "remote_ui": ["remote_ui/open"],
        }.items()
        for method in methods
    ],
]  # fmt: skip
TOLD: list[tuple[str, str, dict[str, Any], tuple[Any, ...]]] = [
    ("notifications", "notification", {"level": "info", "message": "hello"}, ("notify", "tide", "info", "hello")),
    ("context", "context/contribution", {"contribution": {"label": "a", "content": "b", "placement": "c"}},
     ("contribute", "ContextItem")),
    ("status", "status/contribution",
     {"contribution": {"surface": "status", "text": "a", "style_role": "b", "priority": 1}},
     ("contribute", "StatusItem")),
    ("presentation", "presentation/update", {"snapshot": {"a": 1.5}, "parent_request_id": "call"},
     ("show", True, {"a": 1.5})),
    ("presentation", "presentation/update", {"snapshot": {"b": 1}, "resource_owner": "own"}, ("show", False, {"b": 1})),
    ("progress", "$/progress", {"request_id": "call", "sequence": 3, "event": {"type": "status", "text": "x"}},
     ("report", "tool/call", 3)),
]  # fmt: skip


def unique(rows: list[Any]) -> list[str]:
    return [f"{row[1]}{'' if [r[1] for r in rows].count(row[1]) == 1 else rows.index(row)}" for row in rows]


def test_the_matrix_has_every_service() -> None:
    assert {row[0] for row in (*ASKED, *TOLD)} == SERVICES


@pytest.mark.spec("octet.legacy.services", "octet.legacy.methods", "octet.legacy.offered-when-bound")
@pytest.mark.parametrize("version", VERSIONS)
def test_every_request_is_served_by_the_service_that_is_bound_and_refused_without_one(
    open_world: Callable[..., Any], service: Any, version: str
) -> None:
    bound = open_world(service.bind(*SERVICES))
    asker = start_feature(bound, play.Asker, version)
    for name, method, fields, answer, asked in ASKED:
        del service.log[:]
        (got,) = ask_host(bound, asker, [method, fields])
        if find_method(version, method) is None:
            assert (got["code"], got["data"]["reason"], service.log) == (-32601, "unsupported_feature", []), method
            continue
        assert service.log[0][: len(asked)] == asked, method
        if answer is not None:
            assert got == answer, method
        elif name == "policy":
            assert got["decision"] == "allow"
            assert len(got["approval_token"]) == 64
        else:
            assert (got["revision"], [tool["name"] for tool in got["tools"]]) == (1, ["work", "later"])
            assert [tool.name for tool in asker.tools] == ["work", "later"]
    bare = open_world()
    asker = start_feature(bare, play.Asker, version)
    assert asker.contributions.features <= {"request_cancellation", "content_parts"}
    for name, method, fields, _, _ in ASKED:
        (got,) = ask_host(bare, asker, [method, fields])
        row = find_method(version, method)
        if row is None:
            expected = (-32601, "unsupported_feature")
        elif name in ("agents", "secrets", "confirmations", "inputs"):
            expected = (-32002, "unavailable")
        else:
            expected = (-32601, "unsupported_feature")
        assert (got["code"], got["data"]["reason"]) == expected, method
    assert bare.settle(asker.call("work", {})) is not None


@pytest.mark.spec("octet.legacy.services", "octet.legacy.offered-when-bound")
@pytest.mark.parametrize("version", VERSIONS)
def test_every_notification_reaches_the_service_that_is_bound(
    open_world: Callable[..., Any], service: Any, version: str
) -> None:
    bound = open_world(service.bind(*SERVICES))
    teller = start_feature(bound, play.Teller, version)
    for _, method, fields, told in TOLD:
        del service.log[:]
        bound.settle(teller.call("work", {"tell": [[method, fields]]}))
        if find_method(version, method) is None:
            assert service.log == []
        else:
            assert told in service.log, method
    bare = open_world()
    teller = start_feature(bare, play.Teller, version)
    for _, method, fields, _ in TOLD:
        bare.settle(teller.call("work", {"tell": [[method, fields]]}))
    notifications = [n.text for n in bare.notices if isinstance(n, Diagnostic) and n.source == "notification"]
    assert notifications == ["info: hello"]
    assert teller.health.value == "ready"


@pytest.mark.spec("octet.legacy.offered-when-bound")
@pytest.mark.parametrize("service_name", sorted(SERVICES))
def test_a_host_with_one_service_offers_its_features_and_no_others(
    open_memory: Callable[..., Any], service: Any, service_name: str
) -> None:
    world = open_memory(service.bind(service_name))
    extension = start_feature(world, play.Plain, "0.4")
    rows = [row for row in FEATURES.values() if row.service == service_name or row.required]
    assert extension.contributions.features == {row.name for row in rows}
    offer = world.processes[-1].received[0]["params"]["protocol"]
    assert set(offer["optional_features"]) == {row.name for row in rows if not row.required}


@pytest.mark.spec("octet.legacy.offered-when-bound")
def test_features_without_a_method_are_offered_when_the_host_honours_them(
    open_memory: Callable[..., Any], service: Any
) -> None:
    services = service.bind("agents", honoured={"semantic_ui", "system_prompt_read"}, withheld={"agent_sessions"})
    world = open_memory(services)
    extension = start_feature(world, play.Plain, "0.4")
    assert extension.contributions.features == {"request_cancellation", "content_parts", "semantic_ui"}


@pytest.mark.spec("octet.legacy.dynamic-tools")
def test_a_change_of_tools_is_announced(open_world: Callable[..., Any], service: Any) -> None:
    world = open_world(service.bind("dynamic_tools"))
    asker = start_feature(world, play.Asker, "0.2")
    ask_host(world, asker, ["tools/register", {"tools": [TOOL]}])
    ask_host(world, asker, ["tools/unregister", {"names": ["later"]}])
    assert [notice for notice in world.notices if isinstance(notice, CatalogueChanged)] == [
        CatalogueChanged("tide", 1, 1, ("work", "later")),
        CatalogueChanged("tide", 1, 2, ("work",)),
    ]
