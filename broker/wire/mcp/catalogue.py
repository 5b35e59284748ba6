"""The tools of one MCP server, as listed: every entry judged before any of them is known to the host.

One bad or duplicate name refuses the whole server, because a host that registered the rest would offer a catalogue that
nobody wrote. What is merely unusable (a schema that is no object, or over its bound) leaves that tool out with a
warning. Source: odek contract, "Tool-name rules"; odek notes, section 3.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import orjson
from attrs import field, frozen

from broker.errors import CatalogueError, Fault
from broker.limits import (
    MAX_INPUT_SCHEMA_BYTES,
    MAX_LISTED_DESCRIPTION_CHARS,
    MAX_LISTED_TOOLS,
    MAX_REPORTED_FAULTS,
)
from broker.wire.jsonrpc import json_type
from broker.wire.mcp.names import name_problem
from broker.wire.quoting import plain

_ANY_OBJECT: Final = {"type": "object"}


@frozen
class ListedTool:
    """One tool that may be called.

    ``description`` is safe to print: no terminal sequences, no control characters but LF and TAB, bounded. Approval is
    given for what the server really said, which is ``raw_description`` and ``input_schema``.
    """

    name: str
    description: str = ""
    input_schema: dict[str, Any] = field(factory=_ANY_OBJECT.copy, repr=False)
    raw_description: str = field(default="", repr=False)


@frozen
class Catalogue:
    """All tools of one server in the order they were listed, and what had to be left out."""

    server: str
    tools: tuple[ListedTool, ...] = ()
    warnings: tuple[str, ...] = ()
    _by_name: dict[str, ListedTool] = field(init=False, repr=False, eq=False)

    @_by_name.default
    def _index(self) -> dict[str, ListedTool]:
        return {tool.name: tool for tool in self.tools}

    def __contains__(self, name: object) -> bool:
        return name in self._by_name

    def get(self, name: str) -> ListedTool | None:
        """The tool called ``name``, or ``None``."""
        return self._by_name.get(name)


def read_catalogue(server: str, entries: Sequence[Any]) -> Catalogue:
    """Judge the complete list of a server's tools, the entries of all its pages.

    Raises :class:`~broker.errors.CatalogueError` for more than 1024 entries, an entry that is no object, a bad name or
    a name that stands twice; ``faults`` lists them by their place, such as ``tools[3].name``.
    """
    check_count(server, len(entries))
    faults: list[Fault] = []
    warnings: list[str] = []
    tools: list[ListedTool] = []
    seen: dict[str, int] = {}
    for index, entry in enumerate(entries):
        fault = _entry_fault(entry, index, seen)
        if fault is None:
            seen[entry["name"]] = index
            tool = _read_tool(server, entry, warnings)
            if tool is not None:
                tools.append(tool)
        elif len(faults) < MAX_REPORTED_FAULTS:
            faults.append(fault)
    if faults:
        raise CatalogueError(
            f"{server}: its list of tools is refused: {'; '.join(map(str, faults))}",
            extension=server,
            method="tools/list",
            path=faults[0].path,
            faults=faults,
        )
    return Catalogue(server, tuple(tools), tuple(warnings))


def check_count(server: str, count: int) -> None:
    """Raise :class:`~broker.errors.CatalogueError` for more tools than a server may have."""
    if count > MAX_LISTED_TOOLS:
        raise CatalogueError(
            f"{server}: lists more than {MAX_LISTED_TOOLS} tools",
            name="resource_exhausted",
            extension=server,
            method="tools/list",
            limit="MAX_LISTED_TOOLS",
            observed=count,
            maximum=MAX_LISTED_TOOLS,
        )


def _entry_fault(entry: Any, index: int, seen: dict[str, int]) -> Fault | None:
    if type(entry) is not dict:
        return Fault(f"tools[{index}]", f"must be an object, not {json_type(entry)}")
    path = f"tools[{index}].name"
    if "name" not in entry:
        return Fault(path, "is missing")
    problem = name_problem(entry["name"])
    if problem is None and entry["name"] in seen:
        problem = f"'{entry['name']}' is also the name of tools[{seen[entry['name']]}]"
    return None if problem is None else Fault(path, problem)


def _read_tool(server: str, entry: dict[str, Any], warnings: list[str]) -> ListedTool | None:
    name = entry["name"]
    schema = entry.get("inputSchema")
    if schema is None:
        schema = _ANY_OBJECT.copy()
    if type(schema) is not dict:
        warnings.append(f"{server}: tool {name} is left out: its inputSchema is {json_type(schema)}, not an object")
        return None
    size = len(orjson.dumps(schema))
    if size > MAX_INPUT_SCHEMA_BYTES:
        warnings.append(
            f"{server}: tool {name} is left out: its inputSchema takes {size} bytes, more than {MAX_INPUT_SCHEMA_BYTES}"
        )
        return None
    description = entry.get("description")
    if description is None:
        description = ""
    elif type(description) is not str:
        warnings.append(
            f"{server}: tool {name}: its description is {json_type(description)}, not a string, and ignored"
        )
        description = ""
    return ListedTool(
        name=name,
        description=plain(description, max_chars=MAX_LISTED_DESCRIPTION_CHARS, keep="\n\t"),
        input_schema=schema,
        raw_description=description,
    )
