"""``providers/*`` and ``provider/auth/*`` over the wire: who is served, what is answered, what a process leaves."""

from __future__ import annotations

from typing import Any

import pytest
from service_scripts import MODEL, Told, declaration
from telling import answered, ask, notify, send, start, told_one

from broker.errors import BrokerError, CapabilityMismatchError, ExtensionError, NegotiationError, UsageError
from broker.host import AuthRequest, Diagnostic, Health, HostServices, Outcome, ProviderRegistry
from broker.testing import ScriptedProcess
from broker.wire.octet.provider_models import ProviderAuthorizationResult

CATALOGUE, AUTH, STREAM = "provider_catalog", "provider_auth", "provider_stream"
PROVIDERS = "providers = true"
OAUTH = {"kind": "oauth", "subject": "acme", "scopes": ["read", "write"]}


def request(provider_id: str = "acme", action: str = "authorize", **more: Any) -> dict[str, Any]:
    return {"provider_id": provider_id, "action": action, "interactive": False, **more}


@pytest.mark.spec("octet.capability.offered-when-bound", "octet.selection.provider-needs-contribution")
@pytest.mark.parametrize(
    ("bound", "contributes", "offered"), [(True, True, True), (True, False, False), (False, True, False)]
)
def test_the_services_need_a_registry_and_the_manifests_word(
    told: Any, bound: bool, contributes: bool, offered: bool
) -> None:
    world = told(HostServices(providers=ProviderRegistry() if bound else None))
    extension = start(world, CATALOGUE, AUTH, STREAM, providers=contributes)
    (params,) = extension.far.params_of("initialize")
    contract = params["contract"]
    assert [CATALOGUE in contract["optional_capabilities"], AUTH in contract["optional_capabilities"]] == [offered] * 2
    methods = {method for method in contract["optional_methods"] if method.startswith("provider")}
    assert len(methods) == (9 if offered else 0)
    answer = ask(world, extension, "providers/register", declaration())
    assert answer == (
        {"revision": 1, "provider_ids": ["acme"], "model_ids": ["acme/small"]}
        if offered
        else (-32601, {"method": "providers/register"})
    )


@pytest.mark.spec(
    "octet.method.providers-register", "octet.method.providers-update", "octet.method.providers-unregister"
)
@pytest.mark.spec("octet.capability.provider-catalog", "octet.provider.result-ids", "octet.provider.revision")
def test_a_catalogue_is_registered_updated_and_removed(told: Any) -> None:
    registry = ProviderRegistry()
    world, extension = told_one(told(HostServices(providers=registry)), CATALOGUE, providers=True)
    assert ask(world, extension, "providers/register", declaration("acme", "b", "a")) == {
        "revision": 1,
        "provider_ids": ["acme"],
        "model_ids": ["acme/b", "acme/a"],
    }
    assert ask(world, extension, "providers/register", declaration("acme")) == (-32602, None)
    assert ask(world, extension, "providers/update", declaration("acme")) == {
        "revision": 2,
        "provider_ids": ["acme"],
        "model_ids": ["acme/small"],
    }
    assert ask(world, extension, "providers/unregister", {"provider_id": "acme"}) == {
        "revision": 3,
        "provider_ids": [],
        "model_ids": [],
    }
    assert registry.providers == ()


@pytest.mark.spec("octet.provider.bound-faults")
def test_faults_of_a_declaration_are_answered_by_their_row(told: Any) -> None:
    registry = ProviderRegistry()
    world, extension = told_one(told(HostServices(providers=registry)), CATALOGUE, providers=True)

    def refused(**changed: Any) -> Any:
        return ask(world, extension, "providers/register", {**declaration(), **changed})

    assert refused(models=[{**MODEL, "id": f"m{n}"} for n in range(257)]) == (-32012, None)
    assert refused(models=[{**MODEL, "display_name": "x" * 129}]) == (-32012, None)
    assert refused(models=[{**MODEL, "endpoint": "https://acme"}]) == (-32602, None)
    assert refused(models=[{**MODEL, "context_window": 1}]) == (-32602, None)
    assert refused(provider={"id": "acme", "label": "Acme", "auth": {"kind": "oauth"}}) == (-32602, None)
    assert (registry.revision, extension.health) == (0, Health.READY)
    refused()
    for number in range(31):
        ask(world, extension, "providers/register", declaration(f"p{number}"))
    assert ask(world, extension, "providers/register", declaration("one-more")) == (-32012, None)
    assert len(registry.providers) == 32


