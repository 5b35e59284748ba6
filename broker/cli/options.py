"""What the command line accepts. Building it loads nothing of what carries a command out."""

from __future__ import annotations

import argparse
import math
from pathlib import Path
from typing import Any

from broker.cli.new import API_VERSIONS, FAMILIES
from broker.limits import (
    CONFORM_ANSWER_MS,
    CONFORM_TOTAL_MS,
    MAX_COMMAND_NUMBER_CHARS,
    MAX_COMMAND_SECONDS,
    MAX_PORTABLE_INTEGER,
)

_EXIT_CODES = (
    "exit status: 0 ok, 1 a tool or an extension failed, 2 wrong usage, 3 a manifest or the set-up is wrong, "
    "4 the budget of the run is spent"
)
_PATHS = "an extension.toml, its directory, a folder of such directories, or a *.json with mcp_servers"


def make_parser() -> argparse.ArgumentParser:
    """The parser; what it gives has the chosen command's name as ``command``."""
    parser = argparse.ArgumentParser(
        prog="broker",
        description="Runs extensions on one isolated, typed and bounded bus.",
        epilog=_EXIT_CODES,
        allow_abbrev=False,
    )
    parser.add_argument("--version", action=_Version, help="show the version and exit")
    commands = parser.add_subparsers(title="commands", required=True, dest="command", metavar="COMMAND")

    command = _add(commands, "run", "start extensions in one session and show what happens on its bus")
    _add_run_options(command)
    command.set_defaults(record=None)

    command = _add(commands, "record", "run as 'broker run' does, and record every frame with its secrets taken out")
    command.add_argument("record", metavar="FILE", type=Path, help="the recording; it must not exist yet")
    _add_run_options(command)

    command = _add(commands, "replay", "play a recording again without its extensions, and say where the host differs")
    command.add_argument("path", metavar="FILE", type=Path, help="what 'broker record' wrote")
    _add_views(command)
    command.add_argument(
        "--speed",
        metavar="N",
        type=speed,
        help="times as fast as it was recorded (with --inspect default 1, else without any pause)",
    )

    command = _add(commands, "tail", "show the events of a file that --events-jsonl wrote")
    command.add_argument("path", metavar="FILE", type=Path, help="the file")
    command.add_argument("--follow", action="store_true", help="wait for more, until Ctrl-C")
    command.add_argument(
        "--type",
        dest="types",
        metavar="T",
        action="append",
        type=event_type,
        help="show events of this type alone; repeatable",
    )
    command.add_argument("--json", action="store_true", help="show them as they stand there, one JSON object a line")

    command = _add(commands, "call", "start one extension or MCP server, call one tool, print its answer")
    command.add_argument(
        "path", metavar="PATH", type=Path, help="an extension.toml, its directory, or a *.json with mcp_servers"
    )
    command.add_argument(
        "words",
        metavar="[SERVER] TOOL JSON",
        nargs="+",
        help="the tool and its arguments; for a *.json the server's name first",
    )
    _add_workspace(command)
    command.add_argument("--timeout", metavar="S", type=seconds, help="seconds the call may take (default 30)")
    command.add_argument("--json", action="store_true", help="write the answer as one JSON object")
    command.usage = "%(prog)s [-h] [--workspace DIR] [--timeout S] [--json] PATH [SERVER] TOOL JSON"

    command = _add(commands, "import", "have a migration adapter read a setup and print what it would take over")
    command.add_argument("path", metavar="PATH", type=Path, help="the adapter's extension.toml, or its directory")
    command.add_argument("source_root", metavar="ROOT", type=Path, help="the directory that holds the setup")
    _add_workspace(command)
    command.add_argument("--json", action="store_true", help="write the result as one JSON object")

    command = _add(commands, "conform", "judge extensions, MCP servers or a host by the rules of their contracts")
    command.epilog = f"{_EXIT_CODES}, 130 it was interrupted and nothing was judged"
    _add_conform_options(command)

    command = _add(commands, "check", "check manifests and list every fault with its key path")
    command.add_argument("paths", metavar="PATH", nargs="+", type=Path, help=_PATHS)

    command = _add(commands, "new", "write an extension that works, with tests that pass")
    command.add_argument("name", metavar="NAME", help="its name, and that of its directory: [a-z][a-z0-9-]*")
    command.add_argument(
        "--family", choices=FAMILIES, default="octet", help="an octet extension (default) or an MCP server"
    )
    command.add_argument(
        "--api", choices=API_VERSIONS, help="the version of an octet extension: 0.3, which has the bus, or 0.4"
    )
    command.add_argument(
        "--dir", dest="directory", metavar="DIR", type=Path, default=Path(), help="where to write it (default: here)"
    )
    return parser


class _Version(argparse.Action):
    """Prints the version; reading it takes longer than everything else here."""

    def __init__(self, **given: Any) -> None:
        super().__init__(nargs=0, **given)

    def __call__(self, parser: argparse.ArgumentParser, *_: Any) -> None:
        from importlib import metadata

        try:
            version = metadata.version("extension-broker")
        except metadata.PackageNotFoundError:
            version = "not installed"
        print(f"broker {version}")
        parser.exit()


def _add(commands: Any, name: str, summary: str) -> argparse.ArgumentParser:
    parser: argparse.ArgumentParser = commands.add_parser(
        name, help=summary, description=f"{summary[0].upper()}{summary[1:]}.", epilog=_EXIT_CODES, allow_abbrev=False
    )
    return parser


def _add_workspace(command: argparse.ArgumentParser) -> None:
    command.add_argument(
        "--workspace",
        metavar="DIR",
        type=Path,
        default=Path(),
        help="the directory extensions work in (default: this one)",
    )


