"""``broker call``: start one extension or MCP server, call one tool, print its answer."""

from __future__ import annotations

import argparse
import asyncio
import json
import sys
from typing import Any

from broker.adapters.aio import AsyncHost
from broker.adapters.discovery import is_server_config
from broker.bus import BusStatistics
from broker.cli.arguments import check_arguments, option_json
from broker.cli.calling import call_once
from broker.cli.exit_codes import FAILURE, OK
from broker.cli.interrupts import interrupts
from broker.cli.settling import Activity
from broker.cli.sources import Source, load_one, start
from broker.errors import BrokerError, SetupError, UsageError
from broker.host import HealthChanged, HostSettings, Notice, records
from broker.host.records import describe
from broker.limits import CALL_QUIET_MS, CALL_SETTLE_MS
from broker.wire.quoting import escape


async def call(given: argparse.Namespace) -> int:
    """Carry out ``broker call``; gives the exit status."""
    server, tool, arguments = _words(given)
    source, warnings = load_one(given.path, server)
    check_arguments(source, arguments)
    view = _AnswerView(as_json=given.json)
    for name, warning in warnings:
        view.show(records.diagnostic(name, warning))
    working = asyncio.ensure_future(_call(given, source, tool, arguments, view))
    try:
        with interrupts(working.cancel):
            return await working
    except asyncio.CancelledError:
        print("broker: interrupted", file=sys.stderr)
        return FAILURE


def _words(given: argparse.Namespace) -> tuple[str | None, str, Any]:
    """The server (of a configuration alone), the tool, and the arguments."""
    named = is_server_config(given.path)
    if len(given.words) != (3 if named else 2):
        expected = "SERVER TOOL JSON" if named else "TOOL JSON"
        raise UsageError(f"expected {expected} after {given.path}, got {len(given.words)} words")
    arguments = option_json("argument JSON", given.words[-1])
    return given.words[0] if named else None, given.words[-2], arguments


async def _call(given: argparse.Namespace, source: Source, tool: str, arguments: Any, view: _AnswerView) -> int:
    async with AsyncHost(settings=HostSettings(restart=False)) as host:
        session = await host.open_session(given.workspace)
        activity = Activity(CALL_QUIET_MS / 1000)

        def observe(notice: Notice) -> None:
            if isinstance(notice, HealthChanged):
                return  # what became of it is what the call, or the start, fails with
            record = records.from_notice(notice)
            if record is not None and record["kind"] == "diagnostic":
                view.show(record)

        session.add_observer(observe)
        session.bus.add_trace(lambda _: activity.note())
        try:
            await start(session, source)
        except SetupError:
            raise
        except BrokerError as error:
            view.show(records.from_error(source.name, tool, error))
            return FAILURE
        if session.bus.statistics().peers:
            # An extension that uses the bus declares and subscribes first; its tools usually tell of that.
            await activity.settle(CALL_SETTLE_MS / 1000)
        record = await call_once(session, view, source.name, tool, arguments, given.timeout)
        await session.aclose()
        return OK if record["ok"] else FAILURE


class _AnswerView:
    """The answer on stdout, everything else on stderr."""

    def __init__(self, *, as_json: bool) -> None:
        self._as_json = as_json

    def show(self, record: dict[str, Any]) -> None:
        if record["kind"] != "call":
            print(describe(record), file=sys.stderr, flush=True)
        elif self._as_json:
            print(json.dumps(record, separators=(",", ":")), flush=True)
        elif "error" in record:
            print(f"broker: {escape(record['error']['detail'])}", file=sys.stderr, flush=True)
        else:
            out = sys.stdout if record["ok"] else sys.stderr
            for part in record["content"]:
                # An image or a sound has words to stand for it.
                text = part.get("text", part.get("alt", part.get("transcript", "")))
                # Line ends are the tool's own layout; anything else that could steer a terminal is escaped.
                print("\n".join(escape(line, max_chars=len(line) * 10) for line in text.split("\n")), file=out)
            out.flush()

    def refresh(self, statistics: BusStatistics) -> None:
        pass

    def close(self) -> None:
        pass
