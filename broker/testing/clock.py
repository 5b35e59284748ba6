"""A clock that moves only when a test says so."""

from __future__ import annotations

from broker.errors import UsageError


class ManualClock:
    """A :class:`~broker.clock.Clock` whose readings change only through its own methods.

    ``unix_ms`` is the wall time it starts at and ``monotonic_ms`` the origin of its elapsed time, both in milliseconds.
    """

    __slots__ = ("_monotonic_ms", "_unix_ms")

    def __init__(self, unix_ms: int = 1_700_000_000_000, monotonic_ms: int = 0) -> None:
        self._unix_ms = unix_ms
        self._monotonic_ms = monotonic_ms

    def unix_ms(self) -> int:
        """Wall time, milliseconds since the Unix epoch."""
        return self._unix_ms

    def monotonic_ms(self) -> int:
        """Elapsed time in milliseconds."""
        return self._monotonic_ms

    def advance_ms(self, milliseconds: int) -> None:
        """Let time pass: both readings move on. Raises :class:`UsageError` as :func:`check_passing` does."""
        check_passing(milliseconds)
        self._unix_ms += milliseconds
        self._monotonic_ms += milliseconds

    def step_wall_ms(self, milliseconds: int) -> None:
        """Step the wall clock alone, forwards or back, as when a machine's clock is set."""
        _check_whole(milliseconds)
        self._unix_ms += milliseconds

    def wait(self, seconds: float) -> bool:
        """Let ``seconds`` pass instead of waiting for them; always False, as nothing comes meanwhile.

        For what takes a function that waits, such as :class:`~broker.adapters.event_retry.RetryingLog`.
        """
        self.advance_ms(round(seconds * 1000))
        return False

    def __repr__(self) -> str:
        return f"ManualClock(unix_ms={self._unix_ms}, monotonic_ms={self._monotonic_ms})"


def check_passing(milliseconds: int) -> None:
    """Raise :class:`UsageError` unless so much time can pass: whole milliseconds, as a clock reads them, from 0 on."""
    _check_whole(milliseconds)
    if milliseconds < 0:
        raise UsageError(f"time cannot pass backwards: {milliseconds} ms", path="milliseconds")


def _check_whole(milliseconds: int) -> None:
    if type(milliseconds) is not int:
        raise UsageError(f"milliseconds: expected a whole number, got {milliseconds!a:.80}", path="milliseconds")
