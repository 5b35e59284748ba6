"""TOML for manifests: parsed within bounds, then taken apart key by key with every fault kept.

Source: octet wire notes, section 1 ("File").
"""

from __future__ import annotations

import json
import re
import tomllib
from collections.abc import Sequence
from typing import Any, Final

from attrs import define, field

from broker.errors import Fault
from broker.limits import (
    MAX_MANIFEST_BYTES,
    MAX_MANIFEST_IDENTIFIER_BYTES,
    MAX_MANIFEST_KEY_PARTS,
    MAX_PATH_KEY_CHARS,
)

IDENTIFIER: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_.-]*", re.ASCII)
_BARE_KEY: Final = re.compile(r"[A-Za-z0-9_-]+", re.ASCII)

_QUOTED_OR_COMMENT: Final = re.compile(r"\"\"\"|'''|\"|'|#")
_REST: Final = {
    '"""': re.compile(r'(?:[^"\\]|\\.|""?(?!"))*"{3,5}', re.DOTALL),
    "'''": re.compile(r"(?:[^']|''?(?!'))*'{3,5}"),
    '"': re.compile(r'(?:[^"\\\n]|\\.)*"'),
    "'": re.compile(r"[^'\n]*'"),
    "#": re.compile(r"[^\n]*"),
}
_BETWEEN_KEYS: Final = re.compile(r"[=,{}\[\]\n]")


def read_document(data: bytes, faults: list[Fault]) -> dict[str, Any]:
    """The parsed file; empty, with a fault, when it is too large, not UTF-8 or not TOML. Linear in ``data``."""
    if len(data) > MAX_MANIFEST_BYTES:
        faults.append(
            Fault("", "manifest too large", "resource_exhausted", "MAX_MANIFEST_BYTES", len(data), MAX_MANIFEST_BYTES)
        )
        return {}
    try:
        text = data.decode()
        parts = _longest_key(text)
        if parts > MAX_MANIFEST_KEY_PARTS:
            bound = ("MAX_MANIFEST_KEY_PARTS", parts, MAX_MANIFEST_KEY_PARTS)
            report(faults, "", "a dotted key has too many parts", bound)
            return {}
        return tomllib.loads(text)
    except UnicodeDecodeError as error:
        faults.append(Fault("", f"not UTF-8 at byte {error.start}"))
    except RecursionError:
        faults.append(Fault("", "not TOML: nested too deeply"))
    except tomllib.TOMLDecodeError as error:
        faults.append(Fault("", f"not TOML: {error}"))
    except ValueError:  # only int() of thousands of digits is left to raise it
        faults.append(Fault("", "an integer has too many digits"))
    return {}


def _longest_key(text: str) -> int:
    """How many parts the longest dotted key has, at most: text outside strings and comments, between separators."""
    outside: list[str] = []
    at = 0
    while (found := _QUOTED_OR_COMMENT.search(text, at)) is not None:
        outside.append(text[at : found.start()])
        end = _REST[found.group()].match(text, found.end())
        if end is None:
            break  # an unterminated string: the parser will not get past it either
        at = end.end()
    else:
        outside.append(text[at:])
    return max(piece.count(".") for piece in _BETWEEN_KEYS.split("".join(outside))) + 1