@pytest.mark.spec("octet.method.providers-complete", "octet.provider.complete")
def test_completion_is_a_notification_and_ends_nothing(told: Any) -> None:
    registry = ProviderRegistry()
    world, extension = told_one(told(HostServices(providers=registry)), CATALOGUE, providers=True)
    principal = extension.generation.principal
    assert not registry.is_complete(principal)
    for _ in range(3):
        notify(world, extension, "providers/complete", {})
    assert registry.is_complete(principal)
    assert "revision" in ask(world, extension, "providers/register", declaration())
    notify(world, extension, "providers/complete", {"all": True})
    assert extension.health is Health.READY
    assert any("dropped notification params of providers/complete" in text for text in world.diagnostics())


@pytest.mark.spec("octet.provider.complete")
def test_a_host_can_wait_until_the_first_declarations_are_made(told: Any) -> None:
    world = told(HostServices(providers=ProviderRegistry()), restart=False)
    extension = start(world, CATALOGUE, providers=True)
    waiting, too = (world.session.providers("ext") for _ in range(2))
    ask(world, extension, "providers/register", declaration())
    assert not waiting.done
    notify(world, extension, "providers/complete", {})
    assert [provider.id for provider in waiting.result()] == ["acme"]
    assert too.result() == waiting.result() == world.session.providers("ext").result()
    world.settle(extension.reload())
    never = world.session.providers("ext")
    extension.far.exit(-9)
    world.run()
    assert isinstance(never.error, ExtensionError) and "before its providers were complete" in str(never.error)
    with pytest.raises(ExtensionError, match="does not serve"):
        world.session.providers("ext")
    start(world, name="plain")
    with pytest.raises(CapabilityMismatchError, match="does not say when"):
        world.session.providers("plain")


@pytest.mark.spec("octet.provider.register-owned")
def test_an_id_belongs_to_one_extension_of_the_whole_host(told: Any) -> None:
    world = told(HostServices(providers=ProviderRegistry()))
    one, two = start(world, CATALOGUE, name="one", providers=True), start(world, CATALOGUE, name="two", providers=True)
    ask(world, one, "providers/register", declaration())
    for method in ("providers/register", "providers/update"):
        assert ask(world, two, method, declaration()) == (-32602, None)
    assert ask(world, two, "providers/unregister", {"provider_id": "acme"}) == (-32602, None)


@pytest.mark.spec("octet.provider.owner-gone")
@pytest.mark.parametrize("how", ["stop", "kill", "protocol error"])
def test_the_end_of_a_process_withdraws_its_providers(told: Any, how: str) -> None:
    registry = ProviderRegistry()
    world = told(HostServices(providers=registry), restart=False)
    one, two = start(world, CATALOGUE, name="one", providers=True), start(world, CATALOGUE, name="two", providers=True)
    ask(world, one, "providers/register", declaration("acme"))
    ask(world, one, "providers/register", declaration("zeta"))
    ask(world, two, "providers/register", declaration("kept"))
    notify(world, one, "providers/complete", {})
    principal = one.generation.principal
    if how == "stop":
        world.settle(one.stop())
    elif how == "kill":
        one.far.exit(-9)
    else:
        one.far.send_bytes(b"{}\n")
    world.run()
    assert [provider.id for provider in registry.providers] == ["kept"]
    assert registry.revision == 4
    assert not registry.is_complete(principal)


