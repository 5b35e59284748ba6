"""What is told of a tool's arguments: a program, a path, a host, and never a piece of a value."""

from __future__ import annotations

import json
import time
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from broker.wire.odek.events.risk import RISK_CLASSES, command_class, path_class
from broker.wire.odek.events.summary import args_summary, argv0, host_of
from broker.wire.odek.events.words import split_commands


@pytest.mark.parametrize(
    ("command", "program"),
    [
        ("rm -rf /tmp/x", "rm"),
        ("FOO=bar BAZ=qux curl http://x", "curl"),
        ('"/bin/rm" -rf /', "rm"),
        ("   \t ", ""),
        ("", ""),
        ("A='x y' cmd", "cmd"),
        ('A="x \\" y" B=z cmd', "cmd"),
        ("A=x\\ y cmd", "cmd"),
        ("A=$(echo x y) cmd", "cmd"),
        ('A="$(echo "a b")" cmd', "cmd"),
        ("A=`echo x y` cmd", "cmd"),
        ("A=${B:-x y} cmd", "cmd"),
        ("A=(x y 'z w') cmd", "cmd"),
        ("A[1]=x B+=y cmd", "cmd"),
        ("'A'=secret cmd", "cmd"),
        ("A=only", ""),
        ("A=only; ls", "ls"),
        (">out cmd", "cmd"),
        ("2>&1 cmd", "cmd"),
        ("# comment\nls", "ls"),
        ("(cd /x && make)", "cd"),
        ("$(which python) x", ""),
        ("`secret words` x", ""),
        ("c'm'd\"x\"", "cmdx"),
        ("'unfinished quote", "unfinished quote"),
        ("\\\nls", "ls"),
        ("zwölf", "zwölf"),
        ("/", ""),
    ],
)
@pytest.mark.spec("odek.event.args-summary-shell")
def test_the_program_of_a_command(command: str, program: str) -> None:
    assert argv0(command) == program


def test_a_program_is_cut_at_a_whole_character() -> None:
    assert argv0("a" + "é" * 300) == "a" + "é" * 255
    assert len(argv0("a" + "é" * 300).encode()) == 511


@pytest.mark.parametrize(
    ("command", "risk"),
    [
        ("ls -l", "safe"),
        ("ls | grep x && cat y", "safe"),
        ("echo x > out.txt", "local_write"),
        ("echo x > /etc/passwd", "system_write"),
        ("echo x 2>/dev/null", "safe"),
        ("cp a /usr/bin/b", "system_write"),
        ("mkdir build", "local_write"),
        ("curl http://x | sh", "code_execution"),
        ("pip install x", "install"),
        ("sudo -u me rm -rf /", "destructive"),
        ("env A=1 python x.py", "code_execution"),
        ("timeout 5 rm x", "destructive"),
        ("ls; rm x", "destructive"),
        ("frobnicate", "unknown"),
        ("echo $(rm x)", "unknown"),
        ("ls " + "x" * 20_000, "unknown"),
        ("", "unknown"),
    ],
)
def test_the_class_of_a_command(command: str, risk: str) -> None:
    assert command_class(command) == risk
    assert risk in RISK_CLASSES


def test_the_class_of_a_path() -> None:
    assert path_class("/etc/shadow", writes=False) == "safe"
    assert path_class("src/x.py", writes=True) == "local_write"
    assert path_class("/etc/hosts", writes=True) == "system_write"
    assert path_class("/home/me/.ssh/config", writes=True) == "system_write"
    assert path_class("/etcetera", writes=True) == "local_write"


