"""The public test kit."""

from __future__ import annotations

from broker.testing.clock import ManualClock

__all__ = ["ManualClock"]
