"""The ``broker`` command as a user meets it: real subprocesses, their output and their exit status."""

from __future__ import annotations

import fcntl
import json
import os
import select
import shlex
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from broker.cli.main import main

ROOT = Path(__file__).parents[2]
WORKBENCH = ROOT / "docs" / "examples" / "workbench"
BOUND_SECONDS = 50.0
PID = "start(); serve(lambda m: reply(m, str(os.getpid())))"
FAILS = "start(); serve(lambda m: reply(m, 'no \\x1b[31mluck\\u202e', is_error=True))"
COUNTER = """
start(bus=True)
binding = receive()['params']['binding_id']
fields = [{'name': 'n', 'kind': 'integer', 'required': True, 'max_bytes': 16, 'values': []}]
topic = 'bus.counter.count'
send(id=1, method='bus/declare', params={'binding_id': binding, 'topic': topic, 'fields': fields})
receive()
def call(m):
    for n in range(m['params']['arguments'].get('count', 1)):
        params = {'binding_id': binding, 'topic': topic, 'payload': {'n': n}}
        send(id=f'{m["id"]}-{n}', method='bus/publish', params=params)
    reply(m, 'published')
serve(call)
"""
Broker = Callable[..., subprocess.CompletedProcess[str]]


@pytest.fixture
def workspace(tmp_path: Path) -> Path:
    path = tmp_path / "workspace"
    path.mkdir()
    return path


def command(*arguments: object) -> list[str]:
    return [sys.executable, "-m", "broker.cli", *map(str, arguments)]


def environment(**more: str) -> dict[str, str]:
    return {**os.environ, "PYTHONPATH": str(ROOT), "NO_COLOR": "1", **more}


@pytest.fixture
def broker(workspace: Path) -> Broker:
    def run(*arguments: object, **more: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            command(*arguments),
            capture_output=True,
            text=True,
            encoding="utf-8",
            timeout=BOUND_SECONDS,
            cwd=workspace,
            env=environment(**more),
            check=False,
        )

    return run


def lines(text: str) -> list[dict[str, Any]]:
    return [json.loads(line) for line in text.splitlines()]


def kinds(text: str) -> list[str]:
    return [record["kind"] for record in lines(text)]


# -- call ------------------------------------------------------------------------------------------------------------


def test_call_prints_the_answer(broker: Broker, rogue: Any) -> None:
    done = broker("call", rogue(), "work", '{"text":"zwölf\\tlines\\nnext"}')
    assert (done.returncode, done.stdout, done.stderr) == (0, "zwölf\\tlines\nnext\n", "")


def test_call_writes_one_json_object(broker: Broker, rogue: Any) -> None:
    done = broker("call", "--json", rogue() / "extension.toml", "work", '{"text":"x"}')
    assert done.returncode == 0
    (record,) = lines(done.stdout)
    assert list(record)[:4] == ["kind", "extension", "tool", "ok"]
    assert record == {
        "kind": "call", "extension": "rogue", "tool": "work", "ok": True,
        "content": [{"type": "text", "text": "x"}], "metadata": None,
    }  # fmt: skip


def test_a_tool_failure_is_1_and_its_text_is_safe(broker: Broker, rogue: Any) -> None:
    done = broker("call", rogue(FAILS), "work", "{}")
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr == "no \\x1b[31mluck\\u202e\n"
    done = broker("call", "--json", rogue(FAILS), "work", "{}")
    assert done.returncode == 1
    assert lines(done.stdout)[0]["ok"] is False


