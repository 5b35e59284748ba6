"""What a run's exit status tells an orchestrator. Source: odek contract, "Budget exit behavior"."""

from __future__ import annotations

from typing import Final

from broker.errors import SetupError
from broker.wire.odek.events.run import budget_error

SUCCESS: Final = 0
TASK_ERROR: Final = 1
"""The task, the model or a tool failed."""
TIMED_OUT: Final = 2
"""The whole run took too long; one tool's deadline is not that."""
SETUP_ERROR: Final = 3
"""Something is configured wrongly; nothing was run."""
BUDGET_SPENT: Final = 4
"""The execution budget is exhausted."""


def exit_code(error: BaseException | None) -> int:
    """The exit status of a run that ended with ``error``, ``None`` for one that ended well.

    A spent budget counts wherever it stands behind the error. ``TimeoutError`` is the end of the whole run's time.
    """
    if error is None:
        return SUCCESS
    if budget_error(error) is not None:
        return BUDGET_SPENT
    if isinstance(error, TimeoutError):
        return TIMED_OUT
    return SETUP_ERROR if isinstance(error, SetupError) else TASK_ERROR
