"""What of a tool's arguments is told: a program, a path, a host, a number, and never the arguments themselves.

Recognised tools always have a summary, an empty one when their arguments cannot be used; other tools, those of MCP
servers among them, have none. Source: odek contract, "Event schema"; odek notes, section 5.4; design, D12.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any, Final
from urllib.parse import urlsplit

from broker.errors import CanonicalError
from broker.limits import (
    MAX_SUMMARY_ARGS_BYTES,
    MAX_SUMMARY_COMMAND_CHARS,
    MAX_SUMMARY_NAME_BYTES,
    MAX_SUMMARY_PATHS,
)
from broker.wire.odek.events.risk import command_class, greatest, path_class, program_name
from broker.wire.odek.events.words import split_commands
from broker.wire.odek.strict_json import JsonObject, loads
from broker.wire.quoting import scalar

SHELL_TOOLS: Final = frozenset(("shell", "terminal", "parallel_shell"))
WRITE_TOOLS: Final = frozenset(("write_file", "patch", "batch_patch"))
READ_TOOLS: Final = frozenset(
    (
        "read_file search_files glob file_info diff tree head_tail checksum batch_read multi_grep count_lines "
        "json_query transcribe vision"
    ).split()
)
WEB_TOOLS: Final = frozenset(("browser", "http_request", "http_batch", "web_search"))

_COMMAND_KEYS: Final = ("command", "cmd", "commands")
_PATH_KEYS: Final = ("path", "file_path", "file", "paths", "files", "patches", "edits", "reads")
_URL_KEYS: Final = ("url", "urls", "requests")
_SUBSTITUTION: Final = re.compile(r"[`$(]")
_HOST: Final = re.compile(r"[\w.:%-]{1,255}")


def args_summary(tool: str, arguments: str) -> dict[str, Any] | None:
    """The summary of a call of ``tool`` with the raw text ``arguments``; ``None`` when the tool is not recognised."""
    if tool == "delegate_tasks":
        return _tasks(_members(arguments))
    if tool in SHELL_TOOLS:
        return _commands(_members(arguments))
    if tool in WRITE_TOOLS or tool in READ_TOOLS:
        return _paths(_members(arguments), writes=tool in WRITE_TOOLS)
    return _host(_members(arguments)) if tool in WEB_TOOLS else None


def argv0(command: str) -> str:
    """The program that ``command`` runs first, without assignments before it, quotes and directory; else empty."""
    for simple in split_commands(command[:MAX_SUMMARY_COMMAND_CHARS]):
        if simple.words:
            # A program that the shell would have to find out first is not told: its text is a command of its own.
            return "" if _SUBSTITUTION.search(simple.words[0]) else _short(program_name(simple.words[0]))
    return ""


def _members(arguments: str) -> JsonObject:
    """The members of the arguments; none of arguments that are no object, or of which two readers could differ."""
    if len(arguments) <= MAX_SUMMARY_ARGS_BYTES:
        try:
            value = loads(scalar(arguments).encode())
        except CanonicalError:
            return JsonObject([])
        if isinstance(value, JsonObject) and not value.repeated:
            return value
    return JsonObject([])


def _texts(members: JsonObject, keys: tuple[str, ...]) -> Iterator[str]:
    """The strings that stand under ``keys``: themselves, in a list, or in a list's objects under one of the keys."""
    for key in keys:
        value = members.get(key)
        for item in value if isinstance(value, list) else [value]:
            if isinstance(item, str) and item:
                yield item
            elif isinstance(item, JsonObject) and isinstance(value, list) and not item.repeated:
                yield from (text for inner in keys if isinstance(text := item.get(inner), str) and text)


def _commands(members: JsonObject) -> dict[str, Any]:
    commands = list(_texts(members, _COMMAND_KEYS))
    programs = [name for command in commands[:MAX_SUMMARY_PATHS] if (name := argv0(command))]
    if not commands:
        return {}
    summary: dict[str, Any] = {}
    if programs:
        summary["argv0"] = programs if isinstance(members.get("commands"), list) else programs[0]
    summary["class"] = greatest(command_class(command) for command in commands)
    return summary


def _paths(members: JsonObject, *, writes: bool) -> dict[str, Any]:
    paths = list(_texts(members, _PATH_KEYS))
    if not paths:
        return {}
    shown = [_short(path) for path in paths[:MAX_SUMMARY_PATHS]]
    single = len(shown) == 1 and any(isinstance(members.get(key), str) for key in _PATH_KEYS)
    return {
        "path": shown[0] if single else shown,
        "class": greatest(path_class(path, writes=writes) for path in paths),
    }


def _host(members: JsonObject) -> dict[str, Any]:
    for url in _texts(members, _URL_KEYS):
        host = host_of(url)
        if host:
            return {"host": host}
    action = members.get("action")
    return {"action": _short(action)} if isinstance(action, str) and action else {}


def _tasks(members: JsonObject) -> dict[str, Any]:
    tasks = members.get("tasks")
    return {"task_count": len(tasks)} if isinstance(tasks, list) else {}


def host_of(url: str) -> str:
    """The host of ``url`` alone: no user, port or path; empty when it has none that could be told."""
    try:
        host = urlsplit(url if "://" in url else f"//{url}").hostname or ""
    except ValueError:
        return ""
    return _short(host) if _HOST.fullmatch(host) else ""


def _short(text: str) -> str:
    """``text`` within the bound of a name, cut at a whole character."""
    data = scalar(text).encode()
    return data[:MAX_SUMMARY_NAME_BYTES].decode("utf-8", "ignore")
