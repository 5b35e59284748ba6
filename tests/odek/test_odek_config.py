"""``mcp_servers``: every field, default, bound and fault, and what two files make together."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from broker.errors import ConfigError, SetupError
from broker.wire.odek.config import ServerConfig, ServerSet, merge, parse_servers


def parse(entry: Any, *, name: str = "srv", source: str = "operator") -> ServerSet:
    """The set of a file with one server."""
    data = json.dumps({"mcp_servers": {name: entry}}).encode()
    return parse_servers(data, source=source, path="odek.json")  # type: ignore[arg-type]


def one(source: str = "operator", **members: Any) -> ServerConfig:
    """The one server of a file that is right."""
    [server] = parse({"command": "/bin/x", **members}, source=source).servers
    return server


def faults_of(call: Callable[[], Any]) -> list[tuple[str, str]]:
    with pytest.raises(ConfigError) as caught:
        call()
    assert isinstance(caught.value, SetupError)
    assert (caught.value.name, caught.value.path) == ("invalid_params", "odek.json")
    return [(fault.path, fault.problem) for fault in caught.value.faults]


# -- fields ------------------------------------------------------------------------------------------------------------


@pytest.mark.spec(
    "odek.config.timeout-default", "odek.config.response-default", "odek.config.result-default", "odek.config.args"
)
def test_defaults() -> None:
    assert one() == ServerConfig(
        name="srv",
        source="operator",
        command="/bin/x",
        args=(),
        env={},
        timeout_seconds=30,
        max_response_bytes=10_485_760,
        max_result_chars=200_000,
        artifact_roots=(),
        enabled=True,
        auto_approve=False,
    )


@pytest.mark.spec("odek.config.args", "odek.config.env", "odek.config.unknown-field")
def test_every_field_and_unknown_ones() -> None:
    """Fault 25: unknown fields, nested ones too, are ignored."""
    server = one(
        args=["--serve", "", "a b"],
        env={"LOG_LEVEL": "info", "GONE": ""},
        timeout_seconds=120,
        max_response_bytes=2_097_152,
        max_result_chars=100_000,
        artifact_roots=["/var/ci", "rel"],
        enabled=False,
        auto_approve=True,
        future={"x": [{"y": 1}], "timeout_seconds": -1},
    )
    assert server.args == ("--serve", "", "a b")
    assert server.env == {"LOG_LEVEL": "info", "GONE": ""}
    assert (server.timeout_seconds, server.max_response_bytes, server.max_result_chars) == (120, 2_097_152, 100_000)
    assert server.artifact_roots == ("/var/ci", "rel")
    assert (server.enabled, server.auto_approve) == (False, True)


@pytest.mark.spec("odek.config.zero")
def test_zero_and_null_mean_the_default() -> None:
    zeros = one(timeout_seconds=0, max_response_bytes=0, max_result_chars=0)
    nulls = one(
        timeout_seconds=None, max_response_bytes=None, max_result_chars=None, args=None, env=None, artifact_roots=None,
        enabled=None, auto_approve=None,
    )  # fmt: skip
    assert zeros == nulls == one()


@pytest.mark.spec("odek.config.timeout-clamp")
def test_a_timeout_over_the_cap_is_lowered_with_a_warning() -> None:
    """Fault 20."""
    found = parse({"command": "x", "timeout_seconds": 7_200})
    assert found.servers[0].timeout_seconds == 3_600
    assert found.warnings == ("server srv: timeout_seconds 7200 is lowered to 3600",)
    assert parse({"command": "x", "timeout_seconds": 3_600}).warnings == ()


@pytest.mark.spec("odek.config.result-clamp")
def test_a_result_limit_over_the_cap_is_lowered_with_a_warning() -> None:
    """Fault 21."""
    found = parse({"command": "x", "max_result_chars": 5_000_000})
    assert found.servers[0].max_result_chars == 1_000_000
    assert found.warnings == ("server srv: max_result_chars 5000000 is lowered to 1000000",)
    assert parse({"command": "x", "max_result_chars": 1_000_000}).warnings == ()


@pytest.mark.parametrize(("name", "floor"), [("srv", 328), ("tiny-srv", 333), ("log-analyzer", 337)])
def test_a_result_limit_below_the_floor_is_raised_with_a_warning(name: str, floor: int) -> None:
    """Fault 24."""
    for value in (1, 10, floor - 1):
        found = parse({"command": "x", "max_result_chars": value}, name=name)
        assert found.servers[0].max_result_chars == floor
        assert found.warnings == (f"server {name}: max_result_chars {value} is raised to {floor}",)
    assert parse({"command": "x", "max_result_chars": floor}, name=name).warnings == ()


@pytest.mark.spec("odek.config.response-ceiling")
def test_the_ceiling_of_a_response_is_refused_not_lowered() -> None:
    """Fault 22."""
    assert one(max_response_bytes=67_108_864).max_response_bytes == 67_108_864
    with pytest.raises(ConfigError) as caught:
        one(max_response_bytes=67_108_865)
    error = caught.value
    assert (error.limit, error.observed, error.maximum) == ("MAX_RESPONSE_BYTES", 67_108_865, 67_108_864)
    assert "mcp_servers.srv.max_response_bytes: is over the ceiling of 67108864" in str(error)


@pytest.mark.spec("odek.config.negative")
@pytest.mark.parametrize("field", ["timeout_seconds", "max_response_bytes", "max_result_chars"])
@pytest.mark.parametrize("value", [-1, -(2**62)])
def test_a_negative_limit_is_refused(field: str, value: int) -> None:
    """Fault 23."""
    assert faults_of(lambda: one(**{field: value})) == [
        (f"mcp_servers.srv.{field}", f"must not be negative, as {value} is")
    ]


@pytest.mark.parametrize(
    ("members", "path", "problem"),
    [
        ({"command": 7}, "command", "must be a string, not an integer"),
        ({"command": "a\0b"}, "command", "must not hold NUL"),
        ({"args": "x"}, "args", "must be an array, not a string"),
        ({"args": ["a", "b", 3]}, "args[2]", "must be a string, not an integer"),
        ({"args": ["a\0"]}, "args[0]", "must not hold NUL"),
        ({"env": []}, "env", "must be an object, not an array"),
        ({"env": {"A": 1}}, "env.A", "must be a string, not an integer"),
        ({"env": {"A": None}}, "env.A", "must be a string, not null"),
        ({"env": {"A": "\0"}}, "env.A", "must not hold NUL"),
        ({"env": {"A=B": "x"}}, "env", "the variable's name 'A=B' must not hold '='"),
        ({"env": {"": "x"}}, "env", "a variable's name must not be empty"),
        ({"env": {"A\0": "x"}}, "env", "the variable's name 'A\\x00' must not hold NUL"),
        ({"timeout_seconds": "30"}, "timeout_seconds", "must be an integer, not a string"),
        ({"timeout_seconds": 1.0}, "timeout_seconds", "must be an integer, not a fraction"),
        ({"timeout_seconds": True}, "timeout_seconds", "must be an integer, not a boolean"),
        ({"max_response_bytes": []}, "max_response_bytes", "must be an integer, not an array"),
        ({"max_result_chars": 10**30}, "max_result_chars", "must be an integer, not a fraction"),
        ({"artifact_roots": {}}, "artifact_roots", "must be an array, not an object"),
        ({"artifact_roots": ["/a", None]}, "artifact_roots[1]", "must be a string, not null"),
        ({"enabled": 0}, "enabled", "must be a boolean, not an integer"),
        ({"auto_approve": "yes"}, "auto_approve", "must be a boolean, not a string"),
        ({"url": 5}, "url", "must be a string, not an integer"),
    ],
)
def test_a_wrong_type_names_its_key_path(members: dict[str, Any], path: str, problem: str) -> None:
    assert faults_of(lambda: one(**members)) == [(f"mcp_servers.srv.{path}", problem)]


@pytest.mark.spec("odek.config.command")
@pytest.mark.parametrize(
    ("entry", "problem"),
    [
        ({}, "is missing"),
        ({"command": None}, "is missing"),
        ({"command": ""}, "must not be empty"),
        ({"command": " "}, "must not be empty"),
    ],
)
def test_a_command_is_needed(entry: dict[str, Any], problem: str) -> None:
    assert faults_of(lambda: parse(entry)) == [("mcp_servers.srv.command", problem)]


@pytest.mark.parametrize("extra", [{}, {"command": "x"}, {"enabled": False}])
def test_a_server_over_http_is_left_out_and_the_others_stay(extra: dict[str, Any]) -> None:
    entries = {"web": {"url": "https://x.test/mcp", "token_env": "T", **extra}, "srv": {"command": "x"}}
    found = parse_servers(json.dumps({"mcp_servers": entries}).encode(), source="operator", path="f")
    assert [server.name for server in found.servers] == ["srv"]
    assert found.refused == {"web": "url: servers over HTTP are not supported"}
    assert found.warnings == ("server web is left out: url: servers over HTTP are not supported",)


@pytest.mark.spec("odek.config.roots-blank", "odek.config.roots-empty")
def test_blank_roots_are_never_a_directory() -> None:
    """Fault 58, as far as it is the configuration's."""
    found = parse({"command": "x", "artifact_roots": ["", "  ", "/real", "\t\n"]})
    assert found.servers[0].artifact_roots == ("/real",)
    assert found.warnings == ("server srv: blank artifact_roots are ignored, they never mean a directory",)


