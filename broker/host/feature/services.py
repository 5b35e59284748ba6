"""What a host may bind for extensions of API 0.1, 0.2 and 0.4, one small protocol a service, and the place to bind it.

:class:`FeatureServices` is that place. Whatever is not bound there is not offered, and refused if an extension asks for
it all the same. A service answers with a value, with an :class:`~broker.host.Outcome`, or under an adapter with a loop
with an awaitable. It refuses by raising (or failing with) a :class:`~broker.errors.BrokerError`:
:class:`~broker.errors.InvalidParamsError` becomes ``invalid_request``, :class:`~broker.errors.ResourceExhaustedError`
``bounds_exceeded``, :class:`~broker.errors.UnavailableError` ``unavailable``, and with the path ``resource_owner``
``not_foreground_owner``. Any other exception is the host's own fault, and the extension is told no more than that.

Services are called in the session's own thread and must not block it.

Source: octet notes, section 5.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from typing import Any, Final, Literal, Protocol, TypeAlias, TypeVar

from attrs import field, frozen

from broker.errors import UsageError
from broker.host.services.asking import Answer, require_methods
from broker.wire.feature.features import FEATURES, SERVICES
from broker.wire.feature.models import (
    Confirmation,
    ContextItem,
    ExtensionNotification,
    InputRequest,
    ProgressReport,
    StatusItem,
)
from broker.wire.octet.models import ToolDefinition

T = TypeVar("T")

Reply: TypeAlias = Answer[T]
"""An answer now or later."""

Decision: TypeAlias = Literal["allow", "ask", "deny"]


@frozen
class Origin:
    """Who asks or tells, and for what: the process generation, and the host request it serves, if it serves one."""

    session_id: str
    workspace: str
    extension: str
    instance_id: str
    generation: int
    api_version: str
    parent_id: int | None = None
    parent_method: str | None = None


class ServiceCall:
    """One request of an extension that a service works on. ``method`` is its full name."""

    def __init__(self, origin: Origin, method: str) -> None:
        self.origin: Origin = origin
        self.method: str = method
        self._cancelled = False
        self._callbacks: list[Callable[[], object]] = []

    @property
    def operation(self) -> str:
        """The part of the method's name behind its family."""
        return self.method.partition("/")[2]

    @property
    def cancelled(self) -> bool:
        """Whether nobody waits for the answer any more: taken back, its parent settled, or the process gone."""
        return self._cancelled

    def on_cancel(self, callback: Callable[[], object]) -> None:
        """Call ``callback()`` once when the request is cancelled before it was answered; at once if it has been."""
        if self._cancelled:
            callback()
        else:
            self._callbacks.append(callback)

    def cancel(self) -> list[BaseException]:
        """For the broker: nobody waits any more. Gives what the callbacks raised."""
        self._cancelled = True
        callbacks, self._callbacks = self._callbacks, []
        raised: list[BaseException] = []
        for callback in callbacks:
            try:
                callback()
            except KeyboardInterrupt:
                raise
            except BaseException as error:  # one service's bug must not keep the others from being told
                raised.append(error)
        return raised


@frozen(kw_only=True)
class PublishedArtifact:
    """The verified bytes of one ``artifact/publish``; size and digest have been compared with what was declared."""

    mime_type: str
    sha256: str
    data: bytes = field(repr=False)


@frozen(kw_only=True)
class CatalogueChange:
    """A tool catalogue as it would be after a change, and what changes."""

    revision: int
    tools: tuple[ToolDefinition, ...]
    put: tuple[str, ...] = ()
    removed: tuple[str, ...] = ()


class Confirmations(Protocol):
    """``confirmation/request``."""

    def confirm(self, call: ServiceCall, question: Confirmation) -> Reply[bool]:
        """Whether a person agrees."""
        ...


class Inputs(Protocol):
    """``input/request``."""

    def ask(self, call: ServiceCall, question: InputRequest) -> Reply[str | None]:
        """What a person typed, at most 262144 bytes; ``None`` for a person who declined."""
        ...


