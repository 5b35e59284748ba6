"""Who goes next, when several could: the orders in which the steps of in-memory extensions may happen.

A *step* is the smallest thing that can happen at one moment: a process starts, reads one frame, has one of its writes
reach the host, ends; or the bus calls the handlers of in-process peers. Steps that can be taken wait in a queue, those
that have waited longest first, and a schedule chooses one by its place: 0 is the next in line, 2 overtakes two others.
An order is therefore a list of small numbers, of which those that are not 0 say what happened out of turn; the same
list gives the same order again.
"""

from __future__ import annotations

import random
from collections.abc import Iterable, Sequence
from typing import Protocol

from attrs import frozen

from broker.errors import UsageError


class Schedule(Protocol):
    """Decides which step is taken. Used for one run."""

    def choose(self, waiting: Sequence[str]) -> int:
        """The place in ``waiting``, the steps that can be taken, of the one that is taken now; called for two or more.

        A place behind the last is taken modulo their number.
        """
        ...


class Interleaving:
    """The schedule of explicit ``choices``, one for each moment at which there was one; then first come, first served.

    >>> from broker.testing import Interleaving
    >>> Interleaving([0, 2])
    Interleaving([0, 2])
    """

    def __init__(self, choices: Iterable[int] = ()) -> None:
        given = list(choices)
        wrong = next((choice for choice in given if type(choice) is not int or choice < 0), None)
        if wrong is not None:
            raise UsageError(f"choices: expected whole numbers from 0, got {wrong!a:.80}", path="choices")
        while given and given[-1] == 0:
            given.pop()
        self.choices: tuple[int, ...] = tuple(given)
        self._taken = 0

    def choose(self, waiting: Sequence[str]) -> int:
        """The next of ``choices``; 0, the step that waits longest, when they are used up."""
        choice = self.choices[self._taken] if self._taken < len(self.choices) else 0
        self._taken += 1
        return choice

    def __repr__(self) -> str:
        return f"Interleaving({list(self.choices)})"


class SeededSchedule:
    """A schedule drawn from ``seed``: the same seed gives the same order in every Python."""

    def __init__(self, seed: int) -> None:
        self.seed: int = seed
        self._random = random.Random(seed)  # noqa: S311 - decides an order, protects nothing

    def choose(self, waiting: Sequence[str]) -> int:
        """A place in ``waiting``, each as likely as the others."""
        return int(self._random.random() * len(waiting))

    def __repr__(self) -> str:
        return f"SeededSchedule({self.seed})"


@frozen
class Choice:
    """One choice that was made: ``chosen`` is the place of the step in ``waiting`` that was taken."""

    waiting: tuple[str, ...]
    chosen: int

    def __str__(self) -> str:
        overtaken = ", ".join(self.waiting[: self.chosen])
        return f"{self.waiting[self.chosen]}" + (f", before {overtaken}" if overtaken else "")


class StepQueue:
    """The steps that can be taken, those that have waited longest first, and the choices made so far."""

    def __init__(self, schedule: Schedule) -> None:
        self.schedule: Schedule = schedule
        self.choices: list[Choice] = []
        self._waiting: list[str] = []

    def take(self, possible: Iterable[str]) -> str | None:
        """The step to take of those that are ``possible`` now; None when none is."""
        ready = list(possible)
        known = set(self._waiting)
        self._waiting = [step for step in self._waiting if step in ready]
        self._waiting += [step for step in ready if step not in known]
        if not self._waiting:
            return None
        if len(self._waiting) == 1:
            return self._waiting.pop()
        place = self.schedule.choose(tuple(self._waiting)) % len(self._waiting)
        self.choices.append(Choice(tuple(self._waiting), place))
        return self._waiting.pop(place)

    @property
    def interleaving(self) -> Interleaving:
        """What was chosen so far, as a schedule that chooses the same again."""
        return Interleaving(choice.chosen for choice in self.choices)