# -- names -------------------------------------------------------------------------------------------------------------


@pytest.mark.spec("odek.config.server-name")
@pytest.mark.parametrize("name", ["", "has space", "has__double", "tool?name", "x" * 65, "é", "a\n", "a.b", "\x1b[31m"])
def test_bad_server_names_are_refused(name: str) -> None:
    """Fault 26."""
    [(path, problem)] = faults_of(lambda: parse({"command": "x"}, name=name))
    assert path.startswith("mcp_servers[") and path.isprintable()
    assert problem.isprintable()


@pytest.mark.spec("odek.config.server-name")
@pytest.mark.parametrize("name", ["a", "x" * 64, "A1_-z", "_", "-"])
def test_good_server_names(name: str) -> None:
    assert parse({"command": "x"}, name=name).servers[0].name == name


# -- files -------------------------------------------------------------------------------------------------------------


def test_all_faults_are_found_at_once() -> None:
    entries = {
        "one": {"command": 1, "args": ["a", 2], "timeout_seconds": -1},
        "b d": {"env": {"X": 1}},
        "three": [],
        "four": {"command": "fine"},
    }
    data = json.dumps({"mcp_servers": entries}).encode()
    assert [path for path, _ in faults_of(lambda: parse_servers(data, source="operator", path="odek.json"))] == [
        "mcp_servers.one.command",
        "mcp_servers.one.args[1]",
        "mcp_servers.one.timeout_seconds",
        "mcp_servers['b d']",
        "mcp_servers['b d'].env.X",
        "mcp_servers['b d'].command",
        "mcp_servers.three",
    ]