@pytest.mark.parametrize(
    ("body", "text"),
    [
        ("print('KEY is not set', file=sys.stderr); sys.exit(3)", "exited with status 3"),
        ("start('other')", "tools"),
        ("start(); serve(lambda m: os._exit(4))", "exited with status 4"),
        ("start(); serve(lambda m: send(id=m['id'], error={'code': -32603, 'message': 'internal error'}))", "-32603"),
        ("start(); serve(lambda m: write(b'{\"x\":1.0}\\n'))", "invalid envelope"),
    ],
)
def test_an_extension_failure_is_1(broker: Broker, rogue: Any, body: str, text: str) -> None:
    done = broker("call", "--json", rogue(body), "work", "{}")
    assert done.returncode == 1
    (record,) = lines(done.stdout)
    assert (record["kind"], record["ok"]) == ("call", False)
    assert sorted(record["error"])[:2] == ["code", "detail"]
    assert text in record["error"]["detail"] or text in str(record["error"]["code"])
    assert "Traceback" not in done.stderr


def test_a_timeout_is_1(broker: Broker, rogue: Any) -> None:
    done = broker("call", "--timeout", "0.2", rogue("start()\nserve(lambda m: None)"), "work", "{}")
    assert done.returncode == 1
    assert "no answer to tool/call within 200 ms" in done.stderr


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        (["call", "PATH", "work", "{"], "not usable as JSON arguments"),
        (["call", "PATH", "work", "null"], "must not be null"),
        (["call", "PATH", "work", "1.5"], "not usable as JSON arguments"),
        (["call", "PATH", "work", '{"a":1,"a":2}'], "same key twice"),
        (["call", "PATH", "work", '"\\ud800"'], "not usable as JSON arguments"),
        (["call", "PATH", "work", "[" * 100_000], "nested too deep"),
        (["call", "PATH", "work", "9" * 5_000], "not usable as JSON arguments"),
        (["call", "--timeout", "0", "PATH", "work", "{}"], "expected seconds above 0"),
        (["call", "--timeout", "nan", "PATH", "work", "{}"], "expected seconds above 0"),
        (["call", "PATH", "work"], "expected TOOL JSON"),
        (["run"], "required"),
        (["run", "--for", "soon", "PATH"], "expected seconds above 0"),
        (["run", "--call", "rogue", "work", "{", "PATH"], "--call"),
        (["run", "--call", "rogue", "work", "[1.5]", "PATH"], "not usable as JSON arguments of rogue"),
        (["run", "--call", "other", "work", "{}", "PATH"], "--call names 'other'"),
        (["run", "--call", "\x1b[31m", "work", "{}", "PATH"], "--call names '\\x1b[31m'"),
        (["fly"], "invalid choice"),
        ([], "required"),
    ],
)
def test_wrong_usage_is_2(rogue: Any, capsys: pytest.CaptureFixture[str], arguments: list[str], text: str) -> None:
    path = str(rogue())
    try:
        status = main([path if argument == "PATH" else argument for argument in arguments])
    except SystemExit as exit_:
        status = int(str(exit_.code))
    out, err = capsys.readouterr()
    assert (status, out) == (2, ""), err
    assert text in err
    assert "\x1b" not in err


@pytest.mark.parametrize(
    "arguments", [["call", "PATH", "work", "{"], ["run", "--call", "other", "work", "{}", "PATH"], []]
)
def test_wrong_usage_is_2_for_the_shell_too(broker: Broker, rogue: Any, arguments: list[str]) -> None:
    path = str(rogue())
    done = broker(*(path if argument == "PATH" else argument for argument in arguments))
    assert (done.returncode, done.stdout) == (2, "")
    assert "Traceback" not in done.stderr


def test_an_unknown_tool_is_1(broker: Broker, rogue: Any) -> None:
    done = broker("call", rogue(), "other", "{}")
    assert done.returncode == 1
    assert "rogue has no tool 'other'" in done.stderr


def test_a_folder_of_several_is_no_extension_to_call(broker: Broker, rogue: Any) -> None:
    folder = rogue(name="one").parent
    rogue(name="two")
    done = broker("call", folder, "work", "{}")
    assert done.returncode == 2
    assert "holds 2 extensions" in done.stderr


