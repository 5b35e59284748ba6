"""The page of benchmarks in reStructuredText, from the figures."""

from __future__ import annotations

import textwrap
from collections.abc import Iterable, Mapping, Sequence

from bench import calls, events, goals, mcp_clients, measurements, operations, peers, startup
from bench.contestants import BARE, BROKER, OURS, SAME_WORK
from bench.loop_contestants import LOOP
from bench.results import Key, Results, pool
from bench.rounds import Spread

WIDTH = 118

INTRODUCTION = """\
Benchmarks
==========

.. This page is written by ``python -m bench.report``; change it there.

Two questions are asked of every figure here. *Like for like*: what would it cost to write the same work on top of
another library, which is what one would otherwise do? And the *price*: what does all of the bus's work cost beside a
library that calls functions and does nothing else? A ratio below 1 means that broker is the faster one, unless the text
above a table says otherwise.

- Contestants of a table ran in the same process and by turns, in rounds; a ratio is the median of the ratios within
  each round, with its quartiles behind it. Read the ratios: microseconds are those of one machine on one day.
- What does not wait for anything is timed in seconds of the processor, so that the other work of a machine disturbs it
  less; calls, events to processes, threads and spawns are timed by the clock on the wall.
- Payloads differ from one publication to the next, and no round repeats a string of another. Rows that say *warm*
  publish one payload again and again; no other figure has anything from a cache.
- The bus runs with everything on: fields and types checked, strings screened, the frame measured exactly, both bounds
  of every queue, the lock, the age of messages, and handlers called outside the lock.
"""


def page(runs: Sequence[Results], machine: Mapping[str, str], *, rounds: int, plots: str) -> str:
    """The whole page; ``plots`` is the directory of the plots as seen from it."""
    results = pool(runs)
    lines = [
        INTRODUCTION,
        *_machine(machine, len(runs), rounds),
        *_goals(runs),
        *_publishing(results, plots),
        *_payloads(results, plots),
        *_screening(results),
        *_bounds(results),
        *_canonical(results),
        *_calls(results),
        *_events(results, plots),
        *_starting(results),
        *_sessions(results, plots),
    ]
    return "\n".join(_wrapped(line) for line in lines)


# -- sections ----------------------------------------------------------------------------------------------------------


def _machine(machine: Mapping[str, str], runs: int, rounds: int) -> Iterable[str]:
    counted = "one run" if runs == 1 else f"{runs} runs"
    yield from _heading("The machine")
    yield f"These are the figures of {counted} of {rounds} rounds, on:\n"
    for key, value in machine.items():
        yield f"- {key}: {value}"
    yield ""


def _goals(runs: Sequence[Results]) -> Iterable[str]:
    results = pool(runs)
    yield from _heading("Goals")
    yield (
        "Each figure with what it must be and what it should be; both were set before the work began. *Measured* has "
        "the median of the runs, and from the lowest lower to the highest upper quartile of any run."
    )
    yield ""
    rows: list[Sequence[str]] = []
    for goal in goals.GOALS:
        sign, spread = ("≥" if goal.at_least else "≤"), goal.find(results)
        aim = "" if goal.aim is None else f"{sign} {goal.aim:g}{goal.unit}"
        each = ", ".join(_number(goal.find(run).median) for run in runs)
        rows.append(
            (
                goal.work,
                f"{sign} {goal.must:g}{goal.unit}",
                aim,
                f"{_spread(spread)}{goal.unit}",
                *([each] if len(runs) > 1 else []),
                goal.verdict(spread.median),
            )
        )
    yield from _table(("work", "must", "aim", "measured", *(["each run"] if len(runs) > 1 else []), ""), rows)
    worst = goals.worst_hostile(results)[0]
    yield f"The worst hostile string was: {worst}.\n"


def _publishing(results: Results, plots: str) -> Iterable[str]:
    yield from _heading("Publishing")
    yield (
        "A publication of four fields and its handling by 1, 8 and 63 subscribers; 63 is the most that a bus can "
        "have.\n"
    )
    rows: list[Sequence[str]] = []
    for name in BROKER | SAME_WORK | BARE | LOOP:
        cells = []
        for n in map(str, measurements.SUBSCRIBERS):
            cells.append(_us(results["publish", n, name, "seconds"]))
            cells.append("" if name == OURS else _spread(results["publish", n, name, "ratio"]))
        rows.append((name, *cells))
    header = [""]
    for subscribers in measurements.SUBSCRIBERS:
        header += [f"N={subscribers}, µs", f"broker / it, N={subscribers}"]
    yield from _table(header, rows)
    yield from _notes({name: f"{text} {_where_faster(results, name)}" for name, text in peers.LIBRARIES.items()})
    yield from _plot(plots, "subscribers.svg", "Cost of a publication and its handling by the number of subscribers")


