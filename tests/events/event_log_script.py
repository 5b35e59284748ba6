"""Processes that the tests of the event log start: writers that are killed, and writers that run out of room."""

from __future__ import annotations

import json
import os
import random
import resource
import signal
import sys
import time

from broker.adapters.event_log import EventLog
from broker.errors import EventLogError
from broker.wire.odek.events.event import Event


def event(run: int, number: int, size: int) -> Event:
    data = {"run": run, "number": number, "filling": "x" * size}
    return Event(type="session_saved", timestamp="2026-08-07T12:00:00.000Z", run_id=f"{run:032x}", data=data)


def write_for_ever(path: str, run: int, acknowledge: int, seed: int) -> None:
    chosen = random.Random(seed)
    with EventLog(path) as log:
        number = 0
        while True:
            log.write(event(run, number, chosen.choice((10, 300, 8_000, 60_000))))
            os.write(acknowledge, b".")
            number += 1


def kill(path: str, runs: int, seed: int) -> None:
    """Fork one writer after the other and kill each at a random moment; print how many writes of each returned."""
    chosen = random.Random(seed)
    returned = []
    for run in range(runs):
        readable, writable = os.pipe()
        pid = os.fork()
        if pid == 0:
            os.close(readable)
            write_for_ever(path, run, writable, seed + run)
        os.close(writable)
        time.sleep(chosen.random() * 0.02)
        os.kill(pid, signal.SIGKILL)
        os.waitpid(pid, 0)
        count = 0
        while data := os.read(readable, 65_536):
            count += len(data)
        os.close(readable)
        returned.append(count)
    print(json.dumps(returned))


def fill(path: str, limit: int) -> None:
    """Write until it fails, make room, and go on; print what happened. Without a limit the disk is what fills up."""
    hard = resource.getrlimit(resource.RLIMIT_FSIZE)[1]
    if limit:
        resource.setrlimit(resource.RLIMIT_FSIZE, (limit, hard))
    log = EventLog(path)
    written = 0
    failures = []
    while len(failures) < 3:
        try:
            log.write(event(0, written, 900))
            written += 1
        except EventLogError as error:
            failures.append([error.errno, error.written])
    size = os.stat(path).st_size
    if limit:
        resource.setrlimit(resource.RLIMIT_FSIZE, (hard, hard))
    else:
        os.unlink(os.path.join(os.path.dirname(path), "ballast"))
    log.write(event(0, written, 900))
    statistics = log.statistics()
    log.close()
    with open(path, "rb") as file:
        lines = file.read().splitlines()
    numbers = [json.loads(line)["data"]["number"] for line in lines]
    print(json.dumps([written, failures, size, statistics.write_failures, numbers]))


if __name__ == "__main__":
    {"kill": kill, "fill": fill}[sys.argv[1]](sys.argv[2], *map(int, sys.argv[3:]))
