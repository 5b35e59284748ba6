"""One tree of errors. The type says who is at fault, fields say what, where, and against which limit.

========================  ==================================================================
branch                    at fault
========================  ==================================================================
:class:`CallerError`      the code that made this call (a plugin, or an extension's request)
:class:`CapacityError`    nobody in particular: a declared bound is exhausted
:class:`ExtensionError`   the extension process
:class:`SetupError`       the installation: manifest, executable, workspace
:class:`CancelledError`   nobody: the request was cancelled before it settled
:class:`InternalError`    broker itself
========================  ==================================================================

Every error carries ``name``, ``code`` and ``message`` of the error table (octet reference, section "Errors"), so that
it can be answered on a wire as it is; the detail (``str(error)``) never goes into the wire's ``message``.
"""

from __future__ import annotations

import copy
import copyreg
from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Any, Final, Self

from attrs import frozen


@frozen
class ErrorRow:
    """One row of the error table: the only code and message pairs a canonical wire carries."""

    name: str
    code: int
    message: str


ERROR_TABLE: Final[Mapping[str, ErrorRow]] = MappingProxyType(
    {
        row.name: row
        for row in (
            ErrorRow("parse_error", -32700, "parse error"),
            ErrorRow("invalid_request", -32600, "invalid request"),
            ErrorRow("unknown_method", -32601, "unknown or unnegotiated method"),
            ErrorRow("invalid_params", -32602, "invalid params"),
            ErrorRow("internal_error", -32603, "internal error"),
            ErrorRow("version_mismatch", -32010, "extension API version mismatch"),
            ErrorRow("capability_mismatch", -32011, "extension capability mismatch"),
            ErrorRow("resource_exhausted", -32012, "extension resource exhausted"),
            ErrorRow("request_cancelled", -32800, "request cancelled"),
        )
    }
)


@frozen
class Fault:
    """One thing wrong with a value: ``path`` (such as ``fields[2].max_bytes``), ``problem``, and its row of the table.

    ``limit`` names the bound of :mod:`broker.limits` that was passed, with the ``observed`` and ``maximum`` values.
    """

    path: str
    problem: str
    name: str = "invalid_params"
    limit: str | None = None
    observed: int | None = None
    maximum: int | None = None

    def __str__(self) -> str:
        text = f"{self.path}: {self.problem}" if self.path else self.problem
        if self.limit is not None:
            text += f" ({self.limit}: observed {self.observed}, maximum {self.maximum})"
        return text


class BrokerError(Exception):
    """Root of the tree. ``str(error)`` is the detail; each attribute is ``None`` (or empty) where it does not apply.

    Attributes: ``topic`` and ``subscriber`` (bus), ``extension``, ``method`` and ``tool`` (processes), ``limit``,
    ``observed`` and ``maximum`` (a bound that was passed), ``path`` and ``offset`` (where in a value or in its bytes),
    ``faults`` (all of them, when several were found at once), ``data`` (further facts an answer may carry).
    """

    name: str = "internal_error"

    def __init__(
        self,
        detail: str,
        *,
        name: str | None = None,
        topic: str | None = None,
        subscriber: str | None = None,
        extension: str | None = None,
        method: str | None = None,
        tool: str | None = None,
        limit: str | None = None,
        observed: int | None = None,
        maximum: int | None = None,
        path: str | None = None,
        offset: int | None = None,
        faults: Sequence[Fault] = (),
        data: Any = None,
    ) -> None:
        super().__init__(detail)
        if name is not None:
            if name not in ERROR_TABLE:
                raise ValueError(f"{name!r} is not a row of the error table")
            self.name = name
        self.topic = topic
        self.subscriber = subscriber
        self.extension = extension
        self.method = method
        self.tool = tool
        self.limit = limit
        self.observed = observed
        self.maximum = maximum
        self.path = path
        self.offset = offset
        self.faults: tuple[Fault, ...] = tuple(faults)
        self.data = data

    def __reduce__(self) -> tuple[Any, ...]:
        # By default an exception is made anew from its positional arguments alone, which the types that require fields
        # refuse: an error could not cross to another process, nor be copied.
        return copyreg.__newobj__, (type(self), *self.args), vars(self)  # type: ignore[attr-defined]

    def copied(self, detail: str | None = None) -> Self:
        """This error as an object of its own, with the same cause, for one more caller to raise.

        ``detail`` replaces its text, if given.
        """
        own = copy.copy(self)
        own.__cause__ = self.__cause__
        if detail is not None:
            own.args = (detail,)
        return own

    @property
    def code(self) -> int:
        """The JSON-RPC code of this error's row."""
        return ERROR_TABLE[self.name].code

    @property
    def message(self) -> str:
        """The fixed text of this error's row; what a wire answer carries."""
        return ERROR_TABLE[self.name].message

    @property
    def detail(self) -> str:
        """The text for people: what, where, which limit, which value."""
        return str(self)