def _payloads(results: Results, plots: str) -> Iterable[str]:
    yield from _heading("Payloads")
    yield "To 8 subscribers, with 24 fields (six of each kind):\n"
    rows: list[Sequence[str]] = []
    for name in BROKER | SAME_WORK | BARE:
        ratio = "" if name == OURS else _spread(results["24 fields", "8", name, "ratio"])
        rows.append((name, _us(results["24 fields", "8", name, "seconds"]), ratio))
    yield from _table(("24 fields", "µs", "broker / it"), rows)
    yield "With one string of each size:\n"
    rows = []
    for name in measurements.SIZED:
        rows.append((name, *(_us(results[f"{size} B", "8", name, "seconds"]) for size in operations.TEXT_SIZES)))
    yield from _table(("µs", *(f"{size} B" for size in operations.TEXT_SIZES)), rows)
    yield from _plot(plots, "payload.svg", "Cost of a publication by the size of its string")
    yield "Publishing alone, without the handling:\n"
    yield from _operations(results, "published", operations.PUBLISHED)


def _screening(results: Results) -> Iterable[str]:
    yield from _heading("Screening, cold and warm")
    yield (
        "To 8 subscribers. *Warm* publishes the same payload again and again, which is what a cache could make "
        "cheaper.\n"
    )
    yield from _operations(results, "delivered", operations.DELIVERED)
    yield (
        "Strings of 1024 bytes, each made to keep one rule of the screening busy, published to one subscriber. The "
        "last ones are refused at their end, so their figure has the making and raising of the error in it.\n"
    )
    plain = results["screening", operations.PLAIN_TEXT, "seconds"].median
    rows: list[Sequence[str]] = []
    for name in operations.SCREENING:
        spread = results["screening", name, "seconds"]
        kind = "refused" if name in operations.HOSTILE_REFUSED else "accepted"
        rows.append((name, kind, _us(spread), f"{spread.median / plain:.1f}"))
    yield from _table(("string", "", "µs", "of plain text"), rows)


def _bounds(results: Results) -> Iterable[str]:
    yield from _heading("Bounds, churn and threads")
    yield (
        "A message taken; a publication refused; a subscription given up and made again; a publication on a crowded "
        "bus.\n"
    )
    yield from _operations(results, "bounds", operations.BOUNDS)
    yield (
        "A publication and its taking by one thread, and by two on the same bus, in time by the clock on the wall. Two "
        "threads are safe, not faster: give a session one owner.\n"
    )
    yield from _operations(results, "threads", operations.THREADS)
    yield (
        "What watching the age costs when nothing expires: a publication to 8 and its handling while nothing else "
        "waits, and while 3200 events of other peers do; and what a publication does about it, alone.\n"
    )
    yield from _operations(results, "expiry", operations.EXPIRY)


def _canonical(results: Results) -> Iterable[str]:
    yield from _heading("Canonical JSON")
    yield (
        "broker checks that a value has a canonical form before it writes it, and that bytes are the canonical form "
        "when it reads them (depth, integers, floats, order and duplicates of keys, escapes). The others check none "
        "of that.\n"
    )
    yield from _operations(results, "encoding", operations.ENCODING)
    yield from _operations(results, "decoding", operations.DECODING)


def _calls(results: Results) -> Iterable[str]:
    yield from _heading("Tool calls")
    yield (
        f"{calls.CALLS} calls a round, one after another, each client with a child of its own that runs the same "
        "program. The waking of two processes is in every call. Here more than 1 means that broker is the faster "
        "one.\n"
    )
    rows: list[Sequence[str]] = []
    for server in mcp_clients.SERVERS:
        for client in mcp_clients.CLIENTS:
            key: Key = ("calls", server, client)
            ratio = "" if client == mcp_clients.OURS else _inverse(results[*key, "ratio"])
            rows.append((server, client, _us(results[*key, "seconds"]), ratio))
    yield from _table(("MCP server", "client", "µs a call", "it / broker"), rows)
    yield from _notes(peers.CLIENTS)
    yield "A tool of an octet extension, likewise:\n"
    rows = []
    for client in (mcp_clients.OURS, mcp_clients.RAW):
        key = ("calls", "extension", client)
        ratio = "" if client == mcp_clients.OURS else _inverse(results[*key, "ratio"])
        rows.append((client, _us(results[*key, "seconds"]), ratio))
    yield from _table(("client", "µs a call", "it / broker"), rows)


def _events(results: Results, plots: str) -> Iterable[str]:
    yield from _heading("Events to processes")
    yield (
        "Real child processes, which look for the last event of a burst and then say that they have it; the next "
        "burst begins when all have. An event counts once, however many children get it. *Of raw lines* is the share "
        "of their throughput that broker reaches; more is better.\n"
    )
    rows: list[Sequence[str]] = []
    for children in map(str, events.CHILDREN):
        for burst in map(str, events.BURSTS):
            key: Key = ("events", children, burst)
            cells = [_us(results[*key, name, "seconds"]) for name in peers.SENDERS]
            rows.append((children, burst, *cells, _inverse(results[*key, events.RAW, "ratio"])))
    names = [f"{name}, µs an event" for name in peers.SENDERS]
    yield from _table(("children", "burst", *names, "of raw lines"), rows)
    yield from _notes(peers.SENDERS)
    yield from _plot(plots, "bursts.svg", "Events a second by the size of a burst")