@pytest.mark.parametrize(
    "data", [b"{}", b'{"mcp_servers":null}', b'{"mcp_servers":{}}', b'\xef\xbb\xbf{"other":[1.5]}']
)
def test_no_servers_are_fine(data: bytes) -> None:
    assert parse_servers(data, source="operator", path="f") == ServerSet()


@pytest.mark.parametrize(
    ("data", "path", "problem"),
    [
        (b"", "", "not JSON"),
        (b"\xff", "", "not JSON"),
        (b'{"mcp_servers":{"a":{"command":"\\ud800"}}}', "", "not JSON"),
        (b'{"x":NaN}', "", "not JSON"),
        (b'{"x":1e999}', "", "not JSON"),
        (b"[" * 100_000, "", "more than 128 nested containers"),
        (b"[]", "$", "must be an object, not an array"),
        (b'{"mcp_servers":[]}', "mcp_servers", "must be an object, not an array"),
        (b'{"mcp_servers":{},"mcp_servers":{}}', "$", "the key 'mcp_servers' stands twice"),
        (b'{"mcp_servers":{"a":{"command":"x"},"a":{"command":"y"}}}', "mcp_servers", "the key 'a' stands twice"),
        (b'{"mcp_servers":{"a":{"command":"x","command":"y"}}}', "mcp_servers.a", "the key 'command' stands twice"),
        (b'{"mcp_servers":{"a":{"env":{"K":"1","\\u004b":"2"}}}}', "mcp_servers.a.env", "the key 'K' stands twice"),
    ],
)
def test_a_file_that_two_readers_could_read_differently_is_refused(data: bytes, path: str, problem: str) -> None:
    (found_path, found), *_ = faults_of(lambda: parse_servers(data, source="operator", path="odek.json"))
    assert found_path == path and found.startswith(problem)