class CallerError(BrokerError):
    """The code that made the call is at fault; nothing was changed."""


class InvalidParamsError(CallerError):
    """A value is of the wrong type, shape or content; ``faults`` lists all of them."""

    name = "invalid_params"


class CapabilityMismatchError(CallerError):
    """The caller may not do this: another's topic, a stale binding, a closed peer, an unselected service."""

    name = "capability_mismatch"


class UsageError(CallerError):
    """The library was used wrongly: called after close, from the wrong loop, or twice."""

    name = "invalid_request"


class CanonicalError(CallerError):
    """A value or its bytes are not canonical JSON; ``path`` or ``offset`` says where."""

    name = "parse_error"


class NonportableNumberError(CanonicalError):
    """Bytes whose only fault is numbers that some JSON peers do not hold exactly: fractions, integers out of range.

    ``paths`` says where they all are. ``zeroed`` is the value with 0 in each of these places: whoever received the
    bytes can still tell what was asked, and refuse it, but never use a number that was not sent.
    """

    def __init__(self, detail: str, *, paths: Sequence[str], zeroed: Any, **fields: Any) -> None:
        super().__init__(detail, **fields)
        self.paths: tuple[str, ...] = tuple(paths)
        self.zeroed = zeroed


class UnavailableError(CallerError):
    """What was asked for is not there now, or is not the caller's: no service, no owner, not in the foreground."""

    name = "capability_mismatch"


class CapacityError(BrokerError):
    """A declared bound is exhausted; ``limit``, ``observed`` and ``maximum`` say which. Nothing was changed."""

    name = "resource_exhausted"


class ResourceExhaustedError(CapacityError):
    """A count or byte bound was reached; ``subscriber`` names who has no room, where it was a queue."""


class BudgetExceededError(CapacityError):
    """A run's budget is spent: ``limit`` is its name in events, ``observed`` has reached or would pass ``maximum``.

    Costs are in micro-USD, times in seconds.
    """


class CancelledError(BrokerError):
    """The request was cancelled before it settled; ``reason`` says by whom."""

    name = "request_cancelled"

    def __init__(self, detail: str, *, reason: str | None = None, dispatched: bool = True, **fields: Any) -> None:
        super().__init__(detail, **fields)
        self.reason = reason
        self.dispatched = dispatched


class ExtensionError(BrokerError):
    """The extension process is at fault; ``extension`` names it."""


class ProtocolError(ExtensionError):
    """The extension broke the wire's rules in a way that ends its stream."""

    name = "invalid_request"


class NegotiationError(ExtensionError):
    """The extension's answer to initialize was refused, or it refused to start."""

    name = "capability_mismatch"


