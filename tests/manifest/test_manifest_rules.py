"""Every rule of ``extension.toml``: what passes, what is refused, and where the fault is said to be."""

from __future__ import annotations

import time
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from broker.canonical import encode
from broker.errors import Fault, InvalidParamsError, ManifestError
from broker.limits import MAX_MANIFEST_BYTES
from broker.wire.octet.manifest import ENVIRONMENT_NAMES, Manifest, parse_manifest

PATH = "/srv/ext/tide-table/extension.toml"


def document(body: str = "", *, api: str = "0.3", root: str = "") -> bytes:
    head = f'name = "tide-table"\nversion = "1.2.0"\napi_version = "{api}"\n{root}\n[entrypoint]\ncommand = "tide"\n'
    return (head + body).encode()


def parse(body: str = "", *, api: str = "0.3", root: str = "") -> Manifest:
    return parse_manifest(document(body, api=api, root=root), path=PATH)


def faults_of(data: bytes) -> list[Fault]:
    with pytest.raises(ManifestError) as caught:
        parse_manifest(data, path=PATH)
    assert caught.value.path == PATH
    assert all(str(fault) in str(caught.value) for fault in caught.value.faults)
    return list(caught.value.faults)


def paths_of(body: str = "", *, api: str = "0.3", root: str = "") -> list[str]:
    return [fault.path for fault in faults_of(document(body, api=api, root=root))]


FULL = """
args = ["--quiet", ""]
env = { TIDE_HOME = "/srv/tide", EMPTY = "" }
[capabilities]
filesystem = "workspace"
process = true
network = true
system_prompt = true
secrets = ["TIDE.KEY", "_x-1"]
environment = ["SSH_AUTH_SOCK", "DISPLAY"]
[contributes]
tools = ["tide", "tide.next"]
commands = ["harbour"]
tool_renderers = ["tide"]
hooks = ["session_start", "before_prompt", "model_turn_end"]
ui = ["status", "header", "footer"]
context = true
notifications = true
confirmations = true
presentation = true
menu = true
providers = true
[[contributes.shortcuts]]
name = "next"
key = "Ctrl+T"
description = "Next\\nhigh water"
[[contributes.flags]]
name = "station"
type = "string"
default = "north"
description = "Where"
[[contributes.flags]]
name = "metric"
type = "boolean"
default = true
[[contributes.flags]]
name = "days"
type = "integer"
default = -3
[runtime]
lifecycle = "lazy_resident"
sharing = "workspace"
"""


@pytest.mark.spec(
    "octet.manifest.fields",
    "octet.initialize.manifest-members",
    "octet.manifest.args",
    "octet.manifest.env",
    "octet.manifest.capability-filesystem",
    "octet.manifest.capability-flags",
)
def test_every_field_is_read() -> None:
    manifest = parse(FULL, api="0.4", root='requires_octet = ">=0.8, <1"\ndescription = "Tides.\\nBoth."')
    assert (manifest.name, manifest.version, manifest.api_version, manifest.path) == (
        "tide-table",
        "1.2.0",
        "0.4",
        PATH,
    )
    assert (manifest.requires_octet, manifest.description) == (">=0.8, <1", "Tides.\nBoth.")
    assert manifest.entrypoint.command == "tide"
    assert manifest.entrypoint.args == ("--quiet", "")
    assert manifest.entrypoint.env == {"TIDE_HOME": "/srv/tide", "EMPTY": ""}
    assert manifest.capabilities.secrets == ("TIDE.KEY", "_x-1")
    assert manifest.capabilities_json() == {
        "filesystem": "workspace",
        "process": True,
        "network": True,
        "system_prompt": True,
        "secrets": ["TIDE.KEY", "_x-1"],
        "environment": ["SSH_AUTH_SOCK", "DISPLAY"],
    }
    assert manifest.contributes_json() == {
        "tools": ["tide", "tide.next"],
        "commands": ["harbour"],
        "shortcuts": [{"name": "next", "key": "Ctrl+T", "description": "Next\nhigh water"}],
        "hooks": ["session_start", "before_prompt", "model_turn_end"],
        "ui": ["status", "header", "footer"],
        "context": True,
        "tool_renderers": ["tide"],
        "notifications": True,
        "confirmations": True,
        "flags": [
            {"name": "station", "type": "string", "default": "north", "description": "Where"},
            {"name": "metric", "type": "boolean", "default": True},
            {"name": "days", "type": "integer", "default": -3},
        ],
        "presentation": True,
        "menu": True,
        "providers": True,
    }
    assert (manifest.runtime.lifecycle, manifest.runtime.sharing) == ("lazy_resident", "workspace")
    assert manifest.bus_owner == "tide-table"


