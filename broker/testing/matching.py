"""Says whether a value is as expected, and if not, where it differs.

An expected value is written as the value itself: an object matches one that has at least its members, a list one of the
same length, a scalar its equal; ``...`` matches anything. What cannot be written so is a :class:`Matcher`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any, Protocol, runtime_checkable

from attrs import frozen

from broker.testing.sequence import cut, literal

Captures = dict[str, Any]


@runtime_checkable
class Matcher(Protocol):
    """An expectation of its own kind."""

    def problems(self, value: Any, path: str, captures: Captures) -> Iterator[str]:
        """What is wrong with ``value``, each as a line that begins with ``path``; captures what it is to keep."""
        ...


@frozen
class capture:  # noqa: N801 - reads as a verb where it is used
    """Matches what ``matcher`` matches, and keeps it as ``name`` for :class:`captured`."""

    name: str
    matcher: Any = ...

    def problems(self, value: Any, path: str, captures: Captures) -> Iterator[str]:
        """Those of its matcher; without any, ``value`` is kept."""
        found = list(problems(self.matcher, value, path, captures))
        if not found:
            captures[self.name] = value
        yield from found

    def __repr__(self) -> str:
        return f"capture({self.name!r})" if self.matcher is ... else f"capture({self.name!r}, {self.matcher!r})"


@frozen
class captured:  # noqa: N801 - reads as a participle where it is used
    """What was captured as ``name``: as an expectation, its equal; in what is sent, the value."""

    name: str

    def problems(self, value: Any, path: str, captures: Captures) -> Iterator[str]:
        """One line if ``value`` is not the equal of what was captured."""
        yield from problems(exactly(captures.get(self.name)), value, path, captures)

    def __repr__(self) -> str:
        return f"captured({self.name!r})"


@frozen
class exactly:  # noqa: N801 - reads as an adverb where it is used
    """Matches the equal of ``value``: no member more, and ``1`` is not ``true``."""

    value: Any

    def problems(self, value: Any, path: str, captures: Captures) -> Iterator[str]:
        """One line if ``value`` is not the equal."""
        if not _equal(self.value, value):
            yield f"{path}: expected {cut(literal(self.value), 200)}, came {cut(literal(value), 200)}"

    def __repr__(self) -> str:
        return f"exactly({self.value!r})"


@frozen
class such_that:  # noqa: N801 - reads as a phrase where it is used
    """Matches what ``condition(value)`` is true of; ``description`` says what that is."""

    condition: Callable[[Any], object]
    description: str

    def problems(self, value: Any, path: str, captures: Captures) -> Iterator[str]:
        """One line if the condition does not hold for ``value``."""
        if not self.condition(value):
            yield f"{path}: expected {self.description}, came {cut(literal(value), 200)}"

    def __repr__(self) -> str:
        return f"<{self.description}>"


def problems(expected: Any, value: Any, path: str = "", captures: Captures | None = None) -> Iterator[str]:
    """What is wrong with ``value``, one line for each difference; nothing when it is as ``expected``."""
    captures = {} if captures is None else captures
    if expected is ...:
        return
    if isinstance(expected, Matcher) and not isinstance(expected, type):
        yield from expected.problems(value, path or "it", captures)
    elif isinstance(expected, Mapping):
        if not isinstance(value, Mapping):
            yield f"{path or 'it'}: expected an object, came {cut(literal(value), 200)}"
            return
        for key, item in expected.items():
            at = f"{path}.{key}" if path else str(key)
            if key in value:
                yield from problems(item, value[key], at, captures)
            else:
                near = ", ".join(map(str, value)) or "no members"
                yield f"{at}: is missing; there is {cut(near, 120)}"
    elif isinstance(expected, list | tuple):
        if not isinstance(value, list | tuple) or len(value) != len(expected):
            yield f"{path or 'it'}: expected {len(expected)} items, came {cut(literal(value), 200)}"
            return
        for index, (item, other) in enumerate(zip(expected, value, strict=True)):
            yield from problems(item, other, f"{path}[{index}]", captures)
    else:
        yield from exactly(expected).problems(value, path or "it", captures)


def matches(expected: Any, value: Any) -> bool:
    """Whether ``value`` is as expected."""
    return next(problems(expected, value), None) is None


def filled_in(value: Any, captures: Captures) -> Any:
    """``value`` with every :class:`captured` in it replaced by what it stands for."""
    if isinstance(value, captured):
        return captures[value.name]
    if isinstance(value, Mapping):
        return {key: filled_in(item, captures) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [filled_in(item, captures) for item in value]
    return value


def names_in(value: Any, kind: type[capture | captured]) -> Iterator[str]:
    """The names of every ``capture`` or every ``captured`` in ``value``."""
    if isinstance(value, kind):
        yield value.name
    if isinstance(value, capture):
        yield from names_in(value.matcher, kind)
    elif isinstance(value, Mapping):
        for item in value.values():
            yield from names_in(item, kind)
    elif isinstance(value, list | tuple):
        for item in value:
            yield from names_in(item, kind)


def _equal(one: Any, other: Any) -> bool:
    if isinstance(one, bool) or isinstance(other, bool):
        return one is other
    if isinstance(one, Mapping) and isinstance(other, Mapping):
        return one.keys() == other.keys() and all(_equal(item, other[key]) for key, item in one.items())
    if isinstance(one, list | tuple) and isinstance(other, list | tuple):
        return len(one) == len(other) and all(_equal(a, b) for a, b in zip(one, other, strict=True))
    return bool(one == other)