@pytest.mark.spec("octet.provider.register-takeover", "octet.provider.owner-gone", "octet.process.reload-early-events")
def test_a_reload_hands_the_providers_over_without_a_gap(told: Any) -> None:
    """The new generation registers in the same breath as its answer to initialize, before the old one has ended."""
    registry = ProviderRegistry()
    world, extension = told_one(told(HostServices(providers=registry)), CATALOGUE, "event_bus", providers=True)
    ask(world, extension, "providers/register", declaration())
    older = extension.far
    seen: list[list[tuple[str, int]]] = []
    registry.add_listener(lambda: seen.append([(one.id, one.owner.generation) for one in registry.providers]))

    def early() -> Any:
        class Eager(Told):
            def answer(self, message_id: Any, result: Any) -> None:
                super().answer(message_id, result)
                if "contract" in result:
                    self.request("early-1", "providers/register", declaration("acme", "large"))
                    self.request("early-2", "providers/register", declaration("zeta"))
                    self.request("early-3", "providers/unregister", {"provider_id": "zeta"})

        extension.far = Eager(capabilities=(CATALOGUE, "event_bus"))
        return extension.far

    world.replace("ext", early)
    world.reload("ext")
    assert seen == [
        [("acme", 2)],
        [("acme", 2), ("zeta", 2)],
        [("acme", 2)],
    ]
    assert [m.get("id", m.get("method")) for m in extension.far.received] == [
        1,
        "early-1",
        "early-2",
        "early-3",
        "bus/lifecycle",
    ]
    assert [answered(extension, f"early-{n}")["revision"] for n in (1, 2, 3)] == [2, 3, 4]
    assert older.exit_status == 0
    assert len(extension.generations) == 1
    assert [(one.id, one.owner.generation) for one in registry.providers] == [("acme", 2)]


@pytest.mark.spec("octet.provider.owner-gone")
def test_a_candidate_that_fails_leaves_the_catalogue_alone(told: Any) -> None:
    registry = ProviderRegistry()
    world, extension = told_one(told(HostServices(providers=registry)), CATALOGUE, providers=True)
    ask(world, extension, "providers/register", declaration())
    serving = extension.far

    def broken() -> Any:
        far = ScriptedProcess()
        far.decode = lambda line: None  # type: ignore[method-assign]
        far.exit(3)
        return far

    world.replace("ext", broken)
    with pytest.raises(BrokerError, match="status 3"):
        world.settle(extension.reload())
    extension.far = serving
    assert [(one.id, one.owner.generation) for one in registry.providers] == [("acme", 1)]
    assert registry.revision == 1
    assert "revision" in ask(world, extension, "providers/update", declaration("acme", "large"))


# -- selection ---------------------------------------------------------------------------------------------------------


def selecting(told: Any, capabilities: list[str], methods: list[str]) -> BrokerError | None:
    """How a start ends that selects exactly these beside what is required."""

    class Choosy(Told):
        def selection(self, offer: dict[str, Any]) -> dict[str, Any]:
            result = super().selection(offer)
            result["contract"]["capabilities"] += capabilities
            result["contract"]["methods"] += methods
            return result

    world = told(HostServices(providers=ProviderRegistry()))
    start = world.add(Choosy, name="ext", providers=True).start()
    world.run()
    assert start.done
    return start.error  # type: ignore[no-any-return]


STREAMING = ["provider/cancel", "provider/event", "provider/stream"]


@pytest.mark.spec("octet.selection.stream-methods-together")
@pytest.mark.parametrize("methods", [STREAMING[:1], STREAMING[1:], [STREAMING[0], STREAMING[2]]])
def test_one_stream_method_means_all_three(told: Any, methods: list[str]) -> None:
    error = selecting(told, [CATALOGUE, STREAM], methods)
    assert isinstance(error, NegotiationError)
    assert (error.name, error.path) == ("capability_mismatch", "contract.methods")
    assert {fault.problem for fault in error.faults} == {
        f"'{methods[0]}' needs '{missing}'" for missing in STREAMING if missing not in methods
    }


@pytest.mark.spec("octet.selection.stream-methods-together", "octet.selection.auth-needs-catalog")
@pytest.mark.parametrize(
    ("capability", "methods"),
    [(STREAM, STREAMING), (AUTH, ["provider/auth/request"]), (AUTH, ["provider/auth/revoke"])],
)
def test_streams_and_authorisation_need_the_catalogue(told: Any, capability: str, methods: list[str]) -> None:
    error = selecting(told, [capability], methods)
    assert isinstance(error, NegotiationError)
    assert [(fault.path, fault.name, fault.problem) for fault in error.faults] == [
        ("contract.capabilities", "capability_mismatch", f"'{methods[0]}' needs the capability provider_catalog")
    ]
    assert selecting(told, [capability, CATALOGUE], methods) is None