def _starting(results: Results) -> Iterable[str]:
    yield from _heading("Starting")
    yield "From asking for a child of the standard library to its tools being known; the child's own start is in it:\n"
    rows: list[Sequence[str]] = []
    for name in (mcp_clients.OURS, startup.EXTENSION, mcp_clients.SDK, mcp_clients.RAW):
        ratio = "" if name == mcp_clients.OURS else _spread(results["spawn", name, "ratio"])
        rows.append((name, _ms(results["spawn", name, "seconds"]), ratio))
    yield from _table(("client", "ms", "broker / it"), rows)
    yield "A whole process that does one import, in time of the processor:\n"
    rows = []
    for name in startup.IMPORTS:
        ratio = "" if name == "import broker" else _spread(results["import", name, "ratio"])
        rows.append((f"``{name}``", _ms(results["import", name, "seconds"]), ratio))
    yield from _table(("process", "ms", "``import broker`` / it"), rows)


def _sessions(results: Results, plots: str) -> Iterable[str]:
    yield from _heading("Idle sessions")
    yield (
        "Sessions of one host with four plugins attached and two subscriptions, doing nothing; and a full "
        "``gc.collect()`` with all of them alive. Up to 1000 the bytes are what Python allocated, above that what the "
        "process grew by. "
        f"The bus of such a session alone takes {results['idle bus', 'bytes'].median:,.0f} bytes.\n"
    )
    rows: list[Sequence[str]] = []
    counts = sorted(int(key[1]) for key in results if key[0] == "idle" and key[-1] == "bytes")
    for count in counts:
        key: Key = ("idle", str(count))
        rows.append(
            (
                f"{count:,}",
                f"{results[*key, 'bytes'].median:,.0f}",
                f"{results[*key, 'create', 'seconds'].median * 1e6:,.0f}",
                f"{results[*key, 'collect', 'seconds'].median * 1e3:,.1f}",
            )
        )
    yield from _table(("sessions", "bytes each", "µs to open one", "ms of gc.collect()"), rows)
    if counts[-1] < 100_000:
        yield "100,000 sessions are measured with ``--sessions 100000``, where there is memory for them.\n"
    yield from _plot(plots, "sessions.svg", "Memory of idle sessions by their number")


# -- parts -------------------------------------------------------------------------------------------------------------


def _heading(text: str) -> Iterable[str]:
    return (text, "-" * len(text), "")


def _operations(results: Results, section: str, names: Iterable[str]) -> Iterable[str]:
    return _table(("", "µs"), [(name, _us(results[section, name, "seconds"])) for name in names])


def _notes(texts: Mapping[str, str]) -> Iterable[str]:
    for name, text in texts.items():
        yield f"{name}\n   {_fill(text, '   ')}\n"


def _where_faster(results: Results, name: str) -> str:
    ratios = {n: results["publish", str(n), name, "ratio"].median for n in measurements.SUBSCRIBERS}
    where = [str(n) for n, ratio in ratios.items() if ratio > 1]
    if len(where) == len(ratios):
        return "*Here it is the faster one, to any number of subscribers.*"
    return f"*Here it is the faster one to {' and '.join(where)}.*" if where else "*Here it is never the faster one.*"


def _plot(directory: str, name: str, described: str) -> Iterable[str]:
    return (f".. image:: {directory}/{name}", f"   :alt: {described}", "   :width: 100%", "")


def _table(header: Sequence[str], rows: Iterable[Sequence[str]]) -> Iterable[str]:
    yield ".. list-table::"
    yield "   :header-rows: 1"
    yield ""
    for row in (header, *rows):
        for index, cell in enumerate(row):
            yield f"   {'*' if index == 0 else ' '} - {cell}".rstrip()
    yield ""


def _wrapped(line: str) -> str:
    """A paragraph or item that is one long line, in several; everything else as it is."""
    text = line.removesuffix("\n")
    if len(text) <= WIDTH or "\n" in text or text.startswith(" "):
        return line
    return _fill(text, "  " if text.startswith("- ") else "") + line[len(text) :]


def _fill(text: str, indent: str) -> str:
    return textwrap.fill(text, WIDTH, subsequent_indent=indent, break_long_words=False, break_on_hyphens=False)


def _number(value: float) -> str:
    for bound, digits in ((100, 0), (10, 1), (0.1, 2), (0.01, 3)):
        if value >= bound:
            return f"{value:.{digits}f}"
    return f"{value:.4f}"


def _spread(spread: Spread) -> str:
    return f"{_number(spread.median)} ({_number(spread.low)} to {_number(spread.high)})"


def _inverse(spread: Spread) -> str:
    return _spread(Spread(1 / spread.median, 1 / spread.high, 1 / spread.low))


def _us(spread: Spread) -> str:
    return _number(spread.median * 1e6)


def _ms(spread: Spread) -> str:
    return _number(spread.median * 1e3)
