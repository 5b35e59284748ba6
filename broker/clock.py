"""The one reader of time.

Two clocks are kept apart on purpose: wall time (Unix milliseconds) is only ever *reported*, monotonic time
(milliseconds from an arbitrary origin) is only ever *compared*. A stepped wall clock therefore never makes a message
expire early or late.
"""

from __future__ import annotations

from time import monotonic_ns, time_ns
from typing import Protocol


class Clock(Protocol):
    """What the kernel and the host need from a clock. Both readings are whole milliseconds."""

    def unix_ms(self) -> int:
        """Wall time, milliseconds since the Unix epoch; may be stepped."""
        ...

    def monotonic_ms(self) -> int:
        """Elapsed time, milliseconds since an arbitrary origin; never goes back."""
        ...


class SystemClock:
    """The machine's own clocks. Stateless and safe from any thread."""

    __slots__ = ()

    def unix_ms(self) -> int:
        """Wall time, milliseconds since the Unix epoch."""
        return time_ns() // 1_000_000

    def monotonic_ms(self) -> int:
        """Elapsed time in milliseconds, from an arbitrary origin."""
        return monotonic_ns() // 1_000_000
