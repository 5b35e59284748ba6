"""The plots of the report. The same figures give the same bytes, so that a change of a plot is a change of a figure."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import matplotlib as mpl
from matplotlib import pyplot
from matplotlib.ticker import FixedLocator, FuncFormatter, LogLocator, NullFormatter, NullLocator

from bench import events, measurements, operations
from bench.results import Key, Results

pyplot.switch_backend("svg")
mpl.rcParams.update(
    {
        "svg.hashsalt": "broker",
        "svg.fonttype": "path",
        "font.size": 10,
        "axes.grid": True,
        "grid.color": "#dddddd",
        "axes.axisbelow": True,
        "axes.spines.top": False,
        "axes.spines.right": False,
        "figure.facecolor": "white",
    }
)

# Okabe and Ito's colours, which most people can tell apart; the bus is always the first.
COLOURS = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9", "#000000")
MARKERS = "osD^vPX"


def draw_all(results: Results, directory: Path) -> list[Path]:
    """Write every plot as SVG; gives the files."""
    directory.mkdir(parents=True, exist_ok=True)
    drawn = {
        "subscribers.svg": _by_subscribers(results),
        "payload.svg": _by_size(results),
        "bursts.svg": _by_burst(results),
        "sessions.svg": _by_sessions(results),
    }
    for name, figure in drawn.items():
        figure.savefig(directory / name, metadata={"Date": None, "Creator": None})
        pyplot.close(figure)
    return [directory / name for name in drawn]


def _by_subscribers(results: Results) -> Any:
    counts = sorted((*measurements.SUBSCRIBERS, *measurements.MORE_SUBSCRIBERS))
    figure, axes = _figure("Cost of a publication and its handling", "subscribers", "microseconds")
    for style, name in enumerate(measurements.PLOTTED):
        _line(axes, results, style, name, counts, [("publish", str(n), name, "seconds") for n in counts], 1e6)
    return _finish(figure, axes, counts)


def _by_size(results: Results) -> Any:
    sizes = operations.TEXT_SIZES
    figure, axes = _figure("Cost to 8 subscribers by the size of a string", "bytes of the string", "microseconds")
    for style, name in enumerate(measurements.SIZED):
        _line(axes, results, style, name, sizes, [(f"{size} B", "8", name, "seconds") for size in sizes], 1e6)
    return _finish(figure, axes, sizes)


def _by_burst(results: Results) -> Any:
    figure, axes = _figure("Events to child processes", "events published at once", "events a second")
    style = 0
    for children in events.CHILDREN:
        for name in (events.OURS, events.RAW_JSON, events.RAW):
            keys: list[Key] = [("events", str(children), str(burst), name, "seconds") for burst in events.BURSTS]
            label = f"{name}, {children} {'child' if children == 1 else 'children'}"
            dashes = "-" if children == 1 else "--"
            rates = [1 / results[key].median for key in keys]
            axes.plot(events.BURSTS, rates, dashes, color=COLOURS[style % 3], marker=MARKERS[style % 3], label=label)
            style += 1
    return _finish(figure, axes, events.BURSTS)


def _by_sessions(results: Results) -> Any:
    counts = sorted(int(key[1]) for key in results if key[0] == "idle" and key[-1] == "bytes")
    figure, axes = _figure("Memory of idle sessions", "sessions", "megabytes")
    total = [results["idle", str(count), "bytes"].median * count / 1e6 for count in counts]
    axes.plot(counts, total, color=COLOURS[0], marker=MARKERS[0], label="4 peers, 2 subscriptions each")
    goal = [1_300 * count / 1e6 for count in counts]
    axes.plot(counts, goal, ":", color=COLOURS[-1], label="goal, 1.3 KB a session")
    return _finish(figure, axes, counts)


def _figure(title: str, across: str, up: str) -> tuple[Any, Any]:
    figure, axes = pyplot.subplots(figsize=(7.6, 4.4), layout="constrained")
    axes.set(title=title, xlabel=across, ylabel=up, xscale="log", yscale="log")
    return figure, axes


def _line(
    axes: Any, results: Results, style: int, label: str, across: Sequence[int], keys: Sequence[Key], factor: float
) -> None:
    middle = [results[key].median * factor for key in keys]
    low, high = ([getattr(results[key], end) * factor for key in keys] for end in ("low", "high"))
    colour = COLOURS[style % len(COLOURS)]
    # The bus lies above the others where lines meet.
    axes.plot(
        across,
        middle,
        color=colour,
        marker=MARKERS[style % len(MARKERS)],
        markersize=5,
        label=label,
        zorder=5 - style / 8,
    )
    axes.fill_between(across, low, high, color=colour, alpha=0.15, linewidth=0)


def _finish(figure: Any, axes: Any, ticks: Sequence[int]) -> Any:
    axes.xaxis.set_major_locator(FixedLocator(list(ticks)))
    axes.xaxis.set_minor_locator(NullLocator())
    plain = FuncFormatter(lambda value, _: f"{value:,.0f}" if value >= 1 else f"{value:g}")
    axes.xaxis.set_major_formatter(plain)
    axes.yaxis.set_major_formatter(plain)
    low, high = axes.get_ylim()
    # A label at every decade says too little where there are few of them.
    axes.yaxis.set_major_locator(LogLocator(subs=(1, 2, 5) if high / low < 1_000 else (1,), numticks=20))
    axes.yaxis.set_minor_formatter(NullFormatter())
    # Beside the plot, where it covers nothing.
    figure.legend(loc="outside right upper", frameon=False)
    return figure