def test_a_wrong_set_up_is_3(broker: Broker, rogue: Any, tmp_path: Path) -> None:
    call, run = ["call", "PATH", "work", "{}"], ["run", "--for", "5", "PATH"]
    missing, plain = rogue(name="missing"), rogue(name="plain")
    (missing / "main.py").unlink()
    (plain / "main.py").chmod(0o644)
    broken = rogue(name="broken")
    with (broken / "extension.toml").open("a") as manifest:
        manifest.write("[nonsense]\nx = 1\n")
    for sub, path, text in (
        (call, missing, "does not exist"),
        (run, plain, "is not executable"),
        (call, broken, "nonsense"),
        (run, broken, "nonsense"),
        (call, tmp_path / "nowhere", "does not exist"),
        (run, tmp_path / "workspace", "holds no extension.toml"),
    ):
        done = broker(*(path if argument == "PATH" else argument for argument in sub))
        assert done.returncode == 3, (path, done.stderr)
        assert text in done.stderr
        assert "Traceback" not in done.stderr
    for sub in (call, run):
        rest = [rogue() if argument == "PATH" else argument for argument in sub[1:]]
        done = broker(sub[0], "--workspace", tmp_path / "nowhere", *rest)
        assert done.returncode == 3
        assert "is not a directory" in done.stderr


# -- check -----------------------------------------------------------------------------------------------------------


@pytest.mark.spec("octet.manifest.never-executed")
def test_check_lists_sound_manifests_and_every_fault_with_its_path(broker: Broker, rogue: Any, tmp_path: Path) -> None:
    good = rogue(f"open({str(tmp_path / 'ran')!r}, 'w')", name="good")
    bad = rogue(name="bad")
    (bad / "extension.toml").write_text(
        'name = "Bad"\nversion = 1\napi_version = "0.3"\nsurprise = 1\n[entrypoint]\ncommand = ""\n'
        '[contributes]\ntools = ["a", "a"]\n'
    )
    done = broker("check", good.parent, tmp_path / "nowhere")
    assert done.returncode == 3
    assert done.stderr == ""
    about = "good 1.0.0, extension API 0.3, canonical-json-rpc"
    stands = "supported, runs, installable from a bundle once requires_octet is one exact version"
    sound = f"{good / 'extension.toml'}: ok: {about}: {stands}"
    lines = done.stdout.splitlines()
    assert sound in lines
    faults = [line for line in lines if line != sound]
    assert all(line.startswith(str(bad / "extension.toml")) for line in faults[:-1])
    for key in ("name:", "version:", "surprise:", "entrypoint.command:", "contributes.tools"):
        assert any(f"extension.toml: {key}" in line for line in faults), key
    assert faults[-1] == f"{tmp_path / 'nowhere'} does not exist"
    assert not (tmp_path / "ran").exists()
    assert broker("check", good).returncode == 0


@pytest.mark.spec("octet.manifest.directory-name")
def test_check_warns_of_a_directory_with_another_name(broker: Broker, rogue: Any) -> None:
    path = rogue(name="good")
    other = path.rename(path.with_name("other\x1b[31m"))
    done = broker("check", other)
    assert done.returncode == 0
    assert done.stdout.startswith("warning: ")
    assert "is not named after its extension 'good'" in done.stdout
    assert "\x1b" not in done.stderr + done.stdout


# -- run -------------------------------------------------------------------------------------------------------------


