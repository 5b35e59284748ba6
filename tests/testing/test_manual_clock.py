"""The manual clock moves only when told, and elapsed time never goes back."""

from __future__ import annotations

from typing import Any

import pytest

from broker.clock import Clock
from broker.errors import UsageError
from broker.testing import ManualClock


def test_starts_where_it_is_told() -> None:
    clock: Clock = ManualClock(unix_ms=7, monotonic_ms=3)
    assert (clock.unix_ms(), clock.monotonic_ms()) == (7, 3)
    assert (ManualClock().unix_ms(), ManualClock().monotonic_ms()) == (1_700_000_000_000, 0)


def test_advance_moves_both_readings() -> None:
    clock = ManualClock(unix_ms=100, monotonic_ms=10)
    clock.advance_ms(5)
    clock.advance_ms(0)
    assert (clock.unix_ms(), clock.monotonic_ms()) == (105, 15)


def test_a_stepped_wall_clock_leaves_elapsed_time_alone() -> None:
    clock = ManualClock(unix_ms=100, monotonic_ms=10)
    clock.step_wall_ms(-60)
    assert (clock.unix_ms(), clock.monotonic_ms()) == (40, 10)
    clock.step_wall_ms(3)
    assert (clock.unix_ms(), clock.monotonic_ms()) == (43, 10)


def test_time_cannot_pass_backwards() -> None:
    clock = ManualClock(unix_ms=100, monotonic_ms=10)
    with pytest.raises(UsageError, match="-1 ms"):
        clock.advance_ms(-1)
    assert (clock.unix_ms(), clock.monotonic_ms()) == (100, 10)
    assert repr(clock) == "ManualClock(unix_ms=100, monotonic_ms=10)"


@pytest.mark.parametrize("amount", [1.5, True, "1"])
def test_time_passes_in_whole_milliseconds(amount: Any) -> None:
    clock = ManualClock(unix_ms=100, monotonic_ms=10)
    for move in (clock.advance_ms, clock.step_wall_ms):
        with pytest.raises(UsageError, match=f"milliseconds: expected a whole number, got {amount!r}"):
            move(amount)
    assert (clock.unix_ms(), clock.monotonic_ms()) == (100, 10)
