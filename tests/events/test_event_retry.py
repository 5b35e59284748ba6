"""A log that cannot be written to is tried again, is heard of, and loses nothing that a later try can save."""

from __future__ import annotations

import errno
from pathlib import Path
from typing import Any

import pytest

from broker.adapters.event_retry import RetryingLog
from broker.errors import EventLogError
from broker.limits import EVENT_RETRY_BASE_MS, EVENT_RETRY_CAP_MS
from broker.wire.odek.events.event import Event

EVENT = Event(type="session_saved", timestamp="x", run_id="ab" * 16, data={})


class FailingLog:
    """Fails as told: each entry is what the next call raises, as whether the line is in the file; None succeeds."""

    def __init__(self, *failures: bool | None) -> None:
        self.failures = list(failures)
        self.calls: list[str] = []

    def write_line(self, line: bytes) -> None:
        assert line == EVENT.line()
        self._act("write")

    def flush(self) -> None:
        self._act("flush")

    def _act(self, name: str) -> None:
        self.calls.append(name)
        written = self.failures.pop(0) if self.failures else None
        if written is not None:
            raise EventLogError("no room", errno=errno.ENOSPC, written=written)


def retrying(log: Any, *, give_up_after: int = 1_000) -> tuple[RetryingLog, list[EventLogError], list[float]]:
    reported: list[EventLogError] = []
    waits: list[float] = []

    def wait(seconds: float) -> bool:
        waits.append(seconds)
        return len(waits) >= give_up_after

    return RetryingLog(log, report=reported.append, wait=wait), reported, waits


def test_what_is_not_in_the_file_is_written_again_and_what_is_there_made_durable() -> None:
    log = FailingLog(False, False, True, True, None)
    writer, reported, waits = retrying(log)
    writer(EVENT)
    assert log.calls == ["write", "write", "write", "flush", "flush"]
    assert len(reported) == 1
    assert waits == [0.1, 0.2, 0.4, 0.8]
    assert writer.retries == 4


def test_the_delay_is_bounded() -> None:
    writer, _, waits = retrying(FailingLog(*[False] * 12))
    writer(EVENT)
    assert waits[0] == EVENT_RETRY_BASE_MS / 1000
    assert waits[-1] == EVENT_RETRY_CAP_MS / 1000


@pytest.mark.parametrize("while_waiting", [True, False])
def test_after_giving_up_each_event_is_tried_once(while_waiting: bool) -> None:
    log = FailingLog(False, False, False)
    writer, reported, _ = retrying(log, give_up_after=1 if while_waiting else 1_000)
    if not while_waiting:
        writer.give_up()
    for _ in range(2):
        with pytest.raises(EventLogError):
            writer(EVENT)
        writer.give_up()
    assert log.calls == ["write", "write"]
    assert len(reported) == 2


def test_a_real_file(tmp_path: Path) -> None:
    from broker.adapters.event_log import EventLog

    with EventLog(tmp_path / "run.jsonl") as log:
        writer, reported, _ = retrying(log)
        writer(EVENT)
    assert (tmp_path / "run.jsonl").read_bytes() == EVENT.line()
    assert reported == []
