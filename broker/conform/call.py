"""A request of the host's to a program under test, and what came of it."""

from __future__ import annotations

from typing import Any

from attrs import define


@define(eq=False)
class Call:
    """One request: ``answer`` is the whole message, as far as it was understood; times are the event loop's."""

    id: int | str
    method: str
    sent_at: float
    answer: dict[str, Any] | None = None
    answered_at: float = 0.0
    progress: int = -1

    @property
    def result(self) -> Any:
        """The result of an answered call that did not fail, else ``None``."""
        return None if self.answer is None else self.answer.get("result")

    @property
    def failed(self) -> bool:
        """Whether it was answered with an error."""
        return self.answer is not None and self.answer.get("error") is not None

    @property
    def error_code(self) -> Any:
        """The code of an answer that is an error, whatever that is; ``None`` for any other."""
        error = None if self.answer is None else self.answer.get("error")
        return error.get("code") if isinstance(error, dict) else None
