"""Semantic versions 2.0.0, and requirements on them in the form extension manifests use.

A requirement is a comma list of comparators, all of which must hold. A comparator is an operator (``=``, ``>``, ``>=``,
``<``, ``<=``, ``~``, ``^``; none means ``^``) and a version whose minor and patch may be left out or, alike, be ``*``.
A bare ``*`` accepts every release. A pre-release is only accepted when some comparator names one of the same
``major.minor.patch``; build metadata is read and never compared. Source: octet wire notes, section 1, for the field,
and semver.org 2.0.0 for precedence.
"""

from __future__ import annotations

import re
from functools import total_ordering
from typing import Any, Final

from attrs import field, frozen

from broker.errors import InvalidParamsError

_LARGEST_PART: Final = 2**64 - 1
_PART: Final = r"(?:0|[1-9][0-9]{0,19})"
_PRE: Final = r"(?:0|[1-9][0-9]*|[0-9]*[A-Za-z-][0-9A-Za-z-]*)(?:\.(?:0|[1-9][0-9]*|[0-9]*[A-Za-z-][0-9A-Za-z-]*))*"
_BUILD: Final = r"[0-9A-Za-z-]+(?:\.[0-9A-Za-z-]+)*"
_VERSION: Final = re.compile(rf"({_PART})\.({_PART})\.({_PART})(?:-({_PRE}))?(?:\+{_BUILD})?", re.ASCII)
_COMPARATOR: Final = re.compile(
    rf" *(=|>=|>|<=|<|~|\^)? *({_PART})(?:\.({_PART}|[*xX])(?:\.({_PART}|[*xX])(?:-({_PRE}))?(?:\+{_BUILD})?)?)? *",
    re.ASCII,
)
_WILDCARDS: Final = frozenset({"*", "x", "X"})


def _identifiers(text: str | None) -> tuple[tuple[int, int, str], ...]:
    """Pre-release identifiers in comparable form: numbers before words, numbers by value (length, then digits)."""
    if text is None:
        return ()
    return tuple((0, len(part), part) if part.isdigit() else (1, 0, part) for part in text.split("."))


@total_ordering
@frozen(order=False)
class Version:
    """One version; ordered by precedence, so build metadata plays no part."""

    major: int
    minor: int
    patch: int
    pre_release: str | None = None
    build: str | None = field(default=None, eq=False)

    @classmethod
    def parse(cls, text: str) -> Version:
        """Read ``major.minor.patch[-pre][+build]``; anything else is an :class:`~broker.errors.InvalidParamsError`."""
        match = _VERSION.fullmatch(text)
        if match is None or any(int(part) > _LARGEST_PART for part in match.group(1, 2, 3)):
            raise InvalidParamsError(f"{_shown(text)} is not a semantic version")
        build = text.partition("+")[2] or None
        return cls(int(match[1]), int(match[2]), int(match[3]), match[4], build)

    @property
    def release(self) -> tuple[int, int, int]:
        """``(major, minor, patch)``."""
        return (self.major, self.minor, self.patch)

    def __lt__(self, other: Any) -> bool:
        if not isinstance(other, Version):
            return NotImplemented
        return self._key() < other._key()

    def _key(self) -> tuple[tuple[int, int, int], bool, tuple[tuple[int, int, str], ...]]:
        return (self.release, self.pre_release is None, _identifiers(self.pre_release))


@frozen
class Comparator:
    """One operator and a version, of which minor and patch may be missing."""

    operator: str
    major: int
    minor: int | None = None
    patch: int | None = None
    pre_release: str | None = None

    @property
    def lowest(self) -> Version:
        """The version named, missing parts being zero."""
        return Version(self.major, self.minor or 0, self.patch or 0, self.pre_release)

    def _next(self) -> Version:
        """The first release behind every version that the written parts name."""
        if self.minor is None:
            return Version(self.major + 1, 0, 0)
        if self.patch is None:
            return Version(self.major, self.minor + 1, 0)
        return Version(self.major, self.minor, self.patch + 1)

    def _next_incompatible(self) -> Version:
        """The first release a caret refuses: one up in the leftmost part that is not zero, or in the last written."""
        if self.major > 0 or self.minor is None:
            return Version(self.major + 1, 0, 0)
        if self.minor > 0 or self.patch is None:
            return Version(0, self.minor + 1, 0)
        return Version(0, 0, self.patch + 1)

    def matches(self, version: Version) -> bool:
        """Whether ``version`` lies in this comparator's range, pre-releases taken by precedence."""
        exact = self.patch is not None
        match self.operator:
            case "=":
                return version == self.lowest if exact else self.lowest <= version < self._next()
            case ">":
                return version > self.lowest if exact else version >= self._next()
            case ">=":
                return version >= self.lowest
            case "<":
                return version < self.lowest
            case "<=":
                return version <= self.lowest if exact else version < self._next()
            case "~":
                above = Version(self.major + 1, 0, 0) if self.minor is None else Version(self.major, self.minor + 1, 0)
                return self.lowest <= version < above
            case _:
                return self.lowest <= version < self._next_incompatible()


@frozen
class Requirement:
    """A comma list of comparators; none at all is the bare ``*``."""

    comparators: tuple[Comparator, ...]
    text: str

    @classmethod
    def parse(cls, text: str) -> Requirement:
        """Read a requirement; :class:`~broker.errors.InvalidParamsError` names the comparator that is not one."""
        if text.strip(" ") in _WILDCARDS:
            return cls((), text)
        return cls(tuple(_comparator(part) for part in text.split(",")), text)

    def accepts(self, version: Version) -> bool:
        """Whether every comparator holds for ``version``, and, for a pre-release, one of them asks for its kind."""
        if version.pre_release is not None and not any(
            comparator.pre_release is not None and comparator.lowest.release == version.release
            for comparator in self.comparators
        ):
            return False
        return all(comparator.matches(version) for comparator in self.comparators)


def _comparator(text: str) -> Comparator:
    match = _COMPARATOR.fullmatch(text)
    if match is None:
        raise InvalidParamsError(f"{_shown(text)} is not a version comparator")
    operator, major, minor, patch, pre_release = match.groups()
    wild = minor in _WILDCARDS or patch in _WILDCARDS
    goes_on = minor in _WILDCARDS and patch is not None and patch not in _WILDCARDS
    if goes_on or (wild and pre_release is not None):
        raise InvalidParamsError(f"{_shown(text)} is not a version comparator: a wildcard must end it")
    parts = [None if part is None or part in _WILDCARDS else int(part) for part in (major, minor, patch)]
    if any(part is not None and part > _LARGEST_PART for part in parts):
        raise InvalidParamsError(f"{_shown(text)} is not a version comparator: a number is too large")
    # "1.2.*" accepts what "=1.2" does, while "1.2" is a caret.
    return Comparator(operator or ("=" if wild else "^"), int(major), parts[1], parts[2], pre_release)


def _shown(text: str) -> str:
    return repr(text if len(text) <= 64 else text[:64] + "...")