@pytest.mark.spec(
    "octet.initialize.manifest-members",
    "octet.manifest.capability-filesystem",
    "octet.manifest.capability-flags",
    "octet.manifest.process-modes",
)
def test_the_least_manifest_gives_the_least_canonical_members() -> None:
    manifest = parse()
    assert encode(manifest.capabilities_json()) == b'{"filesystem":"none","network":false,"process":false}'
    assert encode(manifest.contributes_json()) == (
        b'{"commands":[],"confirmations":false,"context":false,"hooks":[],"notifications":false,'
        b'"shortcuts":[],"tool_renderers":[],"tools":[],"ui":[]}'
    )
    assert encode(manifest.extension_json("explicit")) == (
        b'{"manifest_path":"/srv/ext/tide-table/extension.toml","name":"tide-table","source":"explicit","version":"1.2.0"}'
    )
    assert manifest.flag_values({}) == []
    assert (manifest.runtime.lifecycle, manifest.runtime.sharing) == ("legacy_resident", "isolated")


@pytest.mark.spec("octet.manifest.api-version")
@pytest.mark.parametrize(
    ("api", "wire"),
    [("0.1", "legacy-json-rpc"), ("0.2", "legacy-json-rpc"), ("0.3", "canonical-json-rpc"), ("0.4", "legacy-json-rpc")],
)
def test_the_api_version_selects_the_wire(api: str, wire: str) -> None:
    assert parse(api=api).wire == wire


@pytest.mark.spec("octet.manifest.api-version", "octet.version.unknown-version")
@pytest.mark.parametrize("api", ["0.5", "0.3.0", "", "1", " 0.3", "v0.3"])
def test_any_other_api_version_is_refused(api: str) -> None:
    assert paths_of(api=api) == ["api_version"]


@pytest.mark.spec("octet.manifest.unknown-keys")
def test_unknown_keys_are_refused_in_every_table() -> None:
    body = """unknown = 1
[capabilities]
unknown = 1
[contributes]
unknown = 1
[[contributes.shortcuts]]
name = "a"
key = "b"
description = ""
unknown = 1
[[contributes.flags]]
name = "a"
type = "boolean"
default = false
unknown = 1
[runtime]
unknown = 1
[unknown]
["odd key\\u0007"]
"""
    assert paths_of(body, root="topic = 1") == [
        "entrypoint.unknown",
        "capabilities.unknown",
        "contributes.shortcuts[0].unknown",
        "contributes.flags[0].unknown",
        "contributes.unknown",
        "runtime.unknown",
        "topic",
        "unknown",
        '"odd key\\u0007"',
    ]


@pytest.mark.spec("octet.manifest.all-faults", "octet.manifest.version", "octet.manifest.contributed-names")
def test_all_faults_are_reported_at_once() -> None:
    found = faults_of(
        b'name = "Bad"\nversion = "1"\nrequires_octet = "nonsense"\n[contributes]\ntools = ["a", "a", 1]\n'
        b"[[contributes.flags]]\nname = 'x'\ntype = 'integer'\ndefault = true\n"
    )
    assert [(fault.path, fault.problem) for fault in found] == [
        ("name", '"Bad" does not match [a-z][a-z0-9-]*'),
        ("version", "'1' is not a semantic version"),
        ("api_version", "required key is missing"),
        ("requires_octet", "'nonsense' is not a version comparator"),
        ("entrypoint", "required key is missing"),
        ("contributes.tools[1]", "repeats contributes.tools[0]"),
        ("contributes.tools[2]", "expected a string, got an integer"),
        ("contributes.flags[0].default", "expected integer, got a boolean"),
    ]


@pytest.mark.spec("octet.manifest.version")
@pytest.mark.parametrize("value", ['"1.2"', '"v1.2.0"', '""', "1", '"1.2.0 "'])
def test_the_version_is_a_semantic_one(value: str) -> None:
    assert [f.path for f in faults_of(document().replace(b'"1.2.0"', value.encode(), 1))] == ["version"]


