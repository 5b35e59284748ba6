"""Reading ``extension.toml``: every rule of the file, every fault at once, each with its key path.

Sans-IO: bytes in, a :class:`~broker.wire.octet.manifest_model.Manifest` out. Unknown keys are refused in every table,
so a misspelt key never passes for a default. Source: octet wire notes, section 1; octet reference, "Version policy" and
"Bounds".
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Final

from broker.errors import BrokerError, Fault, ManifestError
from broker.limits import (
    MAX_EXTENSION_FLAGS,
    MAX_EXTENSION_NAME_BYTES,
    MAX_FLAG_DESCRIPTION_BYTES,
    MAX_MANIFEST_IDENTIFIER_BYTES,
    MAX_SHORTCUT_DESCRIPTION_BYTES,
    MAX_SHORTCUT_KEY_BYTES,
    MAX_SHORTCUTS,
    MAX_TOOL_NAME_BYTES,
    MAX_TOOLS,
)
from broker.wire.octet.manifest_model import (
    ENVIRONMENT_NAMES,
    HOST_VERSION,
    SESSION_HOOKS,
    WIRES,
    Capabilities,
    Contributes,
    Entrypoint,
    Flag,
    Manifest,
    Runtime,
    Shortcut,
    flag_problem,
)
from broker.wire.octet.manifest_toml import IDENTIFIER, Table, check_text, quoted, read_document, report, toml_word
from broker.wire.octet.semver import Requirement, Version

__all__ = [
    "ENVIRONMENT_NAMES",
    "HOOKS",
    "HOST_VERSION",
    "SESSION_HOOKS",
    "Capabilities",
    "Contributes",
    "Entrypoint",
    "Flag",
    "Manifest",
    "Runtime",
    "Shortcut",
    "parse_manifest",
]

_NAME: Final = re.compile(r"[a-z][a-z0-9-]*", re.ASCII)
_VARIABLE: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_]*", re.ASCII)
_CONTROL: Final = re.compile(r"[\x00-\x1f\x7f-\x9f]")
_CONTROL_IN_PROSE: Final = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f]")

_HOOKS_0_1: Final = ("before_prompt", "after_response", "before_tool_call", "after_tool_call")
_HOOKS_0_2: Final = (*_HOOKS_0_1, "provider_retry", "before_persistence", "post_mutation", *SESSION_HOOKS)
_HOOKS_0_4: Final = (
    *_HOOKS_0_2,
    "model_turn_start",
    "model_turn_end",
    "session_before_compact",
    "session_compact",
    "session_before_tree",
    "session_tree",
    "before_provider_request",
    "before_provider_headers",
    "after_provider_response",
    "compaction_strategy",
    "cache_warming_decision",
    "provider_context",
    "resources_discover",
)
HOOKS: Final[Mapping[str, tuple[str, ...]]] = {
    "0.1": _HOOKS_0_1,
    "0.2": _HOOKS_0_2,
    "0.3": _HOOKS_0_2,
    "0.4": _HOOKS_0_4,
}
"""The hook names a manifest of each version may declare."""

_LIFECYCLES_ISOLATED: Final = ("legacy_resident", "oneshot", "session")
_LIFECYCLES_SHARED: Final = ("workspace_service", "always", "pi_aggregate")
_LIFECYCLES: Final = (*_LIFECYCLES_ISOLATED, "lazy_resident", *_LIFECYCLES_SHARED)
_LIFECYCLE_ALIASES: Final = {"one_shot": "oneshot"}


def parse_manifest(data: bytes, *, path: str, host_version: str = HOST_VERSION) -> Manifest:
    """Read the bytes of one ``extension.toml``.

    ``path`` is where they came from (kept, and named by errors). ``host_version`` is what ``requires_octet`` is held
    against. Raises :class:`~broker.errors.ManifestError` whose ``faults`` list every fault, each with a key path such
    as ``contributes.flags[2].default``.
    """
    faults: list[Fault] = []
    document = read_document(data, faults)
    manifest = None if faults else _manifest(Table(document, "", faults), path, Version.parse(host_version))
    if manifest is None or faults:
        lines = "".join(f"\n  {fault}" for fault in faults)
        raise ManifestError(f"{path} is not a valid manifest:{lines}", path=path, faults=faults)
    return manifest


# -- the tables --------------------------------------------------------------------------------------------------------


def _manifest(root: Table, path: str, host_version: Version) -> Manifest | None:
    name = root.string("name", required=True)
    if name is not None:
        check_text(root.faults, "name", name, _NAME, "MAX_EXTENSION_NAME_BYTES", MAX_EXTENSION_NAME_BYTES)
    version = root.string("version", required=True)
    if version is not None:
        _semantic(root, "version", version)
    api_version = root.string("api_version", required=True)
    if api_version is not None and api_version not in WIRES:
        root.fault("api_version", f"{quoted(api_version)} is not a supported version ({', '.join(WIRES)})")
        api_version = None
    requires = root.string("requires_octet")
    if requires is not None:
        _require(root, requires, host_version)
    description = root.string("description", blank=True)
    _refuse_controls(root, "description", description, _CONTROL_IN_PROSE)

    entrypoint = _entrypoint(root.table("entrypoint", required=True), given=type(root.values.get("entrypoint")) is dict)
    capabilities = _capabilities(root.table("capabilities"), api_version)
    contributes = _contributes(root.table("contributes"), api_version)
    runtime = _runtime(root.table("runtime"), api_version)
    root.end()
    if name is None or version is None or api_version is None or entrypoint is None:
        return None
    return Manifest(
        name=name,
        version=version,
        api_version=api_version,
        path=path,
        entrypoint=entrypoint,
        requires_octet=requires,
        description=description,
        capabilities=capabilities,
        contributes=contributes,
        runtime=runtime,
    )


def _semantic(root: Table, key: str, text: str) -> None:
    try:
        Version.parse(text)
    except BrokerError as error:
        root.fault(key, str(error))


def _require(root: Table, text: str, host_version: Version) -> None:
    try:
        accepted = Requirement.parse(text).accepts(host_version)
    except BrokerError as error:
        root.fault("requires_octet", str(error))
        return
    if not accepted:
        own = ".".join(map(str, host_version.release)) + (
            f"-{host_version.pre_release}" if host_version.pre_release else ""
        )
        root.fault("requires_octet", f"{quoted(text)} does not accept this host's version {own}")


def _refuse_controls(table: Table, key: str, text: str | None, pattern: re.Pattern[str] = _CONTROL) -> None:
    if text is not None and pattern.search(text):
        table.fault(key, "holds a control character")


def _entrypoint(table: Table, *, given: bool) -> Entrypoint | None:
    command = table.string("command", required=given)
    _refuse_controls(table, "command", command)
    args = table.strings("args", unique=False)
    for place, item in args:
        if "\0" in item:
            report(table.faults, place, "holds a NUL")
    env: dict[str, str] = {}
    variables = table.table("env")
    for name in variables.values:
        value = variables.string(name, blank=True)
        if not _VARIABLE.fullmatch(name):
            variables.fault(name, "is not the name of an environment variable")
        elif value is not None and "\0" in value:
            variables.fault(name, "holds a NUL")
        elif value is not None:
            env[name] = value
    table.end()
    return None if command is None else Entrypoint(command, tuple(item for _, item in args), env)


def _capabilities(table: Table, api_version: str | None) -> Capabilities:
    filesystem = table.choice("filesystem", ("none", "workspace", "unrestricted"), "none")
    switches = {key: table.boolean(key) for key in ("process", "network", "system_prompt")}
    secrets = table.identifiers("secrets")
    environment = table.choices("environment", ENVIRONMENT_NAMES)
    if environment:
        _forbid_on_0_1(table, api_version, ["environment"])
    table.end()
    return Capabilities(filesystem, **switches, secrets=secrets, environment=environment)  # type: ignore[arg-type]


def _contributes(table: Table, api_version: str | None) -> Contributes:
    booleans = ("context", "notifications", "confirmations", "presentation", "menu", "providers")
    contributes = Contributes(
        tools=_tools(table, api_version),
        commands=table.identifiers("commands"),
        tool_renderers=table.identifiers("tool_renderers"),
        shortcuts=_shortcuts(table),
        hooks=table.choices("hooks", HOOKS[api_version or "0.4"]),
        ui=table.choices("ui", ("status", "header", "footer")),
        flags=_flags(table),
        **{key: table.boolean(key) for key in booleans},
    )
    later = ("shortcuts", "presentation", "menu", "providers", "flags")
    _forbid_on_0_1(table, api_version, [key for key in later if table.values.get(key)])
    if contributes.menu and not contributes.commands:
        table.fault("menu", "needs at least one command")
    table.end()
    return contributes


def _forbid_on_0_1(table: Table, api_version: str | None, keys: Iterable[str]) -> None:
    if api_version == "0.1":
        for key in keys:
            table.fault(key, "is not part of API 0.1")


def _tools(table: Table, api_version: str | None) -> tuple[str, ...]:
    # The catalogue in the initialize answer must equal this list, so the canonical wire's rule for a tool's name (1 to
    # 128 bytes, no control characters) holds here too; the legacy wires keep the identifier rule.
    if api_version != "0.3":
        tools = table.identifiers("tools")
    else:
        found = table.strings("tools")
        for place, item in found:
            check_text(table.faults, place, item, None, "MAX_TOOL_NAME_BYTES", MAX_TOOL_NAME_BYTES)
            if not item or _CONTROL.search(item):
                report(table.faults, place, "holds a control character" if item else "must not be empty")
        tools = tuple(item for _, item in found)
    if len(tools) > MAX_TOOLS:
        table.fault("tools", f"more than {MAX_TOOLS} items", ("MAX_TOOLS", len(tools), MAX_TOOLS))
    return tools


def _shortcuts(contributes: Table) -> tuple[Shortcut, ...]:
    found: list[Shortcut] = []
    names: dict[str, str] = {}
    keys: dict[str, str] = {}
    for table in contributes.tables("shortcuts", "MAX_SHORTCUTS", MAX_SHORTCUTS):
        name = table.string("name", required=True)
        if name is not None:
            limit = MAX_MANIFEST_IDENTIFIER_BYTES
            check_text(table.faults, table.at("name"), name, IDENTIFIER, "MAX_MANIFEST_IDENTIFIER_BYTES", limit)
            _refuse_repeat(table, "name", name, names)
        key = table.string("key", required=True)
        if key is not None:
            check_text(table.faults, table.at("key"), key, None, "MAX_SHORTCUT_KEY_BYTES", MAX_SHORTCUT_KEY_BYTES)
            if key != key.strip():
                table.fault("key", "has white space around it")
            _refuse_controls(table, "key", key)
            _refuse_repeat(table, "key", key.casefold(), keys)
        description = table.string("description", required=True, blank=True)
        if description is not None:
            limit = MAX_SHORTCUT_DESCRIPTION_BYTES
            check_text(
                table.faults, table.at("description"), description, None, "MAX_SHORTCUT_DESCRIPTION_BYTES", limit
            )
            _refuse_controls(table, "description", description, _CONTROL_IN_PROSE)
        table.end()
        if name is not None and key is not None and description is not None:
            found.append(Shortcut(name, key, description))
    return tuple(found)


def _flags(contributes: Table) -> tuple[Flag, ...]:
    found: list[Flag] = []
    names: dict[str, str] = {}
    for table in contributes.tables("flags", "MAX_EXTENSION_FLAGS", MAX_EXTENSION_FLAGS):
        name = table.string("name", required=True)
        if name is not None:
            check_text(
                table.faults,
                table.at("name"),
                name,
                _NAME,
                "MAX_MANIFEST_IDENTIFIER_BYTES",
                MAX_MANIFEST_IDENTIFIER_BYTES,
            )
            _refuse_repeat(table, "name", name, names)
        kind = table.choice("type", ("boolean", "string", "integer"), "") if "type" in table.values else None
        if kind is None:
            table.string("type", required=True)
        default = table.values.get("default")
        table.taken.add("default")
        if default is None:
            table.fault("default", "required key is missing")
        elif kind:
            _check_default(table, kind, default)
        description = table.string("description")
        if description is not None:
            limit = MAX_FLAG_DESCRIPTION_BYTES
            check_text(table.faults, table.at("description"), description, None, "MAX_FLAG_DESCRIPTION_BYTES", limit)
            _refuse_controls(table, "description", description)
        table.end()
        if name is not None and kind and default is not None:
            found.append(Flag(name, kind, default, description))  # type: ignore[arg-type]
    _refuse_inverses(contributes, found, names)
    return tuple(found)


def _check_default(table: Table, kind: str, default: object) -> None:
    found = flag_problem(kind, default)
    if found is None:
        return
    problem, limit, observed, maximum = found
    if limit is None:
        table.fault("default", f"expected {kind}, got {toml_word(default)}")
    else:
        table.faults.append(Fault(table.at("default"), problem, "resource_exhausted", limit, observed, maximum))


def _refuse_inverses(contributes: Table, flags: Iterable[Flag], names: dict[str, str]) -> None:
    """A boolean flag is also spelt ``--no-NAME``, so no other flag may have that name."""
    for flag in flags:
        inverse = names.get(f"no-{flag.name}")
        if flag.type == "boolean" and inverse is not None:
            report(contributes.faults, inverse, f"is also the inverse of {names[flag.name]}")


def _refuse_repeat(table: Table, key: str, value: str, first: dict[str, str]) -> None:
    if value in first:
        table.fault(key, f"repeats {first[value]}")
    else:
        first[value] = table.at(key)


def _runtime(table: Table, api_version: str | None) -> Runtime:
    written = table.choice("lifecycle", (*_LIFECYCLES, *_LIFECYCLE_ALIASES), "legacy_resident")
    lifecycle = _LIFECYCLE_ALIASES.get(written, written)
    sharing = table.choice("sharing", ("isolated", "workspace"), "isolated")
    if lifecycle in _LIFECYCLES_SHARED and sharing != "workspace":
        table.fault("sharing", f'lifecycle "{lifecycle}" needs "workspace"')
    if lifecycle in _LIFECYCLES_ISOLATED and sharing != "isolated":
        table.fault("sharing", f'lifecycle "{lifecycle}" needs "isolated"')
    if sharing == "workspace":
        _forbid_on_0_1(table, api_version, ["sharing"])
    table.end()
    return Runtime(lifecycle, sharing)  # type: ignore[arg-type]
