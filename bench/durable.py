"""Durable events per second: the event log beside a plain write and fsync for each event, in the same run.

``python -m bench.durable [--directory DIR] [--rounds N]`` prints a table. What it shows depends on the disk under the
directory more than on anything else, so only figures of one run can be compared.
"""

from __future__ import annotations

import argparse
import os
import statistics
import tempfile
import threading
import time
from collections.abc import Callable
from pathlib import Path

from attrs import frozen

from broker.adapters.event_log import EventLog

SIZES = (512, 8_192)
THREADS = (1, 8)
EVENTS = 400


@frozen
class Writer:
    """How one contestant writes a line, how it closes, and how many times it called fsync (None: for each line)."""

    write: Callable[[bytes], object]
    close: Callable[[], object]
    syncs: Callable[[], int | None]


def event_log(path: Path) -> Writer:
    """This project's log."""
    log = EventLog(path)
    return Writer(log.write_line, log.close, lambda: log.statistics().syncs)


def plain(path: Path) -> Writer:
    """One write and one fsync for each line, under a lock where there are several threads."""
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    lock = threading.Lock()

    def write(line: bytes) -> None:
        with lock:
            os.write(descriptor, line)
            os.fsync(descriptor)

    return Writer(write, lambda: os.close(descriptor), lambda: None)


CONTESTANTS: dict[str, Callable[[Path], Writer]] = {"event log": event_log, "write + fsync": plain}


def run(make: Callable[[Path], Writer], directory: Path, size: int, threads: int) -> tuple[float, int | None]:
    """Events per second of one run, and the number of its fsyncs."""
    line = b"x" * (size - 1) + b"\n"
    path = directory / "events.jsonl"
    path.unlink(missing_ok=True)
    writer = make(path)

    def work() -> None:
        for _ in range(EVENTS // threads):
            writer.write(line)

    workers = [threading.Thread(target=work) for _ in range(threads)]
    start = time.perf_counter()
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    seconds = time.perf_counter() - start
    syncs = writer.syncs()
    writer.close()
    assert path.stat().st_size == size * EVENTS
    return EVENTS / seconds, syncs


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--directory", type=Path, help="where to write (default: a temporary directory)")
    parser.add_argument("--rounds", type=int, default=5)
    given = parser.parse_args()
    with tempfile.TemporaryDirectory(dir=given.directory) as directory:
        print(f"{'':<16}{'bytes':>8}{'threads':>9}{'events/s':>12}{'fsyncs':>9}")
        for size in SIZES:
            for threads in THREADS:
                rounds: dict[str, list[tuple[float, int | None]]] = {name: [] for name in CONTESTANTS}
                # In turn, so that a slow moment of the disk hits both.
                for _ in range(given.rounds):
                    for name, make in CONTESTANTS.items():
                        rounds[name].append(run(make, Path(directory), size, threads))
                for name, results in rounds.items():
                    rate = statistics.median(rate for rate, _ in results)
                    syncs = statistics.median(EVENTS if count is None else count for _, count in results)
                    print(f"{name:<16}{size:>8}{threads:>9}{rate:>12,.0f}{syncs:>9,.0f}")


if __name__ == "__main__":
    main()
