"""The child's environment, and the keys under which an approval holds."""

from __future__ import annotations

from typing import Any

import pytest

from broker.errors import ConfigError
from broker.wire.mcp.catalogue import ListedTool
from broker.wire.odek.approval import ApprovalRequest, needs_approval, server_approval, tool_approval
from broker.wire.odek.config import ServerConfig
from broker.wire.odek.environment import INHERITED, child_environment, looks_secret


def config(**members: Any) -> ServerConfig:
    return ServerConfig(**{"name": "srv", "source": "project", "command": "/bin/x", **members})


# -- environment -------------------------------------------------------------------------------------------------------


@pytest.mark.spec("odek.config.env-allowed")
def test_only_the_listed_variables_come_from_the_host() -> None:
    """Fault 27: keys, tokens and passwords of the host reach nobody; PATH and HOME do."""
    host = {name: name.lower() for name in INHERITED}
    foreign = {"OPENAI_API_KEY": "k", "GITHUB_TOKEN": "t", "DB_PASSWORD": "p", "path": "x", "Home": "x", "EDITOR": "vi"}
    made = child_environment(config(), {**foreign, **host})
    assert made.variables == host
    assert made.warnings == ()
    assert {"PATH", "HOME", "LANG", "LC_ALL", "TZ", "TERM", "TMPDIR", "SHELL"} <= set(INHERITED)
    assert len(INHERITED) == 22


@pytest.mark.spec("odek.config.env", "odek.config.env-empty-value")
def test_overrides_set_replace_and_remove() -> None:
    """Fault 30: an empty value removes the variable."""
    host = {"PATH": "/bin", "HOME": "/home/ada", "TERM": "xterm"}
    made = child_environment(config(env={"PATH": "/opt", "LOG_LEVEL": "${X}", "TERM": "", "NEVER": ""}), host)
    assert made.variables == {"PATH": "/opt", "HOME": "/home/ada", "LOG_LEVEL": "${X}"}
    assert host["TERM"] == "xterm"


SECRET = """MY_API_KEY API-KEY APIKEY Api-Key PRIVATE-KEY ACCESSKEY SECRET-KEY AUTHTOKEN DB-PASSWORD AWS-CREDS
CREDENTIALS DB_PASSWD GPG_PASSPHRASE SESSION_COOKIE HTTP_AUTHORIZATION BOT_TOKEN TOKENIZERS_PARALLELISM
A-P_I-K_E-Y""".split()
HARMLESS = "PATH HOME EDITOR NODE_ENV MCP_SERVER_NAME KEYSTONE KEEP_ME LEGIT_VAR".split()


@pytest.mark.spec("odek.config.env-secrets", "odek.config.env-secret-words")
@pytest.mark.parametrize("key", SECRET)
def test_a_key_that_looks_secret_is_stripped_with_a_warning(key: str) -> None:
    """Fault 28 and 29."""
    assert looks_secret(key)
    made = child_environment(config(env={key: "v", "LEGIT_VAR": "w"}), {})
    assert made.variables == {"LEGIT_VAR": "w"}
    assert made.warnings == (f"server srv: env '{key}' is left out, it looks like a secret",)


@pytest.mark.spec("odek.config.env-secret-words")
@pytest.mark.parametrize("key", HARMLESS)
def test_other_keys_survive(key: str) -> None:
    """Fault 28."""
    assert not looks_secret(key)
    assert child_environment(config(env={key: "v"}), {}).variables == {key: "v"}


@pytest.mark.parametrize(
    ("env", "problem"),
    [
        ({"A=B": "x"}, "the variable's name 'A=B' must not hold '='"),
        ({"": "x"}, "a variable's name must not be empty"),
        ({"A\0": "x"}, "the variable's name 'A\\x00' must not hold NUL"),
        ({"A": "x\0y"}, "the value of 'A' must not hold NUL"),
    ],
)
def test_a_key_that_another_reader_would_read_differently_is_refused(env: dict[str, str], problem: str) -> None:
    with pytest.raises(ConfigError, match=r"mcp_servers\.srv\.env") as caught:
        child_environment(config(env=env), {})
    assert [fault.problem for fault in caught.value.faults] == [problem]
    assert caught.value.extension == "srv"


