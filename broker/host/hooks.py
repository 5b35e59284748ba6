"""Session hooks of one extension: exactly one end for every start, over crashes and reloads.

Ownership is recorded before ``session_start`` leaves, so a start that timed out still gets its end. An answer other
than ``continue`` is recorded and never obeyed. Source: octet reference,
``SessionHookParams``; octet notes, section 4.2.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from attrs import frozen

from broker.errors import BrokerError, UsageError
from broker.host.notices import Diagnostic
from broker.wire.octet.models import SESSION_OUTCOMES, Continue, SessionHookResult, decode_hook_result
from broker.wire.quoting import escape
from broker.wire.requests import HostRequest

if TYPE_CHECKING:
    from broker.host.extension import Extension
    from broker.host.generation import Generation


@frozen
class _Open:
    generation: int
    started_ms: int


def check_outcome(outcome: str) -> None:
    """Raise :class:`~broker.errors.UsageError` unless ``outcome`` is one of the words ``session_end`` may carry."""
    if outcome not in SESSION_OUTCOMES:
        raise UsageError(f"outcome {outcome!a:.140} is none of {', '.join(SESSION_OUTCOMES)}", path="outcome")


class SessionHooks:
    """Sends ``session_start`` and ``session_end`` of one extension."""

    def __init__(self, extension: Extension) -> None:
        self._extension = extension
        self._open: _Open | None = None

    def start(self, generation: Generation) -> None:
        """Tell a generation that the session's binding is active; one that broke or is stopping is told nothing."""
        if not generation.manifest.session_hooks or not generation.alive:
            return
        self._open = _Open(generation.number, self._extension.session.clock.monotonic_ms())
        params = {"hook": "session_start", "payload": {"binding": self._binding(generation.number)}}
        if not self._dispatch(generation, params):
            self._open = None

    def end(self, via: Generation, outcome: str, reason: str, done: Callable[[], None] | None = None) -> None:
        """Settle the open binding, if there is one, by telling the generation ``via``; then call ``done``."""
        ended, self._open = self._open, None
        if ended is None or not via.manifest.session_hooks:
            if done is not None:
                done()
            return
        payload = {
            "binding": self._binding(ended.generation),
            "outcome": outcome,
            "reason": reason,
            "duration_ms": self._extension.session.clock.monotonic_ms() - ended.started_ms,
        }
        self._dispatch(via, {"hook": "session_end", "payload": payload}, done)

    def _binding(self, generation: int) -> dict[str, Any]:
        return {
            "session_id": self._extension.session.session_id,
            "extension_instance_id": self._extension.instance_id,
            "process_generation": generation,
        }

    def _dispatch(self, via: Generation, params: dict[str, Any], done: Callable[[], None] | None = None) -> bool:
        """Whether the hook could be sent; ``done`` is called in either case."""

        def settled(request: HostRequest) -> None:
            if request.error is not None:
                self._note(via, f"{params['hook']}: {request.error}")
            elif isinstance(request.result, SessionHookResult):
                disposition = request.result.disposition
                if not isinstance(disposition, Continue):
                    kind = type(disposition).__name__.lower()
                    self._note(via, f"{params['hook']}: {kind} is recorded, not obeyed: {disposition.reason}")
            if done is not None:
                done()

        try:
            via.connection.request(
                "hook/run",
                params,
                timeout_ms=self._extension.session.settings.hook_timeout_ms,
                bypass_slots=True,
                decode=decode_hook_result,
                on_settled=settled,
            )
        except BrokerError as error:
            self._note(via, f"{params['hook']}: {error}")
            if done is not None:
                done()
            return False
        return True

    def _note(self, generation: Generation, text: str) -> None:
        self._extension.session.announce(Diagnostic(self._extension.name, generation.number, "host", escape(text)))
