"""The services of the host, as an extension asks for them: ``app.host``.

Methods with a name of their own cover what both sides of the reference spell out; :meth:`HostClient.request` takes
any other. On 0.4 a request is made for the request of the host that is being worked on: that is filled in. Each is
awaited in an ``async`` handler; a plain function gives the coroutine to :meth:`HostClient.wait`.
"""

from __future__ import annotations

from collections.abc import Coroutine, Mapping, Sequence
from typing import TYPE_CHECKING, Any, TypeVar, cast

import attrs

from broker.errors import UsageError
from broker.extension.events import HostInfo
from broker.extension.scope import CURRENT
from broker.limits import REQUEST_TIMEOUT_MS
from broker.wire.jsonrpc import ABSENT
from broker.wire.octet.schema import encode

# Records are loaded by the requests that have them: most extensions make none of these, and all of them start.
if TYPE_CHECKING:
    from broker.extension.app import Extension
    from broker.extension.runtime import Runtime
    from broker.wire.octet.models import ToolDefinition
    from broker.wire.octet.provider_models import (
        ProviderAuthorizationResult,
        ProviderCatalogResult,
        ProviderDefinition,
        ProviderModelDefinition,
    )
    from broker.wire.octet.session_models import SessionLifecycleResult, ThemeSelectResult

T = TypeVar("T")