@pytest.mark.spec("octet.manifest.description")
def test_the_description_is_a_string_and_may_be_left_out() -> None:
    assert parse().description is None
    assert parse(root='description = "Tides."').description == "Tides."
    assert paths_of(root="description = 1") == ["description"]


LONG = "a" * 65


@pytest.mark.spec(
    "octet.manifest.fields",
    "octet.manifest.bounds",
    "octet.manifest.args",
    "octet.manifest.env",
    "octet.manifest.capability-filesystem",
    "octet.manifest.capability-flags",
    "octet.manifest.capability-secrets",
    "octet.manifest.environment-list",
    "octet.manifest.menu",
    "octet.manifest.hooks",
    "octet.manifest.process-modes",
)
@pytest.mark.parametrize(
    ("body", "paths"),
    [
        ("args = 'x'", ["entrypoint.args"]),
        ('args = ["a", 1, "b\\u0000"]', ["entrypoint.args[1]", "entrypoint.args[2]"]),
        ('env = { "1A" = "x", B = "\\u0000", C = 1 }', ["entrypoint.env.1A", "entrypoint.env.B", "entrypoint.env.C"]),
        ('[capabilities]\nfilesystem = "all"', ["capabilities.filesystem"]),
        ("[capabilities]\nprocess = 1", ["capabilities.process"]),
        ('[capabilities]\nnetwork = "true"', ["capabilities.network"]),
        ('[capabilities]\nsecrets = ["a b", "1a", "ok", "ok"]', [f"capabilities.secrets[{n}]" for n in (3, 0, 1)]),
        (f'[capabilities]\nsecrets = ["{LONG}"]', ["capabilities.secrets[0]"]),
        ('[capabilities]\nenvironment = ["HOME", "DISPLAY"]', ["capabilities.environment[0]"]),
        ('[capabilities]\nenvironment = ["DISPLAY", "DISPLAY"]', ["capabilities.environment[1]"]),
        ('[contributes]\ntools = [""]', ["contributes.tools[0]"]),
        ('[contributes]\ntools = ["a\\u0085"]', ["contributes.tools[0]"]),
        (f'[contributes]\ntools = ["{"é" * 65}"]', ["contributes.tools[0]"]),
        (f"[contributes]\ntools = {[f't{n}' for n in range(257)]}", ["contributes.tools"]),
        ('[contributes]\ncommands = ["-a"]', ["contributes.commands[0]"]),
        ('[contributes]\nhooks = ["session_start", "session_start"]', ["contributes.hooks[1]"]),
        ('[contributes]\nhooks = ["model_turn_start", "nothing"]', ["contributes.hooks[0]", "contributes.hooks[1]"]),
        ('[contributes]\nui = ["sidebar"]', ["contributes.ui[0]"]),
        ("[contributes]\nmenu = true", ["contributes.menu"]),
        ("[contributes]\nshortcuts = [1]", ["contributes.shortcuts[0]"]),
        ("[contributes]\nflags = 2024-01-01", ["contributes.flags"]),
        ('[runtime]\nlifecycle = "forever"', ["runtime.lifecycle"]),
        ('[runtime]\nsharing = "global"', ["runtime.sharing"]),
        ("[runtime]\nlifecycle = 1.5", ["runtime.lifecycle"]),
    ],
)
def test_a_bad_value_is_refused_at_its_key(body: str, paths: list[str]) -> None:
    assert paths_of(body) == paths


@pytest.mark.spec("octet.manifest.command", "octet.manifest.fields")
@pytest.mark.parametrize(
    ("data", "paths"),
    [
        (b'name = "a"\nversion = "1.0.0"\napi_version = "0.3"\n', ["entrypoint"]),
        (b'name = "a"\nversion = "1.0.0"\napi_version = "0.3"\n[entrypoint]\n', ["entrypoint.command"]),
        (b'name = "a"\nversion = "1.0.0"\napi_version = "0.3"\nentrypoint = 1\n', ["entrypoint"]),
        (
            b'name = "a"\nversion = "1.0.0"\napi_version = "0.3"\n[entrypoint]\ncommand = " \\t"\n',
            ["entrypoint.command"],
        ),
        (
            b'name = "a"\nversion = "1.0.0"\napi_version = "0.3"\n[entrypoint]\ncommand = "a\\u007f"\n',
            ["entrypoint.command"],
        ),
        (b"", ["name", "version", "api_version", "entrypoint"]),
    ],
)
def test_what_is_required_is_required(data: bytes, paths: list[str]) -> None:
    assert [fault.path for fault in faults_of(data)] == paths


