"""Searches the orders in which extensions may take their steps for one in which a scenario fails, and makes it short.

A scenario is a function of a fresh :class:`~broker.testing.MemoryHost`; it fails by raising. Hypothesis tries orders
that let a few steps overtake others, then takes away every overtaking that is not needed. The same seed finds the same.
Needs hypothesis (extra ``testing``).
"""

from __future__ import annotations

import random
import sys
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any, TypeAlias

from broker.errors import UsageError
from broker.limits import MAX_INTERLEAVING_CHOICE, MAX_INTERLEAVING_STEPS
from broker.testing.host import MemoryHost
from broker.testing.schedule import Choice, Interleaving
from broker.testing.sequence import SequenceError

if TYPE_CHECKING:
    from hypothesis.strategies import SearchStrategy

Scenario: TypeAlias = Callable[[MemoryHost], object]


class FailingInterleaving:
    """The shortest order found in which a scenario fails.

    ``interleaving`` is that order, ``error`` what the scenario raised, ``choices`` each choice that let a step overtake
    others, by the number of the choice, and ``report`` what happened in it, session by session.
    """

    def __init__(self, host: MemoryHost, error: BaseException) -> None:
        assert host.driver.steps is not None
        self.interleaving: Interleaving = host.interleaving
        self.error: BaseException = error
        self.choices: dict[int, Choice] = {
            number: choice for number, choice in enumerate(host.driver.steps.choices) if choice.chosen
        }
        self.report: str = "\n".join(str(session.recorder) for session in host.sessions)
        self.replay: str = host.replay

    def __str__(self) -> str:
        lines = [f"the scenario fails when steps happen in this order: {self.interleaving}"]
        lines += [f"   choice {number}: {choice}" for number, choice in self.choices.items()]
        if not self.choices:
            lines.append("   nothing overtakes anything: it fails in the order in which steps became possible")
        lines.append(f"   to replay: {self.replay}")
        lines.append(f"{type(self.error).__name__}: {self.error}")
        return "\n".join([*lines, self.report])


def interleavings(*, steps: int = 64, overtakings: int = 4) -> SearchStrategy[Interleaving]:
    """A hypothesis strategy of orders in which some of the first ``steps`` choices are out of turn.

    Some orders are out of turn at up to ``overtakings`` places, others everywhere. ``@given(interleavings())`` and
    ``MemoryHost(schedule=order)`` make any test a search; a failing one shrinks to an order with the fewest steps out
    of turn.
    """
    from hypothesis import strategies

    _within("steps", steps, MAX_INTERLEAVING_STEPS)
    _within("overtakings", overtakings, MAX_INTERLEAVING_STEPS)
    places = strategies.tuples(strategies.integers(0, steps - 1), strategies.integers(1, MAX_INTERLEAVING_CHOICE))
    at_places = strategies.lists(places, max_size=overtakings, unique_by=lambda pair: pair[0]).map(_interleaving)
    choices = strategies.integers(0, MAX_INTERLEAVING_CHOICE)
    # Drawn from the last to the first, so that what is smallest to hypothesis is what ends soonest.
    everywhere = strategies.lists(choices, min_size=steps, max_size=steps).map(lambda drawn: Interleaving(drawn[::-1]))
    return strategies.one_of(at_places, everywhere)


def find_failing_interleaving(
    scenario: Scenario,
    *,
    seed: int = 0,
    max_examples: int = 200,
    overtakings: int = 4,
    make_host: Callable[[Interleaving], MemoryHost] | None = None,
) -> FailingInterleaving | None:
    """The shortest order in which ``scenario`` fails, of those that were tried; None when it never did.

    ``max_examples`` bounds the orders that are tried before one fails. ``make_host`` makes the host of one run from the
    order it is given, for settings, services or faults of its own.
    """
    import hypothesis

    make = make_host or (lambda order: MemoryHost(schedule=order))
    failing: dict[tuple[int, ...], FailingInterleaving] = {}

    def fails(order: Interleaving) -> bool:
        found = _run(scenario, make(Interleaving(order.choices)))
        if found is not None:
            failing[order.choices] = found
        return found is not None

    steps = _count(scenario, make, failing)
    if failing:
        return failing[()]
    if steps == 0:
        return None
    given = hypothesis.settings(
        max_examples=max_examples,
        database=None,
        deadline=None,
        # Not the one that explains: it traces every line, which costs more than the search.
        phases=(hypothesis.Phase.generate, hypothesis.Phase.shrink),
        suppress_health_check=list(hypothesis.HealthCheck),
    )
    drawn = random.Random(seed)  # noqa: S311 - decides what is tried, protects nothing
    try:
        hypothesis.find(
            interleavings(steps=min(steps, MAX_INTERLEAVING_STEPS), overtakings=overtakings),
            fails,
            settings=given,
            random=drawn,
        )
    except hypothesis.errors.NoSuchExample:
        return None
    shortest = min(failing, key=_length)
    while (shorter := next(filter(fails, map(Interleaving, _shortened(shortest))), None)) is not None:
        shortest = shorter.choices
    return failing[shortest]


