"""Real children: their pipes, groups, statuses, and what is left of them."""

from __future__ import annotations

import errno
import gc
import os
import select
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from broker.adapters.process import LOST_STATUS, Child, build_environment, spawn
from broker.errors import SetupError, UsageError
from broker.wire.octet.manifest import Capabilities, Entrypoint, Manifest

ENV = {"PATH": os.environ.get("PATH", os.defpath)}
BOUND_SECONDS = 50.0


def wait_until(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + BOUND_SECONDS
    while not condition():
        assert time.monotonic() < deadline, "the condition did not come true in time"
        time.sleep(0.005)


def is_running(pid: int) -> bool:
    """Whether the process exists and is not a zombie."""
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except (FileNotFoundError, ProcessLookupError):
        return False
    return state != "Z"


def read_line(descriptor: int) -> bytes:
    line = b""
    while not line.endswith(b"\n"):
        ready, _, _ = select.select([descriptor], [], [], BOUND_SECONDS)
        assert ready, "the child said nothing in time"
        chunk = os.read(descriptor, 1)
        assert chunk, f"the child closed its output after {line!r}"
        line += chunk
    return line


def wait_for(child: Child) -> int:
    wait_until(lambda: child.poll() is not None)
    status = child.poll()
    assert status is not None
    return status


Run = Callable[..., Child]


@pytest.fixture
def run(tmp_path: Path) -> Iterator[Run]:
    children: list[Child] = []

    def start(script: str, *args: str, **options: object) -> Child:
        argv = ["/bin/sh", "-c", script, "sh", *args]
        child = spawn(argv, cwd=tmp_path, env=ENV, **options)  # type: ignore[arg-type]
        children.append(child)
        return child

    yield start
    for child in children:
        child.kill_group(signal.SIGKILL)
        wait_for(child)
        child.close()


@pytest.mark.spec("octet.process.working-directory", "octet.process.environment-cleared")
def test_a_child_has_three_pipes_its_directory_and_exactly_its_environment(run: Run, tmp_path: Path) -> None:
    child = run('read -r line; echo "$line $PWD"; echo problem >&2; env >&2; exit 3')
    os.write(child.stdin_fd, b"hello\n")
    assert read_line(child.stdout_fd) == f"hello {tmp_path}\n".encode()
    assert read_line(child.stderr_fd) == b"problem\n"
    assert wait_for(child) == 3
    names = {line.split(b"=")[0] for line in os.read(child.stderr_fd, 65536).splitlines()}
    assert names <= {b"PATH", b"PWD", b"_", b"SHLVL", b"OLDPWD"}
    assert child.poll() == child.returncode == 3
    assert repr(child) == f"<Child {child.pid} '/bin/sh' ended with 3>"


@pytest.mark.spec("octet.process.arguments-verbatim")
def test_arguments_arrive_as_they_stand(run: Run) -> None:
    child = run('printf "%s|" "$@"; echo', "a b", "$HOME;*`x`", "", "-ä", "'\"\\")
    assert read_line(child.stdout_fd) == "a b|$HOME;*`x`||-ä|'\"\\|\n".encode()


def test_our_ends_are_non_blocking_and_close_on_exec_and_the_childs_are_blocking(run: Run) -> None:
    script = "import os, sys; print([os.get_blocking(n) for n in range(3)], sorted(os.listdir('/proc/self/fd'))[:-1])"
    child = spawn([sys.executable, "-c", script], cwd="/", env=ENV)
    for descriptor in (child.stdin_fd, child.stdout_fd, child.stderr_fd):
        assert not os.get_blocking(descriptor)
        assert not os.get_inheritable(descriptor)
    assert read_line(child.stdout_fd) == b"[True, True, True] ['0', '1', '2']\n"
    assert wait_for(child) == 0
    child.close()


@pytest.mark.spec("octet.process.own-group")
def test_a_child_leads_a_group_and_a_session_of_its_own(run: Run) -> None:
    child = run("read -r line")
    assert os.getpgid(child.pid) == os.getsid(child.pid) == child.pid
    assert child.poll() is None


def test_the_pidfd_becomes_readable_when_the_child_ends(run: Run) -> None:
    child = run("read -r line")
    if child.pidfd is None:
        pytest.skip("this system has no process descriptors")
    assert select.select([child.pidfd], [], [], 0)[0] == []
    child.close_stdin()
    assert select.select([child.pidfd], [], [], BOUND_SECONDS)[0] == [child.pidfd]
    assert wait_for(child) == 1


def test_closing_stdin_is_the_end_of_the_childs_input(run: Run) -> None:
    child = run("cat; exit 7")
    child.close_stdin()
    child.close_stdin()
    assert child.stdin_fd == -1
    assert wait_for(child) == 7


def test_a_signal_is_a_negative_status(run: Run) -> None:
    child = run("read -r line")
    assert child.kill_group(signal.SIGTERM)
    assert wait_for(child) == -signal.SIGTERM
    assert not child.kill_group(signal.SIGKILL)


@pytest.mark.spec("octet.shutdown.group-killed")
def test_the_group_is_killed_when_its_leader_has_left_cleanly(run: Run) -> None:
    child = run("trap '' TERM HUP; sleep 1000 >/dev/null 2>&1 & echo $!; exit 0")
    grandchild = int(read_line(child.stdout_fd))
    assert is_running(grandchild)
    assert wait_for(child) == 0
    wait_until(lambda: not is_running(grandchild))


@pytest.mark.spec("octet.shutdown.group-killed")
def test_a_group_kill_reaches_grandchildren_that_ignore_signals(run: Run) -> None:
    child = run("trap '' TERM HUP INT; sh -c 'trap \"\" TERM HUP INT; echo $$; while :; do sleep 1000; done'; wait")
    grandchild = int(read_line(child.stdout_fd))
    child.kill_group(signal.SIGKILL)
    assert wait_for(child) == -signal.SIGKILL
    wait_until(lambda: not is_running(grandchild))


def test_no_signal_is_sent_to_an_id_that_was_given_back(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    order: list[str] = []
    real_killpg, real_waitpid = os.killpg, os.waitpid
    monkeypatch.setattr(os, "killpg", lambda pid, number: (order.append("kill"), real_killpg(pid, number)))
    monkeypatch.setattr(os, "waitpid", lambda pid, options: (order.append("reap"), real_waitpid(pid, options))[1])

    class Recorder:
        def register(self, pgid: int) -> None:
            order.append("register")

        def unregister(self, pgid: int) -> None:
            order.append("unregister")

    child = run("exit 0", guard=Recorder())
    wait_for(child)
    child.kill_group(signal.SIGKILL)
    child.poll()
    assert order == ["register", "kill", "unregister", "reap"]


def test_a_status_taken_by_somebody_else_is_reported_as_lost(run: Run) -> None:
    child = run("exit 4")
    os.waitpid(child.pid, 0)
    assert wait_for(child) == LOST_STATUS


def test_polling_from_many_threads_reaps_once(run: Run) -> None:
    child = run("read -r line; exit 5")
    seen: list[int | None] = []
    threads = [
        threading.Thread(target=lambda: (wait_until(lambda: child.poll() is not None), seen.append(child.poll())))
        for _ in range(6)
    ]
    for thread in threads:
        thread.start()
    child.close_stdin()
    for thread in threads:
        thread.join(BOUND_SECONDS)
    assert seen == [5] * 6


def open_descriptors() -> list[str]:
    gc.collect()
    return sorted(os.listdir("/proc/self/fd"))


@pytest.mark.spec("octet.process.nothing-left")
def test_close_is_idempotent_and_gives_every_descriptor_back(tmp_path: Path) -> None:
    before = open_descriptors()
    for _ in range(5):
        child = spawn(["/bin/sh", "-c", "exit 0"], cwd=tmp_path, env=ENV)
        wait_for(child)
        child.close()
        child.close()
        assert (child.stdin_fd, child.stdout_fd, child.stderr_fd, child.pidfd) == (-1, -1, -1, None)
    assert open_descriptors() == before


def test_a_forgotten_child_is_killed_and_reaped_with_a_warning(tmp_path: Path) -> None:
    before = open_descriptors()
    child = spawn(["/bin/sh", "-c", "trap '' TERM; while :; do sleep 1000; done"], cwd=tmp_path, env=ENV)
    pid = child.pid
    with pytest.warns(ResourceWarning, match=f"child process {pid} was never reaped"):  # noqa: PT031 - dropping it warns
        del child
        gc.collect()
    with pytest.raises(ChildProcessError):
        os.waitpid(pid, os.WNOHANG)
    assert open_descriptors() == before


@pytest.mark.spec("octet.process.nothing-left")
def test_children_do_not_outlive_an_interpreter_that_never_closed_them(tmp_path: Path) -> None:
    script = (
        "import sys; from broker.adapters.process import spawn; "
        "child = spawn(['/bin/sh', '-c', 'trap \"\" TERM; while :; do sleep 1000; done'], cwd='/', env={}); "
        "print(child.pid, flush=True)"
    )
    ended = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=30, check=True)
    assert ended.stderr == ""
    assert not is_running(int(ended.stdout))


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
def test_a_forked_process_neither_kills_nor_reaps_its_parents_children(run: Run) -> None:
    child = run("read -r line; exit 6")
    script = "forked"
    reader, writer = os.pipe()
    pid = os.fork()
    if pid == 0:
        try:
            answer = f"{script} {child.kill_group(signal.SIGKILL)} {child.poll()} {child._group.end()}"
            os.write(writer, answer.encode())
        finally:
            os._exit(0)
    os.waitpid(pid, 0)
    assert os.read(reader, 100) == b"forked False None False"
    os.close(reader)
    os.close(writer)
    assert child.poll() is None
    child.close_stdin()
    assert wait_for(child) == 6


@pytest.mark.spec("octet.process.spawn-failure")
@pytest.mark.parametrize(
    ("program", "problem"),
    [
        ("missing", "no such file"),
        ("plain", "Permission denied"),
        ("noformat", "Exec format error"),
        ("nointerpreter", "the interpreter its first line names does not exist"),
        ("nul\0", "embedded null byte"),
    ],
)
def test_a_program_that_does_not_start_is_named_and_leaves_nothing(tmp_path: Path, program: str, problem: str) -> None:
    for name, text, mode in (
        ("plain", "#!/bin/sh\n", 0o644),
        ("noformat", "\x7fELF not really", 0o755),
        ("nointerpreter", "#!/nowhere/interpreter\n", 0o755),
    ):
        (tmp_path / name).write_text(text)
        (tmp_path / name).chmod(mode)
    before = open_descriptors()
    with pytest.raises(SetupError, match=problem) as caught:
        spawn([str(tmp_path / program)], cwd=tmp_path, env=ENV)
    assert caught.value.path == str(tmp_path / program)
    assert open_descriptors() == before


@pytest.mark.spec("octet.process.working-directory")
def test_a_working_directory_that_is_none_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    for name in ("missing", "file"):
        with pytest.raises(SetupError, match="is not a directory") as caught:
            spawn(["/bin/sh", "-c", "exit 0"], cwd=tmp_path / name, env=ENV)
        assert caught.value.path == str(tmp_path / name)


@pytest.mark.spec("octet.process.text-busy")
def test_a_program_still_being_written_is_tried_again_and_then_refused(tmp_path: Path) -> None:
    program = tmp_path / "busy"
    program.write_text("#!/bin/sh\nexit 9\n")
    program.chmod(0o755)
    pauses: list[float] = []
    descriptor = os.open(program, os.O_WRONLY)
    try:
        with pytest.raises(SetupError, match=os.strerror(errno.ETXTBSY)):
            spawn([str(program)], cwd=tmp_path, env=ENV, sleep=pauses.append)
        assert pauses == [0.01, 0.02, 0.03, 0.04]
        pauses.clear()

        def pause(seconds: float) -> None:
            pauses.append(seconds)
            if len(pauses) == 4:
                os.close(descriptor)

        child = spawn([str(program)], cwd=tmp_path, env=ENV, sleep=pause)
    except BaseException:
        os.close(descriptor)
        raise
    assert pauses == [0.01, 0.02, 0.03, 0.04]
    assert wait_for(child) == 9
    child.close()


def test_a_guard_that_refuses_leaves_no_child(tmp_path: Path) -> None:
    seen: list[int] = []

    class Refusing:
        def register(self, pgid: int) -> None:
            seen.append(pgid)
            raise UsageError("closed")

        def unregister(self, pgid: int) -> None:
            pass

    before = open_descriptors()
    with pytest.raises(UsageError):
        spawn(["/bin/sh", "-c", "while :; do sleep 1000; done"], cwd=tmp_path, env=ENV, guard=Refusing())
    assert not is_running(seen[0])
    assert open_descriptors() == before


@pytest.mark.spec(
    "octet.version.announced",
    "octet.process.environment-cleared",
    "octet.process.environment-manifest",
    "octet.process.environment-octet",
)
def test_the_environment_is_built_in_order() -> None:
    manifest = Manifest(
        name="tide",
        version="1.0.0",
        api_version="0.3",
        path="/ignored/extension.toml",
        entrypoint=Entrypoint(
            "x", env={"LANG": "C", "EXTRA": "1", "OCTET_WORKSPACE": "/forged", "DISPLAY": ":9", "XAUTHORITY": "/own"}
        ),
        capabilities=Capabilities(environment=("SSH_AUTH_SOCK", "DISPLAY", "XAUTHORITY", "WAYLAND_DISPLAY")),
    )
    host = {
        "PATH": "/bin",
        "HOME": "",
        "LANG": "de",
        "FOO_API_KEY": "hidden",
        "PYTHONPATH": "/x",
        "SSH_AUTH_SOCK": "/run/agent",
        "DISPLAY": ":0",
        "XAUTHORITY": "",
        "XDG_RUNTIME_DIR": "/run/user/1",
        "OCTET_PACKAGE_DIR": "/pkg",
        "OCTET_EXTENSION_NAME": "host",
    }
    environment = build_environment(
        manifest, host_environ=host, workspace="/w", scratch="/s/1", manifest_path="/ext/tide/extension.toml"
    )
    assert environment == {
        "PATH": "/bin",
        "HOME": "",
        "LANG": "C",
        "OCTET_PACKAGE_DIR": "/pkg",
        "EXTRA": "1",
        "SSH_AUTH_SOCK": "/run/agent",
        "DISPLAY": ":0",
        "XAUTHORITY": "/own",
        "OCTET_EXTENSION_API_VERSION": "0.3",
        "OCTET_EXTENSION_NAME": "tide",
        "OCTET_EXTENSION_DIR": "/ext/tide",
        "OCTET_EXTENSION_MANIFEST": "/ext/tide/extension.toml",
        "OCTET_WORKSPACE": "/w",
        "OCTET_EXTENSION_SCRATCH": "/s/1",
    }
