"""A call of an MCP server's tool: the call itself, who is told of it, and what its result comes to."""

from __future__ import annotations

import secrets
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Protocol

from broker.errors import BrokerError, CancelledError, ExtensionError, McpError
from broker.host.artifacts import ArtifactFiles
from broker.host.driver import Driver
from broker.host.outcome import Outcome, as_broker_error
from broker.wire.mcp.events import NotificationReceived
from broker.wire.mcp.requests import HostRequest
from broker.wire.odek.artifact_ref import ArtifactRef
from broker.wire.odek.config import ServerConfig
from broker.wire.odek.result import ToolOutput, Verify, read_error, read_result
from broker.wire.odek.untrusted import wrap_untrusted

if TYPE_CHECKING:
    from broker.host.mcp_server import McpServer


class ServerWatcher(Protocol):
    """Is told what one server does; what it raises is reported and stops nothing."""

    def tools_changed(self) -> None:
        """:attr:`McpServer.tools` are others now."""
        ...

    def call_started(self, call: McpCall) -> None:
        """A tool was called."""
        ...

    def notified(self, method: str, params: Any) -> None:
        """The server sent a notification unasked. Never trust it."""
        ...


class McpCall(Outcome[ToolOutput]):
    """A tool call on its way. ``cancel()`` releases the caller at once and tells the server, if it had the call."""

    def __init__(self, server: McpServer, tool: str, *, untrusted: bool) -> None:
        super().__init__()
        self.tool: str = tool
        self.untrusted: bool = untrusted
        self._server = server
        self._request: HostRequest | None = None

    def _answered(self, request: HostRequest) -> None:
        self._server._answered(self, request)

    def shown(self, text: str) -> str:
        """``text`` as this call's caller gets it: as somebody else's words, if that was asked for."""
        if not self.untrusted:
            return text
        return wrap_untrusted(text, server=self._server.name, tool=self.tool, nonce=secrets.token_hex(8))

    def fail(self, error: BrokerError) -> None:
        """Settle with an error. What blames the server may quote it, so its text is shown as a result's would be."""
        if self.untrusted and isinstance(error, ExtensionError):
            error = error.copied(self.shown(str(error)))
        super().fail(error)

    def cancel(self, reason: str = "user") -> None:
        """Settle with :class:`CancelledError` unless it settled already. Idempotent."""
        if self._request is not None and not self.done:
            self._server.peer.cancel(self._request, reason)
            self.fail(CancelledError(f"{self._server.name}: tool {self.tool} was cancelled", reason=reason))
            self._server.session.changed()


def notify(event: NotificationReceived, watcher: ServerWatcher) -> None:
    """Tell ``watcher`` of a server's notification."""
    watcher.notified(event.method, event.params)


def settle(
    call: McpCall,
    result: Any,
    config: ServerConfig,
    files: ArtifactFiles,
    driver: Driver,
    finished: Callable[[McpCall, ToolOutput], ToolOutput],
) -> None:
    """Settle ``call`` with what ``finished`` makes of ``result``: at once, unless files have to be looked at.

    Verifying an artifact hashes its file, which may take a while; the driver does it, and the connection goes on.
    """
    server, tool, limit = config.name, call.tool, config.max_result_chars

    def read(verify: Verify | None) -> ToolOutput:
        return read_result(result, server=server, tool=tool, max_result_chars=limit, verify=verify)

    if not config.artifact_roots:
        call.settle_with(lambda: finished(call, read(None)))
        return
    try:
        output = read(_need_files)
    except _FilesNeeded:
        reading = driver.offload(lambda: read(files.verify))

        def take(outcome: Outcome[ToolOutput]) -> None:
            if not call.done:  # who gave up meanwhile is shown no artifact, so none may be read later
                call.settle_with(lambda: finished(call, outcome.result()))

        reading.add_callback(take)
    except Exception as error:
        call.fail(as_broker_error(error))
    else:
        call.settle_with(lambda: finished(call, output))


def bound_error(error: BrokerError, config: ServerConfig, tool: str) -> None:
    """Bound and make safe what a server says in an error, like what it says in a result."""
    if isinstance(error, McpError):
        shown = read_error(error, server=config.name, tool=tool, max_result_chars=config.max_result_chars)
        error.args = (f"{config.name}: tool {tool}: {shown.text}",)


class _FilesNeeded(BaseException):
    """A result has artifacts, whose files have to be looked at; never leaves this module."""


def _need_files(ref: ArtifactRef) -> None:
    raise _FilesNeeded