@pytest.mark.spec("octet.manifest.identifier", "octet.manifest.contributed-names", "octet.manifest.capability-secrets")
@pytest.mark.parametrize(
    ("table", "key"), [("capabilities", "secrets"), ("contributes", "commands"), ("contributes", "tool_renderers")]
)
def test_identifiers_are_unique_in_their_alphabet_and_bound(table: str, key: str) -> None:
    for good in ("a" * 64, "_", "A.b-c_1", "Z9"):
        parse(f'[{table}]\n{key} = ["{good}"]')
    for bad in ("a" * 65, "", "1a", "-a", ".a", "a b", "é", "a\\n"):
        assert paths_of(f'[{table}]\n{key} = ["{bad}"]') == [f"{table}.{key}[0]"]
    assert paths_of(f'[{table}]\n{key} = ["a", "b", "a"]') == [f"{table}.{key}[2]"]
    assert paths_of(f"[{table}]\n{key} = [1]") == [f"{table}.{key}[0]"]


@pytest.mark.spec("octet.manifest.ui")
def test_ui_entries_are_three_words_each_once() -> None:
    assert parse('[contributes]\nui = ["footer", "status", "header"]').contributes.ui == ("footer", "status", "header")
    assert paths_of('[contributes]\nui = ["status", "sidebar"]') == ["contributes.ui[1]"]
    assert paths_of('[contributes]\nui = ["status", "footer", "status"]') == ["contributes.ui[2]"]


@pytest.mark.spec("octet.manifest.name")
@pytest.mark.parametrize("name", ["a", "a-1-", "z" * 64])
def test_good_names(name: str) -> None:
    data = document().replace(b"tide-table", name.encode())
    assert parse_manifest(data, path=PATH).name == name


@pytest.mark.spec("octet.manifest.name")
@pytest.mark.parametrize("name", ["", "A", "1a", "-a", "a_b", "a.b", "a b", "é", "z" * 65, "a\\n"])
def test_bad_names(name: str) -> None:
    assert [f.path for f in faults_of(document().replace(b"tide-table", name.encode()))] == ["name"]


def test_a_name_over_its_bound_names_the_limit() -> None:
    (fault,) = faults_of(document().replace(b"tide-table", b"z" * 65))
    assert (fault.name, fault.limit, fault.observed, fault.maximum) == (
        "resource_exhausted",
        "MAX_EXTENSION_NAME_BYTES",
        65,
        64,
    )


@pytest.mark.spec("octet.manifest.tool-names")
def test_canonical_tool_names_go_to_128_bytes_and_legacy_ones_are_identifiers_of_64() -> None:
    body = f'[contributes]\ntools = ["{"t" * 128}", "read file", "é"]'
    assert len(parse(body).contributes.tools) == 3
    assert paths_of(body, api="0.4") == [f"contributes.tools[{n}]" for n in range(3)]
    assert paths_of(f'[contributes]\ntools = ["{"t" * 129}"]') == ["contributes.tools[0]"]


@pytest.mark.spec("octet.manifest.requires-octet")
def test_the_required_host_version_is_checked() -> None:
    assert parse(root='requires_octet = "=0.8.0"').requires_octet == "=0.8.0"
    (fault,) = faults_of(document(root='requires_octet = ">=0.9"'))
    assert (fault.path, fault.problem) == ("requires_octet", '">=0.9" does not accept this host\'s version 0.8.0')
    data = document(root='requires_octet = ">=0.9"')
    assert parse_manifest(data, path=PATH, host_version="0.9.3").requires_octet == ">=0.9"


@pytest.mark.spec(
    "octet.manifest.api-0-1", "octet.manifest.menu", "octet.manifest.environment-list", "octet.manifest.shortcuts"
)
@pytest.mark.parametrize(
    ("body", "paths"),
    [
        ('[capabilities]\nenvironment = ["DISPLAY"]', ["capabilities.environment"]),
        ("[contributes]\npresentation = true", ["contributes.presentation"]),
        ('[contributes]\ncommands = ["a"]\nmenu = true', ["contributes.menu"]),
        ("[contributes]\nproviders = true", ["contributes.providers"]),
        ('[contributes]\nshortcuts = [{name="a",key="b",description="c"}]', ["contributes.shortcuts"]),
        ('[contributes]\nflags = [{name="a",type="boolean",default=true}]', ["contributes.flags"]),
        ('[contributes]\nhooks = ["session_start"]', ["contributes.hooks[0]"]),
        ('[contributes]\nhooks = ["post_mutation"]', ["contributes.hooks[0]"]),
        ('[runtime]\nlifecycle = "lazy_resident"\nsharing = "workspace"', ["runtime.sharing"]),
    ],
)
def test_what_api_0_1_does_not_have(body: str, paths: list[str]) -> None:
    assert paths_of(body, api="0.1") == paths
    parse(body, api="0.2")


