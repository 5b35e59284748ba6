"""Every optional service of octet 0.3, bound and not bound, in memory and over real processes."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from service_scripts import DiesAsking, DiesMigrating, Everything

from broker.adapters.source_roots import SourceRoots
from broker.errors import CapabilityMismatchError, ExitedError, InvalidParamsError
from broker.host import HostServices, HostSettings, Outcome, Principal, ProviderRegistry, ThemeCatalogue
from broker.wire.octet.provider_models import ProviderAuthorizationResult

ANSWERED = {
    "session/create": {"session_id": "made"},
    "theme/select": {"status": "selected", "theme_id": "dusk"},
    "providers/register": {"revision": 1, "provider_ids": ["acme"], "model_ids": ["acme/small"]},
    "provider/auth/request": {"status": "ready"},
}
# What is bound, the capabilities that makes, and which requests of the extension are then served.
BOUND: dict[str, tuple[list[str], list[str]]] = {
    "nothing": ([], []),
    "session_driver": (["session_lifecycle"], ["session/create"]),
    "themes": (["theme_selection"], ["theme/select"]),
    "providers": (
        ["provider_auth", "provider_catalog", "provider_stream"],
        ["providers/register", "provider/auth/request"],
    ),
    "migrations": (["migration.adapter.v1"], []),
    "everything": (
        [
            "migration.adapter.v1",
            "provider_auth",
            "provider_catalog",
            "provider_stream",
            "session_lifecycle",
            "theme_selection",
        ],
        list(ANSWERED),
    ),
}


class Sessions:
    """A session driver that answers at once, or when it is told to."""

    def __init__(self) -> None:
        self.pending: list[Outcome[str]] = []
        self.at_once = True

    def create(self, asked_by: Principal) -> Any:
        if self.at_once:
            return "made"
        self.pending.append(Outcome())
        return self.pending[-1]

    fork = reload = create

    def switch(self, asked_by: Principal, session_id: str) -> Any:
        return session_id


def bind(what: str, tmp_path: Path) -> HostServices:
    everything: dict[str, Any] = {
        "session_driver": Sessions(),
        "themes": ThemeCatalogue({"dusk": "compiled"}),
        "providers": ProviderRegistry(),
        "migrations": SourceRoots(tmp_path),
    }
    return HostServices(**(everything if what == "everything" else {k: v for k, v in everything.items() if k == what}))


@pytest.fixture
def open_world(broker_both_ways: Callable[..., Any]) -> Callable[[HostServices], Any]:
    return lambda services: broker_both_ways(patience_ms=0, settings=HostSettings(restart=False), services=services)


@pytest.mark.spec(
    "octet.capability.offered-when-bound",
    "octet.capability.session-lifecycle",
    "octet.capability.theme-selection",
    "octet.capability.provider-catalog",
    "octet.capability.provider-auth",
    "octet.capability.provider-stream",
    "octet.capability.migration",
)
@pytest.mark.parametrize("bound", BOUND)
def test_what_is_bound_is_offered_and_works_and_nothing_else(
    open_world: Callable[[HostServices], Any], tmp_path: Path, bound: str
) -> None:
    capabilities, served = BOUND[bound]
    services = bind(bound, tmp_path)
    world = open_world(services)
    extension = world.start(Everything, name="all", providers=True)
    selection = extension.generation.connection.selection
    assert (
        sorted(selection.capabilities - {"content_parts", "core", "request_cancellation", "tool_call"}) == capabilities
    )

    def answers() -> Any:
        return world.settle(extension.call("answers", {})).metadata["answers"]

    world.until(lambda: len(answers()) == len(ANSWERED))
    assert answers() == {
        method: answer if method in served else [-32601, {"method": method}] for method, answer in ANSWERED.items()
    }
    if "provider_stream" in capabilities:
        stream = world.session.stream("acme", "small", {})
        world.until(lambda: stream.closed)
        assert stream.take().stop_reason == "stop"
    else:
        with pytest.raises(InvalidParamsError, match="is provided"):
            world.session.stream("acme", "small", {})
    if "migration.adapter.v1" in capabilities:
        setup = world.settle(extension.migration.detect(str(tmp_path)))
        assert world.settle(extension.migration.import_from(setup)).models == ()
    else:
        with pytest.raises(CapabilityMismatchError):
            extension.migration.detect(str(tmp_path))


def test_killed_while_the_host_decides(open_world: Callable[[HostServices], Any], tmp_path: Path) -> None:
    """Answers that come when nobody is there any more change nothing, and the next extension is served."""
    sessions, registry = Sessions(), ProviderRegistry()
    sessions.at_once = False
    decisions: list[Outcome[ProviderAuthorizationResult]] = []

    def policy(request: Any) -> Outcome[ProviderAuthorizationResult]:
        decisions.append(Outcome())
        return decisions[-1]

    services = HostServices(
        session_driver=sessions,
        themes=ThemeCatalogue({"dusk": "compiled"}),
        providers=registry,
        auth_policy=policy,
    )
    world = open_world(services)
    dying = world.add(DiesAsking, name="all", providers=True)
    dying.start()
    world.until(lambda: dying.ended)
    assert registry.providers == ()
    revision = registry.revision
    for pending in sessions.pending:
        pending.succeed("late")
    for decision in decisions:
        decision.succeed(ProviderAuthorizationResult(status="ready", lease="late"))
    assert registry.revision == revision
    world.session.remove("all")
    sessions.at_once = True
    extension = world.start(Everything, name="all", providers=True)
    world.until(lambda: len(registry.providers) == 1 and len(decisions) > 0 and not decisions[-1].done)
    decisions[-1].succeed(ProviderAuthorizationResult(status="ready"))

    def answers() -> Any:
        return world.settle(extension.call("answers", {})).metadata["answers"]

    world.until(lambda: len(answers()) == len(ANSWERED))
    assert answers()["session/create"] == {"session_id": "made"}


def test_killed_while_it_migrates(open_world: Callable[[HostServices], Any], tmp_path: Path) -> None:
    world = open_world(HostServices(migrations=SourceRoots(tmp_path)))
    extension = world.start(DiesMigrating, name="all")
    setup = world.settle(extension.migration.detect(str(tmp_path)))
    outcome = extension.migration.import_from(setup)
    ended: list[Any] = []
    outcome.add_callback(ended.append)
    with pytest.raises(ExitedError) as caught:
        world.settle(outcome)
    assert (caught.value.status, ended) == (-9, [outcome])
    world.until(lambda: extension.ended)