class RemoteError(ExtensionError):
    """The extension answered a request with an error; ``data`` is its data, as sent.

    On the canonical wire the error is a row of the table. On the feature-negotiated wire code and message are the
    extension's own: ``rpc_code`` and ``rpc_message`` hold them, and ``name`` is the row of that code, if there is one.
    """

    def __init__(
        self, detail: str, *, rpc_code: int | None = None, rpc_message: str | None = None, **fields: Any
    ) -> None:
        super().__init__(detail, **fields)
        self.rpc_code = rpc_code
        self.rpc_message = rpc_message


class McpError(ExtensionError):
    """An MCP server answered a request with an error.

    MCP leaves code and message to the server, so neither is of the error table: ``rpc_code`` (``None`` if the server
    sent none that is an integer), ``rpc_message`` as sent, and its ``data``. What is shown is made safe and short.
    """

    def __init__(self, detail: str, *, rpc_code: int | None, rpc_message: str, **fields: Any) -> None:
        super().__init__(detail, **fields)
        self.rpc_code = rpc_code
        self.rpc_message = rpc_message


class CatalogueError(ExtensionError):
    """An MCP server's list of tools was refused as a whole: a bad or duplicate name, or a list without end."""

    name = "invalid_params"


class ArtifactError(ExtensionError):
    """An artifact was refused, or is no longer what it was; ``artifact`` is its id. Nothing of it was shown."""

    name = "invalid_params"

    def __init__(self, detail: str, *, artifact: str | None = None, **fields: Any) -> None:
        super().__init__(detail, **fields)
        self.artifact = artifact


class ResultError(ExtensionError):
    """The extension answered a request with a result of the wrong shape; its stream lives."""

    name = "invalid_params"


class TimedOutError(ExtensionError):
    """No answer in time; ``observed`` and ``maximum`` are milliseconds, ``dispatched`` whether the request left."""

    name = "request_cancelled"

    def __init__(self, detail: str, *, dispatched: bool = True, **fields: Any) -> None:
        super().__init__(detail, **fields)
        self.dispatched = dispatched


class ExitedError(ExtensionError):
    """The process ended, closed its output, or was ended; ``status`` is its exit status (negative: a signal)."""

    def __init__(
        self, detail: str, *, status: int | None = None, stderr_tail: str = "", dispatched: bool = True, **fields: Any
    ) -> None:
        super().__init__(detail, **fields)
        self.status = status
        self.stderr_tail = stderr_tail
        self.dispatched = dispatched


class StreamError(ExtensionError):
    """A provider stream was refused or broke; the process lives. Nothing of it is ever sent again.

    ``reason`` says how: ``refused`` (not accepted), ``failed`` (the provider reported an error), ``fault`` (its events
    broke the rules) or ``withdrawn`` (the provider changed hands while it was being asked).
    """

    name = "invalid_params"

    def __init__(self, detail: str, *, reason: str, stream_id: str, **fields: Any) -> None:
        super().__init__(detail, **fields)
        self.reason = reason
        self.stream_id = stream_id


class SetupError(BrokerError):
    """The installation is at fault: no such executable, no such directory, no permission."""


class TrustError(SetupError):
    """An extension may not be started as things stand; ``verdict`` says what is missing. Nothing of it was run."""

    name = "capability_mismatch"

    def __init__(self, detail: str, *, verdict: str, **fields: Any) -> None:
        super().__init__(detail, **fields)
        self.verdict = verdict


class ManifestError(SetupError):
    """An ``extension.toml`` is not valid; ``faults`` lists every fault with its key path."""

    name = "invalid_params"


class ConfigError(SetupError):
    """A file with ``mcp_servers`` is not valid; ``faults`` lists every fault with its key path."""

    name = "invalid_params"


class EventLogError(SetupError):
    """Writing an event failed; ``errno`` says how. ``written`` is whether its line is in the file, though not durably.

    A line that is not written is not in the file at all, and may be written again.
    """

    def __init__(self, detail: str, *, errno: int | None, written: bool, **fields: Any) -> None:
        super().__init__(detail, **fields)
        self.errno = errno
        self.written = written


class InternalError(BrokerError):
    """broker itself is at fault; please report it."""
