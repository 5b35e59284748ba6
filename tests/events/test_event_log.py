"""The event file: whose it is, what it refuses, and that a line is durable and whole when its write has returned."""

from __future__ import annotations

import errno
import json
import os
import shutil
import socket
import stat
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from broker.adapters import event_log
from broker.adapters.event_log import EventLog
from broker.errors import EventLogError, SetupError, UsageError
from broker.limits import MAX_EVENT_LINE_BYTES
from broker.wire.odek.events.event import Event
from broker.wire.odek.events.reader import EventReader

SCRIPT = Path(__file__).with_name("event_log_script.py")
RUN_ID = "cd" * 16


def event(number: int, size: int = 0) -> Event:
    data = {"message_count": number, "filling": "x" * size}
    return Event(type="session_saved", timestamp="2026-08-07T12:00:00.000Z", run_id=RUN_ID, data=data)


def numbers(path: Path) -> list[int]:
    """The numbers of the events in the file, every line of which is one."""
    return [json.loads(line)["data"]["message_count"] for line in path.read_bytes().splitlines()]


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "run.jsonl"


# -- the file ----------------------------------------------------------------------------------------------------------


@pytest.mark.spec("odek.sink.mode", "odek.sink.append")
def test_the_file_is_private_and_appended_to(path: Path) -> None:
    before = os.umask(0)
    try:
        with EventLog(path) as log:
            log.write(event(1))
    finally:
        os.umask(before)
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    path.chmod(0o644)
    with EventLog(os.fspath(path)) as log:
        assert stat.S_IMODE(path.stat().st_mode) == 0o600
        log.write(event(2))
    assert numbers(path) == [1, 2]
    assert [len(line) for line in path.read_bytes().splitlines(keepends=True)] == [len(event(1).line())] * 2


def refusal(path: Path | str) -> str:
    with pytest.raises(SetupError) as caught:
        EventLog(path)
    return str(caught.value)


@pytest.mark.spec("odek.sink.parent")
def test_the_directory_must_exist(tmp_path: Path) -> None:
    assert "directory" in refusal(tmp_path / "missing" / "run.jsonl")
    assert not (tmp_path / "missing").exists()
    (tmp_path / "file").touch()
    assert "directory" in refusal(tmp_path / "file" / "run.jsonl")
    for nothing in ("", f"{tmp_path}/", f"{tmp_path}/.."):
        assert "names no file" in refusal(nothing)
    assert "cannot be opened" in refusal(f"{tmp_path}/a\0b")


@pytest.mark.spec("odek.sink.symlink")
def test_a_link_is_refused_and_its_target_untouched(tmp_path: Path, path: Path) -> None:
    target = tmp_path / "target"
    target.write_text("mine")
    target.chmod(0o644)
    path.symlink_to(target)
    assert "symbolic link" in refusal(path)
    assert (target.read_text(), stat.S_IMODE(target.stat().st_mode)) == ("mine", 0o644)
    path.unlink()
    path.symlink_to(tmp_path / "nothing")
    assert "symbolic link" in refusal(path)
    assert not (tmp_path / "nothing").exists()