def test_run_writes_json_lines_in_order(broker: Broker, rogue: Any) -> None:
    rogue(COUNTER, name="counter")
    folder = rogue(name="echo").parent
    done = broker(
        "run", "--json", "--for", "2", "--call", "counter", "work", '{"count":3}', "--call", "echo", "work",
        '{"text":"zwölf"}', folder,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert done.stdout.isascii()
    records = lines(done.stdout)
    seen = [record["kind"] for record in records]
    assert sorted(seen[:3]) == ["started", "started", "topic_available"]
    assert seen[3:] == ["event", "event", "event", "call", "call", "exited", "exited"] or set(seen[3:7]) == {
        "event", "call",
    }  # fmt: skip
    started = next(record for record in records if record["kind"] == "started" and record["extension"] == "counter")
    assert list(started) == ["kind", "extension", "generation", "tools"]
    assert started["tools"] == ["work"]
    available = next(record for record in records if record["kind"] == "topic_available")
    assert available == {"kind": "topic_available", "topic": "bus.counter.count", "publisher": "counter"}
    events = [record for record in records if record["kind"] == "event"]
    assert list(events[0]) == ["kind", "topic", "publisher", "sequence", "published_at_ms", "payload"]
    assert [(event["sequence"], event["payload"]) for event in events] == [(n + 1, {"n": n}) for n in range(3)]
    calls = [record for record in records if record["kind"] == "call"]
    assert [(call["extension"], call["content"][0]["text"]) for call in calls] == [
        ("counter", "published"), ("echo", "zwölf"),
    ]  # fmt: skip
    exited = [record for record in records if record["kind"] == "exited"]
    assert [list(record) for record in exited] == [["kind", "extension", "generation", "status", "reason"]] * 2
    assert {(record["status"], record["reason"]) for record in exited} == {(0, "stopped")}


def test_run_for_a_time_takes_that_time(broker: Broker, rogue: Any) -> None:
    started = time.monotonic()
    done = broker("run", "--json", "--for", "0.5", rogue(PID))
    assert done.returncode == 0
    assert time.monotonic() - started > 0.5
    assert kinds(done.stdout) == ["started", "exited"]


def test_run_goes_on_without_one_that_does_not_start_and_says_1(broker: Broker, rogue: Any) -> None:
    rogue("sys.exit(2)", name="bad")
    done = broker("run", "--json", "--for", "0.5", rogue(PID).parent)
    assert done.returncode == 1
    assert "started" in kinds(done.stdout)
    assert "start failed: " in done.stderr
    assert all(record["status"] in (0, 2) for record in lines(done.stdout) if record["kind"] == "exited")


def test_run_ends_when_nothing_started(broker: Broker, rogue: Any) -> None:
    done = broker("run", "--json", rogue("sys.exit(2)", name="bad"))
    assert done.returncode == 1


def test_a_failed_call_of_a_run_is_1(broker: Broker, rogue: Any) -> None:
    done = broker(
        "run", "--json", "--for", "0.6", "--call", "rogue", "other", "{}", "--call", "rogue", "work", "{}", rogue()
    )
    assert done.returncode == 1
    first, second = [record for record in lines(done.stdout) if record["kind"] == "call"]
    assert (first["ok"], first["error"]["name"], second["ok"]) == (False, "invalid_params", True)


def test_plain_output_has_one_safe_line_a_record(broker: Broker, rogue: Any) -> None:
    path = rogue("os.write(2, b'\\x1b]0;title\\x07 line\\n'); " + FAILS)
    done = broker("run", "--for", "0.6", "--call", "rogue", "work", "{}", path)
    assert done.returncode == 1
    assert [line.split()[0] for line in done.stdout.splitlines()] == ["started", "call", "exited"]
    assert "no \\x1b[31mluck\\u202e" in done.stdout
    assert "\\x1b]0;title\\x07 line" in done.stderr
    assert (done.stdout + done.stderr).replace("\n", "").isprintable()


@pytest.mark.parametrize("how", [{"LC_ALL": "C"}, {"PYTHONIOENCODING": "ascii", "PYTHONUTF8": "0", "LC_ALL": "C"}])
def test_output_that_the_terminal_cannot_show_is_escaped(broker: Broker, rogue: Any, how: dict[str, str]) -> None:
    done = broker("call", rogue("start(); serve(lambda m: reply(m, 'zw\\u00f6lf'))"), "work", "{}", **how)
    assert done.returncode == 0, done.stderr
    assert done.stdout in ("zwölf\n", "zw\\xf6lf\n")
    done = broker(
        "run",
        "--for",
        "0.5",
        "--call",
        "rogue",
        "work",
        "{}",
        rogue("start(); serve(lambda m: reply(m, 'zw\\u00f6lf'))"),
        **how,
    )
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_an_interrupt_shuts_down_in_order(rogue: Any, gone: Any, workspace: Path, number: int) -> None:
    path = rogue("os.write(2, b'pid %d\\n' % os.getpid()); " + PID)
    with subprocess.Popen(
        command("run", "--json", path),
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, cwd=workspace, env=environment(),
        start_new_session=True,
    ) as process:  # fmt: skip
        assert process.stdout is not None
        assert process.stderr is not None
        seen = [json.loads(process.stdout.readline()) for _ in range(2)]
        assert "started" in [record["kind"] for record in seen]
        (pid,) = [int(record["reason"].split()[1]) for record in seen if record["kind"] == "diagnostic"]
        os.killpg(process.pid, number)
        out, err = process.communicate(timeout=BOUND_SECONDS)
    assert process.returncode == 0
    (exited,) = lines(out)
    assert (exited["kind"], exited["status"], exited["reason"]) == ("exited", 0, "stopped")
    assert "Traceback" not in err
    gone(pid)


def test_an_interrupted_call_leaves_nothing(rogue: Any, gone: Any, workspace: Path, tmp_path: Path) -> None:
    path = rogue(f"start(); serve(lambda m: open({str(tmp_path / 'pid')!r}, 'w').write(str(os.getpid())))")
    with subprocess.Popen(
        command("call", path, "work", "{}"),
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, cwd=workspace, env=environment(),
    ) as process:  # fmt: skip
        deadline = time.monotonic() + BOUND_SECONDS
        while not (tmp_path / "pid").exists() or not (tmp_path / "pid").read_text():
            assert time.monotonic() < deadline
            time.sleep(0.01)
        process.send_signal(signal.SIGINT)
        out, err = process.communicate(timeout=BOUND_SECONDS)
    assert (process.returncode, out) == (1, "")
    assert err.endswith("broker: interrupted\n")
    gone(int((tmp_path / "pid").read_text()))


@pytest.mark.skipif(not hasattr(fcntl, "F_SETPIPE_SZ"), reason="needs a pipe that is quickly full")
def test_a_second_interrupt_ends_a_run_whose_output_nobody_reads(rogue: Any, gone: Any, workspace: Path) -> None:
    note = workspace / "pid"
    body = f"open({str(note)!r}, 'w').write(str(os.getpid())); os.write(2, (b'x' * 1000 + b'\\n') * 30); echo()"
    reader, writer = os.pipe()
    fcntl.fcntl(writer, fcntl.F_SETPIPE_SZ, 4096)
    try:
        with subprocess.Popen(
            command("run", "--json", rogue(body)),
            stdout=writer, stderr=subprocess.DEVNULL, cwd=workspace, env=environment(),
        ) as process:  # fmt: skip
            deadline = time.monotonic() + BOUND_SECONDS
            while select.select([], [writer], [], 0)[1]:
                assert time.monotonic() < deadline
                time.sleep(0.01)
            # As somebody at a terminal would: again and again, until it listens.
            while process.poll() is None:
                process.send_signal(signal.SIGINT)
                if time.monotonic() > deadline:
                    process.kill()
                time.sleep(0.05)
            assert process.returncode == 1
    finally:
        os.close(reader)
        os.close(writer)
    gone(int(note.read_text()))


@pytest.mark.parametrize("arguments", [["check", "PATH"], ["run", "--json", "--for", "0.5", "PATH"]])
@pytest.mark.parametrize("closed", [">&-", "2>&-", "<&- >&- 2>&-"])
def test_closed_standard_streams_are_no_fault(
    rogue: Any, workspace: Path, tmp_path: Path, arguments: list[str], closed: str
) -> None:
    path, elsewhere = str(rogue()), tmp_path / "err"
    words = command(*(path if argument == "PATH" else argument for argument in arguments))
    redirected = closed if "2>" in closed else f"{closed} 2>{shlex.quote(str(elsewhere))}"
    done = subprocess.run(
        ["/bin/sh", "-c", f"{shlex.join(words)} {redirected}"],
        cwd=workspace, env=environment(), timeout=BOUND_SECONDS, check=False,
    )  # fmt: skip
    assert done.returncode == 0
    assert not elsewhere.exists() or elsewhere.read_text() == ""


def test_a_reader_that_leaves_ends_the_run(rogue: Any, gone: Any, workspace: Path) -> None:
    path = rogue(COUNTER, name="counter")
    with subprocess.Popen(
        command("run", "--json", "--for", "1000", "--call", "counter", "work", '{"count":20}', path),
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, cwd=workspace, env=environment(),
    ) as process:  # fmt: skip
        assert process.stdout is not None
        assert process.stderr is not None
        assert json.loads(process.stdout.readline())["kind"] == "started"
        process.stdout.close()
        err = process.stderr.read()
        process.wait(BOUND_SECONDS)
    assert process.returncode == 1
    assert err == ""


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="needs /dev/full")
@pytest.mark.parametrize(
    "arguments",
    [["run", "--json", "--for", "99", "PATH"], ["call", "PATH", "work", "{}"], ["call", "--json", "PATH", "work", "{}"],
     ["check", "PATH"]],
)  # fmt: skip
def test_a_full_disk_is_said_once(rogue: Any, workspace: Path, arguments: list[str]) -> None:
    path = str(rogue())
    with open("/dev/full", "w") as full:
        done = subprocess.run(
            command(*(path if argument == "PATH" else argument for argument in arguments)),
            stdout=full, stderr=subprocess.PIPE, text=True, cwd=workspace, env=environment(), timeout=BOUND_SECONDS,
            check=False,
        )  # fmt: skip
    assert done.returncode == 1, done.stderr
    assert done.stderr == "broker: [Errno 28] No space left on device\n"


