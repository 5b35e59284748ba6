"""The registry of providers: ownership by generation, whole changes, aggregate bounds, revisions."""

from __future__ import annotations

from typing import Any

import pytest
from service_scripts import declaration

from broker.errors import InvalidParamsError, ResourceExhaustedError
from broker.host import Principal, ProviderRegistry
from broker.wire.octet.provider_models import ProviderCatalogResult, ProviderRegisterParams
from broker.wire.octet.schema import decode


def owner(instance: str = "a", generation: int = 1) -> Principal:
    return Principal("session", "ext", instance, generation)


def change(call: Any, who: Principal, *declared: str, **auth: Any) -> ProviderCatalogResult:
    params = decode(ProviderRegisterParams, declaration(*declared, **auth))
    result: ProviderCatalogResult = call(who, params.provider, params.models)
    return result


def held(registry: ProviderRegistry) -> list[tuple[str, str, int, list[str], str]]:
    return [
        (one.id, one.owner.instance_id, one.owner.generation, [model.id for model in one.models], one.status)
        for one in registry.providers
    ]


@pytest.mark.spec("octet.provider.register", "octet.provider.revision", "octet.provider.result-ids")
def test_a_new_provider_is_inserted_whole() -> None:
    registry = ProviderRegistry()
    result = change(registry.register, owner(), "zeta", "b", "a")
    assert (result.revision, result.provider_ids, result.model_ids) == (1, ("zeta",), ("zeta/b", "zeta/a"))
    result = change(registry.register, owner("b"), "acme", kind="oauth", subject="acme")
    assert (result.revision, result.model_ids) == (2, ("acme/small",))
    assert held(registry) == [("acme", "b", 1, ["small"], "pending"), ("zeta", "a", 1, ["b", "a"], "ready")]


@pytest.mark.spec("octet.provider.register-owned", "octet.provider.register-takeover")
def test_who_may_register_an_id_that_is_taken() -> None:
    registry = ProviderRegistry()
    change(registry.register, owner("a", 2))
    for who in (owner("a", 2), owner("a", 1), owner("b", 3)):
        with pytest.raises(InvalidParamsError, match="provider 'acme' is "):
            change(registry.register, who, "acme", "other")
    assert (held(registry), registry.revision) == ([("acme", "a", 2, ["small"], "ready")], 1)
    change(registry.register, owner("a", 3), "acme", "large")
    assert (held(registry), registry.revision) == ([("acme", "a", 3, ["large"], "ready")], 2)


@pytest.mark.spec("octet.provider.update", "octet.provider.update-owner")
def test_an_update_replaces_everything_and_needs_the_instance() -> None:
    registry = ProviderRegistry()
    with pytest.raises(InvalidParamsError, match="is not the caller's"):
        change(registry.update, owner())
    change(registry.register, owner("a", 2), "acme", "one", "two")
    for who in (owner("b", 2), owner("a", 1)):
        with pytest.raises(InvalidParamsError, match="is not the caller's"):
            change(registry.update, who)
    result = change(registry.update, owner("a", 2), "acme", "three")
    assert (result.revision, result.model_ids) == (2, ("acme/three",))
    change(registry.update, owner("a", 3), "acme", "four")
    assert held(registry) == [("acme", "a", 3, ["four"], "ready")]


@pytest.mark.spec("octet.provider.unregister")
def test_only_the_exact_owner_removes() -> None:
    registry = ProviderRegistry()
    change(registry.register, owner("a", 2))
    for who in (owner("a", 3), owner("a", 1), owner("b", 2)):
        with pytest.raises(InvalidParamsError, match="is not the caller's"):
            registry.unregister(who, "acme")
    result = registry.unregister(owner("a", 2), "acme")
    assert (result.revision, result.provider_ids, result.model_ids) == (2, (), ())
    with pytest.raises(InvalidParamsError):
        registry.unregister(owner("a", 2), "acme")
    assert (held(registry), registry.revision) == ([], 2)


@pytest.mark.spec("octet.provider.owner-gone")
def test_the_end_of_a_generation_removes_exactly_its_entries() -> None:
    registry = ProviderRegistry()
    change(registry.register, owner("a", 1), "one")
    change(registry.register, owner("a", 1), "two")
    change(registry.register, owner("b", 1), "three")
    change(registry.register, owner("a", 2), "two")
    registry.complete(owner("a", 1))
    assert registry.withdraw(owner("a", 1)) == ("one",)
    assert [one[:3] for one in held(registry)] == [("three", "b", 1), ("two", "a", 2)]
    assert registry.revision == 5
    assert not registry.is_complete(owner("a", 1))
    assert registry.withdraw(owner("a", 1)) == ()
    assert registry.revision == 5