class HostClient:
    """What the host does for an extension. Refusals are typed: :class:`~broker.errors.BrokerError`.

    A service that is not among the extension's ``uses`` is refused at once, with what to write; one the host does not
    offer is a :class:`~broker.errors.CapabilityMismatchError`.
    """

    def __init__(self, app: Extension) -> None:
        self._app = app

    # -- what is known -------------------------------------------------------------------------------------------------

    @property
    def info(self) -> HostInfo:
        """What ``initialize`` told and what was agreed on: workspace, flags, services."""
        info = self._runtime("host.info").connection.info
        if info is None:
            raise UsageError("host.info: the host has not initialised this extension yet")
        return info

    def offers(self, service: str) -> bool:
        """Whether a capability or feature is there to be used now."""
        return service in self.info.selected

    # -- any method ----------------------------------------------------------------------------------------------------

    def request(
        self, method: str, params: Mapping[str, Any] | Any = None, /, *, timeout_ms: int = REQUEST_TIMEOUT_MS
    ) -> Coroutine[Any, Any, Any]:
        """Ask the host; ``params`` is an object or a record of :mod:`broker.wire`. Gives the record of the result.

        Where the reference leaves a result open it is plain JSON. :class:`~broker.errors.TimedOutError` after
        ``timeout_ms``; the host is told that nobody waits any more.
        """
        runtime = self._runtime(f"host.request({method!r})")
        return runtime.request(method, self._params(method, params), timeout_ms)

    def notify(self, method: str, params: Mapping[str, Any] | Any = None, /) -> None:
        """Tell the host something that is not answered."""
        self._runtime(f"host.notify({method!r})").notify(method, self._params(method, params))

    def wait(self, request: Coroutine[Any, Any, T], /) -> T:
        """Wait for a request in a plain function: ``app.host.wait(app.host.create_session())``."""
        runtime = self._runtime("host.wait")
        try:
            runtime.check_in_worker("await the request itself")
        except UsageError:
            request.close()
            raise
        return runtime.workers.wait(request)

    # -- 0.3: sessions and themes --------------------------------------------------------------------------------------

    async def create_session(self) -> SessionLifecycleResult:
        """Have a durable session made, and stay in this one (``session_lifecycle``)."""
        return cast("SessionLifecycleResult", await self.request("session/create"))

    async def fork_session(self) -> SessionLifecycleResult:
        """Have the active session copied at its durable head, and stay in it."""
        return cast("SessionLifecycleResult", await self.request("session/fork"))

    async def switch_session(self, session_id: str) -> SessionLifecycleResult:
        """Have another session of this workspace made the active one."""
        return cast("SessionLifecycleResult", await self.request("session/switch", {"session_id": session_id}))

    async def reload_session(self) -> SessionLifecycleResult:
        """Have the active session read from disk again."""
        return cast("SessionLifecycleResult", await self.request("session/reload"))

    async def select_theme(self, theme_id: str, *, role: str = "accent") -> ThemeSelectResult:
        """Ask for a theme of the host, for what this extension shows (``theme_selection``)."""
        params = {"namespace": self._app.name, "theme_id": theme_id, "role": role, "scope": "extension"}
        return cast("ThemeSelectResult", await self.request("theme/select", params))

    # -- 0.3: providers ------------------------------------------------------------------------------------------------

    async def register_provider(
        self, provider: ProviderDefinition, models: Sequence[ProviderModelDefinition]
    ) -> ProviderCatalogResult:
        """Add a provider with all its models (``provider_catalog``)."""
        return await self._declare("providers/register", provider, models)

    async def update_provider(
        self, provider: ProviderDefinition, models: Sequence[ProviderModelDefinition]
    ) -> ProviderCatalogResult:
        """Put a provider and all its models in place of what was registered under its id."""
        return await self._declare("providers/update", provider, models)

    async def unregister_provider(self, provider_id: str) -> ProviderCatalogResult:
        """Take a provider back."""
        return cast("ProviderCatalogResult", await self.request("providers/unregister", {"provider_id": provider_id}))

    def complete_providers(self) -> None:
        """Say that every provider there is at the start has been registered; later changes are still allowed."""
        self.notify("providers/complete")

    async def authorize(
        self, provider_id: str, *, action: str = "authorize", interactive: bool = False, scopes: Sequence[str] = ()
    ) -> ProviderAuthorizationResult:
        """Ask for an authorisation of a provider, or with the action ``revoke`` give it back (``provider_auth``)."""
        method = "provider/auth/revoke" if action == "revoke" else "provider/auth/request"
        params = {"provider_id": provider_id, "action": action, "interactive": interactive}
        if scopes:
            params["scopes"] = list(scopes)
        return cast("ProviderAuthorizationResult", await self.request(method, params))

    # -- 0.4 -----------------------------------------------------------------------------------------------------------

    async def confirm(self, prompt: str, *, detail: str = "", destructive: bool = False, default: bool = False) -> bool:
        """Ask a person yes or no; the manifest declares ``contributes.confirmations``."""
        params: dict[str, Any] = {"prompt": prompt, "destructive": destructive, "default": default}
        if detail:
            params["detail"] = detail
        return bool((await self.request("confirmation/request", params)).confirmed)

    async def ask(self, prompt: str, *, secret: bool = False) -> str | None:
        """Ask a person for a text; ``None`` when they decline."""
        answer: str | None = (await self.request("input/request", {"prompt": prompt, "secret": secret})).value
        return answer

    async def secret(self, name: str) -> str:
        """A secret the manifest names under ``capabilities.secrets`` (``secrets``)."""
        return str((await self.request("secret/get", {"name": name})).value)

    async def publish_artifact(self, data: bytes, mime_type: str) -> str:
        """Hand bytes to the host and get the id that image and audio parts name (``artifacts``); at most 256 KiB."""
        import base64
        import hashlib

        params = {
            "mime_type": mime_type,
            "size": len(data),
            "sha256": hashlib.sha256(data).hexdigest(),
            "data": base64.b64encode(data).decode("ascii"),
        }
        return str((await self.request("artifact/publish", params)).artifact_id)

    async def register_tools(self, *tools: ToolDefinition) -> int:
        """Add tools while running, or replace those of the same name (``dynamic_tools``); the catalogue's revision."""
        return int((await self.request("tools/register", {"tools": [encode(tool) for tool in tools]})).revision)

    async def unregister_tools(self, *names: str) -> int:
        """Take tools away while running; gives the catalogue's revision."""
        return int((await self.request("tools/unregister", {"names": list(names)})).revision)

    def show(self, message: str, *, level: str = "info", title: str = "") -> None:
        """Have a person told something; the manifest declares ``contributes.notifications``."""
        params = {"level": level, "message": message}
        if title:
            params["title"] = title
        self.notify("notification", params)

    # -- inside --------------------------------------------------------------------------------------------------------

    def _runtime(self, what: str) -> Runtime:
        return self._app.current_runtime(what)

    async def _declare(
        self, method: str, provider: ProviderDefinition, models: Sequence[ProviderModelDefinition]
    ) -> ProviderCatalogResult:
        members = {"provider": encode(provider), "models": [encode(model) for model in models]}
        return cast("ProviderCatalogResult", await self.request(method, members))

    def _params(self, method: str, given: Any) -> dict[str, Any]:
        if given is None:
            given = {}
        params = encode(given) if attrs.has(type(given)) else dict(given)
        return params if self._app.api == "0.3" else self._with_scope(method, params)

    def _with_scope(self, method: str, params: dict[str, Any]) -> dict[str, Any]:
        """The parameters of a request of 0.4 with what it is made for."""
        from broker.wire.feature.methods import Scope, find_method
        from broker.wire.feature.scope import OWNER, PARENT

        row = find_method("0.4", method)
        if row is None or row.scope is Scope.FREE:
            return params
        scope = CURRENT.get()
        call = scope.call if scope is not None else None
        if call is not None and params.get(PARENT, ABSENT) is ABSENT:
            params[PARENT] = call.request_id
            owner = call.host_context.get("resource_owner")
            if row.scope is Scope.PARENT_AND_OWNER and isinstance(owner, dict):
                params.setdefault(OWNER, owner)
        if PARENT not in params and OWNER not in params:
            raise UsageError(
                f"{method} is made for a request of the host: call it in a tool, command or hook",
                method=method,
            )
        return params
