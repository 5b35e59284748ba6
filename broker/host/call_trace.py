"""Who follows the tool calls of a session from before they are sent until they settle, and adds to what is sent.

An observer hears of a call when it is on its way. A tracer is asked before, because what it hands on (the context of a
trace) travels with the call: for MCP in ``_meta``; the octet wires have no place for it.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from contextlib import AbstractContextManager, nullcontext
from types import TracebackType
from typing import TYPE_CHECKING, Any, Final, Protocol

from broker.host.outcome import Outcome

if TYPE_CHECKING:
    from broker.host.session import Session

_LOG = logging.getLogger("broker.host")
_UNTRACED: Final = nullcontext()


class CallTrace(Protocol):
    """What a tracer makes of one call. Exactly one of the two methods is called, once."""

    @property
    def meta(self) -> Mapping[str, str]:
        """What is sent with the call; only ASCII text is."""
        ...

    def refused(self, error: BaseException) -> None:
        """The call was refused before anything was sent."""
        ...

    def settled(self, outcome: Outcome[Any]) -> None:
        """The call has its result, or failed."""
        ...


class CallTracer(Protocol):
    """Follows every tool call of a session, in the session's thread. What it raises is logged and stops nothing."""

    def begin(self, extension: str, tool: str) -> CallTrace:
        """A tool of this extension or server is about to be called; the tool need not exist."""
        ...


def tracing(
    session: Session, extension: str, tool: str, call: Outcome[Any]
) -> AbstractContextManager[Mapping[str, str] | None]:
    """While ``call`` is being sent: gives what is to be sent with it, and has the session's tracer follow it."""
    if session.call_tracer is None:
        return _UNTRACED
    return _Tracing(session.call_tracer, extension, tool, call)


class _Tracing:
    """Keeps a tracer's faults from the call that it follows."""

    def __init__(self, tracer: CallTracer, extension: str, tool: str, call: Outcome[Any]) -> None:
        self._call = call
        self._trace: CallTrace | None = None
        try:
            self._trace = tracer.begin(extension, tool)
            self._meta = {key: text for key, text in self._trace.meta.items() if (key + text).isascii()}
        except KeyboardInterrupt:
            raise
        except BaseException:
            _LOG.exception("the tracer of a call failed")
            self._meta = {}

    def __enter__(self) -> Mapping[str, str]:
        return self._meta

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if error is not None:
            self._tell(error)
        else:
            self._call.add_callback(lambda _: self._tell(None))

    def _tell(self, error: BaseException | None) -> None:
        if self._trace is None:
            return
        try:
            if error is not None:
                self._trace.refused(error)
            else:
                self._trace.settled(self._call)
        except KeyboardInterrupt:
            raise
        except BaseException:
            _LOG.exception("the tracer of a call failed")