def test_the_workbench_runs_on_a_small_tree(broker: Broker, tmp_path: Path, workspace: Path) -> None:
    examples = tmp_path / "workbench"
    shutil.copytree(WORKBENCH, examples)
    (workspace / "good.py").write_text("x = 1\n")
    (workspace / "bad.py").write_text("def (:\n")
    records: list[dict[str, Any]] = []
    with subprocess.Popen(
        command("run", "--json", "--workspace", workspace, examples),
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, cwd=workspace, env=environment(),
    ) as process:  # fmt: skip
        assert process.stdout is not None
        assert process.stderr is not None
        awaited = {"watcher", "checker"}
        for line in process.stdout:
            records.append(json.loads(line))
            if records[-1]["kind"] == "event" and awaited:
                awaited.discard(records[-1]["publisher"])
                if not awaited:
                    process.send_signal(signal.SIGINT)
        err = process.stderr.read()
    assert process.returncode == 0, err
    sequences: dict[str, list[int]] = {}
    for record in records:
        if record["kind"] == "event":
            sequences.setdefault(record["publisher"], []).append(record["sequence"])
    assert {"watcher", "checker"} <= set(sequences)
    for numbers in sequences.values():
        assert numbers == list(range(1, len(numbers) + 1))
    exited = [record for record in records if record["kind"] == "exited"]
    assert [(record["status"], record["reason"]) for record in exited] == [(0, "stopped")] * 3
    left = [
        stat.parent.name
        for stat in Path("/proc").glob("[0-9]*/cmdline")
        if str(examples) in _read(stat)
    ]  # fmt: skip
    assert left == []


def _read(path: Path) -> str:
    try:
        return path.read_bytes().decode("utf-8", "replace")
    except OSError:
        return ""