class ArtifactStore(Protocol):
    """``artifact/publish``."""

    def store(self, call: ServiceCall, artifact: PublishedArtifact) -> Reply[str]:
        """Keep the artifact; gives the id it can be referred to by, unique in the session."""
        ...


class Policy(Protocol):
    """``policy/evaluate``."""

    def evaluate(self, call: ServiceCall, intent: Mapping[str, Any]) -> Reply[Decision]:
        """Whether what the extension intends is allowed; with ``approvals`` this includes asking a person."""
        ...


class Secrets(Protocol):
    """``secret/get``, for names the manifest declares. The broker neither keeps nor logs values."""

    def get(self, call: ServiceCall, name: str) -> Reply[str | None]:
        """The secret, at most 65536 bytes; ``None`` when there is none or this extension may not have it."""
        ...


class DynamicTools(Protocol):
    """``tools/register`` and ``tools/unregister``."""

    def change(self, call: ServiceCall, change: CatalogueChange) -> Reply[None]:
        """Agree to a change before it is made; raising leaves the catalogue as it was."""
        ...


class Operations(Protocol):
    """A family of methods whose members the reference leaves open, such as ``composer/*`` or ``agent/*``."""

    def run(self, call: ServiceCall, fields: Mapping[str, Any]) -> Reply[Mapping[str, Any] | None]:
        """Carry out ``call.operation`` with these fields; gives the members of the result."""
        ...


class Agents(Operations, Protocol):
    """``agent/spawn``, ``message``, ``follow_up``, ``list``, ``wait`` and ``interrupt``; ``models``, ``events`` and
    ``stop`` with features of their own.
    """


class Composer(Operations, Protocol):
    """``composer/get``, ``set`` and ``insert``: the text a person is writing."""


class Shortcuts(Operations, Protocol):
    """``shortcut/register``."""


class SessionEntries(Operations, Protocol):
    """``session/append_entry``, ``set_name`` and ``set_label``."""


class Messages(Operations, Protocol):
    """``session/send_message`` and ``send_user_message``."""


class ActiveTools(Operations, Protocol):
    """``tools/set_active``."""


class Terminal(Operations, Protocol):
    """``terminal/acquire`` and ``release``."""


class Composition(Operations, Protocol):
    """``composition/*`` of API 0.4: tools that use tools."""


class Resources(Operations, Protocol):
    """``resource/*`` of API 0.4; the host says ``resource/dispose`` through ``extension.contributions``."""


class Bulk(Operations, Protocol):
    """``bulk/*`` of API 0.4: objects too large for one message."""


class RemoteUi(Operations, Protocol):
    """``remote_ui/*`` of API 0.4."""


class SessionControl(Protocol):
    """``session/wait_for_idle``, ``create``, ``fork``, ``switch``, ``reload`` and ``compact`` of API 0.4.

    Each answers with the id of the session it was about.
    """

    def wait_for_idle(self, call: ServiceCall) -> Reply[str]:
        """Answer once the active session is idle."""
        ...

    def create(self, call: ServiceCall) -> Reply[str]:
        """Make a new session."""
        ...

    def fork(self, call: ServiceCall) -> Reply[str]:
        """Make a session that begins as the active one is now."""
        ...

    def switch(self, call: ServiceCall, session_id: str) -> Reply[str]:
        """Make the session ``session_id`` the active one."""
        ...

    def reload(self, call: ServiceCall) -> Reply[str]:
        """Read the active session anew."""
        ...

    def compact(self, call: ServiceCall) -> Reply[str]:
        """Shorten the active session's history."""
        ...


class Notifications(Protocol):
    """``notification``. Without it they become diagnostics."""

    def notify(self, origin: Origin, notification: ExtensionNotification) -> None:
        """Show it."""
        ...


class ContextSink(Protocol):
    """``context/contribution``."""

    def contribute(self, origin: Origin, item: ContextItem) -> None:
        """Take it in."""
        ...


class StatusSink(Protocol):
    """``status/contribution``."""

    def contribute(self, origin: Origin, item: StatusItem) -> None:
        """Show it in place of the last one of that surface."""
        ...