@pytest.mark.spec("octet.manifest.hooks")
def test_each_version_has_its_hooks() -> None:
    def accepts(api: str, hook: str) -> bool:
        try:
            parse(f'[contributes]\nhooks = ["{hook}"]', api=api)
        except ManifestError:
            return False
        return True

    table = {hook: "".join(api[-1] for api in ("0.1", "0.2", "0.3", "0.4") if accepts(api, hook)) for hook in HOOKS}
    assert table == HOOKS


HOOKS = {
    "before_prompt": "1234",
    "after_response": "1234",
    "before_tool_call": "1234",
    "after_tool_call": "1234",
    "provider_retry": "234",
    "before_persistence": "234",
    "post_mutation": "234",
    "session_start": "234",
    "session_end": "234",
    "model_turn_start": "4",
    "model_turn_end": "4",
    "session_before_compact": "4",
    "session_compact": "4",
    "session_before_tree": "4",
    "session_tree": "4",
    "before_provider_request": "4",
    "before_provider_headers": "4",
    "after_provider_response": "4",
    "compaction_strategy": "4",
    "cache_warming_decision": "4",
    "provider_context": "4",
    "resources_discover": "4",
}


@pytest.mark.spec("octet.manifest.session-hook-pair")
@pytest.mark.parametrize(
    ("hooks", "on_0_3", "on_0_4"),
    [('["session_start", "session_end"]', True, True), ('["session_start"]', False, True), ("[]", False, False)],
)
def test_session_hooks_count_on_0_3_only_as_a_pair(hooks: str, on_0_3: bool, on_0_4: bool) -> None:
    assert parse(f"[contributes]\nhooks = {hooks}").session_hooks is on_0_3
    assert parse(f"[contributes]\nhooks = {hooks}", api="0.4").session_hooks is on_0_4


@pytest.mark.spec("octet.manifest.deferred-contributions")
def test_deferred_contributions_are_named_on_0_3_alone() -> None:
    body = FULL.replace('"before_prompt", "model_turn_end"', '"before_prompt"').replace("tide.next", "next")
    assert parse(body).deferred_contributions() == (
        "commands",
        "shortcuts",
        "ui",
        "context",
        "tool_renderers",
        "notifications",
        "confirmations",
        "presentation",
        "menu",
        "hooks.before_prompt",
    )
    assert parse(body, api="0.4").deferred_contributions() == ()
    assert (
        parse('[contributes]\ntools = ["t"]\nhooks = ["session_end"]\nproviders = true').deferred_contributions() == ()
    )


@pytest.mark.spec("octet.manifest.process-modes")
@pytest.mark.parametrize(
    ("lifecycle", "isolated", "workspace"),
    [
        ("legacy_resident", True, False),
        ("lazy_resident", True, True),
        ("oneshot", True, False),
        ("one_shot", True, False),
        ("session", True, False),
        ("workspace_service", False, True),
        ("always", False, True),
        ("pi_aggregate", False, True),
    ],
)
def test_process_modes_and_sharing(lifecycle: str, isolated: bool, workspace: bool) -> None:
    for sharing, accepted in (("isolated", isolated), ("workspace", workspace)):
        body = f'[runtime]\nlifecycle = "{lifecycle}"\nsharing = "{sharing}"'
        if accepted:
            assert parse(body).runtime.lifecycle == lifecycle.replace("one_shot", "oneshot")
        else:
            assert paths_of(body) == ["runtime.sharing"]


def shortcut(number: int = 0, **changes: str) -> str:
    values = {"name": f"s{number}", "key": f"k{number}", "description": "d"} | changes
    return "[[contributes.shortcuts]]\n" + "".join(f'{key} = "{value}"\n' for key, value in values.items())


