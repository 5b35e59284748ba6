"""Names of tools and servers, and the names under which a host knows the tools of all its servers.

A tool's qualified name is ``<server>__<tool>``. Names may begin and end with an underscore, so that joining is not
reversible (server ``a_`` with tool ``b``, and server ``a`` with tool ``_b``, both give ``a___b``): a qualified name is
looked up in :class:`QualifiedNames` and never taken apart, and of two that are alike the second is refused.

Source: odek contract, "Tool-name rules"; odek notes, sections 1.2 and 3.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from types import MappingProxyType
from typing import Any, Final

from broker.errors import CatalogueError, Fault
from broker.limits import MAX_LISTED_TOOL_NAME_CHARS
from broker.wire.jsonrpc import json_type
from broker.wire.quoting import quote

SEPARATOR: Final = "__"

_NAME: Final = re.compile(r"[A-Za-z0-9_-]+")


def name_problem(name: Any) -> str | None:
    """What is wrong with a tool's or server's name, the name quoted safely; ``None`` if nothing is."""
    if type(name) is not str:
        return f"a name must be a string, not {json_type(name)}"
    if not name:
        return "a name must not be empty"
    if len(name) > MAX_LISTED_TOOL_NAME_CHARS:
        return f"{quote(name)} has {len(name)} characters, more than {MAX_LISTED_TOOL_NAME_CHARS}"
    if _NAME.fullmatch(name) is None:
        return f"{quote(name)} holds an invalid character: only ASCII letters, digits, '_' and '-' are allowed"
    if SEPARATOR in name:
        return f"{quote(name)} contains '{SEPARATOR}', which joins the names of server and tool"
    return None


def qualified_name(server: str, tool: str) -> str:
    """The name under which a host knows a server's tool."""
    return f"{server}{SEPARATOR}{tool}"


class QualifiedNames:
    """Every qualified name of a host, and the server and tool it stands for."""

    __slots__ = ("_tools",)

    def __init__(self) -> None:
        self._tools: dict[str, tuple[str, str]] = {}

    def __len__(self) -> int:
        return len(self._tools)

    def __contains__(self, qualified: object) -> bool:
        return qualified in self._tools

    @property
    def tools(self) -> Mapping[str, tuple[str, str]]:
        """The names and what they stand for, in the order they were added; read-only."""
        return MappingProxyType(self._tools)

    def get(self, qualified: str) -> tuple[str, str] | None:
        """The server and the tool that ``qualified`` stands for, or ``None``."""
        return self._tools.get(qualified)

    def replace(self, server: str, tools: Iterable[str]) -> None:
        """Make ``tools`` the tools of ``server``, in place of those it had; all or none.

        Raises :class:`~broker.errors.CatalogueError` when one of the qualified names already stands for another
        server's tool; ``faults`` names each pair.
        """
        others = {name: pair for name, pair in self._tools.items() if pair[0] != server}
        mine: dict[str, tuple[str, str]] = {}
        faults = []
        for tool in tools:
            name = qualified_name(server, tool)
            if name in others:
                other_server, other_tool = others[name]
                problem = f"already stands for tool {quote(other_tool)} of server {quote(other_server)}"
                faults.append(Fault(name, problem, "capability_mismatch"))
            mine[name] = (server, tool)
        if faults:
            raise CatalogueError(
                f"{server}: tools with a name that is taken: {'; '.join(map(str, faults))}",
                extension=server,
                faults=faults,
            )
        self._tools = {**others, **mine}

    def remove(self, server: str) -> None:
        """Forget every tool of ``server``."""
        self.replace(server, ())
