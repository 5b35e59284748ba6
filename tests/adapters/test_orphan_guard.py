"""The guard, with a host that really dies."""

from __future__ import annotations

import errno
import gc
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from broker.adapters.guard import OrphanGuard
from broker.adapters.process import Child, spawn
from broker.errors import UsageError

BOUND_SECONDS = 50.0
STUBBORN = """
trap '' TERM HUP INT
(while :; do sleep 1000; done) &
echo $$ $!
while :; do sleep 1000; done
"""

HOST = """
import os, select, signal, sys, time
from broker.adapters.guard import OrphanGuard
from broker.adapters.process import spawn
guard = OrphanGuard()
for _ in range(3):
    child = spawn(["/bin/sh", "-c", sys.argv[1]], cwd="/", env={"PATH": os.environ["PATH"]}, guard=guard)
    globals().setdefault("children", []).append(child)
    select.select([child.stdout_fd], [], [], 20)
    print(os.read(child.stdout_fd, 100).decode().strip())
print(guard.pid, flush=True)
if sys.argv[2] == "wait":
    signal.pause()
os._exit(0)
"""


def wait_until(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + BOUND_SECONDS
    while not condition():
        assert time.monotonic() < deadline, "the condition did not come true in time"
        time.sleep(0.005)


def is_running(pid: int) -> bool:
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except (FileNotFoundError, ProcessLookupError):
        return False
    return state != "Z"


def wait_for(child: Child) -> int | None:
    wait_until(lambda: child.poll() is not None)
    return child.poll()


def sleeper(guard: OrphanGuard | None = None) -> Child:
    script = "trap '' TERM HUP; while :; do sleep 1000; done"
    return spawn(["/bin/sh", "-c", script], cwd="/", env={"PATH": os.environ["PATH"]}, guard=guard)


@pytest.fixture
def guard() -> Iterator[OrphanGuard]:
    with OrphanGuard() as guard:
        yield guard


@pytest.mark.spec("octet.process.host-killed", "octet.process.grandchildren", "octet.process.nothing-left")
@pytest.mark.parametrize("ending", ["killed", "exited"])
def test_a_host_that_dies_takes_busy_children_and_grandchildren_along(ending: str) -> None:
    way = "wait" if ending == "killed" else "exit"
    with subprocess.Popen(
        [sys.executable, "-c", HOST, STUBBORN, way], stdout=subprocess.PIPE, text=True, start_new_session=True
    ) as host:
        assert host.stdout is not None
        pids = [int(pid) for _ in range(4) for pid in host.stdout.readline().split()]
        assert len(pids) == 7
        if ending == "killed":
            assert all(is_running(pid) for pid in pids)
            os.killpg(host.pid, signal.SIGKILL)
        host.wait(BOUND_SECONDS)
    wait_until(lambda: not any(is_running(pid) for pid in pids))


def test_nothing_is_started_before_the_first_group() -> None:
    guard = OrphanGuard()
    assert guard.pid is None
    assert guard.available
    guard.unregister(12345)
    guard.close()
    guard.close()
    assert guard.pid is None


def test_an_unregistered_group_is_left_alone_and_a_registered_one_is_not(guard: OrphanGuard) -> None:
    kept, gone = sleeper(guard), sleeper(guard)
    assert guard.registered == {kept.pid, gone.pid}
    guard.unregister(kept.pid)
    helper = guard.pid
    guard.close()
    assert wait_for(gone) == -signal.SIGKILL
    assert kept.poll() is None
    assert helper is not None
    assert not Path(f"/proc/{helper}").exists()
    kept.kill_group(signal.SIGKILL)
    assert wait_for(kept) == -signal.SIGKILL
    kept.close()
    gone.close()


def test_a_reaped_child_is_no_longer_registered(guard: OrphanGuard) -> None:
    child = sleeper(guard)
    child.kill_group(signal.SIGKILL)
    wait_for(child)
    assert guard.registered == frozenset()
    child.close()


def test_the_helper_has_its_own_session_and_survives_an_interrupt(guard: OrphanGuard) -> None:
    child = sleeper(guard)
    assert guard.pid is not None
    assert os.getsid(guard.pid) == guard.pid
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        os.kill(guard.pid, number)
    helper = guard.pid
    guard.register(child.pid)
    assert guard.pid == helper
    guard.close()
    assert wait_for(child) == -signal.SIGKILL
    child.close()


def test_a_dead_helper_is_replaced_and_told_everything_again(guard: OrphanGuard) -> None:
    first, second = sleeper(guard), sleeper()
    helper = guard.pid
    assert helper is not None
    os.kill(helper, signal.SIGKILL)
    wait_until(lambda: not is_running(helper))
    guard.register(second.pid)
    assert guard.pid not in (None, helper)
    assert not Path(f"/proc/{helper}").exists()
    guard.close()
    assert wait_for(first) == wait_for(second) == -signal.SIGKILL
    first.close()
    second.close()


def test_a_helper_that_stopped_reading_is_replaced(guard: OrphanGuard) -> None:
    child = sleeper(guard)
    helper = guard.pid
    assert helper is not None
    os.kill(helper, signal.SIGSTOP)
    for _ in range(20_000):
        guard.register(child.pid)
        if guard.pid != helper:
            break
    assert guard.pid != helper
    guard.close()
    assert wait_for(child) == -signal.SIGKILL
    child.close()


@pytest.mark.parametrize("name", ["scratch", " two  words\t", "back\\slash\\n", "-r *", "$(touch x)`'\"", "\udcff"])
def test_a_directory_is_removed_with_the_groups_that_write_to_it(tmp_path: Path, name: str) -> None:
    swept, beside = tmp_path / name, tmp_path / "beside"
    for path in (swept / "deep", beside):
        path.mkdir(parents=True)
        (path / "file").touch()
    (swept / "link").symlink_to(beside)
    guard = OrphanGuard()
    guard.sweep(str(tmp_path / "replaced"))
    guard.sweep(str(swept))
    child = sleeper(guard)
    helper = guard.pid
    assert helper is not None
    os.kill(helper, signal.SIGKILL)
    wait_until(lambda: not is_running(helper))
    guard.register(child.pid)  # starts another, which is told of the directory too
    guard.close()
    assert wait_for(child) == -signal.SIGKILL
    assert sorted(tmp_path.rglob("*")) == [beside, beside / "file"]
    child.close()


@pytest.mark.parametrize("last", [None, "{}/line\nfeed", "relative"])
def test_only_the_directory_that_was_named_last_is_removed(tmp_path: Path, last: str | None) -> None:
    guard = OrphanGuard()
    child = sleeper(guard)
    (tmp_path / "line\nfeed").mkdir()
    guard.sweep(str(tmp_path))
    guard.sweep(last and last.format(tmp_path))
    guard.close()
    assert wait_for(child) == -signal.SIGKILL
    assert (tmp_path / "line\nfeed").exists()
    guard.sweep(str(tmp_path))
    child.close()


def test_without_a_shell_nothing_is_raised() -> None:
    guard = OrphanGuard(shell="/nowhere/sh")
    child = sleeper(guard)
    assert not guard.available
    assert guard.pid is None
    child.kill_group(signal.SIGKILL)
    assert wait_for(child) == -signal.SIGKILL
    guard.close()
    child.close()


def test_without_a_descriptor_to_spare_nothing_is_raised(guard: OrphanGuard, monkeypatch: pytest.MonkeyPatch) -> None:
    def no_pipe() -> tuple[int, int]:
        raise OSError(errno.EMFILE, "Too many open files")

    child, other = sleeper(guard), sleeper(guard)
    os.kill(guard.pid or 0, signal.SIGKILL)
    with monkeypatch.context() as patch:
        patch.setattr(os, "pipe", no_pipe)
        child.kill_group(signal.SIGKILL)
        assert wait_for(child) == -signal.SIGKILL
        assert not guard.available
    guard.register(other.pid)
    assert guard.available
    guard.close()
    assert wait_for(other) == -signal.SIGKILL
    child.close()
    other.close()


@pytest.mark.parametrize("pgid", [1, 0, -5])
def test_an_id_that_would_hit_others_is_refused(guard: OrphanGuard, pgid: int) -> None:
    with pytest.raises(UsageError):
        guard.register(pgid)


def test_a_closed_guard_takes_no_group() -> None:
    guard = OrphanGuard()
    guard.close()
    with pytest.raises(UsageError):
        guard.register(12345)


def test_many_threads_and_no_descriptor_left() -> None:
    gc.collect()  # what earlier tests left would be closed some time in this one
    before = sorted(os.listdir("/proc/self/fd"))
    guard = OrphanGuard()
    children = [sleeper() for _ in range(4)]

    def work(child: Child) -> None:
        for _ in range(50):
            guard.register(child.pid)
            guard.unregister(child.pid)
        guard.register(child.pid)

    threads = [threading.Thread(target=work, args=(child,)) for child in children]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(BOUND_SECONDS)
    assert guard.registered == {child.pid for child in children}
    guard.close()
    for child in children:
        assert wait_for(child) == -signal.SIGKILL
        child.close()
    assert sorted(os.listdir("/proc/self/fd")) == before


def test_a_forgotten_guard_leaves_neither_helper_nor_descriptor() -> None:
    gc.collect()  # what earlier tests left would be closed some time in this one
    before = sorted(os.listdir("/proc/self/fd"))
    guard = OrphanGuard()
    child = sleeper()
    guard.register(child.pid)
    guard.unregister(child.pid)
    helper = guard.pid
    del guard
    assert not Path(f"/proc/{helper}").exists()
    child.kill_group(signal.SIGKILL)
    wait_for(child)
    child.close()
    assert sorted(os.listdir("/proc/self/fd")) == before


def test_a_forked_process_cannot_keep_the_helper_waiting(guard: OrphanGuard) -> None:
    child = sleeper(guard)
    reader, writer = os.pipe()
    pid = os.fork()
    if pid == 0:
        os.close(writer)
        os.read(reader, 1)
        os._exit(0)
    os.close(reader)
    guard.close()
    assert wait_for(child) == -signal.SIGKILL
    os.close(writer)
    os.waitpid(pid, 0)
    child.close()