@pytest.mark.spec("odek.sink.symlink")
def test_a_link_swapped_in_before_the_open_is_refused(
    tmp_path: Path, path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    target = tmp_path / "target"
    target.touch()
    looked = os.stat

    def swap(*args: Any, **kwargs: Any) -> os.stat_result:
        found = looked(*args, **kwargs)
        path.unlink()
        path.symlink_to(target)
        return found

    path.touch()
    monkeypatch.setattr(event_log.os, "stat", swap)
    assert "symbolic link" in refusal(path)


@pytest.mark.spec("odek.sink.special-file")
def test_only_regular_files(tmp_path: Path, path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    os.mkfifo(path)
    assert "not a regular file" in refusal(path)
    assert "not a regular file" in refusal("/dev/null")
    assert "not a regular file" in refusal("/dev/full")
    (tmp_path / "directory").mkdir()
    assert "not a regular file" in refusal(tmp_path / "directory")
    monkeypatch.chdir(tmp_path)  # the name of a socket has to be short
    with socket.socket(socket.AF_UNIX) as server:
        server.bind("s")
        assert "not a regular file" in refusal(tmp_path / "s")


@pytest.mark.spec("odek.sink.special-file")
def test_a_pipe_swapped_in_before_the_open_is_refused_at_once(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    looked = os.stat

    def swap(*args: Any, **kwargs: Any) -> os.stat_result:
        found = looked(*args, **kwargs)
        path.unlink()
        os.mkfifo(path)
        return found

    path.touch()
    monkeypatch.setattr(event_log.os, "stat", swap)
    assert "not a regular file" in refusal(path)


# -- lines -------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("whole", [True, False])
@pytest.mark.spec("odek.sink.torn-tail")
def test_a_torn_event_makes_room_for_a_whole_one(path: Path, whole: bool) -> None:
    torn = event(2).line()[:-1] if whole else event(2).line()[:-7]
    path.write_bytes(event(1).line() + torn)
    with EventLog(path) as log:
        log.write(event(3))
        assert log.statistics().healed == 1
    assert numbers(path) == ([1, 2, 3] if whole else [1, 3])


@pytest.mark.parametrize(
    "torn", [b"somebody's notes", b'{"schema":"other', b"x" * 200_000, b'{"schema":"odek.event/v1","t']
)
@pytest.mark.spec("odek.sink.torn-tail")
def test_what_somebody_else_left_stays_on_a_line_of_its_own(path: Path, torn: bytes) -> None:
    path.write_bytes(torn)
    with EventLog(path) as log:
        log.write(event(3))
    ours = torn.startswith(b'{"schema":"odek')
    assert path.read_bytes() == (b"" if ours else torn + b"\n") + event(3).line()


@pytest.mark.spec("odek.sink.torn-tail")
def test_another_process_that_died_in_the_middle_is_cleaned_up_after(path: Path) -> None:
    with EventLog(path) as log:
        log.write(event(1))
        with path.open("ab") as other:
            other.write(event(2).line() + event(3).line()[:40])
        log.write(event(4))
        assert log.statistics().healed == 1
    assert numbers(path) == [1, 2, 4]


@pytest.mark.spec("odek.sink.append")
def test_two_logs_on_one_file(path: Path) -> None:
    with EventLog(path) as first, EventLog(path) as second:
        for number in range(0, 20, 2):
            first.write(event(number))
            second.write(event(number + 1))
    assert numbers(path) == list(range(20))


def test_only_whole_single_lines_are_taken(path: Path) -> None:
    with EventLog(path) as log:
        for wrong in (b"", b"x", b"a\nb\n", b"x" * MAX_EVENT_LINE_BYTES + b"\n"):
            with pytest.raises(UsageError):
                log.write_line(wrong)
    assert path.read_bytes() == b""


# -- durability --------------------------------------------------------------------------------------------------------


class Syncs:
    """Takes the place of fsync: remembers what was in the file, and fails or waits as told."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, path: Path) -> None:
        self.sizes: list[int] = []
        self.fail: list[OSError | None] = []
        self.entered = threading.Event()
        self.wait_for: threading.Event | None = None
        self._path = path
        self._fsync = os.fsync
        monkeypatch.setattr(event_log.os, "fsync", self)

    def __call__(self, descriptor: int) -> None:
        if stat.S_ISREG(os.fstat(descriptor).st_mode):
            self.sizes.append(self._path.stat().st_size)
            self.entered.set()
            if self.wait_for is not None:
                assert self.wait_for.wait(50)
            if self.fail and (failure := self.fail.pop(0)) is not None:
                raise failure
        self._fsync(descriptor)


@pytest.fixture
def syncs(monkeypatch: pytest.MonkeyPatch, path: Path) -> Syncs:
    return Syncs(monkeypatch, path)


def start(work: Callable[[], object]) -> threading.Thread:
    thread = threading.Thread(target=work)
    thread.start()
    return thread


@pytest.mark.spec("odek.sink.durable")
def test_every_event_is_synced_when_its_write_returns(path: Path, syncs: Syncs) -> None:
    with EventLog(path) as log:
        for number in (1, 2, 3):
            log.write(event(number))
            assert syncs.sizes == [len(event(1).line()) * n for n in range(1, number + 1)]
        assert log.statistics().durable == log.statistics().written == 3
    assert len(syncs.sizes) == 3


@pytest.mark.spec("odek.sink.durable")
def test_threads_share_an_fsync_and_none_returns_before_its_own(path: Path, syncs: Syncs) -> None:
    syncs.wait_for = threading.Event()
    log = EventLog(path)
    returned: dict[int, int] = {}

    def write(number: int) -> None:
        log.write(event(number))
        returned[number] = log.statistics().durable

    first = start(lambda: write(0))
    assert syncs.entered.wait(30)
    others = [start(lambda number=number: write(number)) for number in range(1, 8)]
    size = len(event(0).line())
    while path.stat().st_size < 8 * size:
        assert not returned
    syncs.wait_for.set()
    for thread in (first, *others):
        thread.join(50)
    # One for the first, one for all that came while it lasted.
    assert syncs.sizes == [size, 8 * size]
    assert returned.pop(0) >= 1
    assert returned == dict.fromkeys(range(1, 8), 8)
    assert log.statistics().syncs == 2
    log.close()


@pytest.mark.spec("odek.sink.durable")
def test_a_failed_sync_is_reported_kept_and_repeated(path: Path, syncs: Syncs) -> None:
    syncs.fail = [None, OSError(errno.EIO, "broken"), OSError(errno.EIO, "broken")]
    with EventLog(path) as log:
        log.write(event(1))
        with pytest.raises(EventLogError) as caught:
            log.write(event(2))
        assert (caught.value.errno, caught.value.written, caught.value.path) == (errno.EIO, True, os.fspath(path))
        statistics = log.statistics()
        assert (statistics.written, statistics.durable, statistics.sync_failures) == (2, 1, 1)
        with pytest.raises(EventLogError):
            log.flush()
        # The pages may have been forgotten: what is not durable is written again, to the same place.
        with path.open("r+b") as file:
            file.seek(len(event(1).line()))
            file.write(bytes(len(event(2).line())))
        log.write(event(3))
        assert log.statistics().durable == 3
        log.flush()
    assert numbers(path) == [1, 2, 3]


@pytest.mark.spec("odek.sink.durable")
def test_all_who_wait_for_a_failing_sync_are_told(path: Path, syncs: Syncs) -> None:
    syncs.wait_for = threading.Event()
    syncs.fail = [OSError(errno.EIO, "first"), OSError(errno.ENOSPC, "second"), None]
    log = EventLog(path)
    failed: list[int] = []

    def write(number: int) -> None:
        try:
            log.write(event(number))
        except EventLogError as error:
            failed.append(error.errno or 0)

    first = start(lambda: write(0))
    assert syncs.entered.wait(30)
    others = [start(lambda number=number: write(number)) for number in (1, 2)]
    while path.stat().st_size < 3 * len(event(0).line()):
        pass
    syncs.wait_for.set()
    for thread in (first, *others):
        thread.join(50)
    # The first round was for the first line alone, the second for both of the others.
    assert sorted(failed) == [errno.EIO, errno.ENOSPC, errno.ENOSPC]
    log.flush()
    log.close()
    assert sorted(numbers(path)) == [0, 1, 2]


@pytest.mark.spec("odek.sink.after-close")
def test_after_the_close_nothing_is_taken(path: Path, syncs: Syncs) -> None:
    log = EventLog(path)
    log.write(event(1))
    log.close()
    log.close()
    for use in (lambda: log.write(event(2)), log.flush):
        with pytest.raises(UsageError):
            use()
    syncs.fail = [OSError(errno.EIO, "broken"), OSError(errno.EIO, "broken")]
    log = EventLog(path)
    with pytest.raises(EventLogError):
        log.write(event(2))
    with pytest.raises(EventLogError):
        log.close()
    log.close()


# -- hard times --------------------------------------------------------------------------------------------------------


@pytest.mark.spec("odek.sink.durable")
def test_eight_threads_and_large_events(path: Path) -> None:
    with EventLog(path) as log:
        threads = [
            start(lambda first=first: [log.write(event(number, 8192)) for number in range(first, first + 40)])
            for first in range(0, 320, 40)
        ]
        for thread in threads:
            thread.join(60)
        statistics = log.statistics()
    found = numbers(path)
    assert sorted(found) == list(range(320))
    for first in range(0, 320, 40):
        mine = [number for number in found if first <= number < first + 40]
        assert mine == sorted(mine)
    assert statistics.durable == 320
    assert statistics.syncs <= 320


def script(*arguments: object, before: tuple[str, ...] = ()) -> Any:
    env = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
    command = [*before, sys.executable, os.fspath(SCRIPT), *map(str, arguments)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=110, env=env, check=False)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


@pytest.mark.spec("odek.sink.durable", "odek.sink.torn-tail")
def test_writers_that_are_killed_lose_nothing_whose_write_returned(path: Path) -> None:
    runs = 200
    returned = script("kill", path, runs, 20_260_807)
    data = path.read_bytes()
    found: dict[int, list[int]] = {run: [] for run in range(runs)}
    *lines, torn = data.split(b"\n")
    for line in lines:
        # Every line but the last is whole: what was torn made room for the next run.
        members = json.loads(line)["data"]
        found[members["run"]].append(members["number"])
    for run, count in enumerate(returned):
        # One more may be there whose write was about to return.
        assert found[run] in ([*range(count)], [*range(count + 1)]), (run, count)
    assert sum(returned) > runs
    reader = EventReader()
    assert len(reader.feed(data)) == len(lines)
    assert reader.torn == len(torn)
    with EventLog(path) as log:
        log.write(event(1))
    assert path.read_bytes().endswith(b"\n" + event(1).line())


def check_filled(outcome: Any, codes: set[int]) -> None:
    written, failures, size, write_failures, found = outcome
    assert written > 5
    assert len(failures) == 3 and {code for code, _ in failures} <= codes
    assert not any(in_file for _, in_file in failures)
    assert write_failures == 3
    assert found == list(range(written + 1))
    assert size > 0


def test_a_file_that_may_grow_no_more(path: Path) -> None:
    outcome = script("fill", path, 20_000)
    check_filled(outcome, {errno.EFBIG})
    # Up to the last whole line, and no part of the next.
    assert 20_000 - len(event(0, 1000).line()) < outcome[2] <= 20_000


def test_a_disk_that_is_full(tmp_path: Path) -> None:
    if shutil.which("unshare") is None:
        pytest.skip("needs unshare")
    disk = tmp_path / "disk"
    disk.mkdir()
    mount = 'mount -t tmpfs -o size=64k none "$1" && head -c 16384 /dev/zero > "$1/ballast" && shift && exec "$@"'
    before = ("unshare", "-rm", "sh", "-c", mount, "sh", os.fspath(disk))
    probe = subprocess.run([*before, "true"], capture_output=True, check=False)
    if probe.returncode != 0:
        pytest.skip(f"a file system cannot be mounted here: {probe.stderr.decode()[:100]}")
    check_filled(script("fill", disk / "run.jsonl", 0, before=before), {errno.ENOSPC})