def test_a_file_has_a_bound() -> None:
    data = b'{"mcp_servers":{}}'
    assert parse_servers(data + b" " * (1_048_576 - len(data)), source="operator", path="f") == ServerSet()
    with pytest.raises(ConfigError) as caught:
        parse_servers(data + b" " * (1_048_577 - len(data)), source="operator", path="f")
    assert (caught.value.limit, caught.value.observed) == ("MAX_CONFIG_BYTES", 1_048_577)


def test_servers_have_a_bound() -> None:
    entries = {f"s{number}": {"command": "x"} for number in range(257)}
    with pytest.raises(ConfigError) as caught:
        parse_servers(json.dumps({"mcp_servers": entries}).encode(), source="operator", path="f")
    assert (caught.value.limit, caught.value.observed, caught.value.maximum) == ("MAX_SERVERS", 257, 256)


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=8,
)
FIELDS = [
    "command",
    "args",
    "env",
    "timeout_seconds",
    "max_response_bytes",
    "max_result_chars",
    "artifact_roots",
    "enabled",
]


@pytest.mark.spec("odek.config.unknown-field")
@settings(max_examples=150, deadline=None)
@given(entry=st.dictionaries(st.sampled_from(FIELDS), JSON) | JSON, name=st.sampled_from(["srv", "a b", ""]))
def test_any_entry_is_a_server_or_a_list_of_faults(entry: Any, name: str) -> None:
    data = json.dumps({"mcp_servers": {name: entry}}).encode()
    try:
        found = parse_servers(data, source="project", path="f")
    except ConfigError as error:
        assert error.faults
    else:
        [server] = found.servers
        assert 1 <= server.timeout_seconds <= 3_600
        assert 1 <= server.max_response_bytes <= 67_108_864
        assert 328 <= server.max_result_chars <= 1_000_000


# -- two files ---------------------------------------------------------------------------------------------------------


@pytest.mark.spec("odek.config.operator-trust")
def test_a_project_cannot_take_an_operators_name() -> None:
    operator = parse({"command": "mine", "auto_approve": True})
    project = parse_servers(
        json.dumps({"mcp_servers": {"srv": {"command": "theirs"}, "own": {"command": "x"}}}).encode(),
        source="project",
        path="odek.json",
    )
    both = merge(operator, project)
    assert [(server.name, server.command, server.source) for server in both.servers] == [
        ("srv", "mine", "operator"),
        ("own", "x", "project"),
    ]
    assert both.warnings == ("server srv: the project's entry is ignored, the operator has one of that name",)
    assert both.get("own") is both.servers[1] and both.get("none") is None


@pytest.mark.spec("odek.config.disabled")
def test_a_project_cannot_start_what_the_operator_disabled_or_put_elsewhere() -> None:
    project = parse({"command": "theirs"}, source="project")
    both = merge(parse({"command": "mine", "enabled": False}), project)
    assert [(server.command, server.enabled) for server in both.servers] == [("mine", False)]
    both = merge(parse({"url": "https://x.test"}), project)
    assert both.servers == () and list(both.refused) == ["srv"]
    assert any("the project's entry is ignored" in warning for warning in both.warnings)


def test_only_the_operator_approves_beforehand() -> None:
    found = parse({"command": "x", "auto_approve": True}, source="project")
    assert found.servers[0].auto_approve is False
    assert found.warnings == ("server srv: auto_approve is ignored, only the operator's file may say so",)
    assert parse({"command": "x", "auto_approve": True}).servers[0].auto_approve is True