@pytest.mark.parametrize(
    ("tool", "arguments", "summary"),
    [
        ("shell", {"command": "A=1 ls -l"}, {"argv0": "ls", "class": "safe"}),
        ("terminal", {"cmd": "rm x"}, {"argv0": "rm", "class": "destructive"}),
        ("parallel_shell", {"commands": ["ls", "rm x"]}, {"argv0": ["ls", "rm"], "class": "destructive"}),
        ("parallel_shell", {"commands": [{"command": "ls"}]}, {"argv0": ["ls"], "class": "safe"}),
        ("parallel_shell", {"commands": ["ls"] * 20}, {"argv0": ["ls"] * 16, "class": "safe"}),
        ("write_file", {"path": "a/b", "content": "secret"}, {"path": "a/b", "class": "local_write"}),
        ("patch", {"path": "/etc/x"}, {"path": "/etc/x", "class": "system_write"}),
        ("read_file", {"path": "/etc/x"}, {"path": "/etc/x", "class": "safe"}),
        ("batch_patch", {"patches": [{"path": "a"}, {"path": "/b"}]}, {"path": ["a", "/b"], "class": "local_write"}),
        ("batch_patch", {"paths": ["a"] * 20}, {"path": ["a"] * 16, "class": "local_write"}),
        ("browser", {"url": "https://user:tok@evil.example.com:8443/p?x=1"}, {"host": "evil.example.com"}),
        ("browser", {"action": "click", "selector": "#x"}, {"action": "click"}),
        ("http_batch", {"requests": [{"url": "http://a.test/x"}, {"url": "http://b.test"}]}, {"host": "a.test"}),
        ("http_request", {"url": "http://a.test/"}, {"host": "a.test"}),
        ("web_search", {"query": "x"}, {}),
        ("delegate_tasks", {"tasks": [{}, {}]}, {"task_count": 2}),
        ("srv__shell", {"command": "ls"}, None),
        ("memory", {"path": "x"}, None),
    ],
)  # fmt: skip
@pytest.mark.spec(
    "odek.event.args-summary",
    "odek.event.args-summary-shell",
    "odek.event.args-summary-path",
    "odek.event.args-summary-host",
)
def test_the_summary_of_each_family(tool: str, arguments: Any, summary: Any) -> None:
    assert args_summary(tool, json.dumps(arguments)) == summary


@pytest.mark.parametrize("tool", ["shell", "write_file", "read_file", "browser", "delegate_tasks"])
@pytest.mark.parametrize(
    "arguments",
    ["", "not json", "[]", '"x"', "null", "{", '{"command":7,"path":[],"url":null,"tasks":1}', "[" * 9999, "\ud800",
     '{"path":"a","path":"b","command":"ls","command":"rm","url":"a.test","url":"b.test","tasks":[],"tasks":[]}'],
)  # fmt: skip
@pytest.mark.spec("odek.event.args-summary")
def test_unusable_arguments_have_an_empty_summary(tool: str, arguments: str) -> None:
    assert args_summary(tool, arguments) == {}


@pytest.mark.parametrize(
    ("url", "host"),
    [
        ("https://user:tok@evil.example.com:8443/p?x=1", "evil.example.com"),
        ("HTTP://EXAMPLE.test", "example.test"),
        ("user:tok@example.test/p", "example.test"),
        ("https://[::1]:80/", "::1"),
        ("https://a:b@c@d.test/", "d.test"),
        ("https://[bad", ""),
        ("javascript:alert(1)", "javascript"),
        ("", ""),
        ("/only/path", ""),
        ("https://white space/", ""),
    ],
)
def test_the_host_alone(url: str, host: str) -> None:
    assert host_of(url) == host


@given(st.text(alphabet="abA=' \"\\`$(){}<>|;&#\n12", max_size=40))
@settings(max_examples=300, deadline=None)
def test_any_text_can_be_split(text: str) -> None:
    for command in split_commands(text):
        assert command.words or command.written
    assert command_class(text) in RISK_CLASSES


@given(st.text(alphabet='abc xyz;|&<>()$`#"\\', min_size=1, max_size=30))
@settings(max_examples=200, deadline=None)
def test_nothing_of_a_quoted_value_is_a_word(value: str) -> None:
    assert [command.words for command in split_commands(f"SECRET='{value}' run 'it all'")] == [["run", "it all"]]


@pytest.mark.parametrize("piece", ["'", '"', "`", "$(", "(", "\\", "A=", "<", "a b ", "&", '"$(', "${"])
def test_hostile_commands_take_linear_time(piece: str) -> None:
    started = time.process_time()
    split_commands(piece * 200_000)
    assert time.process_time() - started < 10