@define
class Table:
    """One table of the file: takes its keys, one by one, by type; what was never taken is unknown."""

    values: dict[str, Any]
    path: str
    faults: list[Fault]
    taken: set[str] = field(factory=set)

    def at(self, key: str) -> str:
        """The path of ``key`` in the file; a long key is cut off, one that is not bare is quoted."""
        if len(key) > MAX_PATH_KEY_CHARS:
            key = key[:MAX_PATH_KEY_CHARS] + "..."
        shown = key if _BARE_KEY.fullmatch(key) else json.dumps(key)
        return f"{self.path}.{shown}" if self.path else shown

    def fault(self, key: str, problem: str, bound: tuple[str, int, int] | None = None) -> None:
        """Note that something is wrong at ``key``."""
        report(self.faults, self.at(key), problem, bound)

    def take(self, key: str, expected: type, *, required: bool = False) -> Any:
        """The value under ``key`` if it has exactly the ``expected`` type, else ``None`` and, where wrong, a fault."""
        self.taken.add(key)
        if key not in self.values:
            if required:
                self.fault(key, "required key is missing")
            return None
        value = self.values[key]
        if type(value) is not expected:
            self.fault(key, f"expected {_TOML_WORDS[expected]}, got {toml_word(value)}")
            return None
        return value

    def string(self, key: str, *, required: bool = False, blank: bool = False) -> str | None:
        """The string under ``key``, ``None`` where there is none; a blank one is a fault unless ``blank``."""
        value: str | None = self.take(key, str, required=required)
        if value is not None and not blank and not value.strip():
            self.fault(key, "must not be blank")
            return None
        return value

    def choice(self, key: str, allowed: Sequence[str], default: str) -> str:
        """The one of ``allowed`` under ``key``; ``default`` where there is none, or, with a fault, another string."""
        value = self.string(key, blank=True)
        if value is None:
            return default
        if value not in allowed:
            self.fault(key, f"{quoted(value)} is not one of {', '.join(allowed)}")
            return default
        return value

    def boolean(self, key: str) -> bool:
        """The boolean under ``key``; false where there is none."""
        return bool(self.take(key, bool))

    def table(self, key: str, *, required: bool = False) -> Table:
        """The table under ``key``; an empty one where there is none, with nothing reported as missing inside it."""
        return Table(self.take(key, dict, required=required) or {}, self.at(key), self.faults)

    def tables(self, key: str, limit: str, maximum: int) -> list[Table]:
        """The array of tables under ``key``; items of another type are faults and left out."""
        items: list[Any] = self.take(key, list) or []
        if len(items) > maximum:
            self.fault(key, f"more than {maximum} items", (limit, len(items), maximum))
        tables = []
        for number, item in enumerate(items):
            place = f"{self.at(key)}[{number}]"
            if type(item) is dict:
                tables.append(Table(item, place, self.faults))
            else:
                report(self.faults, place, f"expected a table, got {toml_word(item)}")
        return tables

    def strings(self, key: str, *, unique: bool = True) -> list[tuple[str, str]]:
        """``(path, item)`` of every string in the array under ``key``; a repeated item is a fault and left out."""
        items: list[Any] = self.take(key, list) or []
        first: dict[str, str] = {}
        found = []
        for number, item in enumerate(items):
            place = f"{self.at(key)}[{number}]"
            if type(item) is not str:
                report(self.faults, place, f"expected a string, got {toml_word(item)}")
            elif unique and item in first:
                report(self.faults, place, f"repeats {first[item]}")
            else:
                first[item] = place
                found.append((place, item))
        return found

    def identifiers(self, key: str) -> tuple[str, ...]:
        """The strings under ``key``; one that is no identifier of a manifest is a fault."""
        found = self.strings(key)
        for place, item in found:
            check_text(
                self.faults, place, item, IDENTIFIER, "MAX_MANIFEST_IDENTIFIER_BYTES", MAX_MANIFEST_IDENTIFIER_BYTES
            )
        return tuple(item for _, item in found)

    def choices(self, key: str, allowed: Sequence[str]) -> tuple[str, ...]:
        """The strings under ``key``; one that is not among ``allowed`` is a fault."""
        found = self.strings(key)
        for place, item in found:
            if item not in allowed:
                report(self.faults, place, f"{quoted(item)} is not one of {', '.join(allowed)}")
        return tuple(item for _, item in found)

    def end(self) -> None:
        """Refuse what was not taken."""
        for key in self.values:
            if key not in self.taken:
                self.fault(key, "unknown key")


def report(faults: list[Fault], path: str, problem: str, bound: tuple[str, int, int] | None = None) -> None:
    """Note a fault; ``bound`` is the passed limit's name, the observed value and the maximum."""
    if bound is None:
        faults.append(Fault(path, problem))
    else:
        faults.append(Fault(path, problem, "resource_exhausted", *bound))


def check_text(
    faults: list[Fault], path: str, text: str, pattern: re.Pattern[str] | None, limit: str, maximum: int
) -> None:
    """Report ``text`` where it does not match ``pattern`` from end to end, or is longer than its byte bound."""
    length = len(text.encode())
    if length > maximum:
        report(faults, path, "too long", (limit, length, maximum))
    elif pattern is not None and pattern.fullmatch(text) is None:
        report(faults, path, f"{quoted(text)} does not match {pattern.pattern}")


_TOML_WORDS: Final[dict[type, str]] = {
    str: "a string",
    int: "an integer",
    float: "a float",
    bool: "a boolean",
    list: "an array",
    dict: "a table",
}


def toml_word(value: object) -> str:
    """What a TOML author calls the type of ``value``."""
    return _TOML_WORDS.get(type(value), "a date or time")


def quoted(text: str) -> str:
    """``text`` in double quotes, escaped, shortened."""
    return json.dumps(text if len(text) <= MAX_PATH_KEY_CHARS else text[:MAX_PATH_KEY_CHARS] + "...")
