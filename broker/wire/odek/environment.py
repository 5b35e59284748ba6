"""The environment of a server's process: nothing of the host's but a short list, then the configured overrides.

A key that looks like a secret's is never set, whoever wrote it: a server takes its secrets from a file or an argument.
Source: odek contract, "Server configuration"; odek notes, section 1.3.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Final

from attrs import frozen

from broker.errors import ConfigError, Fault
from broker.wire.quoting import quote

if TYPE_CHECKING:
    from broker.wire.odek.config import ServerConfig

INHERITED: Final = (
    "PATH HOME USER LOGNAME SHELL TMPDIR LANG LC_ALL LC_CTYPE LC_MESSAGES LC_NUMERIC LC_TIME LC_COLLATE LC_MONETARY "
    "LC_PAPER LC_NAME LC_ADDRESS LC_TELEPHONE LC_MEASUREMENT LC_IDENTIFICATION TZ TERM"
).split()
"""The variables that a child gets from the host, by exact name."""

SECRET_WORDS: Final = (
    "APIKEY TOKEN SECRET PASSWORD CREDENTIAL CREDS PRIVATEKEY ACCESSKEY PASSWD PASSPHRASE COOKIE AUTHORIZATION"
).split()
"""What makes a key look like a secret's: one of these anywhere in it, whatever its case, hyphens and underscores."""


@frozen
class ChildEnvironment:
    """The complete environment of a child, and what was not put into it."""

    variables: dict[str, str]
    warnings: tuple[str, ...] = ()


def looks_secret(key: str) -> bool:
    """Whether a variable's name looks like a secret's."""
    bare = key.upper().replace("-", "").replace("_", "")
    return any(word in bare for word in SECRET_WORDS)


def key_problem(key: str) -> str | None:
    """Why ``key`` cannot name a variable; ``None`` if it can."""
    if not key:
        return "a variable's name must not be empty"
    for character, name in (("=", "'='"), ("\0", "NUL")):
        if character in key:
            return f"the variable's name {quote(key)} must not hold {name}"
    return None


def child_environment(config: ServerConfig, host_environ: Mapping[str, str]) -> ChildEnvironment:
    """What the process of ``config`` gets as its environment, with ``host_environ`` being the host's own.

    An override with an empty value removes the variable. Raises :class:`~broker.errors.ConfigError` for an override
    whose name is empty or holds ``=`` or NUL, or whose value holds NUL: an operating system would read another one.
    """
    faults = []
    for key, value in config.env.items():
        problem = key_problem(key)
        if problem is None and "\0" in value:
            problem = f"the value of {quote(key)} must not hold NUL"
        if problem is not None:
            faults.append(Fault(f"mcp_servers.{config.name}.env", problem))
    if faults:
        raise ConfigError("; ".join(map(str, faults)), extension=config.name, faults=faults)
    variables = {name: host_environ[name] for name in INHERITED if name in host_environ}
    warnings = []
    for key, value in config.env.items():
        if looks_secret(key):
            warnings.append(f"server {config.name}: env {quote(key)} is left out, it looks like a secret")
        elif value:
            variables[key] = value
        else:
            variables.pop(key, None)
    return ChildEnvironment(variables, tuple(warnings))
