"""The command line: which module carries a command out, and what its errors come to."""

from __future__ import annotations

import argparse
import io
import os
import sys
from collections.abc import Sequence

from broker.cli.exit_codes import BUDGET, FAILURE, SETUP, USAGE
from broker.cli.options import make_parser
from broker.errors import BrokerError, BudgetExceededError, SetupError, UsageError
from broker.wire.quoting import escape


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
    arguments = make_parser().parse_args(argv)
    _put_own_programs_on_path()
    try:
        status = _carry_out(arguments)
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


def _carry_out(given: argparse.Namespace) -> int:
    # A command loads what it needs and no more: a manifest is checked in a fifth of the time a host takes to load.
    match given.command:
        case "check":
            from broker.cli import check

            return check.check(given.paths)
        case "new":
            from broker.cli import new

            return new.new(given)
        case "conform":
            from broker.cli import conform

            return conform.conform(given)
        case _:
            import asyncio

            return asyncio.run(_carry_out_in_a_loop(given))


async def _carry_out_in_a_loop(given: argparse.Namespace) -> int:
    match given.command:
        case "call":
            from broker.cli import call

            return await call.call(given)
        case "import":
            from broker.cli import migrate

            return await migrate.migrate(given)
        case "replay":
            from broker.cli import replay

            return await replay.replay(given)
        case "tail":
            from broker.cli import tail

            return await tail.tail(given)
        case _:
            from broker.cli import run

            return await run.run(given)


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