def explore(scenario: Scenario, **options: Any) -> None:
    """Assert that ``scenario`` fails in none of the orders that are tried.

    ``options`` are those of :func:`find_failing_interleaving`. Raises ``AssertionError`` with the shortest failing
    order, how to replay it, and the sequence of what happened, caused by what the scenario raised.
    """
    __tracebackhide__ = True
    found = find_failing_interleaving(scenario, **options)
    if found is not None:
        raise SequenceError(str(found)) from found.error


def _run(scenario: Scenario, host: MemoryHost) -> FailingInterleaving | None:
    if host.driver.steps is None:
        raise UsageError("make_host: the host has no schedule; give it the order: MemoryHost(schedule=order)")
    try:
        scenario(host)
        host.finish()
    except _failures() as error:
        if _is_xfail(error):
            raise
        return FailingInterleaving(host, error)
    return None


def _failures() -> tuple[type[BaseException], ...]:
    """What a scenario raises when it fails: ``pytest.fail`` and ``pytest.raises`` raise no :class:`Exception`."""
    pytest = sys.modules.get("pytest")
    return (Exception,) if pytest is None else (Exception, pytest.fail.Exception)


def _is_xfail(error: BaseException) -> bool:
    pytest = sys.modules.get("pytest")
    return pytest is not None and isinstance(error, pytest.xfail.Exception)


def _count(
    scenario: Scenario,
    make: Callable[[Interleaving], MemoryHost],
    failing: dict[tuple[int, ...], FailingInterleaving],
) -> int:
    """How many choices there are when nothing is out of turn; the first run, and perhaps a failing one."""
    host = make(Interleaving())
    found = _run(scenario, host)
    if found is not None:
        failing[()] = found
    return 0 if host.driver.steps is None else len(host.driver.steps.choices)


def _interleaving(out_of_turn: list[tuple[int, int]]) -> Interleaving:
    choices = [0] * (max((place for place, _ in out_of_turn), default=-1) + 1)
    for place, choice in out_of_turn:
        choices[place] = choice
    return Interleaving(choices)


def _length(choices: tuple[int, ...]) -> tuple[int, int, tuple[int, ...]]:
    """How long an order is: first by its steps out of turn, then by where the last of them is."""
    return sum(choice > 0 for choice in choices), len(choices), choices


def _shortened(choices: tuple[int, ...]) -> Iterator[tuple[int, ...]]:
    """Orders that are shorter than this one by a little, in ways hypothesis does not find."""
    places = [place for place, choice in enumerate(choices) if choice]
    tried: set[tuple[int, ...]] = set()
    for place in places:
        before, after = choices[:place], choices[place + 1 :]
        # Without this overtaking, what follows may come some places earlier or later.
        tried.update(before + (0,) * kept + after for kept in range(4))
        tried.add(before + after[1:])
        tried.update((*before, lower, *after) for lower in range(1, choices[place]))
        # It may come sooner: with fewer of the zeros before it.
        zeros = next((number for number, choice in enumerate(reversed(before)) if choice), place)
        tried.update(choices[: place - zeros] + choices[place - left :] for left in {0, zeros // 2, zeros - 1} - {-1})
    trimmed = {Interleaving(one).choices for one in tried}
    yield from sorted((one for one in trimmed if _length(one) < _length(choices)), key=_length)


def _within(what: str, value: int, maximum: int) -> None:
    if type(value) is not int or not 1 <= value <= maximum:
        raise UsageError(f"{what}: expected a whole number from 1 to {maximum}, got {value!a:.80}", path=what)