# -- approval ----------------------------------------------------------------------------------------------------------


@pytest.mark.spec("odek.config.project-approval", "odek.config.operator-trust")
def test_a_project_needs_approval_and_an_operator_does_not() -> None:
    assert needs_approval(config())
    assert not needs_approval(config(source="operator"))


def server_key(project: str = "/p", **members: Any) -> str:
    return server_approval(config(**members), project=project).key


TOOL = ListedTool("echo", "shown", {"type": "object"}, "shown")


def tool_key(tool: ListedTool = TOOL, **members: Any) -> str:
    return tool_approval(config(**members), tool, project="/p").key


CHANGES: list[dict[str, Any]] = [
    {"name": "srv2"},
    {"command": "/bin/y"},
    {"args": ("a",)},
    {"args": ("a", "b")},
    {"args": ("ab",)},
    {"args": ("b", "a")},
    {"env": {"A": "1"}},
    {"env": {"A": "2"}},
    {"env": {"A": "1", "B": "1"}},
    {"timeout_seconds": 31},
    {"max_response_bytes": 31},
    {"max_result_chars": 31},
    {"artifact_roots": ("a",)},
    {"artifact_roots": ("a", "b")},
    {"name": "srv\0", "command": "bin/x"},
    {"name": "srv/", "command": "bin/x"},
]


@pytest.mark.spec("odek.config.project-approval")
def test_every_hashed_part_changes_the_key() -> None:
    """Fault 31: no NUL or shifted boundary makes two configurations alike, and a changed env value is a change."""
    keys = [server_key(), server_key("/q"), *(server_key(**change) for change in CHANGES)]
    keys += [tool_key(), *(tool_key(**change) for change in CHANGES)]
    keys += [
        tool_key(ListedTool("echo2", "shown", {"type": "object"}, "shown")),
        tool_key(ListedTool("echo", "shown", {"type": "object", "x": 1}, "shown")),
        tool_key(ListedTool("echo", "shown", {"type": "object"}, "shown\x1b[31m")),
    ]
    assert len(set(keys)) == len(keys)
    assert all(len(key) == 64 and set(key) <= set("0123456789abcdef") for key in keys)


def test_order_that_means_nothing_changes_nothing() -> None:
    assert server_key(env={"A": "1", "B": "2"}) == server_key(env={"B": "2", "A": "1"})
    assert server_key(artifact_roots=("a", "b")) == server_key(artifact_roots=("b", "a"))
    assert server_key(enabled=False, auto_approve=True, source="operator") == server_key()
    one, two = {"a": 1, "b": {"c": 1.5, "d": 2}}, {"b": {"d": 2, "c": 1.5}, "a": 1}
    assert tool_key(ListedTool("echo", "", one)) == tool_key(ListedTool("echo", "", two))


@pytest.mark.spec("odek.config.hostile-metadata")
def test_what_a_person_reads_is_one_safe_line() -> None:
    hostile = "Adds.\x1b]0;title\x07\x1b[2J\r\nApproved: yes\u202e"
    tool = ListedTool("echo", "", {}, hostile)
    asked = tool_approval(config(args=("a\x1b[0m", "b\nc"), env={"LOG\x07": "secret value"}), tool, project="/p")
    assert asked == ApprovalRequest(
        kind="tool",
        key=asked.key,
        server="srv",
        source="project",
        command="/bin/x a\\x1b[0m b\\nc",
        environment=("LOG\\x07",),
        tool="echo",
        qualified="srv__echo",
        description="Adds.  Approved: yes ",
    )
    assert "secret value" not in repr(asked)