@pytest.mark.spec("octet.selection.capability-without-method")
def test_a_capability_may_be_selected_without_its_methods(told: Any) -> None:
    assert selecting(told, [CATALOGUE, STREAM, AUTH], []) is None
    assert selecting(told, [STREAM], []) is None
    assert selecting(told, [CATALOGUE], ["providers/register"]) is None


# -- authorisation -----------------------------------------------------------------------------------------------------


@pytest.mark.spec("octet.provider.auth-no-policy", "octet.capability.provider-auth", "octet.provider.auth-status")
@pytest.mark.parametrize(
    ("auth", "before", "authorised"),
    [
        ({"kind": "none"}, "ready", "ready"),
        (OAUTH, "pending", "unavailable"),
        ({"kind": "host_credential", "subject": "acme"}, "pending", "unavailable"),
    ],
)
def test_without_a_policy_the_answers_are_fixed_by_kind(
    told: Any, auth: dict[str, Any], before: str, authorised: str
) -> None:
    registry = ProviderRegistry()
    world, extension = told_one(told(HostServices(providers=registry)), CATALOGUE, AUTH, providers=True)

    def status() -> str:
        found = registry.get("acme")
        assert found is not None
        return found.status

    ask(world, extension, "providers/register", declaration("acme", **auth))
    assert status() == before
    assert ask(world, extension, "provider/auth/request", request()) == {"status": authorised}
    assert status() == authorised
    assert ask(world, extension, "provider/auth/revoke", request(action="revoke")) == {"status": "revoked"}
    assert status() == "revoked"
    assert ask(world, extension, "provider/auth/request", request(action="refresh")) == {"status": authorised}


@pytest.mark.spec("octet.method.provider-auth-request", "octet.method.provider-auth-revoke")
@pytest.mark.spec("octet.provider.auth-actions", "octet.provider.auth-owned")
@pytest.mark.parametrize(
    ("method", "params"),
    [
        ("provider/auth/request", request(action="revoke")),
        ("provider/auth/revoke", request(action="authorize")),
        ("provider/auth/revoke", request(action="refresh")),
        ("provider/auth/request", request(action="login")),
        ("provider/auth/request", request("other")),
        ("provider/auth/request", request("none-at-all")),
        ("provider/auth/request", request(scopes=["admin"])),
        ("provider/auth/request", request(scopes=["read", "read"])),
        ("provider/auth/request", request("plain", scopes=["read"])),
        ("provider/auth/request", request("plain", scopes=[])),
        ("provider/auth/request", {**request(), "callback": "https://x"}),
    ],
)
def test_what_is_refused_before_anybody_decides(told: Any, method: str, params: dict[str, Any]) -> None:
    asked: list[AuthRequest] = []

    def policy(given: AuthRequest) -> ProviderAuthorizationResult:
        asked.append(given)
        return ProviderAuthorizationResult(status="ready")

    registry = ProviderRegistry()
    world = told(HostServices(providers=registry, auth_policy=policy))
    extension, other = (start(world, CATALOGUE, AUTH, name=name, providers=True) for name in ("ext", "rival"))
    ask(world, extension, "providers/register", declaration("acme", **OAUTH))
    ask(world, extension, "providers/register", declaration("plain"))
    ask(world, other, "providers/register", declaration("other", **OAUTH))
    assert ask(world, extension, method, params) == (-32602, None)
    assert (asked, registry.revision) == ([], 3)


