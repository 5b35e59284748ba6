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
from broker.wire.octet.models import SESSION_OUTCOMES
from broker.wire.quoting import escape
from broker.wire.requests import HostRequest

if TYPE_CHECKING:
    from broker.host.extension import Extension
    from broker.host.extension_process import ExtensionProcess


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

    def start(self, generation: ExtensionProcess) -> None:
        """Tell a generation that the session's binding is active; one that broke or is stopping is told nothing."""
        if not generation.manifest.session_hooks or not generation.alive:
            return
        self._open = _Open(generation.number, self._extension.session.clock.monotonic_ms())
        if "session_start" not in generation.manifest.contributes.hooks:
            return  # it asked for the end alone
        if not self._dispatch(generation, "session_start", {"binding": self._binding(generation.number)}):
            self._open = None

    def end(self, via: ExtensionProcess, outcome: str, reason: str, done: Callable[[], None] | None = None) -> None:
        """Settle the open binding, if there is one, by telling the generation ``via``; then call ``done``."""
        ended, self._open = self._open, None
        if ended is None or not via.manifest.session_hooks or "session_end" not in via.manifest.contributes.hooks:
            if done is not None:
                done()
            return
        payload = {
            "binding": self._binding(ended.generation),
            "outcome": outcome,
            "reason": reason,
            "duration_ms": self._extension.session.clock.monotonic_ms() - ended.started_ms,
        }
        self._dispatch(via, "session_end", payload, done)

    def _binding(self, generation: int) -> dict[str, Any]:
        return {
            "session_id": self._extension.session.session_id,
            "extension_instance_id": self._extension.instance_id,
            "process_generation": generation,
        }

    def _dispatch(
        self, via: ExtensionProcess, hook: str, payload: dict[str, Any], done: Callable[[], None] | None = None
    ) -> bool:
        """Whether the hook could be sent; ``done`` is called in either case."""

        def settled(request: HostRequest) -> None:
            if request.error is not None:
                self._note(via, f"{hook}: {request.error}")
            elif (veto := via.veto_of(request.result)) is not None:
                self._note(via, f"{hook}: {veto[0]} is recorded, not obeyed: {veto[1]}")
            if done is not None:
                done()

        try:
            via.run_session_hook(hook, payload, settled)
        except BrokerError as error:
            self._note(via, f"{hook}: {error}")
            if done is not None:
                done()
            return False
        return True

    def _note(self, generation: ExtensionProcess, text: str) -> None:
        self._extension.session.announce(Diagnostic(self._extension.name, generation.number, "host", escape(text)))
