"""What an extension says about itself: the manifest, typed, and its canonical forms for ``initialize``.

The trees here hold what :func:`broker.wire.octet.manifest.parse_manifest` found valid; they check nothing themselves.
Source: octet reference, "Version policy"; octet wire notes, sections 1 and 3.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final, Literal, TypeAlias

from attrs import field, frozen

from broker.errors import Fault, InvalidParamsError
from broker.limits import MAX_FLAG_VALUE_BYTES, MAX_PORTABLE_INTEGER
from broker.wire.versions import POLICY, VersionPolicy

HOST_VERSION: Final = "0.8.0"

WIRES: Final[Mapping[str, str]] = {version: row.wire for version, row in POLICY.items()}
SESSION_HOOKS: Final = ("session_start", "session_end")

# The names of the host's environment an extension may ask to inherit: display, desktop and agent sockets, none of which
# carries a secret in its value. A name outside this list is refused rather than passed over.
ENVIRONMENT_NAMES: Final = (
    "SSH_AUTH_SOCK",
    "DISPLAY",
    "WAYLAND_DISPLAY",
    "XDG_RUNTIME_DIR",
    "DBUS_SESSION_BUS_ADDRESS",
    "XAUTHORITY",
    "XDG_SESSION_TYPE",
    "XDG_CURRENT_DESKTOP",
)

FlagValue: TypeAlias = "bool | int | str"
FlagType: TypeAlias = Literal["boolean", "string", "integer"]
Source: TypeAlias = Literal["project", "global", "explicit"]


@frozen
class Entrypoint:
    """How the process is started: ``command``, ``args`` passed verbatim (no shell), ``env`` for its environment."""

    command: str
    args: tuple[str, ...] = ()
    env: Mapping[str, str] = field(factory=dict)


@frozen
class Capabilities:
    """What the extension says it needs. Consent metadata for people, not a sandbox."""

    filesystem: Literal["none", "workspace", "unrestricted"] = "none"
    process: bool = False
    network: bool = False
    system_prompt: bool = False
    secrets: tuple[str, ...] = ()
    environment: tuple[str, ...] = ()


@frozen
class Shortcut:
    """One key binding the extension offers."""

    name: str
    key: str
    description: str


@frozen
class Flag:
    """One command-line flag the extension declares, with the value it has when nobody sets it."""

    name: str
    type: FlagType
    default: FlagValue
    description: str | None = None

    def problem_with(self, value: object) -> tuple[str, str | None, int | None, int | None] | None:
        """Why ``value`` cannot be this flag's: problem, limit, observed, maximum; ``None`` when it can."""
        return flag_problem(self.type, value)


@frozen
class Contributes:
    """Everything the extension adds to a host."""

    tools: tuple[str, ...] = ()
    commands: tuple[str, ...] = ()
    tool_renderers: tuple[str, ...] = ()
    shortcuts: tuple[Shortcut, ...] = ()
    hooks: tuple[str, ...] = ()
    ui: tuple[str, ...] = ()
    context: bool = False
    notifications: bool = False
    confirmations: bool = False
    presentation: bool = False
    menu: bool = False
    providers: bool = False
    flags: tuple[Flag, ...] = ()


@frozen
class Runtime:
    """How the process lives and whether workspaces share it. ``one_shot`` is read as ``oneshot``."""

    lifecycle: str = "legacy_resident"
    sharing: Literal["isolated", "workspace"] = "isolated"


