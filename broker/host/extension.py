"""One extension of a session, over all generations of its process: start, call, reload, restart, stop.

Generations are numbered from 1 and share one instance id. A first start that fails is never repeated; a generation that
was ready and broke is replaced after a jittered delay, at most 8 times in a row. Source: octet notes, section 2.6.
"""

from __future__ import annotations

import uuid
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from broker.errors import (
    BrokerError,
    CancelledError,
    CanonicalError,
    ExtensionError,
    InvalidParamsError,
    NegotiationError,
    SetupError,
    UsageError,
)
from broker.host.call_trace import tracing
from broker.host.extension_process import ExtensionProcess
from broker.host.feature.contributions import Contributions
from broker.host.feature.generation import FeatureGeneration
from broker.host.feature.generation import initialize_params as feature_params
from broker.host.generation import Generation
from broker.host.generation import initialize_params as canonical_params
from broker.host.hooks import SessionHooks, check_outcome
from broker.host.notices import Exited, Health, HealthChanged, Started
from broker.host.outcome import Outcome
from broker.host.services.migration import MigrationAdapter, adapter_of
from broker.wire.feature.results import ToolResult
from broker.wire.octet.connection import ConnectionSettings
from broker.wire.octet.manifest_model import Manifest, Source
from broker.wire.octet.models import ToolDefinition
from broker.wire.requests import HostRequest
from broker.wire.suggestion import suggestion
from broker.wire.versions import FEATURE_WIRE

if TYPE_CHECKING:
    from broker.host.session import Session


class Call(Outcome[ToolResult]):
    """A tool call on its way. ``cancel()`` releases the caller at once and tells the extension, if it had the call."""

    def __init__(self, generation: ExtensionProcess) -> None:
        super().__init__()
        self._generation = generation
        self._request: HostRequest | None = None

    def cancel(self, reason: str = "user") -> None:
        """Settle with :class:`CancelledError` unless it settled already. Idempotent."""
        if self._request is not None and not self.done:
            self._generation.connection.cancel(self._request, reason)
            self._generation.extension.session.changed()

    def _settled(self, request: HostRequest) -> None:
        if request.error is not None:
            self.fail(request.error)
        else:
            self.succeed(request.result)