@pytest.mark.spec("octet.provider.aggregate-bounds", "octet.bound.max-providers", "octet.bound.max-provider-models")
def test_bounds_hold_over_all_owners_and_a_refusal_changes_nothing() -> None:
    registry = ProviderRegistry()
    for number in range(32):
        change(registry.register, owner(f"i{number % 3}"), f"p{number}", *(f"m{n}" for n in range(8)))
    assert sum(len(one.models) for one in registry.providers) == 256
    with pytest.raises(ResourceExhaustedError) as caught:
        change(registry.register, owner("new"), "one-more")
    assert (caught.value.limit, caught.value.observed, caught.value.maximum) == ("MAX_PROVIDERS", 33, 32)
    with pytest.raises(ResourceExhaustedError) as caught:
        change(registry.update, owner("i0"), "p0", *(f"m{n}" for n in range(9)))
    assert (caught.value.limit, caught.value.observed, caught.value.maximum) == ("MAX_PROVIDER_MODELS", 257, 256)
    assert registry.revision == 32
    assert [len(one.models) for one in registry.providers] == [8] * 32
    change(registry.update, owner("i0"), "p0", "m0")
    change(registry.update, owner("i1"), "p1", *(f"m{n}" for n in range(15)))
    assert sum(len(one.models) for one in registry.providers) == 256


@pytest.mark.spec("octet.provider.aggregate-bounds")
def test_what_is_taken_over_does_not_count_twice() -> None:
    registry = ProviderRegistry()
    for number in range(32):
        change(registry.register, owner("a", 1), f"p{number}", *(f"m{n}" for n in range(8)))
    for number in range(32):
        change(registry.register, owner("a", 2), f"p{number}", *(f"m{n}" for n in range(8)))
    assert registry.withdraw(owner("a", 1)) == ()
    assert len(registry.providers) == 32


@pytest.mark.spec("octet.provider.complete")
def test_completion_is_noted_once_and_later_changes_are_made() -> None:
    registry = ProviderRegistry()
    told: list[int] = []
    remove = registry.add_listener(lambda: told.append(registry.revision))
    registry.complete(owner())
    registry.complete(owner())
    assert (told, registry.revision) == ([0], 0)
    assert registry.is_complete(owner()) and not registry.is_complete(owner("a", 2))
    change(registry.register, owner())
    assert (told, [one.id for one in registry.providers]) == ([0, 1], ["acme"])
    remove()
    registry.unregister(owner(), "acme")
    assert told == [0, 1]


def test_a_listener_that_fails_keeps_nobody_from_hearing(caplog: pytest.LogCaptureFixture) -> None:
    registry = ProviderRegistry()
    told: list[int] = []

    def broken() -> None:
        raise RuntimeError("broken listener")

    registry.add_listener(broken)
    registry.add_listener(lambda: told.append(registry.revision))
    change(registry.register, owner())
    assert told == [1]
    assert "broken listener" in caplog.text


@pytest.mark.spec("octet.provider.auth-status", "octet.provider.revision")
def test_a_state_is_kept_as_long_as_what_is_required_stays() -> None:
    registry = ProviderRegistry()
    oauth = {"kind": "oauth", "subject": "acme", "scopes": ["read"]}
    change(registry.register, owner(), "acme", **oauth)
    required = registry.owned(owner(), "acme").definition.auth
    registry.set_status(owner(), "acme", required, "ready")
    registry.set_status(owner(), "acme", required, "ready")
    assert registry.revision == 2
    change(registry.update, owner(), "acme", "large", **oauth)
    assert held(registry) == [("acme", "a", 1, ["large"], "ready")]
    change(registry.update, owner(), "acme", kind="oauth", subject="other")
    assert held(registry)[0][-1] == "pending"
    with pytest.raises(InvalidParamsError, match="was changed meanwhile"):
        registry.set_status(owner(), "acme", required, "ready")
    change(registry.register, owner("a", 2), "acme", **oauth)
    with pytest.raises(InvalidParamsError, match="is not the caller's"):
        registry.set_status(owner(), "acme", required, "ready")
    assert (held(registry)[0][-1], registry.revision) == ("pending", 5)


def test_a_snapshot_stays_what_it_was() -> None:
    registry = ProviderRegistry()
    change(registry.register, owner())
    before = registry.providers
    change(registry.update, owner(), "acme", "large")
    assert [model.id for model in before[0].models] == ["small"]
    found = registry.get("acme")
    assert found is not None and found.model("large") is not None and found.model("small") is None
