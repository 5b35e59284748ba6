"""What is published in the benchmarks: shapes of payloads, each number of which gives another payload.

A payload is measured once. Every round gets numbers that no round had before, so no string of it was ever seen by the
bus: whatever a cache of accepted strings could save is not in the figures, unless a row says "warm".
"""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any, TypeAlias

from attrs import frozen

from bench import same_work
from broker import Field

Payload: TypeAlias = dict[str, Any]

TOPIC = "bus.sensor.reading"
TRENDS = ("rising", "falling", "level")
PLACES = ("north", "south", "east", "west")
WORDS = "the pump in hall four runs again after the valve was changed and pressure is back to what it was before "

_numbers = itertools.count(1)


@frozen(eq=False)
class Shape:
    """A topic's fields for the bus, the same fields for the hand-written work, and the payload of each number."""

    name: str
    fields: tuple[Field, ...]
    checks: dict[str, same_work.Check]
    make: Callable[[int], Payload]

    def fresh(self, count: int) -> list[Payload]:
        """``count`` payloads that were never handed out before."""
        make = self.make
        return [make(next(_numbers)) for _ in range(count)]


def _four(n: int) -> Payload:
    return {
        "station": f"station {PLACES[n % 4]} x-{n}",
        "level": (n * 7919) % 20_001 - 10_000,
        "steady": n % 3 == 0,
        "trend": TRENDS[n % 3],
    }


FOUR = Shape(
    "4 fields",
    (
        Field.string("station", max_bytes=64),
        Field.integer("level", minimum=-10_000, maximum=10_000),
        Field.boolean("steady"),
        Field.enum("trend", TRENDS),
    ),
    {
        "station": same_work.string(64),
        "level": same_work.integer(-10_000, 10_000),
        "steady": same_work.boolean,
        "trend": same_work.enum(*TRENDS),
    },
    _four,
)


def _twenty_four(n: int) -> Payload:
    payload: Payload = {}
    for index in range(6):
        number = n * 6 + index
        payload[f"station_{index}"] = f"station {PLACES[number % 4]} x-{number}"
        payload[f"level_{index}"] = (number * 7919) % 20_001 - 10_000
        payload[f"steady_{index}"] = number % 3 == 0
        payload[f"trend_{index}"] = TRENDS[number % 3]
    return payload


def _repeated() -> tuple[tuple[Field, ...], dict[str, same_work.Check]]:
    fields: list[Field] = []
    checks: dict[str, same_work.Check] = {}
    for index in range(6):
        fields += [
            Field.string(f"station_{index}", max_bytes=64),
            Field.integer(f"level_{index}", minimum=-10_000, maximum=10_000),
            Field.boolean(f"steady_{index}"),
            Field.enum(f"trend_{index}", TRENDS),
        ]
        checks |= {f"{name}_{index}": check for name, check in FOUR.checks.items()}
    return tuple(fields), checks


TWENTY_FOUR = Shape("24 fields", *_repeated(), _twenty_four)


def text(size: int) -> Shape:
    """One string of exactly ``size`` bytes (10 to 1024) of ordinary prose."""
    prose = WORDS * (size // len(WORDS) + 2)

    def make(n: int) -> Payload:
        start = n % len(WORDS)
        return {"text": f"n {n:08d}{prose[start : start + size - 10]}"}

    return Shape(f"{size} B", (Field.string("text", max_bytes=1024),), {"text": same_work.string(1024)}, make)


def _filled(unit: str, *, first: str = "", last: str = "") -> Callable[[int], str]:
    """Strings of 1024 bytes: as many units as fit, then a number that makes each of them another string."""

    def make(n: int) -> str:
        room = 1024 - 8 - len((first + last).encode())
        count, padding = divmod(room, len(unit.encode()))
        return f"{first}{unit * count}{'1' * padding}{n:08d}{last}"

    return make


# Each is meant to keep one rule of the screening busy to the end of the string. These are accepted in the end ...
HOSTILE: dict[str, Callable[[int], str]] = {
    "prefixes inside words": _filled("ask-abcdefgh "),
    "prefixes with one character too few": _filled("sk-abcdefg."),
    "many prefixes": _filled("sk- xoxb_ ghp- "),
    "tails without a prefix": _filled("_abcdefgh"),
    "dashes, none begins": _filled("-----b "),
    "bearer without white space": _filled("bearer.", first="a"),
    "a phone number that ends in a letter": _filled("1 ", first="+", last="x"),
    "white space around": _filled(" ", last="x"),
    "a home that never ends": _filled("a.b-", first="~"),
    "no ASCII": _filled("\u00e4"),
    "unprintable, no control characters": _filled("\u00ad\u200b"),
    "quotes and backslashes": _filled('"\\', first="a"),
}
# ... and these are refused at their very end.
REFUSED: dict[str, Callable[[int], str]] = {
    "an address at the end": _filled("ab ", last="@"),
    "a key at the end": _filled("ask-abcdefgh ", last=" sk-abcdefgh"),
    "bearer at the end": _filled("bearer.", last="bearer x"),
    "a control character at the end": _filled("\u00ad\u200b", last="\x01"),
    "a whole phone number": _filled("1 ", first="+", last="1"),
}


def hostile(make: Callable[[int], str]) -> Shape:
    """One field with a hostile string of 1024 bytes."""
    plain = text(1024)
    return Shape("hostile", plain.fields, plain.checks, lambda n: {"text": make(n)})