@pytest.mark.spec("octet.provider.auth-status", "octet.provider.auth-lease", "octet.provider.revision")
def test_the_policys_answer_becomes_the_state_and_a_lease_is_passed_on_and_forgotten(told: Any) -> None:
    asked: list[AuthRequest] = []
    lease = "le4se.QmFzZTY0-x_9"
    answers = [
        ProviderAuthorizationResult(status="ready", lease=lease),
        ProviderAuthorizationResult(status="pending"),
        ProviderAuthorizationResult(status="revoked"),
    ]

    def policy(given: AuthRequest) -> ProviderAuthorizationResult:
        asked.append(given)
        return answers.pop(0)

    registry = ProviderRegistry()
    world = told(HostServices(providers=registry, auth_policy=policy))
    extension = start(world, CATALOGUE, AUTH, providers=True)
    ask(world, extension, "providers/register", declaration("acme", **OAUTH))
    asking = request(interactive=True, scopes=["write"])
    assert ask(world, extension, "provider/auth/request", asking) == {"status": "ready", "lease": lease}
    found = registry.get("acme")
    assert found is not None and (found.status, registry.revision) == ("ready", 2)
    assert ask(world, extension, "provider/auth/request", request(action="refresh")) == {"status": "pending"}
    assert ask(world, extension, "provider/auth/revoke", request(action="revoke")) == {"status": "revoked"}
    assert registry.revision == 4
    assert [(one.action, one.interactive, one.scopes) for one in asked] == [
        ("authorize", True, ("write",)),
        ("refresh", False, ("read", "write")),
        ("revoke", False, ("read", "write")),
    ]
    assert asked[0].asked_by == extension.generation.principal
    assert lease not in repr(vars(registry)) + repr(vars(extension.generation.desk)) + repr(world.notices)


@pytest.mark.spec("octet.provider.auth-lease")
@pytest.mark.parametrize(
    ("method", "action", "answer"),
    [
        ("request", "authorize", ProviderAuthorizationResult(status="pending", lease="abc")),
        ("request", "authorize", ProviderAuthorizationResult(status="ready", lease="l" * 257)),
        ("request", "authorize", ProviderAuthorizationResult(status="ready", lease="not a lease")),
        ("request", "authorize", ProviderAuthorizationResult(status="granted")),
        ("request", "authorize", None),
        ("revoke", "revoke", ProviderAuthorizationResult(status="ready")),
    ],
)
def test_a_policy_that_answers_what_it_may_not_is_an_internal_error(
    told: Any, method: str, action: str, answer: Any
) -> None:
    registry = ProviderRegistry()
    world = told(HostServices(providers=registry, auth_policy=lambda given: answer))
    extension = start(world, CATALOGUE, AUTH, providers=True)
    ask(world, extension, "providers/register", declaration("acme", **OAUTH))
    assert ask(world, extension, f"provider/auth/{method}", request(action=action)) == (-32603, None)
    assert registry.revision == 1
    told_to_people = [n.text for n in world.notices if isinstance(n, Diagnostic)]
    assert any("policy" in text for text in told_to_people)
    assert not any("not a lease" in text or "llll" in text for text in told_to_people)


@pytest.mark.spec("octet.provider.auth-status")
@pytest.mark.parametrize("meanwhile", ["cancel", "update", "unregister", "kill"])
def test_a_decision_that_comes_too_late_changes_nothing(told: Any, meanwhile: str) -> None:
    later: Outcome[ProviderAuthorizationResult] = Outcome()
    registry = ProviderRegistry()
    world = told(HostServices(providers=registry, auth_policy=lambda given: later), restart=False)
    extension = start(world, CATALOGUE, AUTH, providers=True)
    ask(world, extension, "providers/register", declaration("acme", **OAUTH))
    waiting = send(world, extension, "provider/auth/request", request())
    assert answered(extension, waiting) is None
    if meanwhile == "cancel":
        notify(world, extension, "$/cancelRequest", {"id": waiting})
    elif meanwhile == "update":
        ask(world, extension, "providers/update", declaration("acme", kind="oauth", subject="other"))
    elif meanwhile == "unregister":
        ask(world, extension, "providers/unregister", {"provider_id": "acme"})
    else:
        extension.far.exit(-9)
        world.run()
    revision = registry.revision
    later.succeed(ProviderAuthorizationResult(status="ready", lease="abc"))
    world.run()
    answer = {"cancel": (-32800, None), "kill": None}.get(meanwhile, (-32602, None))
    assert answered(extension, waiting) == answer
    assert registry.revision == revision
    assert all(provider.status == "pending" for provider in registry.providers)


def test_a_policy_without_a_registry_is_a_mistake() -> None:
    with pytest.raises(UsageError, match="no registry"):
        HostServices(auth_policy=lambda given: ProviderAuthorizationResult(status="ready"))
