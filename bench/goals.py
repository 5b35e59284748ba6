"""What publishing, calling and idling should cost, beside what they do cost."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeAlias

from attrs import frozen

from bench import events, mcp_clients, operations
from bench.results import Results
from bench.rounds import Spread

Find: TypeAlias = Callable[[Results], Spread]


@frozen
class Goal:
    """A figure with what it must be and what it should be; ``at_least`` when more is better."""

    work: str
    find: Find
    must: float
    aim: float | None
    at_least: bool = False
    unit: str = ""

    def met(self, value: float, bound: float) -> bool:
        """Whether a figure is on the right side of a bound."""
        return value >= bound if self.at_least else value <= bound

    def verdict(self, value: float) -> str:
        """How far a figure gets."""
        if self.aim is not None and self.met(value, self.aim):
            return "aim reached"
        return "reached" if self.met(value, self.must) else "**missed**"


def _at(*key: str, factor: float = 1.0) -> Find:
    return lambda results: results[key].scaled(factor)


def _times_faster(*key: str) -> Find:
    """The other way round: theirs / ours."""

    def find(results: Results) -> Spread:
        spread = results[key]
        return Spread(1 / spread.median, 1 / spread.high, 1 / spread.low)

    return find


def worst_hostile(results: Results) -> tuple[str, Spread]:
    """The dearest string of the screening's worst, and its multiple of plain text of the same length."""
    plain = results["screening", operations.PLAIN_TEXT, "seconds"].median
    names = [*operations.HOSTILE_ACCEPTED, *operations.HOSTILE_REFUSED]
    worst = max(names, key=lambda name: results["screening", name, "seconds"].median)
    return worst, results["screening", worst, "seconds"].scaled(1 / plain)


def expiry_share(results: Results) -> Spread:
    """What a publication to one subscriber spends on expiry when nothing expires, of all that it spends."""
    whole = results["published", "publish only, N=1", "seconds"].median
    nothing = results["expiry", "nothing at all", "seconds"].median
    spent = results["expiry", "the comparisons alone", "seconds"]
    return Spread(*((value - nothing) / whole * 100 for value in (spent.median, spent.low, spent.high)))


def _publishing() -> list[Goal]:
    like_for_like = {
        8: {"blinker": (0.42, 0.33), "psygnal": (0.60, 0.48), "pyee": (0.75, 0.60)},
        63: {"blinker": (0.26, 0.18), "psygnal": (0.47, 0.33), "pyee": (0.51, 0.36)},
        1: {"blinker": (0.94, 0.75), "psygnal": (0.79, 0.63), "pyee": (1.21, 0.97)},
    }
    price = {8: {"blinker": (0.75, None), "psygnal": (1.65, 1.3)}, 63: {"blinker": (0.46, None), "psygnal": (1.8, 1.3)}}
    goals = [
        Goal(f"like for like on {peer}, N={n}", _at("publish", str(n), f"same work on {peer}", "ratio"), must, aim)
        for n, peers in like_for_like.items()
        for peer, (must, aim) in peers.items()
    ]
    return goals + [
        Goal(f"price beside {peer} bare, N={n}", _at("publish", str(n), f"{peer} bare", "ratio"), must, aim)
        for n, bare in price.items()
        for peer, (must, aim) in bare.items()
    ]


GOALS = [
    *_publishing(),
    Goal("against bubus, N=8, times faster", _times_faster("publish", "8", "bubus", "ratio"), 250, 400, at_least=True),
    Goal("expiry check when nothing expires, of a publish", expiry_share, 5, 2, unit=" %"),
    Goal("worst hostile string, of a plain text", lambda results: worst_hostile(results)[1], 10, 5),
    Goal(
        "tool calls, times the SDK's client, child of the standard library",
        _times_faster("calls", "standard library", mcp_clients.SDK, "ratio"),
        3,
        4,
        at_least=True,
    ),
    Goal(
        "tool calls, of a raw loop's, same child",
        _times_faster("calls", "standard library", mcp_clients.RAW, "ratio"),
        0.4,
        0.6,
        at_least=True,
    ),
    Goal(
        "events to 1 child, burst 32, of raw lines",
        _times_faster("events", "1", "32", events.RAW, "ratio"),
        0.08,
        0.12,
        at_least=True,
    ),
    Goal(
        "events to 8 children, burst 32, of raw lines",
        _times_faster("events", "8", "32", events.RAW, "ratio"),
        0.12,
        0.2,
        at_least=True,
    ),
    Goal(
        "bus of an idle session, 4 peers, 2 subscriptions", _at("idle bus", "bytes", factor=0.001), 1.3, 1.0, unit=" KB"
    ),
    Goal("import broker, of import mcp", _at("import", "import mcp", "ratio"), 0.12, 0.08),
]