class Presentation(Protocol):
    """``presentation/update``, already bounded and slowed down to what a person can follow."""

    def show(self, origin: Origin, snapshot: Mapping[str, Any]) -> None:
        """Show this in place of the last snapshot of the same generation and parent."""
        ...

    def withdraw(self, origin: Origin) -> None:
        """The parent settled, or the process is gone: show nothing any more."""
        ...


class ProgressSink(Protocol):
    """``$/progress``."""

    def report(self, origin: Origin, report: ProgressReport) -> None:
        """How far the host request ``origin.parent_id`` has come."""
        ...


_SESSION_CONTROL: Final = ("wait_for_idle", "create", "fork", "switch", "reload", "compact")
_METHODS: Final[Mapping[str, tuple[str, ...]]] = {
    "confirmations": ("confirm",),
    "inputs": ("ask",),
    "artifacts": ("store",),
    "policy": ("evaluate",),
    "secrets": ("get",),
    "dynamic_tools": ("change",),
    "session_control": _SESSION_CONTROL,
    "notifications": ("notify",),
    "context": ("contribute",),
    "status": ("contribute",),
    "presentation": ("show", "withdraw"),
    "progress": ("report",),
}


def _names(value: Collection[str]) -> frozenset[str]:
    if isinstance(value, str) or not isinstance(value, Collection):
        raise UsageError(f"features are named in a collection, not {type(value).__name__}", path="honoured")
    return frozenset(value)


@frozen(kw_only=True)
class FeatureServices:
    """Everything a host binds for extensions of API 0.1, 0.2 and 0.4.

    ``honoured`` names features that have no method of their own and that this host stands for, such as
    ``semantic_ui``; ``withheld`` names features that are not offered although their service is bound.
    ``host_context(origin)`` gives further members of ``context.host``, which is where features such as
    ``session_context``, ``model_catalog`` and ``system_prompt_read`` put what they are about.

    Raises :class:`~broker.errors.UsageError` for an unknown feature, and for a service without its protocol's methods.
    """

    confirmations: Confirmations | None = None
    inputs: Inputs | None = None
    artifacts: ArtifactStore | None = None
    policy: Policy | None = None
    secrets: Secrets | None = None
    dynamic_tools: DynamicTools | None = None
    agents: Agents | None = None
    composer: Composer | None = None
    shortcuts: Shortcuts | None = None
    session_entries: SessionEntries | None = None
    messages: Messages | None = None
    active_tools: ActiveTools | None = None
    terminal: Terminal | None = None
    session_control: SessionControl | None = None
    composition: Composition | None = None
    resources: Resources | None = None
    bulk: Bulk | None = None
    remote_ui: RemoteUi | None = None
    notifications: Notifications | None = None
    context: ContextSink | None = None
    status: StatusSink | None = None
    presentation: Presentation | None = None
    progress: ProgressSink | None = None
    honoured: frozenset[str] = field(default=frozenset(), converter=_names)
    withheld: frozenset[str] = field(default=frozenset(), converter=_names)
    host_context: Callable[[Origin], Mapping[str, Any]] | None = None

    def __attrs_post_init__(self) -> None:
        for name in sorted(self.bound):
            require_methods(getattr(self, name), name, *_METHODS.get(name, ("run",)))
        if self.host_context is not None and not callable(self.host_context):
            raise UsageError(
                f"host_context: is called, and {type(self.host_context).__name__} cannot be", path="host_context"
            )
        for name in sorted(self.honoured | self.withheld, key=str):
            row = FEATURES.get(name)
            if row is None or row.required:
                raise UsageError(f"{name!a:.80} is not an optional feature", path="honoured")
            if name in self.honoured and row.service is not None:
                raise UsageError(f"{name} is offered by binding {row.service}", path="honoured")

    @property
    def bound(self) -> frozenset[str]:
        """The names of the services that are bound."""
        return frozenset(name for name in SERVICES if getattr(self, name) is not None)


NO_SERVICES: Final = FeatureServices()