@pytest.mark.spec("octet.manifest.shortcuts")
@pytest.mark.parametrize(
    ("body", "paths"),
    [
        (shortcut(key=" a"), ["key"]),
        (shortcut(key=""), ["key"]),
        (shortcut(key="a\\u0001b"), ["key"]),
        (shortcut(key="é" * 64 + "x"), ["key"]),
        (shortcut(name="a b"), ["name"]),
        (shortcut(description="a\\u001b[31m"), ["description"]),
        (shortcut(description="d" * 4097), ["description"]),
        ("[[contributes.shortcuts]]\n", ["name", "key", "description"]),
    ],
)
def test_shortcut_rules(body: str, paths: list[str]) -> None:
    assert paths_of(body) == [f"contributes.shortcuts[0].{path}" for path in paths]


@pytest.mark.spec("octet.manifest.shortcuts")
def test_shortcut_bounds_and_repeats() -> None:
    good = "".join(shortcut(n) for n in range(63)) + shortcut(63, key="k" * 128, description="d" * 4096)
    assert len(parse(good).contributes.shortcuts) == 64
    assert paths_of(good + shortcut(64)) == ["contributes.shortcuts"]
    assert paths_of(shortcut(0, key="Ctrl+A") + shortcut(1, key="ctrl+a")) == ["contributes.shortcuts[1].key"]
    assert paths_of(shortcut(0) + shortcut(1, name="s0")) == ["contributes.shortcuts[1].name"]


def flag(name: str = "f", kind: str = "string", default: str = '"x"', more: str = "") -> str:
    return f'[[contributes.flags]]\nname = "{name}"\ntype = "{kind}"\ndefault = {default}\n{more}\n'


@pytest.mark.spec("octet.manifest.flags", "octet.manifest.flag-description")
@pytest.mark.parametrize(
    ("body", "path"),
    [
        (flag(name="F"), "name"),
        (flag(name="f_g"), "name"),
        (flag(name="f" * 65), "name"),
        (flag(kind="float"), "type"),
        (flag(default="1"), "default"),
        (flag(kind="boolean", default="1"), "default"),
        (flag(kind="integer", default="true"), "default"),
        (flag(kind="integer", default="1.0"), "default"),
        (flag(kind="integer", default=str(2**53)), "default"),
        (flag(kind="integer", default="9" * 4000), "default"),
        (flag(default='"' + "x" * 4097 + '"'), "default"),
        (flag(default="{ a = 1 }"), "default"),
        (flag(more='description = ""'), "description"),
        (flag(more='description = "a\\nb"'), "description"),
        (flag(more=f'description = "{"d" * 1025}"'), "description"),
        ('[[contributes.flags]]\nname = "f"\ntype = "string"\n', "default"),
        ('[[contributes.flags]]\nname = "f"\ndefault = "x"\n', "type"),
        ('[[contributes.flags]]\ntype = "string"\ndefault = "x"\n', "name"),
    ],
)
def test_flag_rules(body: str, path: str) -> None:
    assert paths_of(body) == [f"contributes.flags[0].{path}"]


@pytest.mark.spec("octet.manifest.flags", "octet.manifest.flag-description", "octet.bound.max-extension-flags")
def test_flag_bounds_and_repeats() -> None:
    good = "".join(flag(f"f{n}") for n in range(64))
    assert len(parse(good).contributes.flags) == 64
    (fault,) = faults_of(document(good + flag("last")))
    assert (fault.path, fault.limit, fault.observed, fault.maximum) == (
        "contributes.flags",
        "MAX_EXTENSION_FLAGS",
        65,
        64,
    )
    assert paths_of(flag("a") + flag("a")) == ["contributes.flags[1].name"]
    assert paths_of(flag("a", "boolean", "true") + flag("no-a")) == ["contributes.flags[1].name"]
    assert len(parse(flag("a") + flag("no-a")).contributes.flags) == 2
    parse(flag(default='"' + "x" * 4096 + '"', more=f'description = "{"d" * 1024}"'))
    parse(flag(kind="integer", default=str(-(2**53) + 1)))


@pytest.mark.spec("octet.initialize.flag-values")
def test_flag_values_are_sorted_by_name_and_overridden_by_type() -> None:
    manifest = parse(FULL, api="0.4")
    assert manifest.flag_values({}) == [
        {"name": "days", "value": -3},
        {"name": "metric", "value": True},
        {"name": "station", "value": "north"},
    ]
    changed = manifest.flag_values({"station": "", "metric": False, "days": 0})
    assert [flag["value"] for flag in changed] == [0, False, ""]