@frozen
class Manifest:
    """One valid ``extension.toml``. ``path`` is the file it was read from, as the caller gave it."""

    name: str
    version: str
    api_version: str
    path: str
    entrypoint: Entrypoint
    requires_octet: str | None = None
    description: str | None = None
    capabilities: Capabilities = field(factory=Capabilities)
    contributes: Contributes = field(factory=Contributes)
    runtime: Runtime = field(factory=Runtime)

    @property
    def wire(self) -> str:
        """The one wire ``api_version`` selects: ``canonical-json-rpc`` or ``legacy-json-rpc``."""
        return WIRES[self.api_version]

    @property
    def policy(self) -> VersionPolicy:
        """What the version policy says of ``api_version``: its status, its wire, and whether bundles of it install."""
        return POLICY[self.api_version]

    @property
    def bus_owner(self) -> str:
        """The owner segment of this extension's bus topics: its name."""
        return self.name

    @property
    def session_hooks(self) -> bool:
        """Whether session hooks are delivered: on 0.3 only for the declared pair, on 0.2 and 0.4 for either."""
        declared = [hook in self.contributes.hooks for hook in SESSION_HOOKS]
        return all(declared) if self.api_version == "0.3" else any(declared)

    def deferred_contributions(self) -> tuple[str, ...]:
        """The declared contributions API 0.3 has no service for; any of them fails the start after a valid contract.

        Words are the manifest's keys, and ``hooks.NAME`` for each hook that is not a session hook. Always empty on the
        other versions.
        """
        if self.api_version != "0.3":
            return ()
        given = self.contributes
        keys = ("commands", "shortcuts", "ui", "context", "tool_renderers", "notifications", "confirmations")
        words = [key for key in (*keys, "presentation", "menu") if getattr(given, key)]
        words += [f"hooks.{hook}" for hook in given.hooks if hook not in SESSION_HOOKS]
        return tuple(words)

    def extension_json(self, source: Source) -> dict[str, Any]:
        """The ``extension`` member of ``initialize``; ``source`` is the kind of root the manifest was found under."""
        return {"name": self.name, "version": self.version, "manifest_path": self.path, "source": source}

    def capabilities_json(self) -> dict[str, Any]:
        """The ``capabilities`` member of ``initialize``: lists when not empty, ``system_prompt`` when asked for."""
        asked = self.capabilities
        member: dict[str, Any] = {"filesystem": asked.filesystem, "process": asked.process, "network": asked.network}
        if asked.system_prompt:
            member["system_prompt"] = True
        if asked.secrets:
            member["secrets"] = list(asked.secrets)
        if asked.environment:
            member["environment"] = list(asked.environment)
        return member

    def contributes_json(self) -> dict[str, Any]:
        """The ``contributes`` member of ``initialize``: nine keys always, the four later ones only when set."""
        given = self.contributes
        member: dict[str, Any] = {
            "tools": list(given.tools),
            "commands": list(given.commands),
            "shortcuts": [{"name": s.name, "key": s.key, "description": s.description} for s in given.shortcuts],
            "hooks": list(given.hooks),
            "ui": list(given.ui),
            "context": given.context,
            "tool_renderers": list(given.tool_renderers),
            "notifications": given.notifications,
            "confirmations": given.confirmations,
        }
        if given.flags:
            member["flags"] = [
                {"name": flag.name, "type": flag.type, "default": flag.default}
                | ({} if flag.description is None else {"description": flag.description})
                for flag in given.flags
            ]
        for key in ("presentation", "menu", "providers"):
            if getattr(given, key):
                member[key] = True
        return member

    def flag_values(self, overrides: Mapping[str, object]) -> list[dict[str, Any]]:
        """The ``flag_values`` member of ``initialize``: every declared flag, sorted by name, overridden where given.

        Raises :class:`~broker.errors.InvalidParamsError` with one fault for each undeclared name and each value of the
        wrong type or over its bound.
        """
        flags = {flag.name: flag for flag in self.contributes.flags}
        faults: list[Fault] = []
        for name, value in overrides.items():
            if name not in flags:
                faults.append(Fault(f"flags.{name}", f"{self.name} declares no such flag"))
            elif (found := flags[name].problem_with(value)) is not None:
                problem, limit, observed, maximum = found
                row = "invalid_params" if limit is None else "resource_exhausted"
                faults.append(Fault(f"flags.{name}", problem, row, limit, observed, maximum))
        if faults:
            raise InvalidParamsError(
                "; ".join(map(str, faults)), extension=self.name, path=faults[0].path, faults=faults
            )
        return [{"name": name, "value": overrides.get(name, flags[name].default)} for name in sorted(flags)]


def flag_problem(kind: str, value: object) -> tuple[str, str | None, int | None, int | None] | None:
    """Why ``value`` cannot be a flag of type ``kind``: problem, limit, observed, maximum; ``None`` when it can."""
    expected = {"boolean": bool, "integer": int, "string": str}[kind]
    if type(value) is not expected:
        return f"expected {kind}, got {type(value).__name__}", None, None, None
    if type(value) is int and abs(value) > MAX_PORTABLE_INTEGER:
        observed = value if abs(value) < 2**128 else None
        return "integer out of range", "MAX_PORTABLE_INTEGER", observed, MAX_PORTABLE_INTEGER
    if type(value) is str:
        try:
            length = len(value.encode())
        except UnicodeEncodeError:
            return "lone surrogate in string", None, None, None
        if length > MAX_FLAG_VALUE_BYTES:
            return "string too long", "MAX_FLAG_VALUE_BYTES", length, MAX_FLAG_VALUE_BYTES
    return None
