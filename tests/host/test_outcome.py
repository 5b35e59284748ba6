"""Outcomes: everybody who waits for one is told, whatever somebody else's code raises."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from broker.errors import InternalError
from broker.host import Outcome


def failing(error: BaseException) -> Any:
    def fail(*_: object) -> Any:
        raise error

    return fail


@pytest.mark.parametrize("error", [ValueError("x"), SystemExit(3), asyncio.CancelledError()], ids=repr)
def test_a_callback_that_raises_keeps_no_other_from_being_told(error: BaseException) -> None:
    outcome: Outcome[int] = Outcome()
    told: list[int] = []
    outcome.add_callback(failing(error))
    outcome.add_callback(lambda done: told.append(done.result()))
    with pytest.raises(type(error)) as caught:
        outcome.succeed(7)
    assert (caught.value, told, outcome.result()) == (error, [7], 7)


@pytest.mark.parametrize("error", [ValueError("x"), SystemExit(3), asyncio.CancelledError()], ids=repr)
def test_work_that_raises_anything_settles_its_outcome(error: BaseException) -> None:
    outcome: Outcome[int] = Outcome()
    outcome.settle_with(failing(error))
    assert isinstance(outcome.error, InternalError)
    assert outcome.error.__cause__ is error


def test_a_keyboard_interrupt_settles_the_outcome_and_comes_through() -> None:
    outcome: Outcome[int] = Outcome()
    with pytest.raises(KeyboardInterrupt):
        outcome.settle_with(failing(KeyboardInterrupt()))
    assert isinstance(outcome.error, InternalError)