@pytest.mark.spec("octet.initialize.flag-values", "octet.manifest.flag-supplied")
def test_bad_overrides_are_all_reported() -> None:
    overrides: dict[str, Any] = {"nowhere": 1, "days": True, "metric": 0, "station": "x" * 4097}
    with pytest.raises(InvalidParamsError) as caught:
        parse(FULL, api="0.4").flag_values(overrides)
    assert [(fault.path, fault.name) for fault in caught.value.faults] == [
        ("flags.nowhere", "invalid_params"),
        ("flags.days", "invalid_params"),
        ("flags.metric", "invalid_params"),
        ("flags.station", "resource_exhausted"),
    ]
    with pytest.raises(InvalidParamsError, match="lone surrogate"):
        parse(FULL, api="0.4").flag_values({"station": "\ud800"})


@pytest.mark.spec("octet.manifest.environment-list")
def test_the_environment_list_is_fixed() -> None:
    listed = ", ".join(f'"{name}"' for name in ENVIRONMENT_NAMES)
    assert parse(f"[capabilities]\nenvironment = [{listed}]").capabilities.environment == ENVIRONMENT_NAMES
    assert "HOME" not in ENVIRONMENT_NAMES


def padded(length: int) -> bytes:
    data = document()
    return data + b"#" + b"x" * (length - len(data) - 1)


@pytest.mark.spec("octet.manifest.bounds", "octet.manifest.file")
def test_the_file_bound_is_exact() -> None:
    assert parse_manifest(padded(MAX_MANIFEST_BYTES), path=PATH).name == "tide-table"
    (fault,) = faults_of(padded(MAX_MANIFEST_BYTES + 1))
    assert (fault.limit, fault.observed, fault.maximum) == ("MAX_MANIFEST_BYTES", 65_537, 65_536)


@pytest.mark.spec("octet.manifest.hostile", "octet.manifest.file")
@pytest.mark.parametrize(
    ("data", "problem"),
    [
        (b"name = \xff", "not UTF-8 at byte 7"),
        (b"\xef\xbb\xbf" + document(), "not TOML"),
        (b"name", "not TOML"),
        (b'name = "a"\nname = "b"', "not TOML"),
        (b"a = " + b"[" * 60_000, "not TOML: nested too deeply"),
        (b"a = " + b"{a=" * 20_000, "not TOML: nested too deeply"),
        (b"a = " + b"9" * 5_000, "an integer has too many digits"),
        (b".".join([b"a"] * 30_000) + b" = 1", "a dotted key has too many parts"),
        (b"x = {" + b" . ".join([b'"a"'] * 10_000) + b" = 1}", "a dotted key has too many parts"),
        (b"[" + b".".join([b"a"] * 30_000) + b"]", "a dotted key has too many parts"),
    ],
    ids=lambda value: value if isinstance(value, str) else f"{value[:8]!r}",
)
def test_hostile_files_are_refused_quickly(data: bytes, problem: str) -> None:
    started = time.thread_time()
    (fault,) = faults_of(data)
    assert fault.problem.startswith(problem)
    assert time.thread_time() - started < 5


@pytest.mark.spec("octet.manifest.hostile")
@settings(max_examples=150, deadline=None)
@given(st.data())
def test_any_bytes_give_a_manifest_or_a_manifest_error(draw: st.DataObject) -> None:
    data = bytearray(draw.draw(st.sampled_from([b"", document(), document(FULL, api="0.4")])))
    for _ in range(draw.draw(st.integers(0, 4))):
        at = draw.draw(st.integers(0, len(data)))
        piece = draw.draw(
            st.binary(max_size=4) | st.sampled_from([b"[", b"]]", b"{", b'"', b"'''", b"=", b".", b"\n", b"\\u", b"1"])
        )
        data[at : at + draw.draw(st.integers(0, 8))] = piece
    try:
        parse_manifest(bytes(data), path=PATH)
    except ManifestError as error:
        assert error.faults


def test_dots_in_strings_and_comments_are_not_key_parts() -> None:
    dots = "." * 100
    body = f'args = ["{dots}", \'{dots}\', """{dots}\n{dots}"\\" """, \'\'\'{dots}\n\'\'\'] # {dots}\n'
    assert len(parse(body).entrypoint.args) == 4
