"""The command line: what it accepts, and which module carries it out."""

from __future__ import annotations

import argparse
import asyncio
import io
import os
import sys
from collections.abc import Sequence
from importlib import metadata
from pathlib import Path
from typing import Any

from broker.cli import call, check, conform, migrate, new, run, tail
from broker.cli.arguments import limit, seconds, speed
from broker.cli.exit_codes import BUDGET, FAILURE, SETUP, USAGE
from broker.errors import BrokerError, BudgetExceededError, SetupError, UsageError
from broker.wire.quoting import escape

_EXIT_CODES = (
    "exit status: 0 ok, 1 a tool or an extension failed, 2 wrong usage, 3 a manifest or the set-up is wrong, "
    "4 the budget of the run is spent"
)
_PATHS = "an extension.toml, its directory, a folder of such directories, or a *.json with mcp_servers"


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command; gives its exit status. ``argv`` is what follows the program's name."""
    for name in ("stdout", "stderr"):
        # A stream that is closed from the start has no object at all: nobody wants what would be said there.
        if getattr(sys, name) is None:
            setattr(sys, name, open(os.devnull, "w", encoding="utf-8"))  # noqa: SIM115 - it lives as long as the program
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            # A terminal that cannot show a character gets its escape, never a UnicodeEncodeError half-way.
            stream.reconfigure(errors="backslashreplace")
    arguments = _parser().parse_args(argv)
    _put_own_programs_on_path()
    try:
        status = int(arguments.action(arguments))
        sys.stdout.flush()
        return status
    except KeyboardInterrupt:
        return FAILURE
    except BrokenPipeError:
        _give_up_stdout()
        return FAILURE
    except UsageError as error:
        print(f"broker: {escape(str(error))}", file=sys.stderr)
        return USAGE
    except SetupError as error:
        _print_setup_error(error)
        return SETUP
    except BrokerError as error:
        print(f"broker: {escape(str(error))}", file=sys.stderr)
        return BUDGET if isinstance(error, BudgetExceededError) else FAILURE
    except OSError as error:
        _give_up_stdout()
        print(f"broker: {escape(str(error))}", file=sys.stderr)
        return FAILURE


def _put_own_programs_on_path() -> None:
    """Let extensions find the Python that has broker, as if this virtual environment were activated."""
    programs = os.path.join(sys.prefix, "bin")
    path = os.environ.get("PATH", os.defpath)
    if sys.prefix != sys.base_prefix and programs not in path.split(os.pathsep):
        os.environ["PATH"] = f"{programs}{os.pathsep}{path}"


def _give_up_stdout() -> None:
    # Whoever read the output is gone, or its disk is full. Python would complain again when it flushes at the end.
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _print_setup_error(error: SetupError) -> None:
    if error.faults:
        for fault in error.faults:
            print(f"broker: {escape(error.path or '')}: {escape(str(fault))}", file=sys.stderr)
    else:
        print(f"broker: {escape(str(error))}", file=sys.stderr)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="broker",
        description="Runs extensions on one isolated, typed and bounded bus.",
        epilog=_EXIT_CODES,
        allow_abbrev=False,
    )
    parser.add_argument("--version", action="version", version=f"broker {_version()}")
    commands = parser.add_subparsers(title="commands", required=True, metavar="COMMAND")

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
    command.set_defaults(action=_replay)

    command = _add(commands, "tail", "show the events of a file that --events-jsonl wrote")
    command.add_argument("path", metavar="FILE", type=Path, help="the file")
    command.add_argument("--follow", action="store_true", help="wait for more, until Ctrl-C")
    command.add_argument(
        "--type",
        dest="types",
        metavar="T",
        action="append",
        choices=tail.TYPES,
        help="show events of this type alone; repeatable",
    )
    command.add_argument("--json", action="store_true", help="show them as they stand there, one JSON object a line")
    command.set_defaults(action=lambda given: asyncio.run(tail.tail(given)))

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
    command.set_defaults(action=lambda given: asyncio.run(call.call(given)))

    command = _add(commands, "import", "have a migration adapter read a setup and print what it would take over")
    command.add_argument("path", metavar="PATH", type=Path, help="the adapter's extension.toml, or its directory")
    command.add_argument("source_root", metavar="ROOT", type=Path, help="the directory that holds the setup")
    _add_workspace(command)
    command.add_argument("--json", action="store_true", help="write the result as one JSON object")
    command.set_defaults(action=lambda given: asyncio.run(migrate.migrate(given)))

    command = _add(commands, "conform", "judge extensions, MCP servers or a host by the rules of their contracts")
    conform.add_arguments(command)
    command.set_defaults(action=conform.conform)

    command = _add(commands, "check", "check manifests and list every fault with its key path")
    command.add_argument("paths", metavar="PATH", nargs="+", type=Path, help=_PATHS)
    command.set_defaults(action=lambda given: check.check(given.paths))

    command = _add(commands, "new", "write an extension that works, with tests that pass")
    command.add_argument("name", metavar="NAME", help="its name, and that of its directory: [a-z][a-z0-9-]*")
    command.add_argument(
        "--family", choices=new.FAMILIES, default="octet", help="an octet extension (default) or an MCP server"
    )
    command.add_argument(
        "--api", choices=new.API_VERSIONS, help="the version of an octet extension: 0.3, which has the bus, or 0.4"
    )
    command.add_argument(
        "--dir", dest="directory", metavar="DIR", type=Path, default=Path(), help="where to write it (default: here)"
    )
    command.set_defaults(action=new.new)
    return parser


def _replay(given: argparse.Namespace) -> int:
    # The test kit is for this command alone.
    from broker.cli import replay

    return asyncio.run(replay.replay(given))


def _version() -> str:
    try:
        return metadata.version("extension-broker")
    except metadata.PackageNotFoundError:
        return "not installed"


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
    command.set_defaults(action=lambda given: asyncio.run(run.run(given)))
