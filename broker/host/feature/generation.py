"""One process generation of an extension of API 0.1, 0.2 or 0.4: joins its connection with the host's services."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from broker.errors import CapacityError
from broker.host.extension_process import ExtensionProcess
from broker.host.feature.approvals import ApprovalTokens
from broker.host.feature.artifacts import ArtifactLedger
from broker.host.feature.catalogue import ToolCatalogue
from broker.host.feature.presenting import PresentationFeed
from broker.host.feature.services import CatalogueChange, FeatureServices, Origin
from broker.host.feature.serving import Serving
from broker.host.link import Stage
from broker.host.notices import CatalogueChanged, Diagnostic
from broker.host.output import ControlOutput, Output
from broker.wire.events import Closed
from broker.wire.feature.connection import FeatureConnection
from broker.wire.feature.events import (
    CancelReceived,
    Initialized,
    NoticeReceived,
    ParentSettled,
    ProgressReceived,
    RequestReceived,
)
from broker.wire.feature.events import Diagnostic as WireDiagnostic
from broker.wire.feature.features import Version, offered_features, version_of
from broker.wire.feature.negotiation import Agreement, Command, Declared, Offer
from broker.wire.feature.results import (
    HookResult,
    decode_empty,
    decode_hook_result,
    decode_parts_result,
    decode_text_result,
)
from broker.wire.feature.scope import ResourceOwner
from broker.wire.jsonrpc import Absent
from broker.wire.octet.connection import ConnectionSettings
from broker.wire.octet.manifest_model import Manifest
from broker.wire.octet.models import ToolDefinition
from broker.wire.quoting import describe, escape
from broker.wire.requests import HostRequest

if TYPE_CHECKING:
    from broker.host.extension import Extension


class FeatureGeneration(ExtensionProcess):
    """One start of the process of an extension that speaks the feature-negotiated wire. It is never on the bus."""

    connection: FeatureConnection
    tools: tuple[ToolDefinition, ...]

    def __init__(
        self,
        extension: Extension,
        manifest: Manifest,
        number: int,
        initialize: dict[str, Any],
        settings: ConnectionSettings,
    ) -> None:
        super().__init__(extension, manifest, number)
        session = extension.session
        self.services: FeatureServices = session.feature_services
        self.version: Version = version_of(manifest.api_version)
        self.catalogue: ToolCatalogue = ToolCatalogue()
        self.commands: tuple[Command, ...] = ()
        self.tool_renderers: tuple[str, ...] = ()
        self.ledger: ArtifactLedger = ArtifactLedger()
        self.approvals: ApprovalTokens = ApprovalTokens(session.clock)
        self.connection = FeatureConnection(
            version=self.version,
            clock=session.clock,
            extension=extension.name,
            owner=ResourceOwner(
                session_id=session.session_id,
                extension_instance_id=extension.instance_id,
                process_generation=number,
            ),
            declares=_declared_contributions(manifest),
            settings=settings,
        )
        self._params = initialize
        self._serving = Serving(self)
        self._feed: PresentationFeed | None = None
        if self.services.presentation is not None:
            self._feed = PresentationFeed(self.services.presentation, session.clock, self._sink_failed)

    # -- the session's side --------------------------------------------------------------------------------------------

    @property
    def agreement(self) -> Agreement | None:
        """What was negotiated, once it is."""
        return self.connection.agreement

    def has(self, feature: str) -> bool:
        """Whether ``feature`` was negotiated."""
        return self.agreement is not None and feature in self.agreement.features

    def origin(self, parent: HostRequest | None = None) -> Origin:
        """Who this is, for a service."""
        return Origin(
            session_id=self.session.session_id,
            workspace=self.session.workspace,
            extension=self.name,
            instance_id=self.extension.instance_id,
            generation=self.number,
            api_version=self.version,
            parent_id=None if parent is None else parent.id,
            parent_method=None if parent is None else parent.method,
        )

    def context(self) -> dict[str, Any]:
        """The ``context`` member of a host request."""
        host = self.session.host_json()
        if self.services.host_context is not None:
            try:
                host.update(self.services.host_context(self.origin()))
            except KeyboardInterrupt:
                raise
            except BaseException as error:  # a call goes on without what the host would have added
                self._sink_failed(error)
        context: dict[str, Any] = {"workspace": self.session.workspace, "execution_scope": "session", "host": host}
        if self.version != "0.1":
            context["resource_owner"] = {
                "session_id": self.session.session_id,
                "extension_instance_id": self.extension.instance_id,
                "process_generation": self.number,
            }
        return context

    def call(
        self, params: dict[str, Any], timeout_ms: int | None, on_settled: Callable[[HostRequest], None]
    ) -> HostRequest:
        params = {**params, "context": self.context()}
        if self.has("dynamic_tools"):
            params["catalog_revision"] = self.catalogue.revision
        return self._track(
            self.connection.request(
                "tool/call",
                params,
                timeout_ms=timeout_ms,
                decode=decode_text_result if self.version == "0.1" else decode_parts_result(self.ledger.has),
                on_settled=self._tracked(on_settled),
            )
        )

    def run_session_hook(
        self, hook: str, payload: dict[str, Any], on_settled: Callable[[HostRequest], None]
    ) -> HostRequest:
        return self.connection.request(
            "hook/run",
            {"hook": hook, "payload": payload, "context": self.context()},
            timeout_ms=self.session.settings.hook_timeout_ms,
            bypass_slots=True,
            decode=decode_hook_result(hook),
            on_settled=on_settled,
        )

    def veto_of(self, result: Any) -> tuple[str, str] | None:
        if not isinstance(result, HookResult) or not result.denied:
            return None
        reason = result.disposition.reason
        return "deny", "no reason given" if isinstance(reason, Absent) else reason

    def change_catalogue(self, change: CatalogueChange) -> dict[str, Any]:
        """Make a change of the tools that the host agreed to; gives the result of the request that asked for it."""
        self.catalogue.commit(change)
        self.tools = self.catalogue.tools
        names = tuple(tool.name for tool in self.tools)
        self.session.announce(CatalogueChanged(self.name, self.number, self.catalogue.revision, names))
        return self.catalogue.to_json()

    def note(self, text: str) -> None:
        """A diagnostic of the host; not while the process is being stopped, when refusals are no news."""
        if self.stage is Stage.READY:
            self._diagnose(text)

    # -- the driver's side ---------------------------------------------------------------------------------------------

    def next_output(self) -> Output | None:
        frame = self.connection.next_frame()
        return None if frame is None else ControlOutput(frame, self.connection.frame_written)

    # -- the protocol --------------------------------------------------------------------------------------------------

    def _initialize(self) -> None:
        self.extension.generation_initializing(self)
        manifest, given = self.manifest, self.manifest.contributes
        granted = [
            f"capabilities.{name}" for name in ("secrets", "system_prompt") if getattr(manifest.capabilities, name)
        ]
        offer = Offer(
            version=self.version,
            optional_features=offered_features(
                self.version,
                services=self.services.bound,
                honoured=self.services.honoured,
                withheld=self.services.withheld,
                grants=granted,
            ),
            max_concurrent_requests=self.session.settings.max_concurrent_requests,
        )
        declared = Declared(
            tools=given.tools,
            commands=given.commands,
            tool_renderers=given.tool_renderers,
            shortcuts=tuple(shortcut.name for shortcut in given.shortcuts),
        )
        self.connection.initialize(self._params, offer, declared)

    def _drain_events(self) -> None:
        while (event := self.connection.next_event()) is not None:
            if isinstance(event, RequestReceived):
                self._serving.begin(event.incoming)
            elif isinstance(event, CancelReceived):
                self._serving.cancel(event.incoming)
            elif isinstance(event, Initialized):
                self._on_initialized(event.agreement)
            elif isinstance(event, NoticeReceived):
                self._on_notice(event)
            elif isinstance(event, ParentSettled):
                if self._feed is not None:
                    self._feed.withdraw(event.parent.id)
            elif isinstance(event, ProgressReceived):
                self._on_progress(event)
            elif isinstance(event, WireDiagnostic):
                self._diagnose(event.text, source="wire")
            elif isinstance(event, Closed) and event.error is not None:
                self.fail(event.error)
            self.relieve_writer()

    def _on_initialized(self, agreement: Agreement) -> None:
        if self.failure is not None:
            return
        self.catalogue = ToolCatalogue(agreement.tools)
        self.tools = agreement.tools
        self.commands = agreement.commands
        self.tool_renderers = agreement.tool_renderers
        self._enter(Stage.READY)
        self.extension.generation_ready(self)

    def _tick_protocol(self) -> None:
        super()._tick_protocol()
        if self._feed is not None:
            self._feed.tick()

    def _protocol_deadline(self) -> int | None:
        due = (super()._protocol_deadline(), None if self._feed is None else self._feed.next_deadline())
        return min((moment for moment in due if moment is not None), default=None)

    def _decode_shutdown(self, result: Any) -> Any:
        return decode_empty("shutdown")(result)

    # -- what the extension tells --------------------------------------------------------------------------------------

    def _on_notice(self, event: NoticeReceived) -> None:
        origin = self.origin(event.parent)
        try:
            if event.method == "presentation/update":
                if self._feed is not None:
                    self._feed.update(origin, event.model.snapshot)
            elif event.method == "notification":
                self._notify(event, origin)
            else:
                sink = self.services.context if event.method == "context/contribution" else self.services.status
                if sink is not None:
                    sink.contribute(origin, event.model.contribution)
        except CapacityError as error:
            self._diagnose(f"dropped notification {error}", source="wire")
        except KeyboardInterrupt:
            raise
        except BaseException as error:
            self._sink_failed(error)

    def _notify(self, event: NoticeReceived, origin: Origin) -> None:
        notification = event.model
        if self.services.notifications is not None:
            self.services.notifications.notify(origin, notification)
            return
        title = "" if isinstance(notification.title, Absent) else f"{notification.title}: "
        text = f"{notification.level}: {title}{notification.message}"
        self.session.announce(Diagnostic(self.name, self.number, "notification", escape(text)))

    def _on_progress(self, event: ProgressReceived) -> None:
        if self.services.progress is not None:
            try:
                self.services.progress.report(self.origin(event.request), event.report)
            except KeyboardInterrupt:
                raise
            except BaseException as error:
                self._sink_failed(error)

    def _sink_failed(self, error: BaseException) -> None:
        self._diagnose(f"a service failed inside the host: {describe(error)}")

    # -- the end -------------------------------------------------------------------------------------------------------

    def _leave_services(self) -> None:
        if self._feed is not None:
            self._feed.withdraw()

    def _release_services(self) -> None:
        self._serving.close()
        if self._feed is not None:
            self._feed.withdraw()


def initialize_params(extension: Extension, manifest: Manifest) -> dict[str, Any]:
    """The parameters of ``initialize`` but for ``protocol``; flags and shortcuts do not exist on 0.1."""
    session = extension.session
    contributes = manifest.contributes_json()
    params: dict[str, Any] = {
        "api_version": manifest.api_version,
        "octet_version": session.settings.octet_version,
        "extension": manifest.extension_json(extension.source),
        "workspace": session.workspace,
        "capabilities": manifest.capabilities_json(),
        "contributes": contributes,
        "host": session.host_json(),
    }
    if manifest.api_version == "0.1":
        del contributes["shortcuts"]
    else:
        params["flag_values"] = manifest.flag_values(extension.flags)
    return params


def _declared_contributions(manifest: Manifest) -> tuple[str, ...]:
    given = manifest.contributes
    names = ("notifications", "confirmations", "context", "presentation", "ui")
    return (*(name for name in names if getattr(given, name)), *(f"ui.{surface}" for surface in given.ui))