class Extension:
    """One extension as the host sees it. Made by :meth:`broker.Session.add`; used in the session's own thread.

    Its manifest's ``api_version`` alone decides which wire its processes are spoken to on. ``contributions`` is what an
    extension of API 0.1, 0.2 or 0.4 offers beside tools.
    """

    def __init__(self, session: Session, manifest: Manifest, *, source: Source, flags: Mapping[str, Any]) -> None:
        self.session = session
        self.manifest: Manifest = manifest
        self.name: str = manifest.name
        self.source = source
        self.instance_id: str = uuid.uuid4().hex
        self.health: Health = Health.STOPPED
        self.generation: ExtensionProcess | None = None
        self.flags: Mapping[str, Any] = dict(flags)
        self.contributions: Contributions = Contributions(self)
        self._hooks = SessionHooks(self)
        self._generations: list[ExtensionProcess] = []
        self._number = 0
        self._start: Outcome[Extension] = Outcome()
        self._stop: Outcome[None] | None = None
        self._reload: Outcome[Extension] | None = None
        self._candidate: ExtensionProcess | None = None
        self._draining_at: dict[ExtensionProcess, int] = {}
        self._restarts = 0
        self._ready_at = 0
        self._restart_at: int | None = None
        self._crashed: ExtensionProcess | None = None
        self._broken: BrokerError | None = None

    def __repr__(self) -> str:
        running = "" if self.generation is None else f" generation {self.generation.number}"
        return f"<Extension {self.name}{running} {self.health.value}>"

    # -- what a host does ----------------------------------------------------------------------------------------------

    @property
    def tools(self) -> tuple[ToolDefinition, ...]:
        """The catalogue of the serving generation; empty while none serves."""
        return self.generation.tools if self.generation is not None else ()

    @property
    def ended(self) -> bool:
        """Whether no process of it runs and none will be started any more."""
        return not self._generations and self._restart_at is None

    def start(self) -> Outcome[Extension]:
        """Start the first generation; settles when it is negotiated, or with what went wrong. Callable once."""
        if self._number:
            raise UsageError(f"{self.name} was started already", extension=self.name)
        if self._stop is not None:
            raise UsageError(f"{self.name} was stopped before it was started", extension=self.name)
        self._launch(self.manifest)
        return self._start

    def call(self, tool: str, arguments: Any, *, timeout_ms: int | None = None) -> Call:
        """Call a tool. ``arguments`` is any JSON value but null; ``timeout_ms`` covers queueing, writing and waiting.

        Raises ``invalid_params`` (no such tool, arguments that are not canonical JSON), ``resource_exhausted`` (frame
        too large) or :class:`ExtensionError` (nothing serves) before anything is sent. The call settles with
        :class:`~broker.errors.TimedOutError`, :class:`~broker.errors.RemoteError`,
        :class:`~broker.errors.ResultError`, :class:`~broker.errors.ExitedError` or
        :class:`~broker.errors.CancelledError`. Source: octet reference, ``ToolCallParams``.
        """
        generation = self.generation
        if generation is None or not generation.alive:
            raise ExtensionError(f"{self.name} does not serve: it is {self.health.value}", extension=self.name)
        known = [definition.name for definition in generation.tools]
        if type(tool) is not str or tool not in known:
            hint = suggestion(tool, known, listed="it has")
            raise InvalidParamsError(f"{self.name} has no tool {tool!a:.140}{hint}", extension=self.name, path="tool")
        if arguments is None:
            raise InvalidParamsError("arguments: null is not allowed", extension=self.name, tool=tool, path="arguments")
        call = Call(generation)
        params = {"name": tool, "arguments": arguments, "context": self._context(generation)}
        try:
            with tracing(self.session, self.name, tool, call):
                call._request = generation.call(params, timeout_ms, call._settled)
        except CanonicalError as error:
            raise InvalidParamsError(
                f"{self.name} {tool}: arguments have no canonical form: {error}",
                extension=self.name,
                tool=tool,
                path=error.path,
                limit=error.limit,
                observed=error.observed,
                maximum=error.maximum,
            ) from error
        self.session.changed()
        return call

    @property
    def migration(self) -> MigrationAdapter:
        """It as a migration adapter; raises :class:`ExtensionError` if nothing serves, ``capability_mismatch``
        if the host has bound nothing to that.
        """
        return adapter_of(self)

    def reload(self, manifest: Manifest | None = None) -> Outcome[Extension]:
        """Start and negotiate a new generation beside the serving one, then switch; settles when it serves.

        A candidate that fails leaves the serving generation untouched. A new manifest must contribute the same tools
        and hooks. Pending calls of the old generation get a bounded time, then are cancelled; none is repeated.
        """
        if self.generation is None or not self.generation.alive or self._stop is not None:
            raise UsageError(f"{self.name} cannot be reloaded while it is {self.health.value}", extension=self.name)
        if self._reload is not None:
            raise UsageError(f"{self.name} is being reloaded already", extension=self.name)
        older = self.manifest
        if manifest is not None and (
            manifest.name != older.name
            or manifest.api_version != older.api_version
            or set(manifest.contributes.tools) != set(older.contributes.tools)
            or set(manifest.contributes.hooks) != set(older.contributes.hooks)
        ):
            raise SetupError(f"{self.name}: a reload must keep name, API version, tools and hooks", extension=self.name)
        self._candidate = self._launch(manifest or older)
        self._reload = Outcome()
        return self._reload

    def stop(self, *, outcome: str = "completed") -> Outcome[None]:
        """End in order: ``session_end``, then shutdown; settles when the process is gone. Idempotent.

        ``outcome`` is what ``session_end`` says of the session: a word of the octet reference's ``SessionEnd``.
        Raises :class:`~broker.errors.UsageError` for another one.
        """
        check_outcome(outcome)
        if self._stop is not None:
            return self._stop
        stop = self._stop = Outcome()
        self._restart_at = None
        serving = self.generation
        error = CancelledError(f"{self.name} was stopped", reason="shutdown", extension=self.name)
        self._start.fail(error)
        self._settle_reload(error)
        for generation in list(self._generations):
            if generation is not serving:
                generation.shutdown()
        if serving is not None and serving.alive:
            self._set_health(Health.DRAINING, "stopping")
            reason = "cancelled" if outcome == "cancelled" else "shutdown"
            self._hooks.end(serving, outcome, reason, serving.shutdown)
        self._settle_stop()
        self.session.changed()
        return stop

    # -- driven by the session -----------------------------------------------------------------------------------------

    def tick(self) -> None:
        """Let every deadline that has passed act."""
        now = self.session.clock.monotonic_ms()
        if self._restart_at is not None and now >= self._restart_at:
            self._restart_at = None
            self._relaunch()
        for generation, due in list(self._draining_at.items()):
            if not generation.busy or now >= due:
                generation.cancel_work("reload drain deadline")
                del self._draining_at[generation]
                generation.shutdown()
        for generation in list(self._generations):
            generation.tick()

    def next_deadline(self) -> int | None:
        """The earliest monotonic millisecond at which :meth:`tick` has something to do."""
        due = [deadline for generation in self._generations if (deadline := generation.next_deadline()) is not None]
        due += self._draining_at.values()
        if self._restart_at is not None:
            due.append(self._restart_at)
        return min(due, default=None)

    @property
    def generations(self) -> tuple[ExtensionProcess, ...]:
        """Every generation whose process has not ended, oldest first."""
        return tuple(self._generations)

    # -- told by generations -------------------------------------------------------------------------------------------

    def generation_initializing(self, generation: ExtensionProcess) -> None:
        """Its process runs and was asked to initialize."""
        if generation is not self._candidate:
            self._set_health(Health.INITIALIZING, f"generation {generation.number}")

    def generation_ready(self, generation: ExtensionProcess) -> None:
        """Its contract exists: it serves from now on."""
        older, self.generation = self.generation, generation
        self.manifest = generation.manifest
        if generation is self._candidate:
            self._candidate = None
        self._ready_at = self.session.clock.monotonic_ms()
        tools = tuple(tool.name for tool in generation.tools)
        self._set_health(Health.READY, f"generation {generation.number}")
        self.session.announce(Started(self.name, generation.number, tools))
        if older is not None:
            older.connection.drain()
            self._hooks.end(older, "interrupted", "reload", lambda: self._switch(older, generation))
        elif self._crashed is not None:
            self._hooks.end(generation, "interrupted", "crash", lambda: self._hooks.start(generation))
        else:
            self._hooks.start(generation)
        self._crashed = self._broken = None
        self._start.succeed(self)
        self._settle_reload()

    def generation_failed(self, generation: ExtensionProcess, error: BrokerError) -> None:
        """It is broken; its process may still have to be reaped."""
        if generation is self._candidate:
            self._candidate = None
            self._settle_reload(error)
        if generation is self.generation:
            self.generation = None
            self._crashed = generation
            now = self.session.clock.monotonic_ms()
            if now - self._ready_at >= self.session.settings.restart_reset_ms:
                self._restarts = 0
        elif self.generation is not None or generation.number != self._number:
            return  # a candidate beside one that serves, or an older one on its way out
        self._broken = error
        self._set_health(Health.CRASHED, str(error))
        self._start.fail(error)

    def generation_ended(self, generation: ExtensionProcess, status: int | None) -> None:
        """Its process is gone."""
        self._generations.remove(generation)
        self._draining_at.pop(generation, None)
        error = generation.failure
        reason = generation.stopped_how if error is None else str(error)
        self.session.announce(Exited(self.name, generation.number, status, reason, error))
        if generation is self.generation:
            self.generation = None
        serving = self.generation is not None or self._candidate is not None
        if self._stop is None and self._broken is not None and not serving and not self._generations:
            self._plan_restart(self._broken)
        self._settle_stop()

    # -- inside --------------------------------------------------------------------------------------------------------

    def _launch(self, manifest: Manifest) -> ExtensionProcess:
        session = self.session
        self._number += 1
        settings = ConnectionSettings(
            request_timeout_ms=session.settings.request_timeout_ms,
            cancel_grace_ms=session.settings.cancel_grace_ms,
        )
        generation: ExtensionProcess
        if manifest.wire == FEATURE_WIRE:
            params = feature_params(self, manifest)
            generation = FeatureGeneration(self, manifest, self._number, params, settings)
        else:
            params = canonical_params(self, manifest)
            generation = Generation(self, manifest, self._number, params, settings)
        self._generations.append(generation)
        if self.generation is None:
            self._set_health(Health.STARTING, f"generation {self._number}")
        session.driver.spawn(generation)
        return generation

    def _switch(self, older: ExtensionProcess, newer: ExtensionProcess) -> None:
        self._hooks.start(newer)
        if older in self._generations:
            self._draining_at[older] = self.session.clock.monotonic_ms() + self.session.settings.reload_drain_ms
        self.session.changed()

    def _plan_restart(self, error: BrokerError) -> None:
        settings = self.session.settings
        self._broken = None
        if self._crashed is None and not self._restarts:
            self._set_health(Health.PARKED, "the first start failed")
            return
        if not settings.restart or isinstance(error, NegotiationError | SetupError):
            self._set_health(Health.PARKED, str(error))
            return
        if self._restarts >= settings.max_restarts:
            self._set_health(Health.PARKED, f"broke {self._restarts + 1} times: {error}")
            return
        ceiling = min(settings.restart_cap_ms, settings.restart_base_ms << self._restarts)
        delay = self.session.random_below(ceiling + 1)
        self._restarts += 1
        self._restart_at = self.session.clock.monotonic_ms() + delay
        self._set_health(Health.BACKOFF, f"restart {self._restarts} in {delay} ms")
        self.session.changed()

    def _relaunch(self) -> None:
        try:
            self._launch(self.manifest)
        except BrokerError as error:
            self._set_health(Health.PARKED, str(error))

    def _settle_reload(self, error: BrokerError | None = None) -> None:
        reload, self._reload = self._reload, None
        if reload is not None and error is not None:
            reload.fail(error)
        elif reload is not None:
            reload.succeed(self)

    def _settle_stop(self) -> None:
        if self._stop is not None and not self._generations and not self._stop.done:
            self._set_health(Health.STOPPED, "stopped")
            self._stop.succeed(None)

    def _set_health(self, health: Health, reason: str) -> None:
        if health is not self.health:
            self.health = health
            self.session.announce(HealthChanged(self.name, health, reason))

    def _context(self, generation: ExtensionProcess) -> dict[str, Any]:
        return {
            "workspace": self.session.workspace,
            "execution_scope": "session",
            "resource_owner": {
                "session_id": self.session.session_id,
                "extension_instance_id": self.instance_id,
                "process_generation": generation.number,
            },
            "host": self.session.host_json(),
        }
