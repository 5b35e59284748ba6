"""What must have happened, in which order and how often; a failure shows the sequence with what is wrong marked."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from typing import Any, TypeAlias

from attrs import frozen

from broker.errors import UsageError
from broker.testing.matching import matches
from broker.testing.sequence import BEFORE_ALL, KINDS, Entry, Kind, Mark, SequenceError, cut, literal, render, show


@frozen
class Pattern:
    """Which entries are meant; made with :func:`entry`. What is left out may be anything."""

    what: str | None = None
    kind: Kind | None = None
    source: str | None = None
    target: str | None = None
    id: int | str | None = None
    payload: Any = ...

    def matches(self, found: Entry) -> bool:
        """Whether it means ``found``."""
        wanted = (self.what, self.kind, self.source, self.target, self.id)
        facts = (found.what, found.kind, found.source, found.target, found.id)
        same = all(one is None or one == other for one, other in zip(wanted, facts, strict=True))
        return same and matches(self.payload, found.payload)

    def __str__(self) -> str:
        parts = [self.what or "anything"]
        parts += [f"from {self.source}"] if self.source else []
        parts += [f"to {self.target}"] if self.target else []
        parts += [f"#{self.id}"] if self.id is not None else []
        parts += [f"with {literal(self.payload)}"] if self.payload is not ... else []
        parts += [f"({self.kind})"] if self.kind else []
        return " ".join(parts)


Wanted: TypeAlias = str | Pattern


def entry(
    what: str | None = None,
    *,
    kind: Kind | None = None,
    source: str | None = None,
    target: str | None = None,
    id: int | str | None = None,  # noqa: A002 - what the wires call it
    payload: Any = ...,
) -> Pattern:
    """The entries whose fields are these (:class:`~broker.testing.sequence.Entry`); ``payload`` as for a script.

    A plain string stands for ``entry(what)`` wherever a pattern is taken. Raises :class:`UsageError` for a ``kind``
    that there is not.
    """
    if kind is not None and kind not in KINDS:
        raise UsageError(f"kind: expected one of {', '.join(KINDS)}, got {kind!a:.80}", path="kind")
    return Pattern(what, kind, source, target, id, payload)


class Recorded(ABC):
    """Entries in the order they happened, and assertions about them; :class:`~broker.testing.SequenceError` shows them.

    In it ``=`` marks what was asked for, ``+`` what is surplus, ``!`` what is out of place.
    """

    @property
    @abstractmethod
    def entries(self) -> Sequence[Entry]:
        """What happened, oldest first."""

    def found(self, wanted: Wanted) -> list[Entry]:
        """Every entry that is meant, in order."""
        pattern = _pattern(wanted)
        return [one for one in self.entries if pattern.matches(one)]

    def in_order(self, *wanted: Wanted) -> None:
        """Each happened, in this order, whatever else did in between."""
        __tracebackhide__ = True
        entries = self.entries
        marks: dict[int, Mark] = {}
        at = 0
        for number, pattern in enumerate(map(_pattern, wanted)):
            place = next((index for index in range(at, len(entries)) if pattern.matches(entries[index])), None)
            if place is None:
                earlier = [index for index in range(at) if pattern.matches(entries[index]) and index not in marks]
                for index in earlier:
                    marks[index] = Mark("!", f"^ too early: {pattern}")
                when = f" after number {number}, {_pattern(wanted[number - 1])}" if number else ""
                problem = f"number {number + 1} of {len(wanted)} did not happen{when}: {pattern}"
                raise _failure("not in this order", [problem], entries, marks)
            marks[place] = Mark("=")
            at = place + 1

    def exactly_once(self, *wanted: Wanted) -> None:
        """Each of these happened once."""
        __tracebackhide__ = True
        for one in wanted:
            self.times(1, one)

    def times(self, count: int, wanted: Wanted) -> None:
        """It happened ``count`` times."""
        __tracebackhide__ = True
        if type(count) is not int or count < 0:
            raise UsageError(f"count: expected a whole number from 0, got {count!a:.80}", path="count")
        entries, pattern = self.entries, _pattern(wanted)
        places = [index for index, one in enumerate(entries) if pattern.matches(one)]
        if len(places) != count:
            marks = {place: Mark("=" if number < count else "!") for number, place in enumerate(places)}
            problem = f"expected {_times(count)}, happened {_times(len(places))}: {pattern}"
            raise _failure("not as often", [problem], entries, marks)

    def never(self, *wanted: Wanted) -> None:
        """None of these happened."""
        __tracebackhide__ = True
        for one in wanted:
            self.times(0, one)

    def nothing_else(self, *wanted: Wanted, among: Wanted | None = None) -> None:
        """These happened one after the other, and nothing else of what ``among`` means (everything, when left out).

        ``nothing_else("published", "published", among=entry(kind="bus"))``
        """
        __tracebackhide__ = True
        entries = self.entries
        scope = Pattern() if among is None else _pattern(among)
        places = [index for index, one in enumerate(entries) if scope.matches(one)]
        patterns = [_pattern(one) for one in wanted]
        marks: dict[int, Mark] = {}
        problems: list[str] = []
        place = BEFORE_ALL
        for number, found in _aligned(patterns, [entries[place] for place in places]):
            if found is not None:
                place = places[found]
                marks[place] = Mark("=")
            if number is None and found is not None:
                marks[place] = Mark("+", "^ not expected")
                problems.append(f"surplus: {_short(entries[place])}")
            elif found is None and number is not None:
                missing = f"- missing here: {patterns[number]}"
                marks[place] = marks.get(place, Mark(" ")).with_text(missing)
                problems.append(f"missing: {patterns[number]}")
        if problems:
            raise _failure("not exactly this", problems, entries, marks)

    def __str__(self) -> str:
        return render(self.entries)


# -- inside ------------------------------------------------------------------------------------------------------------


def _pattern(wanted: Wanted) -> Pattern:
    if isinstance(wanted, str):
        return Pattern(wanted)
    if not isinstance(wanted, Pattern):
        raise UsageError(f"expected what happened, a string or entry(...), got {wanted!a:.80}", path="wanted")
    return wanted


def _failure(what: str, problems: Sequence[str], entries: Sequence[Entry], marks: dict[int, Mark]) -> SequenceError:
    lines = "\n".join(f"  {problem}" for problem in problems)
    return SequenceError(f"{what}:\n{lines}\n{render(entries, marks)}")


def _aligned(patterns: Sequence[Pattern], entries: Sequence[Entry]) -> Iterator[tuple[int | None, int | None]]:
    """Pairs of the places of what was expected and what happened, with None for what one of them lacks.

    As many as possible are paired, in order: what is left over is the least that is wrong.
    """
    count, most = len(entries), [[0] * (len(entries) + 1) for _ in range(len(patterns) + 1)]
    fits = [[pattern.matches(one) for one in entries] for pattern in patterns]
    for number in reversed(range(len(patterns))):
        for index in reversed(range(count)):
            most[number][index] = max(most[number + 1][index], most[number][index + 1])
            if fits[number][index]:
                most[number][index] = max(most[number][index], 1 + most[number + 1][index + 1])
    number = index = 0
    while number < len(patterns) or index < count:
        both = number < len(patterns) and index < count and fits[number][index]
        if both and most[number][index] == 1 + most[number + 1][index + 1]:
            yield number, index
            number, index = number + 1, index + 1
        elif index < count and (number == len(patterns) or most[number][index] == most[number][index + 1]):
            yield None, index
            index += 1
        else:
            yield number, None
            number += 1


def _short(found: Entry) -> str:
    what = found.what if found.id is None else f"{found.what} #{found.id}"
    return cut(f"{what} from {found.source} to {found.target} at {found.at_ms} ms {show(found.payload)}", 90)


def _times(count: int) -> str:
    return {0: "never", 1: "once", 2: "twice"}.get(count, f"{count} times")
