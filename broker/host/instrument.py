"""Who wants to time the tool calls of a session, and may send something along with those of MCP servers."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any, Final, Literal, Protocol, TypeAlias

from broker.errors import BrokerError
from broker.host.outcome import Outcome

Family: TypeAlias = Literal["octet", "mcp"]


class CallTrace(Protocol):
    """One tool call, from before it is made. Exactly one of its methods is called. They must not raise."""

    @property
    def meta(self) -> Mapping[str, str]:
        """What goes along in ``_meta`` of a call to an MCP server."""
        ...

    def started(self, outcome: Outcome[Any]) -> None:
        """The call is on its way, and ends when ``outcome`` settles."""
        ...

    def refused(self, error: BrokerError) -> None:
        """The call was refused before anything was sent."""
        ...


class Instrument(Protocol):
    """Is told of each tool call of a session that it is the ``instrument`` of. Must not raise."""

    def tool_call(self, owner: str, tool: str, family: Family) -> CallTrace:
        """``tool`` of the extension or server ``owner`` is about to be called."""
        ...


class _NoTrace:
    """The trace of a call that nobody times."""

    meta: Mapping[str, str] = MappingProxyType({})

    def started(self, outcome: Outcome[Any]) -> None:
        """Nothing to do."""

    def refused(self, error: BrokerError) -> None:
        """Nothing to do."""


_NO_TRACE: Final = _NoTrace()


def trace_call(instrument: Instrument | None, owner: str, tool: str, family: Family) -> CallTrace:
    """The trace of a call; one that does nothing when there is no instrument."""
    return _NO_TRACE if instrument is None else instrument.tool_call(owner, tool, family)
