"""One run of everything that the report shows, section by section, with its progress on stderr."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Mapping

from bench import calls, events, idle, mcp_clients, operations, startup
from bench.contestants import BARE, BROKER, OURS, SAME_WORK, Contestant
from bench.loop_contestants import LOOP
from bench.payloads import FOUR, TWENTY_FOUR, Shape, text
from bench.results import Results, add_times
from bench.rounds import Spread, Workload, measure, progress

# What is over soon and waits for other processes is noisy, and so is done more often.
MORE = 3
SUBSCRIBERS = (1, 8, 63)
MORE_SUBSCRIBERS = (2, 4, 16, 32)
PLOTTED: dict[str, Contestant] = {
    OURS: BROKER[OURS],
    **SAME_WORK,
    **{name: BARE[name] for name in ("blinker bare", "psygnal bare", "floor")},
}
SIZED: dict[str, Contestant] = {
    OURS: BROKER[OURS],
    "same work on psygnal": SAME_WORK["same work on psygnal"],
    "psygnal bare": BARE["psygnal bare"],
    "pyzmq inproc": BARE["pyzmq inproc"],
}
OPERATIONS: dict[str, Mapping[str, operations.Make]] = {
    "delivered": operations.DELIVERED,
    "published": operations.PUBLISHED,
    "bounds": operations.BOUNDS,
    "expiry": operations.EXPIRY,
    "screening": operations.SCREENING,
    "encoding": operations.ENCODING,
    "decoding": operations.DECODING,
}


def measure_everything(*, rounds: int, sessions: int) -> Results:
    """A run; ``sessions`` is the largest number of idle sessions."""
    results: Results = {}
    for subscribers in SUBSCRIBERS:
        progress(f"publishing to {subscribers}, everybody")
        _publish(results, "publish", subscribers, BROKER | SAME_WORK | BARE | LOOP, FOUR, rounds)
    for subscribers in MORE_SUBSCRIBERS:
        progress(f"publishing to {subscribers}, for the plot")
        _publish(results, "publish", subscribers, PLOTTED, FOUR, rounds)
    progress("24 fields, everybody")
    _publish(results, "24 fields", 8, BROKER | SAME_WORK | BARE, TWENTY_FOUR, rounds)
    for size in operations.TEXT_SIZES:
        progress(f"strings of {size} bytes")
        _publish(results, f"{size} B", 8, SIZED, text(size), rounds)
    for section, named in OPERATIONS.items():
        progress(section)
        add_times(results, (section,), measure({name: make() for name, make in named.items()}, rounds=rounds))
    progress("threads")
    threads = {name: make() for name, make in operations.THREADS.items()}
    # Here the waiting for each other is what is asked about.
    add_times(results, ("threads",), measure(threads, rounds=rounds, clock=time.perf_counter))
    for server, script in mcp_clients.SERVERS.items():
        progress(f"tool calls to a server of the {server}")
        quick = server == "standard library"
        times = asyncio.run(calls.compare_clients(script, rounds=rounds * MORE if quick else rounds))
        add_times(results, ("calls", server), times, ours=mcp_clients.OURS)
    progress("tool calls to an extension")
    times = asyncio.run(calls.compare_extension_calls(rounds=rounds * MORE))
    add_times(results, ("calls", "extension"), times, ours=mcp_clients.OURS)
    for children in events.CHILDREN:
        progress(f"events to {children} processes")
        for burst, times in asyncio.run(events.compare_events(children, rounds=rounds * MORE)).items():
            add_times(results, ("events", str(children), str(burst)), times, ours=events.OURS)
    progress("from spawn to ready")
    add_times(results, ("spawn",), asyncio.run(startup.compare_spawns(rounds=rounds)), ours=mcp_clients.OURS)
    progress("imports")
    add_times(results, ("import",), startup.compare_imports(rounds=rounds), ours="import broker")
    for count in session_counts(sessions):
        progress(f"{count} idle sessions")
        _idle(results, count)
    results["idle bus", "bytes"] = Spread.of([idle.in_own_process(1_000, traced=True, bus=True)["bytes"]])
    return results


def session_counts(most: int) -> list[int]:
    """The numbers of idle sessions that are measured."""
    return [count for count in (1, 1_000, 10_000, 100_000) if count <= most]


def _publish(
    results: Results, section: str, subscribers: int, contestants: Mapping[str, Contestant], shape: Shape, rounds: int
) -> None:
    workloads = {name: Workload(make(subscribers, shape), shape.fresh) for name, make in contestants.items()}
    add_times(results, (section, str(subscribers)), measure(workloads, rounds=rounds), ours=OURS)


def _idle(results: Results, count: int) -> None:
    # What was allocated is exact and slow to find out; what the process grew by is right for many.
    traced = count <= 1_000
    measured = idle.in_own_process(count)
    size = idle.in_own_process(count, traced=True)["bytes"] if traced else measured["bytes"]
    results["idle", str(count), "bytes"] = Spread.of([size])
    results["idle", str(count), "create", "seconds"] = Spread.of([measured["create"]])
    results["idle", str(count), "collect", "seconds"] = Spread.of([measured["collect"]])
