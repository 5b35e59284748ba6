"""``theme/select``: the host's catalogue, trust and policy decide, in this order."""

from __future__ import annotations

from typing import Any

import pytest
from telling import answered, ask, notify, send, start, told_one

from broker.errors import CapabilityMismatchError, UsageError
from broker.host import HostServices, Outcome, Principal, ThemeCatalogue, ThemeChoice
from broker.wire.octet.session_models import ThemeSelectParams, ThemeSelectResult

SERVICE = "theme_selection"
THEMES = {"dusk": "compiled", "mine": "user", "theirs": "project"}


def selection(**change: Any) -> dict[str, Any]:
    return {"namespace": "ext", "theme_id": "dusk", "role": "accent", "scope": "extension", **change}


@pytest.mark.spec("octet.capability.theme-selection", "octet.method.theme-select", "octet.theme.selected")
@pytest.mark.parametrize("theme_id", ["dusk", "mine"])
def test_a_trusted_theme_of_the_catalogue_is_selected(told: Any, theme_id: str) -> None:
    world, extension = told_one(told(HostServices(themes=ThemeCatalogue(THEMES))), SERVICE)
    answer = ask(world, extension, "theme/select", selection(theme_id=theme_id))
    assert answer == {"status": "selected", "theme_id": theme_id}


@pytest.mark.parametrize(
    ("change", "code"),
    [
        pytest.param({"namespace": "other"}, -32011, marks=pytest.mark.spec("octet.theme.namespace")),
        pytest.param({"theme_id": "dawn"}, -32602, marks=pytest.mark.spec("octet.theme.theme-id")),
        pytest.param({"theme_id": "theirs"}, -32011, marks=pytest.mark.spec("octet.theme.trust")),
        pytest.param({"role": "background"}, -32602, marks=pytest.mark.spec("octet.theme.role")),
        pytest.param({"scope": "global"}, -32602, marks=pytest.mark.spec("octet.theme.scope")),
        ({"namespace": "other", "theme_id": "dawn"}, -32011),
        ({"namespace": "other", "scope": "global"}, -32602),
        ({"theme_id": "x" * 129}, -32012),
    ],
)
def test_what_is_refused(told: Any, change: dict[str, Any], code: int) -> None:
    asked: list[ThemeChoice] = []
    catalogue = ThemeCatalogue(THEMES, decide=lambda choice: asked.append(choice) or ThemeSelectResult(status="denied"))  # type: ignore[func-returns-value]
    world, extension = told_one(told(HostServices(themes=catalogue)), SERVICE)
    assert ask(world, extension, "theme/select", selection(**change)) == (code, None)
    assert asked == []


@pytest.mark.spec("octet.theme.policy", "octet.theme.status-words")
def test_the_policy_has_the_last_word_now_or_later(told: Any) -> None:
    asked: list[ThemeChoice] = []
    later: Outcome[ThemeSelectResult] = Outcome()
    answers: list[Any] = [
        ThemeSelectResult(status="denied", reason="not while presenting"),
        ThemeSelectResult(status="unavailable"),
        ThemeSelectResult(status="selected", theme_id="mine"),
        later,
    ]

    def decide(choice: ThemeChoice) -> Any:
        asked.append(choice)
        return answers.pop(0)

    world, extension = told_one(told(HostServices(themes=ThemeCatalogue(THEMES, decide=decide))), SERVICE)
    assert ask(world, extension, "theme/select", selection(role="dim")) == {
        "status": "denied",
        "reason": "not while presenting",
    }
    assert ask(world, extension, "theme/select", selection()) == {"status": "unavailable"}
    assert ask(world, extension, "theme/select", selection()) == {"status": "selected", "theme_id": "mine"}
    waiting = send(world, extension, "theme/select", selection())
    assert answered(extension, waiting) is None
    later.succeed(ThemeSelectResult(status="selected", theme_id="dusk"))
    world.run()
    assert answered(extension, waiting) == {"status": "selected", "theme_id": "dusk"}
    principal = Principal(world.session.session_id, "ext", extension.instance_id, 1)
    assert asked[0] == ThemeChoice(principal, "dusk", "dim")


@pytest.mark.parametrize(
    "answer",
    [
        None,
        ThemeSelectResult(status="chosen"),
        ThemeSelectResult(status="selected"),
        ThemeSelectResult(status="selected", theme_id="theirs"),
        ThemeSelectResult(status="selected", theme_id="dawn"),
    ],
)
def test_a_policy_cannot_widen_what_the_catalogue_allows(told: Any, answer: Any) -> None:
    world = told(HostServices(themes=ThemeCatalogue(THEMES, decide=lambda choice: answer)))
    extension = start(world, SERVICE)
    assert ask(world, extension, "theme/select", selection()) == (-32603, None)


@pytest.mark.spec("octet.capability.theme-selection", "octet.capability.offered-when-bound")
def test_it_is_offered_to_those_that_are_named_and_to_nobody_without_a_catalogue(told: Any) -> None:
    world = told(HostServices(themes=ThemeCatalogue(THEMES, extensions=["night"])))
    for name, offered in (("night", True), ("day", False)):
        extension = start(world, SERVICE, name=name)
        (params,) = extension.far.params_of("initialize")
        assert (SERVICE in params["contract"]["optional_capabilities"]) is offered
        answer = ask(world, extension, "theme/select", selection(namespace=name))
        assert answer == (
            {"status": "selected", "theme_id": "dusk"} if offered else (-32601, {"method": "theme/select"})
        )
    bare = start(told(), SERVICE, name="bare")
    assert SERVICE not in bare.far.received[0]["params"]["contract"]["optional_capabilities"]


def test_a_catalogue_is_checked_when_it_is_made() -> None:
    for theme_id in ("", "x" * 129):
        with pytest.raises(UsageError, match="theme id"):
            ThemeCatalogue({theme_id: "user"})
    with pytest.raises(CapabilityMismatchError, match="of trust project"):
        ThemeCatalogue(THEMES).select(Principal("s", "ext", "i", 1), ThemeSelectParams(**selection(theme_id="theirs")))


def test_a_selection_that_is_taken_back_is_answered_once(told: Any) -> None:
    later: Outcome[ThemeSelectResult] = Outcome()
    world, extension = told_one(told(HostServices(themes=ThemeCatalogue(THEMES, decide=lambda choice: later))), SERVICE)
    waiting = send(world, extension, "theme/select", selection())
    notify(world, extension, "$/cancelRequest", {"id": waiting})
    later.succeed(ThemeSelectResult(status="selected", theme_id="dusk"))
    world.run()
    assert answered(extension, waiting) == (-32800, None)
