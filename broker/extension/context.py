"""What a handler may know and say about the request it works on."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from broker.extension.events import HostCall

if TYPE_CHECKING:
    from broker.extension.runtime import Runtime


class Context:
    """The context of one request of the host. A handler gets it in a parameter that is annotated with this class."""

    def __init__(self, runtime: Runtime, call: HostCall) -> None:
        self._runtime = runtime
        self._call = call
        self._progress = 0
        self.timed_out: bool = False

    @property
    def cancelled(self) -> bool:
        """Whether nobody waits for the result any more; a plain function that takes long looks now and then.

        An ``async`` handler is cancelled where it awaits, and need not look.
        """
        return self._call.cancelled or self.timed_out

    @property
    def reason(self) -> str:
        """Why it was cancelled, in the host's words; may be empty."""
        return self._call.reason

    @property
    def host_context(self) -> dict[str, Any]:
        """The host's ``context`` of this request as sent: workspace, host and so on; empty where there is none."""
        params = self._call.params
        found = params.get("context") if isinstance(params, dict) else None
        return found if isinstance(found, dict) else {}

    @property
    def request_id(self) -> int | str:
        """The id of the request of the host."""
        return self._call.id

    def progress(self, text: str) -> None:
        """Say how far the call has come, in words (0.4 with ``request_progress``; elsewhere nothing happens)."""
        self._progress += 1
        event = {"type": "status", "text": text}
        params = {"request_id": self._call.id, "sequence": self._progress, "event": event}
        self._runtime.notify_if_agreed("request_progress", "$/progress", params)