def _add_views(command: argparse.ArgumentParser) -> None:
    shown = command.add_mutually_exclusive_group()
    shown.add_argument("--json", action="store_true", help="write one JSON object a line to stdout")
    shown.add_argument(
        "--inspect", action="store_true", help="look into the session on the terminal (extra 'inspect'); q ends it"
    )


def _add_run_options(command: argparse.ArgumentParser) -> None:
    command.add_argument("paths", metavar="PATH", nargs="+", type=Path, help=_PATHS)
    _add_workspace(command)
    _add_views(command)
    command.add_argument(
        "--for", dest="duration", metavar="SECONDS", type=seconds, help="stop after this time; else at Ctrl-C"
    )
    command.add_argument(
        "--call",
        dest="calls",
        metavar=("EXT", "TOOL", "JSON"),
        nargs=3,
        action="append",
        default=[],
        help="call a tool once the bus has come to rest, at the latest when four fifths of --for are over; repeatable",
    )
    command.add_argument(
        "--ask",
        dest="asks",
        metavar=("PROVIDER", "MODEL", "JSON"),
        nargs=3,
        action="append",
        default=[],
        help="ask a model that an extension provides, when --call would call; repeatable",
    )
    command.add_argument(
        "--events-jsonl", dest="events", metavar="FILE", type=Path, help="append the run's events to this file"
    )
    command.add_argument(
        "--events-include-args", action="store_true", help="with the arguments of tool calls, their secrets redacted"
    )
    command.add_argument(
        "--max-runtime", metavar="SECONDS", type=limit, help="end the run after this time, with exit status 4"
    )
    command.add_argument(
        "--max-tool-calls", metavar="N", type=limit, help="end the run before one more tool call, with exit status 4"
    )


def _add_conform_options(command: argparse.ArgumentParser) -> None:
    command.add_argument(
        "paths",
        metavar="PATH",
        nargs="*",
        type=Path,
        help="an extension.toml, its directory, a folder of such directories, or a *.json with mcp_servers",
    )
    command.add_argument(
        "--host",
        metavar="COMMAND",
        help="judge a host instead: the command is run with hostile extensions, {path} being such a one's directory; "
        "with {config} instead, a file with mcp_servers",
    )
    command.add_argument("--server", metavar="NAME", help="of a *.json, this server alone")
    command.add_argument(
        "--call",
        dest="calls",
        metavar=("TOOL", "JSON"),
        nargs=2,
        action="append",
        default=[],
        help="call this tool with these arguments; repeatable. Without it the tools of an extension are called with "
        "made-up arguments, and those of an MCP server if they say that they only read",
    )
    command.add_argument("--call-all", action="store_true", help="call the tools of MCP servers, whatever they say")
    command.add_argument("--no-calls", action="store_true", help="call no tool that exists")
    command.add_argument(
        "--event",
        dest="events",
        metavar=("TOPIC", "JSON"),
        nargs=2,
        action="append",
        default=[],
        help="publish this payload on a topic the extension subscribes to; repeatable",
    )
    command.add_argument("--source-root", metavar="DIR", type=Path, help="the directory a migration adapter reads")
    command.add_argument(
        "--workspace",
        metavar="DIR",
        type=Path,
        help="the directory the program works in (default: a new one for extensions, this one for MCP servers)",
    )
    command.add_argument(
        "--timeout",
        metavar="S",
        type=seconds,
        help=f"seconds for one answer (default {CONFORM_ANSWER_MS / 1000:g}); for --host, for one run of the command",
    )
    command.add_argument(
        "--total-timeout",
        metavar="S",
        type=seconds,
        help=f"seconds for everything about one program (default {CONFORM_TOTAL_MS / 1000:g})",
    )
    command.add_argument(
        "--rule", dest="rules", metavar="ID", action="append", default=[], help="report this rule alone; repeatable"
    )
    command.add_argument("--list", dest="list_rules", action="store_true", help="list the rules and do nothing")
    command.add_argument("--json", action="store_true", help="write the reports as one JSON object")
    command.add_argument("--junit", metavar="FILE", type=Path, help="also write them to this file, as JUnit XML")
    command.add_argument("--verbose", action="store_true", help="show the rules that were kept, too")


# -- values ------------------------------------------------------------------------------------------------------------


def seconds(text: str) -> float:
    """A positive number of seconds."""
    try:
        value = float(text)
    except ValueError:
        value = math.nan
    if not 0 < value <= MAX_COMMAND_SECONDS:
        raise argparse.ArgumentTypeError(f"expected seconds above 0, at most {MAX_COMMAND_SECONDS}, got {text!r}")
    return value


def speed(text: str) -> float:
    """How many times as fast as it was; a positive number."""
    try:
        value = float(text)
    except ValueError:
        value = math.nan
    if not 0 < value < math.inf:
        raise argparse.ArgumentTypeError(f"expected a number above 0, got {text!r:.80}")
    return value


def limit(text: str) -> int:
    """A positive whole number."""
    # Not int(): that takes "1_000", " 7" and digits of other scripts as well.
    digits = len(text) <= MAX_COMMAND_NUMBER_CHARS and text.isascii() and text.isdigit()
    if not digits or not 0 < int(text) <= MAX_PORTABLE_INTEGER:
        raise argparse.ArgumentTypeError(f"expected a whole number above 0, got {text!r:.80}")
    return int(text)


def event_type(text: str) -> str:
    """A type of the event stream."""
    from broker.cli.tail import TYPES

    if text not in TYPES:
        raise argparse.ArgumentTypeError(f"there is no event type {text!r:.80}; choose from {', '.join(TYPES)}")
    return text
