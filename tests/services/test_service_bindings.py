"""What cannot be a service is refused where it is bound, not when the first extension asks for it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from broker.errors import InternalError, UsageError
from broker.host import Host, HostServices, ProviderRegistry, SessionControl, ThemeCatalogue
from broker.host.feature import FeatureServices
from broker.host.services.asking import ask

ANY: Any = None


class Driver:
    def create(self, asked_by: Any) -> str:
        return "made"

    fork = reload = create


class Whole(Driver):
    def switch(self, asked_by: Any, session_id: str) -> str:
        return session_id


@pytest.mark.parametrize(
    ("bind", "path", "says"),
    [
        (lambda: Host(ANY, services=ANY or FeatureServices()), "services", "needs HostServices, not FeatureServices"),
        (lambda: Host(ANY, feature_services=ANY), "feature_services", "needs FeatureServices, not NoneType"),
        (lambda: HostServices(session_driver=ANY or Driver()), "session_driver", "needs a method switch"),
        (lambda: HostServices(session_driver=ANY or Whole), "session_driver", "needs a method create"),
        (lambda: HostServices(themes=ANY or {"dusk": "user"}), "themes", "needs a ThemeCatalogue, not dict"),
        (lambda: HostServices(providers=ANY or ProviderRegistry), "providers", "needs a ProviderRegistry, not type"),
        (lambda: HostServices(providers=ProviderRegistry(), auth_policy=ANY or 5), "auth_policy", "int cannot be"),
        (lambda: HostServices(migrations=ANY or "/srv"), "migrations", "needs a method check_root"),
        (lambda: SessionControl(None).activate(ANY or Driver()), "session_driver", "needs a method switch"),
        (lambda: ThemeCatalogue(ANY), "themes", "needs a mapping"),
        (lambda: ThemeCatalogue(ANY or ["dusk"]), "themes", "needs a mapping"),
        (lambda: ThemeCatalogue(ANY or {"dusk": 1}), "themes", "needs a mapping"),
        (lambda: ThemeCatalogue(ANY or {1: "user"}), "themes", "needs a mapping"),
        (lambda: ThemeCatalogue({"dusk": "user"}, extensions="night"), "extensions", "not one name"),
        (lambda: ThemeCatalogue({"dusk": "user"}, decide=ANY or 5), "decide", "int cannot be"),
        (lambda: FeatureServices(inputs=ANY or object()), "inputs", "needs a method ask"),
        (lambda: FeatureServices(host_context=ANY or 5), "host_context", "int cannot be"),
        (lambda: FeatureServices(honoured=ANY or "autocomplete"), "honoured", "in a collection, not str"),
        (lambda: FeatureServices(withheld=ANY), "honoured", "in a collection, not NoneType"),
        (lambda: FeatureServices(honoured=ANY or {5, "autocomplete"}), "honoured", "5 is not an optional feature"),
    ],
)
def test_what_cannot_be_a_service_is_not_bound(bind: Callable[[], Any], path: str, says: str) -> None:
    with pytest.raises(UsageError) as caught:
        bind()
    assert caught.value.path == path
    assert says in str(caught.value)


def test_what_can_be_one_is() -> None:
    driver, themes, registry = Whole(), ThemeCatalogue({}), ProviderRegistry()
    services = HostServices(session_driver=driver, themes=themes, providers=registry, auth_policy=print)
    assert (services.session_driver, services.themes, services.providers) == (driver, themes, registry)
    assert FeatureServices(honoured=["autocomplete"]).honoured == {"autocomplete"}


def test_an_answer_that_cannot_be_waited_for_is_the_hosts_own_fault() -> None:
    async def later() -> str:
        return "made"

    def refuse(awaitable: Any) -> Any:
        awaitable.close()
        raise ValueError("it belongs to another loop")

    outcome = ask(later, awaiting=refuse)
    assert isinstance(outcome.error, InternalError)
    assert str(outcome.error) == "the host's own code raised ValueError"
