"""One host session: its bus, its extensions, its plugins. Two sessions share nothing."""

from __future__ import annotations

import logging
import random
import uuid
from collections import deque
from collections.abc import Callable, Mapping
from functools import cached_property
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from broker.bus import Bus, Peer
from broker.clock import Clock
from broker.errors import InvalidParamsError, UsageError
from broker.host.approval import Approve
from broker.host.artifacts import ArtifactRegistry, ArtifactWindow
from broker.host.call_trace import CallTracer
from broker.host.driver import Driver
from broker.host.extension import Call, Extension
from broker.host.feature.services import FeatureServices
from broker.host.hooks import check_outcome
from broker.host.link import ProcessLink, Stage
from broker.host.mcp_bridge import McpBridge
from broker.host.mcp_call import McpCall
from broker.host.mcp_server import McpServer
from broker.host.notices import Diagnostic, Notice
from broker.host.outcome import Outcome
from broker.host.services import HostServices, ProviderStream, RegisteredProvider, SessionControl
from broker.host.services.routing import declared_providers, open_stream
from broker.host.settings import HostSettings
from broker.limits import ARTIFACT_READ_DEFAULT_BYTES, MAX_DIAGNOSTICS
from broker.wire.mcp.names import QualifiedNames
from broker.wire.octet.manifest_model import Manifest, Source
from broker.wire.odek.config import ServerConfig
from broker.wire.suggestion import suggestion

if TYPE_CHECKING:
    from broker.host.host import Host

Observer = Callable[[Notice], object]

_LOG = logging.getLogger("broker.host")


