"""What a host asks of an extension of API 0.1, 0.2 or 0.4 beside tool calls: commands, hooks, what it collects.

Source: octet notes, section 5.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, TypeVar

from broker.errors import CapabilityMismatchError, ExtensionError, InvalidParamsError
from broker.host.feature.generation import FeatureGeneration
from broker.host.outcome import Outcome
from broker.limits import MENU_TIMEOUT_MS
from broker.wire.feature.features import HOOK_FEATURES
from broker.wire.feature.models import ContextItem, StatusItem
from broker.wire.feature.negotiation import Command
from broker.wire.feature.results import (
    CommandResult,
    EmptyResult,
    HookResult,
    Menu,
    Rendering,
    decode_command_result,
    decode_context,
    decode_empty,
    decode_hook_result,
    decode_menu,
    decode_rendering,
    decode_status,
)
from broker.wire.quoting import quote
from broker.wire.requests import HostRequest

if TYPE_CHECKING:
    from broker.host.extension import Extension

T = TypeVar("T")


class Request(Outcome[T]):
    """A request on its way. ``cancel()`` releases the caller at once and tells the extension, if it had the request."""

    def __init__(self, generation: FeatureGeneration) -> None:
        super().__init__()
        self._generation = generation
        self._request: HostRequest | None = None

    def cancel(self, reason: str = "user") -> None:
        """Settle with :class:`~broker.errors.CancelledError` unless it settled already. Idempotent."""
        if self._request is not None and not self.done:
            self._generation.connection.cancel(self._request, reason)
            self._generation.session.changed()

    def _settled(self, request: HostRequest) -> None:
        if request.error is not None:
            self.fail(request.error)
        else:
            self.succeed(request.result)


class Contributions:
    """What one extension contributes, asked of whichever generation serves.

    Each method raises before anything is sent: :class:`~broker.errors.ExtensionError` while nothing serves,
    :class:`~broker.errors.CapabilityMismatchError` for an extension of API 0.3 and for what its manifest does not
    declare or was not negotiated, :class:`~broker.errors.InvalidParamsError` for arguments of another type or that JSON
    cannot hold, :class:`~broker.errors.ResourceExhaustedError` for a line over the bound. A request settles as a tool
    call does; ``timeout_ms`` covers queueing, writing and waiting.
    """

    def __init__(self, extension: Extension) -> None:
        self._extension = extension

    @property
    def commands(self) -> tuple[Command, ...]:
        """The commands of the serving generation; empty while none serves."""
        generation = self._extension.generation
        return generation.commands if isinstance(generation, FeatureGeneration) else ()

    @property
    def features(self) -> frozenset[str]:
        """The features negotiated with the serving generation; empty on 0.1 and while none serves."""
        generation = self._extension.generation
        agreement = generation.agreement if isinstance(generation, FeatureGeneration) else None
        return frozenset() if agreement is None else agreement.features

    def execute(
        self, command: str, arguments: Sequence[str] = (), *, timeout_ms: int | None = None
    ) -> Request[CommandResult]:
        """Run a command with string arguments."""
        generation = self._serving("commands")
        if all(command != known.name for known in generation.commands):
            raise self._unknown("command", command)
        if type(arguments) not in (list, tuple) or not all(type(argument) is str for argument in arguments):
            raise self._wrong("arguments", "arguments of a command are a list or tuple of strings")
        params = {"name": command, "arguments": list(arguments), "context": generation.context()}
        return self._send(generation, "command/execute", params, decode_command_result, timeout_ms)

    def run_hook(self, hook: str, payload: Mapping[str, Any], *, timeout_ms: int | None = None) -> Request[HookResult]:
        """Run a hook the manifest declares. Session hooks are the session's own affair and are refused here."""
        generation = self._serving("hooks")
        if hook not in generation.manifest.contributes.hooks or hook in ("session_start", "session_end"):
            raise self._unknown("hook", hook)
        feature = HOOK_FEATURES.get(hook)
        if feature is not None and not generation.has(feature):
            raise self._refused(f"hook {hook} needs {feature}, which was not negotiated")
        params = {"hook": hook, "payload": self._members("payload", payload), "context": generation.context()}
        return self._send(generation, "hook/run", params, decode_hook_result(hook), timeout_ms)

    def collect_context(self, prompt: str, *, timeout_ms: int | None = None) -> Request[tuple[ContextItem, ...]]:
        """What the extension adds to the context of ``prompt``."""
        generation = self._serving("context")
        if not generation.manifest.contributes.context:
            raise self._refused("its manifest does not declare context")
        if type(prompt) is not str:
            raise self._wrong("prompt", f"a prompt is a string, not {type(prompt).__name__}")
        params = {"prompt": prompt, "context": generation.context()}
        return self._send(generation, "context/collect", params, decode_context, timeout_ms)

    def collect_status(self, surface: str, *, timeout_ms: int | None = None) -> Request[StatusItem | None]:
        """What the extension shows on ``surface``, which is one its manifest declares."""
        generation = self._serving("ui")
        if surface not in generation.manifest.contributes.ui:
            raise self._unknown("surface", surface)
        params = {"surface": surface, "context": generation.context()}
        return self._send(generation, "status/collect", params, decode_status(surface), timeout_ms)

    def collect_menu(self, *, timeout_ms: int = MENU_TIMEOUT_MS) -> Request[Menu]:
        """The extension's menu; from API 0.2 on."""
        generation = self._serving("menu")
        if not generation.manifest.contributes.menu:
            raise self._refused("its manifest does not declare a menu")
        return self._send(generation, "menu/collect", {"context": generation.context()}, decode_menu, timeout_ms)

    def render_tool(
        self, name: str, arguments: Any, output: Any, *, is_error: bool = False, timeout_ms: int | None = None
    ) -> Request[Rendering]:
        """How the call of a tool is shown, for a tool the extension renders."""
        generation = self._serving("tool_renderers")
        if name not in generation.tool_renderers:
            raise self._unknown("tool renderer", name)
        params = {
            "name": name,
            "arguments": arguments,
            "output": output,
            "is_error": is_error,
            "context": generation.context(),
        }
        return self._send(generation, "tool/render", params, decode_rendering, timeout_ms)

    def dispose_resource(self, fields: Mapping[str, Any], *, timeout_ms: int | None = None) -> Request[EmptyResult]:
        """Say that a resource of the extension is no longer referred to; needs ``resource_refs_v1``."""
        generation = self._serving("resources")
        params = self._members("fields", fields)
        return self._send(generation, "resource/dispose", params, decode_empty("resource/dispose"), timeout_ms)

    def tell(self, event: str, fields: Mapping[str, Any]) -> bool:
        """Tell of a lifecycle event such as ``turn/started``, best effort; whether it is on its way.

        ``False`` for an event the extension did not ask for, and when it does not keep up. Raises
        :class:`~broker.errors.CapabilityMismatchError` when the feature of the event was not negotiated.
        """
        generation = self._serving("lifecycle events")
        if type(event) is not str:
            raise self._wrong("event", f"an event is told by its name, not {type(event).__name__}")
        sent = generation.connection.notify(event, self._members("fields", fields))
        generation.session.changed()
        return sent

    # -- inside --------------------------------------------------------------------------------------------------------

    def _serving(self, what: str) -> FeatureGeneration:
        extension = self._extension
        generation = extension.generation
        if generation is None or not generation.alive:
            raise ExtensionError(
                f"{extension.name} does not serve: it is {extension.health.value}", extension=extension.name
            )
        if not isinstance(generation, FeatureGeneration):
            raise self._refused(f"API {extension.manifest.api_version} has no {what}")
        return generation

    def _send(
        self,
        generation: FeatureGeneration,
        method: str,
        params: dict[str, Any],
        decode: Callable[[Any], T],
        timeout_ms: int | None,
    ) -> Request[T]:
        request: Request[T] = Request(generation)
        request._request = generation.connection.request(
            method, params, timeout_ms=timeout_ms, decode=decode, on_settled=request._settled
        )
        generation.session.changed()
        return request

    def _members(self, path: str, fields: Mapping[str, Any]) -> dict[str, Any]:
        if not isinstance(fields, Mapping):
            raise self._wrong(path, f"{path} must be a mapping, not {type(fields).__name__}")
        return dict(fields)

    def _wrong(self, path: str, why: str) -> InvalidParamsError:
        return InvalidParamsError(f"{self._extension.name}: {why}", extension=self._extension.name, path=path)

    def _refused(self, why: str) -> CapabilityMismatchError:
        return CapabilityMismatchError(f"{self._extension.name}: {why}", extension=self._extension.name)

    def _unknown(self, kind: str, name: str) -> InvalidParamsError:
        return InvalidParamsError(
            f"{self._extension.name} has no {kind} {quote(str(name))}",
            extension=self._extension.name,
            path=kind.replace(" ", "_"),
        )
