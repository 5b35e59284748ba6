"""Takes what one process generation asks of the host's services, and sees to it that each request is answered once."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final

from broker.errors import (
    BrokerError,
    CancelledError,
    CanonicalError,
    CapabilityMismatchError,
    InternalError,
)
from broker.host.outcome import Outcome
from broker.host.services import provider_auth
from broker.host.services.asking import ask
from broker.host.services.registry import ProviderRegistry
from broker.host.services.streams import StreamTable
from broker.wire.octet.events import NotificationReceived, StreamFaulted
from broker.wire.octet.incoming import IncomingRequest
from broker.wire.octet.provider_models import (
    ProviderAuthorizationRequest,
    ProviderRegisterParams,
    ProviderUnregisterParams,
    ProviderUpdateParams,
)
from broker.wire.octet.schema import encode
from broker.wire.octet.session_models import ThemeSelectParams
from broker.wire.octet.stream_models import ProviderStreamEvent

if TYPE_CHECKING:
    from broker.host.generation import Generation

_FOR_EXTENSIONS: Final = frozenset(("invalid_params", "capability_mismatch", "resource_exhausted"))


class ServiceDesk:
    """The services of one generation, from its start to its end."""

    def __init__(self, generation: Generation) -> None:
        self._generation = generation
        self._session = generation.session
        self._services = generation.session.services
        self._pending: dict[IncomingRequest, Outcome[Any]] = {}
        self._closed = False
        self.streams: StreamTable = StreamTable(generation)

    # -- what the extension sends --------------------------------------------------------------------------------------

    def serve(self, incoming: IncomingRequest) -> None:
        """Answer a request, now or when the host's code has decided."""
        try:
            outcome = self._outcome(incoming)
        except BrokerError as error:
            self._refuse(incoming, error)
            return
        self._pending[incoming] = outcome
        outcome.add_callback(lambda done: self._answer(incoming, done))

    def notified(self, event: NotificationReceived) -> None:
        """Take a notification."""
        if isinstance(event.model, ProviderStreamEvent):
            self.streams.receive(event.model)
        elif event.method == "providers/complete" and not self._closed and self._services.providers is not None:
            self._services.providers.complete(self._generation.principal)

    def stream_faulted(self, event: StreamFaulted) -> None:
        """Take an event of a stream whose parameters are wrong."""
        self.streams.faulted(event.stream_id, event.error)

    def cancelled(self, incoming: IncomingRequest) -> None:
        """The extension took a request back and has been told so; what was begun for it goes on, unheard."""
        outcome = self._pending.pop(incoming, None)
        if outcome is not None:
            if incoming.method.startswith("session/"):
                self._session.control.withdraw(outcome)
            else:
                outcome.fail(CancelledError(f"{incoming.method} was taken back", reason="extension"))

    # -- the end -------------------------------------------------------------------------------------------------------

    def close(self, reason: str) -> None:
        """The generation is being stopped: end its streams, withdraw its providers, begin nothing for it."""
        self.streams.cancel_all(reason)
        self._withdraw()

    def fail(self, error: BrokerError) -> None:
        """The process is broken or gone."""
        self.streams.fail_all(error)
        self._withdraw()
        self._pending.clear()

    def _withdraw(self) -> None:
        if self._closed:
            return
        self._closed = True
        self._session.control.withdraw_all(self._generation.principal)
        if self._services.providers is not None:
            self._services.providers.withdraw(self._generation.principal)

    # -- inside --------------------------------------------------------------------------------------------------------

    def _outcome(self, incoming: IncomingRequest) -> Outcome[Any]:
        if self._closed:
            raise CapabilityMismatchError(f"{self._generation.name} is being stopped", method=incoming.method)
        params, principal, awaiting = incoming.model, self._generation.principal, self._session.driver.adopt
        if isinstance(params, ThemeSelectParams) and self._services.themes is not None:
            return self._services.themes.select(principal, params, awaiting=awaiting)
        if incoming.method.startswith("session/"):
            return self._session.control.submit(principal, params)
        registry = self._services.providers
        if registry is not None:
            if isinstance(params, ProviderAuthorizationRequest):
                return provider_auth.authorize(
                    registry, self._services.auth_policy, principal, incoming.method, params, awaiting=awaiting
                )
            return ask(self._change(registry, params))
        raise CapabilityMismatchError(f"{incoming.method} is not served", method=incoming.method)

    def _change(self, registry: ProviderRegistry, params: Any) -> Callable[[], Any]:
        principal = self._generation.principal
        if isinstance(params, ProviderRegisterParams):
            return lambda: registry.register(principal, params.provider, params.models)
        if isinstance(params, ProviderUpdateParams):
            return lambda: registry.update(principal, params.provider, params.models)
        assert isinstance(params, ProviderUnregisterParams)
        return lambda: registry.unregister(principal, params.provider_id)

    def _answer(self, incoming: IncomingRequest, done: Outcome[Any]) -> None:
        if self._pending.pop(incoming, None) is None:
            return
        if done.error is not None:
            self._refuse(incoming, done.error)
        else:
            try:
                self._generation.connection.answer(incoming, encode(done.result()))
            except CanonicalError as error:
                self._refuse(incoming, InternalError(f"an answer has no canonical form: {error}"))
        self._session.changed()

    def _refuse(self, incoming: IncomingRequest, error: BrokerError) -> None:
        # The host's own mistakes have other names, which say nothing to an extension.
        answered = error if error.name in _FOR_EXTENSIONS else InternalError(str(error), data=error.data)
        self._generation.connection.refuse(incoming, answered, data=answered.data)
        if not self._closed:
            self._generation.diagnose(f"{incoming.method} refused: {error}")
