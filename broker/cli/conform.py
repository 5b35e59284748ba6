"""``broker conform``: judges extensions, MCP servers and hosts by the rules of their contracts."""

from __future__ import annotations

import argparse
import errno
import json
import os
import signal
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING, Any

from broker.adapters.files import write_whole
from broker.cli.arguments import option_json
from broker.cli.exit_codes import FAILURE, INTERRUPTED, OK, SETUP
from broker.cli.interrupts import handled
from broker.cli.sources import Source, load_all, load_one
from broker.errors import SetupError, UsageError
from broker.limits import CONFORM_ANSWER_MS, CONFORM_TOTAL_MS
from broker.wire.quoting import escape
from broker.wire.suggestion import suggestion

# What judges is loaded when something is to be judged: every other command starts without it.
if TYPE_CHECKING:
    from broker.conform import ConformSettings, Report


def conform(given: argparse.Namespace) -> int:
    """Run it; 1 when a rule is broken, else 3 when something was not judged to the end; 130 for Ctrl-C at any time."""
    try:
        return _conform(given)
    except KeyboardInterrupt:
        print("broker: interrupted, nothing was judged", file=sys.stderr)
        return INTERRUPTED


def _conform(given: argparse.Namespace) -> int:
    from broker.conform import examine, junit_xml, reports_json
    from broker.conform.hostile.conduct import examine_host

    if given.list_rules:
        _list_rules(as_json=given.json)
        return OK
    if given.junit is not None:
        _check_writable(given.junit)
    settings = _settings(given)
    with _ended_as_by_interrupt():
        if given.host is not None:
            if given.paths:
                raise UsageError("--host takes no PATH: it brings its own extensions")
            reports = [examine_host(given.host, settings, timeout=given.timeout)]
        else:
            if not given.paths:
                raise UsageError("nothing to judge: give a PATH, or --host")
            reports = examine(_targets(given), settings)
    if given.json:
        print(json.dumps(reports_json(reports)))
    else:
        for report in reports:
            print("\n".join(report.lines(verbose=given.verbose or bool(given.rules))))
    if given.junit is not None:
        try:
            _write(given.junit, junit_xml(reports))
        except OSError as error:
            raise _unwritable(given.junit, error.strerror or str(error)) from error
    if given.host is None and not any(report.failed or report.cut_short for report in reports):
        _require_used(given, reports)
    for report in reports:
        if report.cut_short is not None:
            print(f"broker: {escape(report.target)}: not judged to the end: {report.cut_short}", file=sys.stderr)
    if any(report.failed for report in reports):
        return FAILURE
    return SETUP if any(report.cut_short is not None for report in reports) else OK


@contextmanager
def _ended_as_by_interrupt() -> Iterator[None]:
    """Have SIGTERM and SIGHUP do what Ctrl-C does: everything that was started is ended, and its files are removed."""

    def interrupt(_: int, frame: FrameType | None) -> None:
        # Of an event loop that runs, this is what cancels the work. Who ignores Ctrl-C is still to be ended by these.
        handler = signal.getsignal(signal.SIGINT)
        (handler if callable(handler) else signal.default_int_handler)(signal.SIGINT, frame)

    with handled((signal.SIGTERM, signal.SIGHUP), interrupt):
        yield


def _check_writable(file: Path) -> None:
    """Raise :class:`SetupError` for a report that could not be written once it is there."""
    if os.path.isdir(file):
        raise _unwritable(file, "it is a directory")
    directory = os.path.dirname(os.path.realpath(file))
    if not os.path.isdir(directory):
        raise _unwritable(file, f"{directory} is not a directory")
    if not os.access(file if _is_special(file) else directory, os.W_OK):
        raise _unwritable(file, os.strerror(errno.EACCES))


def _write(file: Path, content: bytes) -> None:
    """Write a report as a whole, where it is not for a pipe or a device."""
    if _is_special(file):
        file.write_bytes(content)
        return
    mask = os.umask(0o077)
    os.umask(mask)
    write_whole(os.path.realpath(file), content, mode=0o666 & ~mask)


def _is_special(file: Path) -> bool:
    return os.path.exists(file) and not os.path.isfile(file)


def _unwritable(file: Path, why: str) -> SetupError:
    return SetupError(f"{file} cannot be written: {why}", path=str(file))


def _require_used(given: argparse.Namespace, reports: Sequence[Report]) -> None:
    """Raise :class:`UsageError` for an option about a tool or a topic that nothing judged has."""
    usable = {one for report in reports for one in report.usable}
    for option, names, what in (("--call", given.calls, "tool"), ("--event", given.events, "topic subscribed to")):
        known = [name for kind, name in sorted(usable) if kind == option]
        for name, _ in names:
            if (option, name) not in usable and not (option == "--call" and given.no_calls):
                raise UsageError(f"{option} {name}: nothing judged has such a {what}{suggestion(name, known)}")


def _targets(given: argparse.Namespace) -> list[Source]:
    if given.server is not None:
        if len(given.paths) != 1:
            raise UsageError("--server is about one *.json")
        source, warnings = load_one(given.paths[0], given.server)
        sources = [source]
    else:
        sources, warnings = load_all(given.paths)
    for name, text in warnings:
        print(f"warning: {escape(name)}: {escape(text)}", file=sys.stderr)
    if not sources:
        raise UsageError("nothing to judge: no server is enabled")
    return sources


def _settings(given: argparse.Namespace) -> ConformSettings:
    from broker.conform import ConformSettings

    calls: dict[str, tuple[Any, ...]] = {}
    for tool, text in given.calls:
        calls[tool] = (*calls.get(tool, ()), option_json(f"--call {tool}", text))
    events: dict[str, dict[str, Any]] = {}
    for topic, text in given.events:
        payload = option_json(f"--event {topic}", text)
        if not isinstance(payload, dict):
            raise UsageError(f"--event {topic}: a payload is an object")
        events[topic] = payload
    for name, directory in (("--workspace", given.workspace), ("--source-root", given.source_root)):
        if directory is not None and not directory.is_dir():
            raise SetupError(f"{name} {directory} is not a directory", path=str(directory))
    return ConformSettings(
        calls=calls,
        allow_calls=not given.no_calls,
        call_all=given.call_all,
        events=events,
        source_root=None if given.source_root is None else str(given.source_root.resolve()),
        workspace=None if given.workspace is None else str(given.workspace.resolve()),
        answer_ms=CONFORM_ANSWER_MS if given.timeout is None else max(1, int(given.timeout * 1000)),
        total_ms=CONFORM_TOTAL_MS if given.total_timeout is None else max(1, int(given.total_timeout * 1000)),
        rules=tuple(given.rules),
    )


def _list_rules(*, as_json: bool) -> None:
    from broker.conform import CATALOGUE

    rules = [rule for family in CATALOGUE.values() for rule in family.values()]
    if as_json:
        rows = [
            {"id": rule.id, "family": rule.family.value, "title": rule.title, "where": rule.where, "how": rule.how}
            for rule in rules
        ]
        print(json.dumps({"rules": rows}))
        return
    for rule in rules:
        print(f"{rule.family.value:8}{rule.id}: {rule.title} ({rule.where})")