class Session:
    """A session of a :class:`broker.Host`. Its bus is safe from any thread; everything else belongs to one thread.

    ``session_id`` is opaque and unique; ``workspace`` the absolute path extensions run in. ``call_tracer``, if
    set, follows every tool call.
    """

    def __init__(
        self, host: Host, *, workspace: str, driver: Driver, clock: Clock, settings: HostSettings, name: str | None
    ) -> None:
        self.session_id: str = uuid.uuid4().hex
        self.name = name
        self.services: HostServices = host.services
        self.workspace = workspace
        self.driver = driver
        self.clock = clock
        self.settings = settings
        self.bus: Bus = Bus(clock)
        self.diagnostics_dropped: int = 0
        self._host = host
        self.approve: Approve = host.approve
        self.call_tracer: CallTracer | None = None
        self.feature_services: FeatureServices = host.feature_services
        self._extensions: dict[str, Extension] = {}
        self._servers: dict[str, McpServer] = {}
        self._bridges: dict[str, McpBridge] = {}
        self._server_failures: dict[str, tuple[int, int]] = {}
        self._observers: tuple[Observer, ...] = ()
        self._closing: Outcome[None] | None = None
        self._unlisten = self.bus.add_listener(self.changed)

    # A host may have very many sessions, and most of them are idle: these are made for those that need them.

    @cached_property
    def control(self) -> SessionControl:
        """The session changes that extensions ask for, and when they may happen."""
        return SessionControl(self.services.session_driver, awaiting=self.driver.adopt)

    @cached_property
    def diagnostics(self) -> deque[Diagnostic]:
        """What was reported of the session's extensions and servers, the newest 1024."""
        return deque(maxlen=MAX_DIAGNOSTICS)

    @cached_property
    def names(self) -> QualifiedNames:
        """The names that models know the tools of MCP servers by."""
        return QualifiedNames()

    @cached_property
    def artifacts(self) -> ArtifactRegistry:
        """The artifacts that calls of MCP servers brought."""
        return ArtifactRegistry()

    @property
    def extensions(self) -> Mapping[str, Extension]:
        """The session's extensions by name."""
        return MappingProxyType(self._extensions)

    @property
    def servers(self) -> Mapping[str, McpServer]:
        """The session's MCP servers by name."""
        return MappingProxyType(self._servers)

    @property
    def closed(self) -> bool:
        """Whether closing has begun."""
        return self._closing is not None

    def attach(self, name: str, *, instance_id: str | None = None) -> Peer:
        """Attach an in-process plugin to the session's bus under ``name``."""
        self._require_open()
        return self.bus.attach(name, instance_id=instance_id)

    def add(
        self, manifest: Manifest, *, source: Source = "explicit", flags: Mapping[str, Any] | None = None
    ) -> Extension:
        """Add an extension without starting it. ``flags`` are values for the flags its manifest declares.

        Its ``api_version`` alone decides which wire it is spoken to on. Raises ``invalid_params`` for a name that is
        taken or a flag that is not declared.
        """
        self._require_open()
        server = self._servers.get(manifest.name)
        if manifest.name in self._extensions or (server is not None and not server.ended):
            kind = "extension" if manifest.name in self._extensions else "server"
            raise InvalidParamsError(f"{kind} {manifest.name} is in this session already", extension=manifest.name)
        self._host.trust.require(manifest, source)
        manifest.flag_values(flags or {})
        extension = Extension(self, manifest, source=source, flags=flags or {})
        self._extensions[manifest.name] = extension
        return extension

    def remove(self, name: str) -> None:
        """Forget an extension that has ended, so that its name is free; raises :class:`UsageError` before that."""
        extension = self.extension(name)
        if not extension.ended:
            raise UsageError(f"{name} has not ended; stop it first", extension=name)
        del self._extensions[name]

    def extension(self, name: str) -> Extension:
        """The extension called ``name``; raises ``invalid_params`` when there is none."""
        found = self._extensions.get(name) if type(name) is str else None
        if found is None:
            raise InvalidParamsError(f"no extension {name!a:.80} in this session", path="extension")
        return found

    def add_server(self, config: ServerConfig) -> McpServer:
        """Add an MCP server without starting it.

        Raises ``invalid_params`` for a name that is taken, and :class:`UsageError` for a server that is configured as
        disabled. A server that has ended gives its name to the next one of that name.
        """
        self._require_open()
        if not config.enabled:
            raise UsageError(
                f"server {config.name} is disabled in its configuration", extension=config.name, path="enabled"
            )
        older = self._servers.get(config.name)
        if (older is not None and not older.ended) or config.name in self._extensions:
            raise InvalidParamsError(f"{config.name} is in this session already", extension=config.name)
        number = 1 if older is None else older.number + 1
        server = McpServer(self, config, number, self.driver.artifact_files(config.artifact_roots))
        self._servers[config.name] = server
        return server

    def server(self, name: str) -> McpServer:
        """The MCP server called ``name``; raises ``invalid_params`` when there is none."""
        found = self._servers.get(name) if type(name) is str else None
        if found is None:
            raise InvalidParamsError(f"no MCP server {name!a:.80} in this session", path="server")
        return found

    def call_qualified(
        self, name: str, arguments: Any, *, timeout_ms: int | None = None, untrusted: bool = False
    ) -> McpCall:
        """Call an MCP tool by the name a model knows it by, ``<server>__<tool>``; see :meth:`McpServer.call`."""
        found = self.names.get(name)
        if found is None:
            hint = suggestion(name, self.names.tools, listed="there are")
            raise InvalidParamsError(f"no tool {name!a:.140} in this session{hint}", tool=name, path="tool")
        return self.server(found[0]).call(found[1], arguments, timeout_ms=timeout_ms, untrusted=untrusted)

    def bridge(self, server: str, *, name: str | None = None, notices: bool = False) -> McpBridge:
        """Give an MCP server a place on the bus as a peer called ``name`` (its own name when left out).

        The bridge of a server that has ended makes room for the next one of its name. Raises ``invalid_params`` when
        the name is taken or is no peer's name (lower-case letters, digits, ``_`` and ``-``), and :class:`UsageError`
        for a server that has ended.
        """
        found = self.server(server)
        older = self._bridges.get(name or server)
        if older is not None and older.server is not found and older.server.ended:
            older.close()
        bridge = McpBridge(found, name=name, notices=notices)
        self._bridges[bridge.name] = bridge
        return bridge

    def read_artifact(
        self, artifact_id: str, *, offset: int = 0, limit: int = ARTIFACT_READ_DEFAULT_BYTES
    ) -> Outcome[ArtifactWindow]:
        """Part of an artifact that a tool call brought, by its id and verified anew; see :class:`ArtifactRegistry`."""
        return self.driver.offload(lambda: self.artifacts.read(artifact_id, offset=offset, limit=limit))

    def call(self, extension: str, tool: str, arguments: Any, *, timeout_ms: int | None = None) -> Call:
        """Call a tool of an extension; see :meth:`Extension.call`."""
        return self.extension(extension).call(tool, arguments, timeout_ms=timeout_ms)

    def providers(self, extension: str) -> Outcome[tuple[RegisteredProvider, ...]]:
        """What an extension provides, once it has said that its first declarations are all made.

        Raises ``capability_mismatch`` for one that does not say so. Settles with :class:`ExtensionError` when its
        process ends before. Source: octet reference, ``ProviderCatalogCompleteParams``.
        """
        return declared_providers(self, extension)

    def stream(
        self,
        provider_id: str,
        model_id: str,
        request: Any,
        *,
        lease: str | None = None,
        idle_timeout_ms: int | None = None,
        timeout_ms: int | None = None,
    ) -> ProviderStream:
        """Ask a model that an extension of this session provides; events follow, see :class:`ProviderStream`.

        ``request`` is any JSON value but null, in the words of the model's ``protocol``; ``lease`` what the host's
        policy issued, if the provider needs it. ``idle_timeout_ms`` is the time to accept and between two events,
        ``timeout_ms`` that of the whole stream.

        Raises ``invalid_params`` for a model that is not declared or a request that is not canonical JSON,
        ``capability_mismatch`` for a provider that is not ready, of another session, or does not stream,
        :class:`UsageError` for a time that is no whole number of milliseconds from 1 on, and ``resource_exhausted`` for
        a request over the frame bound. Nothing is sent in those cases.
        """
        self._require_open()
        return open_stream(
            self,
            provider_id,
            model_id,
            request,
            lease=lease,
            idle_timeout_ms=idle_timeout_ms,
            timeout_ms=timeout_ms,
        )

    def close(self, *, outcome: str = "completed") -> Outcome[None]:
        """Stop every extension in order, then close the bus; settles when all processes are gone. Idempotent.

        ``outcome`` as for :meth:`Extension.stop`.
        """
        check_outcome(outcome)
        if self._closing is not None:
            return self._closing
        closing = self._closing = Outcome()
        waiting = [extension.stop(outcome=outcome) for extension in self._extensions.values()]
        waiting += [server.stop() for server in self._servers.values()]

        def check(_: object = None) -> None:
            if all(stop.done for stop in waiting) and not closing.done:
                self._unlisten()
                self.control.close()
                self.bus.close()
                self._host._forget(self)
                closing.succeed(None)

        for stop in waiting:
            stop.add_callback(check)
        check()
        return closing

    def add_observer(self, observer: Observer) -> Callable[[], None]:
        """Call ``observer(notice)`` for every start, exit, change of health and diagnostic; gives what ends it."""
        self._observers = (*self._observers, observer)

        def remove() -> None:
            self._observers = tuple(other for other in self._observers if other is not observer)

        return remove

    # -- for drivers ---------------------------------------------------------------------------------------------------

    @property
    def links(self) -> tuple[ProcessLink, ...]:
        """Everything whose process has not ended."""
        generations = (generation for extension in self._extensions.values() for generation in extension.generations)
        return (*generations, *(server for server in self._servers.values() if server.stage is not Stage.ENDED))

    def tick(self) -> None:
        """Let every deadline that has passed act."""
        for extension in list(self._extensions.values()):
            extension.tick()
        for server in list(self._servers.values()):
            server.tick()

    def next_deadline(self) -> int | None:
        """The earliest monotonic millisecond at which :meth:`tick` has something to do, or None."""
        due = [extension.next_deadline() for extension in self._extensions.values()]
        due += [server.next_deadline() for server in self._servers.values()]
        return min((deadline for deadline in due if deadline is not None), default=None)

    def changed(self) -> None:
        """Something may be ready to be written, or a deadline moved: have the driver look. Callable from any thread."""
        self.driver.schedule(self)

    # -- for extensions ------------------------------------------------------------------------------------------------

    def announce(self, notice: Notice) -> None:
        """Tell the observers; diagnostics are kept as well, the newest 1024."""
        if isinstance(notice, Diagnostic):
            self.diagnostics_dropped += len(self.diagnostics) == MAX_DIAGNOSTICS
            self.diagnostics.append(notice)
        for observer in self._observers:
            try:
                observer(notice)
            except KeyboardInterrupt:
                raise
            except BaseException:
                # A watcher's fault must not stop a state machine half-way.
                _LOG.exception("an observer of session %s failed", self.session_id)

    def host_json(self) -> dict[str, Any]:
        """The ``host`` member of ``initialize`` and of a call's context."""
        return {
            "session_id": self.session_id,
            "session_name": self.name,
            "model": None,
            "reasoning": None,
            "active_skills": [],
        }

    def server_failed(self, name: str) -> None:
        """A start of this MCP server failed; the next one waits."""
        count = self._server_failures.get(name, (0, 0))[0] + 1
        self._server_failures[name] = (count, self.clock.monotonic_ms())

    def server_started(self, name: str) -> None:
        """A start of this MCP server succeeded; what went before is forgotten."""
        self._server_failures.pop(name, None)

    def server_delay_ms(self, name: str) -> int:
        """How long this MCP server may not be started, because its last starts failed; doubles up to a cap."""
        if name not in self._server_failures:
            return 0
        count, failed_at = self._server_failures[name]
        settings = self.settings
        pause = min(settings.restart_cap_ms, settings.restart_base_ms << min(count - 1, settings.max_restarts))
        return max(0, failed_at + pause - self.clock.monotonic_ms())

    def random_below(self, bound: int) -> int:
        """A random integer from 0 to below ``bound``; tests replace it."""
        return random.randrange(bound)  # noqa: S311 - spreads restarts, protects nothing

    def _require_open(self) -> None:
        if self._closing is not None:
            raise UsageError("the session is closed")
