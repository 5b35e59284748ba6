"""Work that a driver carries out for a session and that can be given up."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

from broker.errors import CancelledError
from broker.host.outcome import Outcome

T = TypeVar("T")


class Work(Outcome[T]):
    """An outcome whose work can be stopped: ``stop`` is called once, if it is given up before it settled."""

    def __init__(self, stop: Callable[[], object]) -> None:
        super().__init__()
        self._stop = stop

    def cancel(self) -> None:
        """Give it up: settle with :class:`~broker.errors.CancelledError` unless it settled already. Idempotent."""
        if not self.done:
            self.fail(CancelledError("the work was given up", reason="cancelled"))
            self._stop()
